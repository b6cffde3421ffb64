//! Deduplication at rest: what it shares, what it leaves alone, and what it costs. After every step the offline checker counts the
//! owners of every place anew.

mod sparse;

use std::collections::BTreeMap;
use std::sync::Arc;

use farside_platform::{CrashFate, SimulatedDisk};
use farside_store::{
    Dedup, DedupFigures, DedupIndex, DedupPosition, DedupSavings, DedupUndone, Pool, ReplicaStatus,
    StoreError, VersionHandle,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use sparse::{BLOCK, content, new_snapshot, options};
use uuid::Uuid;

const POOL: u64 = 48 << 20;

fn new_pool(volumes: &[(&str, u64)]) -> (SimulatedDisk, Arc<Pool>) {
    let disk = SimulatedDisk::new("dedup", POOL);
    let pool = Pool::create(Arc::new(disk.clone()), options(5)).expect("a pool");
    for (name, blocks) in volumes {
        pool.create_volume(name, blocks * BLOCK).expect("a volume");
    }
    (disk, pool)
}

fn write(pool: &Arc<Pool>, volume: &str, first: u64, stamps: impl IntoIterator<Item = u64>) {
    let handle = pool.open_volume(volume).expect("it opens");
    for (block, stamp) in (first..).zip(stamps) {
        handle.write(block * BLOCK, &content(stamp)).expect("a write");
    }
}

fn assert_holds(handle: &VersionHandle, first: u64, stamps: impl IntoIterator<Item = u64>, what: &str) {
    let mut block = vec![0; BLOCK as usize];
    for (at, stamp) in (first..).zip(stamps) {
        handle.read(at * BLOCK, &mut block).unwrap_or_else(|e| panic!("{what}: {e}"));
        let expected = if stamp == 0 { vec![0; BLOCK as usize] } else { content(stamp) };
        assert!(block == expected, "{what}: block {at}");
    }
}

fn id(pool: &Pool, volume: &str) -> Uuid {
    pool.volume_id(volume).expect("it is there")
}

fn ids(pool: &Pool, volumes: &[&str]) -> Vec<Uuid> {
    volumes.iter().map(|volume| id(pool, volume)).collect()
}

fn finish(mut pass: Dedup) -> (DedupFigures, DedupPosition, DedupIndex) {
    while pass.step(&mut |_| {}).expect("a step") {}
    assert_eq!(pass.done_part(), Some(1.0));
    (pass.figures(), pass.position(), pass.into_index())
}

/// One pass over each of these volumes, among all of them.
fn dedup(pool: &Arc<Pool>, volumes: &[&str]) -> DedupFigures {
    let among = ids(pool, volumes);
    let mut index = DedupIndex::default();
    let mut all = DedupFigures::default();
    for volume in &among {
        let (figures, _, left) = finish(pool.begin_dedup(*volume, &among, None, index).expect("it begins"));
        index = left;
        all.scanned_blocks += figures.scanned_blocks;
        all.shared_blocks += figures.shared_blocks;
        all.held_blocks += figures.held_blocks;
        all.limited_blocks += figures.limited_blocks;
        all.damaged_blocks += figures.damaged_blocks;
    }
    all
}

fn count(pool: &Arc<Pool>, volume: &str) -> DedupSavings {
    let mut count = pool.begin_dedup_count(id(pool, volume)).expect("it begins");
    loop {
        if let Some(savings) = count.step(&mut |_| {}).expect("a step") {
            return savings;
        }
    }
}

fn undo(pool: &Arc<Pool>, volume: &str) -> DedupUndone {
    let mut undo = pool.begin_dedup_undo(id(pool, volume)).expect("it begins");
    while undo.step(&mut |_| {}).expect("a step") {}
    undo.undone()
}

/// What was replaced is free after two points.
fn settle(pool: &Pool) {
    for _ in 0..2 {
        pool.consistency_point().expect("a point");
    }
}

/// The pool as a crash leaves it once all that was answered is flushed, checked as it is and opened.
fn check(disk: &SimulatedDisk, pool: &Pool, what: &str) -> SimulatedDisk {
    pool.flush().expect("a flush");
    let image = disk.crash_at(disk.events(), CrashFate::DropUnsynced).without_history();
    let is_clean = |when: &str| {
        let report = farside_check::check(&image, &farside_check::CheckOptions::default()).expect("it runs");
        assert!(report.is_clean(), "{what}, {when}: {report}");
    };
    is_clean("before opening");
    drop(Pool::open(Arc::new(image.clone()), options(6)).unwrap_or_else(|e| panic!("{what}: {e}")));
    is_clean("opened");
    image
}

#[test]
fn two_copies_need_the_room_of_one_and_a_second_pass_costs_nothing() {
    let (disk, pool) = new_pool(&[("v", 2000), ("w", 2000), ("x", 2000)]);
    write(&pool, "v", 0, 1..=1500);
    // Moved, with something of its own at both ends, and once more inside itself.
    write(&pool, "w", 37, 1..=1500);
    write(&pool, "w", 0, 9001..=9030);
    write(&pool, "w", 1600, 101..=200);
    // Not asked for.
    write(&pool, "x", 0, 1..=500);
    settle(&pool);
    let free = pool.status().free_bytes;
    let written = pool.counters.written_bytes.load(std::sync::atomic::Ordering::Relaxed);
    let roots: Vec<_> = ["v", "w", "x"].map(|v| pool.open_volume(v).unwrap().content_root().unwrap()).into();
    let read = pool.counters.read_bytes.load(std::sync::atomic::Ordering::Relaxed);
    let figures = dedup(&pool, &["v", "w"]);
    let expected = DedupFigures { scanned_blocks: 3130, shared_blocks: 1600, ..DedupFigures::default() };
    assert_eq!(figures, expected);
    let read = pool.counters.read_bytes.load(std::sync::atomic::Ordering::Relaxed) - read;
    assert!(
        read <= 1700 * BLOCK,
        "{read} bytes read: no more than what is kept, once for each that shares it"
    );
    assert_eq!(pool.counters.written_bytes.load(std::sync::atomic::Ordering::Relaxed), written);
    settle(&pool);
    let gained = pool.status().free_bytes - free;
    assert!((1500 * BLOCK..=1600 * BLOCK).contains(&gained), "1600 blocks, less the owner counts: {gained}");
    assert_eq!(pool.status().shared_saves_bytes, 1600 * BLOCK);
    check(&disk, &pool, "deduplicated");
    let now: Vec<_> = ["v", "w", "x"].map(|v| pool.open_volume(v).unwrap().content_root().unwrap()).into();
    assert_eq!(now, roots);
    assert_holds(&pool.open_volume("w").unwrap(), 37, 1..=1500, "w");
    // The volumes' parts add up to what the pool saves.
    let (v, w) = (count(&pool, "v"), count(&pool, "w"));
    assert_eq!((v.blocks, v.shared_blocks, w.blocks, w.shared_blocks), (1500, 1500, 1630, 1600));
    assert!(1600 * BLOCK - v.saved_bytes - w.saved_bytes <= 4096, "{v:?} {w:?}");
    assert_eq!(count(&pool, "x"), DedupSavings { blocks: 500, ..DedupSavings::default() });
    // What is shared counts as looked at, whatever the table: nothing is shared twice, or back.
    assert_eq!(dedup(&pool, &["v", "w"]).shared_blocks, 0);
}

#[test]
fn the_next_pass_looks_at_what_changed_alone() {
    let (disk, pool) = new_pool(&[("v", 1 << 18), ("w", 1 << 18)]);
    for piece in 0..40 {
        write(&pool, "v", piece * 6400, (1..=40).map(|n| piece * 100 + n));
    }
    let among = ids(&pool, &["v", "w"]);
    let first = pool.begin_dedup(among[0], &among, None, DedupIndex::default()).expect("it begins");
    let (figures, mut last, mut index) = finish(first);
    assert_eq!((figures.scanned_blocks, figures.shared_blocks), (1600, 0));
    assert!(!pool.dedup_has_work(among[0], &last));
    // A leaf of v has a copy of what lies elsewhere in it, and w gets one.
    write(&pool, "v", 100_000, 1001..=1040);
    write(&pool, "w", 5, 2001..=2040);
    assert!(pool.dedup_has_work(among[0], &last));
    for shared in [40, 0] {
        let nodes = pool.nodes_read();
        let pass = pool.begin_dedup(among[0], &among, Some(last), index).expect("it begins");
        let (figures, position, left) = finish(pass);
        assert_eq!((figures.scanned_blocks, figures.shared_blocks), (40, shared));
        assert!(pool.nodes_read() - nodes < 20, "{} nodes read", pool.nodes_read() - nodes);
        (last, index) = (position, left);
    }
    assert!(!pool.dedup_has_work(among[0], &last));
    let pass = pool.begin_dedup(among[1], &among, None, index).expect("it begins");
    assert_eq!(finish(pass).0.shared_blocks, 40);
    // With a table that knows nothing the others are learned first, and the pass is as short.
    write(&pool, "v", 100_100, 1001..=1040);
    let pass = pool.begin_dedup(among[0], &among, Some(last), DedupIndex::default()).expect("it begins");
    assert_eq!(pass.done_part(), None);
    let figures = finish(pass).0;
    assert_eq!((figures.scanned_blocks, figures.shared_blocks), (40, 40));
    check(&disk, &pool, "three passes");
}

#[test]
fn a_pass_goes_on_after_a_crash_and_knows_a_head_that_was_replaced() {
    let (disk, pool) = new_pool(&[("v", 20_000), ("w", 20_000)]);
    for volume in ["v", "w"] {
        for piece in 0..100 {
            write(&pool, volume, piece * 200, (1..=8).map(|n| piece * 10 + n));
        }
    }
    let among = ids(&pool, &["v", "w"]);
    let (_, _, index) =
        finish(pool.begin_dedup(among[0], &among[..1], None, DedupIndex::default()).expect("it begins"));
    let mut pass = pool.begin_dedup(among[1], &among, None, index).expect("it begins");
    while pass.position().leaf == 0 {
        assert!(pass.step(&mut |_| {}).expect("a step"));
    }
    let (position, figures) = (pass.position(), pass.figures());
    assert!(position.leaf > 0 && figures.shared_blocks > 0 && figures.shared_blocks < 800);
    let image = check(&disk, &pool, "in the middle");
    drop((pass, pool));
    let pool = Pool::open(Arc::new(image.clone()), options(7)).expect("it opens");
    let pass = pool.resume_dedup(among[1], &among, position, figures, DedupIndex::default());
    let (figures, last, index) = finish(pass.expect("it goes on"));
    assert_eq!((figures.scanned_blocks, figures.shared_blocks), (800, 800));
    check(&image, &pool, "at the end");
    // A rollback shows what a snapshot has: all of it is new.
    let snapshots = pool.create_snapshots(&[("w".into(), new_snapshot("s", 1))]).expect("a snapshot");
    write(&pool, "w", 0, 1..=3);
    pool.move_main("w", snapshots[0].uuid, None, None).expect("rolled back");
    assert!(pool.dedup_has_work(among[1], &last));
    let figures = finish(pool.begin_dedup(among[1], &among, Some(last), index).expect("it begins")).0;
    assert_eq!((figures.scanned_blocks, figures.shared_blocks), (800, 0));
}

#[test]
fn what_snapshots_hold_comes_free_with_them() {
    let (disk, pool) = new_pool(&[("v", 1000), ("w", 1000)]);
    write(&pool, "v", 0, 1..=600);
    write(&pool, "w", 0, 1..=600);
    let both = [("v".into(), new_snapshot("s", 1)), ("w".into(), new_snapshot("t", 2))];
    let snapshots = pool.create_snapshots(&both).expect("snapshots");
    settle(&pool);
    let free = pool.status().free_bytes;
    let figures = dedup(&pool, &["v", "w"]);
    assert_eq!((figures.shared_blocks, figures.held_blocks), (600, 600));
    settle(&pool);
    assert!(pool.status().free_bytes <= free, "nothing came free");
    check(&disk, &pool, "held");
    assert_holds(&pool.open_snapshot("w", "t").expect("it opens"), 0, 1..=600, "the snapshot");
    for (volume, snapshot) in ["v", "w"].iter().zip(&snapshots) {
        pool.delete_snapshot(volume, snapshot.uuid).expect("deleted");
    }
    pool.reap_all().expect("reaping");
    settle(&pool);
    assert!(pool.status().free_bytes - free > 550 * BLOCK, "{}", pool.status().free_bytes - free);
    check(&disk, &pool, "let go");
    // A younger copy of what a snapshot has gives way to that, and comes free at once.
    pool.create_snapshots(&[("v".into(), new_snapshot("u", 3))]).expect("a snapshot");
    write(&pool, "v", 700, 1..=100);
    let figures = dedup(&pool, &["v"]);
    assert_eq!((figures.shared_blocks, figures.held_blocks), (100, 0));
    check(&disk, &pool, "a younger copy");
}

#[test]
fn a_block_has_256_owners_at_most() {
    let (disk, pool) = new_pool(&[("v", 1000), ("w", 1000)]);
    for volume in ["v", "w"] {
        write(&pool, volume, 0, (0..1000).map(|block| 1 + block % 2));
    }
    let figures = dedup(&pool, &["v", "w"]);
    assert!(figures.limited_blocks > 0, "{figures:?}");
    assert_holds(&pool.open_volume("v").unwrap(), 0, (0..1000).map(|block| 1 + block % 2), "v");
    let places = 2000 - pool.status().shared_saves_bytes / BLOCK;
    // Four of each content are needed; some more are begun while others fill up.
    assert!((8..40).contains(&places), "{places} places");
    check(&disk, &pool, "two contents");
    assert_eq!(undo(&pool, "v").copied_blocks, 1000);
    check(&disk, &pool, "undone");
}

/// A table for 12 KiB knows next to nothing: what it does know leads to the rest.
#[test]
fn long_runs_are_found_with_a_sample() {
    let (disk, pool) = new_pool(&[("v", 5000), ("w", 5000)]);
    write(&pool, "v", 0, 1..=4000);
    write(&pool, "w", 71, 1..=4000);
    let among = ids(&pool, &["v", "w"]);
    let (_, _, index) =
        finish(pool.begin_dedup(among[0], &among[..1], None, DedupIndex::new(12 << 10)).expect("it begins"));
    assert!(
        index.sampling_bits() >= 3 && index.bytes() <= 64 << 10,
        "{} {}",
        index.sampling_bits(),
        index.bytes()
    );
    let figures = finish(pool.begin_dedup(among[1], &among, None, index).expect("it begins")).0;
    assert_eq!(figures.shared_blocks, 4000);
    check(&disk, &pool, "a sample");
}

fn place_of(disk: &SimulatedDisk, stamp: u64) -> Vec<u64> {
    let wanted = content(stamp);
    (0..POOL / BLOCK).filter(|place| disk.peek(place * BLOCK, 4096) == wanted).collect()
}

#[test]
fn a_damaged_block_is_shared_with_nobody_and_damage_of_a_shared_one_meets_all_its_owners() {
    let (disk, pool) = new_pool(&[("v", 500), ("w", 500)]);
    write(&pool, "v", 0, 1..=300);
    pool.consistency_point().expect("a point");
    write(&pool, "w", 100, 1..=300);
    pool.close().expect("closed");
    drop(pool);
    // The older one of block 8 is v's.
    let places = place_of(&disk, 8);
    assert_eq!(places.len(), 2);
    disk.damage(places[0].min(places[1]) * BLOCK, &[0xEE; 4096]);
    let pool = Pool::open(Arc::new(disk.clone()), options(8)).expect("it opens");
    let figures = dedup(&pool, &["v", "w"]);
    assert_eq!((figures.shared_blocks, figures.damaged_blocks > 0), (299, true), "{figures:?}");
    let read = |volume: &str, block: u64| {
        pool.open_volume(volume).expect("it opens").read(block * BLOCK, &mut [0; 4096])
    };
    assert!(read("v", 7).is_err());
    assert_holds(&pool.open_volume("w").expect("it opens"), 100, 1..=300, "w");
    settle(&pool);
    // Now one that both have.
    let places = place_of(&disk, 20);
    let is_shared = |place: &u64| {
        let whole = disk.peek(place * BLOCK, 4096);
        disk.damage(place * BLOCK, &[0xEE; 4096]);
        let is_it = read("v", 19).is_err();
        assert_eq!(is_it, read("w", 119).is_err(), "one place");
        disk.damage(place * BLOCK, &whole);
        is_it
    };
    let shared: Vec<u64> = places.into_iter().filter(is_shared).collect();
    assert_eq!(shared.len(), 1);
    disk.damage(shared[0] * BLOCK, &[0xEE; 4096]);
    let mut scrub = pool.begin_scrub().expect("it begins");
    while scrub.step(&mut |_| {}).expect("a step") {}
    let named: Vec<_> = scrub.findings().damage.iter().map(|d| (d.volume.clone(), d.block)).collect();
    for owner in [("v", 7), ("v", 19), ("w", 119)] {
        assert!(named.contains(&(owner.0.to_owned(), owner.1)), "{named:?}");
    }
    assert_eq!(named.len(), 3, "{named:?}");
    // It cannot be copied, and stays shared; a write heals the one that is written.
    let undone = undo(&pool, "w");
    assert_eq!((undone.copied_blocks, undone.damaged_blocks), (298, 1));
    write(&pool, "w", 119, [20]);
    assert!(read("w", 119).is_ok() && read("v", 19).is_err());
}

#[test]
fn an_undone_volume_has_places_of_its_own_and_lack_of_room_leaves_it_whole() {
    let (disk, pool) = new_pool(&[("v", 8000), ("w", 8000), ("f", 9000)]);
    write(&pool, "v", 0, 1..=4000);
    write(&pool, "w", 0, 1..=4000);
    assert_eq!(dedup(&pool, &["v", "w"]).shared_blocks, 4000);
    settle(&pool);
    // No room for 4000 blocks.
    let left = pool.dedup_undo_room() / BLOCK;
    assert!(left > 4000, "{left}");
    write(&pool, "f", 0, 10_001..10_001 + left - 2500);
    settle(&pool);
    let needed = count(&pool, "w");
    assert_eq!(needed.shared_blocks, 4000);
    assert!(pool.dedup_undo_room() < needed.shared_blocks * BLOCK);
    let mut half = pool.begin_dedup_undo(id(&pool, "w")).expect("it begins");
    let refused = loop {
        match half.step(&mut |_| {}) {
            Ok(true) => {}
            Ok(false) => panic!("there was room"),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::NoSpace { .. }), "{refused}");
    let copied = half.undone().copied_blocks;
    assert!((1000..4000).contains(&copied), "{copied}");
    check(&disk, &pool, "half undone");
    pool.delete_volume("f").expect("deleted");
    pool.reap_all().expect("reaping");
    settle(&pool);
    assert_eq!(undo(&pool, "w").copied_blocks, 4000 - copied);
    assert_eq!(undo(&pool, "v").copied_blocks, 0, "it has its places to itself already");
    assert_eq!(pool.status().shared_blocks, 0);
    for volume in ["v", "w"] {
        assert_holds(&pool.open_volume(volume).unwrap(), 0, 1..=4000, volume);
    }
    check(&disk, &pool, "undone");
}

#[test]
fn a_replica_is_left_alone() {
    let (_, pool) = new_pool(&[("v", 100), ("w", 100)]);
    write(&pool, "v", 0, 1..=50);
    write(&pool, "w", 0, 1..=50);
    let replica = |broken_off| ReplicaStatus {
        relationship: Uuid::from_u128(9),
        peer: [1; 32],
        source: "far/v".into(),
        broken_off,
    };
    let among = ids(&pool, &["v", "w"]);
    pool.set_replica("w", Some(replica(false))).expect("a replica");
    let refused = pool.begin_dedup(among[1], &among, None, DedupIndex::default()).err().expect("refused");
    assert!(refused.to_string().contains("replica of far/v"), "{refused}");
    assert!(pool.begin_dedup_undo(among[1]).is_err());
    // Nor is anything shared with it.
    let pass = pool.begin_dedup(among[0], &among, None, DedupIndex::default()).expect("it begins");
    assert_eq!(finish(pass).0.shared_blocks, 0);
    pool.set_replica("w", Some(replica(true))).expect("broken off");
    let pass = pool.begin_dedup(among[1], &among, None, DedupIndex::default()).expect("it begins");
    assert_eq!(finish(pass).0.shared_blocks, 50);
}

/// Hosts write, trim and take snapshots between the steps of passes and of undoings; what each volume and each snapshot holds is what
/// was written there, and the counts are right.
#[test]
fn whatever_hosts_do_between_the_steps_they_read_what_they_wrote() {
    let seeds = std::env::var("FARSIDE_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(6);
    let names = ["v", "w", "x"];
    for seed in 1..=seeds {
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let (disk, pool) = new_pool(&names.map(|name| (name, 9000)));
        let among = ids(&pool, &names);
        let mut model: BTreeMap<&str, BTreeMap<u64, u64>> = names.map(|n| (n, BTreeMap::new())).into();
        type Held = (&'static str, Uuid, String, BTreeMap<u64, u64>);
        let mut snapshots: Vec<Held> = Vec::new();
        let mut index = Some(DedupIndex::new(if seed % 2 == 0 { 1 << 20 } else { 12 << 10 }));
        let mut pass: Option<(usize, Dedup)> = None;
        let mut last: [Option<DedupPosition>; 3] = [None; 3];
        let mut undoing = None;
        let (mut shared, mut number) = (0, 0);
        for round in 0..160 {
            let name = names[rng.random_range(0..3)];
            let first = rng.random_range(0..8800);
            match rng.random_range(0..10) {
                0..5 => {
                    let from = rng.random_range(1..400);
                    let count = rng.random_range(1..120);
                    write(&pool, name, first, from..from + count);
                    model.get_mut(name).unwrap().extend((first..).zip(from..from + count));
                }
                5 => {
                    let count = rng.random_range(1..200);
                    let handle = pool.open_volume(name).expect("it opens");
                    handle.trim(first * BLOCK, count * BLOCK).expect("a trim");
                    model.get_mut(name).unwrap().retain(|block, _| !(first..first + count).contains(block));
                }
                6 => {
                    number += 1;
                    let new = new_snapshot(&format!("s{number}"), number);
                    let made = pool.create_snapshots(&[(name.into(), new)]).expect("a snapshot");
                    snapshots.push((name, made[0].uuid, made[0].name.clone(), model[name].clone()));
                }
                7 if !snapshots.is_empty() => {
                    let (volume, uuid, ..) = snapshots.swap_remove(rng.random_range(0..snapshots.len()));
                    pool.delete_snapshot(volume, uuid).expect("deleted");
                    pool.reap_step_within(3).expect("a step");
                }
                8 => pool.consistency_point().expect("a point"),
                _ => {
                    let steps = rng.random_range(1..4);
                    if rng.random_ratio(1, 4) {
                        let undo = undoing.get_or_insert_with(|| {
                            pool.begin_dedup_undo(among[rng.random_range(0..3)]).expect("it begins")
                        });
                        if !(0..steps).all(|_| undo.step(&mut |_| {}).expect("a step")) {
                            undoing = None;
                        }
                    } else {
                        let (which, mut running) = pass.take().unwrap_or_else(|| {
                            let which = rng.random_range(0..3);
                            let index = index.take().expect("no pass is under way");
                            (
                                which,
                                pool.begin_dedup(among[which], &among, last[which], index).expect("begun"),
                            )
                        });
                        if (0..steps).all(|_| running.step(&mut |_| {}).expect("a step")) {
                            pass = Some((which, running));
                        } else {
                            shared += running.figures().shared_blocks;
                            assert_eq!(running.figures().damaged_blocks, 0, "seed {seed}");
                            last[which] = Some(running.position());
                            index = Some(running.into_index());
                        }
                    }
                }
            }
            if round % 16 == 15 {
                check(&disk, &pool, &format!("seed {seed}, round {round}"));
            }
        }
        let stamps = |map: &BTreeMap<u64, u64>| -> Vec<u64> {
            (0..9000).map(|block| map.get(&block).copied().unwrap_or(0)).collect()
        };
        for name in names {
            let handle = pool.open_volume(name).expect("it opens");
            assert_holds(&handle, 0, stamps(&model[name]), &format!("seed {seed}, {name}"));
        }
        for (volume, _, name, map) in &snapshots {
            let handle = pool.open_snapshot(volume, name).expect("it opens");
            assert_holds(&handle, 0, stamps(map), &format!("seed {seed}, {volume}@{name}"));
        }
        assert!(shared > 100, "seed {seed}: {shared} blocks shared");
        // With a table that holds all, and three passes over all, equal blocks share places.
        drop((pass, undoing));
        for _ in 0..3 {
            dedup(&pool, &names);
        }
        let mut contents: Vec<u64> = model.values().flat_map(|m| m.values().copied()).collect();
        let blocks = contents.len() as u64;
        contents.sort_unstable();
        contents.dedup();
        let counted = names.map(|name| count(&pool, name));
        assert_eq!(counted.iter().map(|c| c.blocks).sum::<u64>(), blocks);
        let places = blocks - counted.iter().map(|c| c.saved_bytes).sum::<u64>() / BLOCK;
        println!("{blocks} blocks of {} contents, about {places} places", contents.len());
        // Some share with snapshots alone.
        assert!(places <= contents.len() as u64 * 11 / 10, "seed {seed}: {places} places");
        check(&disk, &pool, &format!("seed {seed}, at the end"));
    }
}
