//! Snapshots: what they hold, who has them, when they go.

use super::fixture::Fixture;
use super::world::{MIRROR, OTHER, World, at, bytes, mirrors, name, spec};
use crate::{BLOCK_BYTES, EngineError, SnapshotOwner, VolumeName};

/// A snapshot holds what hosts had written when it was taken, whatever they, and other snapshots, do afterwards.
pub fn snapshots_hold_what_hosts_had<F: Fixture>() {
    let mut world = World::<F>::new(11, 96);
    let mut model = Vec::new();
    for round in 0..8_u128 {
        world.scribble(6);
        match round {
            2 => world.resize(160),
            5 => world.resize(64),
            _ => {}
        }
        let taken = world.snapshot(&format!("s{round}"), round + 1);
        assert_eq!((taken.size_bytes, taken.owner), (world.live.len() as u64, SnapshotOwner::Person));
        model.push((taken, world.live.clone()));
    }
    let listed = world.engine.snapshots(&world.volume).unwrap();
    let of = |s: &crate::SnapshotInfo| (s.name.clone(), s.uuid, s.created_at, s.size_bytes);
    assert_eq!(
        listed.iter().map(of).collect::<Vec<_>>(),
        model.iter().map(|(s, _)| of(s)).collect::<Vec<_>>()
    );
    assert!(listed.is_sorted_by(|one, next| one.sequence < next.sequence));
    // Every second one goes; what is left holds what it held.
    for (gone, _) in model.iter().skip(1).step_by(2) {
        world.engine.delete_snapshot(&world.volume, gone.uuid).unwrap();
    }
    for (kept, expected) in model.iter().step_by(2) {
        world.check(kept.uuid, expected, &kept.name);
        let ranges = [(3, 2), (40, 1), (9, 3)];
        let mut found = bytes(6, 0xff);
        world.engine.read_snapshot_ranges(&world.volume, kept.uuid, &ranges, &mut found).unwrap();
        let pieces = ranges.map(|(first, blocks)| &expected[at(first) as usize..at(first + blocks) as usize]);
        assert!(found == pieces.concat(), "{}", kept.name);
        // Past its end there are zeros.
        let mut past = bytes(2, 0xff);
        let last = expected.len() as u64 - BLOCK_BYTES;
        world.engine.read_snapshot(&world.volume, kept.uuid, last, &mut past).unwrap();
        assert!(past[..BLOCK_BYTES as usize] == expected[last as usize..], "{}", kept.name);
        assert!(past[BLOCK_BYTES as usize..].iter().all(|byte| *byte == 0), "{}", kept.name);
    }
    assert!(world.shown() == world.live);
}

/// Names and identities stand for one thing each, and what there is not is not found.
pub fn what_is_taken_is_taken_once<F: Fixture>() {
    let world = World::<F>::new(12, 16);
    let engine = &world.engine;
    assert!(engine.has_pool(&world.volume.pool) && engine.volumes().unwrap() == [world.volume.clone()]);
    let first = engine.volume(&world.volume).unwrap();
    assert_eq!((first.size_bytes, first.is_replica), (at(16), false));
    world.snapshot("s", 1);
    let taken = engine.take_snapshot(&world.volume, &spec("s", 2));
    assert!(matches!(taken, Err(EngineError::Exists { .. })), "{taken:?}");
    let taken = engine.take_snapshot(&world.volume, &spec("t", 1));
    assert!(matches!(taken, Err(EngineError::Exists { .. })), "{taken:?}");
    let taken = engine.take_snapshot(&world.volume, &spec("-s", 3));
    assert!(matches!(taken, Err(EngineError::BadName { .. })), "{taken:?}");
    let made = engine.create_volume(&world.volume, at(1));
    assert!(matches!(made, Err(EngineError::Exists { .. })), "{made:?}");
    let made = engine.create_volume(&name("-v"), at(1));
    assert!(matches!(made, Err(EngineError::BadName { .. })), "{made:?}");

    let absent = spec("x", 9).uuid;
    let not_found = |what: &str, found: Result<(), EngineError>| {
        assert!(matches!(found, Err(EngineError::NotFound { .. })), "{what}: {found:?}");
    };
    let nowhere: VolumeName = name("w");
    not_found("volume", engine.volume(&nowhere).map(drop));
    not_found("snapshots", engine.snapshots(&nowhere).map(drop));
    not_found("take", engine.take_snapshot(&nowhere, &spec("s", 4)).map(drop));
    not_found("delete", engine.delete_volume(&nowhere));
    not_found("record", engine.replica_record(&nowhere).map(drop));
    not_found("staged", engine.staged(&nowhere).map(drop));
    not_found("delete snapshot", engine.delete_snapshot(&world.volume, absent));
    not_found("pin", engine.pin(&world.volume, absent, MIRROR));
    not_found("unpin", engine.unpin(&world.volume, absent, MIRROR));
    not_found("root", engine.content_root(&world.volume, absent).map(drop));
    not_found("open", engine.open_snapshot(&world.volume, absent).map(drop));
    not_found("difference", engine.changed_extents(&world.volume, Some(absent), spec("s", 1).uuid).map(drop));
    not_found("since", engine.changed_since(&world.volume, absent).map(drop));
    not_found(
        "stage",
        engine.stage(&world.volume, Some(absent), at(16), super::world::staged_for(9)).map(drop),
    );

    // Made again under its name it is another volume.
    engine.delete_snapshot(&world.volume, spec("s", 1).uuid).unwrap();
    let other = engine.create_volume(&name("w"), at(1)).unwrap();
    engine.delete_volume(&world.volume).unwrap();
    let again = engine.create_volume(&world.volume, at(16)).unwrap();
    assert!(again.uuid != first.uuid && again.uuid != other.uuid && first.uuid != other.uuid);
}

/// Nothing takes a snapshot away that somebody needs.
pub fn a_pinned_snapshot_stays<F: Fixture>() {
    let world = World::<F>::new(13, 16);
    let (engine, volume) = (&world.engine, &world.volume);
    let taken = engine.take_snapshot(volume, &mirrors("m", 1)).unwrap();
    assert_eq!((&taken.pinned_by[..], taken.owner), (&[MIRROR][..], SnapshotOwner::Relationship(MIRROR)));
    engine.pin(volume, taken.uuid, OTHER).unwrap();
    engine.pin(volume, taken.uuid, OTHER).unwrap();
    let pins = || {
        let mut pins = engine.snapshots(volume).unwrap().pop().unwrap().pinned_by;
        pins.sort();
        pins
    };
    assert_eq!(pins(), [MIRROR, OTHER]);
    let refused =
        |what: Result<(), EngineError>| assert!(matches!(what, Err(EngineError::Refused(_))), "{what:?}");
    refused(engine.delete_snapshot(volume, taken.uuid));
    refused(engine.delete_volume(volume));
    engine.unpin(volume, taken.uuid, MIRROR).unwrap();
    engine.unpin(volume, taken.uuid, MIRROR).unwrap();
    assert_eq!(pins(), [OTHER]);
    refused(engine.delete_snapshot(volume, taken.uuid));
    engine.unpin(volume, taken.uuid, OTHER).unwrap();
    engine.delete_snapshot(volume, taken.uuid).unwrap();
    assert!(engine.snapshots(volume).unwrap().is_empty());
}

/// A mirror's snapshot becomes a person's, and a person's a mirror's.
pub fn a_snapshot_changes_hands<F: Fixture>() {
    let world = World::<F>::new(14, 16);
    let (engine, volume) = (&world.engine, &world.volume);
    let [first, second] =
        [1, 2].map(|n| engine.take_snapshot(volume, &mirrors(&format!("m{n}"), n)).unwrap().uuid);
    engine.make_user_snapshot(volume, first).unwrap();
    let listed = engine.snapshots(volume).unwrap();
    assert_eq!((&*listed[0].name, listed[0].owner), ("m1", SnapshotOwner::Person));
    let given = engine.hand_over(volume, second, SnapshotOwner::Person, "kept", None).unwrap();
    assert!(given.name.starts_with("kept-") && given.owner == SnapshotOwner::Person, "{given:?}");
    assert_eq!(given.pinned_by, [MIRROR], "that is another matter");
    let another = engine.hand_over(volume, first, SnapshotOwner::Relationship(OTHER), "kept", None).unwrap();
    assert!(another.name.starts_with("kept-") && another.name != given.name, "{another:?}");
    assert_eq!(another.owner, SnapshotOwner::Relationship(OTHER));
    assert_eq!(world.line(), [another.name, given.name]);
}

/// Whoever reads a snapshot is in nobody's way.
pub fn an_open_snapshot_outlives_its_deletion<F: Fixture>() {
    let mut world = World::<F>::new(15, 32);
    world.write(3, 4, 7);
    let held = world.live.clone();
    let taken = world.snapshot("s", 1);
    let open = world.engine.open_snapshot(&world.volume, taken.uuid).unwrap();
    assert!(!open.is_deleted().unwrap());
    world.write(0, 32, 9);
    world.engine.delete_snapshot(&world.volume, taken.uuid).unwrap();
    assert!(open.is_deleted().unwrap());
    let mut found = vec![0xff; held.len()];
    open.read(0, &mut found).unwrap();
    assert!(found == held);
    let mut found = bytes(2, 0xff);
    open.read_ranges(&[(3, 1), (30, 1)], &mut found).unwrap();
    assert!(found == [bytes(1, 7), bytes(1, 0)].concat());
    // The volume goes as well, and its space comes free when the reader does.
    world.engine.delete_volume(&world.volume).unwrap();
    open.read(at(3), &mut found[..BLOCK_BYTES as usize]).unwrap();
    assert!(found[..BLOCK_BYTES as usize] == bytes(1, 7));
}

/// A volume that is deleted takes with it what is its own, and nothing else.
pub fn a_volume_goes_with_its_snapshots<F: Fixture>() {
    let mut world = World::<F>::new(16, 32);
    let engine = world.engine.clone();
    engine.create_volume(&name("w"), at(8)).unwrap();
    world.fixture.host_writes(&name("w"), 0, &bytes(8, 5)).unwrap();
    world.write(0, 16, 5);
    world.snapshot("s", 1);
    engine.delete_volume(&world.volume).unwrap();
    assert_eq!(engine.volumes().unwrap(), [name("w")]);
    assert!(super::world::shown(&world.fixture, &name("w")) == bytes(8, 5));
}
