//! What is reserved for volumes: everybody else finds the pool full before it is touched.
//!
//! A reservation is for the volume with all its snapshots: what they own is taken from it, and what is left of it is kept. So
//! what hosts overwrite under a snapshot uses it up as new data does; beyond it the volume takes what is free, as all do.
//! Snapshots of other volumes never take from it.

use farside_platform::BLOCK_BYTES;

use crate::error::{Result, StoreError};
use crate::pool::{Pool, State};

/// For metadata one more block is kept for so many blocks of data: a leaf for 128 of them, twice, since a changed one waits for two
/// points; inner nodes; and as much again for data that lies scattered.
const DATA_PER_NODE: u64 = 32;
/// And so many for what one write needs beforehand, and the pool's own thread meanwhile.
const FIRST_NODES: u64 = 512;

/// Blocks that are kept for a volume that owns `owned` of the `reserved` ones.
fn unused(reserved: u64, owned: u64) -> u64 {
    match reserved.saturating_sub(owned) {
        0 => 0,
        left => left + left.div_ceil(DATA_PER_NODE) + FIRST_NODES,
    }
}

impl State {
    /// Blocks that are kept for others than `volume`.
    ///
    /// Of a block with several owners one that overwrites it needs a new place, and no place comes free. So what reservations
    /// have used is kept again as far as the pool has such blocks.
    pub(crate) fn reserved_for_others(&self, volume: Option<u64>) -> u64 {
        let (mut kept, mut used) = (0, 0);
        for (other, reserved) in self.versions.reserving().filter(|(other, _)| Some(*other) != volume) {
            let owned = self.versions.usage_of(other).owned();
            kept += unused(reserved, owned);
            used += owned.min(reserved);
        }
        kept + if used == 0 { 0 } else { used.min(self.allocator.owners.extra_owners()) }
    }
}

impl Pool {
    /// Bytes that are reserved for volumes and not used: what is told of them, without what is kept for their metadata.
    pub fn reserved_unused_bytes(&self) -> u64 {
        let state = self.locked();
        let unused =
            |(volume, reserved): (u64, u64)| reserved.saturating_sub(state.versions.usage_of(volume).owned());
        state.versions.reserving().map(unused).sum::<u64>() * BLOCK_BYTES as u64
    }

    /// Whether `reserved` blocks can be kept for a volume, beside what is promised to others; `volume` is none for a new one.
    pub(crate) fn check_reservation(&self, state: &State, volume: Option<u64>, reserved: u64) -> Result<()> {
        let owned = volume.map_or(0, |volume| state.versions.usage_of(volume).owned());
        let block = BLOCK_BYTES as u64;
        let free = state.allocator.free_blocks() + state.allocator.waiting_blocks();
        let spoken_for =
            2 * self.own_blocks(state) + state.promised_blocks() + state.reserved_for_others(volume);
        let left = free.saturating_sub(spoken_for);
        if unused(reserved, owned) <= left {
            return Ok(());
        }
        let room = (left.saturating_sub(FIRST_NODES) / (DATA_PER_NODE + 1) * DATA_PER_NODE + owned) * block;
        Err(StoreError::NoRoomToReserve { reserve_bytes: reserved * block, room_bytes: room })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_shrinks_with_what_is_used_and_ends_with_it() {
        assert_eq!(unused(3200, 0), 3200 + 100 + FIRST_NODES);
        assert_eq!(unused(3200, 3199), 1 + 1 + FIRST_NODES);
        assert_eq!((unused(3200, 3200), unused(3200, 9000), unused(0, 0)), (0, 0, 0));
    }
}
