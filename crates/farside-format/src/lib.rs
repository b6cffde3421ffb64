//! What lies on a pool's medium, and what a fingerprint is.
//!
//! Pure types: no I/O, no clock, no allocation policy. The store writes through them, the offline checker reads
//! through them, the wire and the mirror know only [`fingerprint`]. The byte map is `docs/format.md`.

pub mod fingerprint;

pub use fingerprint::{BLOCK_BYTES, ContentRoot, FAN_OUT, Fingerprint};
