//! A real daemon and a peer that speaks an older mirror protocol, by hand: what docs/protocol.md says of two versions
//! side by side.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{POOL_BYTES, Site, status};
use async_trait::async_trait;
use bytes::Bytes;
use farside_link::TcpTransport;
use farside_peer::{
    DataStream, Identity, MemoryPeerRegistry, Node, NodeConfig, NodeParts, PeerLink, PeerService, Refusal,
    SessionError,
};
use farside_platform::{OsRandomness, SystemClock};
use farside_transfer::protocol::{Body, Describe, Description, Nothing, PROTOCOL_VERSION, Request};
use prost::Message;
use uuid::Uuid;

const SIZE: u64 = 1 << 20;
const OLDER: u32 = PROTOCOL_VERSION - 1;
const PATIENCE: Duration = Duration::from_secs(20);

/// A site of the older version with one empty volume: it answers what a mirror is made with, so that the older version
/// shows later as well. As a site that was upgraded it answers this version.
#[derive(Default)]
struct Old {
    is_upgraded: AtomicBool,
}

#[async_trait]
impl PeerService for Old {
    async fn call(&self, _: &Arc<dyn PeerLink>, request: Bytes) -> Result<Bytes, Refusal> {
        let request = Request::decode(request).unwrap();
        let speaks = if self.is_upgraded.load(Ordering::SeqCst) { PROTOCOL_VERSION } else { OLDER };
        if request.version != speaks {
            let message = format!(
                "mirror protocol versions differ: the source speaks {speaks}, the destination {}",
                request.version
            );
            return Err(Refusal { code: "version".into(), message });
        }
        let answer = match request.body.unwrap() {
            Body::Describe(_) => Description { size_bytes: SIZE, ..Description::default() }.encode_to_vec(),
            _ => Nothing {}.encode_to_vec(),
        };
        Ok(answer.into())
    }

    async fn stream(&self, _: &Arc<dyn PeerLink>, _: Bytes, _: DataStream) {}
}

async fn old_site(service: Arc<Old>, listen: Option<&str>) -> Node {
    let config = NodeConfig { listen: listen.map(str::to_owned), ..NodeConfig::new("old") };
    let parts = NodeParts {
        identity: Identity::generate().unwrap(),
        transport: Arc::new(TcpTransport),
        registry: Arc::<MemoryPeerRegistry>::default(),
        service,
        clock: Arc::new(SystemClock::default()),
        random: Arc::new(OsRandomness),
    };
    Node::start(config, parts).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_refuses_an_older_destination_with_both_versions_named() {
    let root = tempfile::tempdir().unwrap();
    let a = Site::start(root.path(), "a");
    a.ok(&format!("pool create p --path {} --size {POOL_BYTES}", root.path().join("p.pool").display()));
    a.ok(&format!("volume create p/v --size {SIZE}"));
    let old = old_site(Arc::default(), None).await;
    let code = a.ok("peer invite").trim().parse().unwrap();
    let pinned = old.join(&a.published("peer.addr"), &code, None).await.unwrap();
    a.ok("peer allow old p/v");
    let link = old.wait_link(pinned.id, PATIENCE).await.unwrap();
    let describe = Describe {
        relationship: Uuid::new_v4().as_bytes().to_vec(),
        volume: "p/v".into(),
        destination: "x/v".into(),
        hops: 0,
    };
    let ask = async |version| {
        let request = Request { version, body: Some(Body::Describe(describe.clone())) };
        link.call(request.encode_to_vec().into(), None).await
    };
    for version in 1..PROTOCOL_VERSION {
        let Err(SessionError::Refused(refusal)) = ask(version).await else { panic!("answered") };
        assert_eq!(refusal.code, "version", "{refusal}");
        let both = format!("the source speaks {PROTOCOL_VERSION}, the destination {version}");
        assert!(refusal.message.contains(&both), "{refusal}");
    }
    let described = Description::decode(ask(PROTOCOL_VERSION).await.unwrap()).unwrap();
    assert_eq!(described.size_bytes, SIZE);
    old.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_says_which_versions_differ_and_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let b = Site::start(root.path(), "b");
    b.ok(&format!("pool create q --path {} --size {POOL_BYTES}", root.path().join("q.pool").display()));
    let service = Arc::new(Old::default());
    let old = old_site(Arc::clone(&service), Some("127.0.0.1:0")).await;
    let code = root.path().join("code");
    std::fs::write(&code, old.invite(Duration::from_secs(60)).unwrap().code.to_string()).unwrap();
    b.ok(&format!("peer join {} --code-file {}", old.listen_address().unwrap(), code.display()));
    let names_both = |said: String| {
        let both = format!("the source speaks {OLDER}, the destination {PROTOCOL_VERSION}");
        assert!(said.contains(&both) && said.contains("Upgrade farside"), "{said}");
    };
    names_both(b.fails(1, "mirror create old:p/v q/v"));

    // Of a mirror made before, every transfer is refused so.
    service.is_upgraded.store(true, Ordering::SeqCst);
    b.ok("mirror create old:p/v q/v");
    service.is_upgraded.store(false, Ordering::SeqCst);
    names_both(b.fails(1, "mirror initialize q/v"));
    assert_eq!(status(&b, "q/v")["state"], "uninitialized");
    old.shutdown().await;
}
