//! When a mirror's updates begin.
//!
//! Pure: the driver hands in the moment and learns whether a tick fell and how long to sleep. Ticks keep their own
//! grid: a late look gives one tick, never a burst. Intervals run on monotonic time, so that setting the wall clock
//! neither floods nor starves a mirror; a timetable (cron) will compute its next moment from [`Moment::wall`].

use std::fmt;
use std::time::Duration;

use farside_platform::{Clock, Timestamp};

use crate::error::MirrorError;
use crate::limits::{EVERY_MAX, EVERY_MIN};

/// A moment, on both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Time since some fixed moment of this process.
    pub monotonic: Duration,
    /// Wall time.
    pub wall: Timestamp,
}

impl Moment {
    /// Now, by `clock`.
    pub fn of(clock: &dyn Clock) -> Moment {
        Moment { monotonic: clock.monotonic(), wall: clock.now() }
    }
}

/// When updates are due.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Schedule {
    /// Only when a person asks.
    #[default]
    OnRequest,
    /// At this interval.
    Every(Duration),
}

impl Schedule {
    /// From an interval, checked; none means on request.
    pub fn every(interval: Option<Duration>) -> Result<Schedule, MirrorError> {
        match interval {
            None => Ok(Schedule::OnRequest),
            Some(every) if (EVERY_MIN..=EVERY_MAX).contains(&every) => Ok(Schedule::Every(every)),
            Some(every) => {
                Err(MirrorError::Invalid(format!("an interval of {every:?} is not between 1 s and 366 days")))
            }
        }
    }

    /// The interval, if it is one.
    pub fn interval(&self) -> Option<Duration> {
        match self {
            Schedule::OnRequest => None,
            Schedule::Every(every) => Some(*every),
        }
    }

    /// The first due moment after `now`, on the grid that `previous` is on.
    fn next(&self, previous: Duration, now: Moment) -> Option<Duration> {
        match self {
            Schedule::OnRequest => None,
            Schedule::Every(every) => {
                let behind = now.monotonic.saturating_sub(previous).as_nanos() / every.as_nanos();
                let steps = u32::try_from(behind + 1).unwrap_or(u32::MAX);
                Some(
                    previous
                        .saturating_add(every.saturating_mul(steps))
                        .max(now.monotonic + Duration::from_nanos(1)),
                )
            }
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::OnRequest => f.write_str("on request"),
            Schedule::Every(every) => write!(f, "every {every:?}"),
        }
    }
}

/// Follows a schedule.
#[derive(Clone, Debug)]
pub struct Ticker {
    schedule: Schedule,
    due: Option<Duration>,
}

impl Ticker {
    /// The first tick falls one interval after `now`, or at `now` itself if `at_once` (after a restart nobody knows
    /// how many were missed).
    pub fn new(schedule: Schedule, now: Moment, at_once: bool) -> Ticker {
        let due = match schedule {
            Schedule::OnRequest => None,
            Schedule::Every(_) if at_once => Some(now.monotonic),
            Schedule::Every(every) => Some(now.monotonic.saturating_add(every)),
        };
        Ticker { schedule, due }
    }

    /// The schedule it follows.
    pub fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// How long until the next tick; none if there will be none.
    pub fn wait(&self, now: Moment) -> Option<Duration> {
        self.due.map(|due| due.saturating_sub(now.monotonic))
    }

    /// Whether a tick has fallen since the last look; several missed ones are one.
    pub fn poll(&mut self, now: Moment) -> bool {
        match self.due {
            Some(due) if due <= now.monotonic => {
                self.due = self.schedule.next(due, now);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Moment {
        Moment { monotonic: Duration::from_secs_f64(seconds), wall: Timestamp(0) }
    }

    #[test]
    fn ticks_keep_their_grid_and_missed_ones_are_one() {
        let mut ticker = Ticker::new(Schedule::Every(Duration::from_secs(10)), at(3.0), false);
        assert!(!ticker.poll(at(12.9)));
        assert!(ticker.poll(at(13.0)) && !ticker.poll(at(13.0)));
        assert_eq!(ticker.wait(at(20.0)), Some(Duration::from_secs(3)));
        assert!(ticker.poll(at(58.0)) && !ticker.poll(at(58.0)));
        assert_eq!(ticker.wait(at(58.0)), Some(Duration::from_secs(5)));
        assert!(ticker.poll(at(63.0)));
    }

    #[test]
    fn on_request_never_ticks_and_a_restart_ticks_at_once() {
        let mut quiet = Ticker::new(Schedule::OnRequest, at(0.0), true);
        assert!(!quiet.poll(at(1e6)) && quiet.wait(at(0.0)).is_none());
        let mut ticker = Ticker::new(Schedule::Every(Duration::from_secs(10)), at(5.0), true);
        assert!(ticker.poll(at(5.0)));
        assert_eq!(ticker.wait(at(5.0)), Some(Duration::from_secs(10)));
    }

    #[test]
    fn intervals_are_bounded() {
        assert!(Schedule::every(Some(Duration::from_millis(999))).is_err());
        assert!(Schedule::every(Some(Duration::from_secs(400 * 24 * 3600))).is_err());
        assert_eq!(Schedule::every(None).unwrap().interval(), None);
        assert_eq!(Schedule::every(Some(EVERY_MIN)).unwrap().interval(), Some(EVERY_MIN));
    }
}
