//! Readers of a replica while updates run: each connection sees one point in time, whole, for as long as it lasts.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]
#![allow(dead_code, reason = "it uses its part of what the test programs share")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};

use support::Pair;

const BYTES: u64 = 8 << 20;
const BLOCK: usize = 4096;

/// Fills the source in ascending order with the number of the round, in pieces of 256 KiB.
fn stamp(host: &mut support::nbd::Client, round: u64) {
    let piece: Vec<u8> = round.to_le_bytes().repeat((256 << 10) / 8);
    for offset in (0..BYTES).step_by(piece.len()) {
        host.write(offset, &piece).unwrap();
    }
    host.flush().unwrap();
}

/// Whether the bytes are what the source held at one moment: some blocks of a round, then the rest of the round
/// before. Answers the newer one.
fn one_moment(bytes: &[u8]) -> u64 {
    let stamps: Vec<u64> = bytes
        .chunks(BLOCK)
        .map(|block| {
            let (words, _) = block.as_chunks::<8>();
            assert!(words.iter().all(|w| *w == words[0]), "a block holds two rounds");
            u64::from_le_bytes(words[0])
        })
        .collect();
    let newest = stamps[0];
    let turn = stamps.iter().position(|s| *s != newest).unwrap_or(stamps.len());
    assert!(
        stamps[turn..].iter().all(|s| *s + 1 == newest),
        "blocks of more than two rounds, or out of order"
    );
    newest
}

#[test]
fn every_reader_sees_one_point_in_time_while_updates_run() {
    let pair = Pair::start();
    pair.mirror(BYTES);
    let (a, b) = (&pair.a, &pair.b);
    let mut host = a.nbd("p/v");
    stamp(&mut host, 1);
    a.ok("snapshot create p/v@first");
    b.ok("mirror initialize q/v");
    let first = b.nbd("q/v@first").read_all();
    assert_eq!(one_moment(&first), 1);

    let done = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = std::collections::BTreeSet::new();
            let mut reads = 0;
            while !done.load(Ordering::Relaxed) || reads < 4 {
                let mut replica = b.nbd("q/v");
                let bytes = replica.read_all();
                seen.insert(one_moment(&bytes));
                assert!(replica.read_all() == bytes, "the replica changed under a connection");
                assert!(b.nbd("q/v@first").read_all() == first, "a snapshot changed");
                reads += 1;
            }
            seen
        });
        let writer = scope.spawn(|| (2..40).for_each(|round| stamp(&mut host, round)));
        while !writer.is_finished() {
            b.ok("mirror update q/v");
        }
        writer.join().unwrap();
        b.ok("mirror update q/v");
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    assert!(seen.len() > 1, "no update was published while the reader looked: {seen:?}");
    assert_eq!(one_moment(&b.nbd("q/v").read_all()), 39);
}
