//! How a version becomes what readers see: in one moment, and only for the mirror that the volume is the replica of.

use super::fixture::Fixture;
use super::world::{MIRROR, OTHER, World, at, bytes, mirrors, record, spec};
use crate::{BLOCK_BYTES, EngineError, SnapshotSpec, StagedFor};

/// Before a commit nobody sees any of it, after it everybody all; whoever reads an earlier version goes on with that.
pub fn a_commit_shows_all_of_it_at_once<F: Fixture>() {
    let mut world = World::<F>::new(51, 64);
    world.write(0, 32, 1);
    let base = world.engine.take_snapshot(&world.volume, &mirrors("base", 1)).unwrap();
    world.follow();
    let refused = world.fixture.host_writes(&world.volume, 0, &bytes(1, 9));
    assert!(refused.is_err(), "a replica is read-only to hosts");
    let before = world.live.clone();
    let open = world.engine.open_snapshot(&world.volume, base.uuid).unwrap();
    let staged = world.stage(Some(base.uuid), 64, 2);
    staged.write(at(16), &bytes(32, 2)).unwrap();
    staged.discard(0, at(2)).unwrap();
    assert!(world.shown() == before);
    let taken = staged.commit(&mirrors("next", 2)).unwrap();
    let after = [bytes(2, 0), bytes(14, 1), bytes(32, 2), bytes(16, 0)].concat();
    assert!(world.shown() == after);
    assert_eq!(
        (&*taken.name, taken.uuid, &taken.pinned_by[..]),
        ("next", mirrors("", 2).uuid, &[MIRROR][..])
    );
    assert!(taken.sequence > base.sequence && taken.created_at == mirrors("", 2).created_at);
    assert_eq!(world.line(), ["base", "next"]);
    world.check(taken.uuid, &after, "next");
    world.check(base.uuid, &before, "base");
    let mut read = bytes(64, 0xff);
    open.read(0, &mut read).unwrap();
    assert!(read == before);
    assert!(matches!(staged.info(), Err(EngineError::Refused(_))), "the handle is dead");
    assert!(world.engine.staged(&world.volume).unwrap().is_empty());
    // The base may go now, and the next one is staged upon what it became.
    world.engine.unpin(&world.volume, base.uuid, MIRROR).unwrap();
    world.engine.delete_snapshot(&world.volume, base.uuid).unwrap();
    let staged = world.stage(Some(taken.uuid), 64, 3);
    staged.write(0, &bytes(1, 3)).unwrap();
    staged.commit(&mirrors("third", 3)).unwrap();
    assert!(world.shown()[..BLOCK_BYTES as usize] == bytes(1, 3) && world.line() == ["next", "third"]);
}

/// A resync: what hosts wrote that no snapshot has is set aside in the moment in which it goes out of sight.
pub fn what_hosts_wrote_stays_at_a_commit<F: Fixture>() {
    let mut world = World::<F>::new(52, 64);
    world.write(0, 32, 1);
    let base = world.snapshot("base", 1).uuid;
    world.write(8, 4, 5);
    let own = world.live.clone();
    world.follow();
    assert!(world.shown() == own, "until the first commit");
    let staged = world.stage(Some(base), 64, 2);
    staged.write(at(40), &bytes(2, 2)).unwrap();
    staged.commit(&mirrors("next", 2)).unwrap();
    let rescue = world.rescue_of(&own).expect("it is set aside");
    assert!(rescue.owner == crate::SnapshotOwner::Person && rescue.pinned_by.is_empty());
    assert!(world.shown() == [bytes(32, 1), bytes(8, 0), bytes(2, 2), bytes(22, 0)].concat());
    let line = world.line();
    assert!(line.first().unwrap() == "base" && line.last().unwrap() == "next", "{line:?}");
    // The next one sets nothing aside: no host has written since.
    let staged = world.stage(Some(mirrors("", 2).uuid), 64, 3);
    staged.write(at(41), &bytes(2, 3)).unwrap();
    staged.commit(&mirrors("third", 3)).unwrap();
    let all = world.engine.all_snapshots(&world.volume).unwrap();
    assert_eq!(all.iter().filter(|s| s.name.starts_with("rescue")).count(), 1);
}

/// A replica that is taken over in mid-transfer shows its last moment, whole, and is written to at once. What was under way has no
/// effect any more, however late it comes.
pub fn a_break_in_mid_transfer_shows_the_last_moment<F: Fixture>() {
    for is_thrown_away in [true, false] {
        let mut world = World::<F>::new(53, 64);
        world.write(0, 32, 1);
        world.engine.take_snapshot(&world.volume, &mirrors("base", 1)).unwrap();
        world.follow();
        let staged = world.stage(Some(mirrors("", 1).uuid), 64, 2);
        staged.write(at(4), &bytes(40, 2)).unwrap();
        if is_thrown_away {
            assert_eq!(world.engine.abandon_staged(&world.volume).unwrap(), 1);
        }
        world.engine.set_replica_record(&world.volume, Some(record(MIRROR, true))).unwrap();
        assert!(!world.engine.volume(&world.volume).unwrap().is_replica);
        assert!(world.shown() == world.live, "the last moment, whole");
        world.write(60, 4, 7);
        let refused = staged.commit(&mirrors("late", 2));
        assert!(matches!(refused, Err(EngineError::Refused(_))), "{refused:?}");
        assert!(world.shown() == world.live && world.line() == ["base"]);
        world.fixture.host_flushes(&world.volume).unwrap();
        let again = world.fixture.reopened(0);
        assert!(super::world::shown(&again, &world.volume) == world.live);
        let found = again.engine().replica_record(&world.volume).unwrap();
        assert_eq!(found, Some(record(MIRROR, true)));
    }
}

/// What one mirror staged another does not publish, nor is it published where the volume follows nobody.
pub fn a_commit_is_for_the_mirror_alone<F: Fixture>() {
    let world = World::<F>::new(54, 16);
    let engine = &world.engine;
    let staged = world.stage(None, 16, 1);
    staged.write(0, &bytes(2, 4)).unwrap();
    let of_other = SnapshotSpec { pin_for: Some(OTHER), ..mirrors("next", 1) };
    let set = |record| engine.set_replica_record(&world.volume, record).unwrap();
    for (stands, spec) in [
        (None, mirrors("next", 1)),
        (Some(record(OTHER, false)), mirrors("next", 1)),
        (Some(record(OTHER, false)), of_other),
        (Some(record(MIRROR, true)), mirrors("next", 1)),
    ] {
        set(stands.clone());
        let refused = staged.commit(&spec);
        assert!(matches!(refused, Err(EngineError::Refused(_))), "{stands:?}: {refused:?}");
        assert!(world.shown() == world.live && world.line().is_empty(), "{stands:?}");
    }
    set(Some(record(MIRROR, false)));
    staged.commit(&mirrors("next", 1)).unwrap();
    assert_eq!(world.line(), ["next"]);
}

/// A name or an identity that is taken: nothing happens, and what is staged is still there.
pub fn a_refused_commit_changes_nothing<F: Fixture>() {
    let mut world = World::<F>::new(55, 16);
    world.write(0, 4, 1);
    world.snapshot("taken", 1);
    world.follow();
    let staged = world.stage(Some(spec("", 1).uuid), 16, 2);
    staged.write(0, &bytes(2, 4)).unwrap();
    for spec in [mirrors("taken", 2), mirrors("free", 1)] {
        let refused = staged.commit(&spec);
        assert!(matches!(refused, Err(EngineError::Exists { .. })), "{refused:?}");
        assert!(world.shown() == world.live && world.line() == ["taken"]);
    }
    let info = staged.info().unwrap();
    assert_eq!(info.staged_for, StagedFor { relationship: MIRROR, incremental: mirrors("", 2).uuid });
    staged.commit(&mirrors("free", 2)).unwrap();
    assert_eq!(world.line(), ["taken", "free"]);
}

/// A record that took the place of a mirror's that is over stays.
pub fn a_record_ends_only_for_its_own_mirror<F: Fixture>() {
    let world = World::<F>::new(56, 16);
    let (engine, volume) = (&world.engine, &world.volume);
    for stays in [None, Some(record(OTHER, true)), Some(record(MIRROR, false))] {
        engine.set_replica_record(volume, stays.clone()).unwrap();
        assert!(!engine.end_replica_record(volume, MIRROR).unwrap());
        assert_eq!(engine.replica_record(volume).unwrap(), stays);
        let is_replica = stays.is_some_and(|record| !record.broken_off);
        assert_eq!(engine.volume(volume).unwrap().is_replica, is_replica);
    }
    engine.set_replica_record(volume, Some(record(MIRROR, true))).unwrap();
    assert!(engine.end_replica_record(volume, MIRROR).unwrap());
    assert_eq!(engine.replica_record(volume).unwrap(), None);
}
