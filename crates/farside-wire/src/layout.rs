//! The frame's header and every limit of the format.
//!
//! A decoder checks each claimed number against these before it claims memory for it, so that besides its own bytes one frame
//! never costs a destination more than [`DECODING_BYTES_MAX`], 41 MiB, whatever its sender is (`tests/hostile.rs`).

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::FrameError;

/// Bytes of one block, the unit of every position.
pub const BLOCK_BYTES: usize = farside_format::BLOCK_BYTES;
/// Newest version of the frame layout: that of frames whose prefix names other volumes.
pub const FRAME_VERSION: u8 = 3;
/// Version of all other frames, and the oldest that is read.
pub const FRAME_VERSION_OLDEST: u8 = 2;
/// What every frame begins with.
pub const MAGIC: [u8; 4] = *b"FSWF";
/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;

/// Data blocks an encoder puts into one frame: 1 MiB. Frames of 256 KiB and of 4 MiB were measured within 12 % of it.
pub const TARGET_BLOCKS: u32 = 256;
/// Most data blocks a frame may hold: 4 MiB.
pub const DATA_BLOCKS_MAX: u32 = 1024;
/// Most runs a frame may hold. Scattered change has as many as blocks; holes without data come in as many again.
pub const RUNS_MAX: u32 = 2048;
/// Most blocks of a prefix: 16 MiB.
pub const PREFIX_BLOCKS_MAX: u32 = 4096;
/// Most ranges of a prefix.
pub const PREFIX_RANGES_MAX: u32 = 4096;
/// Most blocks that the repeats of a frame may bring: 16 MiB. They cost the sender a few bytes and the destination that
/// much memory and reading.
pub const REPEAT_BLOCKS_MAX: u32 = 4096;
/// Most versions of other volumes that the frames of a stream may name. A destination keeps each readable as long as the
/// stream lasts, and a source looks into the index of each for every frame.
pub const OTHERS_MAX: u8 = 64;
/// Most bytes of a table: up to three numbers of at most [`VARINT_BYTES_MAX`] bytes for each run and each range.
pub const TABLE_BYTES_MAX: u32 = (RUNS_MAX * 3 + PREFIX_RANGES_MAX * 3) * VARINT_BYTES_MAX as u32;
/// Most bytes of one number of the table.
pub const VARINT_BYTES_MAX: usize = 7;
/// Largest window that a compressed payload may ask for: 32 MiB, the power of two that reaches over the largest prefix and all
/// data.
pub const WINDOW_BYTES_MAX: u64 =
    ((PREFIX_BLOCKS_MAX + DATA_BLOCKS_MAX) as u64 * BLOCK_BYTES as u64).next_power_of_two();
/// Most memory that decoding a frame takes, besides the frame: prefix (16 MiB), data (4), and data and repeats laid out (20),
/// which are handed out; and a MiB for what the table says and zstd's own state.
pub const DECODING_BYTES_MAX: usize =
    (PREFIX_BLOCKS_MAX + 2 * DATA_BLOCKS_MAX + REPEAT_BLOCKS_MAX) as usize * BLOCK_BYTES + (1 << 20);
/// Most bytes of a frame.
pub const FRAME_BYTES_MAX: usize =
    HEADER_BYTES + TABLE_BYTES_MAX as usize + DATA_BLOCKS_MAX as usize * BLOCK_BYTES;

const _: () = assert!(TARGET_BLOCKS <= DATA_BLOCKS_MAX);
const _: () = assert!(REPEAT_BLOCKS_MAX <= u16::MAX as u32);
const _: () = assert!(size_of::<Header>() == HEADER_BYTES);
// A count and its kind (45 bits), or a zigzag difference of positions and what it is of (46 bits), fit a number.
const _: () = assert!(farside_format::fingerprint::BLOCKS_MAX == 1 << 42 && VARINT_BYTES_MAX * 7 >= 46);

/// How the payload is coded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Codec {
    /// The bytes themselves: compression did not help.
    Raw = 0,
    /// One zstd frame without magic number, content size and checksum.
    Zstd = 1,
}

/// The first 64 bytes of a frame.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: [u8; 4],
    pub(crate) version: u8,
    pub(crate) codec: u8,
    pub(crate) repeat_blocks: U16,
    pub(crate) table_bytes: U32,
    pub(crate) payload_bytes: U32,
    pub(crate) data_blocks: U32,
    pub(crate) prefix_blocks: U32,
    pub(crate) runs: U32,
    pub(crate) prefix_ranges: U32,
    pub(crate) prefix_digest: [u8; 16],
    pub(crate) frame_digest: [u8; 16],
}

/// Bytes of the header that the frame digest covers: all but the digest.
pub(crate) const DIGESTED_HEADER_BYTES: usize = 48;

impl Header {
    /// Reads and checks the header of a whole frame; afterwards every number in it is within its limit and the
    /// lengths add up to the bytes at hand.
    pub(crate) fn parse(frame: &[u8]) -> Result<Header, FrameError> {
        let (header, rest) = Header::read_from_prefix(frame)
            .map_err(|_| FrameError::Length { expected: HEADER_BYTES, found: frame.len() })?;
        if header.magic != MAGIC {
            return Err(FrameError::Magic);
        }
        if !(FRAME_VERSION_OLDEST..=FRAME_VERSION).contains(&header.version) {
            return Err(FrameError::Version { found: header.version });
        }
        header.codec()?;
        within("table bytes", header.table_bytes, TABLE_BYTES_MAX)?;
        within("data blocks", header.data_blocks, DATA_BLOCKS_MAX)?;
        within("repeat blocks", u32::from(header.repeat_blocks.get()).into(), REPEAT_BLOCKS_MAX)?;
        within("prefix blocks", header.prefix_blocks, PREFIX_BLOCKS_MAX)?;
        within("runs", header.runs, RUNS_MAX)?;
        within("prefix ranges", header.prefix_ranges, PREFIX_RANGES_MAX)?;
        // A payload larger than its data would have been sent raw.
        within("payload bytes", header.payload_bytes, header.data_blocks.get() * BLOCK_BYTES as u32)?;
        let body = header.table_bytes.get() as usize + header.payload_bytes.get() as usize;
        if rest.len() != body {
            return Err(FrameError::Length { expected: HEADER_BYTES + body, found: frame.len() });
        }
        Ok(header)
    }

    pub(crate) fn codec(&self) -> Result<Codec, FrameError> {
        match self.codec {
            0 => Ok(Codec::Raw),
            1 => Ok(Codec::Zstd),
            found => Err(FrameError::Codec { found }),
        }
    }
}

fn within(what: &'static str, found: U32, limit: u32) -> Result<(), FrameError> {
    if found.get() <= limit {
        Ok(())
    } else {
        Err(FrameError::Limit { what, found: found.get().into(), limit: limit.into() })
    }
}
