//! Transfers that wait for each other, or for a source that brings nothing.

use std::time::Duration;

use farside_engine::{Engine, SnapshotOwner, VolumeName};
use farside_link::LinkSettings;
use farside_mirror::{Budgets, Mirror, MirrorStatus, Schedule, State};
use rand::RngCore;
use tokio::time::{Instant, timeout};

use crate::embedded_storage::Embedded;
use crate::site::{self, PATIENCE, Pair, Storage, assert_ok, volume};

const SIZE: u64 = 1 << 20;

/// A second volume of the pair with `bytes` that do not compress, and its mirror.
async fn another(pair: &mut Pair, name: &str, bytes: usize) -> Mirror {
    let (original, replica): (VolumeName, VolumeName) =
        (volume(&format!("p/{name}")), volume(&format!("q/{name}")));
    let mut content = vec![0; bytes];
    pair.rng.fill_bytes(&mut content);
    pair.a.disk.engine.create_volume(&original, bytes as u64).unwrap();
    pair.a.disk.engine.host_writes(&original, 0, &content);
    let peer = pair.a.node.id();
    pair.b.destination.create(peer, original, replica, Schedule::OnRequest, PATIENCE, false).await.unwrap()
}

async fn wait_for(mirror: &Mirror, what: &str, is: impl Fn(&MirrorStatus) -> bool) {
    let waiting = async {
        while !is(&mirror.status()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(3600), waiting).await.unwrap_or_else(|_| panic!("never {what}"));
}

/// 60 kB/s: 48 MiB take a quarter of an hour.
fn narrow() -> LinkSettings {
    LinkSettings {
        latency: Duration::from_millis(10),
        jitter: Duration::ZERO,
        bytes_per_second: Some(60_000),
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_copy_gives_way_and_loses_nothing() {
    let mut pair = Pair::new(800, SIZE, narrow()).await;
    pair.scribble(3);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    pair.b.queue.set_size(1);
    let copying = another(&mut pair, "big", 48 << 20).await;
    let copy = copying.initialize(PATIENCE).await.unwrap();
    wait_for(&copying, "begun", |s| s.state == State::Initializing).await;
    pair.scribble(3);
    let asked = mirror.update(Duration::from_secs(3600)).await.unwrap();
    wait_for(&mirror, "in line", |s| s.state == State::Queued && s.why.is_some()).await;
    let why = mirror.status().why.unwrap();
    assert!(why.contains("1 of a") && why.contains("turn"), "{why}");
    let begun = Instant::now();
    let report = asked.ended().await.unwrap();
    assert_ok(&report);
    pair.model.insert(report.id, pair.live.clone());
    println!("the update took {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(500));
    assert_ne!(copying.status().state, State::Mirrored);
    // Who asked for the copy waits on, and hears of its end alone.
    let report = timeout(Duration::from_secs(1200), copy.ended()).await.expect("it goes on").unwrap();
    assert_ok(&report);
    let all = pair.b.destination.history(&volume("q/big"), 10).await.unwrap();
    let wire: u64 = all.iter().map(|r| r.wire_bytes_received).sum();
    println!("{} transfers, {wire} bytes", all.len());
    assert!(report.resumed && wire < (48 << 20) + (2 << 20), "{wire} bytes came");
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn a_timeout_bounds_the_wait_in_line_too() {
    let mut pair = Pair::new(801, SIZE, narrow()).await;
    pair.scribble(3);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    pair.b.queue.set_size(1);
    let copying = another(&mut pair, "big", 4 << 20).await;
    let copy = copying.initialize(PATIENCE).await.unwrap();
    wait_for(&copying, "begun", |s| s.state == State::Initializing).await;
    let begun = Instant::now();
    let error = mirror.update(Duration::from_secs(5)).await.unwrap().ended().await.unwrap_err().to_string();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(error.contains("stays in line") && error.contains("1 of a"), "{error}");
    assert_ok(&copy.ended().await.unwrap());
    wait_for(&mirror, "updated", |s| s.state == State::Mirrored && s.why.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_only_says_that_it_works_gives_the_place_back() {
    let mut pair = Pair::new(802, SIZE, LinkSettings::default()).await;
    pair.scribble(3);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    pair.scribble(3);
    pair.a.fault_injector.hangs.store(true, std::sync::atomic::Ordering::SeqCst);
    let asked = mirror.update(PATIENCE).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1700)).await;
    assert_eq!(pair.b.destination.history(&pair.replica, 10).await.unwrap().len(), 1, "it has its half hour");
    tokio::time::sleep(Duration::from_secs(200)).await;
    let history = pair.b.destination.history(&pair.replica, 10).await.unwrap();
    let reason = history[0].reason.clone().unwrap_or_default();
    assert!(history.len() > 1 && reason.contains("brought nothing for 30 minutes"), "{reason}");
    pair.a.fault_injector.hangs.store(false, std::sync::atomic::Ordering::SeqCst);
    let report = asked.ended().await.unwrap();
    assert_ok(&report);
    pair.model.insert(report.id, pair.live.clone());
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn any_number_of_waiting_snapshots_is_caught_up() {
    let mut pair = Pair::new(803, 64 << 10, LinkSettings::default()).await;
    pair.scribble(3);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    // A transfer carries what may be pinned, and 2047 at most.
    const COUNT: usize = 250;
    pair.a.source.set_budgets(Budgets { pins: 100, ..Budgets::default() });
    for n in 0..COUNT {
        if n % 20 == 0 {
            pair.scribble(1);
        }
        pair.snapshot(&format!("s{n}"));
    }
    pair.scribble(2);
    let mut changes = mirror.changes();
    let asked = mirror.update(PATIENCE).await.unwrap();
    let is_behind = |s: &MirrorStatus| s.why.as_ref().is_some_and(|why| why.contains("catching up"));
    let behind = async { drop(changes.wait_for(is_behind).await.unwrap()) };
    let (report, behind) = tokio::join!(asked.ended(), timeout(PATIENCE, behind));
    let report = report.unwrap();
    assert_ok(&report);
    behind.expect("it says so meanwhile");
    pair.model.insert(report.id, pair.live.clone());
    let names = pair.check_replica();
    assert_eq!(names.iter().filter(|name| name.starts_with('s')).count(), COUNT);
    assert!(mirror.status().why.is_none());
    let id = mirror.status().relationship.id;
    let pinned = pair.a.disk.engine.snapshots(&pair.original).unwrap();
    assert_eq!(pinned.iter().filter(|s| s.pinned_by.contains(&id)).count(), 1, "the base alone");
}

#[tokio::test(start_paused = true)]
async fn a_replica_takes_no_more_snapshots_than_it_may_have() {
    let mut pair = Pair::new(804, 64 << 10, LinkSettings::default()).await;
    pair.limit_snapshots_b(10).await;
    pair.scribble(3);
    for n in 0..6 {
        pair.snapshot(&format!("s{n}"));
    }
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    for n in 6..15 {
        pair.snapshot(&format!("s{n}"));
    }
    pair.scribble(2);
    assert_ok(&pair.update(&mirror).await);
    let named = |pair: &Pair| -> Vec<String> {
        let all = pair.b.disk.engine.snapshots(&pair.replica).unwrap();
        all.into_iter().filter(|s| s.owner == SnapshotOwner::Person).map(|s| s.name).collect()
    };
    assert_eq!(named(&pair), ["s0", "s1", "s2", "s3", "s4", "s5", "s11", "s12", "s13", "s14"]);
    let why = mirror.status().why.unwrap();
    assert!(why.contains("5 older snapshots") && why.contains("replicas.snapshots"), "{why}");
    pair.snapshot("s15");
    assert_ok(&pair.update(&mirror).await);
    assert_eq!(named(&pair).len(), 10, "full");
    pair.check_replica();
    // A person makes room: newer ones are taken again.
    let first = pair.b.disk.engine.snapshots(&pair.replica).unwrap()[0].uuid;
    pair.b.disk.engine.delete_snapshot(&pair.replica, first).unwrap();
    pair.snapshot("s16");
    assert_ok(&pair.update(&mirror).await);
    assert_eq!(named(&pair).last().unwrap(), "s16");
    assert!(mirror.status().why.is_none());
}

fn named<S: Storage>(pair: &Pair<S>) -> Vec<String> {
    let all = pair.b.disk.engine.engine().all_snapshots(&pair.replica).unwrap();
    all.into_iter().filter(|s| s.owner == SnapshotOwner::Person).map(|s| s.name).collect()
}

#[tokio::test(start_paused = true)]
async fn a_source_that_asks_nobody_how_many_snapshots_it_may_send_fills_no_pool() {
    let mut pair = Pair::new(805, 64 << 10, LinkSettings::default()).await;
    pair.limit_snapshots_b(10).await;
    pair.a.fault_injector.names_all.store(true, std::sync::atomic::Ordering::SeqCst);
    pair.scribble(3);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    for round in 0..3 {
        for n in 0..8 {
            pair.scribble(1);
            pair.snapshot(&format!("s{round}-{n}"));
        }
        let report = if round == 0 { pair.initialize(&mirror).await } else { pair.update(&mirror).await };
        assert_ok(&report);
        let most = [8, 10, 10][round];
        assert_eq!(named(&pair).len(), most, "{:?}", named(&pair));
        pair.check_replica();
    }
    assert!(named(&pair).contains(&"s1-7".to_owned()), "the newest of those that came");
    // With the version that is shown: what had to go is gone.
    let all = pair.b.disk.engine.all_snapshots(&pair.replica).unwrap();
    assert!(all.len() <= 12, "{all:?}");
    let why = mirror.status().why.unwrap();
    assert!(why.contains("8 older snapshots") && why.contains("replicas.snapshots"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn snapshots_that_the_source_went_back_behind_take_room_like_others() {
    let mut pair = Pair::<Embedded>::with_storage(806, 64 << 10, LinkSettings::default()).await;
    pair.limit_snapshots_b(10).await;
    pair.scribble(3);
    pair.snapshot("s0");
    let first = pair.snapshot("s1");
    let at_first = pair.live.clone();
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    // A source that goes back again and again leaves a branch of snapshots each time.
    for round in 0..3 {
        site::roll_back(&*pair.a.disk.engine.engine(), &pair.original, first);
        pair.live = at_first.clone();
        for n in 0..4 {
            pair.scribble(1);
            pair.snapshot(&format!("r{round}-{n}"));
        }
        assert_ok(&pair.update(&mirror).await);
    }
    let named: Vec<String> = named(&pair).into_iter().filter(|name| !name.starts_with("rescue")).collect();
    assert_eq!(named.len(), 10, "{named:?}");
    assert!(mirror.status().why.unwrap().contains("replicas.snapshots"));
}

/// EqualLogic's rule: a replica that waits keeps the point in time at which it was asked for.
#[tokio::test(start_paused = true)]
async fn what_waits_for_its_turn_brings_the_point_at_which_it_was_asked_for() {
    let mut pair = Pair::new(810, SIZE, narrow()).await;
    pair.scribble(3);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    pair.b.queue.set_size(1);
    let copying = another(&mut pair, "big", 4 << 20).await;
    let copy = copying.initialize(PATIENCE).await.unwrap();
    wait_for(&copying, "begun", |s| s.state == State::Initializing).await;
    pair.scribble(3);
    let then = pair.live.clone();
    let asked = mirror.update(Duration::from_secs(3600)).await.unwrap();
    wait_for(&mirror, "in line", |s| s.queue_position == Some(1)).await;
    // The call has been answered by then; what hosts write, and what persons name, comes later.
    tokio::time::sleep(Duration::from_secs(2)).await;
    pair.scribble(3);
    let named = pair.snapshot("named-meanwhile");
    pair.scribble(3);
    let report = asked.ended().await.unwrap();
    assert_ok(&report);
    pair.model.insert(report.id, then);
    let names = pair.check_replica();
    assert!(!names.contains(&"named-meanwhile".to_owned()), "{names:?}");
    assert_ok(&copy.ended().await.unwrap());
    // Nothing of it is left at the source but the base, and the next update brings what came since.
    assert_ok(&pair.update(&mirror).await);
    let names = pair.check_replica();
    assert!(names.contains(&"named-meanwhile".to_owned()) && pair.model.contains_key(&named), "{names:?}");
    let id = mirror.status().relationship.id;
    let all = pair.a.disk.engine.engine().all_snapshots(&pair.original).unwrap();
    assert_eq!(all.iter().filter(|s| s.pinned_by.contains(&id)).count(), 1, "{all:?}");
}

/// Whoever asks while it waits is served with what there is at that moment, and a wait that ends without a transfer keeps nothing for
/// long.
#[tokio::test(start_paused = true)]
async fn who_asks_later_gets_what_is_there_later() {
    let mut pair = Pair::new(811, SIZE, narrow()).await;
    pair.scribble(3);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    pair.b.queue.set_size(1);
    let copying = another(&mut pair, "big", 4 << 20).await;
    let copy = copying.initialize(PATIENCE).await.unwrap();
    wait_for(&copying, "begun", |s| s.state == State::Initializing).await;
    for _ in 0..3 {
        pair.scribble(2);
        let asked = mirror.update(Duration::from_secs(3600)).await.unwrap();
        wait_for(&mirror, "in line", |s| s.queue_position == Some(1)).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        mirror.abort().await.unwrap();
        assert!(asked.ended().await.is_err());
    }
    let id = mirror.status().relationship.id;
    let kept = |pair: &Pair| {
        let all = pair.a.disk.engine.engine().all_snapshots(&pair.original).unwrap();
        all.iter().filter(|s| s.pinned_by.contains(&id)).count()
    };
    assert_eq!(kept(&pair), 2, "the base, and one that was taken for a wait");
    let early = mirror.update(Duration::from_secs(3600)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    pair.scribble(3);
    let late = mirror.update(Duration::from_secs(3600)).await.unwrap();
    assert_ok(&copy.ended().await.unwrap());
    let report = late.ended().await.unwrap();
    assert_ok(&report);
    pair.model.insert(report.id, pair.live.clone());
    assert_eq!(early.ended().await.unwrap().id, report.id);
    pair.check_replica();
    assert_eq!(kept(&pair), 1);
}
