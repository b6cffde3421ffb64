//! The engine as mirrors see it.

use std::sync::Arc;

use farside_platform::Timestamp;
use uuid::Uuid;

use super::MemoryEngine;
use super::image::Image;
use super::staged::Staged;
use super::volume::{Staging, Volume};
use crate::{
    Branches, Capability, ChangeKind, ChangedBytes, ChangedExtents, ContentRoot, Engine, EngineError,
    Fingerprint, KnownData, OpenSnapshot, ReplicaRecord, SnapshotInfo, SnapshotOwner, SnapshotSpec,
    StagedFor, StagedVersion, StagedVersions, StagingRoom, Subtrees, Together, VolumeInfo, VolumeName,
    is_label,
};

/// A snapshot as it was when it was opened.
pub(super) struct Opened {
    engine: MemoryEngine,
    volume: VolumeName,
    snapshot: Uuid,
    image: Image,
}

impl OpenSnapshot for Opened {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError> {
        self.engine.check_alive()?;
        self.image.read(offset, buffer);
        self.engine.spoil_read(self.snapshot, offset, buffer)
    }

    fn is_deleted(&self) -> Result<bool, EngineError> {
        match self.engine.with(&self.volume, |volume| volume.image(self.snapshot).map(|_| ())) {
            Err(EngineError::NotFound { .. }) => Ok(true),
            found => found.map(|()| false),
        }
    }
}

impl MemoryEngine {
    fn fail_records(&self) -> Result<(), EngineError> {
        match self.faults.lock().fails_records {
            true => Err(EngineError::Io("the device failed".into())),
            false => Ok(()),
        }
    }
}

impl Engine for MemoryEngine {
    /// Whatever its name.
    fn has_pool(&self, _: &str) -> bool {
        true
    }

    fn volume(&self, name: &VolumeName) -> Result<VolumeInfo, EngineError> {
        self.with(name, |volume| {
            Ok(VolumeInfo {
                name: name.clone(),
                uuid: volume.uuid,
                size_bytes: volume.live.size_bytes,
                occupied_bytes: None,
                is_replica: volume.record.as_ref().is_some_and(|r| !r.broken_off),
            })
        })
    }

    fn volumes(&self) -> Result<Vec<VolumeName>, EngineError> {
        self.with_all(|medium| Ok(medium.volumes.keys().cloned().collect()))
    }

    fn create_volume(&self, name: &VolumeName, size_bytes: u64) -> Result<VolumeInfo, EngineError> {
        if !is_label(&name.volume) {
            return Err(EngineError::BadName { name: name.to_string() });
        }
        self.change_all("create volume", |medium| {
            if medium.volumes.contains_key(name) {
                return Err(EngineError::Exists { what: format!("volume {name}") });
            }
            let uuid = Uuid::from_u128(medium.next_number().into());
            medium.volumes.insert(name.clone(), Volume::new(uuid, size_bytes));
            Ok(())
        })?;
        self.volume(name)
    }

    fn delete_volume(&self, name: &VolumeName) -> Result<(), EngineError> {
        self.change_all("delete volume", |medium| {
            if medium.volume(name)?.snapshots.iter().any(|s| !s.info.pinned_by.is_empty() || s.info.held) {
                return Err(EngineError::Refused("a snapshot is pinned or held".into()));
            }
            medium.volumes.remove(name);
            Ok(())
        })
    }

    fn snapshots(&self, name: &VolumeName) -> Result<Vec<SnapshotInfo>, EngineError> {
        if !self.has(Capability::Branches) {
            return Branches::of_all_branches(self, name);
        }
        self.with(name, |volume| {
            let line = volume.main_line();
            let on_line = volume.snapshots.iter().filter(|s| line.contains(&s.info.uuid));
            Ok(on_line.map(|s| s.info.clone()).collect())
        })
    }

    fn take_snapshot(&self, name: &VolumeName, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError> {
        if !is_label(&spec.name) {
            return Err(EngineError::BadName { name: format!("{name}@{}", spec.name) });
        }
        self.change("take snapshot", name, |volume| volume.take(spec))
    }

    fn delete_snapshot(&self, name: &VolumeName, snapshot: Uuid) -> Result<(), EngineError> {
        self.change("delete snapshot", name, |volume| {
            let at = volume.position(snapshot)?;
            let info = &volume.snapshots[at].info;
            if !info.pinned_by.is_empty() || info.held {
                return Err(EngineError::Refused("the snapshot is pinned or held".into()));
            }
            volume.remove(at)
        })
    }

    fn make_user_snapshot(&self, name: &VolumeName, snapshot: Uuid) -> Result<(), EngineError> {
        self.change("make a person's", name, |volume| {
            let at = volume.position(snapshot)?;
            volume.snapshots[at].info.owner = SnapshotOwner::Person;
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
        self.change("hand over", name, |volume| {
            let at = volume.position(snapshot)?;
            let stem = moment.map_or_else(|| format!("{stem}-given"), |moment| format!("{stem}-{moment}"));
            let mut names = (0..).map(|number: u64| format!("{stem}-{number}"));
            let free = names.find(|name| volume.is_free(name)).expect("numbers do not end");
            let info = &mut volume.snapshots[at].info;
            info.owner = owner;
            info.name = free;
            Ok(info.clone())
        })
    }

    fn pin(&self, name: &VolumeName, snapshot: Uuid, relationship: Uuid) -> Result<(), EngineError> {
        let goes = self.faults.lock().goes_before_pin.take_if(|goes| *goes == snapshot).is_some();
        self.change("pin", name, |volume| {
            if goes {
                volume.remove(volume.position(snapshot)?)?;
            }
            let at = volume.position(snapshot)?;
            let pins = &mut volume.snapshots[at].info.pinned_by;
            if !pins.contains(&relationship) {
                pins.push(relationship);
            }
            Ok(())
        })
    }

    fn unpin(&self, name: &VolumeName, snapshot: Uuid, relationship: Uuid) -> Result<(), EngineError> {
        self.change("unpin", name, |volume| {
            let at = volume.position(snapshot)?;
            volume.snapshots[at].info.pinned_by.retain(|r| *r != relationship);
            Ok(())
        })
    }

    fn content_root(&self, name: &VolumeName, snapshot: Uuid) -> Result<ContentRoot, EngineError> {
        self.with(name, |volume| Ok(volume.image(snapshot)?.root()))
    }

    fn changed_extents(
        &self,
        name: &VolumeName,
        base: Option<Uuid>,
        incremental: Uuid,
    ) -> Result<ChangedExtents, EngineError> {
        let unit = self.options.difference_blocks;
        let extents = self.with(name, |volume| {
            Ok(Image::changes(&volume.base_image(base)?, volume.image(incremental)?, unit))
        })?;
        Ok(Box::new(extents.into_iter().map(Ok)))
    }

    fn read_snapshot(
        &self,
        name: &VolumeName,
        snapshot: Uuid,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), EngineError> {
        self.with(name, |volume| {
            volume.image(snapshot)?.read(offset, buffer);
            Ok(())
        })?;
        self.spoil_read(snapshot, offset, buffer)
    }

    fn open_snapshot(&self, name: &VolumeName, snapshot: Uuid) -> Result<Arc<dyn OpenSnapshot>, EngineError> {
        let image = self.with(name, |volume| volume.image(snapshot).cloned())?;
        Ok(Arc::new(Opened { engine: self.clone(), volume: name.clone(), snapshot, image }))
    }

    fn stage(
        &self,
        name: &VolumeName,
        base: Option<Uuid>,
        size_bytes: u64,
        staged_for: StagedFor,
    ) -> Result<Arc<dyn StagedVersion>, EngineError> {
        let number = self.change_all("stage", |medium| {
            let number = medium.next_number();
            let volume = medium.volume(name)?;
            let mut image = volume.base_image(base)?;
            image.resize(size_bytes);
            if volume.staged.is_some() {
                return Err(EngineError::Refused("another version of the volume is staged".into()));
            }
            volume.staged = Some(Staging { number, base, staged_for, saved: image.clone(), image });
            Ok(number)
        })?;
        Ok(Arc::new(Staged { engine: self.clone(), volume: name.clone(), number }))
    }

    fn staged(&self, name: &VolumeName) -> Result<StagedVersions, EngineError> {
        let number = self.with(name, |volume| Ok(volume.staged.as_ref().map(|s| s.number)))?;
        let mut found: StagedVersions = Vec::new();
        if let Some(number) = number {
            let staged = Staged { engine: self.clone(), volume: name.clone(), number };
            found.push((staged.info()?, Arc::new(staged)));
        }
        Ok(found)
    }

    fn changed_since(&self, name: &VolumeName, snapshot: Uuid) -> Result<ChangedBytes, EngineError> {
        let goes = self.faults.lock().goes_before_comparison.take_if(|goes| *goes == snapshot).is_some();
        self.with(name, |volume| {
            if goes {
                volume.remove(volume.position(snapshot)?)?;
            }
            let mut changed = ChangedBytes::default();
            for extent in Image::changes(volume.image(snapshot)?, &volume.live, 1) {
                match extent.kind {
                    ChangeKind::Data => changed.data_bytes += extent.length,
                    ChangeKind::Hole => changed.hole_bytes += extent.length,
                }
            }
            Ok(changed)
        })
    }

    fn fingerprints(
        &self,
        name: &VolumeName,
        snapshot: Uuid,
        first: u64,
        count: u64,
    ) -> Result<Vec<Fingerprint>, EngineError> {
        self.with(name, |volume| volume.image(snapshot)?.fingerprints(first, count))
    }

    fn staging_room(&self, _: &VolumeName) -> Result<Option<StagingRoom>, EngineError> {
        let Some(room) = self.faults.lock().staging_room else { return Ok(None) };
        let room_bytes = room.saturating_sub(self.staged_bytes());
        Ok(Some(StagingRoom { room_bytes, reserve_bytes: 0, quota_bytes: None, below: None }))
    }

    fn abandon_staged(&self, name: &VolumeName) -> Result<usize, EngineError> {
        self.change("abandon staged", name, |volume| Ok(volume.staged.take().into_iter().count()))
    }

    fn replica_record(&self, name: &VolumeName) -> Result<Option<ReplicaRecord>, EngineError> {
        self.with(name, |volume| Ok(volume.record.clone()))
    }

    fn set_replica_record(
        &self,
        name: &VolumeName,
        record: Option<ReplicaRecord>,
    ) -> Result<(), EngineError> {
        self.fail_records()?;
        self.change("set record", name, |volume| {
            volume.record = record;
            Ok(())
        })
    }

    fn end_replica_record(&self, name: &VolumeName, relationship: Uuid) -> Result<bool, EngineError> {
        self.fail_records()?;
        let is_it = |record: &mut ReplicaRecord| record.relationship == relationship && record.broken_off;
        self.change("end record", name, |volume| Ok(volume.record.take_if(is_it).is_some()))
    }

    fn branches(&self, _: &str) -> Option<&dyn Branches> {
        self.has(Capability::Branches).then_some(self)
    }

    fn together(&self, _: &str) -> Option<&dyn Together> {
        self.has(Capability::Together).then_some(self)
    }

    fn known_data(&self, _: &str) -> Option<&dyn KnownData> {
        self.has(Capability::KnownData).then_some(self)
    }

    fn subtrees(&self, _: &str) -> Option<&dyn Subtrees> {
        self.has(Capability::Subtrees).then_some(self)
    }
}
