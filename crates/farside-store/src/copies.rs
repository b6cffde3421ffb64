//! A copy of a pool becomes a pool of its own: its file was copied, or the storage below it made a snapshot. Others must not
//! take the two for each other: not by the pool's identity, not by those of its volumes, and not by the mirrors that both
//! remember.
//!
//! The id in nodes and journal stays, since it is in each of them. For others the pool, and each of its volumes, has
//! another identity, by a mark in the superblock ([`CopyMark`]). The order, and what a crash after each line leaves:
//!
//! 1. nothing is written: the untouched copy
//! 2. the other slot has the mark and the newest point: of two slots the one with the mark counts, so this is a pool of its
//!    own, whose mirrors are still to end
//! 3. both slots have it: as 2
//! 4. its mirrors end, one record after the other: as 2, whoever opens it goes on with that
//! 5. two points without the flag: done
//!
//! Nobody uses the pool before 5.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use farside_format::Superblock;
use farside_format::pins::kept_of;
use farside_format::superblock::CopyMark;
use farside_platform::Randomness;
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::pool::Pool;

/// Stem of the name of the snapshot that the end of a mirror leaves.
const LEFT_BASE: &str = "base";

/// The mark that counts, and whether it is to be written into both slots first. `as_copy`: a new one is wanted.
pub(crate) fn mark(
    newest: &Superblock,
    other: Option<&Superblock>,
    as_copy: bool,
    randomness: &dyn Randomness,
) -> Result<(CopyMark, bool)> {
    let (found, is_half) = newest.mark(other);
    if !as_copy || found.ends_mirrors {
        return Ok((found, is_half));
    }
    let number = found.number.checked_add(1);
    let number = number.ok_or_else(|| StoreError::Refused("it was copied too often".into()))?;
    let identity = Uuid::from_bytes(randomness.uuid_bytes());
    Ok((CopyMark { number, identity, ends_mirrors: true }, true))
}

impl Pool {
    /// Ends the mirrors that a copy brought along: volumes become ordinary ones that hosts may write to. What persons made
    /// stays; of what mirrors kept, the newest version of each volume stays as `base-TIME`.
    pub(crate) fn end_mirrors_of_copy(self: &Arc<Self>) -> Result<()> {
        self.drop_staged(None)?;
        for volume in self.volumes() {
            let (name, snapshots) = (&volume.name, self.snapshots(&volume.name)?);
            let is_taken = |s: &&crate::SnapshotStatus| s.relationship.is_some();
            let newest = snapshots.iter().rev().find(|s| is_taken(s) && s.on_main_line).map(|s| s.uuid);
            for snapshot in &snapshots {
                // What retention keeps was wanted for longer than its mirror: it stays as a person's.
                let by_retention = |of: &Uuid| snapshot.pinned_by.contains(&kept_of(*of));
                let is_kept =
                    snapshot.relationship.as_ref().is_some_and(by_retention) && newest != Some(snapshot.uuid);
                if is_kept {
                    self.describe_snapshot(name, snapshot.uuid, |s| s.relationship.clear())?;
                }
                for relationship in &snapshot.pinned_by {
                    self.unpin_snapshot(name, snapshot.uuid, *relationship)?;
                }
                match is_taken(&snapshot) && !is_kept && newest != Some(snapshot.uuid) {
                    false => {}
                    true if snapshot.held => {
                        self.describe_snapshot(name, snapshot.uuid, |s| s.relationship.clear())?;
                    }
                    true => self.delete_snapshot(name, snapshot.uuid)?,
                }
            }
            // Last of the snapshots: begun anew, this finds no other that is the newest.
            if let Some(newest) = newest {
                self.hand_over(name, newest, None, LEFT_BASE, None)?;
            }
            if let Some(replica) = &volume.replica {
                tracing::info!(pool = %self.id(), volume = name, source = replica.source, "the copy's mirror has ended");
                self.set_replica(name, None)?;
            }
        }
        self.ends_mirrors.store(false, Ordering::Release);
        // The older point must not lead to all of this once more.
        self.consistency_point()?;
        self.consistency_point()
    }

    /// The mark for the next superblock.
    pub(crate) fn copy_mark(&self) -> CopyMark {
        CopyMark { ends_mirrors: self.ends_mirrors.load(Ordering::Acquire), ..self.copy }
    }
}
