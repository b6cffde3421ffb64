//! A mirror as others see it.

use farside_engine::ContentRoot;
use farside_platform::Timestamp;
use farside_transfer::report::Progress;
use uuid::Uuid;

use crate::state::State;
use crate::store::Relationship;

/// The version that readers of a replica see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Published {
    /// The snapshot's name here.
    pub name: String,
    /// Its identity.
    pub uuid: Uuid,
    /// When the data was so at its origin.
    pub created_at: Timestamp,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// Its content root, as computed here before it was published.
    pub content_root: ContentRoot,
}

/// A mirror as `mirror status` shows it.
#[derive(Clone, Debug)]
pub struct MirrorStatus {
    /// Its configuration.
    pub relationship: Relationship,
    /// Its state.
    pub state: State,
    /// Why it is not doing what it should, or what stands in its way.
    pub why: Option<String>,
    /// The version it shows; also the base of the next update.
    pub current: Option<Published>,
    /// The transfer under way or waiting.
    pub progress: Option<Progress>,
}

impl MirrorStatus {
    /// Age of the replica's data, seconds; none while there is none. Grows until an update proves otherwise, even if
    /// nothing changes at the source.
    pub fn lag_seconds(&self, now: Timestamp) -> Option<f64> {
        self.current.as_ref().map(|c| now.seconds_since(c.created_at))
    }
}
