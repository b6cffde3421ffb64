//! Changed blocks to fewer bytes and back: frames.
//!
//! A **frame** carries about 1 MiB of changed blocks of one volume version, and the holes between them, as one
//! independent zstd frame. Its **prefix** (bytes both sides hold already) is what makes it small: the base
//! version's bytes at the frame's own positions, and what the same stream has just carried. This crate is pure:
//! no I/O, no clock, no threads; whoever drives it reads blocks, supplies prefix bytes and moves the frames.
//!
//! What a decoded frame guarantees: every block it hands out is, bit for bit, what the encoder was given for that
//! position (a digest covers positions, payload and the full fingerprint of every block), or decoding ends in a
//! [`FrameError`] and hands out nothing. Every length a frame claims is bounded before memory is claimed for it
//! ([`layout`]). What it does not: say whether the blocks are the right ones for a version. That is for the content
//! root, which the destination computes itself before it publishes anything.
//!
//! Byte map of a frame, little-endian; the same table with its history is in `docs/protocol.md`:
//!
//! ```text
//! offset  bytes  field
//!      0      4  magic "FSWF"
//!      4      1  frame version, 1
//!      5      1  codec: 0 raw, 1 zstd without magic number
//!      6      2  zero
//!      8      4  bytes of the table
//!     12      4  bytes of the payload
//!     16      4  data blocks (sum over the data runs), of 4096 bytes
//!     20      4  prefix blocks (sum over the prefix ranges)
//!     24      4  runs
//!     28      4  prefix ranges
//!     32     16  digest of the prefix bytes; zero without a prefix
//!     48     16  digest of the frame: bytes 0..48, table, payload, fingerprint of every data block
//!     64      t  table: runs, then prefix ranges, in LEB128 numbers (see `table`)
//!   64+t      p  payload: the data runs' bytes, in order
//! ```
//!
//! Reading order: [`layout`], [`encode`], [`decode`]; [`plan`] cuts a difference into frames, [`prefix`] chooses
//! what a frame may refer to, [`history`] is what a stream has just carried.

pub mod decode;
mod digest;
pub mod encode;
pub mod error;
pub mod figures;
pub mod fuzz;
pub mod history;
pub mod layout;
pub mod plan;
pub mod prefix;
mod table;
pub mod varint;

pub use decode::{Decoded, Decoder, PrefixSource};
pub use encode::{Encoded, Encoder};
pub use error::{EncodeError, FrameError};
pub use figures::{FrameFigures, FrameRung};
pub use history::History;
pub use layout::{
    BLOCK_BYTES, DATA_BLOCKS_MAX, FRAME_BYTES_MAX, FRAME_VERSION, HISTORY_BLOCKS, PREFIX_BLOCKS_MAX,
    PREFIX_RANGES_MAX, RUNS_MAX, TARGET_BLOCKS,
};
pub use plan::{FramePlan, FramePlans};
pub use prefix::{Prefix, PrefixOrigin, PrefixRange};

/// What a run of a frame says of its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunKind {
    /// Their bytes are in the payload.
    Data,
    /// They are holes now: they read as zeros.
    Hole,
}

/// A run of blocks of the incremental version. Positions and counts are in blocks of 4096 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First block.
    pub position: u64,
    /// How many; at least one.
    pub blocks: u64,
    /// Data or hole.
    pub kind: RunKind,
}

impl Run {
    /// The block after the last.
    pub fn end(&self) -> u64 {
        self.position.saturating_add(self.blocks)
    }
}
