//! A pool that becomes larger, while it is used.
//!
//! Either superblock alone must open the pool, and an older one knows a smaller pool. So what is new is given out only when both
//! know of it: the device grows, two consistency points say the new size, and then allocation reaches there. A crash between
//! leaves the old size, or two superblocks of different sizes; an opening that finds those makes one more point.

use farside_format::Superblock;
use farside_platform::BLOCK_BYTES;

use crate::error::{Result, StoreError};
use crate::point::writer_blocks;
use crate::pool::{Pool, SystemTrees};
use crate::space::spare_pairs_kept;

impl Pool {
    /// Bytes of the whole blocks of the device, as it is now: it may have been made larger since it was opened.
    pub fn device_bytes(&self) -> Result<u64> {
        self.device.grow(0)?;
        Ok(self.device.bytes())
    }

    /// Makes the pool as large as `bytes`, which are rounded down to whole blocks; a file is made longer, a raw device has to be so
    /// large already. Hosts go on meanwhile. Answers the size that the pool has then, bytes. A pool never shrinks.
    ///
    /// # Errors
    /// [`StoreError::Refused`] for a size below the present one, [`StoreError::Device`] if the device cannot be as large,
    /// or lacks room below for that; then the pool is as before. [`StoreError::NoRoomForPoint`] if the pool lacks room to write down its
    /// new size; then it is taken up with the next call, or the next opening.
    pub fn grow(&self, bytes: u64) -> Result<u64> {
        let mut system = self.maintenance.lock();
        self.check_usable()?;
        let (now, blocks) = (self.pool_blocks(), bytes / BLOCK_BYTES as u64);
        if blocks < now {
            return Err(StoreError::Refused(format!(
                "a pool never shrinks: it has {} bytes, and {bytes} are asked for",
                now * BLOCK_BYTES as u64
            )));
        }
        if blocks > Superblock::POOL_BLOCKS_MAX {
            return Err(StoreError::Invalid(format!(
                "a pool has {} bytes at most, and {bytes} are asked for",
                Superblock::POOL_BLOCKS_MAX * BLOCK_BYTES as u64
            )));
        }
        self.device.grow(blocks * BLOCK_BYTES as u64)?;
        if blocks > now {
            let mut state = self.locked();
            state.allocator.extend(blocks);
            self.set_pool_blocks(blocks);
        }
        match self.tell_both_superblocks(&mut system) {
            // No superblock knows of it, nothing is in doubt and nothing of it was given out: it is as before. The file stays longer,
            // which nobody sees.
            Err(error)
                if error.is_full_below()
                    && self.check_usable().is_ok()
                    && system.published.pool_blocks <= now =>
            {
                let mut state = self.locked();
                state.allocator.retract(now);
                self.set_pool_blocks(now);
                Err(error)
            }
            told => told.map(|()| blocks * BLOCK_BYTES as u64),
        }
    }

    /// Gives out what is withheld, once both superblocks know of it.
    fn tell_both_superblocks(&self, system: &mut SystemTrees) -> Result<()> {
        if !self.locked().allocator.withholds() {
            return Ok(());
        }
        for _ in 0..2 {
            self.point(system)?;
        }
        self.give_out_all();
        Ok(())
    }

    /// After an opening that found superblocks of different sizes: the older one learns the new size.
    pub(crate) fn finish_growth(&self) -> Result<()> {
        let mut system = self.maintenance.lock();
        if self.locked().allocator.withholds() {
            self.point(&mut system)?;
            self.give_out_all();
        }
        Ok(())
    }

    fn give_out_all(&self) {
        let mut state = self.locked();
        state.allocator.give_out_all();
        state.spare_pairs_kept = spare_pairs_kept(self.pool_blocks());
        let catalog_bytes = usize::try_from(state.catalog_bytes).expect("a catalog fits into memory");
        state.system_blocks = writer_blocks(catalog_bytes, state.allocator.chunks());
        // Whoever was told that the pool is full may look again.
        state.changed += 1;
        state.room_given_back.notify_all();
    }
}
