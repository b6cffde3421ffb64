//! The embedded store as an [`Engine`]: names to pools, errors to errors, nothing else.

mod capabilities;
mod convert;
mod extents;
#[cfg(feature = "conformance")]
pub mod fixture;
mod opened;
mod staged;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use farside_format::{ContentRoot, Fingerprint};
use farside_platform::Timestamp;
use farside_store::{DifferenceKind, Pool, Room, StagingBelow, StoreError, Version, VersionHandle};
use parking_lot::RwLock;
use uuid::Uuid;

use self::convert::{convert, info, new_snapshot, replica_status, snapshot_info};
use self::extents::extents;
use self::opened::Opened;
use self::staged::Staged;
use crate::{
    BLOCK_BYTES, Branches, Capacity, ChangedBytes, ChangedExtents, Engine, EngineError, KnownData,
    OpenSnapshot, ReplicaRecord, RoomBelow, SnapshotInfo, SnapshotOwner, SnapshotSpec, StagedFor,
    StagedVersion, StagedVersions, StagingRoom, Subtrees, Together, VolumeInfo, VolumeName, is_label,
};

const _: () = assert!(crate::FINGERPRINTS_MAX == farside_store::FINGERPRINTS_MAX);
const _: () = assert!(crate::WANTED_MAX == farside_store::WANTED_MAX);

/// The pools of one site, by name.
#[derive(Default)]
pub struct EmbeddedEngine {
    pools: RwLock<BTreeMap<String, Arc<Pool>>>,
    /// Percent of each pool that transfers leave free for hosts.
    host_reserve_percent: AtomicU8,
}

impl EmbeddedEngine {
    /// An engine without pools.
    pub fn new() -> EmbeddedEngine {
        EmbeddedEngine::default()
    }

    /// Adds an open pool.
    pub fn add(&self, name: &str, pool: Arc<Pool>) -> Result<(), EngineError> {
        if !is_label(name) {
            return Err(EngineError::BadName { name: name.into() });
        }
        let mut pools = self.pools.write();
        if pools.contains_key(name) {
            return Err(EngineError::Exists { what: format!("pool {name}") });
        }
        pool.set_host_reserve(self.host_reserve_percent.load(Ordering::Relaxed));
        pools.insert(name.into(), pool);
        Ok(())
    }

    /// Has transfers leave so many percent of each pool free for hosts: of those that are open, and of those to come.
    pub fn set_host_reserve(&self, percent: u8) {
        let pools = self.pools.write();
        self.host_reserve_percent.store(percent, Ordering::Relaxed);
        pools.values().for_each(|pool| pool.set_host_reserve(percent));
    }

    /// Takes a pool away; whoever still holds it keeps it open.
    pub fn remove(&self, name: &str) -> Option<Arc<Pool>> {
        self.pools.write().remove(name)
    }

    /// One pool.
    pub fn pool(&self, name: &str) -> Result<Arc<Pool>, EngineError> {
        let found = self.pools.read().get(name).cloned();
        found.ok_or_else(|| EngineError::NotFound { what: format!("pool {name}") })
    }

    /// All pools, by name.
    pub fn pools(&self) -> Vec<(String, Arc<Pool>)> {
        self.pools.read().iter().map(|(n, p)| (n.clone(), p.clone())).collect()
    }

    fn on<T>(
        &self,
        volume: &VolumeName,
        call: impl FnOnce(&Arc<Pool>) -> Result<T, StoreError>,
    ) -> Result<T, EngineError> {
        let pool = self.pool(&volume.pool)?;
        call(&pool).map_err(|e| convert(&volume.pool, e))
    }

    fn open(&self, volume: &VolumeName, snapshot: Uuid) -> Result<Arc<VersionHandle>, EngineError> {
        self.on(volume, |pool| pool.open_snapshot_by_uuid(&volume.volume, snapshot)).map(Arc::new)
    }
}

impl Engine for EmbeddedEngine {
    fn has_pool(&self, pool: &str) -> bool {
        self.pools.read().contains_key(pool)
    }

    fn volume(&self, volume: &VolumeName) -> Result<VolumeInfo, EngineError> {
        self.on(volume, |pool| pool.volume(&volume.volume)).map(|status| info(volume, &status))
    }

    fn volumes(&self) -> Result<Vec<VolumeName>, EngineError> {
        let pools = self.pools.read();
        let of = |(pool, opened): (&String, &Arc<Pool>)| {
            let pool = pool.clone();
            opened.volumes().into_iter().map(move |v| VolumeName { pool: pool.clone(), volume: v.name })
        };
        Ok(pools.iter().flat_map(of).collect())
    }

    fn create_volume(&self, volume: &VolumeName, size_bytes: u64) -> Result<VolumeInfo, EngineError> {
        if !is_label(&volume.volume) {
            return Err(EngineError::BadName { name: volume.to_string() });
        }
        self.on(volume, |pool| pool.create_volume(&volume.volume, size_bytes))
            .map(|status| info(volume, &status))
    }

    fn delete_volume(&self, volume: &VolumeName) -> Result<(), EngineError> {
        self.on(volume, |pool| pool.delete_volume(&volume.volume))
    }

    fn snapshots(&self, volume: &VolumeName) -> Result<Vec<SnapshotInfo>, EngineError> {
        let all = self.on(volume, |pool| pool.snapshots(&volume.volume))?;
        Ok(all.iter().filter(|s| s.on_main_line).map(snapshot_info).collect())
    }

    fn take_snapshot(&self, volume: &VolumeName, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError> {
        if !is_label(&spec.name) {
            return Err(EngineError::BadName { name: format!("{volume}@{}", spec.name) });
        }
        let wanted = [(volume.volume.clone(), new_snapshot(spec))];
        let taken = self.on(volume, |pool| pool.create_snapshots(&wanted))?;
        Ok(snapshot_info(&taken[0]))
    }

    fn delete_snapshot(&self, volume: &VolumeName, snapshot: Uuid) -> Result<(), EngineError> {
        self.on(volume, |pool| pool.delete_snapshot(&volume.volume, snapshot))
    }

    fn pin(&self, volume: &VolumeName, snapshot: Uuid, relationship: Uuid) -> Result<(), EngineError> {
        self.on(volume, |pool| pool.pin_snapshot(&volume.volume, snapshot, relationship))
    }

    fn unpin(&self, volume: &VolumeName, snapshot: Uuid, relationship: Uuid) -> Result<(), EngineError> {
        self.on(volume, |pool| pool.unpin_snapshot(&volume.volume, snapshot, relationship))
    }

    fn make_user_snapshot(&self, volume: &VolumeName, snapshot: Uuid) -> Result<(), EngineError> {
        self.on(volume, |pool| pool.make_user_snapshot(&volume.volume, snapshot))
    }

    fn hand_over(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        owner: SnapshotOwner,
        stem: &str,
        moment: Option<Timestamp>,
    ) -> Result<SnapshotInfo, EngineError> {
        let relationship = match owner {
            SnapshotOwner::Person => None,
            SnapshotOwner::Relationship(relationship) => Some(relationship),
        };
        let now =
            self.on(volume, |pool| pool.hand_over(&volume.volume, snapshot, relationship, stem, moment))?;
        Ok(snapshot_info(&now))
    }

    fn content_root(&self, volume: &VolumeName, snapshot: Uuid) -> Result<ContentRoot, EngineError> {
        self.on(volume, |pool| pool.content_root(&volume.volume, snapshot))
    }

    fn is_damaged(&self, volume: &VolumeName, snapshot: Uuid) -> Result<bool, EngineError> {
        self.on(volume, |pool| pool.is_damaged(&volume.volume, snapshot))
    }

    fn changed_extents(
        &self,
        volume: &VolumeName,
        base: Option<Uuid>,
        incremental: Uuid,
    ) -> Result<ChangedExtents, EngineError> {
        let incremental = self.open(volume, incremental)?;
        let base = base.map(|base| self.open(volume, base)).transpose()?;
        Ok(extents(&volume.pool, incremental.difference_from(base)))
    }

    fn read_snapshot(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), EngineError> {
        self.open_snapshot(volume, snapshot)?.read(offset, buffer)
    }

    fn open_snapshot(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
    ) -> Result<Arc<dyn OpenSnapshot>, EngineError> {
        let reader = self.on(volume, |pool| pool.snapshot_reader(&volume.volume, snapshot))?;
        Ok(Arc::new(Opened { pool: volume.pool.clone(), reader }))
    }

    fn stage(
        &self,
        volume: &VolumeName,
        base: Option<Uuid>,
        size_bytes: u64,
        staged_for: StagedFor,
    ) -> Result<Arc<dyn StagedVersion>, EngineError> {
        let StagedFor { relationship, incremental } = staged_for;
        let staged_for = farside_store::StagedFor { relationship, incremental };
        let staged = self.on(volume, |pool| pool.stage(&volume.volume, base, size_bytes, staged_for))?;
        Ok(Arc::new(Staged { pool: volume.pool.clone(), staged }))
    }

    fn staged(&self, volume: &VolumeName) -> Result<StagedVersions, EngineError> {
        let mut found: StagedVersions = Vec::new();
        for staged in self.on(volume, |pool| pool.staged(&volume.volume))? {
            let staged = Staged { pool: volume.pool.clone(), staged };
            match staged.info() {
                Ok(info) => found.push((info, Arc::new(staged))),
                // Committed or abandoned just now.
                Err(EngineError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    fn kept_bytes(&self, volume: &VolumeName, snapshot: Uuid) -> Result<u64, EngineError> {
        let (head, kept) = (Some(Version::Head), Version::Snapshot(snapshot));
        let difference = self.on(volume, |pool| pool.difference(&volume.volume, head, kept))?;
        let mut blocks = 0;
        for range in difference {
            let range = range.map_err(|e| convert(&volume.pool, e))?;
            if range.kind == DifferenceKind::Data {
                blocks += range.count;
            }
        }
        Ok(blocks * BLOCK_BYTES)
    }

    fn capacity(&self, pool: &str) -> Result<Option<Capacity>, EngineError> {
        let status = self.pool(pool)?.status();
        let spoken_for = status.reserved_bytes.min(status.free_bytes + status.waiting_bytes);
        let free_bytes = status.free_bytes + status.waiting_bytes - spoken_for;
        Ok(Some(Capacity { capacity_bytes: status.size_bytes, free_bytes }))
    }

    fn staging_room(&self, volume: &VolumeName) -> Result<Option<StagingRoom>, EngineError> {
        let pool = self.pool(&volume.pool)?;
        let (room_bytes, reserve_bytes) = pool.staging_room(&volume.volume);
        let of_pool = StagingRoom { room_bytes, reserve_bytes, quota_bytes: None, below: None };
        // The file system is asked for its room: nobody else waits for that.
        let below = pool.staging_room_below().filter(|below| below.room_bytes < room_bytes);
        let short = match below {
            Some(StagingBelow { room_bytes, left_bytes }) => {
                let below = Some(RoomBelow { path: pool.status().device, left_bytes });
                StagingRoom { room_bytes, below, ..of_pool }
            }
            None => of_pool,
        };
        let quota = pool.quota_room(&volume.volume).filter(|quota| quota.for_hosts_bytes < short.room_bytes);
        Ok(Some(match quota {
            Some(Room { size_bytes, for_hosts_bytes, .. }) => StagingRoom {
                room_bytes: for_hosts_bytes,
                quota_bytes: Some(size_bytes),
                below: None,
                ..short
            },
            None => short,
        }))
    }

    fn changed_since(&self, volume: &VolumeName, snapshot: Uuid) -> Result<ChangedBytes, EngineError> {
        let changed = self.on(volume, |pool| pool.changed_since(&volume.volume, snapshot))?;
        Ok(ChangedBytes {
            data_bytes: changed.data_blocks * BLOCK_BYTES,
            hole_bytes: changed.hole_blocks * BLOCK_BYTES,
        })
    }

    fn is_written_since(&self, volume: &VolumeName, snapshot: Uuid) -> Result<bool, EngineError> {
        self.on(volume, |pool| pool.is_written_since(&volume.volume, snapshot))
    }

    fn fingerprints(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        first: u64,
        count: u64,
    ) -> Result<Vec<Fingerprint>, EngineError> {
        let handle = self.open(volume, snapshot)?;
        handle.fingerprints(first, count).map_err(|e| convert(&volume.pool, e))
    }

    fn abandon_staged(&self, volume: &VolumeName) -> Result<usize, EngineError> {
        self.on(volume, |pool| pool.abandon_staged(&volume.volume))
    }

    fn replica_record(&self, volume: &VolumeName) -> Result<Option<ReplicaRecord>, EngineError> {
        let status = self.on(volume, |pool| pool.volume(&volume.volume))?;
        Ok(status.replica.map(|r| ReplicaRecord {
            relationship: r.relationship,
            peer: r.peer,
            source: r.source,
            broken_off: r.broken_off,
        }))
    }

    fn set_replica_record(
        &self,
        volume: &VolumeName,
        record: Option<ReplicaRecord>,
    ) -> Result<(), EngineError> {
        let replica = record.map(replica_status);
        self.on(volume, |pool| pool.set_replica(&volume.volume, replica))
    }

    fn end_replica_record(&self, volume: &VolumeName, relationship: Uuid) -> Result<bool, EngineError> {
        self.on(volume, |pool| pool.end_replica(&volume.volume, relationship))
    }

    fn branches(&self, _: &str) -> Option<&dyn Branches> {
        Some(self)
    }

    fn together(&self, _: &str) -> Option<&dyn Together> {
        Some(self)
    }

    fn known_data(&self, _: &str) -> Option<&dyn KnownData> {
        Some(self)
    }

    fn subtrees(&self, _: &str) -> Option<&dyn Subtrees> {
        Some(self)
    }
}
