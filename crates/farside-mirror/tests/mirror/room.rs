//! A destination's pool that an update does not fit into: nothing of it travels, and nothing travels twice.

use std::time::Duration;

use farside_engine::{Engine, SnapshotOwner};
use farside_link::LinkSettings;
use farside_mirror::{Mirror, Schedule};
use farside_transfer::TransferResult;

use crate::site::{PATIENCE, Pair, assert_ok};

const SIZE: u64 = 4 << 20;
/// More than calls, plan and stream headers of a transfer take, and less than one frame of what does not compress.
const NEXT_TO_NOTHING: u64 = 32 << 10;

async fn mirrored(seed: u64, schedule: Schedule) -> (Pair, Mirror) {
    let mut pair = Pair::new(seed, SIZE, LinkSettings::default()).await;
    pair.scribble(10);
    let mirror = pair.mirror(schedule).await;
    assert_ok(&pair.initialize(&mirror).await);
    (pair, mirror)
}

/// `length` bytes at `offset` that do not compress.
fn fill(pair: &mut Pair, offset: u64, length: u64) {
    let mut bytes = vec![0; length as usize];
    rand::RngCore::fill_bytes(&mut pair.rng, &mut bytes);
    pair.write(offset, &bytes);
}

fn room(pair: &Pair, bytes: Option<u64>) {
    pair.b.disk.engine.faults.lock().staging_room = bytes;
}

#[tokio::test(start_paused = true)]
async fn an_update_that_cannot_fit_is_refused_before_its_first_byte() {
    let (mut pair, mirror) = mirrored(700, Schedule::OnRequest).await;
    fill(&mut pair, 0, 2 << 20);
    room(&pair, Some(1 << 20));
    for attempt in 0..3 {
        let staged = pair.b.disk.engine.staged_write_bytes();
        let report = pair.update(&mirror).await;
        assert_eq!(report.result, TransferResult::Failed);
        let staged = pair.b.disk.engine.staged_write_bytes() - staged;
        println!("attempt {attempt}: {} bytes came, {staged} were staged", report.wire_bytes_received);
        assert!(report.wire_bytes_received < NEXT_TO_NOTHING && staged == 0, "attempt {attempt}");
        let reason = report.reason.unwrap();
        assert!(reason.contains("2.0 MiB") && reason.contains("1.0 MiB"), "{reason}");
    }
    pair.check_replica();
    room(&pair, Some(3 << 20));
    assert_ok(&pair.update(&mirror).await);
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn what_is_cut_by_a_full_pool_comes_once_and_goes_on_when_there_is_room() {
    let (mut pair, mirror) = mirrored(701, Schedule::OnRequest).await;
    fill(&mut pair, 0, 2 << 20);
    // It fits as it begins; hosts take the room meanwhile, of which the engine does not tell before.
    pair.b.disk.engine.faults.lock().staged_bytes_left = Some(1 << 20);
    assert_eq!(pair.update(&mirror).await.result, TransferResult::Failed);
    pair.b.disk.engine.faults.lock().staged_bytes_left = None;
    // What is staged and what is left do not do for all of it: it stays, and nothing more comes.
    room(&pair, Some((1 << 20) + 8192));
    for attempt in 0..2 {
        let report = pair.update(&mirror).await;
        assert_eq!(report.result, TransferResult::Failed);
        println!("attempt {attempt}: {} bytes came", report.wire_bytes_received);
        assert!(report.wire_bytes_received < NEXT_TO_NOTHING, "attempt {attempt}");
        assert!(pair.b.disk.engine.has_staged(&pair.replica), "what was brought is kept");
    }
    room(&pair, None);
    let report = pair.update(&mirror).await;
    assert_ok(&report);
    assert!(report.resumed && report.changed_bytes <= 1 << 20, "{} bytes came again", report.changed_bytes);
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn the_schedule_waits_for_room_and_takes_it_when_it_comes() {
    let every = Schedule::every(Some(Duration::from_secs(10))).unwrap();
    let (mut pair, mirror) = mirrored(702, every).await;
    fill(&mut pair, 0, 2 << 20);
    room(&pair, Some(1 << 20));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let history = pair.b.destination.history(&pair.replica, 1000).await.unwrap();
    let failed = history.iter().filter(|r| r.result == TransferResult::Failed).count();
    println!("{failed} attempts in an hour");
    assert!((1..=12).contains(&failed), "{failed} attempts in an hour");
    let why = mirror.status().why.unwrap_or_default();
    assert!(why.contains("room"), "{why}");
    room(&pair, Some(3 << 20));
    let asked = tokio::time::timeout(Duration::from_secs(25), async {
        let mut changes = mirror.changes();
        changes.wait_for(|status| status.why.is_none()).await.unwrap();
    });
    asked.await.expect("an update comes with one of the next ticks");
    mirror.quiesce().await.unwrap();
    mirror.resume().await.unwrap();
    assert_ok(&mirror.update(PATIENCE).await.unwrap().ended().await.unwrap());
}

/// What of the original is kept for the mirror: names of persons' snapshots, and how many others.
fn kept(pair: &Pair, mirror: &Mirror) -> (Vec<String>, usize) {
    let id = mirror.status().relationship.id;
    let mut all = pair.a.disk.engine.all_snapshots(&pair.original).unwrap();
    all.retain(|s| s.pinned_by.contains(&id));
    let (persons, own): (Vec<_>, Vec<_>) = all.into_iter().partition(|s| s.owner == SnapshotOwner::Person);
    (persons.into_iter().map(|s| s.name).collect(), own.len())
}

#[tokio::test(start_paused = true)]
async fn what_has_no_room_there_keeps_nobody_from_deleting_snapshots_here() {
    let (mut pair, mirror) = mirrored(703, Schedule::OnRequest).await;
    fill(&mut pair, 0, 2 << 20);
    let large = pair.snapshot("large");
    pair.scribble(3);
    pair.snapshot("small");
    room(&pair, Some(1 << 20));
    for attempt in 0..2 {
        assert_eq!(pair.update(&mirror).await.result, TransferResult::Failed);
        let (persons, own) = kept_in_the_end(&pair, &mirror, 0).await;
        assert_eq!((persons, own), (Vec::new(), 1), "attempt {attempt}: the base alone");
    }
    pair.a.disk.engine.delete_snapshot(&pair.original, large).unwrap();
    room(&pair, None);
    assert_ok(&pair.update(&mirror).await);
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn a_persons_snapshot_of_which_a_part_arrived_can_be_deleted_and_else_goes_on() {
    for is_deleted in [false, true] {
        for is_session_lost in [false, true] {
            let (mut pair, mirror) = mirrored(704, Schedule::OnRequest).await;
            fill(&mut pair, 0, 2 << 20);
            let large = pair.snapshot("large");
            pair.b.disk.engine.faults.lock().staged_bytes_left = Some(1 << 20);
            assert_eq!(pair.update(&mirror).await.result, TransferResult::Failed);
            pair.b.disk.engine.faults.lock().staged_bytes_left = None;
            if is_session_lost {
                pair.lose_session().await;
            }
            assert_eq!(kept_in_the_end(&pair, &mirror, 0).await.0, Vec::<String>::new());
            if is_deleted {
                pair.a.disk.engine.delete_snapshot(&pair.original, large).unwrap();
            }
            let report = pair.update(&mirror).await;
            assert_ok(&report);
            let again = report.changed_bytes;
            assert!(report.resumed && again <= 1 << 20, "{again} bytes came again, deleted: {is_deleted}");
            pair.check_replica();
        }
    }
}

/// The same once so many of persons are left. The source releases them by itself, in threads that the test's clock does not wait for.
async fn kept_in_the_end(pair: &Pair, mirror: &Mirror, persons: usize) -> (Vec<String>, usize) {
    for _ in 0..60 {
        if kept(pair, mirror).0.len() == persons {
            break;
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    kept(pair, mirror)
}

/// A session that is lost for good leaves nobody's snapshots pinned.
#[tokio::test(start_paused = true)]
async fn a_transfer_that_is_cut_keeps_nobody_from_deleting_snapshots() {
    let (mut pair, mirror) = mirrored(705, Schedule::OnRequest).await;
    for name in ["one", "two", "three"] {
        pair.scribble(10);
        pair.snapshot(name);
    }
    let gate =
        pair.a.fault_injector.hold(|body| matches!(body, farside_transfer::protocol::Body::Acknowledge(_)));
    let asked = mirror.update(PATIENCE).await.unwrap();
    gate.held().await;
    assert_eq!(kept(&pair, &mirror).0, ["one", "two", "three"], "they travel");
    pair.network.cut("a", "b");
    // The first has arrived whole, and nobody has heard whether it is published.
    assert_eq!(kept_in_the_end(&pair, &mirror, 1).await.0, ["one"]);
    pair.network.heal("a", "b");
    gate.release().await;
    let report = asked.ended().await.unwrap();
    assert_ok(&report);
    pair.model.insert(report.id, pair.live.clone());
    pair.check_replica();
}
