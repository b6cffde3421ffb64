//! Damaged maps of volumes: the blocks below are quarantined, all else goes on, and nothing is ever freed that somebody has.
//!
//! Random histories with random damage between a kill and the next opening: volumes, snapshots and clones that share blocks, are
//! resized and replaced by staged versions; kills within a consistency point; and superblocks lost after it. A read answers
//! with what was written or with [`StoreError::Quarantined`], and with that only where damage came after the last write; what
//! was readable stays so but below new damage. The offline checker runs each time.

mod sparse;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use farside_check::{CheckOptions, Report, Severity, What};
use farside_format::fingerprint::span;
use farside_format::pointer::TWIN_DISTANCE;
use farside_format::{Node, TreeKind};
use farside_platform::SimulatedDisk;
use farside_store::{CloneOf, NewClone, Pool, StagedVersion, StoreError, VersionHandle};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use sparse::{BLOCK, Version, content, new_snapshot, options, seeds, staged_for};

const POOL: u64 = 64 << 20;
/// No multiple of a leaf's 128 blocks; two levels and three.
const VOLUMES: [(&str, u64); 3] = [("small", 300), ("large", 20_000), ("sound", 400)];

/// Sizes that volumes take in turn; a clone takes those of its volume.
const SIZES: [(&str, [u64; 3]); 3] =
    [("small", [200, 300, 450]), ("large", [16_300, 20_000, 20_100]), ("sound", [400, 400, 500])];
const CLONES_MAX: usize = 2;

/// What a version must show, and where it may answer that it is quarantined.
#[derive(Clone, Default)]
struct Model {
    version: Version,
    /// Below damage that came after the last write, in the newest point or in the one before.
    may_be_lost: BTreeSet<u64>,
    /// Of those, what was readable since the damage came: it stays so as long as the newest superblock does.
    readable: BTreeSet<u64>,
}

impl Model {
    fn written(&mut self, block: u64, stamp: u64) {
        self.version.map.insert(block, stamp);
        self.may_be_lost.remove(&block);
        self.readable.remove(&block);
    }

    fn resize(&mut self, blocks: u64) {
        self.version.resize(blocks);
        self.may_be_lost.split_off(&blocks);
        self.readable.split_off(&blocks);
    }

    fn damaged(&mut self, first: u64, count: u64) {
        for block in first..(first + count).min(self.version.blocks) {
            self.may_be_lost.insert(block);
            self.readable.remove(&block);
        }
    }
}

struct Run {
    seed: u64,
    random: SmallRng,
    disk: SimulatedDisk,
    pool: Option<Arc<Pool>>,
    heads: BTreeMap<String, Model>,
    /// The volume that a volume descends from, itself or that which it is a clone of: they share a family.
    origins: BTreeMap<String, &'static str>,
    snapshots: BTreeMap<(String, String), Model>,
    stamp: u64,
    errors: u64,
    damaged: u64,
    superblocks: u64,
}

impl Run {
    fn new(seed: u64) -> Run {
        let disk = SimulatedDisk::new("quarantine", POOL).without_history();
        let pool = Pool::create(Arc::new(disk.clone()), options(seed)).expect("a pool");
        let (mut heads, mut origins) = (BTreeMap::new(), BTreeMap::new());
        for (name, blocks) in VOLUMES {
            pool.create_volume(name, blocks * BLOCK).expect("a volume");
            let version = Version { blocks, ..Version::default() };
            heads.insert(name.into(), Model { version, ..Model::default() });
            origins.insert(name.into(), name);
        }
        Run {
            seed,
            random: SmallRng::seed_from_u64(seed),
            disk,
            pool: Some(pool),
            heads,
            origins,
            snapshots: BTreeMap::new(),
            stamp: 0,
            errors: 0,
            damaged: 0,
            superblocks: 0,
        }
    }

    fn pool(&self) -> Arc<Pool> {
        self.pool.clone().expect("open")
    }

    fn name(&mut self) -> String {
        let at = self.random.random_range(0..self.heads.len());
        self.heads.keys().nth(at).expect("a volume").clone()
    }

    fn picked_snapshot(&mut self) -> Option<(String, String)> {
        let at = self.random.random_range(0..self.snapshots.len().max(1));
        self.snapshots.keys().nth(at).cloned()
    }

    fn range(&mut self, name: &str) -> (u64, u64) {
        let blocks = self.heads[name].version.blocks;
        // Whole leaves now and then, mostly a few blocks, in few places, so that they meet.
        let first = match self.random.random_range(0..3) {
            0 => self.random.random_range(0..blocks) / 128 * 128,
            1 => self.random.random_range(0..blocks.min(400)),
            _ => self.random.random_range(0..blocks),
        };
        let count = [1, 2, 5, 128, 128][self.random.random_range(0..5)];
        (first, count.min(blocks - first))
    }

    fn write(&mut self) {
        let name = self.name();
        let (first, count) = self.range(&name);
        let handle = self.pool().open_volume(&name).expect("it opens");
        for block in first..first + count {
            self.stamp += 1;
            handle
                .write(block * BLOCK, &content(self.stamp))
                .unwrap_or_else(|e| panic!("seed {}: a whole write: {e}", self.seed));
            self.heads.get_mut(&name).expect("a model").written(block, self.stamp);
        }
    }

    fn partial_write(&mut self) {
        let name = self.name();
        let (block, _) = self.range(&name);
        let model = self.heads.get_mut(&name).expect("a model");
        // Inside the block nothing changes: its own bytes, written once more.
        let bytes = model.version.map.get(&block).map_or(vec![0; 4096], |stamp| content(*stamp));
        let handle = self.pool.as_ref().expect("open").open_volume(&name).expect("it opens");
        match handle.write(block * BLOCK + 100, &bytes[100..200]) {
            Ok(()) => {
                model.may_be_lost.remove(&block);
                model.readable.remove(&block);
            }
            Err(StoreError::Quarantined { .. }) if model.may_be_lost.contains(&block) => {}
            Err(e) => panic!("seed {}: a partial write: {e}", self.seed),
        }
    }

    fn trim(&mut self) {
        let name = self.name();
        let (first, count) = self.range(&name);
        let handle = self.pool().open_volume(&name).expect("it opens");
        handle.trim(first * BLOCK, count * BLOCK).expect("a trim");
        let model = self.heads.get_mut(&name).expect("a model");
        model.version.unmap(first, first + count);
        model.may_be_lost.retain(|b| !(first..first + count).contains(b));
        model.readable.retain(|b| !(first..first + count).contains(b));
    }

    fn snapshot(&mut self) {
        let name = self.name();
        self.stamp += 1;
        let snapshot = format!("s{}", self.stamp);
        let new = new_snapshot(&snapshot, self.stamp as u32);
        self.pool().create_snapshots(&[(name.clone(), new)]).expect("a snapshot");
        self.snapshots.insert((name.clone(), snapshot), self.heads[&name].clone());
    }

    fn delete_snapshot(&mut self) {
        let Some((name, snapshot)) = self.picked_snapshot() else { return };
        let uuid = self.pool().snapshot_named(&name, &snapshot).expect("there").uuid;
        self.pool().delete_snapshot(&name, uuid).expect("deleted");
        self.snapshots.remove(&(name, snapshot));
    }

    fn resize(&mut self) {
        let name = self.name();
        let sizes = SIZES.iter().find(|(origin, _)| *origin == self.origins[&name]).expect("sizes").1;
        let blocks = sizes[self.random.random_range(0..3)];
        self.pool().resize_volume(&name, blocks * BLOCK).expect("resized");
        self.heads.get_mut(&name).expect("a model").resize(blocks);
    }

    fn clone_or_delete_volume(&mut self) {
        if self.heads.len() == VOLUMES.len() + CLONES_MAX {
            let clone = self.heads.keys().find(|name| name.starts_with("clone")).expect("a clone").clone();
            self.pool().delete_volume(&clone).expect("deleted");
            self.heads.remove(&clone);
            self.snapshots.retain(|(name, _), _| *name != clone);
            return;
        }
        let Some(key) = self.picked_snapshot() else { return };
        self.stamp += 1;
        let name = format!("clone{}", self.stamp);
        let new = NewClone { name: name.clone(), even_if_damaged: true };
        self.pool().clone_volume(&key.0, CloneOf::Snapshot(&key.1), &new).expect("a clone");
        self.origins.insert(name.clone(), self.origins[&key.0]);
        self.heads.insert(name, self.snapshots[&key].clone());
    }

    /// A staged version over a snapshot is written, shares what others have, is damaged with the rest perhaps, and is left, thrown
    /// away or published.
    fn stage(&mut self) {
        let Some((name, snapshot)) = self.picked_snapshot() else { return };
        let pool = self.pool();
        let base = pool.snapshot_named(&name, &snapshot).expect("there").uuid;
        let mut model = self.snapshots[&(name.clone(), snapshot)].clone();
        if self.random.random_bool(0.3) {
            let blocks = model.version.blocks;
            model.resize((blocks + [50, 200][self.random.random_range(0..2)]).min(20_300));
        }
        let staged =
            pool.stage(&name, Some(base), model.version.blocks * BLOCK, staged_for(1)).expect("staged");
        for _ in 0..3 {
            let first = self.random.random_range(0..model.version.blocks.min(400));
            self.stamp += 1;
            staged.write(first * BLOCK, &content(self.stamp)).expect("a staged write");
            model.written(first, self.stamp);
        }
        for _ in 0..2 {
            self.share(&staged, &mut model);
        }
        if self.random.random_bool(0.5) {
            staged.checkpoint().expect("durable");
            pool.consistency_point().expect("a point");
        }
        match self.random.random_range(0..4) {
            0 => {}
            1 => staged.abandon().expect("abandoned"),
            _ => self.publish(&name, &staged, model),
        }
        if self.random.random_bool(0.1) {
            drop(staged);
            pool.drop_staged(None).expect("dropped");
        }
    }

    /// What any snapshot has, as far as it reads, anywhere in the staged version.
    fn share(&mut self, staged: &StagedVersion, model: &mut Model) {
        let Some(key) = self.picked_snapshot() else { return };
        let source = &self.snapshots[&key].version;
        let handle = self.pool.as_ref().expect("open").open_snapshot(&key.0, &key.1).expect("it opens");
        let count = self.random.random_range(1..130).min(source.blocks).min(model.version.blocks);
        let from = self.random.random_range(0..=(source.blocks - count).min(300));
        let to = self.random.random_range(0..=(model.version.blocks - count).min(300));
        let mut block = vec![0; 4096];
        if (from..from + count).any(|at| handle.read(at * BLOCK, &mut block).is_err()) {
            return;
        }
        let fingerprints = handle.fingerprints(from, count).expect("what reads has fingerprints");
        let shared = staged.share(to, &handle, from, &fingerprints).expect("a share");
        assert_eq!(shared, count, "seed {}", self.seed);
        for (from, to) in (from..from + count).zip(to..) {
            match source.map.get(&from) {
                Some(stamp) => model.written(to, *stamp),
                None => {
                    model.written(to, 0);
                    model.version.map.remove(&to);
                }
            }
        }
    }

    fn publish(&mut self, name: &str, staged: &StagedVersion, model: Model) {
        self.stamp += 1;
        let snapshot = format!("c{}", self.stamp);
        staged.commit(&new_snapshot(&snapshot, self.stamp as u32)).expect("published");
        let old = self.heads.insert(name.into(), model.clone()).expect("a model");
        self.snapshots.insert((name.into(), snapshot), model);
        // What only the head had stays as a side branch.
        for listed in self.pool().snapshots(name).expect("listed") {
            self.snapshots.entry((name.into(), listed.name)).or_insert_with(|| old.clone());
        }
    }

    /// Kills the pool after a flush, within a point perhaps, damages nodes and a superblock perhaps, and opens it again.
    fn kill_and_damage(&mut self) {
        let pool = self.pool.take().expect("open");
        pool.flush().expect("a flush");
        if self.random.random_bool(0.3) {
            self.disk.fail_after(Some(self.random.random_range(0..40)));
            // Whatever it got done stays on the disk.
            let _ = pool.consistency_point();
            self.disk.fail_after(None);
        }
        drop(pool);
        let nodes: Vec<Node> = (0..POOL / BLOCK)
            .filter_map(|place| {
                let node = Node::decode(&self.disk.peek(place * BLOCK, 4096)).ok()?.0;
                (node.place.0 == place && node.kind == TreeKind::Volume).then_some(node)
            })
            .collect();
        for _ in 0..self.random.random_range(0..3) {
            if nodes.is_empty() {
                break;
            }
            let node = &nodes[self.random.random_range(0..nodes.len())];
            // The volumes were made one after the other: ids of volume and head in turn.
            let origin = VOLUMES[(node.family as usize - 1) / 2].0;
            if origin == "sound" {
                continue;
            }
            let copies = self.random.random_range(0..4);
            let mut bytes = [0; 4096];
            self.random.fill(&mut bytes[..]);
            if copies != 1 || node.level == 1 {
                self.disk.damage(node.place.0 * BLOCK, &bytes);
            }
            // Of a node long freed the second copy's place may hold data by now.
            let twin = self.disk.peek((node.place.0 + TWIN_DISTANCE) * BLOCK, 4096);
            let has_twin = Node::decode(&twin).is_ok_and(|(twin, _)| twin.place == node.place);
            if copies != 2 && node.level > 1 && has_twin {
                self.disk.damage((node.place.0 + TWIN_DISTANCE) * BLOCK, &bytes);
            }
            self.damaged += 1;
            let first = node.position * span(node.level);
            let of_family = |name: &String| self.origins[name] == origin;
            let snapshots = self.snapshots.iter_mut().filter(|(key, _)| of_family(&key.0)).map(|(_, m)| m);
            let heads = self.heads.iter_mut().filter(|(name, _)| of_family(name)).map(|(_, m)| m);
            snapshots.chain(heads).for_each(|model| model.damaged(first, span(node.level)));
        }
        if self.random.random_bool(0.2) {
            let slot = [0, 256][self.random.random_range(0..2)];
            self.disk.damage(slot * BLOCK, &[7; 4096]);
            self.superblocks += 1;
            // The point before it may have what is damaged since.
            self.snapshots.values_mut().chain(self.heads.values_mut()).for_each(|m| m.readable.clear());
        }
        self.check("killed and damaged");
        let pool = Pool::open(Arc::new(self.disk.clone()), options(self.seed + self.stamp))
            .unwrap_or_else(|e| panic!("seed {}: {e}", self.seed));
        self.pool = Some(pool);
        self.compare();
    }

    fn check(&self, when: &str) {
        let report = farside_check::check(&self.disk, &CheckOptions::default()).expect("it runs");
        let told = [What::Node, What::NodeSecondCopy, What::Incomplete, What::Quarantined, What::Superblock];
        let wrong: Vec<_> = report.findings.iter().filter(|f| !told.contains(&f.what)).collect();
        assert!(wrong.is_empty(), "seed {}, {when}: {wrong:#?}\n{report}", self.seed);
    }

    fn compare(&mut self) {
        let pool = self.pool();
        assert_eq!(pool.status().failed, None, "seed {}", self.seed);
        let mut errors = 0;
        for (name, model) in &mut self.heads {
            errors += compare(&pool.open_volume(name).expect("it opens"), model, self.seed, name);
        }
        for ((name, snapshot), model) in &mut self.snapshots {
            let handle = pool.open_snapshot(name, snapshot).expect("it opens");
            errors += compare(&handle, model, self.seed, snapshot);
        }
        let ranges = pool.quarantined().expect("a list");
        assert_eq!(errors > 0, !ranges.is_empty(), "seed {}: {errors} errors, {ranges:?}", self.seed);
        assert!(ranges.iter().all(|r| self.origins[&r.volume] != "sound"), "seed {}: {ranges:?}", self.seed);
        self.errors += errors;
    }

    fn step(&mut self) {
        match self.random.random_range(0..23) {
            0..7 => self.write(),
            7 => self.partial_write(),
            8 => self.trim(),
            9 | 10 => self.snapshot(),
            11 => self.delete_snapshot(),
            12 => self.stage(),
            13 => {
                self.pool().reap_step_within(2).expect("a step");
            }
            14 => self.pool().reap_all().expect("reaped"),
            15..18 => {
                self.pool().consistency_point().unwrap_or_else(|e| panic!("seed {}: {e}", self.seed));
            }
            18 => self.compare(),
            19 => self.resize(),
            20 => self.clone_or_delete_volume(),
            21 => self.stage(),
            _ => self.kill_and_damage(),
        }
    }

    /// Whole writes and trims heal everything; what the damage took is accounted for.
    fn heal(&mut self) {
        let pool = self.pool();
        pool.drop_staged(None).expect("dropped");
        // What several descend from stays as long as they do.
        let clones: Vec<String> =
            self.heads.keys().filter(|name| name.starts_with("clone")).cloned().collect();
        for clone in clones {
            pool.delete_volume(&clone).expect("deleted");
            self.heads.remove(&clone);
            self.snapshots.retain(|(name, _), _| *name != clone);
        }
        for (name, snapshot) in std::mem::take(&mut self.snapshots).into_keys() {
            let uuid = pool.snapshot_named(&name, &snapshot).expect("there").uuid;
            pool.delete_snapshot(&name, uuid).expect("deleted");
        }
        for (name, model) in &mut self.heads {
            let blocks = model.version.blocks;
            let handle = pool.open_volume(name).expect("it opens");
            if blocks > 1000 {
                handle.trim(0, blocks * BLOCK).expect("a trim");
                model.version.unmap(0, blocks);
            }
            for block in 0..if blocks > 1000 { 400 } else { blocks } {
                self.stamp += 1;
                handle.write(block * BLOCK, &content(self.stamp)).expect("a write");
                model.version.map.insert(block, self.stamp);
            }
            model.may_be_lost.clear();
            model.readable.clear();
            model.version.compare(&handle, true, &format!("seed {}: {name} before the point", self.seed));
        }
        pool.consistency_point().expect("a point");
        pool.reap_all().expect("reaped");
        pool.consistency_point().expect("a point");
        pool.consistency_point().expect("a point");
        self.compare();
        for (name, model) in &self.heads {
            let handle = pool.open_volume(name).expect("it opens");
            let what = format!("seed {}: {name} after the point", self.seed);
            model.version.compare(&handle, true, &what);
        }
        drop(pool);
        self.pool = None;
        let report = farside_check::check(&self.disk, &CheckOptions::default()).expect("it runs");
        assert!(report.is_clean() && report.findings.is_empty(), "seed {}: {report}", self.seed);
    }
}

/// Answers with the blocks that are quarantined.
fn compare(handle: &VersionHandle, model: &mut Model, seed: u64, what: &str) -> u64 {
    let mut errors = 0;
    let mut block = vec![0; 4096];
    let edges = model.may_be_lost.iter().take(400).chain(model.version.map.keys());
    let blocks: BTreeSet<u64> = edges.copied().chain(0..10.min(model.version.blocks)).collect();
    for at in blocks {
        match handle.read(at * BLOCK, &mut block) {
            Ok(()) => {
                let expected = model.version.map.get(&at).map_or(vec![0; 4096], |stamp| content(*stamp));
                assert!(block == expected, "seed {seed}: {what}, block {at}");
                if model.may_be_lost.contains(&at) {
                    model.readable.insert(at);
                }
            }
            Err(StoreError::Quarantined { .. })
                if model.may_be_lost.contains(&at) && !model.readable.contains(&at) =>
            {
                errors += 1;
            }
            Err(e) => panic!("seed {seed}: {what}, block {at}: {e}"),
        }
    }
    if model.may_be_lost.is_empty() {
        assert_eq!(handle.content_root().expect("a root"), model.version.root(), "seed {seed}: {what}");
    } else if errors > 0
        && let Ok(root) = handle.content_root()
    {
        // Fingerprints above damage that no change has met still stand; no other root is ever answered.
        assert_eq!(root, model.version.root(), "seed {seed}: {what}");
    }
    errors
}

#[test]
fn random_damage_quarantines_its_blocks_and_nothing_else() {
    let count = std::env::var("FARSIDE_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(6);
    let first = std::env::var("FARSIDE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let (mut errors, mut damaged, mut superblocks) = (0, 0, 0);
    for seed in seeds(count, first) {
        println!("seed {seed}");
        let mut run = Run::new(seed);
        for _ in 0..250 {
            run.step();
        }
        run.heal();
        (errors, damaged) = (errors + run.errors, damaged + run.damaged);
        superblocks += run.superblocks;
    }
    println!("{damaged} nodes and {superblocks} superblocks damaged, {errors} quarantined blocks read");
    assert!(count < 3 || errors > 0, "no damage was ever met");
}

/// Whatever leaf lies at `position` of the newest tree of the volume whose family this is, in the pool as it is on the disk.
fn leaf(disk: &SimulatedDisk, family: u64, position: u64) -> Node {
    let leaves = (0..POOL / BLOCK).filter_map(|place| {
        let node = Node::decode(&disk.peek(place * BLOCK, 4096)).ok()?.0;
        let is_it = node.place.0 == place && node.level == 1 && node.position == position;
        (is_it && node.family == family && node.kind == TreeKind::Volume).then_some(node)
    });
    leaves.max_by_key(|node| node.birth).expect("a leaf")
}

/// A closed pool whose volume `v`, 300 blocks full of data, has lost leaf `position` for good.
fn pool_with_a_lost_leaf(position: u64) -> (SimulatedDisk, Version) {
    let disk = SimulatedDisk::new("lost", POOL).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(1)).expect("a pool");
    let mut version = Version { blocks: 300, ..Version::default() };
    pool.create_volume("v", version.blocks * BLOCK).expect("a volume");
    let handle = pool.open_volume("v").expect("it opens");
    for block in 0..300 {
        handle.write(block * BLOCK, &content(block + 1)).expect("a write");
        version.map.insert(block, block + 1);
    }
    drop(handle);
    pool.close().expect("closed");
    disk.damage(leaf(&disk, 1, position).place.0 * BLOCK, &[7; 4096]);
    let pool = Pool::open(Arc::new(disk.clone()), options(2)).expect("it opens");
    let handle = pool.open_volume("v").expect("it opens");
    handle.write(position * 128 * BLOCK, &content(5000)).expect("a write");
    version.map.insert(position * 128, 5000);
    pool.consistency_point().expect("a point");
    assert!(pool.status().unattributed_bytes_max > 0);
    drop(handle);
    pool.close().expect("closed");
    (disk, version)
}

fn quarantined_findings(report: &Report) -> Vec<&farside_check::Finding> {
    report.findings.iter().filter(|f| f.what == What::Quarantined).collect()
}

/// Blocks that cannot be read are errors of the check, told once for each node; the store names the same ones.
#[test]
fn the_check_calls_no_pool_clean_that_does_not_read() {
    let (disk, _) = pool_with_a_lost_leaf(1);
    let report = farside_check::check(&disk, &CheckOptions::default()).expect("it runs");
    assert!(!report.is_clean(), "{report}");
    let [finding] = quarantined_findings(&report)[..] else { panic!("{report}") };
    assert_eq!(finding.severity, Severity::Error);
    assert!(finding.found.contains("127 quarantined blocks: 129 to 255"), "{finding}");
    // Every other block is written anew.
    let pool = Pool::open(Arc::new(disk.clone()), options(3)).expect("it opens");
    let handle = pool.open_volume("v").expect("it opens");
    for block in (130..256).step_by(2) {
        handle.write(block * BLOCK, &content(block + 1)).expect("a write");
    }
    pool.consistency_point().expect("a point");
    let told: Vec<_> = pool.quarantined().expect("a list").iter().map(|r| (r.block, r.count)).collect();
    assert_eq!(told, (129..256).step_by(2).map(|block| (block, 1)).collect::<Vec<_>>());
    drop(handle);
    pool.close().expect("closed");
    drop(pool);
    let report = farside_check::check(&disk, &CheckOptions::default()).expect("it runs");
    let [finding] = quarantined_findings(&report)[..] else { panic!("{report}") };
    assert!(finding.found.contains("64 quarantined blocks: 129, 131,"), "{finding}");
    assert!(finding.found.contains("56 more ranges"), "{finding}");
    // Whatever finds no room is nothing worse than what does.
    disk.damage(leaf(&disk, 1, 0).children[3].place.0 * BLOCK, &[7; 4096]);
    for findings_max in [1, 2] {
        let options = CheckOptions { findings_max, ..CheckOptions::default() };
        let report = farside_check::check(&disk, &options).expect("it runs");
        assert!(report.findings.iter().any(|f| f.what == What::DataBlock), "{report}");
        assert_eq!(report.findings.len(), findings_max, "{report}");
    }
}

/// A lost leaf all of whose blocks shared their places with each other: what stays in use is what may stay.
#[test]
fn a_lost_leaf_of_shared_blocks_is_accounted_for() {
    let disk = SimulatedDisk::new("shared", POOL).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(1)).expect("a pool");
    pool.create_volume("v", 300 * BLOCK).expect("a volume");
    pool.create_volume("w", 300 * BLOCK).expect("a volume");
    let handle = pool.open_volume("v").expect("it opens");
    for block in 0..64 {
        handle.write(block * BLOCK, &content(block + 1)).expect("a write");
    }
    pool.create_snapshots(&[("v".into(), new_snapshot("s", 1))]).expect("a snapshot");
    let snapshot = pool.open_snapshot("v", "s").expect("it opens");
    let staged = pool.stage("w", None, 300 * BLOCK, staged_for(1)).expect("staged");
    let fingerprints = snapshot.fingerprints(0, 64).expect("fingerprints");
    for to in [0, 64] {
        assert_eq!(staged.share(to, &snapshot, 0, &fingerprints).expect("a share"), 64);
    }
    staged.commit(&new_snapshot("c", 2)).expect("committed");
    drop((staged, snapshot, handle));
    // The staged version's owners are the only ones left.
    let uuid = pool.snapshot_named("v", "s").expect("there").uuid;
    pool.delete_snapshot("v", uuid).expect("deleted");
    pool.delete_volume("v").expect("deleted");
    let uuid = pool.snapshot_named("w", "c").expect("there").uuid;
    pool.delete_snapshot("w", uuid).expect("deleted");
    pool.reap_all().expect("reaped");
    pool.close().expect("closed");
    drop(pool);
    let family = (2..9).find(|family| {
        (0..POOL / BLOCK).any(|place| {
            let node = Node::decode(&disk.peek(place * BLOCK, 4096));
            node.is_ok_and(|(node, _)| node.kind == TreeKind::Volume && node.family == *family)
        })
    });
    disk.damage(leaf(&disk, family.expect("w's family"), 0).place.0 * BLOCK, &[7; 4096]);
    let pool = Pool::open(Arc::new(disk.clone()), options(2)).expect("it opens");
    let handle = pool.open_volume("w").expect("it opens");
    for block in 0..128 {
        handle.write(block * BLOCK, &content(block + 900)).expect("a write");
    }
    pool.consistency_point().expect("a point");
    drop(handle);
    pool.close().expect("closed");
    drop(pool);
    let report = farside_check::check(&disk, &CheckOptions::default()).expect("it runs");
    assert!(report.is_clean(), "{report}");
}

/// What a larger size adds shows zeros, whatever was lost beside it: of a volume and of a staged version, begun larger or grown.
#[test]
fn growth_shows_zeros_beside_what_was_lost() {
    for blocks in [400, 20_000] {
        // Once the loss is on the medium as lost pointers, once the leaf is damaged and nobody has met it.
        for met in [true, false] {
            let (disk, mut version) = pool_with_a_lost_leaf(2);
            if !met {
                disk.damage(leaf(&disk, 1, 2).place.0 * BLOCK, &[7; 4096]);
            }
            let what = format!("{blocks} blocks, met: {met}");
            let pool = Pool::open(Arc::new(disk.clone()), options(3)).expect("it opens");
            pool.create_snapshots(&[("v".into(), new_snapshot("s", 1))]).expect("a snapshot");
            let uuid = pool.snapshot_named("v", "s").expect("there").uuid;
            let base = Some(uuid);
            let larger = pool.stage("v", base, blocks * BLOCK, staged_for(1)).expect("staged");
            let grown = pool.stage("v", base, 300 * BLOCK, staged_for(2)).expect("staged");
            grown.resize(blocks * BLOCK).expect("resized");
            pool.resize_volume("v", blocks * BLOCK).expect("resized");
            version.blocks = blocks;
            let mut block = vec![0; 4096];
            for when in ["before a point", "after it", "after two"] {
                let handle = pool.open_volume("v").expect("it opens");
                for at in (300..420).chain([16_383, 16_384]).filter(|at| *at < blocks) {
                    let zeros = |read: Result<(), StoreError>, block: &[u8], which: &str| {
                        assert!(read.is_ok(), "{what}, {which} {when}, block {at}: {read:?}");
                        assert!(block.iter().all(|b| *b == 0), "{what}, {which} {when}, block {at}");
                    };
                    zeros(handle.read(at * BLOCK, &mut block), &block, "volume");
                    zeros(larger.read(at * BLOCK, &mut block), &block, "staged larger");
                    zeros(grown.read(at * BLOCK, &mut block), &block, "staged and grown");
                }
                let lost = handle.read(290 * BLOCK, &mut block);
                assert!(matches!(lost, Err(StoreError::Quarantined { .. })), "{what}, {when}: {lost:?}");
                pool.consistency_point().expect("a point");
            }
            drop((larger, grown));
            pool.drop_staged(None).expect("dropped");
            // Whole writes heal, and then there is nothing left of it.
            let handle = pool.open_volume("v").expect("it opens");
            for block in 256..300 {
                handle.write(block * BLOCK, &content(block + 1)).expect("a write");
                version.map.insert(block, block + 1);
            }
            drop(handle);
            pool.flush().expect("a flush");
            drop(pool);
            let pool = Pool::open(Arc::new(disk.clone()), options(4)).expect("it opens");
            version.compare(&pool.open_volume("v").expect("it opens"), true, &what);
            pool.delete_snapshot("v", uuid).expect("deleted");
            pool.reap_all().expect("reaped");
            pool.consistency_point().expect("a point");
            pool.close().expect("closed");
            drop(pool);
            let report = farside_check::check(&disk, &CheckOptions::default()).expect("it runs");
            assert!(report.is_clean(), "{what}: {report}");
        }
    }
}

/// A staged version in which every lost block was written is whole: what the damaged map says of blocks past the end does not count.
#[test]
fn a_staged_version_heals_up_to_its_end() {
    for size in [290, 300, 330] {
        let (disk, mut version) = pool_with_a_lost_leaf(2);
        disk.damage(leaf(&disk, 1, 2).place.0 * BLOCK, &[7; 4096]);
        let pool = Pool::open(Arc::new(disk.clone()), options(3)).expect("it opens");
        pool.create_snapshots(&[("v".into(), new_snapshot("s", 1))]).expect("a snapshot");
        let base = pool.snapshot_named("v", "s").expect("there").uuid;
        let staged = pool.stage("v", Some(base), size * BLOCK, staged_for(1)).expect("staged");
        staged.write(280 * BLOCK, &content(280)).expect("a staged write");
        pool.consistency_point().expect("a point meets the damage");
        assert!(staged.content_root().is_err(), "size {size}");
        version.resize(size);
        for block in 256..size {
            staged.write(block * BLOCK, &content(block + 1)).expect("a staged write");
            version.map.insert(block, block + 1);
        }
        assert_eq!(staged.content_root().expect("a root"), version.root(), "size {size}");
        pool.consistency_point().expect("a point");
        assert_eq!(staged.content_root().expect("a root"), version.root(), "size {size}, written");
        staged.commit(&new_snapshot("c", 2)).expect("published");
        drop(staged);
        pool.consistency_point().expect("a point");
        let handle = pool.open_volume("v").expect("it opens");
        assert_eq!(handle.content_root().expect("a root"), version.root(), "size {size}, published");
        version.compare(&handle, true, &format!("size {size}"));
    }
}

/// A range of holes ends where something is lost, even if the same was lost in both versions at different times.
#[test]
fn no_range_of_holes_goes_on_across_what_is_lost() {
    let disk = SimulatedDisk::new("lost", POOL).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(1)).expect("a pool");
    pool.create_volume("v", 512 * BLOCK).expect("a volume");
    let fill = |pool: &Arc<Pool>, blocks: std::ops::Range<u64>| {
        let handle = pool.open_volume("v").expect("it opens");
        for block in blocks {
            handle.write(block * BLOCK, &content(block + 1)).expect("a write");
        }
    };
    // A change of the last leaf, damaged, meets that the second one is damaged as well.
    let lose = |pool: Arc<Pool>| {
        pool.close().expect("closed");
        drop(pool);
        for position in [1, 3] {
            disk.damage(leaf(&disk, 1, position).place.0 * BLOCK, &[7; 4096]);
        }
        let pool = Pool::open(Arc::new(disk.clone()), options(2)).expect("it opens");
        let handle = pool.open_volume("v").expect("it opens");
        handle.write(384 * BLOCK, &content(9000)).expect("a write");
        pool.consistency_point().expect("a point");
        pool
    };
    fill(&pool, 0..512);
    let pool = lose(pool);
    pool.create_snapshots(&[("v".into(), new_snapshot("s", 1))]).expect("a snapshot");
    fill(&pool, 128..256);
    fill(&pool, 384..512);
    let pool = lose(pool);
    let base = Arc::new(pool.open_snapshot("v", "s").expect("it opens"));
    let head = Arc::new(pool.open_volume("v").expect("it opens"));
    for first in [0, 256] {
        head.trim(first * BLOCK, 128 * BLOCK).expect("a trim");
    }
    let ranges: Vec<_> =
        head.difference_from(Some(base)).map(|range| range.expect("what is lost is the same")).collect();
    assert_eq!(ranges.iter().map(|r| (r.block, r.count)).collect::<Vec<_>>(), [(0, 128), (256, 128)]);
}
