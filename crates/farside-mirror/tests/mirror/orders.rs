//! Whatever the order in which three sites follow the one that took over, each goes on with a difference.

use std::time::Duration;

use farside_engine::SnapshotOwner;
use farside_mirror::Budgets;
use farside_transfer::{TransferReport, TransferResult};

use crate::directions::until;
use crate::support::embedded_storage::Embedded;
use crate::support::memory_engine::MemoryEngine;
use crate::support::site::{PATIENCE, Storage};
use crate::support::trio::{A, B, C, Trio};

const SIZE: u64 = 8 << 20;

fn is_difference(report: &TransferReport, at_most: u64) {
    assert_eq!(report.result, TransferResult::Ok, "{:?}", report.reason);
    assert!(report.base.is_some(), "a whole copy");
    assert!(report.changed_bytes <= at_most, "{} of {at_most} bytes moved", report.changed_bytes);
}

/// Snapshots of a site that no person made.
fn of_mirrors<S: Storage>(trio: &Trio<S>, at: usize) -> Vec<String> {
    let of_mirror = |s: &farside_engine::SnapshotInfo| s.owner != SnapshotOwner::Person;
    trio.snapshots(at).into_iter().filter(of_mirror).map(|s| s.name).collect()
}

/// Copies of `a` at `b` and at `c`, of which one is `newer`. Returns what was written since what both hold.
async fn fan_out<S: Storage>(seed: u64, newer: usize) -> (Trio<S>, u64) {
    let mut trio = Trio::new(seed, SIZE).await;
    trio.copy(B, A).await;
    trio.write(A, 5);
    trio.copy(C, A).await;
    for at in [B, C, if newer == B { C } else { B }] {
        trio.write(A, 3);
        trio.update(at, A).await;
    }
    let since = trio.write(A, 3);
    trio.update(newer, A).await;
    (trio, since)
}

/// How `b` becomes the original.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Takes {
    Broken,
    Swapped,
}

/// The old original follows first, for some rounds; the other replica was cut off, and follows then.
async fn the_old_original_first<S: Storage>(seed: u64, newer: usize, takes: Takes, rounds: u64) {
    println!("{newer} is newer, {takes:?}, {rounds} rounds");
    let (mut trio, mut since) = fan_out::<S>(seed, newer).await;
    since += trio.write(A, 3);
    match takes {
        Takes::Broken => {
            trio.break_off(B).await;
            since += trio.write(B, 3);
            trio.resync(A, B).await.unwrap();
        }
        Takes::Swapped => {
            trio.sites[B].destination.swap(&trio.volumes[B], PATIENCE).await.unwrap();
            trio.live[B] = trio.live[A].clone();
            trio.check(B);
        }
    }
    for round in 0..rounds {
        since += trio.write(B, 3);
        trio.update(A, B).await;
        let kept = of_mirrors(&trio, B);
        assert!(kept.len() <= 3, "round {round}: {kept:?}");
    }
    since += trio.write(B, 3);
    is_difference(&trio.resync(C, B).await.unwrap(), since);
    // With what the other one has, as a step of its own.
    let written = trio.write(B, 3);
    is_difference(&trio.update(A, B).await, since + written);
    is_difference(&trio.update(C, B).await, written);
    // Then nothing is left of it: a base for each of the two, and what each has for the other. That `c` is gone is said by and by.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let written = trio.write(B, 3);
    is_difference(&trio.update(A, B).await, written);
    let kept = [A, B, C].map(|at| of_mirrors(&trio, at).len());
    assert!(kept.iter().all(|kept| *kept <= 2), "{kept:?}: {:?}", trio.snapshots(B));
}

#[tokio::test(start_paused = true)]
async fn a_replica_follows_who_took_over_after_the_old_original_does() {
    let mut seed = 1300;
    for takes in [Takes::Broken, Takes::Swapped] {
        for newer in [B, C] {
            for rounds in [0, 1, 4] {
                the_old_original_first::<MemoryEngine>(seed, newer, takes, rounds).await;
                the_old_original_first::<Embedded>(seed + 100, newer, takes, rounds).await;
                seed += 1;
            }
        }
    }
}

/// What is kept for a replica that goes on by way of the old original ends with its first update.
async fn by_way_of_the_old_original<S: Storage>(seed: u64, newer: usize) {
    let (mut trio, mut since) = fan_out::<S>(seed, newer).await;
    since += trio.write(A, 3);
    trio.break_off(B).await;
    since += trio.write(B, 3);
    trio.resync(A, B).await.unwrap();
    is_difference(&trio.update(C, A).await, since);
    for _ in 0..4 {
        let mut written = trio.write(B, 3);
        trio.update(A, B).await;
        assert!(!trio.in_common(B, C).is_empty());
        let kept = [A, B].map(|at| of_mirrors(&trio, at).len());
        assert!(kept.iter().all(|kept| *kept <= 3), "{kept:?}: {:?}", trio.snapshots(B));
        written += trio.write(B, 3);
        trio.update(A, B).await;
        is_difference(&trio.update(C, A).await, written);
        assert!(!trio.in_common(B, C).is_empty());
    }
    // The one between is lost.
    trio.network.kill("a");
    let written = trio.write(B, 3);
    is_difference(&trio.resync(C, B).await.unwrap(), written);
}

#[tokio::test(start_paused = true)]
async fn a_replica_by_way_of_the_old_original_can_follow_who_took_over_at_any_time() {
    for (seed, newer) in [(1320, B), (1321, C)] {
        by_way_of_the_old_original::<MemoryEngine>(seed, newer).await;
        by_way_of_the_old_original::<Embedded>(seed + 100, newer).await;
    }
}

/// A copy of `a` at `b`, and of that at `c`; since the last update of `c` so many of `b`. Returns what was written since what all
/// hold.
async fn cascade<S: Storage>(seed: u64, rounds: u64) -> (Trio<S>, u64) {
    let mut trio = Trio::new(seed, SIZE).await;
    trio.copy(B, A).await;
    trio.copy(C, B).await;
    trio.write(A, 3);
    trio.update(B, A).await;
    trio.update(C, B).await;
    let mut since = 0;
    for round in 0..rounds {
        since += trio.write(A, 3);
        trio.update(B, A).await;
        let kept = of_mirrors(&trio, A);
        assert!(kept.len() <= 2, "round {round}: {kept:?}");
    }
    (trio, since)
}

/// The end of a chain takes over, and its head follows it; then the middle does, or goes on by way of the head.
async fn the_tail_takes_over<S: Storage>(seed: u64, rounds: u64, is_direct: bool) {
    println!("{rounds} rounds, {is_direct}");
    let (mut trio, mut since) = cascade::<S>(seed, rounds).await;
    trio.break_off(C).await;
    since += trio.write(C, 3);
    since += trio.write(A, 3);
    is_difference(&trio.resync(A, C).await.unwrap(), since);
    since += trio.write(C, 3);
    is_difference(&trio.update(A, C).await, since);
    if is_direct {
        is_difference(&trio.resync(B, C).await.unwrap(), since);
    } else {
        is_difference(&trio.update(B, A).await, since);
    }
    for at in [A, B] {
        trio.check(at);
        assert!(trio.live[at] == trio.live[C]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_head_of_a_chain_follows_its_tail() {
    let mut seed = 1340;
    for rounds in [0, 1, 4] {
        for is_direct in [true, false] {
            the_tail_takes_over::<MemoryEngine>(seed, rounds, is_direct).await;
            the_tail_takes_over::<Embedded>(seed + 100, rounds, is_direct).await;
            seed += 1;
        }
    }
}

/// The end of a chain takes over, its middle follows it, and for some rounds nobody hears of the head; then that comes by way of the
/// middle, and follows the end itself.
async fn the_head_comes_last<S: Storage>(seed: u64, rounds: u64) {
    let (mut trio, mut since) = cascade::<S>(seed, 1).await;
    trio.break_off(C).await;
    since += trio.write(C, 3);
    let source = trio.sites[A].source.clone();
    until("it is passed on", || !source.overtaken().is_empty()).await;
    is_difference(&trio.resync(B, C).await.unwrap(), since);
    tokio::time::sleep(Duration::from_secs(60)).await;
    for _ in 0..rounds {
        since += trio.write(C, 3);
        trio.update(B, C).await;
    }
    since += trio.write(A, 3);
    if rounds > 0 {
        let refused = trio.resync(A, C).await.unwrap_err().to_string();
        assert!(refused.contains("farside mirror resync p/v --from OTHER"), "{refused}");
    }
    is_difference(&trio.resync(A, B).await.unwrap(), since);
    let written = trio.write(C, 3);
    is_difference(&trio.resync(A, C).await.unwrap(), written);
    is_difference(&trio.update(B, C).await, written);
    // Whose mirror is over keeps nothing for it.
    tokio::time::sleep(Duration::from_secs(60)).await;
    trio.update(A, C).await;
    assert!(trio.sites[A].source.destinations().is_empty());
    let kept = of_mirrors(&trio, A);
    assert!(kept.len() <= 2, "{kept:?}");
}

#[tokio::test(start_paused = true)]
async fn the_head_of_a_chain_follows_by_way_of_the_middle() {
    for (seed, rounds) in [(1350, 0), (1351, 3)] {
        the_head_comes_last::<MemoryEngine>(seed, rounds).await;
        the_head_comes_last::<Embedded>(seed + 100, rounds).await;
    }
}

/// The middle of a chain is lost: its end follows its head.
async fn the_middle_is_lost<S: Storage>(seed: u64, rounds: u64) {
    let (mut trio, mut since) = cascade::<S>(seed, rounds).await;
    trio.network.kill("b");
    since += trio.write(A, 3);
    is_difference(&trio.resync(C, A).await.unwrap(), since);
    let written = trio.write(A, 3);
    is_difference(&trio.update(C, A).await, written);
}

#[tokio::test(start_paused = true)]
async fn the_tail_of_a_chain_follows_its_head_when_the_middle_is_lost() {
    for (seed, rounds) in [(1360, 0), (1361, 1), (1362, 4)] {
        the_middle_is_lost::<MemoryEngine>(seed, rounds).await;
        the_middle_is_lost::<Embedded>(seed + 100, rounds).await;
    }
}

/// The other replica follows who took over, and the old original follows that replica: a chain of the three.
async fn the_old_original_last<S: Storage>(seed: u64, newer: usize, rounds: u64) {
    let (mut trio, mut since) = fan_out::<S>(seed, newer).await;
    since += trio.write(A, 3);
    trio.break_off(B).await;
    since += trio.write(B, 3);
    is_difference(&trio.resync(C, B).await.unwrap(), since);
    // What was kept for the mirror that is over is let go.
    let source = trio.sites[A].source.clone();
    until("it is told", || source.destinations().len() == 1).await;
    for _ in 0..rounds {
        since += trio.write(B, 3);
        trio.update(C, B).await;
    }
    is_difference(&trio.resync(A, C).await.unwrap(), since);
    let written = trio.write(B, 3);
    trio.update(C, B).await;
    is_difference(&trio.update(A, C).await, written);
}

#[tokio::test(start_paused = true)]
async fn the_old_original_follows_by_way_of_the_other_replica() {
    for (seed, newer, rounds) in [(1380, B, 0), (1381, C, 0), (1382, B, 3), (1383, C, 3)] {
        the_old_original_last::<MemoryEngine>(seed, newer, rounds).await;
        the_old_original_last::<Embedded>(seed + 100, newer, rounds).await;
    }
}

/// What is kept for a site that is cut off gives way by itself: the mirror between loses nothing.
#[tokio::test(start_paused = true)]
async fn what_is_kept_for_a_further_site_is_within_the_budgets_and_goes_alone() {
    let (mut trio, _) = cascade::<MemoryEngine>(1390, 0).await;
    trio.write(A, 100);
    trio.update(B, A).await;
    assert_eq!(of_mirrors(&trio, A).len(), 2, "the base of b, and what c stands on");
    let mirror = trio.mirror(B).status().relationship.id;
    let source = &trio.sites[A].source;
    assert!(source.check_budgets().await.is_empty());
    source.set_budgets(Budgets { pinned_bytes: Some(1 << 20), ..Budgets::default() });
    tokio::time::sleep(Duration::from_secs(61)).await;
    let gone = source.check_budgets().await;
    assert!(gone.len() == 1 && gone[0] != mirror, "{gone:?}");
    assert_eq!(of_mirrors(&trio, A).len(), 1);
    assert!(trio.sites[A].source.check_budgets().await.is_empty());
    // It is named again, and not here any more.
    for _ in 0..2 {
        let written = trio.write(A, 3);
        is_difference(&trio.update(B, A).await, written);
        assert_eq!(of_mirrors(&trio, A).len(), 1);
    }
    is_difference(&trio.update(C, B).await, SIZE);
    // The end of the mirror is the end of it.
    let written = trio.write(A, 3);
    is_difference(&trio.update(B, A).await, written);
    assert_eq!(of_mirrors(&trio, A).len(), 2);
    trio.sites[B].destination.delete(&trio.volumes[B]).await.unwrap();
    let source = trio.sites[A].source.clone();
    until("it is told", || source.destinations().is_empty()).await;
    assert_eq!(of_mirrors(&trio, A), Vec::<String>::new());
}
