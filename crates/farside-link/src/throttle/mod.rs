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
//! Pure: time comes as an argument, by [`clock()`] for everybody who shares a bucket.

mod bucket;
mod chain;
mod clock;
mod rate;
mod rules;
mod throttles;

pub use bucket::Bucket;
pub use chain::{Granted, Limits};
pub use clock::clock;
pub use rate::{Rate, RateError};
pub use rules::Rules;
pub use throttles::{Direction, StreamLimits, Throttles};

#[cfg(test)]
mod tests;
