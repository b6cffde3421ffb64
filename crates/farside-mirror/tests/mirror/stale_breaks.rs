//! A break that its source hears of only after it has followed the destination and was broken off in its turn. Its own break is the
//! later one then: the word is no news, and fences nobody. What the destination does after that is news.

use std::time::Duration;

use farside_link::LinkSettings;
use farside_mirror::Schedule;
use farside_transfer::protocol::Body;

use crate::directions::{World, until};
use crate::embedded_storage::Embedded;
use crate::memory_engine::MemoryEngine;
use crate::site::{PATIENCE, Storage, assert_ok};

/// Whatever is said again every few minutes has been said.
const LONG: Duration = Duration::from_secs(900);

fn is_word(body: &Body) -> bool {
    matches!(body, Body::Overtaken(_))
}

/// How far the former source comes in following its destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Resync {
    Finished,
    /// It waits for its first byte.
    Begun,
}

fn fence<S: Storage>(world: &World<S>) {
    *world.pair.a.rights.fences.lock() = true;
    *world.pair.b.rights.fences.lock() = true;
}

/// `b` has taken over, and `a`, which has not heard it, was told by a person to follow `b`. Then `b` is lost, and `a` is broken off
/// and written to. In the end both are there, and cannot reach each other.
async fn broken_off_in_turn<S: Storage>(seed: u64, resync: Resync) -> World<S> {
    let mut world = World::<S>::new(seed, LinkSettings::default(), Schedule::OnRequest).await;
    fence(&world);
    world.pair.network.cut("a", "b");
    world.r().break_off(None).await.unwrap();
    world.write_a(5);
    world.write_b(5);
    // The word is on its way for as long as the process lives that sent it.
    let word = world.pair.a.fault_injector.hold(is_word);
    world.pair.network.heal("a", "b");
    word.held().await;
    match resync {
        Resync::Finished => {
            assert_ok(&world.resync_a().await.unwrap());
            world.a.live = world.b.live.clone();
            assert_eq!(world.pair.a.source.destinations(), [], "nothing is kept for what has a successor");
        }
        Resync::Begun => {
            let _nothing_leaves = world.pair.b.fault_injector.stall().await;
            let (peer, source, here) =
                (world.pair.b.node.id(), world.b.volume.clone(), world.a.volume.clone());
            let asked =
                world.pair.a.destination.resync_from(peer, source, here, Schedule::OnRequest, PATIENCE).await;
            let b = world.pair.b.source.clone();
            until("it is served", || !b.serving().is_empty()).await;
            world.pair.network.cut("a", "b");
            world.reverse().break_off(None).await.unwrap();
            drop(asked);
        }
    }
    world.pair.network.cut("a", "b");
    world.pair.crash_b(seed).await;
    if resync == Resync::Finished {
        world.reverse().break_off(None).await.unwrap();
    }
    world.a.check(&world.pair.a);
    world.write_a(5);
    world.pair.a.disk.engine.flush();
    fence(&world);
    world
}

/// The first that is said is what `b` has to say of its old break. Then `a` says what it has to.
async fn meet<S: Storage>(world: &World<S>) {
    let word = world.pair.b.fault_injector.hold(is_word);
    world.pair.network.heal("a", "b");
    word.held().await;
    until("the old break is heard", || world.r().status().relationship.told).await;
    tokio::time::sleep(LONG).await;
    word.open();
}

async fn own_break_is_the_later<S: Storage>(seed: u64, is_restarted: bool) {
    let mut world = broken_off_in_turn::<S>(seed, Resync::Finished).await;
    if is_restarted {
        world.pair.crash_a(seed).await;
        fence(&world);
        // Not for the clocks of two sites to say which of them is the later.
        world.pair.clock.step_wall(-24 * 3600);
    }
    let (a, b) = (world.pair.a.source.clone(), world.pair.b.source.clone());
    meet(&world).await;
    assert_eq!((a.overtaken(), a.fenced()), (vec![], vec![]), "hosts here are the later ones");
    until("the other side hears of it", || !b.overtaken().is_empty()).await;
    tokio::time::sleep(LONG).await;
    assert_eq!((a.overtaken(), a.fenced()), (vec![], vec![]));
    assert_eq!(b.fenced(), std::slice::from_ref(&world.b.volume));
    // Nor does a restart of either have it said anew.
    world.pair.crash_a(seed).await;
    world.pair.crash_b(seed).await;
    fence(&world);
    tokio::time::sleep(LONG).await;
    let a = world.pair.a.source.clone();
    assert_eq!((a.overtaken(), a.fenced()), (vec![], vec![]));
    // Whoever was overtaken follows.
    assert_ok(&world.r().resync(PATIENCE).await.unwrap().ended().await.unwrap());
    world.b.live = world.a.live.clone();
    world.b.check(&world.pair.b);
    world.write_a(3);
    world.update().await;
}

#[tokio::test(start_paused = true)]
async fn an_old_break_overtakes_nobody_who_has_followed_since_and_was_broken_off_after_it() {
    own_break_is_the_later::<MemoryEngine>(1300, false).await;
    own_break_is_the_later::<MemoryEngine>(1301, true).await;
    own_break_is_the_later::<Embedded>(1302, false).await;
    own_break_is_the_later::<Embedded>(1303, true).await;
}

/// Nothing had come of the resync: no side has what was written at the other, and each learns so.
async fn nothing_was_followed<S: Storage>(seed: u64, is_restarted: bool) {
    let mut world = broken_off_in_turn::<S>(seed, Resync::Begun).await;
    if is_restarted {
        world.pair.crash_a(seed).await;
        fence(&world);
    }
    meet(&world).await;
    let (a, b) = (world.pair.a.source.clone(), world.pair.b.source.clone());
    assert_eq!(a.fenced(), std::slice::from_ref(&world.a.volume), "what hosts wrote at b is not here");
    until("the other side hears of it", || !b.overtaken().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_resync_that_brought_nothing_makes_no_break_old() {
    nothing_was_followed::<MemoryEngine>(1310, false).await;
    nothing_was_followed::<MemoryEngine>(1311, true).await;
    nothing_was_followed::<Embedded>(1312, true).await;
}

/// How far `b` comes in following `a` again, before it is broken off once more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Again {
    Updated,
    /// It has the version, and `a` has not heard so.
    Unacknowledged,
    Begun,
}

/// `b` follows `a` again, and is broken off unheard. A person at `a` may have released it, not knowing.
async fn broken_off_once_more<S: Storage>(seed: u64, again: Again, is_released: bool, is_restarted: bool) {
    println!("{again:?}, released {is_released}, restarted {is_restarted}");
    let mut world = broken_off_in_turn::<S>(seed, Resync::Finished).await;
    meet(&world).await;
    let b = world.pair.b.source.clone();
    until("b hears of it", || !b.overtaken().is_empty()).await;
    let r = world.r();
    match again {
        Again::Updated => {
            assert_ok(&r.resync(PATIENCE).await.unwrap().ended().await.unwrap());
            world.b.live = world.a.live.clone();
            world.write_a(3);
            world.update().await;
        }
        Again::Unacknowledged => {
            let acknowledged = world.pair.a.fault_injector.hold(|body| matches!(body, Body::Acknowledge(_)));
            let _asked = r.resync(PATIENCE).await.unwrap();
            acknowledged.held().await;
            world.b.live = world.a.live.clone();
        }
        Again::Begun => {
            let _nothing_leaves = world.pair.a.fault_injector.stall().await;
            let _asked = r.resync(PATIENCE).await.unwrap();
            let a = world.pair.a.source.clone();
            until("it is served", || !a.serving().is_empty()).await;
            world.pair.network.cut("a", "b");
            world.r().break_off(None).await.unwrap();
        }
    }
    world.pair.network.cut("a", "b");
    if again != Again::Begun {
        world.r().break_off(None).await.unwrap();
    }
    world.b.check(&world.pair.b);
    world.write_b(5);
    if is_released {
        let a = &world.pair.a;
        assert_eq!(a.source.release(&world.a.volume, world.pair.b.node.id()).await.unwrap(), 1);
    }
    if is_restarted {
        world.pair.crash_a(seed).await;
        world.pair.crash_b(seed).await;
        fence(&world);
    }
    world.pair.network.heal("a", "b");
    let a = world.pair.a.source.clone();
    until("a hears of it", || a.fenced() == [world.a.volume.clone()]).await;
    tokio::time::sleep(LONG).await;
    assert_eq!(a.fenced(), std::slice::from_ref(&world.a.volume), "hosts write at b");
}

#[tokio::test(start_paused = true)]
async fn a_newer_break_is_news() {
    for (at, again) in [Again::Updated, Again::Unacknowledged, Again::Begun].into_iter().enumerate() {
        for (of, (is_released, is_restarted)) in
            [(false, false), (false, true), (true, false), (true, true)].into_iter().enumerate()
        {
            let seed = 1320 + 8 * at as u64 + 2 * of as u64;
            broken_off_once_more::<MemoryEngine>(seed, again, is_released, is_restarted).await;
            // What a restart leaves is the store's; a minute more for all of them tells nothing else.
            if is_released && is_restarted {
                broken_off_once_more::<Embedded>(seed + 1, again, is_released, is_restarted).await;
            }
        }
    }
}
