//! A block in memory, aligned so that direct I/O can use it where it lies.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The unit of everything at rest.
pub const BLOCK_BYTES: usize = 4096;

/// 4096 bytes on a 4096-byte boundary.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
pub struct Block(pub [u8; BLOCK_BYTES]);

impl Block {
    /// A block of zeros.
    pub const ZERO: Block = Block([0; BLOCK_BYTES]);
}

/// A run of blocks, contiguous and aligned. Derefs to its bytes.
#[derive(Clone, Default)]
pub struct BlockBuffer(Vec<Block>);

impl BlockBuffer {
    /// `blocks` blocks of zeros.
    pub fn zeroed(blocks: usize) -> Self {
        BlockBuffer(vec![Block::ZERO; blocks])
    }

    /// A copy of `bytes`, padded with zeros to whole blocks.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = BlockBuffer::zeroed(bytes.len().div_ceil(BLOCK_BYTES));
        buffer[..bytes.len()].copy_from_slice(bytes);
        buffer
    }

    /// How many blocks it holds.
    pub fn blocks(&self) -> usize {
        self.0.len()
    }
}

impl std::ops::Deref for BlockBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.as_slice().as_bytes()
    }
}

impl std::ops::DerefMut for BlockBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_slice().as_mut_bytes()
    }
}

impl std::fmt::Debug for BlockBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockBuffer({} blocks)", self.0.len())
    }
}
