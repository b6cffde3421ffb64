//! Undoing it: each block of a volume gets a place of its own again.
//!
//! A block is read, verified and written under its stripe, which is held alone: no host writes there meanwhile, and one that waits does
//! so for 64 KiB. What is done is done; whoever begins again finds less. Snapshots keep what they have.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use farside_format::Birth;
use farside_format::fingerprint::FAN_OUT;
use farside_platform::{BLOCK_BYTES, BlockBuffer};
use uuid::Uuid;

use super::member::{LEAVES_PER_STEP, Member, check_member, head_view};
use crate::error::Result;
use crate::io::{Extent, stripe_of};
use crate::pool::Pool;
use crate::space::SpaceClass;

/// Blocks that are copied while hosts wait for their stripe.
const BLOCKS_AT_ONCE: u64 = 16;

/// What was undone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DedupUndone {
    /// Blocks looked at.
    pub scanned_blocks: u64,
    /// Blocks that have a place of their own since.
    pub copied_blocks: u64,
    /// Blocks that cannot be read, and stay shared.
    pub damaged_blocks: u64,
}

/// An undoing under way.
pub struct DedupUndo {
    pool: Arc<Pool>,
    volume: Uuid,
    leaf: u64,
    undone: DedupUndone,
    is_done: bool,
}

impl Pool {
    /// Begins to give each block of a volume a place of its own. A consistency point comes first: who owned a block before it was
    /// overwritten counts until then.
    ///
    /// # Errors
    /// As [`Pool::begin_dedup`].
    pub fn begin_dedup_undo(self: &Arc<Self>, volume: Uuid) -> Result<DedupUndo> {
        self.check_usable()?;
        check_member(&self.locked(), volume)?;
        self.point_for_dedup()?;
        let (pool, undone) = (Arc::clone(self), DedupUndone::default());
        Ok(DedupUndo { pool, volume, leaf: 0, undone, is_done: false })
    }

    /// Bytes that may be taken for it now: what is left for hosts, less what is reserved for them alone.
    pub fn dedup_undo_room(&self) -> u64 {
        let reserve = self.host_reserve_blocks() * BLOCK_BYTES as u64;
        self.room().for_hosts_bytes.saturating_sub(reserve)
    }
}

impl DedupUndo {
    /// Goes on by 4 MiB of the volume; false at its end. `pace` as in [`super::Dedup::step`].
    ///
    /// # Errors
    /// No room ([`StoreError::NoSpace`](crate::StoreError::NoSpace)): what was copied stays so. The volume was deleted, or became a replica; those of the device.
    pub fn step(&mut self, pace: &mut dyn FnMut(u64)) -> Result<bool> {
        self.pool.check_usable()?;
        if self.is_done {
            return Ok(false);
        }
        let member = check_member(&self.pool.locked(), self.volume)?;
        let Some((runs, scanned, next)) = self.shared_runs(member, pace)? else { return Ok(true) };
        for (first, count) in runs {
            let mut at = first;
            while at < first + count {
                // Within one stripe.
                let piece = (BLOCKS_AT_ONCE - at % BLOCKS_AT_ONCE).min(first + count - at);
                let bytes = self.copy(member, at, piece)?;
                pace(bytes);
                at += piece;
            }
        }
        self.undone.scanned_blocks += scanned;
        match next {
            Some(next) => self.leaf = next,
            None => {
                // What was shared is known to be only one's own with the next point, and figures tell so.
                self.pool.point_for_dedup()?;
                self.is_done = true;
            }
        }
        Ok(!self.is_done)
    }

    /// What was undone so far.
    pub fn undone(&self) -> DedupUndone {
        self.undone
    }

    /// Which part of it is done, 0 to 1.
    pub fn done_part(&self) -> Option<f64> {
        let state = self.pool.locked();
        let head = check_member(&state, self.volume).ok()?.head;
        let size_bytes = state.versions.versions.get(&head)?.size_bytes;
        let leaves = crate::versions::blocks(size_bytes).div_ceil(FAN_OUT as u64).max(1);
        Some(if self.is_done { 1.0 } else { self.leaf.min(leaves) as f64 / leaves as f64 })
    }

    /// Runs of blocks that have several owners, in the next leaves; how many were looked at, and where to go on. None if the head was
    /// replaced at this moment.
    #[allow(clippy::type_complexity)] // Used once, above.
    fn shared_runs(
        &self,
        member: Member,
        pace: &mut dyn FnMut(u64),
    ) -> Result<Option<(Vec<(u64, u64)>, u64, Option<u64>)>> {
        let nodes = &self.pool.nodes;
        let reads = nodes.reads();
        let mut blocks = Vec::with_capacity(LEAVES_PER_STEP * FAN_OUT);
        let next = {
            let _reading = self.pool.readers.read();
            let Some(view) = head_view(&self.pool, member) else { return Ok(None) };
            let mut left = LEAVES_PER_STEP;
            view.visit_leaves_since(nodes, Birth(0), self.leaf, &mut left, &mut |leaf, spot| {
                let pointers = spot.leaf(nodes, view.tree)?;
                let numbered = pointers.into_iter().zip(leaf * FAN_OUT as u64..);
                blocks.extend(numbered.filter(|(p, _)| !p.is_hole() && !p.is_lost()));
                Ok(())
            })?
        };
        let mut runs: Vec<(u64, u64)> = Vec::new();
        {
            let state = self.pool.locked();
            for (pointer, block) in &blocks {
                if state.allocator.owners.extra(pointer.place) == 0 {
                    continue;
                }
                match runs.last_mut() {
                    Some((first, count)) if *first + *count == *block => *count += 1,
                    _ => runs.push((*block, 1)),
                }
            }
        }
        pace(nodes.reads().saturating_sub(reads) * BLOCK_BYTES as u64);
        Ok(Some((runs, blocks.len() as u64, next)))
    }

    /// Copies the blocks of a piece that are still shared; the bytes read and written.
    fn copy(&mut self, member: Member, first: u64, count: u64) -> Result<u64> {
        let pool = Arc::clone(&self.pool);
        // Alone: nothing is written there between the reading and the writing.
        let _stripe = pool.stripes[stripe_of(member.head, first)].write();
        let mut pointers = Vec::with_capacity(count as usize);
        {
            let _reading = pool.readers.read();
            let Some(view) = head_view(&pool, member) else { return Ok(0) };
            view.lookup(&pool.nodes, first, count, &mut pointers)?;
        }
        let shared: Vec<bool> = {
            let state = pool.locked();
            let owners = &state.allocator.owners;
            pointers.iter().map(|p| !p.is_hole() && !p.is_lost() && owners.extra(p.place) > 0).collect()
        };
        let mut bytes = 0;
        let mut at = 0;
        while at < shared.len() {
            let run = shared[at..].iter().take_while(|shared| **shared).count();
            if run == 0 {
                at += 1;
                continue;
            }
            bytes += self.copy_run(member, first + at as u64, run)?;
            at += run;
        }
        Ok(bytes)
    }

    /// All at once; where that cannot be read, block by block.
    fn copy_run(&mut self, member: Member, first: u64, count: usize) -> Result<u64> {
        let pool = Arc::clone(&self.pool);
        let mut data = BlockBuffer::zeroed(count);
        if pool.read_piece(member.head, first * BLOCK_BYTES as u64, &mut data).is_err() {
            if count == 1 {
                self.undone.damaged_blocks += 1;
                return Ok(BLOCK_BYTES as u64);
            }
            let mut bytes = 0;
            for block in first..first + count as u64 {
                bytes += self.copy_run(member, block, 1)?;
            }
            return Ok(bytes);
        }
        pool.write_extents(member.head, &[Extent { first, bytes: &data }], SpaceClass::Staging)?;
        self.undone.copied_blocks += count as u64;
        let bytes = data.len() as u64;
        pool.counters.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        pool.counters.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(2 * bytes)
    }
}

const _: () = assert!(crate::io::PIECE_BLOCKS.is_multiple_of(BLOCKS_AT_ONCE));
