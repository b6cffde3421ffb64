//! Data blocks with several owners: how they come to be, and each way in which one of the owners goes. After every step the
//! offline checker counts the owners of every place anew.

mod sparse;

use std::sync::Arc;

use farside_format::{Fingerprint, Node, Superblock};
use farside_platform::{CrashFate, SimulatedDisk};
use farside_store::{Pool, StagedVersion, StoreError, VersionHandle};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use sparse::{BLOCK, content, new_snapshot, options, staged_for};

const POOL: u64 = 24 << 20;
const V_BLOCKS: u64 = 600;

/// A pool with volume `v` full of distinct blocks, of which `v@s` is a snapshot, and an empty volume `w`.
fn pool_with_data() -> (SimulatedDisk, Arc<Pool>) {
    let disk = SimulatedDisk::new("sharing", POOL);
    let pool = Pool::create(Arc::new(disk.clone()), options(5)).expect("a pool");
    pool.create_volume("v", V_BLOCKS * BLOCK).expect("a volume");
    pool.create_volume("w", V_BLOCKS * BLOCK).expect("a volume");
    let handle = pool.open_volume("v").expect("it opens");
    for block in 0..V_BLOCKS {
        handle.write(block * BLOCK, &content(block + 1)).expect("a write");
    }
    pool.create_snapshots(&[("v".into(), new_snapshot("s", 1))]).expect("a snapshot");
    (disk, pool)
}

fn stage(pool: &Arc<Pool>, number: u32) -> StagedVersion {
    pool.stage("w", None, V_BLOCKS * BLOCK, staged_for(number)).expect("staged")
}

fn share(staged: &StagedVersion, to: u64, handle: &VersionHandle, from: u64, count: u64) -> u64 {
    let expected = handle.fingerprints(from, count).expect("fingerprints");
    staged.share(to, handle, from, &expected).expect("a share")
}

/// The pool as a crash leaves it once all that was answered is flushed, checked as it is and opened.
fn check(disk: &SimulatedDisk, pool: &Pool, what: &str) {
    pool.flush().expect("a flush");
    let image = disk.crash_at(disk.events(), CrashFate::DropUnsynced).without_history();
    let report = farside_check::check(&image, &farside_check::CheckOptions::default()).expect("it runs");
    assert!(report.is_clean(), "{what}: {report}");
    // Opening replays the journal and writes the counts down.
    drop(Pool::open(Arc::new(image.clone()), options(6)).unwrap_or_else(|e| panic!("{what}: {e}")));
    let report = farside_check::check(&image, &farside_check::CheckOptions::default()).expect("it runs");
    assert!(report.is_clean(), "{what}, opened: {report}");
}

fn assert_reads(handle: &VersionHandle, first: u64, stamps: impl IntoIterator<Item = u64>, what: &str) {
    let mut block = vec![0; BLOCK as usize];
    for (at, stamp) in (first..).zip(stamps) {
        handle.read(at * BLOCK, &mut block).unwrap_or_else(|e| panic!("{what}: {e}"));
        let expected = if stamp == 0 { vec![0; BLOCK as usize] } else { content(stamp) };
        assert!(block == expected, "{what}: block {at}");
    }
}

#[test]
fn shared_blocks_cost_no_data_and_read_the_same() {
    let (disk, pool) = pool_with_data();
    let snapshot = pool.open_snapshot("v", "s").expect("it opens");
    pool.consistency_point().expect("a point");
    pool.consistency_point().expect("a point");
    let free = pool.status().free_bytes;
    let written = pool.counters.written_bytes.load(std::sync::atomic::Ordering::Relaxed);
    let staged = stage(&pool, 1);
    // Across two borders of aligned MiBs.
    assert_eq!(share(&staged, 10, &snapshot, 5, 590), 590);
    assert_eq!(pool.status().shared_blocks, 590);
    assert_eq!(pool.status().shared_saves_bytes, 590 * BLOCK);
    // Another owner of some of them, elsewhere; and of the same version, in the place of one that was there.
    assert_eq!(share(&staged, 12, &snapshot, 300, 8), 8);
    assert_eq!(
        pool.status().shared_blocks,
        582,
        "blocks 7 to 14 have one owner again, 300 to 307 have three"
    );
    assert_eq!(pool.status().shared_saves_bytes, 590 * BLOCK);
    check(&disk, &pool, "staged");
    assert_eq!(
        pool.counters.written_bytes.load(std::sync::atomic::Ordering::Relaxed),
        written,
        "no data written"
    );
    pool.consistency_point().expect("a point");
    pool.consistency_point().expect("a point");
    let cost = free - pool.status().free_bytes;
    assert!(cost < 40 * BLOCK, "590 blocks of data cost {cost} bytes");
    staged.commit(&new_snapshot("one", 2)).expect("committed");
    let stamps: Vec<u64> = std::iter::repeat_n(0, 10).chain(6..8).chain(301..309).chain(16..596).collect();
    let assert_all = |pool: &Arc<Pool>, what: &str| {
        assert_reads(&pool.open_volume("w").expect("it opens"), 0, stamps.clone(), what);
        assert_reads(&pool.open_snapshot("v", "s").expect("it opens"), 0, 1..=V_BLOCKS, what);
    };
    assert_all(&pool, "committed");
    check(&disk, &pool, "committed");
    drop(snapshot);
    pool.close().expect("closed");
    drop((pool, staged));
    let pool = Pool::open(Arc::new(disk.image()), options(7)).expect("it opens");
    assert_all(&pool, "reopened");
    assert_eq!((pool.status().shared_blocks, pool.status().shared_saves_bytes), (582, 590 * BLOCK));
}

/// One way in which an owner of blocks 100 to 139 of `v` goes.
#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    Overwritten,
    Trimmed,
    CutByATrimOfAll,
    CutByAResize,
    Deleted,
}

/// Owners go one by one in random order, each in its own way, with and without points in between: the others read on, the
/// counts are right after each, and with the last the space comes back.
#[test]
fn owners_go_in_every_way_and_order() {
    use End::*;
    let seeds = std::env::var("FARSIDE_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(6);
    for seed in 1..=seeds {
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut maybe_point = {
            let mut points = SmallRng::seed_from_u64(seed ^ 0xabc);
            move |pool: &Pool| {
                if points.random_bool(0.4) {
                    pool.consistency_point().expect("a point");
                }
            }
        };
        let (disk, pool) = pool_with_data();
        let source = pool.open_snapshot("v", "s").expect("it opens");
        // Five volumes that have the blocks at other positions each, as committed or as still staged versions.
        let ends = [Overwritten, Trimmed, CutByATrimOfAll, CutByAResize, Deleted];
        let mut owners: Vec<(usize, End, Option<StagedVersion>)> = Vec::new();
        for (n, end) in ends.into_iter().enumerate() {
            let name = format!("o{n}");
            pool.create_volume(&name, V_BLOCKS * BLOCK).expect("a volume");
            let staged = pool.stage(&name, None, V_BLOCKS * BLOCK, staged_for(n as u32)).expect("staged");
            assert_eq!(share(&staged, 60 * n as u64 + 30, &source, 100, 40), 40);
            maybe_point(&pool);
            let stays_staged = rng.random_bool(0.5);
            if !stays_staged {
                staged.commit(&new_snapshot("c", 100 + n as u32)).expect("committed");
            }
            maybe_point(&pool);
            owners.push((n, end, stays_staged.then_some(staged)));
        }
        drop(source);
        check(&disk, &pool, &format!("seed {seed}: all owners"));
        owners.shuffle(&mut rng);
        let first_goes_at = rng.random_range(0..=owners.len());
        for at in 0..=owners.len() {
            if at == first_goes_at {
                // The one that wrote them.
                let uuid = pool.snapshot_named("v", "s").expect("there").uuid;
                pool.delete_snapshot("v", uuid).expect("deleted");
                pool.delete_volume("v").expect("deleted");
            }
            maybe_point(&pool);
            pool.reap_step_within(2).expect("a step");
            if let Some((n, end, staged)) = owners.get(at) {
                let (name, first) = (format!("o{n}"), 60 * *n as u64 + 30);
                go(&pool, &name, first, *end, staged.as_ref());
            }
            maybe_point(&pool);
            if rng.random_bool(0.5) {
                pool.reap_all().expect("reaping");
            }
            let what = format!(
                "seed {seed}: after {:?}, at {first_goes_at} the first",
                &owners.get(at).map(|o| o.1)
            );
            check(&disk, &pool, &what);
            for (n, _, staged) in owners.iter().skip(at + 1) {
                let mut bytes = vec![0; 40 * BLOCK as usize];
                let offset = (60 * *n as u64 + 30) * BLOCK;
                match staged {
                    Some(staged) => staged.read(offset, &mut bytes).expect("it reads"),
                    None => {
                        let handle = pool.open_volume(&format!("o{n}")).expect("it opens");
                        handle.read(offset, &mut bytes).expect("it reads");
                    }
                }
                let expected: Vec<u8> = (101..141).flat_map(content).collect();
                assert!(bytes == expected, "{what}: owner {n}");
            }
        }
        drop(owners);
        for volume in pool.volumes() {
            pool.delete_volume(&volume.name).expect("deleted");
        }
        pool.reap_all().expect("reaping");
        assert_eq!(pool.status().shared_blocks, 0, "seed {seed}");
        assert_eq!(pool.status().shared_saves_bytes, 0, "seed {seed}");
        check(&disk, &pool, &format!("seed {seed}: emptied"));
        for _ in 0..3 {
            pool.consistency_point().expect("a point");
        }
        let status = pool.status();
        let used = status.size_bytes - status.free_bytes - status.reserved_bytes;
        assert!(used < (512 + 1024 + 32) * BLOCK, "seed {seed}: {used} bytes are in use by nothing");
    }
}

fn go(pool: &Arc<Pool>, name: &str, first: u64, end: End, staged: Option<&StagedVersion>) {
    if let Some(staged) = staged {
        match end {
            End::Overwritten => staged.write(first * BLOCK, &content(7).repeat(40)).expect("a write"),
            End::Trimmed => staged.discard(first * BLOCK, 40 * BLOCK).expect("a discard"),
            End::CutByATrimOfAll => staged.discard(0, V_BLOCKS * BLOCK).expect("a discard"),
            End::CutByAResize => staged.resize(20 * BLOCK).expect("a resize"),
            End::Deleted => staged.abandon().expect("abandoned"),
        }
        return;
    }
    // The snapshot that was committed holds the blocks too, by descent: one owner for both.
    let uuid = pool.snapshot_named(name, "c").expect("there").uuid;
    if end == End::Deleted {
        return pool.delete_volume(name).expect("deleted");
    }
    pool.delete_snapshot(name, uuid).expect("deleted");
    let head = pool.open_volume(name).expect("it opens");
    match end {
        End::Overwritten => head.write(first * BLOCK, &content(7).repeat(40)).expect("a write"),
        End::Trimmed => head.trim(first * BLOCK, 40 * BLOCK).expect("a trim"),
        End::CutByATrimOfAll => head.write_zeroes(0, V_BLOCKS * BLOCK).expect("zeroes"),
        End::CutByAResize => {
            drop(head);
            pool.resize_volume(name, 20 * BLOCK).expect("a resize");
        }
        End::Deleted => unreachable!("dealt with above"),
    }
}

#[test]
fn what_the_source_holds_no_more_is_not_shared() {
    let (disk, pool) = pool_with_data();
    let head = pool.open_volume("v").expect("it opens");
    let expected = head.fingerprints(0, 20).expect("fingerprints");
    let staged = stage(&pool, 1);
    head.write(7 * BLOCK, &content(9999)).expect("a write");
    assert_eq!(staged.share(0, &head, 0, &expected).expect("a share"), 7);
    assert_eq!(staged.share(8, &head, 8, &expected[8..]).expect("a share"), 12);
    // A hole is one there too, and has no owners.
    head.trim(31 * BLOCK, BLOCK).expect("a trim");
    assert_eq!(share(&staged, 8, &head, 30, 3), 3);
    assert_eq!(staged.share(9, &head, 30, &[Fingerprint::HOLE]).expect("a share"), 0);
    let mut seen = vec![0; 3 * BLOCK as usize];
    staged.read(8 * BLOCK, &mut seen).expect("it reads");
    assert!(seen == [content(31), vec![0; BLOCK as usize], content(33)].concat());
    assert_eq!(share(&staged, 8, &head, 8, 3), 3);
    // Past the end of the source there is nothing.
    assert_eq!(
        staged
            .share(40, &head, V_BLOCKS - 1, &[Fingerprint::of_block(&content(V_BLOCKS)); 2])
            .expect("a share"),
        1
    );
    // Nor is anything of a version that was deleted, though it is open and reads.
    let snapshot = pool.open_snapshot("v", "s").expect("it opens");
    let uuid = pool.snapshot_named("v", "s").expect("there").uuid;
    pool.delete_snapshot("v", uuid).expect("deleted");
    assert_eq!(share(&staged, 100, &snapshot, 0, 5), 0);
    assert_eq!(pool.status().shared_blocks, 20);
    drop(snapshot);
    check(&disk, &pool, "at the end");
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let (disk, pool) = pool_with_data();
    let head = pool.open_volume("v").expect("it opens");
    let expected = head.fingerprints(0, 4).expect("fingerprints");
    let staged = stage(&pool, 1);
    let invalid = |result: Result<u64, StoreError>| {
        let error = result.expect_err("refused");
        assert!(matches!(error, StoreError::Invalid(_)), "{error}");
    };
    invalid(staged.share(V_BLOCKS - 3, &head, 0, &expected));
    invalid(staged.share(u64::MAX - 1, &head, 0, &expected));
    invalid(staged.share(0, &head, u64::MAX - 1, &expected));
    let (_, other) = pool_with_data();
    invalid(staged.share(0, &other.open_volume("v").expect("it opens"), 0, &expected));
    staged.abandon().expect("abandoned");
    let error = staged.share(0, &head, 0, &expected).expect_err("refused");
    assert!(matches!(error, StoreError::Refused(_)), "{error}");
    assert_eq!(pool.status().shared_blocks, 0);
    check(&disk, &pool, "at the end");
}

/// A block gets 256 owners and no more. What was reaped since the last point is not reaped in a replay: there the count
/// goes beyond what the running pool ever had.
#[test]
fn the_limit_of_owners_stops_sharing_and_no_replay() {
    let disk = SimulatedDisk::new("sharing", POOL);
    let pool = Pool::create(Arc::new(disk.clone()), options(5)).expect("a pool");
    pool.create_volume("v", BLOCK).expect("a volume");
    pool.create_volume("w", V_BLOCKS * BLOCK).expect("a volume");
    let head = pool.open_volume("v").expect("it opens");
    head.write(0, &content(1)).expect("a write");
    let expected = head.fingerprints(0, 1).expect("fingerprints");
    let fill = |staged: &StagedVersion| {
        (0..V_BLOCKS)
            .take_while(|block| staged.share(*block, &head, 0, &expected).expect("a share") == 1)
            .count()
    };
    let first = stage(&pool, 1);
    assert_eq!(fill(&first), 255);
    assert_eq!((pool.status().shared_blocks, pool.status().shared_saves_bytes), (1, 255 * BLOCK));
    check(&disk, &pool, "255 shares");
    pool.consistency_point().expect("a point");
    for number in 2..4 {
        for staged in pool.staged("w").expect("a list") {
            staged.abandon().expect("abandoned");
        }
        pool.reap_all().expect("reaping");
        assert_eq!(pool.status().shared_blocks, 0);
        assert_eq!(fill(&stage(&pool, number)), 255);
    }
    check(&disk, &pool, "765 shares in one journal");
    // One that goes makes room for one.
    let staged = pool.staged("w").expect("a list").pop().expect("one");
    assert_eq!(staged.share(300, &head, 0, &expected).expect("a share"), 0);
    staged.discard(0, BLOCK).expect("a discard");
    assert_eq!(staged.share(300, &head, 0, &expected).expect("a share"), 1);
    check(&disk, &pool, "at the end");
}

#[test]
fn a_damaged_block_fails_for_each_owner_and_a_whole_write_heals_one() {
    let (disk, pool) = pool_with_data();
    let head = pool.open_volume("v").expect("it opens");
    let staged = stage(&pool, 1);
    assert_eq!(share(&staged, 0, &head, 0, 4), 4);
    staged.commit(&new_snapshot("c", 2)).expect("committed");
    let needle = content(3);
    let place = (0..POOL / BLOCK)
        .find(|place| disk.peek(place * BLOCK, BLOCK as usize) == needle)
        .expect("the block lies somewhere, once");
    disk.damage(place * BLOCK + 8, &[0xEE]);
    let other = pool.open_volume("w").expect("it opens");
    let mut block = vec![0; BLOCK as usize];
    for handle in [&head, &other] {
        let error = handle.read(2 * BLOCK, &mut block).expect_err("damaged");
        assert!(matches!(error, StoreError::CorruptBlock { block: 2, .. }), "{error}");
    }
    head.write(2 * BLOCK, &content(3)).expect("a whole write");
    head.read(2 * BLOCK, &mut block).expect("healed");
    other.read(2 * BLOCK, &mut block).expect_err("still damaged here");
}

/// Whatever the owner counts of the newest point turn into, the older point's and the journal lead to the same counts.
#[test]
fn damaged_counts_of_the_newest_point_lose_nothing() {
    let (disk, pool) = pool_with_data();
    let head = pool.open_volume("v").expect("it opens");
    let staged = stage(&pool, 1);
    assert_eq!(share(&staged, 0, &head, 0, 50), 50);
    pool.consistency_point().expect("a point");
    assert_eq!(share(&staged, 100, &head, 20, 50), 50);
    staged.discard(0, 10 * BLOCK).expect("a discard");
    pool.consistency_point().expect("a point");
    assert_eq!(share(&staged, 200, &head, 40, 10), 10);
    pool.flush().expect("a flush");
    let expected = (pool.status().shared_blocks, pool.status().shared_saves_bytes);
    assert_eq!(expected, (60, 100 * BLOCK), "blocks 10 to 69, 20 to 49 twice, and ten of them thrice");
    let slots = [0, 256].map(|slot| {
        Superblock::decode(&disk.peek(slot * BLOCK, BLOCK as usize)).expect("a sound superblock")
    });
    let newest = slots.iter().max_by_key(|s| s.generation).expect("two");
    let root = newest.owner_counts.root;
    let leaf = Node::decode(&disk.peek(root.place.0 * BLOCK, BLOCK as usize)).expect("a leaf").0;
    let block = leaf.children.iter().find(|c| !c.is_hole()).expect("a block of counts");
    for place in [root.place.0, block.place.0] {
        let image = disk.image().without_history();
        image.damage(place * BLOCK + 700, &[0xEE]);
        let opened = Pool::open(Arc::new(image.clone()), options(6)).expect("the older point serves");
        assert!(opened.status().failed.is_none());
        assert_eq!((opened.status().shared_blocks, opened.status().shared_saves_bytes), expected);
        drop(opened);
        let report = farside_check::check(&image, &farside_check::CheckOptions::default()).expect("it runs");
        assert!(report.is_clean(), "{report}");
    }
}

/// Metadata of a large pool as it lies there now; answers how many blocks have several owners.
fn assert_clean(disk: &SimulatedDisk, pool: &Pool) -> u64 {
    pool.consistency_point().expect("a point");
    let options = farside_check::CheckOptions { read_data: false, ..Default::default() };
    let report = farside_check::check(disk, &options).expect("it runs");
    assert!(report.is_clean(), "{report}");
    report.shared_blocks
}

/// Sharing in a pool without room: it is refused before a consistency point could miss what the counts cost.
#[test]
fn a_full_pool_shares_within_its_means() {
    // 144 blocks of counts: two leaves and an inner node.
    let disk = SimulatedDisk::new("full", 576 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(5)).expect("a pool");
    pool.create_volume("v", 1 << 40).expect("a volume");
    pool.create_volume("w", 1 << 40).expect("a volume");
    let head = pool.open_volume("v").expect("it opens");
    let mut bytes = Vec::new();
    let mut written = 0;
    // All over the pool, until it is full.
    loop {
        bytes.clear();
        (0..256u64).for_each(|i| bytes.extend_from_slice(&content(written + i + 1)));
        match head.write(written * BLOCK, &bytes) {
            Ok(()) => written += 256,
            Err(StoreError::NoSpace { .. }) => break,
            Err(e) => panic!("a write: {e}"),
        }
    }
    let staged = |number| pool.stage("w", None, 1 << 40, staged_for(number));
    // Nothing for a transfer in a pool that hosts have filled.
    let expected = head.fingerprints(0, 1).expect("fingerprints");
    let refused = staged(1).and_then(|s| s.share(0, &head, 0, &expected)).expect_err("no room");
    assert!(matches!(refused, StoreError::NoSpace { .. }), "{refused}");
    // With some room: one block of each MiB, so that each costs a block of counts of its own.
    head.trim(0, written / 16 * BLOCK).expect("a trim");
    pool.consistency_point().expect("a point");
    let staged = staged(2).expect("staged");
    let mut shared = 0;
    for at in (written / 16 + 1..written).step_by(257) {
        let expected = head.fingerprints(at, 1).expect("fingerprints");
        match staged.share(at << 8, &head, at, &expected) {
            Ok(count) => shared += count,
            Err(StoreError::NoSpace { .. }) => break,
            Err(e) => panic!("a share: {e}"),
        }
    }
    assert!(shared > 300, "{shared} blocks shared");
    assert_clean(&disk, &pool);
    // The host fills what is left, and everything goes on: points, trims, abandoning, reaping.
    let refilled =
        (1 << 30..).take_while(|at| head.write((at % (1 << 28)) * BLOCK, &bytes[..4096]).is_ok()).count();
    assert!(refilled > 100, "{refilled} blocks fitted where 1/16 was trimmed");
    for round in 0..3u64 {
        pool.consistency_point().expect("a point in a full pool");
        head.trim(round * written / 4 * BLOCK, written / 8 * BLOCK).expect("a trim in a full pool");
        pool.consistency_point().expect("a point in a full pool");
    }
    let left = pool.status().shared_blocks;
    assert!(left < shared, "trims ended some owners");
    staged.abandon().expect("abandoned");
    pool.reap_all().expect("reaping");
    assert_eq!(pool.status().shared_blocks, 0);
    for _ in 0..3 {
        pool.consistency_point().expect("a point");
    }
    assert_eq!(pool.status().failed, None);
    assert_eq!(assert_clean(&disk, &pool), 0);
}
