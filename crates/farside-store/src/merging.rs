//! Writes of parts of blocks: what the blocks had before is read, verified and merged, whatever else writes them meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use farside_platform::{BLOCK_BYTES, BlockBuffer};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};

use crate::error::Result;
use crate::io::{Extent, stripe_of};
use crate::pool::Pool;
use crate::space::SpaceClass;
use crate::write_behind::Way;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A stripe for as long as a write needs it: shared by writers of whole blocks, for a merge alone.
pub(crate) enum Striped<'a> {
    Shared { _guard: RwLockReadGuard<'a, ()> },
    Alone { _guard: RwLockWriteGuard<'a, ()> },
}

/// Blocks of which a write has a part, at its edges.
fn parts_of(offset: u64, length: usize) -> impl Iterator<Item = u64> {
    let end = offset + length as u64;
    let (head, tail) = (offset / BLOCK, end / BLOCK);
    let has_tail = !end.is_multiple_of(BLOCK) && (tail != head || offset.is_multiple_of(BLOCK));
    [(!offset.is_multiple_of(BLOCK)).then_some(head), has_tail.then_some(tail)].into_iter().flatten()
}

/// Its first and its last block.
fn edges(offset: u64, bytes: &[u8]) -> [u64; 2] {
    [offset / BLOCK, (offset + (bytes.len() as u64).max(1) - 1) / BLOCK]
}

impl Pool {
    /// Several writes as one: they share a way to the device, and one moment in which they appear. Where two overlap, the later one
    /// counts. Of blocks that they have in part the rest is read, at the same time, and stays.
    ///
    /// # Errors
    /// None of them is there then. Room may be missing for all of them together that each of them would find.
    pub(crate) fn write_together(
        &self,
        version: u64,
        writes: &[(u64, &[u8])],
        class: SpaceClass,
    ) -> Result<()> {
        let mut parts: Vec<u64> =
            writes.iter().flat_map(|(offset, bytes)| parts_of(*offset, bytes.len())).collect();
        parts.sort_unstable();
        parts.dedup();
        let _stripes = self.stripes_of(version, writes, &parts);
        let mut merged = BlockBuffer::zeroed(parts.len());
        self.read_parts(version, &parts, &mut merged)?;
        let mut extents: Vec<Extent<'_>> = Vec::with_capacity(writes.len());
        for (offset, bytes) in writes {
            add_whole_blocks(*offset, bytes, &parts, &mut merged, &mut extents);
        }
        let mut at = 0;
        while at < parts.len() {
            let run = 1 + parts[at..].windows(2).take_while(|pair| pair[1] == pair[0] + 1).count();
            let bytes = &merged[at * BLOCK_BYTES..(at + run) * BLOCK_BYTES];
            extents.push(Extent { first: parts[at], bytes });
            at += run;
        }
        self.write_extents(version, &extents, class)
    }

    /// The same for writes of whole blocks that wait for nobody; `None`, and nothing is done, if they would have to.
    pub(crate) fn write_together_at_once(&self, version: u64, writes: &[(u64, &[u8])]) -> Option<Result<()>> {
        if writes.iter().any(|(offset, bytes)| parts_of(*offset, bytes.len()).next().is_some()) {
            return None;
        }
        // Whoever has one alone may wait for the device.
        let stripes: BTreeSet<usize> = writes
            .iter()
            .flat_map(|(offset, bytes)| edges(*offset, bytes))
            .map(|b| stripe_of(version, b))
            .collect();
        let _stripes = stripes.iter().map(|s| self.stripes[*s].try_read()).collect::<Option<Vec<_>>>()?;
        let extents: Vec<Extent<'_>> =
            writes.iter().map(|(offset, bytes)| Extent { first: offset / BLOCK, bytes }).collect();
        let written = self.write_extents_at_once(version, &extents)?;
        let bytes: u64 = writes.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        self.counters.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        Some(written)
    }

    /// The stripes of all blocks of `writes`, in order, so that two cannot wait for each other.
    fn stripes_of(&self, version: u64, writes: &[(u64, &[u8])], parts: &[u64]) -> Vec<Striped<'_>> {
        let edges = writes
            .iter()
            .flat_map(|(offset, bytes)| [offset / BLOCK, (offset + (bytes.len() as u64).max(1) - 1) / BLOCK]);
        let mut stripes: BTreeMap<usize, bool> =
            edges.map(|block| (stripe_of(version, block), false)).collect();
        for block in parts {
            stripes.insert(stripe_of(version, *block), true);
        }
        stripes
            .into_iter()
            .map(|(stripe, alone)| match alone {
                true => Striped::Alone { _guard: self.stripes[stripe].write() },
                false => Striped::Shared { _guard: self.stripes[stripe].read() },
            })
            .collect()
    }

    /// Reads blocks. If one is damaged, that is an error, not a merge.
    fn read_parts(&self, version: u64, parts: &[u64], merged: &mut BlockBuffer) -> Result<()> {
        if parts.is_empty() {
            return Ok(());
        }
        let mut reads: Vec<(u64, &mut [u8])> =
            parts.iter().map(|block| block * BLOCK).zip(merged.chunks_mut(BLOCK_BYTES)).collect();
        self.read_pieces(version, &mut reads, Way::Remembering).into_iter().collect()
    }
}

/// Puts what a write has of blocks that are merged into them, and its other blocks to the extents.
fn add_whole_blocks<'a>(
    offset: u64,
    bytes: &'a [u8],
    parts: &[u64],
    merged: &mut BlockBuffer,
    extents: &mut Vec<Extent<'a>>,
) {
    let mut at = 0;
    // Where the blocks begin that are not merged.
    let mut whole_from = None;
    let mut end_whole = |from: &mut Option<usize>, to: usize| {
        if let Some(from) = from.take() {
            extents.push(Extent { first: (offset + from as u64) / BLOCK, bytes: &bytes[from..to] });
        }
    };
    while at < bytes.len() {
        let position = offset + at as u64;
        let within = (position % BLOCK) as usize;
        let length = (BLOCK_BYTES - within).min(bytes.len() - at);
        match parts.binary_search(&(position / BLOCK)) {
            Ok(part) => {
                end_whole(&mut whole_from, at);
                let to = part * BLOCK_BYTES + within;
                merged[to..to + length].copy_from_slice(&bytes[at..at + length]);
            }
            Err(_) => {
                whole_from.get_or_insert(at);
            }
        }
        at += length;
    }
    end_whole(&mut whole_from, bytes.len());
}
