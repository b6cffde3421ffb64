//! What is Ceph RBD's own, beside what every engine does (`conformance.rs`): images that others made and use, on a real cluster.

mod ceph;

use std::sync::mpsc;
use std::time::{Duration, Instant};

use ceph::{MIB, Space, blocks, data_bytes, is_there, name, record, spec, staged_for};
use farside_engine::rbd::RbdEngine;
use farside_engine::{BLOCK_BYTES, ChangeKind, ChangedBytes, Engine, EngineError};
use uuid::Uuid;

/// Nothing of an image is written by looking at it; a mirror that has it as its source leaves what it found, once its snapshots are gone.
#[test]
fn an_image_of_others_stays_theirs() {
    if !is_there() {
        return;
    }
    let space = Space::new();
    let content = blocks(2048, 7);
    space.import("v", &content);
    space.on(&["snap", "create", "--no-progress"], "v@theirs");
    let before = (space.header("v"), space.on(&["snap", "ls"], "v"));
    let engine = space.engine(false);
    let volume = name("v");
    assert_eq!(engine.volumes().expect("a list"), std::slice::from_ref(&volume));
    let info = engine.volume(&volume).expect("it is there");
    assert_eq!((info.size_bytes, info.is_replica), (content.len() as u64, false));
    assert!(engine.snapshots(&volume).expect("a list").is_empty(), "theirs is theirs");
    assert!(engine.staged(&volume).expect("a list").is_empty());
    assert_eq!(engine.replica_record(&volume).expect("none"), None);
    assert_eq!((space.header("v"), space.on(&["snap", "ls"], "v")), before, "looking changed something");
    assert_eq!(
        space.engine(false).volume(&volume).expect("it is there").uuid,
        info.uuid,
        "an identity is for ever"
    );

    // A source.
    engine.take_snapshot(&volume, &spec("s1", 1)).expect("a snapshot");
    engine.take_snapshot(&volume, &spec("s2", 2)).expect("a snapshot");
    assert_eq!(data_bytes(&engine, "v", None, 1), content.len() as u64);
    assert_eq!(data_bytes(&engine, "v", Some(1), 2), 0);
    let mut read = vec![0; content.len()];
    engine.read_snapshot(&volume, Uuid::from_u128(2), 0, &mut read).expect("it reads");
    assert!(read == content);
    let refused = engine.delete_volume(&volume).expect_err("it has a snapshot of others");
    assert!(refused.to_string().contains("theirs, which farside did not make"), "{refused}");
    for number in [1, 2] {
        engine.delete_snapshot(&volume, Uuid::from_u128(number)).expect("deleted");
    }
    assert_eq!(space.on(&["snap", "ls"], "v"), before.1, "only its own snapshots went");
    assert!(space.bytes("v") == content && space.bytes("v@theirs") == content);
}

/// A call of the library's that does not end is its volume's trouble: a daemon that takes over serves the others.
#[test]
fn a_call_that_does_not_end_holds_up_no_other_volume() {
    if !is_there() {
        return;
    }
    let mut space = Space::new();
    let before = space.engine(false);
    for number in 0..6 {
        space.import(&format!("v{number}"), &blocks(16, number));
        before.set_replica_record(&name(&format!("v{number}")), record(false)).expect("a replica");
    }
    drop(before);
    space.options.timeout_seconds = 5;
    let engine = RbdEngine::new();
    engine.add("p", space.options.clone()).expect("the pool is there");
    let (ends, until) = mpsc::channel();
    let hung = engine.hang(&name("v3"), until).expect("it is there");
    let failed = engine.settle("p", true).expect("the images are listed");
    assert!(failed.len() == 1 && failed[0].0 == name("v3"), "{failed:?}");
    assert!(failed[0].1.to_string().contains("has not answered for 10 s"), "{failed:?}");
    engine.take_snapshot(&name("v4"), &spec("s", 1)).expect("the others are in order");
    // Nobody goes the same way before the first has ended.
    let began = Instant::now();
    let failed = engine.settle("p", true).expect("the images are listed");
    assert!(failed.len() == 1 && failed[0].1.to_string().contains("is under way"), "{failed:?}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    drop(ends);
    hung.join().expect("it ends");
    while !engine.settle("p", true).expect("the images are listed").is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60), "it is in order by itself");
    }
    engine.take_snapshot(&name("v3"), &spec("s", 1)).expect("it is in order");
}

/// A host that has the image's lock keeps it and goes on writing; its image is no replica while it does.
#[test]
fn a_host_that_writes_goes_on() {
    if !is_there() {
        return;
    }
    let space = Space::new();
    let engine = space.engine(false);
    let volume = name("v");
    engine.create_volume(&volume, 256 * MIB).expect("a volume");
    let image = space.image("v");
    let bench =
        ["bench", "--io-type", "write", "--io-size", "4K", "--io-threads", "4", "--io-total", "256M", &image];
    let mut host = space.command(&bench).stdout(std::process::Stdio::null()).spawn().expect("rbd runs");
    let taken = (1..=20).find(|number| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        engine
            .take_snapshot(&volume, &spec(&format!("s{number}"), *number))
            .expect("a snapshot beside a host");
        data_bytes(&engine, "v", None, *number) > 0
    });
    let taken = taken.expect("the host writes");
    let refused = engine.set_replica_record(&volume, record(false)).expect_err("a host writes");
    assert!(matches!(refused, EngineError::Refused(_)), "{refused}");
    assert!(refused.to_string().contains("open for writing"), "{refused}");
    assert!(host.wait().expect("it ends").success(), "the host failed");
    engine.take_snapshot(&volume, &spec("end", 99)).expect("a snapshot");
    assert!(data_bytes(&engine, "v", None, 99) > data_bytes(&engine, "v", None, taken));
    assert_ne!(
        engine.changed_since(&volume, Uuid::from_u128(taken)).expect("compared"),
        ChangedBytes::default()
    );
    // Now that it has ended.
    engine.set_replica_record(&volume, record(false)).expect("a replica");
    let refused = space.command(&bench).output().expect("rbd runs");
    assert!(!refused.status.success(), "a host wrote to a replica");
    engine.set_replica_record(&volume, record(true)).expect("broken off");
    assert!(space.command(&bench).output().expect("rbd runs").status.success(), "it is a host's again");
}

/// An object that is new is named whole by the cluster; what travels is what was written.
#[test]
fn scattered_writes_into_a_thin_image_are_what_travels() {
    if !is_there() {
        return;
    }
    let space = Space::new();
    let engine = space.engine(false);
    let volume = name("v");
    engine.create_volume(&volume, 512 * MIB).expect("a volume");
    engine.set_replica_record(&volume, record(false)).expect("a replica");
    engine.take_snapshot(&volume, &spec("empty", 1)).expect("a snapshot");
    let staged = engine.stage(&volume, Some(Uuid::from_u128(1)), 512 * MIB, staged_for(2)).expect("staged");
    for number in 0..100_u64 {
        staged.write(number * 5 * MIB + 3 * MIB, &blocks(1, number)).expect("a write");
    }
    let root = staged.content_root().expect("a root");
    staged.commit(&spec("next", 2)).expect("published");
    let names = snapshot_names(&space, "v");
    let cluster = space.on(&["diff", "--from-snap", &names[0]], &format!("v@{}", names[1]));
    println!("the cluster names: {} extents", cluster.lines().count() - 1);
    assert_eq!(data_bytes(&engine, "v", Some(1), 2), 100 * BLOCK_BYTES);
    assert_eq!(data_bytes(&engine, "v", None, 2), 100 * BLOCK_BYTES);
    // Leaves that are lost or damaged cost reading, nothing else.
    let number = Uuid::from_u128(2);
    for spoil in [b"".as_slice(), b"farside leaves 1 and then something else"] {
        spoil_leaves(&space, spoil);
        let again = space.engine(true);
        again
            .take_snapshot(&volume, &spec(&format!("t{}", spoil.len()), 10 + spoil.len() as u128))
            .expect("a snapshot");
        let found = again.content_root(&volume, Uuid::from_u128(10 + spoil.len() as u128)).expect("a root");
        assert_eq!((found, again.content_root(&volume, number).expect("a root")), (root, root));
    }
}

/// Overwrites all leaves that are kept in a namespace; with nothing it removes them.
fn spoil_leaves(space: &Space, with: &[u8]) {
    let rados = |arguments: &[&str]| {
        let farside_engine::rbd::RbdPool { conf, user, namespace, .. } = &space.options;
        let mut command = std::process::Command::new("rados");
        command.args(["--conf", conf, "--id", user, "-p", "rbd", "-N", namespace]).args(arguments);
        let done = command.output().expect("rados runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let listed = rados(&["ls"]);
    let leaves: Vec<&str> = listed.lines().filter(|object| object.starts_with("farside_leaves.")).collect();
    let file = std::env::temp_dir().join(format!("farside-{}", Uuid::new_v4()));
    std::fs::write(&file, with).expect("a file");
    for object in leaves {
        match with {
            [] => rados(&["rm", object]),
            _ => rados(&["put", object, &file.to_string_lossy()]),
        };
    }
    std::fs::remove_file(file).expect("it was there");
}

/// Images that are more than an image: clones, journaled ones, those in the trash.
#[test]
fn images_of_other_kinds_work_or_are_refused() {
    if !is_there() {
        return;
    }
    let space = Space::new();
    let engine = space.engine(false);
    let content = blocks(1024, 3);
    space.import("parent", &content);
    space.on(&["snap", "create", "--no-progress"], "parent@s");
    space.on(&["snap", "protect"], "parent@s");
    space.rbd(&["clone", &space.image("parent@s"), &space.image("clone")]);
    // A clone: what it has of its parent is its own, as far as a mirror can see.
    let clone = name("clone");
    engine.take_snapshot(&clone, &spec("s1", 1)).expect("a snapshot");
    assert_eq!(data_bytes(&engine, "clone", None, 1), content.len() as u64);
    let mut read = vec![0; content.len()];
    engine.read_snapshot(&clone, Uuid::from_u128(1), 0, &mut read).expect("it reads");
    assert!(read == content);
    // Staged upon, and published; what others have of the parent is not touched.
    engine.set_replica_record(&clone, record(false)).expect("a replica");
    let staged =
        engine.stage(&clone, Some(Uuid::from_u128(1)), content.len() as u64, staged_for(2)).expect("staged");
    staged.write(5 * BLOCK_BYTES, &blocks(1, 9)).expect("a write");
    staged.discard(8 * BLOCK_BYTES, 2 * BLOCK_BYTES).expect("a hole");
    staged.commit(&spec("s2", 2)).expect("published");
    let at = |block: u64| (block * BLOCK_BYTES) as usize;
    let mut expected = content.clone();
    expected[at(5)..at(6)].copy_from_slice(&blocks(1, 9));
    expected[at(8)..at(10)].fill(0);
    assert!(space.bytes("clone") == expected && space.bytes("parent") == content);
    engine.set_replica_record(&clone, None).expect("a volume");

    // Somebody's clone of a snapshot of farside's keeps it in the cluster, and nothing else.
    let parent = name("parent");
    engine.take_snapshot(&parent, &spec("s1", 1)).expect("a snapshot");
    let kept = snapshot_names(&space, "parent").pop().expect("it is there");
    space.on(&["snap", "protect"], &format!("parent@{kept}"));
    space.rbd(&["clone", &space.image(&format!("parent@{kept}")), &space.image("second")]);
    // With the metadata of its parent, which says nothing of it.
    let second = name("second");
    assert!(space.header("second").contains("metadata_farside"), "the cluster copies it");
    assert!(engine.snapshots(&second).expect("a list").is_empty());
    engine.take_snapshot(&second, &spec("s1", 1)).expect("a snapshot");
    assert_eq!(engine.snapshots(&second).expect("a list").len(), 1);
    engine.delete_snapshot(&second, Uuid::from_u128(1)).expect("deleted");
    engine.delete_snapshot(&parent, Uuid::from_u128(1)).expect("deleted");
    assert!(engine.snapshots(&parent).expect("a list").is_empty());
    assert!(snapshot_names(&space, "parent").contains(&kept), "a clone stands on it");
    space.on(&["flatten", "--no-progress"], "second");
    space.on(&["snap", "unprotect"], &format!("parent@{kept}"));
    space.engine(true);
    assert_eq!(snapshot_names(&space, "parent"), ["s"], "it goes when it can");

    // Journaled: a source, never a replica.
    space.rbd(&[
        "create",
        "--size",
        "8M",
        "--image-feature",
        "exclusive-lock,journaling",
        &space.image("journaled"),
    ]);
    let journaled = name("journaled");
    engine.take_snapshot(&journaled, &spec("s1", 1)).expect("a snapshot");
    let refused = engine.set_replica_record(&journaled, record(false)).expect_err("journaled");
    assert!(refused.to_string().contains("journaled, for another mirror"), "{refused}");
    space.rbd(&["create", "--size", "8M", "--image-feature", "layering", &space.image("plain")]);
    let refused = engine.set_replica_record(&name("plain"), record(false)).expect_err("no lock");
    assert!(refused.to_string().contains("no exclusive lock"), "{refused}");
    // A size that is not of whole blocks.
    space.rbd(&["create", "--size", "5000B", &space.image("odd")]);
    let refused = engine.take_snapshot(&name("odd"), &spec("s1", 1)).expect_err("odd");
    assert!(refused.to_string().contains("not whole blocks"), "{refused}");
    // In the trash it is no volume.
    space.on(&["trash", "mv"], "plain");
    assert!(!engine.volumes().expect("a list").contains(&name("plain")));
    assert!(matches!(engine.volume(&name("plain")), Err(EngineError::NotFound { .. })));
}

fn snapshot_names(space: &Space, image: &str) -> Vec<String> {
    let listed = space.on(&["snap", "ls", "--format", "json"], image);
    let names = listed.split("\"name\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    names.map(str::to_string).collect()
}

/// Whole objects that are written, trimmed and written again, and what is between them: a difference brings either version to the other,
/// and what it calls a hole reads as zeros.
#[test]
fn differences_over_several_objects_hold_either_way() {
    if !is_there() {
        return;
    }
    const OBJECT: u64 = 4 * MIB;
    let space = Space::new();
    let engine = space.engine(false);
    let volume = name("v");
    engine.create_volume(&volume, 6 * OBJECT).expect("a volume");
    engine.set_replica_record(&volume, record(false)).expect("a replica");
    let mut versions: Vec<Vec<u8>> = Vec::new();
    // Each: ranges that are written, and that are trimmed; (offset, length), bytes.
    type Ranges<'a> = &'a [(u64, u64)];
    let rounds: [(Ranges<'_>, Ranges<'_>); 5] = [
        (&[(0, 6 * OBJECT)], &[]),
        (&[(5 * OBJECT + 8192, 4096)], &[(OBJECT, OBJECT), (2 * OBJECT + 4096, 65536)]),
        (&[(OBJECT + 12288, 4096)], &[(3 * OBJECT - 4096, 2 * OBJECT)]),
        (&[], &[(0, 6 * OBJECT)]),
        (&[(4 * OBJECT - 4096, 8192)], &[]),
    ];
    for (number, (written, trimmed)) in (1..).zip(rounds) {
        let base = (number > 1).then(|| Uuid::from_u128(number - 1));
        let staged = engine.stage(&volume, base, 6 * OBJECT, staged_for(number)).expect("staged");
        let mut model = versions.last().cloned().unwrap_or_else(|| vec![0; 6 * OBJECT as usize]);
        for (offset, length) in written {
            let bytes = blocks(length / BLOCK_BYTES, number as u64);
            staged.write(*offset, &bytes).expect("a write");
            model[*offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        for (offset, length) in trimmed {
            staged.discard(*offset, *length).expect("a hole");
            model[*offset as usize..][..*length as usize].fill(0);
        }
        staged.commit(&spec(&format!("s{number}"), number)).expect("published");
        versions.push(model);
    }
    let mut holes = 0;
    for (from, was) in (1..).zip(&versions) {
        for (to, is) in (1..).zip(&versions) {
            let (from, to) = (Uuid::from_u128(from), Uuid::from_u128(to));
            let mut model = was.clone();
            for extent in engine.changed_extents(&volume, Some(from), to).expect("a difference") {
                let extent = extent.expect("a walk");
                let range = extent.offset as usize..(extent.offset + extent.length) as usize;
                if extent.kind == ChangeKind::Hole {
                    holes += 1;
                    assert!(is[range.clone()].iter().all(|byte| *byte == 0), "{from} to {to}: {extent:?}");
                }
                model[range.clone()].copy_from_slice(&is[range]);
            }
            assert!(model == *is, "{from} to {to}: something that differs is missing");
        }
    }
    assert!(holes > 0, "trims are holes");
}

/// Two daemons change what is known of one volume at the same time: nothing of either is lost.
#[test]
fn changes_by_two_daemons_are_both_made() {
    const EACH: u128 = 25;
    if !is_there() {
        return;
    }
    let space = Space::new();
    let engine = space.engine(false);
    let volume = name("v");
    engine.create_volume(&volume, MIB).expect("a volume");
    let taken = engine.take_snapshot(&volume, &spec("s", 1)).expect("a snapshot").uuid;
    std::thread::scope(|scope| {
        for daemon in 1..=2_u128 {
            let (space, volume) = (&space, &volume);
            scope.spawn(move || {
                let engine = space.engine(false);
                for number in 1..=EACH {
                    engine.pin(volume, taken, Uuid::from_u128(daemon << 64 | number)).expect("pinned");
                }
            });
        }
    });
    let pinned = engine.snapshots(&volume).expect("a list").pop().expect("it is there").pinned_by;
    assert_eq!(pinned.len() as u128, 2 * EACH);
}

/// What the monitors tell with the rights that the manual gives, and what transfers leave free.
#[test]
fn a_pool_tells_its_room() {
    if !is_there() {
        return;
    }
    let space = Space::new();
    let engine = space.engine(false);
    assert_eq!(engine.room("p"), None, "nobody has asked");
    let room = engine.ask_room("p").expect("profile rbd may ask");
    assert!(room.free_bytes > 64 * MIB && room.size_bytes() == room.used_bytes + room.free_bytes, "{room:?}");
    assert_eq!(engine.room("p"), Some(room));
    assert!(engine.ask_room("q").is_err() && engine.room("q").is_none());
    let for_transfers = || engine.staging_room(&name("v")).expect("it can tell").expect("it tells");
    assert_eq!(for_transfers().reserve_bytes, 0);
    engine.set_host_reserve(100);
    assert_eq!(for_transfers().room_bytes, 0, "all of it is kept for hosts");
    engine.remove("p");
    assert_eq!(engine.room("p"), None, "it is not there any more");
}
