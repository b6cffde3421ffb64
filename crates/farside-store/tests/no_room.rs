//! The short histories of `histories/` in a pool with room for exactly so many blocks, for each number until they fit: free space in
//! one piece, or in single blocks of which no two make the pair that an inner node needs.
//!
//! What must hold: an operation succeeds, or is told that there is no room and has changed nothing. What frees room is never
//! refused for want of it, nor is a flush or a consistency point. And once the rest of the pool is deleted, what was refused succeeds.

mod histories;
mod model;

use std::sync::Arc;

use farside_format::BLOCK_BYTES;
use farside_platform::SimulatedDisk;
use farside_store::{Pool, StoreError};
use histories::{Golden, HISTORIES, Hands, History, Lasts};
use model::BALLAST;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// How far the two copies of an inner node lie apart, blocks.
const TWIN: u64 = 256;

/// How free space lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Free {
    InOnePiece,
    WithoutTwins,
}

/// Fills what is left of a pool.
fn fill(pool: &Arc<Pool>) {
    pool.create_volume(BALLAST, 16 << 20).expect("a volume");
    let ballast = pool.open_volume(BALLAST).expect("it opens");
    for block in 0.. {
        // Mostly zeros, so that images of the medium are small.
        let mut bytes = [0; BLOCK_BYTES];
        bytes[..8].copy_from_slice(&(block + 1_u64).to_le_bytes());
        match ballast.write(block * BLOCK, &bytes) {
            Ok(()) => {}
            Err(StoreError::NoSpace { .. }) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The pool of `filled` with so many blocks more.
fn open_with(filled: &SimulatedDisk, blocks: u64, free: Free) -> Hands {
    let mut hands = Hands::of(filled.image());
    hands.open().expect("a full pool opens");
    let ballast = hands.pool().open_volume(BALLAST).expect("it opens");
    match free {
        Free::InOnePiece => ballast.trim(TWIN * BLOCK, blocks * BLOCK).expect("a trim in a full pool"),
        Free::WithoutTwins => {
            // Of every second stretch, every second block: what lies a stretch before or behind stays.
            let untwinned = (0..).filter(|block| block / TWIN % 2 == 1 && block % 2 == 0);
            for block in untwinned.take(blocks as usize) {
                ballast.trim(block * BLOCK, BLOCK).expect("a trim in a full pool");
            }
        }
    }
    drop(ballast);
    for _ in 0..2 {
        hands.pool().consistency_point().expect("a point in a full pool");
    }
    hands
}

/// Runs a history in a pool with so much room. Whether something was refused.
fn is_refused(history: &History, golden: &Golden, filled: &SimulatedDisk, blocks: u64, free: Free) -> bool {
    let what = format!("{}: {blocks} blocks, {free:?}", history.name);
    let mut hands = open_with(filled, blocks, free);
    let mut refused = 0;
    let mut at = 0;
    while at < history.operations.len() {
        let operation = &history.operations[at];
        let name = operation.name;
        match (operation.run)(&mut hands) {
            Ok(()) => at += 1,
            Err(StoreError::NoSpace { .. } | StoreError::NoRoomToReserve { .. })
                if operation.lasts != Lasts::AndFrees && refused == 0 =>
            {
                refused += 1;
                let seen = hands.observe().unwrap_or_else(|e| panic!("{what}: {name}: {e}"));
                assert_eq!(seen, golden.states[at], "{what}: {name} was refused, and has changed something");
                let pool = hands.pool();
                pool.flush().unwrap_or_else(|e| panic!("{what}: a flush after {name}: {e}"));
                pool.consistency_point().unwrap_or_else(|e| panic!("{what}: a point after {name}: {e}"));
                pool.delete_volume(BALLAST).unwrap_or_else(|e| panic!("{what}: a deletion: {e}"));
                pool.reap_all().unwrap_or_else(|e| panic!("{what}: reaping: {e}"));
            }
            Err(error) => panic!("{what}: {name}: {error}"),
        }
        assert_eq!(hands.pool().status().failed, None, "{what}: {name}");
    }
    let seen = hands.observe().expect("it reads");
    assert_eq!(&seen, golden.states.last().expect("there are some"), "{what}: the end");
    let disk = hands.disk.clone();
    hands.drop_pool();
    let report = farside_check::check(&disk, &farside_check::CheckOptions::default()).expect("it runs");
    assert!(report.is_clean(), "{what}: {report}");
    refused > 0
}

fn fill_everywhere(step: usize) {
    for history in HISTORIES {
        let golden = history.golden(history.begin(|_| ()));
        let filled = history.begin(fill);
        for free in [Free::InOnePiece, Free::WithoutTwins] {
            let mut runs = 0;
            // Without twins some never fit.
            for blocks in (0..=900).step_by(step) {
                runs += 1;
                if !is_refused(history, &golden, &filled, blocks, free) {
                    break;
                }
            }
            println!("{}: {free:?}: {runs} runs", history.name);
            assert!(runs > 1, "{}: nothing was refused in a full pool", history.name);
        }
    }
}

#[test]
fn every_operation_meets_a_full_pool() {
    fill_everywhere(7);
}

#[test]
#[ignore = "minutes"]
fn every_operation_meets_a_full_pool_at_each_block() {
    fill_everywhere(1);
}
