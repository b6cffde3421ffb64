//! The book of alarms: which are raised, and since when. Pure: no clock, no I/O.
//!
//! An alarm is one *kind* about one *subject*; the two together are its identity. At each look the book is handed what was
//! found, and answers with edges:
//!
//! ```text
//!              found for `raise_after`                    not found for `clear_after`
//!   nothing ───────────────────────────► raised (an edge) ───────────────────────────► cleared (an edge), gone
//!      ▲   found                    │          ▲                         │
//!      └── not found: forgotten ◄───┘          └───── found again ◄──────┘
//! ```
//!
//! Guarantees, which the tests at the end hold against histories at random:
//!
//! * No identity is raised twice without being cleared in between, and none is cleared that was not raised.
//! * What is found no more for `clear_after` is cleared.
//! * Between two edges of one identity lies the time of the second one's kind, so what flaps gives a bounded number of edges;
//!   but what is over for good ([`Verdict::Over`]) is cleared at once.
//! * What nobody can tell ([`Verdict::Unsure`]) changes nothing: no edge comes of a restart, or of a pool that is closed.

use std::collections::BTreeMap;
use std::time::Duration;

use farside_mirror::ClockReading;
use farside_platform::Timestamp;

use super::kind::Kind;

/// Alarms that are raised at the same time, at most. Each is of a mirror, a pool or a peer; a site that has more of them in
/// trouble than this needs no further list.
pub(crate) const OPEN_MAX: usize = 1024;
/// Longest text of an alarm, bytes: some of it may come from a peer or a kernel.
const TEXT_BYTES_MAX: usize = 4096;

/// How long a kind must be found before it is raised, and not be found before it is cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HoldTimes {
    pub(crate) raise_after: Duration,
    pub(crate) clear_after: Duration,
}

/// What a look has found out about one identity. What it says nothing of is not so (any more).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Finding {
    pub(crate) kind: Kind,
    pub(crate) subject: String,
    pub(crate) verdict: Verdict,
}

/// How it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It is so.
    Holds {
        /// What is wrong.
        message: String,
        /// What to do.
        hint: String,
    },
    /// Nobody can tell at the moment, or it is between the two limits of a hysteresis: it stays as it is.
    Unsure,
    /// It is over, and not for the moment: a person has ended what it was about. Nothing waits for it to stay so.
    Over,
}

/// An alarm that was raised.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Alarm {
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    pub(crate) subject: String,
    pub(crate) raised_at: Timestamp,
    pub(crate) cleared_at: Option<Timestamp>,
    pub(crate) acknowledged_at: Option<Timestamp>,
    pub(crate) message: String,
    pub(crate) hint: String,
}

/// What has changed with a look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Edge {
    Raised(Alarm),
    Cleared(Alarm),
}

type Identity = (Kind, String);

#[derive(Clone, Debug)]
struct Open {
    alarm: Alarm,
    /// Since when it is not found.
    gone_since: Option<Duration>,
}

/// The book.
#[derive(Debug, Default)]
pub(crate) struct Book {
    open: BTreeMap<Identity, Open>,
    /// Found, and not raised yet: since when.
    found_since: BTreeMap<Identity, Duration>,
    next_id: u64,
}

impl Book {
    /// With alarms that were raised before, and the first number that was never given to one.
    pub(crate) fn new(open: Vec<Alarm>, next_id: u64) -> Book {
        let open = open
            .into_iter()
            .map(|alarm| ((alarm.kind, alarm.subject.clone()), Open { alarm, gone_since: None }));
        Book { open: open.collect(), found_since: BTreeMap::new(), next_id }
    }

    /// Takes up what was found at `now`.
    pub(crate) fn look(
        &mut self,
        now: ClockReading,
        findings: Vec<Finding>,
        times: impl Fn(Kind) -> HoldTimes,
    ) -> Vec<Edge> {
        let mut found: BTreeMap<Identity, Verdict> = BTreeMap::new();
        for Finding { kind, subject, verdict } in findings {
            let said = found.entry((kind, subject)).or_insert(Verdict::Unsure);
            if !matches!(said, Verdict::Holds { .. }) {
                *said = verdict;
            }
        }
        let mut edges = self.clear(now, &found, &times);
        self.found_since.retain(|identity, _| found.get(identity).is_some_and(|said| *said != Verdict::Over));
        for (identity, verdict) in found {
            let Verdict::Holds { message, hint } = verdict else { continue };
            let (message, hint) = (shortened(message), shortened(hint));
            if let Some(open) = self.open.get_mut(&identity) {
                (open.alarm.message, open.alarm.hint) = (message, hint);
                continue;
            }
            let since = *self.found_since.entry(identity.clone()).or_insert(now.monotonic);
            let has_held = now.monotonic.saturating_sub(since) >= times(identity.0).raise_after;
            if !has_held || self.open.len() >= OPEN_MAX {
                continue;
            }
            self.found_since.remove(&identity);
            let alarm = Alarm {
                id: self.next_id,
                kind: identity.0,
                subject: identity.1.clone(),
                raised_at: now.wall,
                cleared_at: None,
                acknowledged_at: None,
                message,
                hint,
            };
            self.next_id += 1;
            edges.push(Edge::Raised(alarm.clone()));
            self.open.insert(identity, Open { alarm, gone_since: None });
        }
        edges
    }

    fn clear(
        &mut self,
        now: ClockReading,
        found: &BTreeMap<Identity, Verdict>,
        times: &impl Fn(Kind) -> HoldTimes,
    ) -> Vec<Edge> {
        let mut edges = Vec::new();
        self.open.retain(|identity, open| {
            let is_over = match found.get(identity) {
                Some(Verdict::Over) => true,
                None => false,
                Some(Verdict::Holds { .. } | Verdict::Unsure) => {
                    open.gone_since = None;
                    return true;
                }
            };
            let since = *open.gone_since.get_or_insert(now.monotonic);
            let stays = !is_over && now.monotonic.saturating_sub(since) < times(identity.0).clear_after;
            if !stays {
                edges.push(Edge::Cleared(Alarm { cleared_at: Some(now.wall), ..open.alarm.clone() }));
            }
            stays
        });
        edges
    }

    /// Those that are raised, in the order in which they were.
    pub(crate) fn open(&self) -> Vec<Alarm> {
        let mut open: Vec<Alarm> = self.open.values().map(|open| open.alarm.clone()).collect();
        open.sort_by_key(|alarm| alarm.id);
        open
    }

    /// The same as they are told at `now`: what is not found any more, and only waits to be cleared, must not be read as if it were so.
    pub(crate) fn told(&self, now: Duration, times: impl Fn(Kind) -> HoldTimes) -> Vec<Alarm> {
        let told = |open: &Open| {
            let mut alarm = open.alarm.clone();
            if let Some(since) = open.gone_since {
                let gone = now.saturating_sub(since);
                let left = times(alarm.kind).clear_after.saturating_sub(gone);
                alarm.message = format!(
                    "was: {}; gone since {} s, cleared in {} s if it stays so",
                    alarm.message,
                    gone.as_secs(),
                    left.as_secs()
                );
            }
            alarm
        };
        let mut open: Vec<Alarm> = self.open.values().map(told).collect();
        open.sort_by_key(|alarm| alarm.id);
        open
    }

    /// Whether a person knows of this. None: it is not raised.
    pub(crate) fn is_acknowledged(&self, kind: Kind, subject: &str) -> Option<bool> {
        let open = self.open.get(&(kind, subject.to_owned()))?;
        Some(open.alarm.acknowledged_at.is_some())
    }

    /// Notes that a person knows of an alarm that is raised. None: no such alarm is.
    pub(crate) fn acknowledge(&mut self, id: u64, at: Timestamp) -> Option<Alarm> {
        let open = self.open.values_mut().find(|open| open.alarm.id == id)?;
        open.alarm.acknowledged_at.get_or_insert(at);
        Some(open.alarm.clone())
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    }
    text
}

#[cfg(test)]
mod tests;
