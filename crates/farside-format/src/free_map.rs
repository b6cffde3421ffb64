//! The free map at rest: two bits for each block of the pool.

use crate::error::FormatError;
use crate::fingerprint::BLOCK_BYTES;

/// Blocks of the pool that one block of the free map describes.
pub const BLOCKS_PER_CHUNK: u64 = (BLOCK_BYTES * 4) as u64;

/// State of one block of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BlockState {
    /// May be given out.
    Free = 0,
    /// Referenced by this point.
    InUse = 1,
    /// Referenced no more, but an older point or its journal may need it.
    Waiting = 2,
}

/// Reads the state of block `index` (below [`BLOCKS_PER_CHUNK`]) of a chunk.
pub fn state(chunk: &[u8], index: u64) -> Result<BlockState, FormatError> {
    let byte = chunk[(index / 4) as usize];
    match (byte >> (2 * (index % 4))) & 3 {
        0 => Ok(BlockState::Free),
        1 => Ok(BlockState::InUse),
        2 => Ok(BlockState::Waiting),
        _ => Err(FormatError::Field { what: "free map", field: "state" }),
    }
}

/// Sets the state of block `index` of a chunk.
pub fn set_state(chunk: &mut [u8], index: u64, state: BlockState) {
    let shift = 2 * (index % 4);
    let byte = &mut chunk[(index / 4) as usize];
    *byte = (*byte & !(3 << shift)) | ((state as u8) << shift);
}
