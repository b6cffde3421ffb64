//! Deduplication and its undoing against hosts that write, trim and flush, snapshots that come and go, and points, all at once and on a
//! file; then the pool is dropped as if killed, checked and opened again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farside_platform::{DeviceError, FileDevice, OsRandomness, SystemClock, Timestamp};
use farside_store::{DedupIndex, NewSnapshot, Pool, PoolOptions, StoreError};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use uuid::Uuid;

const BLOCK: usize = 4096;
const WRITERS: u64 = 3;
/// Blocks of one writer's range of each volume.
const RANGE: u64 = 3000;
/// Contents there are: so few that most blocks have many others of the same.
const CONTENTS: u64 = 400;
const VOLUMES: [&str; 2] = ["v", "w"];
const RUN: Duration = Duration::from_secs(5);
/// And if too little was done by then: a machine may be slow.
const RUN_MAX: Duration = Duration::from_secs(120);
const SHARED_MIN: u64 = 5000;
const COPIED_MIN: u64 = 100;

fn options() -> PoolOptions {
    PoolOptions {
        overlay_bytes: 256 << 10,
        node_cache_bytes: 512 << 10,
        ..PoolOptions::new(Arc::new(SystemClock::default()), Arc::new(OsRandomness))
    }
}

fn content(stamp: u64) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    if stamp > 0 {
        for (word, to) in (1..).zip(bytes.chunks_mut(8)) {
            to.copy_from_slice(&(stamp * 1000 + word).to_le_bytes());
        }
    }
    bytes
}

type Model = BTreeMap<(usize, u64), u64>;

/// Writes and trims a range that is nobody else's, in parts of blocks now and then, and always reads what it wrote.
fn writer(pool: &Arc<Pool>, me: u64, stop: &AtomicBool) -> Model {
    let handles = VOLUMES.map(|volume| pool.open_volume(volume).expect("it opens"));
    let mut rng = SmallRng::seed_from_u64(me);
    let mut model = Model::new();
    while !stop.load(Ordering::Relaxed) {
        let which = rng.random_range(0..VOLUMES.len());
        let handle = &handles[which];
        let count = rng.random_range(1..=60);
        let first = me * RANGE + rng.random_range(0..RANGE - count);
        let stamp = rng.random_range(1..=CONTENTS - count);
        let offset = first * BLOCK as u64;
        match rng.random_range(0..12) {
            0 => {
                handle.trim(offset, count * BLOCK as u64).expect("a trim");
                for block in first..first + count {
                    model.remove(&(which, block));
                }
            }
            1 => {
                // Merged with what is there, which is the same.
                let old = model.get(&(which, first)).copied().unwrap_or(0);
                handle.write(offset + 512, &content(old)[512..1024]).expect("a merge");
            }
            2 => handle.flush().expect("a flush"),
            _ => {
                let bytes: Vec<u8> = (stamp..stamp + count).flat_map(content).collect();
                handle.write(offset, &bytes).expect("a write with room to spare");
                model.extend((first..first + count).zip(stamp..).map(|(b, s)| ((which, b), s)));
            }
        }
        let at = me * RANGE + rng.random_range(0..RANGE);
        let mut seen = [1; BLOCK];
        handle.read(at * BLOCK as u64, &mut seen).expect("a read");
        let expected = model.get(&(which, at)).copied().unwrap_or(0);
        assert!(seen == content(expected), "writer {me}: block {at} of {}", VOLUMES[which]);
    }
    model
}

fn deduplicate(pool: &Arc<Pool>, stop: &AtomicBool, shared: &AtomicU64, copied: &AtomicU64) {
    let among = VOLUMES.map(|volume| pool.volume_id(volume).expect("it is there"));
    let mut index = DedupIndex::new(1 << 20);
    let mut last = [None; VOLUMES.len()];
    for round in 0.. {
        let which = round % VOLUMES.len();
        let mut pass = pool.begin_dedup(among[which], &among, last[which], index).expect("it begins");
        while pass.step(&mut |_| {}).expect("a step") {}
        shared.fetch_add(pass.figures().shared_blocks, Ordering::Relaxed);
        assert_eq!(pass.figures().damaged_blocks, 0);
        last[which] = Some(pass.position());
        index = pass.into_index();
        if round % 3 == 2 {
            let mut undo = pool.begin_dedup_undo(among[which]).expect("it begins");
            while !stop.load(Ordering::Relaxed) && undo.step(&mut |_| {}).expect("a step") {}
            copied.fetch_add(undo.undone().copied_blocks, Ordering::Relaxed);
            assert_eq!(undo.undone().damaged_blocks, 0);
            last[which] = None;
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

fn snapshots(pool: &Arc<Pool>, stop: &AtomicBool) {
    let mut taken: Vec<(&str, Uuid)> = Vec::new();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let (volume, uuid) = (VOLUMES[number as usize % 2], Uuid::from_u128(number));
        let name = format!("s{number}");
        let new = NewSnapshot { name, uuid, created_at: Timestamp(1), relationship: None, pin_for: None };
        let name = new.name.clone();
        pool.create_snapshots(&[(volume.into(), new)]).expect("a snapshot");
        let handle = pool.open_snapshot(volume, &name).expect("it opens");
        let root = handle.content_root().expect("a root");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(handle.content_root().expect("a root"), root);
        let mut bytes = vec![0; 64 * BLOCK];
        (0..WRITERS).for_each(|w| handle.read(w * RANGE * BLOCK as u64, &mut bytes).expect("it reads"));
        taken.push((volume, uuid));
        if taken.len() > 3 {
            let (volume, uuid) = taken.remove(0);
            pool.delete_snapshot(volume, uuid).expect("a deletion");
        }
    }
}

fn wait_until_closed(path: &Path) {
    let begin = Instant::now();
    while let Err(DeviceError::Locked { .. }) = FileDevice::open_read_only(path) {
        assert!(begin.elapsed() < Duration::from_secs(60), "the pool was dropped but holds its device");
        std::thread::yield_now();
    }
}

#[test]
fn hosts_snapshots_and_points_against_deduplication() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pool");
    let device = FileDevice::create(&path, 1 << 30).expect("a file");
    let pool = Pool::create(Arc::new(device), options()).expect("a pool");
    for volume in VOLUMES {
        pool.create_volume(volume, WRITERS * RANGE * BLOCK as u64).expect("a volume");
    }
    let (stop, shared, copied) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let models: Vec<Model> = std::thread::scope(|scope| {
        let (pool, stop) = (&pool, &stop);
        let (shared, copied) = (&shared, &copied);
        let writers: Vec<_> = (0..WRITERS).map(|me| scope.spawn(move || writer(pool, me, stop))).collect();
        let others = [
            scope.spawn(move || deduplicate(pool, stop, shared, copied)),
            scope.spawn(move || snapshots(pool, stop)),
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    match pool.consistency_point() {
                        Ok(()) | Err(StoreError::NoRoomForPoint { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                    pool.reap_step_within(3).expect("a step of reaping");
                }
            }),
        ];
        let begin = Instant::now();
        let is_over = || writers.iter().any(|t| t.is_finished()) || others.iter().any(|t| t.is_finished());
        let enough =
            || shared.load(Ordering::Relaxed) > SHARED_MIN && copied.load(Ordering::Relaxed) > COPIED_MIN;
        while (begin.elapsed() < RUN || (!enough() && begin.elapsed() < RUN_MAX)) && !is_over() {
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
        others.into_iter().for_each(|t| t.join().expect("its message is above"));
        writers.into_iter().map(|t| t.join().expect("its message is above")).collect()
    });
    let (shared, copied) = (shared.into_inner(), copied.into_inner());
    println!("{shared} blocks shared, {copied} copied again");
    assert!(shared > SHARED_MIN && copied > COPIED_MIN, "too little to mean anything: {shared}, {copied}");
    pool.flush().expect("a flush");
    // As if killed: nothing is closed.
    drop(pool);
    wait_until_closed(&path);
    let check = |what: &str| {
        let device = FileDevice::open_read_only(&path).expect("it opens for the checker");
        let report = farside_check::check(&device, &farside_check::CheckOptions::default()).expect("it runs");
        assert!(report.is_clean(), "{what}: {report}");
    };
    check("after the kill");
    let device = FileDevice::open(&path).expect("the device is free");
    let pool = Pool::open(Arc::new(device), options()).expect("it opens");
    for (which, volume) in VOLUMES.iter().enumerate() {
        let handle = pool.open_volume(volume).expect("it opens");
        for (me, model) in (0..).zip(&models) {
            for block in me * RANGE..(me + 1) * RANGE {
                let mut seen = [1; BLOCK];
                handle.read(block * BLOCK as u64, &mut seen).expect("it reads");
                let expected = model.get(&(which, block)).copied().unwrap_or(0);
                assert!(seen == content(expected), "{volume}, block {block}");
            }
        }
    }
    for volume in VOLUMES {
        pool.delete_volume(volume).expect("a deletion");
    }
    pool.reap_all().expect("reaping");
    assert_eq!(pool.status().shared_blocks, 0);
    pool.close().expect("closed");
    drop(pool);
    wait_until_closed(&path);
    check("emptied");
}
