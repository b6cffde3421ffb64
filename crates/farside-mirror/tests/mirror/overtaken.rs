//! What a source makes of the word that it was overtaken: whatever stands in the way of noting it, its hosts are kept out, and
//! nobody but its own side takes it back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use farside_link::LinkSettings;
use farside_mirror::{
    Budgets, MemoryStore, MirrorError, Schedule, SourceRelationship, SourceService, SourceStore,
};
use farside_peer::{PeerService, SessionError};
use farside_transfer::protocol::{
    Body, Describe, Noted, Overtaken, PROTOCOL_VERSION, Release, Request, Standing, convert,
};
use farside_transfer::source::Similarity;
use prost::Message;
use uuid::Uuid;

use crate::directions::{World, until};
use crate::memory_engine::MemoryEngine;
use crate::site::{PATIENCE, Storage, encoders};

/// The relationships of a source, in a database that may be full.
struct Full {
    store: Arc<MemoryStore>,
    is_full: AtomicBool,
}

#[async_trait]
impl SourceStore for Full {
    async fn source_relationships(&self) -> Result<Vec<SourceRelationship>, MirrorError> {
        self.store.source_relationships().await
    }

    async fn save_source(&self, relationship: &SourceRelationship) -> Result<(), MirrorError> {
        if self.is_full.load(Ordering::SeqCst) {
            return Err(MirrorError::Store("the disk is full".into()));
        }
        self.store.save_source(relationship).await
    }

    async fn remove_source(&self, id: Uuid) -> Result<(), MirrorError> {
        self.store.remove_source(id).await
    }
}

fn asked(body: Body) -> Bytes {
    Request { version: PROTOCOL_VERSION, body: Some(body) }.encode_to_vec().into()
}

/// What the replica at `b` would say of its break.
fn overtaken(world: &World<MemoryEngine>, relationship: Uuid) -> Overtaken {
    let base = world.r().status().current.unwrap();
    let candidate = convert::CandidateBase {
        uuid: base.uuid,
        content_root: base.content_root,
        size_bytes: base.size_bytes,
    };
    Overtaken {
        relationship: relationship.as_bytes().to_vec(),
        volume: world.a.volume.to_string(),
        broken_off_at: 1,
        snapshot: Some(candidate.to_message()),
        destination: world.b.volume.to_string(),
        role_change: 2,
        ..Overtaken::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_database_keeps_nobody_from_being_fenced_and_is_no_answer() {
    let world = World::<MemoryEngine>::new(600, LinkSettings::default(), Schedule::OnRequest).await;
    let (a, b) = (&world.pair.a, &world.pair.b);
    *a.rights.fences.lock() = true;
    let store = Arc::new(Full { store: a.disk.store.clone(), is_full: AtomicBool::new(true) });
    let open = || {
        let (rights, clock) = (a.rights.clone(), world.pair.clock.clone());
        let engine = a.disk.engine.engine();
        SourceService::open(engine, rights, store.clone(), clock, Similarity::default(), encoders())
    };
    let source = open().await.unwrap();
    let link = a.node.wait_link(b.node.id(), PATIENCE).await.unwrap();
    let word = asked(Body::Overtaken(overtaken(&world, world.r().status().relationship.id)));
    for _ in 0..2 {
        let refused = source.call(&link, word.clone()).await.unwrap_err();
        assert_eq!(refused.code, "failed", "{refused:?}");
        assert_eq!(source.fenced(), std::slice::from_ref(&world.a.volume));
    }
    store.is_full.store(false, Ordering::SeqCst);
    let noted = Noted::decode(source.call(&link, word).await.unwrap()).unwrap();
    assert_eq!(convert::standing(noted.standing).unwrap(), Standing::Fenced);
    // The policy may go, and the process: what has come of it stays.
    *a.rights.fences.lock() = false;
    assert_eq!(open().await.unwrap().fenced(), std::slice::from_ref(&world.a.volume));
}

#[tokio::test(start_paused = true)]
async fn no_budget_of_calls_keeps_it_from_being_told() {
    let world = World::<MemoryEngine>::new(601, LinkSettings::default(), Schedule::OnRequest).await;
    let (a, b) = (&world.pair.a, &world.pair.b);
    a.source.set_budgets(Budgets { calls_per_minute: 10, ..Budgets::default() });
    let link = b.node.wait_link(a.node.id(), PATIENCE).await.unwrap();
    let describe = asked(Body::Describe(Describe { volume: "p/v".into(), ..Describe::default() }));
    for _ in 0..50 {
        let _ = link.call(describe.clone(), None).await;
    }
    let refused = link.call(describe, None).await.unwrap_err();
    assert!(matches!(&refused, SessionError::Refused(refusal) if refusal.code == "budget"), "{refused}");
    let word = asked(Body::Overtaken(overtaken(&world, world.r().status().relationship.id)));
    link.call(word, None).await.unwrap();
    assert_eq!(a.source.overtaken().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_made_up_of_a_volume_marks_it_once() {
    let world = World::<MemoryEngine>::new(602, LinkSettings::default(), Schedule::OnRequest).await;
    let (a, b) = (&world.pair.a, &world.pair.b);
    let link = b.node.wait_link(a.node.id(), PATIENCE).await.unwrap();
    let tell = async |made_up: u128| {
        let word = Overtaken { broken_off_at: u64::MAX, ..overtaken(&world, Uuid::from_u128(made_up)) };
        link.call(asked(Body::Overtaken(word)), None).await
    };
    tell(1000).await.unwrap();
    for made_up in 1001..1020 {
        let refused = tell(made_up).await.unwrap_err();
        assert!(refused.to_string().contains("is overtaken by"), "{refused}");
    }
    let overtaken = a.source.overtaken();
    assert_eq!(overtaken.len(), 1);
    // One decision is enough, and a moment far ahead is nobody's.
    let at = overtaken[0].overtaken.as_ref().unwrap().broken_off_at.unwrap();
    let now = farside_platform::Clock::now(&*world.pair.clock);
    assert!(at.seconds_since(now) <= 24.0 * 3600.0, "{at}");
    assert_eq!(a.source.release_one(&world.a.volume, overtaken[0].id).await.unwrap(), 1);
    assert_eq!(a.source.overtaken(), []);
    // The mirror that has something here says so whatever is made up beside it.
    tell(1001).await.unwrap();
    let word = self::overtaken(&world, world.r().status().relationship.id);
    link.call(asked(Body::Overtaken(word)), None).await.unwrap();
    assert_eq!(a.source.overtaken().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn who_may_not_mirror_a_volume_does_not_learn_whether_it_is_there() {
    let world = World::<MemoryEngine>::new(605, LinkSettings::default(), Schedule::OnRequest).await;
    let (a, b) = (&world.pair.a, &world.pair.b);
    *a.rights.denied.lock() = true;
    let link = b.node.wait_link(a.node.id(), PATIENCE).await.unwrap();
    let mut answers = Vec::new();
    for (made_up, volume) in [(1, "p/v"), (2, "p/w"), (3, "q/v")] {
        let word = Overtaken { volume: volume.into(), ..overtaken(&world, Uuid::from_u128(made_up)) };
        let refused = link.call(asked(Body::Overtaken(word)), None).await.unwrap_err();
        answers.push(refused.to_string().replace(volume, "VOLUME"));
    }
    assert!(answers[0].contains("VOLUME cannot be seen"), "{answers:?}");
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn a_release_by_the_destination_takes_nothing_back() {
    let mut world = World::<MemoryEngine>::new(603, LinkSettings::default(), Schedule::OnRequest).await;
    let r = world.r().status().relationship.id;
    world.r().break_off(None).await.unwrap();
    let source = world.pair.a.source.clone();
    until("the source has heard", || !source.overtaken().is_empty()).await;
    let release = Release {
        relationship: r.as_bytes().to_vec(),
        volume: world.a.volume.to_string(),
        destination: String::new(),
    };
    let link = world.pair.b.node.wait_link(world.pair.a.node.id(), PATIENCE).await.unwrap();
    link.call(asked(Body::Release(release)), None).await.unwrap();
    assert!(source.overtaken()[0].overtaken.as_ref().is_some_and(|overtaken| overtaken.ended));
    assert_eq!(world.a.pins_of(&world.pair.a, r), 0, "its space is free");
    // This side's own word is, and what is repeated after it is no news.
    assert_eq!(source.release(&world.a.volume, world.pair.b.node.id()).await.unwrap(), 1);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(source.overtaken(), []);
    world.pair.crash_b(0).await;
    world.pair.b.node.wait_link(world.pair.a.node.id(), PATIENCE).await.unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(source.overtaken(), [], "nor after a restart of the one that tells");
}

#[tokio::test(start_paused = true)]
async fn what_was_released_unknown_is_told_all_the_same() {
    let world = World::<MemoryEngine>::new(604, LinkSettings::default(), Schedule::OnRequest).await;
    world.pair.network.cut("a", "b");
    world.r().break_off(None).await.unwrap();
    let source = world.pair.a.source.clone();
    // Somebody tidies up, and does not know.
    assert_eq!(source.release(&world.a.volume, world.pair.b.node.id()).await.unwrap(), 1);
    world.pair.network.heal("a", "b");
    until("the source has heard", || !source.overtaken().is_empty()).await;
    let mirror = world.r();
    until("the other side knows", || mirror.status().why.is_some_and(|why| why.contains("has been told")))
        .await;
}
