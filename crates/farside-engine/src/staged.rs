//! The next version of a replica, while it is built aside.

use std::any::Any;
use std::sync::Arc;

use farside_format::{ContentRoot, Fingerprint};
use uuid::Uuid;

use crate::difference::ChangedExtents;
use crate::error::EngineError;
use crate::names::VolumeName;
use crate::snapshot::{SnapshotInfo, SnapshotSpec};

/// What a staged version is being built for. The pool keeps it, so that a transfer that was cut off can go on with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StagedFor {
    /// The relationship.
    pub relationship: Uuid,
    /// The source's snapshot that it shall become.
    pub incremental: Uuid,
}

/// A staged version as an engine lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StagedInfo {
    /// The snapshot that it began as; if that was deleted meanwhile, the nearest older one of the same line that is
    /// still there. `None` if there is none. What it holds can be compared with any snapshot of the volume.
    pub base: Option<Uuid>,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// What it is being built for.
    pub staged_for: StagedFor,
}

/// Staged versions, each with what is known of it.
pub type StagedVersions = Vec<(StagedInfo, Arc<dyn StagedVersion>)>;

/// A staged version that is to be published, and as what.
#[derive(Clone)]
pub struct ReadyVersion {
    /// The volume.
    pub volume: VolumeName,
    /// What is staged of it, by this engine.
    pub staged: Arc<dyn StagedVersion>,
    /// The snapshot that it becomes.
    pub spec: SnapshotSpec,
}

/// A version that is being built aside. Nobody sees it before `commit`. Dropping the handle keeps what was staged.
pub trait StagedVersion: Send + Sync {
    /// Itself, so that the engine that made it can know it again.
    fn as_any(&self) -> &dyn Any;
    /// What it began as, its size, and what it is being built for. An error once it was committed or abandoned.
    fn info(&self) -> Result<StagedInfo, EngineError>;
    /// Gives it another size, durably: what lies past a smaller one is dropped, a larger one shows zeros there.
    fn resize(&self, size_bytes: u64) -> Result<(), EngineError>;
    /// Says, durably, that it shall become another snapshot of the source than was meant before.
    fn retarget(&self, incremental: Uuid) -> Result<(), EngineError>;
    /// What is staged that `base` (any snapshot of the volume) has not; every allocated block without one; exact
    /// or safely larger, as [`Engine::changed_extents`](crate::Engine::changed_extents). What is staged while the walk runs may be in it or not.
    fn changed_from(&self, base: Option<Uuid>) -> Result<ChangedExtents, EngineError>;
    /// Fingerprints of `count` blocks from block `first` on, as staged now, at most
    /// [`FINGERPRINTS_MAX`](crate::FINGERPRINTS_MAX); past the end: holes.
    fn fingerprints(&self, first: u64, count: u64) -> Result<Vec<Fingerprint>, EngineError>;
    /// Writes whole blocks of data, inside the version. Blocks of zeros may become holes.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), EngineError>;
    /// Makes a range of whole blocks a hole.
    fn discard(&self, offset: u64, length: u64) -> Result<(), EngineError>;
    /// Reads the staged version as it is now: the base, and what has been written over it. Past its end: zeros.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError>;
    /// Makes everything written so far survive a crash.
    fn checkpoint(&self) -> Result<(), EngineError>;
    /// Content root of what is staged now, computed from bytes that were decoded here.
    fn content_root(&self) -> Result<ContentRoot, EngineError>;
    /// Publishes it, atomically and durably, as snapshot `spec` and as what readers of the volume see. The handle
    /// is dead afterwards. What hosts had written that no snapshot has stays as a snapshot `rescue-…` of a person: on a side
    /// branch, or where there is no such thing on the line, before this one. There, where it is also how a volume goes back that
    /// nobody's mirror has, it is refused while a host has that open for writing.
    ///
    /// # Errors
    /// Refused if it is to be pinned for a relationship that it was not staged for, or whose replica the volume is not at this
    /// moment: what a mirror sends ends with the mirror, however long it was under way.
    fn commit(&self, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError>;
    /// Throws it away.
    fn abandon(&self) -> Result<(), EngineError>;
}
