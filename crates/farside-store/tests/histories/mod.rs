//! Short histories of a pool that use everything it can do, and what it shows after each of their operations when nothing fails:
//! what other runs of them, in which something does, are compared with.
#![allow(dead_code, unreachable_pub, missing_docs)] // Shared by several test programs; each uses its part.

use std::sync::Arc;

use farside_format::{BLOCK_BYTES, Fingerprint};
use farside_platform::{CrashFate, SimulatedDisk};
use farside_store::{
    DedupIndex, Pool, ReplicaStatus, StagedVersion, StoreError, VersionHandle, VolumeLimits, Wanted,
};
use uuid::Uuid;

use crate::model::{Observation, new_snapshot, options, staged_for, try_observe};

const BLOCK: u64 = BLOCK_BYTES as u64;
const PEER: [u8; 32] = [1; 32];
/// What `staged_for` builds for.
const RELATIONSHIP: Uuid = Uuid::from_u128(0x5e1);

pub type Outcome = Result<(), StoreError>;

/// When an operation that succeeded survives a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasts {
    /// Once a later one that is durable has succeeded.
    Later,
    /// At once.
    AtOnce,
    /// At once; and it frees room, so that it is never refused for want of some.
    AndFrees,
}

pub struct Operation {
    pub name: &'static str,
    pub lasts: Lasts,
    pub run: fn(&mut Hands) -> Outcome,
}

const fn later(name: &'static str, run: fn(&mut Hands) -> Outcome) -> Operation {
    Operation { name, lasts: Lasts::Later, run }
}

const fn lasting(name: &'static str, run: fn(&mut Hands) -> Outcome) -> Operation {
    Operation { name, lasts: Lasts::AtOnce, run }
}

const fn freeing(name: &'static str, run: fn(&mut Hands) -> Outcome) -> Operation {
    Operation { name, lasts: Lasts::AndFrees, run }
}

pub struct History {
    pub name: &'static str,
    pub pool_bytes: u64,
    /// What is there before.
    prelude: &'static [Operation],
    /// The power fails then.
    fails_after_prelude: bool,
    pub operations: &'static [Operation],
}

/// A pool in use.
pub struct Hands {
    pub disk: SimulatedDisk,
    pool: Option<Arc<Pool>>,
    openings: u64,
    /// What a scrub found wrong is an error.
    pub believes_scrubs: bool,
}

impl Hands {
    pub fn of(disk: SimulatedDisk) -> Hands {
        Hands { disk, pool: None, openings: 0, believes_scrubs: true }
    }

    /// None after an opening that failed.
    pub fn has_pool(&self) -> bool {
        self.pool.is_some()
    }

    pub fn pool(&self) -> &Arc<Pool> {
        self.pool.as_ref().expect("it is open")
    }

    /// The process ends.
    pub fn drop_pool(&mut self) {
        self.pool = None;
    }

    pub fn open(&mut self) -> Outcome {
        self.pool = None;
        self.openings += 1;
        self.pool = Some(Pool::open(Arc::new(self.disk.clone()), options(self.openings))?);
        Ok(())
    }

    pub fn observe(&self) -> Result<Observation, StoreError> {
        try_observe(self.pool())
    }

    fn volume(&self, name: &str) -> Result<VersionHandle, StoreError> {
        self.pool().open_volume(name)
    }

    fn write(&self, volume: &str, block: u64, blocks: u64, stamp: u64) -> Outcome {
        self.volume(volume)?.write(block * BLOCK, &content(stamp, blocks))
    }

    fn snapshots(&self, volumes: &[&str], name: &str) -> Outcome {
        let wanted: Vec<_> =
            volumes.iter().map(|v| ((*v).to_owned(), new_snapshot(&format!("{name}-{v}")))).collect();
        self.pool().create_snapshots(&wanted).map(|_| ())
    }

    fn volume_id(&self, volume: &str) -> Uuid {
        self.pool().volume_id(volume).expect("it is there")
    }

    fn uuid(&self, volume: &str, snapshot: &str) -> Result<Uuid, StoreError> {
        Ok(self.pool().snapshot_named(volume, snapshot)?.uuid)
    }

    fn delete_snapshot(&self, volume: &str, snapshot: &str) -> Outcome {
        self.pool().delete_snapshot(volume, self.uuid(volume, snapshot)?)
    }

    fn replica(&self, volume: &str) -> Outcome {
        let source = "far/v".into();
        let record = ReplicaStatus { relationship: RELATIONSHIP, peer: PEER, source, broken_off: false };
        self.pool().set_replica(volume, Some(record))
    }

    fn stage(&self, volume: &str, base: Option<&str>, blocks: u64, number: u32) -> Outcome {
        let base = base.map(|base| self.uuid(volume, base)).transpose()?;
        self.pool().stage(volume, base, blocks * BLOCK, staged_for(number)).map(|_| ())
    }

    fn staged(&self, volume: &str) -> Result<StagedVersion, StoreError> {
        let staged = self.pool().staged(volume)?.pop();
        staged.ok_or_else(|| StoreError::NotFound("the staged version".into()))
    }

    /// As a transfer does: what is not known here comes over the link.
    fn adopt(&self, volume: &str, blocks: std::ops::Range<u64>, stamp: u64) -> Outcome {
        let staged = self.staged(volume)?;
        let (first, content) = (blocks.start, content(stamp, blocks.end - blocks.start));
        let all: Vec<(u64, &[u8])> = blocks.zip(content.chunks(BLOCK_BYTES)).collect();
        let short = |bytes: &[u8]| {
            let fingerprint = Fingerprint::of_block(bytes);
            u64::from_be_bytes(fingerprint.0[..8].try_into().expect("8 bytes"))
        };
        let wanted: Vec<Wanted> =
            all.iter().map(|(at, bytes)| Wanted { level: 0, position: *at, short: short(bytes) }).collect();
        let answers = staged.adopt(&PEER, &wanted)?;
        if answers.iter().all(Option::is_some) {
            return Ok(());
        }
        staged.write(first * BLOCK, &content)
    }

    fn grow(&self, mib: u64) -> Outcome {
        let size = (self.pool().status().size_bytes >> 20 << 20) + (mib << 20);
        self.pool().grow(size).map(|_| ())
    }

    fn scrub(&self) -> Outcome {
        let mut scrub = self.pool().begin_scrub()?.in_batches_of(16);
        while scrub.step(&mut |_| {})? {}
        assert!(!self.believes_scrubs || scrub.findings().is_sound(), "{:?}", scrub.findings());
        Ok(())
    }

    /// One pass over each of these volumes, among all of them. What cannot be read is shared with nobody, and no error.
    fn dedup(&self, volumes: &[&str]) -> Outcome {
        let among: Vec<Uuid> = volumes.iter().map(|volume| self.volume_id(volume)).collect();
        let mut index = DedupIndex::default();
        for volume in &among {
            let mut pass = self.pool().begin_dedup(*volume, &among, None, index)?;
            while pass.step(&mut |_| {})? {}
            index = pass.into_index();
        }
        Ok(())
    }

    fn undo_dedup(&self, volume: &str) -> Outcome {
        let mut undo = self.pool().begin_dedup_undo(self.volume_id(volume))?;
        while undo.step(&mut |_| {})? {}
        Ok(())
    }

    fn limit(&self, volume: &str, quota_blocks: u64, reserve_blocks: u64) -> Outcome {
        let bytes = |blocks: u64| (blocks > 0).then_some(blocks * BLOCK);
        let limits = VolumeLimits {
            quota_bytes: bytes(quota_blocks),
            reserve_bytes: bytes(reserve_blocks),
            autogrow: None,
        };
        self.pool().set_limits(volume, |edited| *edited = limits).map(|_| ())
    }

    fn flush(&mut self) -> Outcome {
        self.pool().flush()
    }

    fn point(&mut self) -> Outcome {
        self.pool().consistency_point()
    }

    fn reap(&mut self) -> Outcome {
        self.pool().reap_all()
    }
}

/// What blocks hold from `stamp` on.
pub fn content(stamp: u64, blocks: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((blocks * BLOCK) as usize);
    for stamp in stamp..stamp + blocks {
        let mut word = stamp.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        for _ in 0..BLOCK / 8 {
            word = word.rotate_left(7).wrapping_mul(0x2545_F491_4F6C_DD1D);
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    bytes
}

/// A history's beginning, and what it shows after each operation: before the first, after it, and so on.
pub struct Golden {
    pub disk: SimulatedDisk,
    pub states: Vec<Observation>,
}

impl History {
    /// The disk at the beginning; `more` is done after the prelude.
    pub fn begin(&self, more: impl FnOnce(&Arc<Pool>)) -> SimulatedDisk {
        let disk = SimulatedDisk::new("history", self.pool_bytes);
        let mut hands = Hands::of(disk.clone());
        hands.pool = Some(Pool::create(Arc::new(disk.clone()), options(0)).expect("a pool"));
        for operation in self.prelude {
            (operation.run)(&mut hands).unwrap_or_else(|e| panic!("{}: {}: {e}", self.name, operation.name));
        }
        more(hands.pool());
        if self.fails_after_prelude {
            return disk.crash(CrashFate::KeepUnsynced);
        }
        hands.pool().flush().expect("a flush");
        disk.image()
    }

    pub fn golden(&self, disk: SimulatedDisk) -> Golden {
        let mut hands = Hands::of(disk.image());
        hands.open().expect("it opens");
        let mut states = vec![hands.observe().expect("it reads")];
        for operation in self.operations {
            (operation.run)(&mut hands).unwrap_or_else(|e| panic!("{}: {}: {e}", self.name, operation.name));
            states.push(hands.observe().expect("it reads"));
        }
        Golden { disk, states }
    }
}

const PRELUDE: &[Operation] = &[
    lasting("a volume", |h| h.pool().create_volume("a", 40 * BLOCK).map(|_| ())),
    lasting("another", |h| h.pool().create_volume("b", 300 * BLOCK).map(|_| ())),
    later("a write", |h| h.write("a", 0, 8, 100)),
    later("a write", |h| h.write("b", 120, 20, 200)),
    lasting("a snapshot", |h| h.snapshots(&["a", "b"], "old")),
    later("a write", |h| h.write("b", 126, 4, 300)),
    lasting("a point", Hands::point),
];

pub const HISTORIES: &[History] = &[
    History {
        name: "hosts",
        pool_bytes: 13 << 20,
        prelude: PRELUDE,
        fails_after_prelude: false,
        operations: &[
            later("a write", |h| h.write("a", 2, 3, 1000)),
            later("a part of a block", |h| h.volume("a")?.write(3 * BLOCK + 100, &[7; 5000])),
            lasting("a flush", Hands::flush),
            later("joined writes", |h| {
                let (x, y) = (content(1010, 2), content(1020, 1));
                h.volume("b")?.write_joined(&[(0, &x), (7 * BLOCK, &y), (250 * BLOCK + 9, &y[..50])])
            }),
            later("a trim", |h| h.volume("a")?.trim(4 * BLOCK, 2 * BLOCK)),
            later("a long write", |h| h.write("b", 30, 20, 1100)),
            lasting("a flush", Hands::flush),
            later("zeroes", |h| h.volume("b")?.write_zeroes(31 * BLOCK, 3 * BLOCK)),
            lasting("snapshots", |h| h.snapshots(&["a", "b"], "s")),
            later("a write", |h| h.write("b", 125, 6, 1200)),
            lasting("a point", Hands::point),
            later("a write", |h| h.write("b", 0, 2, 1300)),
            freeing("a deletion", |h| h.delete_snapshot("b", "old-b")),
            freeing("reaping", Hands::reap),
            lasting("a point", Hands::point),
            later("a write", |h| h.write("a", 20, 5, 1400)),
            lasting("a point", Hands::point),
        ],
    },
    History {
        name: "volumes",
        pool_bytes: 13 << 20,
        prelude: PRELUDE,
        fails_after_prelude: false,
        operations: &[
            lasting("a clone", |h| h.pool().clone_snapshot("b", "old-b", "c").map(|_| ())),
            later("a write", |h| h.write("c", 121, 2, 2000)),
            lasting("a larger volume", |h| h.pool().resize_volume("a", 17000 * BLOCK)),
            later("a write", |h| h.write("a", 16500, 2, 2100)),
            lasting("a new name", |h| h.pool().rename_volume("a", "d")),
            lasting("a smaller volume", |h| h.pool().resize_volume("d", 20 * BLOCK)),
            lasting("another point of time", |h| {
                h.pool().move_main("b", h.uuid("b", "old-b")?, None, None).map(|_| ())
            }),
            later("a write", |h| h.write("b", 0, 1, 2200)),
            lasting("a new name", |h| h.pool().rename_snapshot("b", h.uuid("b", "old-b")?, "renamed")),
            lasting("a hold", |h| h.pool().hold_snapshot("b", h.uuid("b", "renamed")?, true)),
            freeing("a deletion", |h| h.pool().delete_volume("c")),
            freeing("reaping", Hands::reap),
            lasting("a point", Hands::point),
        ],
    },
    History {
        name: "replicas",
        pool_bytes: 13 << 20,
        prelude: PRELUDE,
        fails_after_prelude: false,
        operations: &[
            lasting("a volume", |h| h.pool().create_volume("r", 60 * BLOCK).map(|_| ())),
            lasting("a replica", |h| h.replica("r")),
            lasting("staging", |h| h.stage("r", None, 60, 1)),
            later("a staged write", |h| h.staged("r")?.write(0, &content(3000, 18))),
            later("a share", |h| {
                let from = h.pool().open_snapshot("b", "old-b")?;
                let expected = from.fingerprints(120, 6)?;
                let shared = h.staged("r")?.share(40, &from, 120, &expected)?;
                // What cannot be read there is not shared; the link brings it.
                let bytes = content(200 + shared, 6 - shared);
                h.staged("r")?.write((40 + shared) * BLOCK, &bytes)
            }),
            lasting("a flush", Hands::flush),
            lasting("a commit", |h| h.staged("r")?.commit(&new_snapshot("one")).map(|_| ())),
            lasting("staging", |h| h.stage("r", Some("one"), 50, 2)),
            later("a discard", |h| h.staged("r")?.discard(2 * BLOCK, 3 * BLOCK)),
            later("an adoption", |h| h.adopt("r", 30..34, 3004)),
            lasting("a point", Hands::point),
            lasting("another size", |h| h.staged("r")?.resize(55 * BLOCK)),
            lasting("another end", |h| h.staged("r")?.retarget(staged_for(3).incremental)),
            later("a staged write", |h| h.staged("r")?.write(10 * BLOCK, &content(3100, 2))),
            lasting("a second volume", |h| h.pool().create_volume("q", 60 * BLOCK).map(|_| ())),
            lasting("a replica", |h| h.replica("q")),
            lasting("staging", |h| h.stage("q", None, 40, 3)),
            later("a staged write", |h| h.staged("q")?.write(5 * BLOCK, &content(3150, 9))),
            lasting("a commit of both", |h| {
                let (r, q) = (h.staged("r")?, h.staged("q")?);
                let both = [(&r, new_snapshot("two")), (&q, new_snapshot("two"))];
                h.pool().commit_together(&both).map(|_| ())
            }),
            freeing("a deletion", |h| h.delete_snapshot("r", "one")),
            freeing("reaping", Hands::reap),
            lasting("staging", |h| h.stage("r", Some("two"), 55, 4)),
            later("a staged write", |h| h.staged("r")?.write(0, &content(3200, 1))),
            freeing("giving it up", |h| h.staged("r")?.abandon()),
            freeing("reaping", Hands::reap),
            lasting("a point", Hands::point),
        ],
    },
    History {
        name: "growth and scrub",
        pool_bytes: 13 << 20,
        prelude: PRELUDE,
        fails_after_prelude: false,
        operations: &[
            later("a write", |h| h.write("b", 2, 50, 4000)),
            lasting("growth", |h| h.grow(1)),
            later("a write", |h| h.write("b", 60, 18, 4100)),
            lasting("a scrub", |h| h.scrub()),
            later("a write", |h| h.write("a", 1, 3, 4200)),
            lasting("growth", |h| h.grow(2)),
        ],
    },
    History {
        name: "sharing at rest, and limits",
        pool_bytes: 13 << 20,
        prelude: PRELUDE,
        fails_after_prelude: false,
        operations: &[
            later("what another has", |h| h.write("a", 10, 12, 200)),
            later("deduplication", |h| h.dedup(&["a", "b"])),
            lasting("a flush", Hands::flush),
            later("a write over what is shared", |h| h.write("b", 122, 2, 6000)),
            lasting("a quota", |h| h.limit("a", 60, 0)),
            later("a write", |h| h.write("a", 0, 3, 6100)),
            lasting("a reservation", |h| h.limit("b", 0, 40)),
            lasting("snapshots", |h| h.snapshots(&["a", "b"], "s")),
            later("a write over what is shared", |h| h.write("a", 12, 3, 6200)),
            lasting("a point", Hands::point),
            freeing("a deletion", |h| h.delete_snapshot("b", "old-b")),
            freeing("reaping", Hands::reap),
            later("what both have", |h| h.write("b", 0, 3, 6200)),
            later("deduplication", |h| h.dedup(&["b", "a"])),
            lasting("a flush", Hands::flush),
            later("its undoing", |h| h.undo_dedup("a")),
            freeing("no limit", |h| h.limit("b", 0, 0)),
            freeing("a deletion", |h| h.pool().delete_volume("b")),
            freeing("reaping", Hands::reap),
            lasting("a point", Hands::point),
        ],
    },
    History {
        name: "openings",
        pool_bytes: 13 << 20,
        prelude: &[
            lasting("a volume", |h| h.pool().create_volume("a", 40 * BLOCK).map(|_| ())),
            later("a write", |h| h.write("a", 0, 8, 100)),
            lasting("a point", Hands::point),
            later("a write", |h| h.write("a", 4, 6, 5000)),
            lasting("a snapshot", |h| h.snapshots(&["a"], "s")),
            later("a write", |h| h.write("a", 12, 3, 5100)),
            lasting("a flush", Hands::flush),
        ],
        fails_after_prelude: true,
        operations: &[
            later("an opening after a power failure", Hands::open),
            later("a write", |h| h.write("a", 3, 3, 5200)),
            lasting("a flush", Hands::flush),
            later("a write", |h| h.write("a", 8, 3, 5300)),
            lasting("its end", |h| h.pool().close()),
            later("an opening", Hands::open),
            later("a write", |h| h.write("a", 9, 2, 5400)),
            lasting("a flush", Hands::flush),
            later("an opening after a kill", Hands::open),
            freeing("a deletion", |h| h.delete_snapshot("a", "s-a")),
            lasting("a point", Hands::point),
        ],
    },
];
