//! Calls both ways.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::log;
use super::site::{PATIENCE, Site, b_dials_a, control_by_hand, dialler};
use crate::CALL_BYTES_MAX;
use crate::error::SessionError;
use crate::hello::Role;
use crate::limits::{CALLS_OUTSTANDING_MAX, CONTROL_FRAME_MAX};
use farside_link::TcpTransport;
use farside_link::WireCounters;

#[tokio::test]
async fn two_sites_pair_and_call_each_other_over_tcp() {
    let (a, b) = (Site::tcp("site-a").await, Site::tcp("site-b").await);
    a.pair(&b).await;
    let (ab, ba) = (a.link(&b).await, b.link(&a).await);
    assert_eq!((ab.peer(), ba.peer()), (b.id(), a.id()));
    a.proves_alive(&b).await;
    b.proves_alive(&a).await;
    a.wait_state(b.id(), |s| s.rtt_seconds.is_some()).await;
    a.node.shutdown().await;
    b.node.shutdown().await;
    assert!(a.node.link(b.id()).is_none());
}

#[tokio::test]
async fn services_answer_refuse_and_call_back() {
    let (a, b) = b_dials_a().await;
    for link in [a.link(&b).await, b.link(&a).await] {
        let call = |request: &'static [u8]| link.call(Bytes::from_static(request), None);
        assert_eq!(&call(b"").await.unwrap()[..], b"");
        assert_eq!(&call(b"back").await.unwrap()[..], b"there and back");
        let refused = call(b"refuse").await.unwrap_err();
        assert!(
            matches!(&refused, SessionError::Refused(r) if r.code == "state" && r.message == "not now"),
            "{refused}"
        );
        let fault = call(b"panic").await.unwrap_err();
        assert!(matches!(&fault, SessionError::Refused(r) if r.code == "failed"), "{fault}");
        let too_much = call(b"too much").await.unwrap_err();
        assert!(too_much.to_string().contains("the limit is 1048576"), "{too_much}");
        let largest = Bytes::from(vec![7; CALL_BYTES_MAX]);
        assert_eq!(link.call(largest.clone(), None).await.unwrap(), largest);
        let error = link.call(Bytes::from(vec![7; CALL_BYTES_MAX + 1]), None).await.unwrap_err();
        assert!(matches!(error, SessionError::TooLarge { bytes, limit } if bytes == limit + 1), "{error}");
    }
}

#[tokio::test]
async fn many_calls_are_under_way_and_their_number_is_bounded() {
    let (a, b) = b_dials_a().await;
    let link = a.link(&b).await;
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..500_u32 {
        let link = link.clone();
        calls.spawn(async move {
            let request = Bytes::copy_from_slice(&n.to_le_bytes().repeat(1000));
            assert_eq!(link.call(request.clone(), None).await.unwrap(), request);
        });
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
    // Callers that give up leave their places taken until the answers come: the peer is still at work.
    for _ in 0..CALLS_OUTSTANDING_MAX {
        let call = link.call(Bytes::from_static(b"hang"), None);
        assert!(tokio::time::timeout(Duration::from_millis(5), call).await.is_err());
    }
    let one_more = link.call(Bytes::from_static(b"x"), None);
    assert!(tokio::time::timeout(Duration::from_millis(100), one_more).await.is_err());
    // The other direction is free, and a lost session ends the waiting.
    b.proves_alive(&a).await;
    let waiting = tokio::spawn({
        let link = link.clone();
        async move { link.call(Bytes::from_static(b"x"), None).await }
    });
    b.node.remove_peer(a.id()).await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert!(matches!(ended, Err(SessionError::Lost(_))), "{ended:?}");
}

#[tokio::test]
async fn calls_are_charged_with_what_they_cost_on_the_wire() {
    let (a, b) = b_dials_a().await;
    let link = b.link(&a).await;
    let total = link.wire();
    let (sent, received) = (total.sent(), total.received());
    let charged = WireCounters::default();
    for _ in 0..40 {
        link.call(Bytes::from(vec![1; 50_000]), Some(&charged)).await.unwrap();
    }
    let (sent, received) = ((total.sent() - sent) as f64, (total.received() - received) as f64);
    for (charged, seen) in [(charged.sent(), sent), (charged.received(), received)] {
        let off = (charged as f64 - seen).abs() / seen;
        assert!(off < 0.002, "charged {charged}, the socket carried {seen}");
    }
}

#[tokio::test]
async fn a_frame_beyond_the_limit_ends_the_session_and_nothing_else() {
    let (a, b) = b_dials_a().await;
    let c = Site::tcp("site-c").await;
    a.pair(&c).await;
    b.node.shutdown().await;
    // Now somebody with the key of b, who does not keep the protocol.
    let by_hand = dialler(&b.identity, std::sync::Arc::new(TcpTransport));
    let (io, _) = by_hand.dial(a.address(), a.id(), Role::Control, [5; 16], &[]).await.unwrap();
    let mut io = control_by_hand(io);
    io.write_all(&(CONTROL_FRAME_MAX as u32 + 1).to_le_bytes()).await.unwrap();
    io.flush().await.unwrap();
    let mut rest = Vec::new();
    // The end of the session may be an end of the stream or an error: what came before it counts.
    let _ = tokio::time::timeout(PATIENCE, io.read_to_end(&mut rest)).await.unwrap();
    assert!(String::from_utf8_lossy(&rest).contains("broke the protocol"), "it is told why");
    log::wait_for(&["session with the peer ended", &format!("{:?}", b.id()), "the limit is"]).await;
    a.proves_alive(&c).await;
}

#[tokio::test]
async fn undecodable_frames_and_unasked_answers_end_the_session() {
    let (a, b) = b_dials_a().await;
    b.node.shutdown().await;
    let by_hand = dialler(&b.identity, std::sync::Arc::new(TcpTransport));
    for bad in [&[3, 0, 0, 0, 0xff, 0xff, 0xff][..], &[0, 0, 0, 0], &[4, 0, 0, 0, 0x12, 0x02, 0x08, 0x63]] {
        let (io, _) = by_hand.dial(a.address(), a.id(), Role::Control, [5; 16], &[]).await.unwrap();
        let mut io = control_by_hand(io);
        io.write_all(bad).await.unwrap();
        io.flush().await.unwrap();
        let mut rest = Vec::new();
        // The end of the session may be an end of the stream or an error: what came before it counts.
        let _ = tokio::time::timeout(PATIENCE, io.read_to_end(&mut rest)).await.unwrap();
        assert!(String::from_utf8_lossy(&rest).contains("broke the protocol"), "{bad:?}");
    }
}
