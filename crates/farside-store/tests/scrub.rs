//! A scrub: everything is read once, each kind of damage is named as what it is, and nothing else is ever called damaged: while hosts
//! write, while snapshots come and go, after a kill at any moment.

mod sparse;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farside_check::{CheckOptions, Severity};
use farside_format::pointer::TWIN_DISTANCE;
use farside_format::{Node, Superblock, TreeKind};
use farside_platform::{FileDevice, OsRandomness, SimulatedDisk, SystemClock};
use farside_store::{
    DamageKind, Pool, PoolOptions, Scrub, ScrubDamage, ScrubFindings, StoreError, VersionHandle,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use sparse::{BLOCK, content, new_snapshot, options, staged_for};
use uuid::Uuid;

const POOL: u64 = 64 << 20;

fn write(handle: &VersionHandle, first: u64, count: u64, stamp: u64) {
    for block in first..first + count {
        handle.write(block * BLOCK, &content(stamp + block)).expect("a write");
    }
}

fn snapshot(pool: &Arc<Pool>, volume: &str, name: &str, number: u32) {
    pool.create_snapshots(&[(volume.into(), new_snapshot(name, number))]).expect("a snapshot");
}

/// `v` with snapshots `s1` and `s2`, its clone `c` of `s1`, and `w`, which shares blocks 0 to 49 of `s1` at its blocks 1000 and on.
fn pool(seed: u64) -> SimulatedDisk {
    let disk = SimulatedDisk::new("scrubbed", POOL).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(seed)).expect("a pool");
    pool.create_volume("v", (1 << 20) * BLOCK).expect("a volume");
    let v = pool.open_volume("v").expect("it opens");
    write(&v, 0, 400, 1_000_000);
    write(&v, 50_000, 300, 1_000_000);
    snapshot(&pool, "v", "s1", 1);
    write(&v, 100, 50, 2_000_000);
    snapshot(&pool, "v", "s2", 2);
    write(&v, 120, 10, 3_000_000);
    write(&v, 900_000, 20, 3_000_000);
    pool.clone_snapshot("v", "s1", "c").expect("a clone");
    write(&pool.open_volume("c").expect("it opens"), 300, 10, 4_000_000);
    pool.create_volume("w", 2000 * BLOCK).expect("a volume");
    write(&pool.open_volume("w").expect("it opens"), 0, 10, 5_000_000);
    let source = pool.open_snapshot("v", "s1").expect("it opens");
    let fingerprints = source.fingerprints(0, 50).expect("fingerprints");
    let staged = pool.stage("w", None, 2000 * BLOCK, staged_for(1)).expect("staged");
    assert_eq!(staged.share(1000, &source, 0, &fingerprints).expect("a share"), 50);
    drop((v, source, staged));
    pool.close().expect("closed");
    disk
}

fn open(disk: &SimulatedDisk) -> Arc<Pool> {
    Pool::open(Arc::new(disk.clone()), options(9)).expect("it opens")
}

fn finish(mut scrub: Scrub) -> (ScrubFindings, u64) {
    while scrub.step(&mut |_| {}).expect("a step") {}
    (scrub.findings().clone(), scrub.read_bytes())
}

fn scrub(pool: &Arc<Pool>) -> ScrubFindings {
    finish(pool.begin_scrub().expect("it begins")).0
}

/// Where the block with this stamp lies: one place, whoever has it.
fn place_of(disk: &SimulatedDisk, stamp: u64) -> u64 {
    let wanted = content(stamp);
    let found: Vec<u64> =
        (0..POOL / BLOCK).filter(|place| disk.peek(place * BLOCK, 4096) == wanted).collect();
    assert_eq!(found.len(), 1, "stamp {stamp} lies at {found:?}");
    found[0]
}

fn flip(disk: &SimulatedDisk, place: u64) {
    let mut bytes = disk.peek(place * BLOCK, 4096);
    bytes[140] ^= 0x10;
    disk.damage(place * BLOCK, &bytes);
}

/// Nodes on the disk that are referred to, as the newest of their position in their family: (place, node), first copies only.
fn nodes(disk: &SimulatedDisk, kind: TreeKind, level: u8) -> Vec<(u64, Node)> {
    let mut found: Vec<(u64, Node)> = (512..POOL / BLOCK)
        .filter_map(|place| Some((place, Node::decode(&disk.peek(place * BLOCK, 4096)).ok()?.0)))
        .filter(|(place, node)| node.kind == kind && node.level == level && node.place.0 == *place)
        .collect();
    found.sort_by_key(|(_, n)| (n.family, n.position, std::cmp::Reverse(n.birth)));
    found.dedup_by_key(|(_, n)| (n.family, n.position));
    found
}

type Told<'a> = (&'a str, u64, u64, bool, bool, Vec<&'a str>);

fn told(findings: &ScrubFindings, kind: DamageKind) -> Vec<Told<'_>> {
    let tell = |d: &'_ ScrubDamage| d.kind == kind;
    let mut told: Vec<Told<'_>> = findings
        .damage
        .iter()
        .filter(|d| tell(d))
        .map(|d| {
            let mut snapshots: Vec<&str> = d.snapshots.iter().map(String::as_str).collect();
            snapshots.sort_unstable();
            (d.volume.as_str(), d.block, d.count, d.in_volume, d.in_staged, snapshots)
        })
        .collect();
    told.sort();
    told
}

#[test]
fn a_sound_pool_is_read_once_and_nothing_is_found() {
    let disk = pool(1);
    let pool = open(&disk);
    let in_use = pool.scrub_bytes();
    let before = disk.reads().1;
    let scrub = pool.begin_scrub().expect("it begins");
    let (findings, read) = finish(scrub);
    assert_eq!(findings, ScrubFindings::default());
    // Data of 790 + 30 blocks once, although several versions have most of it; nodes besides.
    let data = (400 + 300 + 50 + 10 + 20 + 10 + 10) * BLOCK;
    assert!(read >= data, "{read} of {data}");
    assert!(read < data + data / 2, "{read} bytes of {data} bytes of data, {in_use} in use");
    assert!(disk.reads().1 - before < 2 * read, "what is counted is what is read");
}

#[test]
fn damaged_data_is_named_by_volume_offset_and_the_snapshots_that_share_it() {
    let disk = pool(2);
    // Of all; of v, s2 and c, since s1... all have 350; of v and s2; of s2 alone; of v alone; of c alone; of w alone.
    let damage = [
        1_000_350, 1_000_351, 2_000_105, 2_000_121, 3_000_125, 3_900_003, 4_000_305, 5_000_003, 1_000_020,
        1_000_130,
    ];
    for stamp in damage {
        flip(&disk, place_of(&disk, stamp));
    }
    let pool = open(&disk);
    let findings = scrub(&pool);
    assert_eq!(findings.damaged_places, damage.len() as u64);
    assert!(findings.structures.is_empty() && findings.rewritten.is_empty());
    assert_eq!(
        told(&findings, DamageKind::Data),
        [
            ("c", 20, 1, true, false, vec![]),
            ("c", 130, 1, true, false, vec![]),
            ("c", 305, 1, true, false, vec![]),
            ("c", 350, 2, true, false, vec![]),
            ("v", 20, 1, true, false, vec!["s1", "s2"]),
            ("v", 105, 1, true, false, vec!["s2"]),
            ("v", 121, 1, false, false, vec!["s2"]),
            ("v", 125, 1, true, false, vec![]),
            ("v", 130, 1, false, false, vec!["s1"]),
            ("v", 350, 2, true, false, vec!["s1", "s2"]),
            ("v", 900_003, 1, true, false, vec![]),
            ("w", 3, 1, true, false, vec![]),
            ("w", 1020, 1, false, true, vec![]),
        ]
    );
    assert!(told(&findings, DamageKind::Map).is_empty());

    // What a host has overwritten is damaged no more, what a snapshot keeps is.
    write(&pool.open_volume("v").expect("it opens"), 350, 1, 7_000_000);
    write(&pool.open_volume("v").expect("it opens"), 900_003, 1, 7_000_000);
    let findings = scrub(&pool);
    let of_v: Vec<_> =
        told(&findings, DamageKind::Data).into_iter().filter(|t| t.0 == "v" && t.1 >= 300).collect();
    assert_eq!(
        of_v,
        [("v", 350, 1, false, false, vec!["s1", "s2"]), ("v", 351, 1, true, false, vec!["s1", "s2"])]
    );
}

#[test]
fn a_damaged_leaf_is_named_as_the_blocks_it_maps_and_all_else_is_read() {
    let disk = pool(3);
    let leaves = nodes(&disk, TreeKind::Volume, 1);
    // Blocks 50,000 and on of `v`, the same leaf in s1, s2 and c: leaf 390 has blocks 49,920 to 50,047.
    let leaf = leaves.iter().find(|(_, n)| n.position == 390).expect("a leaf");
    flip(&disk, leaf.0);
    flip(&disk, place_of(&disk, 1_050_100));
    let pool = open(&disk);
    let findings = scrub(&pool);
    assert_eq!(findings.damaged_places, 2);
    assert_eq!(
        told(&findings, DamageKind::Map),
        [("c", 49_920, 128, true, false, vec![]), ("v", 49_920, 128, true, false, vec!["s1", "s2"])]
    );
    assert_eq!(
        told(&findings, DamageKind::Data),
        [("c", 50_100, 1, true, false, vec![]), ("v", 50_100, 1, true, false, vec!["s1", "s2"])]
    );
    // A host writes all of it anew.
    write(&pool.open_volume("v").expect("it opens"), 49_920, 128, 8_000_000);
    let told_then = scrub(&pool);
    assert!(
        told(&told_then, DamageKind::Map).contains(&("v", 49_920, 128, false, false, vec!["s1", "s2"])),
        "{told_then:?}"
    );
}

#[test]
fn a_damaged_copy_of_an_inner_node_is_rewritten_from_the_other_and_both_are_named() {
    for (seed, first, second) in [(4, true, false), (5, false, true), (6, true, true)] {
        let disk = pool(seed);
        let inner = nodes(&disk, TreeKind::Volume, 2);
        // Of `v` and its snapshots: blocks 49,152 to 65,535.
        let (place, _) = *inner.iter().find(|(_, n)| n.position == 3).expect("an inner node");
        if first {
            flip(&disk, place);
        }
        if second {
            flip(&disk, place + TWIN_DISTANCE);
        }
        let pool = open(&disk);
        let findings = scrub(&pool);
        if first && second {
            assert_eq!(findings.damaged_places, 1);
            assert_eq!(
                told(&findings, DamageKind::Map),
                [
                    ("c", 49_152, 16_384, true, false, vec![]),
                    ("v", 49_152, 16_384, true, false, vec!["s1", "s2"])
                ]
            );
            continue;
        }
        assert!(findings.is_sound() && findings.damage.is_empty(), "{findings:?}");
        let bad = if first { place } else { place + TWIN_DISTANCE };
        assert_eq!(findings.rewritten, [format!("the map of a volume (pool block {bad})")]);
        assert!(Node::decode(&disk.peek(bad * BLOCK, 4096)).is_ok());
        assert_eq!(scrub(&pool), ScrubFindings::default(), "the next one finds nothing");
        drop(pool);
        let report = farside_check::check(&disk, &CheckOptions::default()).expect("a pool");
        assert!(report.findings.iter().all(|f| f.severity != Severity::Error), "{:?}", report.findings);
    }
}

#[test]
fn a_node_that_is_still_in_memory_is_rewritten_from_there() {
    let disk = pool(7);
    let pool = open(&disk);
    write(&pool.open_volume("w").expect("it opens"), 5, 1, 9_000_000);
    pool.consistency_point().expect("a point");
    let leaves = nodes(&disk, TreeKind::Volume, 1);
    let (place, _) = *leaves.iter().max_by_key(|(_, n)| n.birth).expect("a leaf");
    flip(&disk, place);
    let findings = scrub(&pool);
    assert_eq!((findings.damaged_places, findings.rewritten_copies), (0, 1), "{findings:?}");
    assert_eq!(scrub(&pool), ScrubFindings::default());
}

#[test]
fn a_damaged_superblock_is_rewritten_and_either_opens_the_pool_afterwards() {
    for slot in [0, 256] {
        let disk = pool(8);
        let pool = open(&disk);
        let mut scrubbing = pool.begin_scrub().expect("it begins");
        flip(&disk, slot);
        while scrubbing.step(&mut |_| {}).expect("a step") {}
        let findings = scrubbing.findings();
        assert!(findings.is_sound());
        assert_eq!(findings.rewritten.len(), 1, "{findings:?}");
        assert!(findings.rewritten[0].contains(&format!("superblock (pool block {slot})")), "{findings:?}");
        assert!(Superblock::decode(&disk.peek(slot * BLOCK, 4096)).is_ok());
        // The other one may go now.
        write(&pool.open_volume("v").expect("it opens"), 7, 1, 6_000_000);
        pool.flush().expect("a flush");
        drop(pool);
        let image = disk.image();
        flip(&image, 256 - slot);
        let pool = Pool::open(Arc::new(image), options(9)).expect("it opens from what was rewritten");
        let mut block = vec![0; 4096];
        pool.open_volume("v").expect("it opens").read(7 * BLOCK, &mut block).expect("it reads");
        assert_eq!(block, content(6_000_007));
        assert_eq!(scrub(&pool).rewritten_copies, 0, "the opening has rewritten the other");
    }
}

#[test]
fn damage_to_the_pools_own_trees_is_named_as_such() {
    for (kind, name) in [
        (TreeKind::Catalog, "the catalog"),
        (TreeKind::FreeMap, "the free map"),
        (TreeKind::OwnerCounts, "the owner counts"),
    ] {
        let disk = pool(10);
        let pool = open(&disk);
        let mut scrubbing = pool.begin_scrub().expect("it begins");
        // After the point with which it begins: a block below the newest leaf of that tree, which nobody has in memory.
        let leaves = nodes(&disk, kind, 1);
        let (_, leaf) = leaves.iter().max_by_key(|(_, n)| n.birth).expect("a leaf");
        let block = leaf.children.iter().find(|c| !c.is_hole()).expect("a block").place.0;
        flip(&disk, block);
        while scrubbing.step(&mut |_| {}).expect("a step") {}
        let findings = scrubbing.findings();
        assert_eq!(findings.damaged_places, 1, "{name}: {findings:?}");
        assert!(
            findings.structures[0].starts_with(&format!("{name} is damaged at pool block {block}")),
            "{findings:?}"
        );
    }
}

/// A device that refuses for a moment says nothing of the medium; one that says *unreadable* each time does.
#[test]
fn what_the_device_refuses_for_a_moment_is_not_called_damaged() {
    let disk = pool(11);
    let place = place_of(&disk, 1_000_200);
    let pool = open(&disk);
    disk.refuse_reads(place * BLOCK, 2, 5);
    assert_eq!(scrub(&pool), ScrubFindings::default());
    disk.refuse_reads(place * BLOCK, 1000, 61);
    let findings = scrub(&pool);
    assert_eq!(told(&findings, DamageKind::Data).len(), 2, "{findings:?}");
}

#[test]
fn after_a_kill_at_any_step_it_goes_on_and_finds_all_of_it() {
    let disk = pool(12);
    let damage = [1_000_350, 2_000_105, 3_000_125, 4_000_305, 1_050_250];
    for stamp in damage {
        flip(&disk, place_of(&disk, stamp));
    }
    let whole = scrub(&open(&disk.image()));
    assert_eq!(whole.damaged_places, damage.len() as u64);
    let all: BTreeSet<_> = told(&whole, DamageKind::Data).into_iter().collect();
    for steps in 0.. {
        let image = disk.image();
        let first = open(&image);
        let mut scrubbing = first.begin_scrub().expect("it begins").in_batches_of(100);
        let mut goes_on = true;
        for _ in 0..steps {
            goes_on = goes_on && scrubbing.step(&mut |_| {}).expect("a step");
        }
        let (position, findings, read) =
            (scrubbing.position(), scrubbing.findings().clone(), scrubbing.read_bytes());
        drop(scrubbing);
        drop(first);
        let second = open(&image);
        let (found, then) = finish(second.resume_scrub(position, findings).expect("it goes on"));
        assert_eq!(
            told(&found, DamageKind::Data).into_iter().collect::<BTreeSet<_>>(),
            all,
            "after {steps} steps"
        );
        // A batch is read once more, not all of it.
        let once = finish(open(&disk.image()).begin_scrub().expect("it begins")).1;
        assert!(
            read + then <= once + 2 * (1 << 20) + 200 * BLOCK,
            "after {steps} steps: {read} and {then}, once {once}"
        );
        if !goes_on {
            assert!(steps > 10, "it has steps: {steps}");
            break;
        }
    }
}

#[test]
fn what_it_holds_in_order_is_bounded() {
    let disk = SimulatedDisk::new("large", 256 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(13)).expect("a pool");
    pool.create_volume("v", (1 << 20) * BLOCK).expect("a volume");
    let v = pool.open_volume("v").expect("it opens");
    let mut random = SmallRng::seed_from_u64(13);
    for _ in 0..6000 {
        let block = random.random_range(0..1 << 20);
        v.write(block * BLOCK, &content(block)).expect("a write");
    }
    let mut scrubbing = pool.begin_scrub().expect("it begins").in_batches_of(500);
    let (mut most, mut batches) = (0, 0);
    while scrubbing.step(&mut |_| {}).expect("a step") {
        most = most.max(scrubbing.held_blocks());
        batches += u64::from(scrubbing.held_blocks() > 0);
    }
    assert!(batches > 8 && most <= 500 + 16_384, "{batches} steps with {most} blocks at most");
    // 6000 writes lie in 64 nodes of level 2 with about 94 blocks each.
    assert!(most < 500 + 200, "{most} blocks");
    assert_eq!(scrubbing.findings(), &ScrubFindings::default());
}

#[test]
fn an_empty_pool_is_scrubbed_too() {
    let disk = SimulatedDisk::new("empty", 16 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(14)).expect("a pool");
    assert_eq!(scrub(&pool), ScrubFindings::default());
    pool.create_volume("v", BLOCK).expect("a volume");
    assert_eq!(scrub(&pool), ScrubFindings::default());
}

#[test]
fn a_pool_that_accepts_no_changes_is_not_scrubbed_and_says_why() {
    let disk = pool(15);
    let pool = open(&disk);
    let mut scrubbing = pool.begin_scrub().expect("it begins");
    disk.fail_after(Some(0));
    write_may_fail(&pool);
    disk.fail_after(None);
    assert!(matches!(scrubbing.step(&mut |_| {}), Err(StoreError::Failed { .. })));
    assert!(pool.begin_scrub().is_err());
}

fn write_may_fail(pool: &Arc<Pool>) {
    let v = pool.open_volume("v").expect("it opens");
    let _ = v.write(0, &content(1));
    let _ = pool.flush();
    let _ = pool.consistency_point();
}

/// Hosts write, snapshots and clones come and go, consistency points follow each other: nothing of it is damage.
#[test]
fn while_everything_changes_nothing_is_called_damaged() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("p.pool");
    let device = FileDevice::create(&path, 192 << 20).expect("a file");
    let busy = PoolOptions {
        // Points as fast as they can be, so that places are used again at once.
        overlay_bytes: 32 << 10,
        node_cache_bytes: 512 << 10,
        ..PoolOptions::new(Arc::new(SystemClock::default()), Arc::new(OsRandomness))
    };
    let pool = Pool::create(Arc::new(device), busy).expect("a pool");
    let blocks = 4000;
    for volume in ["a", "b"] {
        pool.create_volume(volume, blocks * BLOCK).expect("a volume");
    }
    let seed = 16;
    let stop = AtomicBool::new(false);
    let (mut rounds, mut points) = (0, 0);
    std::thread::scope(|scope| {
        for (number, volume) in ["a", "b"].into_iter().enumerate() {
            let (pool, stop) = (&pool, &stop);
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(seed + number as u64);
                let handle = pool.open_volume(volume).expect("it opens");
                let mut stamp = 0;
                while !stop.load(Ordering::Relaxed) {
                    stamp += 1;
                    let first = random.random_range(0..blocks - 64);
                    let count = random.random_range(1..64);
                    for block in first..first + count {
                        match handle.write(block * BLOCK, &content(stamp)) {
                            Ok(()) | Err(StoreError::NoSpace { .. }) => {}
                            Err(error) => panic!("a write: {error}"),
                        }
                    }
                    if stamp % 8 == 0 {
                        pool.flush().expect("a flush");
                    }
                }
            });
        }
        let (pool, stop_snapshots) = (&pool, &stop);
        scope.spawn(move || {
            let mut number = 0;
            while !stop_snapshots.load(Ordering::Relaxed) {
                number += 1;
                for volume in ["a", "b"] {
                    let new = new_snapshot(&format!("s{number}"), 2 * number + u32::from(volume == "b"));
                    match pool.create_snapshots(&[(volume.into(), new)]) {
                        Ok(_) | Err(StoreError::NoSpace { .. }) => {}
                        Err(error) => panic!("a snapshot: {error}"),
                    }
                    let old: Vec<Uuid> =
                        pool.snapshots(volume).expect("snapshots").iter().map(|s| s.uuid).collect();
                    for uuid in &old[..old.len().saturating_sub(3)] {
                        pool.delete_snapshot(volume, *uuid).expect("deleted");
                    }
                }
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        let (pool, stop_scrubs) = (pool, &stop);
        let until = Instant::now() + Duration::from_secs(60);
        // Ends by what was done, not by time: a slow machine does as much, only later.
        while (rounds < 6 || points < 60) && Instant::now() < until {
            let begun = pool.counters.points.load(Ordering::Relaxed);
            let scrubbing = pool.begin_scrub().expect("it begins").in_batches_of(300);
            let (findings, _) = finish(scrubbing);
            if findings != ScrubFindings::default() {
                stop_scrubs.store(true, Ordering::Relaxed);
                panic!("round {rounds}, seed {seed}: {findings:?}");
            }
            rounds += 1;
            points += pool.counters.points.load(Ordering::Relaxed) - begun;
        }
        stop_scrubs.store(true, Ordering::Relaxed);
    });
    assert!(rounds > 0 && points > 0, "{rounds} scrubs, {points} points");
}

/// Between any two reads of the device hosts overwrite, snapshots come and go, and so many points follow that places are used again:
/// what was looked up a moment ago lies elsewhere then, and its place has something else. What is damaged is found, and nothing else.
#[test]
fn what_changes_between_two_reads_is_not_called_damaged_and_damage_is_not_missed() {
    // Every 50th block stays as it is, and is damaged.
    let stays = |number: u64| number % 50 == 7;
    for seed in 20..24 {
        let disk = SimulatedDisk::new("changing", 24 << 20).without_history();
        let pool = Pool::create(Arc::new(disk.clone()), options(seed)).expect("a pool");
        pool.create_volume("v", 40_000 * BLOCK).expect("a volume");
        let v = pool.open_volume("v").expect("it opens");
        let mut random = SmallRng::seed_from_u64(seed);
        for number in 0..1500 {
            v.write(number * 20 * BLOCK, &content(number)).expect("a write");
        }
        let (mut snapshots, mut stamp, mut asked) = (0, 1 << 32, 0);
        let mut scrubbing = pool.begin_scrub().expect("it begins").in_batches_of(400);
        let damaged: Vec<u64> = (0..1500).filter(|number| stays(*number)).collect();
        for place in 0..(24 << 20) / BLOCK {
            let bytes = disk.peek(place * BLOCK, 4096);
            if damaged.iter().any(|number| bytes == content(*number)) {
                flip(&disk, place);
            }
        }
        let mut goes_on = true;
        while goes_on {
            let step = scrubbing.step(&mut |_| {
                asked += 1;
                if random.random_range(0..4) == 0 {
                    snapshots += 1;
                    snapshot(&pool, "v", &format!("s{snapshots}"), snapshots);
                    let old = pool.snapshots("v").expect("snapshots");
                    for snapshot in &old[..old.len().saturating_sub(1)] {
                        pool.delete_snapshot("v", snapshot.uuid).expect("deleted");
                    }
                    pool.reap_all().expect("reaped");
                }
                // Now and then so much that all free places are taken in turn, which are some 2500.
                for _ in 0..random.random_range(0..2) * random.random_range(0..8) {
                    for _ in 0..600 {
                        stamp += 1;
                        let number = random.random_range(0..1500);
                        if !stays(number) {
                            v.write(number * 20 * BLOCK, &content(stamp)).expect("a write");
                        }
                    }
                    pool.consistency_point().expect("a point");
                }
            });
            goes_on = step.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
        let findings = scrubbing.findings();
        assert_eq!(findings.damaged_places, damaged.len() as u64, "seed {seed}, {asked} reads: {findings:?}");
        assert!(findings.structures.is_empty() && findings.rewritten.is_empty(), "seed {seed}: {findings:?}");
        let named: BTreeSet<u64> = findings.damage.iter().map(|d| d.block / 20).collect();
        assert_eq!(named, damaged.into_iter().collect(), "seed {seed}");
        assert!(findings.damage.iter().all(|d| d.count == 1 && d.kind == DamageKind::Data), "seed {seed}");
    }
}

/// All blocks were looked up, and before they are read all of them are overwritten and their places have something else.
#[test]
fn places_that_are_used_again_between_the_look_and_the_read_are_not_called_damaged() {
    let disk = SimulatedDisk::new("used-again", 24 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(30)).expect("a pool");
    pool.create_volume("v", 2000 * BLOCK).expect("a volume");
    let v = pool.open_volume("v").expect("it opens");
    write(&v, 0, 2000, 0);
    let mut scrubbing = pool.begin_scrub().expect("it begins");
    while scrubbing.held_blocks() == 0 {
        assert!(scrubbing.step(&mut |_| {}).expect("a step"));
    }
    assert_eq!(scrubbing.held_blocks(), 2000);
    let first = disk.peek(0, (24 << 20) as usize);
    for round in 1..=4 {
        write(&v, 0, 2000, round * 1_000_000);
        pool.consistency_point().expect("a point");
    }
    let now = disk.peek(0, (24 << 20) as usize);
    let old: BTreeSet<Vec<u8>> = (0..2000).map(content).collect();
    let is_used_again = |(a, b): &(&[u8], &[u8])| old.contains(*a) && a != b;
    let used_again = first.chunks_exact(4096).zip(now.chunks_exact(4096)).filter(is_used_again).count();
    assert!(used_again > 500, "{used_again} places are used again");
    assert_eq!(finish(scrubbing).0, ScrubFindings::default());
}

/// What a scrub costs, for people: `cargo test --release -p farside-store --test scrub -- --ignored --nocapture`. Its pool of 4 GiB lies
/// in the directory that TMPDIR names.
#[test]
#[ignore = "a measurement"]
fn what_a_scrub_costs() {
    let directory = tempfile::tempdir().expect("a directory");
    let device = FileDevice::create(&directory.path().join("p.pool"), 6 << 30).expect("a file");
    let pool = Pool::create(
        Arc::new(device),
        PoolOptions::new(Arc::new(SystemClock::default()), Arc::new(OsRandomness)),
    )
    .expect("a pool");
    let blocks = 1 << 20;
    pool.create_volume("v", blocks * BLOCK).expect("a volume");
    let v = pool.open_volume("v").expect("it opens");
    for first in (0..blocks).step_by(256) {
        let bytes: Vec<u8> = (first..first + 256).flat_map(content).collect();
        v.write(first * BLOCK, &bytes).expect("a write");
    }
    pool.flush().expect("a flush");
    let reads_within = |until: &dyn Fn() -> bool| {
        let (mut random, mut took) = (SmallRng::seed_from_u64(1), Vec::new());
        let begun = Instant::now();
        let mut block = vec![0; 4096];
        while !until() {
            let one = Instant::now();
            v.read(random.random_range(0..blocks) * BLOCK, &mut block).expect("a read");
            took.push(one.elapsed());
        }
        took.sort_unstable();
        let per_second = took.len() as f64 / begun.elapsed().as_secs_f64();
        (per_second, took[took.len() / 2], took[took.len() * 99 / 100], took[took.len() - 1])
    };
    for rate in [None, Some(64_u64 << 20), Some(u64::MAX)] {
        let stop = AtomicBool::new(false);
        let (reads, scrubbed) = std::thread::scope(|scope| {
            let scrubs = rate.map(|rate| {
                let (pool, stop) = (&pool, &stop);
                scope.spawn(move || {
                    let mut scrubbing = pool.begin_scrub().expect("it begins");
                    let (begun, mut read) = (Instant::now(), 0);
                    let mut pace = |bytes: u64| {
                        read += bytes;
                        let due = Duration::from_secs_f64(read as f64 / rate as f64);
                        std::thread::sleep(due.saturating_sub(begun.elapsed()));
                    };
                    while !stop.load(Ordering::Relaxed) && scrubbing.step(&mut pace).expect("a step") {}
                    scrubbing.read_bytes() as f64 / begun.elapsed().as_secs_f64() / f64::from(1 << 20)
                })
            });
            let until = Instant::now() + Duration::from_secs(15);
            let ended = || Instant::now() > until || scrubs.as_ref().is_some_and(|s| s.is_finished());
            let reads = reads_within(&ended);
            stop.store(true, Ordering::Relaxed);
            (reads, scrubs.map(|s| s.join().expect("scrubbed")))
        });
        println!(
            "scrub at {rate:?} B/s: {scrubbed:?} MiB/s; one host, 4 KiB at random: reads a second, median, 99 %, longest {reads:?}"
        );
    }
}
