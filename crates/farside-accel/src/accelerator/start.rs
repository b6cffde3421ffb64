//! Start, change of peers, end.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use farside_link::{LinkOptions, TcpTransport};
use farside_peer::{
    Identity, MemoryPeerRegistry, Node, NodeConfig, NodeParts, PeerId, PeerRecord, PeerRegistry, Service,
};
use farside_platform::{OsRandomness, Randomness, SystemClock, Timestamp};
use parking_lot::{Mutex, RwLock};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::intercept::{self, Expected};
use super::placement::Placement;
use super::probes::{PROBE_PORT, ProbeSender};
use super::serving::Server;
use super::state::{Accelerator, KnownPeer, Surroundings, WINDOWS_BUDGET};
use crate::connections::Connections;
use crate::control::{Interception, Peer, Settings, StorePlace};
use crate::flow::Windows;
use crate::kernel::{
    Carried, KernelError, MarkRoutes, OwnedTable, SynQueue, bridge_of, interfaces, transparent,
};
use crate::policy::{Policies, Policy, WrittenPolicyError};
use crate::rules::{Bridge, Ruleset};
use crate::store::Store;
use crate::trunk::{Cores, TrunkEvents, TrunkParts, TrunkService, keep_trunk};

/// The queue that held connections wait in.
const QUEUE: u16 = 7442;
/// How often interfaces are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How long the task that holds connections may take to let them go.
const HOLD_ENDS_WITHIN: Duration = Duration::from_millis(500);

/// Why the accelerator does not start. Nothing of it is left behind.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Identity, address or session.
    #[error("{0}")]
    Session(#[from] farside_peer::SessionError),
    /// Interception.
    #[error("{0}")]
    Kernel(#[from] KernelError),
    /// A policy.
    #[error("{0}")]
    Policy(#[from] WrittenPolicyError),
    /// A peer that cannot be.
    #[error("{0} is no identity of a peer")]
    Peer(String),
    /// Sockets.
    #[error("{0}: {1}")]
    Socket(&'static str, io::Error),
    /// Forwards.
    #[error("{0}")]
    Forwards(String),
    /// The chunk store.
    #[error("the chunk store {path}: {why}")]
    Store {
        /// Its directory.
        path: String,
        /// What is wrong.
        why: String,
    },
}

/// Removes the table that [`Accelerator::carried`] has.
struct TableInstalled(Carried);

impl Drop for TableInstalled {
    fn drop(&mut self) {
        self.0.remove_table();
    }
}

/// What interception holds of the kernel; all of it goes with it.
struct Installed {
    /// Holds connections; with its end those that are held are let go.
    hold: JoinHandle<()>,
    table: TableInstalled,
    routes: MarkRoutes,
}

/// An accelerator that runs, and what ends it.
pub struct Running {
    /// It.
    pub accelerator: Arc<Accelerator>,
    registry: Arc<MemoryPeerRegistry>,
    installed: Option<Installed>,
    /// Ends if interception fails: the process has to end too, so that nothing is held any more.
    pub failed: CancellationToken,
}

impl Running {
    /// Starts everything.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(settings: Settings) -> Result<Running, StartError> {
        let own = settings.policies.iter().map(Policy::try_from).collect::<Result<Vec<_>, _>>()?;
        let policies = Policies::new(own, settings.otherwise);
        let identity = Identity::from_pem(settings.identity.expose().as_bytes())?;
        let random: Arc<dyn Randomness> = Arc::new(OsRandomness);
        let connections: Arc<Connections> = Arc::default();
        let windows = Windows::new(WINDOWS_BUDGET);
        let registry: Arc<MemoryPeerRegistry> = Arc::default();
        let server = Arc::new(Server::default());
        let cores = Arc::new(Cores::new());
        let store = match &settings.store {
            Some(place) => Some(Arc::new(open_store(place).await?)),
            None => None,
        };
        let service = TrunkService::new(
            Arc::clone(&server) as _,
            Arc::clone(&connections),
            Arc::clone(&windows),
            store.clone(),
            Arc::clone(&cores),
        );
        let config = NodeConfig {
            listen: Some(settings.listen.clone()),
            service: Service::Accelerator,
            ..NodeConfig::new(settings.site_name.clone())
        };
        let parts = NodeParts {
            identity,
            transport: Arc::new(TcpTransport),
            registry: Arc::clone(&registry) as _,
            service: Arc::new(service),
            clock: Arc::new(SystemClock::default()),
            random: Arc::clone(&random),
        };
        let node = Node::start(config, parts).await?;
        let probes = match settings.interception {
            Some(_) => Some(ProbeSender::new().map_err(|e| StartError::Socket("no socket for probes", e))?),
            None => None,
        };
        let bridge = match &settings.interception {
            Some(interception) => bridge_of(&interception.lan, &interception.wan)?,
            None => None,
        };
        if bridge.is_some() {
            interfaces::bridges_are_apart()?;
        }
        let placement = match &settings.interception {
            Some(interception) => Some(
                Placement::new(interception, bridge.as_ref())
                    .map_err(|e| StartError::Socket("routes cannot be asked for", e))?,
            ),
            None => None,
        };
        let accelerator = Arc::new(Accelerator {
            node,
            policies: RwLock::new(Arc::new(policies)),
            connections,
            windows,
            store,
            cores,
            random,
            interception: settings.interception.clone(),
            bridge,
            forward_to: settings.forward_to,
            peers: Mutex::default(),
            discovery: Mutex::default(),
            surroundings: Mutex::default(),
            served: Default::default(),
            probes,
            placement,
            carried: Default::default(),
            forwards: Default::default(),
            prepositions: Default::default(),
            started: Instant::now(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            went_round: 0.into(),
        });
        let _ = server.0.set(Arc::downgrade(&accelerator));
        accelerator.look_around();
        let failed = CancellationToken::new();
        let installed = match &settings.interception {
            Some(interception) => {
                Some(install(&accelerator, interception, &settings.listen, failed.clone()).await?)
            }
            None => None,
        };
        let running = Running { accelerator, registry, installed, failed };
        running.set_peers(settings.peers).await?;
        running.accelerator.set_forwards(settings.forwards).await.map_err(StartError::Forwards)?;
        Ok(running)
    }

    /// These are the peers now.
    ///
    /// # Errors
    /// Of a peer that cannot be; then nothing has changed.
    pub async fn set_peers(&self, wanted: Vec<Peer>) -> Result<(), StartError> {
        let mut parsed = HashMap::new();
        for peer in wanted {
            let id = parse_id(&peer.id).ok_or_else(|| StartError::Peer(peer.id.clone()))?;
            parsed.insert(id, peer);
        }
        let known: HashSet<PeerId> = self.accelerator.peers.lock().keys().copied().collect();
        for gone in known.iter().filter(|id| !parsed.contains_key(id)) {
            if let Some(peer) = self.accelerator.peers.lock().remove(gone) {
                peer.stop.cancel();
            }
            self.accelerator.discovery.lock().forget(*gone);
            // What passed between the two is of no use to anybody else.
            if let Some(store) = self.accelerator.store.clone() {
                let gone = *gone;
                tokio::task::spawn_blocking(move || store.forget(gone));
            }
            self.accelerator.node.remove_peer(*gone).await?;
        }
        for (id, peer) in &parsed {
            self.registry
                .pin(PeerRecord {
                    id: *id,
                    name: peer.name.clone(),
                    address: peer.address.clone(),
                    link: LinkOptions::default(),
                    added_at: Timestamp(0),
                })
                .await?;
        }
        self.accelerator.node.registry_changed().await?;
        for (id, peer) in parsed {
            self.set_peer(id, peer);
        }
        Ok(())
    }

    fn set_peer(&self, id: PeerId, peer: Peer) {
        let accelerator = &self.accelerator;
        let mut peers = accelerator.peers.lock();
        if let Some(known) = peers.get_mut(&id) {
            known.name = peer.name;
            known.address = peer.address;
            known.subnets = peer.subnets;
            return;
        }
        let stop = accelerator.stop.child_token();
        let Peer { name, address, subnets, .. } = peer;
        let keep = keep_trunk(
            accelerator.node.clone(),
            id,
            name.clone(),
            TrunkParts {
                windows: Arc::clone(&accelerator.windows),
                store: accelerator.store.as_ref().map(|store| store.of(id, &accelerator.cores.free)),
                cores: Arc::clone(&accelerator.cores),
                figures: Arc::clone(&accelerator.connections.figures),
            },
            Arc::clone(&accelerator.random),
            Arc::clone(accelerator) as Arc<dyn TrunkEvents>,
            stop.clone(),
        );
        accelerator.tasks.spawn(keep);
        peers.insert(
            id,
            KnownPeer { name, address, subnets, stop, trunk: None, error: None, since: Instant::now() },
        );
    }

    /// Ends everything. New connections go their plain way from the first moment on; those that are open are reset.
    pub async fn stop(mut self) {
        self.accelerator.stop.cancel();
        if let Some(Installed { hold, table, routes }) = self.installed.take() {
            // First what is held is let go, and the queue closed: the kernel drops what is held when a rule goes.
            let _ = tokio::time::timeout(HOLD_ENDS_WITHIN, hold).await;
            drop(table);
            if let Err(error) = routes.remove() {
                tracing::warn!(%error, "a routing rule stays behind; it does nothing without the table");
            }
        }
        self.accelerator.node.shutdown().await;
        self.accelerator.tasks.close();
        let _ = tokio::time::timeout(Duration::from_secs(1), self.accelerator.tasks.wait()).await;
    }
}

/// Reads directories, which may take a while: not on a thread that others need.
async fn open_store(place: &StorePlace) -> Result<Store, StartError> {
    let failed = |why: String| StartError::Store { path: place.path.clone(), why };
    let (path, bytes) = (PathBuf::from(&place.path), place.bytes);
    let opened = tokio::task::spawn_blocking(move || Store::open(&path, bytes)).await;
    opened.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))
}

/// Installs interception. Listeners and queue are there before a rule leads to them.
async fn install(
    accelerator: &Arc<Accelerator>,
    interception: &Interception,
    listen: &str,
    failed: CancellationToken,
) -> Result<Installed, StartError> {
    let socket = |what| move |error| StartError::Socket(what, error);
    let (v4, v6) = transparent::listen(0).map_err(socket("no transparent listener"))?;
    let listener_port = v4.local_addr().map_err(socket("no transparent listener"))?.port();
    // A second accelerator in this network namespace fails here, before it touches the routes of the first.
    let queue = SynQueue::open(QUEUE).map_err(socket("no queue for connections that begin"))?;
    let expected: Arc<Expected> = Arc::default();
    for listener in [Some(v4), v6].into_iter().flatten() {
        let accept = intercept::accept(Arc::clone(accelerator), listener, Arc::clone(&expected));
        accelerator.tasks.spawn(accelerator.stop.clone().run_until_cancelled_owned(accept));
    }
    accelerator.goes();
    let hold = intercept::hold(Arc::clone(accelerator), queue, expected);
    let stop = accelerator.stop.clone();
    let hold = accelerator.tasks.spawn(async move {
        if let Some(Err(error)) = stop.run_until_cancelled_owned(hold).await {
            tracing::error!(%error, "the queue of connections that begin has failed; the accelerator starts anew");
            failed.cancel();
        }
    });
    let ruleset = ruleset(interception, accelerator.bridge.clone(), listener_port, listen);
    MarkRoutes::remove_stale()?;
    let routes = MarkRoutes::install()?;
    let table = match OwnedTable::install(&ruleset) {
        Ok(table) => {
            accelerator.carried.set_table(table);
            TableInstalled(accelerator.carried.clone())
        }
        Err(error) => {
            let _ = routes.remove();
            return Err(error.into());
        }
    };
    for warning in interfaces::warnings(&interception.lan, &interception.wan, accelerator.bridge.as_ref()) {
        tracing::warn!("{warning}");
    }
    let accelerator = Arc::clone(accelerator);
    let stop = accelerator.stop.clone();
    let tasks = accelerator.tasks.clone();
    tasks.spawn(stop.run_until_cancelled_owned(async move {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            accelerator.look_around();
        }
    }));
    Ok(Installed { hold, table, routes })
}

/// What a box with these settings would install on this host, and what is wrong with the host, as text. `listener_port` is drawn at
/// the start; this shows another one. Changes nothing and takes no privilege.
///
/// # Errors
/// If the box could not start so.
pub fn plan(interception: &Interception, listener_port: u16, listen: &str) -> Result<String, KernelError> {
    let bridge = bridge_of(&interception.lan, &interception.wan)?;
    let wrong = interfaces::warnings(&interception.lan, &interception.wan, bridge.as_ref());
    let mut text = ruleset(interception, bridge, listener_port, listen).to_string();
    if !wrong.is_empty() {
        text.push_str("\n# wrong on this host now\n");
        text.extend(wrong.iter().map(|sentence| format!("# {sentence}\n")));
    }
    Ok(text)
}

/// The rules of a box.
fn ruleset(interception: &Interception, bridge: Option<Bridge>, listener_port: u16, listen: &str) -> Ruleset {
    let port = farside_link::split_address(listen).map_or(PROBE_PORT, |(_, port)| port);
    let mut own_ports = vec![7440, PROBE_PORT, port];
    own_ports.sort_unstable();
    own_ports.dedup();
    Ruleset {
        lan: interception.lan.clone(),
        wan: interception.wan.clone(),
        queue: QUEUE,
        listener_port,
        own_ports,
        probe_port: PROBE_PORT,
        bridge,
    }
}

impl Accelerator {
    /// Looks what lies around this box. What cannot be seen stays as it was.
    fn look_around(&self) {
        let Some(interception) = &self.interception else { return };
        let lan = interfaces::prefixes_of(&interception.lan);
        let own = interfaces::own_addresses();
        match (lan, own) {
            (Ok(lan), Ok(own)) => {
                let own: Vec<IpAddr> = own.into_iter().map(|address| address.to_canonical()).collect();
                *self.surroundings.lock() = Surroundings { lan, own };
            }
            (Err(error), _) | (_, Err(error)) => tracing::warn!(%error, "the interfaces cannot be read"),
        }
    }
}

/// 64 hexadecimal digits.
fn parse_id(text: &str) -> Option<PeerId> {
    let mut id = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, digits) in id.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(PeerId(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_64_digits() {
        let id = PeerId([0xa5; 32]);
        assert_eq!(parse_id(&id.to_string()), Some(id));
        for text in ["", "a5", &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(parse_id(text), None);
        }
    }

    #[test]
    fn a_box_never_touches_its_own_ports() {
        let interception = Interception { lan: vec!["lan0".into()], wan: "wan0".into() };
        assert_eq!(ruleset(&interception, None, 1, "0.0.0.0:7442").own_ports, [7440, 7442]);
        assert_eq!(ruleset(&interception, None, 1, "0.0.0.0:9000").own_ports, [7440, 7442, 9000]);
    }
}
