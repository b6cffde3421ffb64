//! Where snapshots are that were read lately: to look each up anew takes three round trips, and a transfer reads one thousands of times.
//!
//! A snapshot never changes, and its identity is never given to another: what is known of it holds for as long as it is there.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use uuid::Uuid;

use super::document::Kept;
use super::pool::OpenPool;
use crate::VolumeName;

/// How long it is believed that it is there. Who deletes it in this process says so at once.
const BELIEVED_FOR: Duration = Duration::from_secs(1);
/// Snapshots that are known at a time: of some transfers, the base and the incremental of each.
const KNOWN_MAX: usize = 16;

/// A snapshot's place in the cluster.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) pool: Arc<OpenPool>,
    /// The image's id.
    pub(super) id: String,
    pub(super) kept: Kept,
}

struct Known {
    volume: VolumeName,
    snapshot: Uuid,
    since: Instant,
    place: Place,
}

#[derive(Default)]
pub(super) struct Lately(Mutex<VecDeque<Known>>);

impl Lately {
    pub(super) fn find(&self, volume: &VolumeName, snapshot: Uuid) -> Option<Place> {
        let known = self.0.lock();
        let is_it = |known: &&Known| known.snapshot == snapshot && known.volume == *volume;
        let found = known.iter().find(is_it).filter(|known| known.since.elapsed() < BELIEVED_FOR);
        found.map(|known| known.place.clone())
    }

    pub(super) fn note(&self, volume: &VolumeName, snapshot: Uuid, place: Place) {
        let mut known = self.0.lock();
        known.retain(|known| known.snapshot != snapshot || known.volume != *volume);
        known.push_back(Known { volume: volume.clone(), snapshot, since: Instant::now(), place });
        if known.len() > KNOWN_MAX {
            known.pop_front();
        }
    }

    /// Something of the volume is deleted.
    pub(super) fn forget(&self, volume: &VolumeName) {
        self.0.lock().retain(|known| known.volume != *volume);
    }

    /// A pool is taken away.
    pub(super) fn forget_pool(&self, pool: &str) {
        self.0.lock().retain(|known| known.volume.pool != pool);
    }
}
