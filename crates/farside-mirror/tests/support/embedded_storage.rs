//! The embedded store as a site's storage, over disks that lose and tear what was not synced.

use std::sync::Arc;

use farside_engine::embedded::EmbeddedEngine;
use farside_engine::{Engine, VolumeName};
use farside_platform::{CrashFate, SeededRandomness, SimulatedDisk};
use farside_store::{Pool, PoolOptions, VersionHandle};

use super::site::{Storage, TokioClock};

const POOL_BYTES: u64 = 96 << 20;

#[derive(Clone)]
pub(crate) struct Embedded {
    name: String,
    engine: Arc<EmbeddedEngine>,
    pub(crate) disk: SimulatedDisk,
    clock: Arc<TokioClock>,
    seed: u64,
}

impl Embedded {
    pub(crate) fn on(
        name: &str,
        disk: SimulatedDisk,
        clock: Arc<TokioClock>,
        seed: u64,
        is_new: bool,
    ) -> Self {
        let mut options = PoolOptions::new(clock.clone(), Arc::new(SeededRandomness::new(seed)));
        options.background = false;
        let device = Arc::new(disk.clone());
        let pool = if is_new { Pool::create(device, options) } else { Pool::open(device, options) };
        let engine = Arc::new(EmbeddedEngine::new());
        engine.add(name, pool.unwrap_or_else(|e| panic!("pool {name}: {e}"))).unwrap();
        Embedded { name: name.into(), engine, disk, clock, seed }
    }

    pub(crate) fn pool(&self) -> Arc<Pool> {
        self.engine.pool(&self.name).unwrap()
    }

    /// Nobody finds the pool until it is [open again](Self::open_again).
    pub(crate) fn close(&self) -> Arc<Pool> {
        self.engine.remove(&self.name).unwrap()
    }

    pub(crate) fn open_again(&self, pool: Arc<Pool>) {
        self.engine.add(&self.name, pool).unwrap();
    }

    pub(crate) fn open(&self, volume: &VolumeName) -> VersionHandle {
        self.pool().open_volume(&volume.volume).unwrap()
    }
}

impl Storage for Embedded {
    fn create(name: &str, clock: Arc<TokioClock>, seed: u64) -> Self {
        Embedded::on(name, SimulatedDisk::new(name, POOL_BYTES), clock, seed, true)
    }

    fn engine(&self) -> Arc<dyn Engine> {
        self.engine.clone()
    }

    fn host_writes(&self, volume: &VolumeName, offset: u64, bytes: &[u8]) {
        self.open(volume).write(offset, bytes).unwrap();
    }

    fn host_trims(&self, volume: &VolumeName, offset: u64, length: u64) {
        self.open(volume).trim(offset, length).unwrap();
    }

    fn resize(&self, volume: &VolumeName, size_bytes: u64) {
        self.pool().resize_volume(&volume.volume, size_bytes).unwrap();
    }

    fn flush(&self) {
        self.pool().flush().unwrap();
    }

    /// The old disk fails every request from now on; the new one is torn by chance.
    fn crash(&self, crash_seed: u64) -> Self {
        self.disk.fail_after(Some(0));
        let after = self.disk.crash(CrashFate::Random(crash_seed));
        Embedded::on(&self.name, after, self.clock.clone(), self.seed + crash_seed + 1, false)
    }

    fn has_staged(&self, volume: &VolumeName) -> bool {
        !self.engine.staged(volume).unwrap().is_empty()
    }
}
