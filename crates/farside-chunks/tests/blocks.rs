//! What single blocks may cost their receiver, answers of other bytes than were asked for, and what settings of a stream do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod pair;

use farside_chunks::cut::first_chunk;
use farside_chunks::stream::{BASES_MAX, BLOCK_BYTES_MAX, CONTAINERS_MAX, DecodeError};
use farside_chunks::{
    ChunkName, ContainerName, OriginId, StreamDecoder, StreamEncoder, StreamSettings, Wanted,
};
use pair::{BULK, Pair, Site, bytes};

const ORIGIN: OriginId = OriginId([9; 16]);

/// A block of these operations, which stands for so many bytes and has no literals.
fn referring(stream_bytes: u64, operations: &[u8]) -> Vec<u8> {
    let mut block = vec![4];
    put(&mut block, stream_bytes);
    put(&mut block, operations.len() as u64);
    block.push(0);
    block.extend_from_slice(&[0; 16]);
    [&block[..], operations].concat()
}

/// So many chunks from this one on; `origin` is its number, and its id where it was not named before.
fn reference(count: u64, origin: &[u8], number: u64) -> Vec<u8> {
    let mut operation = Vec::new();
    put(&mut operation, count << 2 | 3);
    operation.extend_from_slice(origin);
    put(&mut operation, number);
    operation.push(0);
    operation
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[test]
fn a_block_costs_no_more_than_the_bytes_that_it_stands_for() {
    let Site { store, realm, .. } = &Pair::new().b;
    for number in 0..150 {
        for place in 0..if number == 0 { 4096 } else { 1 } {
            let name = ChunkName { container: ContainerName { origin: ORIGIN, number }, place };
            assert!(realm.keep_as(name, &bytes(7, 600, false)).unwrap());
        }
    }
    let origin = [&[0][..], &ORIGIN.0].concat();
    let decode = |block: &[u8]| {
        let mut out = Vec::new();
        let decoded = StreamDecoder::new(realm.clone()).decode(block, &mut out);
        assert!(out.is_empty());
        decoded.unwrap_err()
    };
    // Each chunk has 512 bytes at least: a thousand bytes are none of two, and 4096 are far from it.
    for count in [2, 4096, 65_535] {
        let refused = decode(&referring(1000, &reference(count, &origin, 0)));
        assert_eq!(refused, DecodeError::Malformed("operations for more bytes than it has"));
    }
    let twice = [reference(1, &origin, 0), reference(1, &[0], 0)].concat();
    let refused = decode(&referring(1000, &twice));
    assert_eq!(refused, DecodeError::Malformed("operations for more bytes than it has"));
    // What is not here is no reason to go on, and neither is what has more bytes than were announced.
    let asked = decode(&referring(1 << 20, &reference(2048, &origin, 1)));
    assert!(matches!(asked, DecodeError::Again { missing: Some(_), .. }));
    let before = store.stats().containers;
    let asked = decode(&referring(1 << 20, &reference(2048, &origin, 0)));
    assert!(matches!(asked, DecodeError::Again { missing: None, .. }));
    assert_eq!(store.stats().containers, before - 1, "what has another length is not trusted");
    // Each container is a directory to be read.
    let many = |containers: u64| {
        let first = reference(1, &origin, 2);
        let others = (3..2 + containers).flat_map(|number| reference(1, &[0], number));
        referring(1 << 20, &first.into_iter().chain(others).collect::<Vec<u8>>())
    };
    let refused = decode(&many(CONTAINERS_MAX as u64 + 1));
    assert_eq!(refused, DecodeError::Malformed("it names too many containers"));
    assert!(matches!(decode(&many(CONTAINERS_MAX as u64)), DecodeError::Again { missing: None, .. }));
    let refused = decode(&referring(1000, &[0]));
    assert_eq!(refused, DecodeError::Malformed("an operation that stands for nothing"));
    // Each chunk of this block is made of 512 bytes of another one; none has to be read for more than so many.
    let made = |bases: usize| {
        let copies = [&[1, 0][..], &[0x80, 4], &[0]].concat();
        let new = |container: &[u8]| [&[0x82, 0x10][..], container].concat();
        let first = [&[3, 1][..], &origin, &[0, 0], &copies, &new(&[0, 0, 0])].concat();
        let others = (1..bases).flat_map(|_| [&[3, 1, 0, 0, 0][..], &copies, &new(&[0, 0, 1])].concat());
        referring(1 << 20, &first.into_iter().chain(others).collect::<Vec<u8>>())
    };
    let refused = decode(&made(BASES_MAX + 1));
    assert_eq!(refused, DecodeError::Malformed("it patches too many chunks"));
    assert!(matches!(decode(&made(BASES_MAX)), DecodeError::Again { .. }));
    let refused = decode(&referring(1000, &[&[3, 1][..], &origin, &[0, 0, 0], &[0x80, 0x10]].concat()));
    assert_eq!(refused, DecodeError::Malformed("a patch of what is no new chunk"));
    let refused = decode(&referring(1000, &[&[3, 1][..], &origin, &[0, 0, 0]].concat()));
    assert_eq!(refused, DecodeError::Malformed("a patch of nothing"));
    let mut undigested = referring(600, &reference(1, &origin, 2));
    undigested[0] = 0;
    undigested.drain(5..21);
    assert_eq!(decode(&undigested), DecodeError::Malformed("it refers to chunks and has no digest"));
    let refused = decode(&[0, 0, 0, 0]);
    assert_eq!(refused, DecodeError::Malformed("it stands for nothing"));
}

#[test]
fn a_wrong_answer_is_noticed() {
    let pair = Pair::new();
    let right = bytes(1, 50_000, false);
    Pair::send(&pair.a, &pair.b, &right, &BULK);
    pair.b.store.clear(None);
    let mut encoder =
        StreamEncoder::new(pair.a.realm.clone(), pair.a.known.clone(), StreamSettings::default());
    let mut decoder = StreamDecoder::new(pair.b.realm.clone());
    let (mut block, mut came) = (Vec::new(), b"before".to_vec());
    encoder.encode(&right, true, &mut block);
    let Err(DecodeError::Again { wanted, .. }) = decoder.decode(&block, &mut came) else {
        panic!("B has cleared its store");
    };
    assert_eq!(wanted, Wanted::of(&right));
    let answer = |bytes: &[u8]| {
        let mut answer = Vec::new();
        encoder.answer(bytes, &mut answer);
        answer
    };
    let mut others = right.clone();
    others[40_000] ^= 1;
    for (wrong, why) in [
        (answer(&others), "an answer of other bytes than were asked for"),
        (answer(&right[1..]), "an answer of another length than was asked for"),
        (block.clone(), "an answer that refers to chunks"),
    ] {
        let refused = decoder.decode_answer(&wrong, &wanted, &mut came);
        assert_eq!(refused, Err(DecodeError::Malformed(why)));
        assert_eq!(came, b"before");
    }
    decoder.decode_answer(&answer(&right), &wanted, &mut came).unwrap();
    assert!(came[6..] == right);
}

#[test]
fn a_stream_names_no_more_containers_in_a_block_than_it_may() {
    let pair = Pair::of_size(256 << 20);
    // Short chunks, so that many are in one block: what follows is tried until the next cut is near.
    let (mut stream, mut at, mut chunks) = (vec![0], 0, Vec::new());
    for seed in 30.. {
        let next = [&stream[at..], &bytes(seed, 4000, false)].concat();
        let Some(length) = first_chunk(&next, false) else { continue };
        // The byte after a cut has a part in it.
        stream.truncate(at);
        stream.extend_from_slice(&next[..=length]);
        chunks.push(next[..length].to_vec());
        at += length;
        if chunks.len() == CONTAINERS_MAX + 100 {
            break;
        }
    }
    stream.truncate(at);
    for (number, chunk) in (0..).zip(&chunks) {
        let name = ChunkName { container: ContainerName { origin: ORIGIN, number }, place: 0 };
        assert!(pair.a.realm.keep_as(name, chunk).unwrap() && pair.b.realm.keep_as(name, chunk).unwrap());
    }
    pair.b.tell(&pair.a);
    assert!(stream == chunks.concat() && stream.len() < BLOCK_BYTES_MAX);
    for _ in 0..2 {
        let cost = Pair::send(&pair.a, &pair.b, &stream, &BULK);
        let share = 1.0 - cost.wire as f64 / stream.len() as f64;
        let most = CONTAINERS_MAX as f64 / chunks.len() as f64;
        assert!(cost.asked == 0 && share > most - 0.05 && share < most + 0.05, "{cost:?} {share} {most}");
    }
}

#[test]
fn a_stream_that_does_not_refer_leaves_nothing_in_any_store_and_finds_nothing() {
    let pair = Pair::new();
    let stream = bytes(20, 3 << 20, true);
    let lz = StreamSettings { refers: false, ..StreamSettings::default() };
    let nothing = StreamSettings { compresses: false, ..lz };
    for (settings, least, most) in [(lz, 0.05, 0.3), (nothing, 1.0, 1.001)] {
        for _ in 0..2 {
            let cost = Pair::send_with(settings, &pair.a, &pair.b, &stream, &BULK);
            let share = cost.wire as f64 / stream.len() as f64;
            assert!((least..most).contains(&share) && cost.asked == 0, "{settings:?} {cost:?}");
        }
    }
    // Both have it by now, and it is not named all the same.
    let sites = [&pair.a, &pair.b];
    let containers = || sites.map(|site| site.store.stats().containers);
    assert_eq!((containers(), sites.map(|site| site.store.stats().lookups)), ([0, 0], [0, 0]));
    Pair::send(&pair.a, &pair.b, &stream, &BULK);
    let before = (containers(), pair.a.store.stats().lookups);
    let cost = Pair::send_with(nothing, &pair.a, &pair.b, &stream, &BULK);
    assert!(cost.wire >= stream.len(), "{cost:?}");
    assert_eq!((containers(), pair.a.store.stats().lookups), before);
    // What is written in small pieces waits for nothing.
    let chat = Pair::send_with(lz, &pair.a, &pair.b, &stream[..50_000], &[1, 700, 60]);
    assert!(chat.wire < 40_000, "{chat:?}");
    let mut encoder = StreamEncoder::new(pair.a.realm.clone(), pair.a.known.clone(), lz);
    assert_eq!(encoder.encode(b"x", false, &mut Vec::new()).consumed, 1);
}

#[test]
fn a_stream_that_is_not_compressed_goes_as_it_is_and_refers() {
    let pair = Pair::new();
    let stream = bytes(21, 3 << 20, true);
    let dre = StreamSettings { compresses: false, ..StreamSettings::default() };
    let cold = Pair::send_with(dre, &pair.a, &pair.b, &stream, &BULK);
    assert!(cold.wire >= stream.len() && cold.wire < stream.len() * 1005 / 1000, "{cold:?}");
    let warm = Pair::send_with(dre, &pair.a, &pair.b, &stream, &BULK);
    assert!(warm.wire < 3000 && warm.asked == 0, "{warm:?}");
    // So does the answer to who asks.
    pair.b.store.clear(None);
    let asked = Pair::send_with(dre, &pair.a, &pair.b, &stream, &BULK);
    assert!(asked.asked > 0 && asked.wire >= stream.len(), "{asked:?}");
}
