//! A timetable of snapshots as it is kept and shown. Pure.

use farside_api::{SnapshotSchedule as Document, Timestamp};
use farside_mirror::{ClockReading, Retention, Schedule, Ticker};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::convert;
use crate::state::SnapshotScheduleRow;

/// What the state database has of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) volume: Uuid,
    /// As it was called last.
    pub(super) name: String,
    /// Volumes of the same pool that are taken in the same instant.
    #[serde(default)]
    pub(super) others: Vec<Other>,
    pub(super) schedule: String,
    pub(super) retention: String,
    pub(super) hook: Option<String>,
    /// Since when it is as it is: a first tick that the daemon slept through counts from then.
    #[serde(default)]
    pub(super) set_at: Option<Timestamp>,
    pub(super) last_at: Option<Timestamp>,
    pub(super) last_snapshot: Option<String>,
    pub(super) why: Option<String>,
    /// It says why none is taken, and nothing is wrong with that: it takes none while its volumes are replicas.
    #[serde(default)]
    pub(super) rests: bool,
    /// A hook has frozen an application, or was about to, and has not thawed it yet.
    #[serde(default)]
    pub(super) frozen: Option<Frozen>,
}

/// What is to be thawed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Frozen {
    /// By which hook, whichever the timetable has now.
    pub(super) hook: String,
    /// The volumes that it was told.
    pub(super) volumes: Vec<String>,
    /// Of the command that freezes, which may still run after the daemon was killed.
    pub(super) mark: Option<Uuid>,
}

/// Another volume of a timetable.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Other {
    pub(super) volume: Uuid,
    /// As it was called when it was named.
    pub(super) name: String,
}

/// A timetable while the daemon runs.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) pool: String,
    pub(super) kept: Kept,
    pub(super) schedule: Schedule,
    pub(super) retention: Retention,
    pub(super) ticker: Ticker,
}

impl Entry {
    /// `now`: a tick that fell while the daemon was down falls now.
    pub(super) fn begin(
        pool: String,
        kept: Kept,
        now: ClockReading,
    ) -> Result<Entry, farside_mirror::MirrorError> {
        let (schedule, retention): (Schedule, Retention) = (kept.schedule.parse()?, kept.retention.parse()?);
        let since = kept.last_at.or(kept.set_at);
        let missed = since.map(convert::timestamp).is_some_and(|last| match &schedule {
            Schedule::Every(every) => last.plus(*every) <= now.wall,
            Schedule::Cron(timetable) => timetable.next_after(last).is_some_and(|next| next <= now.wall),
            Schedule::OnRequest | Schedule::Objective(_) => false,
        });
        let ticker = Ticker::new(schedule.clone(), now, missed);
        Ok(Entry { pool, kept, schedule, retention, ticker })
    }

    /// The volumes, that by which it is known first.
    pub(super) fn volumes(&self) -> impl Iterator<Item = Uuid> {
        std::iter::once(self.kept.volume).chain(self.kept.others.iter().map(|other| other.volume))
    }

    /// Their names, as they were called last.
    pub(super) fn names(&self) -> Vec<String> {
        std::iter::once(&self.kept.name).chain(self.kept.others.iter().map(|o| &o.name)).cloned().collect()
    }

    /// Without a volume that is gone. None: it had no other.
    pub(super) fn without(&self, volume: Uuid) -> Option<Entry> {
        let mut entry = self.clone();
        entry.kept.others.retain(|other| other.volume != volume);
        if entry.kept.volume == volume {
            if entry.kept.others.is_empty() {
                return None;
            }
            let first = entry.kept.others.remove(0);
            (entry.kept.volume, entry.kept.name) = (first.volume, first.name);
        }
        Some(entry)
    }

    pub(super) fn row(&self) -> SnapshotScheduleRow {
        // Only maps with keys that are no strings fail, and there are none.
        let document = serde_json::to_string(&self.kept).unwrap_or_default();
        SnapshotScheduleRow { pool: self.pool.clone(), volume: self.kept.volume.to_string(), document }
    }

    pub(super) fn document(&self, points: Option<u64>) -> Document {
        Document {
            volume: self.kept.name.clone(),
            others: self.kept.others.iter().map(|other| other.name.clone()).collect(),
            schedule: self.schedule.to_string(),
            retention: self.retention.to_string(),
            hook: self.kept.hook.clone(),
            last_at: self.kept.last_at,
            last_snapshot: self.kept.last_snapshot.clone(),
            points,
            why: self.kept.why.clone(),
        }
    }
}

/// The name of a snapshot of a moment: what a hook has frozen for it is consistent for the application (`app-`), all else is as
/// after a power failure (`auto-`). The name travels, so every site sees it.
pub(super) fn name_at(
    at: farside_platform::Timestamp,
    is_consistent: bool,
    is_taken: impl Fn(&str) -> bool,
) -> String {
    let stem = if is_consistent { "app" } else { "auto" };
    let whole = farside_platform::Timestamp(at.0 - at.0 % 1_000_000_000);
    let second = whole.to_string().replace(".000000", "");
    let first = format!("{stem}-{second}");
    let numbered = || (2..).map(|n| format!("{first}-{n}"));
    std::iter::once(first.clone()).chain(numbered()).find(|name| !is_taken(name)).unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn kept(schedule: &str, last_at: Option<&str>) -> Kept {
        Kept {
            volume: Uuid::from_u128(2),
            name: "p/v".into(),
            others: Vec::new(),
            schedule: schedule.into(),
            retention: "hourly=24".into(),
            hook: None,
            set_at: None,
            last_at: last_at.map(|at| at.parse().unwrap()),
            last_snapshot: None,
            why: None,
            rests: false,
            frozen: None,
        }
    }

    #[test]
    fn names_say_when_and_how() {
        let at = farside_platform::Timestamp(1_795_392_000_999_999_999);
        assert_eq!(name_at(at, false, |_| false), "auto-2026-11-23T00:00:00Z");
        assert_eq!(name_at(at, true, |_| false), "app-2026-11-23T00:00:00Z");
        assert_eq!(name_at(at, false, |name| name.len() < 26), "auto-2026-11-23T00:00:00Z-2");
        assert!(farside_engine::is_label(&name_at(at, true, |_| false)));
    }

    #[test]
    fn a_timetable_goes_on_without_a_volume_that_is_gone() {
        let now = ClockReading { monotonic: Duration::ZERO, wall: farside_platform::Timestamp(0) };
        let other = |n, name: &str| Other { volume: Uuid::from_u128(n), name: name.into() };
        let others = vec![other(3, "p/w"), other(4, "p/x")];
        let entry = Entry::begin("p".into(), Kept { others, ..kept("every 1h", None) }, now).unwrap();
        let without = |entry: &Entry, n| entry.without(Uuid::from_u128(n));
        assert_eq!(without(&entry, 3).unwrap().names(), ["p/v", "p/x"]);
        let rest = without(&entry, 2).unwrap();
        assert_eq!(
            (rest.names(), rest.row().volume),
            (vec!["p/w".into(), "p/x".into()], Uuid::from_u128(3).to_string())
        );
        let last = without(&without(&rest, 3).unwrap(), 9).unwrap();
        assert_eq!(last.names(), ["p/x"]);
        assert!(without(&last, 4).is_none());
    }

    #[test]
    fn a_tick_that_fell_while_nobody_looked_falls_at_once() {
        let wall = farside_platform::Timestamp(1_795_392_000_000_000_000);
        let now = ClockReading { monotonic: Duration::from_secs(5), wall };
        let is_due = |schedule: &str, last: Option<&str>| {
            Entry::begin("p".into(), kept(schedule, last), now).unwrap().ticker.poll(now)
        };
        assert!(
            is_due("every 1h", Some("2026-11-22T22:59:00Z"))
                && !is_due("every 1h", Some("2026-11-22T23:30:00Z"))
        );
        assert!(is_due("0 * * * * UTC", Some("2026-11-22T22:59:00Z")));
        assert!(!is_due("30 * * * * UTC", Some("2026-11-22T23:31:00Z")) && !is_due("every 1h", None));
        assert!(Entry::begin("p".into(), kept("never", None), now).is_err());
    }
}
