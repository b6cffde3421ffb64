//! How much is spent on the frames of a step: asks the [`Ladder`] for each, and tells it what each has cost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farside_platform::Clock;
use farside_session::SocketFigures;
use farside_wire::{Effort, Ladder, Sent};

use crate::error::MirrorError;
use crate::source::encoders::{EncoderBudget, Turn};
use crate::source::{Serving, Shared};

/// The pace of one step.
pub(super) struct Pace {
    ladder: Mutex<Ladder>,
    /// How the stream's connections go.
    link: Arc<dyn SocketFigures>,
    budget: Arc<EncoderBudget>,
    clock: Arc<dyn Clock>,
}

impl Pace {
    /// For a step of a relationship: begins with what earlier ones have learnt, or else such of other volumes to that peer.
    pub(super) fn of(shared: &Shared, serving: &Serving, link: Arc<dyn SocketFigures>) -> Pace {
        let learnt = shared.tables().learnt.of(serving.relationship, serving.peer);
        let ladder = learnt.unwrap_or_else(|| {
            let round_trip = link.figures().map_or(Duration::ZERO, |figures| figures.min_rtt);
            shared.encoders.ladder(round_trip)
        });
        let (budget, clock) = (shared.encoders.clone(), shared.clock.clone());
        Pace { ladder: Mutex::new(ladder), link, budget, clock }
    }

    /// Keeps for the next step what was learnt.
    pub(super) fn remember(&self, shared: &Shared, serving: &Serving) {
        let (relationship, peer) = (serving.relationship, serving.peer);
        let ladder = self.ladder().clone();
        tracing::debug!(%relationship, effort = ladder.effort().name(), "what the link leaves time for");
        let mut tables = shared.tables();
        // Nothing is kept for one that was released meanwhile.
        if tables.relationships.contains_key(&relationship) {
            tables.learnt.remember(relationship, peer, ladder);
        }
    }

    /// Monotonic time.
    pub(super) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// What to spend on the next frame; asked once for each.
    pub(super) fn next_effort(&self) -> Effort {
        let room = self.budget.room();
        self.ladder().next_effort(&room)
    }

    /// A frame's search took so long.
    pub(super) fn searched(&self, effort: Effort, in_bytes: u64, searching: Duration) {
        self.ladder().searched(effort, in_bytes, searching);
    }

    /// Waits for one of the site's encoders.
    pub(super) async fn turn(&self, effort: Effort) -> Result<Turn, MirrorError> {
        self.budget.turn(effort).await.map_err(|e| MirrorError::Internal(e.to_string()))
    }

    /// A frame was sent.
    pub(super) fn sent(&self, frame: &Sent) {
        let room = self.budget.room();
        let delivered = self.link.figures().and_then(|figures| figures.delivery_rate);
        let mut ladder = self.ladder();
        if let Some(delivered) = delivered {
            ladder.link_delivers(delivered);
        }
        ladder.sent(frame, &room);
        tracing::trace!(?frame, ?room, ?delivered, next = ladder.effort().name(), "frame sent");
    }

    fn ladder(&self) -> MutexGuard<'_, Ladder> {
        // Nothing between two calls depends on a call that panicked.
        self.ladder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
