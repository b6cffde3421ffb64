//! The model: plain bytes per volume and snapshot, and a run that drives pool and model alike.
#![allow(dead_code, unreachable_pub, missing_docs)] // Shared by several test programs; each uses its part.

use std::collections::BTreeMap;
use std::sync::Arc;

use farside_platform::{BlockDevice, ManualClock, SeededRandomness, SimulatedDisk, Timestamp};
use farside_store::{NewSnapshot, Pool, PoolOptions, StagedFor, StagedVersion, StoreError};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use uuid::Uuid;

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

/// What a pool shows: name (`volume` or `volume@snapshot`) to a digest of size and bytes.
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
    let mut seen = Observation::new();
    for volume in pool.volumes() {
        let handle = pool.open_volume(&volume.name).expect("a listed volume opens");
        let mut bytes = vec![0; volume.size_bytes as usize];
        handle.read(0, &mut bytes).expect("a volume reads");
        seen.insert(volume.name.clone(), (volume.size_bytes, digest(&bytes)));
        for snapshot in pool.snapshots(&volume.name).expect("snapshots list") {
            let handle = pool.open_snapshot(&volume.name, &snapshot.name).expect("a listed snapshot opens");
            let mut bytes = vec![0; snapshot.size_bytes as usize];
            handle.read(0, &mut bytes).expect("a snapshot reads");
            seen.insert(format!("{}@{}", volume.name, snapshot.name), (snapshot.size_bytes, digest(&bytes)));
        }
    }
    seen
}

/// What a run left behind: the model after each operation, and when each began and ended on the disk.
pub struct History {
    pub states: Vec<Observation>,
    /// Per state: events before the operation began, events when it had ended, and whether it ended flushed.
    spans: Vec<(usize, usize, bool)>,
    pub first_event: usize,
}

impl History {
    /// States that a crash after `events` events may show: from the last one flushed before to the last one begun.
    pub fn bounds(&self, events: usize) -> (usize, usize) {
        let lower = self.spans.iter().rposition(|(_, end, flushed)| *flushed && *end <= events).unwrap_or(0);
        let upper = self.spans.iter().rposition(|(begin, _, _)| *begin < events).unwrap_or(0);
        (lower, upper.max(lower))
    }
}

struct Staged {
    volume: String,
    handle: StagedVersion,
    bytes: Vec<u8>,
}

/// Drives a pool and its model.
pub struct Run {
    pub pool: Arc<Pool>,
    pub disk: SimulatedDisk,
    rng: SmallRng,
    volumes: BTreeMap<String, Vec<u8>>,
    snapshots: BTreeMap<(String, String), Vec<u8>>,
    staged: Option<Staged>,
    names: u32,
    history: History,
}

impl Run {
    pub fn new(seed: u64, pool_bytes: u64) -> Run {
        let disk = SimulatedDisk::new("disk", pool_bytes);
        let pool = Pool::create(Arc::new(disk.clone()), options(seed)).expect("a pool");
        let mut run = Run {
            pool,
            disk,
            rng: SmallRng::seed_from_u64(seed),
            volumes: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            staged: None,
            names: 0,
            history: History { states: vec![Observation::new()], spans: vec![(0, 0, true)], first_event: 0 },
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
    }

    /// What the pool should show now.
    pub fn expected(&self) -> Observation {
        let volumes = self.volumes.iter().map(|(n, b)| (n.clone(), (b.len() as u64, digest(b))));
        let snapshots =
            self.snapshots.iter().map(|((v, s), b)| (format!("{v}@{s}"), (b.len() as u64, digest(b))));
        volumes.chain(snapshots).collect()
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
        match self.rng.random_range(0..100) {
            0..40 => self.write(),
            40..50 => self.trim(),
            50..55 => self.zero(),
            55..67 => self.operate(true, |run| run.pool.flush().expect("a flush")),
            67..76 => self.snapshot(),
            76..83 => self.delete_snapshot(),
            83..93 => self.stage(),
            93..95 => self.operate(true, |run| run.pool.consistency_point().expect("a point")),
            95..97 => {
                // A few nodes: the cursor stands in the middle of most trees at most crashes.
                let nodes = self.rng.random_range(1..4);
                self.operate(false, |run| {
                    run.pool.reap_step_within(nodes).expect("a reaping step");
                });
            }
            97..98 => self.clone_or_delete(),
            _ => self.resize(),
        }
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
        let Some(staged) = self.staged.take() else {
            let volume = self.pick_volume();
            let base = self.pick_snapshot().filter(|(v, _)| *v == volume);
            let size = self.volumes[&volume].len();
            self.operate(true, |run| {
                let uuid =
                    base.as_ref().map(|(v, s)| run.pool.snapshot_named(v, s).expect("it is there").uuid);
                let mut bytes = base.as_ref().map_or(Vec::new(), |b| run.snapshots[b].clone());
                bytes.resize(size, 0);
                match run.pool.stage(&volume, uuid, size as u64, staged_for(1)) {
                    Ok(handle) => run.staged = Some(Staged { volume, handle, bytes }),
                    Err(StoreError::NoSpace { .. }) => {}
                    Err(e) => panic!("staging: {e}"),
                }
            });
            return;
        };
        let mut staged = staged;
        if !self.volumes.contains_key(&staged.volume) {
            return;
        }
        match self.rng.random_range(0..10) {
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
            6..7 => self.operate(true, |_| staged.handle.abandon().expect("abandoned")),
            _ => {
                let name = self.fresh_name("c");
                self.operate(true, |run| {
                    let mut seen = vec![0; staged.bytes.len()];
                    staged.handle.read(0, &mut seen).expect("staged bytes read");
                    assert!(seen == staged.bytes, "staged bytes");
                    let before: Vec<String> = run
                        .pool
                        .snapshots(&staged.volume)
                        .expect("list")
                        .into_iter()
                        .map(|s| s.name)
                        .collect();
                    match staged.handle.commit(&new_snapshot(&name)) {
                        Ok(_) => {
                            let old = run.volumes.insert(staged.volume.clone(), staged.bytes.clone());
                            run.snapshots.insert((staged.volume.clone(), name.clone()), staged.bytes.clone());
                            for snapshot in run.pool.snapshots(&staged.volume).expect("list") {
                                if !before.contains(&snapshot.name) && snapshot.name != name {
                                    assert!(snapshot.name.starts_with("rescue-") && !snapshot.on_main_line);
                                    let rescued = old.clone().expect("it was there");
                                    run.snapshots.insert((staged.volume.clone(), snapshot.name), rescued);
                                }
                            }
                        }
                        Err(StoreError::NoSpace { .. }) => {}
                        Err(e) => panic!("a commit: {e}"),
                    }
                });
            }
        }
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
                run.snapshots.retain(|(v, _), _| *v != volume);
            });
            return;
        }
        let Some((volume, snapshot)) = self.pick_snapshot() else { return };
        let name = self.fresh_name("z");
        self.operate(true, |run| match run.pool.clone_snapshot(&volume, &snapshot, &name) {
            Ok(_) => {
                let bytes = run.snapshots[&(volume, snapshot)].clone();
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

    /// Ends the run like a power failure: nothing is closed.
    pub fn finish(self) -> History {
        assert_eq!(observe(&self.pool), self.expected(), "at the end of the run");
        assert!(self.disk.bytes() > 0);
        self.history
    }
}
