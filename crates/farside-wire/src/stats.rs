//! What a frame carries and what it costs, read from the frame itself.

use crate::error::FrameError;
use crate::layout::{BLOCK_BYTES, Codec, HEADER_BYTES, Header};
use crate::table;

/// How a frame's payload is coded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameLevel {
    /// As it is.
    Raw,
    /// Compressed by itself.
    Compressed,
    /// Compressed against a prefix.
    Delta,
}

/// What a frame carries and costs, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameStats {
    /// How its payload is coded.
    pub level: FrameLevel,
    /// Bytes of the blocks in the payload, decoded.
    pub in_bytes: u64,
    /// Bytes of the payload.
    pub out_bytes: u64,
    /// Bytes of the blocks that it names instead of carrying them.
    pub repeat_in_bytes: u64,
    /// Bytes of the table that name them.
    pub repeat_out_bytes: u64,
}

impl FrameStats {
    /// Of a whole frame. It must have been decoded before its figures are believed.
    pub fn of(frame: &[u8]) -> Result<FrameStats, FrameError> {
        let header = Header::parse(frame)?;
        let level = match header.codec()? {
            Codec::Raw => FrameLevel::Raw,
            Codec::Zstd if header.prefix_blocks.get() > 0 => FrameLevel::Delta,
            Codec::Zstd => FrameLevel::Compressed,
        };
        Ok(FrameStats {
            level,
            in_bytes: u64::from(header.data_blocks.get()) * BLOCK_BYTES as u64,
            out_bytes: header.payload_bytes.get().into(),
            repeat_in_bytes: u64::from(header.repeat_blocks.get()) * BLOCK_BYTES as u64,
            repeat_out_bytes: table::repeat_bytes(&header, &frame[HEADER_BYTES..])?,
        })
    }
}
