//! Data streams: both ways whoever dialled, ends told from losses, back-pressure, counting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::site::{PATIENCE, Plan, Site, b_dials_a, b_dials_a_on};
use crate::error::SessionError;
use crate::limits::STREAMS_OPEN_MAX;
use crate::service::PeerLink;
use farside_link::StreamOptions;
use farside_link::{LinkSettings, SimulatedNetwork};

const MIB: usize = 1 << 20;

/// Bytes that differ everywhere.
pub(super) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

pub(super) async fn echoed(link: &Arc<dyn PeerLink>, payload: Vec<u8>) {
    let stream = link.open_stream(Bytes::from_static(b"echo"), StreamOptions::default()).await.unwrap();
    let (mut reader, mut writer) = tokio::io::split(stream.io);
    let sent = payload.clone();
    let writing = tokio::spawn(async move {
        writer.write_all(&sent).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let mut got = Vec::new();
    reader.read_to_end(&mut got).await.unwrap();
    writing.await.unwrap();
    assert!(got == payload, "{} bytes came back of {}", got.len(), payload.len());
    assert!(stream.wire.sent() as usize > payload.len() && stream.wire.received() as usize > payload.len());
}

#[tokio::test]
async fn they_work_both_ways_whoever_dialled() {
    let (a, b) = b_dials_a().await;
    for link in [a.link(&b).await, b.link(&a).await] {
        for length in [0, 1, 100_000, 5 * MIB] {
            echoed(&link, pattern(length)).await;
        }
        let error = link
            .open_stream(Bytes::from(vec![0; crate::limits::HEADER_BYTES_MAX + 1]), StreamOptions::default())
            .await
            .err()
            .unwrap();
        assert!(matches!(error, SessionError::TooLarge { .. }), "{error}");
    }
}

#[tokio::test]
async fn the_header_arrives_and_the_writers_end_is_an_end() {
    let (mut a, b) = b_dials_a().await;
    let header = Bytes::from([&b"keep"[..], &[7; crate::limits::HEADER_BYTES_MAX - 4]].concat());
    let mut near = b.link(&a).await.open_stream(header.clone(), StreamOptions::default()).await.unwrap();
    let (seen, mut far) = a.kept().await;
    assert_eq!(seen, header);
    near.io.write_all(b"question").await.unwrap();
    near.io.shutdown().await.unwrap();
    let mut got = Vec::new();
    far.io.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"question");
    // The other direction is still open.
    far.io.write_all(b"answer").await.unwrap();
    far.io.shutdown().await.unwrap();
    got.clear();
    near.io.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"answer");
}

#[tokio::test]
async fn a_writer_that_vanishes_is_an_error_and_no_end() {
    let (mut a, b) = b_dials_a().await;
    let mut near =
        b.link(&a).await.open_stream(Bytes::from_static(b"keep"), StreamOptions::default()).await.unwrap();
    let (_, mut far) = a.kept().await;
    near.io.write_all(b"half a sent").await.unwrap();
    near.io.flush().await.unwrap();
    drop(near);
    let mut got = Vec::new();
    let error = far.io.read_to_end(&mut got).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    assert_eq!(got, b"half a sent");
}

#[tokio::test]
async fn their_number_is_bounded_and_places_come_back() {
    let (mut a, b) = b_dials_a().await;
    for link in [b.link(&a).await, a.link(&b).await] {
        let mut open = Vec::new();
        for _ in 0..STREAMS_OPEN_MAX {
            open.push(link.open_stream(Bytes::from_static(b"echo"), StreamOptions::default()).await.unwrap());
        }
        assert!(matches!(
            link.open_stream(Bytes::new(), StreamOptions::default()).await,
            Err(SessionError::Local(_))
        ));
        drop(open);
        echoed(&link, pattern(1000)).await;
    }
    let _ =
        b.link(&a).await.open_stream(Bytes::from_static(b"keep"), StreamOptions::default()).await.unwrap();
    a.kept().await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_does_not_read_stops_the_writer() {
    let network =
        SimulatedNetwork::new(3, LinkSettings { latency: Duration::from_millis(20), ..Default::default() });
    let (mut a, b) = b_dials_a_on(&network).await;
    let mut near =
        b.link(&a).await.open_stream(Bytes::from_static(b"keep"), StreamOptions::default()).await.unwrap();
    let (_, mut far) = a.kept().await;
    let block = pattern(64 * 1024);
    let mut taken = 0_usize;
    let minute = Duration::from_secs(60);
    while let Ok(written) = tokio::time::timeout(minute, near.io.write(&block[taken % block.len()..])).await {
        taken += written.unwrap();
    }
    assert!(taken < 6 * MIB, "{taken} bytes were taken with nobody reading");
    // A minute without progress has not ended the session, and nothing was lost.
    b.proves_alive(&a).await;
    let reading = tokio::spawn(async move {
        let mut got = Vec::new();
        far.io.read_to_end(&mut got).await.unwrap();
        got
    });
    near.io.shutdown().await.unwrap();
    let got = reading.await.unwrap();
    let expected: Vec<u8> = block.iter().copied().cycle().take(taken).collect();
    assert!(got == expected, "{} of {taken} bytes arrived", got.len());
}

#[tokio::test(start_paused = true)]
async fn a_cut_link_is_an_error_at_both_ends() {
    let network =
        SimulatedNetwork::new(4, LinkSettings { latency: Duration::from_millis(5), ..Default::default() });
    let (mut a, b) = b_dials_a_on(&network).await;
    let mut near =
        b.link(&a).await.open_stream(Bytes::from_static(b"keep"), StreamOptions::default()).await.unwrap();
    let (_, mut far) = a.kept().await;
    near.io.write_all(b"begun").await.unwrap();
    near.io.flush().await.unwrap();
    let mut got = [0; 5];
    far.io.read_exact(&mut got).await.unwrap();
    network.cut("a", "b");
    assert!(far.io.read(&mut got).await.is_err());
    assert!(near.io.read(&mut got).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_session_ends_streams_on_links_that_still_work() {
    let network =
        SimulatedNetwork::new(5, LinkSettings { latency: Duration::from_millis(5), ..Default::default() });
    let (mut a, b) = b_dials_a_on(&network).await;
    let near =
        b.link(&a).await.open_stream(Bytes::from_static(b"keep"), StreamOptions::default()).await.unwrap();
    let (_, mut far) = a.kept().await;
    // Reader and writer wait in two tasks: both must be woken.
    let (mut reader, mut writer) = tokio::io::split(near.io);
    let reading = tokio::spawn(async move { reader.read(&mut [0; 1]).await });
    let writing = tokio::spawn(async move {
        let block = vec![0; MIB];
        loop {
            if let Err(e) = writer.write_all(&block).await {
                return e;
            }
        }
    });
    tokio::time::sleep(Duration::from_secs(30)).await;
    b.node.remove_peer(a.id()).await.unwrap();
    let error = tokio::time::timeout(PATIENCE, reading).await.unwrap().unwrap().unwrap_err();
    assert!(error.to_string().contains("removed by an administrator"), "{error}");
    tokio::time::timeout(PATIENCE, writing).await.expect("the writer is woken").unwrap();
    let mut rest = Vec::new();
    assert!(far.io.read_to_end(&mut rest).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_flipped_bit_costs_a_lane_and_nothing_else() {
    let network = SimulatedNetwork::new(6, LinkSettings::default());
    let (a, b) = b_dials_a_on(&network).await;
    network.corrupt("b", "a", 100_000);
    echoed(&b.link(&a).await, pattern(MIB)).await;
    assert!(b.node.link_stats(a.id()).unwrap().retransmitted_bytes > 0);
}

#[tokio::test(start_paused = true)]
async fn counters_are_what_the_simulated_wire_carried() {
    let network =
        SimulatedNetwork::new(7, LinkSettings { latency: Duration::from_millis(1), ..Default::default() });
    let (a, b) = b_dials_a_on(&network).await;
    echoed(&a.link(&b).await, pattern(2 * MIB)).await;
    echoed(&b.link(&a).await, pattern(2 * MIB)).await;
    b.link(&a).await.call(Bytes::from(vec![0; MIB]), None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (of_a, of_b) = (&a.node.peers()[0], &b.node.peers()[0]);
    let (ab, ba) = (network.carried("a", "b"), network.carried("b", "a"));
    for (counted, carried) in
        [(of_a.sent_bytes, ab), (of_b.received_bytes, ab), (of_b.sent_bytes, ba), (of_a.received_bytes, ba)]
    {
        let off = (counted as f64 - carried as f64).abs() / carried as f64;
        assert!(off < 0.001, "counted {counted}, carried {carried}");
    }
    assert_eq!(a.link(&b).await.wire().sent(), of_a.sent_bytes);
}

/// Relays connections to `target`; counts bytes from the dialler and to it.
async fn relay(target: String) -> (String, Arc<[AtomicU64; 2]>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let carried: Arc<[AtomicU64; 2]> = Arc::default();
    let counts = Arc::clone(&carried);
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let (target, counts) = (target.clone(), Arc::clone(&counts));
            tokio::spawn(async move {
                let far = TcpStream::connect(target).await.unwrap();
                let (mut near, mut far) = (Metered(near, Arc::clone(&counts)), far);
                let _ = copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    (address, carried)
}

/// A socket that counts what is read from it and written to it.
struct Metered(TcpStream, Arc<[AtomicU64; 2]>);

impl tokio::io::AsyncRead for Metered {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let polled = std::pin::Pin::new(&mut self.0).poll_read(cx, buf);
        self.1[0].fetch_add((buf.filled().len() - before) as u64, Ordering::Relaxed);
        polled
    }
}

impl tokio::io::AsyncWrite for Metered {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        let polled = std::pin::Pin::new(&mut self.0).poll_write(cx, buf);
        if let std::task::Poll::Ready(Ok(bytes)) = polled {
            self.1[1].fetch_add(bytes as u64, Ordering::Relaxed);
        }
        polled
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn counters_are_what_real_sockets_carried() {
    let b = Plan::tcp("site-b");
    let a: Site = Plan::tcp("site-a").knows(b.identity.id(), "b", None).await.start().await;
    let (address, carried) = relay(a.address().to_owned()).await;
    let b = b.knows(a.id(), "a", Some(&address)).await.start().await;
    echoed(&b.link(&a).await, pattern(8 * MIB)).await;
    echoed(&a.link(&b).await, pattern(2 * MIB)).await;
    let settled = async {
        loop {
            let status = &b.node.peers()[0];
            let (out, back) = (carried[0].load(Ordering::Relaxed), carried[1].load(Ordering::Relaxed));
            let off = |counted: u64, seen: u64| (counted as f64 - seen as f64).abs() / seen as f64;
            if off(status.sent_bytes, out) < 0.001 && off(status.received_bytes, back) < 0.001 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, settled).await.expect("the counters agree");
}
