//! What one stream has just carried: the last 1 MiB of data blocks, kept alike on both sides.
//!
//! Frames of one stream arrive in the order they were sent, so a frame may refer to the data of the frames before
//! it. Data blocks are numbered in the order the stream carries them, from 0; a prefix range of origin *carried*
//! names those numbers. Only bytes that were decoded and checked here enter the destination's history.

use crate::layout::{BLOCK_BYTES, HISTORY_BLOCKS};

/// The last [`HISTORY_BLOCKS`] data blocks of a stream.
#[derive(Debug, Default)]
pub struct History {
    /// Number of the block that `bytes` begins with.
    first: u64,
    bytes: Vec<u8>,
}

impl History {
    /// Of a stream that has carried nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number that the next data block will have.
    pub fn next_number(&self) -> u64 {
        self.first + (self.bytes.len() / BLOCK_BYTES) as u64
    }

    /// Number of the oldest block a frame may refer to now.
    pub fn oldest_number(&self) -> u64 {
        self.next_number().saturating_sub(HISTORY_BLOCKS.into()).max(self.first)
    }

    /// Adds the data of one frame (whole blocks).
    pub fn push(&mut self, data: &[u8]) {
        self.bytes.extend_from_slice(data);
        // Moving the kept part down only when as much again has gathered makes it one copy per byte.
        let keep = HISTORY_BLOCKS as usize * BLOCK_BYTES;
        if self.bytes.len() >= 2 * keep {
            let drop = self.bytes.len() - keep;
            self.bytes.drain(..drop);
            self.first += (drop / BLOCK_BYTES) as u64;
        }
    }

    /// The bytes of `blocks` blocks from number `number`, if the window holds them.
    pub fn blocks(&self, number: u64, blocks: u32) -> Option<&[u8]> {
        let end = number.checked_add(blocks.into())?;
        if number < self.oldest_number() || end > self.next_number() {
            return None;
        }
        let from = usize::try_from(number - self.first).ok()? * BLOCK_BYTES;
        self.bytes.get(from..from + blocks as usize * BLOCK_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_moves_with_the_stream() {
        let mut history = History::new();
        for n in 0..3 * HISTORY_BLOCKS {
            history.push(&[n as u8; BLOCK_BYTES]);
            let n = u64::from(n);
            assert_eq!(history.next_number(), n + 1);
            let oldest = (n + 1).saturating_sub(HISTORY_BLOCKS.into());
            assert_eq!(history.oldest_number(), oldest);
            assert_eq!(history.blocks(oldest, 1).map(|b| b[9]), Some(oldest as u8));
            assert_eq!(history.blocks(n, 1).map(|b| b[9]), Some(n as u8));
            assert!(history.blocks(n, 2).is_none());
            assert!(oldest == 0 || history.blocks(oldest - 1, 1).is_none());
        }
    }
}
