//! How much transfers may bring where the file system below the pool's file is shorter than the pool.
//!
//! What they bring first takes what the file has and the pool does not use, then what the file system has left; of that some stays
//! free, since whatever else lies there has to go on: the site's own database, as often as not. A transfer is refused before it
//! begins if it does not fit, and stopped where it turns out on the way, or where several together do not fit.

use farside_platform::{BLOCK_BYTES, FileRoom};

use crate::error::{Result, StoreError};
use crate::pool::Pool;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The part of a file system that stays free for others, its least and its most.
const KEPT_SHARE: u64 = 100;
const KEPT_BYTES_MIN: u64 = 16 << 20;
const KEPT_BYTES_MAX: u64 = 256 << 20;
/// Of a very small one no more than this part.
const KEPT_SHARE_MAX: u64 = 8;
/// So many blocks are staged before anybody looks again.
const LOOK_EVERY_BLOCKS: u64 = 1024;

/// What transfers find on the file system below a pool's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StagingBelow {
    /// Bytes that transfers may bring.
    pub room_bytes: u64,
    /// Bytes that the file system has left.
    pub left_bytes: u64,
}

/// Bytes of a file system that transfers leave to others.
fn kept_for_others(file_system_bytes: u64) -> u64 {
    (file_system_bytes / KEPT_SHARE)
        .clamp(KEPT_BYTES_MIN, KEPT_BYTES_MAX)
        .min(file_system_bytes / KEPT_SHARE_MAX)
}

/// What may be brought into a pool that uses so many bytes, of which `waiting_bytes` are still to be written, and that keeps so many
/// for itself. File systems that compress give a file less than it holds: then only what they have left counts.
fn room(file: FileRoom, used_bytes: u64, waiting_bytes: u64, kept_bytes: u64) -> u64 {
    let written = used_bytes.saturating_sub(waiting_bytes);
    let again = file.taken_bytes.saturating_sub(written);
    let new = file.left_bytes.saturating_sub(kept_for_others(file.file_system_bytes));
    again.saturating_add(new).saturating_sub(waiting_bytes.saturating_add(kept_bytes))
}

impl Pool {
    /// What transfers find below the pool's file; none if it lies on no file system, or that cannot be told. What the next
    /// consistency points will free counts as free.
    pub fn staging_room_below(&self) -> Option<StagingBelow> {
        self.look_for_staging(true)
    }

    fn look_for_staging(&self, frees_soon: bool) -> Option<StagingBelow> {
        let file = self.device.file_room()?;
        let behind_bytes = self.behind.bytes();
        let state = self.locked();
        let allocator = &state.allocator;
        let soon = if frees_soon { allocator.waiting_blocks() } else { 0 };
        let used = allocator.pool_blocks() - allocator.withheld_blocks() - (allocator.free_blocks() + soon);
        let kept = 2 * self.own_blocks(&state) + state.promised_blocks();
        drop(state);
        let room_bytes = room(file, used * BLOCK, behind_bytes, kept * BLOCK);
        Some(StagingBelow { room_bytes, left_bytes: file.left_bytes })
    }

    /// Refuses to stage what would take the last room of the file system below. It looks now and then only.
    pub(crate) fn admit_staging_below(&self, blocks: u64) -> Result<()> {
        if self.staging_allowance.take(blocks) {
            return Ok(());
        }
        let Some(below) = self.look_for_staging(false) else {
            self.staging_allowance.set(LOOK_EVERY_BLOCKS);
            return Ok(());
        };
        let room = below.room_bytes / BLOCK;
        if room < blocks {
            self.staging_allowance.set(0);
            return Err(StoreError::NoSpace {
                needed_bytes: blocks * BLOCK,
                available_bytes: below.room_bytes,
            });
        }
        // Of what is left half is given out at most: others stage at the same time, and hosts write.
        self.staging_allowance.set(((room - blocks) / 2).min(LOOK_EVERY_BLOCKS));
        Ok(())
    }

    /// What was refused for want of room, said of the file system where that is what has none.
    pub(crate) fn said_of_below(&self, refused: StoreError) -> StoreError {
        let StoreError::NoSpace { needed_bytes, .. } = refused else { return refused };
        match self.look_for_staging(false) {
            Some(below) if below.room_bytes < needed_bytes => {
                StoreError::NoSpaceBelow { device: self.device.name(), left_bytes: below.left_bytes }
            }
            _ => refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn file(taken: u64, left: u64, all: u64) -> FileRoom {
        FileRoom { taken_bytes: taken * MIB, left_bytes: left * MIB, file_system_bytes: all * MIB }
    }

    #[test]
    fn what_the_file_has_is_used_again_and_some_of_the_rest_is_left_to_others() {
        assert_eq!(room(file(100, 50, 1024), 100 * MIB, 0, 0), 34 * MIB);
        assert_eq!(room(file(100, 50, 1024), 60 * MIB, 0, 0), 74 * MIB);
        assert_eq!(room(file(100, 50, 1024), 60 * MIB, 0, 4 * MIB), 70 * MIB);
        // What waits in memory is used, and has no room yet.
        assert_eq!(room(file(100, 50, 1024), 108 * MIB, 8 * MIB, 0), 26 * MIB);
        assert_eq!(room(file(100, 3, 1024), 100 * MIB, 0, 0), 0);
        assert_eq!(room(file(100, 0, 1024), 40 * MIB, 0, 0), 60 * MIB, "a file that has all of it");
        assert_eq!(room(file(50, 116, 1024), 100 * MIB, 0, 0), 100 * MIB, "it is compressed there");
    }

    #[test]
    fn a_hundredth_is_kept_and_some_mebibytes_at_least() {
        assert_eq!(kept_for_others(48 * MIB), 6 * MIB);
        assert_eq!(kept_for_others(1024 * MIB), 16 * MIB);
        assert_eq!(kept_for_others(10_000 * MIB), 100 * MIB);
        assert_eq!(kept_for_others(1 << 44), 256 * MIB);
    }
}
