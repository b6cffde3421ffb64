//! A peer that breaks the protocol: refused by name, in bounded memory and work.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::site::{KIB, MIB, PATIENCE, lane, options};
use crate::bundle::segment::{Ack, Attach, HEADER_BYTES, Header, encode_abort};
use crate::bundle::{Bundle, BundleStream};
use crate::limits::{SEGMENTS_HELD_MAX, WINDOW_MIN};

/// A bundle with one lane, and the bare other end of it.
fn bundle(buffer: usize) -> (std::sync::Arc<Bundle>, BundleStream, DuplexStream) {
    let (ours, theirs) = tokio::io::duplex(buffer);
    let (bundle, stream) = Bundle::new(options());
    bundle.add_lane(Box::new(ours), lane(0)).unwrap();
    (bundle, stream, theirs)
}

fn data(offset: u64, bytes: &[u8]) -> Vec<u8> {
    [&Header::Data { offset, bytes: bytes.len(), crowded: false }.encode()[..], bytes].concat()
}

fn ack(contiguous: u64, limit: u64, position: u64) -> Vec<u8> {
    [&Header::Ack { contiguous }.encode()[..], &Ack { limit, position }.encode()].concat()
}

/// What a stream says after the peer has sent this.
async fn answer_to(bytes: Vec<u8>) -> String {
    let (_bundle, mut stream, mut peer) = bundle(MIB);
    stream.write_all(&[0; 100]).await.unwrap();
    stream.flush().await.unwrap();
    peer.write_all(&bytes).await.unwrap();
    let mut got = Vec::new();
    let error = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut got)).await.unwrap().unwrap_err();
    // The peer is told, too.
    let mut said = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, peer.read_to_end(&mut said)).await;
    assert!(String::from_utf8_lossy(&said).contains("broke the protocol"), "{error}");
    error.to_string()
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_refused_and_named() {
    let past_credit = data(64 << 20, b"x");
    assert!(answer_to(past_credit).await.contains("were granted"));
    let no_lane_has_that = ack(0, 1 << 20, 1 << 20);
    assert!(answer_to(no_lane_has_that).await.contains("position"));
    assert!(answer_to(ack(101, 1 << 20, 0)).await.contains("acknowledged of 100 sent"));
    let end_before_data = [data(0, b"hello"), Header::End { offset: 4 }.encode().to_vec()].concat();
    assert!(answer_to(end_before_data).await.contains("ends the stream at 4"));
    let after_the_end = [Header::End { offset: 4 }.encode().to_vec(), data(3, b"hello")].concat();
    assert!(answer_to(after_the_end).await.contains("past the stream's end"));
    let two_ends = [Header::End { offset: 4 }.encode(), Header::End { offset: 5 }.encode()].concat();
    assert!(answer_to(two_ends).await.contains("ends the stream at 5"));
    assert!(answer_to(Header::Leave.encode().to_vec()).await.contains("which it is not"));
    let attach = Attach { bundle: [0; 16], opening: Default::default() };
    assert!(answer_to(attach.encode().to_vec()).await.contains("attaches"));
    assert!(answer_to(vec![0xff; HEADER_BYTES]).await.contains("unknown kind"));
}

#[tokio::test(start_paused = true)]
async fn pieces_out_of_order_are_bounded_in_number() {
    let (_bundle, mut stream, mut peer) = bundle(64 * KIB);
    let (mut from_us, mut to_us) = tokio::io::split(peer);
    let flooding = tokio::spawn(async move {
        // Every other byte, once the credit is known to allow it.
        tokio::time::sleep(Duration::from_millis(100)).await;
        for n in 0..=SEGMENTS_HELD_MAX as u64 + 1 {
            if to_us.write_all(&data(2 * n + 1, b"x")).await.is_err() {
                return;
            }
        }
    });
    let draining = tokio::spawn(async move { tokio::io::copy(&mut from_us, &mut tokio::io::sink()).await });
    let error = tokio::time::timeout(PATIENCE, stream.read_u8()).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("out of order"), "{error}");
    flooding.await.unwrap();
    draining.abort();
    peer = tokio::io::duplex(1).0;
    drop(peer);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_pings_and_acks_is_answered_by_little() {
    let (_bundle, mut stream, peer) = bundle(64 * KIB);
    let (mut from_us, mut to_us) = tokio::io::split(peer);
    let answers = tokio::spawn(async move {
        let mut said = 0;
        let mut buffer = vec![0; 64 * KIB];
        // As slowly as a peer can that wants answers to pile up.
        while let Ok(bytes @ 1..) = from_us.read(&mut buffer).await {
            said += bytes;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        said
    });
    let flood = [Header::Ping(1).encode().to_vec(), ack(0, WINDOW_MIN, 0)].concat().repeat(1000);
    for _ in 0..200 {
        to_us.write_all(&flood).await.unwrap();
    }
    // The stream works all the same.
    to_us.write_all(&data(0, b"x")).await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'x');
    to_us.write_all(&encode_abort("enough")).await.unwrap();
    let error = stream.read_u8().await.unwrap_err();
    assert!(error.to_string().contains("enough"), "{error}");
    drop(stream);
    let said = answers.await.unwrap();
    let asked = 200 * flood.len();
    assert!(said < asked / 4, "{said} bytes said to {asked}");
}

#[tokio::test(start_paused = true)]
async fn credit_beyond_measure_makes_nobody_retain_more_than_the_bound() {
    let (bundle, mut stream, mut peer) = bundle(64 * KIB);
    peer.write_all(&ack(0, 1 << 60, 0)).await.unwrap();
    // It reads everything and acknowledges nothing.
    let reading = tokio::spawn(async move {
        let mut buffer = vec![0; 64 * KIB];
        while let Ok(1..) = peer.read(&mut buffer).await {}
    });
    let block = vec![0; MIB];
    let second = Duration::from_secs(1);
    while let Ok(Ok(())) = tokio::time::timeout(second, stream.write_all(&block)).await {}
    assert!(bundle.stats().in_flight_bytes <= crate::limits::WINDOW_MAX);
    assert!(bundle.stats().written_bytes <= crate::limits::WINDOW_MAX + 2 * MIB as u64);
    bundle.close("enough");
    drop(stream);
    reading.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn credit_that_shrinks_is_not_believed_and_late_acks_are_no_fault() {
    let (bundle, mut stream, mut peer) = bundle(MIB);
    stream.write_all(&[0; 1000]).await.unwrap();
    stream.flush().await.unwrap();
    peer.write_all(&ack(1000, 2000, 1016)).await.unwrap();
    peer.write_all(&ack(500, 1500, 1016)).await.unwrap();
    stream.write_all(&[0; 100]).await.unwrap();
    stream.flush().await.unwrap();
    assert_eq!(bundle.stats().credit, WINDOW_MIN - 1100);
}
