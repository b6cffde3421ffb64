//! The pinned peers in memory, and the one session of each.
//!
//! Every decision about a session is made under one lock together with the look whether its peer is still pinned: a
//! handshake that was under way when its peer was removed comes to nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::{Inner, PeerState, PeerStatus};
use crate::book::PeerRecord;
use crate::error::SessionError;
use crate::limits::CALLS_OUTSTANDING_MAX;
use crate::link::{PeerId, WireCounters};
use crate::session::{Session, Surroundings, Terms};
use crate::settle::{Candidate, Settlement, settle};
use crate::terms::Reach;
use crate::throttle::{Rate, clock};
use crate::tls::Secured;

/// By id.
pub(super) type Peers = BTreeMap<PeerId, Peer>;

pub(super) struct Peer {
    record: PeerRecord,
    session: Option<Arc<Session>>,
    state: watch::Sender<PeerState>,
    wire: Arc<WireCounters>,
    calls: Arc<Semaphore>,
    reach: watch::Sender<Reach>,
    /// Stops the task that dials.
    redial: CancellationToken,
    /// Ends its pause: somebody waits for the session.
    wanted: Arc<Notify>,
}

impl Inner {
    fn candidate(&self, terms: &Terms) -> Candidate {
        let dialler = if terms.dialled.is_some() { self.identity.id() } else { terms.peer };
        Candidate { dialler, instance: terms.instance }
    }

    /// The live session with a peer.
    pub(super) fn live(&self, peer: PeerId) -> Option<Arc<Session>> {
        let session = self.peers.lock().get(&peer)?.session.clone()?;
        (!session.is_closed()).then_some(session)
    }

    pub(super) fn watch(&self, peer: PeerId) -> Option<(watch::Receiver<PeerState>, Option<String>)> {
        let peers = self.peers.lock();
        let peer = peers.get(&peer)?;
        Some((peer.state.subscribe(), peer.record.address.clone()))
    }

    /// Dials without the rest of the pause, if there is no session; not more often than every [`REDIAL_MIN`](crate::limits::REDIAL_MIN).
    pub(super) fn hurry(&self, peer: PeerId) {
        if let Some(peer) = self.peers.lock().get(&peer).filter(|p| p.session.is_none()) {
            // Kept if it is dialling just now: that began before somebody asked.
            peer.wanted.notify_one();
        }
    }

    pub(super) fn statuses(&self) -> Vec<PeerStatus> {
        let peers = self.peers.lock();
        let status = |peer: &Peer| PeerStatus {
            record: peer.record.clone(),
            state: peer.state.borrow().clone(),
            trouble: peer.session.as_ref().filter(|session| !session.is_closed()).and_then(|s| s.trouble()),
            sent_bytes: peer.wire.sent(),
            received_bytes: peer.wire.received(),
        };
        peers.values().map(status).collect()
    }

    /// The local name of a pinned peer.
    pub(super) fn name_of(&self, peer: PeerId) -> Option<String> {
        Some(self.peers.lock().get(&peer)?.record.name.clone())
    }

    /// Whether a session on these terms would be taken; doubts the one that stands in its way.
    pub(super) fn would_take(&self, terms: &Terms) -> bool {
        let Some(old) = self.live(terms.peer) else { return true };
        let settlement =
            settle(self.identity.id(), terms.peer, self.candidate(&old.terms), self.candidate(terms));
        if settlement == Settlement::KeepOld {
            old.doubt();
        }
        settlement == Settlement::Replace
    }

    /// Makes a connection past its hello the session with its peer.
    pub(super) fn install(
        self: &Arc<Self>,
        terms: Terms,
        control: Secured,
    ) -> Result<Arc<Session>, SessionError> {
        let mut peers = self.peers.lock();
        let peer = peers.get_mut(&terms.peer).filter(|_| !self.stop.is_cancelled()).ok_or_else(|| {
            SessionError::NotAuthenticated(format!("the peer {} is no longer pinned here", terms.peer_name))
        })?;
        if let Some(old) = peer.session.as_ref().filter(|old| !old.is_closed()) {
            let (old_one, new_one) = (self.candidate(&old.terms), self.candidate(&terms));
            if settle(self.identity.id(), terms.peer, old_one, new_one) == Settlement::KeepOld {
                return Err(SessionError::AlreadyConnected);
            }
            old.close("replaced by a newer session with the same peer");
        }
        let around = Surroundings {
            dialler: self.dialler.clone(),
            service: Arc::clone(&self.service),
            random: Arc::clone(&self.random),
            tasks: self.tasks.clone(),
            peer_wire: Arc::clone(&peer.wire),
            throttles: Arc::clone(&self.throttles),
            peer_calls: Arc::clone(&peer.calls),
            reach: peer.reach.subscribe(),
            budget: Arc::clone(&self.budget),
        };
        tracing::info!(
            peer = %terms.peer_name, id = ?terms.peer, version = terms.version,
            dialled = terms.dialled.as_ref().map(tracing::field::display), "session with the peer is up"
        );
        let version = terms.version;
        let dialled_by_us = terms.dialled.is_some();
        let session = Session::start(terms, around, control);
        peer.session = Some(Arc::clone(&session));
        let now = self.clock.now();
        peer.state.send_modify(|state| {
            *state = PeerState {
                connected: true,
                since: Some(now),
                last_error: state.last_error.take(),
                rtt_seconds: None,
                version: Some(version),
                dialled_by_us,
            };
        });
        self.tasks.spawn(Arc::clone(self).attend(Arc::clone(&session)));
        Ok(session)
    }

    /// Publishes what a session measures, and its end.
    async fn attend(self: Arc<Self>, session: Arc<Session>) {
        let mut rtt = session.rtt();
        loop {
            tokio::select! {
                () = session.lost_token().cancelled() => break,
                Ok(()) = rtt.changed() => {
                    let measured = *rtt.borrow_and_update();
                    self.publish(&session, |state| state.rtt_seconds = measured);
                }
            }
        }
        let reason = session.reason();
        tracing::info!(peer = %session.terms.peer_name, id = ?session.terms.peer, "session with the peer ended: {reason}");
        let now = self.clock.now();
        self.publish(&session, |state| {
            *state = PeerState { since: Some(now), last_error: Some(reason.clone()), ..PeerState::default() };
        });
    }

    /// Changes the state of the session's peer, unless another session has taken its place.
    fn publish(&self, session: &Arc<Session>, change: impl FnOnce(&mut PeerState)) {
        let mut peers = self.peers.lock();
        let Some(peer) = peers.get_mut(&session.terms.peer) else { return };
        if !peer.session.as_ref().is_some_and(|current| Arc::ptr_eq(current, session)) {
            return;
        }
        if session.is_closed() {
            peer.session = None;
        }
        peer.state.send_modify(change);
    }

    /// Notes why there is no session; not while there is one.
    pub(super) fn note_error(&self, peer: PeerId, error: &str) {
        if let Some(peer) = self.peers.lock().get(&peer) {
            peer.state.send_if_modified(|state| {
                let news = !state.connected && state.last_error.as_deref() != Some(error);
                if news {
                    state.last_error = Some(error.to_owned());
                }
                news
            });
        }
    }

    /// Makes memory agree with the book.
    pub(super) async fn follow_book(self: &Arc<Self>) -> Result<(), SessionError> {
        let _turn = self.book_turn.lock().await;
        let records = self.book.list().await?;
        let mut peers = self.peers.lock();
        let pinned: Vec<PeerId> = records.iter().map(|r| r.id).collect();
        peers.retain(|id, peer| {
            let stays = pinned.contains(id);
            if !stays {
                peer.cut();
                self.throttles.forget(*id);
            }
            stays
        });
        for record in records {
            self.take_up(&mut peers, record);
        }
        Ok(())
    }

    /// Pins a peer in book and memory. One that is pinned anew keeps its link's terms.
    pub(super) async fn pin(self: &Arc<Self>, mut record: PeerRecord) -> Result<PeerRecord, SessionError> {
        let _turn = self.book_turn.lock().await;
        if let Some(known) = self.book.lookup(record.id).await? {
            record.link = known.link;
        }
        let record = self.book.pin(record).await?;
        let mut peers = self.peers.lock();
        self.take_up(&mut peers, record.clone());
        // A peer that was refused until now may be in a long pause.
        if let Some(peer) = peers.get_mut(&record.id).filter(|p| p.session.is_none()) {
            self.dial_now(peer);
        }
        Ok(record)
    }

    pub(super) async fn remove(&self, id: PeerId) -> Result<bool, SessionError> {
        let _turn = self.book_turn.lock().await;
        let was_pinned = self.book.unpin(id).await?;
        if let Some(peer) = self.peers.lock().remove(&id) {
            tracing::info!(peer = %peer.record.name, ?id, "peer removed");
            peer.cut();
            self.throttles.forget(id);
        }
        Ok(was_pinned)
    }

    fn take_up(self: &Arc<Self>, peers: &mut Peers, record: PeerRecord) {
        let id = record.id;
        let contracted = record.link.rate.map_or(Rate::Unlimited, Rate::contracted);
        self.throttles.set_contracted(clock(), id, contracted);
        if let Some(peer) = peers.get_mut(&id) {
            let reach = reach_of(&record);
            let moved = peer.reach.borrow().paths() != reach.paths();
            peer.record = record;
            peer.reach.send_if_modified(|known| {
                let changed = *known != reach;
                *known = reach;
                changed
            });
            if moved {
                self.dial_now(peer);
            }
            return;
        }
        let state = watch::Sender::new(PeerState::default());
        let wanted: Arc<Notify> = Arc::default();
        let reach = watch::Sender::new(reach_of(&record));
        let redial = self.keep_dialled(&record, reach.subscribe(), state.subscribe(), Arc::clone(&wanted));
        let peer = Peer {
            record,
            session: None,
            state,
            wire: Arc::default(),
            calls: Arc::new(Semaphore::new(CALLS_OUTSTANDING_MAX)),
            reach,
            redial,
            wanted,
        };
        peers.insert(id, peer);
    }

    fn dial_now(self: &Arc<Self>, peer: &mut Peer) {
        peer.redial.cancel();
        let (reach, state, wanted) =
            (peer.reach.subscribe(), peer.state.subscribe(), Arc::clone(&peer.wanted));
        peer.redial = self.keep_dialled(&peer.record, reach, state, wanted);
    }

    pub(super) fn close_all(&self, reason: &str) {
        for peer in self.peers.lock().values() {
            peer.redial.cancel();
            if let Some(session) = &peer.session {
                session.close(reason);
            }
        }
    }
}

fn reach_of(record: &PeerRecord) -> Reach {
    Reach { link: record.link.clone(), address: record.address.clone() }
}

impl Peer {
    fn cut(&self) {
        self.redial.cancel();
        if let Some(session) = &self.session {
            session.close("the peer was removed by an administrator");
        }
    }
}
