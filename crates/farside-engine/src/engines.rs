//! The engines of a site as one: each pool is one engine's, and every call goes to that of the volume's pool.
//!
//! A site says here, once, which engines it has: that is all of the registration of a new one.

use std::sync::Arc;

use farside_format::{ContentRoot, Fingerprint};
use farside_platform::Timestamp;
use uuid::Uuid;

use crate::capabilities::{Branches, KnownData, Subtrees, Together};
use crate::difference::{ChangedBytes, ChangedExtents};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::names::VolumeName;
use crate::snapshot::{OpenSnapshot, SnapshotInfo, SnapshotOwner, SnapshotSpec};
use crate::staged::{StagedFor, StagedVersion, StagedVersions};
use crate::volume::{Capacity, ReplicaRecord, StagingRoom, VolumeInfo};

/// Several engines. Of two that have a pool of one name the first has it.
pub struct Engines(Vec<Arc<dyn Engine>>);

impl Engines {
    /// Of these.
    pub fn new(engines: Vec<Arc<dyn Engine>>) -> Engines {
        Engines(engines)
    }

    fn find(&self, pool: &str) -> Option<&dyn Engine> {
        self.0.iter().find(|engine| engine.has_pool(pool)).map(|engine| &**engine)
    }

    fn of(&self, pool: &str) -> Result<&dyn Engine, EngineError> {
        self.find(pool).ok_or_else(|| EngineError::NotFound { what: format!("pool {pool}") })
    }
}

impl Engine for Engines {
    fn has_pool(&self, pool: &str) -> bool {
        self.find(pool).is_some()
    }

    fn volume(&self, volume: &VolumeName) -> Result<VolumeInfo, EngineError> {
        self.of(&volume.pool)?.volume(volume)
    }

    fn volumes(&self) -> Result<Vec<VolumeName>, EngineError> {
        let mut all = Vec::new();
        for engine in &self.0 {
            all.extend(engine.volumes()?);
        }
        Ok(all)
    }

    fn volumes_of(&self, pool: &str) -> Result<Vec<VolumeName>, EngineError> {
        self.of(pool)?.volumes_of(pool)
    }

    fn create_volume(&self, volume: &VolumeName, size_bytes: u64) -> Result<VolumeInfo, EngineError> {
        self.of(&volume.pool)?.create_volume(volume, size_bytes)
    }

    fn delete_volume(&self, volume: &VolumeName) -> Result<(), EngineError> {
        self.of(&volume.pool)?.delete_volume(volume)
    }

    fn snapshots(&self, volume: &VolumeName) -> Result<Vec<SnapshotInfo>, EngineError> {
        self.of(&volume.pool)?.snapshots(volume)
    }

    fn take_snapshot(&self, volume: &VolumeName, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError> {
        self.of(&volume.pool)?.take_snapshot(volume, spec)
    }

    fn delete_snapshot(&self, volume: &VolumeName, snapshot: Uuid) -> Result<(), EngineError> {
        self.of(&volume.pool)?.delete_snapshot(volume, snapshot)
    }

    fn pin(&self, volume: &VolumeName, snapshot: Uuid, relationship: Uuid) -> Result<(), EngineError> {
        self.of(&volume.pool)?.pin(volume, snapshot, relationship)
    }

    fn unpin(&self, volume: &VolumeName, snapshot: Uuid, relationship: Uuid) -> Result<(), EngineError> {
        self.of(&volume.pool)?.unpin(volume, snapshot, relationship)
    }

    fn make_user_snapshot(&self, volume: &VolumeName, snapshot: Uuid) -> Result<(), EngineError> {
        self.of(&volume.pool)?.make_user_snapshot(volume, snapshot)
    }

    fn hand_over(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        owner: SnapshotOwner,
        stem: &str,
        moment: Option<Timestamp>,
    ) -> Result<SnapshotInfo, EngineError> {
        self.of(&volume.pool)?.hand_over(volume, snapshot, owner, stem, moment)
    }

    fn content_root(&self, volume: &VolumeName, snapshot: Uuid) -> Result<ContentRoot, EngineError> {
        self.of(&volume.pool)?.content_root(volume, snapshot)
    }

    fn is_damaged(&self, volume: &VolumeName, snapshot: Uuid) -> Result<bool, EngineError> {
        self.of(&volume.pool)?.is_damaged(volume, snapshot)
    }

    fn changed_extents(
        &self,
        volume: &VolumeName,
        base: Option<Uuid>,
        incremental: Uuid,
    ) -> Result<ChangedExtents, EngineError> {
        self.of(&volume.pool)?.changed_extents(volume, base, incremental)
    }

    fn read_snapshot(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), EngineError> {
        self.of(&volume.pool)?.read_snapshot(volume, snapshot, offset, buffer)
    }

    fn read_snapshot_ranges(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        ranges: &[(u64, u64)],
        buffer: &mut [u8],
    ) -> Result<(), EngineError> {
        self.of(&volume.pool)?.read_snapshot_ranges(volume, snapshot, ranges, buffer)
    }

    fn open_snapshot(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
    ) -> Result<Arc<dyn OpenSnapshot>, EngineError> {
        self.of(&volume.pool)?.open_snapshot(volume, snapshot)
    }

    fn stage(
        &self,
        volume: &VolumeName,
        base: Option<Uuid>,
        size_bytes: u64,
        staged_for: StagedFor,
    ) -> Result<Arc<dyn StagedVersion>, EngineError> {
        self.of(&volume.pool)?.stage(volume, base, size_bytes, staged_for)
    }

    fn staged(&self, volume: &VolumeName) -> Result<StagedVersions, EngineError> {
        self.of(&volume.pool)?.staged(volume)
    }

    fn changed_since(&self, volume: &VolumeName, snapshot: Uuid) -> Result<ChangedBytes, EngineError> {
        self.of(&volume.pool)?.changed_since(volume, snapshot)
    }

    fn kept_bytes(&self, volume: &VolumeName, snapshot: Uuid) -> Result<u64, EngineError> {
        self.of(&volume.pool)?.kept_bytes(volume, snapshot)
    }

    fn capacity(&self, pool: &str) -> Result<Option<Capacity>, EngineError> {
        self.of(pool)?.capacity(pool)
    }

    fn staging_room(&self, volume: &VolumeName) -> Result<Option<StagingRoom>, EngineError> {
        self.of(&volume.pool)?.staging_room(volume)
    }

    fn is_written_since(&self, volume: &VolumeName, snapshot: Uuid) -> Result<bool, EngineError> {
        self.of(&volume.pool)?.is_written_since(volume, snapshot)
    }

    fn fingerprints(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        first: u64,
        count: u64,
    ) -> Result<Vec<Fingerprint>, EngineError> {
        self.of(&volume.pool)?.fingerprints(volume, snapshot, first, count)
    }

    fn abandon_staged(&self, volume: &VolumeName) -> Result<usize, EngineError> {
        self.of(&volume.pool)?.abandon_staged(volume)
    }

    fn replica_record(&self, volume: &VolumeName) -> Result<Option<ReplicaRecord>, EngineError> {
        self.of(&volume.pool)?.replica_record(volume)
    }

    fn set_replica_record(
        &self,
        volume: &VolumeName,
        record: Option<ReplicaRecord>,
    ) -> Result<(), EngineError> {
        self.of(&volume.pool)?.set_replica_record(volume, record)
    }

    fn end_replica_record(&self, volume: &VolumeName, relationship: Uuid) -> Result<bool, EngineError> {
        self.of(&volume.pool)?.end_replica_record(volume, relationship)
    }

    fn branches(&self, pool: &str) -> Option<&dyn Branches> {
        self.find(pool)?.branches(pool)
    }

    fn together(&self, pool: &str) -> Option<&dyn Together> {
        self.find(pool)?.together(pool)
    }

    fn known_data(&self, pool: &str) -> Option<&dyn KnownData> {
        self.find(pool)?.known_data(pool)
    }

    fn subtrees(&self, pool: &str) -> Option<&dyn Subtrees> {
        self.find(pool)?.subtrees(pool)
    }
}
