//! The last pairs of blocks of a pool in pieces: a consistency point has what it needs, whatever was accepted before it (S1), in
//! the running pool and where one is opened; and an opening that fails half-way costs the next one nothing.

mod sparse;

use std::sync::Arc;

use farside_format::catalog::{CatalogChange, Change, ResizeHead};
use farside_format::journal::{self, BatchHeader, Record};
use farside_format::superblock::JOURNAL_START;
use farside_format::{Birth, Fingerprint, Place, Superblock};
use farside_platform::{BlockDevice, CrashFate, SimulatedDisk};
use farside_store::{Pool, StoreError, VersionHandle};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use sparse::{BLOCK, options, seeds};

const MIB: u64 = 1 << 20;
/// How far the two copies of an inner node lie apart, blocks.
const TWIN: u64 = 256;
/// The largest volume there is.
const HUGE: u64 = 1 << 54;

/// Mostly zeros, so that an image of the medium is small.
fn block_of(stamp: u64) -> [u8; BLOCK as usize] {
    let mut bytes = [0; BLOCK as usize];
    bytes[..8].copy_from_slice(&(stamp + 1).to_le_bytes());
    bytes
}

fn is_full(result: Result<(), StoreError>) -> bool {
    match result {
        Ok(()) => false,
        Err(StoreError::NoSpace { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

/// Fills the pool with a volume of its own, then frees `pairs` pairs at its low end and up to `singles` blocks without a free twin.
fn in_pieces(pool: &Arc<Pool>, rng: &mut SmallRng, pairs: u64, singles: usize) -> VersionHandle {
    pool.create_volume("ballast", 1 << 30).expect("a volume");
    let ballast = pool.open_volume("ballast").expect("it opens");
    let filled =
        (0..).find(|b| is_full(ballast.write(b * BLOCK, &block_of(*b)))).expect("it is full one day");
    for low in [0, TWIN] {
        ballast.trim(low * BLOCK, pairs * BLOCK).expect("a trim in a full pool");
    }
    // One stretch of those that follow, wholly.
    ballast.trim(5 * TWIN * BLOCK, 30 * BLOCK).expect("a trim in a full pool");
    // Of every second stretch: what lies a stretch before or behind stays.
    let mut untwinned: Vec<u64> = (2 * TWIN + pairs..filled).filter(|b| b / TWIN % 2 == 1).collect();
    untwinned.shuffle(rng);
    for block in untwinned.into_iter().take(singles) {
        ballast.trim(block * BLOCK, BLOCK).expect("a trim in a full pool");
    }
    pool.flush().expect("a flush");
    (0..3).for_each(|_| pool.consistency_point().expect("a point"));
    ballast
}

fn assert_usable(pool: &Arc<Pool>, what: &str) {
    assert_eq!(pool.status().failed, None, "{what}");
    pool.consistency_point().unwrap_or_else(|error| panic!("{what}: a point: {error}"));
}

/// Blocks of its own leaf each are written until the last pairs are owed; then the power fails.
#[test]
fn a_pool_in_pieces_opens_after_a_power_failure() {
    for seed in seeds(10, 1) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let disk = SimulatedDisk::new("pieces", (13 + seed % 12) * MIB).without_history();
        let mut options = options(seed);
        options.overlay_bytes = 64 << 20;
        let pool = Pool::create(Arc::new(disk.clone()), options.clone()).expect("a pool");
        pool.create_volume("v", HUGE).expect("a volume");
        let (pairs, singles) = (rng.random_range(30..90), rng.random_range(500..1100));
        let _ballast = in_pieces(&pool, &mut rng, pairs, singles);
        let volume = pool.open_volume("v").expect("it opens");
        // One leaf each, and every second time an inner node too.
        let apart = if seed % 2 == 0 { 128 } else { 1 << 14 };
        let taken = (0..128u64)
            .take_while(|i| !is_full(volume.write(i * apart * BLOCK, &block_of(*i))))
            .count() as u64;
        pool.flush().expect("a flush");
        let crashed = disk.image();
        drop((volume, pool));
        println!("seed {seed}: {pairs} pairs, {singles} blocks apart, {taken} writes");
        for round in 0..2 {
            let pool = Pool::open(Arc::new(crashed.clone()), options.clone()).expect("it opens");
            assert_usable(&pool, &format!("seed {seed}, opening {round}"));
            let volume = pool.open_volume("v").expect("it opens");
            for i in 0..taken {
                let mut bytes = [0; BLOCK as usize];
                volume.read(i * apart * BLOCK, &mut bytes).expect("a read");
                assert!(bytes == block_of(i), "seed {seed}: block {i}");
            }
        }
    }
}

/// Small volumes that grow to the largest there are, one after the other, and are written at their new end.
fn grow(pool: &Arc<Pool>, volumes: u64) -> Vec<String> {
    let mut grown = Vec::new();
    for number in 0..volumes {
        let name = format!("v{number}");
        if is_full(pool.resize_volume(&name, HUGE)) {
            break;
        }
        let volume = pool.open_volume(&name).expect("it opens");
        if is_full(volume.write(HUGE - BLOCK, &block_of(number))) {
            break;
        }
        grown.push(name);
    }
    grown
}

fn small_volumes(pool: &Arc<Pool>, count: u64) {
    for number in 0..count {
        // A whole leaf: nothing of it lies past its end.
        pool.create_volume(&format!("v{number}"), 128 * BLOCK).expect("a volume");
        let volume = pool.open_volume(&format!("v{number}")).expect("it opens");
        volume.write(0, &block_of(number)).expect("a write");
    }
}

#[test]
fn trees_that_grew_have_the_nodes_for_their_old_part() {
    for seed in seeds(8, 1) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let disk = SimulatedDisk::new("grown", 16 * MIB).without_history();
        let pool = Pool::create(Arc::new(disk.clone()), options(seed)).expect("a pool");
        small_volumes(&pool, 40);
        let (pairs, singles) = (rng.random_range(20..200), rng.random_range(300..600));
        let _ballast = in_pieces(&pool, &mut rng, pairs, singles);
        let grown = grow(&pool, 40);
        println!("seed {seed}: {pairs} pairs, {singles} blocks apart, {} volumes grew", grown.len());
        assert_usable(&pool, &format!("seed {seed}"));
        pool.flush().expect("a flush");
        let crashed = disk.image();
        drop(pool);
        let pool = Pool::open(Arc::new(crashed), options(seed)).expect("it opens");
        assert_usable(&pool, &format!("seed {seed}, opened again"));
    }
}

/// Superblocks of a pool, by place.
const SLOTS: [u64; 2] = [0, 256];

/// An opening that must make a point, on a device that fails after so many writes of it: often enough to fill the ring.
#[test]
fn openings_that_fail_half_way_leave_the_next_one_its_room() {
    for (writes, openings) in [(1, 100), (2, 1100), (3, 100), (6, 100)] {
        let disk = SimulatedDisk::new("loop", 24 * MIB).without_history();
        let pool = Pool::create(Arc::new(disk.clone()), options(1)).expect("a pool");
        pool.create_volume("v", MIB).expect("a volume");
        let volume = pool.open_volume("v").expect("it opens");
        volume.write(0, &block_of(7)).expect("a write");
        pool.flush().expect("a flush");
        pool.consistency_point().expect("a point");
        volume.write(BLOCK, &block_of(8)).expect("a write");
        pool.flush().expect("a flush");
        drop((volume, pool));
        let mut used = Vec::new();
        for _ in 0..openings {
            // A superblock that is lost makes a point due at once. It is rewritten by the first write, which a power failure undoes.
            let mut last = SLOTS.map(|slot| disk.peek(slot * BLOCK, BLOCK as usize));
            let lost = usize::from(generation(&last[0]) > generation(&last[1]));
            last[lost].fill(0);
            disk.damage(SLOTS[lost] * BLOCK, &last[lost]);
            let failing = Arc::new(WritesThenFails::new(disk.clone(), writes));
            if let Ok(pool) = Pool::open(failing, options(1)) {
                used.push(pool.status().journal_used_bytes);
            }
        }
        let pool = Pool::open(Arc::new(disk.clone()), options(1)).expect("it opens");
        let last = pool.status().journal_used_bytes;
        println!("{writes} writes each: journal {:?} .. {last} bytes", used.first());
        assert_usable(&pool, &format!("{writes} writes an opening"));
        assert!(last < 256 << 10, "{writes} writes: openings left {last} bytes in the ring");
        let volume = pool.open_volume("v").expect("it opens");
        let mut bytes = [0; 2 * BLOCK as usize];
        volume.read(0, &mut bytes).expect("a read");
        assert!(bytes == [block_of(7), block_of(8)].concat()[..], "{writes} writes");
        volume.write(0, &block_of(9)).expect("a write");
    }
}

fn generation(block: &[u8]) -> u64 {
    Superblock::decode(block).map_or(0, |s| s.generation)
}

/// A device that takes so many writes and then none.
struct WritesThenFails {
    disk: SimulatedDisk,
    left: std::sync::atomic::AtomicU64,
}

impl WritesThenFails {
    fn new(disk: SimulatedDisk, writes: u64) -> WritesThenFails {
        WritesThenFails { disk, left: writes.into() }
    }
}

impl BlockDevice for WritesThenFails {
    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), farside_platform::DeviceError> {
        self.disk.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), farside_platform::DeviceError> {
        use std::sync::atomic::Ordering::Relaxed;
        if self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err() {
            return Err(farside_platform::DeviceError::Io {
                operation: "write",
                offset,
                length: bytes.len(),
                device: self.name(),
                source: std::io::Error::other("simulated failure"),
            });
        }
        self.disk.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<(), farside_platform::DeviceError> {
        self.disk.sync()
    }

    fn name(&self) -> String {
        self.disk.name()
    }
}

/// The newest point cannot be read for a moment, the older one serves, and the power fails while its successor is made: what the
/// newest superblock leads to may be overwritten by then, so it must be gone from the medium before.
#[test]
fn a_point_that_could_not_be_read_does_not_come_back_half_overwritten() {
    for seed in seeds(2, 1) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let disk = SimulatedDisk::new("older", 16 * MIB);
        let pool = Pool::create(Arc::new(disk.clone()), options(seed)).expect("a pool");
        pool.create_volume("v", 64 * MIB).expect("a volume");
        let volume = pool.open_volume("v").expect("it opens");
        for stamp in 0..3 * 400 {
            volume.write(rng.random_range(0..400) * 40 * BLOCK, &block_of(stamp)).expect("a write");
            if stamp % 400 == 399 {
                pool.consistency_point().expect("a point");
            }
        }
        pool.flush().expect("a flush");
        drop((volume, pool));
        let image = disk.image();
        let newest = SLOTS
            .map(|slot| Superblock::decode(&image.peek(slot * BLOCK, BLOCK as usize)).expect("a superblock"))
            .into_iter()
            .max_by_key(|s| s.generation)
            .expect("two");
        let place = newest.catalog.root.place.0;
        image.refuse_reads(place * BLOCK, 1000, 5);
        let before = image.events();
        let pool = Pool::open(Arc::new(image.clone()), options(seed)).expect("it opens by the older point");
        assert!(image.refusals_left() < 1000);
        assert_eq!(pool.status().failed, None, "seed {seed}");
        drop(pool);
        for event in before..=image.events() {
            let crashed = image.crash_at(event, CrashFate::KeepUnsynced);
            // Nothing of a point that a superblock leads to may have been overwritten, at any moment.
            let found = SLOTS.map(|slot| generation(&crashed.peek(slot * BLOCK, BLOCK as usize)));
            let overwritten =
                image.writes_touching(place * BLOCK).iter().any(|at| (before..event).contains(at));
            assert!(
                !(overwritten && found.contains(&newest.generation)),
                "seed {seed}, event {event}: superblock {} leads to what was overwritten",
                newest.generation
            );
            let pool = Pool::open(Arc::new(crashed.clone()), options(seed)).expect("it opens");
            assert_usable(&pool, &format!("seed {seed}, event {event}"));
            drop(pool);
            let report =
                farside_check::check(&crashed, &farside_check::CheckOptions::default()).expect("it runs");
            assert!(report.is_clean(), "seed {seed}, event {event}: {report}");
        }
        let first = image.crash_at(before + 2, CrashFate::DropUnsynced);
        let found = SLOTS.map(|slot| generation(&first.peek(slot * BLOCK, BLOCK as usize)));
        println!("seed {seed}: newest {}, after the first writes {found:?}", newest.generation);
        // The first thing that is written, and synced, is that superblock's end.
        let writes: Vec<usize> =
            (0..4096).flat_map(|b| image.writes_touching(b * BLOCK)).filter(|e| *e >= before).collect();
        let slot_writes: Vec<usize> = SLOTS
            .iter()
            .flat_map(|slot| image.writes_touching(slot * BLOCK))
            .filter(|e| *e >= before)
            .collect();
        assert_eq!(
            slot_writes.iter().min(),
            writes.iter().min(),
            "seed {seed}: the newest superblock goes first"
        );
    }
}

/// The journal of an earlier version, which accepted growth without the nodes that it costs: `count` volumes grow to the largest
/// there are, and the last block of each is what the pool holds at `place`, free.
fn accepted_without_nodes(disk: &SimulatedDisk, count: u64, place: u64) {
    let slots = SLOTS.map(|slot| disk.peek(slot * BLOCK, BLOCK as usize));
    let newest = slots.iter().filter_map(|slot| Superblock::decode(slot).ok()).max_by_key(|s| s.generation);
    let newest = newest.expect("a superblock");
    let fingerprint = Fingerprint::of_block(&disk.peek(place * BLOCK, BLOCK as usize));
    let mut payload = Vec::new();
    for number in 0..count {
        // Volumes and their heads are numbered in turn, from 1 on.
        let version = 2 * number + 2;
        let change = Some(Change::ResizeHead(ResizeHead { version, size_bytes: HUGE }));
        Record::Catalog(Box::new(CatalogChange { change })).encode(&mut payload);
        let (birth, block, place) = (Birth(newest.birth_epoch), HUGE / BLOCK - 1, Place(place + number));
        Record::Map { version, birth, block, place, fingerprints: vec![fingerprint] }.encode(&mut payload);
        disk.damage(place.0 * BLOCK, &disk.peek((place.0 - number) * BLOCK, BLOCK as usize));
    }
    let mut batch = vec![0; journal::ring_bytes(payload.len()) as usize];
    batch[journal::BATCH_HEADER_BYTES..][..payload.len()].copy_from_slice(&payload);
    let header = BatchHeader {
        payload_bytes: payload.len(),
        pool: newest.pool,
        open_epoch: newest.open_epoch,
        sequence: newest.journal_sequence,
        position: newest.journal_position,
        proven: newest.journal_sequence - 1,
        records: 2 * count as u32,
        previous: newest.journal_chain,
        checksum: [0; 16],
    };
    journal::seal_batch(&mut batch, payload.len(), &header);
    disk.damage((JOURNAL_START * BLOCK) + newest.journal_position, &batch);
}

#[test]
fn a_pool_that_owes_more_nodes_than_it_has_room_for_is_not_lost() {
    let (mut at_once, mut later) = (0, 0);
    for count in (5..=30).step_by(5) {
        let mut rng = SmallRng::seed_from_u64(count);
        let disk = SimulatedDisk::new("owing", 16 * MIB).without_history();
        let pool = Pool::create(Arc::new(disk.clone()), options(count)).expect("a pool");
        small_volumes(&pool, count);
        // One stretch of blocks, free and without twins, holds what the volumes will show.
        let ballast = in_pieces(&pool, &mut rng, 120, 300);
        let place =
            (0..disk.bytes() / BLOCK).find(|at| disk.peek(at * BLOCK, BLOCK as usize) == block_of(5 * TWIN));
        drop((ballast, pool));
        accepted_without_nodes(&disk, count, place.expect("it is still there"));
        let pool = Pool::open(Arc::new(disk.clone()), options(count)).expect("it opens");
        let show = |number: u64| {
            let volume = pool.open_volume(&format!("v{number}")).expect("it opens");
            let mut bytes = [0; BLOCK as usize];
            volume.read(HUGE - BLOCK, &mut bytes).expect("a read");
            assert!(bytes == block_of(5 * TWIN), "{count} volumes: v{number}");
            volume.read(0, &mut bytes).expect("a read");
            assert!(bytes == block_of(number), "{count} volumes: v{number}");
        };
        (0..count).for_each(show);
        assert_eq!(pool.status().failed, None, "{count} volumes");
        let first = pool.consistency_point();
        println!("{count} volumes: {first:?}");
        let mut left = count;
        if first.is_ok() {
            at_once += 1;
        } else {
            later += 1;
            assert!(pool.status().lacks_room.is_some(), "{count} volumes");
            // Hosts are told the truth, and what was flushed is safe.
            let volume = pool.open_volume("v0").expect("it opens");
            assert!(is_full(volume.write(0, &block_of(0))), "{count} volumes");
            pool.flush().expect("a flush");
            drop(volume);
        }
        while let Err(error) = pool.consistency_point() {
            assert!(matches!(error, StoreError::NoRoomForPoint { .. }), "{count} volumes: {error}");
            left -= 1;
            pool.delete_volume(&format!("v{left}")).expect("a deletion where there is no room");
            pool.reap_all().expect("reaping");
        }
        assert!(left > 0, "{count} volumes: something stays");
        // What was freed is usable from now on.
        pool.delete_volume("ballast").expect("a deletion");
        pool.reap_all().expect("reaping");
        (0..3).for_each(|_| pool.consistency_point().expect("a point"));
        pool.open_volume("v0").expect("it opens").write(2 * BLOCK, &block_of(9)).expect("a write");
        (0..left).for_each(show);
        assert_eq!(pool.status().lacks_room, None, "{count} volumes");
        assert_usable(&pool, &format!("{count} volumes"));
        drop(pool);
        let report = farside_check::check(&disk, &farside_check::CheckOptions::default()).expect("it runs");
        assert!(report.is_clean(), "{count} volumes: {report}");
    }
    assert!(at_once > 0 && later > 0, "{at_once} pools had the room, {later} had not");
}
