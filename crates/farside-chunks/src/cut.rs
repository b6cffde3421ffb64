//! Where a stream is cut into chunks: FastCDC (Xia et al., ATC 2016 and TPDS 2020), two bytes at a time.
//!
//! The cut points are pinned by golden vectors (`tests/cut.rs`). If they ever changed, content would have to pass once
//! more; nothing would be wrong.

use fastcdc::v2020::{MASKS, cut};

/// A chunk has at least this many bytes, but for the last before a flush.
pub const CHUNK_MIN: usize = 2 << 10;
/// And this many on average.
pub const CHUNK_AVERAGE: usize = 8 << 10;
/// And at most this many.
pub const CHUNK_MAX: usize = 32 << 10;

/// Normalised chunking of level 1: one bit more before the average, one less after it, of log2([`CHUNK_AVERAGE`]) = 13.
const MASK_BEFORE: u64 = MASKS[14];
const MASK_AFTER: u64 = MASKS[12];

/// The length of the first chunk of `bytes`, which are what the stream has brought after the last cut. None if that is
/// not decided before more of the stream is known; never if `is_end`, or once there are [`CHUNK_MAX`] bytes.
pub fn first_chunk(bytes: &[u8], is_end: bool) -> Option<usize> {
    let (_, length) = cut(
        bytes,
        CHUNK_MIN,
        CHUNK_AVERAGE,
        CHUNK_MAX,
        MASK_BEFORE,
        MASK_AFTER,
        MASK_BEFORE << 1,
        MASK_AFTER << 1,
    );
    // A cut before the end of what is known stays where it is, whatever follows.
    let is_decided = length < bytes.len() || length >= CHUNK_MAX || is_end;
    (is_decided && length > 0).then_some(length)
}
