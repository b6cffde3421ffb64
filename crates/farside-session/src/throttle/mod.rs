//! How many bytes may go now: token buckets in a hierarchy, shared fairly, exact over seconds and smooth within one.
//!
//! ```text
//! Rules ("4MB/s,08:00-18:00=1MB/s" in a zone) ── by wall time ─► Rate ─► Bucket ◄─ shared ─ Limits, one for each stream
//! ```
//!
//! A [`Bucket`] is one limit: of a site, of a peer, of a mirror. A [`Limits`] is what one stream asks: the chain of buckets
//! that it is under. What they guarantee, and to what precision, stands at [`Bucket`]; what is counted is whatever the
//! caller asks for, and a session asks for bytes on the wire.
//!
//! Pure: time comes as an argument, by [`clock`] for everybody who shares a bucket.

mod bucket;
mod chain;
mod rate;
mod rules;
mod throttles;

use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

pub use bucket::Bucket;
pub use chain::{Granted, Limits};
pub use rate::{Rate, RateError};
pub use rules::Rules;
pub use throttles::{Direction, StreamLimits, Throttles};

/// The time that every user of a bucket hands in: tokio's, since some fixed moment of this process.
pub fn clock() -> Duration {
    static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
    // First: whoever asks first would otherwise be before the epoch.
    let epoch = *EPOCH;
    Instant::now().saturating_duration_since(epoch)
}

#[cfg(test)]
mod tests;
