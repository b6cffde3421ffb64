//! A peer that was removed: everything it had ends at once, and no secret of old times brings it back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustls::HandshakeKind;
use rustls::client::Resumption;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::site::{PATIENCE, b_dials_a, dialler};
use crate::error::SessionError;
use crate::hello::{HELLO_BYTES, Hello, Role, Service, VERSIONS, Verdict, parse_answer};
use crate::tls;
use farside_link::StreamOptions;
use farside_link::{Counted, SocketOptions, TcpTransport, Transport};

#[tokio::test]
async fn all_that_a_removed_peer_had_ends_at_once() {
    let (mut a, mut b) = b_dials_a().await;
    let (ab, ba) = (a.link(&b).await, b.link(&a).await);
    let header = Bytes::from_static(b"keep");
    let mut from_b = ba.open_stream(header.clone(), StreamOptions::default()).await.unwrap();
    let mut at_a = a.kept().await.1;
    let mut from_a = ab.open_stream(header, StreamOptions::default()).await.unwrap();
    let mut at_b = b.kept().await.1;
    for (writer, reader) in [(&mut from_b, &mut at_a), (&mut from_a, &mut at_b)] {
        writer.io.write_all(b"x").await.unwrap();
        writer.io.flush().await.unwrap();
        assert_eq!(reader.io.read_u8().await.unwrap(), b'x');
    }
    // A transfer that waits for bytes, a caller that waits for an answer: on both sides.
    let reading_a = tokio::spawn(async move { at_a.io.read_u8().await.map(drop) });
    let reading_b = tokio::spawn(async move { at_b.io.read_u8().await.map(drop) });
    let calls = [&ab, &ba].map(|link| {
        let link = Arc::clone(link);
        tokio::spawn(async move { link.call(Bytes::from_static(b"hang"), None).await })
    });

    assert!(a.node.remove_peer(b.id()).await.unwrap());
    assert!(timeout(Duration::ZERO, ab.closed()).await.is_ok(), "cut before the call returned");
    let written = from_a.io.write_all(b"y").await.unwrap_err();
    assert!(written.to_string().contains("removed by an administrator"), "{written}");
    for reading in [reading_a, reading_b] {
        timeout(PATIENCE, reading).await.unwrap().unwrap().unwrap_err();
    }
    for call in calls {
        let ended = timeout(PATIENCE, call).await.unwrap().unwrap();
        assert!(matches!(ended, Err(SessionError::Lost(_))), "{ended:?}");
    }
    timeout(PATIENCE, ba.closed()).await.unwrap();
    from_b.io.write_all(b"y").await.unwrap_err();

    // Nothing new of it is let in, whatever it says it is for.
    for role in [Role::Control, Role::Lane] {
        let by_hand = dialler(&b.identity, Arc::new(TcpTransport));
        let error = by_hand.dial(a.address(), a.id(), role, [9; 16], &[]).await.err().unwrap();
        assert!(error.to_string().contains("does not know this site's key"), "{role:?}: {error}");
    }
}

#[tokio::test]
async fn one_that_is_forgotten_is_cut_though_the_registry_cannot_be_asked() {
    let (a, b) = b_dials_a().await;
    let link = a.link(&b).await;
    // The registry has it still, as one that cannot be read seems to.
    a.node.forget_peer(b.id()).await;
    assert!(timeout(Duration::ZERO, link.closed()).await.is_ok(), "cut before the call returned");
    let by_hand = dialler(&b.identity, Arc::new(TcpTransport));
    let error = by_hand.dial(a.address(), a.id(), Role::Control, [9; 16], &[]).await.err().unwrap();
    assert!(error.to_string().contains("does not know this site's key"), "{error}");
}

#[tokio::test]
async fn no_session_is_resumed_before_or_after_a_removal() {
    let (a, b) = b_dials_a().await;
    // A client that would take every ticket, and try early data.
    let mut config = tls::connector(&b.identity, a.id()).unwrap().config().as_ref().clone();
    config.resumption = Resumption::in_memory_sessions(16);
    config.enable_early_data = true;
    let connector = TlsConnector::from(Arc::new(config));
    let hello = Hello {
        versions: (*VERSIONS.start(), *VERSIONS.end()),
        // Refused after its key was looked up, so that the peer's own session is left alone.
        role: Role::Lane,
        service: Service::Storage,
        session: [9; 16],
        instance: [9; 16],
        site_name: "site-b".to_owned(),
    };
    for (is_removed, expected) in
        [(false, Verdict::NoSuchSession), (false, Verdict::NoSuchSession), (true, Verdict::UnknownKey)]
    {
        if is_removed {
            a.node.remove_peer(b.id()).await.unwrap();
        }
        let io = Counted::new(TcpTransport.dial(a.address(), &SocketOptions::default()).await.unwrap());
        let mut io = tls::secure_dialled(&connector, io, a.address()).await.unwrap();
        io.write_all(&hello.encode()).await.unwrap();
        let mut answer = [0; HELLO_BYTES];
        timeout(PATIENCE, io.read_exact(&mut answer)).await.unwrap().unwrap();
        assert_eq!(parse_answer(&answer, &VERSIONS).unwrap().verdict, expected);
        // To its end, so that a ticket sent after the answer would be taken.
        timeout(PATIENCE, io.read_to_end(&mut Vec::new())).await.unwrap().unwrap();
        let tokio_rustls::TlsStream::Client(client) = &io else { panic!("it has dialled") };
        let connection = client.get_ref().1;
        assert_eq!(connection.handshake_kind(), Some(HandshakeKind::Full), "the key was proved anew");
        assert_eq!((connection.tls13_tickets_received(), connection.is_early_data_accepted()), (0, false));
    }
}
