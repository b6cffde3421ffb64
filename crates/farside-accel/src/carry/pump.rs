//! Both directions of a taken connection, from its begin to its end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use super::receive::receive;
use super::send::{Sender, send};
use crate::connections::Record;
use crate::flow::Flow;
use crate::protocol::{Frame, Kind};
use crate::trunk::Trunk;

/// How a flow ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// Both sides had said all.
    Closed,
    /// The socket was reset, or failed.
    ResetHere,
    /// The far side reset it, an administrator did, or the trunk is lost.
    ResetThere,
}

/// As long as connections are left alone that say nothing.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(1800);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(60);
const KEEPALIVE_PROBES: u32 = 10;

/// Carries a connection until it ends. A reset on one side becomes a reset on the other.
pub(crate) async fn run(trunk: Arc<Trunk>, flow: Arc<Flow>, socket: TcpStream, record: Arc<Record>) -> End {
    let kept_open = SockRef::from(&socket);
    // If this process dies in the middle, its hosts are to see that, and not an end: half a file is no file.
    let _ = kept_open.set_linger(Some(Duration::ZERO));
    // A client that has gone without a word must not be kept for ever; its server would be told that it is there.
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_EVERY)
        .with_retries(KEEPALIVE_PROBES);
    let _ = kept_open.set_tcp_keepalive(&keepalive);
    let sender = Sender::new(&trunk, record.applied());
    let both = async {
        let outward = async {
            send(&trunk, &flow, &socket, &record, &sender).await?;
            // Until then the far side may ask for what it cannot make of its store.
            flow.done.cancelled().await;
            Ok::<_, io::Error>(())
        };
        let inward = receive(&trunk, &flow, &socket, &record);
        let both = tokio::select! {
            both = async { tokio::try_join!(outward, inward) } => both.map(|_| ()),
            failed = sender.answer(&trunk, &flow, &record) => failed,
        };
        match both {
            Ok(()) => End::Closed,
            Err(error) => {
                tracing::debug!(client = %record.ends.client, server = %record.ends.server, %error, "a connection is reset");
                End::ResetHere
            }
        }
    };
    let end = tokio::select! {
        biased;
        () = flow.over.cancelled() => End::ResetThere,
        () = trunk.closed.cancelled() => End::ResetThere,
        () = record.reset.cancelled() => End::ResetHere,
        end = both => end,
    };
    if end == End::ResetHere {
        trunk.send(Frame::bare(Kind::Reset, flow.id));
    }
    trunk.remove(flow.id);
    record.wire_bytes.fetch_add(flow.wire_received.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    if end == End::Closed {
        // What is still on its way out is sent.
        let _ = SockRef::from(&socket).set_linger(None);
    } else {
        reset(socket);
    }
    end
}

/// Closes a socket so that its other end sees a reset.
pub(crate) fn reset(socket: TcpStream) {
    let _ = SockRef::from(&socket).set_linger(Some(Duration::ZERO));
    drop(socket);
}
