//! A site on the network: it listens, dials the peers it knows, and keeps one live session with each.
//!
//! Either side may dial; both do if both know an address, and both settle on the same one of two sessions
//! (`collision.rs`). Of two living sites with one key the one that was there stays (`instances.rs`). A lost session is dialled anew, with backoff that grow and are drawn at random, for as long as the peer is pinned.
//!
//! What it guarantees: whoever has a [`PeerLink`] has a peer that was pinned here and proved its key; a
//! removed peer's sessions are cut before [`Node::remove_peer`] returns. What it does not: rights to volumes. Those the
//! [`PeerService`] checks.

mod admission;
mod answers;
mod inner;
mod newcomers;
mod pairing_requests;
mod peers;
mod redial;
mod sessions;
mod status;
mod unauthenticated;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use farside_link::limits::{ADDRESS_MAX, CLOSE_TIMEOUT};
use farside_link::{PathSpec, SocketOptions, Throttles, Transport, split_address};
use farside_platform::{Clock, Randomness};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::dial::Dialler;
use crate::error::SessionError;
use crate::hello::{Service, VERSIONS, check_name};
use crate::id::PeerId;
use crate::identity::Identity;
use crate::pairing::{Invite, OpenInvite, PairingCode, Reachable};
use crate::registry::{PeerRecord, PeerRegistry};
use crate::service::{PeerLink, PeerService};
use crate::session::SessionStats;
use crate::tls;

use inner::Inner;
pub use status::{PeerState, PeerStatus};
use unauthenticated::Unauthenticated;

/// How a node presents itself.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// This site's name for itself; its peers see it. See [`check_name`].
    pub site_name: String,
    /// Where to listen, `HOST:PORT`; `None`: this site only dials.
    pub listen: Option<String>,
    /// Where peers should dial this site, if not at the address it comes from; `HOST:PORT`.
    pub advertise: Option<String>,
    /// Protocol versions to speak; a part of [`VERSIONS`] outside of tests.
    pub versions: RangeInclusive<u16>,
    /// Meets nobody: peers stay pinned, none is dialled, and there is no pairing. Whoever sets it does not listen either.
    pub isolated: bool,
    /// Whose sessions these are. Whoever dials in for another service is refused and told so.
    pub service: Service,
}

impl NodeConfig {
    /// A site of this name that does not listen, for storage.
    pub fn new(site_name: impl Into<String>) -> Self {
        NodeConfig {
            site_name: site_name.into(),
            listen: None,
            advertise: None,
            versions: VERSIONS,
            isolated: false,
            service: Service::Storage,
        }
    }
}

/// What a node uses of its site.
pub struct NodeParts {
    /// Who we are.
    pub identity: Identity,
    /// The network.
    pub transport: Arc<dyn Transport>,
    /// Who is pinned.
    pub registry: Arc<dyn PeerRegistry>,
    /// What we do for peers.
    pub service: Arc<dyn PeerService>,
    /// Time for records and for the life of invitations; time limits of connections go by tokio's clock.
    pub clock: Arc<dyn Clock>,
    /// For ids, tokens, jitter: must be fit for secrets outside of tests.
    pub random: Arc<dyn Randomness>,
}

/// A running node. Clones are the same node; it runs until [`Node::shutdown`].
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

impl Node {
    /// Reads the registry, listens, and starts to dial.
    ///
    /// # Errors
    /// [`SessionError::Local`] if the configuration is unfit, the address cannot be listened at, or the registry
    /// cannot be read.
    pub async fn start(config: NodeConfig, parts: NodeParts) -> Result<Node, SessionError> {
        let NodeParts { identity, transport, registry, service, clock, random } = parts;
        check_name(&config.site_name).map_err(SessionError::Local)?;
        if config.versions.is_empty() || *config.versions.start() == 0 {
            return Err(SessionError::Local("no protocol version to speak".to_owned()));
        }
        if let Some(advertise) = &config.advertise
            && (advertise.len() > ADDRESS_MAX || split_address(advertise).is_none())
        {
            return Err(SessionError::Local(format!("{advertise} is not an address of the form HOST:PORT")));
        }
        if config.isolated && config.listen.is_some() {
            return Err(SessionError::Local(
                "a site that runs isolated does not listen for peers".to_owned(),
            ));
        }
        let listener = match &config.listen {
            None => None,
            Some(address) => {
                let failed = |e| SessionError::Local(format!("cannot listen for peers at {address}: {e}"));
                Some(transport.listen(address, &SocketOptions::default()).await.map_err(failed)?)
            }
        };
        let listen_address = listener.as_ref().map(|d| d.address());
        let port = listen_address.as_deref().and_then(split_address).map_or(0, |(_, port)| port);
        let dialler = Dialler {
            transport,
            identity: identity.clone(),
            versions: config.versions,
            instance: random.uuid_bytes(),
            site_name: config.site_name,
            service: config.service,
        };
        let inner = Arc::new(Inner {
            acceptor: tls::acceptor(&identity)?,
            identity,
            dialler,
            registry,
            registry_lock: tokio::sync::Mutex::default(),
            service,
            unauthenticated: Unauthenticated::new(Arc::clone(&clock)),
            clock,
            random,
            peers: Mutex::default(),
            invites: Mutex::default(),
            failures: Mutex::default(),
            throttles: Arc::default(),
            listen_address,
            isolated: config.isolated,
            reachable: Reachable { advertised: config.advertise.unwrap_or_default(), port: u32::from(port) },
            budget: Arc::default(),
            started: Instant::now(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        inner.follow_registry().await?;
        if let Some(listener) = listener {
            inner.tasks.spawn(admission::accept_connections(Arc::clone(&inner), listener));
        }
        Ok(Node { inner })
    }

    /// The limits of this site and its peers; open until somebody sets them.
    pub fn throttles(&self) -> &Throttles<PeerId> {
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
        self.inner.dial_peer_now(peer);
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
    pub fn dial_now(&self, peer: PeerId) {
        self.inner.dial_peer_now(peer);
    }

    /// Follows the state of the session with a peer; ends when the peer is removed. `None`: not pinned.
    pub fn watch(&self, peer: PeerId) -> Option<watch::Receiver<PeerState>> {
        self.inner.watch(peer).map(|(state, _)| state)
    }

    /// All pinned peers, by id.
    pub fn peers(&self) -> Vec<PeerStatus> {
        self.inner.statuses()
    }

    /// One of them; `None` if it is not paired.
    pub fn peer(&self, peer: PeerId) -> Option<PeerStatus> {
        self.inner.status_of(peer)
    }

    /// How the link to a peer goes; `None` without a session.
    pub fn link_stats(&self, peer: PeerId) -> Option<SessionStats> {
        self.inner.live(peer).map(|session| session.stats())
    }

    /// Paths that were dialled in the present session with a peer, and could not be at the last attempt, each with why not; those that
    /// single streams have of their own among them. `None`: there is no session.
    pub fn dial_troubles(&self, peer: PeerId) -> Option<Vec<(PathSpec, String)>> {
        self.inner.live(peer).map(|session| session.dial_troubles())
    }

    /// Opens an invitation that is good once, for `valid`. A restart of the node withdraws it.
    ///
    /// # Errors
    /// [`SessionError::Local`] if this site does not listen, or too many invitations are open.
    pub fn invite(&self, valid: Duration) -> Result<Invite, SessionError> {
        self.inner.invite(valid)
    }

    /// Invitations that can still be used, oldest first.
    pub fn open_invites(&self) -> Vec<OpenInvite> {
        self.inner.invites.lock().open_ones(self.inner.clock.monotonic())
    }

    /// Takes an invitation back that is called `id`; `None` if no open one is.
    pub fn cancel_invite(&self, id: &str) -> Option<OpenInvite> {
        self.inner.invites.lock().cancel(id, self.inner.clock.monotonic())
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
    pub(crate) fn unauthenticated_inside(&self) -> usize {
        self.inner.unauthenticated.inside()
    }

    /// Unpins a peer and cuts its sessions; whether it was pinned.
    ///
    /// # Errors
    /// What the registry says; then nothing has changed.
    pub async fn remove_peer(&self, peer: PeerId) -> Result<bool, SessionError> {
        self.inner.remove(peer).await
    }

    /// Cuts the sessions of a peer that the owner of the registry has unpinned there. The registry is not asked: it may not be able
    /// to answer just now.
    pub async fn forget_peer(&self, peer: PeerId) {
        let _guard = self.inner.registry_lock.lock().await;
        self.inner.forget(peer);
    }

    /// Takes up changes that the owner of the registry has made to it: new addresses and names, peers added or removed.
    ///
    /// # Errors
    /// What the registry says; then nothing has changed.
    pub async fn registry_changed(&self) -> Result<(), SessionError> {
        self.inner.follow_registry().await
    }

    /// Takes leave of every peer and stops. Calls that a service is still working on are waited for briefly.
    pub async fn shutdown(&self) {
        self.inner.stop.cancel();
        self.inner.close_all("the site is shutting down");
        self.inner.tasks.close();
        if timeout(2 * CLOSE_TIMEOUT, self.inner.tasks.wait()).await.is_err() {
            tracing::warn!(
                tasks = self.inner.tasks.len(),
                "stopped without waiting for work that peers had asked for"
            );
        }
    }
}
