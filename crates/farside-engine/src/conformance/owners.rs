//! Storage that somebody else has taken.

use super::crashes::look;
use super::fixture::Fixture;
use super::world::{MIRROR, OTHER, World, at, bytes, mirrors, record, spec, staged_for};
use crate::{EngineError, ReadyVersion, SnapshotOwner};

/// Whoever hung while another took its storage changes nothing any more, neither a byte nor a record, however alive it is.
pub fn whoever_lost_the_storage_changes_nothing<F: Fixture>() {
    println!("seed 91");
    let mut world = World::of(F::create_shared(91), 91, 32);
    world.write(0, 8, 1);
    let base = world.engine.take_snapshot(&world.volume, &mirrors("base", 1)).unwrap().uuid;
    world.follow();
    let staged = world.stage(Some(base), 32, 2);
    staged.write(at(8), &bytes(4, 2)).unwrap();
    staged.checkpoint().unwrap();
    let other = super::world::name("w");
    world.engine.create_volume(&other, at(8)).unwrap();
    world.fixture.host_writes(&other, 0, &bytes(2, 3)).unwrap();
    world.fixture.host_flushes(&other).unwrap();

    let second = world.fixture.taken_over();
    let before = look(&second);
    let (engine, volume) = (&*world.engine, &world.volume);
    let fails = |what: &str, done: Result<(), EngineError>| assert!(done.is_err(), "{what} was done");
    fails("create", engine.create_volume(&super::world::name("x"), at(8)).map(drop));
    fails("delete", engine.delete_volume(&other));
    fails("take", engine.take_snapshot(volume, &spec("s", 3)).map(drop));
    fails("pin", engine.pin(volume, base, OTHER));
    fails("unpin", engine.unpin(volume, base, MIRROR));
    fails("delete snapshot", engine.delete_snapshot(volume, base));
    fails("give", engine.make_user_snapshot(volume, base));
    fails("hand over", engine.hand_over(volume, base, SnapshotOwner::Person, "kept", None).map(drop));
    fails("record", engine.set_replica_record(volume, Some(record(MIRROR, true))));
    fails("stage", engine.stage(&other, None, at(8), staged_for(4)).map(drop));
    fails("write", staged.write(0, &bytes(4, 9)).and_then(|()| staged.checkpoint()));
    fails("discard", staged.discard(0, at(4)).and_then(|()| staged.checkpoint()));
    fails("retarget", staged.retarget(OTHER));
    fails("resize", staged.resize(at(8)));
    fails("commit", staged.commit(&mirrors("next", 2)).map(drop));
    fails("abandon", staged.abandon());
    fails("abandon staged", engine.abandon_staged(volume).map(drop));
    let written = world.fixture.host_writes(&other, at(2), &bytes(2, 9));
    fails("host's write", written.and_then(|()| world.fixture.host_flushes(&other)));
    if let Some(branches) = engine.branches(&volume.pool) {
        fails("move", branches.move_main(volume, base, None, None).map(drop));
    }
    if let Some(together) = engine.together(&volume.pool) {
        fails("take together", together.take_snapshots(&[(volume.clone(), spec("s", 5))]).map(drop));
        let ready = ReadyVersion { volume: volume.clone(), staged: staged.clone(), spec: mirrors("next", 2) };
        fails("commit together", together.commit_together(&[ready]).map(drop));
    }
    assert_eq!(look(&second), before);
    // Who has it goes on with what the other had made durable.
    let (_, found) = second.engine().staged(volume).unwrap().pop().unwrap();
    found.commit(&mirrors("next", 2)).unwrap();
    let shown = super::world::shown(&second, volume);
    assert!(shown == [bytes(8, 1), bytes(4, 2), bytes(20, 0)].concat());
    second.host_writes(&other, at(4), &bytes(1, 4)).unwrap();
    second.host_flushes(&other).unwrap();
    let after = look(&second);
    drop(world);
    assert_eq!(look(&second.reopened(0)), after);
}
