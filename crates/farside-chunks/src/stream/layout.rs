//! What both directions of the codec know of a block.

/// Bytes of the stream that a block stands for at most. What is not verified is not delivered, so a receiver holds so much.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;
/// log2 of the smallest history and of the largest, bytes: 1 KiB and 128 MiB. Both sides keep so much of it in memory, as it is
/// filled; the tables of the compressor take some ten megabytes more.
pub(super) const WINDOW_LOG_MIN: u32 = 10;
/// See above.
pub const WINDOW_LOG_MAX: u32 = 27;
/// log2 of the history of what is decoded without one before or after it: no block is longer.
pub const WINDOW_LOG_ALONE: u32 = 20;
/// Shorter pieces, which a flush makes, are no chunks: they would fill containers with what is found cheaper by zstd.
pub const CHUNK_KEPT_MIN: usize = 512;
/// Containers that a block names at most: about as many as it has chunks. The receiver reads the directory of each, 100 KB at
/// most, and may have to make a file for it.
pub const CONTAINERS_MAX: usize = 128;

/// Chunks that those of a block are made of at most; the receiver reads up to 32 KiB of each.
pub const BASES_MAX: usize = 256;

pub(super) const COMPRESSED: u8 = 1;
pub(super) const NEW_FRAME: u8 = 2;
pub(super) const DIGEST: u8 = 4;
pub(super) const DIGEST_BYTES: usize = 16;

/// Of the bytes that a block stands for.
pub(super) fn digest(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut short = [0; DIGEST_BYTES];
    short.copy_from_slice(&blake3::hash(bytes).as_bytes()[..DIGEST_BYTES]);
    short
}
