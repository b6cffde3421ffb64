//! Changed blocks to fewer bytes and back: frames.
//!
//! A **frame** carries about 1 MiB of changed blocks of one volume version, and the holes and repeats between them, as
//! one independent zstd frame. Its **prefix** (bytes both sides hold already) is what makes it small: *similar regions*
//! of the base, of what the same stream has carried or of other volumes, then the base's bytes at the frame's own positions. A **repeat**
//! is a run of blocks that both sides hold elsewhere: nothing of it travels. This crate is pure: no I/O, no clock, no
//! threads; whoever drives it reads blocks, supplies the bytes both sides hold and moves the frames.
//!
//! What a decoded frame guarantees: every block it hands out is, bit for bit, what the encoder was given for that
//! position (a digest covers positions and the full fingerprint of every block), or decoding ends in a
//! [`FrameError`] and hands out nothing. Every length a frame claims is bounded before memory is claimed for it
//! ([`layout`]). What it does not: say whether the blocks are the right ones for a version. That is for the content
//! root, which the destination computes itself before it publishes anything.
//!
//! Byte map of a frame, little-endian; the same table with its history is in `docs/protocol.md`:
//!
//! ```text
//! offset  bytes  field
//!      0      4  magic "FSWF"
//!      4      1  frame version: 3 if the prefix names other volumes, else 2
//!      5      1  codec: 0 raw, 1 zstd without magic number
//!      6      2  repeat blocks (sum over the repeat runs)
//!      8      4  bytes of the table
//!     12      4  bytes of the payload
//!     16      4  data blocks (sum over the data runs), of 4096 bytes
//!     20      4  prefix blocks (sum over the prefix ranges)
//!     24      4  runs
//!     28      4  prefix ranges
//!     32     16  digest of the prefix bytes; zero without a prefix
//!     48     16  digest of the frame: bytes 0..48, table, payload if compressed, fingerprint of every data and
//!                repeat block
//!     64      t  table: runs, then prefix ranges, in LEB128 numbers (see `table`)
//!   64+t      p  payload: the data runs' bytes, in order
//! ```
//!
//! Reading order: [`layout`], [`encode`], [`decode`]; [`plan`] is what a frame will carry (a mirror, which
//! knows what repeats, cuts its own; [`FramePlans`] cuts for tools), [`prefix`] what it may refer to, [`similarity`] finds it, [`effort`] says what may be spent on it.

mod compress;
pub mod decode;
mod digest;
pub mod effort;
pub mod encode;
pub mod error;
pub mod fuzz;
mod gate;
pub mod layout;
pub mod level_control;
mod noise;
pub mod plan;
pub mod prefix;
pub mod run;
pub mod similarity;
pub mod stats;
mod table;
pub mod varint;

pub use decode::{Decoded, Decoder};
pub use effort::Effort;
pub use encode::{Encoded, Encoder};
pub use error::{EncodeError, FrameError, IndexError};
pub use layout::{
    BLOCK_BYTES, DATA_BLOCKS_MAX, FRAME_BYTES_MAX, FRAME_VERSION, FRAME_VERSION_OLDEST, OTHERS_MAX,
    PREFIX_BLOCKS_MAX, PREFIX_RANGES_MAX, REPEAT_BLOCKS_MAX, RUNS_MAX, TARGET_BLOCKS,
};
pub use level_control::{EncoderResources, LevelControl, Sent};
pub use plan::{FramePlan, FramePlans};
pub use prefix::{Prefix, Region, Regions};
pub use run::{Origin, Run, RunKind};
pub use similarity::{Anchors, Indexes, Search, SimilarityIndex};
pub use stats::{FrameLevel, FrameStats};
