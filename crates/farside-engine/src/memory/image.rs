//! A version as a map from block number to block, as plain as can be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use farside_format::fingerprint::{FAN_OUT, TOP_LEVEL, is_zero};
use farside_format::{ContentRoot, Fingerprint};

use crate::{BLOCK_BYTES, ChangeKind, ChangedExtent, EngineError, FINGERPRINTS_MAX};

pub(super) type Block = Arc<[u8]>;

/// Blocks of a leaf node.
pub(super) const NODE_BLOCKS: u64 = FAN_OUT as u64;

#[derive(Clone, Default, PartialEq)]
pub(super) struct Image {
    pub(super) size_bytes: u64,
    pub(super) blocks: BTreeMap<u64, Block>,
}

impl Image {
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert!(offset.is_multiple_of(BLOCK_BYTES) && bytes.len().is_multiple_of(BLOCK_BYTES as usize));
        for (i, block) in bytes.chunks(BLOCK_BYTES as usize).enumerate() {
            let position = offset / BLOCK_BYTES + i as u64;
            if is_zero(block) {
                self.blocks.remove(&position);
            } else {
                self.blocks.insert(position, block.into());
            }
        }
    }

    pub(super) fn discard(&mut self, offset: u64, length: u64) {
        let (from, to) = (offset / BLOCK_BYTES, (offset + length) / BLOCK_BYTES);
        let gone: Vec<u64> = self.blocks.range(from..to).map(|(p, _)| *p).collect();
        gone.iter().for_each(|p| drop(self.blocks.remove(p)));
    }

    pub(super) fn resize(&mut self, size_bytes: u64) {
        self.blocks.split_off(&(size_bytes / BLOCK_BYTES));
        self.size_bytes = size_bytes;
    }

    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) {
        for (i, to) in buffer.chunks_mut(BLOCK_BYTES as usize).enumerate() {
            match self.blocks.get(&(offset / BLOCK_BYTES + i as u64)) {
                Some(block) => to.copy_from_slice(&block[..to.len()]),
                None => to.fill(0),
            }
        }
    }

    /// Refuses what is not whole blocks inside it.
    pub(super) fn check(&self, offset: u64, length: u64) -> Result<(), EngineError> {
        let is_aligned = offset.is_multiple_of(BLOCK_BYTES) && length.is_multiple_of(BLOCK_BYTES);
        if is_aligned && offset.checked_add(length).is_some_and(|end| end <= self.size_bytes) {
            return Ok(());
        }
        Err(EngineError::Invalid(format!(
            "{length} bytes at {offset} are not whole blocks inside {} bytes",
            self.size_bytes
        )))
    }

    pub(super) fn root(&self) -> ContentRoot {
        let mut level: BTreeMap<u64, Fingerprint> =
            self.blocks.iter().map(|(p, b)| (*p, Fingerprint::of_block(b))).collect();
        for number in 1..=TOP_LEVEL {
            let mut nodes: BTreeMap<u64, [Fingerprint; FAN_OUT]> = BTreeMap::new();
            for (position, fingerprint) in level {
                let children = nodes.entry(position / NODE_BLOCKS).or_insert([Fingerprint::HOLE; FAN_OUT]);
                children[(position % NODE_BLOCKS) as usize] = fingerprint;
            }
            level =
                nodes.into_iter().map(|(p, children)| (p, Fingerprint::of_node(number, &children))).collect();
        }
        ContentRoot::new(level.get(&0).copied().unwrap_or(Fingerprint::HOLE), self.size_bytes)
    }

    pub(super) fn fingerprints(&self, first: u64, count: u64) -> Result<Vec<Fingerprint>, EngineError> {
        if count > FINGERPRINTS_MAX {
            return Err(EngineError::Invalid(format!("{count} fingerprints at once")));
        }
        Ok((first..first + count).map(|position| self.fingerprint(position)).collect())
    }

    fn fingerprint(&self, position: u64) -> Fingerprint {
        self.blocks.get(&position).map_or(Fingerprint::HOLE, |block| Fingerprint::of_block(block))
    }

    /// Of the leaf nodes that hold something.
    pub(super) fn nodes(&self) -> BTreeMap<u64, Fingerprint> {
        let of = |node: u64| {
            let children = std::array::from_fn(|child| self.fingerprint(node * NODE_BLOCKS + child as u64));
            Fingerprint::of_node(1, &children)
        };
        let nodes: BTreeSet<u64> = self.blocks.keys().map(|position| position / NODE_BLOCKS).collect();
        nodes.into_iter().map(|node| (node, of(node))).collect()
    }

    /// What `now` has that `base` has not. In `unit_blocks` of more than one block what holds a change is named whole, as storage
    /// does that knows of its objects only which were written.
    pub(super) fn changes(base: &Image, now: &Image, unit_blocks: u64) -> Vec<ChangedExtent> {
        let mut positions: Vec<u64> = base.blocks.keys().chain(now.blocks.keys()).copied().collect();
        positions.sort_unstable();
        positions.dedup();
        let mut changed: BTreeMap<u64, ChangeKind> = BTreeMap::new();
        for position in positions {
            let kind = match (base.blocks.get(&position), now.blocks.get(&position)) {
                (old, Some(new)) if old != Some(new) => ChangeKind::Data,
                (Some(_), None) => ChangeKind::Hole,
                _ => continue,
            };
            changed.insert(position, kind);
        }
        let written: BTreeSet<u64> =
            changed.iter().filter(|(_, k)| **k == ChangeKind::Data).map(|(p, _)| p / unit_blocks).collect();
        let end = now.size_bytes / BLOCK_BYTES;
        for unit in written {
            let whole = unit * unit_blocks..((unit + 1) * unit_blocks).min(end);
            changed.extend(whole.map(|position| (position, ChangeKind::Data)));
        }
        let mut extents: Vec<ChangedExtent> = Vec::new();
        for (position, kind) in changed {
            let offset = position * BLOCK_BYTES;
            match extents.last_mut() {
                Some(last) if last.kind == kind && last.offset + last.length == offset => {
                    last.length += BLOCK_BYTES;
                    last.changed += BLOCK_BYTES;
                }
                _ => extents.push(ChangedExtent { offset, length: BLOCK_BYTES, kind, changed: BLOCK_BYTES }),
            }
        }
        extents
    }
}
