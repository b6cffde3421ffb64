//! Pools written by earlier versions stay readable: one image per format version, made once by a fixed history.
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
use farside_platform::{BlockDevice, SimulatedDisk};
use farside_store::Pool;
use sparse::{BLOCK, new_snapshot, options};

const PIECE: usize = 64;

/// What the image shows: volume or volume@snapshot, size in bytes, content root.
const EXPECTED: [(&str, u64, &str); 6] = [
    ("archive", 1 << 46, "cf7746987735e1f1d770e7cbdb5c3cea"),
    ("archive@monday", 1 << 46, "437e68de14221c84f22ff437d4a0fdab"),
    ("copy", 40 << 30, "d15f0a8bb50117e9c140259e74400b4c"),
    ("disk", 1 << 20, "5c6e39389139b61c899bc4fb7563a10d"),
    ("disk@first", 40 << 30, "04890c07ec9cfa02a0c6b9de6df69592"),
    ("disk@second", 40 << 30, "32863fb3ae8c97a536335d1b591810aa"),
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

/// The history of the image of version 1: trees of one to five levels, a cut, a clone, a staged and committed version
/// with a rescued one, a version half reaped, and flushed changes that only the journal holds.
fn history(disk: &SimulatedDisk) {
    let pool = Pool::create(Arc::new(disk.clone()), options(2026)).expect("a pool");
    pool.create_volume("disk", 40 << 30).expect("a volume");
    pool.create_volume("archive", 1 << 46).expect("a volume");
    let disk = pool.open_volume("disk").expect("it opens");
    let archive = pool.open_volume("archive").expect("it opens");
    let write = |handle: &farside_store::VersionHandle, at: u64, stamp: u64| {
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
    disk.flush().expect("a flush");
    // Never flushed; lost with the pool, which is not closed.
    write(&disk, 9, 6);
}

/// Makes the image of the present version, if there is none: FARSIDE_MAKE_GOLDEN=1 cargo test --test golden.
#[test]
fn the_history_still_makes_the_same_contents() {
    let disk = SimulatedDisk::new("golden", 13 << 20).without_history();
    history(&disk);
    if std::env::var_os("FARSIDE_MAKE_GOLDEN").is_some() {
        let mut file = std::fs::File::create_new(path(1)).expect("an image is made once, never again");
        file.write_all(&pack(&disk)).expect("written");
    }
    assert_shows_expected(&disk);
}

#[test]
fn images_of_every_format_version_open() {
    let image = std::fs::read(path(1)).expect("the image of version 1");
    let disk = unpack(&image);
    assert!(pack(&disk) == image, "the file holds the image and nothing else");
    assert_shows_expected(&disk);
}

/// The checker, and a store that opens a copy, find what was written.
fn assert_shows_expected(disk: &SimulatedDisk) {
    let report = farside_check::check(disk, &farside_check::CheckOptions::default()).expect("it runs");
    assert!(report.is_clean() && report.findings.is_empty(), "{report}");
    assert!(report.versions.iter().any(|v| v.deleted && v.content_root.is_none()), "a version half reaped");
    assert!(report.journal.batches >= 2, "changes that only the journal holds: {report}");
    let mut seen: Vec<(String, u64, String)> = report
        .versions_after_replay
        .expect("replayed")
        .into_iter()
        .filter(|v| !v.deleted && v.kind != VersionKind::Staged)
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
    pool.reap_all().expect("the version half reaped is reaped");
    pool.close().expect("closed");
    drop(pool);
    let report = farside_check::check(&copy, &farside_check::CheckOptions::default()).expect("it runs");
    assert!(report.is_clean() && report.versions.len() == EXPECTED.len(), "{report}");
}
