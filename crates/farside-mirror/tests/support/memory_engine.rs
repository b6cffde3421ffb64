//! The engine in memory as a site's storage: with everything that an engine can have, or without some of it.

use std::marker::PhantomData;
use std::sync::Arc;

use farside_engine::memory::MemoryOptions;
use farside_engine::{Capability, Engine, VolumeName};

use super::site::{Storage, TokioClock};

pub(crate) use farside_engine::memory::MemoryEngine;

impl Storage for MemoryEngine {
    fn create(_: &str, _: Arc<TokioClock>, _: u64) -> Self {
        MemoryEngine::new(MemoryOptions::default())
    }

    fn engine(&self) -> Arc<dyn Engine> {
        Arc::new(self.clone())
    }

    fn host_writes(&self, volume: &VolumeName, offset: u64, bytes: &[u8]) {
        self.write_as_host(volume, offset, bytes).unwrap();
    }

    fn host_trims(&self, volume: &VolumeName, offset: u64, length: u64) {
        self.trim_as_host(volume, offset, length).unwrap();
    }

    fn resize(&self, volume: &VolumeName, size_bytes: u64) {
        self.resize_volume(volume, size_bytes).unwrap();
    }

    fn crash(&self, crash_seed: u64) -> Self {
        MemoryEngine::crash(self, crash_seed)
    }

    fn has_staged(&self, volume: &VolumeName) -> bool {
        MemoryEngine::has_staged(self, volume)
    }
}

/// What an engine in memory is like, as a type.
pub(crate) trait Kind: Send + Sync + 'static {
    fn options() -> MemoryOptions;
}

macro_rules! lacking {
    ($($(#[$doc:meta])* $name:ident: $lacks:expr;)*) => { $(
        $(#[$doc])*
        pub(crate) struct $name;
        impl Kind for $name {
            fn options() -> MemoryOptions {
                MemoryOptions { lacks: $lacks.to_vec(), ..MemoryOptions::default() }
            }
        }
    )* };
}

lacking! {
    NoBranches: [Capability::Branches];
    NoTogether: [Capability::Together];
    NoKnownData: [Capability::KnownData];
    NoSubtrees: [Capability::Subtrees];
    /// What is in every engine's trait, and nothing else.
    Bare: Capability::ALL;
}

/// As storage is that knows of its objects only which were written: what it says of a difference is more than differs.
pub(crate) struct Coarse;

impl Kind for Coarse {
    fn options() -> MemoryOptions {
        MemoryOptions { lacks: Capability::ALL.to_vec(), difference_blocks: 64 }
    }
}

/// An engine in memory of that kind.
pub(crate) struct Like<K> {
    engine: MemoryEngine,
    kind: PhantomData<K>,
}

impl<K> Clone for Like<K> {
    fn clone(&self) -> Self {
        Like { engine: self.engine.clone(), kind: PhantomData }
    }
}

impl<K> std::ops::Deref for Like<K> {
    type Target = MemoryEngine;

    fn deref(&self) -> &MemoryEngine {
        &self.engine
    }
}

impl<K: Kind> Storage for Like<K> {
    fn create(_: &str, _: Arc<TokioClock>, _: u64) -> Self {
        Like { engine: MemoryEngine::new(K::options()), kind: PhantomData }
    }

    fn engine(&self) -> Arc<dyn Engine> {
        Arc::new(self.engine.clone())
    }

    fn host_writes(&self, volume: &VolumeName, offset: u64, bytes: &[u8]) {
        Storage::host_writes(&self.engine, volume, offset, bytes);
    }

    fn host_trims(&self, volume: &VolumeName, offset: u64, length: u64) {
        Storage::host_trims(&self.engine, volume, offset, length);
    }

    fn resize(&self, volume: &VolumeName, size_bytes: u64) {
        Storage::resize(&self.engine, volume, size_bytes);
    }

    fn crash(&self, crash_seed: u64) -> Self {
        Like { engine: self.engine.crash(crash_seed), kind: PhantomData }
    }

    fn has_staged(&self, volume: &VolumeName) -> bool {
        self.engine.has_staged(volume)
    }
}
