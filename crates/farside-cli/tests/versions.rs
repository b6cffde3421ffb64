//! A real daemon and a peer that speaks the mirror protocol of version 1 only, by hand: what docs/protocol.md says of
//! two versions side by side.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use farside_mirror::protocol::stream::{self, StreamMessage};
use farside_mirror::protocol::{
    Acknowledge, Begin, Body, Candidate, Compare, Describe, Description, End, Nothing, PROTOCOL_VERSION,
    Plan, Request, Step, StepEnd, StreamHeader, Swap,
};
use farside_platform::{OsRandomness, SystemClock};
use farside_session::{
    DataStream, Identity, MemoryPeerBook, Node, NodeConfig, NodeParts, PeerLink, PeerService, Refusal,
    SessionError, TcpTransport,
};
use prost::Message;
use serde_json::json;
use support::model::{BLOCK, Model};
use support::{POOL_BYTES, Site, status};
use uuid::Uuid;

const BLOCKS: u64 = 256;
const PATIENCE: Duration = Duration::from_secs(20);

/// A site of version 1 that answers with `service`.
async fn old_site(service: Arc<dyn PeerService>, listen: Option<&str>) -> Node {
    let config = NodeConfig { listen: listen.map(str::to_owned), ..NodeConfig::new("old") };
    let parts = NodeParts {
        identity: Identity::generate().unwrap(),
        transport: Arc::new(TcpTransport),
        book: Arc::<MemoryPeerBook>::default(),
        service,
        clock: Arc::new(SystemClock::default()),
        random: Arc::new(OsRandomness),
    };
    Node::start(config, parts).await.unwrap()
}

/// Asks in version 1.
async fn ask<T: Message + Default>(link: &Arc<dyn PeerLink>, body: Body) -> Result<T, SessionError> {
    let request = Request { version: 1, body: Some(body) }.encode_to_vec();
    link.call(request.into(), None).await.map(|answer| T::decode(answer).unwrap())
}

#[track_caller]
fn refused_naming_both<T: std::fmt::Debug>(result: Result<T, SessionError>) {
    let Err(SessionError::Refused(refusal)) = result else { panic!("not refused: {result:?}") };
    assert_eq!(refusal.code, "version", "{refusal}");
    assert!(refusal.message.contains(&format!("the source speaks {PROTOCOL_VERSION}")), "{refusal}");
    assert!(refusal.message.contains("destination 1"), "{refusal}");
}

/// A destination that neither serves nor is asked.
struct Silent;

#[async_trait]
impl PeerService for Silent {
    async fn call(&self, _: &Arc<dyn PeerLink>, _: Bytes) -> Result<Bytes, Refusal> {
        Err(Refusal { code: "failed".into(), message: "this site serves nothing".into() })
    }
    async fn stream(&self, _: &Arc<dyn PeerLink>, _: Bytes, _: DataStream) {}
}

/// A transfer of one step as version 1 made it: what its plan said, and what its stream counted.
async fn transfer(link: &Arc<dyn PeerLink>, relationship: &[u8], begin: Begin) -> (Plan, StepEnd) {
    let transfer = begin.transfer.clone();
    let plan: Plan = ask(link, Body::Begin(begin)).await.unwrap();
    let [step] = &plan.steps[..] else { panic!("{plan:?}") };
    let header = StreamHeader { version: 1, transfer: transfer.clone(), ..StreamHeader::default() };
    let mut stream = link.open_stream(header.encode_to_vec().into()).await.unwrap();
    let mut frames = 0;
    let end = loop {
        match stream::read(&mut stream.io).await.unwrap() {
            StreamMessage::Frame(_) => frames += 1,
            StreamMessage::Scanned(_) => {}
            StreamMessage::StepEnd(end) => break end,
            other => panic!("{other:?}"),
        }
    };
    assert!(frames > 0 && frames == end.frames, "{end:?}");
    let acknowledge = Acknowledge {
        relationship: relationship.to_vec(),
        transfer: transfer.clone(),
        volume: "p/v".into(),
        snapshot: step.uuid.clone(),
        content_root: step.content_root.clone(),
    };
    ask::<Nothing>(link, Body::Acknowledge(acknowledge)).await.unwrap();
    ask::<Nothing>(link, Body::End(End { transfer, failure: String::new() })).await.unwrap();
    (plan, end)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_serves_a_destination_of_version_1_and_refuses_what_is_newer() {
    let root = tempfile::tempdir().unwrap();
    let a = Site::start(root.path(), "a");
    a.ok(&format!("pool create p --path {} --size {POOL_BYTES}", root.path().join("p.pool").display()));
    a.ok(&format!("volume create p/v --size {}", BLOCKS * BLOCK));
    let mut model = Model::new(BLOCKS);
    model.fill(&mut a.nbd("p/v"), 0, BLOCKS).unwrap();

    let old = old_site(Arc::new(Silent), None).await;
    let code = a.ok("peer invite").trim().parse().unwrap();
    let pinned = old.join(&a.published("peer.addr"), &code, None).await.unwrap();
    a.ok("peer allow old p/v");
    let link = old.wait_link(pinned.id, PATIENCE).await.unwrap();

    let relationship = Uuid::new_v4().as_bytes().to_vec();
    let (volume, destination) = ("p/v".to_owned(), "x/v".to_owned());
    let describe = Describe {
        relationship: relationship.clone(),
        volume: volume.clone(),
        destination: destination.clone(),
    };
    let described: Description = ask(&link, Body::Describe(describe)).await.unwrap();
    assert_eq!(described.size_bytes, BLOCKS * BLOCK);

    let begin = |kind, candidates| Begin {
        relationship: relationship.clone(),
        transfer: Uuid::new_v4().as_bytes().to_vec(),
        volume: volume.clone(),
        destination: destination.clone(),
        kind,
        candidates,
        staged: None,
        turn: 0,
    };
    let (first, end) = transfer(&link, &relationship, begin(1, vec![])).await;
    assert_eq!((first.base.clone(), end.changed_bytes), (None, BLOCKS * BLOCK));
    model.fill(&mut a.nbd("p/v"), 7, 5).unwrap();
    let [Step { uuid, content_root, size_bytes, .. }] = <[Step; 1]>::try_from(first.steps).unwrap();
    let base = Candidate { uuid, content_root, size_bytes };
    let (second, end) = transfer(&link, &relationship, begin(2, vec![base.clone()])).await;
    assert_eq!((second.base, end.changed_bytes), (Some(base.clone()), 5 * BLOCK));
    let held = &a.json("mirror destinations p/v")[0];
    assert_eq!(
        (&held["peer"], &held["destination"], &held["base_snapshot"]),
        (&json!("old"), &json!("x/v"), &json!(second.steps[0].name))
    );

    // A resync, a comparison and a change of roles are of version 2.
    refused_naming_both(ask::<Plan>(&link, Body::Begin(begin(3, vec![base.clone()]))).await);
    let compare = Compare {
        relationship: relationship.clone(),
        volume: volume.clone(),
        destination: destination.clone(),
        candidates: vec![base],
    };
    refused_naming_both(ask::<Plan>(&link, Body::Compare(compare)).await);
    refused_naming_both(
        ask::<Plan>(&link, Body::Swap(Swap { volume, destination, ..Swap::default() })).await,
    );
    old.shutdown().await;
}

/// A source of version 1 with one volume that holds nothing.
struct Old {
    empty_root: Vec<u8>,
    snapshot: Uuid,
    /// The requests it understood, and how many it refused for their version.
    answered: Mutex<Vec<&'static str>>,
    refused: Mutex<u32>,
}

#[async_trait]
impl PeerService for Old {
    async fn call(&self, _: &Arc<dyn PeerLink>, request: Bytes) -> Result<Bytes, Refusal> {
        // Fields and calls that it does not know are skipped, as Protocol Buffers do.
        let request = Request::decode(request).unwrap();
        if request.version != 1 {
            *self.refused.lock().unwrap() += 1;
            let message = format!(
                "mirror protocol versions differ: the source speaks 1, the destination {}",
                request.version
            );
            return Err(Refusal { code: "version".into(), message });
        }
        let (name, answer) = match request.body.unwrap() {
            Body::Describe(_) => {
                ("describe", Description { size_bytes: BLOCKS * BLOCK, reverse: false }.encode_to_vec())
            }
            Body::Begin(begin) => {
                assert!(begin.staged.is_none() && begin.kind <= 2, "not of version 1: {begin:?}");
                let step = Step {
                    uuid: self.snapshot.as_bytes().to_vec(),
                    name: "base".into(),
                    created_at: 1_800_000_000_000_000_000,
                    size_bytes: BLOCKS * BLOCK,
                    content_root: self.empty_root.clone(),
                    made_by_person: false,
                };
                let candidates = begin.candidates.into_iter();
                let base = candidates.rev().find(|c| c.uuid == step.uuid);
                let steps = if base.is_some() { vec![] } else { vec![step] };
                let base_name = if base.is_some() { "base".into() } else { String::new() };
                ("begin", Plan { base, base_name, steps }.encode_to_vec())
            }
            Body::Acknowledge(acknowledge) => {
                assert_eq!(acknowledge.content_root, self.empty_root);
                ("acknowledge", Nothing {}.encode_to_vec())
            }
            Body::End(end) => {
                assert_eq!(end.failure, "");
                ("end", Nothing {}.encode_to_vec())
            }
            other => panic!("not of version 1: {other:?}"),
        };
        self.answered.lock().unwrap().push(name);
        Ok(answer.into())
    }

    async fn stream(&self, _: &Arc<dyn PeerLink>, header: Bytes, mut stream: DataStream) {
        let header = StreamHeader::decode(header).unwrap();
        assert_eq!((header.version, header.step, header.held), (1, 0, 0));
        // Nothing but holes: no frames.
        stream::write(&mut stream.io, &StreamMessage::StepEnd(StepEnd::default())).await.unwrap();
        self.answered.lock().unwrap().push("stream");
        // Until the destination has read it.
        let _ = tokio::io::AsyncReadExt::read(&mut stream.io, &mut [0]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_goes_back_to_version_1_and_refuses_what_needs_more() {
    let root = tempfile::tempdir().unwrap();
    let b = Site::start(root.path(), "b");
    b.ok(&format!("pool create q --path {} --size {POOL_BYTES}", root.path().join("q.pool").display()));
    b.ok(&format!("volume create q/empty --size {}", BLOCKS * BLOCK));
    b.ok("snapshot create q/empty@nothing");
    let empty_root = b.json("snapshot list q/empty")[0]["content_root"].as_str().unwrap().to_owned();
    let service = Arc::new(Old {
        empty_root: u128::from_str_radix(&empty_root, 16).unwrap().to_be_bytes().to_vec(),
        snapshot: Uuid::new_v4(),
        answered: Mutex::default(),
        refused: Mutex::default(),
    });
    let old = old_site(Arc::clone(&service) as _, Some("127.0.0.1:0")).await;
    let code = root.path().join("code");
    std::fs::write(&code, old.invite(Duration::from_secs(60)).unwrap().code.to_string()).unwrap();
    b.ok(&format!("peer join {} --code-file {}", old.listen_address().unwrap(), code.display()));

    b.ok("mirror create old:p/v q/v");
    b.ok("mirror initialize q/v");
    assert_eq!(status(&b, "q/v")["content_root"], json!(empty_root));
    b.ok("mirror update q/v");
    {
        let answered = service.answered.lock().unwrap();
        for call in ["describe", "begin", "acknowledge", "end"] {
            assert!(answered.contains(&call), "{answered:?}");
        }
    }
    assert!(*service.refused.lock().unwrap() > 0, "it asks in its own version first");

    // What needs version 2 at both sites is refused, both are named, and nothing has changed.
    let names_both = |said: String| {
        let ours = format!("destination {PROTOCOL_VERSION}");
        assert!(said.contains("the source speaks 1") && said.contains(&ours), "{said}");
    };
    names_both(b.fails(1, "mirror swap q/v --yes"));
    assert_eq!(status(&b, "q/v")["state"], "mirrored");
    assert!(b.nbd("q/v").read_only);
    b.ok("mirror update q/v");
    b.ok("mirror break q/v --yes");
    names_both(b.fails(1, "mirror resync q/v --yes"));
    assert_eq!(status(&b, "q/v")["state"], "broken-off");
    assert!(!b.nbd("q/v").read_only);
    old.shutdown().await;
}
