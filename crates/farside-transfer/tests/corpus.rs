//! Calls and streams against spoilt bytes. The corpus in `corpus/` is where fuzzers start, too; it is made here
//! (`FARSIDE_WRITE_CORPUS=1`), and what it was made from still writes the same bytes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::PathBuf;

use farside_format::Fingerprint;
use farside_transfer::fuzz::{fuzz_call, fuzz_known, fuzz_stream};
use farside_transfer::protocol::held::{HeldRun, encode_chunk};
use farside_transfer::protocol::known::{Answer, Ask, Entry, encode_answer, encode_ask};
use farside_transfer::protocol::stream::{self, StreamMessage};
use farside_transfer::protocol::*;
use farside_wire::{Effort, Encoder, Prefix, Run, RunKind};
use prost::Message;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Seeds of a test that draws at random: `default` of them from `first`; `FARSIDE_SEEDS` and `FARSIDE_SEED` say otherwise.
fn seeds(first: u64, default: u64) -> std::ops::Range<u64> {
    let from = |name| std::env::var(name).ok().and_then(|s| s.parse().ok());
    let first = from("FARSIDE_SEED").unwrap_or(first);
    first..first + from("FARSIDE_SEEDS").unwrap_or(default)
}

fn candidate(n: u8) -> Candidate {
    Candidate { uuid: vec![n; 16], content_root: vec![n + 1; 16], size_bytes: 1 << 20 }
}

fn calls() -> Vec<(&'static str, Vec<u8>)> {
    let (relationship, transfer) = (vec![1; 16], vec![2; 16]);
    let (volume, destination) = (String::from("p/v"), String::from("q/r"));
    let call = |body| Request { version: PROTOCOL_VERSION, body: Some(body) }.encode_to_vec();
    let begin = Begin {
        relationship: relationship.clone(),
        transfer: transfer.clone(),
        volume: volume.clone(),
        destination: destination.clone(),
        kind: 2,
        candidates: vec![candidate(5), candidate(7)],
        staged: None,
        role_change: 1,
        whole: false,
        named_max: None,
        keeps_common: false,
        left: Vec::new(),
        further: Vec::new(),
        until: Vec::new(),
    };
    let staged = Some(StagedTransfer { incremental: vec![9; 16], base: Some(candidate(7)) });
    let step = Step {
        uuid: vec![11; 16],
        name: "monday".into(),
        created_at: 1_800_000_000_000_000_000,
        size_bytes: 1 << 20,
        content_root: vec![12; 16],
        made_by_person: true,
    };
    let origin = Origin {
        follows: vec![Hop { site: vec![6; 32], volume: "p/v".into() }],
        overtaken_by: "b:q/r".into(),
        overtaken_at: 1_800_000_000_000_000_000,
        overtaken: "a:p/v".into(),
    };
    let plan = Plan {
        base: Some(candidate(7)),
        base_name: "sunday".into(),
        steps: vec![step],
        origin: Some(origin),
        ..Plan::default()
    };
    let numbered = begin.clone();
    let swap = Swap {
        relationship: relationship.clone(),
        reverse: vec![3; 16],
        volume: volume.clone(),
        destination: destination.clone(),
        phase: 1,
        schedule: "every 10s".into(),
        role_change: 1,
        group: String::new(),
    };
    let reserve = Reserve {
        relationship: relationship.clone(),
        transfer: vec![3; 16],
        volume: volume.clone(),
        role_change: 300,
        shows: Vec::new(),
    };
    let second = Reserve {
        relationship: vec![4; 16],
        transfer: vec![5; 16],
        volume: "p/w".into(),
        shows: vec![8; 16],
        ..reserve.clone()
    };
    let together = ReserveTogether { members: vec![reserve.clone(), second] };
    let reserved =
        ReservedTogether { created_at: 1_800_000_000_000_000_000, snapshots: vec![vec![3; 16], vec![5; 16]] };
    let of_group = Begin { until: vec![3; 16], ..begin.clone() };
    let numbered_swap = Swap { phase: 2, role_change: 300, ..swap.clone() };
    let swap_of_group = Swap { phase: 3, group: "shop".into(), ..numbered_swap.clone() };
    let overtaken = Overtaken {
        relationship,
        volume,
        broken_off_at: 1_800_000_000_000_000_000,
        snapshot: Some(candidate(5)),
        destination,
        role_change: 300,
        ..Overtaken::default()
    };
    let passed_on = Overtaken { beyond: "c:r/v".into(), snapshot: None, ..overtaken.clone() };
    let ended = Overtaken {
        ended: true,
        keeps_snapshot: true,
        follows: vec![Hop { site: vec![7; 32], volume: "r/v".into() }],
        returned: true,
        ..overtaken.clone()
    };
    let of_a_group = Overtaken { group: "shop".into(), group_size: 2, ..overtaken.clone() };
    let header = StreamHeader {
        version: PROTOCOL_VERSION,
        transfer,
        step: 1,
        without_base: true,
        held: 2,
        known: true,
        cross_volume: Vec::new(),
        room_bytes: None,
    };
    vec![
        ("begin", call(Body::Begin(begin.clone()))),
        ("reserve", call(Body::Reserve(reserve))),
        ("reserve-together", call(Body::ReserveTogether(together))),
        ("reserved-together", reserved.encode_to_vec()),
        ("begin-of-group", call(Body::Begin(of_group))),
        ("begin-staged", call(Body::Begin(Begin { staged, ..begin }))),
        ("swap", call(Body::Swap(swap))),
        ("begin-numbered", call(Body::Begin(Begin { role_change: 300, ..numbered }))),
        ("swap-numbered", call(Body::Swap(numbered_swap))),
        ("swap-of-group", call(Body::Swap(swap_of_group))),
        ("overtaken-numbered", call(Body::Overtaken(overtaken))),
        ("overtaken-beyond", call(Body::Overtaken(passed_on))),
        ("overtaken-ended", call(Body::Overtaken(ended))),
        ("overtaken-of-group", call(Body::Overtaken(of_a_group))),
        ("plan", plan.encode_to_vec()),
        ("stream-header", header.encode_to_vec()),
        (
            "stream-header-others",
            StreamHeader { cross_volume: vec![0x0807_0605_0403_0201, 7], ..header }.encode_to_vec(),
        ),
    ]
}

async fn streams() -> Vec<(&'static str, Vec<u8>)> {
    let run = |position, blocks, kind, fingerprints: usize| HeldRun {
        position,
        blocks,
        kind,
        fingerprints: vec![[position as u8; 8]; fingerprints],
    };
    let held = |with: usize| {
        let first = [run(5, 2, RunKind::Data, 2 * with), run(9, 1 << 15, RunKind::Hole, 0)];
        let second = [run(40_000, 3, RunKind::Data, 3 * with)];
        [&first[..], &second[..]].map(|runs| StreamMessage::Held(encode_chunk(runs)))
    };
    let mut frame = Vec::new();
    let data = [Run { position: 3, blocks: 1, kind: RunKind::Data }];
    let fingerprint = [Fingerprint::of_block(&[7; 4096])];
    Encoder::new()
        .encode(&data, &[7; 4096], &fingerprint, &mut Prefix::new(), Effort::Standard, &mut frame)
        .unwrap();
    let scanned = Scanned { changed_bytes: 4096, complete: true, ..Scanned::default() };
    let end = StepEnd { frames: 1, changed_bytes: 4096, resumed_bytes: 8192, ..StepEnd::default() };
    let step = vec![
        StreamMessage::Scanned(scanned),
        StreamMessage::Working,
        StreamMessage::Frame(frame),
        StreamMessage::StepEnd(end),
        StreamMessage::Failure(Failure::new("corrupt", "block 7")),
    ];
    let lets_go = [&[StreamMessage::Withdraw(vec![0, 3])], &step[2..]].concat();
    let ended = |chunks: [StreamMessage; 2]| chunks.into_iter().chain([StreamMessage::HeldEnd]).collect();
    // The first byte is the target's own: from which side, and which list.
    let all: [(&'static str, u8, Vec<StreamMessage>); 4] = [
        ("step", 0, step),
        ("step-lets-go", 0, lets_go),
        ("held-positions", 1, ended(held(0))),
        ("held-fingerprints", 3, ended(held(1))),
    ];
    let mut written = Vec::new();
    for (name, first, messages) in all {
        let mut bytes = vec![first];
        for message in &messages {
            stream::write(&mut bytes, message).await.unwrap();
        }
        written.push((name, bytes));
    }
    written
}

/// The first byte is the target's own: question or answer, and about how much.
fn known() -> Vec<(&'static str, Vec<u8>)> {
    let entries =
        |positions: &[u64]| positions.iter().map(|&p| Entry { position: p, short: p + 1 }).collect();
    let mixed = Ask { batch: 300, nodes: entries(&[0, 1, 2, 9]), blocks: entries(&[384, 392, 393, 1 << 14]) };
    let nodes = Ask { batch: 0, nodes: entries(&[3, 4, 5, 6]), blocks: Vec::new() };
    let held = Answer { batch: 300, held: vec![0..4, 6..7], digest: [9; 16] };
    let nothing = Answer { batch: 1, ..Answer::default() };
    let with = |first: u8, bytes: Vec<u8>| [&[first][..], &bytes].concat();
    vec![
        ("ask", with(15 << 1, encode_ask(&mixed))),
        ("ask-nodes", with(10 << 1, encode_ask(&nodes))),
        ("answer", with(1, encode_answer(&Answer { held: std::iter::once(0..1).collect(), ..held.clone() }))),
        ("answer-runs", with(3, encode_answer(&held))),
        ("answer-nothing", with(1, encode_answer(&nothing))),
    ]
}

fn corpus(kind: &str, specimens: Vec<(&'static str, Vec<u8>)>, target: fn(&[u8])) {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(kind);
    for (name, bytes) in &specimens {
        if std::env::var_os("FARSIDE_WRITE_CORPUS").is_some() {
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join(name), bytes).unwrap();
        }
        let committed = std::fs::read(directory.join(name)).unwrap();
        assert!(committed == *bytes, "version {PROTOCOL_VERSION} no longer writes {kind}/{name} as it did");
    }
    let files: Vec<Vec<u8>> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    for bytes in &files {
        for length in 0..=bytes.len() {
            target(&bytes[..length]);
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            target(&damaged);
        }
    }
    for seed in seeds(1, 2000) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut bytes = files[rng.random_range(0..files.len())].clone();
        for _ in 0..rng.random_range(1..8) {
            let at = rng.random_range(0..bytes.len());
            match rng.random_range(0..4) {
                0 => bytes[at] = rng.random(),
                1 => bytes.insert(at, rng.random()),
                2 if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => bytes.extend_from_within(at..),
            }
        }
        target(&bytes);
    }
}

#[test]
fn calls_and_what_is_nearly_one() {
    corpus("call", calls(), fuzz_call);
}

#[tokio::test]
async fn streams_and_what_is_nearly_one() {
    corpus("stream", streams().await, fuzz_stream);
}

#[test]
fn questions_for_known_data_and_what_is_nearly_one() {
    corpus("known", known(), fuzz_known);
}
