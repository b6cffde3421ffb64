//! How old something is, where the wall clock alone must not decide. Pure.
//!
//! A wall clock jumps: a machine starts in the year 2000 until a time service comes up, a virtual machine wakes with another
//! host's time, somebody sets it wrong for a minute. So time counts only as far as this process has seen it pass, and what is
//! over an age is so only when it was seen to be for [`AGE_SEEN_FOR`].

use std::collections::HashMap;
use std::time::Duration;

use farside_platform::Timestamp;
use uuid::Uuid;

use crate::limits::{AGE_SEEN_FOR, CLOCK_JUMP};
use crate::schedule::ClockReading;

/// What was seen of the clocks, and of what is over its age.
#[derive(Default)]
pub(super) struct Ages {
    first: Option<ClockReading>,
    has_jumped: bool,
    /// Since when (monotonic) each relationship was seen over its age, without a break.
    over_since: HashMap<Uuid, Duration>,
}

impl Ages {
    /// The time by which ages are judged: never later than the wall clock said first, plus what has passed since. A
    /// clock that was set back is right.
    pub(super) fn now(&mut self, reading: ClockReading) -> Timestamp {
        let first = *self.first.get_or_insert(reading);
        let passed = first.wall.plus(reading.monotonic.saturating_sub(first.monotonic));
        let off = Duration::from_nanos(reading.wall.0.abs_diff(passed.0));
        if off >= CLOCK_JUMP && !self.has_jumped {
            self.has_jumped = true;
            tracing::warn!(
                wall = %reading.wall, counted = %passed,
                "the wall clock was set, by more than an hour. Ages of what is kept for mirrors count by the time that this \
                 daemon has seen pass; nothing is released because of the jump"
            );
        }
        reading.wall.min(passed)
    }

    /// Whether what is kept for `relationship` is over its age for long enough, if it `is_old` by [`Ages::now`] now.
    pub(super) fn is_over(&mut self, relationship: Uuid, is_old: bool, monotonic: Duration) -> bool {
        if !is_old {
            self.over_since.remove(&relationship);
            return false;
        }
        let since = *self.over_since.entry(relationship).or_insert(monotonic);
        monotonic.saturating_sub(since) >= AGE_SEEN_FOR
    }

    /// Forgets who is not among `known`.
    pub(super) fn keep(&mut self, is_known: impl Fn(&Uuid) -> bool) {
        self.over_since.retain(|id, _| is_known(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600;
    const YEAR: u64 = 366 * 24 * HOUR;

    fn at(monotonic: u64, wall: u64) -> ClockReading {
        ClockReading {
            monotonic: Duration::from_secs(monotonic),
            wall: Timestamp(0).plus(Duration::from_secs(wall)),
        }
    }

    fn seconds(ages: &mut Ages, monotonic: u64, wall: u64) -> u64 {
        ages.now(at(monotonic, wall)).0 / 1_000_000_000
    }

    #[test]
    fn a_clock_that_jumps_ahead_makes_nothing_older() {
        let mut ages = Ages::default();
        assert_eq!(seconds(&mut ages, 10, 50 * YEAR), 50 * YEAR);
        assert_eq!(seconds(&mut ages, 20, 51 * YEAR), 50 * YEAR + 10);
        assert_eq!(seconds(&mut ages, 30, 50 * YEAR + 20), 50 * YEAR + 20, "and back");
        // It began in 2000 and was put right: what was kept in 2026 is young.
        let mut ages = Ages::default();
        seconds(&mut ages, 10, 30 * YEAR);
        assert!(seconds(&mut ages, 70, 56 * YEAR) < 31 * YEAR);
        // It began in the wrong year and was put right: what is right counts.
        let mut ages = Ages::default();
        seconds(&mut ages, 10, 58 * YEAR);
        assert_eq!(seconds(&mut ages, 70, 56 * YEAR), 56 * YEAR);
    }

    #[test]
    fn what_is_over_its_age_is_so_when_it_was_for_a_day() {
        let (mut ages, id) = (Ages::default(), Uuid::from_u128(1));
        let hours = |h| Duration::from_secs(h * HOUR);
        assert!(!ages.is_over(id, true, hours(5)) && !ages.is_over(id, true, hours(28)));
        assert!(ages.is_over(id, true, hours(29)));
        assert!(
            !ages.is_over(id, false, hours(30)) && !ages.is_over(id, true, hours(60)),
            "from the beginning"
        );
        ages.keep(|_| false);
        assert!(!ages.is_over(id, true, hours(90)));
    }
}
