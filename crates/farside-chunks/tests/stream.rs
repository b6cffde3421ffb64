//! Streams said in chunks: the same bytes at the other end whatever the stores have lost, and what they cost.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::sync::Arc;

use farside_chunks::store::News;
use farside_chunks::stream::{BLOCK_BYTES_MAX, DecodeError};
use farside_chunks::{
    ChunkStore, KnownAtPeer, Realm, RealmId, StoreSettings, StreamDecoder, StreamEncoder, StreamSettings,
};
use parking_lot::Mutex;
use proptest::prelude::*;

const REALM: RealmId = RealmId([1; 16]);

/// Bytes of a seed: noise, or text of a few words.
fn bytes(seed: u64, length: usize, is_text: bool) -> Vec<u8> {
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

struct Site {
    store: ChunkStore,
    realm: Realm,
    news: News,
    /// What the other holds.
    known: Arc<Mutex<KnownAtPeer>>,
}

impl Site {
    fn open(path: &Path) -> Site {
        let store = ChunkStore::open(path, StoreSettings { bytes: 64 << 20 }).unwrap();
        let realm = store.realm(REALM);
        let news = realm.listen();
        Site { store, realm, news, known: Arc::default() }
    }

    fn tell(&self, other: &Site) {
        loop {
            let news = self.news.take();
            if news.0.is_empty() {
                break;
            }
            let mut message = Vec::new();
            assert!(news.encode(&mut message).0.is_empty());
            other.known.lock().heed(&farside_chunks::Holdings::decode(&message).unwrap());
        }
    }
}

struct Pair {
    a: Site,
    b: Site,
    _directories: [tempfile::TempDir; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cost {
    wire: usize,
    blocks: usize,
    asked: usize,
}

impl Pair {
    fn new() -> Pair {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (a, b) = (Site::open(directories[0].path()), Site::open(directories[1].path()));
        Pair { a, b, _directories: directories }
    }

    /// Sends a stream in writes of those sizes, each with a flush, and compares what comes out.
    fn send(from: &Site, to: &Site, stream: &[u8], writes: &[usize]) -> Cost {
        let mut encoder =
            StreamEncoder::new(from.realm.clone(), from.known.clone(), StreamSettings::default());
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
                match decoder.decode(&block, &mut came) {
                    Ok(()) => {}
                    Err(DecodeError::Again { missing, stream_bytes }) => {
                        assert!(encoded.may_be_asked_for() && stream_bytes == said.len());
                        encoder.heed_missing(missing);
                        let mut plain = Vec::new();
                        encoder.answer(said, &mut plain);
                        decoder.decode_answer(&plain, stream_bytes, &mut came).unwrap();
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

const BULK: [usize; 1] = [usize::MAX];

#[test]
fn what_has_passed_once_passes_as_references_in_both_directions() {
    let pair = Pair::new();
    let stream = bytes(1, 20 << 20, false);
    let cold = Pair::send(&pair.a, &pair.b, &stream, &BULK);
    assert!(cold.wire < stream.len() * 1005 / 1000, "{cold:?}");
    let before = pair.a.store.stats().lookups;
    for (from, to) in [(&pair.a, &pair.b), (&pair.b, &pair.a), (&pair.a, &pair.b)] {
        let warm = Pair::send(from, to, &stream, &BULK);
        assert!(warm.asked == 0 && warm.wire < stream.len() / 10_000, "{warm:?}");
    }
    let lookups = pair.a.store.stats().lookups - before;
    assert!(lookups < 50, "a warm stream asks the index seldom: {lookups}");
    // What is put in front moves everything.
    let moved = [b"something new ".as_slice(), &stream].concat();
    let warm = Pair::send(&pair.a, &pair.b, &moved, &BULK);
    assert!(warm.wire < 100_000, "{warm:?}");
}

#[test]
fn what_is_new_is_compressed_with_what_came_before() {
    let pair = Pair::new();
    let stream = bytes(2, 4 << 20, true);
    let bulk = Pair::send(&pair.a, &pair.b, &stream, &BULK);
    assert!(bulk.wire < stream.len() / 4, "{bulk:?}");
    // A conversation of short messages.
    let chat = Pair::send(&pair.a, &pair.b, &bytes(3, 100_000, true), &[60, 200, 1]);
    assert!(chat.wire < 70_000, "{chat:?}");
}

#[test]
fn nothing_gets_much_larger() {
    let pair = Pair::new();
    let noise = bytes(4, 8 << 20, false);
    for (writes, most) in [(&BULK[..], 1.003), (&[1460], 1.02), (&[16_384], 1.003), (&[1], 8.0)] {
        let stream = if writes == [1] { &noise[..2000] } else { &noise };
        let cost = Pair::send(&pair.a, &Pair::new().b, stream, writes);
        assert!((cost.wire as f64) < stream.len() as f64 * most, "{writes:?} {cost:?}");
    }
}

#[test]
fn a_store_that_is_cleared_costs_bytes_and_nothing_else() {
    let pair = Pair::new();
    let stream = bytes(5, 10 << 20, false);
    Pair::send(&pair.a, &pair.b, &stream, &BULK);
    // B clears, and A has not heard of it.
    pair.b.store.clear(None);
    let again = Pair::send(&pair.a, &pair.b, &stream, &BULK);
    assert!(again.asked > 0 && again.wire < stream.len() * 102 / 100, "{again:?}");
    let warm = Pair::send(&pair.a, &pair.b, &stream, &BULK);
    assert!(warm.wire < 5000 && warm.asked == 0, "{warm:?}");
    // A clears.
    pair.a.store.clear(None);
    let again = Pair::send(&pair.a, &pair.b, &stream, &BULK);
    assert_eq!(again.asked, 0);
    let warm = Pair::send(&pair.a, &pair.b, &stream, &BULK);
    assert!(warm.wire < 5000 && warm.asked == 0, "{warm:?}");
    // B clears what A has from B: A keeps it as its own.
    Pair::send(&pair.b, &pair.a, &bytes(6, 10 << 20, false), &BULK);
    pair.b.store.clear(None);
    pair.b.tell(&pair.a);
    for _ in 0..2 {
        Pair::send(&pair.a, &pair.b, &bytes(6, 10 << 20, false), &BULK);
    }
    let warm = Pair::send(&pair.a, &pair.b, &bytes(6, 10 << 20, false), &BULK);
    assert!(warm.wire < 5000 && warm.asked == 0, "{warm:?}");
}

#[test]
fn histories_may_be_dropped_and_settings_change_at_any_block() {
    let pair = Pair::new();
    let mut encoder =
        StreamEncoder::new(pair.a.realm.clone(), pair.a.known.clone(), StreamSettings::default());
    let mut decoder = StreamDecoder::new(pair.b.realm.clone());
    for round in 0..60u64 {
        let part = bytes(round, 3000, true);
        let (mut block, mut came) = (Vec::new(), Vec::new());
        match round % 6 {
            1 => encoder.drop_history(),
            2 => encoder
                .set(StreamSettings { level: 1 + (round % 9) as i32, window_log: 16 + (round % 8) as u32 }),
            3 => {
                encoder.drop_history();
                decoder.drop_history();
            }
            _ => {}
        }
        assert_eq!(encoder.encode(&part, true, &mut block).consumed, part.len());
        decoder.decode(&block, &mut came).unwrap();
        assert_eq!(came, part);
    }
}

/// Blocks of a stream that repeats itself, so that all kinds of operations are there.
fn blocks(pair: &Pair) -> Vec<Vec<u8>> {
    let part = bytes(7, 100_000, false);
    Pair::send(&pair.a, &pair.b, &part, &BULK);
    let mut encoder =
        StreamEncoder::new(pair.a.realm.clone(), pair.a.known.clone(), StreamSettings::default());
    let streams = [bytes(8, 50_000, true), part, bytes(9, 30_000, true), b"x".to_vec()];
    let encoded = streams.iter().map(|stream| {
        let mut block = Vec::new();
        encoder.encode(stream, true, &mut block);
        block
    });
    encoded.collect()
}

#[test]
fn a_damaged_block_is_refused_or_asked_for_and_never_other_bytes() {
    let pair = Pair::new();
    let blocks = blocks(&pair);
    let referring = &blocks[1];
    let right = bytes(7, 100_000, false);
    let config = ProptestConfig { cases: 2000, ..ProptestConfig::default() };
    proptest!(config, |(at in 0..referring.len(), flip in 1u8..)| {
        let mut block = referring.clone();
        block[at] ^= flip;
        let mut came = Vec::new();
        if StreamDecoder::new(pair.b.realm.clone()).decode(&block, &mut came).is_ok() {
            prop_assert!(came == right);
        } else {
            prop_assert!(came.is_empty());
        }
    });
}

#[test]
fn hostile_blocks_take_no_more_than_a_block_may() {
    let pair = Pair::new();
    let blocks = blocks(&pair);
    let config = ProptestConfig { cases: 2000, ..ProptestConfig::default() };
    proptest!(config, |(which in 0..blocks.len(), edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), cut in any::<prop::sample::Index>(), noise in proptest::collection::vec(any::<u8>(), 0..200))| {
        let mut block = blocks[which].clone();
        for (at, value) in edits {
            let at = at.index(block.len());
            block[at] = value;
        }
        block.truncate(1 + cut.index(block.len()));
        for block in [block, noise] {
            let mut came = Vec::new();
            let _ = StreamDecoder::new(pair.b.realm.clone()).decode(&block, &mut came);
            prop_assert!(came.len() <= BLOCK_BYTES_MAX);
            let mut came = Vec::new();
            let _ = StreamDecoder::new(pair.b.realm.clone()).decode_answer(&block, 100_000, &mut came);
            prop_assert!(came.len() <= BLOCK_BYTES_MAX);
        }
    });
    assert!(pair.b.store.stats().bytes < 64 << 20);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn any_stream_comes_out_as_it_went_in(
        parts in proptest::collection::vec((0u64..6, 1usize..120_000, any::<bool>()), 1..12),
        writes in proptest::collection::vec(1usize..70_000, 1..6),
        clears in proptest::collection::vec(0usize..8, 0..3),
    ) {
        let pair = Pair::new();
        for round in 0..3usize {
            let stream: Vec<u8> =
                parts.iter().flat_map(|(seed, length, is_text)| bytes(*seed, *length, *is_text)).collect();
            if clears.contains(&round) {
                pair.b.store.clear(None);
            }
            if clears.contains(&(round + 3)) {
                pair.a.store.clear(None);
            }
            let (from, to) = if round == 1 { (&pair.b, &pair.a) } else { (&pair.a, &pair.b) };
            Pair::send(from, to, &stream, &writes);
        }
    }
}
