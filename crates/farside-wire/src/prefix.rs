//! What a frame may refer to: regions of blocks that both sides hold, and their bytes.

use farside_format::fingerprint::is_zero;

use crate::layout::{BLOCK_BYTES, PREFIX_BLOCKS_MAX, PREFIX_RANGES_MAX};
use crate::run::{Origin, Run, RunKind};

/// Regions that are read together for a prefix.
const REGIONS_AT_ONCE: usize = 256;

/// A run of blocks that both sides hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Of which version.
    pub origin: Origin,
    /// First block.
    pub position: u64,
    /// How many.
    pub blocks: u32,
}

impl Region {
    /// The block after the last.
    pub fn end(&self) -> u64 {
        self.position.saturating_add(self.blocks.into())
    }

    /// Bytes of its blocks.
    pub fn bytes(&self) -> usize {
        self.blocks as usize * BLOCK_BYTES
    }
}

/// Where the bytes are that both sides hold.
pub trait Regions {
    /// Fills `buffer` (whole blocks) with the blocks of `origin` from block `position` on; past the version's end:
    /// zeros. An error says why they cannot be read.
    fn read(&mut self, origin: Origin, position: u64, buffer: &mut [u8]) -> Result<(), String>;

    /// Fills `buffer` with `ranges` of `origin`, (first block, blocks) each, one behind the other; it has just their size. One
    /// after the other, unless whoever reads them can do better.
    fn read_ranges(
        &mut self,
        origin: Origin,
        ranges: &[(u64, u64)],
        mut buffer: &mut [u8],
    ) -> Result<(), String> {
        for (position, blocks) in ranges {
            let (bytes, rest) = buffer.split_at_mut(*blocks as usize * BLOCK_BYTES);
            self.read(origin, *position, bytes)?;
            buffer = rest;
        }
        Ok(())
    }

    /// The same of a list, of whatever origins.
    fn read_all(&mut self, list: &[Region], mut buffer: &mut [u8]) -> Result<(), String> {
        for part in list.chunk_by(|a, b| a.origin == b.origin) {
            let (bytes, rest) = buffer.split_at_mut(part.iter().map(Region::bytes).sum());
            let ranges: Vec<(u64, u64)> = part.iter().map(|r| (r.position, u64::from(r.blocks))).collect();
            self.read_ranges(part[0].origin, &ranges, bytes)?;
            buffer = rest;
        }
        Ok(())
    }
}

/// Regions and their bytes, concatenated in the same order. The compressor reaches back most cheaply to what stands
/// last, so the most useful goes in last.
#[derive(Clone, Debug, Default)]
pub struct Prefix {
    ranges: Vec<Region>,
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
    pub fn ranges(&self) -> &[Region] {
        &self.ranges
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its bytes, and behind them, in the same memory, `data`: zstd takes both for one stretch then, and needs not ask at
    /// each match in which of two it lies (a fifth to a third of the time of the quick levels). `data` is gone again with
    /// the answer's last use.
    pub(crate) fn joined<T>(&mut self, data: &[u8], with: impl FnOnce(&[u8], &[u8]) -> T) -> T {
        let prefix_bytes = self.bytes.len();
        self.bytes.reserve_exact(data.len());
        self.bytes.extend_from_slice(data);
        let (prefix, data) = self.bytes.split_at(prefix_bytes);
        let result = with(prefix, data);
        self.bytes.truncate(prefix_bytes);
        result
    }

    /// Adds `list`, in its order, as far as it can be read here: a prefix is a help, never a need. Answers the first
    /// reason why something could not.
    pub fn add_regions(&mut self, list: &[Region], regions: &mut dyn Regions) -> Option<String> {
        let (mut bytes, mut failed) = (Vec::new(), None);
        for part in list.chunks(REGIONS_AT_ONCE) {
            bytes.resize(part.iter().map(Region::bytes).sum(), 0);
            if regions.read_all(part, &mut bytes).is_ok() {
                let mut rest = &bytes[..];
                for region in part {
                    let (of_region, after) = rest.split_at(region.bytes());
                    self.add(region.origin, region.position, of_region);
                    rest = after;
                }
                continue;
            }
            // One of them cannot be read: the others can.
            for region in part {
                bytes.resize(region.bytes(), 0);
                match regions.read(region.origin, region.position, &mut bytes) {
                    Ok(()) => self.add(region.origin, region.position, &bytes),
                    Err(error) => {
                        failed.get_or_insert(error);
                    }
                }
            }
        }
        failed
    }

    /// Adds the base's bytes at the positions of a frame's data `runs`; `old` is those bytes, concatenated. Whether they
    /// are of use [`crate::Search::resembles_old`] says.
    pub fn add_same_place(&mut self, runs: &[Run], mut old: &[u8]) {
        for run in runs.iter().filter(|r| r.kind == RunKind::Data) {
            let length = (run.blocks as usize * BLOCK_BYTES).min(old.len());
            let (bytes, rest) = old.split_at(length);
            self.add(Origin::Base, run.position, bytes);
            old = rest;
        }
    }

    /// Adds blocks, `bytes` standing at `position` of `origin`, as far as they fit the limits. Blocks of zeros are left
    /// out: they teach nothing, and a hole costs the destination no read.
    pub fn add(&mut self, origin: Origin, position: u64, bytes: &[u8]) {
        for (i, block) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
            if !is_zero(block) {
                self.add_block(origin, position + i as u64, block);
            }
        }
    }

    fn add_block(&mut self, origin: Origin, position: u64, block: &[u8]) {
        if self.bytes.len() >= PREFIX_BLOCKS_MAX as usize * BLOCK_BYTES {
            return;
        }
        let is_full = self.ranges.len() >= PREFIX_RANGES_MAX as usize;
        match self.ranges.last_mut() {
            Some(last) if last.origin == origin && last.end() == position => last.blocks += 1,
            _ if is_full => return,
            _ => self.ranges.push(Region { origin, position, blocks: 1 }),
        }
        self.bytes.extend_from_slice(block);
    }
}
