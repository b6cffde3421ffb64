//! A pool that becomes larger: what is new is used at once, and either superblock alone opens the pool all the same, wherever the
//! power fails. `crash.rs` has the same in random histories.

mod sparse;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farside_platform::{BlockDevice, CrashFate, SimulatedDisk};
use farside_store::{Pool, StoreError, VersionHandle};
use sparse::{BLOCK, content, options};

const MIB: u64 = 1 << 20;
const SLOTS: [u64; 2] = [0, 256 * BLOCK];

/// Writes blocks of their own content from `from` on until the pool is full; answers the first that did not fit.
fn fill(volume: &VersionHandle, from: u64) -> u64 {
    let is_full = |block: &u64| match volume.write(block * BLOCK, &content(*block)) {
        Ok(()) => false,
        Err(StoreError::NoSpace { .. }) => true,
        Err(error) => panic!("block {block}: {error}"),
    };
    (from..).find(is_full).expect("it is full one day")
}

/// More blocks than a full pool keeps for itself, and few enough that no point comes by itself: some lie in what is new, and the
/// superblocks stay what they are.
fn write_some(volume: &VersionHandle, from: u64) -> u64 {
    let end = from + 300;
    (from..end).for_each(|block| volume.write(block * BLOCK, &content(block)).expect("there is room"));
    volume.flush().expect("a flush");
    end
}

fn assert_holds(pool: &Arc<Pool>, blocks: u64, what: &str) {
    let volume = pool.open_volume("v").unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut bytes = vec![0; BLOCK as usize];
    for block in 0..blocks {
        volume
            .read(block * BLOCK, &mut bytes)
            .unwrap_or_else(|error| panic!("{what}: block {block}: {error}"));
        assert!(bytes == content(block), "{what}: block {block}");
    }
}

fn assert_clean(disk: &SimulatedDisk, what: &str) {
    let report = farside_check::check(disk, &farside_check::CheckOptions::default()).expect("it runs");
    assert!(report.is_clean(), "{what}: {report}");
}

/// Each slot destroyed in turn: the other one opens the pool with all that was flushed.
fn assert_either_slot_does(disk: &SimulatedDisk, blocks: u64, seed: u64, what: &str) {
    for (slot, at) in SLOTS.into_iter().enumerate() {
        let what = format!("{what}, slot {slot} destroyed");
        let disk = disk.image();
        disk.damage(at, &[0xA5; BLOCK as usize]);
        let pool =
            Pool::open(Arc::new(disk.clone()), options(seed)).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_holds(&pool, blocks, &what);
        pool.close().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_clean(&disk, &what);
    }
}

#[test]
fn a_full_pool_that_grows_takes_writes_at_once_and_opens_by_either_superblock() {
    let seed = 31;
    println!("seed {seed}");
    let disk = SimulatedDisk::new("growing", 13 * MIB);
    let pool = Pool::create(Arc::new(disk.clone()), options(seed)).expect("a pool");
    pool.create_volume("v", 1 << 30).expect("a volume");
    let volume = pool.open_volume("v").expect("it opens");
    let filled = fill(&volume, 0);
    pool.flush().expect("a flush");
    let before = disk.events();
    assert_eq!(pool.grow(24 * MIB + 100).expect("it grows"), 24 * MIB, "whole blocks");
    let grown = disk.events();
    assert_eq!(pool.status().size_bytes, 24 * MIB);
    // Nothing of the old room is free: all of these lie in what is new.
    let some = write_some(&volume, filled);
    assert_either_slot_does(&disk.image(), some, seed, "a few blocks after the growth");
    let more = fill(&volume, some);
    assert!((more - filled) * BLOCK > 9 * MIB, "of 11 MiB more only {} blocks are used", more - filled);
    pool.flush().expect("a flush");
    assert_either_slot_does(&disk.image(), more, seed, "after the growth");

    let refused = pool.grow(23 * MIB).expect_err("a pool never shrinks");
    assert!(matches!(refused, StoreError::Refused(_)), "{refused}");
    let refused = pool.grow(1 << 62).expect_err("no place could name its end");
    assert!(matches!(refused, StoreError::Invalid(_)), "{refused}");
    assert_eq!(pool.grow(24 * MIB).expect("nothing to do"), 24 * MIB);

    // The power fails at any moment of the growth, what opens then goes on growing, and fails again.
    for event in before..=grown {
        for fate in [CrashFate::DropUnsynced, CrashFate::KeepUnsynced, CrashFate::Random(event as u64)] {
            let what = format!("event {event} of {before}..={grown}, {fate:?}");
            let disk = disk.crash_at(event, fate);
            assert_clean(&disk, &what);
            assert_either_slot_does(&disk, filled, seed, &what);
            let pool =
                Pool::open(Arc::new(disk.clone()), options(seed)).unwrap_or_else(|e| panic!("{what}: {e}"));
            let volume = pool.open_volume("v").expect("it opens");
            let mut more = filled;
            if pool.status().size_bytes > 13 * MIB {
                more = write_some(&volume, filled);
                assert_either_slot_does(&disk, more, seed, &format!("{what}, and a few blocks"));
            }
            let more = fill(&volume, more);
            pool.flush().expect("a flush");
            assert_either_slot_does(&disk, more, seed, &format!("{what}, and filled"));
            pool.grow(26 * MIB).unwrap_or_else(|error| panic!("{what}: {error}"));
            let more = fill(&volume, more);
            pool.flush().expect("a flush");
            assert_either_slot_does(&disk, more, seed, &format!("{what}, filled, grown, and filled"));
        }
    }
}

/// Four hosts write while the pool grows from 16 MiB to 1 GiB in steps.
#[test]
fn hosts_go_on_while_a_pool_grows() {
    let seed = 32;
    println!("seed {seed}");
    let disk = SimulatedDisk::new("growing", 16 * MIB).without_history();
    let mut options = options(seed);
    options.background = true;
    let pool = Pool::create(Arc::new(disk.clone()), options.clone()).expect("a pool");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for host in 0..4u64 {
            let (pool, stop) = (&pool, &stop);
            scope.spawn(move || {
                let name = format!("v{host}");
                pool.create_volume(&name, 256 * BLOCK).expect("a volume");
                let volume = pool.open_volume(&name).expect("it opens");
                for round in 0.. {
                    for block in 0..256 {
                        volume.write(block * BLOCK, &content(round * 1000 + block + host)).expect("a write");
                    }
                    volume.flush().expect("a flush");
                    let mut bytes = vec![0; BLOCK as usize];
                    volume.read(77 * BLOCK, &mut bytes).expect("a read");
                    assert!(bytes == content(round * 1000 + 77 + host));
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        for size in [17, 63, 64, 65, 128, 511, 513, 1024] {
            std::thread::sleep(std::time::Duration::from_millis(20));
            pool.grow(size * MIB).expect("it grows");
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(pool.status().size_bytes, 1024 * MIB);
    pool.close().expect("closed");
    drop(pool);
    assert_clean(&disk, "after all");
    Pool::open(Arc::new(disk), options).expect("it opens").close().expect("closed");
}

/// A device that cannot be as large as the pool shall be: the pool stays as it is, and writable.
#[test]
fn a_device_that_does_not_grow_leaves_the_pool_as_it_is() {
    struct Rigid(SimulatedDisk);
    impl BlockDevice for Rigid {
        fn bytes(&self) -> u64 {
            self.0.bytes()
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), farside_platform::DeviceError> {
            self.0.read_at(offset, buffer)
        }
        fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), farside_platform::DeviceError> {
            self.0.write_at(offset, bytes)
        }
        fn sync(&self) -> Result<(), farside_platform::DeviceError> {
            self.0.sync()
        }
        fn name(&self) -> String {
            self.0.name()
        }
    }
    let disk = SimulatedDisk::new("rigid", 16 * MIB);
    let pool = Pool::create(Arc::new(Rigid(disk.clone())), options(33)).expect("a pool");
    let refused = pool.grow(17 * MIB).expect_err("the device has 16 MiB");
    assert!(refused.to_string().contains("larger first"), "{refused}");
    assert_eq!(pool.status().size_bytes, 16 * MIB);
    pool.create_volume("v", MIB).expect("a volume");
    pool.close().expect("closed");
    assert_clean(&disk, "refused");
}
