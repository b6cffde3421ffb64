//! Bases in other volumes: content that another mirror of the same peer has brought, at whatever place, costs next to nothing;
//! and what becomes of a copy that is coded against it when that mirror goes on, ends, or is damaged, and when its volume is
//! deleted.

use std::time::Duration;

use farside_engine::BLOCK_BYTES;
use farside_link::LinkSettings;
use farside_mirror::{Asked, Mirror, Schedule};
use farside_transfer::limits::{CROSS_VOLUME_CHECKED_EVERY, CROSS_VOLUME_KEPT_MAX};
use farside_transfer::protocol::stream::{self, StreamMessage};
use farside_transfer::protocol::{
    Begin, Body, PROTOCOL_VERSION, Plan, Request, StreamHeader, short_identity,
};
use farside_transfer::{TransferReport, TransferResult};
use prost::Message;
use rand::Rng;
use tokio::sync::OwnedSemaphorePermit;
use uuid::Uuid;

use crate::embedded_storage::Embedded;
use crate::memory_engine::MemoryEngine;
use crate::site::{Gate, PATIENCE, Pair, Storage, assert_ok, slow, volume};

const MIB: usize = 1 << 20;
const SIZE: usize = 4 * MIB;

/// Bytes that do not compress.
fn noise<S: Storage>(pair: &mut Pair<S>, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    pair.rng.fill(&mut bytes[..]);
    bytes
}

/// `content` so that no block of it equals one of it as it was.
fn shifted<S: Storage>(pair: &mut Pair<S>, content: &[u8], by: usize) -> Vec<u8> {
    let mut bytes = noise(pair, content.len());
    bytes[by..].copy_from_slice(&content[..content.len() - by]);
    bytes
}

/// Volume `number` of the original's site takes the place of the one before, with `content`; it is mirrored, and not copied yet.
async fn made<S: Storage>(pair: &mut Pair<S>, number: usize, content: &[u8]) -> Mirror {
    pair.original = volume(&format!("p/v{number}"));
    pair.replica = volume(&format!("q/r{number}"));
    pair.a.disk.engine.engine().create_volume(&pair.original, content.len() as u64).unwrap();
    pair.live = vec![0; content.len()];
    pair.write(0, content);
    pair.mirror(Schedule::OnRequest).await
}

async fn copied<S: Storage>(pair: &mut Pair<S>, number: usize, content: &[u8]) -> (Mirror, TransferReport) {
    let mirror = made(pair, number, content).await;
    let report = pair.initialize(&mirror).await;
    assert_ok(&report);
    pair.check_replica();
    (mirror, report)
}

fn assert_cheap(report: &TransferReport) {
    assert_ok(report);
    let wire_bytes = report.wire_bytes_received;
    assert!(wire_bytes < report.changed_bytes / 25, "{wire_bytes} for {}", report.changed_bytes);
}

fn assert_dear(report: &TransferReport) {
    assert_ok(report);
    assert!(report.wire_bytes_received > report.changed_bytes, "{report:?}");
}

async fn in_other_volumes<S: Storage>(seed: u64) {
    let mut pair = Pair::<S>::with_storage(seed, 4096, LinkSettings::default()).await;
    let [one, two] = [0; 2].map(|_| noise(&mut pair, SIZE));
    assert_dear(&copied(&mut pair, 1, &one).await.1);
    let (second, report) = copied(&mut pair, 2, &two).await;
    assert_dear(&report);
    // A third that has half of each, at no multiple of a block.
    let both = [&one[MIB..3 * MIB], &two[MIB / 2..5 * MIB / 2]].concat();
    let both = shifted(&mut pair, &both, 777);
    let (third, report) = copied(&mut pair, 3, &both).await;
    assert_cheap(&report);
    assert_eq!(report.levels.unwrap().known.in_bytes, 0);
    assert!(report.base_read_bytes > 0);

    // An update of what another volume's update has brought before.
    let (third_live, third_model) = (pair.live.clone(), pair.model.clone());
    let fresh = noise(&mut pair, MIB);
    (pair.original, pair.replica, pair.live) = (volume("p/v2"), volume("q/r2"), two);
    pair.write(MIB as u64, &fresh);
    assert_dear(&pair.update(&second).await);
    pair.check_replica();
    (pair.original, pair.replica, pair.live) = (volume("p/v3"), volume("q/r3"), third_live);
    pair.model.extend(third_model);
    let fresh = shifted(&mut pair, &fresh, 333);
    pair.write(2 * MIB as u64, &fresh);
    assert_cheap(&pair.update(&third).await);
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn content_of_other_volumes_costs_about_nothing() {
    in_other_volumes::<MemoryEngine>(800).await;
}

#[tokio::test(start_paused = true)]
async fn content_of_other_volumes_costs_about_nothing_on_the_embedded_store() {
    in_other_volumes::<Embedded>(801).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_offered_may_be_damaged_on_either_side() {
    for (round, damage) in ["other bytes", "unreadable", "unreadable at the source"].into_iter().enumerate() {
        let mut pair = Pair::new(810 + round as u64, 4096, LinkSettings::default()).await;
        let content = noise(&mut pair, SIZE);
        let (first, _) = copied(&mut pair, 1, &content).await;
        let base = first.status().current.unwrap().uuid;
        match damage {
            "other bytes" => pair.b.disk.engine.faults.lock().flip_reads_of = Some(base),
            "unreadable" => pair.b.disk.engine.faults.lock().fail_reads_of = Some(base),
            _ => pair.a.disk.engine.faults.lock().fail_reads_of = Some(base),
        }
        let like_it = shifted(&mut pair, &content, 777);
        let (_, report) = copied(&mut pair, 2, &like_it).await;
        assert_eq!((report.delta_bytes, report.changed_bytes), (0, SIZE as u64), "{damage}");
    }
}

/// Mirrors as volumes 1 to `N`, and one as volume 9 of what is like all of them, which is not copied yet.
async fn alike<S: Storage, const N: usize>(seed: u64) -> (Pair<S>, [Mirror; N], Mirror) {
    let mut pair = Pair::<S>::with_storage(seed, 4096, slow()).await;
    let (mut contents, mut mirrors) = (Vec::new(), Vec::new());
    for number in 1..=N {
        let content = noise(&mut pair, SIZE);
        mirrors.push(copied(&mut pair, number, &content).await.0);
        contents.push(content);
    }
    // Of what is not like them a MiB comes first, so that the copy takes its time.
    let mut like_them = noise(&mut pair, MIB);
    for n in 0..3 {
        for content in &contents {
            let part = shifted(&mut pair, &content[n * MIB..(n + 1) * MIB], 777);
            like_them.extend_from_slice(&part);
        }
        let own = noise(&mut pair, MIB);
        like_them.extend_from_slice(&own);
    }
    let copy = made(&mut pair, 9, &like_them).await;
    (pair, mirrors.try_into().ok().unwrap(), copy)
}

/// A mirror as volume 1, and a copy of what is like it under way as volume 9, of which something has arrived.
async fn under_way<S: Storage>(seed: u64) -> (Pair<S>, Mirror, Asked) {
    let (pair, [first], copy) = alike::<S, 1>(seed).await;
    let asked = copy.initialize(PATIENCE).await.unwrap();
    let mut progress = copy.progress();
    let some =
        |p: &Option<farside_transfer::Progress>| p.as_ref().is_some_and(|p| p.done_bytes >= MIB as u64);
    progress.wait_for(some).await.unwrap();
    (pair, first, asked)
}

/// The end of the copy, which is whole.
async fn ended<S: Storage>(pair: &mut Pair<S>, asked: Asked) -> TransferReport {
    let report = asked.ended().await.unwrap();
    assert_ok(&report);
    pair.model.insert(report.id, pair.live.clone());
    pair.check_replica();
    report
}

async fn goes_on_meanwhile<S: Storage>(seed: u64) {
    let (mut pair, first, asked) = under_way::<S>(seed).await;
    let old = first.status().current.unwrap().uuid;
    let engine = pair.a.disk.engine.engine();
    pair.a.disk.engine.host_writes(&volume("p/v1"), 0, &[7; BLOCK_BYTES as usize]);
    assert_ok(&first.update(PATIENCE).await.unwrap().ended().await.unwrap());
    // Nothing is kept at the source for the copy that is coded against it.
    assert!(engine.all_snapshots(&volume("p/v1")).unwrap().iter().all(|s| s.uuid != old));
    // Nor in sight at the destination, where what was sent against it can be decoded.
    let engine = pair.b.disk.engine.engine();
    assert!(engine.all_snapshots(&volume("q/r1")).unwrap().iter().all(|s| s.uuid != old));
    let report = ended(&mut pair, asked).await;
    assert!(!report.resumed, "what was sent against the old base was decoded");
}

#[tokio::test(start_paused = true)]
async fn the_other_mirror_goes_on_meanwhile() {
    goes_on_meanwhile::<MemoryEngine>(820).await;
}

#[tokio::test(start_paused = true)]
async fn the_other_mirror_goes_on_meanwhile_on_the_embedded_store() {
    goes_on_meanwhile::<Embedded>(823).await;
}

#[tokio::test(start_paused = true)]
async fn the_other_mirror_ends_meanwhile() {
    for (seed, is_broken) in [(821, true), (822, false)] {
        let (mut pair, first, asked) = under_way::<MemoryEngine>(seed).await;
        match is_broken {
            true => first.break_off(None).await.unwrap(),
            false => pair.b.destination.delete(&volume("q/r1")).await.unwrap(),
        }
        ended(&mut pair, asked).await;
    }
}

/// Ends a mirror and deletes its volume, as an administrator does.
async fn delete(pair: &Pair<Embedded>, name: &str) {
    pair.b.destination.delete(&volume(&format!("q/{name}"))).await.unwrap();
    pair.b.disk.engine.pool().delete_volume(name).expect("what is offered of it is in nobody's way");
}

/// Bytes of a pool that are not in use, once all that was deleted has been reaped.
fn unused_bytes(storage: &Embedded) -> u64 {
    let pool = storage.pool();
    pool.reap_all().unwrap();
    let status = pool.status();
    status.free_bytes + status.waiting_bytes
}

/// A copy that has been offered what there is, and of which nothing arrives as long as the permit is there. The first mirror
/// was deleted meanwhile, and its volume; the source does not hear of it before the gate is released.
async fn deleted_while_stalled(pair: &Pair<Embedded>, copy: &Mirror) -> (Asked, OwnedSemaphorePermit, Gate) {
    let stall = pair.a.fault_injector.stall().await;
    let asked = copy.initialize(PATIENCE).await.unwrap();
    // The clock goes on when all that can be done without it has been.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let gate = pair.a.fault_injector.hold(|body| matches!(body, Body::Release(_)));
    delete(pair, "r1").await;
    gate.held().await;
    (asked, stall, gate)
}

#[tokio::test(start_paused = true)]
async fn the_other_volume_is_deleted_while_nothing_arrives() {
    let (mut pair, [_first], copy) = alike::<Embedded, 1>(840).await;
    let (asked, stall, gate) = deleted_while_stalled(&pair, &copy).await;
    drop(stall);
    let report = ended(&mut pair, asked).await;
    // What names it was decoded.
    assert!(!report.resumed && report.levels.unwrap().delta.in_bytes >= 2 * MIB as u64, "{report:?}");
    gate.release().await;
    // Nothing is kept of it.
    delete(&pair, "r9").await;
    let empty = Embedded::create("empty", pair.clock_b.clone(), 840);
    assert!(unused_bytes(&pair.b.disk.engine) + MIB as u64 > unused_bytes(&empty));
}

#[tokio::test(start_paused = true)]
async fn what_was_deleted_is_given_up_if_the_source_does_not_release_it() {
    let (mut pair, [_first, _second], copy) = alike::<Embedded, 2>(841).await;
    let (asked, stall, gate) = deleted_while_stalled(&pair, &copy).await;
    let unused = unused_bytes(&pair.b.disk.engine);
    tokio::time::sleep(CROSS_VOLUME_KEPT_MAX + 2 * CROSS_VOLUME_CHECKED_EVERY).await;
    let given_back = unused_bytes(&pair.b.disk.engine) - unused;
    assert!(given_back > (SIZE - SIZE / 8) as u64, "{given_back}");
    drop(stall);
    let report = ended(&mut pair, asked).await;
    // A frame has named it; all but what came before was asked for again, coded against the one that is still there.
    assert!(report.resumed && (1..=MIB as u64).contains(&report.resumed_bytes), "{report:?}");
    assert!(report.levels.unwrap().delta.in_bytes >= 2 * MIB as u64, "{report:?}");
    gate.release().await;
}

/// What a source sends first to a destination that offers `others` for a first copy of `pair`'s volume: what it releases, and
/// the version of the first frame.
async fn sent_to(pair: &Pair, relationship: u128, cross_volume: Vec<u64>) -> (Vec<u8>, u8) {
    let link = pair.b.node.wait_link(pair.a.node.id(), PATIENCE).await.unwrap();
    let transfer = Uuid::from_u128(relationship + 1).as_bytes().to_vec();
    let begin = Begin {
        relationship: Uuid::from_u128(relationship).as_bytes().to_vec(),
        transfer: transfer.clone(),
        volume: pair.original.to_string(),
        destination: "q/elsewhere".into(),
        kind: 1,
        role_change: 1,
        ..Begin::default()
    };
    let request = Request { version: PROTOCOL_VERSION, body: Some(Body::Begin(begin)) };
    let plan = Plan::decode(link.call(request.encode_to_vec().into(), None).await.unwrap()).unwrap();
    // The incremental; before it travels what persons made.
    let step = plan.steps.len() as u32 - 1;
    let header =
        StreamHeader { version: PROTOCOL_VERSION, transfer, step, cross_volume, ..StreamHeader::default() };
    let options = farside_link::StreamOptions::default();
    let mut opened = link.open_stream(header.encode_to_vec().into(), options).await.unwrap();
    let mut released = Vec::new();
    loop {
        match stream::read(&mut opened.io).await.unwrap() {
            StreamMessage::Withdraw(numbers) => released.extend(numbers),
            StreamMessage::Frame(frame) => return (released, frame[4]),
            StreamMessage::Scanned(_) | StreamMessage::Working => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_bases_of_the_peers_own_mirrors_are_named() {
    let mut pair = Pair::new(830, 4096, LinkSettings::default()).await;
    let content = noise(&mut pair, MIB);
    let (first, _) = copied(&mut pair, 1, &content).await;
    let person = pair.snapshot("monday");
    let like_it = shifted(&mut pair, &content, 777);
    made(&mut pair, 2, &like_it).await;
    let base = first.status().current.unwrap().uuid;
    // Whoever offers nothing gets frames as they always were, and hears of nothing.
    assert_eq!(sent_to(&pair, 70, Vec::new()).await, (vec![], 2));
    // What a person made there, and what nobody knows, is nobody's base.
    let offered = vec![short_identity(person), 99];
    assert_eq!(sent_to(&pair, 80, offered.clone()).await, (vec![0, 1], 2));
    let offered = [&offered[..], &[short_identity(base)]].concat();
    assert_eq!(sent_to(&pair, 90, offered).await, (vec![0, 1], 3));
    // More than a destination may offer.
    let link = pair.b.node.wait_link(pair.a.node.id(), PATIENCE).await.unwrap();
    let (transfer, cross_volume) = (vec![7; 16], vec![1; 65]);
    let header =
        StreamHeader { version: PROTOCOL_VERSION, transfer, cross_volume, ..StreamHeader::default() };
    let options = farside_link::StreamOptions::default();
    let mut opened = link.open_stream(header.encode_to_vec().into(), options).await.unwrap();
    let said = stream::read(&mut opened.io).await.unwrap();
    assert!(matches!(&said, StreamMessage::Failure(f) if f.message.contains("65 volumes")), "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_lets_go_of_what_nobody_offered_breaks_the_protocol() {
    let mut pair = Pair::new(831, 4096, LinkSettings::default()).await;
    let content = noise(&mut pair, MIB);
    let mirror = made(&mut pair, 1, &content).await;
    let mut forged = Vec::new();
    stream::write(&mut forged, &StreamMessage::Withdraw(vec![0])).await.unwrap();
    *pair.a.fault_injector.forged_stream.lock() = Some(forged);
    let report = pair.initialize(&mirror).await;
    assert_eq!(report.result, TransferResult::Failed);
    assert!(report.reason.as_ref().is_some_and(|r| r.contains("was not offered")), "{:?}", report.reason);
    *pair.a.fault_injector.forged_stream.lock() = None;
    assert_ok(&pair.initialize(&mirror).await);
    pair.check_replica();
}
