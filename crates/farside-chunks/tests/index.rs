//! The index: what it finds, what it forgets, what it costs.

use farside_chunks::Fingerprint;
use farside_chunks::container::CHUNKS_PER_CONTAINER;
use farside_chunks::index::{Index, Location};

/// A fingerprint for each number, and the location that goes with it.
fn chunk(number: u64) -> (Fingerprint, Location) {
    let hash = blake3::hash(&number.to_le_bytes());
    let mut short = [0; 16];
    short.copy_from_slice(&hash.as_bytes()[..16]);
    let per_container = u64::from(CHUNKS_PER_CONTAINER);
    let (slot, place) = ((number / per_container) as u32, (number % per_container) as u16);
    (Fingerprint(short), Location { slot, place })
}

fn finds(index: &Index, number: u64) -> (bool, u32) {
    let (fingerprint, location) = chunk(number);
    let mut asked = 0;
    let found = index.find(&fingerprint, |other| {
        asked += 1;
        (other == location).then_some(())
    });
    (found.is_some(), asked)
}

#[test]
fn everything_it_has_room_for_is_found() {
    let mut index = Index::with_capacity(200_000);
    for number in 0..200_000 {
        let (fingerprint, location) = chunk(number);
        index.insert(&fingerprint, location);
    }
    assert_eq!((index.entries(), index.forgotten()), (200_000, 0));
    assert!(index.memory_bytes() <= 200_000 * 7 + 64, "{}", index.memory_bytes());
    assert!((0..200_000).all(|number| finds(&index, number).0));
    let in_vain: u32 = (200_000..300_000).map(|number| finds(&index, number).1).sum();
    assert!(in_vain < 60, "of 100,000 questions {in_vain} named a location in vain");
}

#[test]
fn what_is_taken_out_is_gone_and_its_room_is_free() {
    let mut index = Index::with_capacity(50_000);
    for round in 0..10 {
        for number in round * 50_000..(round + 1) * 50_000 {
            let (fingerprint, location) = chunk(number);
            index.insert(&fingerprint, location);
        }
        assert_eq!(index.entries() + index.forgotten(), 50_000 + index.forgotten(), "round {round}");
        for number in round * 50_000..(round + 1) * 50_000 {
            let (fingerprint, location) = chunk(number);
            assert!(index.remove(&fingerprint, location));
            assert!(!index.remove(&fingerprint, location));
        }
        assert_eq!(index.entries(), 0);
    }
    assert_eq!(index.forgotten(), 0);
}

#[test]
fn one_chunk_that_is_entered_again_and_again_pushes_out_no_other() {
    let mut index = Index::with_capacity(1000);
    for number in 0..800 {
        let (fingerprint, location) = chunk(number);
        index.insert(&fingerprint, location);
    }
    let (fingerprint, _) = chunk(5000);
    for slot in 0..10_000 {
        index.insert(&fingerprint, Location { slot, place: 7 });
    }
    assert!((0..800).all(|number| finds(&index, number).0));
    let newest = Location { slot: 9_999, place: 7 };
    assert!(index.find(&fingerprint, |location| (location == newest).then_some(())).is_some());
    assert_eq!(index.entries(), 802);
}

#[test]
fn more_than_it_has_room_for_costs_some_of_it_and_no_more() {
    let mut index = Index::with_capacity(10_000);
    for number in 0..40_000 {
        let (fingerprint, location) = chunk(number);
        index.insert(&fingerprint, location);
    }
    assert!(index.entries() >= index.capacity() && index.entries() + index.forgotten() == 40_000);
    let found = (0..40_000).filter(|number| finds(&index, *number).0).count() as u64;
    assert_eq!(found, index.entries());
}

/// `cargo test --release -p farside-chunks --test index -- --ignored --nocapture`
#[test]
#[ignore = "a hundred million chunks: a gigabyte of memory, minutes"]
fn a_hundred_million_chunks() {
    const CHUNKS: u64 = 100_000_000;
    let mut index = Index::with_capacity(CHUNKS);
    let begins = std::time::Instant::now();
    for number in 0..CHUNKS {
        let (fingerprint, location) = chunk(number);
        index.insert(&fingerprint, location);
    }
    let inserted = begins.elapsed().as_secs_f64();
    let bytes = index.memory_bytes() as f64 / CHUNKS as f64;
    // What finds no room after so many moves is forgotten: two of them, where it was looked at.
    assert!(index.forgotten() <= CHUNKS / 1_000_000, "{}", index.forgotten());
    let questions: Vec<Fingerprint> = (0..4_000_000).map(|n| chunk(n * 37 % (2 * CHUNKS)).0).collect();
    let begins = std::time::Instant::now();
    let named = questions.iter().filter(|q| index.find(q, Some).is_some()).count();
    let seconds = begins.elapsed().as_secs_f64();
    println!(
        "{CHUNKS} chunks: {bytes:.2} bytes each; {:.2} million entered a second (hashed too); {:.2} million look-ups a \
         second, {named} of {} named a location",
        CHUNKS as f64 / inserted / 1e6,
        questions.len() as f64 / seconds / 1e6,
        questions.len()
    );
    assert!(bytes < 7.1);
}
