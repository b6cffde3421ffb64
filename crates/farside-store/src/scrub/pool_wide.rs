//! What a pool has besides volumes: both superblocks, catalog, free map, owner counts.

use std::sync::Arc;

use farside_format::fingerprint::FAN_OUT;
use farside_format::node::copies;
use farside_format::pointer::TWIN_DISTANCE;
use farside_format::superblock::SUPERBLOCK_PLACES;
use farside_format::{Fingerprint, Pointer, Superblock, TreeReference};
use farside_platform::{BLOCK_BYTES, BlockBuffer};

use super::{READ_TRIES, Scrub};
use crate::error::Result;
use crate::nodes::TreeIdentity;
use crate::point::{CATALOG_TREE, FREE_MAP_TREE, OWNER_COUNTS_TREE};
use crate::pool::{Pool, SystemTrees};
use crate::recovery::read_superblock;

/// How often a tree is walked anew because a consistency point has replaced it, before points have to wait for it.
const WALKS_MAX: u32 = 4;

/// One of the pool's own trees.
#[derive(Clone, Copy)]
struct OwnTree {
    identity: TreeIdentity,
    name: &'static str,
    of: fn(&SystemTrees) -> TreeReference,
}

const OWN_TREES: [OwnTree; 3] = [
    OwnTree { identity: CATALOG_TREE, name: "the catalog", of: |system| system.catalog },
    OwnTree { identity: FREE_MAP_TREE, name: "the free map", of: |system| system.free_map },
    OwnTree { identity: OWNER_COUNTS_TREE, name: "the owner counts", of: |system| system.owner_counts },
];

/// Something of a tree that did not match.
struct Suspect {
    level: u8,
    position: u64,
    pointer: Pointer,
}

impl Scrub {
    pub(super) fn pool_wide(&mut self, pace: &mut dyn FnMut(u64)) -> Result<()> {
        self.superblocks()?;
        pace(2 * BLOCK_BYTES as u64);
        OWN_TREES.into_iter().try_for_each(|tree| self.own_tree(tree, pace))
    }

    /// Reads both superblocks; a damaged one is rewritten from the newest, as an opening does.
    fn superblocks(&mut self) -> Result<()> {
        let pool = Arc::clone(&self.pool);
        let system = pool.maintenance.lock();
        self.read_bytes += 2 * BLOCK_BYTES as u64;
        // Before anything is written, and to tell damage from another writer.
        pool.latch(pool.check_alone(&system, system.generation + 1))?;
        for (slot, name) in
            [(system.newest_slot, "the newest superblock"), (1 - system.newest_slot, "the older superblock")]
        {
            let place = SUPERBLOCK_PLACES[slot];
            if pool.superblock_is_sound(place) {
                continue;
            }
            let newest = BlockBuffer::copy_of(&*system.published.encode());
            // Both hold the newest point then, as after an opening that found one damaged.
            if pool.device.write_at(place * BLOCK_BYTES as u64, &newest).is_ok() {
                pool.sync_device()?;
            }
            if pool.superblock_is_sound(place) {
                tracing::error!(
                    pool = %pool.id(), place,
                    "{name} was damaged and has been rewritten. Nothing is lost, but the medium loses data"
                );
                self.findings.add_rewritten(format!("{name} (pool block {place})"));
            } else {
                self.findings.add_structure(format!(
                    "{name} (pool block {place}) is damaged and cannot be rewritten; the other one is sound"
                ));
            }
        }
        Ok(())
    }

    fn own_tree(&mut self, tree: OwnTree, pace: &mut dyn FnMut(u64)) -> Result<()> {
        let pool = Arc::clone(&self.pool);
        for walk in 0.. {
            let reference = (tree.of)(&pool.maintenance.lock());
            let mut suspects = Vec::new();
            self.walk_own(tree.identity, reference.level, 0, &reference.root, &mut suspects, pace);
            if suspects.is_empty() {
                return Ok(());
            }
            // No point replaces it now.
            let system = pool.maintenance.lock();
            let now = (tree.of)(&system);
            if now.root.same_ownership(&reference.root) {
                return suspects.iter().try_for_each(|suspect| self.judge(&pool, tree, suspect));
            }
            if walk >= WALKS_MAX {
                suspects.clear();
                self.walk_own(tree.identity, now.level, 0, &now.root, &mut suspects, &mut |_| {});
                return suspects.iter().try_for_each(|suspect| self.judge(&pool, tree, suspect));
            }
        }
        Ok(())
    }

    fn walk_own(
        &mut self,
        tree: TreeIdentity,
        level: u8,
        position: u64,
        pointer: &Pointer,
        suspects: &mut Vec<Suspect>,
        pace: &mut dyn FnMut(u64),
    ) {
        if pointer.is_hole() {
            return;
        }
        let copies = if level == 0 { 1 } else { copies(level) };
        self.read_bytes += copies * BLOCK_BYTES as u64;
        pace(copies * BLOCK_BYTES as u64);
        let pool = Arc::clone(&self.pool);
        let mut block = BlockBuffer::zeroed(1);
        let mut read =
            |place: u64| pool.device.read_at(place * BLOCK_BYTES as u64, &mut block).map(|()| block.clone());
        let suspect = Suspect { level, position, pointer: *pointer };
        if level == 0 {
            if !read(pointer.place.0).is_ok_and(|block| Fingerprint::of_block(&block) == pointer.fingerprint)
            {
                suspects.push(suspect);
            }
            return;
        }
        let expected = pool.nodes.expectation(tree, level, position, pointer);
        let found: Vec<_> = (0..copies)
            .map(|copy| read(pointer.place.0 + copy * TWIN_DISTANCE).ok())
            .map(|block| block.and_then(|block| pool.nodes.decode(&block, &expected).ok()))
            .collect();
        if found.iter().any(Option::is_none) {
            suspects.push(suspect);
        }
        let Some(node) = found.into_iter().flatten().next() else { return };
        for (index, child) in node.children.iter().enumerate() {
            self.walk_own(tree, level - 1, position * FAN_OUT as u64 + index as u64, child, suspects, pace);
        }
    }

    /// With the maintenance lock held: what is of the newest point's tree, and damaged.
    fn judge(&mut self, pool: &Pool, tree: OwnTree, suspect: &Suspect) -> Result<()> {
        let Suspect { level, position, pointer } = suspect;
        let is_sound = if *level == 0 {
            let mut block = BlockBuffer::zeroed(1);
            (0..READ_TRIES).any(|_| {
                pool.device.read_at(pointer.place.0 * BLOCK_BYTES as u64, &mut block).is_ok()
                    && Fingerprint::of_block(&block) == pointer.fingerprint
            })
        } else {
            let expected = pool.nodes.expectation(tree.identity, *level, *position, pointer);
            self.sound_or_rewritten(pool, &expected, tree.name)?.is_some()
        };
        if !is_sound {
            let (name, place) = (tree.name, pointer.place.0);
            tracing::error!(pool = %pool.id(), place, "the scrub found {name} damaged on the medium");
            self.findings.damaged_places += 1;
            self.findings.add_structure(format!(
                "{name} is damaged at pool block {place}; the older superblock and the journal still open the pool"
            ));
        }
        Ok(())
    }
}

impl Pool {
    fn superblock_is_sound(&self, place: u64) -> bool {
        matches!(read_superblock(&*self.device, place), Ok(Ok(Superblock { pool, .. })) if pool == self.id)
    }
}
