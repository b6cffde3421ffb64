use std::collections::HashMap;

use farside_format::Fingerprint;

use super::{FingerprintIndex, LeafAt, PROBES_MAX, Table, is_full, short};

/// Fingerprints as even as real ones, without hashing.
fn fingerprint(number: u64) -> Fingerprint {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    for shift in [30, 27, 31] {
        mixed = (mixed ^ (mixed >> shift)).wrapping_mul(0xBF58_476D_1CE4_E5B9 | 1);
    }
    Fingerprint((u128::from(mixed) << 64 | u128::from(number)).to_be_bytes())
}

fn at(number: u64) -> LeafAt {
    // Three volumes, each with its leaves far apart.
    LeafAt { volume: 7 + number % 3, leaf: number / 3 * 611 }
}

#[test]
fn everything_is_found_while_it_fits() {
    let mut index = FingerprintIndex::new(1 << 20);
    for number in 0..20_000 {
        index.enter_blocks(at(number), [fingerprint(number), Fingerprint::HOLE].into_iter());
        index.enter_leaf(at(number), fingerprint(1_000_000 + number));
    }
    assert_eq!(index.entries(), (20_000, 20_000));
    assert_eq!(index.sampling_bits(), 0);
    for number in 0..20_000 {
        assert!(index.block(short(fingerprint(number))).eq([at(number)]), "{number}");
        assert!(index.leaf(short(fingerprint(1_000_000 + number))).eq([at(number)]), "{number}");
    }
    let unknown = (5_000_000..5_100_000).filter(|n| index.block(short(fingerprint(*n))).next().is_some());
    assert_eq!(unknown.count(), 0, "36 bits, 20,000 entries, 100,000 questions: 0.03 expected");
    assert_eq!(index.block(0).next(), None);
}

#[test]
fn of_a_content_in_many_places_the_first_and_the_last_are_kept() {
    let mut index = FingerprintIndex::new(1 << 20);
    let wanted = short(fingerprint(1));
    let leaf = |volume| LeafAt { volume, leaf: 9 };
    for volume in [3, 4, 4, 5, 6] {
        index.enter_blocks(leaf(volume), [fingerprint(1)].into_iter());
    }
    assert!(index.block(wanted).eq([leaf(3), leaf(6)]));
    assert_eq!(index.entries(), (0, 2));
    index.block_is_stale(wanted, leaf(6));
    assert!(index.block(wanted).eq([leaf(3), leaf(6)]), "the next one takes its place");
    index.block_is_stale(wanted, leaf(3));
    assert!(index.block(wanted).eq([leaf(6)]));
    index.enter_blocks(leaf(7), [fingerprint(1)].into_iter());
    assert!(index.block(wanted).eq([leaf(6), leaf(7)]));
    index.enter_leaf(leaf(3), fingerprint(2));
    index.leaf_is_stale(short(fingerprint(2)), leaf(3));
    assert!(index.leaf(short(fingerprint(2))).eq([leaf(3)]), "there is no other");
}

#[test]
fn a_budget_holds_and_what_is_kept_follows_from_the_fingerprint() {
    let budget = 256 << 10;
    let mut index = FingerprintIndex::new(budget);
    let blocks = 400_000;
    for number in 0..blocks {
        index.enter_blocks(at(number), [fingerprint(number)].into_iter());
        assert!(index.bytes() <= budget);
    }
    let (_, kept) = index.entries();
    // 24,576 slots, 3/4 of them: 400,000 / 16 would be 25,000, so 1 in 32.
    assert_eq!(index.sampling_bits(), 5);
    assert!((11_500..13_500).contains(&kept), "{kept}");
    for number in 0..blocks {
        let short = short(fingerprint(number));
        let expected = (short.trailing_zeros() >= 5).then(|| at(number));
        assert!(index.block(short).eq(expected), "{number}");
    }
    // Half the budget, a fourth: still true, and smaller.
    for (budget, bits) in [(budget / 2, 6), (budget / 4, 7)] {
        index.set_budget(budget);
        assert!(index.bytes() <= budget);
        assert_eq!(index.sampling_bits(), bits);
        let sampled = (0..blocks).map(|n| short(fingerprint(n))).filter(|s| s.trailing_zeros() >= bits);
        assert!(sampled.clone().all(|short| index.block(short).next().is_some()));
        assert_eq!(index.entries().1, sampled.count());
    }
}

#[test]
fn contents_chosen_to_crowd_cost_entries_and_nothing_else() {
    let mut table = Table::new(1 << 14);
    // One slot is everybody's own.
    for number in 1..=2000u64 {
        table.enter(0xABC << 20 | number << 36, number as u32);
    }
    let mut crowded = Table::new(1 << 14);
    for number in 1..=2000u64 {
        crowded.enter(0x5_0000_0000 | number, number as u32);
    }
    assert!(crowded.entries <= 2 * PROBES_MAX, "{}", crowded.entries);
    // All of the same tag: the first and the last.
    assert_eq!((table.entries, table.find(0xABC << 20)), (2, [Some(1), Some(2000)]));
    // Nothing but zeros in all bits that sampling looks at.
    let mut zeros = Table::new(1024);
    for number in 1..=5000u64 {
        zeros.enter(number << 36, number as u32);
    }
    assert_eq!(zeros.entries, 2);
}

#[test]
fn a_table_agrees_with_a_map() {
    let mut table = Table::new(8192);
    let mut map: HashMap<u64, Vec<u32>> = HashMap::new();
    for step in 0..200_000u64 {
        let short = short(fingerprint(step * 7919 % 60_000));
        let number = 1024 + (step % 100_000) as u32;
        table.enter(short, number);
        map.entry(short).or_default().push(number);
        assert!(!is_full(table.entries, table.slots.len()));
    }
    assert!(table.sampling_bits > 0);
    for (short, entered) in map {
        let found = table.find(short);
        if short.trailing_zeros() < table.sampling_bits {
            assert_eq!(found, [None; 2]);
            continue;
        }
        assert!(found.contains(&entered.last().copied()), "{found:?} of {entered:?}");
        assert!(found.iter().flatten().all(|number| entered.contains(number)), "{found:?} of {entered:?}");
    }
}
