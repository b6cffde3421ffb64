//! What a mirror needs of a volume.

use std::sync::Arc;

use farside_format::{ContentRoot, Fingerprint};
use farside_platform::Timestamp;
use uuid::Uuid;

use crate::capabilities::{Branches, KnownData, Subtrees, Together};
use crate::capability::Capability;
use crate::difference::{ChangedBytes, ChangedExtents};
use crate::error::EngineError;
use crate::names::VolumeName;
use crate::snapshot::{OpenSnapshot, SnapshotInfo, SnapshotOwner, SnapshotSpec};
use crate::staged::{StagedFor, StagedVersion, StagedVersions};
use crate::volume::{Capacity, ReplicaRecord, StagingRoom, VolumeInfo};

/// Volumes of some pools: what every engine has. What only some have is asked for by [`branches`](Self::branches) and those after it.
pub trait Engine: Send + Sync + 'static {
    /// Whether a pool of this name is this engine's, and can be reached now.
    fn has_pool(&self, pool: &str) -> bool;
    /// One volume.
    fn volume(&self, volume: &VolumeName) -> Result<VolumeInfo, EngineError>;
    /// All volumes that can be reached now.
    fn volumes(&self) -> Result<Vec<VolumeName>, EngineError>;
    /// Those of one pool; an error if it cannot be reached.
    fn volumes_of(&self, pool: &str) -> Result<Vec<VolumeName>, EngineError> {
        if !self.has_pool(pool) {
            return Err(EngineError::NotFound { what: format!("pool {pool}") });
        }
        Ok(self.volumes()?.into_iter().filter(|volume| volume.pool == pool).collect())
    }
    /// Makes a thin volume of `size_bytes` bytes.
    fn create_volume(&self, volume: &VolumeName, size_bytes: u64) -> Result<VolumeInfo, EngineError>;
    /// Deletes a volume and its snapshots; refused while somebody has it open, or a snapshot is held or pinned.
    fn delete_volume(&self, volume: &VolumeName) -> Result<(), EngineError>;
    /// Snapshots of a volume on its main line, oldest first: the newest of what mirrors published is what readers see. Without
    /// [`Branches`] these are all there are, in the order in which they were made here.
    fn snapshots(&self, volume: &VolumeName) -> Result<Vec<SnapshotInfo>, EngineError>;
    /// Takes a snapshot: covers everything answered to hosts before, and is durable when this returns.
    fn take_snapshot(&self, volume: &VolumeName, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError>;
    /// Deletes a snapshot; refused while pinned or held.
    fn delete_snapshot(&self, volume: &VolumeName, snapshot: Uuid) -> Result<(), EngineError>;
    /// Pins a snapshot for a relationship, durably. Pinning twice is once.
    fn pin(&self, volume: &VolumeName, snapshot: Uuid, relationship: Uuid) -> Result<(), EngineError>;
    /// Takes a pin away, durably. An absent pin is no error.
    fn unpin(&self, volume: &VolumeName, snapshot: Uuid, relationship: Uuid) -> Result<(), EngineError>;
    /// Makes a snapshot a person's, durably, whoever it was taken for: from now on only a person removes it.
    fn make_user_snapshot(&self, volume: &VolumeName, snapshot: Uuid) -> Result<(), EngineError>;
    /// Gives a snapshot to another owner, and the name `stem` with the moment, in one durable record: what a mirror leaves to a
    /// person is then not named as if a mirror kept it. The moment is `moment` where one is given: what one command sets aside of
    /// several volumes has one. Answers what it is now.
    fn hand_over(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        owner: SnapshotOwner,
        stem: &str,
        moment: Option<Timestamp>,
    ) -> Result<SnapshotInfo, EngineError>;
    /// The content root of a snapshot; computed on first asking if need be. From metadata, if there is metadata that can be
    /// trusted: else everything is read once, and the root kept.
    fn content_root(&self, volume: &VolumeName, snapshot: Uuid) -> Result<ContentRoot, EngineError>;
    /// Whether part of a snapshot is known not to be readable, because its metadata is damaged. A snapshot can have a content root
    /// and be damaged: the root says what it was.
    fn is_damaged(&self, _volume: &VolumeName, _snapshot: Uuid) -> Result<bool, EngineError> {
        Ok(false)
    }
    /// What `incremental` has that `base` has not, either of them the older; against nothing at all (every allocated block) without
    /// a base. Exact, or safely larger: everything that differs is in it, and nothing is called a hole that does not read as zeros.
    /// What is in it and does not differ costs a mirror reading and comparing, never a wrong byte.
    fn changed_extents(
        &self,
        volume: &VolumeName,
        base: Option<Uuid>,
        incremental: Uuid,
    ) -> Result<ChangedExtents, EngineError>;
    /// Reads and verifies a range of a snapshot. Ranges past its end read as zeros.
    fn read_snapshot(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), EngineError>;
    /// Reads and verifies many ranges of a snapshot, (first block, blocks) each, one behind the other into `buffer`, which has
    /// just their size. Blocks past its end read as zeros. An engine that knows where they lie reads them in that order, and
    /// several at a time.
    fn read_snapshot_ranges(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        ranges: &[(u64, u64)],
        buffer: &mut [u8],
    ) -> Result<(), EngineError> {
        self.open_snapshot(volume, snapshot)?.read_ranges(ranges, buffer)
    }
    /// Opens a snapshot without being in anybody's way: while the answer lives it stays readable there, and snapshot and volume
    /// can be deleted all the same; the space comes free afterwards. Nothing of it is durable.
    fn open_snapshot(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
    ) -> Result<Arc<dyn OpenSnapshot>, EngineError>;
    /// Begins the next version of a replica aside: a copy of `base` (a snapshot of it), or nothing but holes. An engine may have
    /// room for one at a time, and refuse another.
    fn stage(
        &self,
        volume: &VolumeName,
        base: Option<Uuid>,
        size_bytes: u64,
        staged_for: StagedFor,
    ) -> Result<Arc<dyn StagedVersion>, EngineError>;
    /// Staged versions that earlier transfers left, newest last. Each holds at least what its last checkpoint covered.
    fn staged(&self, volume: &VolumeName) -> Result<StagedVersions, EngineError>;
    /// How the volume as hosts see it now differs from `snapshot`; nothing is changed. What hosts write meanwhile may be counted or
    /// not. It is nothing just if nothing differs: an engine whose differences are larger compares what is in them.
    fn changed_since(&self, volume: &VolumeName, snapshot: Uuid) -> Result<ChangedBytes, EngineError>;
    /// Bytes of data that `snapshot` holds and the volume as hosts see it does not: about what keeping it costs. Nothing is
    /// changed. As provided, rather too much: what hosts wrote where nothing was counts too.
    fn kept_bytes(&self, volume: &VolumeName, snapshot: Uuid) -> Result<u64, EngineError> {
        let changed = self.changed_since(volume, snapshot)?;
        Ok(changed.data_bytes.saturating_add(changed.hole_bytes))
    }
    /// The capacity of a pool; none if this engine cannot tell.
    fn capacity(&self, _pool: &str) -> Result<Option<Capacity>, EngineError> {
        Ok(None)
    }
    /// What transfers may still bring into a volume; none if this engine cannot tell, and they begin and see. The volume need not be
    /// there yet.
    fn staging_room(&self, _volume: &VolumeName) -> Result<Option<StagingRoom>, EngineError> {
        Ok(None)
    }
    /// Whether hosts have written to the volume since `snapshot` was taken, for an engine that can tell even if they wrote
    /// what was there. What they wrote would stay as a rescue when another version takes its place.
    fn is_written_since(&self, volume: &VolumeName, snapshot: Uuid) -> Result<bool, EngineError> {
        Ok(self.changed_since(volume, snapshot)? != ChangedBytes::default())
    }
    /// Fingerprints of `count` blocks of a snapshot from block `first` on, at most [`FINGERPRINTS_MAX`](crate::FINGERPRINTS_MAX); past
    /// the end: holes. From metadata, if there is metadata that can be trusted: else the blocks are read and hashed, which is slow and
    /// never wrong.
    fn fingerprints(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        first: u64,
        count: u64,
    ) -> Result<Vec<Fingerprint>, EngineError>;
    /// Throws away every staged version of a volume: what a crash left behind. Answers how many there were.
    fn abandon_staged(&self, volume: &VolumeName) -> Result<usize, EngineError>;
    /// The replica record of a volume, if it is one.
    fn replica_record(&self, volume: &VolumeName) -> Result<Option<ReplicaRecord>, EngineError>;
    /// Sets or removes the replica record, durably. A volume with a record that is not broken off is read-only to
    /// hosts.
    fn set_replica_record(
        &self,
        volume: &VolumeName,
        record: Option<ReplicaRecord>,
    ) -> Result<(), EngineError>;
    /// Removes the replica record, durably, if it is this relationship's and broken off at this very moment. Answers whether it was.
    fn end_replica_record(&self, volume: &VolumeName, relationship: Uuid) -> Result<bool, EngineError>;

    /// Versions of the pool's volumes beside their main lines, if this engine has such.
    fn branches(&self, _pool: &str) -> Option<&dyn Branches> {
        None
    }
    /// Several volumes of the pool changed by one record, if this engine can.
    fn together(&self, _pool: &str) -> Option<&dyn Together> {
        None
    }
    /// Data found by its content for volumes of the pool, if this engine finds any.
    fn known_data(&self, _pool: &str) -> Option<&dyn KnownData> {
        None
    }
    /// Fingerprints of whole spans of the pool's volumes, if this engine keeps such.
    fn subtrees(&self, _pool: &str) -> Option<&dyn Subtrees> {
        None
    }

    /// All live snapshots, those beside the main line included; oldest first.
    fn all_snapshots(&self, volume: &VolumeName) -> Result<Vec<SnapshotInfo>, EngineError> {
        match self.branches(&volume.pool) {
            Some(branches) => branches.of_all_branches(volume),
            None => self.snapshots(volume),
        }
    }
}

impl dyn Engine + '_ {
    /// [`Engine::together`], or the error that says what for want of it was not done.
    pub fn need_together(&self, pool: &str, what: &str) -> Result<&dyn Together, EngineError> {
        self.together(pool).ok_or_else(|| lacks(pool, Capability::Together, what))
    }
}

fn lacks(pool: &str, capability: Capability, what: &str) -> EngineError {
    EngineError::Lacks { pool: pool.into(), capability, what: what.into() }
}
