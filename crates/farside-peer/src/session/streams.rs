//! Data streams: opened by either side, each a bundle, carried by lanes that the side which dialled the session makes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use farside_link::limits::{CLOSE_TIMEOUT, IDLE_LANE_TIMEOUT};
use farside_link::{
    Attach, Bundle, BundleStream, IdleLane, LinkStats, PathSpec, Priority, SocketOptions, SocketStats,
    StreamOptions, encode_abort, lanes_of_bulk, printable,
};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Duration, Instant, sleep, timeout};
use tracing::Instrument;

use super::bundles::carry;
use super::entry::{BundleEntry, CONTROL, Given, bundle_id};
use super::lanes::{give, lane, shortest_round_trip};
use super::state::Session;
use crate::control::{self, Body, MoreLanes, OpenBundle, Opening, RefusedStream};
use crate::error::SessionError;
use crate::limits::{
    HANDSHAKE_TIMEOUT, HEADER_BYTES_MAX, PREOPENED_FOR, REFUSAL_TEXT_MAX, STREAM_OPEN_TIMEOUT,
    STREAMS_OPEN_MAX,
};
use crate::service::DataStream;
use crate::tls::Secured;

/// See [`Opening::format`].
const OPENING_FORMAT: u32 = 1;

/// A data stream and its slot among those of the session.
struct CountedStream {
    io: BundleStream,
    _slot: OwnedSemaphorePermit,
}

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// All lanes of a bundle as one connection.
struct Together(Arc<Bundle>);

impl SocketStats for Together {
    fn stats(&self) -> Option<LinkStats> {
        LinkStats::together(self.0.stats().lanes.into_iter().filter_map(|lane| lane.socket))
    }

    fn apply(&self, _: &SocketOptions) {}

    fn pace(&self, _: Option<u64>) {}
}

/// Ends a bundle whose opener stops waiting, by whatever way.
struct Abandon<'a>(Option<&'a BundleEntry>);

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.0.take() {
            entry.refuse("its opener has given up waiting for a lane");
        }
    }
}

/// Opens a data stream.
///
/// # Errors
/// [`SessionError::TooLarge`], [`SessionError::Local`] if [`STREAMS_OPEN_MAX`] are open, [`SessionError::Lost`].
pub(super) async fn open_stream(
    session: &Arc<Session>,
    header: Bytes,
    options: &StreamOptions,
) -> Result<DataStream, SessionError> {
    if header.len() > HEADER_BYTES_MAX {
        return Err(SessionError::TooLarge { bytes: header.len(), limit: HEADER_BYTES_MAX });
    }
    let slot = Arc::clone(&session.streams_open).try_acquire_owned().map_err(|_| {
        let peer = &session.info.peer_name;
        SessionError::Local(format!("{STREAMS_OPEN_MAX} data streams to {peer} are open already"))
    })?;
    let open = timeout(STREAM_OPEN_TIMEOUT, open_bundle(session, header, options, slot));
    tokio::select! {
        () = session.lost.cancelled() => Err(session.loss()),
        opened = open => opened.map_err(|_| {
            SessionError::Lost(format!("no data stream within {} s", STREAM_OPEN_TIMEOUT.as_secs()))
        })?,
    }
}

/// Opens a bundle and waits for its first lane.
async fn open_bundle(
    session: &Arc<Session>,
    header: Bytes,
    options: &StreamOptions,
    slot: OwnedSemaphorePermit,
) -> Result<DataStream, SessionError> {
    let id = session.context.random.uuid_bytes();
    let low_priority = options.priority == Priority::Low;
    let mut opening = Opening { format: OPENING_FORMAT, header, low_priority, bulk: options.bulk, window: 0 };
    let (entry, stream) = carry(session, id, options, Some(&mut opening));
    let mut abandon = Abandon(Some(&entry));
    let mut given = entry.given.subscribe();
    if session.info.dialled.is_none() {
        let open = OpenBundle { bundle: Bytes::copy_from_slice(&id), opening };
        session.urgent.send(control::encode(Body::OpenBundle(open))).await.map_err(|_| session.loss())?;
    }
    let first = given.wait_for(|given| *given != Given::Nothing).await.map_err(|_| session.loss())?.clone();
    // One that had a lane and is over by now was answered: what has arrived is there to be read, and then why it ended.
    if let Given::Refused(reason) = first
        && (session.is_closed() || !entry.bundle.has_had_lanes())
    {
        return Err(if session.is_closed() { session.loss() } else { SessionError::Lost(reason) });
    }
    abandon.0 = None;
    Ok(data_stream(&entry, stream, slot))
}

fn data_stream(entry: &BundleEntry, io: BundleStream, slot: OwnedSemaphorePermit) -> DataStream {
    DataStream {
        io: Box::new(CountedStream { io, _slot: slot }),
        wire: entry.bundle.wire(),
        stats: Arc::new(Together(Arc::clone(&entry.bundle))),
    }
}

/// The peer opens a bundle: a service task gets it.
///
/// # Errors
/// Why it cannot be taken, for the peer.
fn opened_by_peer(
    session: &Arc<Session>,
    id: [u8; 16],
    opening: Opening,
) -> Result<Arc<BundleEntry>, String> {
    if opening.format != OPENING_FORMAT || opening.header.len() > HEADER_BYTES_MAX || id == CONTROL {
        return Err("its opening is malformed".to_owned());
    }
    if session.is_closed() {
        return Err("the session has ended".to_owned());
    }
    let slot = Arc::clone(&session.streams_served)
        .try_acquire_owned()
        .map_err(|_| "too many data streams are open".to_owned())?;
    let priority = if opening.low_priority { Priority::Low } else { Priority::Normal };
    let options = StreamOptions { priority, bulk: opening.bulk, ..StreamOptions::default() };
    let (entry, stream) = carry(session, id, &options, None);
    entry.bundle.may_send(opening.window);
    let stream = data_stream(&entry, stream, slot);
    let session = Arc::clone(session);
    session.context.tasks.clone().spawn(async move {
        let Some(link) = session.link.upgrade() else { return };
        session.context.service.stream(&link, opening.header, stream).instrument(session.in_log()).await;
    });
    Ok(entry)
}

/// The side that was dialled opens a bundle.
pub(super) fn open_for_peer(session: &Arc<Session>, open: OpenBundle) -> Result<(), SessionError> {
    let id = bundle_id(&open.bundle)
        .filter(|_| session.info.dialled.is_some())
        .ok_or_else(|| SessionError::Protocol("a malformed request for a data stream".to_owned()))?;
    if session.lanes.bundle(&id).is_some() {
        return Err(SessionError::Protocol("opens a data stream that is open".to_owned()));
    }
    if let Err(reason) = opened_by_peer(session, id, open.opening) {
        refuse_stream(session, id, &reason);
    }
    Ok(())
}

/// The other side could use more lanes.
pub(super) fn more_lanes(session: &Session, more: &MoreLanes) -> Result<(), SessionError> {
    let id = bundle_id(&more.bundle)
        .filter(|_| session.info.dialled.is_some())
        .ok_or_else(|| SessionError::Protocol("a malformed request for lanes".to_owned()))?;
    // The stream may have ended meanwhile.
    if let Some(entry) = session.lanes.bundle(&id) {
        entry.ask(more.lanes);
    }
    Ok(())
}

/// The side that is dialled: waits on an idle lane for its next bundle.
async fn await_attach(session: &Arc<Session>, mut lane: IdleLane, patience: Duration) {
    let attach = tokio::select! {
        () = session.lost.cancelled() => return,
        attach = timeout(patience, Attach::read(&mut lane.io)) => attach,
    };
    // A lane that is closed or not used: the side that dials has released it.
    let Ok(Ok(Some(attach))) = attach else { return };
    // Held until the bundle is among them: several lanes bring the same opening at the same moment, and it is opened once.
    let guard = session.lanes.opening.lock();
    let entry = match session.lanes.bundle(&attach.bundle) {
        Some(entry) => Ok(entry),
        None if attach.opening.is_empty() => Err("the stream that it joins has ended".to_owned()),
        None if session.lanes.ended.lock().contains(&attach.bundle) => {
            Err("the stream that it opens has ended".to_owned())
        }
        None => match Opening::decode(attach.opening) {
            Ok(opening) => opened_by_peer(session, attach.bundle, opening),
            Err(e) => Err(format!("its opening does not decode: {e}")),
        },
    };
    drop(guard);
    match entry {
        Ok(entry) => give(&entry, lane),
        Err(reason) => {
            tracing::debug!(peer = %session.info.peer_name, "turned a lane away: {reason}");
            let part = async {
                lane.io.write_all(&encode_abort(&reason)).await?;
                lane.io.shutdown().await
            };
            let _ = timeout(CLOSE_TIMEOUT, part).await;
        }
    }
}

/// Carries on with a lane that was welcomed.
pub(crate) async fn accept_lane(
    session: &Arc<Session>,
    io: Secured,
    path: &PathSpec,
    slot: OwnedSemaphorePermit,
) {
    let lane = lane(session, io, path, Some(slot));
    await_attach(session, lane, HANDSHAKE_TIMEOUT).await;
}

/// The side that is dialled: waits on lanes whose bundle has ended for their next one.
pub(super) async fn await_attach_on_returned(session: Arc<Session>, mut returned: mpsc::Receiver<IdleLane>) {
    loop {
        let lane = tokio::select! {
            () = session.lost.cancelled() => return,
            Some(lane) = returned.recv() => lane,
        };
        let waiting = Arc::clone(&session);
        session.context.tasks.spawn(async move { await_attach(&waiting, lane, 2 * IDLE_LANE_TIMEOUT).await });
    }
}

/// Much is to be sent soon: as many connections as a bulk stream begins with, where these are several.
pub(super) fn expect_bulk(session: &Arc<Session>) {
    let lanes = lanes_of_bulk(shortest_round_trip(session));
    if session.info.dialled.is_none() || session.is_closed() || lanes < 2 {
        return;
    }
    let paths = session.lanes.paths.lock().for_data(session.lanes.now());
    for path in paths {
        let here = session.preopened.number(&path) + session.lanes.idle.lock().number(&path);
        for _ in here..lanes {
            let (context, to) = (session.context.clone(), path.clone());
            let making = session.context.tasks.spawn(async move {
                let socket = context.socket(&to);
                context.dialler.connect(&to, &socket).await
            });
            session.preopened.put(path.clone(), making);
        }
    }
    let session = Arc::clone(session);
    session.context.tasks.clone().spawn(async move {
        tokio::select! {
            () = session.lost.cancelled() => {}
            () = sleep(PREOPENED_FOR) => {}
        }
        session.preopened.expire(Instant::now());
        if session.is_closed() {
            session.preopened.abort();
        }
    });
}

fn refuse_stream(session: &Session, bundle: [u8; 16], reason: &str) {
    tracing::warn!(peer = %session.info.peer_name, "refused a data stream that the peer opens: {reason}");
    let refused = RefusedStream {
        bundle: Bytes::copy_from_slice(&bundle),
        reason: printable(reason, REFUSAL_TEXT_MAX),
    };
    // If it does not get through, the peer's own time limit ends its wait.
    let _ = session.urgent.try_send(control::encode(Body::StreamRefused(refused)));
}
