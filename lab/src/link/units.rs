//! What people write for rates, times, shares and sizes: `44.736Mbit`, `50ms`, `0.1%`, `256KiB`. Each function can be a
//! command line's value parser as it is.

use std::time::Duration;

use thiserror::Error;

/// Words that are not understood. Nothing has been done with them.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
#[error("`{words}` is not {wanted}; write it like {examples}")]
pub struct UnitError {
    /// As given.
    pub words: String,
    /// What was expected.
    pub wanted: &'static str,
    /// How it can be written.
    pub examples: &'static str,
}

/// Bits a second: `256kbit`, `1.544Mbit`, `44.736 Mb/s`, `1Gbit/s`. Decimal prefixes, bits always.
///
/// # Errors
/// [`UnitError`].
pub fn parse_rate(words: &str) -> Result<u64, UnitError> {
    let error = || UnitError {
        words: words.to_owned(),
        wanted: "a rate",
        examples: "`256kbit`, `1.544Mbit` or `1Gbit` (bits a second)",
    };
    let (number, unit) = split(words).ok_or_else(error)?;
    let unit = unit.strip_suffix("/s").unwrap_or(unit);
    let prefix = unit.strip_suffix("bit").or_else(|| unit.strip_suffix('b')).ok_or_else(error)?;
    let scale = match prefix {
        "" => 1e0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return Err(error()),
    };
    let bits = (number * scale).round();
    // Above 2^53 a float no longer holds whole numbers; no rate comes near.
    (bits < 9e15).then_some(bits as u64).ok_or_else(error)
}

/// A time: `50ms`, `1.5s`, `200us`; `0` needs no unit.
///
/// # Errors
/// [`UnitError`].
pub fn parse_time(words: &str) -> Result<Duration, UnitError> {
    if words.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    words
        .trim()
        .parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|time| Duration::try_from(time).ok())
        .ok_or_else(|| UnitError {
            words: words.to_owned(),
            wanted: "a time",
            examples: "`50ms`, `1.5s` or `200us`",
        })
}

/// A share, 0 to 1, written as percent: `0.1%`; `0` needs no sign.
///
/// # Errors
/// [`UnitError`].
pub fn parse_share(words: &str) -> Result<f64, UnitError> {
    if words.trim() == "0" {
        return Ok(0.0);
    }
    split(words)
        .filter(|(number, unit)| *unit == "%" && *number <= 100.0)
        .map(|(number, _)| number / 100.0)
        .ok_or_else(|| UnitError {
            words: words.to_owned(),
            wanted: "a share",
            examples: "`0.1%`, at most `100%`",
        })
}

/// Bytes: `256KiB`, `1.5MB`.
///
/// # Errors
/// [`UnitError`].
pub fn parse_bytes(words: &str) -> Result<u64, UnitError> {
    words.parse::<bytesize::ByteSize>().map(|size| size.as_u64()).map_err(|_| UnitError {
        words: words.to_owned(),
        wanted: "a size",
        examples: "`256KiB` or `1.5MB`",
    })
}

/// A number that is not negative, and the rest behind it.
fn split(words: &str) -> Option<(f64, &str)> {
    let words = words.trim();
    let end = words.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(words.len());
    let (number, unit) = words.split_at(end);
    Some((number.parse().ok()?, unit.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_bits_with_decimal_prefixes() {
        for (words, bits) in [
            ("256kbit", 256_000),
            ("1.544Mbit", 1_544_000),
            ("44.736 Mb/s", 44_736_000),
            ("622.08Mbit/s", 622_080_000),
            ("1Gbit", 1_000_000_000),
            ("9600bit", 9600),
        ] {
            assert_eq!(parse_rate(words), Ok(bits), "{words}");
        }
        for words in ["", "10", "10MB/s", "10MiB", "Mbit", "-1Mbit", "1e3bit", "1.2.3Mbit", "99999999Gbit"] {
            assert!(parse_rate(words).is_err(), "{words}");
        }
    }

    #[test]
    fn times_need_a_unit_and_are_not_negative() {
        assert_eq!(parse_time("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_time("200us"), Ok(Duration::from_micros(200)));
        assert_eq!(parse_time("12.5ms"), Ok(Duration::from_micros(12_500)));
        assert_eq!(parse_time("0"), Ok(Duration::ZERO));
        for words in ["", "50", "-5ms", "fast"] {
            assert!(parse_time(words).is_err(), "{words}");
        }
    }

    #[test]
    fn shares_are_percent() {
        assert_eq!(parse_share("0.1%"), Ok(0.001));
        assert_eq!(parse_share("100 %"), Ok(1.0));
        assert_eq!(parse_share("0"), Ok(0.0));
        for words in ["", "0.1", "101%", "-1%", "%"] {
            assert!(parse_share(words).is_err(), "{words}");
        }
    }

    #[test]
    fn an_error_says_how_to_write_it() {
        assert_eq!(
            parse_share("0.1").unwrap_err().to_string(),
            "`0.1` is not a share; write it like `0.1%`, at most `100%`"
        );
        assert_eq!(parse_bytes("256KiB"), Ok(256 << 10));
        assert!(parse_bytes("many").is_err());
    }
}
