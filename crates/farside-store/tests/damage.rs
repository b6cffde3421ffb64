//! Damage on the medium, place by place: what is found, what still works, and that nothing is changed by finding it.

mod sparse;

use std::sync::Arc;

use farside_format::pointer::TWIN_DISTANCE;
use farside_format::{Node, Superblock, TreeKind};
use farside_platform::{BlockDevice, DeviceError, FileDevice, SimulatedDisk};
use farside_store::{Pool, Result, StoreError};
use sparse::{BLOCK, Version, content, new_snapshot, options};

const POOL: u64 = 32 << 20;
const SLOTS: [u64; 2] = [0, 256];

/// What is done to a block.
#[derive(Clone, Copy, Debug)]
enum Damage {
    BitFlip,
    Zeroed,
    /// What another block of its kind holds.
    Misdirected,
}

const ALL: [Damage; 3] = [Damage::BitFlip, Damage::Zeroed, Damage::Misdirected];

fn damage(disk: &SimulatedDisk, place: u64, how: Damage, other: u64) {
    let mut bytes = disk.peek(place * BLOCK, 4096);
    match how {
        // Byte 140 means something in each of them; after a batch's records there is only padding.
        Damage::BitFlip => bytes[140] ^= 0x10,
        Damage::Zeroed => bytes.fill(0),
        Damage::Misdirected => bytes = disk.peek(other * BLOCK, 4096),
    }
    disk.damage(place * BLOCK, &bytes);
}

/// A closed pool with a volume of three levels and a snapshot of its past.
fn sound_pool() -> (SimulatedDisk, Version) {
    let disk = SimulatedDisk::new("damaged", POOL).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(1)).expect("a pool");
    let mut version = Version { blocks: 1 << 20, ..Version::default() };
    pool.create_volume("v", version.blocks * BLOCK).expect("a volume");
    let handle = pool.open_volume("v").expect("it opens");
    for block in (0..200).chain(50_000..50_010).chain(900_000..900_300) {
        handle.write(block * BLOCK, &content(block + 1)).expect("a write");
        version.map.insert(block, block + 1);
    }
    pool.create_snapshots(&[("v".into(), new_snapshot("s", 1))]).expect("a snapshot");
    handle.write(0, &content(77)).expect("a write");
    version.map.insert(0, 77);
    pool.close().expect("closed");
    (disk, version)
}

fn open(disk: &SimulatedDisk) -> Result<Arc<Pool>> {
    Pool::open(Arc::new(disk.clone()), options(2))
}

fn superblocks(disk: &SimulatedDisk) -> [Superblock; 2] {
    SLOTS.map(|slot| Superblock::decode(&disk.peek(slot * BLOCK, 4096)).expect("a sound superblock"))
}

/// Nodes of volumes on the disk: (place, node), first copies only, the newest of each position.
fn volume_nodes(disk: &SimulatedDisk, level: u8) -> Vec<(u64, Node)> {
    let first = superblocks(disk)[0].first_allocatable();
    let mut found: Vec<(u64, Node)> = (first..POOL / BLOCK)
        .filter_map(|place| Some((place, Node::decode(&disk.peek(place * BLOCK, 4096)).ok()?.0)))
        .filter(|(place, node)| {
            node.kind == TreeKind::Volume && node.level == level && node.place.0 == *place
        })
        .collect();
    found.sort_by_key(|(_, node)| (node.position, std::cmp::Reverse(node.birth)));
    found.dedup_by_key(|(_, node)| node.position);
    found
}

/// The whole medium, to show that nothing was changed.
fn bytes(disk: &SimulatedDisk) -> Vec<u8> {
    disk.peek(0, POOL as usize)
}

#[test]
fn either_superblock_is_enough_and_is_mended() {
    for slot in SLOTS {
        for how in ALL {
            let (disk, version) = sound_pool();
            damage(&disk, slot, how, 512);
            let pool = open(&disk).unwrap_or_else(|e| panic!("slot {slot}, {how:?}: {e}"));
            let newest = superblocks(&disk).iter().map(|s| s.generation).max();
            assert_eq!(Some(pool.status().generation), newest, "the generation that is told is the medium's");
            version.compare(&pool.open_volume("v").expect("it opens"), true, "v");
            drop(pool);
            superblocks(&disk);
            let report =
                farside_check::check(&disk, &farside_check::CheckOptions::default()).expect("it runs");
            assert!(report.is_clean(), "slot {slot}, {how:?}: {report}");
        }
    }
}

#[test]
fn without_superblocks_nothing_opens_and_nothing_is_changed() {
    let (disk, _) = sound_pool();
    damage(&disk, SLOTS[0], Damage::BitFlip, 0);
    damage(&disk, SLOTS[1], Damage::Zeroed, 0);
    let before = bytes(&disk);
    let error = open(&disk).err().expect("refused");
    assert!(matches!(error, StoreError::NoSuperblock { .. }), "{error}");
    assert!(error.to_string().contains("checksum") && error.to_string().contains("magic"), "{error}");
    assert!(bytes(&disk) == before);
}

#[test]
fn superblocks_of_two_pools_are_refused() {
    let (disk, _) = sound_pool();
    let foreign = SimulatedDisk::new("foreign", POOL).without_history();
    drop(Pool::create(Arc::new(foreign.clone()), options(9)).expect("a pool"));
    disk.damage(SLOTS[1] * BLOCK, &foreign.peek(SLOTS[1] * BLOCK, 4096));
    let before = bytes(&disk);
    let error = open(&disk).err().expect("refused");
    assert!(error.to_string().contains("different pools"), "{error}");
    assert!(bytes(&disk) == before);
}

#[test]
fn another_format_version_is_refused_by_name_even_in_one_slot() {
    for (slots, version) in [(&SLOTS[..], 2u32), (&SLOTS[..1], 4), (&SLOTS[1..], 1)] {
        let (disk, _) = sound_pool();
        for slot in slots {
            disk.damage(slot * BLOCK + 8, &version.to_le_bytes());
        }
        let before = bytes(&disk);
        let error = open(&disk).err().expect("refused").to_string();
        let names_both = error.contains(&format!("format version {version};")) && error.contains("version 5");
        assert!(names_both, "{error}");
        let checked = farside_check::check(&disk, &farside_check::CheckOptions::default());
        assert!(checked.is_err_and(|e| e.to_string().contains(&format!("format version {version};"))));
        assert!(bytes(&disk) == before, "a refused pool is not touched");
    }
}

#[test]
fn a_device_cut_short_is_refused() {
    let (disk, _) = sound_pool();
    let short = SimulatedDisk::new("short", POOL - (1 << 20)).without_history();
    short.damage(0, &disk.peek(0, (POOL - (1 << 20)) as usize));
    let error = open(&short).err().expect("refused");
    assert!(matches!(error, StoreError::TooSmall { needed: POOL, .. }), "{error}");
    let tiny = SimulatedDisk::new("tiny", 1 << 20);
    assert!(matches!(open(&tiny).err().expect("refused"), StoreError::TooSmall { .. }));
}

#[test]
fn a_locked_device_is_refused_in_words() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pool");
    let device = FileDevice::create(&path, POOL).expect("a file");
    let pool = Pool::create(Arc::new(device), options(1)).expect("a pool");
    for second in [FileDevice::open(&path), FileDevice::open_read_only(&path)] {
        let error = second.expect_err("refused");
        assert!(
            matches!(error, DeviceError::Locked { .. }) && error.to_string().contains("in use"),
            "{error}"
        );
    }
    assert!(matches!(FileDevice::create(&path, POOL), Err(DeviceError::Open { .. })), "never overwritten");
    drop(pool);
    FileDevice::open(&path).expect("free again");
}

#[test]
fn an_inner_node_is_read_from_its_second_copy() {
    for level in [2, 3] {
        for how in ALL {
            let (disk, version) = sound_pool();
            for (place, _) in volume_nodes(&disk, level) {
                damage(&disk, place, how, superblocks(&disk)[0].first_allocatable());
            }
            let pool = open(&disk).expect("it opens");
            version.compare(&pool.open_volume("v").expect("it opens"), true, &format!("{level} {how:?}"));
            // Rewriting what lies below makes new nodes.
            let handle = pool.open_volume("v").expect("it opens");
            handle.write(50_000 * BLOCK, &content(5)).expect("a write");
            pool.consistency_point().expect("a point");
            assert_eq!(pool.status().failed, None);
        }
    }
}

#[test]
fn an_inner_node_damaged_twice_is_an_error_there_and_nowhere_else() {
    let (disk, version) = sound_pool();
    // Level 2 covers 64 MiB: position 3 is blocks 49152 to 65535.
    let (place, _) = volume_nodes(&disk, 2).into_iter().find(|(_, n)| n.position == 3).expect("a node");
    damage(&disk, place, Damage::BitFlip, 0);
    damage(&disk, place + TWIN_DISTANCE, Damage::Zeroed, 0);
    let pool = open(&disk).expect("it opens");
    let handle = pool.open_volume("v").expect("it opens");
    let mut block = vec![0; 4096];
    let error = handle.read(50_000 * BLOCK, &mut block).expect_err("damaged");
    assert!(matches!(error, StoreError::Quarantined { block: 50_000, .. }), "{error}");
    for fine in [0, 199, 900_299] {
        handle.read(fine * BLOCK, &mut block).expect("elsewhere all is well");
        assert!(block == content(version.map[&fine]));
    }
    handle.write(900_000 * BLOCK, &content(5)).expect("a write elsewhere");
    pool.consistency_point().expect("a point that need not read it");
    assert_eq!(pool.status().failed, None);
}

#[test]
fn a_damaged_leaf_is_an_error_there_and_nowhere_else() {
    for how in ALL {
        let (disk, version) = sound_pool();
        let leaves = volume_nodes(&disk, 1);
        let (place, _) = leaves.iter().find(|(_, n)| n.position == 50_000 / 128).expect("a leaf");
        damage(&disk, *place, how, leaves[0].0);
        let pool = open(&disk).expect("it opens");
        let handle = pool.open_volume("v").expect("it opens");
        let mut block = vec![0; 4096];
        let error = handle.read(50_000 * BLOCK, &mut block).expect_err("damaged");
        assert!(matches!(error, StoreError::Quarantined { block: 50_000, .. }), "{how:?}: {error}");
        handle.read(900_299 * BLOCK, &mut block).expect("elsewhere all is well");
        assert!(block == content(version.map[&900_299]));
        handle.write(900_000 * BLOCK, &content(5)).expect("a write elsewhere");
        pool.consistency_point().expect("a point that need not read it");
        // Content roots and differences go by fingerprints: those above the damage still stand.
        handle.content_root().expect("a root");
        assert_eq!(pool.status().failed, None);
    }
}

/// The pool goes on, at the point and at each opening; what is written below the damage is readable, the rest is quarantined.
#[test]
fn a_change_below_a_damaged_node_quarantines_its_blocks_and_stops_nothing() {
    // A leaf, an inner node in both copies, the root in both.
    for level in [1, 2, 3] {
        let (disk, version) = sound_pool();
        let nodes = volume_nodes(&disk, level);
        let (place, node) = nodes.iter().find(|(_, n)| n.position == 50_000 >> (7 * level)).expect("a node");
        damage(&disk, *place, Damage::BitFlip, 0);
        if level > 1 {
            damage(&disk, *place + TWIN_DISTANCE, Damage::Zeroed, 0);
        }
        let pool = open(&disk).expect("it opens");
        let handle = pool.open_volume("v").expect("it opens");
        handle.write(50_001 * BLOCK, &content(5)).expect("a whole write");
        let refused = handle.write(50_002 * BLOCK + 7, &[1; 9]).expect_err("a partial write");
        assert!(matches!(refused, StoreError::Quarantined { .. }), "{refused}");
        handle.flush().expect("a flush");
        // Killed: what follows is from the journal.
        drop((handle, pool));
        for opening in 0..3 {
            let pool = open(&disk).expect("it opens");
            pool.consistency_point().expect("a point");
            assert_eq!(pool.status().failed, None);
            let handle = pool.open_volume("v").expect("it opens");
            let mut block = vec![0; 4096];
            handle.read(50_001 * BLOCK, &mut block).expect("written since");
            assert!(block == content(5));
            let error = handle.read(50_002 * BLOCK, &mut block).expect_err("quarantined");
            assert!(matches!(error, StoreError::Quarantined { .. }), "{error}");
            let root = handle.content_root().expect_err("no root of what is not known");
            assert!(matches!(root, StoreError::Quarantined { .. }), "{root}");
            if level < 3 {
                handle.read(900_001 * BLOCK, &mut block).expect("elsewhere all is well");
                assert!(block == content(version.map[&900_001]));
            }
            // The snapshot shares the leaf and the inner node. It is named once its damage is met, which the first point does.
            let ranges = pool.quarantined().expect("a list");
            let of_head: Vec<_> = ranges.iter().filter(|r| r.snapshot.is_none()).collect();
            let first = node.position << (7 * level);
            assert_eq!((of_head.len(), of_head[0].block), (2, first), "{ranges:?}");
            assert_eq!((of_head[0].count, of_head[1].block), (50_001 - first, 50_002), "{ranges:?}");
            assert_eq!(ranges.len() > 2, level < 3 && opening == 0, "{ranges:?}");
        }
    }
}

#[test]
fn a_damaged_data_block_is_named_and_healed_by_a_whole_rewrite() {
    for how in ALL {
        let (disk, mut version) = sound_pool();
        let leaves = volume_nodes(&disk, 1);
        let leaf = &leaves.iter().find(|(_, n)| n.position == 900_000 / 128).expect("a leaf").1;
        // Block 900000 is child 32 of its leaf.
        let (place, neighbour) = (leaf.children[32].place.0, leaf.children[33].place.0);
        damage(&disk, place, how, neighbour);
        let pool = open(&disk).expect("it opens");
        let handle = pool.open_volume("v").expect("it opens");
        let at = 900_000 * BLOCK;
        let mut block = vec![0; 4096];
        let error = handle.read(at, &mut block).expect_err("damaged");
        let StoreError::CorruptBlock { version: name, block: number, place: found } = &error else {
            panic!("{how:?}: {error}");
        };
        assert_eq!((name.as_str(), *number, *found), ("v", 900_000, place));
        assert_eq!(pool.status().corrupt_blocks, 1);
        let snapshot = pool.open_snapshot("v", "s").expect("it opens");
        let shared = snapshot.read(at, &mut block).expect_err("the snapshot shares it").to_string();
        assert!(shared.contains("v@s"), "{shared}");
        // Of reads that go together only the one that meets it fails.
        let mut buffers = [[0u8; 6000], [0; 6000], [0; 6000]];
        let [one, two, three] = &mut buffers;
        let together = handle.read_many(&mut [
            (BLOCK + 100, &mut one[..]),
            (at, &mut two[..]),
            (7 * BLOCK, &mut three[..]),
        ]);
        assert_eq!(together.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
        assert_eq!(buffers[0][..3996], content(2)[100..]);
        assert_eq!(buffers[2][..4096], content(8)[..]);
        // Part of a block cannot be merged with what is not known.
        let root = handle.content_root().expect("a root");
        let refused = handle.write(at + 100, &[1; 50]).expect_err("no merge with damage");
        assert!(matches!(refused, StoreError::CorruptBlock { .. }), "{refused}");
        assert!(handle.write_zeroes(at + 100, 50).is_err());
        assert_eq!(handle.content_root().expect("a root"), root, "nothing was changed");
        handle.read(at + BLOCK, &mut block).expect("its neighbour is well");
        handle.write(at, &content(4711)).expect("a whole rewrite");
        version.map.insert(900_000, 4711);
        version.compare(&handle, true, "healed");
        pool.consistency_point().expect("a point");
        version.compare(&handle, true, "healed and written");
        assert!(snapshot.read(at, &mut block).is_err(), "the snapshot's block is still damaged");
    }
}

/// A pool that was killed with three flushed batches and one that was never synced; places of the batches.
fn pool_with_journal() -> (SimulatedDisk, Version, Vec<u64>) {
    let (disk, mut version) = sound_pool();
    let pool = open(&disk).expect("it opens");
    let start = superblocks(&disk).into_iter().max_by_key(|s| s.generation).expect("two");
    let first = 512 + start.journal_position / BLOCK % start.journal_blocks;
    let handle = pool.open_volume("v").expect("it opens");
    for block in 0..4 {
        handle.write((300 + block) * BLOCK, &content(60 + block)).expect("a write");
        version.map.insert(300 + block, 60 + block);
        handle.flush().expect("a flush");
    }
    (disk, version, (first..first + 4).collect())
}

#[test]
fn a_damaged_batch_that_was_proven_is_refused() {
    for how in ALL {
        for damaged in 0..3 {
            let (disk, _, batches) = pool_with_journal();
            damage(&disk, batches[damaged], how, batches[(damaged + 1) % 4]);
            let before = bytes(&disk);
            let error = open(&disk).err().expect("refused");
            assert!(matches!(error, StoreError::JournalDamaged { .. }), "{how:?}, batch {damaged}: {error}");
            assert!(bytes(&disk) == before, "nothing was changed");
        }
    }
}

#[test]
fn a_torn_last_batch_ends_the_journal() {
    let (disk, mut version, batches) = pool_with_journal();
    // Half of its sectors never arrived.
    disk.damage(batches[3] * BLOCK + 64, &[0; 2048]);
    version.map.remove(&303);
    let pool = open(&disk).expect("an unproven batch may be torn");
    version.compare(&pool.open_volume("v").expect("it opens"), true, "v");
    drop(pool);
    let report = farside_check::check(&disk, &farside_check::CheckOptions::default()).expect("it runs");
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_last_batch_whose_data_never_arrived_ends_the_journal() {
    let (disk, mut version, _) = pool_with_journal();
    let wanted = content(63);
    let place = (0..POOL / BLOCK).find(|p| disk.peek(p * BLOCK, 4096) == wanted).expect("its data");
    disk.damage(place * BLOCK, &[0; 512]);
    version.map.remove(&303);
    let pool = open(&disk).expect("an unproven batch may lack data");
    version.compare(&pool.open_volume("v").expect("it opens"), true, "v");
}

/// Places of the leaf and the first data block of catalog and free map, as a superblock names them.
fn system_places(disk: &SimulatedDisk, superblock: &Superblock) -> Vec<u64> {
    let roots = [superblock.catalog.root, superblock.free_map.root];
    let of = |root: farside_format::Pointer| {
        let leaf = Node::decode(&disk.peek(root.place.0 * BLOCK, 4096)).expect("a leaf").0;
        [root.place.0, leaf.children[0].place.0]
    };
    roots.into_iter().flat_map(of).collect()
}

/// Whatever a catalog or free map block of the newest point turns into, the older point and its journal open the
/// pool without loss.
#[test]
fn damaged_system_trees_of_the_newest_point_lose_nothing() {
    let (sound, version) = sound_pool();
    let newest = superblocks(&sound).into_iter().max_by_key(|s| s.generation).expect("two");
    for place in system_places(&sound, &newest) {
        for how in ALL {
            let disk = sound.image().without_history();
            damage(&disk, place, how, 0);
            let pool = open(&disk).unwrap_or_else(|e| panic!("{how:?} at {place}: {e}"));
            version.compare(&pool.open_volume("v").expect("it opens"), true, "v");
            assert!(pool.status().generation > newest.generation && pool.status().failed.is_none());
            drop(pool);
            let report =
                farside_check::check(&disk, &farside_check::CheckOptions::default()).expect("it runs");
            assert!(report.is_clean(), "{how:?} at {place}: {report}");
        }
    }
}

/// With both points damaged opening answers an error and changes nothing.
#[test]
fn damaged_system_trees_of_both_points_are_refused_without_a_change() {
    let (sound, _) = sound_pool();
    let [a, b] = superblocks(&sound);
    for (one, other) in system_places(&sound, &a).into_iter().zip(system_places(&sound, &b)) {
        for how in ALL {
            let disk = sound.image().without_history();
            damage(&disk, one, how, 0);
            damage(&disk, other, how, 0);
            let before = bytes(&disk);
            let error = open(&disk).err().expect("refused");
            assert!(matches!(error, StoreError::Corrupt { .. }), "{how:?} at {one}, {other}: {error}");
            assert!(bytes(&disk) == before && disk.bytes() == POOL);
        }
    }
}

/// A sync that failed is never followed by one that succeeds, whoever asks: the kernel tells of a lost write once.
#[test]
fn a_failed_sync_ends_points_and_flushes_alike() {
    let (disk, _) = sound_pool();
    let pool = open(&disk).expect("it opens");
    let handle = pool.open_volume("v").expect("it opens");
    handle.write(7 * BLOCK, &content(5)).expect("a write");
    // The batch and the data get through, the sync does not.
    disk.fail_after(Some(2));
    assert!(handle.flush().is_err());
    disk.fail_after(None);
    let generation = superblocks(&disk).map(|s| s.generation);
    assert!(handle.flush().is_err() && pool.consistency_point().is_err());
    assert_eq!(superblocks(&disk).map(|s| s.generation), generation, "no superblock after a failed sync");
}

/// Group snapshots of a full pool stop before the catalog outgrows what a point may use.
#[test]
fn snapshots_of_a_full_pool_never_stop_the_next_point() {
    let disk = SimulatedDisk::new("full", 24 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(3)).expect("a pool");
    let names: Vec<String> = (0..20).map(|n| format!("v{n}")).collect();
    for name in &names {
        pool.create_volume(name, 64 << 20).expect("a volume");
    }
    let handle = pool.open_volume("v0").expect("it opens");
    let mut block = 0;
    while handle.write(block * BLOCK, &content(block + 1)).is_ok() {
        block += 1;
    }
    let mut rounds = 0;
    loop {
        let wanted: Vec<_> =
            names.iter().map(|v| (v.clone(), new_snapshot(&format!("s{rounds}"), 1000 + rounds))).collect();
        match pool.create_snapshots(&wanted) {
            Ok(_) => rounds += 1,
            Err(StoreError::NoSpace { .. }) => break,
            Err(e) => panic!("round {rounds}: {e}"),
        }
    }
    pool.consistency_point().expect("a point is always possible");
    drop(handle);
    drop(pool);
    let pool = open(&disk).expect("it opens");
    assert!(pool.status().failed.is_none(), "round {rounds}: {:?}", pool.status().failed);
    pool.delete_volume("v0").expect("a full pool can be emptied");
}

/// Errors of the kernel that may pass, and one that is the medium's own word.
const PASSING: [i32; 3] = [5, 12, 110];
const UNREADABLE_SECTOR: i32 = 61;

/// Both copies of a node, or its only one, refuse reads so often.
fn refuse(disk: &SimulatedDisk, (place, node): &(u64, Node), times: u64, errno: i32) {
    disk.refuse_reads(place * BLOCK, times, errno);
    if node.level > 1 {
        disk.refuse_reads((place + TWIN_DISTANCE) * BLOCK, times, errno);
    }
}

fn node_above(disk: &SimulatedDisk, level: u8, block: u64) -> (u64, Node) {
    volume_nodes(disk, level).into_iter().find(|(_, n)| n.position == block >> (7 * level)).expect("a node")
}

/// Everything reads, and nothing was ever given up.
fn assert_whole(disk: &SimulatedDisk, version: &Version, what: &str) {
    let pool = open(disk).unwrap_or_else(|e| panic!("{what}: {e}"));
    pool.consistency_point().unwrap_or_else(|e| panic!("{what}: {e}"));
    version.compare(&pool.open_volume("v").expect("it opens"), true, what);
    assert_eq!(pool.status().unattributed_bytes_max, 0, "{what}");
    assert_eq!(pool.quarantined().expect("a list"), [], "{what}");
    pool.reap_all().expect("reaped");
    pool.close().expect("closed");
    drop(pool);
    let report = farside_check::check(disk, &farside_check::CheckOptions::default()).expect("it runs");
    assert!(report.is_clean() && report.findings.is_empty(), "{what}: {report}");
}

/// A read that fails for a moment while a point changes a node fails the point at worst; nothing is given up for it.
#[test]
fn a_node_that_is_refused_for_a_moment_is_never_given_up() {
    for (level, errno) in (1..=3).flat_map(|level| PASSING.map(|errno| (level, errno))) {
        for times in [1, 2, 100] {
            let what = format!("level {level}, error {errno}, {times} times");
            let (disk, mut version) = sound_pool();
            let pool = open(&disk).expect("it opens");
            let handle = pool.open_volume("v").expect("it opens");
            handle.write(50_001 * BLOCK, &content(5)).expect("a whole write");
            handle.flush().expect("a flush");
            version.map.insert(50_001, 5);
            let node = node_above(&disk, level, 50_001);
            refuse(&disk, &node, times, errno);
            let made = pool.consistency_point();
            assert_eq!(made.is_err(), times > 2, "{what}: {made:?}");
            if let Err(error) = made {
                assert!(matches!(error, StoreError::Device(_)), "{what}: {error}");
                assert!(pool.status().failed.is_some(), "{what}: latched");
            }
            refuse(&disk, &node, 0, errno);
            drop((handle, pool));
            assert_whole(&disk, &version, &what);
        }
    }
}

/// What the medium itself calls unreadable is damage like any other.
#[test]
fn a_node_that_the_medium_calls_unreadable_is_quarantined() {
    for level in 1..=3 {
        let (disk, _) = sound_pool();
        let pool = open(&disk).expect("it opens");
        let handle = pool.open_volume("v").expect("it opens");
        handle.write(50_001 * BLOCK, &content(5)).expect("a whole write");
        refuse(&disk, &node_above(&disk, level, 50_001), u64::MAX, UNREADABLE_SECTOR);
        pool.consistency_point().expect("a point");
        assert_eq!(pool.status().failed, None);
        let mut block = vec![0; 4096];
        handle.read(50_001 * BLOCK, &mut block).expect("written since");
        let error = handle.read(50_002 * BLOCK, &mut block).expect_err("quarantined");
        assert!(matches!(error, StoreError::Quarantined { .. }), "{error}");
    }
}

/// One copy is damaged, the other is refused for a moment: that is no proof of a loss.
#[test]
fn a_damaged_copy_beside_a_refused_one_proves_nothing() {
    for (damaged, refused) in [(0, TWIN_DISTANCE), (TWIN_DISTANCE, 0)] {
        let (disk, mut version) = sound_pool();
        let (place, _) = node_above(&disk, 2, 50_001);
        damage(&disk, place + damaged, Damage::BitFlip, 0);
        let pool = open(&disk).expect("it opens");
        let handle = pool.open_volume("v").expect("it opens");
        handle.write(50_001 * BLOCK, &content(5)).expect("a whole write");
        handle.flush().expect("a flush");
        version.map.insert(50_001, 5);
        disk.refuse_reads((place + refused) * BLOCK, u64::MAX, 5);
        assert!(pool.consistency_point().is_err());
        disk.refuse_reads((place + refused) * BLOCK, 0, 5);
        drop((handle, pool));
        let pool = open(&disk).expect("it opens");
        version.compare(&pool.open_volume("v").expect("it opens"), true, "from the good copy");
        assert_eq!(pool.status().unattributed_bytes_max, 0);
    }
}

/// Where one leaf is lost its neighbours are counted anew: one that hiccups then is not lost with it.
#[test]
fn a_neighbour_of_a_lost_leaf_that_is_refused_for_a_moment_is_kept() {
    let (disk, mut version) = sound_pool();
    let (lost, kept) = (node_above(&disk, 1, 900_010), node_above(&disk, 1, 900_250));
    assert_ne!(lost.0, kept.0);
    damage(&disk, lost.0, Damage::BitFlip, 0);
    let pool = open(&disk).expect("it opens");
    let handle = pool.open_volume("v").expect("it opens");
    handle.write(900_010 * BLOCK, &content(5)).expect("a whole write");
    handle.flush().expect("a flush");
    version.map.insert(900_010, 5);
    refuse(&disk, &kept, u64::MAX, 5);
    assert!(pool.consistency_point().is_err());
    refuse(&disk, &kept, 0, 5);
    drop((handle, pool));
    let pool = open(&disk).expect("it opens");
    pool.consistency_point().expect("a point");
    let handle = pool.open_volume("v").expect("it opens");
    let mut block = vec![0; 4096];
    for at in version.map.range(900_000..900_300).map(|(at, _)| *at) {
        let read = handle.read(at * BLOCK, &mut block);
        let is_lost = at / 128 == 900_010 / 128 && at != 900_010;
        assert_eq!(read.is_err(), is_lost, "block {at}: {read:?}");
        assert!(is_lost || block == content(version.map[&at]), "block {at}");
    }
}

/// The reaper frees nothing beside a node that is refused, and all of it once the pool is opened anew.
#[test]
fn the_reaper_waits_for_a_node_that_is_refused_for_a_moment() {
    for level in 1..=3 {
        let (disk, mut version) = sound_pool();
        let pool = open(&disk).expect("it opens");
        let handle = pool.open_volume("v").expect("it opens");
        for block in [1, 50_001, 900_001] {
            handle.write(block * BLOCK, &content(block + 9)).expect("a write");
            version.map.insert(block, block + 9);
        }
        drop(handle);
        pool.close().expect("closed");
        drop(pool);
        let pool = open(&disk).expect("it opens");
        let snapshot = pool.snapshot_named("v", "s").expect("there").uuid;
        pool.delete_snapshot("v", snapshot).expect("deleted");
        let node = node_above(&disk, level, 50_001);
        refuse(&disk, &node, u64::MAX, 5);
        pool.reap_all().expect("reaped as far as it goes");
        refuse(&disk, &node, 0, 5);
        pool.consistency_point().expect("a point");
        drop(pool);
        assert_whole(&disk, &version, &format!("level {level}"));
    }
}

/// Place of the data that `pool_with_journal` flushed last.
fn last_data(disk: &SimulatedDisk) -> u64 {
    let wanted = content(63);
    (0..POOL / BLOCK).find(|p| disk.peek(p * BLOCK, 4096) == wanted).expect("its data")
}

fn assert_checked(disk: &SimulatedDisk, allowed: &[farside_check::What]) {
    let report = farside_check::check(disk, &farside_check::CheckOptions::default()).expect("it runs");
    assert!(report.findings.iter().all(|f| allowed.contains(&f.what)), "{report}");
}

/// What an opening has taken stays, even if nothing is written for long and a block of it rots meanwhile.
#[test]
fn an_idle_life_vouches_for_the_last_flush() {
    let (disk, _, batches) = pool_with_journal();
    for _ in 0..2 {
        drop(open(&disk).expect("it opens"));
        assert_checked(&disk, &[]);
    }
    let place = last_data(&disk);
    disk.damage(place * BLOCK, &[9; 512]);
    let pool = open(&disk).expect("it opens");
    let mut block = vec![0; 4096];
    let read = pool.open_volume("v").expect("it opens").read(303 * BLOCK, &mut block);
    assert!(
        matches!(read, Err(StoreError::CorruptBlock { .. })),
        "rot is told, not taken for a crash: {read:?}"
    );
    drop(pool);
    assert_checked(&disk, &[farside_check::What::JournalData]);
    // Nor is a damaged batch taken for one that was never synced.
    damage(&disk, batches[3], Damage::BitFlip, 0);
    assert!(matches!(open(&disk).err(), Some(StoreError::JournalDamaged { .. })));
}

/// What an opening has dropped never comes back, even if nothing is written for long and its data turns up again.
#[test]
fn an_idle_life_ends_what_was_dropped() {
    let (disk, mut version, _) = pool_with_journal();
    let place = last_data(&disk);
    disk.damage(place * BLOCK, &[0; 512]);
    version.map.remove(&303);
    drop(open(&disk).expect("it opens"));
    assert_checked(&disk, &[]);
    disk.damage(place * BLOCK, &content(63));
    let pool = open(&disk).expect("it opens");
    version.compare(&pool.open_volume("v").expect("it opens"), true, "v");
    drop(pool);
    assert_checked(&disk, &[]);
}

/// Openings that change nothing do not use the journal up.
#[test]
fn idle_lives_need_no_journal() {
    let (disk, version, _) = pool_with_journal();
    let mut used = Vec::new();
    for _ in 0..5 {
        let pool = open(&disk).expect("it opens");
        used.push(pool.status().journal_used_bytes);
        version.compare(&pool.open_volume("v").expect("it opens"), true, "v");
    }
    assert!(used.iter().all(|u| *u == used[0]), "{used:?}");
    assert_checked(&disk, &[]);
}

/// A batch past the end of the journal vouches for those before it, too.
#[test]
fn what_lies_past_a_torn_batch_proves_what_lies_before_it() {
    use farside_format::journal::{BatchHeader, decode_batch_header, seal_batch};
    let (disk, _, batches) = pool_with_journal();
    let last = decode_batch_header(&disk.peek(batches[3] * BLOCK, 4096)).expect("the last batch");
    let mut after = vec![0; 4096];
    let header = BatchHeader {
        payload_bytes: 0,
        pool: superblocks(&disk)[0].pool,
        open_epoch: last.open_epoch,
        sequence: last.sequence + 2,
        position: last.position + 2 * BLOCK,
        proven: last.sequence,
        records: 0,
        previous: [3; 16],
        checksum: [0; 16],
    };
    seal_batch(&mut after, 0, &header);
    disk.damage((batches[3] + 2) * BLOCK, &after);
    let place = last_data(&disk);
    disk.damage(place * BLOCK, &[9; 512]);
    assert_checked(&disk, &[farside_check::What::JournalData]);
    let pool = open(&disk).expect("it opens");
    let mut block = vec![0; 4096];
    let read = pool.open_volume("v").expect("it opens").read(303 * BLOCK, &mut block);
    assert!(matches!(read, Err(StoreError::CorruptBlock { .. })), "{read:?}");
}

/// A superblock that the device refuses is one that is damaged: the other opens the pool, and it is written anew.
#[test]
fn a_refused_superblock_is_a_damaged_one() {
    for slot in SLOTS {
        for errno in [5, UNREADABLE_SECTOR] {
            let (disk, version) = sound_pool();
            disk.refuse_reads(slot * BLOCK, u64::MAX, errno);
            let pool = open(&disk).unwrap_or_else(|e| panic!("slot {slot}, error {errno}: {e}"));
            disk.refuse_reads(slot * BLOCK, 0, errno);
            version.compare(&pool.open_volume("v").expect("it opens"), true, "v");
            drop(pool);
            superblocks(&disk);
            assert_checked(&disk, &[]);
        }
    }
    // Whether there is a pool is not known if no slot answers.
    let (disk, _) = sound_pool();
    SLOTS.iter().for_each(|slot| disk.refuse_reads(slot * BLOCK, u64::MAX, 5));
    let before = bytes(&disk);
    assert!(matches!(open(&disk).err(), Some(StoreError::Device(_))));
    assert!(matches!(Pool::create(Arc::new(disk.clone()), options(1)).err(), Some(StoreError::Device(_))));
    assert!(bytes(&disk) == before);
}

/// What is refused in the ring past the journal's end keeps no pool closed if it is unreadable for good; what may pass does,
/// as it may be what tells of a loss. Nothing is changed meanwhile.
#[test]
fn a_refused_sector_of_the_ring_loses_nothing() {
    for far in [1, 40] {
        let (disk, version, batches) = pool_with_journal();
        let place = batches[3] + far;
        disk.refuse_reads(place * BLOCK, 1, 5);
        let whole = disk.image().without_history();
        version.compare(&open(&whole).expect("it opens").open_volume("v").expect("it opens"), true, "v");
        disk.refuse_reads(place * BLOCK, u64::MAX, UNREADABLE_SECTOR);
        let pool = open(&disk).unwrap_or_else(|e| panic!("{far} blocks on: {e}"));
        version.compare(&pool.open_volume("v").expect("it opens"), true, "v");

        let (disk, version, _) = pool_with_journal();
        let before = bytes(&disk);
        disk.refuse_reads(place * BLOCK, u64::MAX, 5);
        assert!(matches!(open(&disk).err(), Some(StoreError::Device(_))), "{far} blocks on");
        disk.refuse_reads(place * BLOCK, 1, 5);
        assert!(bytes(&disk) == before);
        version.compare(&open(&disk).expect("it opens").open_volume("v").expect("it opens"), true, "v");
    }
}

/// The same in the journal: what is proven is a loss that is told, the last batch may be one that a power failure cut short.
#[test]
fn a_refused_batch_is_a_damaged_one_only_if_the_medium_says_so() {
    for refused in 0..4 {
        let (disk, mut version, batches) = pool_with_journal();
        let before = bytes(&disk);
        disk.refuse_reads(batches[refused] * BLOCK, u64::MAX, 5);
        assert!(matches!(open(&disk).err(), Some(StoreError::Device(_))), "batch {refused}");
        assert!(bytes(&disk) == before, "batch {refused}");
        disk.refuse_reads(batches[refused] * BLOCK, u64::MAX, UNREADABLE_SECTOR);
        let opened = open(&disk);
        if refused < 3 {
            assert!(matches!(opened.err(), Some(StoreError::JournalDamaged { .. })), "batch {refused}");
            assert!(bytes(&disk) == before, "batch {refused}");
            disk.refuse_reads(batches[refused] * BLOCK, 0, 5);
            let pool = open(&disk).expect("it opens");
            version.compare(&pool.open_volume("v").expect("it opens"), true, "v");
        } else {
            version.map.remove(&303);
            let pool = opened.expect("it opens");
            version.compare(&pool.open_volume("v").expect("it opens"), true, "v");
        }
    }
}
