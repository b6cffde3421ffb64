//! The engine in memory under the conformance suite.

use std::marker::PhantomData;
use std::sync::Arc;

use super::{MemoryEngine, MemoryOptions};
use crate::conformance::Fixture;
use crate::{Capability, Engine, EngineError, VolumeName};

/// With everything an engine can have, and exact.
pub type Whole = Memory<Everything>;
/// With what every engine must have and nothing else, and differences that are larger than they need be.
pub type Bare = Memory<Nothing>;

/// What an engine in memory has, as a type.
pub trait Kind {
    /// Whether its differences are exact.
    const IS_EXACT: bool;
    /// What it is like.
    fn options() -> MemoryOptions;
}

/// See [`Whole`].
pub struct Everything;

impl Kind for Everything {
    const IS_EXACT: bool = true;
    fn options() -> MemoryOptions {
        MemoryOptions::default()
    }
}

/// See [`Bare`].
pub struct Nothing;

impl Kind for Nothing {
    const IS_EXACT: bool = false;
    fn options() -> MemoryOptions {
        MemoryOptions { lacks: Capability::ALL.to_vec(), difference_blocks: 32 }
    }
}

/// An engine in memory.
pub struct Memory<K> {
    engine: MemoryEngine,
    kind: PhantomData<K>,
}

impl<K> Memory<K> {
    fn of(engine: MemoryEngine) -> Self {
        Memory { engine, kind: PhantomData }
    }
}

impl<K: Kind> Fixture for Memory<K> {
    const IS_EXACT: bool = K::IS_EXACT;
    const FATES: u64 = 2;

    fn create(_: u64) -> Self {
        Memory::of(MemoryEngine::new(K::options()))
    }

    fn engine(&self) -> Arc<dyn Engine> {
        Arc::new(self.engine.clone())
    }

    fn host_writes(&self, volume: &VolumeName, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
        self.engine.write_as_host(volume, offset, bytes)
    }

    fn host_trims(&self, volume: &VolumeName, offset: u64, length: u64) -> Result<(), EngineError> {
        self.engine.trim_as_host(volume, offset, length)
    }

    fn host_reads(&self, volume: &VolumeName, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError> {
        self.engine.read_as_host(volume, offset, buffer)
    }

    fn host_flushes(&self, _: &VolumeName) -> Result<(), EngineError> {
        Ok(())
    }

    fn resize(&self, volume: &VolumeName, size_bytes: u64) -> Result<(), EngineError> {
        self.engine.resize_volume(volume, size_bytes)
    }

    fn dies_at(&self, step: usize) {
        self.engine.dies_at(step);
    }

    fn died_at(&self) -> Option<String> {
        self.engine.died_at()
    }

    fn reopened(&self, fate: u64) -> Self {
        Memory::of(self.engine.crash(fate))
    }

    fn create_shared(seed: u64) -> Self {
        Self::create(seed)
    }

    fn taken_over(&self) -> Self {
        Memory::of(self.engine.taken_over())
    }
}
