//! What a pool says of itself.

use std::sync::atomic::Ordering;

use farside_platform::BLOCK_BYTES;
use uuid::Uuid;

use crate::pool::Pool;

/// Figures of a pool, for people and metrics.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    /// Identity.
    pub id: Uuid,
    /// The device.
    pub device: String,
    /// Bytes of the device that the pool uses.
    pub size_bytes: u64,
    /// Bytes that can be given out now.
    pub free_bytes: u64,
    /// Bytes that the next two consistency points will free.
    pub waiting_bytes: u64,
    /// Bytes kept for consequences of what was accepted.
    pub reserved_bytes: u64,
    /// Blocks that have several owners.
    pub shared_blocks: u64,
    /// Bytes that need no place of their own, since their blocks have other owners already.
    pub shared_saves_bytes: u64,
    /// Number of the last consistency point.
    pub generation: u64,
    /// How often the pool was opened.
    pub open_epoch: u64,
    /// Bytes of the journal in use, and its size.
    pub journal_used_bytes: u64,
    /// See above.
    pub journal_bytes: u64,
    /// Memory of changes since the last point.
    pub overlay_bytes: u64,
    /// Blocks found damaged since the pool was opened.
    pub corrupt_blocks: u64,
    /// Why the pool refuses changes, if it does.
    pub failed: Option<String>,
}

impl Pool {
    /// Figures, now.
    pub fn status(&self) -> PoolStatus {
        let (journal_used_bytes, journal_bytes) = {
            let ring = self.ring.lock();
            (ring.used(), ring.capacity())
        };
        let state = self.locked();
        let block = BLOCK_BYTES as u64;
        let (spare, promised) = state.reserved_blocks();
        PoolStatus {
            id: self.id,
            device: self.device_name(),
            size_bytes: self.pool_blocks * block,
            free_bytes: state.allocator.free_blocks() * block,
            waiting_bytes: state.allocator.waiting_blocks() * block,
            reserved_bytes: (spare + promised) * block,
            shared_blocks: state.allocator.owners.shared_places(),
            shared_saves_bytes: state.allocator.owners.extra_owners() * block,
            generation: state.generation,
            open_epoch: self.open_epoch,
            journal_used_bytes,
            journal_bytes,
            overlay_bytes: state.overlay_bytes,
            corrupt_blocks: self.counters.corrupt_blocks.load(Ordering::Relaxed),
            failed: self.failure(),
        }
    }
}
