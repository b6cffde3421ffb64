//! Rates, and how people write them.

use std::fmt;
use std::str::FromStr;

use crate::limits::{RATE_MAX, RATE_MIN};

/// How fast bytes may go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Rate {
    /// As fast as they can.
    #[default]
    Unlimited,
    /// At most this many a second; between [`RATE_MIN`] and [`RATE_MAX`] if it was made by this type.
    PerSecond(PerSecond),
}

/// Bytes per second, within the bounds. Two are equal that let as much through, in whatever unit a person wrote them.
#[derive(Clone, Copy, Debug)]
pub struct PerSecond {
    bytes: u64,
    /// It was written in bits, and is shown so: whoever reads it again finds the own number.
    in_bits: bool,
}

impl PerSecond {
    fn bytes(bytes: u64) -> PerSecond {
        PerSecond { bytes, in_bits: false }
    }
}

impl PartialEq for PerSecond {
    fn eq(&self, other: &PerSecond) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for PerSecond {}

impl std::hash::Hash for PerSecond {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

impl PartialOrd for PerSecond {
    fn partial_cmp(&self, other: &PerSecond) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PerSecond {
    fn cmp(&self, other: &PerSecond) -> std::cmp::Ordering {
        self.bytes.cmp(&other.bytes)
    }
}

/// Why a text is no rate: a sentence that says how to write one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct RateError(pub(super) String);

impl RateError {
    /// With these words: of whoever knows more, such as the zone of a system.
    pub fn new(words: &str) -> RateError {
        RateError(words.to_owned())
    }
}

const ADVICE: &str =
    "write bytes as 4MB/s or bits as 10Mbit/s (k, M, G: thousands; Ki, Mi, Gi: of 1024), or unlimited";

impl Rate {
    /// A limit in bytes per second.
    ///
    /// # Errors
    /// Below [`RATE_MIN`] or above [`RATE_MAX`].
    pub fn limited(bytes_per_second: u64) -> Result<Rate, RateError> {
        if bytes_per_second < RATE_MIN {
            return Err(RateError(format!(
                "{bytes_per_second} bytes a second is too little: the lowest limit is 8kB/s (64kbit/s); to stop a \
                 mirror, quiesce it"
            )));
        }
        if bytes_per_second > RATE_MAX {
            return Err(RateError(String::from("more than 1000GB/s: write unlimited")));
        }
        Ok(Rate::PerSecond(PerSecond::bytes(bytes_per_second)))
    }

    /// The committed rate of a line, in bytes per second: a figure that no limit can be becomes the next one that can.
    pub fn committed(bytes_per_second: u64) -> Rate {
        Rate::PerSecond(PerSecond::bytes(bytes_per_second.clamp(RATE_MIN, RATE_MAX)))
    }

    /// The one of two that lets less through.
    pub fn lower(self, other: Rate) -> Rate {
        match (self, other) {
            (Rate::Unlimited, rate) | (rate, Rate::Unlimited) => rate,
            (Rate::PerSecond(one), Rate::PerSecond(other)) => Rate::PerSecond(one.min(other)),
        }
    }

    /// Bytes per second; none if there is no limit.
    pub fn bytes_per_second(self) -> Option<u64> {
        match self {
            Rate::Unlimited => None,
            Rate::PerSecond(PerSecond { bytes, .. }) => Some(bytes),
        }
    }
}

impl FromStr for Rate {
    type Err = RateError;

    /// `4MB/s`, `1.5MB/s`, `512KiB/s`, `10Mb/s`, `10Mbit/s`, `unlimited`. A `B` is bytes, a `b` bits.
    fn from_str(text: &str) -> Result<Rate, RateError> {
        let wrong = || RateError(format!("{text:?} is no rate: {ADVICE}"));
        if matches!(text, "unlimited" | "none" | "off") {
            return Ok(Rate::Unlimited);
        }
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let (prefix, bits) = split_unit(unit).ok_or_else(wrong)?;
        let factor: u64 = match prefix {
            "" => 1,
            "k" | "K" => 1_000,
            "M" => 1_000_000,
            "G" => 1_000_000_000,
            "Ki" => 1 << 10,
            "Mi" => 1 << 20,
            "Gi" => 1 << 30,
            _ => return Err(wrong()),
        };
        let thousandths = thousandths(number).ok_or_else(wrong)?;
        let scaled = u128::from(thousandths) * u128::from(factor) / if bits { 8_000 } else { 1_000 };
        let rate = Rate::limited(u64::try_from(scaled).unwrap_or(u64::MAX))
            .map_err(|e| RateError(format!("{text:?}: {e}")))?;
        Ok(match rate {
            Rate::PerSecond(PerSecond { bytes, .. }) => Rate::PerSecond(PerSecond { bytes, in_bits: bits }),
            Rate::Unlimited => rate,
        })
    }
}

/// Prefix, and whether it is bits.
fn split_unit(unit: &str) -> Option<(&str, bool)> {
    for (ending, bits) in [("B/s", false), ("bit/s", true), ("bps", true), ("b/s", true)] {
        if let Some(prefix) = unit.strip_suffix(ending) {
            return Some((prefix, bits));
        }
    }
    None
}

/// A number with at most three digits after the point, times 1000.
fn thousandths(number: &str) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || part.is_empty() || part.len() > 3 || whole.len() > 15 {
        return None;
    }
    let part: u64 = format!("{part:0<3}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(part)
}

impl fmt::Display for Rate {
    /// As [`FromStr`] reads it, exactly; bits where it was written in bits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rate::PerSecond(PerSecond { bytes, in_bits }) = *self else { return f.write_str("unlimited") };
        // At most 8 × RATE_MAX.
        let (amount, unit) = if in_bits { (bytes * 8, "bit/s") } else { (bytes, "B/s") };
        for (factor, prefix) in [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")] {
            if amount >= factor && amount % (factor / 1000) == 0 {
                let (whole, part) = (amount / factor, amount % factor / (factor / 1000));
                return match format!("{part:03}").trim_end_matches('0') {
                    "" => write!(f, "{whole}{prefix}{unit}"),
                    part => write!(f, "{whole}.{part}{prefix}{unit}"),
                };
            }
        }
        write!(f, "{amount}{unit}")
    }
}
