//! What the transfers of a source share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farside_engine::Engine;
use farside_peer::PeerId;
use farside_platform::Clock;
use uuid::Uuid;

use super::encoders::EncoderBudget;
use super::link_history::LinkHistory;
use super::relationships::SourceRelationships;
use super::serving::Serving;
use super::similarity::Indexes;
use crate::log_limit::{Admitted, LogLimit};
use crate::quiet::QuietUpdates;

/// What the transfers of a source share.
pub(crate) struct Shared {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) relationships: Arc<dyn SourceRelationships>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) encoders: Arc<EncoderBudget>,
    pub(crate) indexes: Arc<Indexes>,
    /// By transfer id; at most [`SERVED_MAX`](crate::limits::SERVED_MAX).
    pub(crate) serving: Mutex<HashMap<Uuid, Arc<Serving>>>,
    pub(crate) link_history: Mutex<LinkHistory>,
    /// Updates of all relationships that the log only counts.
    pub(crate) quiet: Mutex<QuietUpdates>,
    /// Of what fails at a peer, or is asked for in vain.
    pub(crate) failures: Mutex<LogLimit<PeerId>>,
}

impl Shared {
    pub(crate) fn serving(&self) -> MutexGuard<'_, HashMap<Uuid, Arc<Serving>>> {
        // Every change is one insertion or removal: a panic in between leaves nothing half done.
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn link_history(&self) -> MutexGuard<'_, LinkHistory> {
        // The same.
        self.link_history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn quiet(&self) -> MutexGuard<'_, QuietUpdates> {
        self.quiet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more failure of `peer` is logged. If so, so many before it were not; none if not.
    pub(crate) fn admit_failure(&self, peer: PeerId) -> Option<u64> {
        // A count that a panic left behind is of no more use than one that is a little wrong.
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        match failures.admit(peer, self.clock.monotonic()) {
            Admitted::Line { suppressed } => Some(suppressed),
            Admitted::Nothing => None,
        }
    }

    /// Ends a transfer and gives its place back.
    pub(crate) fn leave(&self, serving: &Serving) {
        serving.cancel.cancel();
        self.serving().remove(&serving.transfer);
    }

    /// The transfers of a relationship that are being served.
    pub(crate) fn of_relationship(&self, relationship: Uuid) -> Vec<Arc<Serving>> {
        self.serving().values().filter(|s| s.relationship == relationship).cloned().collect()
    }
}
