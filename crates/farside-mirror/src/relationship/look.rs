//! What the pool says of a replica: the part of a mirror's standing that survives everything.

use farside_engine::Engine;

use super::Published;
use crate::error::MirrorError;
use crate::store::Relationship;

/// What the pool says of a replica.
pub(super) struct Found {
    pub(super) initialized: bool,
    pub(super) broken_off: bool,
    pub(super) current: Option<Published>,
}

/// Asks the pool. An error means that nothing is known: the replica must not be touched.
pub(super) fn look(engine: &dyn Engine, relationship: &Relationship) -> Result<Found, MirrorError> {
    let volume = &relationship.destination;
    let record = engine.replica_record(volume)?;
    let broken_off = match &record {
        Some(record) if record.relationship == relationship.id => record.broken_off,
        _ => {
            return Err(MirrorError::State(format!(
                "the pool does not know {volume} as the replica of this relationship; `farside mirror delete {volume}` ends the mirror, the volume stays"
            )));
        }
    };
    let snapshots = engine.snapshots(volume)?;
    // Every version a transfer publishes is pinned in the record that publishes it.
    let initialized = snapshots.iter().any(|s| s.pinned_by.contains(&relationship.id));
    // A person may have named the published version since; what the relationship published is what counts.
    let published =
        snapshots.iter().rev().find(|s| s.pinned_by.contains(&relationship.id)).or(snapshots.last());
    let current = match published {
        None => None,
        Some(newest) => Some(Published {
            name: newest.name.clone(),
            uuid: newest.uuid,
            created_at: newest.created_at,
            size_bytes: newest.size_bytes,
            content_root: engine.content_root(volume, newest.uuid)?,
        }),
    };
    Ok(Found { initialized, broken_off, current })
}
