//! What is left for hosts, and how sure that is.
//!
//! Only a consistency point tells which blocks were replaced. Until it does, they count as used. So a pool whose hosts
//! overwrite the same data over and over looks fuller than it is, by as much as was written since.

use std::sync::atomic::Ordering;

use farside_format::catalog::Volume;
use farside_platform::BLOCK_BYTES;

use crate::io::PIECE_BLOCKS;
use crate::pool::{Pool, State};
use crate::space::{LEAVES_PER_OPERATION, PAIRS_PER_OPERATION};

/// Bytes that must be left for a host to write 1 MiB: the data, and the nodes that it may need.
pub const WRITE_NEEDS_BYTES: u64 =
    (PIECE_BLOCKS + LEAVES_PER_OPERATION + 2 * PAIRS_PER_OPERATION as u64) * BLOCK_BYTES as u64;

/// What is left for hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Bytes of the pool.
    pub size_bytes: u64,
    /// Bytes that hosts can still take: what is free or comes back by itself, without what the pool keeps for its own
    /// metadata and for the consequences of what it accepted, and without what is reserved for single volumes and not used.
    pub for_hosts_bytes: u64,
    /// Bytes written that no consistency point has counted yet: at most so much more may be left. What was trimmed or
    /// deleted since comes on top.
    pub unsettled_bytes: u64,
    /// Whether a host was told that there is no space, and nothing has changed since.
    pub refuses_hosts: bool,
    /// Whether a consistency point may find more room.
    pub may_settle: bool,
}

impl Pool {
    /// What is left for hosts, now. Waits for no device.
    pub fn room(&self) -> Room {
        let state = self.locked();
        let block = BLOCK_BYTES as u64;
        let left = state.allocator.free_blocks() + state.allocator.waiting_blocks();
        let kept = 2 * self.own_blocks(&state) + state.promised_blocks() + state.reserved_for_others(None);
        // A pool that owes nodes gives hosts nothing.
        let left = if state.owed_pairs > 0 { 0 } else { left.saturating_sub(kept) };
        Room {
            size_bytes: self.pool_blocks() * block,
            for_hosts_bytes: left * block,
            unsettled_bytes: (state.written_blocks + state.counting_blocks) * block,
            refuses_hosts: state.refused_since == Some(state.changed),
            may_settle: state.changed != state.changed_at_point || state.overlay_bytes > 0,
        }
    }

    /// Has the pool's own thread make a consistency point soon, so that [`Pool::room`] knows what was replaced.
    pub fn settle(&self) {
        self.settle_wanted.store(true, Ordering::Release);
        self.wake.signal();
    }

    /// What is left of each volume's quota, by name.
    pub fn quota_rooms(&self) -> Vec<(String, Room)> {
        let state = self.locked();
        let live = state.versions.volumes.values().filter(|v| !v.deleted);
        live.filter_map(|v| Some((v.name.clone(), room_of(&state, v)?))).collect()
    }

    /// What is left of one volume's quota; none if it has none.
    pub fn quota_room(&self, volume: &str) -> Option<Room> {
        let state = self.locked();
        room_of(&state, state.versions.volume_named(volume)?)
    }
}

fn room_of(state: &State, volume: &Volume) -> Option<Room> {
    let quota_bytes = volume.limits.as_ref().map(|l| l.quota_bytes).filter(|quota| *quota > 0)?;
    let (usage, block) = (state.versions.usage_of(volume.id), BLOCK_BYTES as u64);
    Some(Room {
        size_bytes: quota_bytes,
        for_hosts_bytes: quota_bytes.saturating_sub(usage.alive() * block),
        unsettled_bytes: usage.unsettled().min(usage.alive()) * block,
        refuses_hosts: usage.refuses(),
        may_settle: usage.may_settle(),
    })
}
