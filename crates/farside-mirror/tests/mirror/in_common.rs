//! Replicas of one volume have a point in common, so that one of them can follow another when their source is lost.

use std::collections::BTreeSet;
use std::time::Duration;

use farside_engine::{BLOCK_BYTES, SnapshotOwner};
use farside_link::LinkSettings;
use farside_mirror::{Schedule, State};
use farside_transfer::protocol::Body;
use farside_transfer::{TransferReport, TransferResult};
use rand::Rng;

use crate::directions::until;
use crate::support::embedded_storage::Embedded;
use crate::support::memory_engine::MemoryEngine;
use crate::support::site::{PATIENCE, Storage, assert_ok, volume};
use crate::support::trio::{A, B, C, Trio};

const SIZE: u64 = 8 << 20;

async fn fan_out<S: Storage>(seed: u64) -> Trio<S> {
    let mut trio = Trio::new(seed, SIZE).await;
    trio.copy(B, A).await;
    trio.write(A, 5);
    trio.copy(C, A).await;
    trio
}

fn is_difference(report: &TransferReport, at_most: u64) {
    assert_eq!(report.result, TransferResult::Ok, "{:?}", report.reason);
    assert!(report.base.is_some(), "a whole copy");
    assert!(report.changed_bytes <= at_most, "{} of {at_most} bytes moved", report.changed_bytes);
}

/// Snapshots of a site that no person made: bases, and what is kept in common.
fn of_mirrors<S: Storage>(trio: &Trio<S>, at: usize) -> Vec<String> {
    let of_mirror = |s: &farside_engine::SnapshotInfo| s.owner != SnapshotOwner::Person;
    trio.snapshots(at).into_iter().filter(of_mirror).map(|s| s.name).collect()
}

/// The original is gone for good, and the replica that takes over is the newer or the older one.
async fn original_is_lost<S: Storage>(seed: u64, takes_over: usize, newer: usize) {
    let mut trio = fan_out::<S>(seed).await;
    // Since the last moment that both have.
    let mut since = 0;
    // `b` is updated three times as often as `c`.
    for round in 0..3 {
        for _ in 0..3 {
            trio.write(A, 3);
            trio.update(B, A).await;
            assert!(!trio.in_common(B, C).is_empty(), "round {round}");
        }
        since = trio.write(A, 3);
        trio.update(C, A).await;
        assert!(!trio.in_common(B, C).is_empty(), "round {round}");
    }
    if newer == B {
        since = trio.write(A, 3);
        trio.update(B, A).await;
        since += trio.write(A, 3);
        trio.update(B, A).await;
    }
    trio.network.kill("a");
    let follows = if takes_over == B { C } else { B };
    let shown = trio.live[follows].clone();
    trio.break_off(takes_over).await;
    since += trio.write(takes_over, 5);
    let (peer, of) = (trio.sites[takes_over].node.id(), trio.volumes[takes_over].clone());
    let plan =
        trio.sites[follows].destination.plan_resync(&trio.volumes[follows], Some((peer, of)), PATIENCE);
    let incoming = plan.await.unwrap().incoming.expect("from a common point");
    let is_older = takes_over != newer;
    // What the one that follows has beyond the common point goes, too: what the other has in its place travels.
    let at_most = since + if is_older { SIZE / 4 } else { 0 };
    assert!(incoming.data_bytes <= at_most, "{incoming:?} of {at_most}");
    is_difference(&trio.resync(follows, takes_over).await.unwrap(), at_most);
    assert_eq!(trio.mirror(follows).status().state, State::Mirrored);
    assert!(!is_older || trio.keeps(follows, &shown), "what only the newer one had");
    let written = trio.write(takes_over, 5);
    is_difference(&trio.update(follows, takes_over).await, written);
    // What the old original could come back by is kept here too, if it was ever here, until nobody awaits it.
    let kept = of_mirrors(&trio, follows);
    assert!(kept.len() <= 2, "{kept:?}");
    trio.sites[takes_over].destination.delete(&trio.volumes[takes_over]).await.unwrap();
    trio.update(follows, takes_over).await;
    let kept = of_mirrors(&trio, follows);
    assert_eq!(kept.len(), 1, "{kept:?}");
}

#[tokio::test(start_paused = true)]
async fn when_the_original_is_lost_one_replica_follows_the_other_whichever_is_newer() {
    for (seed, takes_over, newer) in [(1000, B, B), (1001, B, C), (1002, C, B), (1003, C, C)] {
        original_is_lost::<MemoryEngine>(seed, takes_over, newer).await;
        original_is_lost::<Embedded>(seed + 10, takes_over, newer).await;
    }
}

/// Somebody deletes the mirrors first.
async fn deleted_too_soon<S: Storage>(seed: u64, newer: usize) {
    let mut trio = fan_out::<S>(seed).await;
    trio.write(A, 3);
    trio.update(if newer == B { C } else { B }, A).await;
    let mut since = trio.write(A, 3);
    trio.update(newer, A).await;
    trio.network.kill("a");
    for at in [B, C] {
        trio.sites[at].destination.delete(&trio.volumes[at]).await.unwrap();
        assert_eq!(trio.pinned(at), 0);
    }
    since += trio.write(B, 3);
    is_difference(&trio.resync(C, B).await.unwrap(), since);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_mirror_leaves_what_other_replicas_hold_too() {
    for (seed, newer) in [(1070, B), (1071, C)] {
        deleted_too_soon::<MemoryEngine>(seed, newer).await;
        deleted_too_soon::<Embedded>(seed + 10, newer).await;
    }
}

/// `b` follows `a`, `c` follows `b`; beside it a second volume at `c` follows `a`.
async fn cascade_with_a_side_branch<S: Storage>(seed: u64) {
    let mut trio = Trio::<S>::new(seed, SIZE).await;
    trio.copy(B, A).await;
    trio.copy(C, B).await;
    let (a, of_a, side) = (trio.sites[A].node.id(), trio.volumes[A].clone(), volume("w/side"));
    let destination = trio.sites[C].destination.clone();
    let mirror =
        destination.create(a, of_a, side.clone(), Schedule::OnRequest, PATIENCE, true).await.unwrap();
    assert_ok(&mirror.initialize(PATIENCE).await.unwrap().ended().await.unwrap());
    for _ in 0..3 {
        trio.write(A, 3);
        trio.update(B, A).await;
        trio.update(C, B).await;
        trio.write(A, 3);
        assert_ok(&mirror.update(PATIENCE).await.unwrap().ended().await.unwrap());
    }
    let mut since = trio.write(A, 3);
    trio.update(B, A).await;
    trio.network.kill("a");
    trio.break_off(B).await;
    since += trio.write(B, 3);
    // The end of the chain goes on; the branch follows the survivor.
    trio.update(C, B).await;
    let (b, of_b) = (trio.sites[B].node.id(), trio.volumes[B].clone());
    let (mirror, asked) =
        destination.resync_from(b, of_b, side.clone(), Schedule::OnRequest, PATIENCE).await.unwrap();
    is_difference(&asked.ended().await.unwrap(), since + SIZE / 8);
    let written = trio.write(B, 3);
    is_difference(&mirror.update(PATIENCE).await.unwrap().ended().await.unwrap(), written);
    is_difference(&trio.update(C, B).await, written);
    let engine = trio.sites[C].disk.engine.engine();
    let root = |of| engine.content_root(of, engine.snapshots(of).unwrap().last().unwrap().uuid).unwrap();
    assert_eq!(root(&side), root(&trio.volumes[C]));
}

#[tokio::test(start_paused = true)]
async fn a_side_branch_of_a_cascade_follows_the_survivor() {
    cascade_with_a_side_branch::<MemoryEngine>(1020).await;
    cascade_with_a_side_branch::<Embedded>(1021).await;
}

/// One for each other destination, and it goes with that one.
async fn bounded<S: Storage>(seed: u64) {
    let mut trio = fan_out::<S>(seed).await;
    for _ in 0..10 {
        for at in [B, C, C, B, B] {
            trio.write(A, 2);
            let report = trio.update(at, A).await;
            assert!(report.snapshots <= 2, "{report:?}");
            let kept = [A, B, C].map(|at| of_mirrors(&trio, at).len());
            assert!(kept[0] == 2 && kept[1] <= 2 && kept[2] <= 2, "{kept:?}");
        }
    }
    // A volume that nobody writes to has nothing more to keep or to bring.
    for at in [B, C] {
        trio.update(at, A).await;
    }
    let before = [B, C].map(|at| of_mirrors(&trio, at));
    for at in [B, C, B, C] {
        let report = trio.update(at, A).await;
        assert_eq!((report.snapshots, report.changed_bytes), (1, 0));
        assert!(!trio.in_common(B, C).is_empty());
    }
    let kept = [B, C].map(|at| of_mirrors(&trio, at));
    assert!(kept.iter().all(|kept| kept.len() <= 2), "{before:?}, {kept:?}");
    // The other one ends: what was kept for it goes with the next update, and that is as with one mirror.
    trio.sites[C].destination.delete(&trio.volumes[C]).await.unwrap();
    assert_eq!(of_mirrors(&trio, C), Vec::<String>::new(), "{:?}", trio.snapshots(C));
    assert!(
        trio.pinned(C) == 0 && !trio.in_common(C, B).is_empty(),
        "left for a person, and b's mirror keeps it"
    );
    let source = trio.sites[A].source.clone();
    until("it is told", || source.destinations().len() == 1).await;
    let written = trio.write(A, 2);
    let report = trio.update(B, A).await;
    is_difference(&report, written);
    assert_eq!((report.snapshots, of_mirrors(&trio, A).len(), of_mirrors(&trio, B).len()), (1, 1, 1));
    let engine = trio.sites[B].disk.engine.engine();
    trio.mirror(B).break_off(None).await.unwrap();
    trio.sites[B].destination.delete(&trio.volumes[B]).await.unwrap();
    assert!(engine.all_snapshots(&trio.volumes[B]).unwrap().iter().all(|s| s.pinned_by.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_in_common_is_one_snapshot_for_each_other_replica_and_ends_with_it() {
    bounded::<MemoryEngine>(1030).await;
    bounded::<Embedded>(1031).await;
}

/// Transfers that run at the same time: at no moment is there nothing in common.
async fn at_the_same_time<S: Storage>(seed: u64) {
    let mut trio = fan_out::<S>(seed).await;
    for at in [B, C] {
        trio.write(A, 3);
        trio.update(at, A).await;
    }
    for (slow, quick) in [(C, B), (B, C), (C, B)] {
        // The slow one has its snapshot taken, and nothing of it arrives; the other one is updated twice.
        trio.write(A, 3);
        trio.update(quick, A).await;
        trio.write(A, 3);
        let shown = trio.live[A].clone();
        let stall = trio.sites[A].fault_injector.stall().await;
        let taken = trio.snapshots(A).len();
        let asked = trio.mirror(slow).update(PATIENCE).await.unwrap();
        let source = trio.sites[A].source.clone();
        until("its snapshot is taken", || trio.snapshots(A).len() > taken).await;
        trio.write(A, 3);
        let beside = trio.mirror(quick).update(PATIENCE).await.unwrap();
        until("both are served", || source.serving().len() == 2).await;
        until("there are two more", || trio.snapshots(A).len() > taken + 1).await;
        drop(stall);
        assert_ok(&beside.ended().await.unwrap());
        trio.live[quick] = trio.live[A].clone();
        assert!(!trio.in_common(B, C).is_empty());
        trio.write(A, 3);
        trio.update(quick, A).await;
        assert!(!trio.in_common(B, C).is_empty());
        assert_ok(&asked.ended().await.unwrap());
        trio.live[slow] = shown;
        trio.check(slow);
        assert!(!trio.in_common(B, C).is_empty());
        trio.write(A, 3);
        trio.update(quick, A).await;
        assert!(!trio.in_common(B, C).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn transfers_that_run_at_the_same_time_leave_a_point_in_common() {
    at_the_same_time::<MemoryEngine>(1040).await;
    at_the_same_time::<Embedded>(1041).await;
}

/// Power fails at the destination when what is in common has been published, and the last snapshot has not.
async fn cut_after_the_common_one<S: Storage>(seed: u64) {
    let mut trio = fan_out::<S>(seed).await;
    for at in [C, B] {
        trio.write(A, 3);
        trio.update(at, A).await;
    }
    let mut at_b = trio.live[B].clone();
    for round in 0..3 {
        trio.write(A, 3);
        let gate = trio.sites[A].fault_injector.hold(|body| matches!(body, Body::Acknowledge(_)));
        let asked = trio.mirror(C).update(PATIENCE).await.unwrap();
        gate.held().await;
        // It would go on by itself.
        let next = trio.sites[A].fault_injector.hold(|body| matches!(body, Body::Begin(_)));
        trio.crash(C, 4 * round + 1).await;
        drop(asked);
        gate.release().await;
        trio.live[C] = at_b.clone();
        trio.check(C);
        assert!(!trio.in_common(B, C).is_empty());
        let kept = of_mirrors(&trio, C);
        assert!(kept.len() <= 3, "{kept:?}");
        let asked = trio.mirror(C).update(PATIENCE).await.unwrap();
        next.held().await;
        next.release().await;
        asked.ended().await.unwrap();
        let report = trio.mirror(C).update(PATIENCE).await.unwrap().ended().await.unwrap();
        is_difference(&report, SIZE);
        trio.live[C] = trio.live[A].clone();
        trio.check(C);
        trio.write(A, 3);
        trio.update(B, A).await;
        assert!(!trio.in_common(B, C).is_empty());
        trio.write(A, 3);
        trio.update(C, A).await;
        let kept = of_mirrors(&trio, C);
        assert!(kept.len() <= 2, "{kept:?}");
        trio.live[C] = trio.seen(C);
        trio.write(A, 1);
        trio.update(B, A).await;
        at_b = trio.live[B].clone();
    }
    assert!(!trio.snapshots(C).iter().any(|s| s.name.starts_with("rescue")), "nothing was lost");
    assert!(trio.pinned(A) <= 4);
}

#[tokio::test(start_paused = true)]
async fn a_transfer_that_is_cut_after_the_common_snapshot_leaves_neither_too_little_nor_too_much() {
    cut_after_the_common_one::<MemoryEngine>(1050).await;
    cut_after_the_common_one::<Embedded>(1051).await;
}

/// `b` gets a newer base while `c`'s transfer is being prepared: what was to travel to `c` is gone.
#[tokio::test(start_paused = true)]
async fn what_goes_while_a_transfer_is_prepared_does_not_travel() {
    let mut trio = fan_out::<MemoryEngine>(1062).await;
    trio.write(A, 3);
    trio.update(B, A).await;
    let base =
        trio.sites[A].source.destinations().iter().find(|r| r.peer == trio.sites[B].node.id()).unwrap().base;
    trio.write(A, 3);
    trio.sites[A].disk.engine.faults.lock().goes_before_pin = base;
    assert_eq!(trio.update(C, A).await.snapshots, 1);
    assert!(trio.snapshots(A).iter().all(|s| Some(s.uuid) != base));
    trio.write(A, 3);
    assert_eq!(trio.update(C, A).await.snapshots, 1);
}

/// An update that finds no room: what is only kept in common gives way, and there is a point in common all the same, because the
/// other one has what this one shows.
#[tokio::test(start_paused = true)]
async fn what_is_kept_in_common_gives_way_in_a_full_pool() {
    let mut trio = fan_out::<MemoryEngine>(1063).await;
    for at in [B, C, B] {
        trio.write(A, 3);
        trio.update(at, A).await;
    }
    assert_eq!(of_mirrors(&trio, C).len(), 2);
    trio.write(A, 20);
    trio.sites[C].disk.engine.faults.lock().staging_room = Some(4096);
    let report = trio.mirror(C).update(PATIENCE).await.unwrap().ended().await.unwrap();
    assert_eq!(report.result, TransferResult::Failed);
    assert_eq!(of_mirrors(&trio, C).len(), 1);
    trio.check(C);
    assert!(!trio.in_common(B, C).is_empty());
    trio.sites[C].disk.engine.faults.lock().staging_room = None;
    trio.update(C, A).await;
    assert_eq!(of_mirrors(&trio, C).len(), 2);
}

/// One of the two sides is of an earlier version: as it was.
async fn older_sites<S: Storage>(seed: u64) {
    let mut trio = fan_out::<S>(seed).await;
    trio.shares_nothing(A);
    for at in [B, C, B, C] {
        let written = trio.write(A, 3);
        let report = trio.update(at, A).await;
        assert_eq!(report.snapshots, 1, "{written}");
        assert_eq!(of_mirrors(&trio, at).len(), 1);
    }
    assert!(trio.in_common(B, C).is_empty());
    trio.network.kill("a");
    trio.break_off(B).await;
    let refused = trio.resync(C, B).await.unwrap_err().to_string();
    assert!(refused.contains("no point to go on from"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn with_a_site_of_an_earlier_version_mirrors_go_on_as_before() {
    older_sites::<MemoryEngine>(1060).await;
    older_sites::<Embedded>(1061).await;
}

/// Writes blocks of a volume like a database: nine of ten go to a tenth of it. Which blocks it were.
fn write_like_a_database<S: Storage>(trio: &mut Trio<S>, count: usize) -> BTreeSet<u64> {
    let blocks = SIZE / BLOCK_BYTES;
    let mut written = BTreeSet::new();
    for _ in 0..count {
        let hot = if trio.rng.random_bool(0.9) { blocks / 10 } else { blocks };
        let block = trio.rng.random_range(0..hot);
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        bytes.chunks_mut(2).for_each(|pair| pair[0] = trio.rng.random());
        trio.sites[A].disk.engine.host_writes(&trio.volumes[A], block * BLOCK_BYTES, &bytes);
        trio.live[A][(block * BLOCK_BYTES) as usize..][..bytes.len()].copy_from_slice(&bytes);
        written.insert(block);
    }
    written
}

/// What updates of `c` bring, with `b` updated half-way between them: blocks, bytes on the wire, simulated seconds. And how many
/// blocks were written before `b`'s update and again after it.
async fn brought<S: Storage>(seed: u64, is_shared: bool, rounds: u64) -> (u64, u64, f64, u64) {
    let link = LinkSettings { latency: Duration::from_millis(50), ..LinkSettings::default() };
    let mut trio = Trio::<S>::over(seed, SIZE, link).await;
    trio.copy(B, A).await;
    trio.copy(C, A).await;
    if !is_shared {
        trio.shares_nothing(A);
    }
    for at in [B, C] {
        trio.update(at, A).await;
    }
    let (mut blocks, mut wire, mut seconds, mut twice) = (0, 0, 0.0, 0);
    for _ in 0..rounds {
        let before = write_like_a_database(&mut trio, 100);
        trio.update(B, A).await;
        let after = write_like_a_database(&mut trio, 100);
        let report = trio.update(C, A).await;
        blocks += report.changed_bytes / BLOCK_BYTES;
        wire += report.wire_bytes_received + report.wire_bytes_sent;
        seconds += report.duration_seconds;
        twice += before.intersection(&after).count() as u64;
    }
    (blocks, wire, seconds, twice)
}

#[tokio::test(start_paused = true)]
async fn the_price_of_a_point_in_common_is_what_was_overwritten_twice() {
    const ROUNDS: u64 = 3;
    let seed = 1090;
    let (with, wire_with, seconds_with, twice) = brought::<Embedded>(seed, true, ROUNDS).await;
    let (without, wire_without, seconds_without, _) = brought::<Embedded>(seed, false, ROUNDS).await;
    println!(
        "{without} blocks without, {with} with, {twice} written twice; {wire_without} and {wire_with} bytes on the wire; \
         {:.3} and {:.3} s an update",
        seconds_without / ROUNDS as f64,
        seconds_with / ROUNDS as f64
    );
    assert_eq!(with, without + twice);
    // Six round trips of 100 ms: a further stream, on connections of its own, and the word that it was published.
    assert!(seconds_with - seconds_without < ROUNDS as f64 * 0.8, "{seconds_with} {seconds_without}");
}
