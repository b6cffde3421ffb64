//! The fuzz targets of this crate, callable from a fuzzer and from tests alike.

use crate::decode::Decoder;
use crate::layout::{BLOCK_BYTES, DATA_BLOCKS_MAX, REPEAT_BLOCKS_MAX};
use crate::plan::FramePlan;
use crate::prefix::Regions;
use crate::run::{Origin, Run, RunKind};
use crate::similarity::{Anchors, Search, SimilarityIndex};

/// Versions whose every block is filled with a byte of its position: prefixes and repeats can be named and found.
#[derive(Debug)]
pub struct Pattern;

impl Regions for Pattern {
    fn read(&mut self, origin: Origin, position: u64, buffer: &mut [u8]) -> Result<(), String> {
        for (i, block) in buffer.chunks_mut(BLOCK_BYTES).enumerate() {
            let salt = match origin {
                Origin::Base => 0,
                Origin::Incremental => 0x55,
                Origin::Other(number) => 0x80 | number,
            };
            block.fill((position + i as u64) as u8 ^ salt);
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

/// Reads `bytes` as a written index. Whatever they are: no panic, no memory beyond the budget; and one that is read can be
/// searched, added to and written.
pub fn fuzz_index(bytes: &[u8]) {
    const BUDGET_BYTES: u64 = 1 << 16;
    let Ok(mut index) = SimilarityIndex::read_from(&mut &bytes[..], BUDGET_BYTES) else { return };
    assert!(index.bytes() <= BUDGET_BYTES && index.anchors() <= index.bytes() / 4);
    let content: Vec<u8> = bytes.iter().copied().cycle().take(64 * BLOCK_BYTES).collect();
    let plan = FramePlan {
        runs: vec![Run { position: 9, blocks: 64, kind: RunKind::Data }],
        data_blocks: 64,
        ..FramePlan::default()
    };
    let mut anchors = Anchors::new();
    anchors.find(&plan, &content);
    Search::new().regions(&plan, &anchors, &index, &mut Pattern);
    index.enter(9, &content);
    assert!(index.bytes() <= BUDGET_BYTES);
    let mut written = Vec::new();
    let is_written = index.write_to(&mut written).is_ok();
    assert!(is_written && SimilarityIndex::read_from(&mut &written[..], BUDGET_BYTES).is_ok());
}
