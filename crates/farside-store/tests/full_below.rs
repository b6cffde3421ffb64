//! The file system below a pool's file is full before the pool is. What is refused has changed nothing, the pool never becomes
//! read-only by it, a replica can be taken over, and once there is room everything goes on.

mod sparse;

use std::collections::HashSet;
use std::sync::Arc;

use farside_format::BLOCK_BYTES;
use farside_platform::{BlockDevice, DeviceError, FileRoom, SimulatedDisk};
use farside_store::{Pool, ReplicaStatus, StoreError};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use sparse::{BLOCK, content, options, staged_for};
use uuid::Uuid;

/// More than there is below: what is overwritten is used again, and would do for ever otherwise.
const VOLUME_BLOCKS: u64 = 24_576;
const RESERVE_BLOCKS: u64 = 4096;

/// A disk that takes its blocks from below as they are written.
struct Thin {
    disk: SimulatedDisk,
    below: Mutex<Below>,
}

#[derive(Default)]
struct Below {
    left: u64,
    taken: HashSet<u64>,
    reserve: u64,
    /// Takes nothing more for points, whatever is left.
    refuses: bool,
}

impl Thin {
    fn new(bytes: u64, left: u64) -> Thin {
        let below = Below { left, ..Below::default() };
        Thin { disk: SimulatedDisk::new("thin", bytes), below: Mutex::new(below) }
    }

    fn take(&self, operation: &'static str, offset: u64, length: usize) -> Result<(), DeviceError> {
        let mut below = self.below.lock();
        if below.refuses && operation == "taking room" {
            let source = std::io::ErrorKind::StorageFull.into();
            return Err(DeviceError::Io { operation, offset, length, device: self.name(), source });
        }
        let (first, end) = (offset / BLOCK, (offset + length as u64).div_ceil(BLOCK));
        for block in first..end {
            if below.taken.contains(&block) {
                continue;
            }
            if below.left == 0 {
                let source = std::io::ErrorKind::StorageFull.into();
                return Err(DeviceError::Io { operation, offset, length, device: self.name(), source });
            }
            below.left -= 1;
            below.taken.insert(block);
        }
        Ok(())
    }

    fn give(&self, blocks: u64) {
        self.below.lock().left += blocks;
    }
}

impl BlockDevice for Thin {
    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.disk.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.take("write", offset, bytes.len())?;
        self.disk.write_at(offset, bytes)
    }
    fn room_below(&self) -> Option<u64> {
        Some(self.below.lock().left * BLOCK)
    }
    fn file_room(&self) -> Option<FileRoom> {
        let below = self.below.lock();
        let taken = below.taken.len() as u64;
        Some(FileRoom {
            taken_bytes: taken * BLOCK,
            left_bytes: below.left * BLOCK,
            file_system_bytes: (taken + below.left + below.reserve) * BLOCK,
        })
    }
    fn grow(&self, bytes: u64) -> Result<(), DeviceError> {
        self.disk.grow(bytes)
    }
    fn take_room(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.take("taking room", offset, bytes as usize)
    }
    fn keep_reserve(&self, _may_be_there: bool) {
        let mut below = self.below.lock();
        if below.reserve == 0 && below.left >= RESERVE_BLOCKS * 4 {
            below.left -= RESERVE_BLOCKS;
            below.reserve = RESERVE_BLOCKS;
        }
    }
    fn has_reserve(&self) -> bool {
        self.below.lock().reserve > 0
    }
    fn use_reserve(&self) -> bool {
        let mut below = self.below.lock();
        let reserve = std::mem::take(&mut below.reserve);
        below.left += reserve;
        reserve > 0
    }
    fn sync(&self) -> Result<(), DeviceError> {
        self.disk.sync()
    }
    fn name(&self) -> String {
        self.disk.name()
    }
}

fn replica(broken_off: bool) -> ReplicaStatus {
    ReplicaStatus { relationship: Uuid::from_u128(1), peer: [1; 32], source: "far/v".into(), broken_off }
}

fn is_full(error: &StoreError) -> bool {
    matches!(error, StoreError::Device(error) if error.is_full())
}

/// A host writes at random until nothing is taken any more, flushes and points included.
fn fill(pool: &Arc<Pool>, random: &mut SmallRng) {
    let handle = pool.open_volume("v").expect("it opens");
    let mut refused = 0;
    while refused < 50 {
        let block = random.random_range(0..VOLUME_BLOCKS);
        let done = match random.random_range(0..20) {
            0 => handle.flush(),
            1 => pool.consistency_point(),
            2 => {
                let long: Vec<u8> = (0..32).flat_map(|at| content(block + at)).collect();
                handle.write(block.min(VOLUME_BLOCKS - 32) * BLOCK, &long)
            }
            _ => handle.write(block * BLOCK, &content(random.random())),
        };
        match done {
            Ok(()) => {}
            Err(error) => {
                assert!(is_full(&error), "{error}");
                refused += 1;
            }
        }
        assert_eq!(pool.status().failed, None);
    }
}

#[test]
fn a_full_file_system_below_makes_no_pool_read_only_and_a_replica_can_be_taken_over() {
    for seed in 0..6 {
        let mut random = SmallRng::seed_from_u64(seed);
        let device = Arc::new(Thin::new(256 << 20, 23_000 + random.random_range(0..3000)));
        let pool = Pool::create(device.clone(), options(seed)).expect("a pool");
        pool.create_volume("v", VOLUME_BLOCKS * BLOCK).expect("a volume");
        pool.create_volume("copy", VOLUME_BLOCKS * BLOCK).expect("a volume");
        pool.set_replica("copy", Some(replica(false))).expect("a replica");
        let before = content(7_777);
        let handle = pool.open_volume("v").expect("it opens");
        handle.write(0, &before).expect("a write");
        handle.flush().expect("a flush");
        drop(handle);
        fill(&pool, &mut random);
        assert!(pool.lacks_room_below().is_some_and(|lacks| lacks.left_bytes < lacks.needed_bytes));
        // What waits has room in the reserve, and so has what says that the replica is one no more.
        pool.set_replica("copy", Some(replica(true))).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        fill(&pool, &mut random);
        // What was refused is in no doubt: killed now, the pool opens, and the replica was taken over.
        drop(pool);
        let pool = Pool::open(device.clone(), options(seed)).expect("it opens");
        let report = farside_check::check(&device.disk, &farside_check::CheckOptions::default());
        assert!(report.as_ref().is_ok_and(farside_check::Report::is_clean), "seed {seed}: {report:?}");
        assert!(pool.volume("copy").expect("a volume").replica.is_some_and(|found| found.broken_off));
        // With room everything goes on, without being opened again, unless it must have had a point at once.
        device.give(40_000);
        let pool = match pool.status().failed {
            None => pool,
            Some(_) => {
                drop(pool);
                Pool::open(device.clone(), options(seed)).expect("it opens")
            }
        };
        device.keep_reserve(false);
        pool.consistency_point().expect("a point");
        assert!(pool.status().refused_write.is_none(), "seed {seed}");
        let handle = pool.open_volume("v").expect("it opens");
        handle.write(0, &content(1)).expect("a write");
        handle.flush().expect("a flush");
        let mut found = vec![0; BLOCK_BYTES];
        handle.read(0, &mut found).expect("a read");
        assert!(found == content(1));
        assert_eq!(pool.lacks_room_below(), None);
        drop(handle);
        pool.close().expect("it closes");
    }
}

/// A pool that promises more than there is below does not take more and more of it while what it holds stays the same.
#[test]
fn what_was_freed_is_used_again_before_more_is_taken_from_below() {
    const VOLUME: u64 = 4096;
    let device = Arc::new(Thin::new(512 << 20, 14_000));
    let pool = Pool::create(device.clone(), options(9)).expect("a pool");
    for round in 0..30 {
        pool.create_volume("v", VOLUME * BLOCK).expect("a volume");
        let handle = pool.open_volume("v").expect("it opens");
        for block in 0..VOLUME {
            let written = handle.write(block * BLOCK, &content(round * VOLUME + block));
            written.unwrap_or_else(|error| panic!("round {round}, block {block}: {error}"));
        }
        handle.flush().unwrap_or_else(|error| panic!("round {round}: {error}"));
        pool.consistency_point().unwrap_or_else(|error| panic!("round {round}: {error}"));
        let mut found = vec![0; BLOCK_BYTES];
        handle.read((VOLUME - 1) * BLOCK, &mut found).expect("a read");
        assert!(found == content(round * VOLUME + VOLUME - 1), "round {round}");
        drop(handle);
        pool.delete_volume("v").expect("it goes");
        pool.reap_all().expect("all of it");
        for _ in 0..2 {
            pool.consistency_point().unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
    }
    pool.close().expect("it closes");
    let report = farside_check::check(&device.disk, &farside_check::CheckOptions::default());
    assert!(report.as_ref().is_ok_and(farside_check::Report::is_clean), "{report:?}");
}

/// A transfer that nobody could tell how large it is, or several at once: they end before the file system below is full, and what else
/// lies there goes on.
#[test]
fn transfers_leave_room_on_the_file_system_below() {
    const LEFT: u64 = 14_000;
    let device = Arc::new(Thin::new(512 << 20, LEFT));
    let pool = Pool::create(device.clone(), options(11)).expect("a pool");
    let names = ["one", "two"];
    names.iter().for_each(|name| drop(pool.create_volume(name, VOLUME_BLOCKS * BLOCK).expect("a volume")));
    let staged = names.map(|name| {
        pool.stage(name, None, VOLUME_BLOCKS * BLOCK, staged_for(1)).unwrap_or_else(|e| panic!("{name}: {e}"))
    });
    let told = pool.staging_room_below().expect("it lies on a file system");
    assert!(told.room_bytes < LEFT * BLOCK && told.left_bytes <= LEFT * BLOCK, "{told:?}");
    let write = |at: u64| staged[(at % 2) as usize].write(at / 2 * BLOCK, &content(at));
    let (end, refused) =
        (0..2 * VOLUME_BLOCKS).find_map(|at| Some((at, write(at).err()?))).expect("it is full one day");
    assert!(matches!(refused, StoreError::NoSpaceBelow { .. }), "{refused}");
    assert!(refused.to_string().contains("file system"), "{refused}");
    // Most of what was promised had room, and some is left to others.
    assert!(end * BLOCK >= told.room_bytes / 10 * 7, "{end} blocks, {told:?}");
    let left = device.below.lock().left;
    assert!(left >= LEFT / 10, "{left} blocks are left");
    // Hosts and points go on.
    pool.create_volume("v", 64 * BLOCK).expect("a volume");
    let host = pool.open_volume("v").expect("it opens");
    (0..64).for_each(|block| host.write(block * BLOCK, &content(block)).expect("a write"));
    host.flush().expect("a flush");
    pool.consistency_point().expect("a point");
    // What is deleted is used again, and counts at once.
    staged[0].abandon().expect("it goes");
    pool.reap_all().expect("all of it");
    let again = pool.staging_room_below().expect("it lies on a file system");
    assert!(again.room_bytes > told.room_bytes / 3, "{again:?}");
    (0..1000).for_each(|at| staged[1].write((end + at) * BLOCK, &content(at)).expect("there is room again"));
    assert!(device.below.lock().left >= LEFT / 10, "the room of what was deleted was used");
    drop(host);
    pool.close().expect("it closes");
    let report = farside_check::check(&device.disk, &farside_check::CheckOptions::default());
    assert!(report.as_ref().is_ok_and(farside_check::Report::is_clean), "{report:?}");
}

/// A pool that cannot write down its new size has its old one, and all that it says of itself is as before.
#[test]
fn a_pool_that_cannot_grow_for_want_of_room_below_is_as_before() {
    let device = Arc::new(Thin::new(256 << 20, 9000));
    let pool = Pool::create(device.clone(), options(12)).expect("a pool");
    pool.create_volume("v", VOLUME_BLOCKS * BLOCK).expect("a volume");
    fill(&pool, &mut SmallRng::seed_from_u64(12));
    // Else a point may find places that have their room.
    device.below.lock().refuses = true;
    let handle = pool.open_volume("v").expect("it opens");
    let figures = || {
        let status = pool.status();
        (
            status.size_bytes,
            status.size_bytes - status.free_bytes - status.waiting_bytes - status.withheld_bytes,
        )
    };
    let (size, used) = figures();
    for _ in 0..3 {
        let refused = pool.grow(1 << 30).expect_err("no point can be made");
        assert!(is_full(&refused), "{refused}");
        assert_eq!(figures(), (size, used));
        assert_eq!(pool.status().withheld_bytes, 0);
        assert_eq!(pool.status().failed, None);
    }
    device.below.lock().refuses = false;
    device.give(20_000);
    assert_eq!(pool.grow(1 << 30).expect("it grows"), 1 << 30);
    let (size, used_then) = figures();
    assert_eq!(size, 1 << 30);
    assert!(used_then <= used + (4 << 20), "{used_then} of {used}");
    handle.write(0, &content(1)).and_then(|()| handle.flush()).expect("a write");
    drop(handle);
    pool.close().expect("it closes");
    let report = farside_check::check(&device.disk, &farside_check::CheckOptions::default());
    assert!(report.as_ref().is_ok_and(farside_check::Report::is_clean), "{report:?}");
}

/// What is deleted comes free although the file system below is full: for that there is the reserve.
#[test]
fn what_is_deleted_comes_free_though_the_file_system_below_is_full() {
    for seed in 0..4 {
        let device = Arc::new(Thin::new(256 << 20, 23_000));
        let options = farside_store::PoolOptions { background: true, ..options(20 + seed) };
        let pool = Pool::create(device.clone(), options).expect("a pool");
        for name in ["old", "v"] {
            pool.create_volume(name, VOLUME_BLOCKS * BLOCK).expect("a volume");
        }
        let old = pool.open_volume("old").expect("it opens");
        (0..6000).for_each(|at| old.write(at * BLOCK, &content(at)).expect("a write"));
        old.flush().expect("a flush");
        drop(old);
        fill(&pool, &mut SmallRng::seed_from_u64(seed));
        let free = || pool.status().free_bytes;
        // Before: what is deleted may be free before anybody looks again.
        let before = free();
        pool.delete_volume("old").unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while free() < before + 5000 * BLOCK {
            assert!(std::time::Instant::now() < until, "seed {seed}: {} of {before} bytes are free", free());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let handle = pool.open_volume("v").expect("it opens");
        (0..1000).for_each(|at| handle.write(at * BLOCK, &content(at)).expect("there is room again"));
        handle.flush().expect("a flush");
        drop(handle);
        pool.close().expect("it closes");
        let report = farside_check::check(&device.disk, &farside_check::CheckOptions::default());
        assert!(report.as_ref().is_ok_and(farside_check::Report::is_clean), "seed {seed}: {report:?}");
    }
}
