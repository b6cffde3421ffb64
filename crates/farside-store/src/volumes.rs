//! Volumes and snapshots: making, listing, changing, deleting. Each is one journal record under group commit.

use farside_format::catalog::{
    Change, CreateVolume, DeleteVersion, DeleteVolume, DescribeSnapshot, Freeze, FrozenHead, RenameVolume,
    Replica, ResizeHead, SetReplica, Snapshot, VersionKind, Volume,
};
use farside_format::{ContentRoot, ContentRoot as Root};
use farside_platform::{BLOCK_BYTES, Timestamp};
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::limits::VolumeLimits;
use crate::origin::Origin;
use crate::pool::{Pool, State, admit_change};
use crate::space::SpaceClass;
pub(crate) use crate::versions::uuid_of;
use crate::versions::{VOLUME_BYTES_MAX, VersionState, blocks};

/// A volume as listed.
#[derive(Clone, Debug)]
pub struct VolumeStatus {
    /// Name in its pool.
    pub name: String,
    /// Identity; a rename keeps it.
    pub uuid: Uuid,
    /// Size in bytes.
    pub size_bytes: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// Set if it is the replica of a mirror.
    pub replica: Option<ReplicaStatus>,
    /// Live snapshots.
    pub snapshots: usize,
    /// Bytes of the pool that it occupies with all its snapshots, and what was deleted and is not freed yet: data blocks, without
    /// metadata. What was overwritten since the last consistency point is in it.
    pub occupied_bytes: u64,
    /// What is said of its room.
    pub limits: VolumeLimits,
    /// What it began as, if it is a clone.
    pub origin: Option<Origin>,
}

/// What the pool knows of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// The relationship.
    pub relationship: Uuid,
    /// The peer: hash of its key.
    pub peer: [u8; 32],
    /// The peer's volume, `POOL/VOL`.
    pub source: String,
    /// Broken off: hosts may write.
    pub broken_off: bool,
}

impl ReplicaStatus {
    pub(crate) fn encode(&self, published: u64) -> Replica {
        Replica {
            relationship: self.relationship.as_bytes().to_vec(),
            peer: self.peer.to_vec(),
            source: self.source.clone(),
            broken_off: self.broken_off,
            published,
        }
    }
}

/// A snapshot as listed.
#[derive(Clone, Debug)]
pub struct SnapshotStatus {
    /// Name within its volume.
    pub name: String,
    /// Identity; travels with it.
    pub uuid: Uuid,
    /// When the data was so; travels with it.
    pub created_at: Timestamp,
    /// Size of the volume then, bytes.
    pub size_bytes: u64,
    /// The relationship it was taken for; `None` for a person's.
    pub relationship: Option<Uuid>,
    /// A person holds it.
    pub held: bool,
    /// Relationships that need it.
    pub pinned_by: Vec<Uuid>,
    /// Whether it lies on the line of the head; others are side branches (rescued versions).
    pub on_main_line: bool,
    /// Higher than that of every snapshot of the volume that was made here before, whatever clocks said: the epoch that it closed.
    pub sequence: u64,
}

/// What a new snapshot shall be.
#[derive(Clone, Debug)]
pub struct NewSnapshot {
    /// Name within its volume.
    pub name: String,
    /// Identity.
    pub uuid: Uuid,
    /// When the data was so.
    pub created_at: Timestamp,
    /// The relationship it is taken for; `None` for a person's.
    pub relationship: Option<Uuid>,
    /// Pin it for this relationship in the same record.
    pub pin_for: Option<Uuid>,
}

impl NewSnapshot {
    pub(crate) fn describe(&self) -> Snapshot {
        Snapshot {
            name: self.name.clone(),
            uuid: self.uuid.as_bytes().to_vec(),
            created_at: self.created_at.0,
            relationship: self.relationship.map(|r| r.as_bytes().to_vec()).unwrap_or_default(),
            held: false,
            pins: self.pin_for.iter().map(|r| r.as_bytes().to_vec()).collect(),
        }
    }
}

fn check_size(size_bytes: u64) -> Result<()> {
    if size_bytes == 0 || !size_bytes.is_multiple_of(BLOCK_BYTES as u64) || size_bytes > VOLUME_BYTES_MAX {
        return Err(StoreError::Invalid(format!(
            "a volume's size is a multiple of 4096 bytes, at most 16 PiB; {size_bytes} is not"
        )));
    }
    Ok(())
}

/// The version of a replica that came last from this peer; 0 if none did. What another peer sent before is not its.
pub(crate) fn published_by(volume: &Volume, peer: &[u8; 32]) -> u64 {
    volume.replica.as_ref().filter(|r| r.peer == peer).map_or(0, |r| r.published)
}

/// Finds the live volume.
pub(crate) fn find_volume<'a>(state: &'a State, name: &str) -> Result<&'a Volume> {
    state
        .versions
        .volume_named(name)
        .ok_or_else(|| StoreError::NotFound(format!("volume {}", state.full_name(name))))
}

/// Finds a live snapshot by name.
pub(crate) fn find_snapshot<'a>(state: &'a State, volume: &str, name: &str) -> Result<&'a VersionState> {
    let id = find_volume(state, volume)?.id;
    state
        .versions
        .snapshot_named(id, name)
        .ok_or_else(|| StoreError::NotFound(format!("snapshot {}@{name}", state.full_name(volume))))
}

/// Finds a live snapshot by identity.
pub(crate) fn find_snapshot_by_uuid<'a>(
    state: &'a State,
    volume: &str,
    uuid: Uuid,
) -> Result<&'a VersionState> {
    let id = find_volume(state, volume)?.id;
    state
        .versions
        .snapshot_identified(id, uuid.as_bytes())
        .ok_or_else(|| StoreError::NotFound(format!("snapshot {uuid} of {}", state.full_name(volume))))
}

/// A name is given once in a volume, and so is an identity: whoever asks for a snapshot by it (pins, deletion) must
/// never meet another one. Side branches count.
pub(crate) fn refuse_taken(state: &State, volume: &str, new: &NewSnapshot) -> Result<()> {
    if find_snapshot(state, volume, &new.name).is_ok() {
        return Err(StoreError::Exists(format!("snapshot {}@{}", state.full_name(volume), new.name)));
    }
    if find_snapshot_by_uuid(state, volume, new.uuid).is_ok() {
        let volume = state.full_name(volume);
        return Err(StoreError::Exists(format!("a snapshot of {volume} with the identity {}", new.uuid)));
    }
    Ok(())
}

impl Pool {
    /// Volumes, by name.
    pub fn volumes(&self) -> Vec<VolumeStatus> {
        let state = self.locked();
        let mut all: Vec<_> = state
            .versions
            .volumes
            .values()
            .filter(|v| !v.deleted)
            .map(|v| self.volume_status(&state, v))
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// One volume.
    pub fn volume(&self, name: &str) -> Result<VolumeStatus> {
        let state = self.locked();
        Ok(self.volume_status(&state, find_volume(&state, name)?))
    }

    /// The identity of the volume of this name, if there is one: cheaper than all that is known of it.
    pub fn volume_id(&self, name: &str) -> Option<Uuid> {
        let id =
            self.locked().versions.volume_named(name).and_then(|volume| Uuid::from_slice(&volume.uuid).ok());
        id.map(|id| self.copy.own(id))
    }

    fn volume_status(&self, state: &State, volume: &Volume) -> VolumeStatus {
        let status = volume_status(state, volume);
        VolumeStatus { uuid: self.copy.own(status.uuid), ..status }
    }

    /// Makes a thin volume.
    pub fn create_volume(&self, name: &str, size_bytes: u64) -> Result<VolumeStatus> {
        self.create_volume_with(name, size_bytes, VolumeLimits::default())
    }

    /// Makes a thin volume with limits of its room.
    ///
    /// # Errors
    /// Besides those of any volume, those of [`Pool::set_limits`]. There is no volume then.
    pub fn create_volume_with(
        &self,
        name: &str,
        size_bytes: u64,
        limits: VolumeLimits,
    ) -> Result<VolumeStatus> {
        check_size(size_bytes)?;
        self.release(self.reserve(0, SpaceClass::Metadata)?);
        let uuid = Uuid::from_bytes(self.options.randomness.uuid_bytes());
        let created_at = self.options.clock.now();
        self.settled_if_refused(|| {
            self.change(|state| {
                if state.versions.volume_named(name).is_some() {
                    return Err(StoreError::Exists(format!("volume {}", state.full_name(name))));
                }
                self.check_limits(state, None, &VolumeLimits::default(), &limits)?;
                let id = state.versions.next_id.max(1);
                let volume = Volume {
                    id,
                    uuid: uuid.as_bytes().to_vec(),
                    name: name.into(),
                    family: id,
                    head: id + 1,
                    created_at: created_at.0,
                    replica: None,
                    deleted: false,
                    limits: limits.encode(),
                    origin: None,
                };
                Ok((Change::CreateVolume(CreateVolume { volume: Some(volume), size_bytes }), ()))
            })
        })?;
        self.volume(name)
    }

    /// Gives a volume another name.
    pub fn rename_volume(&self, name: &str, new_name: &str) -> Result<()> {
        self.change(|state| {
            let volume = find_volume(state, name)?.id;
            if state.versions.volume_named(new_name).is_some() {
                return Err(StoreError::Exists(format!("volume {}", state.full_name(new_name))));
            }
            Ok((Change::RenameVolume(RenameVolume { volume, name: new_name.into() }), ()))
        })
    }

    /// Changes a volume's size. Shrinking drops what lies past the new end (snapshots keep it) and is refused while
    /// somebody has the volume open.
    pub fn resize_volume(&self, name: &str, size_bytes: u64) -> Result<()> {
        check_size(size_bytes)?;
        let mut reservation = Some(self.reserve(0, SpaceClass::Metadata)?);
        self.admit()?;
        // No consistency point meanwhile: it would find trees of two heights.
        let system = self.maintenance.lock();
        let done = self.change_under_maintenance(|state| {
            let volume = find_volume(state, name)?.clone();
            refuse_replica(state, &volume, "resized")?;
            let head = state.versions.version(volume.head)?;
            let (old_blocks, users) = (blocks(head.size_bytes), head.users);
            let new_blocks = blocks(size_bytes);
            let change = Change::ResizeHead(ResizeHead { version: volume.head, size_bytes });
            // Nothing may be dropped for a change that is refused afterwards.
            admit_change(state, &change)?;
            let effects = if new_blocks < old_blocks {
                if users > 0 {
                    return Err(StoreError::Refused(format!(
                        "{} is open; disconnect its clients before shrinking it",
                        state.full_name(name)
                    )));
                }
                crate::io::unmap_in_state(state, volume.head, new_blocks, old_blocks - new_blocks)?
            } else {
                crate::io::unmap_what_growth_adds(state, volume.head, size_bytes)?
            };
            if let Some(reservation) = reservation.take() {
                reservation.consume(state, &effects);
            }
            Ok((change, ()))
        });
        drop(system);
        if let Some(unused) = reservation {
            self.release(unused);
        }
        done
    }

    /// Deletes a volume and all its snapshots. Refused while somebody has it open, or a snapshot is held or pinned.
    pub fn delete_volume(&self, name: &str) -> Result<()> {
        self.delete(name, None)
    }

    /// Deletes the volume of this name only if it still is the one with this identity: the name may be another volume's by now.
    /// What `keeper` alone pins goes with it.
    pub fn delete_volume_of(&self, name: &str, identity: Uuid, keeper: Uuid) -> Result<()> {
        self.delete(name, Some((identity, keeper)))
    }

    fn delete(&self, name: &str, only: Option<(Uuid, Uuid)>) -> Result<()> {
        self.make_way_to_free();
        self.change(|state| {
            let volume = find_volume(state, name)?.clone();
            if only.is_some_and(|(identity, _)| *identity.as_bytes() != *volume.uuid) {
                return Err(StoreError::NotFound(format!("{} with that identity", state.full_name(name))));
            }
            let keeper = only.map(|(_, keeper)| keeper);
            if state.versions.versions.values().any(|v| v.volume == volume.id && v.users > 0) {
                return Err(StoreError::Refused(format!(
                    "{} is open; disconnect its clients first",
                    state.full_name(name)
                )));
            }
            let kept = state.versions.snapshots_of(volume.id).find_map(|v| {
                let is_needed = |s: &&farside_format::catalog::Snapshot| {
                    s.held || s.pins.iter().any(|pin| keeper.is_none_or(|keeper| *pin != keeper.as_bytes()))
                };
                v.snapshot.as_ref().filter(is_needed).map(|s| s.name.clone())
            });
            if let Some(snapshot) = kept {
                return Err(StoreError::Refused(format!(
                    "snapshot {}@{snapshot} is held or needed by a mirror; release it first",
                    state.full_name(name)
                )));
            }
            Ok((Change::DeleteVolume(DeleteVolume { volume: volume.id }), ()))
        })?;
        self.wake.signal();
        Ok(())
    }

    /// Takes snapshots of several volumes at one instant: each covers everything answered before, and is durable
    /// when this returns.
    pub fn create_snapshots(&self, wanted: &[(String, NewSnapshot)]) -> Result<Vec<SnapshotStatus>> {
        self.release(self.reserve(0, SpaceClass::Metadata)?);
        self.change(|state| {
            let mut frozen = Vec::new();
            for (next, (volume, new)) in (state.versions.next_id..).zip(wanted) {
                refuse_taken(state, volume, new)?;
                let head = find_volume(state, volume)?.head;
                if frozen.iter().any(|f: &FrozenHead| f.head == head) {
                    return Err(StoreError::Invalid(format!("{volume} is named twice")));
                }
                frozen.push(FrozenHead { head, version: next, snapshot: Some(new.describe()) });
            }
            let epoch = state.epoch.0;
            Ok((Change::Freeze(Freeze { frozen, epoch }), ()))
        })?;
        wanted.iter().map(|(volume, new)| self.snapshot(volume, new.uuid)).collect()
    }

    /// One snapshot, by identity.
    pub fn snapshot(&self, volume: &str, uuid: Uuid) -> Result<SnapshotStatus> {
        let state = self.locked();
        let version = find_snapshot_by_uuid(&state, volume, uuid)?;
        let on_main_line = state.versions.is_on_main_line(version);
        Ok(snapshot_status(version, on_main_line))
    }

    /// One snapshot, by name.
    pub fn snapshot_named(&self, volume: &str, name: &str) -> Result<SnapshotStatus> {
        let state = self.locked();
        let version = find_snapshot(&state, volume, name)?;
        let on_main_line = state.versions.is_on_main_line(version);
        Ok(snapshot_status(version, on_main_line))
    }

    /// Snapshots of a volume, oldest first, side branches included.
    pub fn snapshots(&self, volume: &str) -> Result<Vec<SnapshotStatus>> {
        let state = self.locked();
        let id = find_volume(&state, volume)?.id;
        let line = state.versions.main_line(id);
        Ok(state.versions.snapshots_of(id).map(|v| snapshot_status(v, line.contains(&v.id))).collect())
    }

    /// Deletes a snapshot. Refused while it is held or pinned; if somebody reads it, it goes when the last reader
    /// does.
    pub fn delete_snapshot(&self, volume: &str, uuid: Uuid) -> Result<()> {
        self.make_way_to_free();
        self.change(|state| {
            let version = find_snapshot_by_uuid(state, volume, uuid)?;
            let snapshot = version.snapshot.clone().unwrap_or_default();
            if snapshot.held || !snapshot.pins.is_empty() {
                return Err(StoreError::Refused(format!(
                    "snapshot {}@{} is {}; it cannot be deleted",
                    state.full_name(volume),
                    snapshot.name,
                    if snapshot.held { "held (unhold it first)" } else { "the base of a mirror" }
                )));
            }
            Ok((Change::DeleteVersion(DeleteVersion { version: version.id }), ()))
        })?;
        self.wake.signal();
        Ok(())
    }

    /// Changes what is known of a snapshot.
    pub(crate) fn describe_snapshot(
        &self,
        volume: &str,
        uuid: Uuid,
        edit: impl FnOnce(&mut Snapshot),
    ) -> Result<()> {
        self.change(|state| {
            let version = find_snapshot_by_uuid(state, volume, uuid)?;
            let id = version.id;
            let mut snapshot = version.snapshot.clone().unwrap_or_default();
            let old_name = snapshot.name.clone();
            edit(&mut snapshot);
            if snapshot.name != old_name && find_snapshot(state, volume, &snapshot.name).is_ok() {
                let volume = state.full_name(volume);
                return Err(StoreError::Exists(format!("snapshot {volume}@{}", snapshot.name)));
            }
            Ok((Change::DescribeSnapshot(DescribeSnapshot { version: id, snapshot: Some(snapshot) }), ()))
        })
    }

    /// Gives a snapshot another name.
    pub fn rename_snapshot(&self, volume: &str, uuid: Uuid, new_name: &str) -> Result<()> {
        self.describe_snapshot(volume, uuid, |s| s.name = new_name.into())
    }

    /// Holds a snapshot, or lets it go: a held one cannot be deleted.
    pub fn hold_snapshot(&self, volume: &str, uuid: Uuid, held: bool) -> Result<()> {
        self.describe_snapshot(volume, uuid, |s| s.held = held)
    }

    /// Makes a snapshot a person's, whoever it was taken for.
    pub fn make_user_snapshot(&self, volume: &str, uuid: Uuid) -> Result<()> {
        self.describe_snapshot(volume, uuid, |s| s.relationship.clear())
    }

    /// Pins a snapshot for a relationship.
    pub fn pin_snapshot(&self, volume: &str, uuid: Uuid, relationship: Uuid) -> Result<()> {
        self.describe_snapshot(volume, uuid, |s| {
            let pin = relationship.as_bytes().to_vec();
            if !s.pins.contains(&pin) {
                s.pins.push(pin);
            }
        })
    }

    /// Takes a relationship's pin away.
    pub fn unpin_snapshot(&self, volume: &str, uuid: Uuid, relationship: Uuid) -> Result<()> {
        self.describe_snapshot(volume, uuid, |s| s.pins.retain(|p| p != relationship.as_bytes()))
    }

    /// Sets or removes what makes a volume a replica. Refused while somebody has the volume open for writing that
    /// would become read-only.
    pub fn set_replica(&self, volume: &str, replica: Option<ReplicaStatus>) -> Result<()> {
        if replica.as_ref().is_some_and(|replica| replica.broken_off) {
            self.make_way();
        }
        self.change(|state| {
            let found = find_volume(state, volume)?;
            let becomes_read_only = replica.as_ref().is_some_and(|r| !r.broken_off)
                && found.replica.as_ref().is_none_or(|r| r.broken_off);
            let users = state.versions.versions.get(&found.head).map_or(0, |h| h.users);
            if becomes_read_only && users > 0 {
                return Err(StoreError::Refused(format!(
                    "{} is open; disconnect its clients before it becomes a replica",
                    state.full_name(volume)
                )));
            }
            let replica = replica.map(|r| r.encode(published_by(found, &r.peer)));
            Ok((Change::SetReplica(SetReplica { volume: found.id, replica }), ()))
        })
    }

    /// Removes what a volume remembers of a relationship that it was broken off from. Answers whether it did; what became of the
    /// volume since is left as it is.
    pub fn end_replica(&self, volume: &str, relationship: Uuid) -> Result<bool> {
        let is_it = |replica: &Replica| {
            replica.broken_off && replica.relationship == relationship.as_bytes().as_slice()
        };
        let ended = self.change(|state| {
            let found = find_volume(state, volume)?;
            if !found.replica.as_ref().is_some_and(is_it) {
                return Err(StoreError::NotFound(format!(
                    "relationship {relationship} of {}",
                    state.full_name(volume)
                )));
            }
            Ok((Change::SetReplica(SetReplica { volume: found.id, replica: None }), ()))
        });
        match ended {
            Err(StoreError::NotFound(_)) => Ok(false),
            ended => ended.map(|()| true),
        }
    }

    /// Bytes of data that are a snapshot's own: no older version of the volume has them. Of these its deletion frees what neither a
    /// newer version, a clone nor another owner of the same block uses.
    pub fn snapshot_owned_bytes(&self, volume: &str, uuid: Uuid) -> Result<u64> {
        let state = self.locked();
        let version = find_snapshot_by_uuid(&state, volume, uuid)?.id;
        Ok(state.versions.owned_blocks(version) * BLOCK_BYTES as u64)
    }

    /// The content root of a snapshot; from metadata only.
    pub fn content_root(&self, volume: &str, uuid: Uuid) -> Result<ContentRoot> {
        let version = {
            let state = self.locked();
            find_snapshot_by_uuid(&state, volume, uuid)?.id
        };
        self.version_root(version)
    }

    /// Whether part of a snapshot is known not to be readable: it was given up, or lies below a node that was found damaged
    /// since the pool was opened.
    ///
    /// # Errors
    /// `NotFound`, and those of the device.
    pub fn is_damaged(&self, volume: &str, uuid: Uuid) -> Result<bool> {
        let _reading = self.readers.read();
        let view = {
            let state = self.locked();
            state.view(find_snapshot_by_uuid(&state, volume, uuid)?)
        };
        Ok(view.known_damage(&self.nodes)?.is_some())
    }

    pub(crate) fn version_root(&self, version: u64) -> Result<Root> {
        let _reading = self.readers.read();
        let view = {
            let state = self.locked();
            state.view(state.versions.version(version)?)
        };
        view.content_root(&self.nodes)
    }
}

/// A replica that is not broken off changes by commits only.
pub(crate) fn refuse_replica(state: &State, volume: &Volume, what: &str) -> Result<()> {
    match &volume.replica {
        Some(replica) if !replica.broken_off => Err(StoreError::Refused(format!(
            "{} is a replica of {} and cannot be {what}. To make it writable: farside mirror break",
            state.full_name(&volume.name),
            replica.source
        ))),
        _ => Ok(()),
    }
}

fn volume_status(state: &State, volume: &Volume) -> VolumeStatus {
    let head = state.versions.versions.get(&volume.head);
    VolumeStatus {
        name: volume.name.clone(),
        uuid: uuid_of(&volume.uuid),
        size_bytes: head.map_or(0, |h| h.size_bytes),
        created_at: Timestamp(volume.created_at),
        replica: volume.replica.as_ref().map(|r| ReplicaStatus {
            relationship: uuid_of(&r.relationship),
            peer: r.peer.as_slice().try_into().unwrap_or_default(),
            source: r.source.clone(),
            broken_off: r.broken_off,
        }),
        snapshots: state.versions.count_snapshots(volume.id),
        occupied_bytes: state.versions.usage_of(volume.id).alive() * BLOCK_BYTES as u64,
        limits: VolumeLimits::of(volume.limits.as_ref()),
        origin: volume.origin.as_ref().map(|origin| Origin::of(state, origin)),
    }
}

pub(crate) fn snapshot_status(version: &VersionState, on_main_line: bool) -> SnapshotStatus {
    debug_assert_eq!(version.kind, VersionKind::Snapshot);
    let snapshot = version.snapshot.clone().unwrap_or_default();
    SnapshotStatus {
        name: snapshot.name,
        uuid: uuid_of(&snapshot.uuid),
        created_at: Timestamp(snapshot.created_at),
        size_bytes: version.size_bytes,
        relationship: (!snapshot.relationship.is_empty()).then(|| uuid_of(&snapshot.relationship)),
        held: snapshot.held,
        pinned_by: snapshot.pins.iter().map(|p| uuid_of(p)).collect(),
        on_main_line,
        sequence: version.frozen.0,
    }
}
