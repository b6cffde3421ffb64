//! The one session of each pinned peer.
//!
//! Every decision about a session is made under one lock together with the look whether its peer is still pinned: a
//! handshake that was under way when its peer was removed comes to nothing.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;

use super::inner::{Inner, Peer, Peers};
use super::newcomers::from;
use super::status::{PeerState, PeerStatus};
use crate::collision::{Resolution, resolve};
use crate::error::SessionError;
use crate::id::PeerId;
use crate::session::{Measured, Session, SessionContext, SessionInfo, apart};
use crate::tls::{self, Secured};

/// The session's peer, unless another session has taken its place.
fn with<'a>(peers: &'a mut Peers, session: &Arc<Session>) -> Option<&'a mut Peer> {
    let peer = peers.get_mut(&session.info.peer)?;
    peer.session.as_ref().is_some_and(|current| Arc::ptr_eq(current, session)).then_some(peer)
}

impl Inner {
    pub(super) fn dialler_of(&self, info: &SessionInfo) -> PeerId {
        if info.dialled.is_some() { self.identity.id() } else { info.peer }
    }

    /// Time since the node started.
    pub(super) fn up(&self) -> Duration {
        self.started.elapsed()
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

    /// Dials without the rest of the pause, if there is no session; not more often than every [`REDIAL_MIN`](farside_link::limits::REDIAL_MIN).
    pub(super) fn dial_peer_now(&self, peer: PeerId) {
        if let Some(peer) = self.peers.lock().get(&peer).filter(|p| p.session.is_none()) {
            // Kept if it is dialling just now: that began before somebody asked.
            peer.wanted.notify_one();
        }
    }

    pub(super) fn statuses(&self) -> Vec<PeerStatus> {
        self.peers.lock().values().map(|peer| self.status(peer)).collect()
    }

    /// One of them. Whoever asks for each of many mirrors copies no more than its peer.
    pub(super) fn status_of(&self, id: PeerId) -> Option<PeerStatus> {
        self.peers.lock().get(&id).map(|peer| self.status(peer))
    }

    fn status(&self, peer: &Peer) -> PeerStatus {
        let state = peer.state.borrow().clone();
        let heard_at = peer.session.as_ref().map(|session| session.heard_at());
        PeerStatus {
            record: peer.record.clone(),
            state: PeerState { heard_at: heard_at.or(state.heard_at), ..state },
            hindrance: peer
                .session
                .as_ref()
                .filter(|session| !session.is_closed())
                .and_then(|s| s.hindrance()),
            trouble: peer.session.as_ref().filter(|session| !session.is_closed()).and_then(|s| s.trouble()),
            silent_for: peer
                .session
                .as_ref()
                .filter(|session| !session.is_closed())
                .and_then(|s| s.silent_for()),
            other_site: self.other_site(peer),
            key_conflicts: peer.instances.refusals() + peer.refused_for_its_key.load(Ordering::Relaxed),
            sent_bytes: peer.wire.sent(),
            received_bytes: peer.wire.received(),
        }
    }

    /// The local name of a pinned peer.
    pub(super) fn name_of(&self, peer: PeerId) -> Option<String> {
        Some(self.peers.lock().get(&peer)?.record.name.clone())
    }

    /// Makes a connection past its hello, and [judged](Self::judge), the session with its peer. `replaces`: the session of another
    /// process that may go for it.
    ///
    /// # Errors
    /// [`SessionError::AlreadyConnected`] if another session came since it was judged, or [`SessionError::NotAuthenticated`] if the
    /// peer was removed.
    pub(super) fn install(
        self: &Arc<Self>,
        info: SessionInfo,
        control: Secured,
        replaces: Option<[u8; 16]>,
    ) -> Result<Arc<Session>, SessionError> {
        let mut peers = self.peers.lock();
        let peer = peers.get_mut(&info.peer).filter(|_| !self.stop.is_cancelled()).ok_or_else(|| {
            SessionError::NotAuthenticated(format!("the peer {} is no longer pinned here", info.peer_name))
        })?;
        if let Some(old) = peer.session.as_ref().filter(|old| !old.is_closed()) {
            let (old_one, new_one) = (self.dialler_of(&old.info), self.dialler_of(&info));
            let stays = if old.info.instance == info.instance {
                resolve(self.identity.id(), info.peer, old_one, new_one) == Resolution::KeepOld
            } else {
                replaces != Some(old.info.id)
            };
            if stays {
                return Err(SessionError::AlreadyConnected);
            }
            old.close("replaced by a newer session with the same peer");
        }
        let context = SessionContext {
            dialler: self.dialler.clone(),
            service: Arc::clone(&self.service),
            random: Arc::clone(&self.random),
            clock: Arc::clone(&self.clock),
            tasks: self.tasks.clone(),
            peer_wire: Arc::clone(&peer.wire),
            throttles: Arc::clone(&self.throttles),
            peer_calls: Arc::clone(&peer.calls),
            reach: peer.reach.subscribe(),
            packets: Arc::clone(&peer.packets),
            budget: Arc::clone(&self.budget),
        };
        tracing::info!(
            peer = %info.peer_name, id = ?info.peer, version = info.version,
            dialled = info.dialled.as_ref().map(tracing::field::display), "session with the peer is up"
        );
        peer.instances.follow(info.instance, from(&info));
        let version = info.version;
        let dialled_by_us = info.dialled.is_some();
        let session = Session::start(info, context, control);
        peer.session = Some(Arc::clone(&session));
        let now = self.clock.now();
        peer.state.send_modify(|state| {
            *state = PeerState {
                connected: true,
                since: Some(now),
                heard_at: Some(now),
                last_error: state.last_error.take(),
                rtt_seconds: None,
                clock_ahead_seconds: state.clock_ahead_seconds,
                version: Some(version),
                dialled_by_us,
            };
        });
        self.tasks.spawn(Arc::clone(self).watch_session(Arc::clone(&session)));
        Ok(session)
    }

    /// Publishes what a session measures, and its end.
    async fn watch_session(self: Arc<Self>, session: Arc<Session>) {
        let mut measured = session.measured();
        let mut were_apart = false;
        loop {
            tokio::select! {
                () = session.lost_token().cancelled() => break,
                Ok(()) = measured.changed() => {
                    let Some(measured) = *measured.borrow_and_update() else { continue };
                    self.publish_measured(&session, measured);
                    let ahead = apart(measured.ahead_seconds, Some(measured.rtt_seconds));
                    // Once a session: it is measured every two seconds.
                    if let (Some(ahead_seconds), false) = (ahead, were_apart) {
                        tracing::warn!(
                            peer = %session.info.peer_name, ahead_seconds,
                            "the clocks of this site and the peer differ; synchronise both (NTP)"
                        );
                        were_apart = true;
                    }
                }
            }
        }
        let reason = session.reason();
        tracing::info!(peer = %session.info.peer_name, id = ?session.info.peer, "session with the peer ended: {reason}");
        self.publish_end(&session, reason);
    }

    fn publish_measured(&self, session: &Arc<Session>, measured: Measured) {
        let mut peers = self.peers.lock();
        if let Some(peer) = with(&mut peers, session) {
            peer.state.send_modify(|state| {
                state.rtt_seconds = Some(measured.rtt_seconds);
                state.clock_ahead_seconds = measured.ahead_seconds;
            });
        }
    }

    /// The peer has no session any more: whoever dials it waits for that. Nothing else may take the session away, or that would
    /// never be said, and the peer never dialled again.
    fn publish_end(&self, session: &Arc<Session>, reason: String) {
        let heard_at = session.heard_at();
        let mut peers = self.peers.lock();
        let Some(peer) = with(&mut peers, session) else { return };
        peer.session = None;
        peer.instances.ended(self.up());
        peer.state.send_modify(|state| {
            *state = PeerState {
                since: Some(heard_at),
                heard_at: Some(heard_at),
                last_error: Some(reason),
                clock_ahead_seconds: state.clock_ahead_seconds,
                ..PeerState::default()
            };
        });
    }

    /// Has the session with this peer end just as a measurement of it arrives.
    #[cfg(test)]
    fn end_while_measuring(&self, peer: PeerId) {
        let session = self.live(peer).expect("there is a session");
        session.close("it ends as it is measured");
        self.publish_measured(&session, Measured { rtt_seconds: 0.001, ahead_seconds: None });
    }

    /// This site was refused because another has its key.
    pub(super) fn count_key_in_use(&self, peer: PeerId) {
        if let Some(peer) = self.peers.lock().get(&peer) {
            peer.refused_for_its_key.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes why there is no session; not while there is one.
    pub(super) fn note_error(&self, peer: PeerId, error: &str) {
        let peers = self.peers.lock();
        if let Some(found) = peers.get(&peer) {
            let others =
                peers.iter().filter(|(id, _)| **id != peer).map(|(id, other)| (*id, &*other.record.name));
            let error = named_as_well(error, &found.record.name, others);
            found.state.send_if_modified(|state| {
                let news = !state.connected && state.last_error.as_deref() != Some(&*error);
                if news {
                    state.last_error = Some(error.into_owned());
                }
                news
            });
        }
    }
}

/// What is said of the key that answers where `name` was expected, if another peer here has it: as a rule the site was set up anew and
/// paired again, and is here twice.
fn named_as_well<'a>(
    error: &'a str,
    name: &str,
    mut others: impl Iterator<Item = (PeerId, &'a str)>,
) -> Cow<'a, str> {
    let has_answered = |(id, _): &(PeerId, &str)| tls::is_answered_by(error, *id);
    match others.find(has_answered) {
        None => Cow::Borrowed(error),
        Some((_, other)) => Cow::Owned(format!(
            "{error}. That key is peer {other}'s here. If it is the same site with another key now: farside peer rekey {name} {other}. If \
             not, this is the address of {other}: farside peer set {name} --address HOST:PORT"
        )),
    }
}

#[cfg(test)]
impl super::Node {
    /// Has the session with this peer end just as a measurement of it arrives.
    pub(crate) fn end_while_measuring(&self, peer: PeerId) {
        self.inner.end_while_measuring(peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_another_peer_here_has_is_called_by_its_name() {
        let (old, new) = (PeerId([1; 32]), PeerId([2; 32]));
        let error = format!("x:1 is not the site it should be: {}", tls::wrong_key(old, new));
        let peers = || [(PeerId([3; 32]), "west"), (new, "south2")].into_iter();
        let said = named_as_well(&error, "south", peers());
        assert!(said.starts_with(&error) && said.contains("farside peer rekey south south2"), "{said}");
        // A key that nobody here has, and any other error, are said as they are.
        assert_eq!(named_as_well(&error, "south", peers().take(1)), error);
        assert_eq!(named_as_well("connection refused", "south", peers()), "connection refused");
    }
}
