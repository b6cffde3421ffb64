//! What was broken off follows somebody else since: whoever was overtaken by it learns where hosts went on, and no original stays
//! fenced that everybody follows.

use std::time::Duration;

use crate::directions::until;
use crate::support::embedded_storage::Embedded;
use crate::support::memory_engine::MemoryEngine;
use crate::support::site::{PATIENCE, Storage};
use crate::support::trio::{A, B, C, Trio};
use farside_mirror::Schedule;

const SIZE: u64 = 2 << 20;
/// Whatever is said again every few minutes has been said.
const LONG: Duration = Duration::from_secs(900);

/// `b` mirrors `a`, and `c` the one of `middle`; whoever is overtaken is fenced.
async fn fenced<S: Storage>(seed: u64, middle: usize) -> Trio<S> {
    let mut trio = Trio::<S>::new(seed, SIZE).await;
    [A, B, C].iter().for_each(|at| trio.fence(*at));
    trio.snapshot(A, "first");
    trio.copy(B, A).await;
    trio.copy(C, middle).await;
    trio
}

async fn broken_off<S: Storage>(trio: &mut Trio<S>, at: usize, from: usize) {
    trio.break_off(at).await;
    trio.write(at, 2);
    let (peer, here) = (trio.sites[at].node.id(), trio.sites[from].source.clone());
    until("it is heard", || here.overtaken().iter().any(|r| r.peer == peer)).await;
}

/// One site is the original, the others follow it, and nobody is overtaken; the roles can change.
async fn is_decided<S: Storage>(mut trio: Trio<S>, original: usize, followers: [usize; 2]) {
    tokio::time::sleep(LONG).await;
    for (at, site) in trio.sites.iter().enumerate() {
        assert_eq!(site.source.overtaken(), [], "{at} is overtaken");
        assert!(site.source.fenced().is_empty(), "{at} is fenced");
    }
    let engine = trio.sites[original].disk.engine.engine();
    assert!(!engine.volume(&trio.volumes[original]).unwrap().is_replica);
    trio.write(original, 2);
    let mut ordered = followers;
    // Whoever follows another one comes after it.
    ordered.sort_by_key(|at| trio.mirror(*at).status().relationship.peer != trio.sites[original].node.id());
    for at in ordered {
        let peer = trio.mirror(at).status().relationship.peer;
        let from = [A, B, C].into_iter().find(|from| trio.sites[*from].node.id() == peer).unwrap();
        trio.update(at, from).await;
        let why = trio.mirror(at).status().why.unwrap_or_default();
        assert!(!why.contains("overtaken"), "{at}: {why}");
    }
    trio.sites[followers[0]].destination.swap(&trio.volumes[followers[0]], PATIENCE).await.unwrap();
    trio.write(followers[0], 2);
    trio.update(original, followers[0]).await;
}

/// Both replicas of `a` were broken off, and `b` counts.
async fn fan_out<S: Storage>(seed: u64, order: [usize; 2]) {
    let mut trio = fenced::<S>(seed, A).await;
    broken_off(&mut trio, B, A).await;
    broken_off(&mut trio, C, A).await;
    for at in order {
        trio.resync(at, B).await.unwrap();
    }
    is_decided(trio, B, [A, C]).await;
}

#[tokio::test(start_paused = true)]
async fn all_follow_one_of_two_that_were_broken_off() {
    fan_out::<MemoryEngine>(1200, [A, C]).await;
    fan_out::<MemoryEngine>(1201, [C, A]).await;
    fan_out::<Embedded>(1202, [A, C]).await;
    fan_out::<Embedded>(1203, [C, A]).await;
}

/// Both links of the chain were cut, and the last site counts.
async fn cascade<S: Storage>(seed: u64, order: [usize; 2]) {
    let mut trio = fenced::<S>(seed, B).await;
    broken_off(&mut trio, B, A).await;
    broken_off(&mut trio, C, B).await;
    for at in order {
        trio.resync(at, C).await.unwrap();
    }
    is_decided(trio, C, [A, B]).await;
}

#[tokio::test(start_paused = true)]
async fn all_follow_the_last_site_of_a_chain() {
    cascade::<MemoryEngine>(1204, [A, B]).await;
    cascade::<MemoryEngine>(1205, [B, A]).await;
    cascade::<Embedded>(1206, [A, B]).await;
    cascade::<Embedded>(1207, [B, A]).await;
}

/// The old original follows the one that took over by way of the third.
async fn by_way_of_the_third<S: Storage>(seed: u64) {
    let mut trio = fenced::<S>(seed, A).await;
    broken_off(&mut trio, B, A).await;
    trio.resync(C, B).await.unwrap();
    trio.resync(A, C).await.unwrap();
    is_decided(trio, B, [C, A]).await;
}

/// The same, the other way round: the one that was broken off follows the original by way of the third.
async fn back_by_way_of_the_third<S: Storage>(seed: u64) {
    let mut trio = fenced::<S>(seed, A).await;
    broken_off(&mut trio, C, A).await;
    trio.resync(C, B).await.unwrap();
    tokio::time::sleep(LONG).await;
    for site in &trio.sites {
        assert_eq!(site.source.overtaken(), []);
    }
    is_decided(trio, A, [B, C]).await;
}

/// The original counts after all: one comes back itself, and with it who follows it.
async fn back_with_the_third<S: Storage>(seed: u64) {
    let mut trio = fenced::<S>(seed, A).await;
    broken_off(&mut trio, B, A).await;
    broken_off(&mut trio, C, A).await;
    trio.resync(C, B).await.unwrap();
    tokio::time::sleep(LONG).await;
    assert_eq!(trio.sites[A].source.fenced(), [trio.volumes[A].clone()], "hosts write at b");
    trio.resync(B, A).await.unwrap();
    is_decided(trio, A, [B, C]).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_followed_by_way_of_another_is_followed() {
    by_way_of_the_third::<MemoryEngine>(1208).await;
    by_way_of_the_third::<Embedded>(1209).await;
    back_by_way_of_the_third::<MemoryEngine>(1210).await;
    back_by_way_of_the_third::<Embedded>(1211).await;
    back_with_the_third::<MemoryEngine>(1212).await;
    back_with_the_third::<Embedded>(1213).await;
}

/// Where nobody follows the old original, it stays overtaken, though the one that took over follows another by now.
#[tokio::test(start_paused = true)]
async fn an_original_that_nobody_follows_stays_overtaken() {
    let mut trio = fenced::<MemoryEngine>(1214, B).await;
    broken_off(&mut trio, B, A).await;
    broken_off(&mut trio, C, B).await;
    trio.resync(B, C).await.unwrap();
    trio.crash(A, 1).await;
    trio.fence(A);
    tokio::time::sleep(LONG).await;
    assert_eq!(trio.sites[A].source.fenced(), [trio.volumes[A].clone()], "hosts write at c");
    // It follows where they went on, which its mark has named.
    trio.resync(A, C).await.unwrap();
    is_decided(trio, C, [A, B]).await;
}

/// Two replicas that nobody broke off are asked at the same time to follow each other: no second original comes of it.
async fn replicas_that_cross<S: Storage>(seed: u64) {
    let mut trio = fenced::<S>(seed, A).await;
    trio.write(A, 2);
    trio.update(B, A).await;
    trio.update(C, A).await;
    let ask = async |at: usize, from: usize| {
        let (peer, source, here) =
            (trio.sites[from].node.id(), trio.volumes[from].clone(), trio.volumes[at].clone());
        let asked = trio.sites[at].destination.resync_from(peer, source, here, Schedule::OnRequest, PATIENCE);
        asked.await?.1.ended().await
    };
    let ended = tokio::join!(ask(B, C), ask(C, B));
    println!("{ended:?}");
    tokio::time::sleep(LONG).await;
    for (at, volume) in trio.volumes.iter().enumerate() {
        let info = trio.sites[at].disk.engine.engine().volume(volume).unwrap();
        assert_eq!(info.is_replica, at != A, "seed {seed}, {volume}");
    }
    // Whichever became of it, each has a point in common with the original, and comes back with a difference.
    let written = trio.write(A, 2);
    for at in [B, C] {
        let report = trio.resync(at, A).await.unwrap();
        assert!(report.base.is_some() && report.changed_bytes <= written, "seed {seed}: {report:?}");
    }
    let source = trio.sites[A].source.clone();
    until("what is over is let go", || source.destinations().len() == 2 && trio.pinned(A) <= 3).await;
}

#[tokio::test(start_paused = true)]
async fn of_two_replicas_that_cross_none_becomes_an_original() {
    for seed in 1220..1226 {
        replicas_that_cross::<MemoryEngine>(seed).await;
    }
    replicas_that_cross::<Embedded>(1232).await;
}

/// `a` was away while both replicas went on and `b` came to follow `c`; then `c` follows `a` again, and `b` is heard last, before it
/// has had anything of that. What is said to `a` is as it was before.
async fn a_word_that_comes_after_the_decision<S: Storage>(seed: u64, is_restarted: bool) {
    let mut trio = fenced::<S>(seed, A).await;
    trio.network.cut("a", "b");
    trio.network.cut("a", "c");
    trio.break_off(C).await;
    trio.write(C, 2);
    trio.break_off(B).await;
    trio.write(B, 2);
    trio.resync(B, C).await.unwrap();
    trio.network.heal("a", "c");
    let here = trio.sites[A].source.clone();
    until("it is heard", || !here.fenced().is_empty()).await;
    trio.resync(C, A).await.unwrap();
    tokio::time::sleep(LONG).await;
    if is_restarted {
        trio.crash(A, seed).await;
        trio.fence(A);
        trio.network.cut("a", "b");
        let (here, c) = (trio.sites[A].node.clone(), trio.sites[C].node.id());
        here.wait_link(c, PATIENCE).await.unwrap();
        tokio::time::sleep(LONG).await;
    }
    let here = trio.sites[A].source.clone();
    assert_eq!(here.overtaken(), []);
    let mut changes = here.overtaken_changes();
    changes.mark_unchanged();
    trio.network.heal("a", "b");
    let (node, b) = (trio.sites[A].node.clone(), trio.sites[B].node.id());
    node.wait_link(b, PATIENCE).await.unwrap();
    tokio::time::sleep(LONG).await;
    assert!(!changes.has_changed().unwrap() || here.overtaken().is_empty(), "{:?}", here.overtaken());
    assert!(here.fenced().is_empty());
    is_decided(trio, A, [C, B]).await;
}

#[tokio::test(start_paused = true)]
async fn an_original_that_all_follow_is_not_fenced_for_what_is_heard_late() {
    a_word_that_comes_after_the_decision::<MemoryEngine>(1240, false).await;
    a_word_that_comes_after_the_decision::<Embedded>(1241, false).await;
    a_word_that_comes_after_the_decision::<MemoryEngine>(1242, true).await;
    a_word_that_comes_after_the_decision::<Embedded>(1243, true).await;
}

/// The same, but what `b` follows cannot say so: `b` itself says it over, once it has had an update of that.
async fn a_word_that_is_said_over<S: Storage>(seed: u64) {
    let mut trio = fenced::<S>(seed, A).await;
    trio.network.cut("a", "b");
    trio.break_off(C).await;
    trio.write(C, 2);
    trio.break_off(B).await;
    trio.resync(B, C).await.unwrap();
    trio.resync(C, A).await.unwrap();
    tokio::time::sleep(LONG).await;
    trio.network.cut("a", "c");
    trio.crash(A, seed).await;
    trio.fence(A);
    trio.network.heal("a", "b");
    let here = trio.sites[A].source.clone();
    until("it is noted", || here.fenced() == [trio.volumes[A].clone()]).await;
    tokio::time::sleep(LONG).await;
    assert_eq!(here.overtaken().len(), 1, "hosts may be writing at c, for all that is known");
    // Its source has nothing new, and says where it stands.
    trio.update(B, C).await;
    tokio::time::sleep(LONG).await;
    assert_eq!((here.overtaken(), here.fenced()), (vec![], vec![]));
    trio.network.heal("a", "c");
    let (node, c) = (trio.sites[A].node.clone(), trio.sites[C].node.id());
    node.wait_link(c, PATIENCE).await.unwrap();
    is_decided(trio, A, [C, B]).await;
}

#[tokio::test(start_paused = true)]
async fn what_went_on_says_itself_that_it_stands_in_line_by_now() {
    a_word_that_is_said_over::<MemoryEngine>(1244).await;
    a_word_that_is_said_over::<Embedded>(1245).await;
}

/// What said that the other follows it has gone on since, and cannot be heard: that the other follows it is no comfort.
#[tokio::test(start_paused = true)]
async fn who_follows_one_that_cannot_be_heard_is_no_comfort() {
    let mut trio = fenced::<MemoryEngine>(1246, A).await;
    trio.network.cut("a", "b");
    trio.network.cut("a", "c");
    trio.break_off(C).await;
    trio.write(C, 2);
    trio.break_off(B).await;
    trio.resync(B, C).await.unwrap();
    trio.network.heal("a", "b");
    let here = trio.sites[A].source.clone();
    until("it is noted", || here.fenced() == [trio.volumes[A].clone()]).await;
    tokio::time::sleep(LONG).await;
    trio.update(B, C).await;
    tokio::time::sleep(LONG).await;
    assert_eq!(here.fenced(), [trio.volumes[A].clone()], "hosts write at c");
}

/// Until its source has heard of the break the pool remembers a mirror that was deleted. It stands in nothing's way, and goes when it
/// is told; what the volume follows by then does not.
async fn deleted_before_it_was_told<S: Storage>(seed: u64) {
    let mut trio = Trio::<S>::new(seed, SIZE).await;
    trio.snapshot(A, "first");
    trio.copy(B, A).await;
    trio.copy(C, A).await;
    let record =
        |trio: &Trio<S>| trio.sites[B].disk.engine.engine().replica_record(&trio.volumes[B]).unwrap();
    trio.network.cut("a", "b");
    trio.break_off(B).await;
    trio.write(B, 2);
    let deleted = trio.mirror(B).status().relationship.id;
    trio.sites[B].destination.delete(&trio.volumes[B]).await.unwrap();
    assert!(record(&trio).is_some_and(|r| r.relationship == deleted && r.broken_off));
    trio.crash(B, seed).await;
    trio.network.cut("a", "b");
    assert!(trio.sites[B].destination.mirrors().is_empty());
    trio.resync(B, C).await.unwrap();
    let followed = record(&trio).unwrap();
    assert!(followed.relationship != deleted && !followed.broken_off);
    trio.network.heal("a", "b");
    let here = trio.sites[A].source.clone();
    until("it is heard", || here.overtaken().iter().any(|r| r.id == deleted)).await;
    tokio::time::sleep(LONG).await;
    assert_eq!(record(&trio), Some(followed));
    // Deleted once more, and told at once: nothing is left of it.
    trio.break_off(B).await;
    trio.sites[B].destination.delete(&trio.volumes[B]).await.unwrap();
    tokio::time::sleep(LONG).await;
    assert_eq!(record(&trio), None);
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_was_deleted_untold_stays_in_the_pool_until_it_is_told() {
    deleted_before_it_was_told::<MemoryEngine>(1250).await;
    deleted_before_it_was_told::<Embedded>(1251).await;
}
