//! Sites of version 1, which no release spoke: their frozen bytes are refused, with both versions named.

use std::path::PathBuf;

use farside_link::{Counted, SocketOptions, TcpTransport, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::log;
use super::site::{PATIENCE, Plan, Site};
use crate::hello::{HELLO_BYTES, HelloError, VERSIONS, parse_answer, parse_hello};
use crate::identity::Identity;
use crate::tls::{self, Secured};

/// Bytes as version 1 writes them; never made anew.
fn frozen(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus/version-1").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

async fn read(io: &mut Secured, bytes: usize) -> Vec<u8> {
    let mut got = vec![0; bytes];
    timeout(PATIENCE, io.read_exact(&mut got)).await.expect("in time").unwrap();
    got
}

/// Connects as `identity` and says `bytes`.
async fn send(identity: &Identity, to: &Site, bytes: &[u8]) -> Secured {
    let connection = TcpTransport.dial(to.address(), &SocketOptions::default()).await.unwrap();
    let connector = tls::connector(identity, to.id()).unwrap();
    let mut io = tls::secure_dialled(&connector, Counted::new(connection), to.address()).await.unwrap();
    io.write_all(bytes).await.unwrap();
    io.flush().await.unwrap();
    io
}

#[test]
fn the_versions_of_its_bytes_can_be_read() {
    for name in ["hello-control", "hello-data", "hello-data-asked-for"] {
        let bytes: [u8; HELLO_BYTES] = frozen(name)[..].try_into().unwrap();
        assert_eq!(parse_hello(&bytes, &VERSIONS), Err(HelloError::OtherVersions(1, 1)), "{name}");
    }
    for name in ["answer-welcome", "answer-version"] {
        let bytes: [u8; HELLO_BYTES] = frozen(name)[..].try_into().unwrap();
        assert_eq!(parse_answer(&bytes, &VERSIONS), Err(HelloError::OtherVersions(1, 1)), "{name}");
    }
}

#[tokio::test]
async fn a_dialler_of_version_1_is_refused_with_both_versions_named() {
    let old = Identity::generate().unwrap();
    let a = Plan::tcp("site-a").knows(old.id(), "old", None).await.start().await;
    for name in ["hello-control", "hello-data", "hello-data-asked-for"] {
        let mut io = send(&old, &a, &frozen(name)).await;
        let answer = read(&mut io, HELLO_BYTES).await;
        assert_eq!(answer[..8], *b"farsideA");
        assert_eq!(answer[8..14], [2, 0, 2, 0, 1, 0], "versions 2 to 2; no common version");
        assert_eq!(timeout(PATIENCE, io.read(&mut [0; 1])).await.unwrap().unwrap(), 0, "and no more");
    }
    log::wait_for(&["refused a connection", &old.id().to_string(), "this site speaks 2, the peer 1"]).await;
    assert!(!a.node.peers()[0].state.connected);
}

#[tokio::test]
async fn a_listener_of_version_1_is_not_spoken_to_and_both_versions_are_named() {
    for name in ["answer-version", "answer-welcome"] {
        let old = Identity::generate().unwrap();
        let mut listener = TcpTransport.listen("127.0.0.1:0", &SocketOptions::default()).await.unwrap();
        let address = listener.address();
        let acceptor = tls::acceptor(&old).unwrap();
        let b = Plan::tcp("site-b").knows(old.id(), "old", Some(&address)).await.start().await;
        let connection = timeout(PATIENCE, listener.accept()).await.expect("in time").unwrap();
        let (mut io, _) = tls::secure_accepted(&acceptor, Counted::new(connection)).await.unwrap();
        let hello = read(&mut io, HELLO_BYTES).await;
        assert_eq!(hello[8..12], [2, 0, 2, 0], "versions 2 to 2");
        io.write_all(&frozen(name)).await.unwrap();
        io.flush().await.unwrap();
        let state = b.wait_state(old.id(), |s| s.last_error.is_some()).await;
        let error = state.last_error.unwrap();
        assert!(error.contains("this site speaks 2, the peer 1; upgrade the older one"), "{name}: {error}");
        // Not a byte more goes to it.
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, io.read_to_end(&mut rest)).await.expect("it hangs up");
        assert!(rest.is_empty());
    }
}
