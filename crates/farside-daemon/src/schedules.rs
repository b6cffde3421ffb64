//! Schedules as requests ask for them.

use std::path::Path;
use std::time::Duration;

use farside_api::{ErrorBody, ErrorCode};
use farside_mirror::Schedule;
use jiff::tz::TimeZone;

use crate::failure::Failure;

/// Where a system keeps its time zone. Without it, its time is UTC.
const SYSTEM_ZONE: &str = "/etc/localtime";

/// The same with a recovery point objective instead.
pub(crate) fn asked_or_objective(
    rpo_seconds: Option<f64>,
    every_seconds: Option<f64>,
    timetable: Option<&str>,
    time_zone: Option<&str>,
) -> Result<Option<Schedule>, ErrorBody> {
    let Some(seconds) = rpo_seconds else { return asked(every_seconds, timetable, time_zone) };
    if every_seconds.is_some() || timetable.is_some() || time_zone.is_some() {
        return Err(wrong("an objective takes the place of a schedule; give one of them"));
    }
    let objective =
        Duration::try_from_secs_f64(seconds).map_err(|_| wrong("rpo_seconds must be a number of seconds"))?;
    Schedule::objective(objective).map(Some).map_err(Failure::into_error_body)
}

/// The schedule of a request: an interval, or a timetable and its zone; none if the request does not speak of it.
pub(crate) fn asked(
    every_seconds: Option<f64>,
    timetable: Option<&str>,
    time_zone: Option<&str>,
) -> Result<Option<Schedule>, ErrorBody> {
    match (every_seconds, timetable) {
        (Some(_), Some(_)) => Err(wrong("a schedule is an interval or a timetable, not both")),
        (_, None) if time_zone.is_some() => Err(wrong("a time zone belongs to a timetable; give both")),
        (None, None) => Ok(None),
        (Some(seconds), None) => {
            let interval = Duration::try_from_secs_f64(seconds)
                .map_err(|_| wrong("every_seconds must be a number of seconds"))?;
            Schedule::every(Some(interval).filter(|i| !i.is_zero()))
                .map(Some)
                .map_err(Failure::into_error_body)
        }
        (None, Some(pattern)) => {
            let zone = match time_zone {
                Some(name) => name.to_owned(),
                None => zone_of_system()?,
            };
            let schedule = Schedule::cron(pattern, &zone).map_err(Failure::into_error_body)?;
            if let Schedule::Cron(timetable) = &schedule {
                timetable.check_steps().map_err(Failure::into_error_body)?;
            }
            Ok(Some(schedule))
        }
    }
}

/// The name of the zone this system is in, now.
pub(crate) fn zone_of_system() -> Result<String, ErrorBody> {
    system_zone(Path::new(SYSTEM_ZONE))
}

/// The name of the zone this system is in, now: it is stored with the timetable.
fn system_zone(file: &Path) -> Result<String, ErrorBody> {
    if std::env::var_os("TZ").is_none() && !file.exists() {
        return Ok(String::from("UTC"));
    }
    let zone = TimeZone::try_system().ok();
    zone.as_ref().and_then(TimeZone::iana_name).map(str::to_owned).ok_or_else(|| {
        wrong("the time zone of this system has no name that could be stored")
            .hint("name one, for example --time-zone Europe/Berlin or --time-zone UTC")
    })
}

fn wrong(message: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::WrongUsage, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_schedule_or_the_other() {
        assert_eq!(asked(None, None, None).unwrap(), None);
        assert_eq!(asked(Some(0.0), None, None).unwrap(), Some(Schedule::OnRequest));
        assert_eq!(asked(Some(1.5), None, None).unwrap(), Some(Schedule::Every(Duration::from_millis(1500))));
        let berlin = asked(None, Some("0 3 * * *"), Some("Europe/Berlin")).unwrap().unwrap();
        assert_eq!(berlin.to_string(), "0 3 * * * Europe/Berlin");
        for (every, timetable, zone) in [
            (Some(60.0), Some("0 3 * * *"), None),
            (Some(60.0), None, Some("UTC")),
            (None, None, Some("UTC")),
            (Some(-1.0), None, None),
            (Some(f64::NAN), None, None),
            (Some(0.5), None, None),
            (None, Some("0 3 * *"), Some("UTC")),
            (None, Some("0 3 * * *"), Some("Nowhere")),
        ] {
            assert_eq!(asked(every, timetable, zone).unwrap_err().code, ErrorCode::WrongUsage);
        }
    }

    #[test]
    fn an_objective_takes_the_place_of_a_schedule() {
        let objective = asked_or_objective(Some(30.0), None, None, None).unwrap().unwrap();
        assert_eq!(objective.to_string(), "rpo 30s");
        assert_eq!(asked_or_objective(None, Some(0.0), None, None).unwrap(), Some(Schedule::OnRequest));
        for (rpo, every) in [(30.0, Some(1.0)), (1.0, None), (-1.0, None), (f64::INFINITY, None)] {
            let error = asked_or_objective(Some(rpo), every, None, None).unwrap_err();
            assert_eq!(error.code, ErrorCode::WrongUsage, "{rpo}");
        }
    }

    #[test]
    fn a_system_without_a_zone_is_at_utc() {
        if std::env::var_os("TZ").is_none() {
            assert_eq!(system_zone(Path::new("/nonexistent/localtime")).unwrap(), "UTC");
        }
    }
}
