//! What a mirror tells that nobody asked it: that its source went back, that its schedule is lost.

use std::time::Duration;

use farside_link::LinkSettings;
use farside_mirror::{LogEvent, Mirror, Schedule, SourceHeard, State};
use farside_platform::Clock;
use tokio::time::Instant;

use crate::directions::until;
use crate::embedded_storage::Embedded;
use crate::site::{self, PATIENCE, Pair, Storage, assert_ok};
use crate::support::trio::{A, B, Trio};

const SIZE: u64 = 1 << 20;

async fn mirrored<S: Storage>(seed: u64, schedule: Schedule) -> (Pair<S>, Mirror) {
    let mut pair = Pair::<S>::with_storage(seed, SIZE, LinkSettings::default()).await;
    pair.scribble(10);
    let mirror = pair.mirror(schedule).await;
    assert_ok(&pair.initialize(&mirror).await);
    (pair, mirror)
}

async fn rescued_in_log<S: Storage>(pair: &Pair<S>) -> Vec<String> {
    let lines = pair.b.destination.log(&pair.replica, 100).await.unwrap();
    let name = |event| match event {
        LogEvent::Rescue { snapshot } => Some(snapshot),
        _ => None,
    };
    lines.into_iter().filter_map(|line| name(line.event)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_source_that_went_back_is_told_of_until_a_person_asks() {
    let (mut pair, mirror) = mirrored::<Embedded>(900, Schedule::OnRequest).await;
    let good = pair.snapshot("good");
    let at_good = pair.live.clone();
    assert_ok(&pair.update(&mirror).await);
    pair.scribble(10);
    assert_ok(&pair.update(&mirror).await);
    assert!(rescued_in_log(&pair).await.is_empty() && mirror.status().why.is_none());
    let shown = pair.live.clone();
    // A backup is restored, or a copy of the site speaks.
    let source = pair.a.disk.engine.engine();
    site::roll_back(&*source, &pair.original, good);
    pair.live = at_good;
    pair.scribble(3);
    let report = pair.update(&mirror).await;
    assert_ok(&report);
    let told = rescued_in_log(&pair).await;
    assert_eq!(told.len(), 1, "{told:?}");
    let why = mirror.status().why.expect("it says so");
    assert!(why.contains("went back") && why.contains(&told[0]), "{why}");
    // It opens as what was shown.
    let engine = pair.b.disk.engine.engine();
    let kept = engine.all_snapshots(&pair.replica).unwrap().into_iter().find(|s| s.name == told[0]).unwrap();
    let mut found = vec![0; SIZE as usize];
    engine.read_snapshot(&pair.replica, kept.uuid, 0, &mut found).unwrap();
    assert!(found == shown);
    // Whoever asks in the same moment has not seen it.
    assert_ok(&pair.update(&mirror).await);
    assert!(mirror.status().why.is_some_and(|why| why.contains("went back")));
    tokio::time::sleep(Duration::from_secs(6)).await;
    pair.scribble(1);
    assert_ok(&pair.update(&mirror).await);
    assert!(mirror.status().why.is_none() && rescued_in_log(&pair).await.len() == 1, "once");
}

/// Where the replica does not have (any more) what its source went back to, the update goes on upon what it showed: that stays on the
/// main line, and is told of all the same.
#[tokio::test(start_paused = true)]
async fn a_source_that_went_back_is_told_of_where_the_replica_has_not_that_point() {
    let (mut pair, mirror) = mirrored::<Embedded>(903, Schedule::OnRequest).await;
    let good = pair.snapshot("good");
    let at_good = pair.live.clone();
    pair.scribble(10);
    assert_ok(&pair.update(&mirror).await);
    pair.scribble(10);
    assert_ok(&pair.update(&mirror).await);
    let engine = pair.b.disk.engine.engine();
    engine.delete_snapshot(&pair.replica, good).unwrap();
    let shown = pair.live.clone();
    site::roll_back(&*pair.a.disk.engine.engine(), &pair.original, good);
    pair.live = at_good;
    pair.scribble(3);
    assert_ok(&pair.update(&mirror).await);
    let told = rescued_in_log(&pair).await;
    assert_eq!(told.len(), 1, "{told:?}");
    let why = mirror.status().why.expect("it says so");
    assert!(why.contains("went back") && why.contains(&told[0]), "{why}");
    let kept = engine.all_snapshots(&pair.replica).unwrap().into_iter().find(|s| s.name == told[0]).unwrap();
    let mut found = vec![0; SIZE as usize];
    engine.read_snapshot(&pair.replica, kept.uuid, 0, &mut found).unwrap();
    assert!(found == shown);
}

#[tokio::test(start_paused = true)]
async fn a_lost_schedule_is_said_and_create_takes_the_mirror_over() {
    let every = Schedule::every(Some(Duration::from_secs(10))).unwrap();
    let (mut pair, _) = mirrored::<crate::memory_engine::MemoryEngine>(901, every.clone()).await;
    pair.lose_database_b().await;
    let mirror = pair.b.destination.mirror(&pair.replica).unwrap();
    let status = mirror.status();
    assert_eq!(status.state, State::Mirrored);
    let why = status.why.expect("it says so");
    assert!(why.contains("schedule") && why.contains("mirror create"), "{why}");
    let id = status.relationship.id;
    // Of another source it is refused as before.
    let (peer, other) = (pair.a.node.id(), "p/other".parse().unwrap());
    let create = |source, schedule| {
        pair.b.destination.create(peer, source, pair.replica.clone(), schedule, PATIENCE, true)
    };
    assert!(create(other, every.clone()).await.is_err());
    let taken = create(pair.original.clone(), every.clone()).await.unwrap().status();
    assert_eq!((taken.relationship.id, taken.relationship.schedule), (id, every.clone()));
    assert!(create(pair.original.clone(), every).await.is_err(), "it is nothing lost any more");
    pair.scribble(5);
    let transfers = async {
        while pair.b.destination.history(&pair.replica, 10).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), transfers).await.expect("it updates by itself");
    assert!(mirror.status().why.is_none());
}

/// What the source said last may be decided otherwise there by now: it is shown with its moment.
#[tokio::test(start_paused = true)]
async fn what_the_source_knows_is_shown_with_the_moment_of_its_answer() {
    let (pair, mirror) = mirrored::<crate::memory_engine::MemoryEngine>(902, Schedule::OnRequest).await;
    mirror.break_off(None).await.unwrap();
    until("it is heard", || mirror.status().source_heard == Some(SourceHeard::Noted)).await;
    let heard_at = mirror.status().source_heard_at.expect("the source has said so");
    pair.network.cut("a", "b");
    assert_eq!(pair.a.source.release(&pair.original, pair.b.node.id()).await.unwrap(), 1);
    tokio::time::sleep(Duration::from_secs(1800)).await;
    let status = mirror.status();
    assert_eq!((status.source_heard, status.source_heard_at), (Some(SourceHeard::Noted), Some(heard_at)));
    pair.network.heal("a", "b");
    let healed_at = pair.clock_b.now();
    until("it is told again", || mirror.status().source_heard == Some(SourceHeard::Released)).await;
    assert!(mirror.status().source_heard_at.is_some_and(|at| at >= healed_at));
    // Asked again, it says the same at another moment.
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert!(pair.clock_b.now().seconds_since(mirror.status().source_heard_at.unwrap()) <= 200.0);
}

/// That the former source follows is known here, and that it does no more is asked at once.
#[tokio::test(start_paused = true)]
async fn a_source_that_follows_by_now_is_shown_so_whatever_it_said_before() {
    let mut trio = Trio::<crate::memory_engine::MemoryEngine>::new(903, SIZE).await;
    trio.copy(B, A).await;
    trio.break_off(B).await;
    let former = trio.mirror(B);
    until("it is heard", || former.status().source_heard == Some(SourceHeard::Noted)).await;
    // Far from when it is asked anyway.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let began = Instant::now();
    trio.resync(A, B).await.unwrap();
    until("it follows", || former.status().source_heard == Some(SourceHeard::Follows)).await;
    trio.break_off(A).await;
    until("it does not", || former.status().source_heard != Some(SourceHeard::Follows)).await;
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}
