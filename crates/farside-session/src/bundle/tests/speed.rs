//! What bundles cost beside one plain connection, over loopback under TLS. Measures, asserts no seconds, and is run by hand:
//!
//! ```text
//! cargo test --release -p farside-session --lib speed -- --ignored --nocapture --test-threads 1
//! ```

use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::site::{MIB, lane, terms};
use crate::bundle::{Bundle, LaneTerms};
use crate::identity::Identity;
use crate::tls::{self, Secured};
use crate::transport::{Counted, SocketTerms, TcpTransport, Transport};

const BYTES: usize = 1 << 30;

/// A connection under TLS over loopback, both ends.
async fn connection(identities: &(Identity, Identity)) -> (Secured, Secured) {
    let (ours, theirs) = identities;
    let mut door = TcpTransport.listen("127.0.0.1:0", &SocketTerms::default()).await.unwrap();
    let address = door.address();
    let dialled = async {
        let connection = TcpTransport.dial(&address, &SocketTerms::default()).await.unwrap();
        let connector = tls::connector(ours, theirs.id()).unwrap();
        tls::secure_dialled(&connector, Counted::new(connection), &address).await.unwrap()
    };
    let acceptor = tls::acceptor(theirs).unwrap();
    let accepted = async {
        let connection = door.accept().await.unwrap();
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
            let (a, near) = Bundle::new(terms());
            let (b, far) = Bundle::new(terms());
            for _ in 0..lanes {
                let (ours, theirs) = connection(&identities).await;
                for (bundle, io) in [(&a, ours), (&b, theirs)] {
                    let socket = io.get_ref().0;
                    let terms = LaneTerms { figures: socket.figures(), wire: socket.wire(), ..lane(0) };
                    bundle.add_lane(Box::new(io), terms).unwrap();
                }
            }
            carry(&format!("a bundle of {lanes}"), near, far).await;
        }
    }
}
