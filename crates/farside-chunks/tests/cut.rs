//! Cut points: golden vectors, and what the store relies on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use farside_chunks::cut::{CHUNK_AVERAGE, CHUNK_MAX, CHUNK_MIN, first_chunk};
use proptest::prelude::*;

/// A sequence that everybody can make: xorshift64 from 1, its low bytes.
fn noise(bytes: usize) -> Vec<u8> {
    let mut word = 1u64;
    let step = |word: &mut u64| {
        *word ^= *word << 13;
        *word ^= *word >> 7;
        *word ^= *word << 17;
        *word as u8
    };
    (0..bytes).map(|_| step(&mut word)).collect()
}

fn lengths(mut bytes: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    while let Some(length) = first_chunk(bytes, true) {
        lengths.push(length);
        bytes = &bytes[length..];
    }
    lengths
}

#[test]
fn the_cut_points_are_pinned() {
    let lengths = lengths(&noise(1 << 20));
    assert_eq!(lengths.iter().sum::<usize>(), 1 << 20);
    assert_eq!(lengths[..12], GOLDEN, "{:?}", &lengths[..12]);
    assert_eq!(lengths.len(), GOLDEN_CHUNKS);
    // Zeros have no cut of their own.
    assert_eq!(first_chunk(&vec![0; 100_000], true), Some(CHUNK_MAX));
}

const GOLDEN: [usize; 12] = [10187, 12862, 9973, 19949, 12628, 3150, 3964, 13952, 16681, 11392, 15344, 3482];
const GOLDEN_CHUNKS: usize = 102;

#[test]
fn chunks_are_of_the_size_they_should_have() {
    let lengths = lengths(&noise(16 << 20));
    let (last, others) = lengths.split_last().unwrap();
    assert!(others.iter().all(|length| (CHUNK_MIN..=CHUNK_MAX).contains(length)) && *last <= CHUNK_MAX);
    let average = (16 << 20) / lengths.len();
    assert!((CHUNK_AVERAGE * 3 / 4..CHUNK_AVERAGE * 5 / 4).contains(&average), "{average}");
}

#[test]
fn what_is_inserted_changes_the_chunks_around_it_only() {
    let before = noise(4 << 20);
    let mut after = before.clone();
    after.splice(1_000_000..1_000_000, *b"something new");
    let set = |bytes: &[u8]| {
        let mut start = 0;
        let cut = lengths(bytes).into_iter().map(|length| {
            start += length;
            bytes[start - length..start].to_vec()
        });
        cut.collect::<std::collections::BTreeSet<_>>()
    };
    let (before, after) = (set(&before), set(&after));
    assert!(after.difference(&before).count() <= 3, "{}", after.difference(&before).count());
}

proptest! {
    #[test]
    fn what_is_known_of_a_stream_does_not_matter(seed in 0usize..1_000_000, known in 1usize..80_000) {
        let all = noise(seed + 80_000);
        let stream = &all[seed..];
        let whole = first_chunk(stream, true);
        match first_chunk(&stream[..known], false) {
            Some(length) => prop_assert_eq!(Some(length), whole),
            None => prop_assert!(known < CHUNK_MAX && known <= whole.unwrap()),
        }
    }
}
