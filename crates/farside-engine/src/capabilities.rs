//! What only some engines have. A mirror asks for it by [`Engine`](crate::Engine)'s methods of these names, and does without where
//! there is none:
//!
//! | capability | without it |
//! | --- | --- |
//! | [`Branches`] | the versions of a volume are one line; to show an earlier one again it is staged and published anew |
//! | [`Together`] | volumes are in no group: each has a moment of its own |
//! | [`KnownData`] | what is here already travels once more |
//! | [`Subtrees`] | questions for known data name blocks, never nodes of 128 |

use farside_format::Fingerprint;
use farside_format::fingerprint::{BLOCKS_MAX, FAN_OUT, TOP_LEVEL, span};
use farside_platform::Timestamp;
use uuid::Uuid;

use crate::error::EngineError;
use crate::fingerprints::FINGERPRINTS_MAX;
use crate::known::{KnownDataScope, Wanted};
use crate::names::VolumeName;
use crate::snapshot::{SnapshotInfo, SnapshotSpec};
use crate::staged::{ReadyVersion, StagedVersion};
use crate::volume::ReplicaRecord;

/// Versions of a volume that lie beside the line that its head descends from.
///
/// Where there is no such thing the versions of a volume are one line, in the order in which they were made here.
pub trait Branches {
    /// All live snapshots, those on side branches (rescued or overtaken versions) included; oldest first.
    fn of_all_branches(&self, volume: &VolumeName) -> Result<Vec<SnapshotInfo>, EngineError>;
    /// Where the branch of a snapshot left the main line: the newest snapshot of the main line that it is, or descends from; none
    /// if it has nothing in common with what is left of that line.
    fn fork(&self, volume: &VolumeName, snapshot: Uuid) -> Result<Option<Uuid>, EngineError>;
    /// One durable record: the volume's head becomes a fresh child of `snapshot`, whatever branch it is on, and the
    /// volume's size that of the snapshot. If it showed what neither the new line nor a person's snapshot
    /// has, written by hosts or published by a mirror, that stays as a side branch `rescue-…` of `moment`, or of now, which is returned. A
    /// person's snapshot that [rotates](farside_format::pins::rotates), and that nobody holds, has nothing for good. With
    /// `record` the replica record is set in the same journal record. Refused while a writer has the volume open; readers
    /// of a replica keep what they opened.
    fn move_main(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        record: Option<ReplicaRecord>,
        moment: Option<Timestamp>,
    ) -> Result<Option<SnapshotInfo>, EngineError>;
    /// The same for a mirror: refused unless the volume is the replica of `relationship`, not broken off, in the very moment of the
    /// change.
    fn move_replica(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        relationship: Uuid,
    ) -> Result<Option<SnapshotInfo>, EngineError>;
}

/// Several volumes of one pool, changed by one durable record: after whatever crash all of them are, or none.
pub trait Together {
    /// Takes snapshots of several volumes of one pool at one instant, each as
    /// [`Engine::take_snapshot`](crate::Engine::take_snapshot) does. If one is refused none is taken.
    fn take_snapshots(&self, wanted: &[(VolumeName, SnapshotSpec)])
    -> Result<Vec<SnapshotInfo>, EngineError>;
    /// Publishes staged versions of several volumes of one pool, each as [`StagedVersion::commit`] does. If one is refused none is
    /// published.
    fn commit_together(&self, versions: &[ReadyVersion]) -> Result<Vec<SnapshotInfo>, EngineError>;
}

/// Data that is found by its content.
pub trait KnownData {
    /// Whether this engine may hold anything of that scope: if not, every question for it is asked in vain.
    fn may_hold(&self, scope: &KnownDataScope) -> bool;
    /// For each of `wanted` (at most [`WANTED_MAX`](crate::WANTED_MAX)): if this engine finds that content in the scope, the
    /// staged version, which is one of its own, has it at that position when this returns, taken from bytes that were read and
    /// hashed here, and its full fingerprint is answered: two contents can share a short one. `None`: not known, and nothing was
    /// changed there; what cannot be read is not known. A position past the end is an error, and so is a lack of room; what was
    /// adopted before stays.
    fn adopt(
        &self,
        staged: &dyn StagedVersion,
        scope: &KnownDataScope,
        wanted: &[Wanted],
    ) -> Result<Vec<Option<Fingerprint>>, EngineError>;
}

/// Fingerprints of whole spans of a volume, kept and not made of those below at each question.
pub trait Subtrees {
    /// Fingerprints of `count` subtrees of `level` (0: blocks, 1: leaf nodes of 128 blocks, to 6) of a snapshot, from number
    /// `first` on in spans of that level; at most [`FINGERPRINTS_MAX`]; metadata only; past the end: holes.
    fn subtree_fingerprints(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        level: u8,
        first: u64,
        count: u64,
    ) -> Result<Vec<Fingerprint>, EngineError>;
}

/// Refuses what no tree has, and more than [`FINGERPRINTS_MAX`] at once.
pub fn check_subtrees(level: u8, first: u64, count: u64) -> Result<(), EngineError> {
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

/// Fingerprints of subtrees of a version of `end` blocks, made of those of the blocks below, which `blocks` answers (from, count): what
/// [`Subtrees`] answers, the long way. Nothing past the end is asked for.
pub fn subtrees_of_blocks(
    level: u8,
    first: u64,
    count: u64,
    end: u64,
    blocks: &dyn Fn(u64, u64) -> Result<Vec<Fingerprint>, EngineError>,
) -> Result<Vec<Fingerprint>, EngineError> {
    check_subtrees(level, first, count)?;
    if level == 0 {
        return blocks(first, count);
    }
    let fan_out = FAN_OUT as u64;
    let mut fingerprints = Vec::with_capacity(count as usize);
    for node in first..first + count {
        if node * span(level) >= end {
            fingerprints.push(Fingerprint::HOLE);
            continue;
        }
        let below = subtrees_of_blocks(level - 1, node * fan_out, fan_out, end, blocks)?;
        let children = below.try_into().map_err(|below: Vec<Fingerprint>| {
            EngineError::Corrupt(format!("{} fingerprints answered instead of {FAN_OUT}", below.len()))
        })?;
        fingerprints.push(Fingerprint::of_node(level, &children));
    }
    Ok(fingerprints)
}
