//! Begins what goes on for a mirror, and stops it.

use std::pin::pin;
use std::sync::Arc;

use farside_peer::{PeerId, PeerLink, SessionError};
use farside_transfer::TransferKind;
use farside_transfer::destination::{self as transfer, ProgressSender, Transfer};
use farside_transfer::report::Progress;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use uuid::Uuid;

use super::Driver;
use super::activity::{Activity, Ending, Ran, Ready};
use crate::error::MirrorError;
use crate::limits::BREAK_PATIENCE;
use crate::links::Links;
use crate::log::LogEvent;
use crate::queue::Claim;
use crate::replicas::StoredReplicas;
use crate::state::{Action, Work};

impl Driver {
    pub(super) async fn carry_out(&mut self, action: Action) -> Result<(), MirrorError> {
        match action {
            Action::None | Action::Run(_) => {}
            Action::Enqueue(kind) => self.enqueue(kind),
            Action::LeaveQueue => {
                self.leave_queue();
                self.log(LogEvent::Abort { reason: MirrorError::aborted().to_string() }, None, None).await;
                self.settle(|| Err(MirrorError::aborted()));
            }
            Action::Cancel => {
                self.is_aborted = true;
                if let Activity::Running { cancel, .. } = &self.activity {
                    cancel.cancel();
                }
            }
            // Carried out by `break_at`, which knows where.
            Action::BreakOff => {}
        }
        Ok(())
    }

    pub(super) fn enqueue(&mut self, kind: TransferKind) {
        self.ports.progress.send_replace(Some(Progress::waiting(kind)));
        let (links, queue) = (self.parts.links.clone(), self.parts.queue.clone());
        let (peer, wait) = (self.relationship.peer, self.link_wait);
        let (until, until_rx) = watch::channel(Instant::now() + wait);
        let is_first_copy = kind == TransferKind::Initialize;
        let is_for_person = self.is_for_person;
        let claim = Claim { peer, mirror: self.relationship.id, is_first_copy, is_for_person };
        let task = tokio::spawn(async move {
            // The session first: whoever waits for one should not keep a turn from others.
            let link = link_until(&*links, peer, until_rx).await;
            let link = link.map_err(MirrorError::no_session)?;
            Ok(Ready { place: queue.enter(claim).await, link })
        });
        self.activity = Activity::Waiting { task, until };
    }

    pub(super) fn leave_queue(&mut self) {
        if let Activity::Waiting { task, .. } = &self.activity {
            task.abort();
            self.activity = Activity::None;
        }
        self.losses = 0;
        self.ports.progress.send_replace(None);
    }

    pub(super) fn start_transfer(&mut self, kind: TransferKind, ready: Ready) -> Uuid {
        self.late_acknowledgement = None;
        let id = uuid::Builder::from_random_bytes(self.parts.randomness.uuid_bytes()).into_uuid();
        let cancel = CancellationToken::new();
        let clock = self.parts.clock.clone();
        let transfer = Transfer {
            id,
            kind,
            replica: self.relationship.replica(),
            role_change: self.relationship.role_change,
            left: if kind == TransferKind::Resync { self.left.clone() } else { Vec::new() },
            engine: self.parts.engine.clone(),
            replicas: Arc::new(StoredReplicas(self.parts.store.clone())),
            clock: clock.clone(),
            link: ready.link,
            options: self.relationship.options.of_stream(self.ports.throttle.clone()),
            named_max: self.parts.limits.snapshots,
            cancel: cancel.clone(),
            progress: ProgressSender::new(clock, self.ports.progress.clone(), id, kind),
        };
        let place = ready.place;
        let cut = cancel.clone();
        self.is_aborted = false;
        let task = async move {
            let mut running = pin!(transfer::run(transfer));
            let mut gave_way = false;
            let outcome = loop {
                tokio::select! {
                    outcome = &mut running => break outcome,
                    () = place.is_to_give_way(), if !gave_way => {
                        gave_way = true;
                        cut.cancel();
                    }
                }
            };
            drop(place);
            Ran { outcome, gave_way }
        };
        let task = tokio::spawn(task.in_current_span());
        self.activity = Activity::Running { task, cancel };
        id
    }

    /// Ends whatever goes on and waits for that; the peer is not asked for anything.
    pub(crate) async fn stop(&mut self) {
        self.late_acknowledgement = None;
        self.leave_queue();
        if let Activity::Running { cancel, .. } = &self.activity {
            cancel.cancel();
            if let Ending::Ran(Ok(mut ran)) = self.activity.ended().await {
                self.transfer_ended(&mut ran.outcome).await;
                self.settle(|| Ok(ran.outcome.report.clone()));
            }
        }
        self.rest();
    }

    /// The same for whoever cannot wait: what has not ended within [`BREAK_PATIENCE`] ends by itself, later, and finds
    /// that what it had staged is gone.
    pub(crate) async fn stop_briefly(&mut self) {
        self.late_acknowledgement = None;
        self.leave_queue();
        if let Activity::Running { cancel, .. } = &self.activity {
            cancel.cancel();
            match tokio::time::timeout(BREAK_PATIENCE, self.activity.ended()).await {
                Ok(Ending::Ran(Ok(ran))) => {
                    let mut outcome = ran.outcome;
                    let kept = tokio::time::timeout(BREAK_PATIENCE, self.transfer_ended(&mut outcome));
                    if kept.await.is_err() {
                        tracing::warn!(transfer = %outcome.report.id, "one entry of mirror history could not be \
                             saved: the pool or the state database does not answer. The transfer itself is not affected");
                    }
                    self.settle(|| Ok(outcome.report.clone()));
                }
                Ok(_) => {}
                Err(_) => {
                    self.activity = Activity::None;
                    tracing::warn!(
                        relationship = %self.relationship.id,
                        "a cancelled transfer has not stopped yet; it can change nothing any more. If this repeats, \
                         restart farsided"
                    );
                }
            }
        }
        self.rest();
    }

    pub(super) fn rest(&mut self) {
        self.ports.progress.send_replace(None);
        if self.state.work != Work::BrokenOff {
            self.state.work = Work::Idle;
        }
        self.waiting.append(&mut self.waiting_next);
        self.settle(|| Err(MirrorError::aborted()));
    }
}

/// Waits for a session until a moment that may yet be put off.
async fn link_until(
    links: &dyn Links,
    peer: PeerId,
    until: watch::Receiver<Instant>,
) -> Result<Arc<dyn PeerLink>, SessionError> {
    loop {
        let deadline = *until.borrow();
        let result = links.link(peer, deadline.saturating_duration_since(Instant::now())).await;
        if result.is_ok() || *until.borrow() <= deadline {
            return result;
        }
    }
}
