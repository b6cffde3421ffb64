//! Chunks that resemble others: what they cost, and that nothing wrong is made of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod pair;

use farside_chunks::stream::{BLOCK_BYTES_MAX, DecodeError};
use farside_chunks::{ChunkName, ContainerName, StreamDecoder, StreamEncoder, StreamSettings};
use pair::{BULK, Pair, Site, bytes};
use proptest::prelude::*;

/// Every 3000 bytes some are others: no chunk of 8 KiB is what it was.
fn edited(stream: &[u8]) -> Vec<u8> {
    let mut stream = stream.to_vec();
    for (number, place) in (0..stream.len() - 20).step_by(3000).enumerate() {
        stream[place..place + 20].copy_from_slice(format!("edited {number:013}").as_bytes());
    }
    stream
}

#[test]
fn what_was_changed_everywhere_passes_as_what_changed() {
    let pair = Pair::new();
    let stream = bytes(1, 8 << 20, false);
    let changed = edited(&stream);
    Pair::send(&pair.a, &pair.b, &stream, &BULK);
    let update = Pair::send(&pair.a, &pair.b, &changed, &BULK);
    assert!(update.asked == 0 && update.wire < stream.len() / 50, "{update:?}");
    // Both keep what was made of it.
    for (from, to) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
        let warm = Pair::send(from, to, &changed, &BULK);
        assert!(warm.asked == 0 && warm.wire < stream.len() / 5000, "{warm:?}");
    }
    // Somebody there changes what has come, and sends it back.
    let back = Pair::send(&pair.b, &pair.a, &edited(&bytes(1, 8 << 20, false)[9..]), &BULK);
    assert!(back.asked == 0 && back.wire < stream.len() / 30, "{back:?}");
}

#[test]
fn a_chunk_that_was_patched_is_not_referred_to_before_its_block_is_verified() {
    let pair = Pair::new();
    let stream = bytes(2, 200_000, false);
    Pair::send(&pair.a, &pair.b, &stream, &BULK);
    let changed = edited(&stream);
    let twice = Pair::send(&pair.a, &pair.b, &[&changed[..], &changed].concat(), &BULK);
    assert_eq!(twice.asked, 0);
}

#[test]
fn what_a_chunk_is_made_of_may_be_gone() {
    let pair = Pair::new();
    let stream = bytes(3, 4 << 20, false);
    Pair::send(&pair.a, &pair.b, &stream, &BULK);
    // A has not heard of it.
    pair.b.store.clear(None);
    let update = Pair::send(&pair.a, &pair.b, &edited(&stream), &BULK);
    assert!(update.asked > 0 && update.wire < stream.len() * 103 / 100, "{update:?}");
    let warm = Pair::send(&pair.a, &pair.b, &edited(&stream), &BULK);
    assert!(warm.asked == 0 && warm.wire < 20_000, "{warm:?}");
}

/// A block of A that is made of a chunk of B, and what it stands for.
fn patched(pair: &Pair) -> (Vec<u8>, Vec<u8>) {
    let stream = bytes(4, 60_000, false);
    Pair::send(&pair.a, &pair.b, &stream, &BULK);
    let changed = edited(&stream);
    let settings = StreamSettings { compresses: false, ..StreamSettings::default() };
    let mut encoder = StreamEncoder::new(pair.a.realm.clone(), pair.a.known.clone(), settings);
    let mut block = Vec::new();
    let encoded = encoder.encode(&changed, true, &mut block);
    assert!(encoded.may_be_asked_for() && encoded.consumed == changed.len());
    assert!(block.len() < changed.len() / 20, "{}", block.len());
    (block, changed)
}

/// How many places of A's container B holds.
fn held(site: &Site, container: ContainerName) -> usize {
    let mut chunk = Vec::new();
    (0..4096)
        .filter(|place| site.realm.read(ChunkName { container, place: *place }, &mut chunk).is_ok())
        .count()
}

#[test]
fn what_is_made_of_something_else_is_asked_for_and_not_kept() {
    let (pair, other) = (Pair::new(), Pair::new());
    let (block, right) = patched(&pair);
    let container = ContainerName { origin: pair.a.realm.origin(), number: 0 };
    // At this site other chunks have the names of those.
    let mut chunk = Vec::new();
    let mut place = 0;
    while pair.b.realm.read(ChunkName { container, place }, &mut chunk).is_ok() {
        chunk.reverse();
        assert!(other.b.realm.keep_as(ChunkName { container, place }, &chunk).unwrap());
        place += 1;
    }
    let mut out = Vec::new();
    let refused = StreamDecoder::new(other.b.realm.clone()).decode(&block, &mut out);
    assert!(matches!(refused, Err(DecodeError::Again { missing: None, .. })), "{refused:?}");
    assert!(out.is_empty());
    assert_eq!(held(&other.b, container), 0, "what is not what was meant goes, and nothing comes");
    StreamDecoder::new(pair.b.realm.clone()).decode(&block, &mut out).unwrap();
    assert!(out == right);
    assert!(held(&pair.b, container) > usize::from(place));
}

#[test]
fn spoilt_patches_give_the_right_bytes_or_none() {
    let pair = Pair::new();
    let (block, right) = patched(&pair);
    let heads = block.len().min(400);
    let config = ProptestConfig { cases: 1500, ..ProptestConfig::default() };
    proptest!(config, |(at in 0..heads, value in any::<u8>(), cut in 0..64usize)| {
        let mut block = block.clone();
        block[at] = value;
        block.truncate(block.len() - cut.saturating_sub(48));
        let mut came = Vec::new();
        match StreamDecoder::new(pair.b.realm.clone()).decode(&block, &mut came) {
            Ok(()) => prop_assert!(came == right),
            Err(_) => prop_assert!(came.is_empty() && came.capacity() <= BLOCK_BYTES_MAX * 2),
        }
    });
}
