//! The fuzz target of this crate, callable from a fuzzer and from tests alike.

use crate::decode::Decoder;
use crate::layout::{BLOCK_BYTES, DATA_BLOCKS_MAX, REPEAT_BLOCKS_MAX};
use crate::prefix::{Origin, Regions};

/// Versions whose every block is filled with a byte of its position: prefixes and repeats can be named and found.
#[derive(Debug)]
pub struct Pattern;

impl Regions for Pattern {
    fn read(&mut self, origin: Origin, position: u64, buffer: &mut [u8]) -> Result<(), String> {
        for (i, block) in buffer.chunks_mut(BLOCK_BYTES).enumerate() {
            block.fill((position + i as u64) as u8 ^ (0x55 * origin as u8));
        }
        Ok(())
    }
}

/// Decodes `bytes` twice with one decoder. Whatever they are: no panic, no memory beyond the limits, and what is handed
/// out is consistent.
pub fn fuzz_frame(bytes: &[u8]) {
    let mut decoder = Decoder::new();
    for _ in 0..2 {
        let Ok(decoded) = decoder.decode(bytes, &mut Pattern) else { continue };
        assert!(decoded.bytes.len() <= (DATA_BLOCKS_MAX + REPEAT_BLOCKS_MAX) as usize * BLOCK_BYTES);
        assert_eq!(decoded.pieces().map(|(_, bytes)| bytes.len()).sum::<usize>(), decoded.bytes.len());
        assert!(decoded.runs.windows(2).all(|pair| pair[0].end() <= pair[1].position));
    }
}
