//! Begins what goes on for a mirror, and stops it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use farside_peer::{PeerId, PeerLink, SessionError};
use farside_transfer::TransferKind;
use farside_transfer::calls::call;
use farside_transfer::destination::{self as transfer, ProgressSender, Together, Transfer};
use farside_transfer::protocol::{Body, Reserve};
use farside_transfer::report::Progress;
use jiff::SignedDuration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use uuid::Uuid;

use super::Driver;
use super::activity::{Activity, Ending, Ran, Ready};
use crate::error::MirrorError;
use crate::group::Joining;
use crate::group::turn::Turn;
use crate::limits::{BREAK_PATIENCE, RESERVE_WAIT};
use crate::links::Links;
use crate::log::LogEvent;
use crate::queue::{Claim, UnderWay};
use crate::replicas::StoredReplicas;
use crate::state::{Action, Work};

impl Driver {
    pub(super) async fn carry_out(&mut self, action: Action) -> Result<(), MirrorError> {
        match action {
            Action::None | Action::Run(_) => {}
            Action::Enqueue(kind) => self.enqueue(kind),
            Action::LeaveQueue => {
                self.leave_queue();
                self.is_for_swap = false;
                self.fails_its_group("it was taken out of the queue");
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
        self.asked_at = self.parts.clock.monotonic();
        let (deadline, clock) = (self.deadline(), self.parts.clock.clone());
        self.is_asked_since = false;
        let id = self.new_id();
        let group = self.group_of(kind);
        let reserve = (kind == TransferKind::Update && group.is_none()).then(|| Reserve {
            relationship: self.relationship.id.as_bytes().to_vec(),
            transfer: id.as_bytes().to_vec(),
            volume: self.relationship.source.to_string(),
            role_change: self.relationship.role_change,
            shows: Vec::new(),
        });
        let (groups, randomness) = (self.parts.groups.clone(), self.parts.randomness.clone());
        let source = self.parts.source.clone();
        let (links, queue) = (self.parts.links.clone(), self.parts.queue.clone());
        let (peer, wait) = (self.relationship.peer, self.link_wait);
        let (until, until_rx) = watch::channel(Instant::now() + wait);
        let is_first_copy = kind == TransferKind::Initialize;
        let is_for_person = self.is_for_person;
        let mirror = self.relationship.id;
        let task = tokio::spawn(async move {
            // The session first: whoever waits for one should not keep a turn from others.
            let link = link_until(&*links, peer, until_rx).await;
            let link = link.map_err(MirrorError::no_session)?;
            let connected = clock.monotonic();
            // Before its turn as well: who waits for the others of its group takes no place from anybody.
            let turn = match group {
                None => None,
                Some(key) => {
                    let (link, source, clock, randomness) = (&*link, &*source, &*clock, &*randomness);
                    let joining = Joining { key, id: mirror, link, source, clock, randomness };
                    groups.join(joining).await?.map(|place| Turn::new(groups.clone(), place))
                }
            };
            let due = queue.due(deadline.map(|at| time_left(at, clock.monotonic())));
            let claim = Claim { peer, mirror, is_first_copy, is_for_person, due };
            // A replica that waits keeps the point in time at which it was asked for.
            let reserve = reserve.filter(|_| queue.is_full());
            let take = async {
                let asked = call(&*link, Body::Reserve(reserve?), None);
                match tokio::time::timeout(RESERVE_WAIT, asked).await {
                    Ok(Ok(_)) => Some((id, clock.monotonic())),
                    // Then it is taken when the transfer begins.
                    Ok(Err(error)) => {
                        tracing::debug!("the source takes no snapshot for a transfer that waits: {error}");
                        None
                    }
                    Err(_) => None,
                }
            };
            let (place, reserved) = tokio::join!(queue.enter(claim), take);
            Ok(Ready { place, link, connected, reserved, turn })
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
        self.note_why_before();
        // Whoever asked while it waited is served with a point that is as new as that.
        let reserved = ready.reserved.filter(|_| kind == TransferKind::Update && !self.is_asked_since);
        let turn = ready.turn.filter(|_| kind == TransferKind::Update).map(Arc::new);
        let is_older = turn.as_ref().is_some_and(|turn| turn.taken_at() < self.asked_at);
        if turn.is_some()
            && (self.is_asked_since || is_older && !self.waiting.is_empty())
            && let Work::Running { again, .. } = &mut self.state.work
        {
            // The moment of the group is older than that: who asked is served by the next one.
            *again = true;
            self.waiting_next.append(&mut self.waiting);
        }
        let taken_at = turn.as_ref().map(|turn| turn.taken_at()).or(reserved.map(|(_, at)| at));
        self.note_begun(ready.connected, taken_at);
        let id = reserved.map_or_else(|| self.new_id(), |(id, _)| id);
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
            together: turn.clone().map(|turn| turn as Arc<dyn Together>),
            cancel: cancel.clone(),
            progress: ProgressSender::new(clock, self.ports.progress.clone(), id, kind),
        };
        let mut place = Some(ready.place);
        let of_group = turn.clone();
        let cut = cancel.clone();
        self.is_aborted = false;
        let task = async move {
            let mut running = pin!(transfer::run(transfer));
            let mut gave_way = false;
            let outcome = loop {
                tokio::select! {
                    outcome = &mut running => break outcome,
                    () = is_to_give_way(place.as_ref()), if !gave_way => {
                        gave_way = true;
                        cut.cancel();
                    }
                    // What waits for its group only waits.
                    () = has_arrived(turn.as_deref()), if place.is_some() => place = None,
                }
            };
            if let Some(place) = place {
                place.end(!outcome.lost_session);
            }
            Ran { outcome, gave_way }
        };
        let task = tokio::spawn(task.in_current_span());
        self.activity = Activity::Running { task, cancel, turn: of_group };
        id
    }

    pub(in crate::relationship) fn new_id(&self) -> Uuid {
        uuid::Builder::from_random_bytes(self.parts.randomness.uuid_bytes()).into_uuid()
    }

    /// Ends whatever goes on and waits for that; the peer is not asked for anything.
    pub(crate) async fn stop(&mut self) {
        self.late_acknowledgement = None;
        self.leave_queue();
        if let Activity::Running { cancel, .. } = &self.activity {
            cancel.cancel();
            if let Ending::Ran(Ok(mut ran)) = self.activity.ended().await {
                ran.outcome.report.reason = self.why_cut(ran.outcome.report.reason.take());
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
        // Before it leaves the group, which would then publish what the others have brought.
        self.fails_its_group("its mirror was stopped");
        self.is_for_swap = false;
        self.ports.progress.send_replace(None);
        if self.state.work != Work::BrokenOff {
            self.state.work = Work::Idle;
        }
        self.waiting.append(&mut self.waiting_next);
        self.settle(|| Err(MirrorError::aborted()));
    }
}

async fn is_to_give_way(place: Option<&UnderWay>) {
    match place {
        Some(place) => place.is_to_give_way().await,
        None => std::future::pending().await,
    }
}

async fn has_arrived(turn: Option<&Turn>) {
    match turn {
        Some(turn) => turn.has_arrived.cancelled().await,
        None => std::future::pending().await,
    }
}

fn time_left(at: Duration, now: Duration) -> SignedDuration {
    let signed = |time| SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
    signed(at).saturating_sub(signed(now))
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
