//! Random histories of replicas of two peers against a plain model: whatever happens between what the index learnt and the
//! question (publishing, side branches, rescues, deletion, reaping, host writes after a break, another peer's name in the
//! record, power failures), an adopted block is exactly what was wanted and came from the peer, and nothing else changed.

mod sparse;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use farside_format::{FAN_OUT, Fingerprint};
use farside_platform::SimulatedDisk;
use farside_store::{NewSnapshot, Pool, PoolOptions, ReplicaStatus, StagedVersion, StoreError, Wanted};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use sparse::{BLOCK, content, new_snapshot, options, staged_for};
use uuid::Uuid;

/// Three leaves and a piece of one.
const BLOCKS: usize = 3 * FAN_OUT + 9;
const BYTES: u64 = BLOCKS as u64 * BLOCK;
const VOLUMES: usize = 5;

/// Stamps of a version's blocks; 0 is a hole.
type Stamps = Vec<u64>;

struct Volume {
    record: Option<ReplicaStatus>,
    head: Stamps,
    /// What came last from the peer in the record, while its snapshot is there.
    published: Option<Uuid>,
    snapshots: BTreeMap<Uuid, Stamps>,
    staged: Option<(StagedVersion, Stamps)>,
}

struct Run {
    disk: SimulatedDisk,
    pool: Arc<Pool>,
    rng: SmallRng,
    numbers: u32,
    volumes: BTreeMap<String, Volume>,
    /// Leaves from which everything is made, so that much is the same.
    library: Vec<Stamps>,
    /// Of contents: what they are.
    fingerprints: HashMap<u64, Fingerprint>,
    counts: Counts,
    is_tight: bool,
}

/// What was asked for in questions to an index that has room for everything.
#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    /// Blocks asked for that came from the peer and are there, and how many of them were adopted.
    held_blocks: usize,
    adopted_blocks: usize,
    /// Leaves adopted, of any index.
    adopted_leaves: usize,
}

fn small(seed: u64, is_tight: bool) -> PoolOptions {
    // Tight: 768 blocks and leaves, so that it samples.
    let known_data_bytes_per_tib = if is_tight { 8 << 10 } else { 1 << 20 };
    PoolOptions { known_data_bytes_per_tib, ..options(seed) }
}

fn bytes_of(stamps: &[u64]) -> Vec<u8> {
    let block = |stamp: u64| if stamp == 0 { vec![0; BLOCK as usize] } else { content(stamp) };
    stamps.iter().flat_map(|stamp| block(*stamp)).collect()
}

impl Run {
    fn new(seed: u64) -> Run {
        let disk = SimulatedDisk::new("adopt", 64 << 20).without_history();
        let pool = Pool::create(Arc::new(disk.clone()), small(seed, seed.is_multiple_of(2))).expect("a pool");
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut leaf = |number: u64| -> Stamps {
            let stamp = |index: u64| 1 + number * 1000 + index;
            (0..FAN_OUT as u64).map(|i| if rng.random_bool(0.1) { 0 } else { stamp(i) }).collect()
        };
        let library = (0..10).map(&mut leaf).collect();
        Run {
            disk,
            pool,
            rng,
            numbers: 0,
            volumes: BTreeMap::new(),
            library,
            fingerprints: HashMap::new(),
            counts: Counts::default(),
            is_tight: seed.is_multiple_of(2),
        }
    }

    fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    fn snapshot(&mut self) -> NewSnapshot {
        let number = self.number();
        new_snapshot(&format!("s{number}"), number)
    }

    fn fingerprint(&mut self, stamp: u64) -> Fingerprint {
        let of = || if stamp == 0 { Fingerprint::HOLE } else { Fingerprint::of_block(&content(stamp)) };
        *self.fingerprints.entry(stamp).or_insert_with(of)
    }

    fn leaf_fingerprint(&mut self, stamps: &[u64]) -> Fingerprint {
        let mut children = [Fingerprint::HOLE; FAN_OUT];
        for (child, stamp) in children.iter_mut().zip(stamps) {
            *child = self.fingerprint(*stamp);
        }
        Fingerprint::of_node(1, &children)
    }

    fn pick(&mut self, is_fit: impl Fn(&Volume) -> bool) -> Option<String> {
        let fit: Vec<&String> = self.volumes.iter().filter(|(_, v)| is_fit(v)).map(|(n, _)| n).collect();
        if fit.is_empty() {
            return None;
        }
        Some(fit[self.rng.random_range(0..fit.len())].clone())
    }

    /// A run of the library, and where it shall go: a leaf in its place, or a piece anywhere.
    fn run(&mut self) -> (usize, Stamps) {
        let leaf = self.library[self.rng.random_range(0..self.library.len())].clone();
        if self.rng.random_bool(0.6) {
            return (self.rng.random_range(0..BLOCKS / FAN_OUT) * FAN_OUT, leaf);
        }
        let from = self.rng.random_range(0..FAN_OUT);
        let piece = leaf[from..(from + self.rng.random_range(1..60)).min(FAN_OUT)].to_vec();
        (self.rng.random_range(0..=BLOCKS - piece.len()), piece)
    }

    fn record(&mut self, broken_off: bool) -> ReplicaStatus {
        // What `staged_for` builds for.
        let relationship = Uuid::from_u128(0x5e1);
        let peer = [self.rng.random_range(1..3); 32];
        ReplicaStatus { relationship, peer, source: "far/v".into(), broken_off }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..40) {
            0..3 => self.create_or_delete(),
            3..9 => self.stage_or_write(),
            9..23 => self.adopt(),
            23..27 => self.commit(),
            27 => {
                let Some(name) = self.pick(|v| v.staged.is_some()) else { return };
                let staged = self.volumes.get_mut(&name).expect("known").staged.take();
                staged.expect("picked so").0.abandon().expect("abandoned");
            }
            28..31 => self.break_or_resume(),
            31..34 => self.host_write(),
            34 => self.other_record(),
            35 => self.delete_snapshot(),
            36 => self.move_main(),
            37 => self.pool.reap_all().expect("reaped"),
            38 => self.pool.consistency_point().expect("a point"),
            _ => self.lose_power(),
        }
    }

    fn create_or_delete(&mut self) {
        if self.volumes.len() == VOLUMES {
            let Some(name) = self.pick(|_| true) else { return };
            self.volumes.remove(&name);
            return self.pool.delete_volume(&name).expect("it can go");
        }
        let name = format!("v{}", self.number());
        self.pool.create_volume(&name, BYTES).expect("a volume");
        let record = self.rng.random_bool(0.9).then(|| self.record(false));
        self.pool.set_replica(&name, record.clone()).expect("a replica");
        let volume = Volume {
            record,
            head: vec![0; BLOCKS],
            published: None,
            snapshots: BTreeMap::new(),
            staged: None,
        };
        self.volumes.insert(name, volume);
    }

    fn stage_or_write(&mut self) {
        let is_mirrored = |v: &Volume| v.record.as_ref().is_some_and(|r| !r.broken_off);
        let Some(name) = self.pick(is_mirrored) else { return };
        let (at, stamps) = self.run();
        let number = self.number();
        let volume = self.volumes.get_mut(&name).expect("picked");
        if let Some((staged, model)) = &mut volume.staged {
            match staged.write(at as u64 * BLOCK, &bytes_of(&stamps)) {
                Ok(()) => model[at..at + stamps.len()].copy_from_slice(&stamps),
                Err(StoreError::NoSpace { .. }) => {}
                Err(error) => panic!("a staged write: {error}"),
            }
            return;
        }
        // The base is one that the peer has too.
        let base = volume.published;
        let staged = self.pool.stage(&name, base, BYTES, staged_for(number)).expect("staged");
        let model = base.map_or(vec![0; BLOCKS], |base| volume.snapshots[&base].clone());
        volume.staged = Some((staged, model));
    }

    /// Blocks that came from a peer and are there.
    fn scope(&self, peer: [u8; 32]) -> BTreeSet<u64> {
        let volumes = self.volumes.values().filter(|v| v.record.as_ref().is_some_and(|r| r.peer == peer));
        let versions = volumes.flat_map(|v| {
            let published = v.published.map(|uuid| &v.snapshots[&uuid]);
            published.into_iter().chain(v.staged.as_ref().map(|(_, stamps)| stamps))
        });
        versions.flatten().copied().filter(|stamp| *stamp != 0).collect()
    }

    fn adopt(&mut self) {
        let Some(name) = self.pick(|v| v.staged.is_some()) else { return };
        let peer = match self.rng.random_bool(0.8) {
            true => self.volumes[&name].record.as_ref().map_or([1; 32], |r| r.peer),
            false => [self.rng.random_range(1..4); 32],
        };
        let mut wanted = Vec::new();
        let mut contents: Vec<Stamps> = Vec::new();
        for _ in 0..self.rng.random_range(1..12) {
            let (at, stamps) = if self.rng.random_bool(0.6) { self.run() } else { self.run_of_a_volume() };
            if at % FAN_OUT == 0 && stamps.len() == FAN_OUT && self.rng.random_bool(0.6) {
                let short = short(self.leaf_fingerprint(&stamps));
                wanted.push(Wanted { level: 1, position: (at / FAN_OUT) as u64, short });
                contents.push(stamps);
                continue;
            }
            for (position, stamp) in (at..).zip(stamps).filter(|(_, stamp)| *stamp != 0) {
                let short = short(self.fingerprint(stamp));
                wanted.push(Wanted { level: 0, position: position as u64, short });
                contents.push(vec![stamp]);
            }
        }
        let (staged, mut model) = self.volumes.get_mut(&name).expect("picked").staged.take().expect("so");
        let mut scope = self.scope(peer);
        scope.extend(
            model
                .iter()
                .copied()
                .filter(|_| self.volumes[&name].record.as_ref().is_some_and(|record| record.peer == peer)),
        );
        match staged.adopt(&peer, &wanted) {
            Ok(answers) => {
                assert_eq!(answers.len(), wanted.len());
                for ((wanted, stamps), answer) in wanted.iter().zip(&contents).zip(answers) {
                    let is_held = wanted.level == 0 && scope.contains(&stamps[0]);
                    if !self.is_tight && is_held {
                        self.counts.held_blocks += 1;
                        self.counts.adopted_blocks += usize::from(answer.is_some());
                    }
                    let Some(answer) = answer else { continue };
                    self.counts.adopted_leaves += usize::from(wanted.level);
                    let (expected, at) = match wanted.level {
                        0 => (self.fingerprint(stamps[0]), wanted.position as usize),
                        _ => (self.leaf_fingerprint(stamps), wanted.position as usize * FAN_OUT),
                    };
                    assert_eq!(answer, expected, "{wanted:?}");
                    let is_of_peer = stamps.iter().all(|s| *s == 0 || scope.contains(s));
                    assert!(is_of_peer, "{wanted:?} of {name} is not what peer {} sent", peer[0]);
                    model[at..at + stamps.len()].copy_from_slice(stamps);
                }
                let found = staged.fingerprints(0, BLOCKS as u64).expect("fingerprints");
                let expected: Vec<_> = model.iter().map(|stamp| self.fingerprint(*stamp)).collect();
                assert!(found == expected, "{name} is what was adopted, and nothing else changed");
            }
            // Some of it may be there.
            Err(StoreError::NoSpace { .. }) => {
                staged.abandon().expect("abandoned");
                return;
            }
            Err(error) => panic!("adopting: {error}"),
        }
        self.volumes.get_mut(&name).expect("picked").staged = Some((staged, model));
        let status = self.pool.known_data();
        assert!(status.bytes <= status.budget_bytes.max(3 * 2 * 8 * 1024), "{status:?}");
    }

    /// What some version has somewhere, whoever's it is.
    fn run_of_a_volume(&mut self) -> (usize, Stamps) {
        let Some(name) = self.pick(|_| true) else { return self.run() };
        let volume = &self.volumes[&name];
        let mut versions = vec![&volume.head];
        versions.extend(volume.snapshots.values());
        let stamps = versions[self.rng.random_range(0..versions.len())];
        if self.rng.random_bool(0.6) {
            let leaf = self.rng.random_range(0..BLOCKS / FAN_OUT) * FAN_OUT;
            return (leaf, stamps[leaf..leaf + FAN_OUT].to_vec());
        }
        let from = self.rng.random_range(0..BLOCKS - 60);
        let piece = stamps[from..from + self.rng.random_range(1..60)].to_vec();
        (self.rng.random_range(0..=BLOCKS - piece.len()), piece)
    }

    fn commit(&mut self) {
        let is_ready = |v: &Volume| v.staged.is_some() && v.record.as_ref().is_some_and(|r| !r.broken_off);
        let Some(name) = self.pick(is_ready) else { return };
        let new = self.snapshot();
        let volume = self.volumes.get_mut(&name).expect("picked");
        let (staged, stamps) = volume.staged.take().expect("picked so");
        let uuid = new.uuid;
        staged.commit(&new).expect("committed");
        volume.published = Some(uuid);
        volume.head = stamps.clone();
        volume.snapshots.insert(uuid, stamps);
        self.find_rescued(&name);
    }

    /// A side branch that was made holds what the volume showed; nobody's but the host's.
    fn find_rescued(&mut self, name: &str) {
        let volume = self.volumes.get_mut(name).expect("known");
        for snapshot in self.pool.snapshots(name).expect("a list") {
            if let std::collections::btree_map::Entry::Vacant(new) = volume.snapshots.entry(snapshot.uuid) {
                assert!(snapshot.name.starts_with("rescue-"), "{}", snapshot.name);
                let handle = self.pool.open_snapshot_by_uuid(name, snapshot.uuid).expect("it opens");
                let found = handle.fingerprints(0, BLOCKS as u64).expect("fingerprints");
                let stamps: HashMap<Fingerprint, u64> =
                    self.fingerprints.iter().map(|(stamp, f)| (*f, *stamp)).collect();
                new.insert(found.iter().map(|f| stamps.get(f).copied().unwrap_or(0)).collect());
            }
        }
    }

    fn break_or_resume(&mut self) {
        let Some(name) = self.pick(|v| v.record.is_some()) else { return };
        let volume = self.volumes.get_mut(&name).expect("picked");
        let record = volume.record.as_mut().expect("picked so");
        record.broken_off = !record.broken_off;
        self.pool.set_replica(&name, Some(record.clone())).expect("set");
    }

    fn host_write(&mut self) {
        let is_writable = |v: &Volume| v.record.as_ref().is_none_or(|r| r.broken_off);
        let Some(name) = self.pick(is_writable) else { return };
        let number = u64::from(self.number());
        let (at, mut stamps) = self.run();
        // Half of it is nobody else's.
        if self.rng.random_bool(0.5) {
            stamps = (0..stamps.len() as u64).map(|i| 1_000_000 + number * 1000 + i).collect();
        }
        for stamp in &stamps {
            self.fingerprint(*stamp);
        }
        let written = {
            let handle = self.pool.open_volume(&name).expect("it opens");
            handle.write(at as u64 * BLOCK, &bytes_of(&stamps))
        };
        match written {
            Ok(()) => {}
            Err(StoreError::NoSpace { .. }) => return,
            Err(error) => panic!("a host's write: {error}"),
        }
        let new = self.snapshot();
        let volume = self.volumes.get_mut(&name).expect("picked");
        volume.head[at..at + stamps.len()].copy_from_slice(&stamps);
        if volume.snapshots.len() < 5 {
            self.pool.create_snapshots(&[(name, new.clone())]).expect("a snapshot");
            volume.snapshots.insert(new.uuid, volume.head.clone());
        }
    }

    fn other_record(&mut self) {
        let Some(name) = self.pick(|_| true) else { return };
        let record = self.rng.random_bool(0.8).then(|| self.record(false));
        self.pool.set_replica(&name, record.clone()).expect("set");
        let volume = self.volumes.get_mut(&name).expect("picked");
        let peer = |record: &Option<ReplicaStatus>| record.as_ref().map(|r| r.peer);
        if peer(&record) != peer(&volume.record) {
            volume.published = None;
            // What is staged is the former peer's: the mirror throws it away first.
            if let Some((staged, _)) = volume.staged.take() {
                staged.abandon().expect("abandoned");
            }
        }
        volume.record = record;
    }

    fn delete_snapshot(&mut self) {
        let Some(name) = self.pick(|v| !v.snapshots.is_empty()) else { return };
        let volume = self.volumes.get_mut(&name).expect("picked");
        let chosen = self.rng.random_range(0..volume.snapshots.len());
        let uuid = *volume.snapshots.keys().nth(chosen).expect("as many");
        self.pool.delete_snapshot(&name, uuid).expect("it can go");
        volume.snapshots.remove(&uuid);
        volume.published = volume.published.filter(|published| *published != uuid);
    }

    fn move_main(&mut self) {
        let Some(name) = self.pick(|v| v.record.is_some() && !v.snapshots.is_empty()) else { return };
        let volume = self.volumes.get_mut(&name).expect("picked");
        let chosen = self.rng.random_range(0..volume.snapshots.len());
        let (uuid, stamps) = volume.snapshots.iter().nth(chosen).expect("as many");
        let record = ReplicaStatus { broken_off: true, ..volume.record.clone().expect("picked so") };
        self.pool.move_main(&name, *uuid, Some(record.clone()), None).expect("moved");
        volume.head = stamps.clone();
        volume.record = Some(record);
        self.find_rescued(&name);
    }

    /// Everything that was flushed is there afterwards; the index is not.
    fn lose_power(&mut self) {
        self.pool.flush().expect("a flush");
        let mut staged = BTreeMap::new();
        for (name, volume) in &mut self.volumes {
            if let Some((_, stamps)) = volume.staged.take() {
                staged.insert(name.clone(), stamps);
            }
        }
        self.disk = self.disk.image().without_history();
        let report =
            farside_check::check(&self.disk, &farside_check::CheckOptions::default()).expect("it runs");
        assert!(report.is_clean(), "{report}");
        let seed = u64::from(self.number());
        self.is_tight = self.rng.random_bool(0.5);
        self.pool = Pool::open(Arc::new(self.disk.clone()), small(seed, self.is_tight)).expect("it opens");
        for (name, stamps) in staged {
            let mut found = self.pool.staged(&name).expect("a list");
            assert_eq!(found.len(), 1);
            let handle = found.remove(0);
            let mut bytes = vec![0; BYTES as usize];
            handle.read(0, &mut bytes).expect("it reads, verified");
            assert!(bytes == bytes_of(&stamps), "{name}, staged, after a power failure");
            self.volumes.get_mut(&name).expect("known").staged = Some((handle, stamps));
        }
    }

    fn finish(mut self) -> Counts {
        self.lose_power();
        for (name, volume) in &self.volumes {
            for (uuid, stamps) in &volume.snapshots {
                let handle = self.pool.open_snapshot_by_uuid(name, *uuid).expect("it opens");
                let mut bytes = vec![0; BYTES as usize];
                handle.read(0, &mut bytes).expect("it reads");
                assert!(bytes == bytes_of(stamps), "{name}, a snapshot");
            }
        }
        self.counts
    }
}

#[test]
fn random_histories_of_two_peers() {
    let seeds = std::env::var("FARSIDE_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(8);
    let first = std::env::var("FARSIDE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let mut all = Counts::default();
    for seed in first..first + seeds {
        println!("seed {seed}");
        let mut run = Run::new(seed);
        for _ in 0..250 {
            run.step();
        }
        let counts = run.finish();
        all.held_blocks += counts.held_blocks;
        all.adopted_blocks += counts.adopted_blocks;
        all.adopted_leaves += counts.adopted_leaves;
    }
    println!("{all:?}");
    // A hint may be stale, but seldom is. (One seed alone, run to look at it, need not prove that.)
    if seeds >= 8 {
        assert!(all.adopted_leaves > 20 && all.held_blocks > 200, "the histories prove little: {all:?}");
        assert!(all.adopted_blocks * 5 > all.held_blocks * 4, "{all:?}");
    }
}

fn short(fingerprint: Fingerprint) -> u64 {
    u64::from_be_bytes(fingerprint.0[..8].try_into().expect("8 bytes"))
}
