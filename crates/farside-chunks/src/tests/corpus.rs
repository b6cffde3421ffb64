//! Blocks, holdings and containers against spoilt bytes. The corpus in `corpus/` is where fuzzers start, too; it is made here:
//! `FARSIDE_WRITE_CORPUS=1` writes it anew.

use std::fs;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_platform::{OsRandomness, Randomness};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::noise;
use crate::container::{CHUNKS_PER_CONTAINER, Growing, HEADER};
use crate::fuzz::{
    CHUNKS, OWN, REALM, SECRET, Scratch, THEIRS, chunk, fuzz_block, fuzz_container, fuzz_holdings,
    small_realm,
};
use crate::known::{Holdings, KnownAtPeer};
use crate::name::{ContainerName, OriginId};
use crate::ranges::Ranges;
use crate::stream::{DecodeError, StreamDecoder, StreamEncoder, StreamSettings};
use crate::varint::put;

type Specimens = Vec<(&'static str, Vec<u8>)>;

const HALF: Duration = Duration::from_millis(500);
/// No input grows beyond this by mutation.
const INPUT_BYTES_MAX: usize = 16_384;

/// Blocks, each after its length.
fn listed(blocks: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for block in blocks {
        put(&mut out, block.len() as u64);
        out.extend_from_slice(block);
    }
    out
}

/// A block by hand: flags, bytes that it stands for, digest, operations, literals.
fn by_hand(flags: u8, stream: &[u8], operations: &[u8], literals: &[u8]) -> Vec<u8> {
    let mut block = vec![flags];
    put(&mut block, stream.len() as u64);
    put(&mut block, operations.len() as u64);
    put(&mut block, literals.len() as u64);
    if flags & 4 != 0 {
        block.extend_from_slice(&blake3::hash(stream).as_bytes()[..16]);
    }
    [&block[..], operations, literals].concat()
}

/// So many chunks from that place of the peer's container on, of an origin that was not named before.
fn reference(count: u64, place: u16) -> Vec<u8> {
    let mut operation = Vec::new();
    put(&mut operation, count << 2 | 3);
    put(&mut operation, 0);
    operation.extend_from_slice(&THEIRS.origin.0);
    put(&mut operation, THEIRS.number);
    put(&mut operation, u64::from(place));
    operation
}

fn literal(bytes: &[u8]) -> Vec<u8> {
    let mut operation = Vec::new();
    put(&mut operation, (bytes.len() as u64) << 2);
    by_hand(0, bytes, &operation, bytes)
}

fn all_of_theirs() -> Vec<u8> {
    (0..CHUNKS).flat_map(chunk).collect()
}

/// What another site says with these settings: one block for each part.
fn said(settings: StreamSettings, parts: &[Vec<u8>]) -> Vec<u8> {
    let scratch = Scratch::new();
    let store = scratch.open(SECRET, OriginId(*b"somebody else..."));
    let realm = small_realm(&store);
    let mut known = KnownAtPeer::default();
    known.heed(&Holdings(vec![(THEIRS, Ranges::of(0..CHUNKS))]));
    let mut encoder = StreamEncoder::new(realm, Arc::new(parking_lot::Mutex::new(known)), settings);
    let blocks: Vec<Vec<u8>> = parts
        .iter()
        .map(|part| {
            let mut block = Vec::new();
            encoder.encode(part, true, &mut block);
            block
        })
        .collect();
    listed(&blocks)
}

fn blocks() -> Specimens {
    let plain = StreamSettings { compresses: false, ..StreamSettings::default() };
    let text = |row: u32| format!("row {row:05}; ").repeat(60).into_bytes();
    let missing = noise(9, 700);
    // The peer's chunk with a beginning of its own, as a chunk of a container of the peer's that begins.
    let changed = [&noise(8, 40)[..], &chunk(1)[40..]].concat();
    let mut patch = vec![3, 1, 0];
    patch.extend_from_slice(&THEIRS.origin.0);
    patch.extend_from_slice(&[THEIRS.number as u8, 1, 1, 40]);
    put(&mut patch, 660);
    patch.push(0);
    put(&mut patch, 700 << 2 | 2);
    patch.extend_from_slice(&[0, 9, 0]);
    vec![
        ("patched", listed(&[by_hand(4, &changed, &patch, &changed[..40])])),
        ("literal", listed(&[literal(b"hello")])),
        ("new-and-again", said(plain, &[noise(5, 900), noise(5, 900), noise(6, 100)])),
        ("known", said(plain, &[chunk(1), noise(7, 600), chunk(2)])),
        ("references", listed(&[by_hand(4, &all_of_theirs(), &reference(u64::from(CHUNKS), 0), &[])])),
        ("missing", listed(&[by_hand(4, &missing, &reference(1, CHUNKS), &[]), literal(&missing)])),
        ("wrong-digest", listed(&[by_hand(4, &missing, &reference(1, 0), &[]), literal(&missing)])),
        ("wrong-answer", listed(&[by_hand(4, &missing, &reference(1, CHUNKS), &[]), literal(&[0; 700])])),
        ("compressed", said(StreamSettings::default(), &[text(1), text(2)])),
    ]
}

fn holdings() -> Specimens {
    let container = |origin: u8, number| ContainerName { origin: OriginId([origin; 16]), number };
    let encode = |all: Vec<(ContainerName, Ranges)>| {
        let mut message = Vec::new();
        assert!(Holdings(all).encode(&mut message).0.is_empty());
        message
    };
    vec![
        ("whole", encode(vec![(container(1, 0), Ranges::of(0..CHUNKS_PER_CONTAINER))])),
        ("gone", encode(vec![(container(1, u64::MAX), Ranges::default())])),
        (
            "several",
            encode(vec![
                (container(1, 3), Ranges::of((0..5).chain(9..11))),
                (container(1, 4), Ranges::of(0..1)),
                (container(2, 300), Ranges::of((0..64).step_by(4))),
            ]),
        ),
        ("nothing", Vec::new()),
    ]
}

fn containers() -> Specimens {
    let scratch = Scratch::new();
    let path = scratch.write(REALM, THEIRS, &[]);
    fs::remove_file(&path).unwrap();
    let mut growing = Growing::create(&path, REALM, THEIRS).unwrap();
    let header = fs::read(&path).unwrap();
    let elsewhere = Scratch::new();
    let store = elsewhere.open(SECRET, OWN);
    let realm = store.realm(REALM);
    // In another order, as streams bring them.
    for place in [1, 0, 2] {
        assert!(growing.append(place, realm.fingerprint(&chunk(place)), &chunk(place)).unwrap());
    }
    growing.flush().unwrap();
    let records = fs::read(&path).unwrap();
    growing.close().unwrap();
    let whole = fs::read(&path).unwrap();
    let with = |first: u8, bytes: &[u8]| [&[first][..], bytes].concat();
    let unset = |mut bytes: Vec<u8>| {
        bytes[..HEADER].fill(0);
        let end = bytes.len();
        bytes[end - 24..end - 16].fill(0);
        bytes
    };
    vec![
        ("whole", with(0, &whole)),
        ("records", with(0, &records)),
        ("header", with(0, &header)),
        ("cut", with(0, &records[..records.len() - 100])),
        ("to-be-mended", with(3, &unset(whole))),
    ]
}

/// Whether today's zstd may write it otherwise.
fn is_compressed(name: &str) -> bool {
    name == "compressed"
}

fn corpus(kind: &str, specimens: Specimens, target: fn(&[u8])) {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(kind);
    for (name, bytes) in &specimens {
        let path = directory.join(name);
        if std::env::var_os("FARSIDE_WRITE_CORPUS").is_some() {
            fs::create_dir_all(&directory).unwrap();
            fs::write(&path, bytes).unwrap();
        }
        let committed = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(committed == *bytes || is_compressed(name), "{kind}/{name} is no longer written as it was");
    }
    // What fuzzing added is replayed, too.
    let files: Vec<Vec<u8>> =
        fs::read_dir(&directory).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect();
    files.iter().for_each(|file| target(file));
    let seed = std::env::var("FARSIDE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| OsRandomness.next_u64());
    println!("{kind}: seed {seed} (FARSIDE_SEED={seed} repeats this run)");
    let mut random = SmallRng::seed_from_u64(seed);
    let (begin, mut inputs) = (Instant::now(), 0);
    while begin.elapsed() < HALF {
        let mut input = files[random.random_range(0..files.len())].clone();
        let other = &files[random.random_range(0..files.len())];
        mutate(&mut input, other, &mut random);
        let outcome = catch_unwind(|| target(&input));
        assert!(outcome.is_ok(), "{kind} input {input:02x?} breaks a promise (seed {seed})");
        inputs += 1;
    }
    println!("{kind}: {inputs} mutations");
}

fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut SmallRng) {
    for _ in 0..random.random_range(1..=4) {
        let at = random.random_range(0..=bytes.len());
        match random.random_range(0..6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
            // Heads are short and decide most.
            1 if !bytes.is_empty() => {
                let at = random.random_range(0..bytes.len().min(100));
                bytes[at] = random.random();
            }
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.random()),
            4 => {
                let from = random.random_range(0..=other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => bytes.extend_from_within(at..),
        }
        bytes.truncate(INPUT_BYTES_MAX);
    }
}

#[test]
fn blocks_and_what_is_nearly_one() {
    corpus("block", blocks(), fuzz_block);
}

#[test]
fn holdings_and_what_is_nearly_one() {
    corpus("holdings", holdings(), fuzz_holdings);
}

#[test]
fn containers_and_what_is_nearly_one() {
    corpus("container", containers(), fuzz_container);
}

#[test]
fn what_the_name_of_a_block_says_is_true() {
    let scratch = Scratch::new();
    let store = scratch.open(SECRET, OWN);
    let decoded = |block: &[u8]| {
        let mut out = Vec::new();
        // What the one before made it give up is there again.
        store.clear(None);
        let decoded = StreamDecoder::new(small_realm(&store)).decode(block, &mut out);
        decoded.map(|()| out)
    };
    let missing = noise(9, 700);
    let references = by_hand(4, &all_of_theirs(), &reference(u64::from(CHUNKS), 0), &[]);
    assert!(decoded(&references).is_ok_and(|out| out == all_of_theirs()));
    let (_, patched) = blocks().swap_remove(0);
    let mut patched = &patched[..];
    crate::varint::take(&mut patched).unwrap();
    assert!(decoded(patched).is_ok_and(|out| out[40..] == chunk(1)[40..]));
    let again = |place| decoded(&by_hand(4, &missing, &reference(1, place), &[])).unwrap_err();
    assert!(matches!(again(CHUNKS), DecodeError::Again { missing: Some(_), .. }));
    assert!(matches!(again(0), DecodeError::Again { missing: None, .. }));
}
