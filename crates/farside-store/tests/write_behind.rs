//! Small writes wait in memory for the next flush: whoever reads finds them, no more wait than may, a device that refuses them loses none,
//! and writers of parts of the same block do not lose each other's.

mod sparse;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use farside_format::superblock::{JOURNAL_START, SUPERBLOCK_PLACES};
use farside_format::{BLOCK_BYTES, Superblock};
use farside_platform::{BlockDevice, CrashFate, DeviceError, FileDevice, SimulatedDisk};
use farside_store::{Pool, PoolOptions, StoreError};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use sparse::{BLOCK, content, options};

const VOLUME_BLOCKS: u64 = 4096;

fn seed() -> u64 {
    let seed = std::env::var("FARSIDE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(11);
    println!("seed {seed}");
    seed
}

/// A disk that counts writes of data, and refuses them when told to.
struct Watched {
    disk: SimulatedDisk,
    data_from: AtomicUsize,
    data_writes: AtomicUsize,
    data_bytes: AtomicUsize,
    refuses: AtomicBool,
    /// Reads wait as long as it is set, and are counted.
    hangs: AtomicBool,
    hanging: AtomicUsize,
}

impl Watched {
    fn new(bytes: u64) -> Watched {
        Watched {
            disk: SimulatedDisk::new("watched", bytes),
            data_from: AtomicUsize::new(usize::MAX),
            data_writes: AtomicUsize::new(0),
            data_bytes: AtomicUsize::new(0),
            refuses: AtomicBool::new(false),
            hangs: AtomicBool::new(false),
            hanging: AtomicUsize::new(0),
        }
    }

    /// From now on it knows where data lies: behind superblocks and journal.
    fn look(&self) {
        let block = self.disk.peek(SUPERBLOCK_PLACES[0] * BLOCK, BLOCK_BYTES);
        let superblock = Superblock::decode(&block).expect("a superblock");
        self.data_from
            .store(((JOURNAL_START + superblock.journal_blocks) * BLOCK) as usize, Ordering::SeqCst);
    }
}

impl BlockDevice for Watched {
    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        while self.hangs.load(Ordering::SeqCst) {
            self.hanging.store(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
        }
        self.disk.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.write_pieces_at(offset, &[bytes])
    }
    fn write_pieces_at(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        let all = pieces.concat();
        if offset as usize >= self.data_from.load(Ordering::SeqCst) {
            if self.refuses.load(Ordering::SeqCst) {
                return Err(DeviceError::Io {
                    operation: "write",
                    offset,
                    length: all.len(),
                    device: self.name(),
                    source: std::io::ErrorKind::StorageFull.into(),
                });
            }
            self.data_writes.fetch_add(1, Ordering::SeqCst);
            self.data_bytes.fetch_add(all.len(), Ordering::SeqCst);
        }
        self.disk.write_at(offset, &all)
    }
    fn sync(&self) -> Result<(), DeviceError> {
        self.disk.sync()
    }
    fn name(&self) -> String {
        self.disk.name()
    }
}

fn watched_pool(options: PoolOptions) -> (Arc<Watched>, Arc<Pool>) {
    let device = Arc::new(Watched::new(128 << 20));
    let pool = Pool::create(device.clone(), options).expect("a pool");
    pool.create_volume("v", VOLUME_BLOCKS * BLOCK).expect("a volume");
    device.look();
    (device, pool)
}

#[test]
fn scattered_writes_are_read_at_once_and_go_to_the_device_together() {
    let (device, pool) = watched_pool(options(1));
    let handle = pool.open_volume("v").expect("it opens");
    for block in 0..64 {
        handle.write(block * 61 * BLOCK, &content(block)).expect("a write");
    }
    assert_eq!(device.data_writes.load(Ordering::SeqCst), 0);
    let read = |block: u64| {
        let mut buffer = vec![0; BLOCK_BYTES];
        handle.read(block * BLOCK, &mut buffer).expect("a read");
        buffer
    };
    (0..64).for_each(|block| assert!(read(block * 61) == content(block), "{block}"));
    handle.flush().expect("a flush");
    assert!(device.data_writes.load(Ordering::SeqCst) <= 2, "they lie side by side on the device");
    (0..64).for_each(|block| assert!(read(block * 61) == content(block), "{block}"));
    // Some of a run are on the device, and some wait: neighbours in the volume, written at different times.
    let long = (0..32).flat_map(|i| content(1000 + i)).collect::<Vec<u8>>();
    handle.write(0, &long[..16 * BLOCK_BYTES]).expect("a write");
    handle.flush().expect("a flush");
    handle.write(16 * BLOCK, &long[16 * BLOCK_BYTES..24 * BLOCK_BYTES]).expect("a write");
    handle.write(24 * BLOCK, &long[24 * BLOCK_BYTES..]).expect("a write");
    let mut buffer = vec![0; 29 * BLOCK_BYTES];
    handle.read(2 * BLOCK + 5, &mut buffer).expect("a read");
    assert!(buffer == long[2 * BLOCK_BYTES + 5..31 * BLOCK_BYTES + 5]);
    // A long write does not wait.
    let before = device.data_writes.load(Ordering::SeqCst);
    handle.write(1024 * BLOCK, &long).expect("a write");
    assert_eq!(device.data_writes.load(Ordering::SeqCst), before + 1);
}

#[test]
fn no_more_waits_than_may() {
    const LIMIT: usize = 256 << 10;
    let (device, pool) = watched_pool(PoolOptions { write_behind_bytes: LIMIT as u64, ..options(2) });
    let handle = pool.open_volume("v").expect("it opens");
    for block in 0..2000 {
        handle.write(block * BLOCK, &content(block)).expect("a write");
        let written = (block as usize + 1) * BLOCK_BYTES;
        assert!(written - device.data_bytes.load(Ordering::SeqCst) <= LIMIT, "block {block}");
    }
    let (device, pool) = watched_pool(PoolOptions { write_behind_bytes: 0, ..options(2) });
    let handle = pool.open_volume("v").expect("it opens");
    handle.write(0, &content(1)).expect("a write");
    assert_eq!(device.data_bytes.load(Ordering::SeqCst), BLOCK_BYTES, "none waits if none may");
}

/// Where the file system under the pool is full, say. What was flushed is safe, what waits is read, nothing is in doubt; a flush that
/// is answered in the end has all of it.
#[test]
fn a_device_that_refuses_data_loses_none_that_waits() {
    const LIMIT: u64 = 1 << 20;
    let (device, pool) = watched_pool(PoolOptions { write_behind_bytes: LIMIT, ..options(3) });
    let handle = pool.open_volume("v").expect("it opens");
    (0..10).for_each(|block| handle.write(block * BLOCK, &content(block)).expect("a write"));
    handle.flush().expect("a flush");
    device.refuses.store(true, Ordering::SeqCst);
    (5..20).for_each(|block| handle.write(block * BLOCK, &content(100 + block)).expect("a write"));
    for _ in 0..3 {
        let refused = handle.flush().expect_err("it cannot be durable");
        assert!(matches!(refused, StoreError::Device(_)), "{refused}");
        assert!(pool.consistency_point().is_err());
    }
    let status = pool.status();
    assert!(status.refused_write.is_some() && status.failed.is_none());
    // What is refused has not changed anything.
    assert!(pool.create_snapshots(&[("v".into(), sparse::new_snapshot("s", 1))]).is_err());
    assert!(pool.snapshots("v").expect("a list").is_empty());
    assert!(pool.create_volume("w", 64 << 20).is_err() && pool.volume("w").is_err());
    // Writers are told as soon as no more can wait; of those nothing is there.
    let refused =
        (20..VOLUME_BLOCKS).find(|block| handle.write(block * BLOCK, &content(100 + block)).is_err());
    let refused = refused.expect("it has a limit");
    assert!(refused * BLOCK <= LIMIT + 20 * BLOCK);
    let expected = |block: u64| match block {
        0..5 => content(block),
        block if block < refused => content(100 + block),
        _ => vec![0; BLOCK_BYTES],
    };
    let check = |pool: &Arc<Pool>, until: u64| {
        let handle = pool.open_volume("v").expect("it opens");
        let mut buffer = vec![0; BLOCK_BYTES];
        for block in 0..until {
            handle.read(block * BLOCK, &mut buffer).unwrap_or_else(|e| panic!("block {block}: {e}"));
            assert!(buffer == expected(block), "block {block}");
        }
    };
    check(&pool, refused + 10);
    // The power fails now: what was flushed is there, and nothing is damaged.
    for fate in [CrashFate::DropUnsynced, CrashFate::KeepUnsynced, CrashFate::Random(seed())] {
        let disk = device.disk.crash(fate);
        let crashed = Pool::open(Arc::new(disk.clone()), options(4)).expect("it opens");
        check(&crashed, 5);
        drop(crashed);
        let report = farside_check::check(&disk, &farside_check::CheckOptions::default()).expect("it runs");
        assert!(report.is_clean(), "{fate:?}: {report}");
    }
    device.refuses.store(false, Ordering::SeqCst);
    handle.flush().expect("a flush");
    assert!(pool.status().refused_write.is_none());
    pool.consistency_point().expect("a point");
    for fate in [CrashFate::DropUnsynced, CrashFate::KeepUnsynced] {
        let crashed = Pool::open(Arc::new(device.disk.crash(fate)), options(5)).expect("it opens");
        check(&crashed, refused + 10);
    }
}

/// On a real file, with so little room that everybody writes out for everybody: each thread reads what it wrote last.
#[test]
fn many_threads_find_what_they_wrote_while_it_goes_to_the_device() {
    let seed = seed();
    let directory = tempfile::tempdir().expect("a directory");
    let device = FileDevice::create(&directory.path().join("p"), 256 << 20).expect("a file");
    let options = PoolOptions { write_behind_bytes: 128 << 10, background: true, ..options(6) };
    let pool = Pool::create(Arc::new(device), options).expect("a pool");
    pool.create_volume("v", VOLUME_BLOCKS * BLOCK).expect("a volume");
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let pool = pool.clone();
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed + thread);
                let handle = pool.open_volume("v").expect("it opens");
                // Each has every sixth block.
                let mut model = vec![None; (VOLUME_BLOCKS / 6) as usize];
                for stamp in 0..1500 {
                    let own = rng.random_range(0..model.len());
                    let block = own as u64 * 6 + thread;
                    match rng.random_range(0..20) {
                        0 => handle.flush().expect("a flush"),
                        1..10 => {
                            let stamp = stamp * 6 + thread;
                            handle.write(block * BLOCK, &content(stamp)).expect("a write");
                            model[own] = Some(stamp);
                        }
                        _ => {
                            let mut buffer = vec![0; BLOCK_BYTES];
                            handle.read(block * BLOCK, &mut buffer).expect("a read");
                            assert!(
                                buffer == model[own].map_or(vec![0; BLOCK_BYTES], content),
                                "block {block}"
                            );
                        }
                    }
                }
            });
        }
    });
}

/// Eight writers have an eighth of every block each, in joined writes and alone, over each other's.
#[test]
fn writers_of_parts_of_the_same_blocks_lose_nothing() {
    const BLOCKS: u64 = 40;
    const PART: u64 = BLOCK / 8;
    let seed = seed();
    let directory = tempfile::tempdir().expect("a directory");
    let device = FileDevice::create(&directory.path().join("p"), 128 << 20).expect("a file");
    let pool = Pool::create(Arc::new(device), options(7)).expect("a pool");
    pool.create_volume("v", VOLUME_BLOCKS * BLOCK).expect("a volume");
    std::thread::scope(|scope| {
        for lane in 0..8u64 {
            let pool = pool.clone();
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed + lane);
                let handle = pool.open_volume("v").expect("it opens");
                for round in 0..60u64 {
                    let bytes = vec![(round * 8 + lane) as u8; PART as usize];
                    let mut order: Vec<u64> = (0..BLOCKS).collect();
                    order.shuffle(&mut rng);
                    let all: Vec<(u64, &[u8])> =
                        order.iter().map(|block| (block * BLOCK + lane * PART, &bytes[..])).collect();
                    for some in all.chunks(rng.random_range(1..=16)) {
                        assert!(handle.write_many(some).into_iter().all(|outcome| outcome.is_ok()));
                    }
                }
            });
        }
    });
    let handle = pool.open_volume("v").expect("it opens");
    let mut buffer = vec![0; BLOCK_BYTES];
    for block in 0..BLOCKS {
        handle.read(block * BLOCK, &mut buffer).expect("a read");
        for (lane, part) in buffer.chunks(PART as usize).enumerate() {
            assert!(part.iter().all(|byte| *byte == (59 * 8 + lane) as u8), "block {block}, part {lane}");
        }
    }
}

#[test]
fn a_write_is_done_at_once_only_if_it_waits_for_nobody() {
    let options = PoolOptions { write_behind_bytes: 1 << 20, background: true, ..options(8) };
    let (device, pool) = watched_pool(options);
    let handle = pool.open_volume("v").expect("it opens");
    // The pool's own thread looks at the state now and then: a write does not wait for that either.
    let at_once = |offset: u64, bytes: &[u8]| {
        (0..50).any(|_| match handle.write_at_once(&[(offset, bytes)]) {
            Some(written) => {
                written.expect("a write");
                true
            }
            None => {
                std::thread::sleep(Duration::from_millis(1));
                false
            }
        })
    };
    let block = content(1);
    assert!(at_once(0, &block) && at_once(8 * BLOCK, &block.repeat(8)));
    assert!(!at_once(5, &block) && !at_once(0, &block[..1000]), "the rest of a block has to be read");
    assert!(!at_once(0, &block.repeat(64)), "a long one goes to the device");
    let mut buffer = vec![0; BLOCK_BYTES];
    handle.read(15 * BLOCK, &mut buffer).expect("a read");
    assert!(buffer == block);
    // Somebody merges a part of a block there, and the device does not answer. Others wait for neither.
    pool.flush().expect("a flush");
    device.hangs.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let part = scope.spawn(|| handle.write(9 * BLOCK + 100, &block[..50]));
        while device.hanging.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!at_once(10 * BLOCK, &block), "that MiB is his");
        assert!(at_once(1024 * BLOCK, &block), "another is not");
        device.hangs.store(false, Ordering::SeqCst);
        part.join().expect("no panic").expect("a write");
    });
    device.refuses.store(true, Ordering::SeqCst);
    let refused = (0..VOLUME_BLOCKS).find(|number| !at_once(number * BLOCK, &content(*number + 7)));
    assert!(refused.is_some_and(|number| number * BLOCK >= 900 << 10), "{refused:?}");
}
