//! No chain of mirrors is closed to a ring, in which every volume would be a replica; one that could not be prevented is told.

use std::time::Duration;

use farside_mirror::{Mirror, State};

use crate::support::embedded_storage::Embedded;
use crate::support::memory_engine::MemoryEngine;
use crate::support::site::Storage;
use crate::support::trio::{A, B, C, Trio};

const SIZE: u64 = 8 << 20;

/// `b` is the original after a planned role change, `a` follows it, and `c` follows `a`, without an update since.
async fn swapped<S: Storage>(seed: u64) -> Trio<S> {
    let mut trio = Trio::new(seed, SIZE).await;
    trio.copy(B, A).await;
    trio.copy(C, A).await;
    trio.sites[B].destination.swap(&trio.volumes[B], Duration::from_secs(60)).await.unwrap();
    trio
}

fn is_writable<S: Storage>(trio: &Trio<S>, at: usize) -> bool {
    !trio.sites[at].disk.engine.engine().volume(&trio.volumes[at]).unwrap().is_replica
}

/// Whether it says that it follows itself.
fn tells_the_ring(mirror: &Mirror) -> bool {
    mirror
        .status()
        .why
        .is_some_and(|why| why.contains("follows itself") && why.contains("farside mirror break"))
}

/// What `c` was told of `a` with its last update is old.
async fn after_a_role_change<S: Storage>(seed: u64) {
    let mut trio = swapped::<S>(seed).await;
    trio.write(B, 5);
    let (c, of_c) = (trio.sites[C].node.id(), trio.volumes[C].clone());
    let plan = trio.sites[B].destination.plan_resync(&trio.volumes[B], Some((c, of_c)), Duration::ZERO).await;
    let planned = plan.unwrap_err().to_string();
    let refused = trio.resync(B, C).await.unwrap_err().to_string();
    for said in [planned, refused] {
        assert!(said.contains("there would be no original left"), "{said}");
    }
    assert!(is_writable(&trio, B));
    trio.check(B);
    // The other way it is no ring.
    trio.resync(C, B).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_resync_asks_the_whole_chain_where_it_stands_now() {
    after_a_role_change::<MemoryEngine>(1_300).await;
    after_a_role_change::<Embedded>(1_301).await;
}

/// Nobody can say that `a` follows `b` by now, until `a` is there again.
async fn with_one_away<S: Storage>(seed: u64) {
    let mut trio = swapped::<S>(seed).await;
    let written = {
        trio.write(B, 5);
        trio.live[B].clone()
    };
    trio.network.kill("a");
    trio.resync(B, C).await.unwrap();
    assert!(trio.keeps(B, &written), "what hosts wrote stays as a snapshot");
    trio.network.revive("a");
    for at in [A, C, B, A, C] {
        let asked = trio.mirror(at).update(Duration::from_secs(3600)).await.unwrap();
        asked.ended().await.unwrap();
    }
    for at in [A, B, C] {
        assert!(!is_writable(&trio, at));
        assert!(tells_the_ring(&trio.mirror(at)), "{:?}", trio.mirror(at).status());
    }
    // One break ends it.
    trio.break_off(B).await;
    assert!(is_writable(&trio, B));
    assert!(!tells_the_ring(&trio.mirror(B)));
    trio.live[B] = trio.seen(B);
    trio.update(A, B).await;
    trio.update(C, A).await;
    for at in [A, C] {
        assert!(!tells_the_ring(&trio.mirror(at)), "{:?}", trio.mirror(at).status().why);
    }
}

#[tokio::test(start_paused = true)]
async fn a_ring_that_nobody_could_see_is_told_at_every_site() {
    with_one_away::<MemoryEngine>(1_302).await;
    with_one_away::<Embedded>(1_303).await;
}

/// Three commands at the same moment, each of which would be right without the others: one at least is what it was before.
async fn three_at_once<S: Storage>(seed: u64) {
    let mut trio = Trio::<S>::new(seed, SIZE).await;
    trio.copy(B, A).await;
    trio.copy(C, A).await;
    trio.break_off(B).await;
    trio.break_off(C).await;
    for at in [A, B, C] {
        trio.write(at, 2);
    }
    let follow = async |at: usize, from: usize| {
        let (peer, source, here) =
            (trio.sites[from].node.id(), trio.volumes[from].clone(), trio.volumes[at].clone());
        let patience = Duration::from_secs(60);
        let destination = &trio.sites[at].destination;
        let asked =
            destination.resync_from(peer, source, here, farside_mirror::Schedule::OnRequest, patience).await;
        match asked {
            Ok((_, asked)) => println!("  {at} from {from}: {:?}", asked.ended().await.map(|r| r.result)),
            Err(error) => println!("  {at} from {from} refused: {error}"),
        }
    };
    tokio::join!(follow(A, B), follow(B, C), follow(C, A));
    let originals: Vec<usize> = [A, B, C].into_iter().filter(|at| is_writable(&trio, *at)).collect();
    assert!(!originals.is_empty(), "a ring");
    for at in originals {
        let mirror = trio.sites[at].destination.mirror(&trio.volumes[at]);
        assert!(mirror.is_err() || mirror.is_ok_and(|m| m.status().state == State::BrokenOff));
        trio.check(at);
    }
}

#[tokio::test(start_paused = true)]
async fn of_three_resyncs_at_once_one_gives_way() {
    for seed in 1_310..1_318 {
        three_at_once::<MemoryEngine>(seed).await;
    }
    three_at_once::<Embedded>(1_318).await;
}
