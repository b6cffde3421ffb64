//! Transfers that go wrong. Whatever happens, the replica is one whole snapshot of its source, and the next update
//! completes.

use std::time::Duration;

use bytes::Bytes;
use farside_engine::{BLOCK_BYTES, Engine};
use farside_format::Fingerprint;
use farside_link::LinkSettings;
use farside_mirror::{Mirror, MirrorError, Schedule, SourceStore, State};
use farside_peer::SessionError;
use farside_transfer::protocol::convert;
use farside_transfer::protocol::stream::{self, StreamMessage};
use farside_transfer::protocol::{
    Acknowledge, Begin, Body, PROTOCOL_VERSION, Release, Request, StepEnd, StreamHeader,
};
use farside_transfer::{Phase, TransferKind, TransferResult};
use farside_wire::{Effort, Encoder, Prefix, Run, RunKind};
use prost::Message;
use rand::Rng;
use tokio::io::AsyncReadExt;
use uuid::Uuid;

use crate::memory_engine::MemoryEngine;
use crate::site::{Disk, PATIENCE, Pair, Site, Storage, assert_ok, seeds, settled, slow, volume};

const SIZE: u64 = 8 << 20;

async fn mirrored(seed: u64, link: LinkSettings) -> (Pair, Mirror) {
    let mut pair = Pair::new(seed, SIZE, link).await;
    pair.scribble(60);
    pair.snapshot("first");
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    pair.check_replica();
    (pair, mirror)
}

/// The next update completes and leaves everything as it should be.
async fn recovers(pair: &mut Pair, mirror: &Mirror) {
    assert_ok(&pair.update(mirror).await);
    pair.check_replica();
    let id = mirror.status().relationship.id;
    for (site, volume) in [(&pair.a, &pair.original), (&pair.b, &pair.replica)] {
        let pinned = site.disk.engine.snapshots(volume).unwrap();
        let pinned = pinned.iter().filter(|s| s.pinned_by.contains(&id)).count();
        assert_eq!(pinned, 1, "the base in use is pinned and nothing else, at {volume}");
    }
    assert!(!pair.b.disk.engine.has_staged(&pair.replica));
}

#[tokio::test(start_paused = true)]
async fn the_link_fails_at_random_moments() {
    for seed in seeds(20, 12) {
        let (mut pair, mut mirror) = mirrored(seed, slow()).await;
        pair.scribble(60);
        pair.snapshot("second");
        pair.scribble(30);
        let asked = mirror.update(PATIENCE).await.unwrap();
        let moment = Duration::from_millis(pair.rng.random_range(0..3000));
        tokio::time::sleep(moment).await;
        let fault = seed % 6;
        println!("fault {fault} after {moment:?}");
        let after_bytes = pair.rng.random_range(0..200_000);
        match fault {
            0 => pair.network.cut("a", "b"),
            1 => pair.network.black_hole("a", "b"),
            2 => pair.network.corrupt("a", "b", after_bytes),
            3 => pair.network.truncate("a", "b", after_bytes),
            4 => pair.crash_a(seed).await,
            _ => {
                pair.crash_b(seed / 6).await;
                mirror = pair.b.destination.mirror(&pair.replica).unwrap();
            }
        }
        match tokio::time::timeout(Duration::from_secs(600), asked.ended())
            .await
            .expect("every transfer ends")
        {
            Ok(report) => {
                pair.model.insert(report.id, pair.live.clone());
                assert!(report.result == TransferResult::Ok || report.reason.is_some());
            }
            // The site that asked is the one that died; what it had published is found below by its identity.
            Err(_) => {
                let newest = pair.b.disk.engine.snapshots(&pair.replica).unwrap().pop().unwrap();
                pair.model.entry(newest.uuid).or_insert(pair.live.clone());
            }
        }
        pair.check_replica();
        pair.network.heal("a", "b");
        recovers(&mut pair, &mirror).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_copy_that_fails_is_taken_up_where_snapshots_were_published() {
    for seed in seeds(50, 4) {
        let mut pair = Pair::new(seed, SIZE, slow()).await;
        pair.scribble(60);
        pair.snapshot("one");
        pair.scribble(60);
        pair.snapshot("two");
        pair.scribble(60);
        let mirror = pair.mirror(Schedule::OnRequest).await;
        let asked = mirror.initialize(Duration::from_secs(1)).await.unwrap();
        let moment = Duration::from_millis(pair.rng.random_range(0..8000));
        tokio::time::sleep(moment).await;
        pair.network.cut("a", "b");
        if let Ok(report) = asked.ended().await {
            pair.model.insert(report.id, pair.live.clone());
        }
        let published = pair.check_replica();
        println!("after {moment:?}: {published:?}, {:?}", mirror.status().why);
        pair.network.heal("a", "b");
        let again = if published.is_empty() {
            assert_eq!(mirror.status().state, State::Uninitialized);
            pair.initialize(&mirror).await
        } else {
            assert_eq!(mirror.status().state, State::Mirrored);
            pair.update(&mirror).await
        };
        assert_ok(&again);
        assert_eq!(pair.check_replica()[..2], ["one", "two"]);
        recovers(&mut pair, &mirror).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_outlives_a_session() {
    let (mut pair, mirror) = mirrored(59, slow()).await;
    pair.scribble(100);
    let asked = mirror.update(PATIENCE).await.unwrap();
    let mut progress = mirror.progress();
    progress.wait_for(|p| p.as_ref().is_some_and(|p| p.done_bytes > 0)).await.unwrap();
    pair.lose_session().await;
    let report = asked.ended().await.unwrap();
    assert_ok(&report);
    pair.model.insert(report.id, pair.live.clone());
    pair.check_replica();
    let history = pair.b.destination.history(&pair.replica, 10).await.unwrap();
    assert_eq!((history[0].id, history[1].result), (report.id, TransferResult::Failed), "both are on record");
    recovers(&mut pair, &mirror).await;
}

#[tokio::test(start_paused = true)]
async fn damage_on_the_way_to_the_disk_is_never_published() {
    let (mut pair, mirror) = mirrored(60, LinkSettings::default()).await;
    let before = pair.check_replica();
    pair.scribble(30);
    pair.b.disk.engine.faults.lock().flip_staged_writes = true;
    let report = pair.update(&mirror).await;
    assert_eq!(report.result, TransferResult::Failed);
    assert!(report.reason.unwrap().contains("content root"));
    assert!(mirror.status().why.unwrap().contains("discarded"));
    assert_eq!(pair.check_replica(), before, "nothing published, nothing deleted");
    assert!(!pair.b.disk.engine.has_staged(&pair.replica));
    pair.b.disk.engine.faults.lock().flip_staged_writes = false;
    recovers(&mut pair, &mirror).await;
}

#[tokio::test(start_paused = true)]
async fn a_base_that_cannot_be_relied_on_costs_bytes_and_nothing_else() {
    let (mut pair, mirror) = mirrored(61, LinkSettings::default()).await;
    for fault in 0..3 {
        let base = mirror.status().current.unwrap().uuid;
        let before = pair.live.clone();
        pair.scribble(40);
        let data = before.chunks(BLOCK_BYTES as usize).position(|block| block.iter().any(|byte| *byte != 0));
        pair.discard(data.unwrap() as u64 * BLOCK_BYTES, BLOCK_BYTES);
        match fault {
            // Other bytes than the source's: seen by the prefix digest.
            0 => pair.b.disk.engine.faults.lock().flip_reads_of = Some(base),
            1 => pair.b.disk.engine.faults.lock().fail_reads_of = Some(base),
            _ => pair.a.disk.engine.faults.lock().fail_reads_of = Some(base),
        }
        let report = pair.update(&mirror).await;
        assert_ok(&report);
        if fault < 2 {
            assert_eq!(report.base_read_bytes, 0, "sent without the base");
        }
        // However often it was asked for.
        let is_hole = |block: &[u8]| block.iter().all(|byte| *byte == 0);
        let blocks = |image: &[u8]| image.chunks(BLOCK_BYTES as usize).map(is_hole).collect::<Vec<_>>();
        let became_holes =
            blocks(&before).into_iter().zip(blocks(&pair.live)).filter(|pair| *pair == (false, true));
        let deallocated_bytes = became_holes.count() as u64 * BLOCK_BYTES;
        assert!(deallocated_bytes > 0);
        assert_eq!(report.deallocated_bytes, deallocated_bytes);
        *pair.b.disk.engine.faults.lock() = Default::default();
        *pair.a.disk.engine.faults.lock() = Default::default();
        pair.check_replica();
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_source_fails_the_transfer_and_says_so() {
    let (mut pair, mirror) = mirrored(62, LinkSettings::default()).await;
    pair.scribble(30);
    let second = pair.snapshot("second");
    pair.a.disk.engine.faults.lock().fail_reads_of = Some(second);
    let report = pair.update(&mirror).await;
    assert_eq!(report.result, TransferResult::Failed);
    let reason = report.reason.unwrap();
    assert!(reason.contains("the source stopped the transfer") && reason.contains("fingerprint"), "{reason}");
    pair.check_replica();
    pair.a.disk.engine.faults.lock().fail_reads_of = None;
    recovers(&mut pair, &mirror).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_pool_at_the_destination_leaves_the_replica_alone() {
    let (mut pair, mirror) = mirrored(63, LinkSettings::default()).await;
    pair.scribble(40);
    pair.b.disk.engine.faults.lock().staged_bytes_left = Some(100_000);
    let report = pair.update(&mirror).await;
    assert_eq!(report.result, TransferResult::Failed);
    assert!(report.reason.unwrap().contains("is full"));
    pair.model.insert(report.id, pair.live.clone());
    assert!(pair.b.disk.engine.has_staged(&pair.replica), "what was staged waits for room");
    pair.check_replica();
    pair.b.disk.engine.faults.lock().staged_bytes_left = None;
    recovers(&mut pair, &mirror).await;
}

#[tokio::test(start_paused = true)]
async fn one_identity_with_two_contents_is_an_alarm_and_touches_nothing() {
    let (mut pair, mirror) = mirrored(64, LinkSettings::default()).await;
    let first = pair.b.disk.engine.snapshots(&pair.replica).unwrap()[0].clone();
    assert_eq!(first.name, "first");
    pair.b.disk.engine.alter_snapshot(&pair.replica, first.uuid);
    let at_source = pair.a.disk.engine.snapshots(&pair.original).unwrap().len();
    pair.scribble(10);
    let report = pair.update(&mirror).await;
    assert_eq!(report.result, TransferResult::Failed);
    assert!(report.reason.unwrap().contains("ALARM"));
    assert_eq!(pair.a.disk.engine.snapshots(&pair.original).unwrap().len(), at_source);
    assert_eq!(pair.b.disk.engine.snapshots(&pair.replica).unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn rights_are_asked_at_every_operation() {
    let (mut pair, mirror) = mirrored(65, slow()).await;
    let secret = volume("p/secret");
    pair.a.disk.engine.create_volume(&secret, SIZE).unwrap();
    let peer = pair.a.node.id();
    for name in [secret, volume("p/not-there-and-not-allowed-secret")] {
        let made =
            pair.b.destination.create(peer, name, volume("q/x"), Schedule::OnRequest, PATIENCE, true).await;
        let Err(error) = made else { panic!("made") };
        assert!(!error.to_string().contains("seed"), "{error}");
        assert!(pair.b.disk.engine.volume(&volume("q/x")).is_err(), "nothing was made here");
    }
    // Taken back while frames travel.
    pair.scribble(80);
    let asked = mirror.update(PATIENCE).await.unwrap();
    let mut progress = mirror.progress();
    progress.wait_for(|p| p.as_ref().is_some_and(|p| p.phase == Phase::Difference)).await.unwrap();
    *pair.a.rights.denied.lock() = true;
    let report = asked.ended().await.unwrap();
    assert_eq!(report.result, TransferResult::Failed);
    pair.model.insert(report.id, pair.live.clone());
    pair.check_replica();
    let report = pair.update(&mirror).await;
    assert!(report.reason.unwrap().contains("peer allow"));
    *pair.a.rights.denied.lock() = false;
    recovers(&mut pair, &mirror).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_else_can_touch_a_relationship() {
    let (pair, mirror) = mirrored(66, LinkSettings::default()).await;
    let c = Site::<MemoryEngine>::start(
        &pair.network,
        "c",
        Disk::new("c", &pair.clock, 99),
        pair.clock.clone(),
        99,
    )
    .await;
    let invite = pair.a.node.invite(Duration::from_secs(900)).unwrap();
    c.node.join(pair.a.node.listen_address().unwrap(), &invite.code, None).await.unwrap();
    // Both sites dial after pairing: a call over the session that gives way would be lost and not refused.
    settled(&c.node, pair.a.node.id()).await;
    let link = c.node.wait_link(pair.a.node.id(), PATIENCE).await.unwrap();
    let status = mirror.status();
    let relationship = status.relationship.id.as_bytes().to_vec();
    let current = status.current.unwrap();
    let bodies = [
        Body::Release(Release {
            relationship: relationship.clone(),
            volume: "p/v".into(),
            destination: String::new(),
        }),
        Body::Acknowledge(Acknowledge {
            relationship,
            transfer: vec![0; 16],
            volume: "p/v".into(),
            snapshot: current.uuid.as_bytes().to_vec(),
            content_root: current.content_root.0.to_vec(),
            further: Vec::new(),
        }),
    ];
    for body in bodies {
        let request = Request { version: PROTOCOL_VERSION, body: Some(body) }.encode_to_vec();
        let refused = link.call(request.into(), None).await;
        assert!(matches!(&refused, Err(SessionError::Refused(r)) if r.code == "forbidden"), "{refused:?}");
    }
    assert_eq!(pair.a.source.destinations().len(), 1);
}

fn begin(relationship: Uuid, transfer: Uuid, volume: &str) -> Bytes {
    let begin = Begin {
        relationship: relationship.as_bytes().to_vec(),
        transfer: transfer.as_bytes().to_vec(),
        volume: volume.into(),
        destination: "x/y".into(),
        kind: convert::kind_number(TransferKind::Initialize),
        candidates: Vec::new(),
        staged: None,
        role_change: 1,
        whole: false,
        named_max: None,
        keeps_common: false,
        left: Vec::new(),
        further: Vec::new(),
        until: Vec::new(),
    };
    Request { version: PROTOCOL_VERSION, body: Some(Body::Begin(begin)) }.encode_to_vec().into()
}

#[tokio::test(start_paused = true)]
async fn a_transfer_cannot_take_the_identity_of_a_snapshot() {
    let (mut pair, mirror) = mirrored(71, LinkSettings::default()).await;
    let made = pair.snapshot("made");
    let link = pair.b.node.wait_link(pair.a.node.id(), PATIENCE).await.unwrap();
    let listed = |pair: &Pair| format!("{:?}", pair.a.disk.engine.snapshots(&pair.original).unwrap());
    let before = listed(&pair);
    let refused = link.call(begin(Uuid::from_u128(1), made, "p/v"), None).await;
    assert!(
        matches!(refused, Err(SessionError::Refused(r)) if r.code == "failed" && r.message.contains("made"))
    );
    assert_eq!(listed(&pair), before);
    assert_eq!(pair.a.source.destinations().len(), 1, "what was refused is not listed");
    recovers(&mut pair, &mirror).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_cannot_release_the_base_of_its_own_replica() {
    let (mut pair, mirror) = mirrored(72, LinkSettings::default()).await;
    let id = mirror.status().relationship.id;
    let listed = |pair: &Pair| format!("{:?}", pair.b.disk.engine.snapshots(&pair.replica).unwrap());
    let before = listed(&pair);
    let link = pair.a.node.wait_link(pair.b.node.id(), PATIENCE).await.unwrap();
    let release =
        Release { relationship: id.as_bytes().to_vec(), volume: "q/r".into(), destination: String::new() };
    let release = Request { version: PROTOCOL_VERSION, body: Some(Body::Release(release)) }.encode_to_vec();
    for request in [begin(id, Uuid::from_u128(2), "q/r"), release.into()] {
        let refused = link.call(request, None).await;
        assert!(matches!(refused, Err(SessionError::Refused(r)) if r.code == "forbidden"));
    }
    assert_eq!(listed(&pair), before);
    assert!(pair.b.source.destinations().is_empty());
    recovers(&mut pair, &mirror).await;
}

#[tokio::test(start_paused = true)]
async fn a_first_transfer_that_is_refused_leaves_no_row() {
    let pair = Pair::new(73, SIZE, LinkSettings::default()).await;
    let link = pair.b.node.wait_link(pair.a.node.id(), PATIENCE).await.unwrap();
    let mut update = Request::decode(begin(Uuid::from_u128(1), Uuid::from_u128(2), "p/v")).unwrap();
    let Some(Body::Begin(body)) = &mut update.body else { panic!("not a begin") };
    body.kind = convert::kind_number(TransferKind::Update);
    let refused = link.call(update.encode_to_vec().into(), None).await;
    assert!(matches!(refused, Err(SessionError::Refused(r)) if r.code == "state"));
    assert!(pair.a.source.destinations().is_empty());
    assert!(pair.a.disk.store.source_relationships().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn nonsense_is_refused_and_the_source_goes_on() {
    let (mut pair, mirror) = mirrored(67, LinkSettings::default()).await;
    let link = pair.b.node.wait_link(pair.a.node.id(), PATIENCE).await.unwrap();
    for _ in 0..200 {
        let length = pair.rng.random_range(0..200);
        let bytes: Vec<u8> = (0..length).map(|_| pair.rng.random()).collect();
        assert!(link.call(Bytes::from(bytes.clone()), None).await.is_err(), "answered {bytes:02x?}");
    }
    let newer = Request { version: PROTOCOL_VERSION + 1, body: None }.encode_to_vec();
    let refused = link.call(newer.into(), None).await;
    assert!(matches!(refused, Err(SessionError::Refused(r)) if r.code == "version"));
    let unknown = StreamHeader {
        version: PROTOCOL_VERSION,
        transfer: vec![7; 16],
        step: 0,
        without_base: false,
        held: 0,
        known: true,
        cross_volume: vec![7],
        room_bytes: None,
    };
    for header in [unknown.encode_to_vec(), vec![0xff; 40]] {
        let mut opened =
            link.open_stream(header.into(), farside_link::StreamOptions::default()).await.unwrap();
        let answer = stream::read(&mut opened.io).await.unwrap();
        assert!(matches!(answer, StreamMessage::Failure(_)), "{answer:?}");
        assert_eq!(opened.io.read(&mut [0; 1]).await.unwrap(), 0, "and nothing more");
    }
    recovers(&mut pair, &mirror).await;
}

/// Messages that a source could send and must not.
async fn forged_streams() -> Vec<(&'static str, Vec<u8>)> {
    let frame = |position| {
        let mut frame = Vec::new();
        let runs = [Run { position, blocks: 1, kind: RunKind::Data }];
        let block = [7; BLOCK_BYTES as usize];
        let fingerprint = [Fingerprint::of_block(&block)];
        Encoder::new()
            .encode(&runs, &block, &fingerprint, &mut Prefix::new(), Effort::Standard, &mut frame)
            .unwrap();
        StreamMessage::Frame(frame)
    };
    let end = |frames, blocks| {
        let changed_bytes = blocks * BLOCK_BYTES;
        StreamMessage::StepEnd(StepEnd { frames, changed_bytes, ..StepEnd::default() })
    };
    let plans = [
        ("a block past the end", vec![frame(SIZE / BLOCK_BYTES), end(1, 1)]),
        ("a block nobody wrote", vec![frame(3), end(1, 1)]),
        ("less than was promised", vec![frame(3), end(2, 1)]),
        ("nothing, and the end", vec![end(0, 0)]),
        ("bytes that are no frame", vec![StreamMessage::Frame(vec![0x55; 100])]),
    ];
    let mut all = Vec::new();
    for (what, messages) in plans {
        let mut bytes = Vec::new();
        for message in &messages {
            stream::write(&mut bytes, message).await.unwrap();
        }
        all.push((what, bytes));
    }
    all.push(("a length beyond all limits", vec![1, 0xff, 0xff, 0xff, 0xff]));
    all.push(("a kind nobody knows", vec![77, 0, 0, 0, 0]));
    all.push(("silence", vec![]));
    // Last, because what it staged is kept: the truth has to make up for it.
    let mut cut = Vec::new();
    stream::write(&mut cut, &frame(3)).await.unwrap();
    all.push(("an end without an end", cut));
    all
}

#[tokio::test(start_paused = true)]
async fn a_source_that_lies_changes_nothing() {
    let (mut pair, mirror) = mirrored(68, LinkSettings::default()).await;
    let before = pair.check_replica();
    pair.scribble(10);
    for (what, bytes) in forged_streams().await {
        *pair.a.fault_injector.forged_stream.lock() = Some(bytes);
        let report = pair.update(&mirror).await;
        assert_eq!(report.result, TransferResult::Failed, "{what}");
        println!("{what}: {}", report.reason.as_deref().unwrap());
        assert_eq!(pair.check_replica(), before, "{what}");
        pair.model.insert(report.id, pair.live.clone());
        let is_lost = ["silence", "an end without an end"].contains(&what);
        assert_eq!(pair.b.disk.engine.has_staged(&pair.replica), is_lost, "{what}");
    }
    *pair.a.fault_injector.forged_stream.lock() = None;
    recovers(&mut pair, &mirror).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_common_base_an_update_is_refused_and_nothing_deleted() {
    let (mut pair, mirror) = mirrored(69, LinkSettings::default()).await;
    let released = pair.a.source.release(&pair.original, pair.b.node.id()).await.unwrap();
    assert_eq!(released, 1);
    let first = pair.a.disk.engine.snapshots(&pair.original).unwrap();
    assert_eq!(first.len(), 1, "only what a person made is left");
    // That still serves as base.
    pair.scribble(5);
    assert_ok(&pair.update(&mirror).await);
    pair.check_replica();
    pair.a.source.release(&pair.original, pair.b.node.id()).await.unwrap();
    pair.a.disk.engine.delete_snapshot(&pair.original, first[0].uuid).unwrap();
    let report = pair.update(&mirror).await;
    assert!(report.reason.unwrap().contains("no snapshot of p/v at the source is also at the destination"));
    assert_eq!(pair.check_replica().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_made_is_not_half_made() {
    let pair = Pair::new(70, SIZE, LinkSettings::default()).await;
    let peer = pair.a.node.id();
    let create = |source: &str, destination: &str| {
        let (source, destination) = (volume(source), volume(destination));
        pair.b.destination.create(peer, source, destination, Schedule::OnRequest, PATIENCE, true)
    };
    let engine = &pair.b.disk.engine;
    assert!(create("p/absent", "q/r").await.unwrap_err().to_string().contains("does not exist"));
    engine.create_volume(&volume("q/used"), SIZE).unwrap();
    engine.host_writes(&volume("q/used"), 0, &[1; 4096]);
    assert!(create("p/v", "q/used").await.unwrap_err().to_string().contains("holds data"));
    assert!(engine.snapshots(&volume("q/used")).unwrap().is_empty());
    engine.create_volume(&volume("q/empty"), SIZE).unwrap();
    create("p/v", "q/empty").await.unwrap();
    let twice = create("p/v", "q/empty").await;
    assert!(matches!(twice, Err(MirrorError::Exists(_))));
    assert_eq!(pair.b.destination.mirrors().len(), 1);
}
