//! What a pool says of itself.

use std::sync::atomic::Ordering;

use farside_format::catalog::VersionKind;
use farside_platform::BLOCK_BYTES;
use uuid::Uuid;

use crate::error::{Result, StoreError, is_for_room};
use crate::nodes::DamagedNode;
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
    /// Bytes by which the pool has grown and that cannot be given out yet: not both superblocks know of them.
    pub withheld_bytes: u64,
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
    /// Where the journal ended when the pool was opened, and up to where it is on the medium now. Positions only rise, over all
    /// openings: a pool that ends before what it once had is an older copy of itself, or has lost its newest changes.
    pub journal_opened_at: u64,
    /// See above.
    pub journal_durable_to: u64,
    /// Bytes of the journal in use, and its size.
    pub journal_used_bytes: u64,
    /// See above.
    pub journal_bytes: u64,
    /// Memory of changes that no point on the medium has.
    pub overlay_bytes: u64,
    /// Blocks found damaged since the pool was opened.
    pub corrupt_blocks: u64,
    /// Bytes that damaged metadata does not attribute to anybody any more, so that they never come back, at most.
    pub unattributed_bytes_max: u64,
    /// Why the pool refuses changes, if it does.
    pub failed: Option<String>,
    /// Why the device refused the last data, if it did. The pool accepts changes all the same: the next may succeed.
    pub refused_write: Option<String>,
    /// Why it cannot write its metadata anew, if it lacks room for that: hosts are told that it is full.
    pub lacks_room: Option<String>,
}

impl PoolStatus {
    /// Whether the device refused the last data for want of room below it.
    pub fn is_refused_for_room(&self) -> bool {
        self.refused_write.as_deref().is_some_and(is_for_room)
    }
}

/// Blocks of a volume or snapshot whose metadata is damaged: reads of them fail, everything else goes on.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct QuarantinedRange {
    /// The volume.
    pub volume: String,
    /// The snapshot; none for the volume itself.
    pub snapshot: Option<String>,
    /// First block.
    pub block: u64,
    /// How many.
    pub count: u64,
}

/// Ranges told of one version at most.
const QUARANTINED_RANGES_MAX: usize = 64;
/// Of those, found in one step at most, and damaged nodes looked below in one step.
const RANGES_PER_STEP: usize = 8;
/// See above.
const NODES_PER_STEP: usize = 8;

impl Pool {
    /// Versions that were looked at to find others, since the pool was opened: what listing and looking up costs.
    pub fn versions_looked_at(&self) -> u64 {
        self.locked().versions.looked_at()
    }

    /// What is quarantined: what consistency points had to give up, and damaged metadata that was met since the pool was
    /// opened. At most 64 ranges of each volume and snapshot, in order.
    ///
    /// # Errors
    /// Those of the device.
    pub fn quarantined(&self) -> Result<Vec<QuarantinedRange>> {
        let damaged = self.nodes.damaged();
        let shown: Vec<u64> = {
            let state = self.locked();
            let shown = state
                .versions
                .versions
                .values()
                .filter(|v| !v.deleted && (v.snapshot.is_some() || v.kind == VersionKind::Head));
            shown.map(|v| v.id).collect()
        };
        let mut found = Vec::new();
        for version in shown {
            let ranges = joined(self.quarantined_of(version, &damaged)?);
            if ranges.is_empty() {
                continue;
            }
            let state = self.locked();
            let Some(version) = state.versions.versions.get(&version) else { continue };
            let Some(volume) = state.versions.volumes.get(&version.volume) else { continue };
            for (block, count) in ranges.into_iter().take(QUARANTINED_RANGES_MAX) {
                found.push(QuarantinedRange {
                    volume: volume.name.clone(),
                    snapshot: version.snapshot.as_ref().map(|s| s.name.clone()),
                    block,
                    count,
                });
            }
        }
        found.sort();
        Ok(found)
    }

    /// Ranges of one version, in no order. A consistency point waits for readers of long before: so it is walked in steps, each of
    /// which looks at the version as it is then.
    fn quarantined_of(&self, version: u64, damaged: &[DamagedNode]) -> Result<Vec<(u64, u64)>> {
        let view = || {
            let state = self.locked();
            let found = state.versions.versions.get(&version).filter(|v| !v.deleted);
            found.map(|found| state.view(found))
        };
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let mut from = 0;
        while ranges.len() < QUARANTINED_RANGES_MAX {
            let _reading = self.readers.read();
            let Some(view) = view() else { return Ok(Vec::new()) };
            let step = view.quarantined(&self.nodes, from, RANGES_PER_STEP)?;
            let Some((last, count)) = step.last() else { break };
            from = last + count;
            ranges.extend(step);
        }
        let Some(family) = view().map(|view| view.tree.family) else { return Ok(Vec::new()) };
        let of_family: Vec<_> = damaged.iter().filter(|node| node.family == family).collect();
        for nodes in of_family.chunks(NODES_PER_STEP) {
            let _reading = self.readers.read();
            let Some(view) = view() else { return Ok(Vec::new()) };
            for node in nodes {
                let (level, position) = (node.level, node.position);
                let below = view.quarantined_below(&self.nodes, level, position, QUARANTINED_RANGES_MAX)?;
                ranges.extend(below);
            }
        }
        Ok(ranges)
    }

    /// Figures, now.
    pub fn status(&self) -> PoolStatus {
        // Not of the ring itself: whoever has that may wait for a device that does not answer.
        let state = self.locked();
        let (journal_used_bytes, journal_bytes) = (state.ring_used, self.journal_bytes());
        let block = BLOCK_BYTES as u64;
        let (spare, promised) = state.reserved_blocks();
        PoolStatus {
            id: self.id(),
            device: self.device_name(),
            size_bytes: self.pool_blocks() * block,
            free_bytes: state.allocator.free_blocks() * block,
            waiting_bytes: state.allocator.waiting_blocks() * block,
            withheld_bytes: state.allocator.withheld_blocks() * block,
            reserved_bytes: (spare + promised) * block,
            shared_blocks: state.allocator.owners.shared_places(),
            shared_saves_bytes: state.allocator.owners.extra_owners() * block,
            generation: state.generation,
            open_epoch: self.open_epoch,
            journal_opened_at: self.opened_at,
            journal_durable_to: self.durable_to.load(Ordering::Acquire),
            journal_used_bytes,
            journal_bytes,
            overlay_bytes: state.overlay_bytes + state.capturing_overlay_bytes,
            corrupt_blocks: self.counters.corrupt_blocks.load(Ordering::Relaxed),
            unattributed_bytes_max: state.versions.unattributed_blocks_max.min(self.pool_blocks()) * block,
            failed: self.failure(),
            refused_write: self.refused_write.lock().clone().or_else(|| self.refused_point.lock().clone()),
            lacks_room: (state.owed_pairs > 0)
                .then(|| StoreError::NoRoomForPoint { missing_pairs: state.owed_pairs }.to_string()),
        }
    }
}

/// Ranges in order, those that touch or overlap as one.
fn joined(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (block, count) in ranges {
        match joined.last_mut() {
            Some((first, before)) if *first + *before >= block => {
                *before = (*before).max(block + count - *first);
            }
            _ => joined.push((block, count)),
        }
    }
    joined
}
