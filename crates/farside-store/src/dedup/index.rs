//! What deduplication remembers of the volumes of a pool: a bounded table, and up to which birth each of them is in it.

use std::collections::HashMap;

use farside_format::Birth;
use uuid::Uuid;

use super::member::{Leaf, Member};
use crate::fingerprint_index::{FingerprintIndex, LeafAt};

/// Memory of the table unless told otherwise: every block of 36 GiB, 1 in 32 of 1 TiB, 1 in 2,048 of 64 TiB; and every leaf of 1.5 TiB.
pub const DEDUP_INDEX_BYTES: u64 = 128 << 20;

/// A table for one pool, to be handed from one pass to the next. It is only ever a hint, and nothing of it is on the medium.
pub struct DedupIndex {
    pub(super) table: FingerprintIndex,
    budget_bytes: u64,
    pool: Uuid,
    /// By volume: its head, and up to which birth that is in the table.
    known: HashMap<u64, (u64, Birth)>,
}

impl DedupIndex {
    /// A table that takes so many bytes at most, half as much again while it grows.
    pub fn new(budget_bytes: u64) -> DedupIndex {
        DedupIndex {
            table: FingerprintIndex::new(budget_bytes),
            budget_bytes,
            pool: Uuid::nil(),
            known: HashMap::new(),
        }
    }

    /// Memory that it takes now.
    pub fn bytes(&self) -> u64 {
        self.table.bytes()
    }

    /// Of how many blocks, as a power of two, it remembers one.
    pub fn sampling_bits(&self) -> u32 {
        self.table.sampling_bits()
    }

    /// The same for this pool; what it knows of another is forgotten.
    pub(super) fn of_pool(self, pool: Uuid) -> DedupIndex {
        if self.pool == pool { self } else { DedupIndex { pool, ..DedupIndex::new(self.budget_bytes) } }
    }

    /// Up to which birth the head of a volume is in the table.
    pub(super) fn known_up_to(&self, volume: u64, head: u64) -> Birth {
        self.known.get(&volume).filter(|known| known.0 == head).map_or(Birth(0), |known| known.1)
    }

    pub(super) fn knows(&mut self, volume: u64, head: u64, until: Birth) {
        self.known.insert(volume, (head, until));
    }

    /// Others take no part any more. What the table has of them leads to nothing, and goes as it fills up.
    pub(super) fn keep_only(&mut self, members: &[Member]) {
        self.known.retain(|volume, _| members.iter().any(|member| member.volume == *volume));
    }

    pub(super) fn enter(&mut self, at: LeafAt, leaf: &Leaf) {
        if let Some(own) = leaf.own {
            self.table.enter_leaf(at, own);
        }
        let sound = leaf.pointers.iter().filter(|pointer| !pointer.is_lost());
        self.table.enter_blocks(at, sound.map(|pointer| pointer.fingerprint));
    }
}

impl Default for DedupIndex {
    fn default() -> DedupIndex {
        DedupIndex::new(DEDUP_INDEX_BYTES)
    }
}

impl std::fmt::Debug for DedupIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DedupIndex").field("pool", &self.pool).finish_non_exhaustive()
    }
}
