//! Many threads on one pool in a file, with consistency points all the time: writers that verify what they wrote,
//! flushers, snapshots that must show one instant, deletions, differences, content roots, blocks shared while they are
//! overwritten; then the pool is dropped as if killed, opened again and checked.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farside_format::Fingerprint;
use farside_platform::{DeviceError, FileDevice, OsRandomness, SystemClock, Timestamp};
use farside_store::{NewSnapshot, Pool, PoolOptions, StagedFor, StoreError, VersionHandle};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use uuid::Uuid;

const BLOCK: usize = 4096;
const WRITERS: u64 = 4;
/// Blocks of one writer's range: more than a piece of a write, so that it takes several operations.
const RANGE: u64 = 600;
const RUN: Duration = Duration::from_secs(6);

fn options() -> PoolOptions {
    PoolOptions {
        overlay_bytes: 256 << 10,
        node_cache_bytes: 512 << 10,
        ..PoolOptions::new(Arc::new(SystemClock::default()), Arc::new(OsRandomness))
    }
}

fn stamped(writer: u64, block: u64, stamp: u64) -> [u8; BLOCK] {
    let mut bytes = [(stamp % 251) as u8; BLOCK];
    bytes[..8].copy_from_slice(&stamp.to_le_bytes());
    bytes[8..16].copy_from_slice(&writer.to_le_bytes());
    bytes[16..24].copy_from_slice(&block.to_le_bytes());
    bytes
}

/// The stamp of a block, whose other bytes must go with it; a hole has stamp 0.
fn stamp_of(bytes: &[u8], writer: u64, block: u64) -> u64 {
    let stamp = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    if stamp == 0 {
        assert!(bytes.iter().all(|b| *b == 0), "a hole with bytes in it");
    } else {
        assert!(bytes == stamped(writer, block, stamp), "block {block} of writer {writer} is mixed up");
    }
    stamp
}

/// Stamps of a writer's range, which it writes in ascending order, each round with a higher stamp: at any instant a
/// prefix has the new stamp, the rest the one before.
fn assert_one_instant(handle: &VersionHandle, writer: u64, at_least: u64, what: &str) {
    let mut bytes = vec![0; RANGE as usize * BLOCK];
    handle.read(writer * RANGE * BLOCK as u64, &mut bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
    let stamps: Vec<u64> = (0..).zip(bytes.chunks(BLOCK)).map(|(b, c)| stamp_of(c, writer, b)).collect();
    let (first, last) = (stamps[0], stamps[RANGE as usize - 1]);
    assert!(stamps.is_sorted_by(|a, b| a >= b), "{what}: writer {writer}: not one instant");
    assert!(first - last <= 1, "{what}: writer {writer}: stamps from {last} to {first}");
    assert!(last >= at_least, "{what}: writer {writer}: flushed stamp {at_least}, found {last}");
}

struct Shared {
    pool: Arc<Pool>,
    stop: AtomicBool,
    /// Per writer: the stamp that its whole range had when a flush returned.
    flushed: Vec<AtomicU64>,
    longest_write_us: AtomicU64,
    longest_flush_us: AtomicU64,
    operations: AtomicU64,
    shared_blocks: AtomicU64,
}

impl Shared {
    fn running(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn timed<T>(&self, longest: &AtomicU64, operation: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let value = operation();
        longest.fetch_max(begin.elapsed().as_micros() as u64, Ordering::Relaxed);
        self.operations.fetch_add(1, Ordering::Relaxed);
        value
    }
}

fn writer(shared: &Shared, me: u64) {
    let handle = shared.pool.open_volume("v").expect("it opens");
    let mut rng = SmallRng::seed_from_u64(me);
    let start = me * RANGE;
    let mut stamp = 0;
    while shared.running() {
        stamp += 1;
        let mut block = 0;
        while block < RANGE {
            let count = rng.random_range(1..=40).min(RANGE - block);
            // One operation, one change: never across an aligned MiB.
            let count = count.min(256 - (start + block) % 256);
            let bytes: Vec<u8> = (block..block + count).flat_map(|b| stamped(me, b, stamp)).collect();
            let offset = (start + block) * BLOCK as u64;
            shared
                .timed(&shared.longest_write_us, || handle.write(offset, &bytes))
                .expect("a write with room to spare");
            let mut seen = vec![0; bytes.len()];
            handle.read(offset, &mut seen).expect("a read");
            assert!(seen == bytes, "writer {me}: read after write");
            block += count;
        }
        if rng.random_bool(0.5) {
            shared.timed(&shared.longest_flush_us, || handle.flush()).expect("a flush");
            shared.flushed[me as usize].store(stamp, Ordering::SeqCst);
        }
    }
}

/// Writes parts of blocks next to others who do: the merging must lose none of it.
fn partial_writer(shared: &Shared, me: u64) {
    let handle = shared.pool.open_volume("shared").expect("it opens");
    let mut rng = SmallRng::seed_from_u64(100 + me);
    let mut last = [0u8; 64];
    while shared.running() {
        let block = rng.random_range(0..64usize);
        let offset = (block * BLOCK) as u64 + me * 512 + 8;
        let mut seen = [0];
        handle.read(offset, &mut seen).expect("a read");
        assert_eq!(seen[0], last[block], "block {block}: another's merge undid this write");
        last[block] = last[block].wrapping_add(1);
        shared
            .timed(&shared.longest_write_us, || handle.write(offset, &[last[block]; 300]))
            .expect("a partial write");
        if rng.random_ratio(1, 40) {
            handle.flush().expect("a flush");
        }
    }
}

/// Fills, trims and zeroes a volume of its own all over: frees and cuts.
fn scatterer(shared: &Shared) {
    let handle = shared.pool.open_volume("scatter").expect("it opens");
    let mut rng = SmallRng::seed_from_u64(9);
    while shared.running() {
        let block = rng.random_range(0..1u64 << 20);
        let offset = block * BLOCK as u64;
        match rng.random_range(0..10) {
            0..7 => handle.write(offset, &stamped(9, block, block + 1)).expect("a write"),
            7 => handle.write_zeroes(offset, (1 << 32) - offset).expect("zeroes"),
            _ => handle.trim(offset, (100 * BLOCK as u64).min((1 << 32) - offset)).expect("a trim"),
        }
        shared.operations.fetch_add(1, Ordering::Relaxed);
    }
}

/// Snapshots, clones and their deletion; each snapshot shows one instant, and keeps its content root.
fn snapshotter(shared: &Shared, me: u64) {
    let pool = &shared.pool;
    let mut rng = SmallRng::seed_from_u64(200 + me);
    let mut taken: Vec<(String, Uuid)> = Vec::new();
    let mut number = 0;
    while shared.running() {
        number += 1;
        let name = format!("s{me}-{number}");
        let uuid = Uuid::from_u128(u128::from(me) << 64 | number);
        let flushed: Vec<u64> = shared.flushed.iter().map(|f| f.load(Ordering::SeqCst)).collect();
        let new = NewSnapshot {
            name: name.clone(),
            uuid,
            created_at: Timestamp(1),
            relationship: None,
            pin_for: None,
        };
        let scatter = NewSnapshot { uuid: Uuid::from_u128(uuid.as_u128() | 1 << 120), ..new.clone() };
        pool.create_snapshots(&[("v".into(), new), ("scatter".into(), scatter.clone())]).expect("a snapshot");
        let handle = Arc::new(pool.open_snapshot("v", &name).expect("it opens"));
        let root = handle.content_root().expect("a root");
        for (writer, at_least) in flushed.iter().enumerate() {
            assert_one_instant(&handle, writer as u64, *at_least, &name);
        }
        if let Some((before, _)) = taken.last() {
            let base = Arc::new(pool.open_snapshot("v", before).expect("it opens"));
            for range in handle.clone().difference_from(Some(base)) {
                let range = range.expect("a difference");
                assert!(range.block + range.count <= WRITERS * RANGE);
            }
        }
        assert_eq!(handle.content_root().expect("a root"), root, "a snapshot's content root changed");
        let scattered = pool.open_snapshot("scatter", &name).expect("it opens");
        scattered.content_root().expect("a root");
        scattered.allocation(0, 1 << 32, usize::MAX).expect("allocation");
        taken.push((name.clone(), uuid));
        if rng.random_ratio(1, 3) {
            let clone = format!("z{me}-{number}");
            pool.clone_snapshot("v", &name, &clone).expect("a clone");
            {
                let handle = pool.open_volume(&clone).expect("it opens");
                handle.write(0, &[7; 2 * BLOCK]).expect("a write to a clone");
                assert_one_instant(&handle, 1, flushed[1], &clone);
            }
            pool.delete_volume(&clone).expect("a clone goes");
        }
        pool.delete_snapshot("scatter", scatter.uuid).expect("a deletion, while it is open");
        drop(scattered);
        while taken.len() > 3 {
            let (_, uuid) = taken.remove(rng.random_range(0..taken.len() - 1));
            pool.delete_snapshot("v", uuid).expect("a deletion");
        }
    }
}

/// Maps what writers write, and what snapshots hold, into staged versions of another volume, which come and go.
fn sharer(shared: &Shared) {
    let pool = &shared.pool;
    let mut rng = SmallRng::seed_from_u64(300);
    let blocks = WRITERS * RANGE;
    let mut committed: Vec<Uuid> = Vec::new();
    for number in 1u32.. {
        let staged_for = StagedFor { relationship: Uuid::nil(), incremental: Uuid::from_u128(number.into()) };
        let size = blocks * BLOCK as u64;
        let staged = pool.stage("copy", committed.last().copied(), size, staged_for).expect("staged");
        for _ in 0..60 {
            let snapshots = pool.snapshots("v").expect("a list");
            let source = match snapshots.get(rng.random_range(0..=snapshots.len())) {
                Some(snapshot) => match pool.open_snapshot("v", &snapshot.name) {
                    Ok(handle) => handle,
                    // Deleted meanwhile.
                    Err(_) => continue,
                },
                None => pool.open_volume("v").expect("it opens"),
            };
            let count = rng.random_range(1..=300);
            let (from, to) = (rng.random_range(0..blocks - count), rng.random_range(0..blocks - count));
            let expected = source.fingerprints(from, count).expect("fingerprints");
            let taken = staged.share(to, &source, from, &expected).expect("a share with room to spare");
            drop(source);
            let mut bytes = vec![0; taken as usize * BLOCK];
            staged.read(to * BLOCK as u64, &mut bytes).expect("it reads");
            let same = bytes.chunks(BLOCK).zip(&expected).all(|(b, f)| Fingerprint::of_block(b) == *f);
            assert!(same, "shared blocks are what was expected");
            shared.shared_blocks.fetch_add(taken, Ordering::Relaxed);
            if rng.random_bool(0.3) {
                staged.discard(to * BLOCK as u64, count * BLOCK as u64).expect("a discard");
            }
            if rng.random_bool(0.3) {
                staged.write(to * BLOCK as u64, &[5; 3 * BLOCK]).expect("a write");
            }
            shared.operations.fetch_add(1, Ordering::Relaxed);
            if !shared.running() {
                return;
            }
        }
        if rng.random_bool(0.5) {
            staged.abandon().expect("abandoned");
            continue;
        }
        let uuid = Uuid::from_u128(300 << 64 | u128::from(number));
        let new = NewSnapshot {
            name: format!("c{number}"),
            uuid,
            created_at: Timestamp(1),
            relationship: None,
            pin_for: None,
        };
        staged.commit(&new).expect("committed");
        committed.push(uuid);
        if committed.len() > 2 {
            pool.delete_snapshot("copy", committed.remove(0)).expect("a deletion");
        }
    }
}

fn check(path: &Path, what: &str) {
    let device = FileDevice::open_read_only(path).expect("it opens for the checker");
    let report = farside_check::check(&device, &farside_check::CheckOptions::default()).expect("it runs");
    assert!(report.is_clean(), "{what}: {report}");
}

/// Waits until the pool's own thread, which may have been at work when the last handle was dropped, has released the
/// device.
fn wait_until_closed(path: &Path) {
    let begin = Instant::now();
    while let Err(DeviceError::Locked { .. }) = FileDevice::open_read_only(path) {
        assert!(begin.elapsed() < Duration::from_secs(60), "the pool was dropped but holds its device");
        std::thread::yield_now();
    }
}

#[test]
fn everything_at_once_against_points() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pool");
    let device = FileDevice::create(&path, 1 << 30).expect("a file");
    let pool = Pool::create(Arc::new(device), options()).expect("a pool");
    pool.create_volume("v", WRITERS * RANGE * BLOCK as u64).expect("a volume");
    pool.create_volume("shared", 64 * BLOCK as u64).expect("a volume");
    pool.create_volume("scatter", 1 << 32).expect("a volume");
    pool.create_volume("copy", WRITERS * RANGE * BLOCK as u64).expect("a volume");
    let shared = Shared {
        pool,
        stop: AtomicBool::new(false),
        flushed: (0..WRITERS).map(|_| AtomicU64::new(0)).collect(),
        longest_write_us: AtomicU64::new(0),
        longest_flush_us: AtomicU64::new(0),
        operations: AtomicU64::new(0),
        shared_blocks: AtomicU64::new(0),
    };
    let finished = std::thread::scope(|scope| {
        let shared = &shared;
        let mut threads = Vec::new();
        for me in 0..WRITERS {
            threads.push(scope.spawn(move || writer(shared, me)));
        }
        for me in 0..2 {
            threads.push(scope.spawn(move || partial_writer(shared, me)));
            threads.push(scope.spawn(move || snapshotter(shared, me)));
        }
        threads.push(scope.spawn(move || scatterer(shared)));
        threads.push(scope.spawn(move || sharer(shared)));
        threads.push(scope.spawn(move || {
            while shared.running() {
                shared.pool.consistency_point().expect("a point");
                shared.pool.reap_step_within(3).expect("a step of reaping");
            }
        }));
        // A thread that fails, or all of them standing still, ends the run.
        let (begin, mut seen, mut moved) = (Instant::now(), 0, Instant::now());
        while begin.elapsed() < RUN && !threads.iter().any(|t| t.is_finished()) {
            std::thread::sleep(Duration::from_millis(50));
            let now = shared.operations.load(Ordering::Relaxed);
            if now != seen {
                (seen, moved) = (now, Instant::now());
            }
            if moved.elapsed() > Duration::from_secs(60) {
                // A deadlock cannot be joined.
                eprintln!("no operation ended for 60 s: a deadlock");
                std::process::abort();
            }
        }
        shared.stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|t| t.join()).all(|r| r.is_ok())
    });
    assert!(finished, "a thread failed; its message is above");
    let flushed: Vec<u64> = shared.flushed.iter().map(|f| f.load(Ordering::SeqCst)).collect();
    println!(
        "{} operations, {} blocks shared, {} points, longest write {} ms, longest flush {} ms, flushed {flushed:?}",
        shared.operations.load(Ordering::Relaxed),
        shared.shared_blocks.load(Ordering::Relaxed),
        shared.pool.counters.points.load(Ordering::Relaxed),
        shared.longest_write_us.load(Ordering::Relaxed) / 1000,
        shared.longest_flush_us.load(Ordering::Relaxed) / 1000,
    );
    assert_eq!(shared.pool.status().failed, None);
    assert!(shared.shared_blocks.load(Ordering::Relaxed) > 1000, "too little was shared to mean anything");
    // As if killed: nothing is closed.
    drop(shared);
    wait_until_closed(&path);
    check(&path, "after the kill");
    let device = FileDevice::open(&path).expect("the device is free");
    let pool = Pool::open(Arc::new(device), options()).expect("it opens");
    for (writer, at_least) in (0..).zip(&flushed) {
        assert_one_instant(&pool.open_volume("v").expect("it opens"), writer, *at_least, "reopened");
    }
    for snapshot in pool.snapshots("v").expect("a list") {
        let handle = pool.open_snapshot("v", &snapshot.name).expect("it opens");
        (0..WRITERS).for_each(|writer| assert_one_instant(&handle, writer, 0, &snapshot.name));
    }
    // Nothing is lost: once all is deleted, what is in use is what an empty pool uses.
    for volume in ["v", "shared", "scatter", "copy"] {
        pool.delete_volume(volume).expect("a deletion");
    }
    pool.reap_all().expect("reaping");
    assert_eq!(pool.status().shared_blocks, 0);
    pool.close().expect("closed");
    drop(pool);
    wait_until_closed(&path);
    check(&path, "emptied");
    let device = FileDevice::open_read_only(&path).expect("it opens for the checker");
    let report = farside_check::check(&device, &farside_check::CheckOptions::default()).expect("it runs");
    let fixed = 512 + (1u64 << 30) / 4096 / 64;
    assert!(report.blocks_in_use < fixed + 64, "{} blocks are in use", report.blocks_in_use - fixed);
}

#[test]
fn an_error_of_one_is_no_error_of_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let device = FileDevice::create(&directory.path().join("pool"), 64 << 20).expect("a file");
    let pool = Pool::create(Arc::new(device), options()).expect("a pool");
    pool.create_volume("v", 1 << 20).expect("a volume");
    let handle = pool.open_volume("v").expect("it opens");
    std::thread::scope(|scope| {
        // Deleting an open volume is refused, and its writers never notice.
        let writing = scope.spawn(|| (0..200).try_for_each(|i| handle.write(i % 200 * 4096, &[1; BLOCK])));
        for _ in 0..20 {
            assert!(matches!(pool.delete_volume("v"), Err(StoreError::Refused(_))));
        }
        writing.join().expect("the writer ends").expect("its writes succeed");
    });
}
