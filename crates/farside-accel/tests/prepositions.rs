//! Two boxes in one process, over loopback: what is put into the far store ahead of time makes the first transfer cheap.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod pair;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use farside_accel::accelerator::Running;
use farside_accel::control::{PrepositionEnd, Prepositioned};
use pair::{PATIENCE, Pair, noise, seed, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// Puts bytes into the peer's store; they come as fast as they are taken.
async fn preposition(from: &Running, bytes: Arc<Vec<u8>>) -> PrepositionEnd {
    let (mut ours, feed) = UnixStream::pair().unwrap();
    let writing = tokio::task::spawn_blocking(move || {
        let _ = ours.write_all(&bytes);
        // Its end is what says that there is no more.
    });
    let ended = from.accelerator.preposition(1, "peer", feed.into()).await;
    writing.await.unwrap();
    ended
}

/// A server that gives everybody the same.
async fn serves(bytes: Arc<Vec<u8>>) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let bytes = Arc::clone(&bytes);
            tokio::spawn(async move {
                let _ = socket.write_all(&bytes).await;
                let _ = socket.shutdown().await;
            });
        }
    });
    address
}

fn sent(end: PrepositionEnd) -> Prepositioned {
    match end {
        PrepositionEnd::Sent(sent) => sent,
        end => panic!("{end:?}"),
    }
}

async fn fetch(pair: &Pair, expected: &[u8]) -> u64 {
    let before = pair.near.accelerator.connections.bytes().1;
    let mut client = TcpStream::connect(pair.port).await.unwrap();
    let mut got = Vec::new();
    timeout(PATIENCE, client.read_to_end(&mut got)).await.unwrap().unwrap();
    assert!(got == expected, "{} bytes came", got.len());
    drop(client);
    until("it has ended", || pair.near.accelerator.connections.open() == 0).await;
    pair.near.accelerator.connections.bytes().1 - before
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_transfer_of_what_was_prepositioned_is_cheap() {
    let file = Arc::new(noise(20_000_000, seed()));
    let pair = Pair::start_with_stores(serves(Arc::clone(&file)).await).await;
    until("the far box sees the near one", || pair.far.accelerator.status().bypass.is_none()).await;

    let first = sent(preposition(&pair.far, Arc::clone(&file)).await);
    assert_eq!(first.original_bytes, 20_000_000);
    assert!(first.wire_bytes > 20_000_000 && first.wire_bytes < 20_100_000, "{first:?}");
    assert_eq!(pair.far.accelerator.connections.open(), 0);
    assert_eq!(pair.far.accelerator.connections.bytes(), (0, 0), "it was no connection");
    assert_eq!(pair.far.accelerator.status().prepositioned, first);
    until("the near box has counted it", || {
        pair.near.accelerator.status().prepositioned.original_bytes == 20_000_000
    })
    .await;
    // What is held is told within a twentieth of a second.
    sleep(Duration::from_millis(300)).await;

    let again = sent(preposition(&pair.far, Arc::clone(&file)).await);
    assert!(again.wire_bytes < 200_000, "what is there goes as references: {again:?}");
    let wire = fetch(&pair, &file).await;
    eprintln!("prepositioned 20,000,000 bytes; the first transfer took {wire}, again {}", again.wire_bytes);
    assert!(wire < 400_000, "{wire} bytes for what was there");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_prepositioned_says_why() {
    let pair = Pair::start(serves(Arc::default()).await).await;
    let end = preposition(&pair.near, Arc::default()).await;
    assert!(matches!(&end, PrepositionEnd::Refused(why) if why.contains("no chunk store")), "{end:?}");
    let pair = Pair::start_with_stores(serves(Arc::default()).await).await;
    let (_ours, feed) = UnixStream::pair().unwrap();
    let end = pair.near.accelerator.preposition(1, "nobody", feed.into()).await;
    assert!(matches!(&end, PrepositionEnd::PeerLost(why) if why.contains("nobody")), "{end:?}");
    assert_eq!(sent(preposition(&pair.near, Arc::default()).await), Prepositioned::default());
    assert!(pair.near.accelerator.status().prepositions.is_empty());
}
