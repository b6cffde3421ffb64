//! Where the sessions with the peers are, and a call over one of them outside of a transfer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use farside_peer::{Node, PeerId, PeerLink, SessionError};
use farside_transfer::calls::call;
use farside_transfer::protocol::Body;

use crate::error::MirrorError;
use crate::limits::{ANSWER_WAIT, LOSSES_IN_A_ROW_MAX};

/// Where the sessions with the peers are. Whoever dialled.
#[async_trait]
pub trait Links: Send + Sync + 'static {
    /// The live session with `peer`; waits for one for at most `wait`. Must be cancel-safe.
    async fn link(&self, peer: PeerId, wait: Duration) -> Result<Arc<dyn PeerLink>, SessionError>;
    /// Somebody has come to wait for what waits for a session already: whoever dials does it now, not after a pause.
    fn dial_now(&self, _peer: PeerId) {}
    /// Whether nothing reaches `peer` now: there is no session, or one that is kept though none of its connections is left.
    fn is_away(&self, _peer: PeerId) -> bool {
        false
    }
    /// What `peer` is called here, for whoever reads it.
    fn name_of(&self, _peer: PeerId) -> Option<String> {
        None
    }
    /// Who this site is, as its peers call it.
    fn own_id(&self) -> Option<PeerId> {
        None
    }
}

#[async_trait]
impl Links for Node {
    async fn link(&self, peer: PeerId, wait: Duration) -> Result<Arc<dyn PeerLink>, SessionError> {
        self.wait_link(peer, wait).await
    }

    fn dial_now(&self, peer: PeerId) {
        Node::dial_now(self, peer);
    }

    fn is_away(&self, peer: PeerId) -> bool {
        self.peer(peer).is_none_or(|peer| !peer.state.connected || peer.trouble.is_some())
    }

    fn name_of(&self, peer: PeerId) -> Option<String> {
        Some(self.peer(peer)?.record.name)
    }

    fn own_id(&self) -> Option<PeerId> {
        Some(self.id())
    }
}

/// Asks the source something that it answers at once, while a person waits: `None` if it keeps a session and has not answered within
/// [`ANSWER_WAIT`]. Waits for a session for at most `wait`, and tries again as [`ask`] does.
pub(crate) async fn ask_at_once(
    links: &dyn Links,
    peer: PeerId,
    body: Body,
    wait: Duration,
) -> Result<Option<Bytes>, MirrorError> {
    // Who has no session after `wait` hears that; only what comes after it is cut short.
    let asked = tokio::time::timeout(wait + ANSWER_WAIT, ask(links, peer, body, wait));
    asked.await.ok().transpose()
}

/// Asks the source outside of a transfer; waits for a session for at most `wait`, and tries again on the next one if
/// one is lost under the question.
pub(crate) async fn ask(
    links: &dyn Links,
    peer: PeerId,
    body: Body,
    wait: Duration,
) -> Result<Bytes, MirrorError> {
    let mut losses = 0;
    loop {
        let link = links.link(peer, wait).await.map_err(MirrorError::no_session)?;
        match call(&*link, body.clone(), None).await {
            Err(error) if error.is_lost_session() && losses < LOSSES_IN_A_ROW_MAX => losses += 1,
            answer => return Ok(answer?),
        }
    }
}
