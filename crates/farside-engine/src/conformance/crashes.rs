//! The process dies at every step of every change: what is found then is all of the change or nothing of it, and all of it once it was
//! acknowledged.

use std::collections::BTreeMap;

use farside_platform::Timestamp;
use uuid::Uuid;

use super::fixture::Fixture;
use super::world::{MIRROR, OTHER, World, at, bytes, mirrors, name, record, shown, spec, staged_for};
use crate::{
    ContentRoot, EngineError, ReadyVersion, ReplicaRecord, SnapshotInfo, SnapshotOwner, StagedInfo,
    StagedVersion, VolumeName,
};

const BLOCKS: u64 = 24;
/// More steps than any change has.
const STEPS_MAX: usize = 1000;

/// Everything that an engine says of its volumes.
#[derive(PartialEq, Debug)]
pub(super) struct Seen(BTreeMap<VolumeName, SeenVolume>);

#[derive(PartialEq, Debug)]
struct SeenVolume {
    size_bytes: u64,
    is_replica: bool,
    record: Option<ReplicaRecord>,
    /// What hosts see, by its root.
    shown: Option<ContentRoot>,
    snapshots: Vec<SeenSnapshot>,
    line: Vec<Uuid>,
    staged: Vec<(StagedInfo, Option<ContentRoot>)>,
}

#[derive(PartialEq, Debug)]
struct SeenSnapshot {
    name: String,
    uuid: Uuid,
    created_at: Timestamp,
    owner: SnapshotOwner,
    pinned_by: Vec<Uuid>,
    root: ContentRoot,
}

/// Looks at everything. What an engine names itself, and identities that it gave, are its own affair: of a rescue only what it holds
/// counts.
pub(super) fn look<F: Fixture>(fixture: &F) -> Seen {
    let engine = fixture.engine();
    let of = |volume: VolumeName| {
        let info = engine.volume(&volume).unwrap();
        let snapshot = |s: SnapshotInfo| {
            let is_rescue = s.name.starts_with("rescue");
            let read = super::world::content(&*engine, &volume, s.uuid);
            let root = engine.content_root(&volume, s.uuid).unwrap();
            assert_eq!(root, super::reference::root(&read), "{volume}@{}", s.name);
            let (name, uuid) = if is_rescue { ("rescue".into(), Uuid::nil()) } else { (s.name, s.uuid) };
            let created_at = if is_rescue { Timestamp::default() } else { s.created_at };
            SeenSnapshot { name, uuid, created_at, owner: s.owner, pinned_by: s.pinned_by, root }
        };
        let all = engine.all_snapshots(&volume).unwrap();
        let is_rescue = |uuid: &Uuid| all.iter().any(|s| s.uuid == *uuid && s.name.starts_with("rescue"));
        let line = engine.snapshots(&volume).unwrap().into_iter().map(|s| s.uuid);
        let line = line.map(|uuid| if is_rescue(&uuid) { Uuid::nil() } else { uuid }).collect();
        let mut snapshots: Vec<SeenSnapshot> = all.iter().cloned().map(snapshot).collect();
        snapshots.sort_by(|one, other| one.name.cmp(&other.name));
        let staged = engine.staged(&volume).unwrap().into_iter();
        let staged = staged.map(|(info, staged)| (info, Some(staged.content_root().unwrap()))).collect();
        let seen = SeenVolume {
            size_bytes: info.size_bytes,
            is_replica: info.is_replica,
            record: engine.replica_record(&volume).unwrap(),
            shown: Some(super::reference::root(&shown(fixture, &volume))),
            snapshots,
            line,
            staged,
        };
        (volume, seen)
    };
    Seen(engine.volumes().unwrap().into_iter().map(of).collect())
}

impl Seen {
    /// Without what nobody had made durable.
    fn without_contents(mut self) -> Seen {
        for volume in self.0.values_mut() {
            volume.shown = None;
            volume.staged.iter_mut().for_each(|(_, root)| *root = None);
        }
        self
    }
}

/// What is durable before the change.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    /// All of it.
    Durable,
    /// All but bytes that hosts wrote and did not flush, or that were staged since the last checkpoint: the change makes them durable.
    Loose,
}

/// A change that is made in a world, and may die on its way.
struct Change<'a, F> {
    what: &'a str,
    before: Before,
    prepare: &'a dyn Fn(&mut World<F>),
    act: &'a dyn Fn(&World<F>) -> Result<(), EngineError>,
}

impl<F: Fixture> Change<'_, F> {
    fn world(&self) -> World<F> {
        let fixture = F::create(101);
        let mut world = World::of(fixture, 101, BLOCKS);
        (self.prepare)(&mut world);
        if self.before == Before::Durable {
            world.fixture.host_flushes(&world.volume).unwrap();
        }
        world
    }

    fn survives(&self) {
        let what = self.what;
        let world = self.world();
        let before = look(&world.fixture);
        (self.act)(&world).unwrap_or_else(|e| panic!("{what}: {e}"));
        let after = look(&world.fixture);
        assert_ne!(before, after, "{what} changes something");
        let simplified = |seen: Seen| match self.before {
            Before::Durable => seen,
            Before::Loose => seen.without_contents(),
        };
        let before = simplified(before);
        let mut seen = [0, 0];
        for step in 0..STEPS_MAX {
            let world = self.world();
            world.fixture.dies_at(step);
            let done = (self.act)(&world);
            let died = world.fixture.died_at();
            if died.is_none() {
                done.unwrap_or_else(|e| panic!("{what}: {e}"));
            }
            for fate in 0..F::FATES {
                let context = || format!("{what}, dead at step {step} ({died:?}), fate {fate}");
                let again = world.fixture.reopened(fate);
                let found = look(&again);
                if found == after {
                    seen[1] += 1;
                    continue;
                }
                assert!(died.is_some(), "{}: it was acknowledged and is gone: {found:#?}", context());
                let found = simplified(found);
                assert!(found == before, "{}: neither all nor nothing: {found:#?}", context());
                seen[0] += 1;
                if self.before == Before::Loose {
                    continue;
                }
                // What was not done can be done again.
                let World { volume, live, rng, .. } = self.world();
                let again = World { engine: again.engine(), fixture: again, volume, live, rng };
                (self.act)(&again).unwrap_or_else(|e| panic!("{}, once more: {e}", context()));
                assert_eq!(look(&again.fixture), after, "{}, once more", context());
            }
            if died.is_none() {
                println!("{what}: {step} steps; {} deaths before it, {} after it", seen[0], seen[1]);
                return;
            }
        }
        panic!("{what} has more than {STEPS_MAX} steps");
    }
}

fn survives<F: Fixture>(
    what: &str,
    before: Before,
    prepare: impl Fn(&mut World<F>),
    act: impl Fn(&World<F>) -> Result<(), EngineError>,
) {
    Change { what, before, prepare: &prepare, act: &act }.survives();
}

/// A snapshot `base` of the mirror, and the volume its replica.
fn replica<F: Fixture>(world: &mut World<F>) -> Uuid {
    world.write(0, 8, 1);
    let base = world.engine.take_snapshot(&world.volume, &mirrors("base", 1)).unwrap().uuid;
    world.follow();
    base
}

/// The same, and something staged upon it, durable.
fn staged<F: Fixture>(world: &mut World<F>) -> std::sync::Arc<dyn StagedVersion> {
    let base = replica(world);
    let staged = world.stage(Some(base), BLOCKS, 2);
    staged.write(at(4), &bytes(8, 2)).unwrap();
    staged.discard(0, at(2)).unwrap();
    staged.checkpoint().unwrap();
    staged
}

fn found<F: Fixture>(world: &World<F>) -> Result<std::sync::Arc<dyn StagedVersion>, EngineError> {
    let found = world.engine.staged(&world.volume)?.pop();
    found.map(|(_, staged)| staged).ok_or_else(|| EngineError::NotFound { what: "anything staged".into() })
}

/// Volumes, and what the pool remembers of replicas.
pub fn changes_of_volumes_survive_whole<F: Fixture>() {
    println!("seed 101");
    let nothing = |_: &mut World<F>| {};
    survives("create volume", Before::Durable, nothing, |world| {
        world.engine.create_volume(&name("w"), at(8)).map(drop)
    });
    let full = |world: &mut World<F>| {
        world.write(0, 8, 1);
        world.snapshot("s", 1);
        world.write(4, 8, 2);
    };
    survives("delete volume", Before::Durable, full, |world| world.engine.delete_volume(&world.volume));
    survives("set record", Before::Durable, full, |world| {
        world.engine.set_replica_record(&world.volume, Some(record(MIRROR, false)))
    });
    let follows = |world: &mut World<F>| _ = replica(world);
    survives("break off", Before::Durable, follows, |world| {
        world.engine.set_replica_record(&world.volume, Some(record(MIRROR, true)))
    });
    let broken_off = |world: &mut World<F>| {
        replica(world);
        world.engine.set_replica_record(&world.volume, Some(record(MIRROR, true))).unwrap();
    };
    survives("end record", Before::Durable, broken_off, |world| {
        world.engine.end_replica_record(&world.volume, MIRROR).map(drop)
    });
}

/// Snapshots: taken, deleted, pinned, handed over.
pub fn changes_of_snapshots_survive_whole<F: Fixture>() {
    println!("seed 101");
    let written = |world: &mut World<F>| world.write(0, 8, 1);
    // Covers what hosts have not flushed.
    survives("take snapshot", Before::Loose, written, |world| {
        world.engine.take_snapshot(&world.volume, &mirrors("s", 1)).map(drop)
    });
    let taken = |world: &mut World<F>| {
        world.write(0, 8, 1);
        world.engine.take_snapshot(&world.volume, &mirrors("s", 1)).unwrap();
        world.write(4, 8, 2);
        world.snapshot("t", 2);
        world.write(6, 8, 3);
    };
    let snapshot = spec("", 1).uuid;
    survives("delete snapshot", Before::Durable, taken, |world| {
        world.engine.delete_snapshot(&world.volume, spec("", 2).uuid)
    });
    survives("pin", Before::Durable, taken, |world| world.engine.pin(&world.volume, snapshot, OTHER));
    survives("unpin", Before::Durable, taken, |world| world.engine.unpin(&world.volume, snapshot, MIRROR));
    survives("make a person's", Before::Durable, taken, |world| {
        world.engine.make_user_snapshot(&world.volume, snapshot)
    });
    survives("hand over", Before::Durable, taken, |world| {
        world.engine.hand_over(&world.volume, snapshot, SnapshotOwner::Person, "rescue", None).map(drop)
    });
}

/// Staged versions: begun, turned to another snapshot, given another size, thrown away.
pub fn changes_of_staged_versions_survive_whole<F: Fixture>() {
    println!("seed 101");
    let follows = |world: &mut World<F>| _ = replica(world);
    survives("stage", Before::Durable, follows, |world| {
        world.engine.stage(&world.volume, Some(mirrors("", 1).uuid), at(30), staged_for(2)).map(drop)
    });
    let built = |world: &mut World<F>| drop(staged(world));
    survives("retarget", Before::Durable, built, |world| found(world)?.retarget(OTHER));
    survives("make smaller", Before::Durable, built, |world| found(world)?.resize(at(6)));
    survives("make larger", Before::Durable, built, |world| found(world)?.resize(at(300)));
    survives("abandon", Before::Durable, built, |world| found(world)?.abandon());
    survives("abandon all", Before::Durable, built, |world| {
        world.engine.abandon_staged(&world.volume).map(drop)
    });
}

/// Publications: by a commit, of one volume or several, and by going back.
pub fn publications_survive_whole<F: Fixture>() {
    println!("seed 101");
    let built = |world: &mut World<F>| drop(staged(world));
    survives("commit", Before::Durable, built, |world| found(world)?.commit(&mirrors("next", 2)).map(drop));
    let loose = |world: &mut World<F>| staged(world).write(at(12), &bytes(4, 3)).unwrap();
    survives("commit of what is not durable", Before::Loose, loose, |world| {
        found(world)?.commit(&mirrors("next", 2)).map(drop)
    });
    let written = |world: &mut World<F>| {
        staged(world);
        let set = |record| world.engine.set_replica_record(&world.volume, Some(record)).unwrap();
        set(record(MIRROR, true));
        let host = world.fixture.host_writes(&world.volume, at(16), &bytes(4, 7));
        host.unwrap();
        set(record(MIRROR, false));
    };
    survives("commit over what hosts wrote", Before::Durable, written, |world| {
        found(world)?.commit(&mirrors("next", 2)).map(drop)
    });
    if World::<F>::new(102, 1).engine.together(super::fixture::POOL).is_some() {
        together::<F>();
    }
    if World::<F>::new(103, 1).engine.branches(super::fixture::POOL).is_some() {
        let own = |world: &mut World<F>| {
            replica(world);
            world.engine.set_replica_record(&world.volume, Some(record(MIRROR, true))).unwrap();
            world.write(3, 8, 7);
        };
        survives("go back and break off", Before::Durable, own, |world| {
            let branches = world.engine.branches(&world.volume.pool).unwrap();
            branches.move_main(&world.volume, mirrors("", 1).uuid, Some(record(OTHER, true)), None).map(drop)
        });
        let follows = |world: &mut World<F>| {
            own(world);
            world.follow();
        };
        survives("go back as a replica", Before::Durable, follows, |world| {
            let branches = world.engine.branches(&world.volume.pool).unwrap();
            branches.move_replica(&world.volume, mirrors("", 1).uuid, MIRROR).map(drop)
        });
    }
}

fn together<F: Fixture>() {
    let two = |world: &mut World<F>| {
        world.engine.create_volume(&name("w"), at(8)).unwrap();
        world.fixture.host_writes(&name("w"), 0, &bytes(2, 3)).unwrap();
        world.write(0, 8, 1);
    };
    survives("take snapshots together", Before::Loose, two, |world| {
        let wanted = [(world.volume.clone(), spec("s", 1)), (name("w"), spec("s", 2))];
        world.engine.together(&world.volume.pool).unwrap().take_snapshots(&wanted).map(drop)
    });
    let built = |world: &mut World<F>| {
        staged(world);
        world.engine.create_volume(&name("w"), at(8)).unwrap();
        world.engine.set_replica_record(&name("w"), Some(record(MIRROR, false))).unwrap();
        let other = world.engine.stage(&name("w"), None, at(8), staged_for(3)).unwrap();
        other.write(0, &bytes(4, 5)).unwrap();
        other.checkpoint().unwrap();
    };
    survives("commit together", Before::Durable, built, |world| {
        let of = |volume: VolumeName, number| {
            let staged = world.engine.staged(&volume)?.pop();
            let (_, staged) =
                staged.ok_or_else(|| EngineError::NotFound { what: "anything staged".into() })?;
            Ok(ReadyVersion { volume, staged, spec: mirrors("next", number) })
        };
        let versions = [of(world.volume.clone(), 2)?, of(name("w"), 3)?];
        world.engine.together(&world.volume.pool).unwrap().commit_together(&versions).map(drop)
    });
}

/// A checkpoint that was acknowledged keeps everything written before it; what one that was not acknowledged leaves is, block by block,
/// what was there before or what was written.
pub fn a_checkpoint_keeps_what_it_covered<F: Fixture>() {
    println!("seed 101");
    let covered = |world: &mut World<F>| {
        let staged = staged(world);
        staged.write(at(3), &bytes(2, 5)).unwrap();
        staged.write(at(20), &bytes(4, 6)).unwrap();
        staged.discard(at(8), at(2)).unwrap();
    };
    let was = [bytes(2, 0), bytes(2, 1), bytes(8, 2), bytes(12, 0)].concat();
    let is = [
        bytes(2, 0),
        bytes(1, 1),
        bytes(2, 5),
        bytes(3, 2),
        bytes(2, 0),
        bytes(2, 2),
        bytes(8, 0),
        bytes(4, 6),
    ]
    .concat();
    let prepare: &dyn Fn(&mut World<F>) = &covered;
    let act: &dyn Fn(&World<F>) -> Result<(), EngineError> = &|world| found(world)?.checkpoint();
    let change = Change { what: "checkpoint", before: Before::Loose, prepare, act };
    for step in 0..STEPS_MAX {
        let world = change.world();
        world.fixture.dies_at(step);
        let done = act(&world);
        let died = world.fixture.died_at();
        assert!(done.is_ok() || died.is_some(), "{done:?}");
        for fate in 0..F::FATES {
            let again = world.fixture.reopened(fate);
            let (info, staged) = again.engine().staged(&world.volume).unwrap().pop().unwrap();
            assert_eq!(info.staged_for, staged_for(2));
            let mut read = bytes(BLOCKS, 0xff);
            staged.read(0, &mut read).unwrap();
            let context = format!("step {step} ({died:?}), fate {fate}");
            assert_eq!(staged.content_root().unwrap(), super::reference::root(&read), "{context}");
            for block in 0..BLOCKS {
                let of = |version: &[u8]| version[at(block) as usize..at(block + 1) as usize].to_vec();
                let found = of(&read);
                assert!(
                    found == of(&is) || (died.is_some() && found == of(&was)),
                    "{context}: block {block}"
                );
            }
        }
        if died.is_none() {
            println!("checkpoint: {step} steps");
            return;
        }
    }
    panic!("a checkpoint has more than {STEPS_MAX} steps");
}
