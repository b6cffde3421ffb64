//! What differs: exactly, or safely more.

use uuid::Uuid;

use super::fixture::Fixture;
use super::world::{World, at};
use crate::{BLOCK_BYTES, ChangeKind, ChangedBytes, ChangedExtent, ChangedExtents, EngineError};

/// A difference brings one version to the other, in either direction and from nothing; what it says of its extents is so.
pub fn differences_hold_all_that_differs<F: Fixture>() {
    let mut world = World::<F>::new(21, 256);
    let mut model: Vec<(Option<Uuid>, Vec<u8>)> = vec![(None, Vec::new())];
    for round in 0..7_u128 {
        world.scribble([12, 1, 5, 0, 9, 3, 2][round as usize]);
        match round {
            2 => world.resize(400),
            4 => world.resize(200),
            _ => {}
        }
        let taken = world.snapshot(&format!("s{round}"), round + 1);
        model.push((Some(taken.uuid), world.live.clone()));
    }
    for (base, was) in &model {
        for (incremental, is) in &model {
            let Some(incremental) = *incremental else { continue };
            let context = format!("from {base:?} to {incremental}");
            let extents = world.engine.changed_extents(&world.volume, *base, incremental).unwrap();
            check(extents, was, is, F::IS_EXACT, &context);
        }
    }
}

/// Checks a difference against both versions.
pub(super) fn check(extents: ChangedExtents, was: &[u8], is: &[u8], is_exact: bool, context: &str) {
    let extents: Vec<ChangedExtent> = extents.collect::<Result<_, EngineError>>().unwrap();
    let mut after = was.to_vec();
    after.resize(is.len().max(was.len()), 0);
    let block_of = |version: &[u8], offset: u64| {
        let block = version.get(offset as usize..(offset + BLOCK_BYTES) as usize);
        block.map_or_else(|| vec![0; BLOCK_BYTES as usize], <[u8]>::to_vec)
    };
    let mut last: Option<ChangedExtent> = None;
    for extent in &extents {
        let ChangedExtent { offset, length, kind, changed } = *extent;
        assert!(
            offset.is_multiple_of(BLOCK_BYTES) && length.is_multiple_of(BLOCK_BYTES),
            "{context}: {extent:?}"
        );
        assert!(length > 0 && changed <= length, "{context}: {extent:?}");
        if let Some(last) = last.replace(*extent) {
            let end = last.offset + last.length;
            let is_next = if last.kind == kind { end < offset } else { end <= offset };
            assert!(is_next, "{context}: {extent:?} after {last:?}");
        }
        let mut differing = 0;
        for offset in (offset..offset + length).step_by(BLOCK_BYTES as usize) {
            let (old, new) = (block_of(was, offset), block_of(is, offset));
            differing += if old == new { 0 } else { BLOCK_BYTES };
            let new_is_zero = new.iter().all(|byte| *byte == 0);
            assert!(kind == ChangeKind::Data || new_is_zero, "{context}: no hole at {offset}");
            assert!(
                !is_exact || kind == ChangeKind::Hole || (old != new && !new_is_zero),
                "{context}: nothing changed at {offset}"
            );
            if offset < after.len() as u64 {
                after[offset as usize..(offset + BLOCK_BYTES) as usize].copy_from_slice(&new);
            }
        }
        assert!(!is_exact || changed == differing, "{context}: {extent:?} has {differing} bytes that differ");
    }
    // What lies past a smaller size is said by the size.
    assert!(after[..is.len()] == *is, "{context}: something that differs is missing");
}

/// What hosts see differs from a snapshot just if it does: this decides whether anything would be lost.
pub fn the_present_differs_just_if_it_does<F: Fixture>() {
    let mut world = World::<F>::new(22, 128);
    let since = |world: &World<F>, snapshot| world.engine.changed_since(&world.volume, snapshot).unwrap();
    let nothing = ChangedBytes::default();
    world.write(10, 20, 3);
    let base = world.snapshot("base", 1).uuid;
    assert_eq!(since(&world, base), nothing);
    assert_eq!(world.engine.kept_bytes(&world.volume, base).unwrap(), 0);
    // What was there once more, and zeros where there was nothing.
    world.write(12, 2, 3);
    world.trim(100, 8);
    assert_eq!(since(&world, base), nothing);
    world.write(12, 1, 4);
    world.trim(20, 2);
    world.write(60, 3, 5);
    let changed = since(&world, base);
    assert_eq!((changed.data_bytes, changed.hole_bytes), (at(4), at(2)));
    assert!(world.engine.is_written_since(&world.volume, base).unwrap());
    assert!((at(3)..=at(6)).contains(&world.engine.kept_bytes(&world.volume, base).unwrap()));
    let next = world.snapshot("next", 2).uuid;
    assert_eq!(since(&world, next), nothing);
    assert!(since(&world, base) == changed && !world.engine.is_written_since(&world.volume, next).unwrap());
    // And back again, which nothing tells but the bytes.
    world.write(12, 1, 3);
    world.write(20, 2, 3);
    world.trim(60, 3);
    assert_eq!(since(&world, base), nothing);
    assert_ne!(since(&world, next), nothing);
}
