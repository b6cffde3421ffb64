//! Known data: what the destination has from another volume of the same peer does not travel, and is not read at the source.

use std::time::Duration;

use farside_engine::{BLOCK_BYTES, ReplicaRecord, SnapshotOwner, SnapshotSpec};
use farside_link::LinkSettings;
use farside_mirror::{Mirror, Schedule};
use farside_platform::Clock;
use farside_transfer::protocol::held::{Held, HeldRun, encode_chunk};
use farside_transfer::protocol::known::{Answer, Ask, Entry, decode_ask, encode_answer, encode_ask};
use farside_transfer::protocol::stream::{self, StreamMessage};
use farside_transfer::protocol::{Begin, Body, PROTOCOL_VERSION, Plan, Request, StreamHeader};
use farside_transfer::{Progress, TransferReport, TransferResult};
use farside_wire::RunKind;
use prost::Message;
use rand::Rng;
use uuid::Uuid;

use crate::embedded_storage::Embedded;
use crate::site::{PATIENCE, Pair, Storage, assert_ok, volume};

const SIZE: u64 = 8 << 20;

/// Volume `number` of the original's site takes the place of the one before, with `content`.
fn next_volume<S: Storage>(pair: &mut Pair<S>, number: usize, content: &[u8]) {
    pair.original = volume(&format!("p/v{number}"));
    pair.replica = volume(&format!("q/r{number}"));
    let size_bytes = content.len() as u64;
    pair.a.disk.engine.engine().create_volume(&pair.original, size_bytes).unwrap();
    pair.live = vec![0; content.len()];
    for (offset, block) in (0..).step_by(BLOCK_BYTES as usize).zip(content.chunks(BLOCK_BYTES as usize)) {
        if block.iter().any(|byte| *byte != 0) {
            pair.write(offset, block);
        }
    }
}

/// A first copy of `content` as volume `number`, and what it cost.
async fn copied<S: Storage>(pair: &mut Pair<S>, number: usize, content: &[u8]) -> TransferReport {
    next_volume(pair, number, content);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    let report = pair.initialize(&mirror).await;
    assert_ok(&report);
    pair.check_replica();
    report
}

fn random_bytes<S: Storage>(pair: &mut Pair<S>, size_bytes: u64) -> Vec<u8> {
    let mut bytes = vec![0; size_bytes as usize];
    pair.rng.fill(&mut bytes[..]);
    bytes
}

fn known_bytes(report: &TransferReport) -> u64 {
    report.levels.unwrap().known.in_bytes
}

fn wire_bytes(report: &TransferReport) -> u64 {
    report.wire_bytes_sent + report.wire_bytes_received
}

#[tokio::test(start_paused = true)]
async fn a_second_volume_of_the_same_content_does_not_travel_and_is_not_read() {
    let mut pair = Pair::new(700, 4096, LinkSettings::default()).await;
    let content = random_bytes(&mut pair, SIZE);
    let first = copied(&mut pair, 1, &content).await;
    assert_eq!((known_bytes(&first), first.changed_bytes), (0, SIZE));
    let questions = first.levels.unwrap().known.out_bytes;
    assert!(questions > 0 && (questions as f64) < 0.000_2 * SIZE as f64, "{questions} bytes asked in vain");

    let (read, arrived) = (pair.a.disk.engine.read_bytes(), pair.b.disk.engine.staged_write_bytes());
    let second = copied(&mut pair, 2, &content).await;
    assert_eq!(pair.b.disk.engine.staged_write_bytes(), arrived);
    assert_eq!((known_bytes(&second), second.changed_bytes, second.source_read_bytes), (SIZE, 0, 0));
    // The replica was read to check it, at the other site. At the source the index of similar content reads it in the
    // background, once.
    assert!(pair.a.disk.engine.read_bytes() - read <= SIZE, "the transfer reads nothing at the source");
    let wire = wire_bytes(&second);
    assert!((wire as f64) < 0.005 * SIZE as f64, "{wire} bytes on the wire");
    println!("a second volume of {SIZE} bytes: {wire} on the wire, {:?}", second.levels.unwrap().known);
}

/// Most of a volume is new and a little of it known: the source reads that little once, for the index, and no more.
#[tokio::test(start_paused = true)]
async fn for_the_index_only_what_was_known_is_read() {
    let mut pair = Pair::new(707, 4096, LinkSettings::default()).await;
    let content = random_bytes(&mut pair, SIZE);
    copied(&mut pair, 1, &content).await;
    let read = pair.a.disk.engine.read_bytes();
    let mut second = random_bytes(&mut pair, SIZE);
    let common = (3 << 20)..(4 << 20);
    second[common.clone()].copy_from_slice(&content[common.clone()]);
    next_volume(&mut pair, 2, &second);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    let report = pair.initialize(&mirror).await;
    assert_ok(&report);
    assert_eq!((known_bytes(&report), report.source_read_bytes), (1 << 20, SIZE - (1 << 20)));
    // The index is saved when it lacks nothing.
    let volume = pair.a.disk.engine.engine().volume(&pair.original).unwrap().uuid;
    for waited in 0.. {
        if pair.a.disk.similarity.files().contains_key(&volume) {
            break;
        }
        assert!(waited < 600, "the index is not whole after a minute");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let of_transfer = report.source_read_bytes + report.base_read_bytes;
    assert_eq!(pair.a.disk.engine.read_bytes() - read, of_transfer + known_bytes(&report));
    // And the next update is coded against it: what was known comes again, at no block's place.
    let mut moved = second[common].to_vec();
    moved.rotate_left(100);
    pair.write(6 << 20, &moved);
    let report = pair.update(&mirror).await;
    assert_ok(&report);
    assert!(report.changed_bytes == 1 << 20 && wire_bytes(&report) < 60_000, "{report:?}");
    pair.check_replica();
}

/// The files of a volume, one after another, with a gap of holes now and then; and each block changed with this chance.
fn laid_out(pair: &mut Pair, files: &[Vec<u8>], chance: f64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for file in files {
        if pair.rng.random_bool(0.3) {
            let blocks: usize = pair.rng.random_range(1..9);
            bytes.resize(bytes.len() + blocks * BLOCK_BYTES as usize, 0);
        }
        bytes.extend_from_slice(file);
    }
    for block in bytes.chunks_mut(BLOCK_BYTES as usize) {
        if pair.rng.random_bool(chance) {
            pair.rng.fill(block);
        }
    }
    bytes
}

#[tokio::test(start_paused = true)]
async fn ten_volumes_of_nearly_the_same_content_cost_what_is_distinct() {
    let mut pair = Pair::new(701, 4096, LinkSettings::default()).await;
    let mut files = Vec::new();
    for _ in 0..30 {
        let blocks = pair.rng.random_range(3..70);
        files.push(random_bytes(&mut pair, blocks * BLOCK_BYTES));
    }
    let (mut distinct, mut wire) = (0, 0);
    let mut seen = std::collections::HashSet::new();
    for number in 0..10 {
        // Files lie elsewhere in each, by whole blocks, and one block in twenty is another.
        files.rotate_left(number % 3);
        let content = laid_out(&mut pair, &files, 0.05);
        let report = copied(&mut pair, number, &content).await;
        let blocks = content.chunks(BLOCK_BYTES as usize).filter(|b| b.iter().any(|byte| *byte != 0));
        distinct += blocks.filter(|b| seen.insert(b.to_vec())).count() as u64 * BLOCK_BYTES;
        wire += wire_bytes(&report);
        let known = report.levels.unwrap().known;
        println!("volume {number}: {} bytes, {} on the wire, {known:?}", content.len(), wire_bytes(&report));
    }
    // Of random bytes, which do not compress.
    let factor = wire as f64 / distinct as f64;
    println!("{wire} bytes on the wire for {distinct} distinct: {factor:.3}");
    assert!(factor < 1.05, "{factor}");
}

#[tokio::test(start_paused = true)]
async fn nobody_learns_what_another_peer_stores() {
    let mut pair = Pair::new(702, 4096, LinkSettings::default()).await;
    let content = random_bytes(&mut pair, SIZE);
    let (engine, other) = (pair.b.disk.engine.engine(), volume("q/other"));
    engine.create_volume(&other, SIZE).unwrap();
    pair.b.disk.engine.host_writes(&other, 0, &content);
    let spec = SnapshotSpec {
        name: "theirs".into(),
        uuid: Uuid::from_u128(9),
        created_at: pair.clock.now(),
        owner: SnapshotOwner::Person,
        pin_for: None,
    };
    engine.take_snapshot(&other, &spec).unwrap();
    let of = |peer| ReplicaRecord {
        relationship: Uuid::from_u128(8),
        peer,
        source: "p/other".into(),
        broken_off: false,
    };
    engine.set_replica_record(&other, Some(of([7; 32]))).unwrap();
    let report = copied(&mut pair, 1, &content).await;
    assert_eq!((known_bytes(&report), report.changed_bytes), (0, SIZE));
    // The same, if it is this peer's.
    pair.b.destination.delete(&pair.replica).await.unwrap();
    engine.set_replica_record(&pair.replica.clone(), None).unwrap();
    engine.set_replica_record(&other, Some(of(pair.a.node.id().0))).unwrap();
    let report = copied(&mut pair, 2, &content).await;
    assert_eq!((known_bytes(&report), report.changed_bytes), (SIZE, 0));
}

#[tokio::test(start_paused = true)]
async fn an_update_asks_nothing() {
    let mut pair = Pair::new(703, 4096, LinkSettings::default()).await;
    let content = random_bytes(&mut pair, SIZE);
    copied(&mut pair, 1, &content).await;
    next_volume(&mut pair, 2, &content[..SIZE as usize / 2]);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    pair.write(0, &content[SIZE as usize / 2..]);
    let report = pair.update(&mirror).await;
    assert_ok(&report);
    assert_eq!((known_bytes(&report), report.levels.unwrap().known.out_bytes), (0, 0));
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn a_resync_asks_for_what_lies_elsewhere() {
    let mut pair = Pair::new(708, 4096, LinkSettings::default()).await;
    let content = random_bytes(&mut pair, SIZE);
    copied(&mut pair, 1, &content).await;
    let other = random_bytes(&mut pair, SIZE);
    copied(&mut pair, 2, &other).await;
    let mirror = pair.b.destination.mirror(&pair.replica).unwrap();
    // Moved by a block, so that nothing is known as a node.
    pair.write(BLOCK_BYTES, &content[..SIZE as usize / 2]);
    mirror.break_off(None).await.unwrap();
    let report = mirror.resync(PATIENCE).await.unwrap().ended().await.unwrap();
    pair.model.insert(report.id, pair.live.clone());
    assert_ok(&report);
    pair.check_replica();
    assert_eq!(report.changed_bytes + known_bytes(&report), SIZE / 2);
    assert!(known_bytes(&report) > SIZE / 2 * 9 / 10, "{:?}", report.levels);
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_does_not_hold_what_it_says_brings_all_of_it_once_more() {
    let mut pair = Pair::new(704, 4096, LinkSettings::default()).await;
    let content = random_bytes(&mut pair, SIZE);
    copied(&mut pair, 1, &content).await;
    pair.b.disk.engine.faults.lock().adopts_falsely = true;
    let report = copied(&mut pair, 2, &content).await;
    assert_eq!(report.changed_bytes, SIZE, "all of it, in the second attempt");
    // What is wrong for another reason is not brought again and again.
    next_volume(&mut pair, 3, &content);
    pair.b.disk.engine.faults.lock().flip_staged_writes = true;
    let mirror = pair.mirror(Schedule::OnRequest).await;
    let arrived = pair.b.disk.engine.staged_write_bytes();
    let report = pair.initialize(&mirror).await;
    assert_eq!(report.result, TransferResult::Failed);
    assert_eq!(pair.b.disk.engine.staged_write_bytes() - arrived, SIZE);
    *pair.b.disk.engine.faults.lock() = Default::default();
    assert_ok(&pair.initialize(&mirror).await);
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn content_that_only_looks_the_same_is_sent() {
    let mut pair = Pair::new(705, 4096, LinkSettings::default()).await;
    let content = random_bytes(&mut pair, SIZE);
    copied(&mut pair, 1, &content).await;
    pair.b.disk.engine.faults.lock().finds_other_content = true;
    let arrived = pair.b.disk.engine.staged_write_bytes();
    let report = copied(&mut pair, 2, &content).await;
    assert_eq!((known_bytes(&report), report.changed_bytes), (0, SIZE));
    assert_eq!(pair.b.disk.engine.staged_write_bytes() - arrived, SIZE, "in one attempt");
}

/// 250 kB/s.
fn very_slow() -> LinkSettings {
    LinkSettings {
        latency: Duration::from_millis(150),
        jitter: Duration::ZERO,
        bytes_per_second: Some(250_000),
    }
}

/// Two copies of most of `content` in pieces, so that there is much to ask; the second on a slow link.
async fn half_known(seed: u64) -> (Pair, Mirror, u64) {
    let mut pair = Pair::new(seed, 4096, very_slow()).await;
    let content = random_bytes(&mut pair, SIZE);
    copied(&mut pair, 1, &content).await;
    let mut changed = content;
    let mut changed_bytes = 0;
    for blocks in changed.chunks_mut(40 * BLOCK_BYTES as usize).step_by(2) {
        pair.rng.fill(blocks);
        changed_bytes += blocks.len() as u64;
    }
    next_volume(&mut pair, 2, &changed);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    (pair, mirror, changed_bytes)
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_before_a_cut_is_held_after_it() {
    let (mut pair, mirror, changed_bytes) = half_known(706).await;
    let arrived = pair.b.disk.engine.staged_write_bytes();
    let asked = mirror.initialize(PATIENCE).await.unwrap();
    let mut progress = mirror.progress();
    for cut in 1..=3 {
        let enough = |p: &Option<Progress>| p.as_ref().is_some_and(|p| p.done_bytes >= cut * SIZE / 5);
        tokio::time::timeout(Duration::from_secs(300), progress.wait_for(enough)).await.unwrap().unwrap();
        pair.lose_session().await;
    }
    let report = tokio::time::timeout(Duration::from_secs(900), asked.ended()).await.unwrap().unwrap();
    for report in pair.b.destination.history(&pair.replica, 10).await.unwrap() {
        println!(
            "{:?}: {} held, {} changed, known {:?}",
            report.result,
            report.resumed_bytes,
            report.changed_bytes,
            report.levels.unwrap().known
        );
        pair.model.insert(report.id, pair.live.clone());
    }
    assert_ok(&report);
    assert!(report.resumed && report.resumed_bytes > 0);
    pair.check_replica();
    let arrived = pair.b.disk.engine.staged_write_bytes() - arrived;
    // What lay between two known pieces may have been asked for in vain, or not have been asked for again.
    assert!(
        arrived >= changed_bytes && arrived < changed_bytes + changed_bytes / 4,
        "{arrived} of {changed_bytes}"
    );
}

#[tokio::test(start_paused = true)]
async fn it_can_be_cancelled_at_any_moment() {
    for seed in crate::site::seeds(710, 3) {
        let (mut pair, mirror, _) = half_known(seed).await;
        let asked = mirror.initialize(PATIENCE).await.unwrap();
        tokio::time::sleep(Duration::from_millis(pair.rng.random_range(0..12_000))).await;
        mirror.abort().await.unwrap();
        let report = tokio::time::timeout(Duration::from_secs(60), asked.ended()).await.unwrap().unwrap();
        assert_eq!(report.result, TransferResult::Aborted);
        let asked = mirror.initialize(PATIENCE).await.unwrap();
        let report = tokio::time::timeout(Duration::from_secs(900), asked.ended()).await.unwrap().unwrap();
        pair.model.insert(report.id, pair.live.clone());
        assert_ok(&report);
        pair.check_replica();
    }
}

/// Questions that a source could ask and must not.
async fn nonsense() -> Vec<(&'static str, Vec<u8>)> {
    let entry = |position| Entry { position, short: 1 + position };
    let ask = |batch, blocks: &[u64]| {
        let blocks = blocks.iter().copied().map(entry).collect();
        StreamMessage::Ask(encode_ask(&Ask { batch, nodes: Vec::new(), blocks }))
    };
    let nodes = |position| {
        StreamMessage::Ask(encode_ask(&Ask { batch: 0, nodes: vec![entry(position)], blocks: Vec::new() }))
    };
    let all = [
        ("a block past the end", vec![ask(0, &[SIZE / BLOCK_BYTES])]),
        ("a node past the end", vec![nodes(SIZE / BLOCK_BYTES / 128)]),
        ("the second question first", vec![ask(1, &[3])]),
        ("no question at all", vec![StreamMessage::Ask(vec![0xff; 9])]),
        ("more questions than are allowed", (0..100_000).map(|batch| ask(batch, &[3])).collect()),
        ("an answer", vec![StreamMessage::Answer(encode_answer(&Answer::default()))]),
    ];
    let mut written = Vec::new();
    for (what, messages) in all {
        let mut bytes = Vec::new();
        for message in &messages {
            stream::write(&mut bytes, message).await.unwrap();
        }
        written.push((what, bytes));
    }
    written
}

#[tokio::test(start_paused = true)]
async fn a_source_that_asks_nonsense_is_refused() {
    let mut pair = Pair::new(720, 4096, LinkSettings::default()).await;
    let content = random_bytes(&mut pair, SIZE);
    next_volume(&mut pair, 1, &content);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    for (what, bytes) in nonsense().await {
        *pair.a.fault_injector.forged_stream.lock() = Some(bytes);
        let report = pair.initialize(&mirror).await;
        println!("{what}: {:?}", report.reason);
        assert_eq!(report.result, TransferResult::Failed, "{what}");
        assert!(!pair.b.disk.engine.has_staged(&pair.replica), "{what}: it broke the protocol");
    }
    *pair.a.fault_injector.forged_stream.lock() = None;
    assert_ok(&pair.initialize(&mirror).await);
    pair.check_replica();
    // And a question in an update, where none is answered.
    let (_, question) = nonsense().await.remove(0);
    *pair.a.fault_injector.forged_stream.lock() = Some(question);
    pair.write(0, &[5; BLOCK_BYTES as usize]);
    let report = pair.update(&mirror).await;
    assert_eq!(report.result, TransferResult::Failed);
    assert!(
        report.reason.as_ref().is_some_and(|r| r.contains("did not offer to answer")),
        "{:?}",
        report.reason
    );
}

#[tokio::test(start_paused = true)]
async fn a_long_held_list_and_questions_do_not_wait_for_each_other() {
    // A volume of holes with 2 MiB of data at its end, and a destination that says it holds data in a million of the holes.
    let blocks: u64 = 4 << 20;
    let mut pair = Pair::new(721, 4096, LinkSettings::default()).await;
    let data = random_bytes(&mut pair, 2 << 20);
    pair.a.disk.engine.resize(&pair.original, blocks * BLOCK_BYTES);
    pair.a.disk.engine.host_writes(&pair.original, blocks * BLOCK_BYTES - data.len() as u64, &data);
    let link = pair.b.node.wait_link(pair.a.node.id(), PATIENCE).await.unwrap();
    let transfer = Uuid::from_u128(77).as_bytes().to_vec();
    let begin = Begin {
        relationship: Uuid::from_u128(78).as_bytes().to_vec(),
        transfer: transfer.clone(),
        volume: pair.original.to_string(),
        destination: pair.replica.to_string(),
        kind: 1,
        role_change: 1,
        ..Begin::default()
    };
    let request = Request { version: PROTOCOL_VERSION, body: Some(Body::Begin(begin)) };
    let plan = Plan::decode(link.call(request.encode_to_vec().into(), None).await.unwrap()).unwrap();
    assert_eq!(plan.steps.len(), 1);
    let header = StreamHeader {
        version: PROTOCOL_VERSION,
        transfer,
        held: Held::Positions.number(),
        known: true,
        ..Default::default()
    };
    let opened = link
        .open_stream(header.encode_to_vec().into(), farside_link::StreamOptions::default())
        .await
        .unwrap();
    let (mut reader, mut writer) = tokio::io::split(opened.io);
    let runs = 1u64 << 20;
    let telling = async {
        for first in (0..runs).step_by(2048) {
            let run =
                |n| HeldRun { position: 3 * n, blocks: 1, kind: RunKind::Data, fingerprints: Vec::new() };
            let chunk: Vec<_> = (first..first + 2048).map(run).collect();
            stream::write(&mut writer, &StreamMessage::Held(encode_chunk(&chunk))).await.unwrap();
        }
        stream::write(&mut writer, &StreamMessage::HeldEnd).await.unwrap();
    };
    let (mut asked, mut frames) = (Vec::new(), 0);
    let reading = async {
        loop {
            match stream::read(&mut reader).await.unwrap() {
                StreamMessage::Ask(ask) => asked.push(decode_ask(&ask, blocks).unwrap()),
                StreamMessage::Frame(_) => frames += 1,
                StreamMessage::StepEnd(_) => panic!("its questions were not answered"),
                _ => {}
            }
            if asked.iter().map(|ask| ask.nodes.len()).sum::<usize>() == 4 {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(600), async { tokio::join!(telling, reading) }).await.unwrap();
    let (batches, mut questions) = (asked.len(), asked.into_iter());
    println!("{frames} frames, {batches} questions before the first answer");
    loop {
        if let Some(ask) = questions.next() {
            let nothing = Answer { batch: ask.batch, ..Answer::default() };
            stream::write(&mut writer, &StreamMessage::Answer(encode_answer(&nothing))).await.unwrap();
            continue;
        }
        match stream::read(&mut reader).await.unwrap() {
            StreamMessage::StepEnd(end) => {
                assert_eq!((end.changed_bytes, end.known_bytes), (data.len() as u64, 0));
                // Questions overtake frames: only at the end is it certain what has come.
                assert_eq!(frames, end.frames);
                let put_right = end.deallocated_bytes;
                assert_eq!(
                    put_right,
                    runs * BLOCK_BYTES,
                    "what was held as data and is a hole: {frames} frames"
                );
                return;
            }
            StreamMessage::Ask(ask) => {
                questions = vec![decode_ask(&ask, blocks).unwrap()].into_iter();
            }
            StreamMessage::Frame(_) => frames += 1,
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn on_the_embedded_store_a_second_volume_does_not_travel_either() {
    let mut pair = Pair::<Embedded>::with_storage(730, 4096, LinkSettings::default()).await;
    let content = random_bytes(&mut pair, SIZE);
    copied(&mut pair, 1, &content).await;
    let read = pair.a.disk.engine.pool().counters.read_bytes.load(std::sync::atomic::Ordering::SeqCst);
    let second = copied(&mut pair, 2, &content).await;
    assert_eq!((known_bytes(&second), second.changed_bytes, second.source_read_bytes), (SIZE, 0, 0));
    let read_now = pair.a.disk.engine.pool().counters.read_bytes.load(std::sync::atomic::Ordering::SeqCst);
    assert!(read_now - read <= SIZE, "only the index of similar content reads it, in the background, once");
    assert!((wire_bytes(&second) as f64) < 0.005 * SIZE as f64, "{} bytes on the wire", wire_bytes(&second));
}
