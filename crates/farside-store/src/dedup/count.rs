//! What sharing saves a volume: counted by a walk over its map.
//!
//! A place with *n* owners saves *n* − 1 places; each owner has an *n*-th of that. So volumes add up to what the pool saves, as far as
//! snapshots and staged versions have no part in it.

use std::sync::Arc;

use farside_format::Birth;
use farside_platform::BLOCK_BYTES;
use uuid::Uuid;

use super::member::{LEAVES_PER_STEP, check_member, head_view};
use crate::error::Result;
use crate::pool::Pool;

/// What was counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DedupSavings {
    /// Blocks of the volume.
    pub blocks: u64,
    /// Of those, blocks that lie at a place with several owners. To give each a place of its own takes at most so many blocks.
    pub shared_blocks: u64,
    /// What the volume's part in it saves, bytes.
    pub saved_bytes: u64,
}

/// A count under way.
pub struct DedupCount {
    pool: Arc<Pool>,
    volume: Uuid,
    leaf: u64,
    counted: DedupSavings,
    /// 1/65536 of a block.
    saved: u128,
}

impl Pool {
    /// Begins to count what sharing saves a volume. A consistency point comes first: who owned a block before it was overwritten counts
    /// until then.
    ///
    /// # Errors
    /// As [`Pool::begin_dedup`].
    pub fn begin_dedup_count(self: &Arc<Self>, volume: Uuid) -> Result<DedupCount> {
        self.check_usable()?;
        check_member(&self.locked(), volume)?;
        self.point_for_dedup()?;
        let pool = Arc::clone(self);
        Ok(DedupCount { pool, volume, leaf: 0, counted: DedupSavings::default(), saved: 0 })
    }
}

impl DedupCount {
    /// Goes on by 4 MiB of the volume; the result at its end. `pace` as in [`super::Dedup::step`].
    ///
    /// # Errors
    /// The volume was deleted, or became a replica; those of the device.
    pub fn step(&mut self, pace: &mut dyn FnMut(u64)) -> Result<Option<DedupSavings>> {
        self.pool.check_usable()?;
        let member = check_member(&self.pool.locked(), self.volume)?;
        let nodes = &self.pool.nodes;
        let reads = nodes.reads();
        let mut places = Vec::with_capacity(LEAVES_PER_STEP * farside_format::FAN_OUT);
        let next = {
            let _reading = self.pool.readers.read();
            let Some(view) = head_view(&self.pool, member) else { return Ok(None) };
            let mut left = LEAVES_PER_STEP;
            view.visit_leaves_since(nodes, Birth(0), self.leaf, &mut left, &mut |_, spot| {
                let pointers = spot.leaf(nodes, view.tree)?;
                places.extend(pointers.iter().filter(|p| !p.is_hole() && !p.is_lost()).map(|p| p.place));
                Ok(())
            })?
        };
        self.counted.blocks += places.len() as u64;
        {
            let state = self.pool.locked();
            let owners = &state.allocator.owners;
            for extra in places.iter().map(|place| owners.extra(*place)).filter(|extra| *extra > 0) {
                self.counted.shared_blocks += 1;
                self.saved += u128::from(extra) * 65536 / (u128::from(extra) + 1);
            }
        }
        pace(nodes.reads().saturating_sub(reads) * BLOCK_BYTES as u64);
        let Some(next) = next else {
            let saved_bytes = u64::try_from(self.saved * BLOCK_BYTES as u128 / 65536).unwrap_or(u64::MAX);
            return Ok(Some(DedupSavings { saved_bytes, ..self.counted }));
        };
        self.leaf = next;
        Ok(None)
    }
}
