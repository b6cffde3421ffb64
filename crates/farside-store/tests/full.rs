//! A pool filled to the last block: reads, trims and deletions go on, what they free is usable again without opening
//! the pool anew, and no consistency point ever fails for want of space.

mod model;
mod sparse;

use std::sync::Arc;

use farside_platform::SimulatedDisk;
use farside_store::{Pool, StoreError, WRITE_NEEDS_BYTES};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use sparse::{BLOCK, SparseRun, Version, content, new_snapshot, options, seeds, staged_for};

/// Smallest pool that can be made, and a little more.
const TINY: u64 = 13 << 20;

fn assert_usable(pool: &Pool, what: &str) {
    assert_eq!(pool.status().failed, None, "{what}");
}

/// Writes blocks from `first` on until the pool is full; answers how many fitted.
fn fill(pool: &Arc<Pool>, volume: &str, first: u64, version: &mut Version) -> u64 {
    let handle = pool.open_volume(volume).expect("it opens");
    let mut block = first;
    loop {
        match handle.write(block * BLOCK, &content(block + 1)) {
            Ok(()) => version.map.insert(block, block + 1),
            Err(StoreError::NoSpace { .. }) => return block - first,
            Err(e) => panic!("a write: {e}"),
        };
        block += 1;
    }
}

#[test]
fn a_full_pool_reads_and_frees() {
    let disk = SimulatedDisk::new("full", 24 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(1)).expect("a pool");
    let mut version = Version { blocks: 1 << 20, ..Version::default() };
    pool.create_volume("v", version.blocks * BLOCK).expect("a volume");
    let fitted = fill(&pool, "v", 0, &mut version);
    // 24 MiB less superblocks, journal and reserves.
    assert!(fitted > 3500, "only {fitted} blocks fitted");
    let handle = pool.open_volume("v").expect("it opens");
    version.compare(&handle, true, "full");
    for round in 0..6 {
        handle.trim(0, 512 * BLOCK).expect("a trim in a full pool");
        version.unmap(0, 512);
        let again = fill(&pool, "v", 0, &mut version);
        assert!(again >= 480, "round {round}: of 512 blocks only {again} were usable again");
        assert_usable(&pool, "after a round");
    }
    version.compare(&handle, true, "after the rounds");
    // A snapshot of a full pool may be refused; if it is taken, it can go.
    match pool.create_snapshots(&[("v".into(), new_snapshot("s", 1))]) {
        Ok(made) => pool.delete_snapshot("v", made[0].uuid).expect("a deletion in a full pool"),
        Err(StoreError::NoSpace { .. }) => {}
        Err(e) => panic!("{e}"),
    }
    drop(handle);
    pool.reap_all().expect("reaping in a full pool");
    pool.delete_volume("v").expect("a deletion in a full pool");
    pool.reap_all().expect("reaping in a full pool");
    pool.create_volume("w", 1 << 30).expect("a volume in the freed pool");
    let mut version = Version { blocks: 1 << 18, ..Version::default() };
    let refilled = fill(&pool, "w", 0, &mut version);
    assert!(refilled + 32 >= fitted, "{refilled} blocks fitted, {fitted} before");
    assert_usable(&pool, "at the end");
    drop(pool);
    let report = farside_check::check(&disk, &farside_check::CheckOptions::default()).expect("it runs");
    assert!(report.is_clean(), "{report}");
}

#[test]
fn snapshots_pin_space_and_deleting_them_gives_it_back() {
    let disk = SimulatedDisk::new("full", 16 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(2)).expect("a pool");
    let mut version = Version { blocks: 4096, ..Version::default() };
    pool.create_volume("v", version.blocks * BLOCK).expect("a volume");
    let handle = pool.open_volume("v").expect("it opens");
    for block in 0..600 {
        handle.write(block * BLOCK, &content(block + 1)).expect("room");
        version.map.insert(block, block + 1);
    }
    let made = pool.create_snapshots(&[("v".into(), new_snapshot("s", 1))]).expect("a snapshot");
    let frozen = version.clone();
    // The snapshot holds what the head overwrites: twice the space, and then the rest of the pool.
    for block in 0..600 {
        handle.write(block * BLOCK, &content(10_000 + block)).expect("room for twice 600 blocks");
        version.map.insert(block, 10_000 + block);
    }
    let rest = fill(&pool, "v", 700, &mut version);
    assert!(rest > 0, "room for more");
    frozen.compare(&pool.open_snapshot("v", "s").expect("it opens"), true, "v@s in a full pool");
    pool.delete_snapshot("v", made[0].uuid).expect("a deletion in a full pool");
    pool.reap_all().expect("reaping");
    let fitted = fill(&pool, "v", 700 + rest, &mut version);
    assert!(fitted >= 550, "the snapshot held 600 blocks, {fitted} are usable again");
    version.compare(&handle, true, "v");
    assert_usable(&pool, "at the end");
}

#[test]
fn staging_stops_before_hosts_do() {
    let disk = SimulatedDisk::new("full", 32 << 20).without_history();
    let pool = Pool::create(Arc::new(disk), options(3)).expect("a pool");
    pool.create_volume("v", 1 << 30).expect("a volume");
    let staged = pool.stage("v", None, 1 << 30, staged_for(1)).expect("staging");
    let mut block = 0;
    loop {
        match staged.write(block * BLOCK, &content(block + 1)) {
            Ok(()) => block += 1,
            Err(StoreError::NoSpace { .. }) => break,
            Err(e) => panic!("{e}"),
        }
    }
    let mut version = Version { blocks: 1 << 18, ..Version::default() };
    let host = fill(&pool, "v", 0, &mut version);
    // 1/32 of the pool's 8192 blocks is kept for hosts.
    assert!(host >= 200, "a transfer left hosts room for {host} blocks");
    staged.abandon().expect("abandoned in a full pool");
    pool.reap_all().expect("reaping");
    assert!(fill(&pool, "v", host, &mut version) > 3000, "what was abandoned is usable");
    assert_usable(&pool, "at the end");
}

/// Thousands of operations in pools that are full most of the time, in pieces, crashing now and then.
#[test]
fn tiny_pools_never_fail() {
    for seed in seeds(6, 1) {
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut run = SparseRun::new(seed, TINY + (rng.random_range(0..4u64) << 20));
        run.reap_nodes = 40;
        run.create("a", 16385);
        run.create("b", 1 << 34);
        // Ballast in pieces: the pool full to the last block, then single blocks and pairs of them trimmed.
        run.pool.create_volume("ballast", 1 << 30).expect("a volume");
        let mut ballast = Version { blocks: 1 << 18, ..Version::default() };
        let filled = fill(&run.pool, "ballast", 0, &mut ballast);
        let handle = run.pool.open_volume("ballast").expect("it opens");
        for _ in 0..rng.random_range(60..500) {
            let (first, count) = (rng.random_range(0..filled - 2), rng.random_range(1..3));
            handle.trim(first * BLOCK, count * BLOCK).expect("a trim in a full pool");
            ballast.unmap(first, first + count);
        }
        drop(handle);
        for step in 0..2500 {
            match rng.random_range(0..10) {
                0..3 => run.write(),
                3 => run.reap_step(),
                _ => run.step(),
            }
            assert_usable(&run.pool, &format!("seed {seed}, step {step}"));
            if step % 500 == 499 {
                run.reopen();
                run.compare(false);
            }
        }
        println!("seed {seed}: {} operations refused", run.refused);
        assert!(run.refused > 0, "seed {seed}: the pool was never full");
        run.compare(true);
        ballast.compare(&run.pool.open_volume("ballast").expect("it opens"), true, "ballast");
        run.empty();
        run.check(&run.disk, "emptied");
    }
}

/// A pool whose free blocks have no free twin: what frees space must work without pairs to be had.
#[test]
fn a_pool_in_pieces_can_be_trimmed() {
    let disk = SimulatedDisk::new("pieces", TINY).without_history();
    let pool = Pool::create(Arc::new(disk), options(5)).expect("a pool");
    let mut version = Version { blocks: 1 << 20, ..Version::default() };
    pool.create_volume("v", version.blocks * BLOCK).expect("a volume");
    let handle = pool.open_volume("v").expect("it opens");
    let mut rng = SmallRng::seed_from_u64(5);
    for round in 0..12 {
        fill(&pool, "v", round << 13, &mut version);
        assert_usable(&pool, "full");
        let mapped: Vec<u64> = version.map.keys().copied().collect();
        let mut freed = 0;
        while freed < 200 {
            let block = mapped[rng.random_range(0..mapped.len())];
            if version.map.remove(&block).is_none() {
                continue;
            }
            handle.trim(block * BLOCK, BLOCK).unwrap_or_else(|e| panic!("round {round}, after {freed}: {e}"));
            freed += 1;
        }
        assert_usable(&pool, "trimmed");
    }
    version.compare(&handle, true, "v");
}

/// The histories of the crash test in a pool that their snapshots fill.
#[test]
fn crashes_while_full() {
    for seed in seeds(4, 1) {
        println!("seed {seed}");
        let mut run = model::Run::new(seed, TINY);
        for _ in 0..160 {
            run.step();
        }
        assert_usable(&run.pool, "at the end of the run");
        let disk = run.disk.clone();
        let history = run.finish();
        let points = disk.sync_points();
        for point in points.iter().filter(|p| **p >= history.first_event).step_by(7) {
            let (lower, upper) = history.bounds(*point);
            let fate = farside_platform::CrashFate::Random(seed);
            let crashed = disk.crash_at(*point, fate);
            let pool = Pool::open(Arc::new(crashed), model::options(1)).expect("it opens, however full");
            let seen = model::observe(&pool);
            assert!((lower..=upper).any(|i| history.states[i] == seen), "seed {seed}, event {point}");
            pool.reap_all().expect("reaping");
            pool.consistency_point().expect("a point");
        }
    }
}

/// What is left for hosts is never more than is said to be at most, whatever they overwrite, also after a crash; and a point
/// settles it.
#[test]
fn what_is_left_is_told_with_what_is_not_counted_yet() {
    let mut disk = SimulatedDisk::new("full", 32 << 20).without_history();
    let mut pool = Pool::create(Arc::new(disk.clone()), options(5)).expect("a pool");
    pool.create_volume("v", 1 << 30).expect("a volume");
    let empty = pool.room();
    assert!(empty.for_hosts_bytes > empty.size_bytes / 2 && !empty.refuses_hosts, "{empty:?}");
    let most = |pool: &Pool| pool.room().for_hosts_bytes + pool.room().unsettled_bytes;
    let mut seen = Vec::new();
    for round in 0..12 {
        let handle = pool.open_volume("v").expect("it opens");
        // The same 12 MiB over and over, and a part that no point has counted yet.
        for block in (0..3072).chain(0..700) {
            handle.write(block * BLOCK, &content(round * 4096 + block + 1)).expect("room");
        }
        handle.flush().expect("a flush");
        drop(handle);
        if round % 3 == 2 {
            let crashed = disk.image();
            pool = Pool::open(Arc::new(crashed.clone()), options(6 + round)).expect("it opens");
            disk = crashed;
        }
        let at_most = most(&pool);
        let before = pool.room();
        pool.consistency_point().expect("a point");
        let after = pool.room();
        assert_eq!((after.unsettled_bytes, after.may_settle), (0, false), "{after:?}");
        assert!(after.for_hosts_bytes >= before.for_hosts_bytes, "{before:?} {after:?}");
        assert!(after.for_hosts_bytes <= at_most + (64 << 10), "round {round}: {before:?} {after:?}");
        seen.push(after.for_hosts_bytes);
    }
    let (least, highest) = (seen.iter().min().expect("rounds"), seen.iter().max().expect("rounds"));
    assert!(highest - least < 512 << 10, "what is alive stays the same: {seen:?}");

    let handle = pool.open_volume("v").expect("it opens");
    let megabyte =
        |at: u64| -> Vec<u8> { (0..256).flat_map(|i| content((1 << 20) | (at << 8) | i)).collect() };
    let refused = (16..64).find(|at| handle.write(at << 20, &megabyte(*at)).is_err()).expect("it fills up");
    let room = pool.room();
    assert!(room.refuses_hosts && room.for_hosts_bytes < 2 * WRITE_NEEDS_BYTES, "{room:?}");
    handle.trim(16 << 20, (refused - 16) << 20).expect("a trim in a full pool");
    let room = pool.room();
    assert!(room.may_settle && !room.refuses_hosts, "{room:?}");
    pool.consistency_point().expect("a point");
    let room = pool.room();
    assert!(room.for_hosts_bytes + (512 << 10) > *least, "{room:?} {seen:?}");
    assert_usable(&pool, "at the end");
}
