//! A site for tests: a node with a book in memory, a clock, and a service that echoes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use farside_platform::{ManualClock, OsRandomness, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::book::MemoryPeerBook;
use crate::hello::VERSIONS;
use crate::identity::Identity;
use crate::link::{DataStream, PeerId, PeerLink, PeerService, Refusal};
use crate::node::{Node, NodeConfig, NodeParts};
use crate::transport::{SimulatedNetwork, TcpTransport, Transport};

pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Echoes calls and streams; some requests ask for more.
pub(super) struct Echo {
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
    pub(super) clock: Arc<ManualClock>,
    pub(super) book: Arc<MemoryPeerBook>,
    pub(super) kept: mpsc::UnboundedReceiver<(Bytes, DataStream)>,
}

pub(super) struct Plan {
    pub(super) config: NodeConfig,
    pub(super) identity: Identity,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) book: Arc<MemoryPeerBook>,
}

impl Plan {
    pub(super) fn new(name: &str, transport: Arc<dyn Transport>, listen: Option<&str>) -> Self {
        let mut config = NodeConfig::new(name);
        config.listen = listen.map(str::to_owned);
        config.versions = VERSIONS;
        Plan { config, identity: Identity::generate().unwrap(), transport, book: Arc::default() }
    }

    pub(super) async fn start(self) -> Site {
        let clock = Arc::new(ManualClock::new(Timestamp(1_800_000_000_000_000_000)));
        let (kept_sender, kept) = mpsc::unbounded_channel();
        let parts = NodeParts {
            identity: self.identity,
            transport: self.transport,
            book: Arc::clone(&self.book) as _,
            service: Arc::new(Echo { kept: kept_sender }),
            clock: Arc::clone(&clock) as _,
            random: Arc::new(OsRandomness),
        };
        let node = Node::start(self.config, parts).await.unwrap();
        Site { node, clock, book: self.book, kept }
    }
}

impl Site {
    pub(super) async fn tcp(name: &str) -> Site {
        Plan::new(name, Arc::new(TcpTransport), Some("127.0.0.1:0")).start().await
    }

    pub(super) async fn simulated(network: &SimulatedNetwork, name: &str) -> Site {
        Plan::new(name, network.host(name), Some(&format!("{name}:7440"))).start().await
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

    /// `guest` accepts an invitation of `self`.
    pub(super) async fn pair(&self, guest: &Site) {
        let invite = self.node.invite(Duration::from_secs(900)).unwrap();
        guest.node.join(self.address(), &invite.code, None).await.unwrap();
    }
}
