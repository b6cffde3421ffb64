//! Retention: which of the points that a replica was brought to stay, and which go.
//!
//! The destination decides, by *its own* clock. A point counts for the moment of its data as the source has it, but never for one
//! before the transfer that came before it, nor for one after its own arrival: a source that lies about its clock, or sends a
//! thousand snapshots an hour, spreads them over no more time than really passed, and so cannot push out what was here before.
//!
//! Of each period the *first* point stays, not the last: what was kept is not exchanged for what comes later in the same period, and
//! the first of a day is also the first of its hour, so that counts of different periods share points. Periods are those that have a
//! point: a site that is off for a month lets nothing go. They are of UTC, weeks begin on Monday. Pure: no clock, no I/O. The
//! words are those that backup programs have (`restic forget --keep-…`, `borg prune`); they keep the last of each period.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use farside_platform::Timestamp;
use jiff::tz::TimeZone;
use uuid::Uuid;

use crate::error::MirrorError;

/// Most points that one word may keep: a pool's catalog has room for a few hundred thousand snapshots.
const COUNT_MAX: u32 = 100_000;

/// The periods of which a first point can stay.
const PERIODS: [Period; 5] = [Period::Hour, Period::Day, Period::Week, Period::Month, Period::Year];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Period {
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Period {
    fn word(self) -> &'static str {
        match self {
            Period::Hour => "hourly",
            Period::Day => "daily",
            Period::Week => "weekly",
            Period::Month => "monthly",
            Period::Year => "yearly",
        }
    }

    /// A number for the period that a moment lies in; the same for two moments of one period only.
    fn of(self, at: Timestamp) -> i64 {
        let seconds = i64::try_from(at.0 / 1_000_000_000).unwrap_or(i64::MAX);
        let day = seconds.div_euclid(86_400);
        let date = || {
            let moment = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
            moment.to_zoned(TimeZone::UTC).date()
        };
        match self {
            Period::Hour => seconds.div_euclid(3600),
            Period::Day => day,
            // 1970-01-01 was a Thursday.
            Period::Week => (day + 3).div_euclid(7),
            Period::Month => i64::from(date().year()) * 12 + i64::from(date().month()),
            Period::Year => i64::from(date().year()),
        }
    }
}

/// How many points stay: the newest, and the first of each of the newest periods. As text (`last=10,hourly=24,daily=7`) it is stored
/// and shown; all zero (`none`) is no retention: then a replica keeps its newest point, and what persons made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Retention {
    /// The newest points.
    pub last: u32,
    /// The newest points, which a person cannot delete either.
    pub floor: u32,
    /// The first points of hours, days, weeks, months, years.
    counts: [u32; PERIODS.len()],
}

impl Retention {
    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        *self == Retention::default()
    }
}

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [("floor", self.floor), ("last", self.last)];
        let periods = PERIODS.iter().zip(self.counts).map(|(period, count)| (period.word(), count));
        let words = words.into_iter().chain(periods).filter(|(_, count)| *count > 0);
        let words: Vec<String> = words.map(|(word, count)| format!("{word}={count}")).collect();
        if words.is_empty() { f.write_str("none") } else { f.write_str(&words.join(",")) }
    }
}

impl FromStr for Retention {
    type Err = MirrorError;

    /// What [`Display`](fmt::Display) writes, in any order; each word once.
    fn from_str(text: &str) -> Result<Retention, MirrorError> {
        let mut retention = Retention::default();
        if text == "none" {
            return Ok(retention);
        }
        let invalid = |why: String| {
            MirrorError::Invalid(format!(
                "{text:?} says not what to keep: {why}. Use for example last=10,hourly=24,daily=7,weekly=4,monthly=12,yearly=2, \
                 or none"
            ))
        };
        let mut seen = BTreeSet::new();
        for part in text.split(',') {
            let Some((word, count)) = part.trim().split_once('=') else {
                return Err(invalid(format!("{part:?} has no \"=\"")));
            };
            let count = count.parse::<u32>().ok().filter(|count| (1..=COUNT_MAX).contains(count));
            let Some(count) = count else {
                return Err(invalid(format!("{part:?} has no number from 1 to {COUNT_MAX}")));
            };
            if !seen.insert(word) {
                return Err(invalid(format!("{word} is there twice")));
            }
            let place = match word {
                "last" => &mut retention.last,
                "floor" => &mut retention.floor,
                _ => match PERIODS.iter().position(|period| period.word() == word) {
                    Some(at) => &mut retention.counts[at],
                    None => return Err(invalid(format!("{word:?} is no period"))),
                },
            };
            *place = count;
        }
        Ok(retention)
    }
}

/// A point that retention decides about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptPoint {
    /// The snapshot.
    pub snapshot: Uuid,
    /// The moment for which it counts.
    pub at: Timestamp,
    /// When it was noted here.
    pub noted_at: Timestamp,
}

/// The moment for which a point counts that is noted `now`: that of its data, as far as that can be. `before`: when the points before
/// it were noted; none of the first.
pub fn counts_for(created_at: Timestamp, before: Option<Timestamp>, now: Timestamp) -> Timestamp {
    // A clock here that was set back leaves no time in between.
    created_at.max(before.unwrap_or_default()).min(now)
}

/// Which of the points, oldest first in the order in which they came, `retention` lets go. The newest never goes.
pub fn to_go(points: &[KeptPoint], retention: &Retention) -> Vec<Uuid> {
    let mut stays = vec![false; points.len()];
    let newest = retention.last.max(retention.floor).max(1) as usize;
    for stay in stays.iter_mut().rev().take(newest) {
        *stay = true;
    }
    for (period, count) in PERIODS.iter().zip(retention.counts) {
        let mut seen = 0;
        // Of each period the last that is met on the way back in time is its first.
        let mut first_of = None;
        for (at, point) in points.iter().enumerate().rev() {
            let number = period.of(point.at);
            if first_of.is_some_and(|(of, _)| of == number) {
                first_of = Some((number, at));
                continue;
            }
            if let Some((_, first)) = first_of.take() {
                stays[first] = true;
            }
            if seen >= count {
                break;
            }
            // A clock that was set back comes to a period again: what is older there is another first point, and it counts again.
            seen += 1;
            first_of = Some((number, at));
        }
        if let Some((_, first)) = first_of {
            stays[first] = true;
        }
    }
    points.iter().zip(stays).filter(|(_, stays)| !stays).map(|(point, _)| point.snapshot).collect()
}

/// Whether a person may not delete it either: one of the newest that the floor names, or the newest.
pub fn is_floor(points: &[KeptPoint], snapshot: Uuid, retention: &Retention) -> bool {
    let floor = retention.floor.max(1) as usize;
    points.iter().rev().take(floor).any(|point| point.snapshot == snapshot)
}

#[cfg(test)]
mod tests;
