//! `random`: bytes that no program compresses; B has a quarter of the blocks rewritten, in runs.

use rand::{Rng, RngCore};

use super::error::DataError;
use super::making::Making;
use super::manifest::BLOCK_BYTES;
use super::seeded;

/// Blocks in the longest run that is rewritten or left; runs of 1 to 64 blocks are 4 to 256 KiB, what programs write at once.
const RUN_BLOCKS_MAX: u64 = 64;

/// One run in four is rewritten.
const REWRITTEN: f64 = 0.25;

pub(super) fn make(making: &mut Making<'_>) -> Result<(), DataError> {
    let blocks = making.volume_bytes() / BLOCK_BYTES;
    for (name, rewriting) in [("A", false), ("B", true)] {
        making.step(&format!("writing generation {name}"))?;
        making.begin(name)?;
        let mut writer = making.writer()?;
        let mut runs = seeded::stream(making.seed(), "random runs", 0);
        let mut old = seeded::stream(making.seed(), "random old", 0);
        let mut new = seeded::stream(making.seed(), "random new", 0);
        let mut bytes = Vec::new();
        let mut at = 0;
        while at < blocks {
            let run = runs.random_range(1..=RUN_BLOCKS_MAX).min(blocks - at);
            bytes.resize((run * BLOCK_BYTES) as usize, 0);
            // Drawn for A as well, and the old bytes even where they are not kept: all that follows is the same in both.
            let rewritten = runs.random_bool(REWRITTEN);
            old.fill_bytes(&mut bytes);
            if rewritten && rewriting {
                new.fill_bytes(&mut bytes);
            }
            writer.write(&bytes)?;
            at += run;
        }
        making.finish(writer)?;
    }
    Ok(())
}
