//! An engine in memory, as plain as can be: a version is a map from block number to block. It counts what is read,
//! and fails on request.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_engine::{
    BLOCK_BYTES, ChangeKind, ChangedBytes, ChangedExtent, ChangedExtents, ContentRoot, Engine, EngineError,
    FINGERPRINTS_MAX, Fingerprint, KnownDataScope, OpenSnapshot, ReadyVersion, ReplicaRecord, SnapshotInfo,
    SnapshotOwner, SnapshotSpec, StagedFor, StagedInfo, StagedVersion, StagingRoom, VolumeInfo, VolumeName,
    Wanted, short,
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

    fn fingerprints(&self, first: u64, count: u64) -> Result<Vec<Fingerprint>, EngineError> {
        if count > FINGERPRINTS_MAX {
            return Err(EngineError::Invalid(format!("{count} fingerprints at once")));
        }
        let of =
            |position| self.blocks.get(&position).map_or(Fingerprint::HOLE, |b| Fingerprint::of_block(b));
        Ok((first..first + count).map(of).collect())
    }

    /// Of the leaf nodes that hold something.
    fn nodes(&self) -> BTreeMap<u64, Fingerprint> {
        let positions = self.blocks.keys().map(|position| position / NODE_BLOCKS);
        let of = |node: u64| {
            let children = self.fingerprints(node * NODE_BLOCKS, NODE_BLOCKS).unwrap();
            Fingerprint::of_node(1, &children.try_into().unwrap())
        };
        positions.collect::<BTreeSet<u64>>().into_iter().map(|node| (node, of(node))).collect()
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
                    last.length += BLOCK_BYTES;
                    last.changed += BLOCK_BYTES;
                }
                _ => extents.push(ChangedExtent { offset, length: BLOCK_BYTES, kind, changed: BLOCK_BYTES }),
            }
        }
        extents
    }
}

/// Blocks of a leaf node.
const NODE_BLOCKS: u64 = 128;

/// What a scope knows: by level and front of the fingerprint, the whole of it and its blocks.
type Known = HashMap<(u8, u64), (Fingerprint, Vec<Option<Block>>)>;

impl State {
    /// Everything that was published in a replica of the peer.
    fn known(&mut self, scope: &KnownDataScope) -> Arc<Known> {
        let is_theirs = |volume: &&Volume| volume.record.as_ref().is_some_and(|r| r.peer == scope.peer);
        let theirs = || self.volumes.values().filter(is_theirs).flat_map(|volume| &volume.snapshots);
        let mut ids: Vec<Uuid> = theirs().map(|snapshot| snapshot.info.uuid).collect();
        ids.sort();
        if let Some((_, known)) = self.known.as_ref().filter(|(of, _)| *of == ids) {
            return known.clone();
        }
        let mut known = Known::new();
        for snapshot in theirs() {
            for block in snapshot.image.blocks.values() {
                let fingerprint = Fingerprint::of_block(block);
                known.insert((0, short(fingerprint)), (fingerprint, vec![Some(block.clone())]));
            }
            for (node, fingerprint) in snapshot.image.nodes() {
                let positions = node * NODE_BLOCKS..(node + 1) * NODE_BLOCKS;
                let blocks = positions.map(|p| snapshot.image.blocks.get(&p).cloned()).collect();
                known.insert((1, short(fingerprint)), (fingerprint, blocks));
            }
        }
        let known = Arc::new(known);
        self.known = Some((ids, known.clone()));
        known
    }
}

/// Rescued versions of all sites: no two have one identity.
static RESCUES: AtomicU64 = AtomicU64::new(0);
static SEQUENCE: AtomicU64 = AtomicU64::new(0);

struct Volume {
    uuid: Uuid,
    live: Image,
    /// Hosts wrote since the head began, or since the last snapshot of it.
    is_written: bool,
    /// The snapshot that the head descends from.
    parent: Option<Uuid>,
    snapshots: Vec<Snapshot>,
    record: Option<ReplicaRecord>,
    staged: Option<Staging>,
}

struct Snapshot {
    info: SnapshotInfo,
    image: Image,
    parent: Option<Uuid>,
}

#[derive(Clone)]
struct Staging {
    number: u64,
    base: Option<Uuid>,
    staged_for: StagedFor,
    image: Image,
    /// The image as it was last made durable.
    saved: Image,
}

#[derive(Default)]
struct State {
    volumes: HashMap<VolumeName, Volume>,
    stagings: u64,
    /// What was last looked up, and in which snapshots.
    known: Option<(Vec<Uuid>, Arc<Known>)>,
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
    /// What is said to be adopted from elsewhere is something else.
    pub(crate) adopts_falsely: bool,
    /// The fingerprints of what is adopted are not those asked for but for their fronts.
    pub(crate) finds_other_content: bool,
    /// Room for staged writes, bytes.
    pub(crate) staged_bytes_left: Option<u64>,
    /// Room for what is staged and not published, bytes; what is thrown away gives it back at once.
    pub(crate) staging_room: Option<u64>,
    /// This snapshot is deleted by whoever it was kept for, just before it is pinned for somebody else.
    pub(crate) goes_before_pin: Option<Uuid>,
    /// The same, just before the present state is compared with it.
    pub(crate) goes_before_comparison: Option<Uuid>,
    /// Records of replicas cannot be written.
    pub(crate) fails_records: bool,
    /// The machine is off: everything fails.
    pub(crate) is_dead: bool,
}

#[derive(Clone)]
pub(crate) struct MemoryEngine {
    state: Arc<Mutex<State>>,
    pub(crate) faults: Arc<Mutex<Faults>>,
    reads: Arc<AtomicU64>,
    /// Bytes of data written to staged versions, crashes or not.
    staged_writes: Arc<AtomicU64>,
}

impl MemoryEngine {
    fn new() -> Self {
        MemoryEngine {
            state: Arc::default(),
            faults: Arc::default(),
            reads: Arc::default(),
            staged_writes: Arc::default(),
        }
    }

    /// Bytes of data read from snapshots so far.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    /// Bytes of data written to staged versions so far: what arrived, again or for the first time.
    pub(crate) fn staged_write_bytes(&self) -> u64 {
        self.staged_writes.load(Ordering::SeqCst)
    }

    /// Bytes of data that are staged now, beside what the bases hold.
    fn staged_bytes(&self) -> u64 {
        let state = self.state.lock();
        let of = |volume: &Volume| {
            let staged = volume.staged.as_ref()?;
            let changes = Image::changes(&volume.base_image(staged.base).ok()?, &staged.image);
            Some(changes.iter().filter(|c| c.kind == ChangeKind::Data).map(|c| c.length).sum::<u64>())
        };
        state.volumes.values().filter_map(of).sum()
    }

    /// Writes to what is staged, as no transfer would.
    pub(crate) fn spoil_staged(&self, volume: &VolumeName) {
        let mut state = self.state.lock();
        let staged = state.volumes.get_mut(volume).unwrap().staged.as_mut().unwrap();
        let position = *staged.image.blocks.keys().next_back().unwrap();
        staged.image.write(position * BLOCK_BYTES, &[0xdd; BLOCK_BYTES as usize]);
        staged.saved = staged.image.clone();
    }

    /// Damages a snapshot where no read will see it: an altered identity.
    pub(crate) fn alter_snapshot(&self, volume: &VolumeName, snapshot: Uuid) {
        let mut state = self.state.lock();
        let volume = state.volumes.get_mut(volume).unwrap();
        let snapshot = volume.snapshots.iter_mut().find(|s| s.info.uuid == snapshot).unwrap();
        snapshot.image.write(0, &[0xee; BLOCK_BYTES as usize]);
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

    /// Counts a read of a snapshot, and lets happen to it what shall.
    fn spoil_read(&self, snapshot: Uuid, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError> {
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

    fn check_alive(&self) -> Result<(), EngineError> {
        if self.faults.lock().is_dead { Err(EngineError::Io("the machine is off".into())) } else { Ok(()) }
    }
}

/// A snapshot as it was when it was opened.
struct Opened {
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

impl Storage for MemoryEngine {
    fn create(_: &str, _: Arc<TokioClock>, _: u64) -> Self {
        MemoryEngine::new()
    }

    fn engine(&self) -> Arc<dyn Engine> {
        Arc::new(self.clone())
    }

    fn host_writes(&self, volume: &VolumeName, offset: u64, bytes: &[u8]) {
        let mut state = self.state.lock();
        let volume = state.volumes.get_mut(volume).unwrap();
        volume.live.write(offset, bytes);
        volume.is_written = true;
    }

    fn host_trims(&self, volume: &VolumeName, offset: u64, length: u64) {
        let mut state = self.state.lock();
        let volume = state.volumes.get_mut(volume).unwrap();
        volume.live.discard(offset, length);
        volume.is_written = true;
    }

    fn resize(&self, volume: &VolumeName, size_bytes: u64) {
        self.state.lock().volumes.get_mut(volume).unwrap().live.resize(size_bytes);
    }

    /// Everything but a staged version is durable at once; that is as it was last made durable, or as it was last.
    fn crash(&self, crash_seed: u64) -> Self {
        self.faults.lock().is_dead = true;
        let mut old = self.state.lock();
        let mut state = State { volumes: HashMap::new(), stagings: old.stagings, known: None };
        for (name, mut volume) in old.volumes.drain() {
            if let Some(staged) = volume.staged.as_mut().filter(|_| !crash_seed.is_multiple_of(4)) {
                staged.image = staged.saved.clone();
            }
            state.volumes.insert(name, volume);
        }
        MemoryEngine {
            state: Arc::new(Mutex::new(state)),
            staged_writes: self.staged_writes.clone(),
            ..MemoryEngine::new()
        }
    }

    fn has_staged(&self, volume: &VolumeName) -> bool {
        self.state.lock().volumes[volume].staged.is_some()
    }
}

impl Volume {
    fn position(&self, snapshot: Uuid) -> Result<usize, EngineError> {
        let found = self.snapshots.iter().position(|s| s.info.uuid == snapshot);
        found.ok_or_else(|| EngineError::NotFound { what: format!("snapshot {snapshot}") })
    }

    fn image(&self, snapshot: Uuid) -> Result<&Image, EngineError> {
        Ok(&self.snapshots[self.position(snapshot)?].image)
    }

    fn is_free(&self, name: &str) -> bool {
        self.snapshots.iter().all(|s| s.info.name != name)
    }

    fn base_image(&self, base: Option<Uuid>) -> Result<Image, EngineError> {
        base.map_or(Ok(Image::default()), |base| self.image(base).cloned())
    }

    fn add(
        &mut self,
        spec: &SnapshotSpec,
        image: Image,
        parent: Option<Uuid>,
    ) -> Result<SnapshotInfo, EngineError> {
        if self.snapshots.iter().any(|s| s.info.name == spec.name || s.info.uuid == spec.uuid) {
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
            sequence: SEQUENCE.fetch_add(1, Ordering::SeqCst),
        };
        self.snapshots.push(Snapshot { info: info.clone(), image, parent });
        Ok(info)
    }

    /// The head begins anew as a snapshot. What hosts wrote stays as a side branch.
    fn replace_head(&mut self, snapshot: Uuid) -> Result<Option<SnapshotInfo>, EngineError> {
        let image = self.image(snapshot)?.clone();
        let old = std::mem::replace(&mut self.live, image);
        let parent = self.parent.replace(snapshot);
        let is_on_new_line = self.main_line().iter().any(|uuid| self.image(*uuid).is_ok_and(|i| *i == old));
        if !std::mem::take(&mut self.is_written) || is_on_new_line {
            return Ok(None);
        }
        let newest = self.snapshots.iter().map(|s| s.info.created_at).max();
        let moment = newest.expect("there is the one that the head becomes");
        let named = |number: usize| format!("rescue-{moment}-{number}");
        let spec = SnapshotSpec {
            name: (self.snapshots.len()..).map(named).find(|name| self.is_free(name)).unwrap(),
            uuid: Uuid::from_u128(0x7e5c << 64 | u128::from(RESCUES.fetch_add(1, Ordering::SeqCst))),
            created_at: moment,
            owner: SnapshotOwner::Person,
            pin_for: None,
        };
        self.add(&spec, old, parent).map(Some)
    }

    /// Deletes a snapshot, whoever needs it.
    fn remove(&mut self, at: usize) -> Result<(), EngineError> {
        let gone = self.snapshots.remove(at);
        let (gone, parent, gone_image) = (Some(gone.info.uuid), gone.parent, gone.image);
        for child in self.snapshots.iter_mut().filter(|s| s.parent == gone) {
            child.parent = parent;
        }
        if let Some(staged) = self.staged.as_mut().filter(|s| s.base == gone) {
            staged.base = parent;
        }
        if self.parent == gone {
            // The head has now what the snapshot had alone.
            let below = parent.map(|parent| self.image(parent).cloned()).transpose()?;
            self.is_written |= below.unwrap_or_default() != gone_image;
            self.parent = parent;
        }
        Ok(())
    }

    /// Ids of the snapshots that the head descends from.
    fn main_line(&self) -> Vec<Uuid> {
        let next = |of: &Uuid| self.position(*of).ok().and_then(|at| self.snapshots[at].parent);
        std::iter::successors(self.parent, next).collect()
    }
}

impl Engine for MemoryEngine {
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
        self.check_alive()?;
        Ok(self.state.lock().volumes.keys().cloned().collect())
    }

    fn create_volume(&self, name: &VolumeName, size_bytes: u64) -> Result<VolumeInfo, EngineError> {
        self.check_alive()?;
        let mut state = self.state.lock();
        let volume = Volume {
            uuid: Uuid::from_u128(state.volumes.len() as u128 + 1),
            live: Image { size_bytes, ..Image::default() },
            is_written: false,
            parent: None,
            snapshots: Vec::new(),
            record: None,
            staged: None,
        };
        if state.volumes.contains_key(name) {
            return Err(EngineError::Exists { what: format!("volume {name}") });
        }
        state.volumes.insert(name.clone(), volume);
        drop(state);
        self.volume(name)
    }

    fn delete_volume(&self, name: &VolumeName) -> Result<(), EngineError> {
        self.with(name, |volume| match volume.snapshots.iter().all(|s| s.info.pinned_by.is_empty()) {
            true => Ok(()),
            false => Err(EngineError::Refused("a snapshot is pinned".into())),
        })?;
        self.state.lock().volumes.remove(name);
        Ok(())
    }

    fn snapshots(&self, name: &VolumeName) -> Result<Vec<SnapshotInfo>, EngineError> {
        self.with(name, |volume| {
            let line = volume.main_line();
            let on_it = volume.snapshots.iter().filter(|s| line.contains(&s.info.uuid));
            Ok(on_it.map(|s| s.info.clone()).collect())
        })
    }

    fn all_snapshots(&self, name: &VolumeName) -> Result<Vec<SnapshotInfo>, EngineError> {
        self.with(name, |volume| Ok(volume.snapshots.iter().map(|s| s.info.clone()).collect()))
    }

    fn fork(&self, name: &VolumeName, snapshot: Uuid) -> Result<Option<Uuid>, EngineError> {
        self.with(name, |volume| {
            volume.position(snapshot)?;
            let line = volume.main_line();
            let next = |of: &Uuid| volume.position(*of).ok().and_then(|at| volume.snapshots[at].parent);
            Ok(std::iter::successors(Some(snapshot), next).find(|uuid| line.contains(uuid)))
        })
    }

    fn take_snapshot(&self, name: &VolumeName, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError> {
        self.with(name, |volume| {
            let info = volume.add(spec, volume.live.clone(), volume.parent)?;
            volume.parent = Some(info.uuid);
            // What a mirror took goes when the mirror needs it no more.
            volume.is_written &= spec.owner != SnapshotOwner::Person;
            Ok(info)
        })
    }

    fn take_snapshots(
        &self,
        wanted: &[(VolumeName, SnapshotSpec)],
    ) -> Result<Vec<SnapshotInfo>, EngineError> {
        wanted.iter().map(|(volume, spec)| self.take_snapshot(volume, spec)).collect()
    }

    /// One after another: only the embedded engine has a moment for all of them.
    fn commit_together(&self, versions: &[ReadyVersion]) -> Result<Vec<SnapshotInfo>, EngineError> {
        versions.iter().map(|version| version.staged.commit(&version.spec)).collect()
    }

    fn delete_snapshot(&self, name: &VolumeName, snapshot: Uuid) -> Result<(), EngineError> {
        self.with(name, |volume| {
            let at = volume.position(snapshot)?;
            let info = &volume.snapshots[at].info;
            if !info.pinned_by.is_empty() || info.held {
                return Err(EngineError::Refused("the snapshot is pinned or held".into()));
            }
            volume.remove(at)
        })
    }

    fn make_user_snapshot(&self, name: &VolumeName, snapshot: Uuid) -> Result<(), EngineError> {
        self.with(name, |volume| {
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
    ) -> Result<SnapshotInfo, EngineError> {
        self.with(name, |volume| {
            let at = volume.position(snapshot)?;
            let number = (0..).find(|n| volume.is_free(&format!("{stem}-given-{n}"))).unwrap();
            let info = &mut volume.snapshots[at].info;
            info.owner = owner;
            info.name = format!("{stem}-given-{number}");
            Ok(info.clone())
        })
    }

    fn pin(&self, name: &VolumeName, snapshot: Uuid, relationship: Uuid) -> Result<(), EngineError> {
        let goes = self.faults.lock().goes_before_pin.take_if(|goes| *goes == snapshot).is_some();
        self.with(name, |volume| {
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
        self.with(name, |volume| {
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
        let extents = self
            .with(name, |volume| Ok(Image::changes(&volume.base_image(base)?, volume.image(incremental)?)))?;
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
        self.check_alive()?;
        let number = {
            let mut state = self.state.lock();
            state.stagings += 1;
            state.stagings
        };
        self.with(name, |volume| {
            let mut image = volume.base_image(base)?;
            image.resize(size_bytes);
            assert!(volume.staged.is_none(), "two versions staged at once");
            volume.staged = Some(Staging { number, base, staged_for, saved: image.clone(), image });
            Ok(())
        })?;
        Ok(Arc::new(Staged { engine: self.clone(), volume: name.clone(), number }))
    }

    fn staged(&self, name: &VolumeName) -> Result<Vec<(StagedInfo, Arc<dyn StagedVersion>)>, EngineError> {
        let number = self.with(name, |volume| Ok(volume.staged.as_ref().map(|s| s.number)))?;
        let mut found: Vec<(StagedInfo, Arc<dyn StagedVersion>)> = Vec::new();
        if let Some(number) = number {
            let staged = Staged { engine: self.clone(), volume: name.clone(), number };
            found.push((staged.info()?, Arc::new(staged)));
        }
        Ok(found)
    }

    fn move_main(
        &self,
        name: &VolumeName,
        snapshot: Uuid,
        record: Option<ReplicaRecord>,
    ) -> Result<Option<SnapshotInfo>, EngineError> {
        self.with(name, |volume| {
            let rescued = volume.replace_head(snapshot)?;
            volume.record = record.or(volume.record.take());
            Ok(rescued)
        })
    }

    fn move_replica(
        &self,
        name: &VolumeName,
        snapshot: Uuid,
        relationship: Uuid,
    ) -> Result<Option<SnapshotInfo>, EngineError> {
        self.with(name, |volume| {
            let is_replica =
                volume.record.as_ref().is_some_and(|r| r.relationship == relationship && !r.broken_off);
            if is_replica {
                volume.replace_head(snapshot)
            } else {
                Err(EngineError::Refused(String::from("it is not the replica of this relationship")))
            }
        })
    }

    fn changed_since(&self, name: &VolumeName, snapshot: Uuid) -> Result<ChangedBytes, EngineError> {
        let goes = self.faults.lock().goes_before_comparison.take_if(|goes| *goes == snapshot).is_some();
        self.with(name, |volume| {
            if goes {
                volume.remove(volume.position(snapshot)?)?;
            }
            let mut changed = ChangedBytes::default();
            for extent in Image::changes(volume.image(snapshot)?, &volume.live) {
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
        Ok(Some(StagingRoom { room_bytes, reserve_bytes: 0, quota_bytes: None }))
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
        if self.faults.lock().fails_records {
            return Err(EngineError::Io("the device failed".into()));
        }
        self.with(name, |volume| {
            volume.record = record;
            Ok(())
        })
    }

    fn end_replica_record(&self, name: &VolumeName, relationship: Uuid) -> Result<bool, EngineError> {
        if self.faults.lock().fails_records {
            return Err(EngineError::Io("the device failed".into()));
        }
        let is_it = |record: &mut ReplicaRecord| record.relationship == relationship && record.broken_off;
        self.with(name, |volume| Ok(volume.record.take_if(is_it).is_some()))
    }
}

struct Staged {
    engine: MemoryEngine,
    volume: VolumeName,
    number: u64,
}

impl Staged {
    fn with_staging<T>(&self, work: impl FnOnce(&mut Staging) -> T) -> Result<T, EngineError> {
        self.engine.with(&self.volume, |volume| match &mut volume.staged {
            Some(staging) if staging.number == self.number => Ok(work(staging)),
            _ => Err(EngineError::Refused("this staged version is gone".into())),
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Image) -> T) -> Result<T, EngineError> {
        self.with_staging(|staging| work(&mut staging.image))
    }
}

impl StagedVersion for Staged {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> Result<StagedInfo, EngineError> {
        self.with_staging(|staging| StagedInfo {
            base: staging.base,
            size_bytes: staging.image.size_bytes,
            staged_for: staging.staged_for,
        })
    }

    fn resize(&self, size_bytes: u64) -> Result<(), EngineError> {
        self.with(|image| image.resize(size_bytes))?;
        self.checkpoint()
    }

    fn retarget(&self, incremental: Uuid) -> Result<(), EngineError> {
        self.with_staging(|staging| staging.staged_for.incremental = incremental)
    }

    fn changed_from(&self, base: Option<Uuid>) -> Result<ChangedExtents, EngineError> {
        let base = self.engine.with(&self.volume, |volume| volume.base_image(base))?;
        let extents = self.with(|image| Image::changes(&base, image))?;
        Ok(Box::new(extents.into_iter().map(Ok)))
    }

    fn fingerprints(&self, first: u64, count: u64) -> Result<Vec<Fingerprint>, EngineError> {
        self.with(|image| image.fingerprints(first, count))?
    }

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
        let room = faults.staging_room;
        drop(faults);
        if let Some(room) = room {
            let (used, needed_bytes) = (self.engine.staged_bytes(), bytes.len() as u64);
            if used + needed_bytes > room {
                let available_bytes = room.saturating_sub(used);
                return Err(EngineError::NoSpace { pool: "q".into(), needed_bytes, available_bytes });
            }
        }
        self.engine.staged_writes.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        self.with(|image| image.write(offset, &bytes))
    }

    fn adopt(
        &self,
        scope: &KnownDataScope,
        wanted: &[Wanted],
    ) -> Result<Vec<Option<Fingerprint>>, EngineError> {
        self.engine.check_alive()?;
        let known = self.engine.state.lock().known(scope);
        let (adopts_falsely, finds_other_content) = {
            let faults = self.engine.faults.lock();
            (faults.adopts_falsely, faults.finds_other_content)
        };
        let mut found = Vec::new();
        for wanted in wanted {
            let Some((fingerprint, blocks)) = known.get(&(wanted.level, wanted.short)) else {
                found.push(None);
                continue;
            };
            let first = wanted.position * if wanted.level == 0 { 1 } else { NODE_BLOCKS };
            self.with(|image| {
                for (position, block) in (first..).zip(blocks) {
                    match block {
                        Some(_) if adopts_falsely || finds_other_content => {
                            image.write(position * BLOCK_BYTES, &[0xaa; BLOCK_BYTES as usize]);
                        }
                        Some(block) => image.write(position * BLOCK_BYTES, block),
                        None => image.discard(position * BLOCK_BYTES, BLOCK_BYTES),
                    }
                }
            })?;
            let mut answered = *fingerprint;
            answered.0[15] ^= u8::from(finds_other_content);
            found.push(Some(answered));
        }
        Ok(found)
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), EngineError> {
        self.with(|image| image.discard(offset, length))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError> {
        self.with(|image| image.read(offset, buffer))
    }

    fn checkpoint(&self) -> Result<(), EngineError> {
        self.with_staging(|staging| staging.saved = staging.image.clone())
    }

    fn content_root(&self) -> Result<ContentRoot, EngineError> {
        self.with(|image| image.root())
    }

    fn commit(&self, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError> {
        let (image, base) = self.with_staging(|staging| (staging.image.clone(), staging.base))?;
        self.engine.with(&self.volume, |volume| {
            let info = volume.add(spec, image, base)?;
            volume.replace_head(info.uuid)?;
            volume.staged = None;
            Ok(info)
        })
    }

    fn abandon(&self) -> Result<(), EngineError> {
        self.engine.with(&self.volume, |volume| {
            volume.staged = volume.staged.take().filter(|staging| staging.number != self.number);
            Ok(())
        })
    }
}
