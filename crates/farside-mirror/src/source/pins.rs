//! Pins that no relationship explains: what is left when the state database was lost or a pool came from elsewhere. The
//! pins are the truth; whoever reads them can say what may go.

use farside_engine::{SnapshotInfo, SnapshotOwner, VolumeName};
use farside_platform::Timestamp;
use farside_transfer::bases::{common_of, kept_of, release};
use uuid::Uuid;

use super::service::SourceService;
use crate::error::{MirrorError, blocking};

/// What one unknown relationship keeps of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnexplainedPin {
    /// The volume.
    pub volume: VolumeName,
    /// The relationship's id: all that is left of it here.
    pub relationship: Uuid,
    /// The snapshots that it pins, oldest first.
    pub snapshots: Vec<PinnedSnapshot>,
    /// When the oldest of them was taken.
    pub since: Timestamp,
}

/// A snapshot that is pinned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PinnedSnapshot {
    /// Its name.
    pub name: String,
    /// Whether a person made it.
    pub made_by_person: bool,
}

impl PinnedSnapshot {
    fn of(snapshot: &SnapshotInfo) -> PinnedSnapshot {
        PinnedSnapshot {
            name: snapshot.name.clone(),
            made_by_person: snapshot.owner == SnapshotOwner::Person,
        }
    }
}

impl SourceService {
    /// Pins of `volume` by relationships that this side does not know, that the volume is not a replica of, and that are
    /// not among `known_elsewhere` (the mirrors that have this volume as their replica), in order of their age.
    pub async fn unexplained(
        &self,
        volume: &VolumeName,
        known_elsewhere: &[Uuid],
    ) -> Result<Vec<UnexplainedPin>, MirrorError> {
        let mut known: Vec<Uuid> = self.shared.tables().relationships.keys().copied().collect();
        known.extend(known_elsewhere);
        let (engine, of) = (self.shared.engine.clone(), volume.clone());
        blocking(move || {
            known.extend(engine.replica_record(&of)?.map(|record| record.relationship));
            // What a mirror keeps in common with others is its own.
            let common: Vec<Uuid> = known.iter().copied().map(common_of).collect();
            known.extend(common);
            let kept: Vec<Uuid> = known.iter().copied().map(kept_of).collect();
            known.extend(kept);
            let mut found: Vec<UnexplainedPin> = Vec::new();
            for snapshot in engine.all_snapshots(&of)? {
                let mut pinned_by = snapshot.pinned_by.clone();
                if let SnapshotOwner::Relationship(owner) = snapshot.owner
                    && pinned_by.is_empty()
                {
                    pinned_by.push(owner);
                }
                for relationship in pinned_by.into_iter().filter(|relationship| !known.contains(relationship))
                {
                    match found.iter_mut().find(|f| f.relationship == relationship) {
                        Some(of_it) => of_it.snapshots.push(PinnedSnapshot::of(&snapshot)),
                        None => found.push(UnexplainedPin {
                            volume: of.clone(),
                            relationship,
                            snapshots: vec![PinnedSnapshot::of(&snapshot)],
                            since: snapshot.created_at,
                        }),
                    }
                }
            }
            Ok::<_, MirrorError>(found)
        })
        .await
    }

    /// Releases what an unknown relationship keeps of `volume`. Refused for one that is known.
    pub async fn release_unexplained(
        &self,
        volume: &VolumeName,
        relationship: Uuid,
        known_elsewhere: &[Uuid],
    ) -> Result<(), MirrorError> {
        let found = self.unexplained(volume, known_elsewhere).await?;
        let Some(found) = found.into_iter().find(|f| f.relationship == relationship) else {
            return Err(MirrorError::State(format!(
                "no unknown relationship {relationship} keeps a snapshot of {volume}. See farside mirror \
                 destinations {volume}"
            )));
        };
        let (engine, of) = (self.shared.engine.clone(), volume.clone());
        blocking(move || release(&*engine, &of, relationship, &[])).await?;
        let snapshots: Vec<String> = found.snapshots.into_iter().map(|s| s.name).collect();
        tracing::info!(%relationship, %volume, ?snapshots, "released the bases of a mirror that no site knows");
        Ok(())
    }
}
