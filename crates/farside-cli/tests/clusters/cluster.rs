//! The cluster for tests, and its one OSD.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::process::{Pid, Signal, kill_process};

/// Held by whoever uses the cluster, alone by whoever stops it.
static IN_USE: RwLock<()> = RwLock::new(());

/// The path of its `ceph.conf`.
pub(crate) struct Cluster {
    conf: String,
    _held: Held,
}

#[expect(dead_code, reason = "held until they are dropped")]
enum Held {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

impl Deref for Cluster {
    type Target = str;

    fn deref(&self) -> &str {
        &self.conf
    }
}

fn conf() -> Option<String> {
    let conf = std::env::var("FARSIDE_TEST_CEPH_CONF").ok().filter(|conf| !conf.is_empty());
    if conf.is_none() {
        eprintln!("**** SKIPPED: FARSIDE_TEST_CEPH_CONF names no cluster (scripts/ceph-cluster start DIR)");
    }
    conf
}

/// The cluster, beside other tests; none: it says so.
pub(crate) fn cluster() -> Option<Cluster> {
    let held = Held::Shared(IN_USE.read().unwrap_or_else(PoisonError::into_inner));
    Some(Cluster { conf: conf()?, _held: held })
}

/// The same with no other test beside this one, which stops the cluster.
pub(crate) fn cluster_alone() -> Option<Cluster> {
    let held = Held::Alone(IN_USE.write().unwrap_or_else(PoisonError::into_inner));
    Some(Cluster { conf: conf()?, _held: held })
}

/// The OSD of a cluster that `scripts/ceph-cluster` made.
pub(crate) struct Osd {
    conf: PathBuf,
}

impl Osd {
    /// None, loudly, where the cluster is another one.
    pub(crate) fn of(cluster: &Cluster) -> Option<Osd> {
        let osd = Osd { conf: PathBuf::from(&**cluster) };
        if osd.id().is_none() {
            eprintln!(
                "**** SKIPPED: the cluster is not one of scripts/ceph-cluster, and its OSD is left alone"
            );
            return None;
        }
        Some(osd)
    }

    fn id(&self) -> Option<Pid> {
        let file = self.conf.with_file_name("run/osd.0.pid");
        Pid::from_raw(std::fs::read_to_string(file).ok()?.trim().parse().ok()?)
    }

    /// Whether what it holds outlives it.
    pub(crate) fn is_durable(&self) -> bool {
        std::fs::read_to_string(&self.conf).unwrap().lines().any(|line| line == "osd objectstore = bluestore")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.id().unwrap(), signal).unwrap();
    }

    /// Kills it, and waits until it is gone.
    pub(crate) fn kill(&self) {
        let id = self.id().unwrap();
        kill_process(id, Signal::KILL).unwrap();
        let process = PathBuf::from(format!("/proc/{}", id.as_raw_nonzero()));
        // What was killed is there until its parent has asked for it.
        crate::support::eventually("the OSD is dead", || {
            let command = std::fs::read(Path::new(&process).join("cmdline")).unwrap_or_default();
            command.is_empty()
        });
    }

    /// Starts it, again; it answers a little later.
    pub(crate) fn start(&self) {
        let started = Command::new("timeout")
            .args(["30", "ceph-osd", "-i", "0", "-c"])
            .arg(&self.conf)
            .output()
            .expect("ceph-osd runs");
        assert!(started.status.success(), "{}", crate::support::text(&started.stderr));
    }
}
