//! Transfers that go well: what arrives, what stays, what it costs.

use std::time::Duration;

use farside_engine::{BLOCK_BYTES, Engine, SnapshotOwner};
use farside_link::LinkSettings;
use farside_mirror::{Schedule, State};
use farside_transfer::protocol::Body;

use crate::site::{PATIENCE, Pair, assert_ok, seeds};

const SIZE: u64 = 8 << 20;

#[tokio::test(start_paused = true)]
async fn everything_a_person_made_arrives_and_nothing_else_stays() {
    let mut pair = Pair::new(1, SIZE, LinkSettings::default()).await;
    pair.scribble(100);
    pair.snapshot("monday");
    pair.scribble(20);
    pair.snapshot("tuesday");
    pair.scribble(20);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_eq!(mirror.status().state, State::Uninitialized);

    let report = pair.initialize(&mirror).await;
    assert_ok(&report);
    assert_eq!((report.snapshots, report.base.as_deref()), (3, None));
    let names = pair.check_replica();
    assert_eq!(names[..2], ["monday", "tuesday"]);
    assert_eq!(names.len(), 3, "the base in use and what a person made: {names:?}");

    pair.scribble(10);
    pair.snapshot("wednesday");
    pair.discard(0, SIZE / 2);
    pair.snapshot("thursday");
    pair.scribble(5);
    let report = pair.update(&mirror).await;
    assert_ok(&report);
    assert_eq!(report.snapshots, 3);
    assert!(report.deallocated_bytes > 0 && report.delta_bytes > 0);
    let levels = report.levels.unwrap();
    assert_eq!(report.delta_bytes + report.literal_bytes + levels.repeat.in_bytes, report.changed_bytes);
    assert_eq!(levels.in_bytes(), report.changed_bytes + levels.known.in_bytes);
    let wire_bytes = report.wire_bytes_sent + report.wire_bytes_received;
    assert_eq!(levels.out_bytes() + report.overhead_bytes().unwrap(), wire_bytes);
    assert!(levels.out_bytes() > 0 && levels.out_bytes() < wire_bytes, "{report:?}");
    let names = pair.check_replica();
    assert_eq!(names[..4], ["monday", "tuesday", "wednesday", "thursday"]);
    assert_eq!(names.len(), 5, "{names:?}");

    // The source too keeps the base in use and what a person made; the base, and only it, is pinned.
    let source = pair.a.disk.engine.snapshots(&pair.original).unwrap();
    assert_eq!(source.len(), 5);
    let id = mirror.status().relationship.id;
    for snapshot in &source {
        let is_base = snapshot.owner == SnapshotOwner::Relationship(id);
        assert_eq!(snapshot.pinned_by.contains(&id), is_base, "{}", snapshot.name);
        assert!(!is_base || snapshot.uuid == report.id);
    }
    let at_source = pair.a.source.destinations();
    assert_eq!((at_source.len(), at_source[0].base), (1, Some(report.id)));
    assert!(pair.a.source.serving().is_empty(), "its place was given back");

    let status = mirror.status();
    assert_eq!(status.state, State::Mirrored);
    assert_eq!(status.current.as_ref().map(|c| c.uuid), Some(report.id));
    assert_eq!(status.current.map(|c| c.content_root), report.content_root);
    let history = pair.b.destination.history(&pair.replica, 10).await.unwrap();
    assert_eq!(history.len(), 2);
    assert_eq!(history[0], report);
}

#[tokio::test(start_paused = true)]
async fn an_update_reads_what_changed_and_no_more() {
    let size = 64 << 20;
    let mut pair = Pair::new(2, size, LinkSettings::default()).await;
    // A thin volume, a quarter of it used.
    let block: Vec<u8> = (0..BLOCK_BYTES).map(|i| (i % 251) as u8 + 1).collect();
    for position in (0..size / BLOCK_BYTES).step_by(4) {
        pair.write(position * BLOCK_BYTES, &block);
    }
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);

    let changed = size / BLOCK_BYTES / 100;
    for i in 0..changed {
        let mut block = block.clone();
        block[100] = i as u8;
        block[101] = 0xff;
        pair.write(i * 100 * BLOCK_BYTES, &block);
    }
    let before = pair.a.disk.engine.read_bytes();
    let report = pair.update(&mirror).await;
    assert_ok(&report);
    assert_eq!(report.changed_bytes, changed * BLOCK_BYTES);
    assert_eq!(report.source_read_bytes, report.changed_bytes, "no block that did not change was read");
    assert_eq!(report.base_read_bytes, report.changed_bytes, "to code against, the old block of each, once");
    let read = pair.a.disk.engine.read_bytes() - before;
    assert_eq!(read, report.source_read_bytes + report.base_read_bytes, "the engine counts the same");
    assert!(report.wire_bytes_received < report.changed_bytes / 10, "{report:?}");
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn nothing_changed_is_cheap_and_still_news() {
    let mut pair = Pair::new(3, SIZE, LinkSettings::default()).await;
    pair.scribble(50);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let now = || farside_platform::Clock::now(&*pair.clock);
    assert!(mirror.status().lag_seconds(now(), 0.0).unwrap() >= 3600.0);
    let read = pair.a.disk.engine.read_bytes();
    let asked = mirror.update(crate::site::PATIENCE).await.unwrap();
    let report = asked.ended().await.unwrap();
    assert_ok(&report);
    assert_eq!((report.changed_bytes, report.snapshots), (0, 1));
    assert!(report.wire_bytes_sent + report.wire_bytes_received < 4096, "{report:?}");
    assert_eq!(pair.a.disk.engine.read_bytes(), read);
    let status = mirror.status();
    let lag = status.lag_seconds(now(), 0.0).unwrap();
    assert!(lag < 5.0);
    // A source whose clock is an hour ahead took it an hour earlier than its clock says; one that is behind by more than the age
    // makes it no younger than new.
    assert!((status.lag_seconds(now(), 3600.0).unwrap() - lag - 3600.0).abs() < 1e-3);
    assert_eq!(status.lag_seconds(now(), -3600.0).unwrap(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_volume_may_grow_and_shrink() {
    let mut pair = Pair::new(4, SIZE, LinkSettings::default()).await;
    pair.scribble(60);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    for size in [SIZE * 2, SIZE / 2, SIZE] {
        pair.resize(size);
        pair.scribble(30);
        assert_ok(&pair.update(&mirror).await);
        pair.check_replica();
        assert_eq!(mirror.status().current.unwrap().size_bytes, size);
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_taken_at_the_destination_is_changed() {
    let mut pair = Pair::new(5, SIZE, LinkSettings::default()).await;
    pair.scribble(20);
    pair.snapshot("daily");
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    // The person deletes it at the source and makes another of the same name.
    let first = pair.a.disk.engine.snapshots(&pair.original).unwrap()[0].uuid;
    pair.a.disk.engine.delete_snapshot(&pair.original, first).unwrap();
    pair.scribble(20);
    let second = pair.snapshot("daily");
    assert_ok(&pair.update(&mirror).await);
    let names = pair.check_replica();
    let renamed = format!("daily-{}", &second.simple().to_string()[..12]);
    assert!(names.contains(&"daily".into()) && names.contains(&renamed), "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn a_random_history_of_a_mirror() {
    for seed in seeds(10, 4) {
        let mut pair = Pair::new(seed, SIZE, LinkSettings::default()).await;
        pair.scribble(80);
        pair.snapshot("first");
        let mirror = pair.mirror(Schedule::OnRequest).await;
        assert_ok(&pair.initialize(&mirror).await);
        for round in 0..8 {
            let writes = rand::Rng::random_range(&mut pair.rng, 0..40);
            pair.scribble(writes);
            if rand::Rng::random_bool(&mut pair.rng, 0.5) {
                pair.snapshot(&format!("s{round}"));
            }
            let more = rand::Rng::random_range(&mut pair.rng, 0..10);
            pair.scribble(more);
            assert_ok(&pair.update(&mirror).await);
            pair.check_replica();
        }
    }
}

/// What A keeps for the mirror is the newest base alone, and the next update finds it.
async fn only_the_newest_is_kept(pair: &mut Pair, mirror: &farside_mirror::Mirror, context: &str) {
    let published = mirror.status().current.unwrap().uuid;
    let id = mirror.status().relationship.id;
    let at_source = pair.a.source.destinations();
    assert_eq!(at_source[0].base, Some(published), "{context}");
    let mut pinned = pair.a.disk.engine.all_snapshots(&pair.original).unwrap();
    pinned.retain(|s| s.pinned_by.contains(&id));
    assert!(matches!(&pinned[..], [only] if only.uuid == published), "{context}: {pinned:?}");
    pair.scribble(3);
    let report = pair.update(mirror).await;
    assert_ok(&report);
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn the_beginning_of_a_transfer_that_comes_late_takes_no_base_away() {
    let mut pair = Pair::new(20, SIZE, LinkSettings::default()).await;
    pair.scribble(30);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    let late = pair.a.fault_injector.hold(|body| matches!(body, Body::Begin(_)));
    let asked = mirror.initialize(PATIENCE).await.unwrap();
    late.held().await;
    pair.lose_session().await;
    let report = asked.ended().await.unwrap();
    assert_ok(&report);
    pair.model.insert(report.id, pair.live.clone());
    late.release().await;
    only_the_newest_is_kept(&mut pair, &mirror, "its session was lost").await;
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_that_comes_late_moves_no_base_back() {
    let mut pair = Pair::new(22, SIZE, LinkSettings::default()).await;
    pair.scribble(30);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    pair.scribble(5);
    // What a person made stays at the source, whatever becomes of the base.
    let first = pair.snapshot("first");
    pair.scribble(5);
    let late = pair.a.fault_injector.hold(|body| matches!(body, Body::Acknowledge(_)));
    let asked = mirror.update(PATIENCE).await.unwrap();
    late.held().await;
    pair.lose_session().await;
    let report = asked.ended().await.unwrap();
    assert_ok(&report);
    assert!(mirror.status().current.unwrap().uuid != first);
    pair.model.insert(report.id, pair.live.clone());
    late.release().await;
    only_the_newest_is_kept(&mut pair, &mirror, "of an earlier transfer").await;
}
