//! Pools: files or raw devices that hold volumes.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Whether a pool serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PoolState {
    /// Open.
    Open,
    /// It accepts no changes since a write failed, or since somebody else wrote to its device; `error` says which. What was
    /// flushed can be read.
    ReadOnly,
    /// Could not be opened; `error` says why. The daemon goes on with the others.
    Failed,
    /// It is being opened: since the start if its device does not answer, `error` says for how long. It serves as soon as it is open.
    Opening,
}

/// What keeps a pool's volumes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PoolEngine {
    /// farside's own store, in a file or on a raw device.
    #[default]
    Embedded,
    /// A pool of Ceph: its volumes are RBD images.
    Rbd,
}

/// How much of a pool is left for hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PoolRoom {
    /// More than a fifth.
    Enough,
    /// A fifth or less: 80 % are taken.
    Filling,
    /// A twentieth or less: 95 % are taken.
    NearlyFull,
    /// Too little to write 1 MiB: hosts are told that there is no space.
    Full,
}

/// A pool as it is listed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Its identity; null while it is not open.
    pub uuid: Option<Uuid>,
    /// The file or device; of a pool of Ceph `rbd:POOL[/NAMESPACE]:id=USER:conf=FILE`.
    pub path: String,
    /// What keeps its volumes.
    #[serde(default)]
    pub engine: PoolEngine,
    /// Whether it serves.
    pub state: PoolState,
    /// Why not; of a pool that serves, what is wrong with it all the same.
    pub error: Option<String>,
    /// What to do about it.
    #[serde(default)]
    pub advice: Option<String>,
    /// Its size in bytes; of a pool of Ceph what is used and free together, before copies. This and what follows is null while it is not
    /// open, or while its cluster does not tell.
    pub size_bytes: Option<u64>,
    /// Bytes in use, metadata included, without what is reclaimable. What was overwritten or deleted since the last consistency point
    /// may still be in it, at most an eighth of the pool. Of a pool of Ceph: what all its clients have written.
    pub used_bytes: Option<u64>,
    /// Bytes that nothing uses any more and that come back by themselves, with the next consistency points.
    #[serde(default)]
    pub reclaimable_bytes: Option<u64>,
    /// Bytes that hosts can still write.
    pub free_bytes: Option<u64>,
    /// How much of it is left for hosts.
    #[serde(default)]
    pub room: Option<PoolRoom>,
    /// Bytes that are: what is free or reclaimable, without what the pool keeps for its own metadata and for single volumes.
    #[serde(default)]
    pub room_bytes: Option<u64>,
    /// What that means, and what to do; null while there is enough.
    #[serde(default)]
    pub warning: Option<String>,
    /// How many volumes it holds.
    pub volumes: Option<u64>,
    /// How large those are in all: what hosts were promised. More than its size is usual, since only what is written takes room.
    #[serde(default)]
    pub volume_bytes: Option<u64>,
    /// Bytes that are reserved for its volumes and that these do not use; nobody else gets them.
    #[serde(default)]
    pub reserved_bytes: Option<u64>,
    /// Blocks found damaged since it was opened.
    #[serde(default)]
    pub corrupt_blocks: Option<u64>,
    /// What transfers that were cut, or that run, have brought and not published; with one pool only, null in lists.
    #[serde(default)]
    pub staged: Option<Vec<StagedContent>>,
    /// Bytes of all of it; null in lists, and where it could not be counted in time.
    #[serde(default)]
    pub staged_bytes: Option<u64>,
    /// Ranges of volumes and snapshots that cannot be read because their metadata is damaged; with one pool only, null in
    /// lists.
    #[serde(default)]
    pub quarantined: Option<Vec<QuarantinedRange>>,
    /// Bytes at most that stay allocated for good, because damaged metadata does not say who owned them.
    #[serde(default)]
    pub unattributed_bytes_max: Option<u64>,
    /// Whether its path does not lead to it any more, since its file was removed, moved or replaced: `error` says more. The next start
    /// will not find it.
    #[serde(default)]
    pub path_lost: Option<bool>,
    /// The file system below its file, if it has less left than the file may still take; absent if it has enough, and of a raw
    /// device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<PoolFileSystem>,
    /// The scrub that runs, or that ran last; with one pool only, null in lists and where there was none.
    #[serde(default)]
    pub scrub: Option<crate::Scrub>,
}

/// The file system below a pool's file that has less left than the file may still take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PoolFileSystem {
    /// Bytes that it has left.
    pub free_bytes: u64,
    /// Bytes that the file may still take of it.
    pub may_take_bytes: u64,
}

/// A range of a volume or snapshot whose metadata is damaged: reads of it fail, everything else goes on. Whole blocks that are
/// written there can be read again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct QuarantinedRange {
    /// The volume's name in its pool.
    pub volume: String,
    /// The snapshot; null for the volume itself.
    pub snapshot: Option<String>,
    /// Where it begins in the volume, bytes.
    pub offset_bytes: u64,
    /// How long it is, bytes.
    pub length_bytes: u64,
}

/// What is staged of one volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StagedContent {
    /// The volume's name in its pool.
    pub volume: String,
    /// Bytes that it takes; null if they could not be counted in time.
    pub bytes: Option<u64>,
    /// Whether a transfer brings more of it now.
    pub transferring: bool,
}

/// `POST /pools`: makes a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CreatePool {
    /// Its name.
    pub name: String,
    /// A file that does not exist yet, or a raw device; absolute. A pool of Ceph: `rbd:POOL[/NAMESPACE]:id=USER:conf=FILE`.
    pub path: String,
    /// Size of the file in bytes; a device has its own.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// Whether what is on the device may be destroyed; without, a device that is not blank is refused.
    #[serde(default)]
    pub overwrite: bool,
    /// If one of this name is there that is like this, answer with it; without, it is refused in any case.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub if_absent: bool,
}

/// `POST /imports`: takes a pool that exists, by its file or device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ImportPool {
    /// The name it shall have here.
    pub name: String,
    /// The file or device; absolute. A pool of Ceph as when it is made.
    pub path: String,
    /// Takes a pool on a raw device from whoever has it open on another machine.
    #[serde(default)]
    pub force: bool,
    /// It is a copy of another pool: it gets an identity of its own, and its mirrors end.
    #[serde(default)]
    pub as_copy: bool,
}

/// `POST /pools/POOL/reopen`: opens a pool again that is not open, or accepts no changes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReopenPool {
    /// Takes a pool on a raw device from whoever has it open on another machine.
    #[serde(default)]
    pub force: bool,
}

/// `POST /pools/POOL/grow`: makes a pool larger, for good.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GrowPool {
    /// Bytes that it has then, not below its present size; a file is made longer. Null: all that its device or file has by now.
    #[serde(default)]
    pub size_bytes: Option<u64>,
}

/// What `pool check` found, offline.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PoolCheck {
    /// The file or device.
    pub path: String,
    /// The pool's identity.
    pub uuid: Uuid,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes in use, metadata included.
    pub used_bytes: u64,
    /// Number of its newest consistency point.
    pub generation: u64,
    /// Why each superblock, A and B, cannot be used; null if it can.
    pub superblock_errors: Vec<Option<String>>,
    /// Batches of the journal that opening the pool would replay.
    pub journal_batches: u64,
    /// Its versions, as opening the pool would find them.
    pub versions: Vec<CheckedVersion>,
    /// What is wrong, in the order found.
    pub findings: Vec<CheckFinding>,
    /// Findings beyond the first thousand, counted only.
    pub findings_dropped: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Set if something is lost: then the exit code is 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<crate::ErrorBody>,
}

/// A volume or snapshot that a check has seen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CheckedVersion {
    /// The volume's name in its pool.
    pub volume: String,
    /// The snapshot; null for the volume itself.
    pub snapshot: Option<String>,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its content root; null if part of it cannot be read.
    pub content_root: Option<String>,
}

/// One thing that is wrong with a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CheckFinding {
    /// `warning`: nothing is lost. `error`: something is.
    pub severity: Severity,
    /// What is wrong.
    pub what: String,
    /// Where.
    pub location: String,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// What it means, and what to do.
    pub hint: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Nothing is lost.
    Warning,
    /// Something is lost.
    Error,
}
