//! Two sites whose versions of the protocol differ: what is refused, with both versions named, and what stays.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use farside_link::LinkSettings;
use farside_mirror::{Schedule, State};
use farside_peer::SessionError;
use farside_transfer::TransferResult;
use farside_transfer::protocol::PROTOCOL_VERSION;
use farside_transfer::protocol::stream::{self, StreamMessage};

use crate::site::{PATIENCE, Pair, assert_ok};

const SIZE: u64 = 4 << 20;

#[tokio::test(start_paused = true)]
async fn an_older_source_is_not_asked_for_a_transfer_until_it_is_upgraded() {
    let mut pair = Pair::new(300, SIZE, LinkSettings::default()).await;
    pair.scribble(30);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    let before = pair.check_replica();

    pair.a.fault_injector.is_older.store(true, Ordering::SeqCst);
    pair.scribble(20);
    let report = mirror.update(PATIENCE).await.unwrap().ended().await.unwrap();
    assert_eq!(report.result, TransferResult::Failed);
    let reason = report.reason.unwrap();
    let both = format!("the source speaks {}, the destination {PROTOCOL_VERSION}", PROTOCOL_VERSION - 1);
    assert!(reason.contains(&both) && reason.contains("Upgrade"), "{reason}");
    assert_eq!((mirror.status().state, pair.check_replica()), (State::Mirrored, before));

    // The source is upgraded: nothing has to be done here.
    pair.a.fault_injector.is_older.store(false, Ordering::SeqCst);
    assert_ok(&pair.update(&mirror).await);
    pair.check_replica();
}

/// Requests as versions 1 and 2 wrote them, byte for byte, and what comes back to them.
#[tokio::test(start_paused = true)]
async fn an_older_destination_is_refused_with_both_versions_named() {
    let pair = Pair::new(302, SIZE, LinkSettings::default()).await;
    let link = pair.b.node.wait_link(pair.a.node.id(), PATIENCE).await.unwrap();
    let id = |field: u8, n: u8| [vec![field << 3 | 2, 16], vec![n; 16]].concat();
    let text = |field: u8, text: &str| [vec![field << 3 | 2, text.len() as u8], text.into()].concat();
    let request = |version: u8, field: u8, body: &[Vec<u8>]| {
        let body = body.concat();
        [vec![0x08, version, field << 3 | 2, body.len() as u8], body].concat()
    };
    for version in [1, 2, 9] {
        let describe = request(version, 2, &[id(1, 7), text(2, "p/v"), text(3, "q/r")]);
        let begin = [id(1, 7), id(2, 8), text(3, "p/v"), text(4, "q/r"), vec![5 << 3, 1]];
        let both = format!("the source speaks {PROTOCOL_VERSION}, the destination {version}");
        for asked in [describe, request(version, 3, &begin), vec![0x08, version]] {
            let answer = link.call(Bytes::from(asked), None).await;
            let Err(SessionError::Refused(refusal)) = answer else { panic!("answered: {answer:?}") };
            assert_eq!(refusal.code, "version");
            assert!(refusal.message.contains(&both), "{}", refusal.message);
        }
        let header = [vec![0x08, version], id(2, 8)].concat();
        let mut opened =
            link.open_stream(Bytes::from(header), farside_link::StreamOptions::default()).await.unwrap();
        let said = stream::read(&mut opened.io).await.unwrap();
        let StreamMessage::Failure(failure) = said else { panic!("{said:?}") };
        assert!(failure.code == "version" && failure.message.contains(&both), "{failure:?}");
    }
    assert!(pair.a.source.destinations().is_empty());
}
