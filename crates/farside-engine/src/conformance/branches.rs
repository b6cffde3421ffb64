//! Versions beside the main line, for engines that have such.

use farside_format::pins::kept_of;

use super::fixture::Fixture;
use super::world::{MIRROR, OTHER, World, at, bytes, mirrors, record};
use crate::{ChangedBytes, EngineError, SnapshotOwner};

/// A volume goes back to a snapshot, whatever branch that is on, and what it showed stays.
pub fn a_volume_goes_back_and_keeps_what_it_showed<F: Fixture>() {
    let mut world = World::<F>::new(61, 64);
    let engine = world.engine.clone();
    let Some(branches) = engine.branches(&world.volume.pool) else { return };
    world.write(0, 8, 1);
    let first = world.snapshot("first", 1).uuid;
    let held = world.live.clone();
    world.write(4, 8, 2);
    let second = world.snapshot("second", 2).uuid;
    let newer = world.live.clone();
    world.resize(80);
    world.write(70, 2, 3);
    let own = world.live.clone();
    let rescued = branches.move_main(&world.volume, first, Some(record(MIRROR, true)), None).unwrap();
    let rescued = rescued.expect("hosts had written");
    assert_eq!(rescued.owner, SnapshotOwner::Person);
    assert!(world.shown() == held && world.line() == ["first"]);
    assert_eq!(
        engine.replica_record(&world.volume).unwrap(),
        Some(record(MIRROR, true)),
        "in the same record"
    );
    world.check(rescued.uuid, &own, "rescued");
    world.check(second, &newer, "second");
    let all = engine.all_snapshots(&world.volume).unwrap();
    assert!(all.iter().any(|s| s.uuid == second) && all.iter().any(|s| s.uuid == rescued.uuid));
    assert_eq!(engine.changed_since(&world.volume, first).unwrap(), ChangedBytes::default());
    // To another branch: nothing was written since, so nothing is set aside.
    assert!(branches.move_main(&world.volume, second, None, None).unwrap().is_none());
    assert!(world.shown() == newer && world.line() == ["first", "second"]);
    assert_eq!(engine.replica_record(&world.volume).unwrap(), Some(record(MIRROR, true)), "as it was");
    world.fixture.host_writes(&world.volume, 0, &bytes(1, 9)).unwrap();
    let absent = super::world::spec("", 9).uuid;
    let refused = branches.move_main(&world.volume, absent, None, None);
    assert!(matches!(refused, Err(EngineError::NotFound { .. })), "{refused:?}");
}

/// Where a branch left the line is asked for to find what two sites have in common.
pub fn a_branch_says_where_it_left_the_line<F: Fixture>() {
    let mut world = World::<F>::new(62, 16);
    let engine = world.engine.clone();
    let Some(branches) = engine.branches(&world.volume.pool) else { return };
    let mut take = |number: u128| {
        world.write(0, 1, number as u8);
        world.snapshot(&format!("s{number}"), number).uuid
    };
    let [first, second, third] = [1, 2, 3].map(&mut take);
    branches.move_main(&super::world::name("v"), first, None, None).unwrap();
    let fourth = take(4);
    let fork = |of| branches.fork(&world.volume, of).unwrap();
    assert_eq!((fork(third), fork(second)), (Some(first), Some(first)), "side branches");
    assert_eq!((fork(fourth), fork(first)), (Some(fourth), Some(first)), "the main line");
    engine.delete_snapshot(&world.volume, first).unwrap();
    assert_eq!(fork(third), None, "nothing of the line is left below it");
    assert!(matches!(branches.fork(&world.volume, first), Err(EngineError::NotFound { .. })));
}

/// A mirror that the volume is not the replica of takes nothing from it, whatever it looked at before.
pub fn only_its_own_mirror_moves_a_replica<F: Fixture>() {
    let mut world = World::<F>::new(63, 16);
    let engine = world.engine.clone();
    let Some(branches) = engine.branches(&world.volume.pool) else { return };
    let first = world.snapshot("first", 1).uuid;
    world.write(0, 4, 1);
    for stands in [None, Some(record(MIRROR, true)), Some(record(OTHER, false))] {
        engine.set_replica_record(&world.volume, stands).unwrap();
        let refused = branches.move_replica(&world.volume, first, MIRROR);
        assert!(matches!(refused, Err(EngineError::Refused(_))), "{refused:?}");
        assert!(world.shown() == world.live);
    }
    world.follow();
    let rescued = branches.move_replica(&world.volume, first, MIRROR).unwrap().expect("hosts had written");
    world.check(rescued.uuid, &world.live, "rescued");
    assert!(world.shown() == bytes(16, 0));
}

/// A snapshot that a timetable or retention lets go one day keeps nothing: what only it holds is set aside by itself when it goes out
/// of sight.
pub fn what_rotates_keeps_nothing_for_good<F: Fixture>() {
    for (by_timetable, goes_back) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut world = World::<F>::new(64, 64);
        let engine = world.engine.clone();
        let Some(branches) = engine.branches(&world.volume.pool) else { return };
        world.write(0, 8, 1);
        let first = world.snapshot("first", 1).uuid;
        world.write(4, 8, 2);
        let own = world.live.clone();
        let taken = world.snapshot("auto", 2).uuid;
        let of = if by_timetable { engine.volume(&world.volume).unwrap().uuid } else { MIRROR };
        engine.pin(&world.volume, taken, kept_of(of)).unwrap();
        engine.set_replica_record(&world.volume, Some(record(MIRROR, goes_back))).unwrap();
        if goes_back {
            assert!(branches.move_main(&world.volume, first, None, None).unwrap().is_some());
        } else {
            let staged = world.stage(Some(first), 64, 3);
            staged.write(at(40), &bytes(2, 2)).unwrap();
            staged.commit(&mirrors("next", 3)).unwrap();
        }
        assert!(world.shown() != own);
        let rescue = world.rescue_of(&own).expect("it is set aside");
        assert!(rescue.owner == SnapshotOwner::Person && rescue.pinned_by.is_empty());
        engine.unpin(&world.volume, taken, kept_of(of)).unwrap();
        engine.delete_snapshot(&world.volume, taken).unwrap();
        world.check(rescue.uuid, &own, "the rotation has let its snapshot go");
    }
    // On the line of what comes next it is where it was, and nothing goes out of sight.
    let mut world = World::<F>::new(65, 64);
    let engine = world.engine.clone();
    world.write(0, 8, 1);
    let first = world.snapshot("auto", 1).uuid;
    engine.pin(&world.volume, first, kept_of(MIRROR)).unwrap();
    world.follow();
    let staged = world.stage(Some(first), 64, 2);
    staged.write(at(40), &bytes(2, 2)).unwrap();
    staged.commit(&mirrors("next", 2)).unwrap();
    let all = engine.all_snapshots(&world.volume).unwrap();
    assert!(all.iter().all(|s| !s.name.starts_with("rescue")), "{all:?}");
}
