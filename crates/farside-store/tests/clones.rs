//! Clones: volumes that begin as a snapshot of another one, and are independent of it afterwards, whichever of the two goes first.

mod sparse;

use std::collections::BTreeMap;
use std::sync::Arc;

use farside_format::pins::kept_of;
use farside_platform::{BlockDevice, CrashFate, SimulatedDisk};
use farside_store::{CloneOf, NewClone, Pool, ReplicaStatus, StoreError};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use sparse::{BLOCK, Version, content, new_snapshot, options, seeds, staged_for};
use uuid::Uuid;

const BLOCKS: u64 = 700;
const VOLUMES_MAX: usize = 6;

fn assert_clean(disk: &SimulatedDisk, what: &str) -> farside_check::Report {
    let report =
        farside_check::check(disk, &farside_check::CheckOptions::default()).expect("the checker runs");
    assert!(report.is_clean(), "{what}: {report}");
    report
}

fn write(pool: &Arc<Pool>, volume: &str, block: u64, stamp: u64) {
    let handle = pool.open_volume(volume).expect("it opens");
    handle.write(block * BLOCK, &content(stamp)).expect("a write");
}

fn take(pool: &Arc<Pool>, volume: &str, name: &str, number: u32) -> Uuid {
    pool.create_snapshots(&[(volume.into(), new_snapshot(name, number))]).expect("a snapshot")[0].uuid
}

fn read(pool: &Arc<Pool>, volume: &str, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    pool.open_volume(volume).expect("it opens").read(block * BLOCK, &mut bytes).expect("it reads");
    bytes
}

/// A pool whose volume `v` has blocks 0 to 299 in snapshot `s`, and others since.
fn pool_with_a_snapshot() -> (SimulatedDisk, Arc<Pool>) {
    let disk = SimulatedDisk::new("clones", 48 << 20);
    let pool = Pool::create(Arc::new(disk.clone()), options(1)).expect("a pool");
    pool.create_volume("v", BLOCKS * BLOCK).expect("a volume");
    (0..300).for_each(|block| write(&pool, "v", block, 1000 + block));
    take(&pool, "v", "s", 1);
    (0..20).for_each(|block| write(&pool, "v", block, 2000 + block));
    (disk, pool)
}

#[test]
fn a_volume_is_deleted_by_its_identity() {
    let (_, pool) = pool_with_a_snapshot();
    let clone = |name: &str| {
        let wanted = NewClone { name: name.into(), even_if_damaged: false };
        pool.clone_volume("v", CloneOf::Snapshot("s"), &wanted).expect("a clone").uuid
    };
    let first = clone("c");
    pool.delete_volume_of("c", first, kept_of(first)).expect("it goes");
    let second = clone("c");
    let refused = pool.delete_volume_of("c", first, kept_of(first)).expect_err("another has the name");
    assert!(matches!(refused, StoreError::NotFound(_)), "{refused}");
    assert_eq!(pool.volume("c").expect("it stays").uuid, second);
    // With what its own timetable keeps, but not with what anybody else needs.
    let (own, other) = (kept_of(second), Uuid::from_u128(7));
    let mut wanted = new_snapshot("kept", 9);
    wanted.pin_for = Some(own);
    let kept = pool.create_snapshots(&[("c".into(), wanted)]).expect("taken").remove(0).uuid;
    pool.pin_snapshot("c", kept, other).expect("pinned");
    let refused = pool.delete_volume_of("c", second, own).expect_err("somebody needs it");
    assert!(matches!(refused, StoreError::Refused(_)), "{refused}");
    pool.unpin_snapshot("c", kept, other).expect("unpinned");
    pool.delete_volume("c").expect_err("its timetable keeps it");
    pool.delete_volume_of("c", second, own).expect("it goes");
}

/// Pool and model, with volumes of which most are clones of clones.
struct Run {
    disk: SimulatedDisk,
    pool: Arc<Pool>,
    random: SmallRng,
    heads: BTreeMap<String, Version>,
    snapshots: BTreeMap<(String, String), Version>,
    number: u32,
}

impl Run {
    fn picked_volume(&mut self) -> Option<String> {
        let at = self.random.random_range(0..self.heads.len().max(1));
        self.heads.keys().nth(at).cloned()
    }

    fn picked_snapshot(&mut self) -> Option<(String, String)> {
        let at = self.random.random_range(0..self.snapshots.len().max(1));
        self.snapshots.keys().nth(at).cloned()
    }

    fn step(&mut self) {
        self.number += 1;
        let name = format!("n{}", self.number);
        let Some(volume) = self.picked_volume() else {
            self.pool.create_volume(&name, BLOCKS * BLOCK).expect("a volume");
            self.heads.insert(name, Version { blocks: BLOCKS, ..Version::default() });
            return;
        };
        match self.random.random_range(0..30) {
            0..=8 => self.write(&volume),
            9 | 10 => {
                let blocks = self.heads[&volume].blocks;
                let at = self.random.random_range(0..blocks);
                let end = self.random.random_range(at..=blocks);
                let handle = self.pool.open_volume(&volume).expect("it opens");
                handle.trim(at * BLOCK, (end - at) * BLOCK).expect("a trim");
                self.heads.get_mut(&volume).expect("known").unmap(at, end);
            }
            11..=14 => {
                take(&self.pool, &volume, &name, self.number);
                self.snapshots.insert((volume.clone(), name), self.heads[&volume].clone());
            }
            15..=18 => {
                let Some(key) = self.picked_snapshot() else { return };
                if self.heads.len() < VOLUMES_MAX {
                    let made = self.pool.clone_snapshot(&key.0, &key.1, &name).expect("a clone");
                    assert_eq!(
                        made.origin.map(|o| (o.volume, o.snapshot, o.exists)),
                        Some((key.0.clone(), key.1.clone(), true))
                    );
                    assert_eq!((made.snapshots, made.occupied_bytes), (0, 0), "it has nothing of its own");
                    self.heads.insert(name, self.snapshots[&key].clone());
                }
            }
            19 | 20 => {
                let Some(key) = self.picked_snapshot() else { return };
                let uuid = self.pool.snapshot_named(&key.0, &key.1).expect("it is there").uuid;
                self.pool.delete_snapshot(&key.0, uuid).expect("deleted");
                self.snapshots.remove(&key);
            }
            21 => {
                self.pool.delete_volume(&volume).expect("deleted");
                self.heads.remove(&volume);
                self.snapshots.retain(|(of, _), _| *of != volume);
            }
            22 => {
                let blocks = self.random.random_range(100..BLOCKS + 300);
                self.pool.resize_volume(&volume, blocks * BLOCK).expect("resized");
                self.heads.get_mut(&volume).expect("known").resize(blocks);
            }
            23 => {
                let Some(key) = self.picked_snapshot() else { return };
                let uuid = self.pool.snapshot_named(&key.0, &key.1).expect("it is there").uuid;
                let rescued = self.pool.move_main(&key.0, uuid, None, None).expect("moved");
                let before = self.heads.insert(key.0.clone(), self.snapshots[&key].clone()).expect("known");
                if let Some(rescued) = rescued {
                    self.snapshots.insert((key.0, rescued.name), before);
                }
            }
            24 => {
                self.pool.rename_volume(&volume, &name).expect("renamed");
                let head = self.heads.remove(&volume).expect("known");
                self.heads.insert(name.clone(), head);
                let of_it: Vec<_> = self.snapshots.keys().filter(|(of, _)| *of == volume).cloned().collect();
                for key in of_it {
                    let version = self.snapshots.remove(&key).expect("known");
                    self.snapshots.insert((name.clone(), key.1), version);
                }
            }
            25 => {
                while self.pool.reap_step_within(1).expect("a step") && self.random.random_range(0..5) > 0 {}
            }
            26 => self.pool.consistency_point().expect("a point"),
            27 => self.pool.flush().expect("a flush"),
            28 => {
                self.pool.flush().expect("a flush");
                self.reopen();
            }
            _ => {
                self.pool.close().expect("closed");
                self.reopen();
            }
        }
    }

    fn write(&mut self, volume: &str) {
        let handle = self.pool.open_volume(volume).expect("it opens");
        let version = self.heads.get_mut(volume).expect("known");
        for _ in 0..self.random.random_range(1..12) {
            let (at, count) = (self.random.random_range(0..version.blocks), self.random.random_range(1..20));
            for block in at..(at + count).min(version.blocks) {
                let stamp = self.random.random_range(1..100_000);
                handle.write(block * BLOCK, &content(stamp)).expect("a write");
                version.map.insert(block, stamp);
            }
        }
    }

    fn reopen(&mut self) {
        self.pool = Pool::open(Arc::new(self.disk.clone()), options(self.number.into())).expect("it opens");
    }

    /// Each volume shows its own content, and its own snapshots alone.
    fn compare(&self, what: &str) {
        let mut names: Vec<String> = self.pool.volumes().into_iter().map(|v| v.name).collect();
        names.sort();
        assert!(names.iter().eq(self.heads.keys()), "{what}: {names:?}");
        for (name, version) in &self.heads {
            version.compare(
                &self.pool.open_volume(name).expect("it opens"),
                true,
                &format!("{what}, {name}"),
            );
            let mut listed: Vec<String> =
                self.pool.snapshots(name).expect("a list").into_iter().map(|s| s.name).collect();
            listed.sort();
            let known = self.snapshots.keys().filter(|(of, _)| of == name).map(|(_, snapshot)| snapshot);
            assert!(listed.iter().eq(known), "{what}, snapshots of {name}: {listed:?}");
        }
        for ((volume, name), version) in &self.snapshots {
            let handle = self.pool.open_snapshot(volume, name).expect("it opens");
            version.compare(&handle, true, &format!("{what}, {volume}@{name}"));
        }
    }
}

/// Written, cloned, renamed, rolled back and deleted in any order: nothing is freed that somebody has, and when all are gone nothing
/// is left.
#[test]
fn clones_of_clones_in_any_order_leave_nothing_behind() {
    for seed in seeds(4, 900) {
        println!("seed {seed}");
        let disk = SimulatedDisk::new("clones", 64 << 20).without_history();
        let pool = Pool::create(Arc::new(disk.clone()), options(seed)).expect("a pool");
        (0..2).for_each(|_| pool.consistency_point().expect("a point"));
        let blank = assert_clean(&disk.image(), "a new pool").blocks_in_use;
        let random = SmallRng::seed_from_u64(seed);
        let (heads, snapshots) = (BTreeMap::new(), BTreeMap::new());
        let mut run = Run { disk, pool, random, heads, snapshots, number: 0 };
        for step in 0..240 {
            run.step();
            if step % 30 == 29 {
                run.pool.flush().expect("a flush");
                assert_clean(&run.disk.image(), &format!("seed {seed}, step {step}"));
                run.compare(&format!("seed {seed}, step {step}"));
            }
        }
        for name in run.heads.keys() {
            run.pool.delete_volume(name).expect("deleted");
        }
        run.pool.reap_all().expect("reaped");
        (0..3).for_each(|_| run.pool.consistency_point().expect("a point"));
        assert!(run.pool.volumes().is_empty());
        let left = assert_clean(&run.disk.image(), &format!("seed {seed}, at the end"));
        assert_eq!(left.blocks_in_use, blank, "seed {seed}: what is left when all are gone");
    }
}

/// Whatever is cut off around a clone, it is there whole or not at all, and a clone that was answered is there.
#[test]
fn a_crash_around_a_clone_leaves_it_whole_or_not_at_all() {
    let (disk, pool) = pool_with_a_snapshot();
    pool.flush().expect("a flush");
    let before = disk.events();
    pool.clone_snapshot("v", "s", "c").expect("a clone");
    let answered = disk.events();
    write(&pool, "c", 5, 7);
    pool.flush().expect("a flush");
    let written = disk.events();
    pool.consistency_point().expect("a point");
    take(&pool, "c", "of-c", 2);
    pool.delete_volume("v").expect("the origin can go");
    let gone = disk.events();
    pool.reap_all().expect("reaped");
    (0..2).for_each(|_| pool.consistency_point().expect("a point"));
    drop(pool);
    let mut there = [0, 0];
    for event in before..=disk.events() {
        for fate in [CrashFate::DropUnsynced, CrashFate::KeepUnsynced, CrashFate::Random(event as u64)] {
            let what = format!("event {event} of {before}, {answered}, {written}, {fate:?}");
            let image = disk.crash_at(event, fate);
            assert_clean(&image, &what);
            let pool = Pool::open(Arc::new(image.clone()), options(3)).expect("it opens");
            let names: Vec<String> = pool.volumes().into_iter().map(|v| v.name).collect();
            there[usize::from(names.contains(&"c".into()))] += 1;
            assert!(event < answered || names.contains(&"c".into()), "{what}: {names:?}");
            assert!(event < gone || !names.contains(&"v".into()), "{what}: {names:?}");
            if let Ok(clone) = pool.volume("c") {
                assert_eq!(clone.origin.expect("it has one").volume, "v", "{what}");
                assert!(
                    read(&pool, "c", 4) == content(1004) && read(&pool, "c", 299) == content(1299),
                    "{what}"
                );
                let of_five = read(&pool, "c", 5);
                assert!(of_five == content(7) || (event < written && of_five == content(1005)), "{what}");
            }
            pool.reap_all().expect("reaped");
            pool.consistency_point().expect("a point");
            drop(pool);
            assert_clean(&image, &format!("{what}, afterwards"));
        }
    }
    assert!(there.iter().all(|times| *times > 0), "{there:?}: before and after it were tried");
}

#[test]
fn what_cannot_be_cloned_is_refused_and_nothing_is_made() {
    let (_, pool) = pool_with_a_snapshot();
    let uuid = pool.snapshot_named("v", "s").expect("it is there").uuid;
    let not_found = |made: Result<_, StoreError>| matches!(made, Err(StoreError::NotFound(_)));
    assert!(not_found(pool.clone_snapshot("w", "s", "c")));
    assert!(not_found(pool.clone_snapshot("v", "absent", "c")));
    assert!(matches!(pool.clone_snapshot("v", "s", "v"), Err(StoreError::Exists(_))));
    // Its head was written since.
    let shown = NewClone { name: "c".into(), even_if_damaged: false };
    let refused = pool.clone_volume("v", CloneOf::Shown, &shown).expect_err("it shows no snapshot");
    assert!(matches!(&refused, StoreError::Refused(why) if why.contains("shows no snapshot")), "{refused}");
    // A clone's own snapshots are its own: those of its origin are not found by its name.
    pool.clone_snapshot("v", "s", "first").expect("a clone");
    assert!(not_found(pool.clone_snapshot("first", "s", "c")));
    assert!(pool.move_main("first", uuid, None, None).is_err(), "nor can it be rolled back to one");
    pool.delete_snapshot("v", uuid).expect("deleted");
    assert!(not_found(pool.clone_snapshot("v", "s", "c")));
    let names: Vec<String> = pool.volumes().into_iter().map(|v| v.name).collect();
    assert_eq!(names, ["first", "v"]);
}

#[test]
fn a_damaged_snapshot_is_cloned_only_if_it_is_said() {
    use farside_format::{Node, TreeKind};
    let (disk, pool) = pool_with_a_snapshot();
    pool.close().expect("closed");
    drop(pool);
    // The map of blocks 128 to 255, which volume and snapshot have in common.
    let is_leaf = |place: &u64| {
        let node = Node::decode(&disk.peek(place * BLOCK, BLOCK as usize));
        node.is_ok_and(|(n, _)| n.kind == TreeKind::Volume && n.level == 1 && n.position == 1)
    };
    for leaf in (0..disk.bytes() / BLOCK).filter(is_leaf).collect::<Vec<_>>() {
        disk.damage(leaf * BLOCK, &[7; BLOCK as usize]);
    }
    let pool = Pool::open(Arc::new(disk.clone()), options(2)).expect("it opens");
    let handle = pool.open_snapshot("v", "s").expect("it opens");
    handle.read(130 * BLOCK, &mut [0; 4096]).expect_err("its map is damaged");
    drop(handle);
    let refused = pool.clone_snapshot("v", "s", "c").expect_err("part of it cannot be read");
    assert!(
        matches!(&refused, StoreError::Refused(why) if why.contains("blocks from 128 on") && why.contains("--even-if-damaged")),
        "{refused}"
    );
    assert!(pool.volume("c").is_err());
    let new = NewClone { name: "c".into(), even_if_damaged: true };
    pool.clone_volume("v", CloneOf::Snapshot("s"), &new).expect("a clone all the same");
    assert!(read(&pool, "c", 3) == content(1003));
    // What is written to the clone is whole there, and damaged still where it comes from.
    write(&pool, "c", 130, 9);
    assert!(read(&pool, "c", 130) == content(9));
    let origin = pool.open_snapshot("v", "s").expect("it opens");
    assert!(origin.read(130 * BLOCK, &mut [0; 4096]).is_err());
}

/// What a clone says of its origin follows renames, outlives it, and is there after an opening.
#[test]
fn a_clone_knows_what_it_began_as() {
    let (disk, pool) = pool_with_a_snapshot();
    pool.clone_snapshot("v", "s", "c").expect("a clone");
    let uuid = pool.snapshot_named("v", "s").expect("it is there").uuid;
    assert_eq!(pool.clones_of("v").expect("a list"), [("c".to_owned(), uuid)]);
    assert!(pool.clones_of("c").expect("a list").is_empty());
    let origin = |pool: &Pool| {
        let origin = pool.volume("c").expect("it is there").origin.expect("it has one");
        (format!("{}@{}", origin.volume, origin.snapshot), origin.exists)
    };
    assert_eq!(origin(&pool), ("v@s".into(), true));
    pool.rename_volume("v", "w").expect("renamed");
    pool.rename_snapshot("w", uuid, "t").expect("renamed");
    assert_eq!(origin(&pool), ("w@t".into(), true));
    pool.consistency_point().expect("a point");
    drop(pool);
    let pool = Pool::open(Arc::new(disk), options(2)).expect("it opens");
    assert_eq!(origin(&pool), ("w@t".into(), true));
    pool.delete_volume("w").expect("it can go");
    pool.reap_all().expect("reaped");
    // Another volume of that name is not its origin.
    pool.create_volume("v", BLOCK).expect("a volume");
    take(&pool, "v", "s", 9);
    assert_eq!(origin(&pool), ("v@s".into(), false));
    assert!(pool.clones_of("v").expect("a list").is_empty());
    assert!(read(&pool, "c", 7) == content(1007));
}

/// Of a replica what was published last is cloned, while its mirror goes on; the replica does not change.
#[test]
fn what_a_replica_shows_is_cloned_while_it_is_mirrored() {
    let (disk, pool) = pool_with_a_snapshot();
    pool.create_volume("r", BLOCKS * BLOCK).expect("a volume");
    let record = ReplicaStatus {
        relationship: Uuid::from_u128(0x5e1),
        peer: [1; 32],
        source: "far/v".into(),
        broken_off: false,
    };
    pool.set_replica("r", Some(record)).expect("a replica");
    let drill = |name: &str| {
        pool.clone_volume("r", CloneOf::Shown, &NewClone { name: name.into(), even_if_damaged: false })
    };
    assert!(matches!(drill("early"), Err(StoreError::Refused(_))), "it shows nothing yet");
    let mut base = None;
    for number in 1..5u32 {
        let staged = pool.stage("r", base, BLOCKS * BLOCK, staged_for(number)).expect("staged");
        staged.write(0, &content(number.into())).expect("a staged write");
        // What is staged is not shown.
        if number > 1 {
            let made = drill(&format!("during{number}")).expect("a clone");
            assert_eq!(made.origin.expect("it has one").snapshot, format!("p{}", number - 1));
            assert!(made.replica.is_none(), "hosts may write to it");
        }
        let before = base;
        base =
            Some(staged.commit(&new_snapshot(&format!("p{number}"), 10 + number)).expect("published").uuid);
        if let Some(before) = before {
            pool.delete_snapshot("r", before).expect("the mirror deletes its old base");
        }
        let name = format!("after{number}");
        drill(&name).expect("a clone");
        write(&pool, &name, 0, 500);
        pool.reap_all().expect("reaped");
        assert!(read(&pool, "r", 0) == content(number.into()), "the replica is as it was");
    }
    assert!(read(&pool, "during2", 0) == content(1) && read(&pool, "during3", 0) == content(2));
    pool.delete_volume("r").expect("deleted");
    pool.reap_all().expect("reaped");
    assert!(read(&pool, "during3", 0) == content(2));
    pool.close().expect("closed");
    assert_clean(&disk, "at the end");
}

/// A record, whatever lies in the volume: no node and no data is read, and a few versions are looked at.
#[test]
fn a_clone_costs_the_same_of_a_large_volume() {
    let disk = SimulatedDisk::new("clones", 512 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(1)).expect("a pool");
    pool.create_volume("v", 1 << 40).expect("a volume");
    let head = pool.open_volume("v").expect("it opens");
    for number in 0..2000u32 {
        head.write(u64::from(number) * 100_000 * BLOCK, &content(number.into())).expect("a write");
        if number % 10 == 0 {
            take(&pool, "v", &format!("s{number}"), number);
        }
    }
    drop(head);
    pool.close().expect("closed");
    drop(pool);
    let pool = Pool::open(Arc::new(disk.clone()), options(2)).expect("it opens");
    pool.consistency_point().expect("a point");
    let count =
        || (pool.nodes_read(), pool.versions_looked_at(), disk.reads().0, pool.status().journal_used_bytes);
    let before = count();
    pool.clone_snapshot("v", "s1000", "c").expect("a clone");
    let after = count();
    // The root, which says whether something is lost below it.
    assert!(after.0 - before.0 <= 2, "{} nodes read", after.0 - before.0);
    assert!(after.1 - before.1 <= 16, "{} versions looked at", after.1 - before.1);
    assert!(after.2 - before.2 <= 4, "{} reads of the device", after.2 - before.2);
    assert!(after.3 - before.3 <= 8 << 10, "{} bytes of journal", after.3 - before.3);
    assert_eq!(pool.volume("c").expect("it is there").size_bytes, 1 << 40);
}
