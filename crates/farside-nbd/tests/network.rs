//! Clients over TCP: what a host gets, and what whoever proves nothing does not.
#![allow(clippy::unwrap_used)] // a failure here is a failed test

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_nbd::Limits;
use support::memory::{MemoryExport, MemorySource};
use support::network::{Authority, NetworkServer};
use support::raw::*;
use support::serve::PATIENCE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MIB: u64 = 1 << 20;

async fn server(limits: Limits) -> (NetworkServer, Arc<MemoryExport>) {
    let export = Arc::new(MemoryExport::new(MIB));
    let source = MemorySource::default().with("pool/volume", &export);
    (NetworkServer::start(source, limits).await, export)
}

#[tokio::test]
async fn who_does_not_prove_who_it_is_learns_nothing() {
    let (server, export) = server(Limits::default()).await;
    let host = server.host();

    // Without TLS every question has one answer, whatever it is about, and STARTTLS still works after it.
    let mut client = server.greeted().await;
    let mut context = string("pool/volume");
    context.extend(0_u32.to_be_bytes());
    for (code, data) in [
        (OPT_LIST, vec![]),
        (OPT_INFO, go("pool/volume")),
        (OPT_GO, go("pool/nothing")),
        (OPT_STRUCTURED_REPLY, vec![]),
        (OPT_LIST_META_CONTEXT, context),
        (99, b"whatever".to_vec()),
    ] {
        assert_eq!(client.option(code, &data).await[0].0, REP_ERR_TLS_REQD, "option {code}");
    }
    assert_eq!(client.option(OPT_STARTTLS, b"x").await[0].0, REP_ERR_INVALID);
    assert_eq!(client.option(OPT_STARTTLS, &[]).await[0].0, REP_ACK);
    let stream = server.connector(Some(&host)).connect(server.name(), client.stream).await.unwrap();
    let mut client = RawClient { stream, structured: false };
    assert_eq!(client.option(OPT_STARTTLS, &[]).await[0].0, REP_ERR_INVALID, "under TLS already");
    client.chosen("pool/volume", true).await;

    // What cannot be refused ends the connection.
    let mut client = server.greeted().await;
    client.send(&option(OPT_EXPORT_NAME, b"pool/volume")).await;
    assert_eq!(client.take_to_end().await, b"");
    let mut client = server.greeted().await;
    for _ in 0..20 {
        let _ = client.stream.write_all(&option(OPT_LIST, &[])).await;
    }
    assert!(client.take_to_end().await.len() < 16 * 200, "it is not answered for ever");
    let mut client = server.greeted().await;
    client.send(b"IHAVEOPT\0\0\0\x05\xff\xff\xff\xff").await;
    assert_eq!(client.take_to_end().await, b"");
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 3, 1, 2, 0, 1, 0, 1], &[0; 64]] {
        let mut stream = server.connect().await;
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it ends");
        assert_eq!(&rest[..18.min(rest.len())], &b"NBDMAGICIHAVEOPT\0\x03"[..18.min(rest.len())]);
    }

    // Under TLS: no certificate, one of another authority, one that nobody knows.
    let (stranger, unknown) = (Authority::new().issue(), server.authority.issue());
    for credentials in [None, Some(&stranger), Some(&unknown)] {
        // The client's side of TLS 1.3 is done before the server has seen its certificate.
        if let Ok(mut client) = server.secured(credentials).await {
            let _ = client.stream.write_all(&option(OPT_LIST, &[])).await;
            assert_eq!(client.take_to_end().await, b"");
        }
    }
    assert!(export.calls().is_empty());
    server.assert_serves(&host).await;
    server.stop().await;
}

#[tokio::test]
async fn what_comes_in_the_clear_behind_starttls_is_not_taken_for_protected() {
    let (server, export) = server(Limits::default()).await;
    let host = server.host();
    // Somebody on the way puts options of his own behind the client's STARTTLS, in the same packet.
    let injected = [option(OPT_STARTTLS, &[]), option(OPT_GO, &go("pool/volume"))].concat();
    let mut client = server.greeted().await;
    client.send(&injected).await;
    let answer = client.take_to_end().await;
    assert_eq!(answer.len(), 20 + 7, "an acknowledgement, and TLS's alert: {answer:02x?}");
    assert_eq!(answer[20], 0x15, "an alert");

    // And the client goes on with TLS, unaware.
    let mut client = server.greeted().await;
    client.send(&injected).await;
    assert_eq!(client.take(20).await[12..16], REP_ACK.to_be_bytes());
    let connector = server.connector(Some(&host));
    assert!(connector.connect(server.name(), client.stream).await.is_err());
    assert!(export.calls().is_empty());
    server.assert_serves(&host).await;
    server.stop().await;
}

#[tokio::test]
async fn a_handshake_has_its_time() {
    let limits = Limits { tls_handshake_max: Duration::from_millis(300), ..Limits::default() };
    let (server, _) = server(limits).await;
    let mut silent = RawClient::greeted(server.connect().await).await;
    let mut half = server.greeted().await;
    assert_eq!(half.option(OPT_STARTTLS, &[]).await[0].0, REP_ACK);
    half.send(&[0x16, 3, 1, 2, 0]).await;
    // Byte by byte wins no time.
    let mut slow = server.greeted().await;
    let began = Instant::now();
    while slow.stream.write_all(b"I").await.is_ok() {
        assert!(began.elapsed() < PATIENCE, "it goes on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    silent.take_to_end().await;
    half.take_to_end().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_open_connections_keep_no_known_host_out() {
    farside_platform::raise_open_files().unwrap();
    let (server, _) = server(Limits::default()).await;
    let host = server.host();
    // All from the host's own address, which is the worst case.
    let mut half_open = Vec::new();
    for number in 0..2000 {
        let mut stream = server.connect().await;
        match number % 3 {
            0 => {}
            1 => drop(stream.write_all(&3_u32.to_be_bytes()).await),
            _ => {
                drop(stream.write_all(&[&3_u32.to_be_bytes()[..], &option(OPT_STARTTLS, &[])].concat()).await)
            }
        }
        half_open.push(stream);
    }
    let began = Instant::now();
    server.assert_serves(&host).await;
    println!("with 2000 half-open connections: {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    // The oldest have been sent away.
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, half_open[0].read_to_end(&mut rest)).await.expect("it is closed");
    server.stop().await;
}

#[tokio::test]
async fn a_host_that_is_revoked_goes_at_once() {
    let (server, export) = server(Limits::default()).await;
    let host = server.host();
    let idle = server.secured(Some(&host)).await.unwrap();
    let mut idle_option = idle;
    assert_eq!(idle_option.option(OPT_LIST, &[]).await.last().unwrap().0, REP_ACK);
    let client = server.secured(Some(&host)).await.unwrap();
    let mut client = client.chosen("pool/volume", true).await;
    assert_eq!(client.write(0, 0, &[1; 4096]).await.error, 0);
    server.revoked.cancel();
    assert_eq!(client.take_to_end().await, b"");
    assert_eq!(idle_option.take_to_end().await, b"");
    assert_eq!(export.bytes(0, 1), [1]);
    server.stop().await;
}

#[tokio::test]
async fn one_host_leaves_places_for_the_others() {
    let limits = Limits {
        network_connections_max: 2,
        host_connections_max: 4,
        host_connections_kept: 1,
        ..Limits::default()
    };
    let (server, _) = server(limits).await;
    let (greedy, modest) = (server.host(), server.host());
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(server.secured(Some(&greedy)).await.unwrap().chosen("pool/volume", true).await);
    }
    let mut one_more = server.secured(Some(&greedy)).await.unwrap();
    let _ = one_more.stream.write_all(&option(OPT_LIST, &[])).await;
    assert_eq!(one_more.take_to_end().await, b"");
    server.assert_serves(&modest).await;
    server.stop().await;
}
