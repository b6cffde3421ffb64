//! What bundles cost beside one plain connection, over loopback under TLS. Measures, asserts no seconds, and is run by hand:
//!
//! ```text
//! cargo test --release -p farside-peer --lib speed -- --ignored --nocapture --test-threads 1
//! ```

use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::site::bundle_by_hand;
use crate::identity::Identity;
use crate::tls::{self, Secured};
use farside_link::LaneOptions;
use farside_link::{Counted, SocketOptions, TcpTransport, Transport};

const MIB: usize = 1 << 20;
const BYTES: usize = 1 << 30;

/// A connection under TLS over loopback, both ends.
async fn connection(identities: &(Identity, Identity)) -> (Secured, Secured) {
    let (ours, theirs) = identities;
    let mut listener = TcpTransport.listen("127.0.0.1:0", &SocketOptions::default()).await.unwrap();
    let address = listener.address();
    let dialled = async {
        let connection = TcpTransport.dial(&address, &SocketOptions::default()).await.unwrap();
        let connector = tls::connector(ours, theirs.id()).unwrap();
        tls::secure_dialled(&connector, Counted::new(connection), &address).await.unwrap()
    };
    let acceptor = tls::acceptor(theirs).unwrap();
    let accepted = async {
        let connection = listener.accept().await.unwrap();
        tls::secure_accepted(&acceptor, Counted::new(connection)).await.unwrap().0
    };
    tokio::join!(dialled, accepted)
}

/// Processor time of this process, user and system.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    let ticks: Vec<u64> =
        after_name.split_whitespace().skip(11).take(2).map(|n| n.parse().unwrap()).collect();
    (ticks[0] + ticks[1]) as f64 / 100.0
}

async fn carry(
    what: &str,
    mut near: impl AsyncWrite + Unpin + Send + 'static,
    mut far: impl AsyncRead + Unpin,
) {
    let (begun, before) = (Instant::now(), processor_seconds());
    let writing = tokio::spawn(async move {
        let block = vec![7; MIB];
        for _ in 0..BYTES / MIB {
            near.write_all(&block).await.unwrap();
        }
        near.flush().await.unwrap();
        near
    });
    let mut buffer = vec![0; MIB];
    let mut left = BYTES;
    while left > 0 {
        left -= far.read(&mut buffer).await.unwrap();
    }
    let (took, used) = (begun.elapsed().as_secs_f64(), processor_seconds() - before);
    let gigabits = BYTES as f64 * 8.0 / 1e9;
    println!(
        "{what}: {:.2} Gb/s; {:.3} s of processor a gigabit, both sides together",
        gigabits / took,
        used / gigabits
    );
    drop(writing.await.unwrap());
}

#[ignore = "measures"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bundles_beside_one_connection() {
    let identities = (Identity::generate().unwrap(), Identity::generate().unwrap());
    for _ in 0..2 {
        let (near, far) = connection(&identities).await;
        carry("one connection", near, far).await;
        for lanes in [1, 4] {
            let (a, near) = bundle_by_hand();
            let (b, far) = bundle_by_hand();
            for _ in 0..lanes {
                let (ours, theirs) = connection(&identities).await;
                for (bundle, io) in [(&a, ours), (&b, theirs)] {
                    let socket = io.get_ref().0;
                    let options =
                        LaneOptions { stats: socket.stats(), wire: socket.wire(), path: 0, standby: false };
                    bundle.add_lane(Box::new(io), options).unwrap();
                }
            }
            carry(&format!("a bundle of {lanes}"), near, far).await;
        }
    }
}
