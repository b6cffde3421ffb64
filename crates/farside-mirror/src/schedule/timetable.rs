//! Timetables: the five fields of cron, in a time zone.
//!
//! Pure but for [`Timetable::new`], which looks the zone up: in the system's time zone data, else in the data this program
//! carries. A zone's rules are those of that moment, until the daemon starts anew.
//!
//! What daylight saving does to a day follows cron's own custom. Where the hour field has a `*`, ticks follow real time: an
//! hour that comes twice has its ticks twice, one that is left out has none. Where hours are named, each time of day
//! comes once a day: at its first coming if it comes twice, and right after the gap if it is left out.

use std::fmt;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use farside_platform::Timestamp;
use jiff::civil::{self, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};

use crate::error::MirrorError;
use crate::limits::{TIME_ZONE_BYTES_MAX, TIMETABLE_BYTES_MAX};

/// Minute, hour, day of the month, month, day of the week.
const FIELDS: usize = 5;
/// Where the hour stands.
const HOUR: usize = 1;
/// How far a field reaches, and in what.
const REACH: [(u32, &str); FIELDS] = [
    (60, "the minutes of an hour"),
    (24, "the hours of a day"),
    (31, "the days of a month"),
    (12, "the months of a year"),
    (7, "the days of a week"),
];
/// What fires at all does so within 400 years of this day: after that the calendar repeats itself.
const CALENDAR_BEGINS: DateTime = civil::datetime(2000, 1, 1, 0, 0, 0, 0);

/// When a timetable's ticks fall. Two are equal if they read alike.
#[derive(Clone)]
pub struct Timetable {
    pattern: String,
    zone_name: String,
    cron: Cron,
    zone: TimeZone,
    /// The hour field has a `*`.
    is_every_hour: bool,
}

impl Timetable {
    /// Of five fields and the name of a time zone (`Europe/Berlin`, `UTC`).
    ///
    /// # Errors
    /// [`MirrorError::Invalid`] if the fields make no sense or never come true, or the zone is not known.
    pub fn new(pattern: &str, time_zone: &str) -> Result<Timetable, MirrorError> {
        let invalid = |why: String| {
            MirrorError::Invalid(format!(
                "{pattern:?} is not a timetable: {why}. It has five fields: minute, hour, day of the month, month, \
                 day of the week; for example '*/15 * * * *' or '30 2 * * MON-FRI'"
            ))
        };
        if pattern.len() > TIMETABLE_BYTES_MAX {
            return Err(MirrorError::Invalid(format!(
                "a timetable has at most {TIMETABLE_BYTES_MAX} bytes, this one has {}",
                pattern.len()
            )));
        }
        let fields: Vec<&str> = pattern.split_whitespace().collect();
        if fields.len() != FIELDS {
            return Err(invalid(format!("it has {} fields", fields.len())));
        }
        // One blank between fields, so that what is stored and shown reads the same however it was typed.
        let pattern = fields.join(" ");
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser.parse(&pattern).map_err(|e| invalid(e.to_string()))?;
        if cron.find_next_occurrence(&CALENDAR_BEGINS, true).is_err() {
            return Err(invalid(String::from("such a day never comes")));
        }
        let (zone_name, zone) = zone(time_zone)?;
        let is_every_hour = fields[HOUR].contains('*');
        Ok(Timetable { pattern, zone_name, cron, zone, is_every_hour })
    }

    /// That a step reaches over the end of its field, where cron begins anew: `*/70` minutes is once an hour. Not asked of what was
    /// set before.
    ///
    /// # Errors
    /// [`MirrorError::Invalid`] names the step, and what it would be.
    pub fn check_steps(&self) -> Result<(), MirrorError> {
        let fields = self.pattern.split(' ').zip(REACH);
        for (field, (reach, what)) in fields {
            let steps = field.split(',').filter_map(|part| part.split_once('/')?.1.parse::<u32>().ok());
            if let Some(step) = steps.into_iter().find(|step| *step >= reach) {
                return Err(MirrorError::Invalid(format!(
                    "/{step} in {field:?} of {:?} reaches over the end of its field, {what}: each begins anew, so it would come once in \
                     each. For an interval that is no part of it: --every",
                    self.pattern
                )));
            }
        }
        Ok(())
    }

    /// The five fields.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// The zone's name.
    pub fn time_zone(&self) -> &str {
        &self.zone_name
    }

    /// The first tick after `after`; none only where time itself ends.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let after = jiff::Timestamp::from_nanosecond(i128::from(after.0)).ok()?;
        let next =
            if self.is_every_hour { self.next_in_real_time(after) } else { self.next_by_the_clock(after) };
        u64::try_from(next?.as_nanosecond()).ok().map(Timestamp)
    }

    /// Every moment whose clock time matches.
    fn next_in_real_time(&self, after: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let next = self.cron.find_next_occurrence(&after.to_zoned(self.zone.clone()), false).ok()?;
        Some(next.timestamp())
    }

    /// Every time of day that matches, once.
    fn next_by_the_clock(&self, after: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let mut clock = self.zone.to_datetime(after);
        // In the second of two like hours, the times of the first lie behind: each is looked at once.
        loop {
            clock = self.cron.find_next_occurrence(&clock, false).ok()?;
            let moment = self.first_coming(clock)?;
            if moment > after {
                return Some(moment);
            }
        }
    }

    /// When the clock first shows `clock`; where it never does, when it is first past it.
    fn first_coming(&self, clock: DateTime) -> Option<jiff::Timestamp> {
        let ambiguous = self.zone.to_ambiguous_timestamp(clock);
        let is_left_out = matches!(ambiguous.offset(), AmbiguousOffset::Gap { .. });
        let earlier = ambiguous.earlier().ok()?;
        if is_left_out { Some(self.zone.following(earlier).next()?.timestamp()) } else { Some(earlier) }
    }
}

/// A zone by its name, and the name as the database writes it.
fn zone(name: &str) -> Result<(String, TimeZone), MirrorError> {
    let unknown = || {
        let shown: String = name.chars().take(TIME_ZONE_BYTES_MAX).collect();
        MirrorError::Invalid(format!("{shown:?} is no time zone; use a name such as Europe/Berlin or UTC"))
    };
    if name.len() > TIME_ZONE_BYTES_MAX {
        return Err(unknown());
    }
    let zone = TimeZone::get(name).map_err(|_| unknown())?;
    let name = zone.iana_name().ok_or_else(unknown)?.to_owned();
    Ok((name, zone))
}

impl PartialEq for Timetable {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern && self.zone_name == other.zone_name
    }
}

impl Eq for Timetable {}

impl fmt::Display for Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pattern, self.zone_name)
    }
}

impl fmt::Debug for Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timetable({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        let moment: jiff::Timestamp = text.parse().unwrap();
        Timestamp(u64::try_from(moment.as_nanosecond()).unwrap())
    }

    /// The first `count` ticks after a moment, in UTC.
    fn ticks(pattern: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let timetable = Timetable::new(pattern, zone).unwrap();
        let next = |moment: &Timestamp| timetable.next_after(*moment);
        std::iter::successors(Some(at(after)), next).skip(1).take(count).map(|t| t.to_string()).collect()
    }

    #[test]
    fn the_next_moment_lies_after_this_one() {
        let quarter = |after| ticks("*/15 * * * *", "UTC", after, 1)[0].clone();
        assert_eq!(quarter("2026-11-21T12:14:59.999999999Z"), "2026-11-21T12:15:00.000000Z");
        assert_eq!(quarter("2026-11-21T12:15:00Z"), "2026-11-21T12:30:00.000000Z");
        assert_eq!(quarter("2026-11-21T12:15:00.5Z"), "2026-11-21T12:30:00.000000Z");
        // Berlin is an hour ahead of UTC in winter, two in summer.
        assert_eq!(
            ticks("30 2 * * *", "Europe/Berlin", "2026-01-10T00:00:00Z", 1),
            ["2026-01-10T01:30:00.000000Z"]
        );
        assert_eq!(
            ticks("30 2 * * *", "europe/berlin", "2026-07-10T00:00:00Z", 1),
            ["2026-07-10T00:30:00.000000Z"]
        );
        // The 13th, or a Friday: cron's own rule where both are given.
        assert_eq!(
            ticks("0 0 13 * FRI", "UTC", "2026-12-08T00:00:00Z", 3),
            ["2026-12-11T00:00:00.000000Z", "2026-12-13T00:00:00.000000Z", "2026-12-18T00:00:00.000000Z"]
        );
        assert_eq!(ticks("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", 1), ["2028-02-29T00:00:00.000000Z"]);
    }

    #[test]
    fn a_time_that_is_left_out_comes_right_after_the_gap() {
        // On 29 March 2026 clocks in Berlin went from 02:00 to 03:00, at 01:00 UTC.
        for pattern in ["30 2 * * *", "0,30 2 * * *", "*/15 2 * * *"] {
            let ticks = ticks(pattern, "Europe/Berlin", "2026-03-28T12:00:00Z", 2);
            assert_eq!(ticks[0], "2026-03-29T01:00:00.000000Z", "{pattern}");
            assert!(ticks[1].starts_with("2026-03-30T00:"), "{pattern}: {ticks:?}");
        }
        assert_eq!(
            ticks("30 2,14 * * *", "Europe/Berlin", "2026-03-28T13:00:00Z", 3),
            ["2026-03-28T13:30:00.000000Z", "2026-03-29T01:00:00.000000Z", "2026-03-29T12:30:00.000000Z"]
        );
        // A gap of half an hour, and one at midnight.
        assert_eq!(
            ticks("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", 1),
            ["2026-10-03T15:30:00.000000Z"]
        );
        assert_eq!(
            ticks("0 0 * * *", "America/Havana", "2026-03-07T12:00:00Z", 2),
            ["2026-03-08T05:00:00.000000Z", "2026-03-09T04:00:00.000000Z"]
        );
    }

    #[test]
    fn a_time_that_comes_twice_counts_once_and_an_interval_goes_on() {
        // On 25 October 2026 clocks in Berlin went from 03:00 back to 02:00, at 01:00 UTC.
        assert_eq!(
            ticks("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2),
            ["2026-10-25T00:30:00.000000Z", "2026-10-26T01:30:00.000000Z"]
        );
        // Asked in the second of the two hours, before the same clock time: it has been.
        assert_eq!(
            ticks("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", 1),
            ["2026-10-26T01:30:00.000000Z"]
        );
        assert_eq!(
            ticks("*/30 * * * *", "Europe/Berlin", "2026-10-24T23:59:00Z", 5),
            [
                "2026-10-25T00:00:00.000000Z",
                "2026-10-25T00:30:00.000000Z",
                "2026-10-25T01:00:00.000000Z",
                "2026-10-25T01:30:00.000000Z",
                "2026-10-25T02:00:00.000000Z"
            ]
        );
    }

    #[test]
    fn every_day_of_a_year_has_its_tick_once() {
        for zone in ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "UTC"] {
            for minute in [0, 29, 59] {
                for hour in 0..4 {
                    let timetable = Timetable::new(&format!("{minute} {hour} * * *"), zone).unwrap();
                    let mut days = Vec::new();
                    let mut moment = at("2026-01-01T12:00:00Z");
                    while days.len() < 365 {
                        let next = timetable.next_after(moment).unwrap();
                        assert!(next > moment, "{timetable}: {next} after {moment}");
                        moment = next;
                        let tick = jiff::Timestamp::from_nanosecond(i128::from(next.0)).unwrap();
                        days.push(timetable.zone.to_datetime(tick).date());
                    }
                    let in_order = days.windows(2).all(|two| two[0].tomorrow().unwrap() == two[1]);
                    assert!(in_order, "{timetable}: {days:?}");
                }
            }
        }
    }

    #[test]
    fn in_real_time_no_moment_is_left_out() {
        // Two days around each change of the clocks, minute by minute.
        for (zone, from) in [
            ("Europe/Berlin", "2026-03-28T12:00:00Z"),
            ("Europe/Berlin", "2026-10-24T12:00:00Z"),
            ("Australia/Lord_Howe", "2026-04-04T00:00:00Z"),
            ("Australia/Lord_Howe", "2026-10-03T00:00:00Z"),
            ("America/Havana", "2026-11-01T00:00:00Z"),
        ] {
            for pattern in ["*/7 * * * *", "0 * * * *", "10 */2 * * *"] {
                let timetable = Timetable::new(pattern, zone).unwrap();
                let minute = |number: u64| Timestamp(at(from).0 + number * 60_000_000_000);
                let matches = |moment: Timestamp| {
                    let moment = jiff::Timestamp::from_nanosecond(i128::from(moment.0)).unwrap();
                    timetable.cron.is_time_matching(&moment.to_zoned(timetable.zone.clone())).unwrap()
                };
                let wanted: Vec<_> = (1..2880).map(minute).filter(|moment| matches(*moment)).collect();
                let next = |moment: &Timestamp| timetable.next_after(*moment);
                let found =
                    std::iter::successors(Some(minute(0)), next).skip(1).take_while(|m| *m < minute(2880));
                assert_eq!(found.collect::<Vec<_>>(), wanted, "{timetable}");
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
        for pattern in [
            "",
            "* * * *",
            "0 * * * * *",
            "@daily",
            "60 * * * *",
            "* 24 * * *",
            "*/0 * * * *",
            "* * 0 * *",
            "a * * * *",
            "0 0 31 2 *",
            "0 0 31 APR,JUN *",
        ] {
            let error = Timetable::new(pattern, "UTC").unwrap_err().to_string();
            assert!(error.contains("five fields"), "{pattern}: {error}");
        }
        assert!(Timetable::new(&"*".repeat(300), "UTC").unwrap_err().to_string().contains("at most 256"));
        for zone in ["", "Nowhere/Land", "../../etc/passwd", "+01:00", "Etc/Unknown", &"x".repeat(65)] {
            let error = Timetable::new("* * * * *", zone).unwrap_err().to_string();
            assert!(error.contains("no time zone"), "{zone}: {error}");
        }
    }

    #[test]
    fn zones_are_known_without_the_system() {
        // What a machine without time zone data falls back on is in the program.
        let bundled = jiff::tz::TimeZoneDatabase::bundled();
        for name in ["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "UTC"] {
            assert!(bundled.get(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn it_reads_the_same_however_it_was_typed() {
        let timetable = Timetable::new("  */15\t*  * *   * ", "europe/berlin").unwrap();
        assert_eq!(timetable.to_string(), "*/15 * * * * Europe/Berlin");
        assert_eq!(timetable, Timetable::new("*/15 * * * *", "Europe/Berlin").unwrap());
        assert_ne!(timetable, Timetable::new("*/15 * * * *", "UTC").unwrap());
    }

    #[test]
    fn a_step_that_reaches_over_its_field_is_named() {
        for fine in [
            "*/15 * * * *",
            "0 */12 * * *",
            "0 3 */2 * *",
            "5,35 * * * *",
            "0 0 1 */3 *",
            "0-59/20 * * * 1-5/2",
        ] {
            assert!(Timetable::new(fine, "UTC").unwrap().check_steps().is_ok(), "{fine}");
        }
        for over in ["*/70 * * * *", "0 */36 * * *", "0 0 */40 * *", "0-30/60 * * * *"] {
            let Ok(timetable) = Timetable::new(over, "UTC") else { continue };
            let said = timetable.check_steps().unwrap_err().to_string();
            assert!(said.contains("reaches over") && said.contains("--every"), "{said}");
        }
    }
}
