//! What is kept for those that follow a destination of this site: what they stand on, so that they can follow this volume with a
//! difference where the one between is lost or has to follow one of them.
//!
//! The destination names it with each beginning and acknowledgement, and what it does not name any more is let go. Pinned for the
//! relationship's second id ([`common_of`]), it is over budgets by itself: a site that was cut off for long costs the one between
//! nothing but this.

use farside_engine::{Engine, EngineError, SnapshotInfo, SnapshotOwner, VolumeName};
use farside_transfer::bases::{common_of, release};
use uuid::Uuid;

use super::shared::Shared;
use crate::budgets::Kept;
use crate::error::{MirrorError, blocking};
use crate::store::SourceRelationship;

impl Shared {
    /// Some relationships of a volume end because it follows their destination from now on. The other destinations may have nothing
    /// in common with that one but what was kept for it here: it is kept for these, until each begins its next transfer from here.
    pub(super) async fn hand_on(
        &self,
        volume: &VolumeName,
        ends: impl Fn(&&SourceRelationship) -> bool,
    ) -> Result<(), MirrorError> {
        let (ended, others): (Vec<_>, Vec<_>) = {
            let tables = self.tables();
            let of_volume = tables.relationships.values().filter(|r| r.source == *volume);
            of_volume.map(|r| (r.id, ends(&r))).partition(|(_, ends)| *ends)
        };
        if ended.is_empty() || others.is_empty() {
            return Ok(());
        }
        let ids = |those: Vec<(Uuid, bool)>| those.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        let (engine, of, ended, others) = (self.engine.clone(), volume.clone(), ids(ended), ids(others));
        blocking(move || hand_on(&*engine, &of, &ended, &others)).await
    }

    /// Releases what is kept for those that follow the destination, because of a budget. The mirror itself loses nothing.
    pub(super) async fn release_further(
        &self,
        relationship: Uuid,
        kept: Kept,
        why: &str,
    ) -> Result<(), MirrorError> {
        let lock = self.registry.lock(relationship);
        let _lock = lock.lock().await;
        let Some(known) = self.tables().relationships.get(&relationship).cloned() else { return Ok(()) };
        let (engine, of) = (self.engine.clone(), known.source.clone());
        blocking(move || release(&*engine, &of, common_of(relationship), &[])).await?;
        tracing::warn!(
            %relationship, peer = %kept.peer, volume = %known.source,
            "released what was kept for those that follow {}: {why}. The mirror goes on as before. If that site is lost, they \
             may follow {} only by a comparison of everything", known.destination, known.source
        );
        Ok(())
    }
}

fn hand_on(
    engine: &dyn Engine,
    volume: &VolumeName,
    ended: &[Uuid],
    others: &[Uuid],
) -> Result<(), MirrorError> {
    let all = engine.all_snapshots(volume)?;
    let is_kept_for = |s: &SnapshotInfo, ids: &[Uuid]| s.pinned_by.iter().any(|pin| ids.contains(pin));
    for (at, snapshot) in all.iter().enumerate() {
        if snapshot.owner == SnapshotOwner::Person || !is_kept_for(snapshot, ended) {
            continue;
        }
        // Whose transfer began before this was taken has not got it.
        let has_it = |other: &&Uuid| all[at..].iter().any(|s| s.pinned_by.contains(other));
        for other in others.iter().filter(has_it) {
            match engine.pin(volume, snapshot.uuid, common_of(*other)) {
                Ok(()) | Err(EngineError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}
