//! The model: plain bytes per volume and snapshot, and a run that drives pool and model alike.
#![allow(dead_code, unreachable_pub, missing_docs)] // Shared by several test programs; each uses its part.

use std::collections::BTreeMap;
use std::sync::Arc;

use farside_format::fingerprint::TOP_LEVEL;
use farside_format::{ContentRoot, FAN_OUT, Fingerprint};
use farside_platform::{BlockDevice, ManualClock, SeededRandomness, SimulatedDisk, Timestamp};
use farside_store::{
    ChangedBlocks, DedupFigures, DedupIndex, DedupPosition, DifferenceKind, NewSnapshot, Pool, PoolOptions,
    ReplicaStatus, StagedFor, StagedVersion, StoreError,
};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use uuid::Uuid;

/// A volume that is there to fill the pool: nobody looks at it.
pub const BALLAST: &str = "ballast";

pub fn options(seed: u64) -> PoolOptions {
    let clock = Arc::new(ManualClock::new(Timestamp(1_800_000_000_000_000_000)));
    PoolOptions {
        background: false,
        // Small, so that points come often.
        overlay_bytes: 48 << 10,
        ..PoolOptions::new(clock, Arc::new(SeededRandomness::new(seed)))
    }
}

pub fn new_snapshot(name: &str) -> NewSnapshot {
    let uuid = Uuid::new_v5_like(name);
    NewSnapshot { name: name.into(), uuid, created_at: Timestamp(1), relationship: None, pin_for: None }
}

/// A UUID that follows from a name.
trait FromName {
    fn new_v5_like(name: &str) -> Uuid;
}
impl FromName for Uuid {
    fn new_v5_like(name: &str) -> Uuid {
        let mut bytes = [7u8; 16];
        for (i, b) in name.bytes().enumerate() {
            bytes[i % 16] = bytes[i % 16].wrapping_mul(31).wrapping_add(b);
        }
        Uuid::from_bytes(bytes)
    }
}

/// What a staged version is built for.
pub fn staged_for(number: u32) -> StagedFor {
    StagedFor { relationship: Uuid::from_u128(0x5e1), incremental: Uuid::from_u128(number.into()) }
}

/// What a pool shows: name (`volume`, `volume@snapshot`, `volume+what a staged version is for`, `volume!source` of a
/// replica record, `volume: limits`) to a digest of size and bytes.
pub type Observation = BTreeMap<String, (u64, u64)>;

fn digest(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
    })
}

/// Reads everything a pool shows.
pub fn observe(pool: &Arc<Pool>) -> Observation {
    try_observe(pool).expect("everything reads")
}

/// The same of a pool of which something may not be readable.
pub fn try_observe(pool: &Arc<Pool>) -> Result<Observation, StoreError> {
    let mut seen = Observation::new();
    for volume in pool.volumes().into_iter().filter(|volume| volume.name != BALLAST) {
        let handle = pool.open_volume(&volume.name)?;
        let mut bytes = vec![0; volume.size_bytes as usize];
        handle.read(0, &mut bytes)?;
        seen.insert(volume.name.clone(), (volume.size_bytes, digest(&bytes)));
        for snapshot in pool.snapshots(&volume.name)? {
            let handle = pool.open_snapshot(&volume.name, &snapshot.name)?;
            let mut bytes = vec![0; snapshot.size_bytes as usize];
            handle.read(0, &mut bytes)?;
            seen.insert(format!("{}@{}", volume.name, snapshot.name), (snapshot.size_bytes, digest(&bytes)));
        }
        for staged in pool.staged(&volume.name)? {
            let status = staged.status()?;
            let mut bytes = vec![0; status.size_bytes as usize];
            staged.read(0, &mut bytes)?;
            // What lies past its end is in the root, though not in the bytes.
            let root = staged.content_root()?;
            assert_eq!(root, root_of(&bytes), "nothing lies past the end of a staged version");
            let name = format!("{}+{}", volume.name, status.staged_for.incremental);
            seen.insert(name, (status.size_bytes, digest(&bytes)));
        }
        if volume.limits != farside_store::VolumeLimits::default() {
            seen.insert(format!("{}: {:?}", volume.name, volume.limits), (0, 0));
        }
        if let Some(replica) = volume.replica {
            seen.insert(format!("{}!{}", volume.name, replica.source), (0, 0));
        }
    }
    Ok(seen)
}

/// The content root of bytes, by the definition in the format's page.
fn root_of(bytes: &[u8]) -> ContentRoot {
    let mut level: Vec<Fingerprint> = bytes.chunks(4096).map(Fingerprint::of_block).collect();
    for number in 1..=TOP_LEVEL {
        level.resize(level.len().next_multiple_of(FAN_OUT).max(FAN_OUT), Fingerprint::HOLE);
        let nodes = level.as_chunks::<FAN_OUT>().0;
        level = nodes.iter().map(|children| Fingerprint::of_node(number, children)).collect();
    }
    ContentRoot::new(level[0], bytes.len() as u64)
}

/// Blocks in which `now` holds other data than `before`, and blocks that became holes.
pub fn changed_blocks(before: &[u8], now: &[u8]) -> ChangedBlocks {
    let mut changed = ChangedBlocks::default();
    let zeros = [0; 4096];
    for at in (0..before.len().max(now.len())).step_by(4096) {
        let [old, new] = [before, now].map(|bytes| bytes.get(at..at + 4096).unwrap_or(&zeros));
        match (old == new, new == zeros) {
            (true, _) => {}
            (false, false) => changed.data_blocks += 1,
            (false, true) => changed.hole_blocks += 1,
        }
    }
    changed
}

/// What a run left behind: the model after each operation, and when each began and ended on the disk.
pub struct History {
    pub states: Vec<Observation>,
    /// Per state: events before the operation began, events when it had ended, and whether it ended flushed.
    spans: Vec<(usize, usize, bool)>,
    /// Events when an operation had ended, and up to where the journal was on the medium then.
    journal: Vec<(usize, u64)>,
    pub first_event: usize,
}

impl History {
    /// States that a crash after `events` events may show: from the last one flushed before to the last one begun.
    pub fn bounds(&self, events: usize) -> (usize, usize) {
        let lower = self.spans.iter().rposition(|(_, end, flushed)| *flushed && *end <= events).unwrap_or(0);
        let upper = self.spans.iter().rposition(|(begin, _, _)| *begin < events).unwrap_or(0);
        (lower, upper.max(lower))
    }

    /// Where the journal may end at least that an opening finds after so many events: it was said to be on the medium.
    pub fn journal_at_least(&self, events: usize) -> u64 {
        let said = self.journal.iter().filter(|(end, _)| *end <= events);
        said.map(|(_, position)| *position).max().unwrap_or(0)
    }
}

struct Staged {
    volume: String,
    handle: StagedVersion,
    incremental: u32,
    bytes: Vec<u8>,
}

/// Drives a pool and its model.
pub struct Run {
    pub pool: Arc<Pool>,
    pub disk: SimulatedDisk,
    /// What the pool lies on: that disk, or something that does the same to it.
    device: Arc<dyn BlockDevice>,
    rng: SmallRng,
    volumes: BTreeMap<String, Vec<u8>>,
    /// What each head began as.
    began: BTreeMap<String, Vec<u8>>,
    snapshots: BTreeMap<(String, String), Vec<u8>>,
    staged: Option<Staged>,
    /// Sources in the replica records.
    records: BTreeMap<String, String>,
    names: u32,
    /// Blocks shared so far, and the most places with several owners at any time.
    pub shared: [u64; 2],
    dedups: Dedups,
    history: History,
}

/// Passes of deduplication: of each volume where the one under way is, and where the last one ended.
#[derive(Default)]
struct Dedups {
    index: Option<DedupIndex>,
    under_way: BTreeMap<String, DedupPosition>,
    last: BTreeMap<String, DedupPosition>,
}

impl Run {
    pub fn new(seed: u64, pool_bytes: u64) -> Run {
        let disk = SimulatedDisk::new("disk", pool_bytes);
        Run::on(seed, disk.clone(), Arc::new(disk))
    }

    /// The same on a device that has `disk` do whatever it does.
    pub fn on(seed: u64, disk: SimulatedDisk, device: Arc<dyn BlockDevice>) -> Run {
        let pool = Pool::create(Arc::clone(&device), options(seed)).expect("a pool");
        let mut run = Run {
            pool,
            disk,
            device,
            rng: SmallRng::seed_from_u64(seed),
            volumes: BTreeMap::new(),
            began: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            staged: None,
            records: BTreeMap::new(),
            names: 0,
            shared: [0; 2],
            dedups: Dedups::default(),
            history: History {
                states: vec![Observation::new()],
                spans: vec![(0, 0, true)],
                journal: Vec::new(),
                first_event: 0,
            },
        };
        run.history.first_event = run.disk.events();
        run.history.spans[0] = (0, run.disk.events(), true);
        for (name, blocks) in [("a", 300u64), ("b", 40)] {
            run.operate(true, |run| {
                run.pool.create_volume(name, blocks * 4096).expect("a volume");
                run.volumes.insert(name.into(), vec![0; (blocks * 4096) as usize]);
            });
        }
        run
    }

    /// One operation on both; `flushes` says whether it is durable when it returns.
    fn operate(&mut self, flushes: bool, operation: impl FnOnce(&mut Run)) {
        let begin = self.disk.events();
        operation(self);
        self.history.states.push(self.expected());
        self.history.spans.push((begin, self.disk.events(), flushes));
        self.history.journal.push((self.disk.events(), self.pool.status().journal_durable_to));
    }

    /// What the pool should show now.
    pub fn expected(&self) -> Observation {
        let volumes = self.volumes.iter().map(|(n, b)| (n.clone(), (b.len() as u64, digest(b))));
        let snapshots =
            self.snapshots.iter().map(|((v, s), b)| (format!("{v}@{s}"), (b.len() as u64, digest(b))));
        let staged = self.staged.iter().map(|s| {
            let incremental = staged_for(s.incremental).incremental;
            (format!("{}+{incremental}", s.volume), (s.bytes.len() as u64, digest(&s.bytes)))
        });
        let records = self.records.iter().map(|(v, source)| (format!("{v}!{source}"), (0, 0)));
        volumes.chain(snapshots).chain(staged).chain(records).collect()
    }

    fn pick_volume(&mut self) -> String {
        let at = self.rng.random_range(0..self.volumes.len());
        self.volumes.keys().nth(at).expect("there are volumes").clone()
    }

    fn pick_snapshot(&mut self) -> Option<(String, String)> {
        if self.snapshots.is_empty() {
            return None;
        }
        let at = self.rng.random_range(0..self.snapshots.len());
        self.snapshots.keys().nth(at).cloned()
    }

    fn fresh_name(&mut self, what: &str) -> String {
        self.names += 1;
        format!("{what}{}", self.names)
    }

    fn random_bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        match self.rng.random_range(0..6) {
            0 => {}
            1 => bytes.fill(0x5A),
            _ => self.rng.fill_bytes(&mut bytes),
        }
        bytes
    }

    /// One random operation.
    pub fn step(&mut self) {
        match self.rng.random_range(0..112) {
            0..24 => self.write(),
            24..33 => self.write_joined(),
            33..36 => self.compare_with_a_snapshot(),
            36..40 => self.move_main(),
            40..46 => self.trim(),
            46..51 => self.zero(),
            51..63 => self.operate(true, |run| run.pool.flush().expect("a flush")),
            63..72 => self.snapshot(),
            72..79 => self.delete_snapshot(),
            79..103 => self.stage(),
            103..107 => self.operate(true, |run| run.pool.consistency_point().expect("a point")),
            107..109 => {
                // A few nodes: the cursor stands in the middle of most trees at most crashes.
                let nodes = self.rng.random_range(1..4);
                self.operate(false, |run| {
                    run.pool.reap_step_within(nodes).expect("a reaping step");
                });
            }
            109..110 => self.clone_or_delete(),
            _ => self.resize(),
        }
    }

    /// The pool becomes larger by up to so many blocks: nothing that it shows changes.
    pub fn grow(&mut self, blocks_max: u64) {
        let more = self.rng.random_range(1..=blocks_max) * 4096;
        self.operate(true, |run| {
            let size = run.disk.bytes() + more;
            assert_eq!(run.pool.grow(size).expect("it grows"), size);
            assert_eq!(run.pool.status().size_bytes, size);
        });
    }

    /// Some blocks of a volume are written to another place as well.
    pub fn copy(&mut self) {
        let (from, to) = (self.pick_volume(), self.pick_volume());
        let blocks = |name: &str| self.volumes[name].len() / 4096;
        let first = self.rng.random_range(0..blocks(&from));
        let at = self.rng.random_range(0..blocks(&to));
        let most = (blocks(&from) - first).min(blocks(&to) - at).min(256 - at % 256).min(40);
        let count = self.rng.random_range(1..=most);
        let bytes = self.volumes[&from][first * 4096..(first + count) * 4096].to_vec();
        self.operate(false, |run| {
            let handle = run.pool.open_volume(&to).expect("the volume opens");
            match handle.write(at as u64 * 4096, &bytes) {
                Ok(()) => run.volumes.get_mut(&to).expect("known")[at * 4096..(at + count) * 4096]
                    .copy_from_slice(&bytes),
                Err(StoreError::NoSpace { .. }) => {}
                Err(e) => panic!("a copy: {e}"),
            }
        });
    }

    /// A step or two of a pass over a volume, which the next one goes on with. Nothing changes that anybody could see.
    pub fn dedup(&mut self) {
        let name = self.pick_volume();
        let steps = self.rng.random_range(1..4);
        self.operate(false, |run| {
            let among: Vec<Uuid> = run.pool.volumes().iter().map(|volume| volume.uuid).collect();
            let id = run.pool.volume_id(&name).expect("it is there");
            let index = run.dedups.index.take().unwrap_or_else(|| DedupIndex::new(1 << 20));
            let begun = match run.dedups.under_way.remove(&name) {
                Some(at) => run.pool.resume_dedup(id, &among, at, DedupFigures::default(), index),
                None => run.pool.begin_dedup(id, &among, run.dedups.last.get(&name).copied(), index),
            };
            let mut pass = begun.unwrap_or_else(|e| panic!("a pass: {e}"));
            let mut goes_on = true;
            for _ in 0..steps {
                match pass.step(&mut |_| {}) {
                    Ok(more) => goes_on = more,
                    Err(StoreError::NoSpace { .. }) => break,
                    Err(e) => panic!("a step of a pass: {e}"),
                }
            }
            let (figures, position) = (pass.figures(), pass.position());
            assert_eq!(figures.damaged_blocks, 0);
            run.shared[0] += figures.shared_blocks;
            run.shared[1] = run.shared[1].max(run.pool.status().shared_blocks);
            let kept = if goes_on { &mut run.dedups.under_way } else { &mut run.dedups.last };
            kept.insert(name.clone(), position);
            run.dedups.index = Some(pass.into_index());
        });
    }

    /// The blocks of a volume get places of their own again, some of them at least.
    pub fn undo_dedup(&mut self) {
        let name = self.pick_volume();
        let steps = self.rng.random_range(1..3);
        self.operate(false, |run| {
            let id = run.pool.volume_id(&name).expect("it is there");
            let mut undo = run.pool.begin_dedup_undo(id).expect("it begins");
            for _ in 0..steps {
                match undo.step(&mut |_| {}) {
                    Ok(true) => {}
                    Ok(false) | Err(StoreError::NoSpace { .. }) => break,
                    Err(e) => panic!("a step of an undoing: {e}"),
                }
            }
        });
    }

    fn write(&mut self) {
        let name = self.pick_volume();
        let size = self.volumes[&name].len();
        let (offset, length) = if self.rng.random_bool(0.3) {
            let offset = self.rng.random_range(0..size);
            (offset, self.rng.random_range(1..=(size - offset).min(20_000)))
        } else {
            let blocks = size / 4096;
            let first = self.rng.random_range(0..blocks);
            (first * 4096, self.rng.random_range(1..=(blocks - first).min(24)) * 4096)
        };
        // A write within one aligned MiB is one change.
        let length = length.min((1 << 20) - offset % (1 << 20));
        let bytes = self.random_bytes(length);
        let unit = self.rng.random_bool(0.2);
        self.operate(false, |run| {
            let handle = run.pool.open_volume(&name).expect("the volume opens");
            match handle.write(offset as u64, &bytes) {
                Ok(()) => run.volumes.get_mut(&name).expect("known")[offset..offset + length]
                    .copy_from_slice(&bytes),
                Err(StoreError::NoSpace { .. }) => {}
                Err(e) => panic!("a write: {e}"),
            }
        });
        if unit {
            let seen = {
                let handle = self.pool.open_volume(&name).expect("the volume opens");
                let mut seen = vec![0; size];
                handle.read(0, &mut seen).expect("it reads");
                seen
            };
            assert!(seen == self.volumes[&name], "read after write");
        }
    }

    /// Several writes as one; they may overlap.
    fn write_joined(&mut self) {
        let name = self.pick_volume();
        let size = self.volumes[&name].len();
        let blocks = size / 4096;
        // Near each other now and then, so that several have parts of the same block.
        let near = self.rng.random_range(0..blocks);
        let writes: Vec<(usize, Vec<u8>)> = (0..self.rng.random_range(1..=12))
            .map(|_| match self.rng.random_range(0..3) {
                0 => {
                    let at = self.rng.random_range(near * 4096..(near * 4096 + 8192).min(size));
                    let length = self.rng.random_range(1..=(size - at).min(5000));
                    (at, self.random_bytes(length))
                }
                _ => {
                    let first = self.rng.random_range(0..blocks);
                    let count = self.rng.random_range(1..=(blocks - first).min(8));
                    (first * 4096, self.random_bytes(count * 4096))
                }
            })
            .collect();
        self.operate(false, |run| {
            let handle = run.pool.open_volume(&name).expect("the volume opens");
            let all: Vec<_> = writes.iter().map(|(at, bytes)| (*at as u64, &bytes[..])).collect();
            match handle.write_joined(&all) {
                Ok(()) => {
                    for (at, bytes) in &writes {
                        run.volumes.get_mut(&name).expect("known")[*at..at + bytes.len()]
                            .copy_from_slice(bytes);
                    }
                }
                Err(StoreError::NoSpace { .. }) => {}
                Err(e) => panic!("joined writes: {e}"),
            }
        });
        assert_eq!(observe(&self.pool)[&name], self.expected()[&name], "read after write");
    }

    fn trim(&mut self) {
        let name = self.pick_volume();
        let size = self.volumes[&name].len();
        let offset = self.rng.random_range(0..size);
        let length = self.rng.random_range(0..=size - offset);
        self.operate(false, |run| {
            let handle = run.pool.open_volume(&name).expect("the volume opens");
            match handle.trim(offset as u64, length as u64) {
                Ok(()) => {
                    let (first, last) = (offset.div_ceil(4096) * 4096, (offset + length) / 4096 * 4096);
                    if first < last {
                        run.volumes.get_mut(&name).expect("known")[first..last].fill(0);
                    }
                }
                Err(StoreError::NoSpace { .. }) => {}
                Err(e) => panic!("a trim: {e}"),
            }
        });
    }

    fn zero(&mut self) {
        let name = self.pick_volume();
        let blocks = self.volumes[&name].len() / 4096;
        let first = self.rng.random_range(0..blocks);
        let count = self.rng.random_range(1..=blocks - first);
        self.operate(false, |run| {
            let handle = run.pool.open_volume(&name).expect("the volume opens");
            match handle.write_zeroes(first as u64 * 4096, count as u64 * 4096) {
                Ok(()) => {
                    run.volumes.get_mut(&name).expect("known")[first * 4096..(first + count) * 4096].fill(0)
                }
                Err(StoreError::NoSpace { .. }) => {}
                Err(e) => panic!("zeroes: {e}"),
            }
        });
    }

    fn snapshot(&mut self) {
        let both = self.rng.random_bool(0.3) && self.volumes.len() > 1;
        let mut wanted = vec![self.pick_volume()];
        if both {
            wanted.extend(self.volumes.keys().find(|v| **v != wanted[0]).cloned());
        }
        let name = self.fresh_name("s");
        self.operate(true, |run| {
            let list: Vec<_> =
                wanted.iter().map(|v| (v.clone(), new_snapshot(&format!("{name}-{v}")))).collect();
            match run.pool.create_snapshots(&list) {
                Ok(_) => {
                    for volume in &wanted {
                        let bytes = run.volumes[volume].clone();
                        run.snapshots.insert((volume.clone(), format!("{name}-{volume}")), bytes);
                    }
                }
                Err(StoreError::NoSpace { .. }) => {}
                Err(e) => panic!("a snapshot: {e}"),
            }
        });
    }

    fn delete_snapshot(&mut self) {
        let Some((volume, name)) = self.pick_snapshot() else { return };
        self.operate(true, |run| {
            let uuid = run.pool.snapshot_named(&volume, &name).expect("it is there").uuid;
            run.pool.delete_snapshot(&volume, uuid).expect("it can go");
            run.snapshots.remove(&(volume, name));
        });
    }

    fn stage(&mut self) {
        let Some(mut staged) = self.staged.take() else {
            let volume = self.pick_volume();
            let base = self.pick_snapshot().filter(|(v, _)| *v == volume);
            let size = match self.rng.random_bool(0.7) {
                true => self.volumes[&volume].len(),
                false => self.rng.random_range(20..400) * 4096,
            };
            self.names += 1;
            let incremental = self.names;
            self.operate(true, |run| {
                let uuid =
                    base.as_ref().map(|(v, s)| run.pool.snapshot_named(v, s).expect("it is there").uuid);
                let mut bytes = base.as_ref().map_or(Vec::new(), |b| run.snapshots[b].clone());
                bytes.resize(size, 0);
                match run.pool.stage(&volume, uuid, size as u64, staged_for(incremental)) {
                    Ok(handle) => run.staged = Some(Staged { volume, handle, incremental, bytes }),
                    Err(StoreError::NoSpace { .. }) => {}
                    Err(e) => panic!("staging: {e}"),
                }
            });
            return;
        };
        match self.rng.random_range(0..26) {
            13.. => self.share(staged),
            0..6 => {
                let blocks = staged.bytes.len() / 4096;
                let first = self.rng.random_range(0..blocks);
                let count = self.rng.random_range(1..=(blocks - first).min(16));
                let bytes = self.random_bytes(count * 4096);
                self.operate(false, |run| {
                    match staged.handle.write(first as u64 * 4096, &bytes) {
                        Ok(()) => staged.bytes[first * 4096..(first + count) * 4096].copy_from_slice(&bytes),
                        Err(StoreError::NoSpace { .. }) => {}
                        Err(e) => panic!("a staged write: {e}"),
                    }
                    run.staged = Some(staged);
                });
            }
            6 => self.operate(true, |_| staged.handle.abandon().expect("abandoned")),
            7 => {
                let blocks = self.rng.random_range(20..400usize);
                self.operate(true, |run| {
                    match staged.handle.resize(blocks as u64 * 4096) {
                        Ok(()) => staged.bytes.resize(blocks * 4096, 0),
                        Err(StoreError::NoSpace { .. }) => {}
                        Err(e) => panic!("a staged resize: {e}"),
                    }
                    run.staged = Some(staged);
                });
            }
            8 => {
                self.names += 1;
                staged.incremental = self.names;
                self.operate(true, |run| {
                    let incremental = staged_for(staged.incremental).incremental;
                    staged.handle.retarget(incremental).expect("retargeted");
                    run.staged = Some(staged);
                });
            }
            9 => {
                self.compare_staged(&staged);
                self.staged = Some(staged);
            }
            _ => self.commit(staged),
        }
    }

    /// Blocks of a snapshot or head, of any volume, mapped into the staged version: often, so that counts go up and down.
    fn share(&mut self, mut staged: Staged) {
        let (handle, source) = match self.pick_snapshot() {
            Some((volume, name)) if self.rng.random_bool(0.6) => {
                let handle = self.pool.open_snapshot(&volume, &name).expect("it opens");
                (handle, self.snapshots[&(volume, name)].clone())
            }
            _ => {
                let volume = self.pick_volume();
                (self.pool.open_volume(&volume).expect("it opens"), self.volumes[&volume].clone())
            }
        };
        let blocks = |bytes: &[u8]| bytes.len() / 4096;
        // Where something is.
        let from = self.rng.random_range(0..blocks(&source));
        let is_data = |block: &usize| source[block * 4096..(block + 1) * 4096] != [0; 4096];
        let Some(from) = (from..blocks(&source)).chain(0..from).find(is_data) else {
            self.staged = Some(staged);
            return;
        };
        let to = self.rng.random_range(0..blocks(&staged.bytes));
        // Within one aligned MiB it is one change.
        let most = (blocks(&source) - from).min(blocks(&staged.bytes) - to).min(256 - to % 256);
        let count = self.rng.random_range(1..=most.min(24));
        let mut expected = handle.fingerprints(from as u64, count as u64).expect("fingerprints");
        let mut shareable = expected.len();
        if self.rng.random_bool(0.1) {
            // What the source holds no more ends the share there.
            shareable = self.rng.random_range(0..count);
            expected[shareable] = Fingerprint([0xEE; 16]);
        }
        self.operate(false, |run| {
            match staged.handle.share(to as u64, &handle, from as u64, &expected) {
                Ok(shared) => {
                    assert_eq!(shared, shareable as u64, "blocks shared");
                    run.shared[0] += expected[..shareable].iter().filter(|f| !f.is_hole()).count() as u64;
                    run.shared[1] = run.shared[1].max(run.pool.status().shared_blocks);
                    let bytes = &source[from * 4096..(from + shareable) * 4096];
                    staged.bytes[to * 4096..(to + shareable) * 4096].copy_from_slice(bytes);
                }
                Err(StoreError::NoSpace { .. }) => {}
                Err(e) => panic!("a share: {e}"),
            }
            run.staged = Some(staged);
        });
    }

    fn commit(&mut self, staged: Staged) {
        let name = self.fresh_name("c");
        self.operate(true, |run| {
            let mut seen = vec![0; staged.bytes.len()];
            staged.handle.read(0, &mut seen).expect("staged bytes read");
            assert!(seen == staged.bytes, "staged bytes");
            let list = |run: &Run| run.pool.snapshots(&staged.volume).expect("a list");
            let before: Vec<String> = list(run).into_iter().map(|s| s.name).collect();
            match staged.handle.commit(&new_snapshot(&name)) {
                Ok(_) => {
                    run.snapshots.insert((staged.volume.clone(), name.clone()), staged.bytes.clone());
                    let rescued = list(run).into_iter().find(|s| s.name != name && !before.contains(&s.name));
                    run.show(&staged.volume, staged.bytes, rescued.map(|r| (r.name, r.on_main_line)));
                }
                Err(StoreError::NoSpace { .. }) => {}
                Err(e) => panic!("a commit: {e}"),
            }
        });
    }

    /// The head begins anew as `bytes`; what it held is in `rescued` (name, whether it is on the main line), or nothing
    /// is lost with it.
    fn show(&mut self, volume: &str, bytes: Vec<u8>, rescued: Option<(String, bool)>) {
        let old = self.volumes.insert(volume.into(), bytes.clone()).expect("it was there");
        let began = self.began.insert(volume.into(), bytes);
        match rescued {
            Some((name, on_main_line)) => {
                assert!(name.starts_with("rescue-") && !on_main_line, "{name}");
                self.snapshots.insert((volume.into(), name), old);
            }
            None => {
                // Sizes aside: a resize alone is no write.
                let data = |bytes: &[u8]| bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
                let same = |kept: &[u8]| old[..data(&old)] == kept[..data(kept)];
                let kept = self.snapshots.iter().any(|((v, _), kept)| v == volume && same(kept));
                let is_safe = data(&old) == 0 || kept || began.is_some_and(|began| same(&began));
                assert!(is_safe, "{volume} held writes of its own, and they are gone");
            }
        }
    }

    fn move_main(&mut self) {
        let Some((volume, name)) = self.pick_snapshot() else { return };
        let source = self.rng.random_bool(0.4).then(|| self.fresh_name("far/v"));
        self.operate(true, |run| {
            let record = source.clone().map(|source| ReplicaStatus {
                relationship: Uuid::from_u128(0x5e1),
                peer: [1; 32],
                source,
                // Hosts go on writing.
                broken_off: true,
            });
            let uuid = run.pool.snapshot_named(&volume, &name).expect("it is there").uuid;
            match run.pool.move_main(&volume, uuid, record, None) {
                Ok(rescued) => {
                    let bytes = run.snapshots[&(volume.clone(), name.clone())].clone();
                    run.show(&volume, bytes, rescued.map(|r| (r.name, r.on_main_line)));
                    assert!(run.pool.snapshot(&volume, uuid).expect("there").on_main_line);
                    if let Some(source) = source {
                        run.records.insert(volume, source);
                    }
                }
                Err(StoreError::NoSpace { .. }) => {}
                Err(e) => panic!("moving the main line: {e}"),
            }
        });
    }

    /// What is asked of metadata alone, against the model.
    fn compare_with_a_snapshot(&mut self) {
        let Some(key) = self.pick_snapshot() else { return };
        let uuid = self.pool.snapshot_named(&key.0, &key.1).expect("it is there").uuid;
        let changed = self.pool.changed_since(&key.0, uuid).expect("a walk");
        assert_eq!(changed, changed_blocks(&self.snapshots[&key], &self.volumes[&key.0]), "{key:?}");
    }

    fn compare_staged(&mut self, staged: &Staged) {
        let base = self.pick_snapshot().filter(|(v, _)| *v == staged.volume);
        let uuid = base.as_ref().map(|(v, s)| self.pool.snapshot_named(v, s).expect("it is there").uuid);
        let mut changed = ChangedBlocks::default();
        for range in staged.handle.changed_from(uuid).expect("a walk begins") {
            let range = range.expect("a step");
            match range.kind {
                DifferenceKind::Data => changed.data_blocks += range.changed,
                DifferenceKind::Hole => changed.hole_blocks += range.changed,
            }
        }
        let nothing = Vec::new();
        let before = base.as_ref().map_or(&nothing, |b| &self.snapshots[b]);
        assert_eq!(changed, changed_blocks(before, &staged.bytes), "staged");
        let first = self.rng.random_range(0..450u64);
        let count = self.rng.random_range(0..200u64);
        let found = staged.handle.fingerprints(first, count).expect("fingerprints");
        let of = |block: u64| {
            let at = block as usize * 4096;
            staged.bytes.get(at..at + 4096).map_or(Fingerprint::HOLE, Fingerprint::of_block)
        };
        assert!(found.into_iter().eq((first..first + count).map(of)), "fingerprints of {first}+{count}");
    }

    fn clone_or_delete(&mut self) {
        if self.volumes.len() > 3 {
            let volume = self.volumes.keys().last().expect("there are some").clone();
            if self.staged.as_ref().is_some_and(|s| s.volume == volume) {
                self.staged = None;
            }
            self.operate(true, |run| {
                run.pool.delete_volume(&volume).expect("it can go");
                run.volumes.remove(&volume);
                run.records.remove(&volume);
                run.snapshots.retain(|(v, _), _| *v != volume);
            });
            return;
        }
        let Some((volume, snapshot)) = self.pick_snapshot() else { return };
        let name = self.fresh_name("z");
        self.operate(true, |run| match run.pool.clone_snapshot(&volume, &snapshot, &name) {
            Ok(_) => {
                let bytes = run.snapshots[&(volume, snapshot)].clone();
                run.began.insert(name.clone(), bytes.clone());
                run.volumes.insert(name, bytes);
            }
            Err(StoreError::NoSpace { .. }) => {}
            Err(e) => panic!("a clone: {e}"),
        });
    }

    fn resize(&mut self) {
        let name = self.pick_volume();
        let blocks = self.rng.random_range(20..400usize);
        self.operate(true, |run| match run.pool.resize_volume(&name, blocks as u64 * 4096) {
            Ok(()) => run.volumes.get_mut(&name).expect("known").resize(blocks * 4096, 0),
            Err(StoreError::NoSpace { .. }) => {}
            Err(e) => panic!("a resize: {e}"),
        });
    }

    /// The daemon is killed, half of the time in the middle of a consistency point, and opens the pool again: the next life goes
    /// on with the journal of this one.
    pub fn restart(&mut self) {
        let requests = self.rng.random_bool(0.5).then(|| self.rng.random_range(0..60));
        self.operate(true, |run| {
            run.pool.flush().expect("a flush");
            if requests.is_some() {
                run.disk.fail_after(requests);
                // It fails unless it needed fewer requests.
                let _ = run.pool.consistency_point();
                run.disk.fail_after(None);
            }
            let staged = run.staged.take().map(|s| (s.volume, s.incremental, s.bytes));
            run.dedups.index = None;
            run.pool = Pool::open(Arc::clone(&run.device), options(run.names.into())).expect("it opens");
            run.staged = staged.map(|(volume, incremental, bytes)| {
                let mut found = run.pool.staged(&volume).expect("a list");
                Staged { volume, handle: found.pop().expect("it is still staged"), incremental, bytes }
            });
        });
        assert_eq!(observe(&self.pool), self.expected(), "after a restart");
    }

    /// Ends the run like a power failure: nothing is closed.
    pub fn finish(self) -> History {
        assert_eq!(observe(&self.pool), self.expected(), "at the end of the run");
        assert!(self.disk.bytes() > 0);
        self.history
    }
}
