//! Admission of space: whoever changes something first reserves room for it, consequences included (invariant S1).
//!
//! A write needs places for its data, and sooner or later nodes: a consistency point must never find that they are
//! missing. So each operation takes its worst case beforehand and gives back what it did not need. Inner nodes need
//! two blocks a fixed distance apart, which a pool in pieces may lack although it has room: those pairs are taken from
//! the map itself, not only counted. The journal ring is promised in the same way.

use std::sync::atomic::Ordering;

use farside_format::Place;
use farside_platform::BLOCK_BYTES;
use parking_lot::MutexGuard;

use crate::delta::ChangeEffects;
use crate::error::{Result, StoreError};
use crate::owner_counts::table_cost;
use crate::pool::{Pool, State};

/// Who asks for room; decides how much must stay free for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpaceClass {
    /// Host writes.
    Host,
    /// A transfer: stops before hosts do.
    Staging,
    /// Changes of metadata that free space or cost next to nothing.
    Metadata,
}

/// Room that a write has before it begins: its data places, and what its nodes will need.
pub(crate) struct Reservation {
    pub(crate) runs: Vec<(Place, u64)>,
    pub(crate) pairs: Vec<Place>,
    /// Blocks promised for leaves and, of a share, for the owner counts.
    leaves: u64,
}

/// Worst case of one operation: a range of blocks has two edges, so two paths of nodes.
const LEAVES_PER_OPERATION: u64 = 4;
/// Inner nodes likewise: five levels above the leaf, two paths, and the copies a snapshot forces are the same ones.
const PAIRS_PER_OPERATION: usize = 12;
/// Journal bytes of one operation at worst: 256 blocks, each a record of its own, in a batch of its own.
const JOURNAL_PER_OPERATION: u64 = 24 << 10;
/// Journal bytes kept for point records and changes of the catalog.
const JOURNAL_SLACK: u64 = 512 << 10;
/// Pairs kept for catalog and free map.
const SPARE_PAIRS: usize = 24;
/// Pairs kept at most while nobody needs them: four operations' worth, 0.6 MiB.
const SPARE_PAIRS_MAX: usize = SPARE_PAIRS + 4 * PAIRS_PER_OPERATION;

impl Pool {
    /// Takes room for an operation before it begins, consequences included.
    pub(crate) fn reserve(&self, blocks: u64, class: SpaceClass) -> Result<Reservation> {
        self.reserve_with(blocks, 0, class)
    }

    /// The same, with room for `table_blocks` more blocks of the owner counts' tree.
    pub(crate) fn reserve_with(
        &self,
        blocks: u64,
        table_blocks: u64,
        class: SpaceClass,
    ) -> Result<Reservation> {
        match self.try_reserve(blocks, table_blocks, class) {
            // Full, but two points from now what was freed is free: only then is it really full.
            Err(full @ StoreError::NoSpace { .. }) => {
                {
                    let state = self.state.lock();
                    if state.full_since == Some(state.appended) {
                        return Err(full);
                    }
                }
                for _ in 0..2 {
                    let nothing_waits = {
                        let state = self.state.lock();
                        state.allocator.waiting_blocks() == 0 && state.overlay_bytes == 0
                    };
                    if nothing_waits {
                        break;
                    }
                    self.consistency_point()?;
                    let retry = self.try_reserve(blocks, table_blocks, class);
                    if !matches!(retry, Err(StoreError::NoSpace { .. })) {
                        return retry;
                    }
                }
                let last = self.try_reserve(blocks, table_blocks, class);
                if matches!(last, Err(StoreError::NoSpace { .. })) {
                    let mut state = self.state.lock();
                    state.full_since = Some(state.appended);
                }
                last
            }
            other => other,
        }
    }

    fn try_reserve(&self, blocks: u64, table_blocks: u64, class: SpaceClass) -> Result<Reservation> {
        let mut guard = self.wait_for_journal()?;
        let state = &mut *guard;
        // What a point needs for its own trees is never given away; metadata changes may use half of the reserve,
        // since they are what frees space.
        let system_blocks = self.own_blocks(state);
        let kept = match class {
            SpaceClass::Metadata => system_blocks,
            SpaceClass::Host => 2 * system_blocks,
            SpaceClass::Staging => 2 * system_blocks + self.host_reserve_blocks(),
        };
        let leaves = LEAVES_PER_OPERATION + table_blocks;
        let needed = blocks + leaves + 2 * PAIRS_PER_OPERATION as u64;
        let kept = kept + state.promised_blocks();
        let free = state.allocator.free_blocks();
        let no_space = || StoreError::NoSpace {
            needed_bytes: needed * BLOCK_BYTES as u64,
            available_bytes: free.saturating_sub(kept) * BLOCK_BYTES as u64,
        };
        if free < kept + needed {
            return Err(no_space());
        }
        let mut reservation =
            Reservation { runs: Vec::new(), pairs: Vec::with_capacity(PAIRS_PER_OPERATION), leaves };
        state.promised_leaves += leaves;
        state.promised_journal += JOURNAL_PER_OPERATION;
        // Pairs first: in a pool in pieces they are the scarcer thing.
        while state.spare_pairs.len() < SPARE_PAIRS + PAIRS_PER_OPERATION {
            match state.allocator.allocate_pair() {
                Some(pair) => state.spare_pairs.push(pair),
                None => break,
            }
        }
        if state.spare_pairs.len() < SPARE_PAIRS + PAIRS_PER_OPERATION {
            release(state, reservation);
            return Err(no_space());
        }
        let rest = state.spare_pairs.len() - PAIRS_PER_OPERATION;
        reservation.pairs.extend(state.spare_pairs.drain(rest..));
        let mut left = blocks;
        while left > 0 {
            let Some((place, count)) = state.allocator.allocate_run(left) else {
                release(state, reservation);
                return Err(no_space());
            };
            reservation.runs.push((place, count));
            left -= count;
        }
        Ok(reservation)
    }

    /// Blocks that the pool's own trees may need.
    fn own_blocks(&self, state: &State) -> u64 {
        state.system_blocks
            + table_cost(state.allocator.owners.table_blocks(), self.pool_blocks)
            + state.catalog_growth.div_ceil(BLOCK_BYTES as u64) * 2
    }

    /// Blocks that transfers leave free for hosts: 1/32 at least, so that a host whose replica is broken off can write.
    fn host_reserve_blocks(&self) -> u64 {
        let percent = u64::from(self.host_reserve_percent.load(Ordering::Relaxed));
        (self.pool_blocks / 32).max(self.pool_blocks / 100 * percent)
    }

    /// Has transfers leave so many percent of the pool free for hosts, from now on; never less than 1/32.
    pub fn set_host_reserve(&self, percent: u8) {
        self.host_reserve_percent.store(percent.min(100), Ordering::Relaxed);
    }

    /// Bytes that transfers may still stage, and bytes that they leave free for hosts. What the next consistency points will
    /// free counts as free.
    pub fn staging_room(&self) -> (u64, u64) {
        let state = self.locked();
        let reserve = self.host_reserve_blocks();
        let free = state.allocator.free_blocks() + state.allocator.waiting_blocks();
        let kept = 2 * self.own_blocks(&state) + state.promised_blocks() + reserve;
        let block = BLOCK_BYTES as u64;
        (free.saturating_sub(kept) * block, reserve * block)
    }

    /// Waits until the ring has room for one more operation, by making points; answers with the state locked.
    fn wait_for_journal(&self) -> Result<MutexGuard<'_, State>> {
        let capacity = self.journal_bytes();
        loop {
            let state = self.state.lock();
            let spoken_for = state.ring_used + state.pending.ring_bytes() + state.promised_journal;
            if spoken_for + JOURNAL_PER_OPERATION + JOURNAL_SLACK <= capacity {
                return Ok(state);
            }
            drop(state);
            // Operations under way end by themselves; each point empties the ring behind the one before.
            let mut system = self.maintenance.lock();
            self.point(&mut system)?;
        }
    }

    /// Gives back what an operation did not use.
    pub(crate) fn release(&self, reservation: Reservation) {
        release(&mut self.state.lock(), reservation);
    }
}

pub(crate) fn release(state: &mut State, reservation: Reservation) {
    state.promised_leaves -= reservation.leaves;
    state.promised_journal -= JOURNAL_PER_OPERATION;
    state.spare_pairs.extend(reservation.pairs);
    // A burst of operations leaves many behind.
    while state.spare_pairs.len() > SPARE_PAIRS_MAX {
        let pair = state.spare_pairs.pop().expect("more than none");
        state.allocator.give_back_pair(pair);
    }
    for (place, blocks) in reservation.runs {
        state.allocator.give_back(place, blocks);
    }
}

impl Reservation {
    /// Accounts for the nodes that a change of a delta will need, and ends the reservation. Data runs have been
    /// settled before.
    pub(crate) fn consume(mut self, state: &mut State, effects: &ChangeEffects) {
        self.runs.clear();
        state.dirty_leaves += effects.new_leaves;
        for _ in 0..effects.new_inner {
            match self.pairs.pop().or_else(|| state.spare_pairs.pop()) {
                Some(pair) => state.dirty_pairs.push(pair),
                // The point will look for one itself.
                None => break,
            }
        }
        state.overlay_bytes += effects.bytes;
        release(state, self);
    }
}
