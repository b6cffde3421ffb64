//! What a frame may refer to: ranges of blocks that both sides hold, and their bytes.

use farside_format::fingerprint::is_zero;

use crate::Run;
use crate::RunKind;
use crate::history::History;
use crate::layout::{BLOCK_BYTES, HISTORY_BLOCKS, PREFIX_BLOCKS_MAX, PREFIX_RANGES_MAX};

/// Where the bytes of a prefix range are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PrefixOrigin {
    /// The base version, by position.
    Base = 0,
    /// What the same stream has carried before, by number in the order it was carried (see [`History`]).
    Carried = 1,
}

/// A range of a frame's prefix, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefixRange {
    /// Where.
    pub origin: PrefixOrigin,
    /// First block: a position of the base, or a number of the history.
    pub position: u64,
    /// How many.
    pub blocks: u32,
}

/// Ranges and their bytes, concatenated in the same order. The compressor reaches back most cheaply to what stands
/// last, so the most useful goes in last.
#[derive(Clone, Debug, Default)]
pub struct Prefix {
    ranges: Vec<PrefixRange>,
    bytes: Vec<u8>,
}

impl Prefix {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.bytes.clear();
    }

    /// Its ranges.
    pub fn ranges(&self) -> &[PrefixRange] {
        &self.ranges
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Blocks of the base in it.
    pub fn base_blocks(&self) -> u64 {
        self.ranges.iter().filter(|r| r.origin == PrefixOrigin::Base).map(|r| u64::from(r.blocks)).sum()
    }

    /// Adds everything the stream has lately carried.
    pub fn add_history(&mut self, history: &History) {
        let number = history.oldest_number();
        let blocks = (history.next_number() - number).min(HISTORY_BLOCKS.into()) as u32;
        if let Some(bytes) = history.blocks(number, blocks) {
            self.add(PrefixOrigin::Carried, number, bytes);
        }
    }

    /// Adds blocks of the base, `bytes` standing at `position`. Blocks of zeros are left out: they teach nothing,
    /// and a hole of the base costs the destination no read.
    pub fn add_base(&mut self, position: u64, bytes: &[u8]) {
        for (i, block) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
            if !is_zero(block) {
                self.add(PrefixOrigin::Base, position + i as u64, block);
            }
        }
    }

    /// Adds the base's bytes at the positions of a frame's data `runs`; `old` is those bytes, concatenated.
    pub fn add_same_place(&mut self, runs: &[Run], mut old: &[u8]) {
        for run in runs.iter().filter(|r| r.kind == RunKind::Data) {
            let length = (run.blocks as usize * BLOCK_BYTES).min(old.len());
            let (bytes, rest) = old.split_at(length);
            self.add_base(run.position, bytes);
            old = rest;
        }
    }

    /// Adds what still fits the limits; a prefix is a help, never a need.
    fn add(&mut self, origin: PrefixOrigin, position: u64, bytes: &[u8]) {
        let held = self.bytes.len() / BLOCK_BYTES;
        let blocks =
            (bytes.len() / BLOCK_BYTES).min((PREFIX_BLOCKS_MAX as usize).saturating_sub(held)) as u32;
        if blocks == 0 {
            return;
        }
        let is_full = self.ranges.len() >= PREFIX_RANGES_MAX as usize;
        match self.ranges.last_mut() {
            Some(last) if last.origin == origin && last.position + u64::from(last.blocks) == position => {
                last.blocks += blocks;
            }
            _ if is_full => return,
            _ => self.ranges.push(PrefixRange { origin, position, blocks }),
        }
        self.bytes.extend_from_slice(&bytes[..blocks as usize * BLOCK_BYTES]);
    }
}
