//! What all parts of an accelerator share, and what becomes of a connection that begins here.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside_peer::{Node, PeerId};
use farside_platform::Randomness;
use ipnet::IpNet;
use parking_lot::{Mutex, RwLock};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::carry::{self, End};
use crate::connections::{Connections, Record};
use crate::control;
use crate::discovery::{Behind, Discovery, Way};
use crate::figures;
use crate::flow::{Flow, Windows};
use crate::kernel::{Carried, Kept, Origin};
use crate::policy::{Action, Demotion, Ends, Policies, Policy, WrittenPolicy, WrittenPolicyError};
use crate::protocol::{Nonce, Opened};
use crate::rules::{Bridge, Place};
use crate::store::Store;
use crate::trunk::{Cores, Trunk};

use super::placement::Placement;
use super::probes::ProbeSender;
use super::served::Served;
use super::under_way::Prepositions;

/// Bytes of connections that may wait in this process, besides 32 KiB for each.
pub(super) const WINDOWS_BUDGET: u64 = 256 << 20;

/// A peer as the site knows it.
#[derive(Debug)]
pub(super) struct KnownPeer {
    pub(super) name: String,
    pub(super) address: Option<String>,
    pub(super) subnets: Vec<IpNet>,
    pub(super) stop: CancellationToken,
    /// The trunk that this box opened, while it can be used.
    pub(super) trunk: Option<Arc<Trunk>>,
    pub(super) error: Option<String>,
    /// When its trunk came or went.
    pub(super) since: Instant,
}

/// A forward whose port is listened at.
pub(super) struct OpenForward {
    pub(super) forward: control::Forward,
    pub(super) stop: CancellationToken,
    pub(super) accepting: JoinHandle<Option<()>>,
}

/// See the head of the module. Clones share one accelerator.
pub struct Accelerator {
    pub(super) node: Node,
    pub(super) policies: RwLock<Arc<Policies>>,
    /// Connections, for status.
    pub connections: Arc<Connections>,
    pub(super) windows: Arc<Windows>,
    pub(super) store: Option<Arc<Store>>,
    pub(super) cores: Arc<Cores>,
    pub(super) random: Arc<dyn Randomness>,
    pub(super) interception: Option<control::Interception>,
    /// The bridge that this box is, if it is inline.
    pub(super) bridge: Option<Bridge>,
    pub(super) forward_to: Vec<String>,
    pub(super) peers: Mutex<HashMap<PeerId, KnownPeer>>,
    pub(super) discovery: Mutex<Discovery>,
    pub(super) surroundings: Mutex<Surroundings>,
    pub(super) served: Served,
    pub(super) probes: Option<ProbeSender>,
    /// At which side an address is; none where nothing is intercepted.
    pub(super) placement: Option<Placement>,
    /// Connections of which one end is a program on this box.
    pub(super) carried: Carried,
    /// The explicit forwards that are open.
    pub(super) forwards: Mutex<HashMap<SocketAddr, OpenForward>>,
    pub(super) prepositions: Prepositions,
    pub(super) started: Instant,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
    /// When the task that holds connections last went round, milliseconds since the start.
    pub(super) went_round: AtomicU64,
}

/// What lies around this box. Looked at every few seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Surroundings {
    /// Subnets at its inner interfaces.
    pub(super) lan: Vec<IpNet>,
    /// Its own addresses.
    pub(super) own: Vec<IpAddr>,
}

/// What becomes of a connection that begins here.
pub(super) enum Begin {
    /// It goes its plain way.
    Plain,
    /// Over this trunk.
    Open(Arc<Trunk>),
}

/// A taken connection whose client's socket is still to come.
pub(super) struct Taken {
    pub(super) trunk: Arc<Trunk>,
    pub(super) flow: Arc<Flow>,
    pub(super) opened: Opened,
    pub(super) application: String,
    pub(super) configured: Action,
    /// What its client sends, if that is on this box.
    pub(super) kept: Option<Kept>,
}

/// How long the box waits for a peer's answer before it lets a connection go its plain way: the round trip, the server's own
/// time, and what a busy machine takes.
pub(super) fn patience(trunk: &Trunk) -> Duration {
    let rtt = Duration::from_secs_f64(trunk.rtt_seconds().unwrap_or(0.1).clamp(0.0, 2.0));
    2 * rtt + Duration::from_millis(1500)
}

/// The same where there is no plain way: the far box waits for the server itself.
pub(super) const PATIENCE_OF_FORWARDS: Duration = Duration::from_secs(15);

/// After so long without an answer to anything, a peer is not asked any more.
fn silence(trunk: &Trunk) -> Duration {
    Duration::from_secs_f64(2.0 * trunk.rtt_seconds().unwrap_or(0.1).clamp(0.0, 2.0))
        + Duration::from_millis(150)
}

impl Accelerator {
    /// The policies of now. They hold for a connection from its begin to its end.
    pub(super) fn policies(&self) -> Arc<Policies> {
        Arc::clone(&self.policies.read())
    }

    /// These are the policies of new connections from now on.
    ///
    /// # Errors
    /// Of one that cannot be; then nothing has changed.
    pub fn set_policies(&self, own: &[WrittenPolicy], otherwise: Action) -> Result<(), WrittenPolicyError> {
        let own = own.iter().map(Policy::try_from).collect::<Result<Vec<_>, _>>()?;
        *self.policies.write() = Arc::new(Policies::new(own, otherwise));
        Ok(())
    }

    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// What is known to lie behind the peers that can be used.
    fn behind(&self) -> Vec<Behind> {
        let peers = self.peers.lock();
        let behind = peers.iter().filter_map(|(peer, known)| {
            let trunk = known.trunk.as_ref()?;
            let is_configured = !known.subnets.is_empty();
            let subnets = if is_configured { known.subnets.clone() } else { trunk.subnets() };
            Some(Behind { peer: *peer, subnets, is_configured })
        });
        behind.collect()
    }

    fn trunk(&self, peer: PeerId) -> Option<Arc<Trunk>> {
        self.peers.lock().get(&peer)?.trunk.clone()
    }

    /// Application and action of a connection that begins here.
    pub(super) fn policy_of(&self, ends: &Ends, origin: Origin) -> (String, Action) {
        let policies = self.policies();
        let (application, action) = match origin {
            Origin::Outside => policies.of(ends),
            Origin::ThisBox => policies.of_box(ends),
        };
        (application.to_owned(), action)
    }

    /// Where the ways of a connection that begins here are named, if they have to be.
    pub(super) fn place_of(&self, origin: Origin) -> Option<Place> {
        match origin {
            Origin::ThisBox => Some(Place::Inet),
            Origin::Outside => self.bridge.is_some().then_some(Place::Bridge),
        }
    }

    /// Whether a program on this box, connecting there, may be the site's own daemon: its sessions are not touched, at whatever port
    /// the peer has them.
    fn is_at_a_peers_host(&self, server: SocketAddr, application: &str) -> bool {
        let is_unknown = application == crate::policy::OTHER;
        self.peers.lock().values().filter_map(|known| known.address.as_deref()).any(|address| {
            let Some((host, port)) = farside_link::split_address(address) else { return false };
            match host.parse::<IpAddr>() {
                Ok(host) => {
                    host.to_canonical() == server.ip().to_canonical() && (is_unknown || port == server.port())
                }
                // The name of any host.
                Err(_) => port == server.port(),
            }
        })
    }

    /// Decides on a connection that a client at this side begins. What passes is listed with its reason.
    pub(super) fn begin(&self, ends: &Ends, origin: Origin) -> Begin {
        let (application, action) = self.policy_of(ends, origin);
        let pass = |reason| {
            self.connections.passed(*ends, &application, action, reason);
            Begin::Plain
        };
        if !action.is_optimized() {
            return pass(None);
        }
        if origin == Origin::ThisBox && self.is_at_a_peers_host(ends.server, &application) {
            return Begin::Plain;
        }
        let server = ends.server.ip().to_canonical();
        {
            let around = self.surroundings.lock();
            // Not over the wide area at all.
            if around.own.contains(&server) || around.lan.iter().any(|net| net.contains(&server)) {
                return Begin::Plain;
            }
        }
        let draw = || self.random.uuid_bytes();
        let behind = self.behind();
        let way = self.discovery.lock().way(self.now(), ends.server, &behind, draw);
        match way {
            Way::Peer(peer) => match self.trunk(peer) {
                Some(trunk) if !trunk.is_silent(silence(&trunk)) => Begin::Open(trunk),
                _ => pass(Some(Demotion::PeerLost)),
            },
            Way::Plain | Way::LeftAlone(_) if behind.is_empty() && !self.peers.lock().is_empty() => {
                pass(Some(Demotion::PeerLost))
            }
            Way::Plain => pass(Some(Demotion::NoPeer)),
            Way::LeftAlone(why) => pass(Some(why)),
            Way::PlainAndProbe(nonce) => {
                if let Some(probes) = &self.probes {
                    probes.send(self.node.id(), server, nonce);
                }
                pass(Some(Demotion::NoPeer))
            }
        }
    }

    /// Carries a taken connection until it ends.
    pub(super) async fn carry(&self, taken: Taken, ends: Ends, socket: tokio::net::TcpStream) {
        let Taken { trunk, flow, opened, application, configured, kept: _kept } = taken;
        let listed = self.connections.list(Record {
            ends,
            peer: trunk.peer_name.clone(),
            is_near: true,
            application,
            configured,
            peer_policy: opened.policy,
            opened: Instant::now(),
            original_bytes: 0.into(),
            wire_bytes: 0.into(),
            sent: Default::default(),
            demotion: trunk.demotion(),
            content: Default::default(),
            is_preposition: false,
            reset: CancellationToken::new(),
        });
        let record = Arc::clone(listed.record());
        let end = carry::run(Arc::clone(&trunk), flow, socket, record).await;
        if end == End::ResetThere && trunk.closed.is_cancelled() {
            self.connections.sums.reset.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How it goes.
    pub fn status(&self) -> control::Status {
        let peers = self.peers.lock();
        let mut shown: Vec<control::PeerStatus> = peers
            .values()
            .map(|known| control::PeerStatus {
                name: known.name.clone(),
                is_connected: known.trunk.as_ref().is_some_and(|trunk| !trunk.is_silent(silence(trunk))),
                error: known.error.clone(),
                for_seconds: known.since.elapsed().as_secs_f64(),
                rtt_seconds: known.trunk.as_ref().and_then(|trunk| trunk.rtt_seconds()),
                subnets: match &known.trunk {
                    Some(trunk) if known.subnets.is_empty() => trunk.subnets(),
                    _ => known.subnets.clone(),
                },
            })
            .collect();
        drop(peers);
        shown.sort_by(|a, b| a.name.cmp(&b.name));
        let bypass = if shown.is_empty() {
            Some(
                "no peer is paired with this site: farside peer invite there, farside peer join here"
                    .to_owned(),
            )
        } else if shown.iter().all(|peer| !peer.is_connected) {
            Some("no peer's box can be reached; connections go their plain way".to_owned())
        } else {
            None
        };
        let (original_bytes, wire_bytes) = self.connections.bytes();
        let prepositioned = self.connections.prepositioned();
        let sums = &self.connections.sums;
        control::Status {
            bypass,
            listen: self.node.listen_address().map(str::to_owned),
            peers: shown,
            optimized_connections: self.connections.open() as u64,
            passed_through_connections: sums.passed.load(Ordering::Relaxed),
            taken_connections: sums.taken.load(Ordering::Relaxed),
            reset_connections: sums.reset.load(Ordering::Relaxed),
            original_bytes,
            wire_bytes,
            prepositioned,
            prepositions: self.prepositions.status(),
            applications: self.connections.by_application(),
            demotions: self.connections.demotions(),
            block_wait: figures::told(&self.connections.figures.block_wait),
            connection_hold: figures::told(&self.connections.figures.connection_hold),
            held_connections: self.connections.figures.held.load(Ordering::Relaxed),
            store: self.store.as_ref().map(|store| {
                let stats = store.stats();
                control::StoreStatus {
                    oldest_seconds: store.oldest_seconds(),
                    not_loaded: stats.not_loaded,
                    trouble: store.trouble(),
                    bytes: stats.bytes,
                    size_bytes: stats.limit_bytes,
                    chunks: stats.chunks,
                    index_bytes: stats.index_bytes,
                    lookups: stats.lookups,
                    hits: stats.hits,
                    evicted: stats.evicted,
                    damaged: stats.damaged,
                }
            }),
        }
    }

    /// Removes what the chunk store keeps of a peer, or of all.
    ///
    /// # Errors
    /// If there is no store, or no such peer.
    pub fn clear_store(&self, peer: Option<&str>) -> Result<(), String> {
        let store = self.store.as_ref().ok_or("there is no chunk store")?;
        let peer = match peer {
            None => None,
            Some(name) => {
                let peers = self.peers.lock();
                let found = peers.iter().find(|(_, known)| known.name == name);
                Some(*found.ok_or_else(|| format!("no peer is called {name}"))?.0)
            }
        };
        store.clear(peer);
        Ok(())
    }

    /// Whether the task that holds connections goes round: if not, connections are held that nobody will let go.
    pub fn goes_round(&self) -> bool {
        let last = Duration::from_millis(self.went_round.load(Ordering::Relaxed));
        self.interception.is_none() || self.now().saturating_sub(last) < Duration::from_millis(1000)
    }

    pub(super) fn goes(&self) {
        self.went_round.store(u64::try_from(self.now().as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// A probe of a peer came by on its way to `server`: the peer is told, and may connect there.
    pub(super) fn saw_probe(&self, probe: &crate::protocol::ProbeDatagram, server: IpAddr) -> bool {
        let is_at_lan = || self.placement.as_ref().is_some_and(|placement| placement.is_at_lan(server));
        self.served.saw_probe(probe, server, is_at_lan, self.now())
    }
}

impl crate::trunk::TrunkEvents for Accelerator {
    fn opened(&self, trunk: &Arc<Trunk>) {
        if let Some(known) = self.peers.lock().get_mut(&trunk.peer) {
            tracing::info!(peer = known.name, "the peer's box is there; connections are optimised");
            known.trunk = Some(Arc::clone(trunk));
            known.since = Instant::now();
            known.error = None;
        }
    }

    fn closed(&self, trunk: &Arc<Trunk>, why: &str) {
        if let Some(known) = self.peers.lock().get_mut(&trunk.peer)
            && known.trunk.as_ref().is_none_or(|known| Arc::ptr_eq(known, trunk))
        {
            tracing::warn!(peer = known.name, why, "the peer's box is lost; connections go their plain way");
            if known.trunk.take().is_some() {
                known.since = Instant::now();
            }
            known.error = Some(why.to_owned());
        }
    }

    fn probed(&self, peer: PeerId, nonce: &Nonce) {
        self.discovery.lock().probed(self.now(), peer, nonce);
    }
}
