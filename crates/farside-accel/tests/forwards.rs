//! Two boxes in one process, over loopback, with explicit forwards: what a taken connection promises, without privilege.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod pair;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_accel::policy::Action;
use pair::{PATIENCE, Pair, free_port, noise, seed, until};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// A server that gives back what it gets, after the client has said all.
async fn echo() -> SocketAddr {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    // With the usual 128 a burst of clients is reset by the kernel.
    let listener = socket.listen(4096).unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut all = Vec::new();
                if socket.read_to_end(&mut all).await.is_ok() {
                    let _ = socket.write_all(&all).await;
                    let _ = socket.shutdown().await;
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_half_closed_brings_everything_back() {
    let pair = Pair::start(echo().await).await;
    let sent = noise(5_000_000, seed());
    let mut client = TcpStream::connect(pair.port).await.unwrap();
    client.write_all(&sent).await.unwrap();
    client.shutdown().await.unwrap();
    let mut got = Vec::new();
    timeout(PATIENCE, client.read_to_end(&mut got)).await.unwrap().unwrap();
    assert!(got == sent);
    drop(client);
    until("nothing is open", || pair.near.accelerator.connections.open() == 0).await;
    until("there neither", || pair.far.accelerator.connections.open() == 0).await;
    let (original, wire) = pair.near.accelerator.connections.bytes();
    assert_eq!(original, 10_000_000);
    // F20: no more than 0.5 % larger. What the streams of the session add is not in it.
    assert!(wire <= original + original / 200, "{wire}");
}

/// Sends all, and gets it back.
async fn round_trip(port: SocketAddr, sent: &[u8]) {
    let mut client = TcpStream::connect(port).await.unwrap();
    client.write_all(sent).await.unwrap();
    client.shutdown().await.unwrap();
    let mut got = Vec::new();
    timeout(2 * PATIENCE, client.read_to_end(&mut got)).await.unwrap().unwrap();
    assert!(got == sent, "{} of {} bytes came back", got.len(), sent.len());
}

/// What the connections of a pair have cost since.
fn cost(pair: &Pair, since: (u64, u64)) -> (u64, u64) {
    let (original, wire) = pair.near.accelerator.connections.bytes();
    (original - since.0, wire - since.1)
}

/// Text of many words: it gets smaller, and does not repeat by much.
fn words(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut text = Vec::with_capacity(bytes + 10);
    while text.len() < bytes {
        text.extend_from_slice(format!("{} ", random.next_u32() % 50_000).as_bytes());
    }
    text.truncate(bytes);
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_passed_before_passes_as_references() {
    let pair = Pair::start_with_stores(echo().await).await;
    let noise = noise(8_000_000, seed());
    let none = (0, 0);
    round_trip(pair.port, &noise).await;
    let (original, cold) = cost(&pair, none);
    assert_eq!(original, 16_000_000);
    // There as noise, and back as references to what has just been there.
    assert!(cold < 8_500_000, "{cold}");
    let before = pair.near.accelerator.connections.bytes();
    // The far side says what it holds within a twentieth of a second.
    sleep(Duration::from_millis(300)).await;
    round_trip(pair.port, &noise).await;
    let (_, warm) = cost(&pair, before);
    assert!(warm < 100_000, "{warm} bytes for what both have");
}

#[tokio::test(flavor = "multi_thread")]
async fn text_gets_smaller_and_stays_right() {
    let pair = Pair::start_with_stores(echo().await).await;
    let text = words(6_000_000, seed());
    round_trip(pair.port, &text).await;
    let (original, wire) = cost(&pair, (0, 0));
    assert!(wire < original / 3, "{wire} of {original}");
    for size in [0, 1, 2, 511, 512, 513, 4095, 65_535, 65_536, 65_537, 1_048_577] {
        round_trip(pair.port, &text[..size]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cleared_store_lacks_is_asked_for() {
    let pair = Pair::start_with_stores(echo().await).await;
    let noise = noise(6_000_000, seed());
    round_trip(pair.port, &noise).await;
    sleep(Duration::from_millis(300)).await;
    // The near side still believes that the far side has it: it is asked for at once, before the news arrives.
    pair.far.accelerator.clear_store(None).unwrap();
    round_trip(pair.port, &noise).await;
    pair.near.accelerator.clear_store(Some("peer")).unwrap();
    round_trip(pair.port, &noise).await;
    assert!(pair.near.accelerator.clear_store(Some("nobody")).is_err());
    sleep(Duration::from_millis(300)).await;
    let before = pair.near.accelerator.connections.bytes();
    round_trip(pair.port, &noise).await;
    let (_, warm) = cost(&pair, before);
    assert!(warm < 200_000, "{warm}: it is warm again");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_flows_share_what_passes_and_all_arrive() {
    let pair = Arc::new(Pair::start_with_stores(echo().await).await);
    let seed = seed();
    let common = Arc::new(words(2_000_000, seed));
    let flows: Vec<_> = (0..200u64)
        .map(|n| {
            let (pair, common) = (Arc::clone(&pair), Arc::clone(&common));
            tokio::spawn(async move {
                let own = noise((n as usize * 977) % 20_000, seed + n);
                let from = (n as usize * 31_337) % 1_500_000;
                let sent = [&own, &common[from..from + 200_000], &own].concat();
                round_trip(pair.port, &sent).await;
            })
        })
        .collect();
    for flow in flows {
        timeout(4 * PATIENCE, flow).await.unwrap().unwrap();
    }
    until("nothing is open", || pair.near.accelerator.connections.open() == 0).await;
    until("there neither", || pair.far.accelerator.connections.open() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_resets_the_client() {
    let nobody = free_port().await;
    let pair = Pair::start(nobody).await;
    for port in [pair.port, pair.closed] {
        // The reset may come before the connection was seen to stand.
        let read = async { TcpStream::connect(port).await?.read(&mut [0; 1]).await };
        let read = timeout(PATIENCE, read).await.unwrap();
        assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    }
    assert_eq!(pair.far.accelerator.connections.open(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_on_either_side_is_one_on_the_other() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = Pair::start(listener.local_addr().unwrap()).await;
    for by_client in [true, false] {
        let client = TcpStream::connect(pair.port).await.unwrap();
        let (server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        let (leaver, mut stayer) = if by_client { (client, server) } else { (server, client) };
        SockRef::from(&leaver).set_linger(Some(Duration::ZERO)).unwrap();
        drop(leaver);
        let read = timeout(PATIENCE, stayer.read(&mut [0; 1])).await.unwrap();
        assert_eq!(
            read.unwrap_err().kind(),
            std::io::ErrorKind::ConnectionReset,
            "by the client: {by_client}"
        );
    }
    until("nothing is open", || pair.near.accelerator.connections.open() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn single_bytes_come_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = Pair::start(listener.local_addr().unwrap()).await;
    let mut client = TcpStream::connect(pair.port).await.unwrap();
    client.set_nodelay(true).unwrap();
    let (mut server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    server.set_nodelay(true).unwrap();
    for byte in 0..=255u8 {
        client.write_all(&[byte]).await.unwrap();
        assert_eq!(timeout(PATIENCE, server.read_u8()).await.unwrap().unwrap(), byte);
        server.write_all(&[byte]).await.unwrap();
        assert_eq!(timeout(PATIENCE, client.read_u8()).await.unwrap().unwrap(), byte);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_does_not_read_holds_up_nobody_and_fills_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = Pair::start(listener.local_addr().unwrap()).await;
    let mut stuck = TcpStream::connect(pair.port).await.unwrap();
    let (_kept, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    // As much as is taken: the sockets' buffers and the window.
    let block = vec![7; 1 << 20];
    let mut taken = 0u64;
    while let Ok(written) = timeout(Duration::from_secs(1), stuck.write(&block)).await {
        taken += written.unwrap() as u64;
        assert!(taken < 256 << 20, "nothing holds it back");
    }
    // Another one goes on meanwhile.
    let mut quick = TcpStream::connect(pair.port).await.unwrap();
    let (mut server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    let sent = noise(3_000_000, seed());
    let write = async {
        quick.write_all(&sent).await.unwrap();
        quick.shutdown().await.unwrap();
    };
    let mut got = Vec::new();
    timeout(PATIENCE, async { tokio::join!(write, server.read_to_end(&mut got)).1 }).await.unwrap().unwrap();
    assert!(got == sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_dies_resets_what_is_open_and_comes_back() {
    let server = echo().await;
    let Pair { near, far, port, _directory, .. } = Pair::start(server).await;
    let mut client = TcpStream::connect(port).await.unwrap();
    client.write_all(b"half a question").await.unwrap();
    until("it is open", || far.accelerator.connections.open() == 1).await;
    let began = Instant::now();
    far.stop().await;
    let read = timeout(PATIENCE, client.read(&mut [0; 1])).await.unwrap();
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert!(near.accelerator.status().bypass.is_some());
    // A forward has no plain way: it is reset at once, and nothing hangs.
    let late = async { TcpStream::connect(port).await?.read(&mut [0; 1]).await };
    let read = timeout(Duration::from_secs(3), late).await.unwrap();
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_box_that_stops_resets_its_own_hosts() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let Pair { near, far, port, _directory, .. } = Pair::start(listener.local_addr().unwrap()).await;
    let mut client = TcpStream::connect(port).await.unwrap();
    client.write_all(b"half a file").await.unwrap();
    let (mut server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    let mut got = [0; 11];
    timeout(PATIENCE, server.read_exact(&mut got)).await.unwrap().unwrap();
    near.stop().await;
    // An end would say that the half is all.
    for end in [&mut client, &mut server] {
        let read = timeout(PATIENCE, end.read(&mut [0; 1])).await.unwrap();
        assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    }
    drop(far);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_is_removed_takes_its_connections_with_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = Pair::start(listener.local_addr().unwrap()).await;
    let mut client = TcpStream::connect(pair.port).await.unwrap();
    let (mut server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    pair.near.set_peers(Vec::new()).await.unwrap();
    for end in [&mut client, &mut server] {
        let read = timeout(PATIENCE, end.read(&mut [0; 1])).await.unwrap();
        assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_reset_by_command() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = Pair::start(listener.local_addr().unwrap()).await;
    let mut client = TcpStream::connect(pair.port).await.unwrap();
    let (mut server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    until("it is listed", || pair.near.accelerator.connections.open() == 1).await;
    let shown = pair.near.accelerator.connections.shown();
    assert_eq!((shown[0].applied, shown[0].configured), (Action::Transport, Action::Full));
    assert!(pair.near.accelerator.connections.reset(shown[0].client, shown[0].server));
    for end in [&mut client, &mut server] {
        let read = timeout(PATIENCE, end.read(&mut [0; 1])).await.unwrap();
        assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_at_once_all_arrive() {
    let pair = Arc::new(Pair::start(echo().await).await);
    let seed = seed();
    let clients: Vec<_> = (0..500u64)
        .map(|n| {
            let pair = Arc::clone(&pair);
            tokio::spawn(async move {
                let sent = noise(1 + (n as usize * 7919) % 50_000, seed + n);
                let mut client = TcpStream::connect(pair.port).await.unwrap();
                client.write_all(&sent).await.unwrap();
                client.shutdown().await.unwrap();
                let mut got = Vec::new();
                client.read_to_end(&mut got).await.unwrap();
                assert!(got == sent, "connection {n}");
            })
        })
        .collect();
    for client in clients {
        timeout(2 * PATIENCE, client).await.unwrap().unwrap();
    }
    until("nothing is open", || pair.near.accelerator.connections.open() == 0).await;
}
