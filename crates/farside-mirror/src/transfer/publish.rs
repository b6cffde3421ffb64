//! What a transfer does to the destination's snapshots. Blocking; call from a blocking thread.
//!
//! The order, and what power failure after each line leaves:
//!
//! 1. checkpoint; content root computed and equal: the replica as it was, a staged version for the next to throw away
//! 2. commit (one record: published, named, pinned): the new version; the old base still there
//! 3. old base unpinned and deleted: the new version alone; if not, the next transfer does this first
//! 4. the source is told: if not, it keeps both bases until the next transfer names the new one

use farside_engine::{ContentRoot, Engine, SnapshotOwner, SnapshotSpec, StagedVersion, VolumeName};
use uuid::Uuid;

use crate::error::MirrorError;
use crate::limits::{CANDIDATES_MAX, NAME_BYTES_MAX};
use crate::protocol::convert::{CandidateBase, TravellingSnapshot};
use crate::source::let_go;
use crate::store::Relationship;

/// Throws away what a crash left staged (resuming it is what will stand here), lets go of bases that are no longer in
/// use, and lists what is here, oldest first.
pub(super) fn tidy_and_list(
    engine: &dyn Engine,
    volume: &VolumeName,
    relationship: Uuid,
) -> Result<Vec<CandidateBase>, MirrorError> {
    let left = engine.abandon_staged(volume)?;
    if left > 0 {
        tracing::info!(%volume, left, "threw away what a transfer had staged that never ended");
    }
    let published = engine.snapshots(volume)?.into_iter().rev().find(|s| s.pinned_by.contains(&relationship));
    if let Some(published) = published {
        let_go(engine, volume, relationship, &[published.uuid])?;
    }
    let snapshots = engine.snapshots(volume)?;
    let newest = &snapshots[snapshots.len().saturating_sub(CANDIDATES_MAX)..];
    let candidate = |s: &farside_engine::SnapshotInfo| {
        let content_root = engine.content_root(volume, s.uuid)?;
        Ok(CandidateBase { uuid: s.uuid, content_root, size_bytes: s.size_bytes })
    };
    newest.iter().map(candidate).collect()
}

/// Whether what is staged is what the source has: durable first, then computed here, then compared.
pub(super) fn prove(
    staged: &dyn StagedVersion,
    name: &str,
    expected: ContentRoot,
) -> Result<(), MirrorError> {
    staged.checkpoint()?;
    let found = staged.content_root()?;
    if found != expected {
        return Err(MirrorError::RootMismatch { snapshot: name.into(), expected, found });
    }
    Ok(())
}

/// Publishes what was proved, pinned as the new base, and lets go of the old one. Returns its name here.
pub(super) fn commit(
    engine: &dyn Engine,
    relationship: &Relationship,
    staged: &dyn StagedVersion,
    step: &TravellingSnapshot,
) -> Result<String, MirrorError> {
    let volume = &relationship.destination;
    // A name is given once per volume, whatever branch it is on.
    let taken: Vec<String> = engine.all_snapshots(volume)?.into_iter().map(|s| s.name).collect();
    let owner = if step.made_by_person {
        SnapshotOwner::Person
    } else {
        SnapshotOwner::Relationship(relationship.id)
    };
    let spec = SnapshotSpec {
        name: free_name(&step.name, step.uuid, &taken),
        uuid: step.uuid,
        created_at: step.created_at,
        owner,
        pin_for: Some(relationship.id),
    };
    let info = match staged.commit(&spec) {
        Ok(info) => info,
        Err(error) => {
            if let Err(error) = staged.abandon() {
                tracing::warn!(%volume, "what was staged could not be thrown away: {error}");
            }
            return Err(error.into());
        }
    };
    // The version is published: what fails from here on costs space until the next transfer, nothing else.
    if let Err(error) = let_go(engine, volume, relationship.id, &[info.uuid]) {
        tracing::warn!(%volume, "the old base stays until the next transfer: {error}");
    }
    Ok(info.name)
}

/// `name`, or if that is taken here, the name with a piece of the snapshot's identity.
fn free_name(name: &str, uuid: Uuid, taken: &[String]) -> String {
    if !taken.iter().any(|t| t == name) {
        return name.into();
    }
    let suffix = format!("-{}", &uuid.simple().to_string()[..12]);
    let keep = name.len().min(NAME_BYTES_MAX - suffix.len());
    format!("{}{suffix}", &name[..keep])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_name_gets_a_suffix_and_stays_a_name() {
        let uuid = Uuid::from_u128(0xabcd << 112);
        assert_eq!(free_name("daily", uuid, &[]), "daily");
        assert_eq!(free_name("daily", uuid, &["daily".into()]), "daily-abcd00000000");
        let long = "x".repeat(NAME_BYTES_MAX);
        let renamed = free_name(&long, uuid, std::slice::from_ref(&long));
        assert!(farside_engine::is_label(&renamed) && renamed != long, "{renamed}");
    }
}
