//! What the suite needs of an engine besides its traits.

use std::sync::Arc;

use crate::{Engine, EngineError, VolumeName};

/// The pool in which a fixture's volumes lie.
pub const POOL: &str = "p";

/// An engine under test, and the world around it: hosts, and a process that can die.
pub trait Fixture: Sized {
    /// Whether a difference is exactly what differs; else it may be larger.
    const IS_EXACT: bool;
    /// Ways in which what was not durable may have survived when the process died.
    const FATES: u64;

    /// New storage, with a pool [`POOL`] that has room for 8 MiB at least. The same seed makes the same steps.
    fn create(seed: u64) -> Self;
    /// The engine.
    fn engine(&self) -> Arc<dyn Engine>;

    /// A host writes whole blocks.
    fn host_writes(&self, volume: &VolumeName, offset: u64, bytes: &[u8]) -> Result<(), EngineError>;
    /// A host trims whole blocks: they read as zeros.
    fn host_trims(&self, volume: &VolumeName, offset: u64, length: u64) -> Result<(), EngineError>;
    /// A host reads whole blocks: of a replica what was published last.
    fn host_reads(&self, volume: &VolumeName, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError>;
    /// A host flushes what it wrote.
    fn host_flushes(&self, volume: &VolumeName) -> Result<(), EngineError>;
    /// A person gives the volume another size.
    fn resize(&self, volume: &VolumeName, size_bytes: u64) -> Result<(), EngineError>;

    /// The process dies at one of the steps that come, as `kill -9` and a power failure would have it: 0 is the next. A step is
    /// whatever the engine's storage can have seen the one side of without the other: a write to a device, a sync, a request to a
    /// cluster. What is asked of the engine after that may fail, or seem to succeed.
    fn dies_at(&self, step: usize);
    /// The step at which it died, by name; none if there were not so many.
    fn died_at(&self) -> Option<String>;
    /// What another process finds: as it was when this one died, or now. `fate` is below [`Fixture::FATES`].
    fn reopened(&self, fate: u64) -> Self;

    /// New storage that several processes can reach.
    fn create_shared(seed: u64) -> Self;
    /// Another process takes such storage over by force, as after its owner hung, which goes on all the same. Answers when the other
    /// one may begin.
    fn taken_over(&self) -> Self;
}
