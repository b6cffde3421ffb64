//! Bytes of this version, as they lie on the disk and on the wire: made once, read by every later build, and written the
//! same by it for the same input.
//!
//! Once a version is released its files may never be made again: if this test fails, the code is wrong, not the file. Another
//! version gets files of its own beside these. `FARSIDE_MAKE_GOLDEN=1` writes those that are not there.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::noise;
use crate::container::{HEADER, Sealed};
use crate::cut::first_chunk;
use crate::fuzz::Scratch;
use crate::known::{Holdings, KnownAtPeer};
use crate::name::{ChunkName, ContainerName, OriginId, RealmId};
use crate::ranges::Ranges;
use crate::store::{ChunkStore, Realm};
use crate::stream::{
    CHUNK_KEPT_MIN, DecodeError, StreamDecoder, StreamEncoder, StreamSettings, Wanted, stream_bytes_of,
};

const REALM: RealmId = RealmId([0x11; 16]);
const A: OriginId = OriginId([0xaa; 16]);
const B: OriginId = OriginId([0xbb; 16]);
const SECRET: [u8; 32] = [0x33; 32];

/// What B has given to A before.
const GIVEN: ContainerName = ContainerName { origin: B, number: 1000 };

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v2").join(name)
}

fn committed(name: &str, now: &[u8]) -> Vec<u8> {
    let path = path(name);
    if std::env::var_os("FARSIDE_MAKE_GOLDEN").is_some() && !path.exists() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, now).unwrap();
    }
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn given() -> Vec<u8> {
    noise(1, 3000)
}

fn new() -> Vec<u8> {
    noise(2, 30_000)
}

/// New bytes before known ones, and an end that is too short for a chunk.
fn mixed() -> Vec<u8> {
    let mut bytes = [noise(3, 5000), new()].concat();
    let (mut at, mut last) = (0, 0);
    while let Some(length) = first_chunk(&bytes[at..], true) {
        (last, at) = (at, at + length);
    }
    bytes.truncate(last + 100);
    bytes
}

/// What was new, and is a little changed in each chunk.
fn patched() -> Vec<u8> {
    let mut bytes = new();
    let mut at = 0;
    while let Some(length) = first_chunk(&new()[at..], true) {
        bytes[at + length / 2..at + length / 2 + 7].copy_from_slice(b"changed");
        at += length;
    }
    bytes
}

/// What A says: the name of the block, the bytes that it stands for, and its flags.
fn stream() -> [(&'static str, Vec<u8>, u8); 8] {
    let text = |from: u32| -> Vec<u8> {
        (from..from + 300).flat_map(|n| format!("row {n:05};").into_bytes()).collect()
    };
    [
        ("block-1-new", new(), 0),
        ("block-2-references", new(), 4),
        ("block-3-of-the-peer", given(), 4),
        ("block-4-mixed", mixed(), 4),
        ("block-5-compressed", text(0), 3),
        ("block-6-goes-on", text(1000), 1),
        // As of a stream that refers to nothing.
        ("block-7-literal", b"nothing of this is kept".to_vec(), 0),
        ("block-8-patched", patched(), 4),
    ]
}

/// The blocks that A writes, an answer, and the store that they are from.
fn say(scratch: &Scratch) -> (Vec<Vec<u8>>, Vec<u8>, ChunkStore) {
    let store = scratch.open(SECRET, A);
    let realm = store.realm(REALM);
    assert!(realm.keep_as(ChunkName { container: GIVEN, place: 5 }, &given()).unwrap());
    let mut known = KnownAtPeer::default();
    known.heed(&Holdings(vec![(GIVEN, Ranges::of([5]))]));
    let plain = StreamSettings { compresses: false, ..StreamSettings::default() };
    let mut encoder = StreamEncoder::new(realm.clone(), Arc::new(Mutex::new(known)), plain);
    let blocks = stream().map(|(name, bytes, _)| {
        match name {
            "block-5-compressed" => encoder.set(StreamSettings::default()),
            "block-8-patched" => encoder.set(plain),
            "block-7-literal" => encoder.set(StreamSettings { refers: false, ..plain }),
            _ => {}
        }
        let mut block = Vec::new();
        assert_eq!(encoder.encode(&bytes, true, &mut block).consumed, bytes.len());
        block
    });
    let mut answer = Vec::new();
    encoder.set(plain);
    encoder.answer(&new(), &mut answer);
    realm.begin_anew();
    (blocks.to_vec(), answer, store)
}

fn told() -> Holdings {
    let container = |origin, number| ContainerName { origin, number };
    Holdings(vec![
        (container(A, 0), Ranges::of(0..1500)),
        (container(A, 1), Ranges::of((0..10).chain(12..13).chain(4000..4096))),
        (container(A, 300), Ranges::default()),
        (GIVEN, Ranges::of([5])),
    ])
}

/// What zstd writes depends on its version: such blocks are read, and not compared.
fn is_pinned(name: &str) -> bool {
    !matches!(name, "block-5-compressed" | "block-6-goes-on")
}

#[test]
fn blocks_are_written_as_ever() {
    let scratch = Scratch::new();
    let (blocks, answer, _store) = say(&scratch);
    for ((name, bytes, flags), block) in stream().iter().zip(&blocks) {
        let committed = committed(name, block);
        assert!(!is_pinned(name) || committed == *block, "{name} is written otherwise");
        assert_eq!((committed[0], block[0]), (*flags, *flags), "{name}");
        assert!(*flags != 4 || committed.len() < bytes.len() / 2, "{name} refers");
    }
    assert!(committed("answer", &answer) == answer, "an answer is written otherwise");
    let mut message = Vec::new();
    told().encode(&mut message);
    assert!(committed("holdings", &message) == message, "holdings are written otherwise");
}

#[test]
fn blocks_are_read_as_ever() {
    let (of_a, of_b) = (Scratch::new(), Scratch::new());
    let (blocks, answer, _store) = say(&of_a);
    let store = of_b.open(SECRET, OriginId([0xbc; 16]));
    let realm = store.realm(REALM);
    assert!(realm.keep_as(ChunkName { container: GIVEN, place: 5 }, &given()).unwrap());
    let mut decoder = StreamDecoder::new(realm.clone());
    let (mut out, mut said) = (Vec::new(), 0);
    for ((name, bytes, _), block) in stream().iter().zip(&blocks) {
        let block = committed(name, block);
        decoder.decode(&block, &mut out).unwrap();
        assert!(out[said..] == *bytes && stream_bytes_of(&block) == Some(bytes.len()), "{name}");
        said = out.len();
    }
    let mut out = Vec::new();
    decoder.decode_answer(&committed("answer", &answer), &Wanted::of(&new()), &mut out).unwrap();
    assert!(out == new());
    let mut message = Vec::new();
    told().encode(&mut message);
    assert_eq!(Holdings::decode(&committed("holdings", &message)), Some(told()));
    // B now has what A has, under the same names.
    holds_what_was_said(&realm);
}

/// Version 1 did not say how long a history is. Accelerators of different versions exchange no blocks; what gets here all the same
/// is refused, and not taken for something else.
#[test]
fn a_compressed_block_of_version_1_is_refused() {
    let block = fs::read(path("../v1/block-5-compressed")).unwrap();
    let scratch = Scratch::new();
    let store = scratch.open(SECRET, B);
    let refused = StreamDecoder::new(store.realm(REALM)).decode(&block, &mut Vec::new());
    assert!(matches!(refused, Err(DecodeError::Malformed(_))), "{refused:?}");
    assert_eq!(stream_bytes_of(&block), None);
}

/// The chunks of the stream's first block, which are the first of A's first container.
fn holds_what_was_said(realm: &Realm) {
    let (mut at, mut place, mut chunk) = (0, 0, Vec::new());
    while let Some(length) = first_chunk(&new()[at..], true).filter(|length| *length >= CHUNK_KEPT_MIN) {
        let name = ChunkName { container: ContainerName { origin: A, number: 0 }, place };
        realm.read(name, &mut chunk).unwrap();
        assert!(chunk == new()[at..at + length], "chunk {place}");
        let found = realm.find(&realm.fingerprint(&chunk), |_| true);
        assert_eq!(found.map(|cursor| cursor.name()), Some(name));
        (at, place) = (at + length, place + 1);
    }
    assert!(place > 1);
}

#[test]
fn a_container_is_written_and_read_as_ever() {
    let name = ContainerName { origin: A, number: 0 };
    let scratch = Scratch::new();
    let (_, _, store) = say(&scratch);
    let now = fs::read(scratch.file_of(REALM, name)).unwrap();
    drop(store);
    let container = committed("container.chunks", &now);
    assert!(container == now, "a container is written otherwise");
    // Of a process that was killed before it wrote the directory: the directory is made, and it is the same.
    let entries = {
        let scratch = Scratch::new();
        let path = scratch.write(REALM, name, &container);
        Sealed::open(&path, REALM, name).unwrap().unwrap().entries().to_vec()
    };
    let records_end = entries.iter().map(|entry| (entry.offset + entry.length) as usize).max().unwrap();
    for file in [&container[..], &container[..records_end]] {
        let scratch = Scratch::new();
        let path = scratch.write(REALM, name, file);
        let store = scratch.open(SECRET, B);
        while store.load_next() {}
        holds_what_was_said(&store.realm(REALM));
        assert!(fs::read(path).unwrap() == container);
    }
    // One of a release whose blocks were of version 1: containers are the same.
    let scratch = Scratch::new();
    scratch.write(REALM, name, &fs::read(path("../v1/container.chunks")).unwrap());
    let store = scratch.open(SECRET, B);
    while store.load_next() {}
    holds_what_was_said(&store.realm(REALM));
}

#[test]
fn a_container_of_another_version_is_removed() {
    let name = ContainerName { origin: A, number: 0 };
    let scratch = Scratch::new();
    drop(say(&scratch));
    let mut file = fs::read(scratch.file_of(REALM, name)).unwrap();
    file[8] += 1;
    let sum = xxhash_rust::xxh3::xxh3_64(&file[..HEADER - 8]);
    file[HEADER - 8..HEADER].copy_from_slice(&sum.to_le_bytes());
    let scratch = Scratch::new();
    let path = scratch.write(REALM, name, &file);
    let store = scratch.open(SECRET, B);
    assert_eq!(store.stats().containers, 1);
    while store.load_next() {}
    assert_eq!((store.stats().containers, store.stats().damaged, path.exists()), (0, 1, false));
}

#[test]
fn the_layout_is_what_the_page_says() {
    let scratch = Scratch::new();
    drop(say(&scratch));
    let file = fs::read(scratch.file_of(REALM, ContainerName { origin: A, number: 0 })).unwrap();
    let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    // docs/format.md, typed in.
    assert_eq!((&file[..8], number(8), number(12)), (&b"FSCHUNKS"[..], 1, 0));
    assert_eq!(
        (&file[16..32], &file[32..48], &file[48..56]),
        (&[0x11; 16][..], &[0xaa; 16][..], &[0; 8][..])
    );
    let length = number(64) as usize;
    assert_eq!((&file[68..70], &file[70..72]), (&[0, 0][..], &b"CK"[..]));
    let chunk = &file[88..88 + length];
    assert!(new().starts_with(chunk));
    let of_realm = blake3::keyed_hash(&SECRET, &[0x11; 16]);
    let fingerprint = blake3::keyed_hash(of_realm.as_bytes(), chunk);
    assert_eq!(file[72..88], fingerprint.as_bytes()[..16]);
    let end = file.len();
    assert_eq!((&file[end - 8..], number(end - 12)), (&b"FSCHNKDR"[..], 0));
    let places = number(end - 16) as usize;
    let directory = &file[end - 24 - 24 * places..end - 24];
    assert_eq!(file[end - 24..end - 16], xxhash_rust::xxh3::xxh3_64(directory).to_le_bytes());
    assert_eq!(directory[..8], [88u32.to_le_bytes(), (length as u32).to_le_bytes()].concat());
    assert_eq!(directory[8..24], file[72..88]);
}
