//! An open pool sees to it that nobody else writes it: it renews its claim, and looks at the superblocks before it writes one.

use std::sync::Arc;

use farside_format::Superblock;
use farside_format::superblock::SUPERBLOCK_PLACES;
use parking_lot::{Condvar, Mutex};

use crate::claim::{Claim, Claimed, Kept, Shared, beat};
use crate::error::{Result, StoreError};
use crate::pool::{Pool, SystemTrees};
use crate::recovery::read_superblock;

impl Pool {
    /// Writes the claim anew from now on, if there is one.
    pub(crate) fn keep_claim(self: &Arc<Self>, claim: Option<Claim>) -> Result<()> {
        let Some(mut claim) = claim else { return Ok(()) };
        claim.is_kept = true;
        let (note, interval) = (claim.note.clone(), claim.interval);
        let kept = Kept { note, doubted: claim.doubted.take(), is_ended: false, is_lost: false };
        let shared = Arc::new(Shared { note: Mutex::new(kept), ended: Condvar::new() });
        let (weak, for_thread) = (Arc::downgrade(self), Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("farside-claim".into()).spawn(move || {
            let mut kept = for_thread.note.lock();
            let mut is_told = false;
            loop {
                if !kept.is_ended {
                    for_thread.ended.wait_for(&mut kept, interval);
                }
                if kept.is_ended {
                    return;
                }
                let Some(pool) = weak.upgrade() else { return };
                let Kept { note, doubted, .. } = &mut *kept;
                match beat(&*pool.device, note, doubted) {
                    Ok(None) => is_told = false,
                    Ok(Some(what)) => {
                        kept.is_lost = true;
                        let _: Result<()> =
                            pool.latch(Err(StoreError::TakenOver { device: pool.device.name(), what }));
                        // If this is the last handle the pool ends here, and asks for the lock.
                        drop(kept);
                        drop(pool);
                        return;
                    }
                    // Nobody has taken it, as far as is known; what a host writes will fail as well, and latch the pool.
                    Err(error) if !is_told => {
                        is_told = true;
                        tracing::warn!(
                            device = pool.device.name(),
                            "the pool's claim cannot be renewed: {error}"
                        );
                    }
                    Err(_) => {}
                }
                // The last handle may be this one: then the pool ends here, and so does what waits for this thread.
                drop(kept);
                drop(pool);
                kept = for_thread.note.lock();
            }
        });
        let thread =
            thread.map_err(|e| StoreError::Inconsistent(format!("no thread could be started: {e}")))?;
        *self.claimed.lock() =
            Some(Claimed { device: Arc::clone(&self.device), shared, thread: Some(thread) });
        Ok(())
    }

    /// Whether the superblocks are those that this opening wrote or found. To be asked before one is written: another writer's
    /// would be lost, and it would go on in places that are free to it and taken here. A slot that cannot be read, or is
    /// damaged, proves nobody; it is healed by what is written.
    pub(crate) fn check_alone(&self, system: &SystemTrees, generation: u64) -> Result<()> {
        let slot = |slot: usize| read_superblock(&*self.device, SUPERBLOCK_PLACES[slot]).ok()?.ok();
        let newest = slot(system.newest_slot).filter(|found| *found != system.published);
        let is_newer = |found: &Superblock| {
            found.pool != self.id || found.generation >= generation || found.open_epoch > self.open_epoch
        };
        let Some(found) = newest.or_else(|| slot(1 - system.newest_slot).filter(is_newer)) else {
            return Ok(());
        };
        let what = if found.pool == self.id {
            format!(
                "its consistency point {} of opening {} is there, this one is opening {}",
                found.generation, found.open_epoch, self.open_epoch
            )
        } else {
            format!("another pool ({}) is there", found.pool)
        };
        Err(StoreError::TakenOver { device: self.device.name(), what })
    }
}
