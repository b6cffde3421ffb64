//! One pool, opened in two places: whoever comes second is told, or the first stops before it harms.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

mod model;

use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_format::claim::CLAIM_PLACE;
use farside_platform::{BlockDevice, DeviceError, ProcessIdentity, SimulatedDisk};
use farside_store::{ClaimOptions, Pool, PoolOptions, StoreError};
use model::options;

const SIZE: u64 = 32 << 20;

fn disk() -> (Arc<SimulatedDisk>, Arc<dyn BlockDevice>) {
    let disk = Arc::new(SimulatedDisk::new("shared", SIZE));
    (Arc::clone(&disk), disk as Arc<dyn BlockDevice>)
}

#[test]
fn a_point_stops_before_it_overwrites_another_writers() {
    // With how many points of the other: its first takes the other slot, its second the one that was written here.
    for points in 0..3 {
        let (disk, device) = disk();
        let first = Pool::create(Arc::clone(&device), options(1)).unwrap();
        first.create_volume("one", 1 << 20).unwrap();
        first.consistency_point().unwrap();
        let second = Pool::open(Arc::clone(&device), options(2)).unwrap();
        second.create_volume("two", 1 << 20).unwrap();
        let volume = second.open_volume("two").unwrap();
        volume.write(0, &[2; 8192]).unwrap();
        volume.flush().unwrap();
        for _ in 0..points {
            second.consistency_point().unwrap();
        }
        if points == 0 {
            // Nothing tells of the other but its journal: claims are for that.
            continue;
        }
        let superblocks = (disk.peek(0, 4096), disk.peek(1 << 20, 4096));
        let error = first.consistency_point().unwrap_err();
        assert!(matches!(error, StoreError::TakenOver { .. }), "{points} points: {error}");
        let failed = first.status().failed.unwrap();
        assert!(failed.contains("somebody else has written"), "{failed}");
        first.create_volume("three", 1 << 20).unwrap_err();
        assert_eq!((disk.peek(0, 4096), disk.peek(1 << 20, 4096)), superblocks);
        drop(first);
        second.consistency_point().unwrap();
        drop((volume, second));
        let again = Pool::open(device, options(3)).unwrap();
        let mut back = vec![0; 8192];
        again.open_volume("two").unwrap().read(0, &mut back).unwrap();
        assert_eq!(back, [2; 8192]);
    }
}

#[test]
fn a_pool_made_over_an_open_one_is_not_overwritten_by_it() {
    let (_, device) = disk();
    let first = Pool::create(Arc::clone(&device), options(1)).unwrap();
    let second = Pool::create_over(Arc::clone(&device), options(2)).unwrap();
    let error = first.consistency_point().unwrap_err();
    assert!(error.to_string().contains("another pool"), "{error}");
    drop(first);
    let id = second.id();
    drop(second);
    assert_eq!(Pool::open(device, options(3)).unwrap().id(), id);
}

const INTERVAL: Duration = Duration::from_millis(100);

/// A process of another machine, or of this one.
fn claims(host: &str, process: ProcessIdentity, force: bool) -> PoolOptions {
    let claim = ClaimOptions { process, host: host.into(), interval: INTERVAL, force, has_lock: false };
    PoolOptions { background: true, claim: Some(claim), ..options(7) }
}

fn machine(number: u8) -> ProcessIdentity {
    ProcessIdentity { boot: [number; 16], pid_namespace: 1, pid: 100 + u32::from(number), began: 5 }
}

fn failure_of(pool: &Pool) -> String {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(failed) = pool.status().failed {
            return failed;
        }
        assert!(Instant::now() < until, "it goes on beside the other");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_idle_pool_that_is_open_elsewhere_is_refused_and_force_takes_it() {
    let (_, device) = disk();
    let first = Pool::create(Arc::clone(&device), claims("south", machine(1), false)).unwrap();
    first.create_volume("v", 1 << 20).unwrap();
    let Err(error) = Pool::open(Arc::clone(&device), claims("north", machine(2), false)) else {
        panic!("both")
    };
    assert!(matches!(error, StoreError::OpenElsewhere { .. }), "{error}");
    assert!(error.to_string().contains("process 101 of south"), "{error}");
    first.create_volume("w", 1 << 20).unwrap();
    first.flush().unwrap();

    // Who takes it by force waits until the other has seen that, and only then touches the pool.
    let second = Pool::open(Arc::clone(&device), claims("north", machine(2), true)).unwrap();
    let failed = failure_of(&first);
    assert!(failed.contains("north has claimed the pool"), "{failed}");
    first.create_volume("x", 1 << 20).unwrap_err();
    let _ = first.close();
    assert_eq!(second.volumes().len(), 2);
    second.create_volume("y", 1 << 20).unwrap();
    second.close().unwrap();
    drop((first, second));

    // Closed: nobody is waited for.
    let began = Instant::now();
    let third = Pool::open(device, claims("south", machine(3), false)).unwrap();
    assert!(began.elapsed() < INTERVAL * 5, "{:?}", began.elapsed());
    assert_eq!(third.volumes().len(), 3);
}

#[test]
fn a_holder_that_died_is_watched_for_a_while_or_known_to_be_gone() {
    // Of another machine, or before a reboot: nobody knows.
    let (disk, device) = disk();
    let first = Pool::create(device, claims("south", machine(1), false)).unwrap();
    let image: Arc<dyn BlockDevice> = Arc::new(disk.image());
    drop(first);
    let began = Instant::now();
    let second = Pool::open(Arc::clone(&image), claims("north", machine(2), false)).unwrap();
    assert!(began.elapsed() >= INTERVAL * 5, "{:?}", began.elapsed());
    second.close().unwrap();
    drop(second);

    // A process of this kernel that has ended.
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let gone = ProcessIdentity { pid: child.id(), ..ProcessIdentity::this() };
    child.wait().unwrap();
    let third = Pool::open(Arc::clone(&image), claims("here", gone, false)).unwrap();
    drop(third);
    let began = Instant::now();
    let fourth = Pool::open(Arc::clone(&image), claims("here", ProcessIdentity::this(), false)).unwrap();
    assert!(began.elapsed() < INTERVAL * 5, "{:?}", began.elapsed());
    fourth.close().unwrap();
}

#[test]
fn a_holder_whose_lock_is_had_by_now_has_ended_and_any_other_is_watched() {
    let (disk, device) = disk();
    let locked = |host: &str, process| {
        let options = claims(host, process, false);
        PoolOptions { claim: options.claim.map(|claim| ClaimOptions { has_lock: true, ..claim }), ..options }
    };
    let first = Pool::create(Arc::clone(&device), locked("south", machine(1))).unwrap();
    // After a crash of the machine, which cannot be told from another machine: the file's lock can.
    let image: Arc<dyn BlockDevice> = Arc::new(disk.image());
    let began = Instant::now();
    let second = Pool::open(Arc::clone(&image), locked("south", machine(2))).unwrap();
    assert!(began.elapsed() < INTERVAL * 5, "{:?}", began.elapsed());
    second.create_volume("v", 1 << 20).unwrap();
    drop(second);
    // A loop device of the file that is open: its opener has no lock that would meet the first's.
    let Err(error) = Pool::open(Arc::clone(&device), claims("north", machine(2), false)) else {
        panic!("both")
    };
    assert!(error.to_string().contains("process 101 of south"), "{error}");
    first.close().unwrap();
    drop(first);
    // And the other way round: the file of a loop device that is open.
    let first = Pool::open(Arc::clone(&device), claims("south", machine(1), false)).unwrap();
    let Err(error) = Pool::open(Arc::clone(&device), locked("north", machine(2))) else { panic!("both") };
    assert!(matches!(error, StoreError::OpenElsewhere { .. }), "{error}");
    first.create_volume("w", 1 << 20).unwrap();
    first.close().unwrap();
}

/// A device on which the block of the claim cannot be written, as on a file system that is full and copies on write.
struct NoClaims(Arc<SimulatedDisk>);

impl BlockDevice for NoClaims {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if offset == CLAIM_PLACE * 4096 {
            let source = std::io::ErrorKind::StorageFull.into();
            return Err(DeviceError::Io {
                operation: "write",
                offset,
                length: bytes.len(),
                device: self.name(),
                source,
            });
        }
        self.0.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.0.sync()
    }

    fn name(&self) -> String {
        self.0.name()
    }
}

#[test]
fn a_file_whose_claim_cannot_be_written_opens_by_its_lock_and_a_device_does_not() {
    let (disk, device) = disk();
    Pool::create(Arc::clone(&device), options(1)).unwrap().close().unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(NoClaims(disk));
    let without = claims("south", machine(1), false);
    assert!(matches!(Pool::open(Arc::clone(&device), without.clone()), Err(StoreError::Device(_))));
    let claim = without.claim.clone().map(|claim| ClaimOptions { has_lock: true, ..claim });
    let pool = Pool::open(device, PoolOptions { claim, ..without }).unwrap();
    pool.create_volume("v", 1 << 20).unwrap();
    pool.close().unwrap();
}

#[test]
fn an_opening_that_fails_leaves_no_claim() {
    let (disk, device) = disk();
    let pool = Pool::create(Arc::clone(&device), claims("south", machine(1), false)).unwrap();
    pool.close().unwrap();
    drop(pool);
    // The catalog's root of both points, so that nothing can be loaded.
    for place in 514..SIZE / 4096 {
        disk.damage(place * 4096, &[0xff; 4096]);
    }
    assert!(Pool::open(Arc::clone(&device), claims("south", machine(1), false)).is_err());
    let began = Instant::now();
    assert!(Pool::open(device, claims("north", machine(2), false)).is_err());
    assert!(began.elapsed() < INTERVAL * 5, "{:?}", began.elapsed());
}

#[test]
fn only_a_blank_device_becomes_a_pool_without_being_told() {
    let (disk, device) = disk();
    let pool = Pool::create(Arc::clone(&device), options(1)).unwrap();
    let id = pool.id();
    drop(pool);
    let refused = |what: &str| {
        let before = disk.peek(0, 8 << 20);
        let Err(error) = Pool::create(Arc::clone(&device), options(2)) else { panic!("{what} is gone") };
        assert!(matches!(error, StoreError::Occupied { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
        assert!(disk.peek(0, 8 << 20) == before);
    };
    refused(&id.to_string());
    // A pool in distress is one, too.
    disk.damage(100, &[1]);
    disk.damage((1 << 20) + 100, &[1]);
    refused("superblocks are damaged");
    disk.damage(0, &[0; 4096]);
    disk.damage(1 << 20, &[0; 4096]);
    refused("superblocks are damaged");
    disk.damage(2 << 20, &vec![0; 6 << 20]);
    disk.damage(SIZE - 4096, &[3; 512]);
    refused("does not recognise");
    let made = Pool::create_over(Arc::clone(&device), options(2)).unwrap();
    assert_ne!(made.id(), id);
    // One that is refused for its size leaves what is there.
    let small = Arc::new(SimulatedDisk::new("small", 4 << 20));
    small.damage(0, b"LABELONE");
    let device: Arc<dyn BlockDevice> = Arc::clone(&small) as _;
    assert!(matches!(Pool::create_over(device, options(2)), Err(StoreError::TooSmall { .. })));
    assert_eq!(small.peek(0, 8), b"LABELONE");
}
