//! Streams said in chunks: the same bytes at the other end whatever the stores have lost, and what they cost.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod pair;

use farside_chunks::stream::{BLOCK_BYTES_MAX, stream_bytes_of, window_log_of};
use farside_chunks::{StreamDecoder, StreamEncoder, StreamSettings, Wanted};
use pair::{BULK, Pair, bytes};
use proptest::prelude::*;

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
fn a_block_says_what_it_stands_for() {
    let pair = Pair::new();
    for block in blocks(&pair) {
        let said = stream_bytes_of(&block).unwrap();
        let mut came = Vec::new();
        StreamDecoder::new(pair.b.realm.clone()).decode(&block, &mut came).ok();
        assert!(came.is_empty() || came.len() == said);
    }
    let block = |stream_bytes: &[u8]| [&[0][..], stream_bytes, &[1, 0, 0]].concat();
    assert_eq!(stream_bytes_of(&block(&[0x80, 0x80, 0x40])), Some(BLOCK_BYTES_MAX));
    for none in
        [block(&[0x81, 0x80, 0x40]), block(&[0]), block(&[0xff; 10]), vec![0, 5], vec![8, 1, 0, 0], vec![]]
    {
        assert_eq!(stream_bytes_of(&none), None, "{none:?}");
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
fn what_a_peer_has_a_part_of_in_a_closed_container_is_known_again_after_one_pass() {
    let pair = Pair::new();
    let stream = bytes(7, 10 << 20, false);
    Pair::send(&pair.a, &pair.b, &stream, &BULK);
    pair.a.realm.begin_anew();
    pair.b.store.clear(None);
    // A has not heard of it: it is asked for the first part, and names that as it did before.
    let again = Pair::send(&pair.a, &pair.b, &stream[..1 << 20], &BULK);
    assert!(again.asked > 0, "{again:?}");
    Pair::send(&pair.a, &pair.b, &stream, &BULK);
    let warm = Pair::send(&pair.a, &pair.b, &stream, &BULK);
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
            2 => encoder.set(StreamSettings {
                level: 1 + (round % 9) as i32,
                window_log: 16 + (round % 8) as u32,
                refers: round % 4 < 2,
                compresses: round % 3 > 0,
                patches: round % 5 > 0,
            }),
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
            let wanted = Wanted::of(&[0; 100_000]);
            let _ = StreamDecoder::new(pair.b.realm.clone()).decode_answer(&block, &wanted, &mut came);
            prop_assert!(came.is_empty());
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

#[test]
fn a_history_is_as_long_as_the_stream_is_worth() {
    let pair = Pair::new();
    let settings = |window_log, level| StreamSettings { window_log, level, ..StreamSettings::default() };
    let mut encoder = StreamEncoder::new(pair.a.realm.clone(), pair.a.known.clone(), settings(20, 3));
    let mut begins = |settings: Option<StreamSettings>, bytes: &[u8]| {
        settings.into_iter().for_each(|settings| encoder.set(settings));
        let mut block = Vec::new();
        encoder.encode(bytes, true, &mut block);
        window_log_of(&block)
    };
    let text = bytes(20, 8 << 20, true);
    assert_eq!(begins(None, &text[..100]), None, "a question");
    assert_eq!(begins(None, &text[100..500]), Some(13), "a greeting");
    let begun: Vec<u32> =
        (500..9500).step_by(500).filter_map(|at| begins(None, &text[at..at + 500])).collect();
    assert_eq!(begun, [17], "a conversation");
    assert_eq!(begins(None, &text[9500..100_000]), Some(20), "it has much to say");
    assert_eq!(begins(Some(settings(27, 3)), &text[100_000..200_000]), None, "what it has is not full");
    for at in (1 << 20..2 << 20).step_by(128 << 10) {
        begins(None, &text[at..at + (128 << 10)]);
    }
    assert_eq!(begins(Some(settings(27, 9)), &text[2 << 20..3 << 20]), Some(27));
    assert_eq!(begins(Some(settings(21, 9)), &text[3 << 20..4 << 20]), Some(21), "its memory is needed");
    assert_eq!(begins(Some(settings(21, 1)), &text[4 << 20..5 << 20]), Some(21), "its time is needed");
}
