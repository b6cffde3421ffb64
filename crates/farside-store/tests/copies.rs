//! A copy of a pool becomes one of its own, whatever crashes meanwhile: others never take the two for each other.

mod sparse;

use std::sync::Arc;

use farside_check::CheckOptions;
use farside_format::Superblock;
use farside_format::pins::kept_of;
use farside_platform::{BlockDevice, CrashFate, SimulatedDisk};
use farside_store::{NewSnapshot, Pool, PoolOptions, ReplicaStatus, StagedFor, identity};
use sparse::{BLOCK, content, new_snapshot, options};
use uuid::Uuid;

const SLOTS: [u64; 2] = [0, 256 * 4096];

fn relationship(number: u128) -> Uuid {
    Uuid::from_u128(0xfeed_0000 + number)
}

fn of_mirror(name: &str, id: u32, of: Uuid) -> NewSnapshot {
    NewSnapshot { relationship: Some(of), pin_for: Some(of), ..new_snapshot(name, id) }
}

/// A pool with a replica, `r`, and a source, `s`, each with snapshots of persons and of mirrors.
fn original() -> SimulatedDisk {
    let disk = SimulatedDisk::new("original", 32 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(5)).expect("a pool");
    let [of_r, of_s] = [1, 2].map(relationship);
    let for_r = StagedFor { relationship: of_r, incremental: Uuid::from_u128(1) };
    let record = |broken_off| {
        Some(ReplicaStatus { relationship: of_r, peer: [7; 32], source: "tank/r".into(), broken_off })
    };
    pool.create_volume("r", 64 * BLOCK).expect("a volume");
    pool.set_replica("r", record(false)).expect("a replica");
    let mut base = None;
    // What retention keeps was wanted for longer than its mirror.
    let kept = of_mirror("kept-1", 7, of_r);
    let kept_id = kept.uuid;
    let all = [
        (0, of_mirror("m1", 1, of_r)),
        (1, new_snapshot("person", 2)),
        (3, kept),
        (2, of_mirror("m2", 3, of_r)),
    ];
    for (at, new) in all {
        let staged = pool.stage("r", base, 64 * BLOCK, for_r).expect("staged");
        staged.write(at * BLOCK, &content(at + 1)).expect("a staged write");
        base = Some(staged.commit(&new).expect("committed").uuid);
    }
    pool.pin_snapshot("r", kept_id, kept_of(of_r)).expect("pinned");
    let more = pool.stage("r", base, 64 * BLOCK, for_r).expect("staged");
    more.write(9 * BLOCK, &content(9)).expect("what a transfer was bringing");
    drop(more);

    pool.create_volume("s", 64 * BLOCK).expect("a volume");
    let volume = pool.open_volume("s").expect("opened");
    for (at, new) in
        [(0, of_mirror("m1", 4, of_s)), (1, new_snapshot("named", 5)), (2, of_mirror("m2", 6, of_s))]
    {
        volume.write(at * BLOCK, &content(at + 20)).expect("a write");
        pool.create_snapshots(&[("s".into(), new)]).expect("a snapshot");
    }
    pool.pin_snapshot("s", new_snapshot("named", 5).uuid, of_s).expect("pinned");
    drop(volume);
    pool.create_volume("b", 8 * BLOCK).expect("a volume");
    pool.set_replica("b", record(true)).expect("broken off");
    pool.close().expect("closed");
    disk
}

fn open(disk: &SimulatedDisk, as_copy: bool, seed: u64) -> Arc<Pool> {
    let options = PoolOptions { as_copy, ..options(seed) };
    Pool::open(Arc::new(disk.clone()), options).unwrap_or_else(|e| panic!("not opened: {e}"))
}

fn identity_of(disk: &SimulatedDisk) -> Uuid {
    identity(&disk.clone() as &dyn BlockDevice).expect("a pool")
}

/// What mirrors have left in a pool: replica records, pins, owned snapshots, staged content.
fn mirrors_left(pool: &Arc<Pool>) -> usize {
    let volumes = pool.volumes();
    let snapshots = volumes.iter().flat_map(|v| pool.snapshots(&v.name).expect("listed"));
    let of_mirrors = snapshots.filter(|s| s.relationship.is_some() || !s.pinned_by.is_empty()).count();
    let staged = pool.staged_content().expect("listed").len();
    volumes.iter().filter(|v| v.replica.is_some()).count() + of_mirrors + staged
}

fn block(pool: &Arc<Pool>, volume: &str, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    pool.open_volume(volume).expect("opened").read(at * BLOCK, &mut bytes).expect("read");
    bytes
}

/// A copy that is done.
fn is_pool_of_its_own(pool: &Arc<Pool>, original: &Arc<Pool>) {
    assert_ne!(pool.id(), original.id());
    assert_eq!(pool.status().id, pool.id());
    assert_eq!(mirrors_left(pool), 0);
    for volume in original.volumes() {
        let own = pool.volume(&volume.name).expect("it is there");
        assert_ne!(own.uuid, volume.uuid, "{}", volume.name);
        assert_eq!(pool.volume_id(&volume.name), Some(own.uuid));
        let names = |pool: &Arc<Pool>| {
            let all = pool.snapshots(&volume.name).expect("listed").into_iter();
            all.map(|s| (s.name, s.uuid)).collect::<Vec<_>>()
        };
        let (own, theirs) = (names(pool), names(original));
        let persons = theirs.iter().filter(|(name, _)| !name.starts_with('m'));
        assert!(persons.clone().all(|person| own.contains(person)), "{own:?} {theirs:?}");
        // The newest that a mirror took stays under a name that says what it is.
        let newest = theirs.iter().rev().find(|(name, _)| name.starts_with('m')).map(|(_, uuid)| *uuid);
        let left = own.iter().filter(|(name, _)| name.starts_with("base-")).map(|(_, uuid)| *uuid);
        assert_eq!(left.collect::<Vec<_>>(), newest.into_iter().collect::<Vec<_>>());
        assert_eq!(own.len(), persons.count() + usize::from(newest.is_some()));
    }
    for at in 0..3 {
        assert_eq!(block(pool, "r", at), block(original, "r", at));
        assert_eq!(block(pool, "s", at), block(original, "s", at));
    }
}

fn is_clean(disk: &SimulatedDisk, what: &str) {
    let report = farside_check::check(disk, &CheckOptions::default()).expect("it runs");
    assert!(report.is_clean(), "{what}: {report}");
    assert_eq!(report.pool, identity_of(disk), "{what}");
}

#[test]
fn a_copy_becomes_a_pool_of_its_own_and_the_other_stays_what_it_is() {
    let disk = original();
    let copy = disk.image();
    assert_eq!(identity_of(&copy), identity_of(&disk));
    let first = open(&copy, true, 11);
    let theirs = open(&disk, false, 12);
    assert!(mirrors_left(&theirs) > 6, "nobody touched it");
    is_pool_of_its_own(&first, &theirs);
    for volume in ["r", "s", "b"] {
        first.open_volume(volume).expect("opened").write(5 * BLOCK, &content(77)).expect("hosts may write");
    }
    first.flush().expect("flushed");
    let made = first.create_volume("new", BLOCK).expect("a volume").uuid;
    let (id, of_r) = (first.id(), first.volume("r").expect("it is there").uuid);
    // New mirrors of it are its own.
    let record = ReplicaStatus {
        relationship: relationship(9),
        peer: [8; 32],
        source: "x/y".into(),
        broken_off: false,
    };
    first.set_replica("b", Some(record)).expect("a replica");
    drop(first);
    is_clean(&copy, "a copy");

    let again = open(&copy, false, 13);
    assert_eq!((again.id(), identity_of(&copy)), (id, id));
    assert_eq!(again.volume("r").expect("it is there").uuid, of_r);
    assert_eq!(again.volume("new").expect("it is there").uuid, made);
    assert!(again.volume("b").expect("it is there").replica.is_some(), "it was made since");
    again.close().expect("closed");
    drop(again);
    for slot in SLOTS {
        let without = copy.image();
        without.damage(slot, &[0xa5; 4096]);
        assert_eq!(identity_of(&without), id);
        assert_eq!(mirrors_left(&open(&without, false, 14)), 1, "the one that was made since");
    }

    // A copy of the copy.
    let second = copy.image();
    let second = open(&second, true, 15);
    assert!(second.id() != id && second.id() != theirs.id());
    assert_ne!(second.volume("r").expect("it is there").uuid, of_r);
    assert_eq!(mirrors_left(&second), 0);
}

#[test]
fn whatever_crashes_leaves_an_untouched_copy_or_a_pool_of_its_own() {
    let disk = original();
    let theirs = open(&disk, false, 12);
    let before = mirrors_left(&theirs);
    let copy = disk.image();
    drop(open(&copy, true, 11));
    let (events, mut untouched, mut half, mut own) = (copy.events(), 0, 0, 0);
    for event in 0..=events {
        let fates = [
            CrashFate::DropUnsynced,
            CrashFate::KeepUnsynced,
            CrashFate::Random(event as u64),
            CrashFate::Random(!0 - event as u64),
        ];
        for fate in fates {
            let what = format!("event {event} of {events}, {fate:?}");
            let crashed = copy.crash_at(event, fate);
            is_clean(&crashed, &what);
            let marks =
                SLOTS.map(|slot| Superblock::decode(&crashed.peek(slot, 4096)).map(|s| s.copy.number));
            let id = identity_of(&crashed);
            let pool = open(&crashed, false, 13);
            assert_eq!(pool.id(), id, "{what}");
            if id == theirs.id() {
                untouched += 1;
                assert!(!marks.contains(&Ok(1)), "{what}");
                assert_eq!(mirrors_left(&pool), before, "{what}");
                drop(pool);
                is_pool_of_its_own(&open(&crashed, true, 14), &theirs);
            } else {
                half += usize::from(marks.contains(&Ok(0)));
                own += 1;
                is_pool_of_its_own(&pool, &theirs);
                drop(pool);
            }
            is_clean(&crashed, &what);
            // Asked again it is finished, not made anew; and no slot alone is the original again.
            if marks == [Ok(1), Ok(1)] {
                for slot in SLOTS {
                    let without = copy.crash_at(event, fate);
                    without.damage(slot, &[0xa5; 4096]);
                    assert_eq!(identity_of(&without), id, "{what}");
                }
                let flags = SLOTS.map(|slot| {
                    let raw = copy.crash_at(event, fate).peek(slot, 4096);
                    Superblock::decode(&raw).is_ok_and(|s| s.copy.ends_mirrors)
                });
                if flags == [true, true] {
                    assert_eq!(open(&copy.crash_at(event, fate), true, 16).id(), id, "{what}");
                }
            }
        }
    }
    println!("{events} events: {untouched} untouched, {half} with the mark in one slot, {own} of its own");
    assert!(untouched > 0 && half > 0 && own > half);
}
