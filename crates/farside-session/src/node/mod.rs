//! A site on the network: it listens, dials the peers it knows, and keeps one live session with each.
//!
//! Either side may dial; both do if both know an address, and both settle on the same one of two sessions
//! (`settle.rs`). A lost session is dialled anew, with pauses that grow and are drawn at random, for as long as the peer is pinned.
//!
//! What it guarantees: whoever has a [`PeerLink`] has a peer that was pinned here and proved its key; a
//! removed peer's sessions are cut before [`Node::remove_peer`] returns. What it does not: rights to volumes. Those the
//! [`PeerService`] checks.

mod door;
mod guests;
mod peers;
mod redial;
mod strangers;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use farside_platform::{Clock, Randomness, Timestamp};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::book::{PeerBook, PeerRecord};
use crate::bundle::WindowBudget;
use crate::dial::Dialler;
use crate::error::SessionError;
use crate::hello::{VERSIONS_SPOKEN, check_name};
use crate::identity::Identity;
use crate::limits::{ADDRESS_MAX, FAREWELL_TIMEOUT};
use crate::link::{PeerId, PeerLink, PeerService};
use crate::pairing::{Failures, Invite, Invites, PairingCode, Reachable};
use crate::session::SessionFigures;
use crate::throttle::Throttles;
use crate::tls;
use crate::transport::{SocketTerms, Transport, split_address};

use peers::Peers;
use strangers::Strangers;

/// How a node presents itself.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// This site's name for itself; its peers see it. See [`check_name`].
    pub site_name: String,
    /// Where to listen, `HOST:PORT`; `None`: this site only dials.
    pub listen: Option<String>,
    /// Where peers should dial this site, if not at the address it comes from; `HOST:PORT`.
    pub advertise: Option<String>,
    /// Protocol versions to speak; a part of [`VERSIONS`](crate::hello::VERSIONS) outside of tests.
    pub versions: RangeInclusive<u16>,
}

impl NodeConfig {
    /// A site of this name that does not listen.
    pub fn new(site_name: impl Into<String>) -> Self {
        NodeConfig { site_name: site_name.into(), listen: None, advertise: None, versions: VERSIONS_SPOKEN }
    }
}

/// What a node uses of its site.
pub struct NodeParts {
    /// Who we are.
    pub identity: Identity,
    /// The network.
    pub transport: Arc<dyn Transport>,
    /// Who is pinned.
    pub book: Arc<dyn PeerBook>,
    /// What we do for peers.
    pub service: Arc<dyn PeerService>,
    /// Time for records and for the life of invitations; time limits of connections go by tokio's clock.
    pub clock: Arc<dyn Clock>,
    /// For ids, tokens, jitter: must be fit for secrets outside of tests.
    pub random: Arc<dyn Randomness>,
}

/// The session with one peer, for status.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PeerState {
    /// Whether a session is live.
    pub connected: bool,
    /// Since when it is, or is not; `None`: never connected since the node started.
    pub since: Option<Timestamp>,
    /// Why there is none, or why the one before ended.
    pub last_error: Option<String>,
    /// Round-trip time as last measured, seconds.
    pub rtt_seconds: Option<f64>,
    /// The protocol version of the session.
    pub version: Option<u16>,
    /// Whether this side dialled it.
    pub dialled_by_us: bool,
}

/// A peer, its session, and what its sockets have carried since the node started (TLS included), bytes.
#[derive(Clone, PartialEq, Debug)]
pub struct PeerStatus {
    /// As pinned.
    pub record: PeerRecord,
    /// As of now.
    pub state: PeerState,
    /// Why a peer with a session does not answer: all connections of its control stream have ended. It is dialled again, by
    /// whichever side does that, and the session goes on if that succeeds before it is given up.
    pub trouble: Option<String>,
    /// To it.
    pub sent_bytes: u64,
    /// From it.
    pub received_bytes: u64,
}

/// A running node. Clones are the same node; it runs until [`Node::shutdown`].
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    identity: Identity,
    acceptor: TlsAcceptor,
    dialler: Dialler,
    book: Arc<dyn PeerBook>,
    /// One change of the book at a time, so that book and memory agree.
    book_turn: tokio::sync::Mutex<()>,
    service: Arc<dyn PeerService>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Randomness>,
    peers: Mutex<Peers>,
    invites: Mutex<Invites>,
    failures: Mutex<Failures>,
    strangers: Arc<Strangers>,
    throttles: Arc<Throttles>,
    listen_address: Option<String>,
    /// What a pairing tells the other side.
    reachable: Reachable,
    /// What the windows of all bundles share.
    budget: Arc<WindowBudget>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Node {
    /// Reads the book, listens, and starts to dial.
    ///
    /// # Errors
    /// [`SessionError::Local`] if the configuration is unfit, the address cannot be listened at, or the book
    /// cannot be read.
    pub async fn start(config: NodeConfig, parts: NodeParts) -> Result<Node, SessionError> {
        let NodeParts { identity, transport, book, service, clock, random } = parts;
        check_name(&config.site_name).map_err(SessionError::Local)?;
        if config.versions.is_empty() || *config.versions.start() == 0 {
            return Err(SessionError::Local("no protocol version to speak".to_owned()));
        }
        if let Some(advertise) = &config.advertise
            && (advertise.len() > ADDRESS_MAX || split_address(advertise).is_none())
        {
            return Err(SessionError::Local(format!("{advertise} is not an address of the form HOST:PORT")));
        }
        let door = match &config.listen {
            None => None,
            Some(address) => {
                let failed = |e| SessionError::Local(format!("cannot listen for peers at {address}: {e}"));
                Some(transport.listen(address, &SocketTerms::default()).await.map_err(failed)?)
            }
        };
        let listen_address = door.as_ref().map(|d| d.address());
        let port = listen_address.as_deref().and_then(split_address).map_or(0, |(_, port)| port);
        let dialler = Dialler {
            transport,
            identity: identity.clone(),
            versions: config.versions,
            instance: random.uuid_bytes(),
            site_name: config.site_name,
        };
        let inner = Arc::new(Inner {
            acceptor: tls::acceptor(&identity)?,
            identity,
            dialler,
            book,
            book_turn: tokio::sync::Mutex::default(),
            service,
            strangers: Strangers::new(Arc::clone(&clock)),
            clock,
            random,
            peers: Mutex::default(),
            invites: Mutex::default(),
            failures: Mutex::default(),
            throttles: Arc::default(),
            listen_address,
            reachable: Reachable { advertised: config.advertise.unwrap_or_default(), port: u32::from(port) },
            budget: Arc::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        inner.follow_book().await?;
        if let Some(door) = door {
            inner.tasks.spawn(door::keep_open(Arc::clone(&inner), door));
        }
        Ok(Node { inner })
    }

    /// The limits of this site and its peers; open until somebody sets them.
    pub fn throttles(&self) -> &Throttles {
        &self.inner.throttles
    }

    /// This site's id.
    pub fn id(&self) -> PeerId {
        self.inner.identity.id()
    }

    /// Where it listens, with the real port.
    pub fn listen_address(&self) -> Option<&str> {
        self.inner.listen_address.as_deref()
    }

    /// The live session with a peer.
    pub fn link(&self, peer: PeerId) -> Option<Arc<dyn PeerLink>> {
        self.inner.live(peer).map(|session| session as Arc<dyn PeerLink>)
    }

    /// The live session with a peer, awaited for up to `patience`. Dials at once if a pause between dials is on.
    ///
    /// # Errors
    /// [`SessionError::NotAuthenticated`] if the peer is not pinned, [`SessionError::Unreachable`] with the last
    /// error if no session came about in time.
    pub async fn wait_link(
        &self,
        peer: PeerId,
        patience: Duration,
    ) -> Result<Arc<dyn PeerLink>, SessionError> {
        let not_pinned =
            || SessionError::NotAuthenticated(format!("no peer with the key {peer} is pinned here"));
        let (mut state, address) = self.inner.watch(peer).ok_or_else(not_pinned)?;
        self.inner.hurry(peer);
        let wait = async {
            loop {
                if let Some(link) = self.link(peer) {
                    return Ok(link);
                }
                state.changed().await.map_err(|_| not_pinned())?;
            }
        };
        match timeout(patience, wait).await {
            Ok(link) => link,
            Err(_) => {
                let (state, _) = self.inner.watch(peer).ok_or_else(not_pinned)?;
                let last_error = state.borrow().last_error.clone();
                Err(SessionError::Unreachable {
                    address: address.unwrap_or_else(|| "the peer, which has to dial this site".to_owned()),
                    reason: last_error.unwrap_or_else(|| "no session yet".to_owned()),
                })
            }
        }
    }

    /// Somebody waits for a session with `peer`: it is dialled without the rest of a pause between two attempts.
    pub fn hurry(&self, peer: PeerId) {
        self.inner.hurry(peer);
    }

    /// Follows the state of the session with a peer; ends when the peer is removed. `None`: not pinned.
    pub fn watch(&self, peer: PeerId) -> Option<watch::Receiver<PeerState>> {
        self.inner.watch(peer).map(|(state, _)| state)
    }

    /// All pinned peers, by id.
    pub fn peers(&self) -> Vec<PeerStatus> {
        self.inner.statuses()
    }

    /// How the link to a peer goes; `None` without a session.
    pub fn link_figures(&self, peer: PeerId) -> Option<SessionFigures> {
        self.inner.live(peer).map(|session| session.figures())
    }

    /// Opens an invitation that is good once, for `valid`. A restart of the node withdraws it.
    ///
    /// # Errors
    /// [`SessionError::Local`] if this site does not listen, or too many invitations are open.
    pub fn invite(&self, valid: Duration) -> Result<Invite, SessionError> {
        self.inner.invite(valid)
    }

    /// Accepts the invitation `code` of the site at `address`; both sites then have pinned each other. The peer is
    /// called `local_name` here, or as it calls itself.
    ///
    /// # Errors
    /// Nothing is pinned here after any error. [`SessionError::NotAuthenticated`] if another key than the inviter's answers,
    /// [`SessionError::Refused`] if the invitation is wrong, expired or used,
    /// [`SessionError::Unreachable`], [`SessionError::Version`], [`SessionError::Lost`].
    pub async fn join(
        &self,
        address: &str,
        code: &PairingCode,
        local_name: Option<&str>,
    ) -> Result<PeerRecord, SessionError> {
        self.inner.join(address, code, local_name).await
    }

    /// Connections that have not shown a known key yet.
    #[cfg(test)]
    pub(crate) fn strangers_inside(&self) -> usize {
        self.inner.strangers.inside()
    }

    /// Unpins a peer and cuts its sessions; whether it was pinned.
    ///
    /// # Errors
    /// What the book says; then nothing has changed.
    pub async fn remove_peer(&self, peer: PeerId) -> Result<bool, SessionError> {
        self.inner.remove(peer).await
    }

    /// Takes up changes that the owner of the book has made to it: new addresses and names, peers added or removed.
    ///
    /// # Errors
    /// What the book says; then nothing has changed.
    pub async fn book_changed(&self) -> Result<(), SessionError> {
        self.inner.follow_book().await
    }

    /// Takes leave of every peer and stops. Calls that a service is still working on are waited for briefly.
    pub async fn shutdown(&self) {
        self.inner.stop.cancel();
        self.inner.close_all("the site is shutting down");
        self.inner.tasks.close();
        if timeout(2 * FAREWELL_TIMEOUT, self.inner.tasks.wait()).await.is_err() {
            tracing::warn!(
                tasks = self.inner.tasks.len(),
                "stopped without waiting for work that peers had asked for"
            );
        }
    }
}
