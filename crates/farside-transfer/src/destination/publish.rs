//! What a transfer does to the destination's snapshots. Blocking; call from a blocking thread.
//!
//! The order, and what power failure after each line leaves:
//!
//! 1. checkpoint; content root computed and equal: the replica as it was, a staged version for the next to go on with
//! 2. commit (one record: published, named, pinned): the new version; the old base still there. Where retention keeps what is
//!    published, it is pinned for that next; what a crash leaves unpinned the next transfer pins before it releases anything
//! 3. old base unpinned and deleted: the new version alone; if not, the next transfer does this first
//! 4. the source is told: if not, it keeps both bases until the next transfer names the new one

use std::sync::Arc;

use farside_engine::{
    ChangedBytes, ContentRoot, Engine, EngineError, ReadyVersion, SnapshotInfo, SnapshotOwner, SnapshotSpec,
    StagedVersion, VolumeName,
};
use uuid::Uuid;

use super::named;
use super::resume::{self, Kept};
use crate::bases::{KEPT, arrival_name, candidates, common_of, free_name, kept_of, readable_root, release};
use crate::error::TransferError;
use crate::going_back::{Back, GoingBack, go_back};
use crate::kind::TransferKind;
use crate::protocol::convert::{CandidateBase, TravellingSnapshot};
use crate::protocol::group::NO_ONE_MOMENT;
use crate::replica::Replica;

/// What the replica holds before a transfer.
pub(crate) struct Here {
    /// What may serve as base, on all branches.
    pub(crate) candidates: Vec<CandidateBase>,
    /// The version that readers see; none before the first, and if part of it cannot be read.
    pub(crate) published: Option<CandidateBase>,
    /// The newest snapshot of the main line, if readers see just that: as a rule the published version, or what a person named
    /// since. What is staged upon it leaves every snapshot of the line on the line.
    pub(crate) newest: Option<CandidateBase>,
    /// The newest snapshot of the main line that can be read, whatever hosts made of it since.
    pub(crate) own: Option<CandidateBase>,
    /// Readers see a version of which part cannot be read: an update must not build on it.
    pub(crate) is_damaged: bool,
    /// How many snapshots that persons made it has, on all branches.
    pub(crate) named: usize,
    /// What a transfer of this relationship that was cut left staged.
    pub(crate) kept: Option<Kept>,
    /// The main line from the published version on: what is staged upon one of these leaves that version on the line.
    pub(crate) onward: Vec<Uuid>,
    /// An earlier transfer has left something that other destinations hold too.
    pub(crate) keeps_common: bool,
}

/// Releases bases that are no longer in use, and lists what is here, oldest first. Of what is staged the newest of this
/// relationship is kept, if anything of it is worth that; the rest is thrown away.
pub(crate) fn tidy_and_list(
    engine: &dyn Engine,
    replica: &Replica,
    kind: TransferKind,
) -> Result<Here, TransferError> {
    let (volume, relationship) = (&replica.destination, replica.relationship);
    check_replica(engine, volume, relationship)?;
    let kept = resume::find(engine, volume, relationship)?;
    let published = engine.snapshots(volume)?.into_iter().rev().find(|s| s.pinned_by.contains(&relationship));
    // What was named as kept when the resync was asked for has left the rotation, and stays out of it.
    if let Some(shown) = published.as_ref().filter(|_| replica.keeps && kind != TransferKind::Resync) {
        engine.pin(volume, shown.uuid, kept_of(relationship))?;
    }
    // Before a resync has published anything every base may still be the one to go back to.
    if let Some(published) = published.filter(|_| kind != TransferKind::Resync) {
        release(engine, volume, relationship, &[published.uuid])?;
    }
    let mut candidates = candidates(engine, volume)?;
    // What is staged upon a damaged base would be damaged too, wherever the update changes something beside the damage.
    for at in (0..candidates.len()).rev() {
        match engine.is_damaged(volume, candidates[at].uuid) {
            Ok(false) => {}
            // Retention may let one go meanwhile.
            Ok(true) | Err(EngineError::NotFound { .. }) => drop(candidates.remove(at)),
            Err(error) => return Err(error.into()),
        }
    }
    let snapshots = engine.snapshots(volume)?;
    // A snapshot that a person took of the replica is younger than what it shows.
    let shown = snapshots.iter().rev().find(|s| s.pinned_by.contains(&relationship)).or(snapshots.last());
    let published = match shown {
        Some(shown) if engine.is_damaged(volume, shown.uuid)? => None,
        Some(shown) => readable_root(engine, volume, shown)?.map(|content_root| CandidateBase {
            uuid: shown.uuid,
            content_root,
            size_bytes: shown.size_bytes,
        }),
        None => None,
    };
    let newest =
        snapshots.last().and_then(|newest| candidates.iter().find(|c| c.uuid == newest.uuid)).copied();
    let own = newest;
    let newest = match newest {
        // Before a resync hosts may have written since, and a walk would tell what nobody asks.
        Some(newest) if kind != TransferKind::Resync => {
            let is_shown = engine.changed_since(volume, newest.uuid)? == ChangedBytes::default();
            is_shown.then_some(newest)
        }
        _ => None,
    };
    let is_damaged = shown.is_some() && published.is_none();
    let onward = snapshots.iter().map(|s| s.uuid).skip_while(|uuid| shown.is_some_and(|s| s.uuid != *uuid));
    let onward = onward.collect();
    let keeper = common_of(relationship);
    let all = engine.all_snapshots(volume)?;
    let keeps_common = all.iter().any(|s| s.pinned_by.contains(&keeper));
    let named = named::count(&all);
    Ok(Here { candidates, published, newest, own, is_damaged, named, kept, onward, keeps_common })
}

/// Refuses to touch a volume that is not, or not any more, the replica of this relationship: hosts may be writing to it.
pub(crate) fn check_replica(
    engine: &dyn Engine,
    volume: &VolumeName,
    relationship: Uuid,
) -> Result<(), TransferError> {
    match engine.replica_record(volume)? {
        Some(record) if record.relationship == relationship && !record.broken_off => Ok(()),
        _ => Err(TransferError::State(format!(
            "the pool does not know {volume} as the replica of this relationship. Nothing was changed. To end the \
             mirror and keep the volume: farside mirror delete {volume}"
        ))),
    }
}

/// The name of the snapshot with this identity, if it is here already, on whatever branch; it is pinned then, as what
/// is published is. An identity that stands for something else here is an alarm.
pub(crate) fn name_if_here(
    engine: &dyn Engine,
    volume: &VolumeName,
    relationship: Uuid,
    uuid: Uuid,
    expected: ContentRoot,
) -> Result<Option<String>, TransferError> {
    let all = engine.all_snapshots(volume)?;
    let Some(here) = all.into_iter().find(|s| s.uuid == uuid) else { return Ok(None) };
    let ours = engine.content_root(volume, uuid)?;
    if ours != expected {
        return Err(TransferError::IdentityClash { uuid, ours, theirs: expected });
    }
    engine.pin(volume, uuid, relationship)?;
    Ok(Some(here.name))
}

/// Sees to it that readers see the snapshot that a transfer ended with. What a transfer has published they see already;
/// what was here before may lie on a side branch, or below what hosts have written since: then the volume goes back to it, and
/// what it replaces stays.
pub(crate) fn show(
    engine: &dyn Engine,
    volume: &VolumeName,
    relationship: Uuid,
    uuid: Uuid,
    kind: TransferKind,
) -> Result<(), TransferError> {
    let on_main_line = engine.snapshots(volume)?.iter().any(|s| s.uuid == uuid);
    let is_shown = engine.changed_since(volume, uuid)? == ChangedBytes::default();
    if is_shown && (on_main_line || kind != TransferKind::Resync) {
        return Ok(());
    }
    check_replica(engine, volume, relationship)?;
    engine.pin(volume, uuid, relationship)?;
    // In the same moment once more: whoever breaks the mirror off now is not overtaken by it.
    let Back { shown, rescued } = go_back(engine, volume, uuid, GoingBack::OfMirror(relationship), None)?;
    if let Some(rescued) = rescued {
        tracing::warn!(%volume, rescued = rescued.name, "what only this site held is kept");
    }
    if let Err(error) = release(engine, volume, relationship, &[shown]) {
        tracing::warn!(%volume, "published; the old base snapshot could not be released at this site and holds space \
             until the next transfer: {error}");
    }
    Ok(())
}

/// Whether what is staged is what the source has: durable first, then computed here, then compared.
pub(crate) fn prove(
    staged: &dyn StagedVersion,
    name: &str,
    expected: ContentRoot,
) -> Result<(), TransferError> {
    staged.checkpoint()?;
    let found = staged.content_root()?;
    if found != expected {
        return Err(TransferError::RootMismatch { snapshot: name.into(), expected, found });
    }
    Ok(())
}

/// What the replica shows, `base`, is gone at the source, and the version that comes is staged upon it: it stays as what a person
/// may delete. If it is a person's it is no part of a rotation any more; if it is not here, nothing has to be done.
fn keep_what_is_gone(
    engine: &dyn Engine,
    volume: &VolumeName,
    relationship: Uuid,
    base: Uuid,
    stem: &str,
) -> Result<(), TransferError> {
    let shown = engine.all_snapshots(volume)?.into_iter().find(|s| s.uuid == base);
    let Some(shown) = shown else { return Ok(()) };
    for keeper in [relationship, engine.volume(volume)?.uuid].map(kept_of) {
        if shown.pinned_by.contains(&keeper) {
            // What is told to be kept, nothing lets go by itself. A crash before the next step leaves what a person's snapshot is, or
            // what is still shown.
            engine.unpin(volume, shown.uuid, keeper)?;
        }
    }
    if shown.owner == SnapshotOwner::Person {
        return Ok(());
    }
    let kept = engine.hand_over(volume, shown.uuid, SnapshotOwner::Person, stem, None)?;
    tracing::warn!(
        %volume, was = shown.name, rescued = kept.name,
        "the source does not have what this replica showed any more; it is kept at this site"
    );
    Ok(())
}

/// A staged version that was proved, and what it is to become.
pub(crate) struct Proved {
    pub(crate) replica: Replica,
    pub(crate) staged: Arc<dyn StagedVersion>,
    pub(crate) step: TravellingSnapshot,
    /// The version shown, if the source has left it behind: it is kept for a person first.
    pub(crate) gone: Option<Uuid>,
    /// As what it is kept: what a resync replaces is not what its source left behind, wherever that has it.
    pub(crate) gone_as: &'static str,
    /// Other destinations hold it too: it stays until a plan does not name it any more.
    pub(crate) is_common: bool,
}

impl Proved {
    /// What it is called here, and whose it is.
    fn spec(&self, engine: &dyn Engine) -> Result<SnapshotSpec, TransferError> {
        let Proved { replica, step, .. } = self;
        // A name is given once per volume, whatever branch it is on.
        let all = engine.all_snapshots(&replica.destination)?;
        let taken: Vec<String> = all.into_iter().map(|s| s.name).collect();
        let owner = if step.made_by_person {
            SnapshotOwner::Person
        } else {
            SnapshotOwner::Relationship(replica.relationship)
        };
        let name = match replica.keeps && !step.made_by_person {
            true => format!("{KEPT}-{}", step.created_at),
            false => arrival_name(&step.name),
        };
        Ok(SnapshotSpec {
            name: free_name(&name, step.uuid, &taken),
            uuid: step.uuid,
            created_at: step.created_at,
            owner,
            pin_for: Some(replica.relationship),
        })
    }

    /// What is done before it is published.
    fn ready(&self, engine: &dyn Engine) -> Result<SnapshotSpec, TransferError> {
        let spec = self.spec(engine)?;
        // Once more: the transfer may have taken hours since it was looked at. The commit looks in its own moment.
        check_replica(engine, &self.replica.destination, self.replica.relationship)?;
        // First: a crash in between leaves a snapshot of what is still shown.
        if let Some(gone) = self.gone {
            keep_what_is_gone(
                engine,
                &self.replica.destination,
                self.replica.relationship,
                gone,
                self.gone_as,
            )?;
        }
        Ok(spec)
    }

    /// It is published: what fails from here on costs space until the next transfer, nothing else.
    fn published(&self, engine: &dyn Engine, info: &SnapshotInfo) {
        let Replica { destination: volume, relationship, keeps, .. } = &self.replica;
        if *keeps && let Err(error) = engine.pin(volume, info.uuid, kept_of(*relationship)) {
            tracing::warn!(%volume, snapshot = info.name, "published, and retention does not know it until the next update: {error}");
        }
        // Before the next step's commit, which releases this one. A crash in between leaves the version that is shown: the next
        // plan names it again.
        if self.is_common
            && let Err(error) = engine.pin(volume, info.uuid, common_of(*relationship))
        {
            tracing::warn!(%volume, snapshot = info.name, "cannot keep what other replicas of the same volume hold too: {error}");
        }
        if let Err(error) = release(engine, volume, *relationship, &[info.uuid]) {
            tracing::warn!(%volume, "published; the old base snapshot could not be released at this site and holds space \
                 until the next transfer: {error}");
        }
    }
}

/// Publishes what was proved, pinned as the new base, and releases the old one. Returns its name here.
pub(crate) fn commit(engine: &dyn Engine, proved: &Proved) -> Result<String, TransferError> {
    let spec = proved.ready(engine)?;
    let info = proved.staged.commit(&spec)?;
    proved.published(engine, &info);
    Ok(info.name)
}

/// The same for several volumes of one pool, by one record. If one of them is refused none is published. Returns their names.
pub(crate) fn commit_together(engine: &dyn Engine, all: &[&Proved]) -> Result<Vec<String>, TransferError> {
    let mut versions = Vec::with_capacity(all.len());
    for proved in all {
        let (volume, staged) = (proved.replica.destination.clone(), proved.staged.clone());
        versions.push(ReadyVersion { volume, staged, spec: proved.ready(engine)? });
    }
    let Some(first) = versions.first() else { return Ok(Vec::new()) };
    let together = engine.need_together(&first.volume.pool, NO_ONE_MOMENT)?;
    let published = together.commit_together(&versions)?;
    for (proved, info) in all.iter().zip(&published) {
        proved.published(engine, info);
    }
    Ok(published.into_iter().map(|info| info.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::NAME_BYTES_MAX;

    #[test]
    fn a_taken_name_gets_a_suffix_and_stays_a_name() {
        let uuid = Uuid::from_u128(0xabcd << 112);
        assert_eq!(free_name("daily", uuid, &[]), "daily");
        assert_eq!(free_name("daily", uuid, &["daily".into()]), "daily-abcd00000000");
        let long = "x".repeat(NAME_BYTES_MAX);
        let renamed = free_name(&long, uuid, std::slice::from_ref(&long));
        assert!(farside_engine::is_label(&renamed) && renamed != long, "{renamed}");
        // What counts as a rescue here was set aside here.
        let planted = arrival_name("rescue-2999-01-10T00:00:00Z");
        assert!(
            farside_engine::is_label(&planted) && crate::bases::rescue_moment(&planted).is_none(),
            "{planted}"
        );
        assert_eq!(arrival_name("daily"), "daily");
    }
}
