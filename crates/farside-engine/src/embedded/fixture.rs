//! The embedded store under the conformance suite: over a disk that loses and tears what was not synced.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use farside_platform::{CrashFate, ManualClock, ProcessIdentity, SeededRandomness, SimulatedDisk, Timestamp};
use farside_store::{ClaimOptions, Pool, PoolOptions, StoreError};
use parking_lot::Mutex;

use super::EmbeddedEngine;
use super::convert::convert;
use crate::conformance::{Fixture, POOL};
use crate::{Engine, EngineError, VolumeName};

const POOL_BYTES: u64 = 24 << 20;
/// The next owner leaves the last one twice this to see that it is one no more.
const CLAIM_INTERVAL: Duration = Duration::from_millis(100);

/// A pool on a simulated disk.
pub struct Embedded {
    disk: SimulatedDisk,
    pool: Arc<Pool>,
    engine: Arc<EmbeddedEngine>,
    /// Events of the disk after which it died, or is to die.
    dies_after: Mutex<Option<usize>>,
}

fn options(seed: u64) -> PoolOptions {
    let clock = Arc::new(ManualClock::new(Timestamp(1_800_000_000_000_000_000)));
    PoolOptions { background: false, ..PoolOptions::new(clock, Arc::new(SeededRandomness::new(seed))) }
}

/// A process of some machine that has the pool to itself.
fn claimed(seed: u64, machine: u8, force: bool) -> PoolOptions {
    let process =
        ProcessIdentity { boot: [machine; 16], pid_namespace: 1, pid: u32::from(machine), began: 5 };
    let claim = ClaimOptions {
        process,
        host: format!("machine-{machine}"),
        interval: CLAIM_INTERVAL,
        force,
        has_lock: false,
    };
    PoolOptions { claim: Some(claim), ..options(seed) }
}

impl Embedded {
    fn open(disk: SimulatedDisk, options: PoolOptions) -> Embedded {
        let opened = Pool::open(Arc::new(disk.clone()), options);
        let pool = opened.unwrap_or_else(|error| panic!("the pool does not open: {error}"));
        let engine = Arc::new(EmbeddedEngine::new());
        engine.add(POOL, Arc::clone(&pool)).expect("a fresh engine has no pool");
        Embedded { disk, pool, engine, dies_after: Mutex::default() }
    }

    /// Copies of one empty pool share what they have in common, and making one takes long.
    fn empty() -> SimulatedDisk {
        static EMPTY: OnceLock<SimulatedDisk> = OnceLock::new();
        let made = EMPTY.get_or_init(|| {
            let disk = SimulatedDisk::new("conformance", POOL_BYTES);
            let pool = Pool::create(Arc::new(disk.clone()), options(1)).expect("a fresh disk");
            pool.close().expect("a fresh pool");
            disk
        });
        made.image()
    }

    fn on<T>(&self, call: impl FnOnce(&Arc<Pool>) -> Result<T, StoreError>) -> Result<T, EngineError> {
        call(&self.pool).map_err(|error| convert(POOL, error))
    }
}

impl Fixture for Embedded {
    const IS_EXACT: bool = true;
    const FATES: u64 = 4;

    fn create(seed: u64) -> Self {
        Embedded::open(Embedded::empty(), options(seed))
    }

    fn engine(&self) -> Arc<dyn Engine> {
        self.engine.clone()
    }

    fn host_writes(&self, volume: &VolumeName, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
        self.on(|pool| pool.open_volume(&volume.volume)?.write(offset, bytes))
    }

    fn host_trims(&self, volume: &VolumeName, offset: u64, length: u64) -> Result<(), EngineError> {
        self.on(|pool| pool.open_volume(&volume.volume)?.trim(offset, length))
    }

    fn host_reads(&self, volume: &VolumeName, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError> {
        self.on(|pool| pool.open_volume(&volume.volume)?.read(offset, buffer))
    }

    fn host_flushes(&self, _: &VolumeName) -> Result<(), EngineError> {
        self.on(|pool| pool.flush())
    }

    fn resize(&self, volume: &VolumeName, size_bytes: u64) -> Result<(), EngineError> {
        self.on(|pool| pool.resize_volume(&volume.volume, size_bytes))
    }

    /// The disk goes on, and remembers; what it would have had then is what is opened.
    fn dies_at(&self, step: usize) {
        *self.dies_after.lock() = Some(self.disk.events() + step);
    }

    fn died_at(&self) -> Option<String> {
        let event = self.dies_after.lock().filter(|after| *after < self.disk.events())?;
        let kind = if self.disk.sync_points().contains(&(event + 1)) { "sync" } else { "write" };
        Some(format!("{kind}, event {event} of the disk"))
    }

    fn reopened(&self, fate: u64) -> Self {
        let fate = match fate {
            0 => CrashFate::DropUnsynced,
            1 => CrashFate::KeepUnsynced,
            seed => CrashFate::Random(seed),
        };
        let events = self.dies_after.lock().unwrap_or(usize::MAX).min(self.disk.events());
        Embedded::open(self.disk.crash_at(events, fate), options(events as u64))
    }

    fn create_shared(seed: u64) -> Self {
        Embedded::open(Embedded::empty(), claimed(seed, 1, false))
    }

    /// The last owner has half of the time that the opening takes to see it, and on a busy machine more.
    fn taken_over(&self) -> Self {
        let next = Embedded::open(self.disk.clone(), claimed(7, 2, true));
        let patience = Instant::now() + Duration::from_secs(60);
        while self.pool.status().failed.is_none() {
            assert!(Instant::now() < patience, "its last owner goes on beside the next");
            std::thread::sleep(Duration::from_millis(5));
        }
        next
    }
}
