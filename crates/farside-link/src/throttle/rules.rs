//! A limit by the time of day and the day of the week.
//!
//! ```text
//! 4MB/s,08:00-18:00=1MB/s,sat+sun=unlimited,zone=Europe/Berlin
//! │     │                 │                 └ whose clock: needed where there are hours or days
//! │     │                 └ days: mon … sun, with + and ranges (mon-fri)
//! │     └ hours, from-until; both: mon-fri@22:00-06:00 (the night belongs to the day on which it begins)
//! └ when nothing else holds; unlimited if it is left out
//! ```
//!
//! Of the conditions that are true the last one holds. Pure but for the look-up of a zone, in the system's time zone data
//! or else in what this program carries. What daylight saving leaves out or repeats, the clock on the wall decides.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use farside_platform::Timestamp;
use jiff::civil::Time;
use jiff::tz::TimeZone;

use super::rate::{Rate, RateError};
use crate::limits::{THROTTLE_RULES_BYTES_MAX, THROTTLE_RULES_MAX};

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const ALL_DAYS: u8 = 0b111_1111;
const DAY_MINUTES: u16 = 24 * 60;
const ZONE: &str = "zone=";

/// A limit, by the clock. Two are equal if they read alike.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rules {
    otherwise: Rate,
    rules: Vec<Rule>,
    zone: Option<Zone>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rule {
    /// A bit for each day, Monday first.
    days: u8,
    hours: Option<Hours>,
    rate: Rate,
}

/// Minutes of the day; `until` is not among them, and may be the next day's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Hours {
    from: u16,
    until: u16,
}

#[derive(Clone, Debug)]
struct Zone {
    name: String,
    zone: TimeZone,
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Zone {}

impl From<Rate> for Rules {
    /// The same at all times.
    fn from(rate: Rate) -> Rules {
        Rules { otherwise: rate, ..Rules::default() }
    }
}

impl Rules {
    /// From text; where it has hours or days and names no zone, `default_zone` tells the one they are in.
    ///
    /// # Errors
    /// A sentence that says what of it cannot be read, and how it is written.
    pub fn parse(
        text: &str,
        default_zone: impl FnOnce() -> Result<String, RateError>,
    ) -> Result<Rules, RateError> {
        if text.len() > THROTTLE_RULES_BYTES_MAX {
            return Err(RateError(format!("a throttle has at most {THROTTLE_RULES_BYTES_MAX} characters")));
        }
        let mut rules = Rules::default();
        for (number, part) in text.split(',').map(str::trim).enumerate() {
            if let Some(name) = part.strip_prefix(ZONE) {
                if rules.zone.is_some() {
                    return Err(RateError(format!("{text:?} names two time zones")));
                }
                rules.zone = Some(zone(name)?);
            } else if let Some((condition, rate)) = part.split_once('=') {
                rules.rules.push(rule(condition, rate)?);
            } else if number == 0 {
                rules.otherwise = part.parse()?;
            } else {
                return Err(RateError(format!(
                    "{part:?} says no time: after the first, each part is TIME=RATE, for example 08:00-18:00=1MB/s"
                )));
            }
        }
        if rules.rules.len() > THROTTLE_RULES_MAX {
            return Err(RateError(format!("a throttle has at most {THROTTLE_RULES_MAX} times")));
        }
        match (&rules.zone, rules.rules.is_empty()) {
            (None, false) => rules.zone = Some(zone(&default_zone()?)?),
            (Some(_), true) => return Err(RateError(format!("{text:?} has a time zone and no times"))),
            _ => {}
        }
        Ok(rules)
    }

    /// The rate at a moment.
    pub fn rate_at(&self, now: Timestamp) -> Rate {
        let Some(zone) = &self.zone else { return self.otherwise };
        let Ok(now) = jiff::Timestamp::from_nanosecond(i128::from(now.0)) else { return self.otherwise };
        let clock = zone.zone.to_datetime(now);
        let day = clock.weekday().to_monday_zero_offset() as u8;
        let time = clock.time();
        let minute = time.hour() as u16 * 60 + time.minute() as u16;
        let holds = self.rules.iter().rev().find(|rule| rule.is_true(day, minute));
        holds.map_or(self.otherwise, |rule| rule.rate)
    }

    /// Whether it never limits anything.
    pub fn is_open(&self) -> bool {
        self.otherwise == Rate::Unlimited && self.rules.iter().all(|rule| rule.rate == Rate::Unlimited)
    }

    /// How long a look at `now` is good for: times are in minutes, and every zone's minutes begin together.
    pub fn good_for(now: Timestamp) -> Duration {
        const MINUTE: u64 = 60_000_000_000;
        Duration::from_nanos(MINUTE - now.0 % MINUTE)
    }
}

impl Rule {
    fn is_true(self, day: u8, minute: u16) -> bool {
        let is_on = |day: u8| self.days & (1 << day) != 0;
        match self.hours {
            None => is_on(day),
            Some(Hours { from, until }) if from < until => is_on(day) && (from..until).contains(&minute),
            // Over midnight: the evening of one of the days, or the morning after it.
            Some(Hours { from, until }) => {
                (minute >= from && is_on(day)) || (minute < until && is_on((day + 6) % 7))
            }
        }
    }
}

fn rule(condition: &str, rate: &str) -> Result<Rule, RateError> {
    let wrong = || {
        RateError(format!(
            "{condition:?} is no time: write hours as 08:00-18:00, days as mon-fri or sat+sun, both as mon-fri@08:00-18:00"
        ))
    };
    let (on, at) = match condition.split_once('@') {
        Some((on, at)) => (Some(on), Some(at)),
        None if condition.contains(':') => (None, Some(condition)),
        None => (Some(condition), None),
    };
    let days = on.map_or(Some(ALL_DAYS), days).ok_or_else(wrong)?;
    let hours = at.map(|at| hours(at).ok_or_else(wrong)).transpose()?;
    Ok(Rule { days, hours, rate: rate.trim().parse()? })
}

fn days(text: &str) -> Option<u8> {
    let day = |name: &str| DAYS.iter().position(|day| *day == name.trim().to_ascii_lowercase());
    let mut days = 0;
    for part in text.split('+') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (mut at, last) = (day(first)?, day(last)?);
        // Around the week's end too: sat-mon.
        loop {
            days |= 1 << at;
            if at == last {
                break;
            }
            at = (at + 1) % DAYS.len();
        }
    }
    Some(days)
}

fn hours(text: &str) -> Option<Hours> {
    let (from, until) = text.split_once('-')?;
    let (from, until) = (minute(from)?, minute(until)?);
    (from != until && from < DAY_MINUTES).then_some(Hours { from, until })
}

/// Minutes since midnight of `HH:MM`; 24:00 is the day's end.
fn minute(text: &str) -> Option<u16> {
    if text.trim() == "24:00" {
        return Some(DAY_MINUTES);
    }
    let (hour, minute) = text.trim().split_once(':')?;
    let is_number = |part: &str| part.len() <= 2 && part.chars().all(|c| c.is_ascii_digit());
    if !is_number(hour) || minute.len() != 2 || !is_number(minute) {
        return None;
    }
    let time = Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok()?;
    Some(time.hour() as u16 * 60 + time.minute() as u16)
}

fn zone(name: &str) -> Result<Zone, RateError> {
    let unknown =
        || RateError(format!("{name:?} is no time zone; use a name such as zone=Europe/Berlin or zone=UTC"));
    let zone = TimeZone::get(name).map_err(|_| unknown())?;
    let name = zone.iana_name().ok_or_else(unknown)?.to_owned();
    Ok(Zone { name, zone })
}

impl FromStr for Rules {
    type Err = RateError;
    /// What [`Display`](fmt::Display) writes: the zone is named if it is needed.
    fn from_str(text: &str) -> Result<Rules, RateError> {
        Rules::parse(text, || Err(RateError(format!("{text:?} has times and no zone"))))
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.otherwise.fmt(f)?;
        for rule in &self.rules {
            f.write_str(",")?;
            rule.fmt(f)?;
        }
        if let Some(zone) = &self.zone {
            write!(f, ",{ZONE}{}", zone.name)?;
        }
        Ok(())
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.days != ALL_DAYS || self.hours.is_none() {
            write_days(f, self.days)?;
            if self.hours.is_some() {
                f.write_str("@")?;
            }
        }
        if let Some(Hours { from, until }) = self.hours {
            write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, until / 60, until % 60)?;
        }
        write!(f, "={}", self.rate)
    }
}

/// Runs of three days or more as ranges, from Monday on.
fn write_days(f: &mut fmt::Formatter<'_>, days: u8) -> fmt::Result {
    let is_on = |day: &usize| days & (1 << day) != 0;
    let (mut day, mut separator) = (0, "");
    while day < DAYS.len() {
        let run = (day..DAYS.len()).take_while(is_on).count();
        match run {
            0 => day += 1,
            1 | 2 => {
                write!(f, "{separator}{}", DAYS[day])?;
                day += 1;
            }
            _ => {
                write!(f, "{separator}{}-{}", DAYS[day], DAYS[day + run - 1])?;
                day += run;
            }
        }
        if run > 0 {
            separator = "+";
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Rules {
        Rules::parse(text, || Ok(String::from("UTC"))).unwrap()
    }

    /// The rate at a clock time in the zone of the rules, as text.
    fn at(text: &str, moment: &str) -> String {
        let moment: jiff::Timestamp = moment.parse().unwrap();
        read(text).rate_at(Timestamp(moment.as_nanosecond() as u64)).to_string()
    }

    #[test]
    fn the_last_condition_that_is_true_holds() {
        // The 2nd of November 2026 is a Monday.
        let rules = "4MB/s,08:00-18:00=1MB/s,sat+sun=unlimited";
        for (moment, rate) in [
            ("2026-11-02T07:59:59Z", "4MB/s"),
            ("2026-11-02T08:00:00Z", "1MB/s"),
            ("2026-11-02T17:59:59Z", "1MB/s"),
            ("2026-11-02T18:00:00Z", "4MB/s"),
            ("2026-11-06T23:59:59Z", "4MB/s"),
            ("2026-11-07T00:00:00Z", "unlimited"),
            ("2026-11-08T12:00:00Z", "unlimited"),
            ("2026-11-09T00:00:00Z", "4MB/s"),
        ] {
            assert_eq!(at(rules, moment), rate, "{moment}");
        }
        assert_eq!(at("mon-fri@08:00-18:00=1MB/s", "2026-11-07T12:00:00Z"), "unlimited");
        assert_eq!(at("4MB/s", "2026-11-07T12:00:00Z"), "4MB/s");
    }

    #[test]
    fn a_night_belongs_to_the_day_on_which_it_begins() {
        let rules = "1MB/s,fri@22:00-06:00=9MB/s";
        for (moment, rate) in [
            ("2026-11-06T05:00:00Z", "1MB/s"),
            ("2026-11-06T22:00:00Z", "9MB/s"),
            ("2026-11-07T05:59:00Z", "9MB/s"),
            ("2026-11-07T06:00:00Z", "1MB/s"),
            ("2026-11-07T22:00:00Z", "1MB/s"),
        ] {
            assert_eq!(at(rules, moment), rate, "{moment}");
        }
        // Sunday's night is Monday's morning.
        assert_eq!(at("1MB/s,sun@22:00-06:00=9MB/s", "2026-11-09T03:00:00Z"), "9MB/s");
        assert_eq!(at("1MB/s,20:00-24:00=9MB/s", "2026-11-09T23:59:00Z"), "9MB/s");
    }

    #[test]
    fn the_clock_is_that_of_the_zone_through_daylight_saving() {
        let rules = "4MB/s,08:00-18:00=1MB/s,zone=Europe/Berlin";
        assert_eq!(at(rules, "2026-07-01T06:00:00Z"), "1MB/s");
        assert_eq!(at(rules, "2026-12-01T06:00:00Z"), "4MB/s");
        assert_eq!(at(rules, "2026-12-01T07:00:00Z"), "1MB/s");
        // 02:30 comes twice on this night, and both count.
        let night = "4MB/s,02:00-03:00=1MB/s,zone=Europe/Berlin";
        assert_eq!(at(night, "2026-10-25T00:30:00Z"), "1MB/s");
        assert_eq!(at(night, "2026-10-25T01:30:00Z"), "1MB/s");
        assert_eq!(at(night, "2026-10-25T02:00:00Z"), "4MB/s");
    }

    #[test]
    fn it_reads_the_same_however_it_was_typed() {
        for (typed, kept) in [
            ("4MB/s", "4MB/s"),
            ("unlimited", "unlimited"),
            ("4000kB/s , 8:00-18:00=8Mbit/s", "4MB/s,08:00-18:00=8Mbit/s,zone=UTC"),
            ("SAT+sun=unlimited", "unlimited,sat+sun=unlimited,zone=UTC"),
            ("1MB/s,fri-mon@22:00-06:00=9MB/s", "1MB/s,mon+fri-sun@22:00-06:00=9MB/s,zone=UTC"),
            ("1MB/s,mon-sun=2MB/s,zone=europe/berlin", "1MB/s,mon-sun=2MB/s,zone=Europe/Berlin"),
        ] {
            assert_eq!(read(typed).to_string(), kept);
            assert_eq!(kept.parse::<Rules>().unwrap(), read(typed));
        }
        assert!(read("unlimited,sat=unlimited").is_open() && Rules::default().is_open());
        assert!(!read("unlimited,sat=1MB/s").is_open());
        assert_eq!(Rules::good_for(Timestamp(61_000_000_000)), Duration::from_secs(59));
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
        for (text, words) in [
            ("", "4MB/s"),
            ("fast", "no rate"),
            ("4MB/s,1MB/s", "says no time"),
            ("4MB/s,8-18=1MB/s", "no time"),
            ("4MB/s,08:00-08:00=1MB/s", "no time"),
            ("4MB/s,24:00-06:00=1MB/s", "no time"),
            ("4MB/s,25:00-26:00=1MB/s", "no time"),
            ("4MB/s,08:60-09:00=1MB/s", "no time"),
            ("4MB/s,08:00-=1MB/s", "no time"),
            ("4MB/s,someday=1MB/s", "mon-fri"),
            ("4MB/s,mon@=1MB/s", "no time"),
            ("4MB/s,mon=fast", "no rate"),
            ("4MB/s,mon=1kB/s", "8kB/s"),
            ("4MB/s,mon=1MB/s,zone=Nowhere/Land", "no time zone"),
            ("4MB/s,zone=UTC", "no times"),
            ("4MB/s,mon=1MB/s,zone=UTC,zone=UTC", "two time zones"),
        ] {
            let error = Rules::parse(text, || Ok(String::from("UTC"))).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        assert!("4MB/s,mon=1MB/s".parse::<Rules>().is_err(), "what is stored names its zone");
        assert!(Rules::parse(&"4MB/s,mon=1MB/s".repeat(60), || Ok(String::from("UTC"))).is_err());
        let many = format!("4MB/s{}", ",mon=1MB/s".repeat(THROTTLE_RULES_MAX + 1));
        assert!(Rules::parse(&many, || Ok(String::from("UTC"))).unwrap_err().to_string().contains("at most"));
    }

    proptest! {
        /// No text does harm, and what is read reads back.
        #[test]
        fn any_text(text in "([0-9]{1,3}(k|M)B/s|unlimited)(,((mon|fri|sun)([-+](tue|sat))?@?)?([0-9]{1,2}:[0-9]{2}-[0-9]{1,2}:[0-9]{2})?=[0-9]{1,3}MB/s){0,3}") {
            if let Ok(rules) = Rules::parse(&text, || Ok(String::from("UTC"))) {
                prop_assert_eq!(rules.to_string().parse::<Rules>().unwrap(), rules);
            }
        }

        #[test]
        fn no_text_does_harm(text in "\\PC{0,40}") {
            let _ = Rules::parse(&text, || Ok(String::from("UTC")));
        }
    }
}
