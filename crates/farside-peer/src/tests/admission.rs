//! Whoever has no business here gets nothing, is logged, and disturbs nobody.

use std::sync::Arc;
use std::time::Duration;

use farside_platform::{Randomness, SeededRandomness};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::log;
use super::site::{PATIENCE, Plan, Site, b_dials_a, dialler};
use crate::error::SessionError;
use crate::hello::{HELLO_BYTES, Role, Service};
use crate::identity::Identity;
use crate::limits::{HANDSHAKE_TIMEOUT, UNAUTHENTICATED_PER_ORIGIN_MAX};
use crate::tls;
use farside_link::{Counted, LinkSettings, SimulatedNetwork, SocketOptions, TcpTransport, Transport};

#[tokio::test]
async fn an_unknown_peer_is_refused_and_both_logs_say_who_and_why() {
    let a = Site::tcp("site-a").await;
    let unknown = Plan::tcp("unknown").knows(a.id(), "a", Some(a.address())).await.start().await;
    let state = unknown.wait_state(a.id(), |s| s.last_error.is_some()).await;
    assert!(!state.connected);
    assert!(state.last_error.unwrap().contains("does not know this site's key"));
    let key = unknown.id().to_string();
    log::wait_for(&["refused a connection", "127.0.0.1", &key, "not pinned"]).await;
    log::wait_for(&["cannot connect to the peer", a.address(), &key]).await;
    assert!(a.node.peers().is_empty());
    let error = unknown.node.wait_link(a.id(), Duration::from_millis(1)).await.err().unwrap();
    assert!(error.to_string().contains("does not know this site's key"), "{error}");
    assert!(a.node.wait_link(unknown.id(), PATIENCE).await.is_err(), "at once: it is not pinned");
}

#[tokio::test]
async fn a_lane_without_its_session_is_refused() {
    let (a, b) = b_dials_a().await;
    let unknown = Identity::generate().unwrap();
    let role = Role::Lane;
    for (identity, expected) in
        [(&b.identity, "no longer has this session"), (&unknown, "does not know this site's key")]
    {
        let by_hand = dialler(identity, Arc::new(TcpTransport));
        let error = by_hand.dial(a.address(), a.id(), role, [1; 16], &[]).await.err().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
    }
    a.proves_alive(&b).await;
}

#[tokio::test]
async fn a_port_of_another_service_says_so_to_peers_and_guests() {
    let mut plan = Plan::tcp("box-a");
    plan.config.service = Service::Accelerator;
    let peer = Identity::generate().unwrap();
    let a = plan.knows(peer.id(), "b", None).await.start().await;
    let dial = async |identity: &Identity, service, role| {
        let mut by_hand = dialler(identity, Arc::new(TcpTransport));
        by_hand.service = service;
        by_hand.dial(a.address(), a.id(), role, [1; 16], &[]).await.map(|(_, answer)| answer.verdict)
    };
    for role in [Role::Control, Role::Lane, Role::Pairing] {
        let error = dial(&peer, Service::Storage, role).await.unwrap_err();
        assert!(matches!(error, SessionError::Unreachable { .. }), "{role:?}: {error}");
        assert!(error.to_string().contains("accelerator's; dial the site's own port, 7440"), "{error}");
    }
    log::wait_for(&["refused a connection", &peer.id().to_string(), "this port is the accelerator's"]).await;
    assert!(dial(&peer, Service::Accelerator, Role::Control).await.is_ok());

    // Who is not known learns that alone; a guest learns that this is the wrong port.
    let unknown = Identity::generate().unwrap();
    let error = dial(&unknown, Service::Storage, Role::Control).await.unwrap_err();
    assert!(error.to_string().contains("does not know this site's key"), "{error}");
    let error = dial(&unknown, Service::Storage, Role::Pairing).await.unwrap_err();
    assert!(error.to_string().contains("dial the site's own port"), "{error}");

    // The other way round: an accelerator at a site's own port.
    let site = Plan::tcp("site-c").knows(peer.id(), "b", None).await.start().await;
    let mut by_hand = dialler(&peer, Arc::new(TcpTransport));
    by_hand.service = Service::Accelerator;
    let error = by_hand.dial(site.address(), site.id(), Role::Control, [1; 16], &[]).await.err().unwrap();
    assert!(error.to_string().contains("dial the accelerator's port, 7442"), "{error}");
}

#[tokio::test]
async fn a_stolen_certificate_is_worth_nothing() {
    let (a, b) = b_dials_a().await;
    // As a dialler: it shows b's certificate to a.
    let thief = Identity::stolen_from(&b.identity);
    let by_hand = dialler(&thief, Arc::new(TcpTransport));
    let error = by_hand.dial(a.address(), a.id(), Role::Control, [1; 16], &[]).await.err().unwrap();
    assert!(!matches!(error, SessionError::AlreadyConnected), "{error}");
    log::wait_for(&["refused a connection", "no TLS and hello", "BadSignature"]).await;
    // As a listener: it shows a's certificate to b.
    let mut plan = Plan::tcp("thief");
    plan.identity = Identity::stolen_from(&a.identity);
    let thief = plan.start().await;
    let by_hand = dialler(&b.identity, Arc::new(TcpTransport));
    let error = by_hand.dial(thief.address(), a.id(), Role::Control, [1; 16], &[]).await.err().unwrap();
    assert!(matches!(error, SessionError::NotAuthenticated(_)), "{error}");
    assert!(
        error.to_string().contains("BadSignature"),
        "refused in the handshake, before the hello: {error}"
    );
    a.proves_alive(&b).await;
}

#[tokio::test]
async fn other_versions_are_refused_with_both_named_on_both_sides() {
    let mut b = Plan::tcp("site-b");
    b.config.versions = 3..=4;
    let a = Plan::tcp("site-a").knows(b.identity.id(), "b", None).await.start().await;
    let b = b.knows(a.id(), "a", Some(a.address())).await.start().await;
    let state = b.wait_state(a.id(), |s| s.last_error.is_some()).await;
    let error = state.last_error.unwrap();
    assert!(error.contains("this site speaks 4, the peer 2"), "{error}");
    log::wait_for(&["refused a connection", &b.id().to_string(), "this site speaks 2, the peer 4"]).await;

    // A newer site that still speaks the old version is welcome, and the old version is spoken.
    let mut c = Plan::tcp("site-c");
    c.config.versions = 2..=3;
    let c = c.start().await;
    a.pair(&c).await;
    a.proves_alive(&c).await;
    assert_eq!(c.wait_state(a.id(), |s| s.connected).await.version, Some(2));
}

#[tokio::test]
async fn garbage_on_the_port_disturbs_nobody() {
    let (a, b) = b_dials_a().await;
    let seed = 0x67_61_72_62;
    println!("seed {seed}");
    let random = SeededRandomness::new(seed);
    for round in 0..20 {
        let mut socket = TcpStream::connect(a.address()).await.unwrap();
        let mut garbage = vec![0; 1 + (random.next_u64() % 4000) as usize];
        random.fill(&mut garbage);
        if round % 2 == 0 {
            // Looks like a TLS record with a client hello at first.
            garbage.splice(0..0, [0x16, 3, 1, 0x02, 0, 1, 0, 0x01, 0xfc, 3, 3]);
        }
        // It may be closed before all is written.
        let _ = socket.write_all(&garbage).await;
        let _ = socket.shutdown().await;
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut answer)).await.expect("it is closed");
        assert!(answer.len() < 4096, "{} bytes for garbage", answer.len());
    }
    log::wait_for(&["refused a connection", "no TLS and hello"]).await;
    a.proves_alive(&b).await;
}

#[tokio::test]
async fn a_hello_cut_short_or_spoilt_is_refused() {
    let (a, b) = b_dials_a().await;
    let connector = tls::connector(&b.identity, a.id()).unwrap();
    for bytes in [&[b'f'; 50][..], &[0xaa; HELLO_BYTES]] {
        let io = Counted::new(TcpTransport.dial(a.address(), &SocketOptions::default()).await.unwrap());
        let mut io = tls::secure_dialled(&connector, io, a.address()).await.unwrap();
        io.write_all(bytes).await.unwrap();
        io.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, io.read_to_end(&mut answer)).await.expect("it is closed");
        assert_eq!(answer, b"");
    }
    log::wait_for(&["refused a connection", &b.id().to_string(), "not a hello of farside"]).await;
    a.proves_alive(&b).await;
}

#[tokio::test(start_paused = true)]
async fn silent_connections_are_closed_and_cannot_take_every_slot() {
    let network = SimulatedNetwork::new(1, LinkSettings::default());
    let a = Site::simulated(&network, "a").await;
    let (unknown, b) = (network.host("unknown"), Site::simulated(&network, "b").await);
    let start = tokio::time::Instant::now();
    let mut silent = Vec::new();
    for _ in 0..UNAUTHENTICATED_PER_ORIGIN_MAX + 1 {
        silent.push(unknown.dial(a.address(), &SocketOptions::default()).await.unwrap().io);
    }
    // One too many: closed at once. Sites at other addresses are served.
    let mut one_too_many = silent.pop().unwrap();
    assert_eq!(one_too_many.read(&mut [0; 1]).await.unwrap(), 0);
    a.pair(&b).await;
    a.proves_alive(&b).await;
    assert!(start.elapsed() < HANDSHAKE_TIMEOUT);
    for io in &mut silent {
        assert_eq!(io.read(&mut [0; 1]).await.unwrap(), 0);
    }
    assert!(start.elapsed() <= HANDSHAKE_TIMEOUT + Duration::from_secs(1));
    // The places are free again.
    let mut again = unknown.dial(a.address(), &SocketOptions::default()).await.unwrap().io;
    assert!(tokio::time::timeout(Duration::from_secs(1), again.read(&mut [0; 1])).await.is_err());
}
