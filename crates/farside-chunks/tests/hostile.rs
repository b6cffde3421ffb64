//! A peer that means harm, files that somebody else put there, and restarts at the wrong moment: what they may cost.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farside_chunks::cut::first_chunk;
use farside_chunks::store::{News, STORE_MIN};
use farside_chunks::stream::DecodeError;
use farside_chunks::{
    ChunkName, ChunkStore, ContainerName, Holdings, KnownAtPeer, OriginId, Ranges, Realm, RealmId,
    StoreSettings, StreamDecoder, StreamEncoder, StreamSettings,
};
use parking_lot::Mutex;

const REALM: RealmId = RealmId([1; 16]);
const OTHER_REALM: RealmId = RealmId([2; 16]);

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut reader = blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof();
    let mut bytes = vec![0; length];
    reader.fill(&mut bytes);
    bytes
}

fn open(path: &Path) -> ChunkStore {
    ChunkStore::open(path, StoreSettings { bytes: STORE_MIN }).unwrap()
}

fn name(origin: u64, number: u64, place: u16) -> ChunkName {
    let mut id = [9; 16];
    id[..8].copy_from_slice(&origin.to_le_bytes());
    ChunkName { container: ContainerName { origin: OriginId(id), number }, place }
}

/// Directories and files below `path`.
fn count(path: &Path) -> (usize, Vec<PathBuf>) {
    let (mut directories, mut files) = (0, Vec::new());
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            let below = count(&entry.path());
            (directories, files) = (directories + 1 + below.0, [files, below.1].concat());
        } else {
            files.push(entry.path());
        }
    }
    (directories, files)
}

fn keep(realm: &Realm, chunk: &[u8]) -> ChunkName {
    realm.keep(&realm.fingerprint(chunk), chunk).unwrap()
}

struct End {
    realm: Realm,
    news: News,
    /// What the other holds.
    known: Arc<Mutex<KnownAtPeer>>,
}

impl End {
    fn of(store: &ChunkStore) -> End {
        let realm = store.realm(REALM);
        End { news: realm.listen(), known: Arc::default(), realm }
    }
}

/// Bytes on the wire, and how often it was asked.
fn send(from: &End, to: &End, stream: &[u8]) -> (usize, usize) {
    let mut encoder = StreamEncoder::new(from.realm.clone(), from.known.clone(), StreamSettings::default());
    let mut decoder = StreamDecoder::new(to.realm.clone());
    let (mut wire, mut asked, mut at, mut came) = (0, 0, 0, Vec::new());
    while at < stream.len() {
        let mut block = Vec::new();
        let encoded = encoder.encode(&stream[at..], true, &mut block);
        wire += block.len();
        match decoder.decode(&block, &mut came) {
            Ok(()) => {}
            Err(DecodeError::Again { missing, wanted }) => {
                asked += 1;
                encoder.heed_missing(missing);
                let mut answer = Vec::new();
                encoder.answer(&stream[at..at + encoded.consumed], &mut answer);
                wire += answer.len();
                decoder.decode_answer(&answer, &wanted, &mut came).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
        at += encoded.consumed;
    }
    assert!(came == stream, "other bytes");
    from.known.lock().heed(&to.news.take());
    to.known.lock().heed(&from.news.take());
    (wire, asked)
}

#[test]
fn what_cannot_be_kept_begins_no_container() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let realm = store.realm(REALM);
    for number in 0..3000 {
        assert!(!realm.keep_as(name(1, number, 4096), &noise(number, 600)).unwrap());
        assert!(!realm.keep_as(name(2, number, 0), &[]).unwrap());
    }
    assert_eq!(store.stats().containers, 0);
}

#[test]
fn many_containers_of_one_realm_push_out_their_own_and_leave_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let (others, realm) = (store.realm(OTHER_REALM), store.realm(REALM));
    let chunks: Vec<Vec<u8>> = (0..5000).map(|seed| noise(seed, 8000)).collect();
    for chunk in &chunks {
        keep(&others, chunk);
    }
    let news = realm.listen();
    for number in 0..3000 {
        realm.keep_as(name(number, number, 0), &[7; 512]).unwrap();
    }
    let kept = chunks.iter().filter(|chunk| others.find(&others.fingerprint(chunk), |_| true).is_some());
    assert_eq!(kept.count(), chunks.len(), "of the other realm");
    let (directories, files) = count(directory.path());
    assert!(files.len() <= 258 && directories <= 260, "{} files, {directories} directories", files.len());
    assert!(news.take().0.len() <= 4096);
}

#[test]
fn a_container_may_come_in_any_order() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let realm = store.realm(REALM);
    for place in (0..4096).rev() {
        assert!(realm.keep_as(name(1, 0, place), &noise(u64::from(place), 600)).unwrap());
    }
    let mut chunk = Vec::new();
    for place in 0..4096 {
        realm.read(name(1, 0, place), &mut chunk).unwrap();
        assert!(chunk == noise(u64::from(place), 600));
    }
}

#[test]
fn a_damaged_directory_is_not_taken_for_chunks() {
    let directory = tempfile::tempdir().unwrap();
    // The first is short: then an entry of the directory could be a record's head.
    let chunk = |seed: u64| noise(seed, if seed == 0 { 2500 } else { 5000 });
    let names: Vec<ChunkName> = {
        let store = open(directory.path());
        let realm = store.realm(REALM);
        (0..3000).map(|seed| keep(&realm, &chunk(seed))).collect()
    };
    {
        let store = open(directory.path());
        while store.load_next() {}
    }
    let file = count(directory.path()).1.into_iter().find(|file| file.ends_with("0.chunks")).unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes.len() - 3;
    bytes[at] ^= 1;
    fs::write(&file, bytes).unwrap();
    let store = open(directory.path());
    let realm = store.realm(REALM);
    let mut read = Vec::new();
    for (seed, name) in names.iter().enumerate().rev() {
        realm.read(*name, &mut read).unwrap();
        assert!(read == chunk(seed as u64));
    }
}

#[test]
fn files_of_absurd_size_push_out_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let names: Vec<ChunkName> = {
        let store = open(directory.path());
        let realm = store.realm(REALM);
        (0..100).map(|seed| keep(&realm, &noise(seed, 8000))).collect()
    };
    let origin = directory.path().join("realms").join("01".repeat(16)).join("07".repeat(16));
    fs::create_dir(&origin).unwrap();
    for (number, bytes) in [(0u64, 1u64 << 40), (1, 1 << 43), (u64::MAX, 1 << 25)] {
        fs::File::create(origin.join(format!("{number}.chunks"))).unwrap().set_len(bytes).unwrap();
    }
    fs::write(origin.join("no-number.chunks"), "somebody else's").unwrap();
    let store = open(directory.path());
    while store.load_next() {}
    let realm = store.realm(REALM);
    assert!(names.iter().all(|name| realm.read(*name, &mut Vec::new()).is_ok()));
    assert!(origin.join("no-number.chunks").exists());
}

#[test]
fn a_file_that_was_left_behind_is_in_nobodys_way() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let realm = store.realm(REALM);
    let name = name(1, 5, 0);
    let hex: String = name.container.origin.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let origin = directory.path().join("realms").join("01".repeat(16)).join(hex);
    fs::create_dir_all(&origin).unwrap();
    fs::write(origin.join("5.chunks"), "").unwrap();
    assert!(realm.keep_as(name, &noise(1, 600)).unwrap());
}

#[test]
fn a_receiver_that_restarts_remembers_what_comes_after() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let a = open(directories[0].path());
    let at_a = End::of(&a);
    {
        let b = open(directories[1].path());
        send(&at_a, &End::of(&b), &noise(1, 1 << 20));
    }
    let b = open(directories[1].path());
    while b.load_next() {}
    let at_b = End::of(&b);
    // A new session.
    at_a.realm.begin_anew();
    at_a.known.lock().clear();
    at_a.known.lock().heed(&at_b.news.take());
    let stream = noise(2, 10 << 20);
    assert_eq!(send(&at_a, &at_b, &stream).1, 0);
    assert!(send(&at_a, &at_b, &stream).0 < 5000);
    assert!(send(&at_a, &at_b, &noise(1, 1 << 20)).0 < 5000, "what came before, too");
    let part = noise(3, 3 << 20);
    let (wire, asked) = send(&at_a, &at_b, &[part.clone(), part.clone(), part].concat());
    assert!(wire < 3_200_000 && asked == 0, "a stream that repeats itself: {wire}, {asked}");
}

#[test]
fn a_stream_that_meets_more_origins_than_it_can_name_goes_on() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let large = |path: &Path| ChunkStore::open(path, StoreSettings { bytes: 512 << 20 }).unwrap();
    let (a, b) = (large(directories[0].path()), large(directories[1].path()));
    let (at_a, at_b) = (End::of(&a), End::of(&b));
    // As many restarts as chunks, and both sites have what came from each.
    let stream = noise(7, 5 << 20);
    let (mut at, mut origin) = (0, 0);
    while let Some(length) = first_chunk(&stream[at..], true) {
        let (name, chunk) = (name(origin, 0, 0), &stream[at..at + length]);
        assert!(at_a.realm.keep_as(name, chunk).unwrap() && at_b.realm.keep_as(name, chunk).unwrap());
        at_a.known.lock().heed(&Holdings(vec![(name.container, Ranges::of([0]))]));
        (at, origin) = (at + length, origin + 1);
    }
    assert!(origin > 400);
    let (wire, asked) = send(&at_a, &at_b, &stream);
    assert!(wire < stream.len() * 2 / 3 && asked == 0, "{wire} {asked}");
}

#[test]
fn other_content_under_a_name_is_asked_for_once() {
    for length in [4000, 2000] {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (a, b) = (open(directories[0].path()), open(directories[1].path()));
        let (at_a, at_b) = (End::of(&a), End::of(&b));
        at_a.realm.keep_as(name(1, 0, 0), &noise(1, 3000)).unwrap();
        at_b.realm.keep_as(name(1, 0, 0), &noise(2, length)).unwrap();
        at_a.known.lock().heed(&at_b.news.take());
        assert_eq!(send(&at_a, &at_b, &noise(1, 3000)).1, 1);
        assert_eq!(send(&at_a, &at_b, &noise(1, 3000)).1, 0);
        assert!(send(&at_a, &at_b, &noise(1, 3000)).0 < 100);
    }
}

#[test]
fn empty_frames_cost_no_time() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let mut block = vec![3, 20, 0x80, 0x80, 0x40, 0, 0x80, 0x80, 0x40];
    for _ in 0..1 << 17 {
        // A skippable frame of no bytes.
        block.extend_from_slice(&[0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0]);
    }
    let decoded = StreamDecoder::new(store.realm(REALM)).decode(&block, &mut Vec::new());
    assert_eq!(decoded, Err(DecodeError::Malformed("more than one frame")));
}
