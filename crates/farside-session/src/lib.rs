//! Authenticated sessions between sites.

pub mod error;
pub mod link;

pub use error::SessionError;
pub use link::{
    ByteStream, CALL_BYTES_MAX, DataStream, HEADER_BYTES_MAX, PeerId, PeerLink, PeerService, Refusal, WireCounters,
};
