//! Damage as a matrix: each structure, in each way that media and misdirected or lost writes damage it, with the
//! finding that must name it.

mod pool_writer;

use farside_check::{CheckOptions, Report, What, check};
use farside_format::TreeKind;
use pool_writer::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

#[derive(Clone, Copy, Debug)]
enum Damage {
    BitFlip,
    Zeroed,
    /// Bytes that were right for this kind of structure once, or elsewhere.
    Stale,
    /// Exchanged with another of its kind.
    Swapped,
}

const EVERY: [Damage; 4] = [Damage::BitFlip, Damage::Zeroed, Damage::Stale, Damage::Swapped];

fn run(story: &Story) -> Report {
    check(&story.writer.disk, &CheckOptions::default()).expect("a superblock is left")
}

/// Damages the block at `place`, with `other` as the source of stale bytes and the partner of a swap.
fn damage(story: &Story, damage: Damage, place: u64, other: u64) {
    let disk = &story.writer.disk;
    let (here, there) = (disk.peek(place * BLOCK, BLOCK as usize), disk.peek(other * BLOCK, BLOCK as usize));
    assert_ne!(here, there, "the two must differ for the damage to be one");
    match damage {
        Damage::BitFlip => disk.damage(place * BLOCK + 1000, &[here[1000] ^ 4]),
        Damage::Zeroed => disk.damage(place * BLOCK, &[0; BLOCK as usize]),
        Damage::Stale => disk.damage(place * BLOCK, &there),
        Damage::Swapped => {
            disk.damage(place * BLOCK, &there);
            disk.damage(other * BLOCK, &here);
        }
    }
}

fn assert_found(report: &Report, what: What, place: u64, context: &str) {
    let found = report.findings.iter().any(|f| f.what == what && f.location.place == Some(place));
    assert!(found && !report.is_clean(), "{context}: no {what} at place {place} in\n{report}");
}

/// Two places of a kind of piece; the first is of the newest point if there is one of it alone.
fn two_of(story: &Story, piece: Piece) -> (u64, u64) {
    let places: Vec<u64> = story
        .writer
        .pieces
        .iter()
        .filter(|(place, p)| **p == piece && !story.tail_data.contains(place))
        .map(|(place, _)| *place)
        .collect();
    assert!(places.len() >= 2, "{piece:?}: {places:?}");
    (places[places.len() - 1], places[0])
}

#[test]
fn every_piece_of_every_tree_in_every_way() {
    let volume = TreeKind::Volume;
    let rows = [
        (Piece::Data(volume), What::DataBlock),
        (Piece::Leaf(volume), What::Node),
        (Piece::Inner(volume), What::Node),
        (Piece::Twin(volume), What::NodeSecondCopy),
        (Piece::Data(TreeKind::Catalog), What::DataBlock),
        (Piece::Leaf(TreeKind::Catalog), What::Node),
        (Piece::Data(TreeKind::FreeMap), What::DataBlock),
        (Piece::Leaf(TreeKind::FreeMap), What::Node),
    ];
    for (piece, what) in rows {
        for way in EVERY {
            let story = story(|_, _, _| {});
            let (place, other) = two_of(&story, piece);
            damage(&story, way, place, other);
            let report = run(&story);
            assert_found(&report, what, place, &format!("{piece:?} {way:?}"));
            if matches!(way, Damage::Swapped) {
                assert_found(&report, what, other, &format!("{piece:?} swapped, the partner"));
            }
            if matches!(piece, Piece::Inner(_) | Piece::Twin(_)) {
                // One good copy: nothing else is lost, and it is told so.
                assert!(report.findings.iter().all(|f| f.hint.contains("nothing is lost")), "{report}");
            }
        }
    }
}

#[test]
fn both_copies_of_an_inner_node() {
    let story = story(|_, _, _| {});
    let (place, other) = two_of(&story, Piece::Inner(TreeKind::Volume));
    damage(&story, Damage::Zeroed, place, other);
    damage(&story, Damage::BitFlip, place + 256, other);
    let report = run(&story);
    assert_found(&report, What::Node, place, "both copies");
    assert_found(&report, What::NodeSecondCopy, place + 256, "both copies");
    assert!(report.findings.iter().any(|f| f.what == What::Incomplete), "{report}");
    assert!(
        report.findings.iter().all(|f| f.what != What::FreeMap),
        "unknown places are no lost space\n{report}"
    );
}

#[test]
fn superblocks() {
    for (slot, place) in [(0, 0), (1, 256)] {
        for way in EVERY {
            let story = story(|_, _, _| {});
            damage(&story, way, place, 256 - place);
            let report = run(&story);
            match way {
                Damage::BitFlip | Damage::Zeroed => {
                    let finding = report.findings.iter().find(|f| f.what == What::Superblock);
                    assert_eq!(finding.map(|f| f.location.slot), Some(Some(slot)), "{report}");
                }
                // Both slots hold the same point, or each the other's: either way both are whole, and lead to the same.
                Damage::Stale | Damage::Swapped => assert_eq!(report.findings, [], "{way:?}\n{report}"),
            }
        }
    }
}

#[test]
fn journal_batches() {
    // Batch 5 is proven by batch 6, in the tail of both points; batch 2 lies between the two points.
    for (victim, other) in [(5, 2), (5, 6), (2, 1)] {
        for way in EVERY {
            let story = story(|_, _, _| {});
            let place = |n: u64| story.writer.batches.iter().find(|(s, _)| *s == n).unwrap().1;
            match way {
                // Behind the payload a batch may hold anything: flip inside it.
                Damage::BitFlip => story.writer.disk.damage(place(victim) * BLOCK + 130, &[0xee]),
                way => damage(&story, way, place(victim), place(other)),
            }
            let report = run(&story);
            let context = format!("batch {victim}, {way:?} with {other}");
            assert!(!report.is_clean(), "{context}\n{report}");
            let found =
                report.findings.iter().find(|f| matches!(f.what, What::Journal | What::EitherSuperblock));
            assert!(found.is_some(), "{context}\n{report}");
            let newest_is_concerned = report.findings.iter().any(|f| {
                f.what == What::Journal && f.location.generation == Some(2) && f.location.batch == Some(5)
            });
            assert_eq!(newest_is_concerned, victim == 5, "{context}\n{report}");
        }
    }
}

#[test]
fn data_of_a_proven_batch() {
    for way in EVERY {
        let story = story(|_, _, _| {});
        let (other, _) = two_of(&story, Piece::Data(TreeKind::Volume));
        damage(&story, way, story.tail_data[0], other);
        assert_found(&run(&story), What::JournalData, story.tail_data[0], &format!("{way:?}"));
    }
}

#[test]
fn blocks_that_must_stay_zero() {
    for place in [1, 255, 257, 511] {
        let story = story(|_, _, _| {});
        story.writer.disk.damage(place * BLOCK + 4095, &[1]);
        assert_found(&run(&story), What::ReservedArea, place, "reserved");
    }
}

#[test]
fn a_device_cut_short() {
    let story = story(|_, _, _| {});
    let shorter = farside_platform::SimulatedDisk::new("shorter", 6000 * BLOCK);
    for place in 0..6000 {
        let bytes = story.writer.disk.peek(place * BLOCK, BLOCK as usize);
        if bytes.iter().any(|b| *b != 0) {
            shorter.damage(place * BLOCK, &bytes);
        }
    }
    let report = check(&shorter, &CheckOptions::default()).unwrap();
    assert!(!report.is_clean());
    assert!(
        report.findings.iter().any(|f| f.what == What::Superblock && f.hint.contains("cut short")),
        "{report}"
    );
}

#[test]
fn one_bit_of_any_block_that_anything_refers_to() {
    let story = story(|_, _, _| {});
    let disk = &story.writer.disk;
    let mut rng = SmallRng::seed_from_u64(7);
    for (&place, piece) in &story.writer.pieces {
        // The last batch is unproven: without its data it never was.
        if place == story.tail_data[1] {
            continue;
        }
        // One block of data in eight: they are all alike, and a whole check runs for each.
        if *piece == Piece::Data(TreeKind::Volume) && place % 8 != 0 && place != story.tail_data[0] {
            continue;
        }
        let at = place * BLOCK + rng.random_range(0..BLOCK);
        let byte = disk.peek(at, 1)[0];
        disk.damage(at, &[byte ^ 1 << rng.random_range(0..8)]);
        let report = check(disk, &CheckOptions::default()).unwrap();
        assert!(!report.is_clean(), "{piece:?} at place {place}, byte {at}\n{report}");
        disk.damage(at, &[byte]);
    }
    assert_eq!(run(&story).findings, []);
}

#[test]
fn garbage_anywhere_is_answered() {
    let seed: u64 = SmallRng::from_os_rng().random();
    println!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    for round in 0..150 {
        let story = story(|_, _, _| {});
        let pieces: Vec<u64> = story.writer.pieces.keys().copied().collect();
        let mut places: Vec<u64> =
            (0..rng.random_range(1..6)).map(|_| pieces[rng.random_range(0..pieces.len())]).collect();
        if round % 3 == 0 {
            places.push([0, 256][rng.random_range(0..2)]);
        }
        places.push(story.writer.batches[rng.random_range(0..story.writer.batches.len())].1);
        for place in places {
            let at = place * BLOCK + rng.random_range(0..4096);
            match rng.random_range(0..3) {
                0 => story.writer.disk.damage(at, &[rng.random()]),
                1 => story
                    .writer
                    .disk
                    .damage(place * BLOCK, &std::array::from_fn::<u8, 4096, _>(|_| rng.random())),
                _ => {
                    let other = pieces[rng.random_range(0..pieces.len())];
                    let bytes = story.writer.disk.peek(other * BLOCK, BLOCK as usize);
                    story.writer.disk.damage(place * BLOCK, &bytes);
                }
            }
        }
        // It returns; what it says is the business of the tests above.
        if let Ok(report) = check(&story.writer.disk, &CheckOptions::default()) {
            assert!(report.to_string().contains("bytes read"));
        }
    }
}
