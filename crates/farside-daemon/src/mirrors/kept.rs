//! Which snapshots of a volume here are kept for a mirror by another site, and why.

use farside_api::{self as api, KeptFor, KeptSnapshot};
use farside_engine::{SnapshotInfo, SnapshotOwner};
use farside_mirror::{PinnedSnapshot, SourceRelationship};

use super::Mirrors;

impl Mirrors {
    /// What is kept for `relationship`; `transferring` says whether a transfer of it is being served. Of a volume that cannot be
    /// looked at nothing is shown.
    pub(super) async fn kept(
        &self,
        relationship: &SourceRelationship,
        transferring: bool,
    ) -> Vec<KeptSnapshot> {
        let (engine, volume) = (self.parts.engine.clone(), relationship.source.clone());
        let all = self
            .parts
            .blocking
            .run(move || Ok::<_, api::ErrorBody>(engine.all_snapshots(&volume).unwrap_or_default()));
        let all = all.await.unwrap_or_default();
        let is_kept = |s: &&SnapshotInfo| s.pinned_by.contains(&relationship.id);
        let kept = |s: &SnapshotInfo| KeptSnapshot {
            name: s.name.clone(),
            made_by_person: s.owner == SnapshotOwner::Person,
            why: match relationship.base == Some(s.uuid) {
                true => KeptFor::Base,
                false if transferring => KeptFor::Transfer,
                false => KeptFor::Interrupted,
            },
        };
        all.iter().filter(is_kept).map(kept).collect()
    }
}

/// What is kept for a relationship that nobody here knows.
pub(super) fn of_unknown(pinned: Vec<PinnedSnapshot>) -> Vec<KeptSnapshot> {
    let kept = |s: PinnedSnapshot| KeptSnapshot {
        name: s.name,
        made_by_person: s.made_by_person,
        why: KeptFor::Unknown,
    };
    pinned.into_iter().map(kept).collect()
}
