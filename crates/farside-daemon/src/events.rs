//! What changes at this site, told as it changes: mirrors, peers, pools, alarms, long work.
//!
//! As long as somebody follows, the site is looked at every second, and what is not as it was is an event with a number. The
//! newest events are kept: who was cut off goes on behind the number that came last. Whoever was away for too long, or since
//! before a restart, is told to begin anew.
//!
//! Guarantees: what changes after a follower's beginning reaches it, in the order in which it was seen, or it is told to begin
//! anew. What changes twice within a second may be seen once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use farside_platform::{OsRandomness, Randomness};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

/// Events that are kept for those who come back; a mirror's has some KiB.
const KEPT_MAX: usize = 4096;
/// Followers at a time.
const FOLLOWERS_MAX: usize = 64;
/// How often the site is looked at.
pub(crate) const LOOKED_AT_EVERY: Duration = Duration::from_secs(1);
/// So long the site is looked at for nobody, so that whoever was cut off misses nothing.
pub(crate) const LOOKED_AT_FOR_NOBODY: Duration = Duration::from_secs(60);
/// What changes all the time is no event: it is in the next one.
const ALL_THE_TIME: [&str; 5] =
    ["lag_seconds", "forecast_seconds", "rtt_seconds", "sent_bytes", "received_bytes"];

/// One change.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    number: u64,
    /// What it is about: `mirror`, …; or `gone`, with what and which.
    pub(crate) kind: &'static str,
    /// JSON in one line.
    pub(crate) data: Arc<str>,
}

/// Where a follower is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    /// Of this run of looking.
    run: u64,
    /// The last event that it has.
    number: u64,
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}-{}", self.run, self.number)
    }
}

impl Position {
    /// As it was told to a follower.
    pub(crate) fn read(text: &str) -> Option<Position> {
        let (run, number) = text.split_once('-')?;
        Some(Position { run: u64::from_str_radix(run, 16).ok()?, number: number.parse().ok()? })
    }
}

/// Things by kind and name, each as it was told last.
type Seen = BTreeMap<(&'static str, String), Value>;

struct Kept {
    run: u64,
    last: u64,
    events: VecDeque<Event>,
    /// None: nobody has looked yet.
    seen: Option<Seen>,
}

/// The events of a site.
pub(crate) struct Events {
    kept: Mutex<Kept>,
    /// The number of the newest event.
    newest: watch::Sender<u64>,
    followers: watch::Sender<usize>,
}

/// A thing as it is now.
pub(crate) struct Thing {
    pub(crate) kind: &'static str,
    pub(crate) key: String,
    pub(crate) document: Value,
}

impl Thing {
    pub(crate) fn new(kind: &'static str, key: String, document: &impl Serialize) -> Thing {
        Thing { kind, key, document: serde_json::to_value(document).unwrap_or_default() }
    }
}

/// Somebody who follows, until dropped.
pub(crate) struct Follower {
    events: Arc<Events>,
    newest: watch::Receiver<u64>,
    at: Position,
}

impl Events {
    pub(crate) fn new() -> Arc<Events> {
        let kept = Kept { run: OsRandomness.next_u64(), last: 0, events: VecDeque::new(), seen: None };
        Arc::new(Events {
            kept: Mutex::new(kept),
            newest: watch::Sender::new(0),
            followers: watch::Sender::new(0),
        })
    }

    /// One more follower, behind where it was, or now; with whether it has to begin anew. None: there are as many as there may be.
    pub(crate) fn follow(self: &Arc<Self>, was: Option<Position>) -> Option<(Follower, bool)> {
        let is_in = self.followers.send_if_modified(|count| {
            let is_in = *count < FOLLOWERS_MAX;
            *count += usize::from(is_in);
            is_in
        });
        if !is_in {
            return None;
        }
        let newest = self.newest.subscribe();
        let kept = self.kept.lock();
        let now = Position { run: kept.run, number: kept.last };
        let at = was.filter(|was| kept.still_has(*was)).unwrap_or(now);
        let begins_anew = was.is_none_or(|was| was != at);
        drop(kept);
        Some((Follower { events: Arc::clone(self), newest, at }, begins_anew))
    }

    /// Waits until somebody follows.
    pub(crate) async fn wanted(&self) {
        let mut followers = self.followers.subscribe();
        // The sender lives as long as self.
        let _ = followers.wait_for(|count| *count > 0).await;
    }

    pub(crate) fn has_followers(&self) -> bool {
        *self.followers.borrow() > 0
    }

    /// Nobody looks any more: what is told next has no part in what was told before.
    pub(crate) fn forget(&self) {
        let mut kept = self.kept.lock();
        let number = kept.last;
        *kept = Kept { run: OsRandomness.next_u64(), last: number, events: VecDeque::new(), seen: None };
    }

    /// Compares all things with what was told of them.
    pub(crate) fn look(&self, things: Vec<Thing>) {
        let mut kept = self.kept.lock();
        let now: Seen = things.into_iter().map(|thing| ((thing.kind, thing.key), thing.document)).collect();
        let Some(before) = kept.seen.take() else {
            kept.seen = Some(now);
            return;
        };
        for ((kind, key), document) in &now {
            let was = before.get(&(*kind, key.clone()));
            if was.is_none_or(|was| !is_same(was, document)) {
                kept.add(kind, document.to_string());
            }
        }
        for (kind, key) in before.keys().filter(|thing| !now.contains_key(*thing)) {
            kept.add("gone", serde_json::json!({"kind": kind, "key": key}).to_string());
        }
        kept.seen = Some(now);
        let last = kept.last;
        drop(kept);
        self.newest.send_if_modified(|newest| std::mem::replace(newest, last) != last);
    }

    /// Whether what is there to compare with has been looked at: from then on nothing is missed.
    pub(crate) fn has_begun(&self) -> bool {
        self.kept.lock().seen.is_some()
    }
}

impl Kept {
    fn add(&mut self, kind: &'static str, data: String) {
        self.last += 1;
        self.events.push_back(Event { number: self.last, kind, data: data.into() });
        if self.events.len() > KEPT_MAX {
            self.events.pop_front();
        }
    }

    /// Whether every event behind this position is there.
    fn still_has(&self, at: Position) -> bool {
        let first = self.events.front().map_or(self.last + 1, |event| event.number);
        at.run == self.run && at.number <= self.last && at.number + 1 >= first
    }
}

/// Apart from what changes all the time.
fn is_same(one: &Value, other: &Value) -> bool {
    let (Value::Object(one), Value::Object(other)) = (one, other) else { return one == other };
    one.len() == other.len()
        && one
            .iter()
            .all(|(name, value)| ALL_THE_TIME.contains(&name.as_str()) || other.get(name) == Some(value))
}

impl Follower {
    /// Where it is: to be told to it with each event.
    pub(crate) fn position(&self) -> Position {
        self.at
    }

    /// The events behind where it is; none: it has to begin anew, and is at the newest now.
    pub(crate) fn take(&mut self) -> Option<Vec<Event>> {
        self.newest.mark_unchanged();
        let kept = self.events.kept.lock();
        let is_behind = !kept.still_has(self.at);
        let events = kept.events.iter().filter(|event| event.number > self.at.number).cloned().collect();
        self.at = Position { run: kept.run, number: kept.last };
        (!is_behind).then_some(events)
    }

    /// Waits for the next.
    pub(crate) async fn changed(&mut self) {
        // The sender lives as long as self.
        let _ = self.newest.changed().await;
    }
}

impl Event {
    /// Where whoever has this one is.
    pub(crate) fn position(&self, of: Position) -> Position {
        Position { number: self.number, ..of }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.events.followers.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn things(all: &[(&str, u64)]) -> Vec<Thing> {
        let thing = |(key, value): &(&str, u64)| {
            Thing::new(
                "mirror",
                (*key).to_owned(),
                &json!({"state": value, "lag_seconds": OsRandomness.next_u64()}),
            )
        };
        all.iter().map(thing).collect()
    }

    fn taken(follower: &mut Follower) -> Vec<String> {
        follower.take().unwrap().iter().map(|event| format!("{} {}", event.number, event.kind)).collect()
    }

    #[test]
    fn what_changes_is_told_once_and_whoever_comes_back_goes_on() {
        let events = Events::new();
        let (mut follower, begins_anew) = events.follow(None).unwrap();
        assert!(begins_anew && !events.has_begun());
        events.look(things(&[("a", 1), ("b", 1)]));
        events.look(things(&[("a", 1), ("b", 1)]));
        assert!(events.has_begun());
        assert_eq!(taken(&mut follower), [] as [&str; 0], "lag alone is no event");
        let came = follower.position();
        events.look(things(&[("a", 2), ("c", 1)]));
        assert_eq!(taken(&mut follower), ["1 mirror", "2 mirror", "3 gone"]);
        assert_eq!(taken(&mut follower), [] as [&str; 0]);
        drop(follower);

        let (mut back, begins_anew) = events.follow(Position::read(&came.to_string())).unwrap();
        assert!(!begins_anew);
        assert_eq!(taken(&mut back), ["1 mirror", "2 mirror", "3 gone"]);
        for round in 0..KEPT_MAX as u64 {
            events.look(things(&[("a", 10 + round)]));
        }
        assert!(back.take().is_none(), "it was too slow");
        assert_eq!(taken(&mut back), [] as [&str; 0]);
        assert!(events.follow(Some(came)).unwrap().1, "it was away for too long");
        let here = back.position();
        events.forget();
        assert!(events.follow(Some(here)).unwrap().1, "nobody looked meanwhile");
        assert!(back.take().is_none());
        for wrong in ["", "-", "x-1", "1-x"] {
            assert_eq!(Position::read(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn there_is_a_place_again_when_somebody_leaves() {
        let events = Events::new();
        let mut all: Vec<_> = (0..FOLLOWERS_MAX).map(|_| events.follow(None).unwrap()).collect();
        assert!(events.follow(None).is_none());
        all.pop();
        assert!(events.follow(None).is_some() && events.has_followers());
        all.clear();
        assert!(!events.has_followers());
    }
}
