//! Fingerprints and roots: the same for the same bytes, wherever they are.

use super::fixture::Fixture;
use super::reference;
use super::world::{World, bytes};
use crate::{BLOCK_BYTES, EngineError, FINGERPRINTS_MAX, Fingerprint};

/// Fingerprints are those of the blocks that are read; past the end there are holes.
pub fn fingerprints_are_those_of_the_blocks<F: Fixture>() {
    let mut world = World::<F>::new(31, 300);
    world.scribble(30);
    let taken = world.snapshot("s", 1).uuid;
    let ask = |first, count| world.engine.fingerprints(&world.volume, taken, first, count);
    let all = reference::fingerprints(&world.live);
    assert_eq!(ask(0, 300).unwrap(), all);
    assert_eq!(ask(17, 140).unwrap(), all[17..157]);
    assert_eq!(ask(298, 4).unwrap(), [&all[298..], &[Fingerprint::HOLE; 2]].concat());
    assert!(ask(5, 0).unwrap().is_empty());
    let too_many = ask(0, FINGERPRINTS_MAX + 1);
    assert!(matches!(too_many, Err(EngineError::Invalid(_))), "{:?}", too_many.map(|all| all.len()));
}

/// Never written, trimmed, or written as zeros: the same root, and no data in any difference.
pub fn zeros_are_holes_however_they_came<F: Fixture>() {
    let mut world = World::<F>::new(32, 64);
    let empty = world.snapshot("empty", 1).uuid;
    world.write(8, 16, 6);
    let full = world.snapshot("full", 2).uuid;
    world.trim(8, 8);
    world.write(16, 8, 0);
    world.write(40, 2, 0);
    let again = world.snapshot("again", 3).uuid;
    let root = |snapshot| world.engine.content_root(&world.volume, snapshot).unwrap();
    assert_eq!(root(empty), reference::root(&bytes(64, 0)));
    assert!(root(again) == root(empty) && root(full) != root(empty));
    // The same in a staged version.
    world.follow();
    let staged = world.stage(Some(full), 64, 4);
    staged.write(8 * BLOCK_BYTES, &bytes(8, 0)).unwrap();
    staged.discard(16 * BLOCK_BYTES, 8 * BLOCK_BYTES).unwrap();
    assert_eq!(staged.content_root().unwrap(), root(empty));
    let extents = staged.changed_from(Some(empty)).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    assert!(!F::IS_EXACT || extents.is_empty(), "{extents:?}");
    staged.abandon().unwrap();
    // A size is content too.
    let smaller = world.stage(Some(empty), 63, 5);
    assert_eq!(smaller.content_root().unwrap(), reference::root(&bytes(63, 0)));
    assert_ne!(smaller.content_root().unwrap(), root(empty));
}

/// Fingerprints of subtrees, where they are kept, are made of those of the blocks below.
pub fn subtrees_are_those_of_the_blocks_below<F: Fixture>() {
    let mut world = World::<F>::new(33, 700);
    let engine = world.engine.clone();
    let Some(subtrees) = engine.subtrees(&world.volume.pool) else { return };
    world.scribble(40);
    world.trim(256, 128);
    let taken = world.snapshot("s", 1).uuid;
    for level in 0..=6 {
        let expected = reference::subtrees(&world.live, level);
        let count = expected.len() as u64;
        let ask = |first, count| subtrees.subtree_fingerprints(&world.volume, taken, level, first, count);
        assert_eq!(ask(0, count).unwrap(), expected, "level {level}");
        assert_eq!(ask(count - 1, 1).unwrap(), expected[expected.len() - 1..], "level {level}, the last one");
        if level < 6 {
            assert_eq!(ask(count, 2).unwrap(), [Fingerprint::HOLE; 2], "level {level}, past the end");
        }
    }
    for (level, first, count) in [(7, 0, 1), (6, 1, 1), (0, 0, FINGERPRINTS_MAX + 1)] {
        let refused = subtrees.subtree_fingerprints(&world.volume, taken, level, first, count);
        assert!(matches!(refused, Err(EngineError::Invalid(_))), "level {level}");
    }
}
