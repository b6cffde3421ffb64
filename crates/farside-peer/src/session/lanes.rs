//! The lanes of a session's bundles: connections made, kept idle, and given to bundles.
//!
//! Lanes are always made by the side that dialled the session; the other may be behind a firewall or a NAT. Each lane is a
//! connection on one of the peer's paths and carries one bundle at a time, told by an *attach* segment. A bundle that has
//! ended in order leaves its lanes behind: at the side that dials they wait in the pool of idle lanes, at the other for the
//! next *attach*.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use farside_link::limits::CLOSE_TIMEOUT;
use farside_link::{Connection, IdleLane, LaneOptions, PathSpec, WireCounters, min_rtt};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Duration, Instant, sleep_until, timeout};

use super::entry::{BundleEntry, CONTROL, Given};
use super::state::Session;
use crate::error::SessionError;
use crate::hello::Role;
use crate::tls::Secured;

/// A lane's connection and its slot among the lanes of a session.
struct CountedLane {
    io: Secured,
    _slot: Option<OwnedSemaphorePermit>,
}

impl AsyncRead for CountedLane {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for CountedLane {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Whether nothing has come on an idle lane: an end, an error or bytes that nobody expects make it worthless.
fn is_quiet(io: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut byte = [0; 1];
    let mut buffer = ReadBuf::new(&mut byte);
    Pin::new(io).poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer).is_pending()
}

/// Counts a connection among those of this session and asks it for the peer's options.
fn adopt(session: &Session, io: &Secured, of_path: Option<Arc<WireCounters>>) {
    let socket = io.get_ref().0;
    let mut counters = vec![Arc::clone(&session.wire), Arc::clone(&session.context.peer_wire)];
    counters.extend(of_path);
    socket.charge(counters);
    let stats = socket.stats();
    stats.apply(&session.socket_options());
    let mut sockets = session.sockets.lock();
    sockets.retain(|known| known.strong_count() > 0);
    sockets.push(Arc::downgrade(&stats));
}

/// A new connection as a lane without a bundle.
pub(super) fn lane(
    session: &Session,
    io: Secured,
    path: &PathSpec,
    slot: Option<OwnedSemaphorePermit>,
) -> IdleLane {
    let number = session.lanes.number(path);
    let of_path = session.lanes.numbers.lock().get(number).map(|numbered| Arc::clone(&numbered.wire));
    adopt(session, &io, of_path);
    let socket = io.get_ref().0;
    let (stats, wire) = (socket.stats(), socket.wire());
    session.lanes.paced.add(number, &stats);
    let options = LaneOptions { path: number, standby: false, stats, wire };
    IdleLane { io: Box::new(CountedLane { io, _slot: slot }), options }
}

/// Gives a connection that is past its *attach* to a bundle.
pub(super) fn give(entry: &BundleEntry, lane: IdleLane) {
    if entry.bundle.add_lane(lane.io, lane.options).is_none() {
        return;
    }
    entry.given.send_if_modified(|given| {
        let is_first = *given == Given::Nothing;
        if is_first {
            *given = Given::Lane;
        }
        is_first
    });
}

/// A connection on a path, one that was made before if there is any.
///
/// # Errors
/// [`SessionError::Unreachable`].
async fn connection(session: &Session, path: &PathSpec) -> Result<Connection, SessionError> {
    session.preopened.expire(Instant::now());
    if let Some(making) = session.preopened.take(path)
        && let Ok(made) = making.await
    {
        return made;
    }
    let socket = session.context.socket(path);
    session.context.dialler.connect(path, &socket).await
}

/// An idle lane on this path that still works, its *attach* said.
pub(super) async fn idle_lane(session: &Session, path: &PathSpec, entry: &BundleEntry) -> Option<IdleLane> {
    loop {
        let mut lane = session.lanes.idle.lock().take(path)?;
        let mss = lane.options.stats.stats().map(|socket| socket.mss);
        if !is_quiet(&mut lane.io) || !session.context.packets.is_fit(path, mss) {
            continue;
        }
        let attach = entry.attach();
        let said = async {
            lane.io.write_all(&attach).await?;
            lane.io.flush().await
        };
        if let Ok(Ok(())) = timeout(CLOSE_TIMEOUT, said).await {
            if *entry.given.borrow() == Given::Nothing {
                session.lanes.reused_lanes.fetch_add(1, Ordering::Relaxed);
            }
            return Some(lane);
        }
    }
}

/// A new connection on a path, its *attach* said. Waits while many are dialled.
pub(super) async fn new_lane(
    session: &Session,
    path: &PathSpec,
    entry: &BundleEntry,
) -> Result<IdleLane, SessionError> {
    let _permit = session.lanes.dials.acquire().await.map_err(|_| session.loss())?;
    let attach = entry.attach();
    let dial = async {
        let connection = connection(session, path).await?;
        let (dialler, info) = (&session.context.dialler, &session.info);
        dialler.greet(connection, path, info.peer, Role::Lane, info.id, &attach).await
    };
    let (io, _) = tokio::select! {
        () = session.lost.cancelled() => return Err(session.loss()),
        dialled = dial => dialled?,
    };
    if entry.is_control() {
        let limits = session.context.throttles.limits(session.info.peer, None);
        io.get_ref().0.limit(limits);
    }
    let lane = lane(session, io, path, None);
    // The handshake is part of what this stream costs.
    let wire = entry.bundle.wire();
    wire.add_sent(lane.options.wire.sent());
    wire.add_received(lane.options.wire.received());
    Ok(lane)
}

/// The shortest round trip that the control stream's connections have seen; zero if none is known.
pub(super) fn shortest_round_trip(session: &Session) -> Duration {
    let control = session.lanes.bundle(&CONTROL);
    control.map_or(Duration::ZERO, |control| min_rtt(&control.bundle.stats()))
}

/// Closes idle lanes that nobody uses.
pub(super) async fn expire_idle_lanes(session: Arc<Session>) {
    let lanes = &session.lanes;
    loop {
        drop(lanes.idle.lock().expire(lanes.now()));
        let next = lanes.idle.lock().next_expiry();
        let expired = async {
            match next {
                Some(at) => sleep_until(lanes.started + at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = session.lost.cancelled() => break,
            () = lanes.idle_changed.notified() => {}
            () = expired => {}
        }
    }
    drop(std::mem::take(&mut *lanes.idle.lock()));
}

/// Takes up changes of the peer's record while the session lives.
pub(super) async fn follow_reach(session: Arc<Session>) {
    let mut reach = session.context.reach.clone();
    loop {
        tokio::select! {
            () = session.lost.cancelled() => return,
            changed = reach.changed() => if changed.is_err() { return },
        }
        let reach = reach.borrow_and_update().clone();
        let now = session.lanes.now();
        session.lanes.paths.lock().change(&reach, &session.info.first, now);
        session.follow_keepalive();
        session.lanes.look_everywhere();
    }
}

/// Holds the lanes of each path to what it is known to carry, until the session ends.
pub(super) async fn pace_lanes(session: Arc<Session>) {
    tokio::select! {
        () = session.lost.cancelled() => {}
        () = session.lanes.paced.run(|| session.lanes.has_data(), &session.info.peer_name) => {}
    }
}
