//! Hosts that write in parallel over and over to a small pool: what they replaced must come back before anybody is told that the
//! pool is full. *No space left* is the truth only while what is alive does not fit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farside_platform::{OsRandomness, Randomness, SimulatedDisk, SystemClock, Timestamp};
use farside_store::{NewSnapshot, Pool, PoolOptions, StoreError};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use uuid::Uuid;

const BLOCK: u64 = 4096;
/// The writes of the shape in which hosts met it: mostly small, some long, blocks.
const LENGTHS: [u64; 8] = [1, 1, 1, 2, 4, 8, 16, 64];

fn options() -> PoolOptions {
    PoolOptions::new(Arc::new(SystemClock::default()), Arc::new(OsRandomness))
}

fn snapshot(number: u128) -> NewSnapshot {
    NewSnapshot {
        name: format!("s{number}"),
        uuid: Uuid::from_u128(number + 1),
        created_at: Timestamp(1),
        relationship: None,
        pin_for: None,
    }
}

fn stamped(block: u64, stamp: u64) -> [u8; BLOCK as usize] {
    let mut bytes = [(stamp % 251) as u8 + 1; BLOCK as usize];
    bytes[..8].copy_from_slice(&stamp.to_le_bytes());
    bytes[8..16].copy_from_slice(&block.to_le_bytes());
    bytes
}

/// A pool, and what is written to it.
#[derive(Clone, Copy)]
struct Load {
    seed: u64,
    pool_bytes: u64,
    /// Of one volume, written all over at the beginning.
    live_bytes: u64,
    writers: u64,
    /// Snapshots alive at most: each can pin as much as the volume.
    snapshots: u128,
    /// Bytes of overwrites, all writers together.
    bytes: u64,
}

impl Load {
    /// Writes until all is written; what it cost, in words.
    fn run(self) -> String {
        let Load { seed, pool_bytes, live_bytes, writers, snapshots, bytes } = self;
        println!("seed {seed}: {writers} writers, {snapshots} snapshots, pool of {} MiB", pool_bytes >> 20);
        let disk = SimulatedDisk::new("room", pool_bytes).without_history();
        let pool = Pool::create(Arc::new(disk.clone()), options()).expect("a pool");
        pool.create_volume("v", live_bytes).expect("a volume");
        let (blocks, left) = (live_bytes / BLOCK, AtomicU64::new(bytes / BLOCK));
        let stop = AtomicBool::new(false);
        let begin = Instant::now();
        let points = pool.counters.points.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            let writing: Vec<_> = (0..writers)
                .map(|me| {
                    let range = (blocks * me / writers, blocks * (me + 1) / writers);
                    let (pool, left) = (&pool, &left);
                    scope.spawn(move || write(pool, seed + me, range, left))
                })
                .collect();
            let taking = (snapshots > 0).then(|| scope.spawn(|| take_snapshots(&pool, snapshots, &stop)));
            let results: Vec<_> = writing.into_iter().map(|w| w.join()).collect();
            stop.store(true, Ordering::Relaxed);
            if let Some(taking) = taking {
                taking.join().expect("the snapshots");
            }
            results.into_iter().for_each(|r| r.expect("a writer"));
        });
        let seconds = begin.elapsed().as_secs_f64();
        let status = pool.status();
        assert_eq!(status.failed, None, "seed {seed}");
        let (mib, points) =
            (bytes as f64 / (1 << 20) as f64, pool.counters.points.load(Ordering::Relaxed) - points);
        drop(pool);
        let report = farside_check::check(&disk, &farside_check::CheckOptions::default()).expect("it runs");
        assert!(report.is_clean(), "seed {seed}: {report}");
        format!("{mib} MiB, {:.3} points per MiB, {:.1} MiB/s", points as f64 / mib, mib / seconds)
    }
}

/// Writes a range over and over, each block with a number that rises, and reads it back at the end.
fn write(pool: &Arc<Pool>, seed: u64, (from, to): (u64, u64), left: &AtomicU64) {
    let handle = pool.open_volume("v").expect("it opens");
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut stamps = vec![0; (to - from) as usize];
    let (mut stamp, mut first) = (0, Some(from));
    loop {
        // Once all over, then anywhere.
        let count = LENGTHS[rng.random_range(0..LENGTHS.len())].min(to - from);
        let (block, count) = match first {
            Some(block) => (block, count.min(to - block)),
            None => (rng.random_range(from..=to - count), count),
        };
        first = first.map(|_| block + count).filter(|next| *next < to);
        stamp += 1;
        let bytes: Vec<u8> = (block..block + count).flat_map(|b| stamped(b, stamp)).collect();
        if let Err(error) = handle.write(block * BLOCK, &bytes) {
            let status = pool.status();
            panic!("seed {seed}: {error}; {} blocks to go, {status:?}", left.load(Ordering::Relaxed));
        }
        stamps[(block - from) as usize..(block - from + count) as usize].fill(stamp);
        let before =
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(count)));
        if before.is_ok_and(|before| before <= count) && first.is_none() {
            break;
        }
    }
    for (block, stamp) in (from..to).zip(stamps) {
        let mut bytes = [0; BLOCK as usize];
        handle.read(block * BLOCK, &mut bytes).expect("a read");
        assert!(bytes == stamped(block, stamp), "seed {seed}: block {block}");
    }
}

/// Keeps so many snapshots alive, the oldest of which goes when a new one comes.
fn take_snapshots(pool: &Arc<Pool>, alive: u128, stop: &AtomicBool) {
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        if number >= alive {
            pool.delete_snapshot("v", Uuid::from_u128(number - alive + 1)).expect("a deletion");
        }
        match pool.create_snapshots(&[("v".into(), snapshot(number))]) {
            Ok(_) => number += 1,
            Err(error) => panic!("a snapshot: {error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

const MIB: u64 = 1 << 20;

fn fresh_seed() -> u64 {
    let word = |bytes: [u8; 16]| u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    std::env::var("SEED")
        .map_or_else(|_| word(OsRandomness.uuid_bytes()) >> 32, |seed| seed.parse().expect("a number"))
}

#[test]
fn writers_in_parallel_are_never_told_that_garbage_fills_the_pool() {
    let seed = fresh_seed();
    for (writers, snapshots) in [(1, 0), (4, 2), (12, 0), (64, 2)] {
        let load =
            Load { seed, pool_bytes: 32 * MIB, live_bytes: 6 * MIB, writers, snapshots, bytes: 8 * 32 * MIB };
        println!("{}", load.run());
    }
}

/// A thousand times the size of the pool.
#[test]
#[ignore = "long: 32 GiB four times"]
fn a_thousand_times_the_size_of_the_pool() {
    let seed = fresh_seed();
    for (writers, snapshots) in [(1, 0), (4, 2), (12, 0), (64, 2)] {
        let (pool_bytes, live_bytes, bytes) = (32 * MIB, 6 * MIB, 1000 * 32 * MIB);
        println!("{}", Load { seed, pool_bytes, live_bytes, writers, snapshots, bytes }.run());
    }
}

/// What points cost the less room there is to write on; prints the table.
#[test]
#[ignore = "a measurement"]
fn what_the_last_room_costs() {
    let seed = fresh_seed();
    for percent in [10, 50, 75, 85, 90, 93, 95] {
        let (pool_bytes, live_bytes) = (256 * MIB, 256 * MIB / 100 * percent / BLOCK * BLOCK);
        let load = Load { seed, pool_bytes, live_bytes, writers: 12, snapshots: 0, bytes: 4 * pool_bytes };
        println!("{percent} % alive: {}", load.run());
    }
}

#[test]
fn a_pool_that_what_is_alive_fills_says_so() {
    let pool = Pool::create(Arc::new(SimulatedDisk::new("room", 16 * MIB).without_history()), options())
        .expect("a pool");
    pool.create_volume("v", 1 << 30).expect("a volume");
    let handle = pool.open_volume("v").expect("it opens");
    let fitted: Vec<u64> = std::thread::scope(|scope| {
        let writing = (0..8u64).map(|me| {
            let handle = &handle;
            scope.spawn(move || {
                (0..).find(|i| match handle.write((me << 13 | i) * BLOCK, &stamped(*i, me + 1)) {
                    Ok(()) => false,
                    Err(StoreError::NoSpace { .. }) => true,
                    Err(error) => panic!("{error}"),
                })
            })
        });
        let writing: Vec<_> = writing.collect();
        writing.into_iter().map(|w| w.join().expect("a writer").expect("it ends")).collect()
    });
    let total: u64 = fitted.iter().sum();
    assert!(total > 2200, "only {total} blocks of 4096 fitted");
    // Nothing has changed: no more points for those that ask again.
    let points = pool.counters.points.load(Ordering::Relaxed);
    for _ in 0..50 {
        assert!(matches!(handle.write(1 << 29, &stamped(0, 1)), Err(StoreError::NoSpace { .. })));
    }
    let more = pool.counters.points.load(Ordering::Relaxed) - points;
    assert!(more <= 4, "{more} points for nothing");
    assert_eq!(pool.status().failed, None);
}
