//! The last site of a chain takes over: the first learns it whatever the middle has heard, and keeps nothing for what is over.

use std::time::Duration;

use farside_engine::SnapshotOwner;
use farside_transfer::protocol::Body;
use farside_transfer::{TransferReport, TransferResult};

use crate::directions::until;
use crate::support::embedded_storage::Embedded;
use crate::support::memory_engine::MemoryEngine;
use crate::support::site::{PATIENCE, Storage};
use crate::support::trio::{A, B, C, Trio};

const SIZE: u64 = 8 << 20;

/// `b` follows `a`, and `c` follows `b`.
async fn chain<S: Storage>(seed: u64) -> Trio<S> {
    let mut trio = Trio::new(seed, SIZE).await;
    trio.copy(B, A).await;
    trio.copy(C, B).await;
    trio.write(A, 5);
    trio.update(B, A).await;
    trio.update(C, B).await;
    trio.fence(A);
    trio
}

fn is_difference(report: &TransferReport, at_most: u64) {
    assert_eq!(report.result, TransferResult::Ok, "{:?}", report.reason);
    assert!(report.base.is_some() && report.changed_bytes <= at_most, "{report:?}");
}

/// The middle was down when the tail took over, and follows it before its word has come.
async fn before_the_word<S: Storage>(seed: u64) {
    let mut trio = chain::<S>(seed).await;
    let word = trio.sites[B].fault_injector.hold(|body| matches!(body, Body::Overtaken(_)));
    trio.break_off(C).await;
    let mut written = trio.write(C, 5);
    word.held().await;
    is_difference(&trio.resync(B, C).await.unwrap(), written);
    let a = trio.sites[A].source.clone();
    until("the head knows that hosts went on", || !a.overtaken().is_empty()).await;
    assert_eq!(a.fenced(), [trio.volumes[A].clone()]);
    let of = a.overtaken()[0].overtaken.clone().unwrap();
    assert_eq!(of.beyond.as_deref(), Some(format!("c:{}", trio.volumes[C]).as_str()));
    word.release().await;
    // It has kept what it can come back by.
    written += trio.write(C, 3);
    trio.update(B, C).await;
    is_difference(&trio.resync(A, B).await.unwrap(), written);
    until("it is decided", || a.fenced().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_middle_that_follows_the_tail_before_it_has_heard_tells_the_head() {
    before_the_word::<MemoryEngine>(1_400).await;
    before_the_word::<Embedded>(1_401).await;
}

/// Nothing is left at the head of a mirror that is over, once it and its former replica follow the same site.
async fn both_follow_the_tail<S: Storage>(seed: u64) {
    let mut trio = chain::<S>(seed).await;
    trio.break_off(C).await;
    trio.write(C, 5);
    let a = trio.sites[A].source.clone();
    until("the head knows", || !a.overtaken().is_empty()).await;
    trio.resync(A, C).await.unwrap();
    trio.resync(B, C).await.unwrap();
    for _ in 0..3 {
        trio.write(C, 2);
        trio.update(A, C).await;
        trio.update(B, C).await;
    }
    until("nothing is kept for what is over", || a.destinations().is_empty()).await;
    trio.write(C, 2);
    trio.update(A, C).await;
    assert!(
        trio.pinned(A) <= 2,
        "its base, and what it has in common with the other: {:?}",
        trio.snapshots(A)
    );
}

#[tokio::test(start_paused = true)]
async fn of_a_chain_whose_ends_follow_its_tail_nothing_is_left() {
    both_follow_the_tail::<MemoryEngine>(1_402).await;
    both_follow_the_tail::<Embedded>(1_403).await;
}

/// After a role change with a third site the new original keeps a base for each that follows it, and nothing of before.
async fn swapped_beside_a_third<S: Storage>(seed: u64) {
    let mut trio = Trio::<S>::new(seed, SIZE).await;
    trio.copy(B, A).await;
    trio.copy(C, A).await;
    trio.write(A, 3);
    trio.update(B, A).await;
    trio.update(C, A).await;
    trio.sites[C].destination.swap(&trio.volumes[C], PATIENCE).await.unwrap();
    trio.live[C] = trio.live[A].clone();
    trio.resync(B, C).await.unwrap();
    // Its old source is told within seconds.
    tokio::time::sleep(Duration::from_secs(10)).await;
    for _ in 0..2 {
        trio.write(C, 2);
        trio.update(A, C).await;
        trio.update(B, C).await;
    }
    let kept: Vec<_> = trio.snapshots(C).into_iter().filter(|s| s.owner != SnapshotOwner::Person).collect();
    assert!(kept.len() <= 2, "{kept:#?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_swap_beside_a_third_site_nothing_of_before_is_kept() {
    swapped_beside_a_third::<MemoryEngine>(1_404).await;
    swapped_beside_a_third::<Embedded>(1_405).await;
}
