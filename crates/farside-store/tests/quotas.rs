//! What volumes occupy, their quotas, and what is reserved for them, against what the offline checker counts and what hosts meet.

mod sparse;

use std::collections::BTreeMap;
use std::sync::Arc;

use farside_platform::{SeededRandomness, SimulatedDisk, SystemClock};
use farside_store::{Autogrow, Pool, PoolOptions, StoreError, VolumeLimits};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use sparse::{BLOCK, content, new_snapshot, options, seeds, staged_for};

const MIB: u64 = 1 << 20;

fn pool_of(mib: u64, seed: u64) -> (SimulatedDisk, Arc<Pool>) {
    let disk = SimulatedDisk::new("quotas", mib * MIB).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(seed)).expect("a pool");
    (disk, pool)
}

fn occupied(pool: &Pool, volume: &str) -> u64 {
    pool.volume(volume).expect("it is there").occupied_bytes / BLOCK
}

/// The limits of a volume with a quota of so many blocks.
fn quota(blocks: u64) -> VolumeLimits {
    VolumeLimits { quota_bytes: Some(blocks * BLOCK), ..VolumeLimits::default() }
}

fn reserve(bytes: u64) -> VolumeLimits {
    VolumeLimits { reserve_bytes: Some(bytes), ..VolumeLimits::default() }
}

fn is_over_quota<T>(result: Result<T, StoreError>) -> bool {
    match result {
        Ok(_) => false,
        Err(StoreError::OverQuota { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

/// Each volume occupies what the versions of the checker's catalog own, which the checker itself compares with their trees.
fn assert_counted(disk: &SimulatedDisk, pool: &Pool, what: &str) {
    pool.consistency_point().unwrap_or_else(|e| panic!("{what}: {e}"));
    let report =
        farside_check::check(&disk.image(), &farside_check::CheckOptions::default()).expect("it runs");
    assert!(report.is_clean(), "{what}: {report}");
    let mut counted: BTreeMap<String, u64> = BTreeMap::new();
    for version in &report.versions {
        *counted.entry(version.volume_name.clone()).or_default() += version.owned_blocks.expect("counted");
    }
    for volume in pool.volumes() {
        assert_eq!(
            volume.occupied_bytes / BLOCK,
            counted.get(&volume.name).copied().unwrap_or(0),
            "{what}: {}",
            volume.name
        );
    }
}

/// Writes, trims, snapshots, clones, deletions, staged versions that share: what is counted is what is there, after each point, and
/// after openings at any moment.
#[test]
fn what_a_volume_occupies_is_what_the_checker_finds() {
    for seed in seeds(3, 100) {
        println!("seed {seed}");
        let (disk, mut pool) = pool_of(40, seed);
        let mut random = SmallRng::seed_from_u64(seed);
        let (mut next, blocks) = (0u32, 700);
        pool.create_volume("v0", blocks * BLOCK).expect("a volume");
        for step in 0..160 {
            let names: Vec<String> = pool.volumes().into_iter().map(|v| v.name).collect();
            let Some(name) = names.get(random.random_range(0..names.len().max(1))).cloned() else {
                next += 1;
                pool.create_volume(&format!("v{next}"), blocks * BLOCK).expect("a volume");
                continue;
            };
            let snapshots = pool.snapshots(&name).expect("a list");
            match random.random_range(0..22) {
                0..=8 => {
                    let handle = pool.open_volume(&name).expect("it opens");
                    for _ in 0..random.random_range(1..30) {
                        let (at, count) = (random.random_range(0..blocks - 20), random.random_range(1..20));
                        let bytes: Vec<u8> =
                            (0..count).flat_map(|i| content(random.random_range(0..50) + i)).collect();
                        handle.write(at * BLOCK, &bytes).expect("a write");
                    }
                }
                9 | 10 => {
                    let handle = pool.open_volume(&name).expect("it opens");
                    let at = random.random_range(0..blocks);
                    handle.trim(at * BLOCK, random.random_range(1..=blocks - at) * BLOCK).expect("a trim");
                }
                11..=13 => {
                    next += 1;
                    pool.create_snapshots(&[(name, new_snapshot(&format!("s{next}"), next))])
                        .expect("a snapshot");
                }
                14 | 15 if !snapshots.is_empty() => {
                    let gone = &snapshots[random.random_range(0..snapshots.len())];
                    pool.delete_snapshot(&name, gone.uuid).expect("deleted");
                }
                16 if !snapshots.is_empty() && names.len() < 5 => {
                    next += 1;
                    let base = &snapshots[random.random_range(0..snapshots.len())];
                    pool.clone_snapshot(&name, &base.name, &format!("v{next}")).expect("a clone");
                }
                17 if names.len() > 1 => pool.delete_volume(&name).expect("deleted"),
                18 => {
                    next += 1;
                    let base = snapshots.last().map(|s| s.uuid);
                    let staged = pool.stage(&name, base, blocks * BLOCK, staged_for(next)).expect("staged");
                    let from = Arc::new(pool.open_volume(&names[0]).expect("it opens"));
                    let expected = from.fingerprints(0, 100).expect("fingerprints");
                    staged.share(random.random_range(0..500), &from, 0, &expected).expect("shared");
                    staged.write(600 * BLOCK, &content(u64::from(next))).expect("written");
                    if random.random() {
                        staged.commit(&new_snapshot(&format!("c{next}"), next)).expect("committed");
                    } else {
                        staged.abandon().expect("abandoned");
                    }
                }
                19 if !snapshots.is_empty() => {
                    let base = snapshots[random.random_range(0..snapshots.len())].uuid;
                    pool.move_main(&name, base, None, None).expect("moved");
                }
                20 => while pool.reap_step_within(1).expect("a step") && random.random_range(0..4) > 0 {},
                _ => {
                    pool.flush().expect("a flush");
                    let before: Vec<_> =
                        pool.volumes().into_iter().map(|v| (v.name, v.occupied_bytes)).collect();
                    let image = disk.image().without_history();
                    let opened = Pool::open(Arc::new(image.clone()), options(seed)).expect("it opens");
                    let after: Vec<_> =
                        opened.volumes().into_iter().map(|v| (v.name, v.occupied_bytes)).collect();
                    // What was reaped since the last point is reaped again.
                    let is_as_much = after.iter().zip(&before).all(|(a, b)| a.0 == b.0 && a.1 >= b.1);
                    assert!(
                        is_as_much && after.len() == before.len(),
                        "seed {seed}, step {step}: {after:?} by the journal, {before:?} before"
                    );
                    assert_counted(&image, &opened, &format!("seed {seed}, step {step}, reopened"));
                }
            }
            if step % 16 == 15 {
                assert_counted(&disk, &pool, &format!("seed {seed}, step {step}"));
            }
            if step % 50 == 49 {
                drop(pool);
                pool = Pool::open(Arc::new(disk.clone()), options(seed)).expect("it opens");
            }
        }
        pool.reap_all().expect("reaped");
        assert_counted(&disk, &pool, &format!("seed {seed}, at the end"));
    }
}

/// A clone of a volume that is no more inherits what it has of it.
#[test]
fn what_a_deleted_volume_leaves_to_its_clone_is_the_clones() {
    let (disk, pool) = pool_of(32, 1);
    pool.create_volume("origin", 4 * MIB).expect("a volume");
    let origin = pool.open_volume("origin").expect("it opens");
    (0..1000).for_each(|at| origin.write(at * BLOCK, &content(at + 1)).expect("a write"));
    pool.create_snapshots(&[("origin".into(), new_snapshot("s", 1))]).expect("a snapshot");
    pool.clone_snapshot("origin", "s", "heir").expect("a clone");
    let heir = pool.open_volume("heir").expect("it opens");
    (0..100).for_each(|at| heir.write(at * BLOCK, &content(at + 5000)).expect("a write"));
    assert_eq!((occupied(&pool, "origin"), occupied(&pool, "heir")), (1000, 100));
    drop((origin, heir));
    pool.delete_volume("origin").expect("deleted");
    pool.reap_all().expect("reaped");
    assert_eq!(occupied(&pool, "heir"), 1000);
    assert_counted(&disk, &pool, "at the end");
}

/// Over the quota hosts are refused, of that volume alone; what is alive can be overwritten for ever.
#[test]
fn a_volume_at_its_quota_is_overwritten_in_place_and_takes_no_more() {
    let (disk, pool) = pool_of(48, 2);
    let blocks = 1024;
    pool.create_volume_with("v", 2 * blocks * BLOCK, quota(blocks)).expect("a volume");
    pool.create_volume("other", 4 * MIB).expect("a volume");
    let (v, other) = (pool.open_volume("v").expect("it opens"), pool.open_volume("other").expect("it opens"));
    let mut random = SmallRng::seed_from_u64(2);
    // Overwritten on the way, so that the count of what it owns is far beyond the quota again and again.
    for round in 0..3 {
        for at in 0..blocks {
            v.write(at * BLOCK, &content(at + round * blocks + 1))
                .unwrap_or_else(|e| panic!("{round}, {at}: {e}"));
        }
    }
    assert_eq!(occupied(&pool, "v"), blocks);
    assert!(
        is_over_quota(v.write(blocks * BLOCK, &content(1)))
            && is_over_quota(v.write(0, &vec![1; 4096 * 1025]))
    );
    other.write(0, &content(7)).expect("other volumes go on");
    // Ten times all of it, in place, in pieces of any length, also those that are old and new blocks at once.
    let points = pool.counters.points.load(std::sync::atomic::Ordering::Relaxed);
    for round in 0..10 * blocks / 8 {
        let (at, count) = (random.random_range(0..blocks - 16), random.random_range(1..16));
        let bytes: Vec<u8> = (0..count).flat_map(|i| content(round * 20 + i + 9000)).collect();
        v.write(at * BLOCK + 100, &bytes[..bytes.len() - 200])
            .unwrap_or_else(|e| panic!("round {round}: {e}"));
        assert!(occupied(&pool, "v") <= blocks);
    }
    let made = pool.counters.points.load(std::sync::atomic::Ordering::Relaxed) - points;
    assert!(made < 300, "{made} points: no write needs one of its own");
    assert!(is_over_quota(v.write((blocks - 1) * BLOCK, &vec![2; 8192])), "one old block and a new one");
    // What is trimmed can be written again, wherever.
    v.trim(0, 16 * BLOCK).expect("a trim");
    v.write(blocks * BLOCK, &vec![3; 16 * 4096]).expect("room again");
    assert!(is_over_quota(v.write(0, &content(3))));
    // A snapshot keeps what is overwritten: that needs room, and gives it back.
    pool.create_snapshots(&[("v".into(), new_snapshot("s", 1))]).expect("a snapshot");
    assert!(is_over_quota(v.write(100 * BLOCK, &content(4))));
    let mut block = vec![0; 4096];
    v.read(100 * BLOCK, &mut block).expect("reads go on");
    let uuid = pool.snapshot_named("v", "s").expect("it is there").uuid;
    pool.delete_snapshot("v", uuid).expect("deleted");
    v.write(100 * BLOCK, &content(4)).expect("the snapshot is gone");
    pool.set_limits("v", |limits| limits.quota_bytes = Some((blocks + 1) * BLOCK)).expect("more");
    v.write(0, &content(5)).expect("one more");
    let refused = pool.set_limits("v", |limits| limits.quota_bytes = Some(blocks * BLOCK));
    assert!(
        matches!(refused, Err(StoreError::QuotaTooSmall { occupied_bytes, .. }) if occupied_bytes == (blocks + 1) * BLOCK)
    );
    pool.set_limits("v", |limits| limits.quota_bytes = None).expect("none");
    v.write(0, &vec![6; 1 << 20]).expect("as much as there is");
    assert_counted(&disk, &pool, "at the end");
}

/// Hosts that write in parallel over and over to a volume whose quota is what they have: none is ever refused.
#[test]
fn writers_in_parallel_are_never_told_that_garbage_fills_the_quota() {
    let disk = SimulatedDisk::new("quotas", 64 * MIB).without_history();
    let with = PoolOptions::new(Arc::new(SystemClock::default()), Arc::new(SeededRandomness::new(3)));
    let pool = Pool::create(Arc::new(disk.clone()), with).expect("a pool");
    let (writers, each) = (4, 512);
    pool.create_volume_with("v", writers * each * BLOCK, quota(writers * each)).expect("a volume");
    std::thread::scope(|scope| {
        for me in 0..writers {
            let pool = &pool;
            scope.spawn(move || {
                println!("seed {me}");
                let mut random = SmallRng::seed_from_u64(me);
                let handle = pool.open_volume("v").expect("it opens");
                for round in 0..3000 {
                    let (at, count) = (random.random_range(0..each - 8), random.random_range(1..8));
                    let bytes: Vec<u8> =
                        (0..count).flat_map(|i| content(me << 40 | round << 8 | i)).collect();
                    handle
                        .write((me * each + at) * BLOCK, &bytes)
                        .unwrap_or_else(|e| panic!("writer {me}, {round}: {e}"));
                    if round % 100 == 0 {
                        handle
                            .trim((me * each + at) * BLOCK, 8 * BLOCK)
                            .unwrap_or_else(|e| panic!("{me}: {e}"));
                    }
                }
            });
        }
    });
    assert!(occupied(&pool, "v") <= writers * each);
    assert_counted(&disk, &pool, "at the end");
}

/// What a transfer stages counts, and so does what it shares.
#[test]
fn a_staged_version_obeys_the_quota_of_its_volume() {
    let (disk, pool) = pool_of(32, 4);
    pool.create_volume("from", MIB).expect("a volume");
    let from = Arc::new(pool.open_volume("from").expect("it opens"));
    (0..200).for_each(|at| from.write(at * BLOCK, &content(at + 1)).expect("a write"));
    pool.create_volume_with("v", 4 * MIB, quota(300)).expect("a volume");
    assert_eq!(pool.quota_room("v").expect("it has one").for_hosts_bytes, 300 * BLOCK);
    let staged = pool.stage("v", None, 4 * MIB, staged_for(1)).expect("staged");
    let expected = from.fingerprints(0, 200).expect("fingerprints");
    assert_eq!(staged.share(0, &from, 0, &expected).expect("shared"), 200);
    assert!(is_over_quota(staged.share(400, &from, 0, &expected)));
    staged.write(200 * BLOCK, &vec![5; 100 * 4096]).expect("written");
    assert!(is_over_quota(staged.write(300 * BLOCK, &content(1))));
    staged.write(0, &content(99)).expect("what is its own is replaced");
    staged.commit(&new_snapshot("one", 1)).expect("committed");
    assert_eq!(occupied(&pool, "v"), 300);
    let again = pool
        .stage("v", Some(pool.snapshot_named("v", "one").expect("there").uuid), 4 * MIB, staged_for(2))
        .expect("staged");
    assert!(is_over_quota(again.write(0, &content(1))), "the base has that");
    again.abandon().expect("abandoned");
    assert_counted(&disk, &pool, "at the end");
}

/// Others find the pool full before what is reserved is touched, and the volume gets all of it.
#[test]
fn what_is_reserved_is_there_when_others_have_filled_the_pool() {
    for (seed, scattered, with_snapshots) in [(5, false, false), (8, true, true)] {
        println!("seed {seed}");
        let (disk, pool) = pool_of(64, seed);
        let reserved = 16 * MIB / BLOCK;
        pool.create_volume_with("kept", 64 * MIB, reserve(16 * MIB)).expect("a volume");
        pool.create_volume("greedy", 1 << 30).expect("a volume");
        assert_eq!(pool.reserved_unused_bytes(), 16 * MIB);
        let (kept, greedy) =
            (pool.open_volume("kept").expect("it opens"), pool.open_volume("greedy").expect("it opens"));
        kept.write(0, &vec![1; MIB as usize]).expect("a write");
        let mut random = SmallRng::seed_from_u64(seed);
        let mut number = 0;
        let mut fill = || {
            for at in 0.. {
                number += 1;
                if number % 500 == 0 && with_snapshots {
                    let new = new_snapshot(&format!("g{number}"), number);
                    let taken = pool.create_snapshots(&[("greedy".into(), new)]);
                    assert!(matches!(taken, Ok(_) | Err(StoreError::NoSpace { .. })), "{taken:?}");
                }
                let at = if scattered { random.random_range(0..200_000) } else { at };
                match greedy.write(at * BLOCK, &content(u64::from(number))) {
                    Ok(()) => {}
                    Err(StoreError::NoSpace { .. }) => return,
                    Err(error) => panic!("{error}"),
                }
            }
        };
        fill();
        assert!(pool.room().for_hosts_bytes < MIB, "{:?}", pool.room());
        // All of it, while others go on to take what they can.
        let mut order: Vec<u64> = (256..reserved).collect();
        if scattered {
            order.iter_mut().for_each(|at| *at = *at * 4099 % 16_384);
            order.sort_unstable();
            order.dedup();
        }
        for (n, at) in order.iter().enumerate() {
            if *at < 256 {
                continue;
            }
            kept.write(at * BLOCK, &content(at + 1_000_000))
                .unwrap_or_else(|e| panic!("seed {seed}, block {n}: {e}"));
            if n % 512 == 0 {
                fill();
            }
        }
        assert!(occupied(&pool, "kept") <= reserved);
        assert_counted(&disk, &pool, "at the end");
        assert_eq!(pool.status().failed, None);
    }
}

/// A reservation that does not fit is refused with what would, whether or not something is in the way that comes back.
#[test]
fn a_reservation_that_does_not_fit_is_refused_with_the_figure() {
    let (_, pool) = pool_of(64, 9);
    let refused = pool.create_volume_with("v", MIB, reserve(64 * MIB));
    let Err(StoreError::NoRoomToReserve { room_bytes, .. }) = refused else { panic!("{refused:?}") };
    assert!((40 * MIB..60 * MIB).contains(&room_bytes), "{room_bytes}");
    assert!(pool.volumes().is_empty());
    pool.create_volume_with("v", 64 * MIB, reserve(room_bytes)).expect("what fits");
    assert!(matches!(
        pool.create_volume_with("w", MIB, reserve(4 * MIB)),
        Err(StoreError::NoRoomToReserve { .. })
    ));
    pool.create_volume("w", 64 * MIB).expect("without one");
    let w = pool.open_volume("w").expect("it opens");
    assert!(matches!(w.write(0, &vec![1; MIB as usize]), Err(StoreError::NoSpace { .. })));
    pool.set_limits("v", |limits| limits.reserve_bytes = Some(8 * MIB)).expect("less");
    w.write(0, &vec![1; 16 * MIB as usize]).expect("room");
    // What was overwritten is no reason to refuse.
    for round in 0..8 {
        w.write(0, &vec![2 + round; 16 * MIB as usize]).expect("overwritten");
    }
    pool.set_limits("v", |limits| limits.reserve_bytes = Some(24 * MIB)).expect("more");
    pool.delete_volume("v").expect("deleted");
    assert_eq!(pool.reserved_unused_bytes(), 0);
    w.write(16 * MIB, &vec![9; 16 * MIB as usize]).expect("what was reserved goes with the volume");
}

/// Where a block has several owners, who writes over it needs a place of its own: that is kept too.
#[test]
fn what_is_reserved_holds_for_blocks_with_several_owners() {
    let (disk, pool) = pool_of(64, 10);
    pool.create_volume_with("kept", 16 * MIB, reserve(12 * MIB)).expect("a volume");
    pool.create_volume("twin", 16 * MIB).expect("a volume");
    let kept = Arc::new(pool.open_volume("kept").expect("it opens"));
    let count = 8 * MIB / BLOCK;
    (0..count).for_each(|at| kept.write(at * BLOCK, &content(at + 1)).expect("a write"));
    let staged = pool.stage("twin", None, 16 * MIB, staged_for(1)).expect("staged");
    let expected = kept.fingerprints(0, count).expect("fingerprints");
    assert_eq!(staged.share(0, &kept, 0, &expected).expect("shared"), count);
    staged.commit(&new_snapshot("one", 1)).expect("committed");
    pool.create_volume("greedy", 1 << 30).expect("a volume");
    let greedy = pool.open_volume("greedy").expect("it opens");
    (0..).take_while(|at| greedy.write(at * BLOCK, &content(at + 50_000)).is_ok()).count();
    for at in 0..12 * MIB / BLOCK {
        kept.write(at * BLOCK, &content(at + 1_000_000)).unwrap_or_else(|e| panic!("block {at}: {e}"));
    }
    assert_counted(&disk, &pool, "at the end");
}

#[test]
fn limits_are_kept_over_openings_and_those_that_contradict_are_refused() {
    let (disk, pool) = pool_of(32, 11);
    let limits = VolumeLimits {
        quota_bytes: Some(8 * MIB),
        reserve_bytes: Some(4 * MIB),
        autogrow: Some(Autogrow { to_bytes: 1 << 40, step_bytes: MIB }),
    };
    pool.create_volume_with("v", MIB, limits).expect("a volume");
    pool.set_limits("v", |limits| limits.quota_bytes = Some(6 * MIB)).expect("changed");
    let image = disk.image();
    drop(pool);
    for disk in [disk, image] {
        let pool = Pool::open(Arc::new(disk), options(1)).expect("it opens");
        let expected = VolumeLimits { quota_bytes: Some(6 * MIB), ..limits };
        assert_eq!(pool.volume("v").expect("there").limits, expected);
        assert_eq!(pool.reserved_unused_bytes(), 4 * MIB);
        let more_than_quota = pool.set_limits("v", |limits| limits.reserve_bytes = Some(7 * MIB));
        assert!(matches!(more_than_quota, Err(StoreError::Invalid(_))));
        let odd =
            pool.set_limits("v", |limits| limits.autogrow = Some(Autogrow { to_bytes: 5000, step_bytes: 1 }));
        assert!(matches!(odd, Err(StoreError::Invalid(_))));
        assert!(matches!(pool.set_limits("w", |_| {}), Err(StoreError::NotFound(_))));
        assert_eq!(pool.volume("v").expect("there").limits, expected);
        // How full it is, for whoever lets it grow.
        let handle = pool.open_volume("v").expect("it opens");
        handle.write(0, &vec![1; 100 * 4096]).expect("a write");
        pool.consistency_point().expect("a point");
        let fill = pool.volumes_that_grow();
        assert_eq!((fill.len(), fill[0].written_bytes, fill[0].size_bytes), (1, 100 * BLOCK, MIB));
    }
}
