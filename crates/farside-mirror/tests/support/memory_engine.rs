//! An engine in memory, as plain as can be: a version is a map from block number to block. It counts what is read,
//! and fails on request.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_engine::{
    BLOCK_BYTES, ChangeKind, ChangedExtent, ChangedExtents, ContentRoot, Engine, EngineError, Fingerprint,
    ReplicaRecord, SnapshotInfo, SnapshotSpec, StagedVersion, VolumeInfo, VolumeName,
};
use farside_format::fingerprint::is_zero;
use parking_lot::Mutex;
use uuid::Uuid;

use super::site::{Storage, TokioClock};

type Block = Arc<[u8]>;

#[derive(Clone, Default, PartialEq)]
struct Image {
    size_bytes: u64,
    blocks: BTreeMap<u64, Block>,
}

impl Image {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert!(offset.is_multiple_of(BLOCK_BYTES) && bytes.len().is_multiple_of(BLOCK_BYTES as usize));
        for (i, block) in bytes.chunks(BLOCK_BYTES as usize).enumerate() {
            let position = offset / BLOCK_BYTES + i as u64;
            if is_zero(block) {
                self.blocks.remove(&position);
            } else {
                self.blocks.insert(position, block.into());
            }
        }
    }

    fn discard(&mut self, offset: u64, length: u64) {
        let (from, to) = (offset / BLOCK_BYTES, (offset + length) / BLOCK_BYTES);
        let gone: Vec<u64> = self.blocks.range(from..to).map(|(p, _)| *p).collect();
        gone.iter().for_each(|p| drop(self.blocks.remove(p)));
    }

    fn resize(&mut self, size_bytes: u64) {
        self.blocks.split_off(&(size_bytes / BLOCK_BYTES));
        self.size_bytes = size_bytes;
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) {
        for (i, to) in buffer.chunks_mut(BLOCK_BYTES as usize).enumerate() {
            match self.blocks.get(&(offset / BLOCK_BYTES + i as u64)) {
                Some(block) => to.copy_from_slice(&block[..to.len()]),
                None => to.fill(0),
            }
        }
    }

    fn root(&self) -> ContentRoot {
        let mut level: BTreeMap<u64, Fingerprint> =
            self.blocks.iter().map(|(p, b)| (*p, Fingerprint::of_block(b))).collect();
        for number in 1..=6 {
            let mut nodes: BTreeMap<u64, [Fingerprint; 128]> = BTreeMap::new();
            for (position, fingerprint) in level {
                nodes.entry(position / 128).or_insert([Fingerprint::HOLE; 128])[(position % 128) as usize] =
                    fingerprint;
            }
            level =
                nodes.into_iter().map(|(p, children)| (p, Fingerprint::of_node(number, &children))).collect();
        }
        ContentRoot::new(level.get(&0).copied().unwrap_or(Fingerprint::HOLE), self.size_bytes)
    }

    fn changes(base: &Image, now: &Image) -> Vec<ChangedExtent> {
        let mut positions: Vec<u64> = base.blocks.keys().chain(now.blocks.keys()).copied().collect();
        positions.sort_unstable();
        positions.dedup();
        let mut extents: Vec<ChangedExtent> = Vec::new();
        for position in positions {
            let kind = match (base.blocks.get(&position), now.blocks.get(&position)) {
                (old, Some(new)) if old != Some(new) => ChangeKind::Data,
                (Some(_), None) => ChangeKind::Hole,
                _ => continue,
            };
            let offset = position * BLOCK_BYTES;
            match extents.last_mut() {
                Some(last) if last.kind == kind && last.offset + last.length == offset => {
                    last.length += BLOCK_BYTES
                }
                _ => extents.push(ChangedExtent { offset, length: BLOCK_BYTES, kind }),
            }
        }
        extents
    }
}

struct Volume {
    uuid: Uuid,
    live: Image,
    snapshots: Vec<(SnapshotInfo, Image)>,
    record: Option<ReplicaRecord>,
    staged: Option<(u64, Image)>,
}

#[derive(Default)]
struct State {
    volumes: HashMap<VolumeName, Volume>,
    stagings: u64,
}

/// What an engine does wrong, on request.
#[derive(Default)]
pub(crate) struct Faults {
    /// Reads of this snapshot give another byte.
    pub(crate) flip_reads_of: Option<Uuid>,
    /// Reads of this snapshot fail.
    pub(crate) fail_reads_of: Option<Uuid>,
    /// Writes to staged versions are damaged.
    pub(crate) flip_staged_writes: bool,
    /// Room for staged writes, bytes.
    pub(crate) staged_bytes_left: Option<u64>,
    /// The machine is off: everything fails.
    pub(crate) is_dead: bool,
}

#[derive(Clone)]
pub(crate) struct MemoryEngine {
    state: Arc<Mutex<State>>,
    pub(crate) faults: Arc<Mutex<Faults>>,
    reads: Arc<AtomicU64>,
}

impl MemoryEngine {
    fn new() -> Self {
        MemoryEngine { state: Arc::default(), faults: Arc::default(), reads: Arc::default() }
    }

    /// Bytes of data read from snapshots so far.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    /// Damages a snapshot where no read will see it: an altered identity.
    pub(crate) fn alter_snapshot(&self, volume: &VolumeName, snapshot: Uuid) {
        let mut state = self.state.lock();
        let volume = state.volumes.get_mut(volume).unwrap();
        let (_, image) = volume.snapshots.iter_mut().find(|(info, _)| info.uuid == snapshot).unwrap();
        image.write(0, &[0xee; BLOCK_BYTES as usize]);
    }

    fn with<T>(
        &self,
        name: &VolumeName,
        work: impl FnOnce(&mut Volume) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        self.check_alive()?;
        let mut state = self.state.lock();
        let not_found = || EngineError::NotFound { what: format!("volume {name}") };
        work(state.volumes.get_mut(name).ok_or_else(not_found)?)
    }

    fn check_alive(&self) -> Result<(), EngineError> {
        if self.faults.lock().is_dead { Err(EngineError::Io("the machine is off".into())) } else { Ok(()) }
    }
}

impl Storage for MemoryEngine {
    fn create(_: &str, _: Arc<TokioClock>, _: u64) -> Self {
        MemoryEngine::new()
    }

    fn engine(&self) -> Arc<dyn Engine> {
        Arc::new(self.clone())
    }

    fn host_writes(&self, volume: &VolumeName, offset: u64, bytes: &[u8]) {
        self.state.lock().volumes.get_mut(volume).unwrap().live.write(offset, bytes);
    }

    fn host_trims(&self, volume: &VolumeName, offset: u64, length: u64) {
        self.state.lock().volumes.get_mut(volume).unwrap().live.discard(offset, length);
    }

    fn resize(&self, volume: &VolumeName, size_bytes: u64) {
        self.state.lock().volumes.get_mut(volume).unwrap().live.resize(size_bytes);
    }

    /// Everything but a staged version is durable at once; that may be there still or not.
    fn crash(&self, luck: u64) -> Self {
        self.faults.lock().is_dead = true;
        let mut old = self.state.lock();
        let mut state = State { volumes: HashMap::new(), stagings: old.stagings };
        for (name, mut volume) in old.volumes.drain() {
            volume.staged = volume.staged.filter(|_| luck.is_multiple_of(2));
            state.volumes.insert(name, volume);
        }
        MemoryEngine { state: Arc::new(Mutex::new(state)), ..MemoryEngine::new() }
    }

    fn has_staged(&self, volume: &VolumeName) -> bool {
        self.state.lock().volumes[volume].staged.is_some()
    }
}

impl Volume {
    fn position(&self, snapshot: Uuid) -> Result<usize, EngineError> {
        let found = self.snapshots.iter().position(|(info, _)| info.uuid == snapshot);
        found.ok_or_else(|| EngineError::NotFound { what: format!("snapshot {snapshot}") })
    }

    fn add(&mut self, spec: &SnapshotSpec, image: Image) -> Result<SnapshotInfo, EngineError> {
        if self.snapshots.iter().any(|(info, _)| info.name == spec.name || info.uuid == spec.uuid) {
            return Err(EngineError::Exists { what: format!("snapshot {}", spec.name) });
        }
        let info = SnapshotInfo {
            name: spec.name.clone(),
            uuid: spec.uuid,
            created_at: spec.created_at,
            size_bytes: image.size_bytes,
            owner: spec.owner,
            held: false,
            pinned_by: spec.pin_for.into_iter().collect(),
        };
        self.snapshots.push((info.clone(), image));
        Ok(info)
    }
}

impl Engine for MemoryEngine {
    fn volume(&self, name: &VolumeName) -> Result<VolumeInfo, EngineError> {
        self.with(name, |volume| {
            Ok(VolumeInfo {
                name: name.clone(),
                uuid: volume.uuid,
                size_bytes: volume.live.size_bytes,
                is_replica: volume.record.as_ref().is_some_and(|r| !r.broken_off),
            })
        })
    }

    fn create_volume(&self, name: &VolumeName, size_bytes: u64) -> Result<VolumeInfo, EngineError> {
        self.check_alive()?;
        let mut state = self.state.lock();
        let live = Image { size_bytes, ..Image::default() };
        let uuid = Uuid::from_u128(state.volumes.len() as u128 + 1);
        let volume = Volume { uuid, live, snapshots: Vec::new(), record: None, staged: None };
        if state.volumes.contains_key(name) {
            return Err(EngineError::Exists { what: format!("volume {name}") });
        }
        state.volumes.insert(name.clone(), volume);
        drop(state);
        self.volume(name)
    }

    fn snapshots(&self, name: &VolumeName) -> Result<Vec<SnapshotInfo>, EngineError> {
        self.with(name, |volume| Ok(volume.snapshots.iter().map(|(info, _)| info.clone()).collect()))
    }

    fn take_snapshot(&self, name: &VolumeName, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError> {
        self.with(name, |volume| volume.add(spec, volume.live.clone()))
    }

    fn delete_snapshot(&self, name: &VolumeName, snapshot: Uuid) -> Result<(), EngineError> {
        self.with(name, |volume| {
            let at = volume.position(snapshot)?;
            if !volume.snapshots[at].0.pinned_by.is_empty() || volume.snapshots[at].0.held {
                return Err(EngineError::Refused("the snapshot is pinned or held".into()));
            }
            volume.snapshots.remove(at);
            Ok(())
        })
    }

    fn pin(&self, name: &VolumeName, snapshot: Uuid, relationship: Uuid) -> Result<(), EngineError> {
        self.with(name, |volume| {
            let at = volume.position(snapshot)?;
            let pins = &mut volume.snapshots[at].0.pinned_by;
            if !pins.contains(&relationship) {
                pins.push(relationship);
            }
            Ok(())
        })
    }

    fn unpin(&self, name: &VolumeName, snapshot: Uuid, relationship: Uuid) -> Result<(), EngineError> {
        self.with(name, |volume| {
            let at = volume.position(snapshot)?;
            volume.snapshots[at].0.pinned_by.retain(|r| *r != relationship);
            Ok(())
        })
    }

    fn content_root(&self, name: &VolumeName, snapshot: Uuid) -> Result<ContentRoot, EngineError> {
        self.with(name, |volume| Ok(volume.snapshots[volume.position(snapshot)?].1.root()))
    }

    fn changed_extents(
        &self,
        name: &VolumeName,
        base: Option<Uuid>,
        incremental: Uuid,
    ) -> Result<ChangedExtents, EngineError> {
        let extents = self.with(name, |volume| {
            let nothing = Image::default();
            let base = match base {
                Some(base) => &volume.snapshots[volume.position(base)?].1,
                None => &nothing,
            };
            Ok(Image::changes(base, &volume.snapshots[volume.position(incremental)?].1))
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
            volume.snapshots[volume.position(snapshot)?].1.read(offset, buffer);
            Ok(())
        })?;
        self.reads.fetch_add(buffer.len() as u64, Ordering::SeqCst);
        let faults = self.faults.lock();
        if faults.flip_reads_of == Some(snapshot) {
            buffer[0] ^= 1;
        }
        if faults.fail_reads_of == Some(snapshot) {
            return Err(EngineError::Corrupt(format!(
                "block {} does not match its fingerprint",
                offset / BLOCK_BYTES
            )));
        }
        Ok(())
    }

    fn stage(
        &self,
        name: &VolumeName,
        base: Option<Uuid>,
        size_bytes: u64,
    ) -> Result<Arc<dyn StagedVersion>, EngineError> {
        self.check_alive()?;
        let number = {
            let mut state = self.state.lock();
            state.stagings += 1;
            state.stagings
        };
        self.with(name, |volume| {
            let mut image = match base {
                Some(base) => volume.snapshots[volume.position(base)?].1.clone(),
                None => Image::default(),
            };
            image.resize(size_bytes);
            assert!(volume.staged.is_none(), "two versions staged at once");
            volume.staged = Some((number, image));
            Ok(())
        })?;
        Ok(Arc::new(Staged { engine: self.clone(), volume: name.clone(), number }))
    }

    fn abandon_staged(&self, name: &VolumeName) -> Result<usize, EngineError> {
        self.with(name, |volume| Ok(volume.staged.take().into_iter().count()))
    }

    fn replica_record(&self, name: &VolumeName) -> Result<Option<ReplicaRecord>, EngineError> {
        self.with(name, |volume| Ok(volume.record.clone()))
    }

    fn set_replica_record(
        &self,
        name: &VolumeName,
        record: Option<ReplicaRecord>,
    ) -> Result<(), EngineError> {
        self.with(name, |volume| {
            volume.record = record;
            Ok(())
        })
    }
}

struct Staged {
    engine: MemoryEngine,
    volume: VolumeName,
    number: u64,
}

impl Staged {
    fn with<T>(&self, work: impl FnOnce(&mut Image) -> T) -> Result<T, EngineError> {
        self.engine.with(&self.volume, |volume| match &mut volume.staged {
            Some((number, image)) if *number == self.number => Ok(work(image)),
            _ => Err(EngineError::Refused("this staged version is gone".into())),
        })
    }
}

impl StagedVersion for Staged {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
        let mut bytes = bytes.to_vec();
        let mut faults = self.engine.faults.lock();
        if faults.flip_staged_writes {
            bytes[7] ^= 1;
        }
        if let Some(left) = &mut faults.staged_bytes_left {
            let needed_bytes = bytes.len() as u64;
            let Some(rest) = left.checked_sub(needed_bytes) else {
                return Err(EngineError::NoSpace { pool: "p".into(), needed_bytes, available_bytes: *left });
            };
            *left = rest;
        }
        drop(faults);
        self.with(|image| image.write(offset, &bytes))
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), EngineError> {
        self.with(|image| image.discard(offset, length))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError> {
        self.with(|image| image.read(offset, buffer))
    }

    fn checkpoint(&self) -> Result<(), EngineError> {
        self.with(|_| ())
    }

    fn content_root(&self) -> Result<ContentRoot, EngineError> {
        self.with(|image| image.root())
    }

    fn commit(&self, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError> {
        let image = self.with(|image| image.clone())?;
        self.engine.with(&self.volume, |volume| {
            let info = volume.add(spec, image.clone())?;
            volume.live = image;
            volume.staged = None;
            Ok(info)
        })
    }

    fn abandon(&self) -> Result<(), EngineError> {
        self.engine.with(&self.volume, |volume| {
            volume.staged = volume.staged.take().filter(|(number, _)| *number != self.number);
            Ok(())
        })
    }
}
