//! The driver: schedule, requests, break, restart.

use std::time::Duration;

use farside_engine::Engine;
use farside_link::LinkSettings;
use farside_mirror::{MirrorError, Schedule, State};
use farside_transfer::protocol::Body;
use farside_transfer::{Phase, TransferResult};
use tokio::time::Instant;

use crate::embedded_storage::Embedded;
use crate::site::{PATIENCE, Pair, Storage, assert_ok, slow, volume};

const SIZE: u64 = 8 << 20;

fn every(seconds: u64) -> Schedule {
    Schedule::every(Some(Duration::from_secs(seconds))).unwrap()
}

#[tokio::test(start_paused = true)]
async fn updates_keep_their_schedule() {
    let mut pair = Pair::new(100, SIZE, LinkSettings::default()).await;
    pair.scribble(20);
    let mirror = pair.mirror(every(10)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(mirror.status().state, State::Uninitialized, "a schedule does not begin a first copy");
    assert_ok(&pair.initialize(&mirror).await);
    tokio::time::sleep(Duration::from_secs(95)).await;
    let history = pair.b.destination.history(&pair.replica, 100).await.unwrap();
    assert!((9..=10).contains(&(history.len() - 1)), "{}", history.len());
    assert!(history.iter().all(|r| r.result == TransferResult::Ok));
    let gaps: Vec<f64> =
        history.windows(2).take(8).map(|w| w[0].started_at.seconds_since(w[1].started_at)).collect();
    assert!(gaps.iter().all(|g| (9.5..10.5).contains(g)), "{gaps:?}");
    // Changed live.
    mirror.set_schedule(Schedule::OnRequest).await.unwrap();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(pair.b.destination.history(&pair.replica, 100).await.unwrap().len(), history.len());
}

/// As while another daemon of the source's site takes over: the schedule need not fall again.
#[tokio::test(start_paused = true)]
async fn a_pool_that_is_not_open_at_the_source_is_asked_again_soon() {
    let mut pair = Pair::<Embedded>::with_storage(110, SIZE, LinkSettings::default()).await;
    let mirror = pair.mirror(every(3600)).await;
    assert_ok(&pair.initialize(&mirror).await);
    pair.scribble(5);
    let opened = pair.a.disk.engine.close();
    let said = mirror.update(PATIENCE).await.unwrap().ended().await.unwrap();
    let reason = said.reason.unwrap();
    assert!(reason.contains("pool p is not open at the source"), "{reason}");
    tokio::time::sleep(Duration::from_secs(12)).await;
    let history = pair.b.destination.history(&pair.replica, 100).await.unwrap();
    assert!(history.len() == 3 && history[0].result == TransferResult::Failed, "5 s later: {history:#?}");
    pair.a.disk.engine.open_again(opened);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let history = pair.b.destination.history(&pair.replica, 100).await.unwrap();
    assert_ok(&history[0]);
    pair.model.insert(history[0].id, pair.live.clone());
    pair.check_replica();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(pair.b.destination.history(&pair.replica, 100).await.unwrap().len(), 4, "once is enough");
    // Without a schedule nobody asks again.
    mirror.set_schedule(Schedule::OnRequest).await.unwrap();
    let opened = pair.a.disk.engine.close();
    let said = mirror.update(PATIENCE).await.unwrap().ended().await.unwrap();
    assert_eq!(said.result, TransferResult::Failed);
    pair.a.disk.engine.open_again(opened);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(pair.b.destination.history(&pair.replica, 100).await.unwrap().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_tick_into_a_transfer_starts_the_next_one_when_that_ends() {
    let mut pair = Pair::new(101, SIZE, slow()).await;
    let mirror = pair.mirror(every(2)).await;
    assert_ok(&pair.initialize(&mirror).await);
    // About 4 MB of noise over 1 MB/s: longer than the interval.
    let noise: Vec<u8> = (0..4 << 20).map(|_| rand::Rng::random(&mut pair.rng)).collect();
    let count = pair.b.destination.history(&pair.replica, 100).await.unwrap().len();
    pair.write(0, &noise);
    while pair.b.destination.history(&pair.replica, 100).await.unwrap().len() < count + 3 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut history = pair.b.destination.history(&pair.replica, 3).await.unwrap();
    history.reverse();
    let long =
        history.iter().position(|r| r.duration_seconds > 2.0).expect("one took longer than the interval");
    let next = history.get(long + 1).or_else(|| history.last()).unwrap();
    assert!(next.started_at.seconds_since(history[long].ended_at) < 0.5, "{history:#?}");
}

#[tokio::test(start_paused = true)]
async fn an_update_covers_the_moment_of_asking() {
    let mut pair = Pair::new(102, SIZE, slow()).await;
    pair.scribble(10);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert!(matches!(mirror.update(PATIENCE).await, Err(MirrorError::State(_))), "nothing to update yet");
    assert_ok(&pair.initialize(&mirror).await);
    assert!(matches!(mirror.initialize(PATIENCE).await, Err(MirrorError::State(_))));
    pair.scribble(60);
    let first = mirror.update(PATIENCE).await.unwrap();
    let mut progress = mirror.progress();
    progress.wait_for(|p| p.as_ref().is_some_and(|p| p.phase == Phase::Transfer)).await.unwrap();
    let first_holds = pair.live.clone();
    pair.scribble(20);
    let (second, third) = (mirror.update(PATIENCE).await.unwrap(), mirror.update(PATIENCE).await.unwrap());
    let first = first.ended().await.unwrap();
    let (second, third) = (second.ended().await.unwrap(), third.ended().await.unwrap());
    assert_eq!(second, third, "one update serves both");
    assert_ne!(first.id, second.id);
    pair.model.insert(first.id, first_holds);
    pair.model.insert(second.id, pair.live.clone());
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn progress_shows_where_it_is() {
    let mut pair = Pair::new(103, SIZE, slow()).await;
    pair.scribble(200);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    let asked = mirror.initialize(PATIENCE).await.unwrap();
    let mut progress = mirror.progress();
    let (mut phases, mut done, mut had_eta) = (Vec::new(), 0, false);
    let watching = async {
        while progress.changed().await.is_ok() {
            let Some(now) = progress.borrow_and_update().clone() else { break };
            if phases.last() != Some(&now.phase) {
                phases.push(now.phase);
            }
            assert!(now.done_bytes >= done, "progress never goes back");
            done = now.done_bytes;
            had_eta |= now.eta_seconds.is_some();
            assert!(now.changed_bytes.is_none_or(|all| done <= all) || now.phase == Phase::Transfer);
        }
    };
    watching.await;
    let report = asked.ended().await.unwrap();
    assert_ok(&report);
    assert!(done == report.changed_bytes && had_eta);
    let expected = [Phase::Snapshot, Phase::Difference, Phase::Transfer, Phase::Verify, Phase::Commit];
    let seen: Vec<_> = expected.iter().filter(|p| phases.contains(p)).collect();
    assert!(seen.len() >= 4, "{phases:?}");
    assert!(mirror.status().progress.is_none());
    // What the transfer says it cost is what the link carried, but for what the session needs for itself.
    let carried = pair.network.carried("a", "b");
    assert!(report.wire_bytes_received <= carried, "{report:?} of {carried}");
    assert!(report.wire_bytes_received as f64 > 0.95 * carried as f64, "{report:?} of {carried}");
}

#[tokio::test(start_paused = true)]
async fn break_works_during_a_transfer_and_never_asks_the_peer() {
    let mut pair = Pair::new(104, SIZE, slow()).await;
    pair.scribble(60);
    let mirror = pair.mirror(every(30)).await;
    assert_ok(&pair.initialize(&mirror).await);
    pair.scribble(100);
    let asked = mirror.update(PATIENCE).await.unwrap();
    let mut progress = mirror.progress();
    progress.wait_for(|p| p.as_ref().is_some_and(|p| p.done_bytes > 0)).await.unwrap();
    // The peer will never say anything again.
    pair.network.black_hole("a", "b");
    let start = Instant::now();
    mirror.break_off(None).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(asked.ended().await.unwrap().result, TransferResult::Aborted);
    let engine = &pair.b.disk.engine;
    assert!(!engine.volume(&pair.replica).unwrap().is_replica && !engine.has_staged(&pair.replica));
    pair.check_replica();
    assert_eq!(mirror.status().state, State::BrokenOff);
    for refused in [mirror.update(PATIENCE).await.is_err(), mirror.break_off(None).await.is_err()] {
        assert!(refused);
    }
    // For good: ticks change nothing, nor does a restart.
    pair.network.heal("a", "b");
    tokio::time::sleep(Duration::from_secs(120)).await;
    pair.crash_b(0).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let mirror = pair.b.destination.mirror(&pair.replica).unwrap();
    assert_eq!(mirror.status().state, State::BrokenOff);
    assert_eq!(pair.check_replica().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_restart_takes_up_schedule_base_and_quiet() {
    let mut pair = Pair::new(105, SIZE, LinkSettings::default()).await;
    pair.scribble(20);
    let mirror = pair.mirror(every(600)).await;
    assert_ok(&pair.initialize(&mirror).await);
    pair.crash_b(1).await;
    let mirror = pair.b.destination.mirror(&pair.replica).unwrap();
    let mut changes = mirror.changes();
    let before = pair.b.destination.history(&pair.replica, 100).await.unwrap().len();
    changes.wait_for(|s| s.state == State::Transferring).await.unwrap();
    changes.wait_for(|s| s.state == State::Mirrored).await.unwrap();
    let history = pair.b.destination.history(&pair.replica, 100).await.unwrap();
    assert_eq!(history.len(), before + 1, "it looked for news at once");
    assert_ok(&history[0]);
    assert!(history[0].base.is_some() && history[0].changed_bytes == 0);

    mirror.quiesce().await.unwrap();
    assert_eq!(mirror.status().state, State::Quiesced);
    assert!(matches!(mirror.update(PATIENCE).await, Err(MirrorError::State(_))));
    pair.crash_b(1).await;
    tokio::time::sleep(Duration::from_secs(3000)).await;
    let mirror = pair.b.destination.mirror(&pair.replica).unwrap();
    assert_eq!(mirror.status().state, State::Quiesced);
    assert_eq!(pair.b.destination.history(&pair.replica, 100).await.unwrap().len(), before + 1);
    mirror.resume().await.unwrap();
    assert_ok(&pair.update(&mirror).await);
}

#[tokio::test(start_paused = true)]
async fn without_a_session_it_waits_says_why_and_tries_again() {
    let mut pair = Pair::new(106, SIZE, LinkSettings::default()).await;
    pair.scribble(20);
    let mirror = pair.mirror(every(100)).await;
    assert_ok(&pair.initialize(&mirror).await);
    pair.network.cut("a", "b");
    tokio::time::sleep(Duration::from_secs(20)).await;
    let start = Instant::now();
    let asked = mirror.update(Duration::from_secs(5)).await.unwrap();
    assert_eq!(mirror.status().state, State::Queued);
    let error = asked.ended().await.unwrap_err();
    assert!(matches!(error, MirrorError::NoSession(_)), "{error}");
    assert!((4..10).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert!(mirror.status().why.unwrap().contains("no session"));
    tokio::time::sleep(Duration::from_secs(400)).await;
    // A request that waits is served when the link is back.
    let asked = mirror.update(Duration::from_secs(300)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    pair.network.heal("a", "b");
    assert_ok(&asked.ended().await.unwrap());
    assert!(mirror.status().why.is_none());
}

#[tokio::test(start_paused = true)]
async fn whoever_joins_what_waits_is_not_kept_by_the_pause_between_two_dials() {
    let mut pair = Pair::new(108, SIZE, LinkSettings::default()).await;
    pair.scribble(20);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    pair.network.cut("a", "b");
    let patience = Duration::from_secs(3600);
    let first = mirror.update(patience).await.unwrap();
    // Long enough that a pause between two attempts is long.
    for minutes in 10..14 {
        tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
        pair.network.heal("a", "b");
        let start = Instant::now();
        let second = mirror.update(patience).await.unwrap();
        assert_ok(&second.ended().await.unwrap());
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
        pair.network.cut("a", "b");
    }
    assert_ok(&first.ended().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn abort_ends_it_and_leaves_the_replica() {
    let mut pair = Pair::new(107, SIZE, slow()).await;
    pair.scribble(40);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert!(mirror.abort().await.is_err());
    assert_ok(&pair.initialize(&mirror).await);
    pair.scribble(80);
    let asked = mirror.update(PATIENCE).await.unwrap();
    let mut progress = mirror.progress();
    progress.wait_for(|p| p.as_ref().is_some_and(|p| p.done_bytes > 0)).await.unwrap();
    mirror.abort().await.unwrap();
    let report = asked.ended().await.unwrap();
    assert_eq!(report.result, TransferResult::Aborted);
    pair.model.insert(report.id, pair.live.clone());
    pair.check_replica();
    assert!(pair.b.disk.engine.has_staged(&pair.replica));
    let report = pair.update(&mirror).await;
    assert_ok(&report);
    assert!(report.resumed && report.resumed_bytes > 0, "what had arrived is not brought again");
    pair.check_replica();
    assert!(!pair.b.disk.engine.has_staged(&pair.replica));
}

#[tokio::test(start_paused = true)]
async fn an_end_of_the_relationship_frees_both_sides() {
    let mut pair = Pair::new(108, SIZE, LinkSettings::default()).await;
    pair.scribble(40);
    pair.snapshot("kept");
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    pair.b.destination.delete(&pair.replica).await.unwrap();
    assert!(matches!(mirror.update(PATIENCE).await, Err(MirrorError::State(_))));
    assert!(pair.b.destination.mirror(&pair.replica).is_err());
    assert!(!pair.b.disk.engine.volume(&pair.replica).unwrap().is_replica);
    assert_eq!(pair.check_replica(), ["kept"]);
    while !pair.a.source.destinations().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let left = pair.a.disk.engine.snapshots(&pair.original).unwrap();
    assert!(left.len() == 1 && left[0].pinned_by.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_stopped_halfway_leaves_the_volume_alone_and_can_be_repeated() {
    let mut pair = Pair::new(112, SIZE, LinkSettings::default()).await;
    pair.scribble(40);
    let mirror = pair.mirror(every(60)).await;
    assert_ok(&pair.initialize(&mirror).await);
    // As a deletion leaves it that failed after its first record: hosts may write from here on.
    let engine = pair.b.disk.engine.engine();
    engine.set_replica_record(&pair.replica, None).unwrap();
    pair.b.disk.engine.host_writes(&pair.replica, 0, &[7; 4096]);
    let replica = pair.replica.clone();
    let listed = || format!("{:?}", engine.snapshots(&replica).unwrap());
    let before = listed();
    pair.scribble(10);
    let report = pair.update(&mirror).await;
    assert!(report.reason.unwrap().contains("mirror delete"));
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(listed(), before, "nothing was published by the schedule");
    pair.b.destination.delete(&pair.replica).await.unwrap();
    assert!(pair.b.destination.mirrors().is_empty());
    let left = engine.snapshots(&pair.replica).unwrap();
    let is_persons = |s: &farside_engine::SnapshotInfo| {
        s.owner == farside_engine::SnapshotOwner::Person && s.pinned_by.is_empty()
    };
    assert!(left.len() == 1 && is_persons(&left[0]), "its base is a person's now: {left:?}");
}

#[tokio::test(start_paused = true)]
async fn snapshots_of_one_relationship_travel_to_another_only_to_be_in_common() {
    let mut pair = Pair::new(109, SIZE, LinkSettings::default()).await;
    pair.scribble(40);
    let one = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&one).await);
    pair.scribble(10);
    pair.snapshot("made");
    let first = pair.replica.clone();
    pair.replica = volume("q/second");
    let two = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&two).await);
    // The base of the first goes to the second, so that one can follow the other when the original is lost.
    assert_eq!(pair.check_replica().len(), 3, "what a person made, its own, and what both have");
    pair.replica = first;
    assert_ok(&pair.update(&one).await);
    assert_eq!(pair.check_replica().len(), 2, "nothing was written since the second's base");
    pair.scribble(10);
    assert_ok(&pair.update(&one).await);
    assert_eq!(pair.check_replica().len(), 3);
    assert_eq!(pair.a.disk.engine.snapshots(&pair.original).unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_replica_can_be_mirrored_on_and_names_what_it_was_given() {
    let mut pair = Pair::new(110, SIZE, LinkSettings::default()).await;
    pair.scribble(40);
    pair.snapshot("made");
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    // Back to the first site, as a volume of its own: roles do not depend on who dialled.
    let (peer, back) = (pair.b.node.id(), volume("p/back"));
    let a = &pair.a.destination;
    let cascade = a
        .create(peer, pair.replica.clone(), back.clone(), Schedule::OnRequest, PATIENCE, true)
        .await
        .unwrap();
    assert_ok(&cascade.initialize(PATIENCE).await.unwrap().ended().await.unwrap());
    for round in 0..3 {
        pair.scribble(10);
        if round == 1 {
            pair.snapshot("between");
        }
        let report = pair.update(&mirror).await;
        assert_ok(&report);
        let behind = cascade.update(PATIENCE).await.unwrap().ended().await.unwrap();
        assert_ok(&behind);
        assert_eq!(behind.content_root, report.content_root);
        let (first, second) = (mirror.status().current.unwrap(), cascade.status().current.unwrap());
        assert_eq!(first.created_at, second.created_at, "lag is counted from the data, across the cascade");
        // Nothing new: no snapshot is invented for it.
        let idle = cascade.update(PATIENCE).await.unwrap().ended().await.unwrap();
        assert_ok(&idle);
        assert_eq!((idle.snapshots, idle.content_root), (0, report.content_root));
    }
    let names: Vec<_> = pair.a.disk.engine.snapshots(&back).unwrap().into_iter().map(|s| s.name).collect();
    assert_eq!(names[..2], ["made", "between"]);
    assert_eq!(names.len(), 3, "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_nothing_keeps_nobody_waiting_and_no_name() {
    let pair = Pair::new(130, SIZE, LinkSettings::default()).await;
    // It keeps its session, as a daemon whose disk hangs does.
    let mute: Vec<_> =
        (0..8).map(|_| pair.a.fault_injector.hold(|body| matches!(body, Body::Describe(_)))).collect();
    let (peer, wait) = (pair.a.node.id(), Duration::from_secs(15));
    let create = || {
        let (source, replica) = (pair.original.clone(), pair.replica.clone());
        pair.b.destination.create(peer, source, replica, Schedule::OnRequest, wait, true)
    };
    let start = Instant::now();
    let (first, at_once) = tokio::join!(create(), create());
    assert!(start.elapsed() <= Duration::from_secs(40), "{:?}", start.elapsed());
    let said = at_once.err().unwrap().to_string();
    assert!(said.contains("is being made"), "{said}");
    let said = first.err().unwrap().to_string();
    assert!(said.contains("does not answer") && said.contains("Nothing was made"), "{said}");
    assert!(pair.b.disk.engine.volume(&pair.replica).is_err(), "nothing is left");
    drop(mute);
    // Those that are left of the gates hold no more than the calls that they have.
    for _ in 0..8 {
        if create().await.is_ok() {
            return;
        }
    }
    panic!("the name is free");
}
