//! What is the embedded store's own, beside what every engine does (`conformance.rs`).

use std::sync::Arc;

use farside_engine::embedded::EmbeddedEngine;
use farside_engine::{
    Branches, ChangedBytes, Engine, EngineError, KnownData, KnownDataScope, ReplicaRecord, SnapshotOwner,
    SnapshotSpec, StagedFor, Subtrees, VolumeName, Wanted, short,
};
use farside_format::Fingerprint;
use farside_platform::{ManualClock, SeededRandomness, SimulatedDisk, Timestamp};
use farside_store::{Pool, PoolOptions};
use uuid::Uuid;

const SIZE: u64 = 64 << 12;

fn options(seed: u64) -> PoolOptions {
    let clock = Arc::new(ManualClock::new(Timestamp(1_800_000_000_000_000_000)));
    PoolOptions { background: false, ..PoolOptions::new(clock, Arc::new(SeededRandomness::new(seed))) }
}

fn spec(name: &str, number: u128) -> SnapshotSpec {
    SnapshotSpec {
        name: name.into(),
        uuid: Uuid::from_u128(number),
        created_at: Timestamp(1),
        owner: SnapshotOwner::Person,
        pin_for: None,
    }
}

fn staged_for(incremental: u128) -> StagedFor {
    StagedFor { relationship: Uuid::from_u128(0x5e1), incremental: Uuid::from_u128(incremental) }
}

fn engine(pool: Arc<Pool>) -> EmbeddedEngine {
    let engine = EmbeddedEngine::new();
    engine.add("p", pool).expect("a fresh engine");
    engine
}

#[test]
fn a_replica_goes_back_to_a_snapshot_and_is_broken_off_in_one_record() {
    let disk = SimulatedDisk::new("engine", 24 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(1)).expect("a pool");
    let engine_a = engine(pool.clone());
    let volume: VolumeName = "p/v".parse().expect("a name");
    engine_a.create_volume(&volume, SIZE).expect("a volume");
    let base = engine_a.take_snapshot(&volume, &spec("base", 1)).expect("a snapshot").uuid;
    let host = pool.open_volume("v").expect("it opens");
    host.write(5 << 12, &[9; 4096]).expect("a write");
    let changed = engine_a.changed_since(&volume, base).expect("a walk");
    assert_eq!(changed, ChangedBytes { data_bytes: 4096, hole_bytes: 0 });
    let record = ReplicaRecord {
        relationship: Uuid::from_u128(9),
        peer: [1; 32],
        source: "q/db".into(),
        broken_off: true,
    };
    let refused = engine_a.move_main(&volume, base, Some(record.clone()), None);
    assert!(matches!(refused, Err(EngineError::Refused(_))), "a host writes");
    drop(host);
    // A mirror that this volume is not the replica of takes nothing from it, whatever it looked at before.
    let mirror = record.relationship;
    for before in [
        None,
        Some(record.clone()),
        Some(ReplicaRecord { relationship: Uuid::from_u128(8), ..record.clone() }),
    ] {
        engine_a.set_replica_record(&volume, before).expect("set");
        let refused = engine_a.move_replica(&volume, base, mirror);
        assert!(matches!(refused, Err(EngineError::Refused(_))), "{refused:?}");
    }
    let rescued =
        engine_a.move_main(&volume, base, Some(record.clone()), None).expect("moved").expect("a rescue");
    // Durable when it returned.
    drop(pool);
    let engine_b = engine(Pool::open(Arc::new(disk.image()), options(2)).expect("it opens"));
    assert_eq!(engine_b.replica_record(&volume).expect("read"), Some(record));
    let main: Vec<_> = engine_b.snapshots(&volume).expect("a list").into_iter().map(|s| s.uuid).collect();
    assert_eq!(main, [base]);
    let mut names: Vec<_> =
        engine_b.all_snapshots(&volume).expect("a list").into_iter().map(|s| s.name).collect();
    names.sort();
    assert_eq!(names, ["base".to_string(), rescued.name]);
    let mut bytes = [0; 4096];
    engine_b.read_snapshot(&volume, rescued.uuid, 5 << 12, &mut bytes).expect("it reads");
    assert!(bytes == [9; 4096]);
    assert_eq!(engine_b.changed_since(&volume, base).expect("a walk"), ChangedBytes::default());
}

#[test]
fn fingerprints_of_subtrees_are_those_of_the_blocks_below() {
    let disk = SimulatedDisk::new("engine", 48 << 20).without_history();
    let pool = Pool::create(Arc::new(disk), options(1)).expect("a pool");
    let engine = engine(pool.clone());
    let volume: VolumeName = "p/v".parse().expect("a name");
    // 130 leaves: the second node of level 2 has two of them.
    engine.create_volume(&volume, 130 << 19).expect("a volume");
    let host = pool.open_volume("v").expect("it opens");
    let write = |block: u64, blocks: usize| host.write(block << 12, &vec![block as u8 | 1; blocks << 12]);
    write(5, 300).expect("a write");
    write(128 * 128 + 3, 1).expect("a write");
    pool.consistency_point().expect("a point");
    // Over the tree of the point, changes that no point has written.
    write(200, 3).expect("a write");
    host.trim(256 << 12, 128 << 12).expect("a leaf without anything");
    write(129 * 128, 128).expect("a write");
    let snapshot = engine.take_snapshot(&volume, &spec("s", 1)).expect("a snapshot").uuid;
    let at = |level: u8, first: u64, count: u64| {
        engine.subtree_fingerprints(&volume, snapshot, level, first, count).expect("fingerprints")
    };
    let mut below = engine.fingerprints(&volume, snapshot, 0, 131 * 128).expect("fingerprints");
    assert_eq!(at(0, 0, 131 * 128), below);
    for level in 1..=6 {
        below.resize(below.len().next_multiple_of(128), Fingerprint::HOLE);
        let (nodes, _) = below.as_chunks::<128>();
        below = nodes.iter().map(|children| Fingerprint::of_node(level, children)).collect();
        let count = below.len() as u64;
        assert_eq!(at(level, 0, count), below, "level {level}");
        assert_eq!(at(level, count - 1, 1), below[below.len() - 1..], "level {level}, the last one");
        if level < 6 {
            assert_eq!(at(level, count, 3), [Fingerprint::HOLE; 3], "level {level}, past the end");
        }
    }
    assert_eq!(at(1, 2, 1), [Fingerprint::HOLE]);
    let past_every_volume = engine.subtree_fingerprints(&volume, snapshot, 6, 1, 1);
    assert!(matches!(past_every_volume, Err(EngineError::Invalid(_))));
    let no_such_level = engine.subtree_fingerprints(&volume, snapshot, 7, 0, 1);
    assert!(matches!(no_such_level, Err(EngineError::Invalid(_))));
}

#[test]
fn a_staged_version_adopts_what_any_pool_has_of_the_peer() {
    let pool = |name: &str, seed| {
        let disk = SimulatedDisk::new(name, 24 << 20).without_history();
        Pool::create(Arc::new(disk), options(seed)).expect("a pool")
    };
    let engine = EmbeddedEngine::new();
    engine.add("p", pool("p", 1)).expect("a fresh engine");
    engine.add("q", pool("q", 2)).expect("a fresh engine");
    let replica = |name: &str, peer: [u8; 32]| {
        let name: VolumeName = name.parse().expect("a name");
        engine.create_volume(&name, SIZE).expect("a volume");
        let relationship = staged_for(1).relationship;
        let record = ReplicaRecord { relationship, peer, source: "far/v".into(), broken_off: false };
        engine.set_replica_record(&name, Some(record)).expect("a replica");
        name
    };
    let publish = |name: &VolumeName, byte: u8, number: u128| {
        let staged = engine.stage(name, None, SIZE, staged_for(number)).expect("staged");
        staged.write(u64::from(byte) << 12, &[byte; 4096]).expect("a write");
        staged.commit(&spec("s", number)).expect("committed");
    };
    publish(&replica("p/a", [1; 32]), 3, 3);
    publish(&replica("q/a", [1; 32]), 4, 4);
    publish(&replica("q/b", [2; 32]), 5, 5);
    let volume = replica("p/c", [1; 32]);
    let staged = engine.stage(&volume, None, SIZE, staged_for(6)).expect("staged");
    let wanted: Vec<Wanted> = (3..7)
        .map(|byte| Wanted {
            level: 0,
            position: u64::from(byte) + 10,
            short: short(Fingerprint::of_block(&[byte; 4096])),
        })
        .collect();
    let adopted = engine.adopt(&*staged, &KnownDataScope { peer: [1; 32] }, &wanted).expect("answered");
    let expected = [3, 4].map(|byte| Some(Fingerprint::of_block(&[byte; 4096])));
    assert_eq!(adopted, [expected[0], expected[1], None, None]);
    let mut bytes = vec![0; 4 << 12];
    staged.read(13 << 12, &mut bytes).expect("it reads");
    assert!(bytes == [vec![3; 4096], vec![4; 4096], vec![0; 2 << 12]].concat());
    let adopted = engine.adopt(&*staged, &KnownDataScope { peer: [2; 32] }, &wanted).expect("answered");
    assert_eq!(adopted.iter().map(Option::is_some).collect::<Vec<_>>(), [false, false, true, false]);
}

#[test]
fn transfers_leave_hosts_their_reserve() {
    const MIB: u64 = 1 << 20;
    let disk = SimulatedDisk::new("engine", 48 * MIB).without_history();
    let engine = engine(Pool::create(Arc::new(disk), options(7)).expect("a pool"));
    let (replica, host): (VolumeName, VolumeName) =
        ("p/v".parse().expect("a name"), "p/host".parse().expect("a name"));
    for volume in [&replica, &host] {
        engine.create_volume(volume, 48 * MIB).expect("a volume");
    }
    let room = || engine.staging_room(&replica).expect("it tells").expect("it can");
    let at_least = room();
    engine.set_host_reserve(25);
    assert!(room().reserve_bytes > 4 * at_least.reserve_bytes && room().room_bytes < at_least.room_bytes);
    let staged = engine.stage(&replica, None, 48 * MIB, staged_for(2)).expect("staged");
    let (before, mut bytes) = (room().room_bytes, 0);
    let mut piece = vec![1; MIB as usize];
    while staged.write(bytes, &piece).is_ok() {
        bytes += MIB;
        // No block is like another: a pool may not share them.
        piece.chunks_mut(4096).enumerate().for_each(|(n, block)| {
            block[..16].copy_from_slice(&u128::to_le_bytes((u128::from(bytes) << 16) + n as u128))
        });
    }
    assert!(bytes <= before && before - bytes < 2 * MIB, "{bytes} of {before} bytes were staged");
    assert!(room().room_bytes < MIB);
    // Hosts still write what is theirs.
    let written = engine.pool("p").expect("a pool").open_volume("host").expect("a volume");
    for at in 0..(room().reserve_bytes / MIB - 1) {
        written.write(at * MIB, &piece).expect("the reserve is theirs");
    }
}
