//! The embedded store as an [`Engine`]: names to pools, errors to errors, nothing else.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use farside_format::{ContentRoot, Fingerprint};
use farside_store::{
    Difference, DifferenceKind, NewSnapshot, Pool, ReplicaStatus, Room, SnapshotReader, SnapshotStatus,
    StoreError, Version, VersionHandle, VolumeStatus,
};
use parking_lot::RwLock;
use uuid::Uuid;

use crate::{
    BLOCK_BYTES, Capacity, ChangeKind, ChangedBytes, ChangedExtent, ChangedExtents, Engine, EngineError,
    KnownDataScope, OpenSnapshot, ReadyVersion, ReplicaRecord, SnapshotInfo, SnapshotOwner, SnapshotSpec,
    StagedFor, StagedInfo, StagedVersion, StagingRoom, VolumeInfo, VolumeName, Wanted, is_label,
};

const _: () = assert!(crate::FINGERPRINTS_MAX == farside_store::FINGERPRINTS_MAX);
const _: () = assert!(crate::WANTED_MAX == farside_store::WANTED_MAX);

/// Pools by name. Staged versions look into all of them.
type Pools = Arc<RwLock<BTreeMap<String, Arc<Pool>>>>;

/// The pools of one site, by name.
#[derive(Default)]
pub struct EmbeddedEngine {
    pools: Pools,
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

    fn all_snapshots(&self, volume: &VolumeName) -> Result<Vec<SnapshotInfo>, EngineError> {
        let all = self.on(volume, |pool| pool.snapshots(&volume.volume))?;
        Ok(all.iter().map(snapshot_info).collect())
    }

    fn fork(&self, volume: &VolumeName, snapshot: Uuid) -> Result<Option<Uuid>, EngineError> {
        self.on(volume, |pool| pool.fork_of(&volume.volume, snapshot))
    }

    fn take_snapshot(&self, volume: &VolumeName, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError> {
        if !is_label(&spec.name) {
            return Err(EngineError::BadName { name: format!("{volume}@{}", spec.name) });
        }
        let wanted = [(volume.volume.clone(), new_snapshot(spec))];
        let taken = self.on(volume, |pool| pool.create_snapshots(&wanted))?;
        Ok(snapshot_info(&taken[0]))
    }

    fn take_snapshots(
        &self,
        wanted: &[(VolumeName, SnapshotSpec)],
    ) -> Result<Vec<SnapshotInfo>, EngineError> {
        let Some((first, _)) = wanted.first() else { return Ok(Vec::new()) };
        if let Some((volume, spec)) = wanted.iter().find(|(_, spec)| !is_label(&spec.name)) {
            return Err(EngineError::BadName { name: format!("{volume}@{}", spec.name) });
        }
        one_pool(wanted.iter().map(|(volume, _)| volume))?;
        let new: Vec<_> = wanted.iter().map(|(v, spec)| (v.volume.clone(), new_snapshot(spec))).collect();
        let taken = self.on(first, |pool| pool.create_snapshots(&new))?;
        Ok(taken.iter().map(snapshot_info).collect())
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
    ) -> Result<SnapshotInfo, EngineError> {
        let relationship = match owner {
            SnapshotOwner::Person => None,
            SnapshotOwner::Relationship(relationship) => Some(relationship),
        };
        let now = self.on(volume, |pool| pool.hand_over(&volume.volume, snapshot, relationship, stem))?;
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
        Ok(Arc::new(Staged { pool: volume.pool.clone(), pools: self.pools.clone(), staged }))
    }

    fn staged(&self, volume: &VolumeName) -> Result<Vec<(StagedInfo, Arc<dyn StagedVersion>)>, EngineError> {
        let mut found: Vec<(StagedInfo, Arc<dyn StagedVersion>)> = Vec::new();
        for staged in self.on(volume, |pool| pool.staged(&volume.volume))? {
            let staged = Staged { pool: volume.pool.clone(), pools: self.pools.clone(), staged };
            match staged.info() {
                Ok(info) => found.push((info, Arc::new(staged))),
                // Committed or abandoned just now.
                Err(EngineError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    fn commit_together(&self, versions: &[ReadyVersion]) -> Result<Vec<SnapshotInfo>, EngineError> {
        let Some(first) = versions.first() else { return Ok(Vec::new()) };
        one_pool(versions.iter().map(|version| &version.volume))?;
        let foreign = || EngineError::Invalid("a staged version of another engine".into());
        let staged = versions.iter().map(|version| {
            let staged = version.staged.as_any().downcast_ref::<Staged>().ok_or_else(foreign)?;
            Ok((&staged.staged, new_snapshot(&version.spec)))
        });
        let staged: Vec<_> = staged.collect::<Result<_, EngineError>>()?;
        let done = self.on(&first.volume, |pool| pool.commit_together(&staged))?;
        Ok(done.iter().map(snapshot_info).collect())
    }

    fn move_main(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        record: Option<ReplicaRecord>,
    ) -> Result<Option<SnapshotInfo>, EngineError> {
        let replica = record.map(replica_status);
        let rescued = self.on(volume, |pool| pool.move_main(&volume.volume, snapshot, replica))?;
        Ok(rescued.as_ref().map(snapshot_info))
    }

    fn move_replica(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        relationship: Uuid,
    ) -> Result<Option<SnapshotInfo>, EngineError> {
        let rescued = self.on(volume, |pool| pool.move_replica(&volume.volume, snapshot, relationship))?;
        Ok(rescued.as_ref().map(snapshot_info))
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
        let quota = pool.quota_room(&volume.volume).filter(|quota| quota.for_hosts_bytes < room_bytes);
        Ok(Some(match quota {
            Some(Room { size_bytes, for_hosts_bytes, .. }) => {
                StagingRoom { room_bytes: for_hosts_bytes, reserve_bytes, quota_bytes: Some(size_bytes) }
            }
            None => StagingRoom { room_bytes, reserve_bytes, quota_bytes: None },
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

    fn subtree_fingerprints(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        level: u8,
        first: u64,
        count: u64,
    ) -> Result<Vec<Fingerprint>, EngineError> {
        let handle = self.open(volume, snapshot)?;
        handle.subtree_fingerprints(level, first, count).map_err(|e| convert(&volume.pool, e))
    }

    fn abandon_staged(&self, volume: &VolumeName) -> Result<usize, EngineError> {
        self.on(volume, |pool| pool.abandon_staged(&volume.volume))
    }

    fn may_know(&self, scope: &KnownDataScope) -> bool {
        self.pools.read().values().any(|pool| pool.holds_of(&scope.peer))
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
}

/// What is done in one record is done in one pool.
fn one_pool<'a>(volumes: impl Iterator<Item = &'a VolumeName> + Clone) -> Result<(), EngineError> {
    let is_split = |(one, other): (&VolumeName, &VolumeName)| one.pool != other.pool;
    match volumes.clone().zip(volumes.skip(1)).find(|pair| is_split(*pair)) {
        None => Ok(()),
        Some((one, other)) => Err(EngineError::Refused(format!(
            "{one} and {other} are in different pools; only volumes of one pool change in one moment. Nothing was changed"
        ))),
    }
}

struct Staged {
    pool: String,
    pools: Pools,
    staged: farside_store::StagedVersion,
}

impl Staged {
    fn converted<T>(&self, result: Result<T, StoreError>) -> Result<T, EngineError> {
        result.map_err(|e| convert(&self.pool, e))
    }
}

impl StagedVersion for Staged {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> Result<StagedInfo, EngineError> {
        let status = self.converted(self.staged.status())?;
        let farside_store::StagedFor { relationship, incremental } = status.staged_for;
        Ok(StagedInfo {
            base: status.base,
            size_bytes: status.size_bytes,
            staged_for: StagedFor { relationship, incremental },
        })
    }

    fn resize(&self, size_bytes: u64) -> Result<(), EngineError> {
        self.converted(self.staged.resize(size_bytes))
    }

    fn retarget(&self, incremental: Uuid) -> Result<(), EngineError> {
        self.converted(self.staged.retarget(incremental))
    }

    fn changed_from(&self, base: Option<Uuid>) -> Result<ChangedExtents, EngineError> {
        Ok(extents(&self.pool, self.converted(self.staged.changed_from(base))?))
    }

    fn fingerprints(&self, first: u64, count: u64) -> Result<Vec<Fingerprint>, EngineError> {
        self.converted(self.staged.fingerprints(first, count))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
        self.converted(self.staged.write(offset, bytes))
    }

    /// What the volume's own pool does not know, the other pools are asked for.
    fn adopt(
        &self,
        scope: &KnownDataScope,
        wanted: &[Wanted],
    ) -> Result<Vec<Option<Fingerprint>>, EngineError> {
        let mut missing: Vec<_> = wanted.iter().map(as_stored).collect();
        let mut answers = self.converted(self.staged.adopt(&scope.peer, &missing))?;
        let others: Vec<_> = {
            let pools = self.pools.read();
            pools.iter().filter(|(name, _)| **name != self.pool).map(|(_, pool)| pool.clone()).collect()
        };
        for other in others {
            let entries: Vec<usize> =
                answers.iter().enumerate().filter(|(_, a)| a.is_none()).map(|(entry, _)| entry).collect();
            if entries.is_empty() {
                break;
            }
            missing = entries.iter().map(|entry| as_stored(&wanted[*entry])).collect();
            let found = self.converted(self.staged.adopt_from(&other, &scope.peer, &missing))?;
            for (entry, answer) in entries.into_iter().zip(found) {
                answers[entry] = answer;
            }
        }
        Ok(answers)
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), EngineError> {
        self.converted(self.staged.discard(offset, length))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError> {
        self.converted(self.staged.read(offset, buffer))
    }

    fn checkpoint(&self) -> Result<(), EngineError> {
        self.converted(self.staged.checkpoint())
    }

    fn content_root(&self) -> Result<ContentRoot, EngineError> {
        self.converted(self.staged.content_root())
    }

    fn commit(&self, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError> {
        self.converted(self.staged.commit(&new_snapshot(spec))).map(|status| snapshot_info(&status))
    }

    fn abandon(&self) -> Result<(), EngineError> {
        self.converted(self.staged.abandon())
    }
}

/// A snapshot that is not reaped while this lives.
struct Opened {
    pool: String,
    reader: SnapshotReader,
}

impl OpenSnapshot for Opened {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError> {
        let size_bytes = self.reader.size_bytes();
        let inside = size_bytes.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (data, past_the_end) = buffer.split_at_mut(inside);
        past_the_end.fill(0);
        self.reader.read(offset.min(size_bytes), data).map_err(|e| convert(&self.pool, e))
    }

    fn read_ranges(&self, ranges: &[(u64, u64)], buffer: &mut [u8]) -> Result<(), EngineError> {
        self.reader.read_ranges(ranges, buffer).map_err(|e| convert(&self.pool, e))
    }

    fn is_deleted(&self) -> Result<bool, EngineError> {
        self.reader.is_deleted().map_err(|e| convert(&self.pool, e))
    }
}

/// A difference of the store, in bytes.
fn extents(pool: &str, walk: Difference) -> ChangedExtents {
    let pool = pool.to_owned();
    let ranges = walk.map(move |range| {
        let range = range.map_err(|e| convert(&pool, e))?;
        let kind = match range.kind {
            DifferenceKind::Data => ChangeKind::Data,
            DifferenceKind::Hole => ChangeKind::Hole,
        };
        Ok(ChangedExtent {
            offset: range.block * BLOCK_BYTES,
            length: range.count * BLOCK_BYTES,
            kind,
            changed: range.changed * BLOCK_BYTES,
        })
    });
    Box::new(Joined { ranges, held: None })
}

/// Joins neighbouring ranges of one kind across the steps of a walk.
struct Joined<I> {
    ranges: I,
    held: Option<ChangedExtent>,
}

impl<I: Iterator<Item = Result<ChangedExtent, EngineError>>> Iterator for Joined<I> {
    type Item = Result<ChangedExtent, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.ranges.next() {
                Some(Ok(next)) => match &mut self.held {
                    Some(held) if held.kind == next.kind && held.offset + held.length == next.offset => {
                        held.length += next.length;
                        held.changed += next.changed;
                    }
                    held => {
                        if let Some(done) = held.replace(next) {
                            return Some(Ok(done));
                        }
                    }
                },
                Some(Err(error)) => {
                    self.held = None;
                    return Some(Err(error));
                }
                None => return self.held.take().map(Ok),
            }
        }
    }
}

fn as_stored(wanted: &Wanted) -> farside_store::Wanted {
    let Wanted { level, position, short } = *wanted;
    farside_store::Wanted { level, position, short }
}

fn info(name: &VolumeName, status: &VolumeStatus) -> VolumeInfo {
    VolumeInfo {
        name: name.clone(),
        uuid: status.uuid,
        size_bytes: status.size_bytes,
        occupied_bytes: Some(status.occupied_bytes),
        is_replica: status.replica.as_ref().is_some_and(|r| !r.broken_off),
    }
}

fn replica_status(record: ReplicaRecord) -> ReplicaStatus {
    ReplicaStatus {
        relationship: record.relationship,
        peer: record.peer,
        source: record.source,
        broken_off: record.broken_off,
    }
}

fn new_snapshot(spec: &SnapshotSpec) -> NewSnapshot {
    NewSnapshot {
        name: spec.name.clone(),
        uuid: spec.uuid,
        created_at: spec.created_at,
        relationship: match spec.owner {
            SnapshotOwner::Person => None,
            SnapshotOwner::Relationship(relationship) => Some(relationship),
        },
        pin_for: spec.pin_for,
    }
}

fn snapshot_info(status: &SnapshotStatus) -> SnapshotInfo {
    SnapshotInfo {
        name: status.name.clone(),
        uuid: status.uuid,
        created_at: status.created_at,
        size_bytes: status.size_bytes,
        owner: status.relationship.map_or(SnapshotOwner::Person, SnapshotOwner::Relationship),
        held: status.held,
        pinned_by: status.pinned_by.clone(),
        sequence: status.sequence,
    }
}

fn convert(pool: &str, error: StoreError) -> EngineError {
    match error {
        StoreError::NotFound(what) => EngineError::NotFound { what },
        StoreError::Exists(what) => EngineError::Exists { what },
        StoreError::Refused(why) => EngineError::Refused(why),
        other @ StoreError::OtherVersion { .. } => EngineError::Refused(other.to_string()),
        StoreError::Invalid(why) => EngineError::Invalid(why),
        StoreError::NoSpace { needed_bytes, available_bytes } => {
            EngineError::NoSpace { pool: pool.into(), needed_bytes, available_bytes }
        }
        over @ (StoreError::OverQuota { .. }
        | StoreError::QuotaTooSmall { .. }
        | StoreError::NoRoomToReserve { .. }) => EngineError::OverQuota(over.to_string()),
        StoreError::NoRoomForPoint { missing_pairs } => {
            let needed_bytes = missing_pairs * 2 * BLOCK_BYTES;
            EngineError::NoSpace { pool: pool.into(), needed_bytes, available_bytes: 0 }
        }
        corrupt @ (StoreError::Corrupt { .. }
        | StoreError::CorruptBlock { .. }
        | StoreError::Quarantined { .. }
        | StoreError::Inconsistent(_)
        | StoreError::JournalDamaged { .. }
        | StoreError::NoSuperblock { .. }) => EngineError::Corrupt(corrupt.to_string()),
        other => EngineError::Io(other.to_string()),
    }
}
