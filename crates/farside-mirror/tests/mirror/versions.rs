//! Two sites whose versions differ: what may run side by side, and what is refused.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use farside_engine::Engine;
use farside_mirror::protocol::{Description, Plan};
use farside_mirror::{Schedule, State};
use farside_session::{LinkSettings, SessionError};
use prost::Message;

use crate::site::{PATIENCE, Pair, assert_ok, slow};

const SIZE: u64 = 4 << 20;

#[tokio::test(start_paused = true)]
async fn a_source_of_version_1_serves_first_copies_and_updates() {
    let mut pair = Pair::new(300, SIZE, LinkSettings::default()).await;
    pair.a.meddler.is_of_version_1.store(true, Ordering::SeqCst);
    pair.scribble(30);
    pair.snapshot("first");
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    for _ in 0..3 {
        pair.scribble(20);
        assert_ok(&pair.update(&mirror).await);
        pair.check_replica();
    }
    assert_eq!(*pair.a.meddler.versions_asked.lock(), [2, 1], "asked in 2 first, then in 1");
    // The source is upgraded: nothing has to be done here.
    pair.a.meddler.is_of_version_1.store(false, Ordering::SeqCst);
    pair.scribble(20);
    assert_ok(&pair.update(&mirror).await);
    pair.check_replica();
    let id = mirror.status().relationship.id;
    pair.a.meddler.is_of_version_1.store(true, Ordering::SeqCst);
    pair.b.destination.delete(&pair.replica).await.unwrap();
    while pair.a.source.destinations().iter().any(|r| r.id == id) {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_transfer_from_a_source_of_version_1_begins_afresh() {
    let mut pair = Pair::new(301, SIZE, slow()).await;
    pair.a.meddler.is_of_version_1.store(true, Ordering::SeqCst);
    pair.scribble(60);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    let asked = mirror.initialize(PATIENCE).await.unwrap();
    let mut progress = mirror.progress();
    progress.wait_for(|p| p.as_ref().is_some_and(|p| p.done_bytes > 0)).await.unwrap();
    pair.network.reset("a", "b");
    let report = asked.ended().await.unwrap();
    assert_ok(&report);
    assert!(!report.resumed);
    pair.model.insert(report.id, pair.live.clone());
    pair.check_replica();
    assert_eq!(mirror.status().state, State::Mirrored);
}

/// Requests as version 1 wrote them, byte for byte, and what came back to them.
#[tokio::test(start_paused = true)]
async fn a_destination_of_version_1_is_served() {
    let mut pair = Pair::new(302, SIZE, LinkSettings::default()).await;
    pair.scribble(10);
    let link = pair.b.node.wait_link(pair.a.node.id(), PATIENCE).await.unwrap();
    let ask = |bytes: Vec<u8>| link.call(Bytes::from(bytes), None);
    let id = |field: u8, n: u8| [vec![field << 3 | 2, 16], vec![n; 16]].concat();
    let text = |field: u8, text: &str| [vec![field << 3 | 2, text.len() as u8], text.into()].concat();
    let request = |field: u8, body: &[Vec<u8>]| {
        let body = body.concat();
        [vec![0x08, 1, field << 3 | 2, body.len() as u8], body].concat()
    };

    let describe = request(2, &[id(1, 7), text(2, "p/v"), text(3, "q/r")]);
    let answer = Description::decode(ask(describe).await.unwrap()).unwrap();
    assert_eq!(answer.size_bytes, SIZE);

    let begin = request(3, &[id(1, 7), id(2, 8), text(3, "p/v"), text(4, "q/r"), vec![5 << 3, 1]]);
    let plan = Plan::decode(ask(begin).await.unwrap()).unwrap();
    let step = &plan.steps[0];
    assert_eq!((plan.base.is_none(), plan.steps.len(), &step.uuid[..]), (true, 1, &[8; 16][..]));

    let header = [vec![0x08, 1], id(2, 8)].concat();
    let mut opened = link.open_stream(Bytes::from(header)).await.unwrap();
    let mut kinds = Vec::new();
    loop {
        use tokio::io::AsyncReadExt;
        let mut envelope = [0; 5];
        opened.io.read_exact(&mut envelope).await.unwrap();
        let length = u32::from_le_bytes(envelope[1..].try_into().unwrap());
        opened.io.read_exact(&mut vec![0; length as usize]).await.unwrap();
        kinds.push(envelope[0]);
        if envelope[0] == 3 {
            break;
        }
    }
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, [1, 2, 3], "frames, scanned and the step's end, and nothing version 1 does not know");

    let root = [vec![5 << 3 | 2, 16], step.content_root.clone()].concat();
    let acknowledge = request(4, &[id(1, 7), id(2, 8), text(3, "p/v"), id(4, 8), root]);
    assert!(ask(acknowledge).await.unwrap().is_empty());
    assert!(ask(request(5, &[id(1, 8)])).await.unwrap().is_empty());
    assert_eq!(pair.a.source.destinations()[0].base, Some(uuid::Uuid::from_bytes([8; 16])));
    assert!(ask(request(6, &[id(1, 7), text(2, "p/v")])).await.unwrap().is_empty());
    assert!(pair.a.source.destinations().is_empty());
    assert!(pair.a.disk.engine.snapshots(&pair.original).unwrap().is_empty());

    // What version 1 does not have is refused in it, with both versions named; and so is a version from the future.
    let swap = request(9, &[id(1, 7), id(2, 8), text(3, "p/v"), text(4, "q/r"), vec![5 << 3, 1]]);
    let resync = request(3, &[id(1, 7), id(2, 8), text(3, "p/v"), text(4, "q/r"), vec![5 << 3, 3]]);
    for (refused, theirs) in
        [(swap, "destination 1"), (resync, "destination 1"), (vec![0x08, 9], "destination 9")]
    {
        let Err(SessionError::Refused(refusal)) = ask(refused).await else { panic!("answered") };
        assert_eq!(refusal.code, "version");
        assert!(refusal.message.contains("source speaks 2"), "{}", refusal.message);
        assert!(refusal.message.contains(theirs), "{}", refusal.message);
    }
}
