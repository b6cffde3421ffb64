//! Policies change while connections are open: new ones get the new policy, those that are open keep theirs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod pair;

use farside_accel::policy::{Action, WrittenPolicy};
use pair::{PATIENCE, Pair, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

#[tokio::test(flavor = "multi_thread")]
async fn a_change_holds_for_new_connections_alone() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = Pair::start_with_stores(listener.local_addr().unwrap()).await;
    let near = &pair.near.accelerator;
    let applied = |client: &TcpStream| {
        let client = client.local_addr().unwrap();
        let shown = near.connections.shown();
        shown.into_iter().find(|shown| shown.client == client).map(|shown| (shown.application, shown.applied))
    };
    let old = TcpStream::connect(pair.port).await.unwrap();
    let (mut old_server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    until("it is listed", || applied(&old).is_some()).await;
    let before = applied(&old);

    let policy = |text: &str| serde_json::from_str::<WrittenPolicy>(text).unwrap();
    let lab = policy(r#"{"application": "lab", "action": "transport"}"#);
    near.set_policies(&[lab], Action::Full).unwrap();
    let wrong = policy(r#"{"application": "lab", "ports": ["0"], "action": "lz"}"#);
    assert!(near.set_policies(&[wrong], Action::Lz).is_err());
    let mut new = TcpStream::connect(pair.port).await.unwrap();
    let (mut new_server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    until("it is listed", || applied(&new).is_some()).await;
    assert_eq!(applied(&new), Some(("lab".to_owned(), Action::Transport)));
    assert_eq!(applied(&old), before);

    // Both go on.
    let mut old = old;
    for (client, server) in [(&mut old, &mut old_server), (&mut new, &mut new_server)] {
        client.write_all(b"hello").await.unwrap();
        let mut got = [0; 5];
        timeout(PATIENCE, server.read_exact(&mut got)).await.unwrap().unwrap();
        assert_eq!(&got, b"hello");
    }
}
