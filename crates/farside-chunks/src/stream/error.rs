//! Why a block gives no bytes, and what is asked for then.

use super::layout::{DIGEST_BYTES, digest};
use crate::name::ChunkName;

/// Why a block gave no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A chunk that it names is not here, or the bytes are not those that were meant: they have to be asked for. The
    /// blocks after it can be decoded.
    #[error("a chunk is not here; the block is asked for again")]
    Again {
        /// What is missing; none if all chunks are here and the digest does not fit.
        missing: Option<ChunkName>,
        /// What the answer has to be.
        wanted: Wanted,
    },
    /// It is no block. Nothing after it can be decoded.
    #[error("malformed block: {0}")]
    Malformed(&'static str),
}

pub(super) const fn malformed(what: &'static str) -> DecodeError {
    DecodeError::Malformed(what)
}

/// Which bytes a block stands for that could not be decoded: an answer of others is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub(super) stream_bytes: usize,
    pub(super) digest: [u8; DIGEST_BYTES],
}

impl Wanted {
    /// These bytes.
    pub fn of(bytes: &[u8]) -> Wanted {
        Wanted { stream_bytes: bytes.len(), digest: digest(bytes) }
    }

    /// How many they are.
    pub fn stream_bytes(&self) -> usize {
        self.stream_bytes
    }
}
