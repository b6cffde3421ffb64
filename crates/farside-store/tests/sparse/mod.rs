//! A sparse model for volumes of terabytes: block number to stamp, where a stamp stands for a block's whole content.
//!
//! Versions are compared by content root, computed here naively over the model, by allocation, and by reading every
//! mapped block.
#![allow(dead_code, unreachable_pub, missing_docs)] // Shared by several test programs; each uses its part.

use std::collections::BTreeMap;
use std::sync::Arc;

use farside_format::fingerprint::{FAN_OUT, TOP_LEVEL};
use farside_format::{ContentRoot, Fingerprint};
use farside_platform::{ManualClock, SeededRandomness, SimulatedDisk, Timestamp};
use farside_store::{
    ChangedBlocks, NewSnapshot, Pool, PoolOptions, StagedFor, StagedVersion, StoreError, VersionHandle,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use uuid::Uuid;

pub const BLOCK: u64 = 4096;
/// Sizes in blocks around the borders of tree levels 1 to 3, 10 GiB and 64 TiB.
pub const SIZES: [u64; 8] = [100, 128, 129, 16384, 16385, 2_097_153, 2_621_440, 1 << 34];

pub fn options(seed: u64) -> PoolOptions {
    let clock = Arc::new(ManualClock::new(Timestamp(1_800_000_000_000_000_000)));
    PoolOptions {
        background: false,
        overlay_bytes: 256 << 10,
        ..PoolOptions::new(clock, Arc::new(SeededRandomness::new(seed)))
    }
}

pub fn new_snapshot(name: &str, number: u32) -> NewSnapshot {
    let uuid = Uuid::from_u128(0x5eed_0000 + u128::from(number));
    NewSnapshot { name: name.into(), uuid, created_at: Timestamp(1), relationship: None, pin_for: None }
}

/// What a staged version is built for.
pub fn staged_for(number: u32) -> StagedFor {
    StagedFor { relationship: Uuid::from_u128(0x5e1), incremental: Uuid::from_u128(number.into()) }
}

/// A block's content.
pub fn content(stamp: u64) -> Vec<u8> {
    let mut word = stamp.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut block = Vec::with_capacity(4096);
    while block.len() < 4096 {
        word = word.rotate_left(7).wrapping_mul(0x2545_F491_4F6C_DD1D);
        block.extend_from_slice(&word.to_le_bytes());
    }
    block
}

/// The model of one version.
#[derive(Clone, Default)]
pub struct Version {
    pub blocks: u64,
    pub map: BTreeMap<u64, u64>,
}

impl Version {
    pub fn resize(&mut self, blocks: u64) {
        self.map.split_off(&blocks);
        self.blocks = blocks;
    }

    pub fn unmap(&mut self, from: u64, to: u64) {
        let gone: Vec<u64> = self.map.range(from..to).map(|(b, _)| *b).collect();
        for block in gone {
            self.map.remove(&block);
        }
    }

    /// The content root by the definition in the format's page, level by level.
    pub fn root(&self) -> ContentRoot {
        let mut level: BTreeMap<u64, Fingerprint> =
            self.map.iter().map(|(b, stamp)| (*b, Fingerprint::of_block(&content(*stamp)))).collect();
        for number in 1..=TOP_LEVEL {
            let mut parents: BTreeMap<u64, [Fingerprint; FAN_OUT]> = BTreeMap::new();
            for (position, fingerprint) in level {
                let children = parents.entry(position / 128).or_insert([Fingerprint::HOLE; FAN_OUT]);
                children[(position % 128) as usize] = fingerprint;
            }
            level = parents.into_iter().map(|(p, c)| (p, Fingerprint::of_node(number, &c))).collect();
        }
        ContentRoot::new(level.get(&0).copied().unwrap_or(Fingerprint::HOLE), self.blocks * BLOCK)
    }

    /// Mapped and unmapped stretches, as `allocation` tells them.
    fn stretches(&self) -> Vec<(u64, bool)> {
        let mut found: Vec<(u64, bool)> = Vec::new();
        let mut at = 0;
        for block in self.map.keys() {
            if *block > at {
                found.push(((block - at) * BLOCK, false));
            }
            match found.last_mut() {
                Some((length, true)) => *length += BLOCK,
                _ => found.push((BLOCK, true)),
            }
            at = block + 1;
        }
        if at < self.blocks {
            found.push(((self.blocks - at) * BLOCK, false));
        }
        found
    }

    /// Compares a version with the model; `thorough` reads every mapped block.
    pub fn compare(&self, handle: &VersionHandle, thorough: bool, what: &str) {
        assert_eq!(handle.size_bytes(), self.blocks * BLOCK, "{what}: size");
        assert_eq!(handle.content_root().expect("a content root"), self.root(), "{what}: content root");
        if thorough {
            let seen = handle.allocation(0, self.blocks * BLOCK, usize::MAX).expect("allocation");
            assert_eq!(seen, self.stretches(), "{what}: allocation");
            let mut block = vec![0; 4096];
            for (number, stamp) in &self.map {
                handle.read(number * BLOCK, &mut block).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert!(block == content(*stamp), "{what}: block {number}");
            }
        }
    }
}

struct Staged {
    volume: String,
    handle: StagedVersion,
    version: Version,
}

/// Drives a pool and the sparse model.
pub struct SparseRun {
    pub pool: Arc<Pool>,
    pub disk: SimulatedDisk,
    pub rng: SmallRng,
    pub volumes: BTreeMap<String, Version>,
    pub snapshots: BTreeMap<(String, String), Version>,
    staged: Option<Staged>,
    numbers: u32,
    stamps: u64,
    /// Node pairs of one reaping step.
    pub reap_nodes: usize,
    /// Operations refused for want of space.
    pub refused: u64,
    seed: u64,
}

/// Whether it was done; a full pool is no failure of the test.
fn done<T>(result: Result<T, StoreError>, what: &str, refused: &mut u64) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(StoreError::NoSpace { .. }) => {
            *refused += 1;
            None
        }
        Err(e) => panic!("{what}: {e}"),
    }
}

impl SparseRun {
    pub fn new(seed: u64, pool_bytes: u64) -> SparseRun {
        let disk = SimulatedDisk::new("deep", pool_bytes).without_history();
        let pool = Pool::create(Arc::new(disk.clone()), options(seed)).expect("a pool");
        SparseRun {
            pool,
            disk,
            rng: SmallRng::seed_from_u64(seed),
            volumes: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            staged: None,
            numbers: 0,
            stamps: 0,
            reap_nodes: 3,
            refused: 0,
            seed,
        }
    }

    pub fn create(&mut self, name: &str, blocks: u64) {
        self.pool.create_volume(name, blocks * BLOCK).expect("a volume");
        self.volumes.insert(name.into(), Version { blocks, map: BTreeMap::new() });
    }

    fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    fn pick_volume(&mut self) -> Option<String> {
        let at = self.rng.random_range(0..self.volumes.len().max(1));
        self.volumes.keys().nth(at).cloned()
    }

    fn pick_snapshot(&mut self) -> Option<(String, String)> {
        let at = self.rng.random_range(0..self.snapshots.len().max(1));
        self.snapshots.keys().nth(at).cloned()
    }

    /// A place to write at: near one of a few spots, so that writes meet again; sometimes anywhere.
    fn pick_block(&mut self, blocks: u64) -> u64 {
        let spots = [0, 120, 128 * 128 - 4, 128 * 128 * 128 - 4, blocks / 2, blocks.saturating_sub(20)];
        let block = match self.rng.random_range(0..8usize) {
            spot @ 0..6 => spots[spot] + self.rng.random_range(0..12),
            6 => spots[4] + 128 * self.rng.random_range(0..40),
            _ => self.rng.random_range(0..blocks),
        };
        block.min(blocks - 1)
    }

    fn stamped(&mut self, first: u64, count: u64) -> (Vec<(u64, Option<u64>)>, Vec<u8>) {
        let mut stamps = Vec::new();
        let mut bytes = Vec::new();
        for block in first..first + count {
            if self.rng.random_ratio(1, 12) {
                stamps.push((block, None));
                bytes.extend_from_slice(&[0; 4096]);
            } else {
                self.stamps += 1;
                stamps.push((block, Some(self.stamps)));
                bytes.extend_from_slice(&content(self.stamps));
            }
        }
        (stamps, bytes)
    }

    fn pick_range(&mut self, blocks: u64) -> (u64, u64) {
        let first = self.pick_block(blocks);
        let count = if self.rng.random_ratio(1, 10) { 200 } else { self.rng.random_range(1..6) };
        // Within one aligned MiB a write is one change.
        (first, count.min(256 - first % 256).min(blocks - first))
    }

    pub fn write(&mut self) {
        let Some(name) = self.pick_volume() else { return };
        let (first, count) = self.pick_range(self.volumes[&name].blocks);
        let (stamps, bytes) = self.stamped(first, count);
        let handle = self.pool.open_volume(&name).expect("it opens");
        if done(handle.write(first * BLOCK, &bytes), "a write", &mut self.refused).is_some() {
            apply(self.volumes.get_mut(&name).expect("known"), &stamps);
        }
    }

    pub fn trim(&mut self) {
        let Some(name) = self.pick_volume() else { return };
        let blocks = self.volumes[&name].blocks;
        let unit = 128u64.pow(self.rng.random_range(0..4));
        let first = self.pick_block(blocks) / unit * unit;
        let count = (unit * self.rng.random_range(1..4)).min(blocks - first);
        let handle = self.pool.open_volume(&name).expect("it opens");
        if done(handle.trim(first * BLOCK, count * BLOCK), "a trim", &mut self.refused).is_some() {
            self.volumes.get_mut(&name).expect("known").unmap(first, first + count);
        }
    }

    pub fn snapshot(&mut self) {
        let Some(volume) = self.pick_volume() else { return };
        let number = self.number();
        let name = format!("s{number}");
        let made = self.pool.create_snapshots(&[(volume.clone(), new_snapshot(&name, number))]);
        if done(made, "a snapshot", &mut self.refused).is_some() {
            let version = self.volumes[&volume].clone();
            self.snapshots.insert((volume, name), version);
        }
    }

    pub fn delete_snapshot(&mut self) {
        let Some(key) = self.pick_snapshot() else { return };
        let uuid = self.pool.snapshot_named(&key.0, &key.1).expect("it is there").uuid;
        self.pool.delete_snapshot(&key.0, uuid).expect("it can go, however full the pool");
        self.snapshots.remove(&key);
    }

    fn clone_volume(&mut self) {
        let Some(key) = self.pick_snapshot().filter(|_| self.volumes.len() < 6) else { return };
        let name = format!("z{}", self.number());
        let made = self.pool.clone_snapshot(&key.0, &key.1, &name);
        if done(made, "a clone", &mut self.refused).is_some() {
            self.volumes.insert(name, self.snapshots[&key].clone());
        }
    }

    pub fn delete_volume(&mut self, name: &str) {
        if self.staged.as_ref().is_some_and(|s| s.volume == name) {
            self.staged = None;
        }
        self.pool.delete_volume(name).expect("it can go, however full the pool");
        self.volumes.remove(name);
        self.snapshots.retain(|(v, _), _| v != name);
    }

    fn resize(&mut self) {
        let Some(name) = self.pick_volume() else { return };
        let blocks = SIZES[self.rng.random_range(0..SIZES.len())];
        let resized = self.pool.resize_volume(&name, blocks * BLOCK);
        if done(resized, "a resize", &mut self.refused).is_some() {
            self.volumes.get_mut(&name).expect("known").resize(blocks);
        }
    }

    fn stage(&mut self) {
        let Some(mut staged) = self.staged.take() else {
            let Some(volume) = self.pick_volume() else { return };
            let base = self.pick_snapshot().filter(|(v, _)| *v == volume);
            let blocks = SIZES[self.rng.random_range(0..SIZES.len())];
            let uuid = base.as_ref().map(|(v, s)| self.pool.snapshot_named(v, s).expect("there").uuid);
            let mut version = base.map_or(Version::default(), |b| self.snapshots[&b].clone());
            version.resize(blocks);
            let made = self.pool.stage(&volume, uuid, blocks * BLOCK, staged_for(1));
            if let Some(handle) = done(made, "staging", &mut self.refused) {
                self.staged = Some(Staged { volume, handle, version });
            }
            return;
        };
        match self.rng.random_range(0..11) {
            0..7 => {
                let (first, count) = self.pick_range(staged.version.blocks);
                let (stamps, bytes) = self.stamped(first, count);
                let written = staged.handle.write(first * BLOCK, &bytes);
                if done(written, "a staged write", &mut self.refused).is_some() {
                    apply(&mut staged.version, &stamps);
                }
                self.staged = Some(staged);
            }
            7 => staged.handle.abandon().expect("abandoned"),
            8 => {
                let blocks = SIZES[self.rng.random_range(0..SIZES.len())];
                let resized = staged.handle.resize(blocks * BLOCK);
                if done(resized, "a staged resize", &mut self.refused).is_some() {
                    staged.version.resize(blocks);
                }
                self.staged = Some(staged);
            }
            _ => self.commit(staged),
        }
    }

    /// The volume shows one of its snapshots again.
    fn move_main(&mut self) {
        let Some(key) = self.pick_snapshot() else { return };
        let uuid = self.pool.snapshot_named(&key.0, &key.1).expect("it is there").uuid;
        let moved = self.pool.move_main(&key.0, uuid, None, None);
        let Some(rescued) = done(moved, "moving the main line", &mut self.refused) else { return };
        let version = self.snapshots[&key].clone();
        let old = self.volumes.insert(key.0.clone(), version).expect("it was there");
        if let Some(rescued) = rescued {
            self.snapshots.insert((key.0, rescued.name), old);
        }
    }

    /// How a volume differs from one of its snapshots.
    fn changed_since(&mut self) {
        let Some(key) = self.pick_snapshot() else { return };
        let uuid = self.pool.snapshot_named(&key.0, &key.1).expect("it is there").uuid;
        let (before, now) = (&self.snapshots[&key].map, &self.volumes[&key.0].map);
        let expected = ChangedBlocks {
            data_blocks: now.iter().filter(|(b, stamp)| before.get(b) != Some(stamp)).count() as u64,
            hole_blocks: before.keys().filter(|b| !now.contains_key(b)).count() as u64,
        };
        assert_eq!(self.pool.changed_since(&key.0, uuid).expect("a walk"), expected, "{key:?}");
    }

    fn commit(&mut self, staged: Staged) {
        let number = self.number();
        let name = format!("c{number}");
        let names = |pool: &Pool| -> Vec<String> {
            pool.snapshots(&staged.volume).expect("a list").into_iter().map(|s| s.name).collect()
        };
        let before = names(&self.pool);
        assert_eq!(staged.handle.content_root().expect("a root"), staged.version.root(), "staged root");
        if done(staged.handle.commit(&new_snapshot(&name, number)), "a commit", &mut self.refused).is_none() {
            // A full pool refuses; what is staged stays staged.
            self.staged = Some(staged);
            return;
        }
        let old = self.volumes.insert(staged.volume.clone(), staged.version.clone()).expect("it was there");
        for rescue in names(&self.pool).into_iter().filter(|n| *n != name && !before.contains(n)) {
            self.snapshots.insert((staged.volume.clone(), rescue), old.clone());
        }
        self.snapshots.insert((staged.volume.clone(), name), staged.version);
    }

    pub fn reap_step(&mut self) {
        let nodes = self.rng.random_range(1..=self.reap_nodes);
        self.pool.reap_step_within(nodes).expect("a step of reaping");
    }

    /// A crash after a flush, and the pool opened again; the checker looks at it in between.
    pub fn reopen(&mut self) {
        self.pool.flush().expect("a flush");
        let staged = self.staged.take().map(|s| (s.volume, s.version));
        let disk = self.disk.image().without_history();
        self.check(&disk, "before opening");
        self.disk = disk;
        self.seed += 1;
        self.pool = Pool::open(Arc::new(self.disk.clone()), options(self.seed)).expect("it opens");
        for name in self.volumes.keys() {
            let mut found = self.pool.staged(name).expect("a list");
            match &staged {
                Some((volume, version)) if volume == name => {
                    let handle = found.pop().expect("what was staged outlives a crash");
                    assert_eq!(handle.content_root().expect("a root"), version.root(), "staged, reopened");
                    let (volume, version) = (volume.clone(), version.clone());
                    self.staged = Some(Staged { volume, handle, version });
                }
                _ => {}
            }
            assert!(found.is_empty(), "{name}: a version staged by nobody");
        }
    }

    pub fn check(&self, disk: &SimulatedDisk, what: &str) {
        let report = farside_check::check(disk, &farside_check::CheckOptions::default()).expect("it runs");
        assert!(report.is_clean(), "{what}: {report}");
    }

    /// One random operation.
    pub fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..31 => self.write(),
            31..33 => self.changed_since(),
            33..36 => self.move_main(),
            36..42 => self.trim(),
            42..54 => self.snapshot(),
            54..62 => self.delete_snapshot(),
            62..66 => self.clone_volume(),
            66..68 => {
                if self.volumes.len() > 1 {
                    let name = self.pick_volume().expect("there are some");
                    self.delete_volume(&name);
                }
            }
            68..72 => self.resize(),
            72..82 => self.stage(),
            82..85 => self.pool.consistency_point().expect("a point"),
            85..87 => self.pool.flush().expect("a flush"),
            _ => self.reap_step(),
        }
    }

    /// Compares everything with the model.
    pub fn compare(&self, thorough: bool) {
        for (name, version) in &self.volumes {
            version.compare(&self.pool.open_volume(name).expect("it opens"), thorough, name);
        }
        for ((volume, name), version) in &self.snapshots {
            let handle = self.pool.open_snapshot(volume, name).expect("it opens");
            version.compare(&handle, thorough, &format!("{volume}@{name}"));
        }
    }

    /// Deletes everything, reaps it, and makes the points after which all of it is free.
    pub fn empty(&mut self) {
        let names: Vec<String> = self.volumes.keys().cloned().collect();
        for name in names {
            self.delete_volume(&name);
        }
        self.pool.reap_all().expect("reaping");
        for _ in 0..3 {
            self.pool.consistency_point().expect("a point");
        }
    }
}

fn apply(version: &mut Version, stamps: &[(u64, Option<u64>)]) {
    for (block, stamp) in stamps {
        match stamp {
            Some(stamp) => version.map.insert(*block, *stamp),
            None => version.map.remove(block),
        };
    }
}

pub fn seeds(count: u64, first: u64) -> std::ops::Range<u64> {
    let read = |name: &str, or: u64| std::env::var(name).ok().and_then(|s| s.parse().ok()).unwrap_or(or);
    let first = read("FARSIDE_SEED", first);
    first..first.saturating_add(read("FARSIDE_SEEDS", count))
}
