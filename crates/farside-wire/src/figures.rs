//! What a frame carries and what it costs, read from the frame itself.

use crate::error::FrameError;
use crate::layout::{BLOCK_BYTES, Codec, HEADER_BYTES, Header};
use crate::table;

/// How a frame's payload is coded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameRung {
    /// As it is.
    Raw,
    /// Compressed by itself.
    Compressed,
    /// Compressed against a prefix.
    Delta,
}

/// What a frame carries and costs, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameFigures {
    /// How its payload is coded.
    pub rung: FrameRung,
    /// Bytes of the blocks in the payload, decoded.
    pub in_bytes: u64,
    /// Bytes of the payload.
    pub out_bytes: u64,
    /// Bytes of the blocks that it names instead of carrying them.
    pub repeat_in_bytes: u64,
    /// Bytes of the table that name them.
    pub repeat_out_bytes: u64,
}

impl FrameFigures {
    /// Of a whole frame. It must have been decoded before its figures are believed.
    pub fn of(frame: &[u8]) -> Result<FrameFigures, FrameError> {
        let header = Header::parse(frame)?;
        let rung = match header.codec()? {
            Codec::Raw => FrameRung::Raw,
            Codec::Zstd if header.prefix_blocks.get() > 0 => FrameRung::Delta,
            Codec::Zstd => FrameRung::Compressed,
        };
        Ok(FrameFigures {
            rung,
            in_bytes: u64::from(header.data_blocks.get()) * BLOCK_BYTES as u64,
            out_bytes: header.payload_bytes.get().into(),
            repeat_in_bytes: u64::from(header.repeat_blocks.get()) * BLOCK_BYTES as u64,
            repeat_out_bytes: table::repeat_bytes(&header, &frame[HEADER_BYTES..])?,
        })
    }
}
