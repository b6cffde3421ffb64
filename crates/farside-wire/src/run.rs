//! Runs of blocks, and which version a position is of.

#[cfg(doc)]
use crate::layout::OTHERS_MAX;

/// What of both sides a position is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Origin {
    /// The base version.
    Base,
    /// The incremental, as far as earlier frames of the same stream brought it, or the destination told that it holds
    /// it. The source reads its snapshot, the destination what it has staged.
    Incremental,
    /// A version of another volume: a number in the list that both sides have agreed on, below [`OTHERS_MAX`]. It serves
    /// in prefixes; no block repeats it.
    Other(u8),
}

/// What a run of a frame says of its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunKind {
    /// Their bytes are in the payload.
    Data,
    /// They are holes now: they read as zeros.
    Hole,
    /// They equal as many blocks that both sides hold: nothing of them is in the payload.
    Repeat {
        /// Of which version.
        origin: Origin,
        /// Position of the first of those.
        from: u64,
    },
}

/// A run of blocks of the incremental version. Positions and counts are in blocks of 4096 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First block.
    pub position: u64,
    /// How many; at least one.
    pub blocks: u64,
    /// Data, hole or repeat.
    pub kind: RunKind,
}

impl Run {
    /// The block after the last.
    pub fn end(&self) -> u64 {
        self.position.saturating_add(self.blocks)
    }

    /// What is left of it behind its first `blocks` blocks.
    pub fn after(&self, blocks: u64) -> Run {
        let kind = match self.kind {
            RunKind::Repeat { origin, from } => RunKind::Repeat { origin, from: from + blocks },
            kind => kind,
        };
        Run { position: self.position + blocks, blocks: self.blocks - blocks, kind }
    }
}
