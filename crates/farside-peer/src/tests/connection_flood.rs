//! Many that say nothing, over real sockets: their number is bounded, and a peer gets in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::site::{PATIENCE, Site};
use crate::limits::{UNAUTHENTICATED_MAX, UNAUTHENTICATED_PER_ORIGIN_MAX};
use crate::registry::PeerRegistry;

/// Origins on loopback, and connections that each of them keeps trying to hold: twice what the listener takes.
const ORIGINS: usize = 32;
const EACH: usize = 2 * UNAUTHENTICATED_MAX / ORIGINS;
const _: () = assert!(EACH <= UNAUTHENTICATED_PER_ORIGIN_MAX);
/// How long one that was shut out waits before it comes again.
const AGAIN: Duration = Duration::from_millis(300);

/// Comes from `127.0.0.ORIGIN` again and again and never says who it is: silent, or the beginning of a handshake, or that
/// beginning byte by byte.
async fn linger(origin: usize, way: usize, listener: SocketAddr, open: Arc<AtomicUsize>) {
    const BEGINNING: [u8; 11] = [0x16, 3, 1, 0x02, 0, 1, 0, 0x01, 0xfc, 3, 3];
    loop {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 2 + origin as u8], 0))).unwrap();
        if let Ok(mut socket) = socket.connect(listener).await {
            open.fetch_add(1, Ordering::SeqCst);
            if way == 1 {
                let _ = socket.write_all(&BEGINNING).await;
            }
            let mut drops = BEGINNING.iter().cycle();
            let mut heard = [0; 64];
            loop {
                tokio::select! {
                    heard = socket.read(&mut heard) => if matches!(heard, Ok(0) | Err(_)) { break },
                    () = sleep(AGAIN), if way == 2 => {
                        let _ = socket.write_all(&[*drops.next().unwrap()]).await;
                    }
                }
            }
            open.fetch_sub(1, Ordering::SeqCst);
        }
        sleep(AGAIN).await;
    }
}

/// Whoever has just been paired may dial while it is dialled, and one of two sessions goes: asks until one is there to stay.
async fn is_answered(site: &Site, peer: &Site) {
    let answered =
        async { while site.link(peer).await.call(Bytes::from_static(b"alive?"), None).await.is_err() {} };
    timeout(PATIENCE, answered).await.expect("a peer gets in");
}

#[tokio::test]
async fn a_connection_flood_that_sends_nothing_is_bounded_and_a_peer_gets_in() {
    let (a, b) = (Site::tcp("site-a").await, Site::tcp("site-b").await);
    let listener: SocketAddr = a.address().parse().unwrap();
    let open = Arc::new(AtomicUsize::new(0));
    let mut flood = JoinSet::new();
    for n in 0..ORIGINS * EACH {
        flood.spawn(linger(n % ORIGINS, n % 3, listener, Arc::clone(&open)));
    }
    // Every place is taken, and those that have none are shut out.
    let is_flooded = async {
        while open.load(Ordering::SeqCst) < UNAUTHENTICATED_MAX {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, is_flooded).await.expect("the flood comes");
    timeout(PATIENCE, a.pair(&b)).await.expect("a joiner gets in");
    is_answered(&b, &a).await;
    // It is cut, and gets in again.
    let link = b.link(&a).await;
    let record = a.registry.lookup(b.id()).await.unwrap().unwrap();
    a.node.remove_peer(b.id()).await.unwrap();
    a.registry.pin(record).await.unwrap();
    a.node.registry_changed().await.unwrap();
    timeout(PATIENCE, link.closed()).await.unwrap();
    is_answered(&b, &a).await;
    // Of twice as many, no more than the limit are ever let stay: what is open at the far ends settles there.
    let is_bounded = async {
        while open.load(Ordering::SeqCst) > UNAUTHENTICATED_MAX {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, is_bounded).await.expect("the listener shuts them out");
    assert!(a.node.unauthenticated_inside() <= UNAUTHENTICATED_MAX);
}
