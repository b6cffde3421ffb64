//! Images of a real cluster under the conformance suite. Each test has a namespace of its own in the pool `rbd`, which stays: the cluster is
//! one that was made for tests (`scripts/ceph-cluster`), and goes as a whole.
//!
//! A process dies before one of the requests that change something in the cluster: from then on none of its requests is carried out,
//! while its client lives on and has its locks, as one that hangs. Who comes next breaks them, so the fence is part of each of these
//! tests. What is not covered: a death in the middle of a request of librbd's, which is many of the cluster's (creating, removing and
//! resizing an image, rolling one back); and a loss of power of the cluster itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::ceph::{Connection, Image, Pool, Writes};
use super::pool::RbdPool;
use super::state::RbdEngine;
use crate::conformance::{Fixture, POOL};
use crate::{Engine, EngineError, VolumeName};

/// Names the configuration of a cluster whose pool `rbd` may be filled with what tests leave.
pub const CONF_VARIABLE: &str = "FARSIDE_TEST_CEPH_CONF";

static NEXT: AtomicU64 = AtomicU64::new(0);

/// An engine over a namespace of its own, and a host.
pub struct Rbd {
    engine: RbdEngine,
    options: RbdPool,
    host: Mutex<Option<Arc<Pool>>>,
}

/// Whether there is a cluster for tests; says so on stderr if not.
pub fn is_there() -> bool {
    if conf().is_none() {
        eprintln!("skipped: {CONF_VARIABLE} names no cluster (scripts/ceph-cluster start DIR makes one)");
    }
    conf().is_some()
}

fn conf() -> Option<String> {
    std::env::var(CONF_VARIABLE).ok().filter(|conf| !conf.is_empty())
}

fn connect(options: &RbdPool, namespace: &str) -> Pool {
    let connected = Connection::open(&options.conf, &options.user, options.timeout_seconds);
    let connected = connected.expect("the libraries are there");
    let connection = connected.unwrap_or_else(|failed| panic!("the cluster does not answer: {failed:?}"));
    Pool::open(Arc::new(connection), &options.rbd_pool, namespace).expect("the pool is there")
}

impl RbdEngine {
    /// As if a call of the library's for this volume did not end, before what sends to `ends` is dropped: it has the volume's turn.
    ///
    /// # Errors
    /// There is no such volume.
    pub fn hang(&self, volume: &VolumeName, ends: mpsc::Receiver<()>) -> Result<JoinHandle<()>, EngineError> {
        let (volume, _) = self.locate(volume)?;
        let (begins, begun) = mpsc::channel();
        let hung = std::thread::spawn(move || {
            volume.in_turn(|_| {
                _ = begins.send(());
                // An error is the end.
                _ = ends.recv();
            });
        });
        _ = begun.recv();
        Ok(hung)
    }
}

impl Rbd {
    fn over(options: RbdPool, take_over: bool) -> Rbd {
        let engine = RbdEngine::new();
        engine.add(POOL, options.clone()).unwrap_or_else(|error| panic!("the pool is not added: {error}"));
        let failed =
            engine.settle(POOL, take_over).unwrap_or_else(|error| panic!("it does not settle: {error}"));
        assert!(failed.is_empty(), "volumes that do not settle: {failed:?}");
        Rbd { engine, options, host: Mutex::default() }
    }

    /// A host is a client of its own.
    fn on_host<T>(
        &self,
        call: impl FnOnce(&Arc<Pool>) -> Result<T, super::ceph::Failed>,
    ) -> Result<T, EngineError> {
        let host = Arc::clone(
            self.host.lock().get_or_insert_with(|| Arc::new(connect(&self.options, &self.options.namespace))),
        );
        call(&host).map_err(|failed| EngineError::Io(format!("the host's {failed:?}")))
    }

    fn on_image<T>(
        &self,
        volume: &VolumeName,
        call: impl FnOnce(Arc<Image>) -> Result<T, super::ceph::Failed>,
    ) -> Result<T, EngineError> {
        let (found, _) = self.engine.locate(volume)?;
        self.on_host(|host| call(Arc::new(Image::open(host, &found.id)?)))
    }
}

impl Fixture for Rbd {
    const IS_EXACT: bool = false;
    /// What was answered is on the medium.
    const FATES: u64 = 1;

    fn create(seed: u64) -> Self {
        let conf = conf().unwrap_or_else(|| panic!("{CONF_VARIABLE} names no cluster"));
        // A machine that builds beside the tests starves the cluster.
        let mut options = RbdPool { conf, timeout_seconds: 120, ..RbdPool::new("rbd") };
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        options.namespace = format!("test-{seed}-{}-{}-{number}", since_1970.as_millis(), std::process::id());
        let whole = connect(&options, "");
        whole.create_namespace(&options.namespace).expect("a namespace");
        Rbd::over(options, false)
    }

    fn engine(&self) -> Arc<dyn Engine> {
        Arc::new(self.engine.clone())
    }

    fn host_writes(&self, volume: &VolumeName, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
        self.on_image(volume, |image| {
            let mut writes = Writes::new(image);
            writes.write(offset, bytes)?;
            writes.finish()
        })
    }

    fn host_trims(&self, volume: &VolumeName, offset: u64, length: u64) -> Result<(), EngineError> {
        self.on_image(volume, |image| {
            let mut writes = Writes::new(image);
            writes.zero(offset, length)?;
            writes.finish()
        })
    }

    fn host_reads(&self, volume: &VolumeName, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError> {
        let (found, _) = self.engine.locate(volume)?;
        let shown = self.engine.shown_snapshot(volume)?;
        self.on_host(|host| {
            Image::open_to_read(host, &found.id, shown.as_deref())?.read(&mut [(offset, buffer)])
        })
    }

    fn host_flushes(&self, _: &VolumeName) -> Result<(), EngineError> {
        Ok(())
    }

    fn resize(&self, volume: &VolumeName, size_bytes: u64) -> Result<(), EngineError> {
        self.on_image(volume, |image| image.resize(size_bytes))
    }

    fn dies_at(&self, step: usize) {
        self.engine.inner.steps.die_at(step);
    }

    fn died_at(&self) -> Option<String> {
        self.engine.inner.steps.died_at()
    }

    fn reopened(&self, _: u64) -> Self {
        Rbd::over(self.options.clone(), true)
    }

    fn create_shared(seed: u64) -> Self {
        Rbd::create(seed)
    }

    /// The host is a program of the machine that hung: whoever fences that has it fenced as well.
    fn taken_over(&self) -> Self {
        let next = Rbd::over(self.options.clone(), true);
        if let Some(host) = &*self.host.lock() {
            let pool = next.engine.pool(POOL).expect("it was added");
            let fences = |id: &str| {
                let locked = Image::open(host, id).and_then(|image| image.lock().map(|()| image));
                locked.is_ok_and(|image| {
                    let owner = image.lock_owner().expect("it answers").expect("it has it just now");
                    let other = Image::open(&pool.ceph, id).expect("it opens");
                    other.break_lock(&owner).expect("the host is fenced");
                    true
                })
            };
            let images = pool.ceph.images().expect("a list");
            assert!(images.iter().any(|(id, _)| fences(id)), "no image by which the host can be fenced");
        }
        next
    }
}
