//! Sites of version 1, before bundles: their frozen bytes against a node of today, and whole nodes in both directions.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::site::{PATIENCE, Plan, Site};
use super::streams::{echoed, pattern};
use crate::hello::{HELLO_BYTES, VERSIONS};
use crate::identity::Identity;
use crate::tls::{self, Secured};
use crate::transport::{Counted, Listener, SimulatedNetwork, SocketTerms, Transport};
use crate::transport::{LinkSettings, TcpTransport};

/// Bytes as version 1 writes them; never made anew.
fn frozen(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus/version-1").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// What an answer must have of a frozen one: all but the range of versions, instance and name of whoever says it.
fn without_names(answer: &[u8]) -> Vec<u8> {
    let mut bytes = answer.to_vec();
    bytes[8..12].fill(0);
    bytes[14] = 0;
    bytes[48..128].fill(0);
    bytes
}

async fn read(io: &mut Secured, bytes: usize) -> Vec<u8> {
    let mut got = vec![0; bytes];
    timeout(PATIENCE, io.read_exact(&mut got)).await.expect("in time").unwrap();
    got
}

/// Frames of the control stream come between pings.
async fn next_frame_but_pings(io: &mut Secured) -> Vec<u8> {
    loop {
        let length = read(io, 4).await;
        let body = read(io, u32::from_le_bytes(length[..].try_into().unwrap()) as usize).await;
        // Tag 4, wire type 1: a ping.
        if body[0] != 0x21 {
            return [length, body].concat();
        }
    }
}

/// Connects as `identity` and says `bytes`.
async fn say(identity: &Identity, to: &Site, bytes: &[u8]) -> Secured {
    let connection = TcpTransport.dial(to.address(), &SocketTerms::default()).await.unwrap();
    let connector = tls::connector(identity, to.id()).unwrap();
    let mut io = tls::secure_dialled(&connector, Counted::new(connection), to.address()).await.unwrap();
    io.write_all(bytes).await.unwrap();
    io.flush().await.unwrap();
    io
}

#[tokio::test]
async fn a_dialler_of_version_1_is_spoken_to_as_ever() {
    let old = Identity::generate().unwrap();
    let a = Plan::tcp("site-a").knows(old.id(), "old", None).await.start().await;
    let mut control = say(&old, &a, &frozen("hello-control")).await;
    let welcome = read(&mut control, HELLO_BYTES).await;
    assert_eq!(without_names(&welcome), without_names(&frozen("answer-welcome")));
    let state = a.wait_state(old.id(), |s| s.connected).await;
    assert_eq!(state.version, Some(1));
    // A call.
    control.write_all(&frozen("frame-call")).await.unwrap();
    control.flush().await.unwrap();
    assert_eq!(next_frame_but_pings(&mut control).await, frozen("frame-answer"));
    // A data stream of its own connection.
    let mut hello = frozen("hello-data");
    hello.extend(frozen("stream-header"));
    hello.extend(b"there and back");
    let mut data = say(&old, &a, &hello).await;
    assert_eq!(without_names(&read(&mut data, HELLO_BYTES).await), without_names(&frozen("answer-welcome")));
    assert_eq!(read(&mut data, 14).await, b"there and back");
    // This side opens one: it asks by a ticket and is dialled back.
    let link = a.node.link(old.id()).unwrap();
    let opening = tokio::spawn(async move {
        let header = bytes::Bytes::from_static(b"echo");
        link.open_stream(header, crate::terms::StreamTerms::default()).await
    });
    let asked = next_frame_but_pings(&mut control).await;
    assert_eq!(asked[..6], [18, 0, 0, 0, 0x32, 16], "field 6, 16 bytes");
    let mut hello = frozen("hello-data-asked-for");
    hello[32..48].copy_from_slice(&asked[6..]);
    let mut data = say(&old, &a, &hello).await;
    read(&mut data, HELLO_BYTES).await;
    let mut near = opening.await.unwrap().unwrap();
    assert_eq!(read(&mut data, 8).await, frozen("stream-header"));
    data.write_all(b"asked for").await.unwrap();
    data.flush().await.unwrap();
    let mut got = [0; 9];
    near.io.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"asked for");
}

#[tokio::test]
async fn a_listener_of_version_1_is_spoken_to_as_ever() {
    let old = Identity::generate().unwrap();
    let mut door = TcpTransport.listen("127.0.0.1:0", &SocketTerms::default()).await.unwrap();
    let address = door.address();
    let acceptor = tls::acceptor(&old).unwrap();
    let b = Plan::tcp("site-b").knows(old.id(), "old", Some(&address)).await.start().await;
    let accept = async |door: &mut Box<dyn Listener>| {
        let connection = timeout(PATIENCE, door.accept()).await.expect("in time").unwrap();
        let (mut io, key) = tls::secure_accepted(&acceptor, Counted::new(connection)).await.unwrap();
        assert_eq!(key, b.id());
        let hello = read(&mut io, HELLO_BYTES).await;
        assert_eq!(hello[8..12], [1, 0, 2, 0], "versions 1 to 2");
        io.write_all(&frozen("answer-welcome")).await.unwrap();
        io.flush().await.unwrap();
        (io, hello)
    };
    let (mut control, hello) = accept(&mut door).await;
    assert_eq!(
        hello[12..16],
        frozen("hello-control")[12..16]
            .iter()
            .enumerate()
            .map(|(at, byte)| if at == 2 { 6 } else { *byte })
            .collect::<Vec<_>>()[..]
    );
    assert_eq!(b.wait_state(old.id(), |s| s.connected).await.version, Some(1));
    control.write_all(&frozen("frame-call")).await.unwrap();
    control.flush().await.unwrap();
    assert_eq!(next_frame_but_pings(&mut control).await, frozen("frame-answer"));
    let link = b.node.link(old.id()).unwrap();
    let opening = tokio::spawn(async move {
        let header = bytes::Bytes::from_static(b"echo");
        link.open_stream(header, crate::terms::StreamTerms::default()).await
    });
    let (mut data, hello) = accept(&mut door).await;
    assert_eq!((hello[12], hello[13]), (2, 0), "a data stream, not asked for");
    assert_eq!(read(&mut data, 8).await, frozen("stream-header"));
    let mut near = opening.await.unwrap().unwrap();
    data.write_all(b"plain").await.unwrap();
    data.flush().await.unwrap();
    let mut got = [0; 5];
    near.io.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"plain");
}

#[tokio::test(start_paused = true)]
async fn nodes_of_both_versions_meet_in_either_direction() {
    for (seed, versions_a, versions_b, spoken) in
        [(61, VERSIONS, 1..=1, 1), (62, 1..=1, VERSIONS, 1), (63, VERSIONS, VERSIONS, 2)]
    {
        println!("seed {seed}");
        let network = SimulatedNetwork::new(seed, LinkSettings::default());
        let (mut a, mut b) = (Plan::simulated(&network, "a"), Plan::simulated(&network, "b"));
        (a.config.versions, b.config.versions) = (versions_a, versions_b);
        let a = a.knows(b.identity.id(), "b", None).await.start().await;
        let b = b.knows(a.id(), "a", Some(a.address())).await.start().await;
        for (here, there) in [(&a, &b), (&b, &a)] {
            let link: Arc<_> = here.link(there).await;
            echoed(&link, pattern(3 << 20)).await;
            here.proves_alive(there).await;
            assert_eq!(here.wait_state(there.id(), |s| s.connected).await.version, Some(spoken));
            let figures = here.node.link_figures(there.id()).unwrap();
            assert!(figures.paths.len() == 1 && figures.paths[0].up, "{figures:?}");
        }
    }
}
