//! The fuzz targets of this crate, callable from a fuzzer and from tests alike. Whatever the bytes are: no panic, nothing
//! beyond the limits, and what is handed out is right.
//!
//! Each input gets a store of its own in the directory for temporary files, with a key and an origin that are always the
//! same. So an input does the same each time, and the committed ones can name what is in the store.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_platform::{ManualClock, Timestamp};

use crate::container::{FILE_BYTES_MAX, HEADER, Sealed, TRAILER, header};
use crate::cut::CHUNK_MAX;
use crate::known::{HOLDINGS_MAX, Holdings, KnownAtPeer};
use crate::name::{ChunkName, ContainerName, OriginId, RealmId, hex};
use crate::ranges::Ranges;
use crate::store::{ChunkStore, Realm, STORE_MIN, StoreSettings};
use crate::stream::{BLOCK_BYTES_MAX, DecodeError, StreamDecoder, stream_bytes_of};
use crate::varint::take;

/// Whose chunks these are.
pub(crate) const REALM: RealmId = RealmId(*b"realm of fuzzing");
/// Who made the containers of this site.
pub(crate) const OWN: OriginId = OriginId(*b"this site's own.");
/// A container of the peer; each store has its first [`CHUNKS`] chunks.
pub(crate) const THEIRS: ContainerName = ContainerName { origin: OriginId(*b"the other site's"), number: 7 };
/// Chunks that each store begins with.
pub(crate) const CHUNKS: u16 = 3;

/// Of each store.
pub(crate) const SECRET: [u8; 32] = *b"a key of which everybody knows..";

/// A directory that goes when it is no longer used.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("farside-chunks-{}-{number}", std::process::id()));
        // One of a process that was killed.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory for temporary files");
        Scratch(path)
    }

    /// The store there, with what every other one has that was opened so.
    pub(crate) fn open(&self, secret: [u8; 32], origin: OriginId) -> ChunkStore {
        fs::write(self.0.join("key"), secret).expect("a file in a directory for temporary files");
        let clock = Arc::new(ManualClock::new(Timestamp(0)));
        let store = ChunkStore::open_as(&self.0, StoreSettings { bytes: STORE_MIN }, clock, origin);
        store.expect("a store in a directory of its own")
    }

    /// The file of a container.
    pub(crate) fn file_of(&self, realm: RealmId, name: ContainerName) -> PathBuf {
        let realm = self.0.join("realms").join(hex(&realm.0));
        realm.join(hex(&name.origin.0)).join(format!("{}.chunks", name.number))
    }

    /// Writes one that the store finds when it is opened.
    pub(crate) fn write(&self, realm: RealmId, name: ContainerName, bytes: &[u8]) -> PathBuf {
        let path = self.file_of(realm, name);
        let parent = path.parent().unwrap_or(&self.0);
        let written = fs::create_dir_all(parent).and_then(|()| fs::write(&path, bytes));
        written.expect("a file in a directory for temporary files");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Chunk `number` of those that each store begins with: a few hundred bytes.
pub(crate) fn chunk(number: u16) -> Vec<u8> {
    let mut reader = blake3::Hasher::new().update(&number.to_le_bytes()).finalize_xof();
    let mut bytes = vec![0; 600 + 100 * usize::from(number)];
    reader.fill(&mut bytes);
    bytes
}

/// The realm of a store that holds [`CHUNKS`] chunks of the peer.
pub(crate) fn small_realm(store: &ChunkStore) -> Realm {
    let realm = store.realm(REALM);
    for place in 0..CHUNKS {
        let kept = realm.keep_as(ChunkName { container: THEIRS, place }, &chunk(place));
        assert!(kept.is_ok_and(|is_kept| is_kept));
    }
    realm
}

/// Any bytes as the blocks of a stream, each after its length (LEB128). What comes after a block that is to be asked for again
/// is taken for the answer.
pub fn fuzz_block(mut bytes: &[u8]) {
    const BEFORE: &[u8] = b"what was there";
    let scratch = Scratch::new();
    let store = scratch.open(SECRET, OWN);
    let realm = small_realm(&store);
    let mut decoder = StreamDecoder::new(realm.clone());
    let mut wanted = None;
    while let Some(length) = take(&mut bytes) {
        let length = usize::try_from(length).map_or(bytes.len(), |length| length.min(bytes.len()));
        let (block, rest) = bytes.split_at(length);
        bytes = rest;
        let said = stream_bytes_of(block);
        assert!(said.is_none_or(|said| (1..=BLOCK_BYTES_MAX).contains(&said)));
        let mut out = BEFORE.to_vec();
        let decoded = match wanted.take() {
            Some(wanted) => decoder.decode_answer(block, &wanted, &mut out),
            None => decoder.decode(block, &mut out),
        };
        let came = out.strip_prefix(BEFORE).map(<[u8]>::len);
        match decoded {
            Ok(()) => assert_eq!(came, said),
            Err(DecodeError::Again { wanted: again, .. }) => {
                assert_eq!((came, said), (Some(0), Some(again.stream_bytes())));
                wanted = Some(again);
            }
            Err(DecodeError::Malformed(_)) => {
                assert_eq!(came, Some(0));
                break;
            }
        }
    }
    // What the store has of it can be told to the peer, in a few ranges each.
    let (said, mut message) = (realm.listen().take(), Vec::new());
    assert!(said.clone().encode(&mut message).0.is_empty());
    let heard = Holdings::decode(&message).unwrap_or_default();
    let is_same = |((a, held), (b, heard)): (&(ContainerName, Ranges), &(ContainerName, Ranges))| {
        a == b && held.pairs() == heard.pairs()
    };
    assert!(said.0.len() == heard.0.len() && said.0.iter().zip(&heard.0).all(is_same));
}

/// Any bytes as what a peer says of its store.
pub fn fuzz_holdings(bytes: &[u8]) {
    let Some(holdings) = Holdings::decode(bytes) else { return };
    assert!(holdings.0.len() <= HOLDINGS_MAX && holdings.0.is_sorted_by(|a, b| a.0 < b.0));
    let mut message = Vec::new();
    assert!(holdings.clone().encode(&mut message).0.is_empty());
    assert_eq!(Holdings::decode(&message).as_ref(), Some(&holdings), "what was heard is said the same");
    let mut known = KnownAtPeer::default();
    known.heed(&holdings);
    for (container, ranges) in &holdings.0 {
        assert_eq!(known.holds_some_of(*container), !ranges.is_empty());
        for (first, end) in ranges.pairs() {
            let name = |place: u16| ChunkName { container: *container, place };
            assert!(known.holds(name(*first)) && known.holds(name(end - 1)) && !known.holds(name(*end)));
        }
        ranges.pairs().iter().for_each(|(place, _)| {
            known.forget(ChunkName { container: *container, place: *place });
        });
        assert!(!known.holds_some_of(*container));
    }
}

/// Any bytes as the file of a container. With bit 0 of the first byte the header is put right before the file is read, with bit 1
/// the sum of the directory: a fuzzer finds neither.
pub fn fuzz_container(bytes: &[u8]) {
    let Some((&first, file)) = bytes.split_first() else { return };
    let mut file = file.to_vec();
    if first & 1 != 0 && file.len() >= HEADER {
        file[..HEADER].copy_from_slice(&header(REALM, THEIRS));
    }
    if first & 2 != 0 {
        mend_directory(&mut file);
    }
    let scratch = Scratch::new();
    let path = scratch.write(REALM, THEIRS, &file);
    read_as_container(&path);
    // What the store makes of the file as it was.
    let path = scratch.write(REALM, THEIRS, &file);
    let store = scratch.open(SECRET, OWN);
    while store.load_next() {}
    let realm = store.realm(REALM);
    let mut chunk = Vec::new();
    for place in 0..=CHUNKS {
        let name = ChunkName { container: THEIRS, place };
        if realm.read(name, &mut chunk).is_ok() {
            assert!((1..=CHUNK_MAX).contains(&chunk.len()));
            let found = realm.find(&realm.fingerprint(&chunk), |found| found == name);
            assert!(found.is_some(), "what is read is found");
        }
    }
    let stats = store.stats();
    assert!(stats.damaged <= 1 && stats.containers + stats.damaged <= 1 && stats.bytes <= FILE_BYTES_MAX);
    assert_eq!(path.exists(), stats.containers == 1, "what is damaged is removed");
}

fn read_as_container(path: &Path) {
    let Ok(opened) = Sealed::open(path, REALM, THEIRS) else { return };
    let had_directory = opened.is_some();
    let sealed = match opened {
        Some(sealed) => sealed,
        None => match Sealed::recover(path, REALM, THEIRS) {
            Ok(sealed) => sealed,
            Err(_) => return,
        },
    };
    let mut chunk = Vec::new();
    for entry in sealed.entries().iter().filter(|entry| entry.length > 0) {
        assert!(sealed.read(entry, &mut chunk).is_ok() && chunk.len() == entry.length as usize);
        assert!(chunk.len() <= CHUNK_MAX);
    }
    if !had_directory {
        let again = Sealed::open(path, REALM, THEIRS);
        let entries = again.ok().flatten().map(|again| again.entries().to_vec());
        assert_eq!(entries.as_deref(), Some(sealed.entries()), "it got a directory");
    }
}

/// Gives the directory that the file ends with its right sum.
fn mend_directory(file: &mut [u8]) {
    let Some(at) = file.len().checked_sub(TRAILER) else { return };
    let (before, trailer) = file.split_at_mut(at);
    let count = u32::from_le_bytes([trailer[8], trailer[9], trailer[10], trailer[11]]) as usize;
    let start = count.checked_mul(crate::container::ENTRY).and_then(|bytes| at.checked_sub(bytes));
    if let Some(start) = start {
        trailer[..8].copy_from_slice(&xxhash_rust::xxh3::xxh3_64(&before[start..]).to_le_bytes());
    }
}
