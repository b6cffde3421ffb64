//! Side branches: what a volume showed before, kept whole; readers and walks meanwhile.

mod sparse;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farside_platform::{ManualClock, SeededRandomness, SimulatedDisk, Timestamp};
use farside_store::{
    ChangedBlocks, NewSnapshot, Pool, PoolOptions, ReplicaStatus, StoreError, VersionHandle,
};
use sparse::{BLOCK, content, new_snapshot, options, staged_for};
use uuid::Uuid;

fn pool_with(volume: &str, blocks: u64) -> (SimulatedDisk, Arc<Pool>) {
    let disk = SimulatedDisk::new("branches", 48 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(5)).expect("a pool");
    pool.create_volume(volume, blocks * BLOCK).expect("a volume");
    (disk, pool)
}

fn record(broken_off: bool) -> Option<ReplicaStatus> {
    Some(ReplicaStatus {
        relationship: Uuid::from_u128(1),
        peer: [1; 32],
        source: "far/v".into(),
        broken_off,
    })
}

fn write(pool: &Arc<Pool>, volume: &str, block: u64, stamp: u64) {
    let handle = pool.open_volume(volume).expect("it opens");
    handle.write(block * BLOCK, &content(stamp)).expect("a write");
}

fn stamp_at(handle: &VersionHandle, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    handle.read(block * BLOCK, &mut bytes).expect("it reads");
    bytes
}

fn snapshot(pool: &Arc<Pool>, volume: &str, name: &str, number: u32) -> Uuid {
    let made = pool.create_snapshots(&[(volume.into(), new_snapshot(name, number))]).expect("a snapshot");
    made[0].uuid
}

/// Publishes a version of a replica that differs in one block.
fn publish(pool: &Arc<Pool>, volume: &str, base: Option<Uuid>, number: u32) -> Uuid {
    let size = pool.volume(volume).expect("there").size_bytes;
    let staged = pool.stage(volume, base, size, staged_for(number)).expect("staged");
    staged.write(u64::from(number) * BLOCK, &content(number.into())).expect("a staged write");
    staged.commit(&new_snapshot(&format!("c{number}"), number)).expect("committed").uuid
}

fn is_clean(disk: &SimulatedDisk) -> bool {
    let report = farside_check::check(disk, &farside_check::CheckOptions::default()).expect("it runs");
    println!("{report}");
    report.is_clean()
}

#[test]
fn a_replica_that_nobody_wrote_leaves_no_rescue_even_when_what_it_shows_was_deleted() {
    let (disk, pool) = pool_with("v", 300);
    pool.set_replica("v", record(false)).expect("a replica");
    let first = publish(&pool, "v", None, 1);
    let second = publish(&pool, "v", Some(first), 2);
    pool.delete_snapshot("v", second).expect("it can go");
    pool.reap_all().expect("reaped: the head is a child of the first now");
    // The head remembers across an opening.
    pool.flush().expect("a flush");
    drop(pool);
    let pool = Pool::open(Arc::new(disk.clone()), options(6)).expect("it opens");
    let third = publish(&pool, "v", Some(first), 3);
    let names: Vec<_> = pool.snapshots("v").expect("a list").into_iter().map(|s| s.name).collect();
    assert_eq!(names, ["c1", "c3"]);
    pool.delete_snapshot("v", third).expect("it can go");
    pool.reap_all().expect("reaped");
    assert!(pool.move_main("v", first, None, None).expect("moved").is_none());
    assert!(is_clean(&disk));
}

#[test]
fn writes_that_were_only_in_a_deleted_snapshot_are_rescued() {
    for is_reaped in [false, true] {
        let (disk, pool) = pool_with("v", 300);
        write(&pool, "v", 1, 1);
        let first = snapshot(&pool, "v", "first", 1);
        write(&pool, "v", 2, 2);
        let second = snapshot(&pool, "v", "second", 2);
        // Unwritten since, but nothing else has block 2.
        pool.delete_snapshot("v", second).expect("it can go");
        if is_reaped {
            pool.reap_all().expect("reaped");
        }
        let rescued = pool.move_main("v", first, None, None).expect("moved").expect("a rescue");
        pool.reap_all().expect("reaped");
        let kept = pool.open_snapshot("v", &rescued.name).expect("a side branch opens");
        assert!(stamp_at(&kept, 1) == content(1) && stamp_at(&kept, 2) == content(2));
        let head = pool.open_volume("v").expect("it opens");
        assert!(stamp_at(&head, 1) == content(1) && stamp_at(&head, 2) == [0; 4096]);
        assert!(is_clean(&disk));
    }
}

#[test]
fn writes_that_only_a_mirrors_snapshot_beside_the_new_line_has_are_rescued() {
    let (disk, pool) = pool_with("v", 300);
    let mirror = Uuid::from_u128(0xa);
    let taken_for_mirror = |name: &str, number: u32| {
        let new =
            NewSnapshot { relationship: Some(mirror), pin_for: Some(mirror), ..new_snapshot(name, number) };
        pool.create_snapshots(&[("v".into(), new)]).expect("a snapshot")[0].uuid
    };
    write(&pool, "v", 1, 1);
    let base = taken_for_mirror("base", 1);
    write(&pool, "v", 2, 2);
    let update = taken_for_mirror("update", 2);
    // Unwritten since. The mirror that took the newer one lets it go once the volume stands on the older.
    let rescued = pool.move_main("v", base, None, None).expect("moved").expect("a rescue");
    pool.unpin_snapshot("v", update, mirror).expect("unpinned");
    pool.delete_snapshot("v", update).expect("it can go");
    pool.reap_all().expect("reaped");
    let kept = pool.open_snapshot("v", &rescued.name).expect("a side branch opens");
    assert!(stamp_at(&kept, 1) == content(1) && stamp_at(&kept, 2) == content(2));
    drop(kept);
    // What the new line has is not lost with the head.
    write(&pool, "v", 3, 3);
    let last = taken_for_mirror("last", 4);
    let before = pool.snapshots("v").expect("a list").len();
    publish(&pool, "v", Some(last), 5);
    assert_eq!(pool.snapshots("v").expect("a list").len(), before + 1, "no rescue");
    assert!(is_clean(&disk));
}

#[test]
fn moving_is_refused_under_a_writer_and_leaves_readers_of_a_replica_what_they_opened() {
    let (disk, pool) = pool_with("v", 300);
    write(&pool, "v", 1, 1);
    let first = snapshot(&pool, "v", "first", 1);
    write(&pool, "v", 1, 2);
    let writer = pool.open_volume("v").expect("it opens");
    let refused = pool.move_main("v", first, record(true), None).expect_err("somebody writes");
    assert!(
        matches!(&refused, StoreError::Refused(why) if why.contains("disconnect its clients")),
        "{refused}"
    );
    assert!(pool.volume("v").expect("there").replica.is_none(), "nothing was changed");
    drop(writer);
    let missing = pool.move_main("v", Uuid::from_u128(99), None, None).expect_err("no such snapshot");
    assert!(matches!(missing, StoreError::NotFound(_)), "{missing}");
    pool.set_replica("v", record(false)).expect("a replica");
    let reader = pool.open_volume("v").expect("it opens");
    let rescued = pool.move_main("v", first, record(true), None).expect("moved").expect("a rescue");
    assert!(pool.volume("v").expect("there").replica.expect("a record").broken_off);
    write(&pool, "v", 1, 3);
    pool.consistency_point().expect("a point");
    pool.delete_snapshot("v", rescued.uuid).expect("it can go");
    pool.reap_all().expect("reaped");
    assert!(stamp_at(&reader, 1) == content(2), "its version is kept while it reads");
    drop(reader);
    pool.reap_all().expect("reaped");
    pool.consistency_point().expect("a point");
    assert!(is_clean(&disk));
}

#[test]
fn going_back_and_forth_between_branches_takes_back_each_size() {
    let (disk, pool) = pool_with("v", 128);
    write(&pool, "v", 5, 5);
    let small = snapshot(&pool, "v", "small", 1);
    pool.resize_volume("v", 40_000 * BLOCK).expect("larger");
    write(&pool, "v", 39_999, 6);
    let large = snapshot(&pool, "v", "large", 2);
    for round in 0..4u64 {
        let (target, size) = if round.is_multiple_of(2) { (small, 128) } else { (large, 40_000) };
        pool.move_main("v", target, None, None).expect("moved");
        assert_eq!(pool.volume("v").expect("there").size_bytes, size * BLOCK);
        let lines: Vec<bool> =
            [small, large].map(|s| pool.snapshot("v", s).expect("there").on_main_line).into();
        assert_eq!(lines, [true, size == 40_000], "large descends from small");
        let changed = pool.changed_since("v", large).expect("a walk");
        let holes = u64::from(size == 128);
        assert_eq!(changed, ChangedBlocks { data_blocks: 0, hole_blocks: holes });
        write(&pool, "v", 7, 100 + round);
        if round == 1 {
            pool.consistency_point().expect("a point");
        }
    }
    // One rescue for each round but the first: what the round before wrote.
    let mut rescued = pool.snapshots("v").expect("a list");
    rescued.retain(|s| s.name.starts_with("rescue-"));
    assert_eq!(rescued.len(), 3);
    for (round, rescue) in rescued.iter().enumerate() {
        let handle = pool.open_snapshot("v", &rescue.name).expect("it opens");
        assert!(stamp_at(&handle, 7) == content(100 + round as u64) && !rescue.on_main_line);
    }
    assert!(is_clean(&disk));
}

/// Hosts write, points are made, heads are replaced and reaped, places are used again, while walks run over all of it.
#[test]
fn a_walk_over_a_volume_that_is_written_reads_nothing_that_was_used_again() {
    let (disk, pool) = pool_with("v", 1 << 22);
    let scattered = |round: u64, i: u64| (i * 131 + round) * 128 % (1 << 22);
    (0..600).for_each(|i| write(&pool, "v", scattered(0, i), i + 1));
    let first = snapshot(&pool, "v", "first", 1);
    let done = AtomicBool::new(false);
    let walks = std::thread::scope(|scope| {
        let walker = scope.spawn(|| {
            let mut walks = 0u64;
            while !done.load(Ordering::Acquire) {
                let changed = pool.changed_since("v", first).expect("a walk");
                assert!(changed.data_blocks <= 3000, "{changed:?}");
                walks += 1;
            }
            walks
        });
        for round in 1..12u64 {
            (0..120).for_each(|i| write(&pool, "v", scattered(round % 3, i), round * 1000 + i));
            if round.is_multiple_of(4) {
                // Under a walk, but not in the way of anybody.
                let rescued = pool.move_main("v", first, None, None).expect("moved").expect("it was written");
                pool.delete_snapshot("v", rescued.uuid).expect("it can go");
            }
            pool.reap_step_within(200).expect("a step");
            pool.consistency_point().expect("a point");
        }
        done.store(true, Ordering::Release);
        walker.join().expect("no walk failed")
    });
    println!("{walks} walks");
    assert!(walks > 0);
    pool.reap_all().expect("reaped");
    pool.consistency_point().expect("a point");
    let now = pool.changed_since("v", first).expect("a walk");
    let head = Arc::new(pool.open_volume("v").expect("it opens"));
    let base = Arc::new(pool.open_snapshot("v", "first").expect("it opens"));
    let counted: u64 = head.difference_from(Some(base)).map(|r| r.expect("a step").count).sum();
    assert_eq!(now.data_blocks + now.hole_blocks, counted);
    assert!(is_clean(&disk));
}

#[test]
fn what_is_asked_of_metadata_is_bounded() {
    let (_, pool) = pool_with("v", 300);
    write(&pool, "v", 130, 1);
    snapshot(&pool, "v", "first", 1);
    let first = pool.open_snapshot("v", "first").expect("it opens");
    let found = first.fingerprints(129, 1000).expect("fingerprints");
    assert!(found.len() == 1000 && found.iter().filter(|f| !f.is_hole()).count() == 1 && !found[1].is_hole());
    for (from, count) in [(0, farside_store::FINGERPRINTS_MAX + 1), (u64::MAX, 2), (1 << 42, 1)] {
        assert!(matches!(first.fingerprints(from, count), Err(StoreError::Invalid(_))));
    }
}

#[test]
fn a_staged_version_ends_with_its_handle_refused() {
    let (_, pool) = pool_with("v", 300);
    let staged = pool.stage("v", None, 300 * BLOCK, staged_for(1)).expect("staged");
    let again = pool.staged("v").expect("a list").pop().expect("it is listed");
    again.resize(10 * BLOCK).expect("smaller");
    let past = staged.write(20 * BLOCK, &content(1)).expect_err("past its end");
    assert!(matches!(past, StoreError::Invalid(_)), "{past}");
    staged.abandon().expect("abandoned");
    assert!(pool.staged("v").expect("a list").is_empty());
    let calls: [Result<(), StoreError>; 5] = [
        again.resize(BLOCK),
        again.retarget(Uuid::from_u128(1)),
        again.changed_from(None).map(drop),
        again.fingerprints(0, 1).map(drop),
        again.status().map(drop),
    ];
    assert!(calls.iter().all(|c| matches!(c, Err(StoreError::Refused(_)))), "{calls:?}");
}

#[test]
fn what_a_mirror_published_is_kept_when_the_main_line_leaves_it() {
    let (_, pool) = pool_with("v", 16);
    let mirror = Uuid::from_u128(77);
    let publish = |name: &str, number: u32, base: Option<Uuid>| {
        let staged = pool.stage("v", base, 16 * BLOCK, staged_for(number)).expect("staged");
        staged.write(0, &content(u64::from(number))).expect("written");
        let new = NewSnapshot { relationship: Some(mirror), ..new_snapshot(name, number) };
        staged.commit(&new).expect("published").uuid
    };
    let first = publish("first", 1, None);
    let second = publish("second", 2, Some(first));
    let rescued =
        pool.move_main("v", first, None, None).expect("moved").expect("the mirror may delete its own");
    pool.delete_snapshot("v", second).expect("as the mirror does");
    let handle = pool.open_snapshot("v", &rescued.name).expect("it opens");
    let mut found = vec![0; BLOCK as usize];
    handle.read(0, &mut found).expect("read");
    assert_eq!(found, content(2));
    // An update on the line that is shown leaves nothing behind.
    publish("third", 3, Some(first));
    assert_eq!(pool.snapshots("v").expect("a list").iter().filter(|s| !s.on_main_line).count(), 1);
}

#[test]
fn a_reader_keeps_what_it_reads_and_is_in_nobodys_way() {
    let (disk, pool) = pool_with("v", 4096);
    let empty = pool.status().free_bytes;
    (0..1000).for_each(|block| write(&pool, "v", block, block + 1));
    let [first, second] = [1, 2].map(|n| snapshot(&pool, "v", &format!("s{n}"), n));
    (0..1000).for_each(|block| write(&pool, "v", block, block + 5000));
    let [of_first, of_second] = [first, second].map(|uuid| pool.snapshot_reader("v", uuid).expect("there"));
    pool.delete_snapshot("v", first).expect("a snapshot that is read can go");
    assert_eq!([&of_first, &of_second].map(|reader| reader.is_deleted().expect("known")), [true, false]);
    assert!(matches!(pool.snapshot_reader("v", first), Err(StoreError::NotFound(_))));
    let open = pool.open_snapshot_by_uuid("v", second).expect("it opens");
    assert!(matches!(pool.delete_volume("v"), Err(StoreError::Refused(_))), "a client has it open");
    drop(open);
    pool.delete_volume("v").expect("a volume of which a snapshot is read can go");
    assert!(of_second.is_deleted().expect("known"));
    // Another may have its name.
    pool.create_volume("v", 4096 * BLOCK).expect("a volume");
    for reader in [of_first, of_second] {
        pool.reap_all().expect("reaped");
        (0..3).for_each(|_| pool.consistency_point().expect("a point"));
        (0..1000).for_each(|block| write(&pool, "v", block, block + 9000));
        let mut bytes = vec![0; BLOCK as usize];
        for block in 0..1000 {
            reader.read(block * BLOCK, &mut bytes).expect("it reads");
            assert!(bytes == content(block + 1), "block {block}");
        }
        assert!(matches!(reader.read(reader.size_bytes(), &mut bytes), Err(StoreError::Invalid(_))));
    }
    pool.delete_volume("v").expect("nobody has it open");
    pool.reap_all().expect("reaped");
    (0..3).for_each(|_| pool.consistency_point().expect("a point"));
    // All of it has come back, but for what the pool writes about itself.
    assert!(pool.status().free_bytes + 64 * BLOCK > empty, "{:?}", pool.status());
    assert!(is_clean(&disk));
}

/// A replica's line from which a side branch goes off: what both began as, two points of the branch that hold the same, and what is
/// published instead.
fn forked(pool: &Arc<Pool>, blocks: u64) -> (Uuid, [Uuid; 2], Uuid) {
    let size = pool.volume("v").expect("there").size_bytes;
    pool.set_replica("v", record(false)).expect("recorded");
    let publish = |base: Option<Uuid>, number: u32, stamp: Option<u64>| {
        let staged = pool.stage("v", base, size, staged_for(number)).expect("staged");
        for block in 0..blocks {
            if let Some(stamp) = stamp {
                staged.write(block * BLOCK, &content(stamp + block)).expect("a staged write");
            }
        }
        staged.commit(&new_snapshot(&format!("c{number}"), number)).expect("committed").uuid
    };
    let origin = publish(None, 1, Some(1000));
    pool.consistency_point().expect("a point");
    let first = publish(Some(origin), 2, Some(2000));
    let second = publish(Some(first), 3, None);
    (origin, [first, second], publish(Some(origin), 4, Some(3000)))
}

#[test]
fn what_a_branch_was_kept_for_comes_free_without_another_write() {
    let clock = Arc::new(ManualClock::new(Timestamp(1_800_000_000_000_000_000)));
    let with_thread = PoolOptions {
        background: true,
        overlay_bytes: 16 << 20,
        ..PoolOptions::new(clock.clone(), Arc::new(SeededRandomness::new(5)))
    };
    let disk = SimulatedDisk::new("branches", 48 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), with_thread).expect("a pool");
    pool.create_volume("v", 1024 * BLOCK).expect("a volume");
    let blocks = 512;
    let (origin, side, _) = forked(&pool, blocks);
    for snapshot in [origin, side[0], side[1]] {
        pool.delete_snapshot("v", snapshot).expect("deleted");
    }
    let until = Instant::now() + Duration::from_secs(30);
    while pool.volume("v").expect("there").occupied_bytes != blocks * BLOCK {
        assert!(Instant::now() < until, "{:?}", pool.volume("v"));
        clock.advance(Duration::from_secs(1));
        std::thread::sleep(Duration::from_millis(50));
    }
    pool.close().expect("closed");
    drop(pool);
    assert!(is_clean(&disk));
}

#[test]
fn what_deleting_a_point_frees_is_told_by_those_before_and_after_it_on_its_line() {
    let (_, pool) = pool_with("v", 64);
    let (origin, side, main) = forked(&pool, 16);
    let alone = |uuid| {
        let found = pool.snapshot_in_line("v", uuid).expect("there");
        let least = found.differences.into_iter().map(|d| d.map(|r| r.expect("read").count).sum::<u64>());
        (least.min().expect("one at least"), found.heirs, found.branches)
    };
    // The main line and the branch go on from it.
    assert_eq!(alone(origin), (16, 2, vec!["c2".to_owned()]));
    assert_eq!(alone(side[0]), (0, 1, vec![]));
    assert_eq!(alone(side[1]), (0, 0, vec![]), "the point before it holds the same");
    assert_eq!(alone(main), (0, 1, vec![]), "what is shown is the same");
    // Deleted, the origin stays on the medium, and the branch is told from it.
    pool.delete_snapshot("v", origin).expect("deleted");
    pool.delete_snapshot("v", side[0]).expect("deleted");
    assert_eq!(alone(side[1]), (16, 0, vec![]), "before what was deleted is gone");
    pool.reap_all().expect("reaped");
    assert_eq!(alone(side[1]), (16, 0, vec![]));
}
