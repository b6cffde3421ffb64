//! Admission of space: whoever changes something first reserves room for it, consequences included (invariant S1).
//!
//! A write needs places for its data, and sooner or later nodes: a consistency point must never find that they are
//! missing. So each operation takes its worst case beforehand and gives back what it did not need. Inner nodes need
//! two blocks a fixed distance apart, which a pool in pieces may lack although it has room: those pairs are taken from
//! the map itself, not only counted. The journal ring is promised in the same way.
//!
//! What is replaced comes back by two consistency points. So whoever finds no room makes points and waits for those under way
//! before him, until nothing comes back any more: only then is the pool full.

use std::sync::atomic::Ordering;

use farside_format::Place;
use farside_format::fingerprint::FAN_OUT;
use farside_format::free_map::BLOCKS_PER_CHUNK;
use farside_platform::BLOCK_BYTES;
use parking_lot::MutexGuard;

use std::time::Duration;

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

/// Who asks, and for which version: what is reserved for its volume it may use.
#[derive(Clone, Copy)]
pub(crate) struct Asker {
    pub(crate) class: SpaceClass,
    pub(crate) version: u64,
}

/// Room that a write has before it begins: its data places, and what its nodes will need.
pub(crate) struct Reservation {
    pub(crate) runs: Vec<(Place, u64)>,
    pub(crate) pairs: Vec<Place>,
    /// Blocks promised for leaves and, of a share, for the owner counts.
    leaves: u64,
}

/// Worst case of one operation: a range of blocks has two edges, so two paths of nodes.
pub(crate) const LEAVES_PER_OPERATION: u64 = 4;
/// Inner nodes likewise: five levels above the leaf, two paths that meet in the root, and the copies a snapshot forces are the same
/// ones: 9. A tree that grew needs up to 4 more for its old part, once.
pub(crate) const PAIRS_PER_OPERATION: usize = 14;
/// Of one block: its path alone.
const PAIRS_PER_PATH: usize = 5;

/// Journal bytes of one operation at worst: 256 blocks, each a record of its own, in a batch of its own.
const JOURNAL_PER_OPERATION: u64 = 24 << 10;
/// Journal bytes kept for point records and changes of the catalog.
const JOURNAL_SLACK: u64 = 512 << 10;
/// Pairs kept for catalog, owner counts and the free map of a pool of some TiB; see [`spare_pairs_kept`].
const SPARE_PAIRS: usize = 24;
/// Pairs kept at most while nobody needs them, beside those: four operations' worth, 0.4 MiB, so that they need not be looked for in
/// the map each time; in a larger pool 1/512 of it, up to 4 MiB, since a burst of joined writes takes hundreds.
const SPARE_PAIRS_FEW: u64 = 4 * PAIRS_PER_OPERATION as u64;
const SPARE_PAIRS_MANY: u64 = 512;
const SPARE_PAIRS_SHARE: u64 = 1024;
/// How often one operation looks for room again while others find some: more means that it is not a point that it lacks.
const ROUNDS_MAX: u32 = 64;
/// The same for a transfer, which is tried again as a whole.
const STAGING_ROUNDS_MAX: u32 = 4;
/// How long it waits for operations under way before it looks again; they announce their end.
const OPERATIONS_END: Duration = Duration::from_millis(100);

/// What an operation may need of nodes at worst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Footprint {
    leaves: u64,
    pairs: usize,
}

impl Footprint {
    /// Of a change of one range of blocks, however long.
    pub(crate) const ONE_RANGE: Footprint =
        Footprint { leaves: LEAVES_PER_OPERATION, pairs: PAIRS_PER_OPERATION };

    /// Of a change of several ranges, (first block, blocks) each: a path for each of them, or two that meet below the root.
    pub(crate) fn of_ranges(ranges: impl Iterator<Item = (u64, u64)>) -> Footprint {
        let mut all = Footprint { leaves: 0, pairs: PAIRS_PER_OPERATION - (2 * PAIRS_PER_PATH - 1) };
        for (first, count) in ranges {
            let is_in_one_leaf = first / FAN_OUT as u64 == (first + count - 1) / FAN_OUT as u64;
            all.leaves += LEAVES_PER_OPERATION;
            all.pairs += if is_in_one_leaf { PAIRS_PER_PATH } else { 2 * PAIRS_PER_PATH - 1 };
        }
        Footprint { pairs: all.pairs.max(PAIRS_PER_OPERATION), ..all }
    }

    /// With `table_blocks` more blocks of the owner counts' tree.
    fn and_table(self, table_blocks: u64) -> Footprint {
        Footprint { leaves: self.leaves + table_blocks, ..self }
    }
}

/// Pairs that a pool keeps for its own trees: those of the free map grow with it, one for each TiB.
pub(crate) fn spare_pairs_kept(pool_blocks: u64) -> usize {
    let leaves = pool_blocks.div_ceil(BLOCKS_PER_CHUNK).div_ceil(FAN_OUT as u64);
    SPARE_PAIRS + (leaves / FAN_OUT as u64) as usize
}

impl Pool {
    /// Takes room for a change of metadata before it begins, consequences included.
    pub(crate) fn reserve(&self, blocks: u64, class: SpaceClass) -> Result<Reservation> {
        self.reserve_for(blocks, Footprint::ONE_RANGE, Asker { class, version: 0 })
    }

    /// The same, with room for `table_blocks` more blocks of the owner counts' tree.
    pub(crate) fn reserve_with_table(&self, table_blocks: u64, asker: Asker) -> Result<Reservation> {
        self.reserve_for(0, Footprint::ONE_RANGE.and_table(table_blocks), asker)
    }

    /// The same, for several ranges of a version.
    pub(crate) fn reserve_for(&self, blocks: u64, footprint: Footprint, asker: Asker) -> Result<Reservation> {
        let class = asker.class;
        // Whoever frees space goes first. Others do not overtake those who wait for it.
        let must_queue = class != SpaceClass::Metadata && self.seeking_room.load(Ordering::Acquire) > 0;
        if !must_queue {
            match self.try_reserve(blocks, footprint, asker) {
                Err(StoreError::NoSpace { .. }) => {}
                other => return other,
            }
        }
        let found = self.seek_room(blocks, footprint, asker);
        if class == SpaceClass::Staging {
            return found.map_err(|refused| self.said_of_below(refused));
        }
        if class == SpaceClass::Host && matches!(found, Err(StoreError::NoSpace { .. })) {
            let mut state = self.state.lock();
            state.refused_since = Some(state.changed);
        }
        found
    }

    /// Makes points, reaps, and waits for operations under way, until there is room or nothing comes back any more.
    fn seek_room(&self, blocks: u64, footprint: Footprint, asker: Asker) -> Result<Reservation> {
        let class = asker.class;
        // Hosts do not stand behind a transfer, which has to leave them room anyway.
        let _seeking = (class != SpaceClass::Staging).then(|| Seeking::begin(self));
        let rounds_max = if class == SpaceClass::Staging { STAGING_ROUNDS_MAX } else { ROUNDS_MAX };
        // One at a time: what a point gives back is for whoever has waited longest, and who comes next finds its work done.
        let _turn = self.room_turn.lock();
        let mut rounds = 0;
        loop {
            let full = match self.try_reserve(blocks, footprint, asker) {
                Err(full @ StoreError::NoSpace { .. }) => full,
                other => return other,
            };
            let begun = {
                let state = self.state.lock();
                if state.full_since == Some(state.changed) {
                    return Err(full);
                }
                state.changed
            };
            // What was replaced is free after two points; what only a deleted version had, after it is reaped and two more.
            for _ in 0..2 {
                match self.consistency_point() {
                    Err(StoreError::NoRoomForPoint { .. }) if self.reap_step()? => {}
                    Err(StoreError::NoRoomForPoint { .. }) => return Err(full),
                    // It was refused for that.
                    Err(error) if error.is_full_below() && class == SpaceClass::Staging => return Err(full),
                    result => result?,
                }
                match self.try_reserve(blocks, footprint, asker) {
                    Err(StoreError::NoSpace { .. }) => {}
                    other => return other,
                }
            }
            if self.reap_step()? {
                continue;
            }
            rounds += 1;
            let mut state = self.state.lock();
            // Operations reserve their worst case and give most of it back.
            if state.promised_journal > 0 {
                self.room_given_back.wait_for(&mut state, OPERATIONS_END);
            } else if state.changed == begun {
                state.full_since = Some(begun);
                return Err(full);
            }
            if rounds >= rounds_max {
                return Err(full);
            }
        }
    }

    fn try_reserve(&self, blocks: u64, footprint: Footprint, asker: Asker) -> Result<Reservation> {
        if asker.class == SpaceClass::Staging {
            self.admit_staging_below(blocks)?;
        }
        let mut state = self.wait_for_journal()?;
        self.reserve_in(&mut state, blocks, footprint, asker)
    }

    /// Room for a host's write, if nobody has to be waited for.
    pub(crate) fn reserve_at_once(
        &self,
        blocks: u64,
        footprint: Footprint,
        version: u64,
    ) -> Option<Reservation> {
        let mut state = self.state.try_lock()?;
        if !self.journal_has_room(&state) || !self.fits_at_once(&state, version, blocks) {
            return None;
        }
        self.reserve_in(&mut state, blocks, footprint, Asker { class: SpaceClass::Host, version }).ok()
    }

    fn reserve_in(
        &self,
        state: &mut State,
        blocks: u64,
        footprint: Footprint,
        Asker { class, version }: Asker,
    ) -> Result<Reservation> {
        // What a point needs for its own trees is never given away; metadata changes may use half of the reserve,
        // since they are what frees space.
        let system_blocks = self.own_blocks(state);
        let for_others = |state: &State| {
            state.reserved_for_others(state.versions.versions.get(&version).map(|v| v.volume))
        };
        let kept = match class {
            SpaceClass::Metadata => system_blocks,
            SpaceClass::Host => 2 * system_blocks + for_others(state),
            SpaceClass::Staging => 2 * system_blocks + self.host_reserve_blocks() + for_others(state),
        };
        let Footprint { leaves, pairs: wanted_pairs } = footprint;
        // The same of pairs: what frees space may use all that no point needs.
        let kept_pairs = match class {
            SpaceClass::Metadata => {
                state.own_pairs(self.pool_blocks()).min(state.spare_pairs_kept as u64) as usize
            }
            SpaceClass::Host | SpaceClass::Staging => state.spare_pairs_kept,
        };
        let pairs = (kept_pairs + wanted_pairs).saturating_sub(state.spare_pairs.len());
        let needed = blocks + leaves + 2 * pairs.max(PAIRS_PER_OPERATION) as u64;
        let kept = kept + state.promised_blocks();
        let free = state.allocator.free_blocks();
        let no_space = || StoreError::NoSpace {
            needed_bytes: needed * BLOCK_BYTES as u64,
            available_bytes: free.saturating_sub(kept) * BLOCK_BYTES as u64,
        };
        // What a point lacks already nobody else gets.
        if free < kept + needed || state.owed_pairs > 0 {
            return Err(no_space());
        }
        let mut reservation =
            Reservation { runs: Vec::new(), pairs: Vec::with_capacity(wanted_pairs), leaves };
        state.promised_leaves += leaves;
        state.promised_journal += JOURNAL_PER_OPERATION;
        // Pairs first: in a pool in pieces they are the scarcer thing.
        while state.spare_pairs.len() < kept_pairs + wanted_pairs {
            match state.allocator.allocate_pair() {
                Some(pair) => state.spare_pairs.push(pair),
                None => break,
            }
        }
        if state.spare_pairs.len() < kept_pairs + wanted_pairs {
            release(state, reservation);
            return Err(no_space());
        }
        let rest = state.spare_pairs.len() - wanted_pairs;
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
    pub(crate) fn own_blocks(&self, state: &State) -> u64 {
        state.system_blocks
            + table_cost(state.allocator.owners.table_blocks(), self.pool_blocks())
            + state.catalog_growth.div_ceil(BLOCK_BYTES as u64) * 2
    }

    /// Blocks that transfers leave free for hosts: 1/32 at least, so that a host whose replica is broken off can write.
    pub(crate) fn host_reserve_blocks(&self) -> u64 {
        let percent = u64::from(self.host_reserve_percent.load(Ordering::Relaxed));
        (self.pool_blocks() / 32).max(self.pool_blocks() / 100 * percent)
    }

    /// Has transfers leave so many percent of the pool free for hosts, from now on; never less than 1/32.
    pub fn set_host_reserve(&self, percent: u8) {
        self.host_reserve_percent.store(percent.min(100), Ordering::Relaxed);
    }

    /// Bytes that transfers may still stage for a volume in the pool as it is, and bytes that they leave free for hosts and for what
    /// is reserved for others. What the next consistency points will free counts as free.
    pub fn staging_room(&self, volume: &str) -> (u64, u64) {
        let state = self.locked();
        let volume = state.versions.volume_named(volume).map(|v| v.id);
        let reserve = self.host_reserve_blocks() + state.reserved_for_others(volume);
        let free = state.allocator.free_blocks() + state.allocator.waiting_blocks();
        let kept = 2 * self.own_blocks(&state) + state.promised_blocks() + reserve;
        let block = BLOCK_BYTES as u64;
        (free.saturating_sub(kept) * block, reserve * block)
    }

    fn journal_has_room(&self, state: &State) -> bool {
        let spoken_for = state.ring_used + state.pending.ring_bytes() + state.promised_journal;
        spoken_for + JOURNAL_PER_OPERATION + JOURNAL_SLACK <= self.journal_bytes()
    }

    /// Waits until the ring has room for one more operation, by making points; answers with the state locked.
    fn wait_for_journal(&self) -> Result<MutexGuard<'_, State>> {
        loop {
            let state = self.state.lock();
            if self.journal_has_room(&state) {
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
    state.room_given_back.notify_all();
    state.promised_leaves -= reservation.leaves;
    state.promised_journal -= JOURNAL_PER_OPERATION;
    state.spare_pairs.extend(reservation.pairs);
    // A burst of operations leaves many behind.
    let kept = (state.allocator.pool_blocks() / SPARE_PAIRS_SHARE).clamp(SPARE_PAIRS_FEW, SPARE_PAIRS_MANY);
    while state.spare_pairs.len() > state.spare_pairs_kept + kept as usize {
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
        debug_assert!(effects.new_inner <= self.pairs.len() as u64, "S1: {} inner nodes", effects.new_inner);
        debug_assert!(effects.new_leaves <= self.leaves, "S1: {} leaves", effects.new_leaves);
        state.written_blocks += self.runs.iter().map(|(_, count)| count).sum::<u64>();
        self.runs.clear();
        state.changed += 1;
        state.dirty_leaves += effects.new_leaves;
        for _ in 0..effects.new_inner {
            match self.pairs.pop().or_else(|| state.spare_pairs.pop()) {
                Some(pair) => state.dirty_pairs.push(pair),
                // The point looks for them before it begins.
                None => state.owed_pairs += 1,
            }
        }
        state.overlay_bytes += effects.bytes;
        release(state, self);
    }
}

/// Somebody looks for room that is not there at the moment.
struct Seeking<'a>(&'a Pool);

impl Seeking<'_> {
    fn begin(pool: &Pool) -> Seeking<'_> {
        pool.seeking_room.fetch_add(1, Ordering::AcqRel);
        Seeking(pool)
    }
}

impl Drop for Seeking<'_> {
    fn drop(&mut self) {
        self.0.seeking_room.fetch_sub(1, Ordering::AcqRel);
    }
}
