//! What a consistency point needs, counted before it begins, and where it comes from if the pool lacks it (invariant S1).
//!
//! A running pool sets aside a pair of blocks for each inner node that it owes (`space.rs`), so a point has them. A pool that
//! is opened looks for as many as its journal owes. They are there: what the last life had set aside is free again. A pool that an
//! earlier version filled may lack some. Then, in this order: the older point is given up, so that what waits for it is free;
//! the nodes are counted anew, without those of what was deleted since; and if that does not do, no point is made, nothing has
//! happened, and hosts are told that the pool is full.

use std::collections::HashSet;
use std::sync::Arc;

use farside_format::Place;
use farside_format::fingerprint::{FAN_OUT, level_for};
use farside_format::owner_counts::table_blocks;
use farside_format::superblock::SUPERBLOCK_PLACES;
use farside_platform::{BLOCK_BYTES, BlockBuffer};

use crate::delta::{Delta, Entry};
use crate::error::{Result, StoreError};
use crate::pool::{Pool, State, SystemTrees};
use crate::ring::read_again;
use crate::versions::VersionState;

/// Leaves and inner nodes of something.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Nodes {
    leaves: u64,
    pairs: u64,
}

impl Nodes {
    /// Of a tree over `blocks` blocks, itself written anew as a whole; the blocks count as leaves.
    fn of_tree(blocks: u64) -> Nodes {
        let level_1 = blocks.div_ceil(FAN_OUT as u64).max(1);
        let (mut pairs, mut nodes) = (0, level_1);
        while nodes > 1 {
            nodes = nodes.div_ceil(FAN_OUT as u64);
            pairs += nodes;
        }
        Nodes { leaves: blocks + level_1, pairs }
    }

    fn and(self, other: Nodes) -> Nodes {
        Nodes { leaves: self.leaves + other.leaves, pairs: self.pairs + other.pairs }
    }
}

impl Pool {
    /// Sets aside what the next point needs. Without it no point may begin.
    pub(crate) fn find_room_for_point(&self, system: &mut SystemTrees) -> Result<()> {
        if self.state.lock().set_aside(self.pool_blocks()) == 0 {
            return Ok(());
        }
        self.give_up_older_point(system)?;
        let mut state = self.state.lock();
        if state.set_aside(self.pool_blocks()) == 0 {
            return Ok(());
        }
        state.count_owed_nodes();
        match state.set_aside(self.pool_blocks()) {
            0 => Ok(()),
            missing_pairs => Err(StoreError::NoRoomForPoint { missing_pairs }),
        }
    }

    /// Both superblocks hold the newest point from now on, so what waited for the older one is free.
    fn give_up_older_point(&self, system: &SystemTrees) -> Result<()> {
        if self.state.lock().allocator.waits_for_older_point() == 0 {
            return Ok(());
        }
        let [newest, older] = [system.newest_slot, 1 - system.newest_slot]
            .map(|slot| SUPERBLOCK_PLACES[slot] * BLOCK_BYTES as u64);
        let mut superblock = BlockBuffer::zeroed(1);
        read_again(&*self.device, newest, &mut superblock)?;
        // What is read may be damaged; then it is no superblock to have twice.
        let is_newest = farside_format::Superblock::decode(&superblock)
            .is_ok_and(|found| found.pool == self.id && found.catalog == system.catalog);
        if !is_newest {
            return Ok(());
        }
        tracing::warn!(
            pool = %self.id,
            "the pool lacks room for its metadata: it keeps one consistency point instead of two until it has some"
        );
        self.latch(self.device.write_at(older, &superblock).map_err(StoreError::from))?;
        self.sync_device()?;
        // Nobody may still read what becomes free.
        let _shut = self.readers.shut();
        let mut ring = self.ring.lock();
        let mut state = self.state.lock();
        state.allocator.free_waiting();
        ring.tail = system.journal_position;
        state.ring_used = ring.used();
        Ok(())
    }
}

impl State {
    /// Takes pairs that are owed from the map, or from the spare ones; answers how many are missing, with those of which only a
    /// leaf is missing.
    fn set_aside(&mut self, pool_blocks: u64) -> u64 {
        let own = self.own_trees(pool_blocks);
        while self.owed_pairs > 0 || (self.spare_pairs.len() as u64) < own.pairs {
            let Some(pair) = self.allocator.allocate_pair() else { break };
            if self.owed_pairs > 0 {
                self.owed_pairs -= 1;
                self.dirty_pairs.push(pair);
            } else {
                self.spare_pairs.push(pair);
            }
        }
        while self.owed_pairs > 0 && self.spare_pairs.len() as u64 > own.pairs {
            self.owed_pairs -= 1;
            self.dirty_pairs.extend(self.spare_pairs.pop());
        }
        let missing_leaves = (self.dirty_leaves + own.leaves).saturating_sub(self.allocator.free_blocks());
        self.owed_pairs + own.pairs.saturating_sub(self.spare_pairs.len() as u64) + missing_leaves
    }

    /// Pairs that the next point needs for the pool's own trees, at most.
    pub(crate) fn own_pairs(&self, pool_blocks: u64) -> u64 {
        self.own_trees(pool_blocks).pairs
    }

    /// What a point needs for catalog, free map and owner counts, at most.
    fn own_trees(&self, pool_blocks: u64) -> Nodes {
        let catalog = (self.catalog_bytes + self.catalog_growth).div_ceil(BLOCK_BYTES as u64) + 1;
        // Of the table's blocks all may change, or a path for each where they are few.
        let (table, stored) = (table_blocks(pool_blocks), self.allocator.owners.table_blocks());
        let (all, height) = (Nodes::of_tree(table), u64::from(level_for(table)));
        let owners = Nodes {
            leaves: stored + stored.min(table.div_ceil(FAN_OUT as u64)),
            pairs: all.pairs.min((height - 1) * stored),
        };
        Nodes::of_tree(catalog).and(Nodes::of_tree(self.allocator.chunks())).and(owners)
    }

    /// Counts the nodes that the changes at hand need: fewer than were promised, if some were deleted or taken back since.
    fn count_owed_nodes(&mut self) {
        let mut counted = HashSet::new();
        let mut needed = Nodes::default();
        for version in self.versions.versions.values() {
            if let Some(delta) = &version.delta {
                let key = version.tree.root.place;
                needed = needed.and(nodes_of(delta, version.level(), key, Some(version), &mut counted));
            }
        }
        let has = self.dirty_pairs.len() as u64;
        self.owed_pairs = needed.pairs.saturating_sub(has).min(self.owed_pairs);
        self.dirty_leaves = needed.leaves.min(self.dirty_leaves);
        for _ in needed.pairs..has {
            self.spare_pairs.extend(self.dirty_pairs.pop());
        }
    }
}

/// Nodes that a delta over the tree at `base` becomes; `edge` while its left edge is also that of the version's tree.
fn nodes_of(
    delta: &Arc<Delta>,
    level: u8,
    base: Place,
    edge: Option<&VersionState>,
    counted: &mut HashSet<(Place, *const Delta)>,
) -> Nodes {
    if !counted.insert((base, Arc::as_ptr(delta))) {
        return Nodes::default();
    }
    let is_hole = delta.cut && delta.entries().len() == 0;
    let own = u64::from(!is_hole);
    let mut nodes =
        if level == 1 { Nodes { leaves: own, pairs: 0 } } else { Nodes { leaves: 0, pairs: own } };
    let mut first_is_kept = true;
    for (index, entry) in delta.entries() {
        if let Entry::Child(child) = entry {
            first_is_kept &= index > 0;
            let edge = edge.filter(|_| index == 0 && !delta.cut);
            nodes = nodes.and(nodes_of(child, level - 1, base, edge, counted));
        }
    }
    // The levels that were only computed so far.
    if let Some(version) = edge.filter(|_| first_is_kept && !delta.cut && !base_is_hole(base)) {
        nodes.pairs += u64::from((level - 1).saturating_sub(version.tree.level));
    }
    nodes
}

fn base_is_hole(base: Place) -> bool {
    base == Place(0)
}
