//! What a frame carries and what it costs, read from the frame itself.

use crate::error::FrameError;
use crate::layout::{BLOCK_BYTES, Codec, HEADER_BYTES, Header};
use crate::noise::looks_random;
use crate::table;

/// What is looked at together: files that noise fills lie in pieces of this size at least, beside others.
const LOOKED_AT_BYTES: usize = 64 << 10;

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
    /// Of a payload that is as it is: bytes that look encrypted or packed already. The others were not compressed because the line is
    /// faster.
    pub noise_bytes: u64,
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
        let payload = frame.get(HEADER_BYTES + header.table_bytes.get() as usize..).unwrap_or_default();
        Ok(FrameStats {
            level,
            in_bytes: u64::from(header.data_blocks.get()) * BLOCK_BYTES as u64,
            out_bytes: header.payload_bytes.get().into(),
            noise_bytes: if level == FrameLevel::Raw { noise_bytes(payload) } else { 0 },
            repeat_in_bytes: u64::from(header.repeat_blocks.get()) * BLOCK_BYTES as u64,
            repeat_out_bytes: table::repeat_bytes(&header, &frame[HEADER_BYTES..])?,
        })
    }
}

/// Bytes of a payload that look random.
fn noise_bytes(payload: &[u8]) -> u64 {
    payload.chunks(LOOKED_AT_BYTES).filter(|piece| looks_random(piece)).map(|piece| piece.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn noise_is_counted_piece_by_piece() {
        let seed: u64 = rand::random();
        println!("seed {seed}");
        let mut payload = vec![0; 4 * LOOKED_AT_BYTES + 3 * BLOCK_BYTES];
        SmallRng::seed_from_u64(seed).fill(&mut payload[..]);
        assert_eq!(noise_bytes(&payload), payload.len() as u64);
        // Hexadecimal digits are no noise, whoever wrote them.
        payload[..LOOKED_AT_BYTES]
            .iter_mut()
            .for_each(|byte| *byte = b"0123456789abcdef"[usize::from(*byte & 15)]);
        assert_eq!(noise_bytes(&payload), (payload.len() - LOOKED_AT_BYTES) as u64);
        // Of a block alone nothing is said.
        assert_eq!(noise_bytes(&payload[payload.len() - BLOCK_BYTES..]), 0);
    }
}
