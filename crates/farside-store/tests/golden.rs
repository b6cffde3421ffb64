//! Pools on their medium: one image per format version, made once by a fixed history. The present version's opens and
//! shows what was written; those of earlier versions are refused, untouched, naming both versions.
//!
//! Once a format version is released its image may never be made again: if this test fails, the code is wrong, not
//! the image. A new format version gets an image of its own beside the old ones.
//!
//! The file holds only what is not zero: device bytes (8); then per block its number (8), a mask of its 64 pieces of
//! 64 bytes that are not zero (8), and those pieces. Integers are little-endian.

mod sparse;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use farside_format::catalog::VersionKind;
use farside_format::{Node, TreeKind};
use farside_platform::{BlockDevice, SimulatedDisk};
use farside_store::{Autogrow, Pool, ReplicaStatus, StagedFor, StagedVersion, StoreError, VersionHandle};
use sparse::{BLOCK, new_snapshot, options, staged_for};
use uuid::Uuid;

const PIECE: usize = 64;

/// What the image shows: volume or volume@snapshot, size in bytes, content root.
const EXPECTED: [(&str, u64, &str); 11] = [
    ("archive", 1 << 46, "cf7746987735e1f1d770e7cbdb5c3cea"),
    ("archive@monday", 1 << 46, "437e68de14221c84f22ff437d4a0fdab"),
    ("copy", 40 << 30, "d15f0a8bb50117e9c140259e74400b4c"),
    ("disk", 1 << 20, "5c6e39389139b61c899bc4fb7563a10d"),
    ("disk@first", 40 << 30, "04890c07ec9cfa02a0c6b9de6df69592"),
    ("disk@second", 40 << 30, "32863fb3ae8c97a536335d1b591810aa"),
    ("heir", 300 << 12, "6a13e7437a748df6b5a7191cc10d672d"),
    ("replica", 40 << 12, "abcb014e9f0cca272c8f4c4c6a8269bc"),
    ("replica@one", 40 << 12, "abcb014e9f0cca272c8f4c4c6a8269bc"),
    ("replica@rescue-2027-01-15T08:00:00.000000Z", 40 << 12, "2ba3887ce4fcec04e1c38e2c97420ecc"),
    ("replica@two", 40 << 12, "3c7adc14be7d3345dd24de2023a8c5f9"),
];

fn path(version: u32) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../farside-check/tests/golden/v{version}.image"))
}

fn unpack(image: &[u8]) -> SimulatedDisk {
    let mut rest = image;
    let mut take = |length: usize| {
        let (taken, left) = rest.split_at(length);
        rest = left;
        (taken, left.is_empty())
    };
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let disk = SimulatedDisk::new("golden", number(take(8).0)).without_history();
    loop {
        let block = number(take(8).0);
        let (mask, mut end) = take(8);
        let mask = number(mask);
        for piece in (0..64u64).filter(|piece| mask >> piece & 1 == 1) {
            let (bytes, last) = take(PIECE);
            disk.damage(block * BLOCK + piece * PIECE as u64, bytes);
            end = last;
        }
        if end {
            return disk;
        }
    }
}

fn pack(disk: &SimulatedDisk) -> Vec<u8> {
    let mut image = disk.bytes().to_le_bytes().to_vec();
    for block in 0..disk.bytes() / BLOCK {
        let bytes = disk.peek(block * BLOCK, BLOCK as usize);
        let pieces: Vec<_> =
            bytes.chunks(PIECE).enumerate().filter(|(_, p)| p.iter().any(|b| *b != 0)).collect();
        if !pieces.is_empty() {
            image.extend_from_slice(&block.to_le_bytes());
            image.extend_from_slice(&pieces.iter().fold(0u64, |mask, (i, _)| mask | 1 << i).to_le_bytes());
            pieces.iter().for_each(|(_, piece)| image.extend_from_slice(piece));
        }
    }
    image
}

/// A block that packs well.
fn block(stamp: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    bytes[..8].copy_from_slice(&stamp.to_le_bytes());
    bytes[8..24].copy_from_slice(b"golden image, v1");
    bytes
}

/// A volume whose leaf was damaged, and of which a block was written since.
fn lose_a_leaf(disk: &SimulatedDisk, pool: Arc<Pool>) -> Arc<Pool> {
    pool.create_volume("lossy", 130 * BLOCK).expect("a volume");
    let handle = pool.open_volume("lossy").expect("it opens");
    (0..3).chain([129]).for_each(|at| handle.write(at * BLOCK, &block(6000 + at)).expect("a write"));
    pool.close().expect("closed");
    drop((handle, pool));
    let is_leaf = |place: &u64| {
        let node = Node::decode(&disk.peek(place * BLOCK, BLOCK as usize));
        node.is_ok_and(|(n, _)| n.kind == TreeKind::Volume && n.level == 1 && n.position == 0)
    };
    let leaf = (0..disk.bytes() / BLOCK).find(is_leaf).expect("a leaf");
    disk.damage(leaf * BLOCK, &[0; BLOCK as usize]);
    let pool = Pool::open(Arc::new(disk.clone()), options(2027)).expect("it opens");
    pool.open_volume("lossy").expect("it opens").write(BLOCK, &block(6100)).expect("a write");
    pool.consistency_point().expect("a point");
    pool
}

/// A volume whose limits were set, with a clone of a volume that is no more: what the clone inherited is its own.
fn inherit(pool: &Arc<Pool>) {
    pool.create_volume("origin", 300 * BLOCK).expect("a volume");
    let origin = pool.open_volume("origin").expect("it opens");
    (0..200).for_each(|at| origin.write(at * BLOCK, &block(7000 + at)).expect("a write"));
    pool.create_snapshots(&[("origin".into(), new_snapshot("left", 20))]).expect("a snapshot");
    pool.clone_snapshot("origin", "left", "heir").expect("a clone");
    let heir = pool.open_volume("heir").expect("it opens");
    (0..10).for_each(|at| heir.write(at * BLOCK, &block(7300 + at)).expect("a write"));
    drop((origin, heir));
    pool.delete_volume("origin").expect("deleted");
    pool.reap_all().expect("reaped");
    let step_bytes = 1 << 20;
    pool.set_limits("heir", |limits| {
        limits.quota_bytes = Some(1 << 30);
        limits.reserve_bytes = Some(1 << 20);
        limits.autogrow = Some(Autogrow { to_bytes: 1 << 40, step_bytes });
    })
    .expect("limits");
}

/// The history of the image of version 5: trees of one to five levels, a cut, a clone, staged and committed versions,
/// side branches, one version staged and left, a version half reaped, blocks with several owners, and flushed changes that
/// only the journal holds.
fn history(disk: &SimulatedDisk) {
    let pool = Pool::create(Arc::new(disk.clone()), options(2026)).expect("a pool");
    let pool = lose_a_leaf(disk, pool);
    inherit(&pool);
    pool.create_volume("disk", 40 << 30).expect("a volume");
    pool.create_volume("archive", 1 << 46).expect("a volume");
    let disk = pool.open_volume("disk").expect("it opens");
    let archive = pool.open_volume("archive").expect("it opens");
    let write = |handle: &VersionHandle, at: u64, stamp: u64| {
        handle.write(at * BLOCK, &block(stamp)).expect("a write");
    };
    for at in [0, 1, 127, 128, 16_383, 16_384, 2_097_152, 10_485_759] {
        write(&disk, at, 1000 + at);
        write(&archive, at << 10, 2000 + at);
    }
    pool.create_snapshots(&[
        ("disk".into(), new_snapshot("first", 1)),
        ("archive".into(), new_snapshot("monday", 2)),
    ])
    .expect("snapshots");
    write(&disk, 1, 1);
    disk.trim(128 * BLOCK, 16_384 * BLOCK).expect("a trim");
    pool.consistency_point().expect("a point");
    pool.create_snapshots(&[("disk".into(), new_snapshot("second", 3))]).expect("a snapshot");
    pool.clone_snapshot("disk", "first", "copy").expect("a clone");
    let copy = pool.open_volume("copy").expect("it opens");
    write(&copy, 5_000_000, 3);
    (0..40).for_each(|i| write(&archive, i * 128, 4000 + i));
    branches(&pool);
    pool.create_snapshots(&[("archive".into(), new_snapshot("tuesday", 4))]).expect("a snapshot");
    archive.trim(0, 64 * 128 * BLOCK).expect("a trim");
    pool.consistency_point().expect("a point");
    let tuesday = pool.snapshot_named("archive", "tuesday").expect("it is there").uuid;
    pool.delete_snapshot("archive", tuesday).expect("a deletion");
    for _ in 0..5 {
        assert!(pool.reap_step_within(1).expect("a step"));
    }
    pool.consistency_point().expect("a point");
    // From here on only the journal knows.
    drop(disk);
    pool.resize_volume("disk", 1 << 20).expect("a resize");
    let disk = pool.open_volume("disk").expect("it opens");
    disk.write(5000, b"a few bytes over the border of nothing").expect("a partial write");
    write(&archive, (1 << 34) - 1, 5);
    let monday = pool.snapshot_named("replica", "one").expect("it is there").uuid;
    let record = ReplicaStatus { broken_off: true, ..replica_record() };
    pool.move_main("replica", monday, Some(record), None).expect("moved");
    let staged = pool.staged("replica").expect("a list").pop().expect("the one that was left");
    staged.retarget(Uuid::from_u128(8)).expect("retargeted");
    staged.resize(20 * BLOCK).expect("a staged version resized");
    share(&staged, 12, &copy, 5_000_000, 1);
    share(&staged, 13, &pool.open_snapshot("disk", "first").expect("it opens"), 0, 2);
    disk.flush().expect("a flush");
    // Never flushed; lost with the pool, which is not closed.
    write(&disk, 9, 6);
}

fn share(staged: &StagedVersion, to: u64, handle: &VersionHandle, from: u64, count: u64) {
    let expected = handle.fingerprints(from, count).expect("fingerprints");
    assert_eq!(staged.share(to, handle, from, &expected).expect("shared"), count);
}

fn replica_record() -> ReplicaStatus {
    ReplicaStatus {
        relationship: Uuid::from_u128(0x5e1),
        peer: [7; 32],
        source: "far/disk".into(),
        broken_off: false,
    }
}

/// A volume that was a replica, was written, went back, and has a version staged for what comes next.
fn branches(pool: &Arc<Pool>) {
    pool.create_volume("replica", 30 * BLOCK).expect("a volume");
    pool.set_replica("replica", Some(replica_record())).expect("a replica");
    for (name, number) in [("one", 11), ("two", 12)] {
        let base = pool.snapshots("replica").expect("a list").last().map(|s| s.uuid);
        let staged = pool.stage("replica", base, 40 * BLOCK, staged_for(number)).expect("staged");
        staged.write(u64::from(number) * BLOCK, &block(5000 + u64::from(number))).expect("a staged write");
        let first = pool.open_snapshot("disk", "first").expect("it opens");
        share(&staged, 20, &first, 127, 2);
        share(&staged, 20 + u64::from(number), &first, 0, 1);
        staged.commit(&new_snapshot(name, number)).expect("committed");
    }
    pool.set_replica("replica", Some(ReplicaStatus { broken_off: true, ..replica_record() }))
        .expect("broken");
    let replica = pool.open_volume("replica").expect("it opens");
    replica.write(0, &block(5000)).expect("a write");
    drop(replica);
    let one = pool.snapshot_named("replica", "one").expect("it is there").uuid;
    let rescued =
        pool.move_main("replica", one, Some(replica_record()), None).expect("moved").expect("a rescue");
    assert!(!rescued.on_main_line);
    let staged = pool.stage("replica", Some(one), 10 * BLOCK, staged_for(7)).expect("staged");
    staged.write(5 * BLOCK, &block(5005)).expect("a staged write");
}

/// Makes the image of the present version, if there is none: FARSIDE_MAKE_GOLDEN=1 cargo test --test golden.
#[test]
fn the_history_still_makes_the_same_contents() {
    let disk = SimulatedDisk::new("golden", 13 << 20).without_history();
    history(&disk);
    if std::env::var_os("FARSIDE_MAKE_GOLDEN").is_some() {
        let mut file = std::fs::File::create_new(path(5)).expect("an image is made once, never again");
        file.write_all(&pack(&disk)).expect("written");
    }
    assert_shows_expected(&disk);
}

#[test]
fn the_image_of_the_present_version_opens() {
    let image = std::fs::read(path(5)).expect("the image of version 5");
    let disk = unpack(&image);
    assert!(pack(&disk) == image, "the file holds the image and nothing else");
    assert_shows_expected(&disk);
}

#[test]
fn images_of_earlier_versions_are_refused_naming_both_versions() {
    for version in [1, 2, 3, 4] {
        let disk = unpack(&std::fs::read(path(version)).expect("the image of an earlier version"));
        let before = pack(&disk);
        let opened = Pool::open(Arc::new(disk.clone()), options(1)).err().expect("refused");
        let named =
            matches!(opened, StoreError::OtherVersion { found, supported: 5, .. } if found == version);
        assert!(named, "{opened}");
        let options_of_check = farside_check::CheckOptions::default();
        let checked = farside_check::check(&disk, &options_of_check).expect_err("refused");
        let created = Pool::create(Arc::new(disk.clone()), options(1)).err().expect("refused");
        for text in [opened.to_string(), checked.to_string(), created.to_string()] {
            assert!(text.contains(&format!("version {version}")) && text.contains("version 5"), "{text}");
        }
        assert!(pack(&disk) == before, "nothing was changed");
    }
}

/// Nothing but what is quarantined since a leaf was damaged.
fn is_sound(report: &farside_check::Report) -> bool {
    report.findings.iter().all(|f| f.what == farside_check::What::Quarantined)
}

/// The checker, and a store that opens a copy, find what was written.
fn assert_shows_expected(disk: &SimulatedDisk) {
    let report = farside_check::check(disk, &farside_check::CheckOptions::default()).expect("it runs");
    assert!(is_sound(&report) && report.findings.len() == 1, "{report}");
    assert!(report.versions.iter().any(|v| v.deleted && v.content_root.is_none()), "a version half reaped");
    assert_eq!(report.shared_blocks, 3, "{report}");
    assert!(report.journal.batches >= 2, "changes that only the journal holds: {report}");
    let mut seen: Vec<(String, u64, String)> = report
        .versions_after_replay
        .expect("replayed")
        .into_iter()
        .filter(|v| !v.deleted && v.kind != VersionKind::Staged && v.volume_name != "lossy")
        .map(|v| {
            let name = v.snapshot.map_or(v.volume_name.clone(), |s| format!("{}@{s}", v.volume_name));
            (name, v.size_bytes, v.content_root.expect("a content root").to_string())
        })
        .collect();
    seen.sort();
    let expected: Vec<_> = EXPECTED.iter().map(|(n, s, r)| (n.to_string(), *s, r.to_string())).collect();
    assert_eq!(seen, expected, "the checker");

    let copy = disk.image().without_history();
    let pool = Pool::open(Arc::new(copy.clone()), options(1)).expect("it opens");
    for (name, size, root) in EXPECTED {
        let handle = match name.split_once('@') {
            Some((volume, snapshot)) => pool.open_snapshot(volume, snapshot),
            None => pool.open_volume(name),
        }
        .expect("it opens");
        assert_eq!(
            (handle.size_bytes(), handle.content_root().expect("a root").to_string()),
            (size, root.into())
        );
    }
    let lossy = pool.open_volume("lossy").expect("it opens");
    let mut bytes = vec![0; BLOCK as usize];
    for at in 0..130 {
        let read = lossy.read(at * BLOCK, &mut bytes);
        match at {
            1 => assert!(read.is_ok() && bytes == block(6100)),
            128 => assert!(read.is_ok() && bytes == [0; 4096]),
            129 => assert!(read.is_ok() && bytes == block(6129)),
            _ => assert!(matches!(read, Err(StoreError::Quarantined { .. })), "block {at}"),
        }
    }
    let quarantined = pool.quarantined().expect("a list");
    assert_eq!(quarantined.iter().map(|r| (r.block, r.count)).collect::<Vec<_>>(), [(0, 1), (2, 126)]);
    drop(lossy);
    let read = |name: &str, at: u64| {
        let mut bytes = vec![0; BLOCK as usize];
        pool.open_volume(name).expect("it opens").read(at * BLOCK, &mut bytes).expect("it reads");
        bytes
    };
    assert!(read("disk", 0) == block(1000) && read("disk", 1)[..904] == block(1)[..904]);
    assert_eq!(&read("disk", 1)[904..942], b"a few bytes over the border of nothing");
    assert!(read("disk", 128) == [0; 4096] && read("disk", 9) == [0; 4096]);
    assert!(read("copy", 128) == block(1128) && read("copy", 5_000_000) == block(3));
    assert!(read("archive", (1 << 34) - 1) == block(5) && read("archive", 0) == [0; 4096]);
    let staged = pool.staged("replica").expect("a list").pop().expect("the one that was left");
    let status = staged.status().expect("it is there");
    let monday = pool.snapshot_named("replica", "one").expect("it is there");
    assert_eq!((status.base, status.size_bytes), (Some(monday.uuid), 20 * BLOCK));
    assert_eq!(status.staged_for, StagedFor { incremental: Uuid::from_u128(8), ..staged_for(7) });
    let mut bytes = vec![0; 20 * BLOCK as usize];
    staged.read(0, &mut bytes).expect("it reads");
    let mapped: Vec<_> =
        bytes.chunks(4096).enumerate().filter(|(_, b)| **b != [0; 4096]).map(|(i, _)| i).collect();
    assert_eq!(mapped, [5, 12, 13, 14]);
    for (at, stamp) in [(5, 5005), (12, 3), (13, 1000), (14, 1001)] {
        assert!(bytes[at * 4096..(at + 1) * 4096] == block(stamp), "block {at}");
    }
    assert!(read("replica", 31) == block(1000) && pool.status().shared_blocks >= 3);
    let heir = pool.volume("heir").expect("it is there");
    assert_eq!((heir.occupied_bytes, heir.limits.reserve_bytes), (200 * BLOCK, Some(1 << 20)));
    staged.abandon().expect("abandoned");
    assert!(pool.volume("replica").expect("there").replica.expect("a record").broken_off);
    pool.reap_all().expect("the version half reaped is reaped");
    pool.close().expect("closed");
    drop(pool);
    let report = farside_check::check(&copy, &farside_check::CheckOptions::default()).expect("it runs");
    assert!(is_sound(&report) && report.versions.len() == EXPECTED.len() + 1, "{report}");
}
