//! The engine as mirrors see it.

use std::sync::Arc;

use farside_format::{ContentRoot, Fingerprint};
use farside_platform::Timestamp;
use uuid::Uuid;

use super::comparison::changed_bytes;
use super::difference::Walk;
use super::document::{Record, hex, unhex};
use super::errors::explained;
use super::lately::Place;
use super::opened::Opened;
use super::roots;
use super::staged::Staged;
use super::state::RbdEngine;
use super::version::Version;
use super::volume::Volume;
use crate::{
    ChangedBytes, ChangedExtents, Engine, EngineError, OpenSnapshot, ReplicaRecord, SnapshotInfo,
    SnapshotOwner, SnapshotSpec, StagedFor, StagedVersion, StagedVersions, StagingRoom, VolumeInfo,
    VolumeName, is_label,
};

impl Engine for RbdEngine {
    fn has_pool(&self, pool: &str) -> bool {
        self.pool(pool).is_ok()
    }

    fn volume(&self, name: &VolumeName) -> Result<VolumeInfo, EngineError> {
        let (volume, document) = self.locate(name)?;
        volume.info(&document)
    }

    /// Without those of pools whose cluster does not answer.
    fn volumes(&self) -> Result<Vec<VolumeName>, EngineError> {
        let pools: Vec<String> = self.inner.pools.read().keys().cloned().collect();
        let mut all = Vec::new();
        for pool in pools {
            match self.volumes_of(&pool) {
                Ok(volumes) => all.extend(volumes),
                // Taken away meanwhile, or not reached.
                Err(EngineError::NotFound { .. } | EngineError::Io(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Images whose names farside could not say are not among them.
    fn volumes_of(&self, pool: &str) -> Result<Vec<VolumeName>, EngineError> {
        let pool = self.pool(pool)?;
        let images = pool.ceph.images();
        let images = images
            .map_err(|failed| explained(&pool, &format!("the images of pool {}", pool.name), failed, 0))?;
        let mut all = Vec::new();
        for (id, image) in images.into_iter().filter(|(_, image)| is_label(image)) {
            let name = VolumeName { pool: pool.name.clone(), volume: image };
            match self.volume_of(Arc::clone(&pool), &name, id).load() {
                Ok(_) => all.push(name),
                Err(EngineError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        all.sort();
        Ok(all)
    }

    fn create_volume(&self, name: &VolumeName, size_bytes: u64) -> Result<VolumeInfo, EngineError> {
        self.make_volume(name, size_bytes)
    }

    fn delete_volume(&self, name: &VolumeName) -> Result<(), EngineError> {
        self.inner.lately.forget(name);
        self.on(name, |volume, head| volume.delete(head))
    }

    fn snapshots(&self, name: &VolumeName) -> Result<Vec<SnapshotInfo>, EngineError> {
        let (_, document) = self.locate(name)?;
        Ok(document.snapshots.iter().map(|entry| entry.info()).collect())
    }

    fn take_snapshot(&self, name: &VolumeName, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError> {
        if !is_label(&spec.name) {
            return Err(EngineError::BadName { name: format!("{name}@{}", spec.name) });
        }
        self.on(name, |volume, head| volume.take(head, spec))
    }

    fn delete_snapshot(&self, name: &VolumeName, snapshot: Uuid) -> Result<(), EngineError> {
        self.on(name, |volume, head| {
            volume.change("delete the snapshot", |document| document.remove(snapshot))?;
            self.inner.lately.forget(name);
            // It is deleted; what cannot go now goes another time.
            _ = volume.clear_garbage(head);
            Ok(())
        })
    }

    fn pin(&self, name: &VolumeName, snapshot: Uuid, relationship: Uuid) -> Result<(), EngineError> {
        let (volume, _) = self.locate(name)?;
        volume.change("pin", |document| {
            let pins = &mut document.entry_mut(snapshot)?.pinned_by;
            if !pins.contains(&relationship) {
                pins.push(relationship);
            }
            Ok(())
        })
    }

    fn unpin(&self, name: &VolumeName, snapshot: Uuid, relationship: Uuid) -> Result<(), EngineError> {
        let (volume, _) = self.locate(name)?;
        volume.change("unpin", |document| {
            document.entry_mut(snapshot)?.pinned_by.retain(|pin| *pin != relationship);
            Ok(())
        })
    }

    fn make_user_snapshot(&self, name: &VolumeName, snapshot: Uuid) -> Result<(), EngineError> {
        let (volume, _) = self.locate(name)?;
        volume.change("make a person's", |document| {
            document.entry_mut(snapshot)?.relationship = None;
            Ok(())
        })
    }

    fn hand_over(
        &self,
        name: &VolumeName,
        snapshot: Uuid,
        owner: SnapshotOwner,
        stem: &str,
        moment: Option<Timestamp>,
    ) -> Result<SnapshotInfo, EngineError> {
        let (volume, _) = self.locate(name)?;
        volume.hand_over(snapshot, owner, stem, moment)
    }

    fn content_root(&self, name: &VolumeName, snapshot: Uuid) -> Result<ContentRoot, EngineError> {
        let (volume, document) = self.locate(name)?;
        let entry = document.entry(snapshot)?;
        if let Some(root) = entry.root.as_deref().and_then(unhex) {
            return Ok(ContentRoot(root));
        }
        let root = roots::of_snapshot(&volume, &document, &entry.at)?.root();
        // Not to be able to keep it costs the next one who asks.
        _ = volume.change("keep the root", |document| {
            document.entry_mut(snapshot)?.root = Some(hex(&root.0));
            Ok(())
        });
        Ok(root)
    }

    fn changed_extents(
        &self,
        name: &VolumeName,
        base: Option<Uuid>,
        incremental: Uuid,
    ) -> Result<ChangedExtents, EngineError> {
        let (volume, document) = self.locate(name)?;
        let base = base.map(|base| volume.version(&document, base)).transpose()?;
        let now = volume.version(&document, incremental)?;
        Ok(Box::new(Walk::new(volume, base, now)))
    }

    fn read_snapshot(
        &self,
        name: &VolumeName,
        snapshot: Uuid,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), EngineError> {
        let (volume, version) = self.locate_version(name, snapshot)?;
        version.read(&volume, offset, buffer)
    }

    fn read_snapshot_ranges(
        &self,
        name: &VolumeName,
        snapshot: Uuid,
        ranges: &[(u64, u64)],
        buffer: &mut [u8],
    ) -> Result<(), EngineError> {
        let (volume, version) = self.locate_version(name, snapshot)?;
        version.read_ranges(&volume, ranges, buffer)
    }

    fn open_snapshot(&self, name: &VolumeName, snapshot: Uuid) -> Result<Arc<dyn OpenSnapshot>, EngineError> {
        // In turn, so that it is not deleted between the look at the document and the opening.
        self.on(name, |volume, _| {
            let version = volume.version(&volume.load()?, snapshot)?;
            let opened: Arc<dyn OpenSnapshot> = Arc::new(Opened::new(volume.clone(), snapshot, version));
            Ok(opened)
        })
    }

    fn stage(
        &self,
        name: &VolumeName,
        base: Option<Uuid>,
        size_bytes: u64,
        staged_for: StagedFor,
    ) -> Result<Arc<dyn StagedVersion>, EngineError> {
        self.on(name, |volume, head| {
            let uuid = volume.stage(head, base, size_bytes, staged_for)?;
            let staged: Arc<dyn StagedVersion> = Arc::new(Staged { volume: volume.clone(), uuid });
            Ok(staged)
        })
    }

    fn staged(&self, name: &VolumeName) -> Result<StagedVersions, EngineError> {
        let (volume, document) = self.locate(name)?;
        let Some(staging) = document.staged else { return Ok(Vec::new()) };
        volume.in_turn(|head| head.forget_failed_writes());
        let info = staging.info(volume.head_bytes()?);
        let staged: Arc<dyn StagedVersion> = Arc::new(Staged { volume, uuid: staging.uuid });
        Ok(vec![(info, staged)])
    }

    fn changed_since(&self, name: &VolumeName, snapshot: Uuid) -> Result<ChangedBytes, EngineError> {
        let (volume, document) = self.locate(name)?;
        let base = volume.version(&document, snapshot)?;
        changed_bytes(&volume, &base, &volume.shown(&document)?)
    }

    fn staging_room(&self, name: &VolumeName) -> Result<Option<StagingRoom>, EngineError> {
        self.room_for_transfers(&name.pool)
    }

    fn fingerprints(
        &self,
        name: &VolumeName,
        snapshot: Uuid,
        first: u64,
        count: u64,
    ) -> Result<Vec<Fingerprint>, EngineError> {
        let (volume, version) = self.locate_version(name, snapshot)?;
        roots::of_blocks(&volume, &version, first, count)
    }

    fn abandon_staged(&self, name: &VolumeName) -> Result<usize, EngineError> {
        self.on(name, |volume, head| volume.abandon(head, None)).map(usize::from)
    }

    fn replica_record(&self, name: &VolumeName) -> Result<Option<ReplicaRecord>, EngineError> {
        let (_, document) = self.locate(name)?;
        document.record.as_ref().map(Record::to_replica_record).transpose()
    }

    fn set_replica_record(
        &self,
        name: &VolumeName,
        record: Option<ReplicaRecord>,
    ) -> Result<(), EngineError> {
        self.on(name, |volume, head| volume.set_record(head, record.map(Record::from)))
    }

    fn end_replica_record(&self, name: &VolumeName, relationship: Uuid) -> Result<bool, EngineError> {
        self.on(name, |volume, _| {
            volume.change("end the record", |document| {
                let is_it = |record: &Record| record.relationship == relationship && record.broken_off;
                let ends = document.record.as_ref().is_some_and(is_it);
                if ends {
                    document.record = None;
                }
                Ok(ends)
            })
        })
    }
}

impl RbdEngine {
    /// A snapshot of a volume, to be read, which may have been read lately.
    fn locate_version(&self, name: &VolumeName, snapshot: Uuid) -> Result<(Volume, Version), EngineError> {
        if let Some(Place { pool, id, kept }) = self.inner.lately.find(name, snapshot) {
            let volume = self.volume_of(pool, name, id);
            let version = Version::of(&volume, &kept)?;
            return Ok((volume, version));
        }
        let (volume, document) = self.locate(name)?;
        let kept = document.entry(snapshot)?.at;
        let version = Version::of(&volume, &kept)?;
        let place = Place { pool: Arc::clone(&volume.pool), id: volume.id.clone(), kept };
        self.inner.lately.note(name, snapshot, place);
        Ok((volume, version))
    }
}
