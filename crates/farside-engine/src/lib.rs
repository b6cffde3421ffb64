//! What a mirror needs of a volume.
//!
//! A mirror sees storage only through [`Engine`] and [`StagedVersion`]; it knows no engine by name. Calls block:
//! whoever lives on an async runtime calls them from a blocking thread. Offsets and lengths are bytes, whole
//! blocks of 4096 unless said. Implementations are internally synchronised.
//!
//! * [`embedded`]: the embedded store (`farside-store`), which has everything natively.

pub mod embedded;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use farside_format::fingerprint::{BLOCKS_MAX, FAN_OUT, TOP_LEVEL, span};
pub use farside_format::{ContentRoot, Fingerprint};
use farside_platform::Timestamp;
use uuid::Uuid;

/// Bytes of one block, the unit of every extent.
pub const BLOCK_BYTES: u64 = 4096;

/// `POOL/VOL`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VolumeName {
    /// The pool.
    pub pool: String,
    /// The volume in it.
    pub volume: String,
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.volume)
    }
}

impl std::str::FromStr for VolumeName {
    type Err = EngineError;
    /// Parses `POOL/VOL`.
    fn from_str(text: &str) -> Result<Self, EngineError> {
        match text.split_once('/') {
            Some((pool, volume)) if is_label(pool) && is_label(volume) => {
                Ok(VolumeName { pool: pool.into(), volume: volume.into() })
            }
            _ => Err(EngineError::BadName { name: text.into() }),
        }
    }
}

/// Whether `name` may name a pool, volume or snapshot: 1 to 128 of `A-Za-z0-9._:+-`, not beginning with `-` or `.`.
/// (A snapshot's name may hold `:` and `+` so that it can be a time.)
pub fn is_label(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && !name.starts_with(['-', '.'])
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:+-".contains(&b))
}

/// A volume as an engine lists it.
#[derive(Clone, Debug)]
pub struct VolumeInfo {
    /// Its name.
    pub name: VolumeName,
    /// Its identity in this pool; a rename keeps it.
    pub uuid: Uuid,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes of data that it has with all its snapshots, at most; none if the engine does not count.
    pub occupied_bytes: Option<u64>,
    /// Whether it is the replica of a mirror, hence read-only to hosts.
    pub is_replica: bool,
}

/// Who wanted a snapshot; decides whether it travels and who may remove it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotOwner {
    /// A person: it travels with the mirror, and only a person (or the destination's retention) removes it.
    Person,
    /// The relationship with this id: taken for its updates; it does not travel to another relationship.
    Relationship(Uuid),
}

/// A snapshot as an engine lists it.
#[derive(Clone, Debug)]
pub struct SnapshotInfo {
    /// Its name within the volume.
    pub name: String,
    /// Its identity; travels with it, for history.
    pub uuid: Uuid,
    /// When the data was so at its origin; travels with it. Lag is counted from this.
    pub created_at: Timestamp,
    /// Size of the volume at that moment, bytes.
    pub size_bytes: u64,
    /// Who wanted it.
    pub owner: SnapshotOwner,
    /// Whether a person holds it (`snapshot hold`).
    pub held: bool,
    /// Relationships that need it as a base; while there is one it cannot be deleted.
    pub pinned_by: Vec<Uuid>,
    /// Higher than that of every snapshot of the volume that was made here before, whatever clocks said.
    pub sequence: u64,
}

/// What to take or commit as a snapshot.
#[derive(Clone, Debug)]
pub struct SnapshotSpec {
    /// Its name within the volume.
    pub name: String,
    /// Its identity.
    pub uuid: Uuid,
    /// When the data was so.
    pub created_at: Timestamp,
    /// Who wants it.
    pub owner: SnapshotOwner,
    /// Pin it for this relationship in the same record that makes it.
    pub pin_for: Option<Uuid>,
}

/// What a difference says of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeKind {
    /// Holds other data than in the base.
    Data,
    /// Was data in the base, is a hole now: reads as zeros.
    Hole,
}

/// One range that differs between two versions. Bytes, whole blocks; ranges come in ascending order, never
/// overlap, and neighbours of one kind are joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangedExtent {
    /// Byte offset in the volume.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Data or hole. All of an extent of holes reads as zeros now; it may reach over blocks that were holes before, so that a
    /// trim of a thin volume is a few extents.
    pub kind: ChangeKind,
    /// Bytes of the extent that differ from the base: all of it if it is data, those that were data if it is a hole.
    pub changed: u64,
}

/// The iterator type of a difference; each step may read metadata.
pub type ChangedExtents = Box<dyn Iterator<Item = Result<ChangedExtent, EngineError>> + Send>;

/// What the pool remembers of a replica, so that it can be listed and broken with every database lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaRecord {
    /// The relationship's id, the same on both sides.
    pub relationship: Uuid,
    /// The peer's identity (hash of its key).
    pub peer: [u8; 32],
    /// The peer's volume, `POOL/VOL`.
    pub source: String,
    /// Broken off: hosts may write; the record stays for resync.
    pub broken_off: bool,
}

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

/// How a volume differs from a snapshot, in bytes: whole blocks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ChangedBytes {
    /// Hold other data than in the snapshot.
    pub data_bytes: u64,
    /// Were data in the snapshot; are holes now, or lie past the volume's end.
    pub hole_bytes: u64,
}

/// Most fingerprints that one call is asked for: those of 256 MiB, 1 MiB of memory.
pub const FINGERPRINTS_MAX: u64 = 1 << 16;

/// Most entries that [`StagedVersion::adopt`] is given at once: 64 KiB of memory, and 2 GiB of data if all are leaves.
pub const WANTED_MAX: usize = 4096;

/// Of the fingerprints' short forms, those with this many trailing zero bits are the sample that both sides agree on
/// without a word: 1 in 8. An index too small for every block keeps a part of exactly these, so who asks for a sample
/// asks for these and finds a run of n known blocks with a chance of `1 - (1 - 1/k)^n`, where the index keeps 1 in k;
/// a sample by position would find it with `1 - (1 - 1/k)^(n/8)`.
pub const SAMPLE_BITS: u32 = 3;

/// The first 8 bytes of a fingerprint, big endian: what is asked with.
pub fn short(fingerprint: Fingerprint) -> u64 {
    let (head, _) = fingerprint.0.split_at(8);
    u64::from_be_bytes(head.try_into().expect("8 of 16 bytes"))
}

/// Whether a block of this short fingerprint belongs to the sample (see [`SAMPLE_BITS`]).
pub fn is_sampled(short: u64) -> bool {
    short.trailing_zeros() >= SAMPLE_BITS
}

/// Content that a staged version shall have, named by a part of its fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// 0: one block; 1: a leaf node, 128 blocks.
    pub level: u8,
    /// Where, in spans of that level: the number of the block, or of the leaf.
    pub position: u64,
    /// The fingerprint's first 8 bytes ([`short`]).
    pub short: u64,
}

/// Whose data an answer may come from: everything that this peer sent. All replicas of the engine whose record names the
/// peer, and in each what was received from it; never what hosts wrote, here or after a break.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KnownDataScope {
    /// The peer's identity (hash of its key), as in [`ReplicaRecord::peer`].
    pub peer: [u8; 32],
}

/// What a pool has and what of it is free, bytes; what the next points of consistency free counts as free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// All of it.
    pub capacity_bytes: u64,
    /// For hosts to fill.
    pub free_bytes: u64,
}

/// What transfers may still bring into a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StagingRoom {
    /// Bytes that may still be staged.
    pub room_bytes: u64,
    /// Bytes beside them that are kept free for hosts.
    pub reserve_bytes: u64,
    /// The quota of the volume, bytes, where that is what leaves no more.
    pub quota_bytes: Option<u64>,
}

/// The storage of one site.
pub trait Engine: Send + Sync + 'static {
    /// One volume.
    fn volume(&self, volume: &VolumeName) -> Result<VolumeInfo, EngineError>;
    /// All volumes that can be reached now.
    fn volumes(&self) -> Result<Vec<VolumeName>, EngineError>;
    /// Makes a thin volume of `size_bytes` bytes.
    fn create_volume(&self, volume: &VolumeName, size_bytes: u64) -> Result<VolumeInfo, EngineError>;
    /// Deletes a volume and its snapshots; refused while somebody has it open, or a snapshot is held or pinned.
    fn delete_volume(&self, volume: &VolumeName) -> Result<(), EngineError>;
    /// Snapshots of a volume on its main line, oldest first.
    fn snapshots(&self, volume: &VolumeName) -> Result<Vec<SnapshotInfo>, EngineError>;
    /// All live snapshots, those on side branches (rescued or overtaken versions) included. The same as
    /// [`Engine::snapshots`] where there are no branches.
    fn all_snapshots(&self, volume: &VolumeName) -> Result<Vec<SnapshotInfo>, EngineError> {
        self.snapshots(volume)
    }
    /// Where the branch of a snapshot left the main line: the newest snapshot of the main line that it is, or descends from; none
    /// if it has nothing in common with what is left of that line.
    fn fork(&self, volume: &VolumeName, snapshot: Uuid) -> Result<Option<Uuid>, EngineError>;
    /// Takes a snapshot: covers everything answered to hosts before, and is durable when this returns.
    fn take_snapshot(&self, volume: &VolumeName, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError>;
    /// Takes snapshots of several volumes of one pool at one instant, by one durable record, each as
    /// [`take_snapshot`](Self::take_snapshot) does. If one is refused none is taken.
    fn take_snapshots(&self, wanted: &[(VolumeName, SnapshotSpec)])
    -> Result<Vec<SnapshotInfo>, EngineError>;
    /// Deletes a snapshot; refused while pinned or held.
    fn delete_snapshot(&self, volume: &VolumeName, snapshot: Uuid) -> Result<(), EngineError>;
    /// Pins a snapshot for a relationship, durably. Pinning twice is once.
    fn pin(&self, volume: &VolumeName, snapshot: Uuid, relationship: Uuid) -> Result<(), EngineError>;
    /// Takes a pin away, durably. An absent pin is no error.
    fn unpin(&self, volume: &VolumeName, snapshot: Uuid, relationship: Uuid) -> Result<(), EngineError>;
    /// Makes a snapshot a person's, durably, whoever it was taken for: from now on only a person removes it.
    fn make_user_snapshot(&self, volume: &VolumeName, snapshot: Uuid) -> Result<(), EngineError>;
    /// Gives a snapshot to another owner, and the name `stem` with the moment, in one durable record: what a mirror leaves to a
    /// person is then not named as if a mirror kept it. Answers what it is now.
    fn hand_over(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        owner: SnapshotOwner,
        stem: &str,
    ) -> Result<SnapshotInfo, EngineError>;
    /// The content root of a snapshot; computed on first asking if need be, from metadata only.
    fn content_root(&self, volume: &VolumeName, snapshot: Uuid) -> Result<ContentRoot, EngineError>;
    /// Whether part of a snapshot is known not to be readable, because its metadata is damaged. A snapshot can have a content root
    /// and be damaged: the root says what it was.
    fn is_damaged(&self, _volume: &VolumeName, _snapshot: Uuid) -> Result<bool, EngineError> {
        Ok(false)
    }
    /// What `incremental` has that `base` has not; against nothing at all (every allocated block) without a base.
    /// Reads metadata only, never data.
    fn changed_extents(
        &self,
        volume: &VolumeName,
        base: Option<Uuid>,
        incremental: Uuid,
    ) -> Result<ChangedExtents, EngineError>;
    /// Reads and verifies a range of a snapshot. Ranges past its end read as zeros.
    fn read_snapshot(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), EngineError>;
    /// Reads and verifies many ranges of a snapshot, (first block, blocks) each, one behind the other into `buffer`, which has
    /// just their size. Blocks past its end read as zeros. An engine that knows where they lie reads them in that order, and
    /// several at a time.
    fn read_snapshot_ranges(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        ranges: &[(u64, u64)],
        buffer: &mut [u8],
    ) -> Result<(), EngineError> {
        self.open_snapshot(volume, snapshot)?.read_ranges(ranges, buffer)
    }
    /// Opens a snapshot without being in anybody's way: while the answer lives it stays readable there, and snapshot and volume
    /// can be deleted all the same; the space comes free afterwards. Nothing of it is durable.
    fn open_snapshot(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
    ) -> Result<Arc<dyn OpenSnapshot>, EngineError>;
    /// Begins the next version of a replica aside: a copy of `base` (a snapshot of it), or nothing but holes.
    fn stage(
        &self,
        volume: &VolumeName,
        base: Option<Uuid>,
        size_bytes: u64,
        staged_for: StagedFor,
    ) -> Result<Arc<dyn StagedVersion>, EngineError>;
    /// Staged versions that earlier transfers left, newest last. Each holds at least what its last checkpoint covered.
    fn staged(&self, volume: &VolumeName) -> Result<StagedVersions, EngineError>;
    /// Publishes staged versions of several volumes of one pool by one durable record, each as [`StagedVersion::commit`] does: after
    /// whatever crash all of them are published, or none. If one is refused none is published.
    fn commit_together(&self, versions: &[ReadyVersion]) -> Result<Vec<SnapshotInfo>, EngineError>;
    /// One durable record: the volume's head becomes a fresh child of `snapshot`, whatever branch it is on, and the
    /// volume's size that of the snapshot. If it showed what neither the new line nor a person's snapshot
    /// has, written by hosts or published by a mirror, that stays as a side branch `rescue-…`, which is returned. With
    /// `record` the replica record is set in the same journal record. Refused while a writer has the volume open; readers
    /// of a replica keep what they opened.
    fn move_main(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        record: Option<ReplicaRecord>,
    ) -> Result<Option<SnapshotInfo>, EngineError>;
    /// The same for a mirror: refused unless the volume is the replica of `relationship`, not broken off, in the very moment of the
    /// change.
    fn move_replica(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        relationship: Uuid,
    ) -> Result<Option<SnapshotInfo>, EngineError>;
    /// How the volume as hosts see it now differs from `snapshot`: metadata only; nothing is changed. What hosts write
    /// meanwhile may be counted or not.
    fn changed_since(&self, volume: &VolumeName, snapshot: Uuid) -> Result<ChangedBytes, EngineError>;
    /// Bytes of data that `snapshot` holds and the volume as hosts see it does not: about what keeping it costs. Metadata only;
    /// nothing is changed. As provided, rather too much: what hosts wrote where nothing was counts too.
    fn kept_bytes(&self, volume: &VolumeName, snapshot: Uuid) -> Result<u64, EngineError> {
        let changed = self.changed_since(volume, snapshot)?;
        Ok(changed.data_bytes.saturating_add(changed.hole_bytes))
    }
    /// The capacity of a pool; none if this engine cannot tell.
    fn capacity(&self, _pool: &str) -> Result<Option<Capacity>, EngineError> {
        Ok(None)
    }
    /// What transfers may still bring into a volume; none if this engine cannot tell, and they begin and see. The volume need not be
    /// there yet.
    fn staging_room(&self, _volume: &VolumeName) -> Result<Option<StagingRoom>, EngineError> {
        Ok(None)
    }
    /// Whether hosts have written to the volume since `snapshot` was taken, for an engine that can tell even if they wrote
    /// what was there. What they wrote would stay as a side branch when another version takes its place.
    fn is_written_since(&self, volume: &VolumeName, snapshot: Uuid) -> Result<bool, EngineError> {
        Ok(self.changed_since(volume, snapshot)? != ChangedBytes::default())
    }
    /// Fingerprints of `count` blocks of a snapshot from block `first` on, at most [`FINGERPRINTS_MAX`]; metadata only;
    /// past the end: holes.
    fn fingerprints(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        first: u64,
        count: u64,
    ) -> Result<Vec<Fingerprint>, EngineError>;
    /// Fingerprints of `count` subtrees of `level` (0: blocks, 1: leaf nodes of 128 blocks, to 6) of a snapshot, from number
    /// `first` on in spans of that level; at most [`FINGERPRINTS_MAX`]; metadata only; past the end: holes. As provided
    /// it reads the fingerprints of all blocks below.
    fn subtree_fingerprints(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        level: u8,
        first: u64,
        count: u64,
    ) -> Result<Vec<Fingerprint>, EngineError> {
        check_subtrees(level, first, count)?;
        if level == 0 {
            return self.fingerprints(volume, snapshot, first, count);
        }
        let fan_out = FAN_OUT as u64;
        let mut fingerprints = Vec::with_capacity(count as usize);
        for node in first..first + count {
            let below = self.subtree_fingerprints(volume, snapshot, level - 1, node * fan_out, fan_out)?;
            let children = below.try_into().map_err(|below: Vec<Fingerprint>| {
                EngineError::Corrupt(format!("{} fingerprints answered instead of {FAN_OUT}", below.len()))
            })?;
            fingerprints.push(Fingerprint::of_node(level, &children));
        }
        Ok(fingerprints)
    }
    /// Throws away every staged version of a volume: what a crash left behind. Answers how many there were.
    fn abandon_staged(&self, volume: &VolumeName) -> Result<usize, EngineError>;
    /// Whether this engine may hold anything of that scope: if not, every question for it is asked in vain. As provided, it may.
    fn may_know(&self, scope: &KnownDataScope) -> bool {
        let _ = scope;
        true
    }
    /// The replica record of a volume, if it is one.
    fn replica_record(&self, volume: &VolumeName) -> Result<Option<ReplicaRecord>, EngineError>;
    /// Sets or removes the replica record, durably. A volume with a record that is not broken off is read-only to
    /// hosts.
    fn set_replica_record(
        &self,
        volume: &VolumeName,
        record: Option<ReplicaRecord>,
    ) -> Result<(), EngineError>;
    /// Removes the replica record, durably, if it is this relationship's and broken off at this very moment. Answers whether it was.
    fn end_replica_record(&self, volume: &VolumeName, relationship: Uuid) -> Result<bool, EngineError>;
}

/// Refuses what no tree has, and more than [`FINGERPRINTS_MAX`] at once.
fn check_subtrees(level: u8, first: u64, count: u64) -> Result<(), EngineError> {
    let inside = level <= TOP_LEVEL
        && first.checked_add(count).is_some_and(|end| end <= BLOCKS_MAX / span(level.min(TOP_LEVEL)));
    if count > FINGERPRINTS_MAX || !inside {
        return Err(EngineError::Invalid(format!(
            "fingerprints of {count} subtrees of level {level} from {first} on: at most {FINGERPRINTS_MAX} at once, of \
             levels 0 to {TOP_LEVEL}, inside {BLOCKS_MAX} blocks"
        )));
    }
    Ok(())
}

/// A snapshot that somebody keeps open.
pub trait OpenSnapshot: Send + Sync {
    /// Reads and verifies a range, as [`Engine::read_snapshot`] does.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError>;
    /// Reads and verifies many ranges, as [`Engine::read_snapshot_ranges`] does.
    fn read_ranges(&self, ranges: &[(u64, u64)], mut buffer: &mut [u8]) -> Result<(), EngineError> {
        for (first, blocks) in ranges {
            let (bytes, rest) = buffer.split_at_mut(((*blocks * BLOCK_BYTES) as usize).min(buffer.len()));
            self.read(first * BLOCK_BYTES, bytes)?;
            buffer = rest;
        }
        Ok(())
    }
    /// Whether it, or its volume, was deleted since it was opened: its space waits for this to be dropped.
    fn is_deleted(&self) -> Result<bool, EngineError>;
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
    /// What is staged that `base` (any snapshot of the volume) has not; every allocated block without one. Reads metadata
    /// only. What is staged while the walk runs may be in it or not.
    fn changed_from(&self, base: Option<Uuid>) -> Result<ChangedExtents, EngineError>;
    /// Fingerprints of `count` blocks from block `first` on, as staged now, at most [`FINGERPRINTS_MAX`]; metadata only;
    /// past the end: holes.
    fn fingerprints(&self, first: u64, count: u64) -> Result<Vec<Fingerprint>, EngineError>;
    /// Writes whole blocks of data.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), EngineError>;
    /// For each of `wanted` (at most [`WANTED_MAX`]): if this engine finds that content in the scope, the staged version
    /// has it at that position when this returns, taken from bytes that were read and hashed here, and its full fingerprint
    /// is answered: two contents can share a short one. `None`: not known, and nothing was changed there; what cannot be
    /// read is not known. A position past the end is an error, and so is a lack of room; what was adopted before stays.
    /// As provided, an engine knows nothing.
    fn adopt(
        &self,
        scope: &KnownDataScope,
        wanted: &[Wanted],
    ) -> Result<Vec<Option<Fingerprint>>, EngineError> {
        let _ = scope;
        Ok(vec![None; wanted.len()])
    }
    /// Makes a range a hole.
    fn discard(&self, offset: u64, length: u64) -> Result<(), EngineError>;
    /// Reads the staged version as it is now: the base, and what has been written over it. Past its end: zeros.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError>;
    /// Makes everything written so far survive a crash.
    fn checkpoint(&self) -> Result<(), EngineError>;
    /// Content root of what is staged now, computed from bytes that were decoded here.
    fn content_root(&self) -> Result<ContentRoot, EngineError>;
    /// Publishes it, atomically and durably, as snapshot `spec` and as what readers of the volume see. The handle
    /// is dead afterwards.
    fn commit(&self, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError>;
    /// Throws it away.
    fn abandon(&self) -> Result<(), EngineError>;
}

/// Why an engine refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No such pool, volume or snapshot.
    #[error("{what} does not exist")]
    NotFound {
        /// `volume p/v`, `snapshot p/v@s` …
        what: String,
    },
    /// It is there already.
    #[error("{what} already exists")]
    Exists {
        /// What.
        what: String,
    },
    /// A name that cannot be one.
    #[error("{name:?} is not a name; use POOL/VOL with 1 to 128 of A-Z a-z 0-9 . _ : + -")]
    BadName {
        /// What was given.
        name: String,
    },
    /// The state forbids it.
    #[error("{0}")]
    Refused(String),
    /// The request itself is wrong (unaligned, out of range).
    #[error("{0}")]
    Invalid(String),
    /// The pool has no room.
    #[error(
        "pool {pool} is full: {needed_bytes} bytes needed, {available_bytes} available for this; nothing was changed"
    )]
    NoSpace {
        /// The pool.
        pool: String,
        /// Bytes the request needs.
        needed_bytes: u64,
        /// Bytes it may have.
        available_bytes: u64,
    },
    /// The volume may not take more of its pool.
    #[error("{0}")]
    OverQuota(String),
    /// What was read is not what was written.
    #[error("{0}")]
    Corrupt(String),
    /// The device failed; the pool accepts no more writes until it is opened anew.
    #[error("{0}")]
    Io(String),
}
