//! What a clone began as.

use farside_format::catalog;
use farside_platform::Timestamp;

use crate::pool::State;

/// The snapshot that a clone began as.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Name of its volume; what it was called when the clone was made, if it was deleted since.
    pub volume: String,
    /// Name of the snapshot, likewise.
    pub snapshot: String,
    /// When the data was so.
    pub created_at: Timestamp,
    /// Whether the snapshot is still there. The clone does not need it.
    pub exists: bool,
}

impl Origin {
    pub(crate) fn of(state: &State, origin: &catalog::Origin) -> Origin {
        let volume = state.versions.volume_numbered(origin.volume);
        let snapshot = state.versions.snapshot_identified(origin.volume, &origin.snapshot);
        let name_now = snapshot.and_then(|version| version.snapshot.as_ref()).map(|s| &s.name);
        Origin {
            volume: volume.map_or(&origin.volume_name, |found| &found.name).clone(),
            snapshot: name_now.unwrap_or(&origin.snapshot_name).clone(),
            created_at: Timestamp(origin.created_at),
            exists: snapshot.is_some(),
        }
    }
}
