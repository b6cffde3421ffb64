//! Sizes and durations as people write them, and back. Pure.
//!
//! Sizes are read as `farside.toml` reads them, by [`parse_size`]. Durations: `30s`, `15m`, `1h`, `1h30m`, `500ms`, `1d`.

use std::time::Duration;

pub use farside_api::parse_size;
use jiff::SignedDuration;

/// Reads a duration greater than zero. A day has 24 hours.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let advice = "use for example 30s, 15m, 1h or 1d";
    if let Some(Ok(days)) = text.strip_suffix('d').map(str::parse::<u32>)
        && days > 0
    {
        return Ok(Duration::from_secs(u64::from(days) * 86_400));
    }
    let signed: SignedDuration = text.parse().map_err(|_| String::from(advice))?;
    match Duration::try_from(signed) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(format!("must be more than zero; {advice}")),
    }
}

/// A size for people: `10.0 GiB`.
pub fn size(bytes: u64) -> String {
    bytesize::ByteSize::b(bytes).display().iec().to_string()
}

/// A rate for people: `3.2 MiB/s`.
pub fn rate(bytes_per_second: f64) -> String {
    // A rate is never negative, and beyond 2^64 the cast saturates.
    format!("{}/s", size(bytes_per_second as u64))
}

/// A limit in thousands of bytes, as people write limits: `2.5MB/s`.
pub fn bytes_a_second(bytes_per_second: f64) -> String {
    thousands(bytes_per_second, "B/s")
}

/// The same in bits, as lines are sold: `20Mbit/s`.
pub fn bits_a_second(bytes_per_second: f64) -> String {
    thousands(bytes_per_second * 8.0, "bit/s")
}

fn thousands(amount: f64, unit: &str) -> String {
    let (amount, prefix) = match amount {
        amount if amount >= 1e9 => (amount / 1e9, "G"),
        amount if amount >= 1e6 => (amount / 1e6, "M"),
        amount if amount >= 1e3 => (amount / 1e3, "k"),
        amount => (amount, ""),
    };
    let text = format!("{amount:.3}");
    format!("{}{prefix}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A duration in seconds for people: `0.25 s`, `42 s`, `3m05s`, `2h10m`, `3d04h`.
pub fn duration(seconds: f64) -> String {
    if seconds < 10.0 {
        return format!("{seconds:.2} s");
    }
    let whole = seconds.round() as u64;
    match whole {
        0..=59 => format!("{whole} s"),
        60..=3599 => format!("{}m{:02}s", whole / 60, whole % 60),
        3600..=86_399 => format!("{}h{:02}m", whole / 3600, whole % 3600 / 60),
        _ => format!("{}d{:02}h", whole / 86_400, whole % 86_400 / 3600),
    }
}

/// A time for people: to the second, in UTC.
pub fn time(time: farside_api::Timestamp) -> String {
    format!("{time:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, millis) in [
            ("30s", 30_000),
            ("15m", 900_000),
            ("1h", 3_600_000),
            ("1h30m", 5_400_000),
            ("500ms", 500),
            ("2d", 172_800_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "30", "0s", "-5s", "soon", "1y", "0d", "-1d", "d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn for_people() {
        assert_eq!(size(10 << 30), "10.0 GiB");
        assert_eq!(size(512), "512 B");
        assert_eq!(rate(3_355_443.0), "3.2 MiB/s");
        assert_eq!(duration(0.25), "0.25 s");
        assert_eq!(duration(42.4), "42 s");
        assert_eq!(duration(185.0), "3m05s");
        assert_eq!(duration(7800.0), "2h10m");
        assert_eq!(duration(273_600.0), "3d04h");
        assert_eq!(time("2026-11-21T20:00:00.987654321Z".parse().unwrap()), "2026-11-21T20:00:00Z");
    }
}
