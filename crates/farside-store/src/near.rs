//! What lies near the last hits: the fingerprints of some leaves, by which any block in them is found.
//!
//! The index keeps a sample of blocks, so a hit says more about its neighbours than the index can: content that was
//! moved was mostly moved in one piece. The leaf of each hit and those on both sides are kept here for one transfer, the
//! oldest going first. Hints, like the index: what they lead to may have changed.

use std::collections::{HashMap, VecDeque};

use farside_format::Fingerprint;
use farside_format::fingerprint::FAN_OUT;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::fingerprint_index::{LeafAt, short};

/// Leaves kept per transfer and pool: 128 MiB of volume, some 2 MiB of memory. A transfer asks for the rest of a
/// neighbourhood within its read-ahead, which is less.
const LEAVES_MAX: usize = 256;

/// The neighbourhoods of one transfer, by pool.
#[derive(Default)]
pub(crate) struct Near(Mutex<HashMap<Uuid, NearLeaves>>);

impl Near {
    /// Works with the leaves of one pool.
    pub(crate) fn with<T>(&self, pool: Uuid, work: impl FnOnce(&mut NearLeaves) -> T) -> T {
        work(self.0.lock().entry(pool).or_default())
    }
}

/// A block that lies near.
pub(crate) struct NearBlock {
    pub(crate) at: LeafAt,
    pub(crate) version: u64,
    /// Which of the leaf's 128.
    pub(crate) index: usize,
    pub(crate) fingerprint: Fingerprint,
}

struct NearLeaf {
    at: LeafAt,
    version: u64,
    fingerprints: [Fingerprint; FAN_OUT],
}

/// Leaves of one pool, in the order in which they came.
#[derive(Default)]
pub(crate) struct NearLeaves {
    leaves: VecDeque<NearLeaf>,
    /// Number of the first in `leaves`; each that came has the next.
    first: u64,
    by_place: HashMap<LeafAt, u64>,
    /// Short fingerprint to leaf and index.
    blocks: HashMap<u64, (u64, usize)>,
}

impl NearLeaves {
    /// Whether the leaf is here.
    pub(crate) fn has(&self, at: LeafAt) -> bool {
        self.by_place.contains_key(&at)
    }

    /// The block of this short fingerprint, if one lies near.
    pub(crate) fn block(&self, wanted: u64) -> Option<NearBlock> {
        let (number, index) = *self.blocks.get(&wanted)?;
        // What a leaf held before it was read again can outlive it here.
        let leaf = self.leaves.get(number.checked_sub(self.first)? as usize)?;
        let fingerprint = leaf.fingerprints[index];
        // The leaf was read again since, and holds something else there.
        let is_still = short(fingerprint) == wanted;
        is_still.then_some(NearBlock { at: leaf.at, version: leaf.version, index, fingerprint })
    }

    /// Enters a leaf as it is now in a version; one that is here already is replaced.
    pub(crate) fn enter(&mut self, at: LeafAt, version: u64, fingerprints: &[Fingerprint; FAN_OUT]) {
        let leaf = NearLeaf { at, version, fingerprints: *fingerprints };
        let number = match self.by_place.get(&at) {
            Some(known) => {
                let known = *known;
                self.leaves[(known - self.first) as usize] = leaf;
                known
            }
            None => {
                if self.leaves.len() == LEAVES_MAX {
                    self.forget_oldest();
                }
                let new = self.first + self.leaves.len() as u64;
                self.leaves.push_back(leaf);
                self.by_place.insert(at, new);
                new
            }
        };
        for (index, fingerprint) in fingerprints.iter().enumerate().filter(|(_, f)| !f.is_hole()) {
            self.blocks.insert(short(*fingerprint), (number, index));
        }
    }

    fn forget_oldest(&mut self) {
        let Some(leaf) = self.leaves.pop_front() else { return };
        self.by_place.remove(&leaf.at);
        let gone = self.first;
        self.first += 1;
        // What the leaf held before it was read again stays until all that came before the next one is looked through.
        for fingerprint in leaf.fingerprints {
            if self.blocks.get(&short(fingerprint)).is_some_and(|(number, _)| *number == gone) {
                self.blocks.remove(&short(fingerprint));
            }
        }
        if self.blocks.len() > 2 * LEAVES_MAX * FAN_OUT {
            let first = self.first;
            self.blocks.retain(|_, (number, _)| *number >= first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_leaf_held_before_it_was_read_again_is_not_found_once_it_has_gone() {
        let leaf = |n: u64| {
            let mut fingerprints = [Fingerprint::HOLE; FAN_OUT];
            fingerprints[3].0[..8].copy_from_slice(&n.to_be_bytes());
            fingerprints
        };
        let at = |leaf| LeafAt { volume: 1, leaf };
        let mut near = NearLeaves::default();
        near.enter(at(0), 7, &leaf(1000));
        near.enter(at(0), 7, &leaf(2000));
        for n in 1..=LEAVES_MAX as u64 {
            near.enter(at(n), 7, &leaf(n));
        }
        assert!(near.block(1000).is_none() && near.block(2000).is_none());
        let found = near.block(1).expect("it lies near");
        assert_eq!((found.at, found.index), (at(1), 3));
    }
}
