//! A namespace of the cluster for tests, and strangers that use it: the program `rbd`.

#![allow(dead_code, reason = "not every test file uses all of it")]

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_engine::rbd::fixture::CONF_VARIABLE;
pub(crate) use farside_engine::rbd::fixture::is_there;
use farside_engine::rbd::{RbdEngine, RbdPool};
use farside_engine::{
    BLOCK_BYTES, ChangeKind, Engine, ReplicaRecord, SnapshotOwner, SnapshotSpec, StagedFor, VolumeName,
};
use farside_platform::Timestamp;
use uuid::Uuid;

pub(crate) const MIRROR: Uuid = Uuid::from_u128(0x5e1);
pub(crate) const MIB: u64 = 1 << 20;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A namespace, and as whom it is used.
pub(crate) struct Space {
    pub(crate) options: RbdPool,
}

impl Space {
    /// A new one in the cluster for tests.
    pub(crate) fn new() -> Space {
        let conf = std::env::var(CONF_VARIABLE).expect("it was looked at");
        Space::of(&conf)
    }

    /// In the cluster for tests, without a namespace.
    pub(crate) fn unmade() -> Space {
        let conf = std::env::var(CONF_VARIABLE).expect("it was looked at");
        Space { options: RbdPool { conf, timeout_seconds: 120, ..RbdPool::new("rbd") } }
    }

    pub(crate) fn of(conf: &str) -> Space {
        // A machine that builds beside the tests starves the cluster.
        let mut options = RbdPool { conf: conf.into(), timeout_seconds: 120, ..RbdPool::new("rbd") };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        options.namespace = format!("test-{}-{number}", Uuid::new_v4());
        let space = Space { options };
        space.rbd(&["namespace", "create", &format!("rbd/{}", space.options.namespace)]);
        space
    }

    pub(crate) fn engine(&self, take_over: bool) -> RbdEngine {
        let engine = RbdEngine::new();
        engine.add("p", self.options.clone()).expect("the pool is there");
        let failed = engine.settle("p", take_over).expect("it settles");
        assert!(failed.is_empty(), "{failed:?}");
        engine
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("rbd");
        command.args(["--conf", &self.options.conf, "--id", &self.options.user]).args(arguments);
        command
    }

    /// What `rbd` says.
    pub(crate) fn rbd(&self, arguments: &[&str]) -> String {
        let done = self.command(arguments).output().expect("rbd runs");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "rbd {arguments:?}: {said}");
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// The same of an image, which is the last argument, or with a snapshot.
    pub(crate) fn on(&self, arguments: &[&str], image: &str) -> String {
        let image = self.image(image);
        self.rbd(&[arguments, &[&image]].concat())
    }

    pub(crate) fn image(&self, image: &str) -> String {
        format!("rbd/{}/{image}", self.options.namespace)
    }

    /// What the cluster itself has of an image: everything in its header.
    pub(crate) fn header(&self, image: &str) -> String {
        let said = self.on(&["info", "--format", "json"], image);
        let id = said.split("\"id\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an id");
        let done = Command::new("rados")
            .args(["--conf", &self.options.conf, "--id", &self.options.user, "-p", "rbd", "-N"])
            .args([&self.options.namespace, "listomapvals", &format!("rbd_header.{id}")])
            .output()
            .expect("rados runs");
        assert!(done.status.success());
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// All bytes of an image, or of a snapshot of it.
    pub(crate) fn bytes(&self, image: &str) -> Vec<u8> {
        let done =
            self.command(&["export", "--no-progress", &self.image(image), "-"]).output().expect("rbd runs");
        assert!(done.status.success());
        done.stdout
    }

    /// A stranger makes an image of these bytes.
    pub(crate) fn import(&self, image: &str, bytes: &[u8]) {
        let file = std::env::temp_dir().join(format!("farside-{}", Uuid::new_v4()));
        std::fs::write(&file, bytes).expect("a file");
        self.rbd(&["import", "--no-progress", &file.to_string_lossy(), &self.image(image)]);
        std::fs::remove_file(file).expect("it was there");
    }
}

pub(crate) fn name(volume: &str) -> VolumeName {
    VolumeName { pool: "p".into(), volume: volume.into() }
}

/// A snapshot of the mirror.
pub(crate) fn spec(name: &str, number: u128) -> SnapshotSpec {
    SnapshotSpec {
        name: name.into(),
        uuid: Uuid::from_u128(number),
        created_at: Timestamp(1_800_000_000_000_000_000 + number as u64),
        owner: SnapshotOwner::Relationship(MIRROR),
        pin_for: None,
    }
}

pub(crate) fn record(broken_off: bool) -> Option<ReplicaRecord> {
    Some(ReplicaRecord { relationship: MIRROR, peer: [1; 32], source: "far/v".into(), broken_off })
}

pub(crate) fn staged_for(number: u128) -> StagedFor {
    StagedFor { relationship: MIRROR, incremental: Uuid::from_u128(number) }
}

/// Bytes of data in what differs.
pub(crate) fn data_bytes(engine: &RbdEngine, volume: &str, base: Option<u128>, now: u128) -> u64 {
    let base = base.map(Uuid::from_u128);
    let extents = engine.changed_extents(&name(volume), base, Uuid::from_u128(now)).expect("a difference");
    let extents = extents.map(|extent| extent.expect("a walk"));
    extents.filter(|extent| extent.kind == ChangeKind::Data).map(|extent| extent.length).sum()
}

/// `count` blocks that differ from each other.
pub(crate) fn blocks(count: u64, seed: u64) -> Vec<u8> {
    let block = |number: u64| {
        let mut block = vec![(seed as u8) | 1; BLOCK_BYTES as usize];
        block[..8].copy_from_slice(&number.to_le_bytes());
        block
    };
    (0..count).flat_map(block).collect()
}
