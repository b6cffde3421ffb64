//! Several volumes in one moment, for engines that can.

use super::fixture::Fixture;
use super::world::{World, at, bytes, mirrors, name, record, shown, spec, staged_for};
use crate::{EngineError, ReadyVersion};

/// Snapshots and publications of several volumes: all of them, or none.
pub fn several_volumes_change_in_one_moment_or_not_at_all<F: Fixture>() {
    let mut world = World::<F>::new(71, 16);
    let engine = world.engine.clone();
    let Some(together) = engine.together(&world.volume.pool) else { return };
    let (one, other) = (world.volume.clone(), name("w"));
    engine.create_volume(&other, at(16)).unwrap();
    world.write(0, 4, 1);
    let names = |volume| engine.snapshots(volume).unwrap().into_iter().map(|s| s.name).collect::<Vec<_>>();
    assert!(
        together.take_snapshots(&[]).unwrap().is_empty() && together.commit_together(&[]).unwrap().is_empty()
    );

    let wanted = [(one.clone(), spec("s", 1)), (other.clone(), spec("s", 2))];
    let taken = together.take_snapshots(&wanted).unwrap();
    assert_eq!(taken.iter().map(|s| s.uuid).collect::<Vec<_>>(), wanted.each_ref().map(|(_, s)| s.uuid));
    world.check(taken[0].uuid, &world.live, "one");
    let wanted = [(one.clone(), spec("t", 3)), (other.clone(), spec("s", 4))];
    let refused = together.take_snapshots(&wanted);
    assert!(matches!(refused, Err(EngineError::Exists { .. })), "{refused:?}");
    assert!(names(&one) == ["s"] && names(&other) == ["s"]);

    let ready = |volume: &crate::VolumeName, number: u128, byte| {
        engine.set_replica_record(volume, Some(record(super::world::MIRROR, false))).unwrap();
        let base = engine.snapshots(volume).unwrap().pop().unwrap().uuid;
        let staged = engine.stage(volume, Some(base), at(16), staged_for(number)).unwrap();
        staged.write(at(8), &bytes(4, byte)).unwrap();
        ReadyVersion { volume: volume.clone(), staged, spec: mirrors("next", number) }
    };
    let mut versions = [ready(&one, 5, 5), ready(&other, 6, 6)];
    versions[1].spec.name = "s".into();
    let refused = together.commit_together(&versions);
    assert!(matches!(refused, Err(EngineError::Exists { .. })), "{refused:?}");
    assert!(names(&one) == ["s"] && shown(&world.fixture, &one) == world.live);
    versions[1].spec.name = "next".into();
    let twice = [versions[0].clone(), versions[0].clone()];
    assert!(together.commit_together(&twice).is_err() && names(&one) == ["s"]);
    let done = together.commit_together(&versions).unwrap();
    assert_eq!(done.iter().map(|s| s.uuid.as_u128()).collect::<Vec<_>>(), [5, 6]);
    assert!(names(&one) == ["s", "next"] && names(&other) == ["s", "next"]);
    assert!(shown(&world.fixture, &other) == [bytes(8, 0), bytes(4, 6), bytes(4, 0)].concat());
}
