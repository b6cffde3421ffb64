//! Owner counts at rest: for each place of the pool, how many owners the data block there has beyond the first.
//!
//! Four bytes a place: counts in memory are far smaller, but a journal replayed from an older point can raise more than
//! the running pool had at any one time, and must never meet an end.

use crate::fingerprint::BLOCK_BYTES;

/// Bytes of one count.
const COUNT_BYTES: usize = size_of::<u32>();
/// Places that one block of the table describes.
pub const PLACES_PER_BLOCK: u64 = (BLOCK_BYTES / COUNT_BYTES) as u64;

/// Blocks of the table of a pool of `pool_blocks` blocks, if none were left out.
pub fn table_blocks(pool_blocks: u64) -> u64 {
    pool_blocks.div_ceil(PLACES_PER_BLOCK)
}

/// Owners beyond the first of place `index` (below [`PLACES_PER_BLOCK`]) of a block of the table. Every value can be.
pub fn extra_owners(block: &[u8], index: u64) -> u32 {
    let (counts, _) = block.as_chunks::<COUNT_BYTES>();
    u32::from_le_bytes(counts[index as usize])
}

/// Sets the owners beyond the first of place `index` of a block of the table.
pub fn set_extra_owners(block: &mut [u8], index: u64, extra: u32) {
    let (counts, _) = block.as_chunks_mut::<COUNT_BYTES>();
    counts[index as usize] = extra.to_le_bytes();
}

/// The places of a block of the table that have several owners: (index, owners beyond the first), ascending.
pub fn shared_places(block: &[u8]) -> impl Iterator<Item = (u64, u32)> {
    (0..PLACES_PER_BLOCK).map(|index| (index, extra_owners(block, index))).filter(|(_, extra)| *extra > 0)
}
