//! The catalog: which volumes and versions there are, how they descend, and what a disaster needs to know.
//!
//! Protobuf by hand-written derives: unknown fields are skipped, so a later minor addition does not need a new
//! format version. The journal carries changes ([`CatalogChange`]); a consistency point writes the whole
//! ([`Catalog`]).

use crate::error::FormatError;
use crate::pointer::{RawTreeReference, TreeReference};

/// Largest encoded catalog, bytes: about a million snapshots.
pub const CATALOG_BYTES_MAX: u64 = 256 << 20;

/// Everything a consistency point knows besides blocks.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Catalog {
    /// The next id for a volume, family or version; ids are never used twice.
    #[prost(uint64, tag = "1")]
    pub next_id: u64,
    /// Volumes, by id.
    #[prost(message, repeated, tag = "2")]
    pub volumes: Vec<Volume>,
    /// Versions, by id.
    #[prost(message, repeated, tag = "3")]
    pub versions: Vec<Version>,
    /// Blocks that are in use, or have an owner too many, since damaged nodes no longer tell whose they were: at most so
    /// many. They never come back.
    #[prost(uint64, tag = "4")]
    pub unattributed_blocks_max: u64,
}

/// A volume: a namespace of versions, one of them its head.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Volume {
    /// Id in this pool.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub uuid: Vec<u8>,
    /// Name in this pool.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Family of its nodes.
    #[prost(uint64, tag = "4")]
    pub family: u64,
    /// The head: the version that hosts see.
    #[prost(uint64, tag = "5")]
    pub head: u64,
    /// Nanoseconds since 1970.
    #[prost(uint64, tag = "6")]
    pub created_at: u64,
    /// Set if the volume is the replica of a mirror.
    #[prost(message, optional, tag = "7")]
    pub replica: Option<Replica>,
    /// Deleted: its versions are being reaped.
    #[prost(bool, tag = "8")]
    pub deleted: bool,
    /// How much of the pool it may take, and must be able to take; none set: as much as there is, and nothing for sure.
    #[prost(message, optional, tag = "9")]
    pub limits: Option<VolumeLimits>,
    /// Set if it began as a clone: of what. For people; its versions alone say what they descend from.
    #[prost(message, optional, tag = "10")]
    pub origin: Option<Origin>,
}

/// The snapshot that a clone began as, whether it is still there or not.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Origin {
    /// Id of its volume in this pool.
    #[prost(uint64, tag = "1")]
    pub volume: u64,
    /// Its identity, 16 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub snapshot: Vec<u8>,
    /// What the volume was called then.
    #[prost(string, tag = "3")]
    pub volume_name: String,
    /// What the snapshot was called then.
    #[prost(string, tag = "4")]
    pub snapshot_name: String,
    /// When the data was so, nanoseconds since 1970.
    #[prost(uint64, tag = "5")]
    pub created_at: u64,
}

/// What an administrator said of a volume's room. Of each 0 is: nothing said.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct VolumeLimits {
    /// The volume with all its versions may not own more, bytes.
    #[prost(uint64, tag = "1")]
    pub quota_bytes: u64,
    /// So much is kept for the volume with all its versions, bytes.
    #[prost(uint64, tag = "2")]
    pub reserve_bytes: u64,
    /// The size up to which the volume grows by itself, bytes.
    #[prost(uint64, tag = "3")]
    pub autogrow_to_bytes: u64,
    /// By how much at once, bytes.
    #[prost(uint64, tag = "4")]
    pub autogrow_step_bytes: u64,
}

/// What makes a volume a replica.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Replica {
    /// The relationship, 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub relationship: Vec<u8>,
    /// The peer: hash of its key, 32 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub peer: Vec<u8>,
    /// The peer's volume, `POOL/VOL`.
    #[prost(string, tag = "3")]
    pub source: String,
    /// Broken off: hosts may write.
    #[prost(bool, tag = "4")]
    pub broken_off: bool,
    /// The version last published by a commit; 0 before the first, and when the record is made anew or for another peer.
    #[prost(uint64, tag = "5")]
    pub published: u64,
}

/// What a version is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum VersionKind {
    /// Never valid.
    Unspecified = 0,
    /// What hosts write.
    Head = 1,
    /// Frozen.
    Snapshot = 2,
    /// Being built aside.
    Staged = 3,
}

/// One version of a volume.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Version {
    /// Id in this pool.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its volume.
    #[prost(uint64, tag = "2")]
    pub volume: u64,
    /// The version it descends from; 0 for none.
    #[prost(uint64, tag = "3")]
    pub parent: u64,
    /// What it is.
    #[prost(enumeration = "VersionKind", tag = "4")]
    pub kind: i32,
    /// Size in bytes.
    #[prost(uint64, tag = "5")]
    pub size_bytes: u64,
    /// The epoch it closed; 0 while it can be written.
    #[prost(uint64, tag = "6")]
    pub frozen: u64,
    /// Deleted: invisible, kept while others descend from it, then reaped.
    #[prost(bool, tag = "7")]
    pub deleted: bool,
    /// Blocks below this are reaped.
    #[prost(uint64, tag = "8")]
    pub reaped_blocks: u64,
    /// Its tree as of the last point: 48 bytes, see `docs/format.md`.
    #[prost(bytes = "vec", tag = "9")]
    pub tree: Vec<u8>,
    /// Set for snapshots.
    #[prost(message, optional, tag = "10")]
    pub snapshot: Option<Snapshot>,
    /// Set for staged versions.
    #[prost(message, optional, tag = "11")]
    pub staged: Option<StagedFor>,
    /// Of a head or staged version: births up to this came with the snapshot it began as (its `frozen`; 0 if it began
    /// empty), whether that is still there or not. Others are its own. 0 for snapshots.
    #[prost(uint64, tag = "12")]
    pub inherited: u64,
    /// Blocks that it owns and did not inherit: ownerships (`docs/format.md`) that came into being after its parent was
    /// frozen, wherever the reaping of an ancestor has got to.
    #[prost(uint64, tag = "13")]
    pub owned_blocks: u64,
}

/// What a staged version is being built for, so that a transfer that was cut off can go on with it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StagedFor {
    /// The relationship, 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub relationship: Vec<u8>,
    /// The source's snapshot that it shall become, 16 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub incremental: Vec<u8>,
}

impl Version {
    /// Stores its tree.
    pub fn set_tree(&mut self, tree: &TreeReference) {
        self.tree = zerocopy::IntoBytes::as_bytes(&RawTreeReference::new(tree)).to_vec();
    }

    /// Its tree.
    pub fn decode_tree(&self) -> Result<TreeReference, FormatError> {
        let raw: &RawTreeReference = zerocopy::FromBytes::ref_from_bytes(&self.tree)
            .map_err(|_| FormatError::Length { what: "tree of a version" })?;
        raw.decode()
    }
}

/// What people and mirrors know of a snapshot.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Snapshot {
    /// Name within the volume.
    #[prost(string, tag = "1")]
    pub name: String,
    /// 16 bytes; travels with it.
    #[prost(bytes = "vec", tag = "2")]
    pub uuid: Vec<u8>,
    /// When the data was so, nanoseconds since 1970; travels with it.
    #[prost(uint64, tag = "3")]
    pub created_at: u64,
    /// The relationship it was taken for, 16 bytes; empty for a person's.
    #[prost(bytes = "vec", tag = "4")]
    pub relationship: Vec<u8>,
    /// A person holds it.
    #[prost(bool, tag = "5")]
    pub held: bool,
    /// Relationships that need it as a base, 16 bytes each.
    #[prost(bytes = "vec", repeated, tag = "6")]
    pub pins: Vec<Vec<u8>>,
}

/// One change of the catalog.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CatalogChange {
    /// Which.
    #[prost(oneof = "Change", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14")]
    pub change: Option<Change>,
}

/// The changes there are.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Change {
    /// A volume and its empty head begin.
    #[prost(message, tag = "1")]
    CreateVolume(CreateVolume),
    /// A volume gets another name.
    #[prost(message, tag = "2")]
    RenameVolume(RenameVolume),
    /// A head gets another size; blocks past it were unmapped by records before this one.
    #[prost(message, tag = "3")]
    ResizeHead(ResizeHead),
    /// A volume goes, with all its versions.
    #[prost(message, tag = "4")]
    DeleteVolume(DeleteVolume),
    /// Heads are frozen into snapshots, all at one instant.
    #[prost(message, tag = "5")]
    Freeze(Freeze),
    /// A version (snapshot or staged) goes.
    #[prost(message, tag = "6")]
    DeleteVersion(DeleteVersion),
    /// A snapshot's name, hold or pins change: the whole new description.
    #[prost(message, tag = "7")]
    DescribeSnapshot(DescribeSnapshot),
    /// A staged version begins.
    #[prost(message, tag = "8")]
    Stage(Stage),
    /// Staged versions become snapshots and what their volumes show, all at one instant.
    #[prost(message, tag = "9")]
    Commit(Commit),
    /// A volume's replica record changes.
    #[prost(message, tag = "10")]
    SetReplica(SetReplica),
    /// A new volume begins as a copy of a snapshot.
    #[prost(message, tag = "11")]
    Clone(CloneVolume),
    /// Volumes show other snapshots of theirs from now on, all at one instant.
    #[prost(message, tag = "12")]
    MoveMain(MoveMain),
    /// A staged version gets another size or purpose: the whole new description; blocks past a smaller size were
    /// unmapped by records before this one.
    #[prost(message, tag = "13")]
    Restage(Restage),
    /// What was said of a volume's room changes: the whole of it.
    #[prost(message, tag = "14")]
    SetLimits(SetLimits),
}

/// See [`Change::CreateVolume`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateVolume {
    /// The volume; its `head` names the version below.
    #[prost(message, optional, tag = "1")]
    pub volume: Option<Volume>,
    /// Size in bytes.
    #[prost(uint64, tag = "2")]
    pub size_bytes: u64,
}

/// See [`Change::RenameVolume`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct RenameVolume {
    /// The volume.
    #[prost(uint64, tag = "1")]
    pub volume: u64,
    /// Its new name.
    #[prost(string, tag = "2")]
    pub name: String,
}

/// See [`Change::ResizeHead`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResizeHead {
    /// The head.
    #[prost(uint64, tag = "1")]
    pub version: u64,
    /// Its new size in bytes.
    #[prost(uint64, tag = "2")]
    pub size_bytes: u64,
}

/// See [`Change::DeleteVolume`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteVolume {
    /// The volume.
    #[prost(uint64, tag = "1")]
    pub volume: u64,
}

/// See [`Change::Freeze`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Freeze {
    /// One per head.
    #[prost(message, repeated, tag = "1")]
    pub frozen: Vec<FrozenHead>,
    /// The epoch they close; the birth epoch afterwards is one more.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
}

/// One head that becomes a snapshot's parent-to-be: the snapshot takes its place in the line, the head goes on.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FrozenHead {
    /// The head.
    #[prost(uint64, tag = "1")]
    pub head: u64,
    /// Id of the new snapshot version.
    #[prost(uint64, tag = "2")]
    pub version: u64,
    /// Its description.
    #[prost(message, optional, tag = "3")]
    pub snapshot: Option<Snapshot>,
}

/// See [`Change::DeleteVersion`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteVersion {
    /// The version.
    #[prost(uint64, tag = "1")]
    pub version: u64,
}

/// See [`Change::DescribeSnapshot`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct DescribeSnapshot {
    /// The version.
    #[prost(uint64, tag = "1")]
    pub version: u64,
    /// The whole new description.
    #[prost(message, optional, tag = "2")]
    pub snapshot: Option<Snapshot>,
}

/// See [`Change::Stage`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Stage {
    /// Id of the staged version.
    #[prost(uint64, tag = "1")]
    pub version: u64,
    /// Its volume.
    #[prost(uint64, tag = "2")]
    pub volume: u64,
    /// The snapshot version it begins as; 0 for nothing but holes.
    #[prost(uint64, tag = "3")]
    pub base: u64,
    /// Its size in bytes.
    #[prost(uint64, tag = "4")]
    pub size_bytes: u64,
    /// What it is being built for.
    #[prost(message, optional, tag = "5")]
    pub staged: Option<StagedFor>,
}

/// See [`Change::Commit`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Commit {
    /// One per volume.
    #[prost(message, repeated, tag = "1")]
    pub committed: Vec<CommittedVersion>,
    /// The epoch they close; the birth epoch afterwards is one more.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
}

/// One staged version that is published.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CommittedVersion {
    /// The staged version; becomes a snapshot.
    #[prost(uint64, tag = "1")]
    pub version: u64,
    /// Its description.
    #[prost(message, optional, tag = "2")]
    pub snapshot: Option<Snapshot>,
    /// Id of the volume's new head, which descends from it.
    #[prost(uint64, tag = "3")]
    pub head: u64,
    /// If the old head held writes of its own: id under which it stays, as a snapshot (a rescue).
    #[prost(message, optional, tag = "4")]
    pub rescue: Option<Snapshot>,
}

/// See [`Change::SetReplica`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetReplica {
    /// The volume.
    #[prost(uint64, tag = "1")]
    pub volume: u64,
    /// The new record; none removes it.
    #[prost(message, optional, tag = "2")]
    pub replica: Option<Replica>,
}

/// See [`Change::Clone`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct CloneVolume {
    /// The new volume, of the family of the old one; its `head` is the id of its head, its `origin` tells of the base.
    #[prost(message, optional, tag = "1")]
    pub volume: Option<Volume>,
    /// The snapshot version it begins as.
    #[prost(uint64, tag = "2")]
    pub base: u64,
}

/// See [`Change::MoveMain`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct MoveMain {
    /// One per volume.
    #[prost(message, repeated, tag = "1")]
    pub moved: Vec<MovedHead>,
    /// The epoch they close; the birth epoch afterwards is one more.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
}

/// One volume whose head begins anew.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MovedHead {
    /// The volume.
    #[prost(uint64, tag = "1")]
    pub volume: u64,
    /// The snapshot version, of this volume, that the new head begins as, its size included.
    #[prost(uint64, tag = "2")]
    pub base: u64,
    /// Id of the new head.
    #[prost(uint64, tag = "3")]
    pub head: u64,
    /// If the old head held writes of its own: it stays as this snapshot (a rescue). Otherwise it goes.
    #[prost(message, optional, tag = "4")]
    pub rescue: Option<Snapshot>,
    /// Whether the volume's replica record changes too.
    #[prost(bool, tag = "5")]
    pub sets_replica: bool,
    /// If so: the new record; none removes it.
    #[prost(message, optional, tag = "6")]
    pub replica: Option<Replica>,
}

/// See [`Change::Restage`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Restage {
    /// The staged version.
    #[prost(uint64, tag = "1")]
    pub version: u64,
    /// Its size in bytes.
    #[prost(uint64, tag = "2")]
    pub size_bytes: u64,
    /// What it is being built for.
    #[prost(message, optional, tag = "3")]
    pub staged: Option<StagedFor>,
}

/// See [`Change::SetLimits`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetLimits {
    /// The volume.
    #[prost(uint64, tag = "1")]
    pub volume: u64,
    /// All that is said of it from now on; none: nothing.
    #[prost(message, optional, tag = "2")]
    pub limits: Option<VolumeLimits>,
}
