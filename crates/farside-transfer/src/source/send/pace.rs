//! How much is spent on the frames of a step: asks the [`LevelControl`] for each, and tells it what each has cost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farside_link::SocketStats;
use farside_platform::Clock;
use farside_wire::{Effort, LevelControl, Sent};

use crate::error::TransferError;
use crate::source::encoders::{EncoderBudget, EncoderPermit};
use crate::source::serving::Serving;
use crate::source::shared::Shared;

/// The pace of one step.
pub(crate) struct Pace {
    level_control: Mutex<LevelControl>,
    /// How the stream's connections go.
    link: Arc<dyn SocketStats>,
    budget: Arc<EncoderBudget>,
    clock: Arc<dyn Clock>,
}

impl Pace {
    /// For a step of a relationship: begins with what earlier ones have learnt, or else such of other volumes to that peer.
    pub(crate) fn of(shared: &Shared, serving: &Serving, link: Arc<dyn SocketStats>) -> Pace {
        let learnt = shared.link_history().of(serving.relationship, serving.peer);
        let level_control = learnt.unwrap_or_else(|| {
            let round_trip = link.stats().map_or(Duration::ZERO, |figures| figures.min_rtt);
            shared.encoders.level_control(round_trip)
        });
        let (budget, clock) = (shared.encoders.clone(), shared.clock.clone());
        Pace { level_control: Mutex::new(level_control), link, budget, clock }
    }

    /// Keeps for the next step what was learnt.
    pub(crate) fn remember(&self, shared: &Shared, serving: &Serving) {
        let (relationship, peer) = (serving.relationship, serving.peer);
        let level_control = self.level_control().clone();
        tracing::debug!(%relationship, effort = level_control.effort().name(), "what the link leaves time for");
        let mut learnt = shared.link_history();
        // Nothing is kept for one that was released meanwhile.
        if shared.relationships.is_kept(relationship) {
            learnt.remember(relationship, peer, level_control);
        }
    }

    /// Monotonic time.
    pub(crate) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// What to spend on the next frame; asked once for each.
    pub(crate) fn next_effort(&self) -> Effort {
        let resources = self.budget.resources();
        self.level_control().next_effort(&resources)
    }

    /// A frame's search took so long.
    pub(crate) fn searched(&self, effort: Effort, in_bytes: u64, searching: Duration) {
        self.level_control().searched(effort, in_bytes, searching);
    }

    /// Waits for one of the site's encoders.
    pub(crate) async fn acquire(&self, effort: Effort) -> Result<EncoderPermit, TransferError> {
        self.budget.acquire(effort).await.map_err(|e| TransferError::Internal(e.to_string()))
    }

    /// A frame was sent.
    pub(crate) fn sent(&self, frame: &Sent) {
        let resources = self.budget.resources();
        let delivered = self.link.stats().and_then(|figures| figures.delivery_rate);
        let mut level_control = self.level_control();
        if let Some(delivered) = delivered {
            level_control.link_delivers(delivered);
        }
        level_control.sent(frame, &resources);
        tracing::trace!(?frame, ?resources, ?delivered, next = level_control.effort().name(), "frame sent");
    }

    fn level_control(&self) -> MutexGuard<'_, LevelControl> {
        // Nothing between two calls depends on a call that panicked.
        self.level_control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
