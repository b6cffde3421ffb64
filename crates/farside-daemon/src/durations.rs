//! Durations as `farside.toml` has them: `30s`, `1h30m`, `7d`. Pure.

use std::time::Duration;

use jiff::SignedDuration;

const DAY: u64 = 86_400;

/// Reads a duration; none if it is none, or less than nothing.
pub(crate) fn read(text: &str) -> Option<Duration> {
    if let Some(days) = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok()) {
        return Some(Duration::from_secs(u64::from(days) * DAY));
    }
    text.parse::<SignedDuration>().ok().and_then(|duration| Duration::try_from(duration).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_read_and_nothing_below_zero() {
        for (text, seconds) in [
            ("7d", Some(7 * DAY)),
            ("1h30m", Some(5400)),
            ("0s", Some(0)),
            ("-1s", None),
            ("1.5d", None),
            ("d", None),
        ] {
            assert_eq!(read(text), seconds.map(Duration::from_secs), "{text}");
        }
    }
}
