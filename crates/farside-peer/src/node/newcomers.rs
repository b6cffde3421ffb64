//! A process that comes with the key of a pinned peer while there is a session with that peer, or was one of late
//! ([`instances`](crate::instances)).

use std::sync::Arc;

use farside_link::split_address;

use super::inner::{Inner, Peer};
use crate::collision::{Resolution, resolve};
use crate::error::{SITES_WITH_ONE_KEY, SessionError};
use crate::instances::{Meeting, Outcome, outcome};
use crate::limits::OTHER_SITE_LINES_EVERY;
use crate::session::SessionInfo;

/// Why a newcomer is not taken.
pub(super) enum NotTaken {
    /// The present session stays, or has to be doubted first: it may try again.
    AlreadyConnected,
    /// Another living site has the peer's key, and is the peer.
    KeyInUse {
        /// Where that one connects from.
        followed_from: String,
    },
}

impl NotTaken {
    /// The same for the side that has dialled the newcomer.
    pub(super) fn into_error(self, address: &str) -> SessionError {
        match self {
            NotTaken::AlreadyConnected => SessionError::AlreadyConnected,
            NotTaken::KeyInUse { followed_from } => SessionError::KeyInUse(format!(
                "another living site uses this peer's key: it answers at {address}; this site goes on with the one at \
                 {followed_from}. {SITES_WITH_ONE_KEY}"
            )),
        }
    }
}

impl Inner {
    /// Whether such a session would be taken. Answers with the id of the live session that it may replace though that is another
    /// process's: that one was asked, and did not answer. Waits for its answer, for
    /// [`ANSWER_MOVING_MAX`](crate::limits::ANSWER_MOVING_MAX) at most.
    pub(super) async fn judge(&self, info: &SessionInfo) -> Result<Option<[u8; 16]>, NotTaken> {
        let (live, _asking) = {
            let mut peers = self.peers.lock();
            // Whoever is not pinned any more is refused when the session is to be made.
            let Some(peer) = peers.get_mut(&info.peer) else { return Ok(None) };
            let live = peer.session.clone().filter(|session| !session.is_closed());
            let instance = live.as_ref().map(|live| live.info.instance);
            match (peer.instances.meet(instance, info.instance, self.up()), live) {
                (Meeting::SameProcess, Some(live)) => {
                    let (old, new) = (self.dialler_of(&live.info), self.dialler_of(info));
                    if resolve(self.identity.id(), info.peer, old, new) == Resolution::Replace {
                        return Ok(None);
                    }
                    live.suspect();
                    return Err(NotTaken::AlreadyConnected);
                }
                (Meeting::Refuse, _) => return Err(self.refuse_other_site(peer, info)),
                (Meeting::Ask, Some(live)) => {
                    // One question at a time; whoever comes meanwhile comes again.
                    let asking = Arc::clone(&peer.asking).try_lock_owned();
                    (live, asking.map_err(|_| NotTaken::AlreadyConnected)?)
                }
                (Meeting::Take | Meeting::SameProcess | Meeting::Ask, _) => return Ok(None),
            }
        };
        tracing::debug!(
            peer = %info.peer_name, id = ?info.peer, from = from(info),
            "another process with the peer's key wants a session; the present one is asked first"
        );
        match outcome(live.ask().await) {
            Outcome::Take => Ok(Some(live.info.id)),
            Outcome::Later => Err(NotTaken::AlreadyConnected),
            Outcome::Refuse => match self.peers.lock().get_mut(&info.peer) {
                Some(peer) => Err(self.refuse_other_site(peer, info)),
                None => Ok(None),
            },
        }
    }

    /// Another process than the peer's is refused, and remembered.
    pub(super) fn refuse_other_site(&self, peer: &mut Peer, info: &SessionInfo) -> NotTaken {
        let now = self.up();
        let is_news = peer.instances.refuse(info.instance, from(info), now);
        let is_silent =
            peer.other_site_said.is_some_and(|at| now.saturating_sub(at) < OTHER_SITE_LINES_EVERY);
        if is_news
            && !is_silent
            && let Some(text) = self.other_site(peer)
        {
            peer.other_site_said = Some(now);
            tracing::warn!(peer = %info.peer_name, id = ?info.peer, "{text}");
        }
        NotTaken::KeyInUse { followed_from: peer.instances.followed_from().to_owned() }
    }

    /// That another living site has the peer's key, for status and log.
    pub(super) fn other_site(&self, peer: &Peer) -> Option<String> {
        let other = peer.instances.other(self.up())?;
        Some(format!(
            "another living site uses this peer's key: it connects from {}, and is refused; this site goes on with the one \
             at {}. {SITES_WITH_ONE_KEY}",
            other.from,
            peer.instances.followed_from()
        ))
    }
}

/// The host at the other end of a session.
pub(super) fn from(info: &SessionInfo) -> String {
    match &info.dialled {
        Some(path) => split_address(&path.remote).map_or(path.remote.as_str(), |(host, _)| host).to_owned(),
        // It has no port.
        None => info.first.remote.clone(),
    }
}
