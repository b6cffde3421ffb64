//! When a mirror's updates begin.
//!
//! Pure: the driver hands in the moment and learns whether a tick fell and how long to sleep. A late look gives one tick,
//! never a burst. Intervals keep their own grid and run on monotonic time, so that setting the wall clock neither floods
//! nor starves a mirror. Timetables ([`Timetable`]) run on wall time, look again at least every minute, and follow a wall
//! clock that was set: what it skipped is one tick, what it repeats is due again, but for a correction of under a minute. With
//! a recovery point objective the next tick is set by [`objective`](crate::objective) after each update.

mod timetable;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use farside_platform::{Clock, Timestamp};
use jiff::SignedDuration;

pub use timetable::Timetable;

use crate::error::MirrorError;
use crate::limits::{
    EVERY_MAX, EVERY_MIN, OBJECTIVE_MIN, OBJECTIVE_RETRIES, SCHEDULE_BYTES_MAX, STEP_BACK_KEPT,
    WALL_LOOK_EVERY,
};

/// A moment, on both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockReading {
    /// Time since some fixed moment of this process.
    pub monotonic: Duration,
    /// Wall time.
    pub wall: Timestamp,
}

impl ClockReading {
    /// Now, by `clock`.
    pub fn of(clock: &dyn Clock) -> ClockReading {
        ClockReading { monotonic: clock.monotonic(), wall: clock.now() }
    }
}

/// When updates are due. As text it is stored and shown, and read again by [`FromStr`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Schedule {
    /// Only when a person asks.
    #[default]
    OnRequest,
    /// At this interval.
    Every(Duration),
    /// By a timetable in a time zone.
    Cron(Arc<Timetable>),
    /// As late as a recovery point objective allows.
    Objective(Duration),
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

    /// From a recovery point objective, checked.
    pub fn objective(objective: Duration) -> Result<Schedule, MirrorError> {
        if (OBJECTIVE_MIN..=EVERY_MAX).contains(&objective) {
            return Ok(Schedule::Objective(objective));
        }
        Err(MirrorError::Invalid(format!("an objective of {objective:?} is not between 2 s and 366 days")))
    }

    /// Between two updates as a rule, if there is a rule.
    pub fn interval(&self) -> Option<Duration> {
        match self {
            Schedule::Every(every) => Some(*every),
            Schedule::Objective(objective) => Some(*objective),
            Schedule::OnRequest | Schedule::Cron(_) => None,
        }
    }

    /// By the five fields of cron, in a time zone; errors as [`Timetable::new`].
    pub fn cron(pattern: &str, time_zone: &str) -> Result<Schedule, MirrorError> {
        Ok(Schedule::Cron(Arc::new(Timetable::new(pattern, time_zone)?)))
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::OnRequest => f.write_str("on request"),
            // An interval is at most a year, which a signed duration holds.
            Schedule::Every(every) => {
                write!(f, "every {:#}", SignedDuration::try_from(*every).unwrap_or(SignedDuration::MAX))
            }
            Schedule::Cron(timetable) => timetable.fmt(f),
            Schedule::Objective(objective) => {
                write!(f, "rpo {:#}", SignedDuration::try_from(*objective).unwrap_or(SignedDuration::MAX))
            }
        }
    }
}

impl Schedule {
    /// As a peer shows it; an empty text is none.
    ///
    /// # Errors
    /// Of a text that is too long or no schedule.
    pub fn from_peer(text: &str) -> Result<Schedule, MirrorError> {
        if text.len() > SCHEDULE_BYTES_MAX {
            return Err(MirrorError::protocol("a schedule that is too long"));
        }
        if text.is_empty() { Ok(Schedule::OnRequest) } else { text.parse() }
    }
}

impl FromStr for Schedule {
    type Err = MirrorError;
    /// What [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<Schedule, MirrorError> {
        if text == "on request" {
            return Ok(Schedule::OnRequest);
        }
        let duration = |text: &str| {
            let unreadable = || {
                MirrorError::Invalid(format!(
                    "{text:?} is not a duration; use for example every 10s or every 1h30m"
                ))
            };
            let duration: SignedDuration = text.parse().map_err(|_| unreadable())?;
            Duration::try_from(duration).map_err(|_| unreadable())
        };
        if let Some(interval) = text.strip_prefix("every ") {
            return Schedule::every(Some(duration(interval)?));
        }
        if let Some(objective) = text.strip_prefix("rpo ") {
            return Schedule::objective(duration(objective)?);
        }
        let (pattern, zone) = text.rsplit_once(' ').ok_or_else(|| {
            MirrorError::Invalid(format!(
                "{text:?} is not a schedule; use every \
                 10s or a cron timetable with its time zone"
            ))
        })?;
        Schedule::cron(pattern, zone)
    }
}

/// Follows a schedule.
#[derive(Clone, Debug)]
pub struct Ticker {
    schedule: Schedule,
    due: Due,
}

/// When the next tick falls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    /// Not at all.
    Never,
    /// At this monotonic time.
    Monotonic(Duration),
    /// At this wall time: the timetable's first after `looked`, the latest the clock has shown.
    Wall { at: Timestamp, looked: Timestamp },
}

impl Ticker {
    /// The first tick falls one interval after `now`, or at the timetable's next time, or at `now` itself if `at_once`
    /// (after a restart nobody knows how many were missed).
    pub fn new(schedule: Schedule, now: ClockReading, at_once: bool) -> Ticker {
        let due = match &schedule {
            Schedule::OnRequest => Due::Never,
            Schedule::Every(_) | Schedule::Objective(_) if at_once => Due::Monotonic(now.monotonic),
            // A mirror that gets an objective while it is at rest does not know yet how old its data is.
            Schedule::Objective(_) => Due::Monotonic(now.monotonic),
            Schedule::Every(every) => Due::Monotonic(now.monotonic.saturating_add(*every)),
            Schedule::Cron(_) if at_once => Due::Wall { at: now.wall, looked: now.wall },
            Schedule::Cron(timetable) => by_timetable(timetable, now.wall),
        };
        Ticker { schedule, due }
    }

    /// The schedule it follows.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The next tick of an objective falls then; of any other schedule when it falls.
    pub fn aim(&mut self, at: Duration) {
        if let Schedule::Objective(_) = self.schedule {
            self.due = Due::Monotonic(at);
        }
    }

    /// What is due has just been begun by somebody else: an interval counts from `now`, and a timetable's tick that has fallen is served by
    /// it. Else timetables and objectives go on as they do.
    pub fn begun_by_others(&mut self, now: ClockReading) {
        match (&self.schedule, self.due) {
            (Schedule::Every(every), _) => {
                self.due = Due::Monotonic(now.monotonic.saturating_add(*every));
            }
            (Schedule::Cron(timetable), Due::Wall { at, .. }) if at <= now.wall => {
                self.due = by_timetable(timetable, now.wall);
            }
            _ => {}
        }
    }

    /// How long to sleep before the next look; none if there will be no tick.
    pub fn wait(&self, now: ClockReading) -> Option<Duration> {
        match self.due {
            Due::Never => None,
            Due::Monotonic(due) => Some(due.saturating_sub(now.monotonic)),
            Due::Wall { at, .. } => {
                Some(Duration::from_nanos(at.0.saturating_sub(now.wall.0)).min(WALL_LOOK_EVERY))
            }
        }
    }

    /// Whether a tick has fallen since the last look; several missed ones are one.
    pub fn poll(&mut self, now: ClockReading) -> bool {
        match (&self.schedule, self.due) {
            (Schedule::Every(every), Due::Monotonic(due)) if due <= now.monotonic => {
                self.due = Due::Monotonic(on_grid(*every, due, now.monotonic));
                true
            }
            (Schedule::Objective(objective), Due::Monotonic(due)) if due <= now.monotonic => {
                // Until it is aimed anew: an update that fails is tried again.
                let again = (*objective / OBJECTIVE_RETRIES).max(EVERY_MIN);
                self.due = Due::Monotonic(now.monotonic.saturating_add(again));
                true
            }
            (Schedule::Cron(timetable), Due::Wall { at, .. }) if at <= now.wall => {
                self.due = by_timetable(timetable, now.wall);
                true
            }
            (Schedule::Cron(timetable), Due::Wall { at, looked }) => {
                // Set back, the clock has earlier ticks before it. After a small correction the one that has fallen does
                // not fall again.
                let is_set_back = looked.0.saturating_sub(now.wall.0) >= nanoseconds(STEP_BACK_KEPT);
                self.due = if is_set_back {
                    by_timetable(timetable, now.wall)
                } else {
                    Due::Wall { at, looked: looked.max(now.wall) }
                };
                false
            }
            _ => false,
        }
    }
}

/// The first moment after `now` on the grid that `previous` is on.
fn on_grid(every: Duration, previous: Duration, now: Duration) -> Duration {
    let behind = now.saturating_sub(previous).as_nanos() / every.as_nanos();
    let steps = u32::try_from(behind + 1).unwrap_or(u32::MAX);
    previous.saturating_add(every.saturating_mul(steps)).max(now + Duration::from_nanos(1))
}

fn by_timetable(timetable: &Timetable, now: Timestamp) -> Due {
    timetable.next_after(now).map_or(Due::Never, |at| Due::Wall { at, looked: now })
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> ClockReading {
        ClockReading { monotonic: Duration::from_secs_f64(seconds), wall: Timestamp(0) }
    }

    #[test]
    fn whatever_a_peer_says_is_a_schedule_or_refused() {
        assert_eq!(Schedule::from_peer("").unwrap(), Schedule::OnRequest);
        assert!(Schedule::from_peer(&" ".repeat(SCHEDULE_BYTES_MAX + 1)).is_err());
        let texts = ["every 10s", "every 366d", "0 */4 * * 1-5 Europe/Berlin", "59 23 31 12 * UTC"];
        for text in texts {
            // No panic, and what is taken is shown as it would be taken again.
            for at in 0..text.len() {
                for with in [" ", "9", "*", "/", "-", "\u{e4}", "\0"] {
                    let spoilt = format!("{}{with}{}", &text[..at], &text[at + 1..]);
                    for said in [&spoilt, &text[..at], &text[at..]] {
                        if let Ok(taken) = Schedule::from_peer(said) {
                            assert_eq!(Schedule::from_peer(&taken.to_string()).unwrap(), taken, "{said}");
                        }
                    }
                }
            }
        }
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
    fn members_of_a_group_are_updated_once_in_an_interval() {
        let every = || Schedule::Every(Duration::from_secs(10));
        // Set four seconds apart; whoever is due has all of them updated.
        let mut members = [Ticker::new(every(), at(0.0), false), Ticker::new(every(), at(4.0), false)];
        let mut updates = Vec::new();
        for tenth in 0..400 {
            let now = at(f64::from(tenth) / 10.0);
            for due in 0..members.len() {
                if members[due].poll(now) {
                    updates.push(tenth / 10);
                    members.iter_mut().enumerate().filter(|(of, _)| *of != due).for_each(|(_, other)| {
                        other.begun_by_others(now);
                    });
                }
            }
        }
        assert_eq!(updates, [10, 20, 30]);
        let mut noon = Ticker::new(Schedule::cron("0 12 * * *", "UTC").unwrap(), at(0.0), false);
        let before = noon.wait(at(1.0));
        noon.begun_by_others(at(1.0));
        assert_eq!(noon.wait(at(1.0)), before, "a timetable goes on");
        // Members with one timetable are due at one moment: whoever hears of the update first is not due once more.
        let mut daily = Ticker::new(Schedule::cron("0 12 * * *", "UTC").unwrap(), at(0.0), false);
        let at_noon = ClockReading { wall: Timestamp(12 * 3_600 * 1_000_000_000), ..at(43_200.0) };
        assert!(daily.clone().poll(at_noon));
        daily.begun_by_others(at_noon);
        assert!(!daily.poll(at_noon));
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
        assert_eq!(Schedule::every(None).unwrap(), Schedule::OnRequest);
        assert_eq!(Schedule::every(Some(EVERY_MIN)).unwrap(), Schedule::Every(EVERY_MIN));
    }

    #[test]
    fn text_is_read_back_as_it_was() {
        for millis in [1000, 1500, 10_000, 90_000, 3_600_000, 366 * 24 * 3_600_000] {
            let schedule = Schedule::Every(Duration::from_millis(millis));
            assert_eq!(schedule.to_string().parse::<Schedule>().unwrap(), schedule, "{schedule}");
        }
        let exact = Schedule::Every(Duration::from_nanos(1_000_000_001));
        assert_eq!(exact.to_string().parse::<Schedule>().unwrap(), exact, "{exact}");
        assert_eq!(Schedule::Every(Duration::from_secs(10)).to_string(), "every 10s");
        assert_eq!(Schedule::Every(Duration::from_secs(5400)).to_string(), "every 1h 30m");
        let cron = Schedule::cron("*/15 * * * *", "Europe/Berlin").unwrap();
        assert_eq!(cron.to_string(), "*/15 * * * * Europe/Berlin");
        assert_eq!(cron.to_string().parse::<Schedule>().unwrap(), cron);
        assert_eq!("on request".parse::<Schedule>().unwrap(), Schedule::OnRequest);
        // As a database of the first version held it.
        assert_eq!(
            "every 1.500000000s".parse::<Schedule>().unwrap(),
            Schedule::Every(Duration::from_millis(1500))
        );
        for text in ["", "every", "every day", "every -1s", "every 1ms", "* * * * *", "x"] {
            assert!(text.parse::<Schedule>().is_err(), "{text}");
        }
    }

    /// A wall clock beside the monotonic one. Midnight of an ordinary day, plus seconds.
    const MIDNIGHT: u64 = 1_789_948_800;

    fn shown(monotonic: u64, wall: i64) -> ClockReading {
        let wall = MIDNIGHT.saturating_add_signed(wall) * 1_000_000_000;
        ClockReading { monotonic: Duration::from_secs(monotonic), wall: Timestamp(wall) }
    }

    /// A timetable's ticker on a clock that runs, and at some moments is set: looks as the driver does, and collects
    /// what the clock showed at each tick, in seconds after midnight.
    fn follow(pattern: &str, begins: i64, set: &[(u64, i64)], until: u64) -> Vec<i64> {
        let mut offset = begins;
        let mut ticker = Ticker::new(Schedule::cron(pattern, "UTC").unwrap(), shown(0, begins), false);
        let (mut monotonic, mut fell) = (0, Vec::new());
        while monotonic < until {
            let wait = ticker.wait(shown(monotonic, monotonic as i64 + offset)).unwrap();
            assert!(wait <= WALL_LOOK_EVERY);
            let later = monotonic + wait.as_secs();
            for (_, step) in set.iter().filter(|(when, _)| (monotonic..later).contains(when)) {
                offset += step;
            }
            monotonic = later;
            let wall = monotonic as i64 + offset;
            if ticker.poll(shown(monotonic, wall)) {
                fell.push(wall);
            } else {
                assert!(wait > Duration::ZERO, "a wait that waits for nothing");
            }
        }
        fell
    }

    #[test]
    fn a_timetable_follows_the_wall_clock() {
        assert_eq!(follow("*/15 * * * *", 100, &[], 3600), [900, 1800, 2700, 3600]);
        let mut ticker = Ticker::new(Schedule::cron("*/15 * * * *", "UTC").unwrap(), shown(0, 10), true);
        assert!(ticker.poll(shown(0, 10)) && !ticker.poll(shown(0, 10)), "a restart looks at once");
        assert_eq!(ticker.wait(shown(0, 10)), Some(WALL_LOOK_EVERY));
        assert_eq!(ticker.wait(shown(880, 890)), Some(Duration::from_secs(10)));
        // The daemon was stopped, or the machine asleep, for three ticks: they are one.
        assert!(ticker.poll(shown(900, 4000)) && !ticker.poll(shown(900, 4000)));
        assert_eq!(ticker.wait(shown(900, 4490)), Some(Duration::from_secs(10)));
    }

    #[test]
    fn a_clock_that_is_set_forward_brings_one_tick() {
        let day = 24 * 3600;
        let fell = follow("*/15 * * * *", 0, &[(1000, 3 * day)], 3000);
        assert_eq!(fell.len(), 4, "{fell:?}");
        assert!(fell[1] > 3 * day && fell[1] <= 3 * day + 1060, "{fell:?}");
        assert_eq!(fell[2], 3 * day + 1800);
    }

    #[test]
    fn a_clock_that_is_set_back_starves_nobody() {
        // Two days back: the quarters of that day come at once, not in two days.
        let day = 24 * 3600;
        let fell = follow("*/15 * * * *", 0, &[(1000, -2 * day)], 3000);
        assert_eq!(fell, [900, 1800 - 2 * day, 2700 - 2 * day]);
        // Back and forth by half a minute around every tick: none twice.
        let swings: Vec<(u64, i64)> =
            (0..100).map(|n| (890 + 20 * n, if n % 2 == 0 { -30 } else { 30 })).collect();
        let fell = follow("*/15 * * * *", 0, &swings, 3600);
        assert!((3..=4).contains(&fell.len()), "{fell:?}");
        // A clock that runs backwards in small steps, though: time goes on.
        let drift: Vec<(u64, i64)> = (0..60).map(|n| (910 + 60 * n, -50)).collect();
        assert!(follow("* * * * *", 0, &drift, 4000).len() > 20);
    }
}
