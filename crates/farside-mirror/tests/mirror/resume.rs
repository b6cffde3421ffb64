//! Transfers that are cut and gone on with: what has arrived does not travel again, and whatever was staged, the replica
//! is one snapshot of its source at every moment.

use std::time::Duration;

use farside_engine::{BLOCK_BYTES, Engine, SnapshotOwner};
use farside_link::LinkSettings;
use farside_mirror::{Mirror, MirrorError, Schedule, State};
use farside_transfer::protocol::{Body, PROTOCOL_VERSION, StreamHeader};
use farside_transfer::{Progress, TransferReport, TransferResult};
use prost::Message;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::embedded_storage::Embedded;
use crate::memory_engine::MemoryEngine;
use crate::site::{PATIENCE, Pair, Storage, assert_ok, seeds};

const SIZE: u64 = 8 << 20;
/// Bytes of data in a frame of full size.
const FRAME_BYTES: u64 = 1 << 20;
/// What a cut may have a session send a second time: what is on its way, unacknowledged. A slow link does not let the window grow.
const TWICE_MAX: u64 = farside_link::limits::WINDOW_START;

/// 250 kB/s: with data that compresses by half a frame takes two seconds.
fn very_slow() -> LinkSettings {
    LinkSettings {
        latency: Duration::from_millis(20),
        jitter: Duration::ZERO,
        bytes_per_second: Some(250_000),
    }
}

/// Bytes of data in a copy from nothing of what hosts see now.
fn data_bytes(image: &[u8]) -> u64 {
    image.chunks(BLOCK_BYTES as usize).filter(|b| b.iter().any(|b| *b != 0)).count() as u64 * BLOCK_BYTES
}

/// Bytes of data in an update from `base`.
fn changed_bytes(base: &[u8], now: &[u8]) -> u64 {
    let blocks = base.chunks(BLOCK_BYTES as usize).zip(now.chunks(BLOCK_BYTES as usize));
    blocks.filter(|(old, new)| old != new && new.iter().any(|b| *b != 0)).count() as u64 * BLOCK_BYTES
}

/// The base in use is pinned on both sides, and nothing else. Where the session was lost under the acknowledgement, the source
/// is told again as soon as there is another.
async fn only_the_base_stays_pinned<S: Storage>(pair: &Pair<S>, mirror: &Mirror) {
    let id = mirror.status().relationship.id;
    let published = mirror.status().current.unwrap().uuid;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    for (site, volume) in [(&pair.a, &pair.original), (&pair.b, &pair.replica)] {
        loop {
            let mut snapshots = site.disk.engine.engine().all_snapshots(volume).unwrap();
            snapshots.retain(|s| s.pinned_by.contains(&id));
            if matches!(&snapshots[..], [only] if only.uuid == published) {
                break;
            }
            let is_late = tokio::time::Instant::now() > deadline;
            assert!(!is_late, "pinned at {volume} besides the base {published}: {snapshots:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_was_not_notified_of_its_new_base_is_notified_again() {
    let mut pair = Pair::new(444, SIZE, LinkSettings::default()).await;
    pair.scribble(20);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    pair.scribble(20);
    let gate = pair.a.fault_injector.hold(|body| matches!(body, Body::Acknowledge(_)));
    let asked = mirror.update(PATIENCE).await.unwrap();
    gate.held().await;
    pair.lose_session().await;
    let report = ended(&mut pair, asked).await.unwrap();
    assert_ok(&report);
    pair.check_replica();
    only_the_base_stays_pinned(&pair, &mirror).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_refused_to_hear_of_its_new_base_is_told_again() {
    let mut pair = Pair::new(445, SIZE, LinkSettings::default()).await;
    pair.scribble(20);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    pair.scribble(20);
    let gate = pair.a.fault_injector.hold(|body| matches!(body, Body::Acknowledge(_)));
    let asked = mirror.update(PATIENCE).await.unwrap();
    gate.held().await;
    *pair.a.rights.denied.lock() = true;
    gate.release().await;
    let report = ended(&mut pair, asked).await.unwrap();
    assert_ok(&report);
    tokio::time::sleep(10 * PATIENCE).await;
    *pair.a.rights.denied.lock() = false;
    tokio::time::sleep(PATIENCE).await;
    only_the_base_stays_pinned(&pair, &mirror).await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_ends_although_nobody_can_be_told_of_a_base_any_more() {
    let mut pair = Pair::new(446, SIZE, LinkSettings::default()).await;
    pair.scribble(20);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    pair.scribble(20);
    let gate = pair.a.fault_injector.hold(|body| matches!(body, Body::Acknowledge(_)));
    let asked = mirror.update(PATIENCE).await.unwrap();
    gate.held().await;
    pair.b.node.remove_peer(pair.a.node.id()).await.unwrap();
    assert_ok(&ended(&mut pair, asked).await.unwrap());
    tokio::time::sleep(10 * PATIENCE).await;
    let ends = tokio::time::timeout(PATIENCE, pair.b.destination.shut_down());
    ends.await.expect("nothing keeps the site from its end");
}

/// Waits until some of the transfer has arrived.
async fn some_arrived(mirror: &Mirror, bytes: u64) {
    let mut progress = mirror.progress();
    let transfer = |p: &Option<Progress>| p.as_ref().and_then(|p| p.transfer);
    let running = transfer(&progress.wait_for(|p| transfer(p).is_some()).await.unwrap());
    let arrived = |p: &Option<Progress>| p.as_ref().is_some_and(|p| p.done_bytes >= bytes);
    let seen = progress.wait_for(|p| arrived(p) || transfer(p) != running).await.unwrap();
    assert!(arrived(&seen), "it ended before {bytes} bytes had arrived");
}

/// Every transfer that has ended brought, if anything, what hosts see now: nothing was written since it began.
async fn learn<S: Storage>(pair: &mut Pair<S>) -> Vec<TransferReport> {
    let history = pair.b.destination.history(&pair.replica, 1000).await.unwrap();
    for report in &history {
        pair.model.entry(report.id).or_insert_with(|| pair.live.clone());
    }
    history
}

/// Waits for the end of what was asked for; none if the site that asked went down under it.
async fn ended<S: Storage>(
    pair: &mut Pair<S>,
    asked: farside_mirror::relationship::Asked,
) -> Option<TransferReport> {
    let ended = tokio::time::timeout(Duration::from_secs(900), asked.ended());
    let report = ended.await.expect("every transfer ends").ok();
    learn(pair).await;
    report
}

async fn ask(mirror: &Mirror) -> Result<farside_mirror::relationship::Asked, MirrorError> {
    match mirror.status().state {
        State::Uninitialized => mirror.initialize(PATIENCE).await,
        _ => mirror.update(PATIENCE).await,
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_copy_that_is_cut_many_times_travels_once() {
    for seed in seeds(400, 1) {
        let mut pair = Pair::new(seed, 2 * SIZE, very_slow()).await;
        pair.scribble(300);
        let mirror = pair.mirror(Schedule::OnRequest).await;
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut cuts = 0;
        loop {
            let asked = ask(&mirror).await.unwrap();
            let mut ending = Box::pin(asked.ended());
            let result = loop {
                // A frame takes two seconds.
                let moment = Duration::from_millis(rng.random_range(2500..9000));
                tokio::select! {
                    report = &mut ending => break report.unwrap().result,
                    () = tokio::time::sleep(moment) => {
                        pair.lose_session().await;
                        cuts += 1;
                    }
                }
            };
            drop(ending);
            learn(&mut pair).await;
            pair.check_replica();
            if result == TransferResult::Ok {
                break;
            }
        }
        let arrived = pair.b.disk.engine.staged_write_bytes();
        println!("{cuts} cuts, {arrived} bytes arrived");
        assert!(cuts >= 1, "{cuts} cuts");
        assert_eq!(arrived, data_bytes(&pair.live), "every block arrived once");
        let history = learn(&mut pair).await;
        let first = history.iter().find(|r| r.resumed).expect("one went on with what there was");
        assert_eq!(first.resumed_bytes + first.changed_bytes, data_bytes(&pair.live));
        assert!(!pair.b.disk.engine.has_staged(&pair.replica));
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_copy_outlives_its_connections() {
    for seed in seeds(407, 1) {
        let mut pair = Pair::new(seed, 2 * SIZE, very_slow()).await;
        pair.scribble(300);
        let mirror = pair.mirror(Schedule::OnRequest).await;
        // Both sites have dialled: until then one session may take the other's place.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let session = pair.b.node.wait_link(pair.a.node.id(), PATIENCE).await.unwrap();
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut cuts = 0;
        let asked = mirror.initialize(PATIENCE).await.unwrap();
        let mut ending = Box::pin(asked.ended());
        let report = loop {
            // Time for a dial, whose pause grows to 4 s, and a sign of life between any two cuts: both together could be the
            // 12 s of silence that end a session.
            let moment = Duration::from_millis(rng.random_range(6000..9500));
            tokio::select! {
                report = &mut ending => break report.unwrap(),
                () = tokio::time::sleep(moment) => {
                    // Some at once, some after a while in which nobody can be dialled.
                    pair.network.cut("a", "b");
                    tokio::time::sleep(Duration::from_millis(rng.random_range(0..3000))).await;
                    pair.network.heal("a", "b");
                    cuts += 1;
                }
            }
        };
        drop(ending);
        assert_ok(&report);
        learn(&mut pair).await;
        pair.check_replica();
        let (sent, received) = (report.wire_bytes_sent, report.wire_bytes_received);
        let twice = pair.a.node.link_stats(pair.b.node.id()).unwrap().retransmitted_bytes;
        println!("{cuts} cuts, {twice} bytes retransmitted, wire {sent} + {received}");
        assert!(cuts >= 1, "{cuts} cuts");
        assert!(!report.resumed && learn(&mut pair).await.len() == 1, "one transfer: {report:?}");
        assert_eq!(
            pair.b.disk.engine.staged_write_bytes(),
            data_bytes(&pair.live),
            "every block arrived once"
        );
        assert!(tokio::time::timeout(Duration::ZERO, session.closed()).await.is_err(), "one session");
        assert!(twice > 0 && twice <= cuts * TWICE_MAX, "{twice} bytes retransmitted in {cuts} cuts");
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_copy_is_asked_for_once_however_often_the_link_breaks_as_long_as_it_gets_on() {
    let mut pair = Pair::new(405, 2 * SIZE, very_slow()).await;
    let mut bytes = vec![0; 2 * SIZE as usize];
    pair.rng.fill(&mut bytes[..]);
    pair.write(0, &bytes);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    let asked = mirror.initialize(PATIENCE).await.unwrap();
    let mut progress = mirror.progress();
    for cut in 1..=6 {
        // Done counts what was held before, whichever transfer it is by now.
        let enough = |p: &Option<Progress>| p.as_ref().is_some_and(|p| p.done_bytes >= 2 * cut * FRAME_BYTES);
        tokio::time::timeout(Duration::from_secs(300), progress.wait_for(enough)).await.unwrap().unwrap();
        pair.lose_session().await;
    }
    assert_ok(&ended(&mut pair, asked).await.expect("a report"));
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn a_first_copy_that_a_restart_cut_off_is_taken_up_by_the_schedule_and_by_nobody_without_one() {
    for (schedule, goes_on) in
        [(Schedule::Every(Duration::from_secs(60)), true), (Schedule::OnRequest, false)]
    {
        let mut pair = Pair::new(406, SIZE, very_slow()).await;
        let mut bytes = vec![0; SIZE as usize];
        pair.rng.fill(&mut bytes[..]);
        pair.write(0, &bytes);
        let mirror = pair.mirror(schedule).await;
        let _asked = mirror.initialize(PATIENCE).await.unwrap();
        some_arrived(&mirror, 2 * FRAME_BYTES).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        pair.crash_b(1).await;
        let mut changes = pair.b.destination.mirror(&pair.replica).unwrap().changes();
        let mirrored = changes.wait_for(|status| status.state == State::Mirrored);
        let arrived = tokio::time::timeout(Duration::from_secs(600), mirrored).await.is_ok();
        assert_eq!(
            arrived, goes_on,
            "with a schedule it goes on by itself, without one it is asked for again"
        );
        if goes_on {
            learn(&mut pair).await;
            pair.check_replica();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_kill_costs_what_came_since_the_last_checkpoint() {
    for seed in seeds(410, 4) {
        let mut pair = Pair::new(seed, SIZE, very_slow()).await;
        pair.scribble(120);
        let mut mirror = pair.mirror(Schedule::OnRequest).await;
        let mut kills = 0;
        loop {
            let asked = ask(&mirror).await.unwrap();
            if kills < 6 {
                let moment = Duration::from_millis(pair.rng.random_range(2500..7000));
                tokio::time::sleep(moment).await;
                if pair.rng.random_bool(0.7) {
                    pair.crash_b(seed + kills).await;
                    mirror = pair.b.destination.mirror(&pair.replica).unwrap();
                } else {
                    pair.crash_a(seed + kills).await;
                }
                kills += 1;
            }
            let report = ended(&mut pair, asked).await;
            pair.check_replica();
            if report.is_some_and(|r| r.result == TransferResult::Ok) {
                break;
            }
        }
        let arrived = pair.b.disk.engine.staged_write_bytes();
        // Two seconds of the link at a factor of two, and the frame that was being written.
        let lost_at_most = kills * (2 * 2 * 250_000 + FRAME_BYTES);
        println!("{kills} kills, {arrived} bytes arrived of {}", data_bytes(&pair.live));
        assert!(arrived <= data_bytes(&pair.live) + lost_at_most, "{arrived} bytes arrived");
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_has_moved_on_sends_what_is_missing_and_what_is_different() {
    for seed in seeds(420, 3) {
        let mut pair = Pair::new(seed, SIZE, very_slow()).await;
        pair.scribble(40);
        let mirror = pair.mirror(Schedule::OnRequest).await;
        assert_ok(&pair.initialize(&mirror).await);
        let base = pair.live.clone();
        pair.scribble(100);
        let asked = mirror.update(PATIENCE).await.unwrap();
        some_arrived(&mirror, FRAME_BYTES).await;
        mirror.abort().await.unwrap();
        let cut = ended(&mut pair, asked).await.unwrap();
        assert_eq!(cut.result, TransferResult::Aborted);
        let cut_image = pair.live.clone();
        let arrived = pair.b.disk.engine.staged_write_bytes();

        // The source loses that incremental, and hosts write on; to some places what was there at the base.
        let source = &pair.a.disk.engine;
        let id = mirror.status().relationship.id;
        source.unpin(&pair.original, cut.id, id).unwrap();
        source.delete_snapshot(&pair.original, cut.id).unwrap();
        pair.scribble(6);
        let (back, end) = (0, 64 * BLOCK_BYTES as usize);
        pair.write(back as u64, &base[back..end]);

        let report = pair.update(&mirror).await;
        assert_ok(&report);
        pair.check_replica();
        assert!(report.resumed && report.resumed_bytes > FRAME_BYTES / 2, "{report:?}");
        let now = pair.b.disk.engine.staged_write_bytes() - arrived;
        assert_eq!(now, report.changed_bytes);
        // What is missing, what hosts wrote since, and nothing else: each block that differs from what was cut counts
        // at most once, and so does each that never arrived.
        let missing = changed_bytes(&base, &cut_image) - (arrived - data_bytes(&base));
        let differs =
            cut_image.chunks(4096).zip(pair.live.chunks(4096)).filter(|(a, b)| a != b).count() as u64;
        assert!(now <= missing + differs * BLOCK_BYTES, "{now} > {missing} + {differs} blocks");
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_resized_meanwhile_goes_on_too() {
    for (seed, new_size) in [(430, SIZE / 2), (431, SIZE * 2), (432, SIZE / 2 + BLOCK_BYTES)] {
        for loses_incremental in [true, false] {
            let mut pair = Pair::new(seed, SIZE, very_slow()).await;
            pair.scribble(40);
            let mirror = pair.mirror(Schedule::OnRequest).await;
            assert_ok(&pair.initialize(&mirror).await);
            pair.scribble(100);
            let asked = mirror.update(PATIENCE).await.unwrap();
            some_arrived(&mirror, FRAME_BYTES).await;
            pair.network.cut("a", "b");
            let cut = ended(&mut pair, asked).await;
            assert!(cut.is_none_or(|r| r.result == TransferResult::Failed));
            if loses_incremental {
                let id = mirror.status().relationship.id;
                let all = pair.a.disk.engine.all_snapshots(&pair.original).unwrap();
                let base = pair.a.source.destinations()[0].base;
                for snapshot in all.iter().filter(|s| Some(s.uuid) != base) {
                    pair.a.disk.engine.unpin(&pair.original, snapshot.uuid, id).unwrap();
                    pair.a.disk.engine.delete_snapshot(&pair.original, snapshot.uuid).unwrap();
                }
            }
            pair.resize(new_size);
            pair.scribble(10);
            if new_size < SIZE {
                // And back: what was cut off is zeros, although the base has data there.
                pair.resize(SIZE);
                pair.scribble(3);
            }
            pair.network.heal("a", "b");
            let report = pair.update(&mirror).await;
            assert_ok(&report);
            assert!(report.resumed, "{report:?}");
            pair.check_replica();
            pair.resize(new_size);
            assert_ok(&pair.update(&mirror).await);
            pair.check_replica();
        }
    }
}

/// A peer that opens stream after stream of one transfer has one of them served, the newest.
#[tokio::test(start_paused = true)]
async fn a_second_stream_of_a_transfer_takes_the_place_of_the_first() {
    // More than the network takes at once: the source is still sending.
    let link = LinkSettings { bytes_per_second: Some(2_000_000), ..very_slow() };
    let mut pair = Pair::new(446, 2 * SIZE, link).await;
    let mut bytes = vec![0; 2 * SIZE as usize];
    pair.rng.fill(&mut bytes[..]);
    pair.write(0, &bytes);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    let asked = mirror.initialize(PATIENCE).await.unwrap();
    some_arrived(&mirror, FRAME_BYTES).await;
    let transfer = mirror.progress().borrow().as_ref().and_then(|p| p.transfer).unwrap();
    let header = StreamHeader {
        version: PROTOCOL_VERSION,
        transfer: transfer.as_bytes().to_vec(),
        ..Default::default()
    };
    let link = pair.b.node.wait_link(pair.a.node.id(), PATIENCE).await.unwrap();
    let stream = link
        .open_stream(header.encode_to_vec().into(), farside_link::StreamOptions::default())
        .await
        .unwrap();
    ended(&mut pair, asked).await;
    let history = learn(&mut pair).await;
    let first = history.iter().find(|r| r.id == transfer).unwrap();
    assert_eq!(first.result, TransferResult::Failed, "{first:?}");
    drop(stream);
    let asked = ask(&mirror).await.unwrap();
    assert_ok(&ended(&mut pair, asked).await.unwrap());
    assert!(learn(&mut pair).await.iter().any(|r| r.resumed));
    pair.check_replica();
}

/// A held list of many chunks, more than any buffer on the way takes, while frames travel the other way.
#[tokio::test(start_paused = true)]
async fn a_long_held_list_and_many_frames_pass_each_other() {
    let blocks = 20_000;
    let link = LinkSettings { bytes_per_second: Some(1_000_000), ..very_slow() };
    let mut pair = Pair::new(445, 2 * blocks * BLOCK_BYTES, link).await;
    let block = |n: u64, generation: u64| {
        let mut block = [0; BLOCK_BYTES as usize];
        block[..8].copy_from_slice(&(n + 1).to_le_bytes());
        block[8..16].copy_from_slice(&generation.to_le_bytes());
        block
    };
    // Every second block: no two runs can be joined.
    for n in 0..blocks {
        pair.write(2 * n * BLOCK_BYTES, &block(n, 0));
    }
    let mirror = pair.mirror(Schedule::OnRequest).await;
    let asked = mirror.initialize(PATIENCE).await.unwrap();
    some_arrived(&mirror, (blocks - 2000) * BLOCK_BYTES).await;
    mirror.abort().await.unwrap();
    let cut = ended(&mut pair, asked).await.unwrap();
    assert_eq!(cut.result, TransferResult::Aborted);

    let arrived = pair.b.disk.engine.staged_write_bytes();
    // Once with positions (the same snapshot, cut again), once with fingerprints (it is gone, and each eighth is other).
    let asked = mirror.initialize(PATIENCE).await.unwrap();
    some_arrived(&mirror, arrived + 1).await;
    mirror.abort().await.unwrap();
    ended(&mut pair, asked).await;
    let again = pair.b.disk.engine.staged_write_bytes();
    assert!(again <= blocks * BLOCK_BYTES, "nothing came twice");

    lose_incremental(&pair, &mirror);
    for n in (0..blocks).step_by(8) {
        pair.write(2 * n * BLOCK_BYTES, &block(n, 1));
    }
    let report = pair.initialize(&mirror).await;
    assert_ok(&report);
    pair.check_replica();
    let last = pair.b.disk.engine.staged_write_bytes() - again;
    assert!(last <= blocks / 8 * BLOCK_BYTES + (blocks * BLOCK_BYTES - again), "{last} bytes");
    assert_eq!(report.resumed_bytes + report.changed_bytes, blocks * BLOCK_BYTES);
}

#[tokio::test(start_paused = true)]
async fn what_was_staged_wrong_is_found_out_and_brought_afresh() {
    let mut pair = Pair::new(440, SIZE, very_slow()).await;
    pair.scribble(100);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    let asked = mirror.initialize(PATIENCE).await.unwrap();
    some_arrived(&mirror, FRAME_BYTES).await;
    mirror.abort().await.unwrap();
    ended(&mut pair, asked).await;
    pair.b.disk.engine.spoil_staged(&pair.replica);
    let report = pair.initialize(&mirror).await;
    assert_ok(&report);
    pair.check_replica();
    assert!(report.changed_bytes >= data_bytes(&pair.live), "all of it travelled in the end");
    assert!(!report.resumed && report.resumed_bytes == 0, "and the report says so: {report:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_brought_twice_is_reported_once() {
    let mut pair = Pair::new(447, SIZE, very_slow()).await;
    let mut data = vec![0; SIZE as usize];
    pair.rng.fill(&mut data[..]);
    pair.write(0, &data);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    pair.discard(0, SIZE / 4);
    pair.rng.fill(&mut data[..]);
    pair.write(SIZE / 2, &data[SIZE as usize / 2..]);
    let asked = mirror.update(PATIENCE).await.unwrap();
    some_arrived(&mirror, FRAME_BYTES).await;
    mirror.abort().await.unwrap();
    ended(&mut pair, asked).await;
    pair.b.disk.engine.spoil_staged(&pair.replica);
    let report = pair.update(&mirror).await;
    assert_ok(&report);
    pair.check_replica();
    assert!(!report.resumed && report.resumed_bytes == 0, "{report:?}");
    assert_eq!((report.deallocated_bytes, report.changed_bytes), (SIZE / 4, SIZE / 2), "{report:?}");
    assert_eq!(report.source_read_bytes, SIZE / 2, "{report:?}");
    let levels = report.levels.unwrap();
    assert_eq!(levels.in_bytes(), report.changed_bytes + levels.known.in_bytes);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_cannot_be_read_at_the_source_does_not_stand_in_the_way_for_ever() {
    let mut pair = Pair::new(441, 4 * SIZE, very_slow()).await;
    pair.scribble(30);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    // More than a source reads ahead, the window of its stream included; and nothing that compresses.
    let mut news = vec![0; 3 * SIZE as usize];
    pair.rng.fill(&mut news[..]);
    pair.write(0, &news);
    let asked = mirror.update(PATIENCE).await.unwrap();
    some_arrived(&mirror, FRAME_BYTES).await;
    let incremental = mirror.progress().borrow().as_ref().and_then(|p| p.transfer);
    pair.a.disk.engine.faults.lock().fail_reads_of = incremental;
    let report = ended(&mut pair, asked).await.unwrap();
    assert_eq!(report.result, TransferResult::Failed);
    assert!(report.reason.as_ref().is_some_and(|r| r.contains("fingerprint")), "{report:?}");
    // The snapshot stays unreadable; the next transfer takes another one, and still uses what has arrived.
    let report = pair.update(&mirror).await;
    assert_ok(&report);
    assert!(report.resumed);
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn break_and_delete_throw_away_what_is_staged() {
    for seed in [442, 443] {
        let mut pair = Pair::new(seed, SIZE, very_slow()).await;
        pair.scribble(100);
        let mirror = pair.mirror(Schedule::OnRequest).await;
        let asked = mirror.initialize(PATIENCE).await.unwrap();
        some_arrived(&mirror, FRAME_BYTES).await;
        pair.network.cut("a", "b");
        if seed == 442 {
            mirror.break_off(None).await.unwrap();
        } else {
            pair.b.destination.delete(&pair.replica).await.unwrap();
        }
        drop(asked);
        assert!(!pair.b.disk.engine.has_staged(&pair.replica));
    }
}

/// Anything may happen, many times: the link is cut, sites lose power, a person aborts, hosts write, the volume is
/// resized, the incremental disappears.
pub(crate) async fn a_random_history<S: Storage>(seed: u64, rounds: u32) -> usize {
    let link = LinkSettings { bytes_per_second: Some(600_000 >> (seed % 2)), ..very_slow() };
    let mut pair = Pair::<S>::with_storage(seed, SIZE, link).await;
    pair.scribble(150);
    let mut mirror = pair.mirror(Schedule::OnRequest).await;
    for round in 0..rounds {
        pair.a.disk.engine.flush();
        let asked = ask(&mirror).await.unwrap();
        if round == 0 {
            // Certainly in the middle: no history goes by without a transfer that goes on.
            some_arrived(&mirror, FRAME_BYTES).await;
            pair.lose_session().await;
        }
        tokio::time::sleep(Duration::from_millis(pair.rng.random_range(0..6000))).await;
        let crash_seed = seed * 100 + u64::from(round);
        match pair.rng.random_range(0..9) {
            0 => pair.network.cut("a", "b"),
            1 | 2 => pair.lose_session().await,
            3 => {
                let after_bytes = pair.rng.random_range(0..300_000);
                pair.network.truncate("a", "b", after_bytes);
            }
            4 => {
                pair.crash_b(crash_seed).await;
                mirror = pair.b.destination.mirror(&pair.replica).unwrap();
            }
            5 => pair.crash_a(crash_seed).await,
            6 => drop(mirror.abort().await),
            7 => pair.network.reset("a", "b"),
            _ => {}
        }
        ended(&mut pair, asked).await;
        pair.check_replica();
        pair.network.heal("a", "b");
        match pair.rng.random_range(0..7) {
            0 | 1 => pair.scribble(80),
            2 => {
                let size = SIZE / 2 + BLOCK_BYTES * pair.rng.random_range(0..SIZE / BLOCK_BYTES / 2);
                pair.resize(size);
                pair.scribble(40);
            }
            3 => drop(pair.snapshot(&format!("s{round}"))),
            4 => lose_incremental(&pair, &mirror),
            _ => {}
        }
    }
    pair.a.disk.engine.flush();
    let asked = ask(&mirror).await.unwrap();
    let report = ended(&mut pair, asked).await.expect("a report");
    assert_ok(&report);
    let resumed = learn(&mut pair).await.iter().filter(|r| r.resumed).count();
    println!("{resumed} transfers went on with something");
    let published = mirror.status().current.unwrap();
    pair.check_replica();
    assert!(pair.model[&published.uuid] == pair.live, "the newest is what hosts see");
    assert!(!pair.b.disk.engine.has_staged(&pair.replica));
    only_the_base_stays_pinned(&pair, &mirror).await;
    resumed
}

/// Somebody takes the incremental of the cut transfer away at the source.
fn lose_incremental<S: Storage>(pair: &Pair<S>, mirror: &Mirror) {
    let id = mirror.status().relationship.id;
    let engine = pair.a.disk.engine.engine();
    let base = mirror.status().current.map(|c| c.uuid);
    for snapshot in engine.snapshots(&pair.original).unwrap() {
        if snapshot.owner == SnapshotOwner::Relationship(id) && Some(snapshot.uuid) != base {
            engine.unpin(&pair.original, snapshot.uuid, id).unwrap();
            engine.delete_snapshot(&pair.original, snapshot.uuid).unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn random_histories_in_memory() {
    let mut resumed = 0;
    for seed in seeds(1000, 4) {
        resumed += a_random_history::<MemoryEngine>(seed, 8).await;
    }
    assert!(resumed > 0, "none of them tested what it is for");
}

#[tokio::test(start_paused = true)]
async fn random_histories_on_the_embedded_store() {
    let mut resumed = 0;
    for seed in seeds(3000, 3) {
        resumed += a_random_history::<Embedded>(seed, 6).await;
    }
    assert!(resumed > 0, "none of them tested what it is for");
}

#[tokio::test(start_paused = true)]
#[ignore = "minutes: hundreds of random histories, for make test-full"]
async fn hundreds_of_random_histories() {
    for seed in seeds(5000, 300) {
        a_random_history::<MemoryEngine>(seed, 8).await;
    }
    for seed in seeds(7000, 100) {
        a_random_history::<Embedded>(seed, 8).await;
    }
}
