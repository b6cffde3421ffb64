//! What lies on a pool's medium, and what a fingerprint is.
//!
//! Pure types: no I/O, no clock, no allocation policy. The store writes through them, the offline checker reads
//! through them, the wire and the mirror know only [`fingerprint`]. The byte map is `docs/format.md`.
//!
//! Nothing that came from a medium is trusted: each `decode` checks magic, version, checksum, ranges and reserved
//! bytes, and answers a [`FormatError`]; it never panics (fuzzed, see [`fuzz`]).

pub mod catalog;
pub mod claim;
mod error;
pub mod fingerprint;
pub mod free_map;
pub mod fuzz;
pub mod journal;
pub mod node;
pub mod occupant;
pub mod owner_counts;
pub mod pins;
pub mod pointer;
pub mod superblock;
mod version;

pub use error::FormatError;
pub use fingerprint::{BLOCK_BYTES, ContentRoot, FAN_OUT, Fingerprint};
pub use node::{Node, NodeExpectation, TreeKind};
pub use pointer::{Birth, Place, Pointer, TreeReference};
pub use superblock::Superblock;
pub use version::FORMAT_VERSION;
