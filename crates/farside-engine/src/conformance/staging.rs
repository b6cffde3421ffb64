//! Versions that are built aside.

use uuid::Uuid;

use super::differences;
use super::fixture::Fixture;
use super::reference;
use super::world::{World, at, bytes, spec, staged_for};
use crate::{BLOCK_BYTES, EngineError, FINGERPRINTS_MAX, Fingerprint, StagedInfo};

/// A staged version is its base and what was written over it; nobody sees it.
pub fn a_staged_version_is_its_base_and_what_was_written<F: Fixture>() {
    let mut world = World::<F>::new(41, 128);
    world.scribble(10);
    let base = world.snapshot("base", 1).uuid;
    let was = world.live.clone();
    world.follow();
    for (from, number) in [(Some(base), 2), (None, 3)] {
        let mut model = if from.is_some() { was.clone() } else { bytes(128, 0) };
        let staged = world.stage(from, 128, number);
        let expected = StagedInfo { base: from, size_bytes: at(128), staged_for: staged_for(number) };
        assert_eq!(staged.info().unwrap(), expected);
        for (block, blocks, byte) in [(3, 5, 7), (40, 30, 8), (50, 4, 0), (4, 1, 9), (127, 1, 1)] {
            staged.write(at(block), &bytes(blocks, byte)).unwrap();
            model[at(block) as usize..at(block + blocks) as usize].fill(byte);
        }
        for (block, blocks) in [(60, 5), (126, 2), (0, 2)] {
            staged.discard(at(block), at(blocks)).unwrap();
            model[at(block) as usize..at(block + blocks) as usize].fill(0);
        }
        let mut found = bytes(130, 0xff);
        staged.read(0, &mut found).unwrap();
        assert!(found == [model.clone(), bytes(2, 0)].concat());
        assert_eq!(staged.content_root().unwrap(), reference::root(&model));
        let fingerprints = staged.fingerprints(0, 130).unwrap();
        assert_eq!(fingerprints[..128], reference::fingerprints(&model));
        assert_eq!(fingerprints[128..], [Fingerprint::HOLE; 2]);
        assert!(staged.fingerprints(0, FINGERPRINTS_MAX + 1).is_err());
        differences::check(
            staged.changed_from(Some(base)).unwrap(),
            &was,
            &model,
            F::IS_EXACT,
            "from the base",
        );
        differences::check(staged.changed_from(None).unwrap(), &[], &model, F::IS_EXACT, "from nothing");
        assert!(world.shown() == was && world.line() == ["base"]);
        staged.abandon().unwrap();
        assert!(matches!(staged.info(), Err(EngineError::Refused(_))), "the handle is dead");
        assert!(world.engine.staged(&world.volume).unwrap().is_empty());
    }
    world.check(base, &was, "what was staged upon");
}

/// What a transfer that was cut has staged is found by the next one.
pub fn what_is_staged_is_found_again<F: Fixture>() {
    let mut world = World::<F>::new(42, 32);
    world.write(0, 8, 1);
    let base = world.snapshot("base", 1).uuid;
    world.follow();
    let staged = world.stage(Some(base), 32, 2);
    staged.write(at(4), &bytes(2, 5)).unwrap();
    staged.checkpoint().unwrap();
    drop(staged);
    let mut found = world.engine.staged(&world.volume).unwrap();
    let (info, staged) = found.pop().unwrap();
    assert!(found.is_empty());
    assert_eq!((info.base, info.staged_for), (Some(base), staged_for(2)));
    staged.write(at(6), &bytes(1, 6)).unwrap();
    staged.retarget(Uuid::from_u128(3)).unwrap();
    assert_eq!(staged.info().unwrap().staged_for, staged_for(3));
    drop(staged);
    let (info, staged) = world.engine.staged(&world.volume).unwrap().pop().unwrap();
    assert_eq!(info.staged_for, staged_for(3));
    let mut read = bytes(4, 0xff);
    staged.read(at(4), &mut read).unwrap();
    assert!(read == [bytes(2, 5), bytes(1, 6), bytes(1, 1)].concat());
    assert_eq!(world.engine.abandon_staged(&world.volume).unwrap(), 1);
    assert_eq!(world.engine.abandon_staged(&world.volume).unwrap(), 0);
    assert!(staged.commit(&spec("dead", 4)).is_err() && staged.write(0, &bytes(1, 1)).is_err());
}

/// The source's volume was given another size, or the next snapshot is of another.
pub fn a_staged_version_changes_its_size<F: Fixture>() {
    let mut world = World::<F>::new(43, 64);
    world.write(0, 64, 2);
    let base = world.snapshot("base", 1).uuid;
    world.follow();
    // Smaller than its base from the beginning, and larger.
    for blocks in [20, 200] {
        let staged = world.stage(Some(base), blocks, 2);
        let expected = [bytes(blocks.min(64), 2), bytes(blocks.saturating_sub(64), 0)].concat();
        assert_eq!(staged.content_root().unwrap(), reference::root(&expected), "{blocks}");
        staged.abandon().unwrap();
    }
    let staged = world.stage(Some(base), 64, 3);
    staged.write(at(30), &bytes(10, 7)).unwrap();
    staged.resize(at(35)).unwrap();
    assert!(staged.write(at(34), &bytes(2, 1)).is_err());
    staged.resize(at(150)).unwrap();
    staged.write(at(140), &bytes(10, 8)).unwrap();
    let expected = [bytes(30, 2), bytes(5, 7), bytes(105, 0), bytes(10, 8)].concat();
    assert_eq!(staged.content_root().unwrap(), reference::root(&expected), "what was cut off is gone");
    assert_eq!(staged.info().unwrap().size_bytes, at(150));
    let taken = staged.commit(&super::world::mirrors("next", 3)).unwrap();
    assert_eq!(
        (taken.size_bytes, world.engine.volume(&world.volume).unwrap().size_bytes),
        (at(150), at(150))
    );
    assert!(world.shown() == expected);
    world.check(taken.uuid, &expected, "next");
    world.check(base, &bytes(64, 2), "base");
}

/// The snapshot that something is staged upon may go meanwhile.
pub fn a_staged_version_outlives_its_base<F: Fixture>() {
    let mut world = World::<F>::new(44, 32);
    world.write(0, 4, 1);
    let older = world.snapshot("older", 1).uuid;
    world.write(4, 4, 2);
    let base = world.snapshot("base", 2).uuid;
    world.follow();
    let staged = world.stage(Some(base), 32, 3);
    staged.write(at(8), &bytes(4, 3)).unwrap();
    world.engine.delete_snapshot(&world.volume, base).unwrap();
    assert_eq!(staged.info().unwrap().base, Some(older));
    let expected = [bytes(4, 1), bytes(4, 2), bytes(4, 3), bytes(20, 0)].concat();
    assert_eq!(staged.content_root().unwrap(), reference::root(&expected));
    let was = [bytes(4, 1), bytes(28, 0)].concat();
    differences::check(staged.changed_from(Some(older)).unwrap(), &was, &expected, F::IS_EXACT, "older");
    world.engine.delete_snapshot(&world.volume, older).unwrap();
    assert_eq!(staged.info().unwrap().base, None);
    staged.commit(&super::world::mirrors("next", 4)).unwrap();
    assert!(world.shown() == expected);
}

/// Writes and discards are whole blocks inside the version.
pub fn what_is_not_whole_blocks_inside_is_refused<F: Fixture>() {
    let world = World::<F>::new(45, 16);
    world.follow();
    let staged = world.stage(None, 16, 1);
    let refused =
        |what: Result<(), EngineError>| assert!(matches!(what, Err(EngineError::Invalid(_))), "{what:?}");
    let block = BLOCK_BYTES;
    refused(staged.write(1, &bytes(1, 1)));
    refused(staged.write(0, &bytes(1, 1)[1..]));
    refused(staged.write(at(15), &bytes(2, 1)));
    refused(staged.write(u64::MAX - block + 1, &bytes(1, 1)));
    refused(staged.discard(1, block));
    refused(staged.discard(0, block - 1));
    refused(staged.discard(at(15), 2 * block));
    assert_eq!(staged.content_root().unwrap(), reference::root(&bytes(16, 0)), "nothing of it was done");
}
