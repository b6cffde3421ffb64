//! A site for tests: a node with a registry in memory, a clock, and a service that echoes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use farside_platform::{ManualClock, OsRandomness, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::dial::Dialler;
use crate::error::Refusal;
use crate::error::SessionError;
use crate::hello::{Service, VERSIONS};
use crate::id::PeerId;
use crate::identity::Identity;
use crate::node::{Node, NodeConfig, NodeParts, PeerState};
use crate::registry::{MemoryPeerRegistry, PeerRecord, PeerRegistry};
use crate::service::{DataStream, PeerLink, PeerService};
use crate::tls::Secured;
use farside_link::LinkOptions;
use farside_link::{Bundle, BundleOptions, BundleStream, LaneOptions, Limits, Priority, Window};
use farside_link::{SimulatedNetwork, TcpTransport, Transport};
use tokio_util::task::TaskTracker;

use super::log;

pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Echoes calls and streams; some requests ask for more.
struct Echo {
    /// Streams whose header begins with "keep" go here.
    kept: mpsc::UnboundedSender<(Bytes, DataStream)>,
}

#[async_trait]
impl PeerService for Echo {
    async fn call(&self, link: &Arc<dyn PeerLink>, request: Bytes) -> Result<Bytes, Refusal> {
        match &request[..] {
            b"refuse" => Err(Refusal { code: "state".to_owned(), message: "not now".to_owned() }),
            b"panic" => panic!("asked to"),
            b"too much" => Ok(Bytes::from(vec![0; crate::CALL_BYTES_MAX + 1])),
            b"hang" => std::future::pending().await,
            b"back" => {
                // The service calls whoever called it.
                let answer = link.call(Bytes::from_static(b"there and back"), None).await;
                answer.map_err(|e| Refusal { code: "failed".to_owned(), message: e.to_string() })
            }
            _ => Ok(request),
        }
    }

    async fn stream(&self, _link: &Arc<dyn PeerLink>, header: Bytes, mut stream: DataStream) {
        if header.starts_with(b"keep") {
            let _ = self.kept.send((header, stream));
            return;
        }
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(bytes @ 1..) = stream.io.read(&mut buffer).await {
            if stream.io.write_all(&buffer[..bytes]).await.is_err() {
                return;
            }
        }
        let _ = stream.io.shutdown().await;
    }
}

pub(super) struct Site {
    pub(super) node: Node,
    pub(super) identity: Identity,
    pub(super) clock: Arc<ManualClock>,
    pub(super) registry: Arc<MemoryPeerRegistry>,
    kept: mpsc::UnboundedReceiver<(Bytes, DataStream)>,
}

pub(super) struct Plan {
    pub(super) config: NodeConfig,
    pub(super) identity: Identity,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) registry: Arc<MemoryPeerRegistry>,
}

impl Plan {
    pub(super) fn tcp(name: &str) -> Self {
        Plan::new(name, Arc::new(TcpTransport), Some("127.0.0.1:0"))
    }

    pub(super) fn simulated(network: &SimulatedNetwork, name: &str) -> Self {
        Plan::new(name, network.host(name), Some(&format!("{name}:7440")))
    }

    fn new(name: &str, transport: Arc<dyn Transport>, listen: Option<&str>) -> Self {
        log::start();
        let mut config = NodeConfig::new(name);
        config.listen = listen.map(str::to_owned);
        config.versions = VERSIONS;
        Plan { config, identity: Identity::generate().unwrap(), transport, registry: Arc::default() }
    }

    /// Pins a peer before the node starts.
    pub(super) async fn knows(self, id: PeerId, name: &str, address: Option<&str>) -> Self {
        self.knows_over(id, name, address, LinkOptions::default()).await
    }

    /// The same with options of the link.
    pub(super) async fn knows_over(
        self,
        id: PeerId,
        name: &str,
        address: Option<&str>,
        link: LinkOptions,
    ) -> Self {
        let record = PeerRecord {
            id,
            name: name.to_owned(),
            address: address.map(str::to_owned),
            link,
            added_at: Timestamp(1),
        };
        self.registry.pin(record).await.unwrap();
        self
    }

    pub(super) async fn start(self) -> Site {
        let clock = Arc::new(ManualClock::new(Timestamp(1_800_000_000_000_000_000)));
        let (kept_sender, kept) = mpsc::unbounded_channel();
        let parts = NodeParts {
            identity: self.identity.clone(),
            transport: self.transport,
            registry: Arc::clone(&self.registry) as _,
            service: Arc::new(Echo { kept: kept_sender }),
            clock: Arc::clone(&clock) as _,
            random: Arc::new(OsRandomness),
        };
        let node = Node::start(self.config, parts).await.unwrap();
        Site { node, identity: self.identity, clock, registry: self.registry, kept }
    }
}

impl Site {
    pub(super) async fn tcp(name: &str) -> Site {
        Plan::tcp(name).start().await
    }

    pub(super) async fn simulated(network: &SimulatedNetwork, name: &str) -> Site {
        Plan::simulated(network, name).start().await
    }

    pub(super) fn id(&self) -> PeerId {
        self.node.id()
    }

    pub(super) fn address(&self) -> &str {
        self.node.listen_address().unwrap()
    }

    pub(super) async fn link(&self, peer: &Site) -> Arc<dyn PeerLink> {
        self.node.wait_link(peer.id(), PATIENCE).await.unwrap()
    }

    /// Waits until the session with `peer` is as `expected` says.
    pub(super) async fn wait_state(
        &self,
        peer: PeerId,
        expected: impl FnMut(&PeerState) -> bool,
    ) -> PeerState {
        let mut state = self.node.watch(peer).expect("pinned");
        tokio::time::timeout(PATIENCE, state.wait_for(expected))
            .await
            .expect("in time")
            .expect("pinned")
            .clone()
    }

    /// `joiner` accepts an invitation of `self`.
    pub(super) async fn pair(&self, joiner: &Site) {
        let invite = self.node.invite(Duration::from_secs(900)).unwrap();
        joiner.node.join(self.address(), &invite.code, None).await.unwrap();
    }

    /// The next stream that a peer has opened with a header that begins with "keep".
    pub(super) async fn kept(&mut self) -> (Bytes, DataStream) {
        tokio::time::timeout(PATIENCE, self.kept.recv()).await.expect("in time").expect("the node runs")
    }

    /// A call is answered. Two that have just paired dial one another, and the session of one may be replaced by the other's
    /// before the answer is there: then it is asked on that one.
    pub(super) async fn proves_alive(&self, peer: &Site) {
        let asked = async {
            loop {
                match self.link(peer).await.call(Bytes::from_static(b"alive?"), None).await {
                    Err(SessionError::Lost(_)) => {}
                    answer => return answer,
                }
            }
        };
        let answer = tokio::time::timeout(PATIENCE, asked).await.expect("in time").unwrap();
        assert_eq!(&answer[..], b"alive?");
    }
}

/// Dials as `identity`, without a node.
pub(super) fn dialler(identity: &Identity, transport: Arc<dyn Transport>) -> Dialler {
    Dialler {
        transport,
        identity: identity.clone(),
        versions: VERSIONS,
        instance: [0x77; 16],
        site_name: "by-hand".to_owned(),
        service: Service::Storage,
    }
}

/// A bundle without a node.
pub(super) fn bundle_by_hand() -> (Arc<Bundle>, BundleStream) {
    Bundle::new(BundleOptions {
        window: Window::Auto,
        window_start: None,
        priority: Priority::Normal,
        limits_out: Limits::unlimited(),
        limits_in: Limits::unlimited(),
        budget: Arc::default(),
        tasks: TaskTracker::new(),
    })
}

/// The control stream over a connection that [`dialler`] has made.
pub(super) fn control_by_hand(io: Secured) -> BundleStream {
    let (bundle, stream) = bundle_by_hand();
    let socket = io.get_ref().0;
    let options = LaneOptions { path: 0, standby: false, stats: socket.stats(), wire: socket.wire() };
    bundle.add_lane(Box::new(io), options).unwrap();
    stream
}

/// Two paired sites over TCP where only `b` dials, so that it is known who dialled.
pub(super) async fn b_dials_a() -> (Site, Site) {
    let b = Plan::tcp("site-b");
    let a = Plan::tcp("site-a").knows(b.identity.id(), "b", None).await.start().await;
    let b = b.knows(a.id(), "a", Some(a.address())).await.start().await;
    a.link(&b).await;
    b.link(&a).await;
    (a, b)
}

/// The same over a simulated network.
pub(super) async fn b_dials_a_on(network: &SimulatedNetwork) -> (Site, Site) {
    let b = Plan::simulated(network, "b");
    let a = Plan::simulated(network, "a").knows(b.identity.id(), "b", None).await.start().await;
    let b = b.knows(a.id(), "a", Some(a.address())).await.start().await;
    a.link(&b).await;
    b.link(&a).await;
    (a, b)
}
