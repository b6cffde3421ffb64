//! Three sites: whatever two of them do, the third goes on with a difference.

use std::time::Duration;

use farside_engine::{ChangedBytes, SnapshotOwner};
use farside_mirror::{Comparing, ResyncRequest, Schedule, State};
use farside_transfer::TransferReport;

use crate::directions::until;
use crate::support::embedded_storage::Embedded;
use crate::support::memory_engine::MemoryEngine;
use crate::support::site::{self, PATIENCE, Storage, assert_ok};
use crate::support::trio::{A, B, C, Trio};

const SIZE: u64 = 8 << 20;

/// Copies of `a` at `b` and at `c`.
async fn fan_out<S: Storage>(seed: u64) -> Trio<S> {
    let mut trio = Trio::new(seed, SIZE).await;
    trio.copy(B, A).await;
    trio.copy(C, A).await;
    trio
}

/// A copy of `a` at `b`, and of that at `c`.
async fn cascade<S: Storage>(seed: u64) -> Trio<S> {
    let mut trio = Trio::new(seed, SIZE).await;
    trio.copy(B, A).await;
    trio.copy(C, B).await;
    trio
}

fn is_difference(report: &TransferReport, at_most: u64) {
    assert!(report.base.is_some(), "a whole copy: {report:?}");
    assert!(report.changed_bytes <= at_most, "{} of {at_most} bytes moved", report.changed_bytes);
}

/// The further replica has what the old original wrote after the last update of the one that takes over.
async fn failover_and_failback_beside_a_third<S: Storage>(seed: u64) {
    let mut trio = fan_out::<S>(seed).await;
    let mut written = trio.write(A, 10);
    trio.update(B, A).await;
    written += trio.write(A, 5);
    trio.update(C, A).await;
    let shown_at_c = trio.live[C].clone();
    written += trio.write(A, 5);
    trio.break_off(B).await;
    written += trio.write(B, 5);
    trio.resync(A, B).await.unwrap();
    is_difference(&trio.update(C, A).await, written);
    assert!(trio.keeps(C, &shown_at_c), "what is on no line of the source any more");
    // And back.
    trio.sites[A].destination.swap(&trio.volumes[A], PATIENCE).await.unwrap();
    let written = trio.write(A, 5);
    is_difference(&trio.update(C, A).await, written);
    is_difference(&trio.update(B, A).await, written);
    trio.mirror(C).resync(PATIENCE).await.unwrap().ended().await.unwrap();
    trio.check(C);
}

#[tokio::test(start_paused = true)]
async fn a_third_replica_goes_on_with_a_difference_after_failover_and_failback() {
    failover_and_failback_beside_a_third::<MemoryEngine>(900).await;
    failover_and_failback_beside_a_third::<Embedded>(901).await;
}

async fn rollback_below_the_base<S: Storage>(seed: u64) {
    let mut trio = fan_out::<S>(seed).await;
    let then = trio.live[A].clone();
    let good = trio.snapshot(A, "good");
    let written = trio.write(A, 5);
    trio.update(B, A).await;
    trio.delete_snapshot(B, trio.snapshots(B).iter().find(|s| s.name == "good").unwrap().uuid);
    let shown = trio.live[B].clone();
    site::roll_back(&*trio.sites[A].disk.engine.engine(), &trio.volumes[A], good);
    trio.live[A] = then;
    is_difference(&trio.update(B, A).await, written);
    assert!(trio.keeps(B, &shown), "what the source shows no more");
    is_difference(&trio.update(C, A).await, written);
}

#[tokio::test(start_paused = true)]
async fn a_replica_goes_on_after_a_rollback_below_its_base() {
    rollback_below_the_base::<MemoryEngine>(902).await;
    rollback_below_the_base::<Embedded>(903).await;
}

async fn drill_at_the_middle<S: Storage>(seed: u64) {
    let mut trio = cascade::<S>(seed).await;
    trio.break_off(B).await;
    let written = trio.write(B, 1);
    trio.update(C, B).await;
    let drilled = trio.live[C].clone();
    trio.resync(B, A).await.unwrap();
    is_difference(&trio.update(C, B).await, written);
    assert!(trio.keeps(C, &drilled));
    let written = trio.write(A, 5);
    trio.update(B, A).await;
    is_difference(&trio.update(C, B).await, written);
    // What `c` showed before is kept at `a` until the next update of `b`.
    assert_eq!((trio.pinned(A), trio.pinned(B), trio.pinned(C)), (2, 1, 1));
    trio.update(B, A).await;
    assert_eq!((trio.pinned(A), trio.pinned(C)), (1, 1), "with nothing written one stands for all");
    trio.update(C, B).await;
    assert_eq!((trio.pinned(A), trio.pinned(B), trio.pinned(C)), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_drill_at_the_middle_of_a_cascade_costs_the_last_site_a_difference() {
    drill_at_the_middle::<MemoryEngine>(904).await;
    drill_at_the_middle::<Embedded>(905).await;
}

async fn named_at_the_middle<S: Storage>(seed: u64) {
    let mut trio = cascade::<S>(seed).await;
    trio.snapshot(B, "audit");
    trio.update(C, B).await;
    let written = trio.write(A, 5);
    trio.update(B, A).await;
    is_difference(&trio.update(C, B).await, written);
    let on_line = trio.sites[B].disk.engine.engine().snapshots(&trio.volumes[B]).unwrap();
    assert!(on_line.iter().any(|s| s.name == "audit"), "what a person named stays on the line");
    assert!(!trio.snapshots(C).iter().any(|s| s.name.starts_with("rescue")), "nothing was lost");
}

#[tokio::test(start_paused = true)]
async fn a_named_snapshot_at_the_middle_of_a_cascade_does_not_stop_it() {
    named_at_the_middle::<MemoryEngine>(906).await;
    named_at_the_middle::<Embedded>(907).await;
}

/// The original is gone for good; the further replica shows what the survivor took over, under another name.
async fn second_replica_follows_the_survivor<S: Storage>(seed: u64) {
    let mut trio = fan_out::<S>(seed).await;
    trio.write(A, 10);
    trio.update(B, A).await;
    trio.update(C, A).await;
    trio.network.kill("a");
    trio.break_off(B).await;
    let (b, of_b) = (trio.sites[B].node.id(), trio.volumes[B].clone());
    let plan =
        trio.sites[C].destination.plan_resync(&trio.volumes[C], Some((b, of_b)), PATIENCE).await.unwrap();
    assert_eq!(plan.set_aside, ChangedBytes::default());
    let written = trio.write(B, 5);
    let of_before = trio.mirror(C).status().relationship.id;
    is_difference(&trio.resync(C, B).await.unwrap(), written);
    assert_eq!(trio.mirror(C).status().state, State::Mirrored);
    let written = trio.write(B, 5);
    is_difference(&trio.update(C, B).await, written);
    let all = trio.snapshots(C);
    assert!(all.iter().all(|s| !s.pinned_by.contains(&of_before)), "nobody keeps anything for what is over");
    assert!(all.iter().any(|s| s.name.starts_with("base-") && s.owner == SnapshotOwner::Person), "{all:?}");
    trio.crash(C, 0).await;
    trio.check(C);
    assert_eq!(trio.mirror(C).status().relationship.peer, trio.sites[B].node.id());
}

#[tokio::test(start_paused = true)]
async fn a_second_replica_follows_the_survivor_with_a_difference() {
    second_replica_follows_the_survivor::<MemoryEngine>(910).await;
    second_replica_follows_the_survivor::<Embedded>(911).await;
}

/// Nothing of the change is left if it cannot be.
async fn a_source_that_has_nothing_in_common<S: Storage>(seed: u64) {
    let mut trio = fan_out::<S>(seed).await;
    // Otherwise `b` would keep what `c` was broken off at.
    trio.shares_nothing(A);
    trio.break_off(C).await;
    trio.write(C, 30);
    trio.write(A, 3);
    trio.update(B, A).await;
    // Everything that both could know is gone.
    let before = (trio.mirror(C).status().relationship, format!("{:?}", trio.snapshots(C)));
    let refused = trio.resync(C, B).await.unwrap_err().to_string();
    assert!(refused.contains("no point to go on from"), "{refused}");
    assert_eq!((trio.mirror(C).status().relationship, format!("{:?}", trio.snapshots(C))), before);
    assert_eq!(trio.mirror(C).status().state, State::BrokenOff);
    trio.check(C);
    let written = trio.write(A, 3);
    let report = trio.mirror(C).resync(PATIENCE).await.unwrap().ended().await.unwrap();
    is_difference(&report, SIZE);
    assert!(written > 0);
    trio.live[C] = trio.live[A].clone();
    trio.check(C);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_source_that_cannot_be_changes_nothing() {
    a_source_that_has_nothing_in_common::<MemoryEngine>(912).await;
    a_source_that_has_nothing_in_common::<Embedded>(913).await;
}

/// Each site in turn is the one that hosts write to; whoever comes back follows whoever is on.
async fn rotation<S: Storage>(seed: u64) {
    let mut trio = fan_out::<S>(seed).await;
    trio.write(A, 5);
    trio.update(B, A).await;
    trio.update(C, A).await;
    // Planned turns with one, then with the other: neither stands in the other's way.
    trio.sites[B].destination.swap(&trio.volumes[B], PATIENCE).await.unwrap();
    trio.sites[A].destination.swap(&trio.volumes[A], PATIENCE).await.unwrap();
    trio.sites[C].destination.swap(&trio.volumes[C], PATIENCE).await.unwrap();
    let mut written = trio.write(C, 5);
    is_difference(&trio.update(A, C).await, written);
    is_difference(&trio.update(B, A).await, written);
    // The site that is on dies, and one after the other takes over.
    trio.break_off(A).await;
    written = trio.write(A, 5);
    is_difference(&trio.resync(C, A).await.unwrap(), written);
    is_difference(&trio.update(B, A).await, written);
    trio.break_off(B).await;
    written = trio.write(B, 5);
    is_difference(&trio.resync(A, B).await.unwrap(), written);
    is_difference(&trio.update(C, A).await, written);
    is_difference(&trio.resync(C, B).await.unwrap(), written);
    for at in [A, B, C] {
        trio.check(at);
        assert!(trio.live[at] == trio.live[B]);
    }
}

#[tokio::test(start_paused = true)]
async fn each_of_three_sites_takes_its_turn_with_differences_only() {
    rotation::<MemoryEngine>(914).await;
    rotation::<Embedded>(915).await;
}

/// The end of a mirror leaves the means to begin it again.
async fn deleted_and_followed_again<S: Storage>(seed: u64) {
    let mut trio = cascade::<S>(seed).await;
    let written = trio.write(A, 5);
    trio.update(B, A).await;
    // At the source, too, a person has what both hold; here nobody has named anything.
    trio.snapshot(A, "named");
    trio.sites[B].destination.delete(&trio.volumes[B]).await.unwrap();
    let left: Vec<_> = trio.snapshots(B).into_iter().filter(|s| s.name.starts_with("base-")).collect();
    assert_eq!(left.len(), 1);
    trio.delete_snapshot(B, left[0].uuid);
    assert!(trio.snapshots(B).iter().all(|s| s.pinned_by.is_empty() || s.owner != SnapshotOwner::Person));
    // Not even that: what the volume shows is compared.
    is_difference(&trio.resync(B, A).await.unwrap(), 0);
    is_difference(&trio.update(C, B).await, written);
    trio.sites[B].destination.delete(&trio.volumes[B]).await.unwrap();
    trio.snapshot(A, "once-more");
    let written = trio.write(A, 5);
    // One that is cut and goes on, as when the clock runs ahead of a busy machine, names no base: what travels is no more.
    let report = trio.resync(B, A).await.unwrap();
    assert!(report.changed_bytes <= written, "{} of {written} bytes moved: {report:?}", report.changed_bytes);
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_was_deleted_goes_on_with_a_difference() {
    deleted_and_followed_again::<MemoryEngine>(916).await;
    deleted_and_followed_again::<Embedded>(917).await;
}

/// Neither side has a snapshot of what both show.
async fn equal_without_a_snapshot<S: Storage>(seed: u64) {
    let mut trio = fan_out::<S>(seed).await;
    trio.sites[B].destination.delete(&trio.volumes[B]).await.unwrap();
    while trio.sites[A].source.destinations().len() > 1 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for snapshot in trio.snapshots(B) {
        trio.delete_snapshot(B, snapshot.uuid);
    }
    let before = format!("{:?}", trio.snapshots(A));
    let (a, of_a) = (trio.sites[A].node.id(), trio.volumes[A].clone());
    trio.sites[B].destination.plan_resync(&trio.volumes[B], Some((a, of_a)), PATIENCE).await.unwrap();
    assert_eq!(
        (format!("{:?}", trio.snapshots(A)), trio.snapshots(B).len()),
        (before, 0),
        "a plan changes nothing"
    );
    is_difference(&trio.resync(B, A).await.unwrap(), 0);
    let written = trio.write(A, 5);
    is_difference(&trio.update(B, A).await, written);
    is_difference(&trio.update(C, A).await, written);
}

#[tokio::test(start_paused = true)]
async fn equal_content_is_a_base_though_no_snapshot_holds_it() {
    equal_without_a_snapshot::<MemoryEngine>(922).await;
    equal_without_a_snapshot::<Embedded>(923).await;
}

/// A drill at an earlier point leaves nothing behind that was not there.
async fn a_drill_at_an_earlier_point<S: Storage>(seed: u64) {
    let mut trio = fan_out::<S>(seed).await;
    let good = trio.snapshot(A, "good");
    trio.write(A, 5);
    trio.update(B, A).await;
    trio.write(A, 5);
    trio.update(B, A).await;
    trio.mirror(B).break_off(Some(good)).await.unwrap();
    let set_aside: Vec<_> =
        trio.snapshots(B).into_iter().filter(|s| s.owner == SnapshotOwner::Person).collect();
    assert!(set_aside.iter().any(|s| s.name.starts_with("rescue-")), "{set_aside:?}");
    let report = trio.mirror(B).resync(PATIENCE).await.unwrap().ended().await.unwrap();
    is_difference(&report, 0);
    trio.write(A, 5);
    trio.update(B, A).await;
    let left: Vec<String> = trio.snapshots(B).into_iter().map(|s| s.name).collect();
    let set_aside = left.iter().filter(|name| name.starts_with("rescue-")).count();
    assert_eq!(
        (left.len(), set_aside),
        (3, 1),
        "the named one, what the break has named, and the base: {left:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_break_at_a_snapshot_and_a_resync_leave_no_base_behind() {
    a_drill_at_an_earlier_point::<MemoryEngine>(918).await;
    a_drill_at_an_earlier_point::<Embedded>(919).await;
}

/// Two that have nothing in common any more but most of their data.
async fn compared_whole<S: Storage>(seed: u64) {
    let mut trio = fan_out::<S>(seed).await;
    // As where `a` is of an earlier version: otherwise `c` would have `b`'s base, too.
    trio.shares_nothing(A);
    let mut written = trio.write(A, 5);
    trio.update(B, A).await;
    written += trio.write(A, 5);
    trio.update(C, A).await;
    trio.network.kill("a");
    trio.break_off(B).await;
    written += trio.write(B, 5);
    written += trio.write(C, 0);
    let shown = trio.live[C].clone();
    let refused = trio.resync(C, B).await.unwrap_err().to_string();
    assert!(refused.contains("--whole"), "{refused}");
    let (b, of_b, here) = (trio.sites[B].node.id(), trio.volumes[B].clone(), trio.volumes[C].clone());
    let everything = Comparing::Everything;
    let destination = trio.sites[C].destination.clone();
    let plan = destination
        .plan_resync_comparing(&here, Some((b, of_b.clone())), everything, false, PATIENCE)
        .await
        .unwrap();
    assert_eq!((plan.incoming, plan.set_aside), (None, ChangedBytes::default()));
    let (_, asked) = destination
        .resync_as_asked(b, of_b, here, Schedule::OnRequest, &ResyncRequest::new(everything, PATIENCE))
        .await
        .unwrap();
    // Cut in the middle, it is gone on with.
    trio.crash(C, seed).await;
    drop(asked);
    let report = trio.mirror(C).update(PATIENCE).await.unwrap().ended().await.unwrap();
    assert_ok(&report);
    trio.live[C] = trio.live[B].clone();
    trio.check(C);
    assert!(
        report.wire_bytes_received < written,
        "{} of {written} bytes travelled",
        report.wire_bytes_received
    );
    assert!(trio.keeps(C, &shown), "what only this side had");
    let written = trio.write(B, 5);
    is_difference(&trio.update(C, B).await, written);
}

#[tokio::test(start_paused = true)]
async fn with_nothing_in_common_everything_is_compared_and_what_differs_travels() {
    compared_whole::<MemoryEngine>(920).await;
    compared_whole::<Embedded>(921).await;
}

/// Where hosts went on, the old original stays overtaken when the volume follows a third site.
#[tokio::test(start_paused = true)]
async fn an_overtaken_original_stays_so_when_its_replica_follows_another() {
    let mut trio = fan_out::<MemoryEngine>(924).await;
    *trio.sites[A].rights.fences.lock() = true;
    trio.update(B, A).await;
    trio.update(C, A).await;
    trio.break_off(C).await;
    trio.write(C, 2);
    trio.break_off(B).await;
    trio.write(B, 3);
    let source = trio.sites[A].source.clone();
    until("both are heard", || source.overtaken().len() == 2).await;
    trio.resync(B, C).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(source.overtaken().len(), 2);
    assert_eq!(source.fenced(), [trio.volumes[A].clone()]);
    // It follows whichever counts, and that clears what concerns that one.
    trio.resync(A, C).await.unwrap();
    assert_eq!(trio.update(B, C).await.changed_bytes, 0);
}
