//! What a transfer wants and the pool holds: found, taken over exactly, and for nobody but the peer it came from.

mod sparse;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farside_format::{FAN_OUT, Fingerprint};
use farside_platform::{BlockDevice, CrashFate, ManualClock, SeededRandomness, SimulatedDisk, Timestamp};
use farside_store::{Pool, PoolOptions, ReplicaStatus, StagedVersion, StoreError, WANTED_MAX, Wanted};
use sparse::{BLOCK, content, new_snapshot, options, staged_for};
use uuid::Uuid;

const LEAF: u64 = 128;
const PEER: [u8; 32] = [1; 32];
const OTHER_PEER: [u8; 32] = [2; 32];

fn pool() -> (SimulatedDisk, Arc<Pool>) {
    let disk = SimulatedDisk::new("adopt", 96 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(5)).expect("a pool");
    (disk, pool)
}

fn record(peer: [u8; 32], broken_off: bool) -> Option<ReplicaStatus> {
    // What `staged_for` builds for.
    let relationship = Uuid::from_u128(0x5e1);
    Some(ReplicaStatus { relationship, peer, source: "far/v".into(), broken_off })
}

fn replica(pool: &Arc<Pool>, name: &str, peer: [u8; 32], blocks: u64) {
    pool.create_volume(name, blocks * BLOCK).expect("a volume");
    pool.set_replica(name, record(peer, false)).expect("a replica");
}

fn stage(pool: &Arc<Pool>, name: &str, blocks: u64, number: u32) -> StagedVersion {
    pool.stage(name, None, blocks * BLOCK, staged_for(number)).expect("staged")
}

/// A staged version of a new replica with these stamps in its blocks; 0 is a hole.
fn first_copy(pool: &Arc<Pool>, name: &str, peer: [u8; 32], stamps: &[u64], number: u32) -> StagedVersion {
    replica(pool, name, peer, stamps.len() as u64);
    let staged = stage(pool, name, stamps.len() as u64, number);
    for (at, stamps) in stamps.chunks(200).enumerate() {
        let bytes: Vec<u8> = stamps.iter().flat_map(|stamp| block(*stamp)).collect();
        staged.write(at as u64 * 200 * BLOCK, &bytes).expect("a staged write");
    }
    staged
}

fn publish(staged: &StagedVersion, number: u32) -> Uuid {
    staged.commit(&new_snapshot(&format!("c{number}"), number)).expect("committed").uuid
}

fn block(stamp: u64) -> Vec<u8> {
    if stamp == 0 { vec![0; BLOCK as usize] } else { content(stamp) }
}

fn fingerprint(stamp: u64) -> Fingerprint {
    Fingerprint::of_block(&block(stamp))
}

fn leaf_fingerprint(stamps: &[u64]) -> Fingerprint {
    let mut children = [Fingerprint::HOLE; FAN_OUT];
    for (child, stamp) in children.iter_mut().zip(stamps) {
        *child = fingerprint(*stamp);
    }
    Fingerprint::of_node(1, &children)
}

fn short(fingerprint: Fingerprint) -> u64 {
    u64::from_be_bytes(fingerprint.0[..8].try_into().expect("8 bytes"))
}

fn want(level: u8, position: u64, fingerprint: Fingerprint) -> Wanted {
    Wanted { level, position, short: short(fingerprint) }
}

fn want_blocks(stamps: &[u64]) -> Vec<Wanted> {
    (0..).zip(stamps).filter(|(_, s)| **s != 0).map(|(at, s)| want(0, at, fingerprint(*s))).collect()
}

fn want_leaves(stamps: &[u64]) -> Vec<Wanted> {
    (0..).zip(stamps.chunks(FAN_OUT)).map(|(at, stamps)| want(1, at, leaf_fingerprint(stamps))).collect()
}

fn stamps(from: u64, blocks: u64) -> Vec<u64> {
    // Every eleventh is a hole.
    (from..from + blocks).map(|stamp| if stamp % 11 == 0 { 0 } else { stamp }).collect()
}

fn holds(staged: &StagedVersion, stamps: &[u64]) -> bool {
    let mut bytes = vec![0; stamps.len() * BLOCK as usize];
    staged.read(0, &mut bytes).expect("it reads");
    bytes.chunks(BLOCK as usize).zip(stamps).all(|(bytes, stamp)| bytes == block(*stamp))
}

fn count(answers: &[Option<Fingerprint>]) -> usize {
    answers.iter().flatten().count()
}

fn check(disk: &SimulatedDisk) {
    let report = farside_check::check(disk, &farside_check::CheckOptions::default()).expect("it runs");
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_second_identical_volume_is_known_whole() {
    let (disk, pool) = pool();
    // The last leaf is cut by the end of the volume.
    let all = stamps(1, 9 * LEAF + 5);
    let first = first_copy(&pool, "a", PEER, &all, 1);
    let root = first.content_root().expect("a root");
    publish(&first, 1);
    pool.consistency_point().expect("a point");
    replica(&pool, "b", PEER, all.len() as u64);
    let second = stage(&pool, "b", all.len() as u64, 2);
    let answers = second.adopt(&PEER, &want_leaves(&all)).expect("adopted");
    let expected: Vec<_> = all.chunks(FAN_OUT).map(|stamps| Some(leaf_fingerprint(stamps))).collect();
    assert_eq!(answers, expected);
    assert_eq!(second.content_root().expect("a root"), root);
    assert!(holds(&second, &all));
    publish(&second, 2);
    let status = pool.known_data();
    assert_eq!((status.scopes, status.leaves, status.sampling_bits), (1, 10, 0), "{status:?}");
    assert!(status.bytes <= status.budget_bytes && !status.is_learning, "{status:?}");
    pool.close().expect("closed");
    check(&disk);
}

#[test]
fn a_leaf_that_is_longer_than_the_volume_is_not_taken() {
    let (_disk, pool) = pool();
    let all = stamps(1, LEAF);
    publish(&first_copy(&pool, "a", PEER, &all, 1), 1);
    replica(&pool, "b", PEER, 100);
    let shorter = stage(&pool, "b", 100, 2);
    assert_eq!(shorter.adopt(&PEER, &want_leaves(&all)).expect("answered"), [None]);
    assert!(holds(&shorter, &[0; 100]));
    for wrong in [want(1, 1, fingerprint(1)), want(0, 100, fingerprint(1)), want(2, 0, fingerprint(1))] {
        assert!(matches!(shorter.adopt(&PEER, &[wrong]), Err(StoreError::Invalid(_))), "{wrong:?}");
    }
    let too_many = vec![want(0, 0, fingerprint(1)); WANTED_MAX + 1];
    assert!(matches!(shorter.adopt(&PEER, &too_many), Err(StoreError::Invalid(_))));
    assert_eq!(shorter.adopt(&PEER, &[]).expect("nothing wanted"), []);
}

#[test]
fn moved_content_is_found_by_a_sample_and_its_neighbourhood_within_the_budget() {
    let disk = SimulatedDisk::new("adopt", 128 << 20).without_history();
    let small = PoolOptions { known_data_bytes_per_tib: 8 << 10, ..options(5) };
    let pool = Pool::create(Arc::new(disk.clone()), small).expect("a pool");
    let all = stamps(1, 60 * LEAF);
    publish(&first_copy(&pool, "a", PEER, &all, 1), 1);
    // The same, moved by 37 blocks: no leaf is like another.
    let moved = [&stamps(1_000_000, 37)[..], &all[..]].concat();
    replica(&pool, "b", PEER, moved.len() as u64);
    let staged = stage(&pool, "b", moved.len() as u64, 2);
    assert_eq!(count(&staged.adopt(&PEER, &want_leaves(&moved)).expect("answered")), 0);
    let status = pool.known_data();
    assert!(!status.is_learning);
    assert_eq!(status.leaves, 60);
    // The smallest tables: 1024 slots each, filled to three quarters at most. 7147 blocks / 16 fit.
    assert_eq!(status.bytes, 2 * 8 * 1024);
    assert!(status.blocks <= 768 && status.sampling_bits == 4, "{status:?}");
    // What both sides agree on: 1 in 8.
    let wanted = want_blocks(&moved);
    let (mut asked, mut found) = (0, 0);
    let mut near = BTreeSet::new();
    for batch in wanted.chunks(1024) {
        let sample: Vec<_> = batch.iter().copied().filter(|w| w.short.trailing_zeros() >= 3).collect();
        let answers = staged.adopt(&PEER, &sample).expect("answered");
        asked += sample.len();
        found += count(&answers);
        // Where it hits, whatever lies within half a leaf is asked for too.
        let hits: Vec<u64> =
            sample.iter().zip(&answers).filter(|(_, a)| a.is_some()).map(|(w, _)| w.position).collect();
        let rest: Vec<_> =
            batch.iter().copied().filter(|w| hits.iter().any(|hit| hit.abs_diff(w.position) < 64)).collect();
        let answers = staged.adopt(&PEER, &rest).expect("answered");
        near.extend(rest.iter().zip(&answers).filter(|(_, a)| a.is_some()).map(|(w, _)| w.position));
        assert_eq!(count(&answers), rest.iter().filter(|w| w.position >= 37).count(), "all that is near");
    }
    println!("{asked} asked, {found} found, {} of {} by what is near", near.len(), wanted.len());
    // Half the sample is in the index.
    assert!(found * 3 > asked && found < asked, "{found} of {asked}");
    assert!(near.len() * 20 > wanted.len() * 19, "{} of {}", near.len(), wanted.len());
    let taken: Vec<u64> =
        (0..).zip(&moved).map(|(at, stamp)| if near.contains(&at) { *stamp } else { 0 }).collect();
    assert!(holds(&staged, &taken));
    assert!(pool.known_data().bytes <= 2 * 8 * 1024);
}

#[test]
fn transfers_side_by_side_learn_from_each_other() {
    let (_disk, pool) = pool();
    let all = stamps(1, 8 * LEAF);
    let a = first_copy(&pool, "a", PEER, &all[..512], 1);
    replica(&pool, "b", PEER, all.len() as u64);
    let b = stage(&pool, "b", all.len() as u64, 2);
    // What was staged before the first question is walked ...
    let answers = b.adopt(&PEER, &want_leaves(&all)).expect("answered");
    assert!(answers[..4].iter().all(Option::is_some) && count(&answers) == 4, "{answers:?}");
    // ... what comes afterwards is told of, adopted content included, in frames that cut leaves.
    a.resize(all.len() as u64 * BLOCK).expect("larger");
    for (at, stamps) in all.chunks(50).enumerate().skip(10) {
        let bytes: Vec<u8> = stamps.iter().flat_map(|stamp| block(*stamp)).collect();
        a.write(at as u64 * 50 * BLOCK, &bytes).expect("a staged write");
    }
    let answers = b.adopt(&PEER, &want_leaves(&all)[4..]).expect("answered");
    assert_eq!(count(&answers), 4);
    a.abandon().expect("abandoned");
    pool.reap_all().expect("reaped");
    replica(&pool, "c", PEER, all.len() as u64);
    let c = stage(&pool, "c", all.len() as u64, 3);
    assert_eq!(count(&c.adopt(&PEER, &want_leaves(&all)).expect("answered")), 8, "from the second");
    assert!(holds(&b, &all) && holds(&c, &all));
}

#[test]
fn only_what_came_from_the_peer_is_answered_to_it() {
    let (_disk, pool) = pool();
    let [of_peer, of_host, of_other_peer, unmirrored] =
        [1, 1000, 2000, 3000].map(|from| stamps(from * 11 + 1, LEAF));
    let first = first_copy(&pool, "a", PEER, &of_peer, 1);
    publish(&first, 1);
    publish(&first_copy(&pool, "s", OTHER_PEER, &of_other_peer, 2), 2);
    let host = |volume: &str, stamps: &[u64]| {
        let bytes: Vec<u8> = stamps.iter().flat_map(|stamp| block(*stamp)).collect();
        pool.open_volume(volume).expect("it opens").write(0, &bytes).expect("a host's write");
    };
    pool.create_volume("u", LEAF * BLOCK).expect("a volume");
    host("u", &unmirrored);
    pool.create_snapshots(&[("u".into(), new_snapshot("u", 7))]).expect("a snapshot");
    // Broken off: the peer's data stays the peer's; what a host writes is not.
    pool.set_replica("a", record(PEER, true)).expect("broken off");
    host("a", &of_host);
    pool.create_snapshots(&[("a".into(), new_snapshot("h", 8))]).expect("a snapshot");
    let known = |peer: [u8; 32], name: &str| {
        replica(&pool, name, peer, 4 * LEAF);
        let staged = stage(&pool, name, 4 * LEAF, 9);
        let all = [&of_peer[..], &of_host, &of_other_peer, &unmirrored].concat();
        let leaves = staged.adopt(&peer, &want_leaves(&all)).expect("answered");
        let blocks = staged.adopt(&peer, &want_blocks(&all)).expect("answered");
        staged.abandon().expect("abandoned");
        pool.delete_volume(name).expect("it can go");
        let leaves: Vec<bool> = leaves.iter().map(Option::is_some).collect();
        // Blocks say the same as leaves.
        let mut at = 0;
        for (known, stamps) in leaves.iter().zip(all.chunks(FAN_OUT)) {
            let count = stamps.iter().filter(|s| **s != 0).count();
            assert!(blocks[at..at + count].iter().all(|answer| answer.is_some() == *known), "{leaves:?}");
            at += count;
        }
        leaves
    };
    assert_eq!(known(PEER, "w1"), [true, false, false, false]);
    assert_eq!(known(OTHER_PEER, "w2"), [false, false, true, false]);
    assert_eq!(known([3; 32], "w3"), [false; 4]);
    assert_eq!(pool.known_data().scopes, 3);
    // The record goes from one peer to another: neither has a right to what is there.
    pool.set_replica("a", record(OTHER_PEER, true)).expect("another's");
    assert_eq!(known(PEER, "w4"), [false; 4]);
    assert_eq!(known(OTHER_PEER, "w5"), [false, false, true, false]);
    // Nor does it come back with the name of the first: the record does not know any more whose it was.
    pool.set_replica("a", record(PEER, true)).expect("the first one's");
    assert_eq!(known(PEER, "w6"), [false; 4]);
    pool.set_replica("s", None).expect("no replica any more");
    assert_eq!(known(OTHER_PEER, "w7"), [false; 4]);
}

#[test]
fn other_pools_are_asked_by_name_of_the_pool() {
    let (_disk_a, a) = pool();
    let (_disk_b, b) = pool();
    let all = stamps(1, 2 * LEAF);
    publish(&first_copy(&a, "v", PEER, &all, 1), 1);
    replica(&b, "w", PEER, all.len() as u64);
    let staged = stage(&b, "w", all.len() as u64, 2);
    let wanted = want_leaves(&all);
    assert_eq!(count(&staged.adopt(&PEER, &wanted).expect("answered")), 0);
    assert_eq!(count(&staged.adopt_from(&a, &OTHER_PEER, &wanted).expect("answered")), 0);
    assert_eq!(count(&staged.adopt_from(&a, &PEER, &wanted).expect("answered")), 2);
    assert!(holds(&staged, &all));
}

#[test]
fn what_was_deleted_reaped_or_overwritten_is_not_held() {
    let (disk, pool) = pool();
    let [old, new, other] = [1, 500, 900].map(|from| stamps(from, 2 * LEAF));
    let old_uuid = publish(&first_copy(&pool, "a", PEER, &old, 1), 1);
    publish(&first_copy(&pool, "x", PEER, &other, 2), 2);
    replica(&pool, "b", PEER, 2 * LEAF);
    let staged = stage(&pool, "b", 2 * LEAF, 3);
    assert_eq!(count(&staged.adopt(&PEER, &want_leaves(&old)).expect("answered")), 2);
    staged.abandon().expect("abandoned");
    // The next version has the first leaf still, and another second one.
    let next = pool.stage("a", Some(old_uuid), 2 * LEAF * BLOCK, staged_for(4)).expect("staged");
    let bytes: Vec<u8> = new[128..].iter().flat_map(|stamp| block(*stamp)).collect();
    next.write(LEAF * BLOCK, &bytes).expect("a staged write");
    publish(&next, 4);
    pool.delete_snapshot("a", old_uuid).expect("it can go");
    pool.delete_volume("x").expect("it can go");
    pool.reap_all().expect("reaped");
    pool.consistency_point().expect("a point");
    pool.consistency_point().expect("another: freed places are free");
    // Somebody else's data comes to lie there.
    pool.create_volume("u", 4 * LEAF * BLOCK).expect("a volume");
    let bytes: Vec<u8> = stamps(5000, 4 * LEAF).iter().flat_map(|stamp| block(*stamp)).collect();
    pool.open_volume("u").expect("it opens").write(0, &bytes).expect("a host's write");
    let staged = stage(&pool, "b", 2 * LEAF, 5);
    let answers = staged.adopt(&PEER, &want_leaves(&old)).expect("answered");
    assert_eq!(answers, [Some(leaf_fingerprint(&old[..128])), None]);
    assert_eq!(count(&staged.adopt(&PEER, &want_leaves(&other)).expect("answered")), 0);
    assert_eq!(count(&staged.adopt(&PEER, &want_blocks(&other)).expect("answered")), 0);
    let answers = staged.adopt(&PEER, &want_leaves(&new)).expect("answered");
    assert_eq!(answers, [None, Some(leaf_fingerprint(&new[128..]))], "told of by the staged write");
    assert!(holds(&staged, &[&old[..128], &new[128..]].concat()));
    drop(staged);
    pool.close().expect("closed");
    check(&disk);
}

#[test]
fn what_cannot_be_read_is_not_held_and_no_error() {
    let (disk, pool) = pool();
    let all = stamps(1, 4 * LEAF);
    publish(&first_copy(&pool, "a", PEER, &all, 1), 1);
    pool.close().expect("closed");
    drop(pool);
    // One block of the second leaf.
    let needle = content(all[LEAF as usize + 4]);
    let at = (0..disk.bytes() / BLOCK).map(|b| b * BLOCK).find(|at| disk.peek(*at, 4096) == needle);
    disk.damage(at.expect("it lies somewhere") + 9, &[0xA5; 5]);
    let pool = Pool::open(Arc::new(disk.clone()), options(6)).expect("it opens");
    replica(&pool, "b", PEER, all.len() as u64);
    let staged = stage(&pool, "b", all.len() as u64, 2);
    let answers = staged.adopt(&PEER, &want_leaves(&all)).expect("answered");
    let known: Vec<bool> = answers.iter().map(Option::is_some).collect();
    assert_eq!(known, [true, false, true, true]);
    let mut taken = all.clone();
    taken[128..256].fill(0);
    assert!(holds(&staged, &taken));
    // Of the damaged leaf the other blocks are known.
    let wanted = want_blocks(&all);
    let unknown: Vec<u64> = wanted
        .iter()
        .zip(staged.adopt(&PEER, &wanted).expect("answered"))
        .filter(|(_, answer)| answer.is_none())
        .map(|(wanted, _)| wanted.position)
        .collect();
    assert_eq!(unknown, [LEAF + 4]);
    assert!(pool.status().corrupt_blocks > 0);
}

#[test]
fn within_a_pool_nothing_is_written_and_every_owner_has_it() {
    let disk = SimulatedDisk::new("adopt", 24 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(5)).expect("a pool");
    let all = stamps(1, 8 * LEAF);
    publish(&first_copy(&pool, "a", PEER, &all, 1), 1);
    let written = |pool: &Pool| pool.counters.written_bytes.load(Ordering::Relaxed);
    let before = written(&pool);
    // Eight times the volume in a pool that has room for five.
    let copies: Vec<u64> = std::iter::repeat_n(&all, 8).flatten().copied().collect();
    replica(&pool, "b", PEER, copies.len() as u64);
    let staged = stage(&pool, "b", copies.len() as u64, 2);
    assert_eq!(count(&staged.adopt(&PEER, &want_leaves(&copies)).expect("adopted")), 64);
    assert_eq!(written(&pool), before);
    // By single blocks, one behind where it lay: another volume, from both.
    let moved = [&[0][..], &all[..all.len() - 1]].concat();
    replica(&pool, "c", PEER, moved.len() as u64);
    let third = stage(&pool, "c", moved.len() as u64, 3);
    let wanted = want_blocks(&moved);
    assert_eq!(count(&third.adopt(&PEER, &wanted).expect("adopted")), wanted.len());
    assert_eq!(written(&pool), before);
    publish(&staged, 2);
    publish(&third, 3);
    pool.delete_volume("a").expect("it can go");
    pool.reap_all().expect("reaped");
    pool.close().expect("closed");
    check(&disk);
    drop((staged, third, pool));
    let pool = Pool::open(Arc::new(disk), options(6)).expect("it opens");
    for (volume, stamps) in [("b", &copies), ("c", &moved)] {
        let mut bytes = vec![0; stamps.len() * BLOCK as usize];
        pool.open_volume(volume).expect("it opens").read(0, &mut bytes).expect("it reads");
        assert!(bytes.chunks(BLOCK as usize).zip(stamps).all(|(bytes, stamp)| bytes == block(*stamp)));
    }
}

#[test]
fn what_a_version_takes_from_itself_can_be_replayed() {
    let disk = SimulatedDisk::new("adopt", 24 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(5)).expect("a pool");
    replica(&pool, "a", PEER, 10);
    let staged = stage(&pool, "a", 10, 1);
    // Written from behind, so that no two lie side by side: each is a record of its own. No point has written them, so that
    // what is replaced is free at once.
    for at in (0..10).rev() {
        staged.write(at * BLOCK, &content(at + 1)).expect("a staged write");
    }
    // All one block on: what each replaces is what the next one wants, and nobody else has.
    let moved: Vec<u64> = [1].into_iter().chain(1..10).collect();
    assert_eq!(count(&staged.adopt(&PEER, &want_blocks(&moved)[1..]).expect("answered")), 9);
    assert!(holds(&staged, &moved));
    pool.flush().expect("a flush");
    // The power fails.
    let image = disk.image();
    check(&image);
    let pool = Pool::open(Arc::new(image), options(6)).expect("the journal is replayed");
    let found = pool.staged("a").expect("a list").pop().expect("it is there");
    assert!(holds(&found, &moved));
}

#[test]
fn a_full_pool_is_an_error_as_for_any_staged_write() {
    let (_disk, other) = pool();
    let all = stamps(1, 8 * LEAF);
    publish(&first_copy(&other, "a", PEER, &all, 1), 1);
    let disk = SimulatedDisk::new("adopt", 24 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(5)).expect("a pool");
    replica(&pool, "b", PEER, 64 * LEAF);
    let staged = stage(&pool, "b", 64 * LEAF, 2);
    // From another pool it must be copied. Seven times: 28 MiB.
    let mut adopted = Ok(Vec::new());
    let mut taken = 0;
    for copy in 0..7 {
        let wanted: Vec<_> = want_leaves(&all)
            .into_iter()
            .map(|wanted| Wanted { position: wanted.position + copy * 8, ..wanted })
            .collect();
        adopted = staged.adopt_from(&other, &PEER, &wanted);
        if adopted.is_err() {
            break;
        }
        taken += 1;
    }
    assert!(matches!(adopted, Err(StoreError::NoSpace { .. })), "{adopted:?}");
    assert!(taken > 0);
    staged.abandon().expect("abandoned");
    pool.reap_all().expect("reaped");
    let host = pool.create_volume("u", BLOCK).and_then(|_| pool.open_volume("u"));
    host.expect("hosts have room").write(0, &content(5)).expect("a host's write");
    pool.close().expect("closed");
    check(&disk);
}

#[test]
fn an_index_that_nobody_asks_is_dropped() {
    let disk = SimulatedDisk::new("adopt", 48 << 20).without_history();
    let clock = Arc::new(ManualClock::new(Timestamp(1)));
    let timed = PoolOptions {
        background: false,
        ..PoolOptions::new(clock.clone(), Arc::new(SeededRandomness::new(1)))
    };
    let pool = Pool::create(Arc::new(disk), timed).expect("a pool");
    let all = stamps(1, 2 * LEAF);
    publish(&first_copy(&pool, "a", PEER, &all, 1), 1);
    assert_eq!(pool.known_data().scopes, 0, "nobody has asked");
    replica(&pool, "b", PEER, all.len() as u64);
    let staged = stage(&pool, "b", all.len() as u64, 2);
    for minutes in [0, 9, 9, 11] {
        clock.advance(Duration::from_secs(minutes * 60));
        staged.adopt(&OTHER_PEER, &[]).expect("answered");
        if minutes == 9 {
            assert_eq!(pool.known_data().scopes, 2);
        }
        if minutes < 11 {
            assert_eq!(count(&staged.adopt(&PEER, &want_leaves(&all)).expect("answered")), 2);
        }
    }
    assert_eq!(pool.known_data().scopes, 1);
    assert_eq!(count(&staged.adopt(&PEER, &want_leaves(&all)).expect("answered")), 2, "built anew");
    // Each new scope has its share; the ninth takes the place of the one that asked longest ago.
    for peer in 10..17 {
        clock.advance(Duration::from_secs(1));
        staged.adopt(&[peer; 32], &[]).expect("answered");
    }
    let status = pool.known_data();
    assert_eq!(status.scopes, 8);
    assert!(status.bytes <= status.budget_bytes, "{status:?}");
}

#[test]
fn the_pools_thread_builds_the_index_and_answers_come_meanwhile() {
    let disk = SimulatedDisk::new("adopt", 96 << 20).without_history();
    let with_thread = PoolOptions { background: true, ..options(5) };
    let pool = Pool::create(Arc::new(disk), with_thread).expect("a pool");
    // Each leaf one block only, so that many can be walked.
    let leaves = 6000;
    replica(&pool, "a", PEER, leaves * LEAF);
    let staged = stage(&pool, "a", leaves * LEAF, 1);
    for leaf in 0..leaves {
        staged.write(leaf * LEAF * BLOCK, &content(leaf + 1)).expect("a staged write");
    }
    publish(&staged, 1);
    replica(&pool, "b", PEER, 8 * LEAF);
    let staged = stage(&pool, "b", 8 * LEAF, 2);
    let wanted = [want(1, 0, leaf_fingerprint(&[1])), want(0, 1, fingerprint(leaves))];
    assert!(staged.adopt(&PEER, &wanted).expect("answered")[0].is_some(), "the first leaf is known at once");
    // Asking again is learning too: this ends, with or without the thread.
    while pool.known_data().is_learning {
        staged.adopt(&PEER, &[]).expect("answered");
    }
    assert!(staged.adopt(&PEER, &wanted).expect("answered").iter().all(Option::is_some));
    pool.close().expect("closed");
}

#[test]
fn a_crash_in_the_middle_leaves_what_was_checkpointed_and_nothing_torn() {
    let disk = SimulatedDisk::new("adopt", 48 << 20);
    let pool = Pool::create(Arc::new(disk.clone()), options(5)).expect("a pool");
    let all = stamps(1, 4 * LEAF);
    publish(&first_copy(&pool, "a", PEER, &all, 1), 1);
    replica(&pool, "b", PEER, all.len() as u64);
    let staged = stage(&pool, "b", all.len() as u64, 2);
    let begun = disk.events();
    let mut checkpoints = vec![(begun, 0)];
    for (leaf, wanted) in want_leaves(&all).into_iter().enumerate() {
        assert_eq!(count(&staged.adopt(&PEER, &[wanted]).expect("answered")), 1);
        if leaf % 2 == 1 {
            staged.checkpoint().expect("a checkpoint");
            checkpoints.push((disk.events(), leaf + 1));
        }
    }
    pool.consistency_point().expect("a point");
    let fates = [CrashFate::DropUnsynced, CrashFate::KeepUnsynced, CrashFate::Random(7)];
    for (n, events) in (begun..=disk.events()).enumerate() {
        let crashed = disk.crash_at(events, fates[n % 3]);
        check(&crashed);
        let pool = Pool::open(Arc::new(crashed.clone()), options(6)).expect("it opens");
        let found = pool.staged("b").expect("a list").pop().expect("it is there");
        let kept = checkpoints.iter().rfind(|(at, _)| *at <= events).map_or(0, |(_, leaves)| *leaves);
        let mut bytes = vec![0; all.len() * BLOCK as usize];
        found.read(0, &mut bytes).expect("it reads");
        for (at, (bytes, stamp)) in bytes.chunks(BLOCK as usize).zip(&all).enumerate() {
            let is_here = bytes == block(*stamp);
            assert!(is_here || (at >= kept * FAN_OUT && bytes == block(0)), "event {events}, block {at}");
        }
        // It goes on from there.
        assert_eq!(count(&found.adopt(&PEER, &want_leaves(&all)).expect("answered")), 4, "event {events}");
        assert!(holds(&found, &all));
        publish(&found, 2);
        pool.close().expect("closed");
        check(&crashed);
    }
}
