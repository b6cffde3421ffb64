//! Differences and content roots against the model: for any two versions, across branches and sizes, with changes that
//! no consistency point has written yet; and what they cost: nodes on changed paths, never data.

mod sparse;

use std::collections::BTreeMap;
use std::sync::Arc;

use farside_platform::SimulatedDisk;
use farside_store::{DifferenceKind, Pool, VersionHandle};
use rand::Rng;
use sparse::{BLOCK, SparseRun, Version, content, new_snapshot, options, seeds};

/// What the model says: block to whether it is data now.
fn expected(base: &Version, version: &Version) -> BTreeMap<u64, DifferenceKind> {
    let mut found = BTreeMap::new();
    for (block, stamp) in &version.map {
        if base.map.get(block) != Some(stamp) {
            found.insert(*block, DifferenceKind::Data);
        }
    }
    for block in base.map.keys().filter(|b| !version.map.contains_key(b)) {
        found.insert(*block, DifferenceKind::Hole);
    }
    found
}

/// What the store says, checked against the model of both.
fn difference(
    handle: Option<&Arc<VersionHandle>>,
    version: &Arc<VersionHandle>,
    (base, now): (&Version, &Version),
) -> BTreeMap<u64, DifferenceKind> {
    let mut found = BTreeMap::new();
    let mut end = 0;
    for range in version.clone().difference_from(handle.cloned()) {
        let range = range.expect("a difference");
        assert!(range.count > 0 && range.block >= end, "ranges ascend and do not meet");
        end = range.block + range.count;
        if range.kind == DifferenceKind::Data {
            assert_eq!(range.changed, range.count);
            found.extend((range.block..end).map(|block| (block, range.kind)));
            continue;
        }
        // A range of holes reaches over what was a hole before.
        let was: Vec<u64> = base.map.range(range.block..end).map(|(block, _)| *block).collect();
        assert_eq!(range.changed, was.len() as u64, "{range:?}");
        assert_eq!(now.map.range(range.block..end).next(), None, "{range:?} is no hole");
        found.extend(was.into_iter().map(|block| (block, range.kind)));
    }
    found
}

/// All versions of a run, opened, with their models.
fn versions(run: &SparseRun) -> Vec<(String, Arc<VersionHandle>, &Version)> {
    let heads = run.volumes.iter().map(|(name, version)| {
        (name.clone(), Arc::new(run.pool.open_volume(name).expect("it opens")), version)
    });
    let snapshots = run.snapshots.iter().map(|((volume, name), version)| {
        let handle = run.pool.open_snapshot(volume, name).expect("it opens");
        (format!("{volume}@{name}"), Arc::new(handle), version)
    });
    heads.chain(snapshots).collect()
}

/// For differences in which no range of holes is expected.
const NO_HOLES: (&Version, &Version) = {
    const NOTHING: &Version = &Version { blocks: 0, map: BTreeMap::new() };
    (NOTHING, NOTHING)
};

/// A terabyte of scattered blocks trimmed: one range, and one node read of each version's tree, cold. What was written
/// since, and what stays, is told apart from it.
#[test]
fn a_trimmed_subtree_costs_one_node() {
    let disk = SimulatedDisk::new("trim", 512 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(1)).expect("a pool");
    const BLOCKS: u64 = 1 << 28;
    pool.create_volume("v", BLOCKS * BLOCK).expect("a volume");
    let handle = pool.open_volume("v").expect("it opens");
    let mut base = Version { blocks: BLOCKS, map: BTreeMap::new() };
    for index in 0..4000_u64 {
        let block = index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 36;
        handle.write(block * BLOCK, &content(index + 1)).expect("a write");
        base.map.insert(block, index + 1);
    }
    pool.create_snapshots(&[("v".into(), new_snapshot("s", 1))]).expect("a snapshot");
    pool.consistency_point().expect("a point");
    handle.trim(0, BLOCKS * BLOCK).expect("a trim");
    let mut now = Version { blocks: BLOCKS, map: BTreeMap::new() };
    let uncached = |options_seed| {
        pool.flush().expect("a flush");
        let pool =
            Pool::open(Arc::new(disk.image().without_history()), options(options_seed)).expect("it opens");
        let head = Arc::new(pool.open_volume("v").expect("it opens"));
        (Arc::new(pool.open_snapshot("v", "s").expect("it opens")), head, pool)
    };
    let (before, head, pool_now) = uncached(2);
    let nodes = pool_now.nodes_read();
    let ranges: Vec<_> =
        head.clone().difference_from(Some(before.clone())).map(|r| r.expect("a range")).collect();
    assert_eq!(ranges.len(), 1);
    assert_eq!((ranges[0].kind, ranges[0].changed), (DifferenceKind::Hole, base.map.len() as u64));
    assert!(pool_now.nodes_read() - nodes <= 1, "{} nodes", pool_now.nodes_read() - nodes);
    assert_eq!(difference(Some(&before), &head, (&base, &now)), expected(&base, &now));
    // One block is written again: the path to it is walked, the rest still costs a node for each subtree.
    handle.write(77 * BLOCK, &content(1)).expect("a write");
    now.map.insert(77, 1);
    let (before, head, pool_now) = uncached(3);
    let nodes = pool_now.nodes_read();
    assert_eq!(difference(Some(&before), &head, (&base, &now)), expected(&base, &now));
    assert!(pool_now.nodes_read() - nodes <= 4 * 128, "{} nodes", pool_now.nodes_read() - nodes);
}

#[test]
fn any_two_versions_differ_as_the_model_says() {
    for seed in seeds(5, 1) {
        println!("seed {seed}");
        let mut run = SparseRun::new(seed, 192 << 20);
        run.create("wide", 2_621_440);
        run.create("deep", 1 << 34);
        for _ in 0..12 {
            for _ in 0..40 {
                run.step();
            }
            let picks: Vec<usize> = (0..10).map(|_| run.rng.random_range(0..1000)).collect();
            let all = versions(&run);
            for pair in picks.chunks(2) {
                let (a_name, a, a_model) = &all[pair[0] % all.len()];
                let (b_name, b, b_model) = &all[pair[1] % all.len()];
                // Nodes carry no family in their fingerprints: any two volumes can be compared.
                assert_eq!(
                    difference(Some(a), b, (a_model, b_model)),
                    expected(a_model, b_model),
                    "seed {seed}: from {a_name} to {b_name}"
                );
                let nothing = Version::default();
                assert_eq!(
                    difference(None, b, (&nothing, b_model)),
                    expected(&nothing, b_model),
                    "seed {seed}: all of {b_name}"
                );
            }
        }
    }
}

#[test]
fn equal_content_is_no_difference() {
    let disk = SimulatedDisk::new("equal", 64 << 20).without_history();
    let pool = Pool::create(Arc::new(disk), options(1)).expect("a pool");
    pool.create_volume("v", 1 << 34).expect("a volume");
    let handle = pool.open_volume("v").expect("it opens");
    let write = |block: u64, stamp: u64| handle.write(block * BLOCK, &content(stamp)).expect("a write");
    for block in 0..300 {
        write(block * 1000, block + 1);
    }
    pool.create_snapshots(&[("v".into(), new_snapshot("s", 1))]).expect("a snapshot");
    for written in [false, true] {
        // Rewritten with what was there; changed and changed back; trimmed and written again.
        (0..100).for_each(|block| write(block * 1000, block + 1));
        (100..200).for_each(|block| write(block * 1000, 777));
        (100..200).for_each(|block| write(block * 1000, block + 1));
        handle.trim(200_000 * BLOCK, 100_000 * BLOCK).expect("a trim");
        (200..300).for_each(|block| write(block * 1000, block + 1));
        if written {
            pool.consistency_point().expect("a point");
        }
        let head = Arc::new(pool.open_volume("v").expect("it opens"));
        let base = Arc::new(pool.open_snapshot("v", "s").expect("it opens"));
        assert_eq!(difference(Some(&base), &head, NO_HOLES), BTreeMap::new());
        assert_eq!(base.content_root().expect("a root"), head.content_root().expect("a root"));
    }
}

/// 16 GiB mapped thinly, 1 % of it changed: what is read is the nodes on changed paths, cold, and no data block.
#[test]
fn a_difference_reads_only_nodes_on_changed_paths() {
    let disk = SimulatedDisk::new("cost", 512 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(1)).expect("a pool");
    pool.create_volume("v", 16 << 30).expect("a volume");
    let handle = pool.open_volume("v").expect("it opens");
    // One block in each of 32768 leaves.
    const LEAVES: u64 = 1 << 15;
    for leaf in 0..LEAVES {
        handle.write(leaf * 128 * BLOCK, &content(leaf + 1)).expect("a write");
    }
    pool.create_snapshots(&[("v".into(), new_snapshot("s", 1))]).expect("a snapshot");
    let changed: Vec<u64> = (0..LEAVES / 100).map(|i| i * 97).collect();
    for leaf in &changed {
        handle.write(leaf * 128 * BLOCK, &content(1_000_000 + leaf)).expect("a write");
    }
    pool.close().expect("closed");
    drop(handle);
    drop(pool);
    let pool = Pool::open(Arc::new(disk.clone()), options(2)).expect("it opens");
    let head = Arc::new(pool.open_volume("v").expect("it opens"));
    let base = Arc::new(pool.open_snapshot("v", "s").expect("it opens"));
    // Damaged data: whoever reads it finds out.
    let before = disk.reads();
    let found = difference(Some(&base), &head, NO_HOLES);
    let after = disk.reads();
    assert_eq!(
        found.keys().copied().collect::<Vec<_>>(),
        changed.iter().map(|l| l * 128).collect::<Vec<_>>()
    );
    let (requests, bytes) = (after.0 - before.0, after.1 - before.1);
    // Two leaves per change; above them 256 nodes of level 2, 2 of level 3, 1 of level 4, for each version.
    let paths = 2 * changed.len() as u64 + 2 * (256 + 2 + 1);
    assert!(requests <= paths && bytes <= paths * BLOCK, "{requests} reads, {bytes} bytes; paths: {paths}");
    // Each leaf in question at least once: it is the leaves that are counted here, not nothing.
    assert!(requests >= 2 * changed.len() as u64, "{requests} reads");
    let before = disk.reads();
    head.content_root().expect("a root");
    assert_eq!(disk.reads(), before, "the content root of a written tree is in its pointer");
}
