//! Both directions of a taken connection, from its begin to its end.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::receive::{Failure, Received, receive};
use super::send::{Sender, send};
use super::unsent::unsent;
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
    /// The same, and the far side knows after which part.
    ResetAfterAll,
    /// The far side reset it, an administrator did, or the trunk is lost.
    ResetThere,
}

/// As long as connections are left alone that say nothing.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(1800);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(60);
const KEEPALIVE_PROBES: u32 = 10;

/// A connection that was reset goes on with what was sent before, as long as something of it arrives within so long,
const NO_PROGRESS: Duration = Duration::from_secs(5);
/// and for so long at most.
const AFTER_RESET_MAX: Duration = Duration::from_secs(60);
/// How often is looked whether a host has acknowledged all.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Carries a connection until it ends. A reset on one side becomes a reset on the other, after what was sent before it.
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
    let end = tokio::select! {
        biased;
        () = flow.over.cancelled() => End::ResetThere,
        () = trunk.closed.cancelled() => End::ResetThere,
        () = record.reset.cancelled() => End::ResetHere,
        end = carry(&trunk, &flow, &socket, &record) => end,
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

/// Both directions, until nothing more is to be done.
async fn carry(trunk: &Trunk, flow: &Flow, socket: &TcpStream, record: &Record) -> End {
    let sender = Sender::new(trunk, record.applied());
    // The socket was reset, or failed: what it has brought before is still sent.
    let broken = CancellationToken::new();
    let mut outward = pin!(send(trunk, flow, socket, record, &sender, &broken));
    let mut inward = pin!(receive(trunk, flow, socket, record));
    let mut answers = pin!(sender.answer(trunk, flow, record));
    let mut goes_on = pin!(progress(flow, record));
    // How many parts there were, once they are all sent.
    let mut parts = None;
    let (mut is_received, mut is_broken, mut is_reset_there) = (false, false, false);
    let failed = loop {
        tokio::select! {
            sent = &mut outward, if parts.is_none() && !is_reset_there => match sent {
                Ok(sent) => {
                    parts = Some(sent);
                    trunk.send(Frame::number(if broken.is_cancelled() { Kind::Reset } else { Kind::Fin }, flow.id, sent));
                    is_broken = broken.is_cancelled();
                }
                Err(error) => break error,
            },
            received = &mut inward, if !is_received => match received {
                Ok(Received::All) => is_received = true,
                Ok(Received::Reset) => {
                    is_reset_there = true;
                    break io::ErrorKind::ConnectionReset.into();
                }
                Err(Failure::Flow(error)) => break error,
                Err(Failure::Socket(error)) => {
                    tracing::debug!(client = %record.ends.client, server = %record.ends.server, %error, "nothing more is taken");
                    is_received = true;
                    broken.cancel();
                }
            },
            Err(error) = &mut answers => break error,
            // Also where nothing is read or written for now.
            _ = socket.ready(Interest::ERROR), if !broken.is_cancelled() => broken.cancel(),
            () = broken.cancelled(), if !is_broken => {}
            () = flow.is_reset.cancelled(), if !is_reset_there => is_reset_there = true,
            // Until then the far side may ask for what it cannot make of its store.
            () = flow.done.cancelled(), if parts.is_some() && (is_received || is_broken) => {
                return if is_broken { End::ResetAfterAll } else { End::Closed };
            }
            () = &mut goes_on, if is_broken || is_reset_there => break io::ErrorKind::TimedOut.into(),
        }
        if broken.is_cancelled() && !is_broken {
            is_broken = true;
            if let Some(parts) = parts {
                trunk.send(Frame::number(Kind::Reset, flow.id, parts));
            }
        }
        if is_reset_there && (is_broken || is_received) {
            break io::ErrorKind::ConnectionReset.into();
        }
    };
    tracing::debug!(client = %record.ends.client, server = %record.ends.server, error = %failed, "a connection is reset");
    if is_reset_there {
        if !is_broken {
            delivered(socket).await;
        }
        // The far side keeps what was asked for until then.
        trunk.send(Frame::bare(Kind::Done, flow.id));
        return End::ResetThere;
    }
    // The far side has been told when: it goes on by itself.
    if is_broken && parts.is_some() { End::ResetAfterAll } else { End::ResetHere }
}

/// Until nothing of a connection that was reset has gone on for a while, or it has taken too long.
async fn progress(flow: &Flow, record: &Record) {
    let began = Instant::now();
    let gone = || (record.original_bytes.load(Ordering::Relaxed), flow.delivered_parts());
    let mut before = gone();
    loop {
        tokio::time::sleep(NO_PROGRESS).await;
        let now = gone();
        if now == before || began.elapsed() > AFTER_RESET_MAX {
            return;
        }
        before = now;
    }
}

/// Until the host at this side has all that was written, so that a reset does not overtake it; as long as it takes something.
async fn delivered(socket: &TcpStream) {
    let (began, mut since) = (Instant::now(), Instant::now());
    let mut before = unsent(socket);
    while before.is_some() && since.elapsed() < NO_PROGRESS && began.elapsed() < AFTER_RESET_MAX {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = unsent(socket);
        if now != before {
            (before, since) = (now, Instant::now());
        }
    }
}

/// Closes a socket so that its other end sees a reset.
pub(crate) fn reset(socket: TcpStream) {
    let _ = SockRef::from(&socket).set_linger(Some(Duration::ZERO));
    drop(socket);
}
