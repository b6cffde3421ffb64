//! A paired site whose box says what no box says: its trunk ends, and everything else goes on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use farside_accel::accelerator::Running;
use farside_accel::control::{Peer, Secret, Settings, StorePlace};
use farside_accel::policy::Action;
use farside_accel::protocol::{Frame, Hello, Kind, Open, OpenTarget, Refused, VERSION};
use farside_link::{LinkOptions, StreamOptions, TcpTransport};
use farside_peer::{
    DataStream, Identity, MemoryPeerRegistry, Node, NodeConfig, NodeParts, PeerId, PeerLink, PeerRecord,
    PeerRegistry, PeerService, Refusal, Service,
};
use farside_platform::{OsRandomness, SystemClock, Timestamp};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(30);

/// Takes the victim's own trunk and says nothing on it.
struct Silent;

#[async_trait]
impl PeerService for Silent {
    async fn call(&self, _: &Arc<dyn PeerLink>, request: Bytes) -> Result<Bytes, Refusal> {
        Ok(request)
    }

    async fn stream(&self, link: &Arc<dyn PeerLink>, _: Bytes, _stream: DataStream) {
        link.closed().await;
    }
}

struct Attack {
    victim: Running,
    id: PeerId,
    server: TcpListener,
    node: Node,
    _directory: tempfile::TempDir,
}

/// The two streams of a trunk.
struct Trunk {
    urgent: DataStream,
    bulk: DataStream,
}

impl Attack {
    async fn start() -> Attack {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("victim");
        std::fs::create_dir(&home).unwrap();
        let (identity, hostile) = (Identity::load_or_create(&home).unwrap(), Identity::generate().unwrap());
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let victim = Running::start(Settings {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            site_name: "victim".to_owned(),
            identity: Secret::new(std::fs::read_to_string(home.join("identity.pem")).unwrap()),
            listen: "127.0.0.1:0".to_owned(),
            interception: None,
            store: Some(StorePlace { path: home.join("chunks").display().to_string(), bytes: 64 << 20 }),
            forward_to: vec![server.local_addr().unwrap().to_string()],
            policies: Vec::new(),
            otherwise: Action::Full,
            peers: vec![Peer {
                id: hostile.id().to_string(),
                name: "hostile".to_owned(),
                address: None,
                subnets: Vec::new(),
            }],
            forwards: Vec::new(),
        });
        let victim = victim.await.unwrap();
        let registry = Arc::new(MemoryPeerRegistry::default());
        let record = PeerRecord {
            id: identity.id(),
            name: "victim".to_owned(),
            address: victim.accelerator.status().listen,
            link: LinkOptions::default(),
            added_at: Timestamp(0),
        };
        registry.pin(record).await.unwrap();
        let parts = NodeParts {
            identity: hostile,
            transport: Arc::new(TcpTransport),
            registry: registry as _,
            service: Arc::new(Silent),
            clock: Arc::new(SystemClock::default()),
            random: Arc::new(OsRandomness),
        };
        let config = NodeConfig { service: Service::Accelerator, ..NodeConfig::new("hostile") };
        let node = Node::start(config, parts).await.unwrap();
        Attack { victim, id: identity.id(), server, node, _directory: directory }
    }

    async fn trunk(&self, id: u8) -> Trunk {
        let link = self.node.wait_link(self.id, PATIENCE).await.unwrap();
        let header = |stream: u8| Bytes::from([&b"farsideT"[..], &[stream], &[id; 16]].concat());
        let open = |stream| link.open_stream(header(stream), StreamOptions::default());
        let mut trunk = Trunk { urgent: open(0).await.unwrap(), bulk: open(1).await.unwrap() };
        trunk.say(Hello { version: VERSION, subnets: Vec::new() }.frame()).await;
        trunk
    }

    fn open(&self, flow: u32) -> Frame {
        let target = OpenTarget::Named(self.server.local_addr().unwrap().to_string());
        let application = "attack".to_owned();
        Open { target, dscp: None, action: Action::Full, application, window: 65_536 }.frame(flow)
    }

    /// A well-behaved flow still gets through, over another trunk.
    async fn still_serves(&self, id: u8) {
        let mut trunk = self.trunk(id).await;
        trunk.say(self.open(1)).await;
        let (mut socket, _) = timeout(PATIENCE, self.server.accept()).await.unwrap().unwrap();
        trunk.say(Frame::with_bytes(Kind::Data, 1, 0, b"still here")).await;
        let mut got = [0; 10];
        timeout(PATIENCE, socket.read_exact(&mut got)).await.unwrap().unwrap();
        assert_eq!(&got, b"still here");
    }
}

impl Trunk {
    async fn say(&mut self, frame: Frame) {
        let bytes = [frame.head(), frame.body.to_vec()].concat();
        // The victim may have closed it already.
        let _ = self.urgent.io.write_all(&bytes).await;
        let _ = self.urgent.io.flush().await;
    }

    /// The victim ends it.
    async fn ends(mut self) {
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, self.urgent.io.read_to_end(&mut rest)).await.expect("the trunk goes on");
        let _ =
            timeout(PATIENCE, self.bulk.io.read_to_end(&mut rest)).await.expect("its bulk stream goes on");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_break_the_protocol_end_the_trunk_and_no_more() {
    let attack = Attack::start().await;
    let block = |body: &[u8]| Frame::with_bytes(Kind::Block, 1, 0, body);
    let chunk = [&[0u8, 200, 1, 1, 200, 1][..], &[0; 4]].concat();
    let after_open: Vec<(&str, Vec<Frame>)> = vec![
        ("the same flow twice", vec![attack.open(1)]),
        (
            "more than the window",
            (1..18).map(|n| Frame::with_bytes(Kind::Data, 1, n, &[7; 65_536])).collect(),
        ),
        (
            "a part twice",
            vec![Frame::with_bytes(Kind::Data, 1, 3, b"a"), Frame::with_bytes(Kind::Data, 1, 3, b"b")],
        ),
        ("no sequence number", vec![Frame::bare(Kind::Data, 1)]),
        ("a block that is none", vec![block(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")]),
        ("a block that stands for nothing", vec![block(&[0, 0, 0, 0])]),
        ("two ends", vec![Frame::number(Kind::Fin, 1, 5), Frame::number(Kind::Fin, 1, 5)]),
        (
            "an end before what came",
            vec![Frame::with_bytes(Kind::Data, 1, 9, b"a"), Frame::number(Kind::Fin, 1, 5)],
        ),
        (
            "a reset before what came",
            vec![Frame::with_bytes(Kind::Data, 1, 9, b"a"), Frame::number(Kind::Reset, 1, 5)],
        ),
        (
            "a reset elsewhere than the end",
            vec![Frame::number(Kind::Fin, 1, 5), Frame::number(Kind::Reset, 1, 6)],
        ),
        ("an answer that nobody asked for", vec![Frame::with_bytes(Kind::Answer, 1, 0, b"a")]),
        ("credit without end", vec![Frame::numbers(Kind::Credit, 1, &[u64::MAX, 0])]),
        ("credit without a number", vec![Frame::bare(Kind::Credit, 1)]),
        (
            "holdings that are none",
            vec![Frame { kind: Kind::Holdings, flow: 0, body: vec![0xff; 40].into() }],
        ),
        ("an opening of nothing", vec![Frame::bare(Kind::Open, 2)]),
        ("an answer to an opening that it serves", vec![Frame::bare(Kind::Opened, 1)]),
        ("another version", vec![Hello { version: VERSION + 1, subnets: Vec::new() }.frame()]),
        (
            "an unknown kind",
            vec![Frame { kind: Kind::Pong, flow: 0, body: chunk.into() }, Frame::bare(Kind::Probed, 0)],
        ),
    ];
    for (id, (what, frames)) in after_open.into_iter().enumerate() {
        eprintln!("{what}");
        let mut trunk = attack.trunk(id as u8).await;
        trunk.say(attack.open(1)).await;
        let (_socket, _) = timeout(PATIENCE, attack.server.accept()).await.unwrap().unwrap();
        for frame in frames {
            trunk.say(frame).await;
        }
        trunk.ends().await;
    }
    attack.still_serves(200).await;
    let deadline = Instant::now() + PATIENCE;
    while attack.victim.accelerator.connections.open() > 1 {
        assert!(Instant::now() < deadline, "flows of ended trunks are still open");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_that_decode_to_nothing_reset_their_flow_alone() {
    let attack = Attack::start().await;
    let mut trunk = attack.trunk(1).await;
    trunk.say(attack.open(1)).await;
    let (mut bad, _) = timeout(PATIENCE, attack.server.accept()).await.unwrap().unwrap();
    trunk.say(attack.open(2)).await;
    let (mut good, _) = timeout(PATIENCE, attack.server.accept()).await.unwrap().unwrap();
    // Stands for ten bytes, and has operations that are none.
    trunk
        .say(Frame::with_bytes(Kind::Block, 1, 0, &[0, 10, 1, 10, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]))
        .await;
    let read = timeout(PATIENCE, bad.read(&mut [0; 1])).await.unwrap();
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    trunk.say(Frame::with_bytes(Kind::Data, 2, 0, b"good")).await;
    let mut got = [0; 4];
    timeout(PATIENCE, good.read_exact(&mut got)).await.unwrap().unwrap();
    assert_eq!(&got, b"good");
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_never_gets_farther_than_its_trunk() {
    let seed = std::env::var("FARSIDE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_124);
    eprintln!("FARSIDE_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let attack = Attack::start().await;
    for id in 0..20u8 {
        let mut trunk = attack.trunk(id).await;
        let mut garbage = vec![0; 20_000];
        random.fill_bytes(&mut garbage);
        for chunk in garbage.chunks(997) {
            let _ = trunk.bulk.io.write_all(chunk).await;
        }
        // What looks like the head of a large frame is waited for.
        garbage[0] = 0xff;
        let _ = trunk.bulk.io.write_all(&garbage[..1]).await;
        let _ = trunk.bulk.io.flush().await;
        if id % 2 == 0 {
            continue;
        }
        let mut trunk = attack.trunk(100 + id).await;
        trunk.say(Frame::bare(Kind::Pong, 0)).await;
        let _ = trunk.urgent.io.write_all(&garbage).await;
        let _ = trunk.urgent.io.flush().await;
        trunk.ends().await;
    }
    attack.still_serves(200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_may_not_connect_where_it_likes() {
    let attack = Attack::start().await;
    let mut trunk = attack.trunk(1).await;
    let targets = [
        OpenTarget::Named("127.0.0.1:22".to_owned()),
        OpenTarget::Transparent {
            client: "10.1.0.5:40000".parse().unwrap(),
            server: attack.server.local_addr().unwrap(),
        },
    ];
    for (flow, target) in (1..).zip(targets) {
        let application = "attack".to_owned();
        let open = Open { target, dscp: None, action: Action::Full, application, window: 65_536 };
        trunk.say(open.frame(flow)).await;
        let refused = loop {
            let frame = timeout(PATIENCE, next(&mut trunk)).await.unwrap();
            if frame.kind == Kind::Refused {
                break frame;
            }
        };
        assert_eq!(refused.flow, flow);
        let text = Refused::parse(&refused.body).unwrap().text;
        assert!(text.contains("farside accel up"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_questions_without_a_reader_ends_the_trunk() {
    let attack = Attack::start().await;
    let mut trunk = attack.trunk(1).await;
    let ping = Frame { kind: Kind::Ping, flow: 0, body: Bytes::from_static(&[0; 8]) };
    let pings = [ping.head(), ping.body.to_vec()].concat().repeat(10_000);
    // 20 million answers if they were all kept.
    let flood = async {
        for _ in 0..2_000 {
            trunk.urgent.io.write_all(&pings).await?;
        }
        trunk.urgent.io.flush().await
    };
    let flooded = timeout(3 * PATIENCE, flood).await;
    assert!(matches!(flooded, Ok(Err(_))), "the trunk goes on: {flooded:?}");
    attack.still_serves(2).await;
}

/// The next frame that the victim says on the first stream.
async fn next(trunk: &mut Trunk) -> Frame {
    let mut reader = farside_accel::protocol::FrameReader::default();
    loop {
        if let Some(frame) = reader.next_frame().unwrap() {
            return frame;
        }
        // A byte at a time: what follows the frame is the next call's.
        let byte = trunk.urgent.io.read_u8().await.unwrap();
        reader.buffer().extend_from_slice(&[byte]);
    }
}
