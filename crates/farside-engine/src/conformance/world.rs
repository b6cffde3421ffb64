//! A volume under test beside a plain model of it.

use std::sync::Arc;

use farside_platform::Timestamp;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use uuid::Uuid;

use super::fixture::{Fixture, POOL};
use super::reference;
use crate::{
    BLOCK_BYTES, Engine, ReplicaRecord, SnapshotInfo, SnapshotOwner, SnapshotSpec, StagedFor, StagedVersion,
    VolumeName,
};

/// The mirror of these tests.
pub(super) const MIRROR: Uuid = Uuid::from_u128(0x5e1);
/// Another one.
pub(super) const OTHER: Uuid = Uuid::from_u128(0x5e2);
/// The peer of [`MIRROR`].
pub(super) const PEER: [u8; 32] = [1; 32];

/// A volume, what hosts have made of it, and what its snapshots hold.
pub(super) struct World<F> {
    pub(super) fixture: F,
    pub(super) engine: Arc<dyn Engine>,
    pub(super) volume: VolumeName,
    pub(super) live: Vec<u8>,
    pub(super) rng: SmallRng,
}

/// `blocks` blocks of a byte.
pub(super) fn bytes(blocks: u64, byte: u8) -> Vec<u8> {
    vec![byte; (blocks * BLOCK_BYTES) as usize]
}

/// Byte offset of a block.
pub(super) fn at(block: u64) -> u64 {
    block * BLOCK_BYTES
}

pub(super) fn name(volume: &str) -> VolumeName {
    VolumeName { pool: POOL.into(), volume: volume.into() }
}

/// A person's snapshot.
pub(super) fn spec(name: &str, number: u128) -> SnapshotSpec {
    SnapshotSpec {
        name: name.into(),
        uuid: Uuid::from_u128(number),
        created_at: Timestamp(1_800_000_000_000_000_000 + number as u64),
        owner: SnapshotOwner::Person,
        pin_for: None,
    }
}

/// A snapshot of a mirror, pinned for it.
pub(super) fn mirrors(name: &str, number: u128) -> SnapshotSpec {
    SnapshotSpec { owner: SnapshotOwner::Relationship(MIRROR), pin_for: Some(MIRROR), ..spec(name, number) }
}

pub(super) fn staged_for(incremental: u128) -> StagedFor {
    StagedFor { relationship: MIRROR, incremental: Uuid::from_u128(incremental) }
}

pub(super) fn record(relationship: Uuid, broken_off: bool) -> ReplicaRecord {
    ReplicaRecord { relationship, peer: PEER, source: "far/v".into(), broken_off }
}

impl<F: Fixture> World<F> {
    /// A volume `v` of so many blocks, all holes.
    pub(super) fn new(seed: u64, blocks: u64) -> World<F> {
        println!("seed {seed}");
        World::of(F::create(seed), seed, blocks)
    }

    pub(super) fn of(fixture: F, seed: u64, blocks: u64) -> World<F> {
        let (engine, volume) = (fixture.engine(), name("v"));
        engine.create_volume(&volume, at(blocks)).unwrap();
        let rng = SmallRng::seed_from_u64(seed);
        World { fixture, engine, volume, live: bytes(blocks, 0), rng }
    }

    /// A host writes so many blocks of a byte at a block.
    pub(super) fn write(&mut self, block: u64, blocks: u64, byte: u8) {
        self.write_bytes(block, &bytes(blocks, byte));
    }

    pub(super) fn write_bytes(&mut self, block: u64, data: &[u8]) {
        self.fixture.host_writes(&self.volume, at(block), data).unwrap();
        self.live[at(block) as usize..][..data.len()].copy_from_slice(data);
    }

    pub(super) fn trim(&mut self, block: u64, blocks: u64) {
        self.fixture.host_trims(&self.volume, at(block), at(blocks)).unwrap();
        self.live[at(block) as usize..at(block + blocks) as usize].fill(0);
    }

    pub(super) fn resize(&mut self, blocks: u64) {
        self.fixture.resize(&self.volume, at(blocks)).unwrap();
        self.live.resize(at(blocks) as usize, 0);
    }

    /// Writes, trims and zeros of up to 16 blocks, here and there.
    pub(super) fn scribble(&mut self, count: usize) {
        let blocks = self.live.len() as u64 / BLOCK_BYTES;
        for _ in 0..count {
            let length = self.rng.random_range(1..=16.min(blocks));
            let block = self.rng.random_range(0..=blocks - length);
            match self.rng.random_range(0..8) {
                0 => self.trim(block, length),
                1 => self.write(block, length, 0),
                _ => {
                    let mut data = bytes(length, 0);
                    // Some of them zeros, and now and then what is there already.
                    for block in data.chunks_mut(BLOCK_BYTES as usize) {
                        block.fill(self.rng.random_range(0..4));
                    }
                    self.write_bytes(block, &data);
                }
            }
        }
    }

    pub(super) fn snapshot(&self, name: &str, number: u128) -> SnapshotInfo {
        self.engine.take_snapshot(&self.volume, &spec(name, number)).unwrap()
    }

    /// Makes the volume the replica of [`MIRROR`].
    pub(super) fn follow(&self) {
        self.engine.set_replica_record(&self.volume, Some(record(MIRROR, false))).unwrap();
    }

    pub(super) fn stage(&self, base: Option<Uuid>, blocks: u64, number: u128) -> Arc<dyn StagedVersion> {
        self.engine.stage(&self.volume, base, at(blocks), staged_for(number)).unwrap()
    }

    /// What hosts see.
    pub(super) fn shown(&self) -> Vec<u8> {
        shown(&self.fixture, &self.volume)
    }

    pub(super) fn content(&self, snapshot: Uuid) -> Vec<u8> {
        content(&*self.engine, &self.volume, snapshot)
    }

    /// What a snapshot holds is this, whichever way it is asked.
    pub(super) fn check(&self, snapshot: Uuid, expected: &[u8], context: &str) {
        assert!(self.content(snapshot) == expected, "{context}: it holds something else");
        let root = self.engine.content_root(&self.volume, snapshot).unwrap();
        assert_eq!(root, reference::root(expected), "{context}");
        let blocks = expected.len() as u64 / BLOCK_BYTES;
        let found = self.engine.fingerprints(&self.volume, snapshot, 0, blocks).unwrap();
        assert_eq!(found, reference::fingerprints(expected), "{context}");
    }

    /// Names of the snapshots on the main line, oldest first.
    pub(super) fn line(&self) -> Vec<String> {
        self.engine.snapshots(&self.volume).unwrap().into_iter().map(|s| s.name).collect()
    }

    /// A snapshot that was set aside by itself, and holds this.
    pub(super) fn rescue_of(&self, expected: &[u8]) -> Option<SnapshotInfo> {
        let all = self.engine.all_snapshots(&self.volume).unwrap();
        let is_it = |s: &SnapshotInfo| s.name.starts_with("rescue-") && self.content(s.uuid) == expected;
        all.into_iter().find(is_it)
    }
}

pub(super) fn shown<F: Fixture>(fixture: &F, volume: &VolumeName) -> Vec<u8> {
    let size_bytes = fixture.engine().volume(volume).unwrap().size_bytes;
    let mut found = vec![0xff; size_bytes as usize];
    fixture.host_reads(volume, 0, &mut found).unwrap();
    found
}

pub(super) fn content(engine: &dyn Engine, volume: &VolumeName, snapshot: Uuid) -> Vec<u8> {
    let all = engine.all_snapshots(volume).unwrap();
    let size_bytes = all.iter().find(|s| s.uuid == snapshot).expect("it is there").size_bytes;
    let mut found = vec![0xff; size_bytes as usize];
    engine.read_snapshot(volume, snapshot, 0, &mut found).unwrap();
    found
}
