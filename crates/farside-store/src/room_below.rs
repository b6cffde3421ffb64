//! What lies below the pool's device may run out of room before the pool does: a file takes its room as it is written.
//!
//! A point that fails half-way leaves the pool read-only until it is opened again. So where little is left below, a point's places
//! are chosen before it begins, and room for them is taken. Where that fails, no point is made, nothing is in doubt, and the next try
//! may succeed. The journal and the superblocks were written when the pool was made, so they have their room.
//!
//! A small reserve is for what must not fail because hosts or transfers have filled the file system: taking over a replica.

use std::sync::atomic::Ordering;

use farside_format::Place;
use farside_format::pointer::TWIN_DISTANCE;
use farside_format::superblock::JOURNAL_START;
use farside_platform::BLOCK_BYTES;

use crate::error::{Result, StoreError};
use crate::pool::{Pool, State};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// With so many times as much left as a point needs, and this beside it, nobody looks closer.
const PLENTY: u64 = 4;
const PLENTY_BYTES: u64 = 64 << 20;
/// What the pool needs at least before it is worth opening it again: a point, and some writes.
const USEFUL_BYTES: u64 = 4 << 20;
/// Part of the pool from which on what is left below is little.
const SCARCE_SHARE: u64 = 8;

/// What lies below the device has less room than the pool needs to accept changes again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LacksRoomBelow {
    /// Bytes that the pool needs.
    pub needed_bytes: u64,
    /// Bytes that are left.
    pub left_bytes: u64,
}

/// Places of a point for which room was taken.
#[derive(Default)]
struct Chosen {
    leaves: Vec<Place>,
    pairs: Vec<Place>,
}

impl Chosen {
    fn give_back(self, state: &mut State) {
        self.leaves.into_iter().for_each(|place| state.allocator.give_back(place, 1));
        self.pairs.into_iter().for_each(|place| state.allocator.give_back_pair(place));
    }
}

impl Pool {
    /// Sees to it that what the point of this state writes has room below. Hosts wait meanwhile, where little is left.
    pub(crate) fn take_room_for_point(&self, state: &mut State) -> Result<()> {
        let enough = PLENTY * self.point_bytes(state) + PLENTY_BYTES;
        if self.look_below().is_none_or(|left| left >= enough) {
            *self.refused_point.lock() = None;
            return Ok(());
        }
        // Places that were free when the file last wrote there have their room: those come first.
        state.allocator.rewind();
        let leaves = state.dirty_leaves + self.own_blocks(state);
        let own_pairs = state.own_pairs(self.pool_blocks());
        let mut chosen = Chosen::default();
        // What the pool itself lacks is seen to elsewhere: `scarce.rs`.
        while (chosen.leaves.len() as u64) < leaves
            && let Some(place) = state.allocator.allocate_leaf()
        {
            chosen.leaves.push(place);
        }
        while (chosen.pairs.len() as u64) < own_pairs
            && let Some(place) = state.allocator.allocate_pair()
        {
            chosen.pairs.push(place);
        }
        let twins = |place: &Place| [place.0, place.0 + TWIN_DISTANCE];
        // Spare ones come last, where no others are left; room that is taken for them in vain is what the point may lack.
        let missing = own_pairs.saturating_sub(chosen.pairs.len() as u64) as usize;
        let spare = state.spare_pairs.iter().rev().take(missing);
        let pairs = chosen.pairs.iter().chain(&state.dirty_pairs).chain(spare);
        let places = chosen.leaves.iter().map(|place| place.0).chain(pairs.flat_map(twins)).collect();
        let taken = runs(places)
            .into_iter()
            .try_for_each(|(first, blocks)| self.device.take_room(first * BLOCK, blocks * BLOCK));
        let mut refused = self.refused_point.lock();
        match taken {
            Ok(()) => {
                state.chosen_leaves = chosen.leaves;
                state.dirty_pairs.extend(chosen.pairs);
                *refused = None;
                Ok(())
            }
            Err(error) => {
                chosen.give_back(state);
                if refused.is_none() {
                    tracing::error!(
                        pool = %self.id(), device = self.device.name(),
                        "no consistency point can be made: {error}. Nothing is in doubt, and it goes on by itself once there is room"
                    );
                }
                *refused = Some(error.to_string());
                Err(error.into())
            }
        }
    }

    /// Looks how much is left below: `is_scarce_below` and who decides by it ask nobody.
    pub(crate) fn look_below(&self) -> Option<u64> {
        let left = self.device.room_below();
        self.left_below_blocks.store(left.map_or(u64::MAX, |bytes| bytes / BLOCK), Ordering::Relaxed);
        left
    }

    /// Whether so little is left below that what was freed is to be used first: deleting would help nobody otherwise, as
    /// what is given out goes on upwards, where the file has no room yet.
    pub(crate) fn is_scarce_below(&self) -> bool {
        self.left_below_blocks.load(Ordering::Relaxed) < self.pool_blocks() / SCARCE_SHARE
    }

    /// Bytes that a point may write now, at most.
    fn point_bytes(&self, state: &State) -> u64 {
        let pairs = state.own_pairs(self.pool_blocks()) + state.dirty_pairs.len() as u64;
        (state.dirty_leaves + self.own_blocks(state) + 2 * pairs) * BLOCK
    }

    /// What a pool lacks below its device so that opening it again would help; none if it lacks nothing.
    pub fn lacks_room_below(&self) -> Option<LacksRoomBelow> {
        let left_bytes = self.device.room_below()?;
        let needed_bytes = self.point_bytes(&self.locked()) + self.behind.bytes() + USEFUL_BYTES;
        (left_bytes < needed_bytes).then_some(LacksRoomBelow { needed_bytes, left_bytes })
    }

    /// What a pool lacks below its device so that something can be deleted; none if it lacks nothing for that: only what waits to be
    /// written is in the way, and the reserve is for that.
    pub fn lacks_room_to_delete(&self) -> Option<LacksRoomBelow> {
        let waits = self.behind.bytes() > 0 && self.refused_write.lock().is_some();
        if waits && !self.device.has_reserve() { self.lacks_room_below() } else { None }
    }

    /// For a pool that was opened: a journal that a copy left out takes its room at once, and the reserve does.
    pub(crate) fn take_room_at_opening(&self) {
        let (offset, bytes) = (JOURNAL_START * BLOCK, self.journal_blocks * BLOCK);
        if let Err(error) = self.device.take_room(offset, bytes) {
            tracing::warn!(pool = %self.id(), "the journal has not all of its room on the file system: {error}");
        }
        self.device.keep_reserve(true);
    }

    /// The point that an opening makes. Where it `must` be there before anything changes, the pool is read-only without it.
    pub(crate) fn point_of_opening(&self, must: bool) -> Result<()> {
        let mut made = self.consistency_point();
        if made.as_ref().is_err_and(StoreError::is_full_below) && self.device.use_reserve() {
            made = self.consistency_point();
        }
        match made {
            Err(error) if must && error.is_full_below() => self.latch(Err(error)),
            made => made,
        }
    }

    /// For what must not fail because the file system below is full: where data waits that it does not take, or a point cannot be
    /// made, it is given the reserve.
    pub(crate) fn make_way(&self) {
        let is_refused = self.write_out().is_err_and(|error| error.is_full_below());
        if (is_refused || self.refused_point.lock().is_some()) && self.device.use_reserve() {
            tracing::warn!(pool = %self.id(), "the file system below is full: the pool uses its reserve there");
            let _ = self.write_out();
        }
    }
}

impl Pool {
    /// For a deletion, which must not fail for want of what it gives back: as [`Pool::make_way`], and the points by which the space
    /// comes back may use the reserve as well.
    pub(crate) fn make_way_to_free(&self) {
        if self.check_usable().is_err() {
            return;
        }
        self.make_way();
        self.frees.store(true, Ordering::Release);
    }

    /// The point of the pool's own thread. Where the file system below refuses it, and something was deleted, it is given the reserve.
    pub(crate) fn point_in_background(&self) -> Result<()> {
        let frees = self.frees.load(Ordering::Acquire);
        let mut made = self.consistency_point();
        if frees && made.as_ref().is_err_and(StoreError::is_full_below) && self.device.use_reserve() {
            tracing::warn!(
                pool = %self.id(),
                "the file system below is full: the pool uses its reserve there, so that what was deleted comes free"
            );
            made = self.consistency_point();
        }
        if frees && made.is_ok() && self.is_all_free() {
            self.frees.store(false, Ordering::Release);
        }
        made
    }

    /// Whether nothing that was deleted has still to come free, but for what each point replaces.
    fn is_all_free(&self) -> bool {
        let state = self.locked();
        let is_reaped = !state.versions.versions.values().any(|version| version.deleted);
        is_reaped && state.allocator.waiting_blocks() <= 4 * state.system_blocks + 64
    }
}

/// Blocks as (first, count), neighbours together.
fn runs(mut places: Vec<u64>) -> Vec<(u64, u64)> {
    places.sort_unstable();
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for place in places {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == place => *count += 1,
            _ => runs.push((place, 1)),
        }
    }
    runs
}
