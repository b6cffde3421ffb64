//! Two sites, and streams between them.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::sync::Arc;

use farside_chunks::store::News;
use farside_chunks::stream::{BLOCK_BYTES_MAX, DecodeError, stream_bytes_of};
use farside_chunks::{
    ChunkStore, Holdings, KnownAtPeer, Realm, RealmId, StoreSettings, StreamDecoder, StreamEncoder,
    StreamSettings, Wanted,
};
use parking_lot::Mutex;

/// What both sites remember for each other.
pub const REALM: RealmId = RealmId([1; 16]);

/// One write, with a flush at the end.
pub const BULK: [usize; 1] = [usize::MAX];

/// Bytes of a seed: noise, or text of a few words.
pub fn bytes(seed: u64, length: usize, is_text: bool) -> Vec<u8> {
    let mut reader = blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof();
    let mut bytes = vec![0; length];
    reader.fill(&mut bytes);
    if is_text {
        const WORDS: [&[u8]; 8] =
            [b"select ", b"from ", b"where ", b"mirror ", b"volume ", b"12345 ", b"snapshot ", b"\n"];
        let words = bytes.iter().flat_map(|byte| WORDS[usize::from(byte % 8)].iter().copied());
        return words.take(length).collect();
    }
    bytes
}

pub struct Site {
    pub store: ChunkStore,
    pub realm: Realm,
    pub news: News,
    /// What the other holds.
    pub known: Arc<Mutex<KnownAtPeer>>,
}

impl Site {
    pub fn of(store: ChunkStore) -> Site {
        let realm = store.realm(REALM);
        let news = realm.listen();
        Site { store, realm, news, known: Arc::default() }
    }

    pub fn tell(&self, other: &Site) {
        loop {
            let news = self.news.take();
            if news.0.is_empty() {
                break;
            }
            let mut message = Vec::new();
            assert!(news.encode(&mut message).0.is_empty());
            other.known.lock().heed(&Holdings::decode(&message).unwrap());
        }
    }
}

pub struct Pair {
    pub a: Site,
    pub b: Site,
    _directories: [tempfile::TempDir; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    pub wire: usize,
    pub blocks: usize,
    pub asked: usize,
}

impl Pair {
    pub fn new() -> Pair {
        Pair::of_size(64 << 20)
    }

    pub fn of_size(bytes: u64) -> Pair {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [a, b] = [&directories[0], &directories[1]]
            .map(|directory| Site::of(ChunkStore::open(directory.path(), StoreSettings { bytes }).unwrap()));
        Pair { a, b, _directories: directories }
    }

    /// Sends a stream in writes of those sizes, each with a flush, and compares what comes out.
    pub fn send(from: &Site, to: &Site, stream: &[u8], writes: &[usize]) -> Cost {
        Pair::send_with(StreamSettings::default(), from, to, stream, writes)
    }

    pub fn send_with(
        settings: StreamSettings,
        from: &Site,
        to: &Site,
        stream: &[u8],
        writes: &[usize],
    ) -> Cost {
        let mut encoder = StreamEncoder::new(from.realm.clone(), from.known.clone(), settings);
        let mut decoder = StreamDecoder::new(to.realm.clone());
        let (mut cost, mut came) = (Cost::default(), Vec::new());
        let mut writes = writes.iter().cycle();
        let mut rest = stream;
        while !rest.is_empty() {
            let (mut write, after) = rest.split_at((*writes.next().unwrap()).clamp(1, rest.len()));
            rest = after;
            while !write.is_empty() {
                let mut block = Vec::new();
                let is_flush = write.len() <= BLOCK_BYTES_MAX;
                let encoded = encoder.encode(write, is_flush, &mut block);
                assert!(encoded.consumed > 0 && (!is_flush || encoded.consumed == write.len()));
                let (said, left) = write.split_at(encoded.consumed);
                write = left;
                (cost.blocks, cost.wire) = (cost.blocks + 1, cost.wire + block.len());
                assert_eq!(stream_bytes_of(&block), Some(said.len()));
                match decoder.decode(&block, &mut came) {
                    Ok(()) => {}
                    Err(DecodeError::Again { missing, wanted }) => {
                        assert!(encoded.may_be_asked_for() && wanted == Wanted::of(said));
                        encoder.heed_missing(missing);
                        let mut plain = Vec::new();
                        encoder.answer(said, &mut plain);
                        decoder.decode_answer(&plain, &wanted, &mut came).unwrap();
                        (cost.asked, cost.wire) = (cost.asked + 1, cost.wire + plain.len());
                    }
                    Err(other) => panic!("{other}"),
                }
                assert!(came == stream[..came.len()], "other bytes");
            }
        }
        assert_eq!(came.len(), stream.len());
        to.tell(from);
        from.tell(to);
        cost
    }
}
