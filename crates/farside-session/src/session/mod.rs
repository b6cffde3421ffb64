//! One live session: a control connection, and data streams that live and die with it.
//!
//! Calls are multiplexed over the control connection by id; at most [`CALLS_OUTSTANDING_MAX`] are under way in each
//! direction. Whoever reads it never waits for a service, so that pings are answered while services are slow; a
//! session is lost when nothing at all has arrived for [`SILENCE_MAX`].
//!
//! Each data stream is a connection of its own, always made by the side that dialled the session (the other may be
//! behind a firewall). The other side asks for one by a ticket over the control connection and is dialled back.
//!
//! A call on a lost session fails, and nothing is known about what the peer did with it. A service that has begun to
//! answer a call is not interrupted when the session is lost; only its answer has nowhere to go.

mod bundles;
mod keeper;
mod lanes;
mod pacing;
mod paths;
mod pool;
mod ready;
mod status;
mod streams;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use farside_platform::Randomness;
use parking_lot::Mutex;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::bundle::WindowBudget;
use crate::control::{self, Body, FailedDial, Payload, RefusedCall, bounded, printable, wire_cost};
use crate::dial::Dialler;
use crate::error::SessionError;
use crate::hello::VERSION_OF_BUNDLES;
use crate::limits::{
    CALLS_OUTSTANDING_MAX, CONTROL_QUEUE, CONTROL_URGENT_QUEUE, FAREWELL_TIMEOUT, PING_EVERY,
    REFUSAL_TEXT_MAX, SILENCE_MAX, STREAM_OPEN_TIMEOUT, STREAMS_OPEN_MAX, STREAMS_SERVED_MAX,
    SUSPECT_SILENCE_MAX,
};
use crate::link::{
    ByteStream, CALL_BYTES_MAX, DataStream, HEADER_BYTES_MAX, PeerId, PeerLink, PeerService, Refusal,
    WireCounters,
};
use crate::stream::write_header;
use crate::terms::{PathTerms, Reach, StreamTerms};
use crate::throttle::Throttles;
use crate::tls::Secured;
use crate::transport::{SocketFigures, SocketLimits};

pub use status::{PathFigures, SessionFigures};

use lanes::{CONTROL, Lanes};
use paths::Paths;
use ready::ReadyConnections;
use streams::{Asker, ticket_of};

/// Which session, and between whom.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(crate) peer: PeerId,
    /// For log lines.
    pub(crate) peer_name: String,
    pub(crate) id: [u8; 16],
    /// Of the peer's process.
    pub(crate) instance: [u8; 16],
    pub(crate) version: u16,
    /// Where we dialled; `None` if the peer did.
    pub(crate) dialled: Option<PathTerms>,
    /// The addresses of the connection that the session began with.
    pub(crate) first: PathTerms,
}

/// What a session uses of its node.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) dialler: Dialler,
    pub(crate) service: Arc<dyn PeerService>,
    pub(crate) random: Arc<dyn Randomness>,
    pub(crate) tasks: TaskTracker,
    /// Everything this peer's sockets have carried since the node started.
    pub(crate) peer_wire: Arc<WireCounters>,
    /// The limits of this site and its peers.
    pub(crate) throttles: Arc<Throttles>,
    /// Calls of this peer that services are working on; outlives sessions, as the calls do.
    pub(crate) peer_calls: Arc<Semaphore>,
    /// How the peer is reached, as its record says now.
    pub(crate) reach: watch::Receiver<Reach>,
    /// What the windows of all bundles of this site share.
    pub(crate) budget: Arc<WindowBudget>,
}

/// The bytes of the control stream.
type Control = Box<dyn ByteStream>;

/// A call that waits for its answer. Its place among the outstanding calls is free when the answer is there, not
/// when the caller has given up: the peer is still working on it.
struct Waiting {
    answer: oneshot::Sender<(Result<Bytes, SessionError>, u64)>,
    _place: OwnedSemaphorePermit,
}

pub(crate) struct Session {
    pub(crate) terms: Terms,
    around: Surroundings,
    me: Weak<Session>,
    wire: Arc<WireCounters>,
    /// Whose growth is the peer's sign of life: the control connection, or since version 2 whatever the session has.
    heard: Arc<WireCounters>,
    lanes: Lanes,
    ready: ReadyConnections,
    /// For terms that change while they live.
    sockets: Mutex<Vec<Weak<dyn SocketFigures>>>,
    calls: mpsc::Sender<Bytes>,
    urgent: mpsc::Sender<Bytes>,
    next_call: AtomicU64,
    waiting: Mutex<HashMap<u64, Waiting>>,
    places: Arc<Semaphore>,
    tickets: Mutex<HashMap<[u8; 16], Asker>>,
    streams_open: Arc<Semaphore>,
    streams_served: Arc<Semaphore>,
    pings: Mutex<Option<(u64, Instant)>>,
    rtt: watch::Sender<Option<f64>>,
    doubted: Notify,
    lost: CancellationToken,
    lost_because: OnceLock<String>,
}

impl Session {
    /// Makes a session of a connection that is past its hello, and sets it to work.
    pub(crate) fn start(terms: Terms, around: Surroundings, control: Secured) -> Arc<Session> {
        let wire: Arc<WireCounters> = Arc::default();
        control.get_ref().0.limit(SocketLimits::Counts(around.throttles.limits(terms.peer, None)));
        let has_bundles = terms.version >= VERSION_OF_BUNDLES;
        let heard = if has_bundles { Arc::clone(&wire) } else { control.get_ref().0.wire() };
        let lanes = Lanes::new(Paths::new(&around.reach.borrow(), &terms.first));
        let (calls, calls_out) = mpsc::channel(CONTROL_QUEUE);
        let (urgent, urgent_out) = mpsc::channel(CONTROL_URGENT_QUEUE);
        let tasks = around.tasks.clone();
        let session = Arc::new_cyclic(|me| Session {
            terms,
            around,
            me: Weak::clone(me),
            wire,
            heard,
            lanes,
            ready: ReadyConnections::default(),
            sockets: Mutex::default(),
            calls,
            urgent,
            next_call: AtomicU64::new(1),
            waiting: Mutex::default(),
            places: Arc::new(Semaphore::new(CALLS_OUTSTANDING_MAX)),
            tickets: Mutex::default(),
            streams_open: Arc::new(Semaphore::new(STREAMS_OPEN_MAX)),
            streams_served: Arc::new(Semaphore::new(STREAMS_SERVED_MAX)),
            pings: Mutex::default(),
            rtt: watch::Sender::new(None),
            doubted: Notify::new(),
            lost: CancellationToken::new(),
            lost_because: OnceLock::new(),
        });
        let control: Control = if has_bundles {
            let (carried, stream) = session.carry(CONTROL, &StreamTerms::default(), None);
            let first = session.lane(control, &session.terms.first, None);
            session.give(&carried, first);
            tasks.spawn(Arc::clone(&session).tend_warm_lanes());
            tasks.spawn(Arc::clone(&session).pace_lanes());
            Box::new(stream)
        } else {
            session.adopt(&control, None);
            Box::new(control)
        };
        let (reader, writer) = tokio::io::split(control);
        tasks.spawn(Arc::clone(&session).follow_reach());
        tasks.spawn(Arc::clone(&session).read_frames(reader));
        tasks.spawn(Arc::clone(&session).write_frames(writer, urgent_out, calls_out));
        tasks.spawn(Arc::clone(&session).watch_for_silence());
        session
    }

    /// Ends the session. The first reason counts; the peer is told it if the link still works.
    pub(crate) fn close(&self, reason: &str) {
        if self.lost_because.set(reason.to_owned()).is_ok() {
            self.lost.cancel();
            // Dropping the waiting ends wakes their callers; they read the reason.
            self.waiting.lock().clear();
            self.tickets.lock().clear();
            self.lanes.close_data(reason);
        }
    }

    /// Whether its streams are bundles of lanes.
    fn has_bundles(&self) -> bool {
        self.terms.version >= VERSION_OF_BUNDLES
    }

    /// Counts a connection among those of this session and asks it for the peer's terms.
    fn adopt(&self, io: &Secured, of_path: Option<Arc<WireCounters>>) {
        let socket = io.get_ref().0;
        let mut counters = vec![Arc::clone(&self.wire), Arc::clone(&self.around.peer_wire)];
        counters.extend(of_path);
        socket.charge(counters);
        let figures = socket.figures();
        figures.apply(&self.around.reach.borrow().socket(&self.terms.first));
        let mut sockets = self.sockets.lock();
        sockets.retain(|known| known.strong_count() > 0);
        sockets.push(Arc::downgrade(&figures));
    }

    /// Takes up changes of the peer's record while the session lives.
    async fn follow_reach(self: Arc<Self>) {
        let mut reach = self.around.reach.clone();
        loop {
            tokio::select! {
                () = self.lost.cancelled() => return,
                changed = reach.changed() => if changed.is_err() { return },
            }
            let reach = reach.borrow_and_update().clone();
            self.lanes.paths.lock().change(&reach, &self.terms.first);
            let terms = reach.socket(&self.terms.first);
            for socket in self.sockets.lock().iter().filter_map(Weak::upgrade) {
                socket.apply(&terms);
            }
            self.lanes.look_everywhere();
        }
    }

    /// The peer behaves as if this session were gone: find out soon.
    pub(crate) fn doubt(&self) {
        self.doubted.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Why it ended.
    pub(crate) fn reason(&self) -> String {
        self.lost_because.get().cloned().unwrap_or_else(|| "closed".to_owned())
    }

    pub(crate) fn rtt(&self) -> watch::Receiver<Option<f64>> {
        self.rtt.subscribe()
    }

    fn loss(&self) -> SessionError {
        SessionError::Lost(self.reason())
    }

    fn link(self: &Arc<Self>) -> Arc<dyn PeerLink> {
        Arc::clone(self) as Arc<dyn PeerLink>
    }

    async fn read_frames(self: Arc<Self>, mut reader: ReadHalf<Control>) {
        let reason = loop {
            let frame = tokio::select! {
                () = self.lost.cancelled() => return,
                frame = control::read(&mut reader) => frame,
            };
            match frame {
                Ok(Some((Body::Farewell(reason), _))) => {
                    break format!("the peer closed it: {}", printable(&reason, REFUSAL_TEXT_MAX));
                }
                Ok(Some((body, wire))) => {
                    if let Err(e) = self.take(body, wire) {
                        break e.to_string();
                    }
                }
                Ok(None) => break "the peer closed the connection".to_owned(),
                Err(SessionError::Lost(reason)) => break reason,
                Err(e) => break e.to_string(),
            }
        };
        self.close(&reason);
    }

    /// Takes one frame without ever waiting.
    fn take(self: &Arc<Self>, body: Body, wire: u64) -> Result<(), SessionError> {
        match body {
            Body::Call(call) => self.serve_call(call),
            Body::Answer(answer) => self.deliver(answer.id, Ok(answer.body), wire)?,
            Body::Refused(RefusedCall { id, code, message }) => {
                let refusal = bounded(&Refusal { code, message });
                self.deliver(id, Err(SessionError::Refused(refusal)), wire)?;
            }
            // A full queue means that plenty is under way to the peer: no pong is needed to show life.
            Body::Ping(nonce) => drop(self.urgent.try_send(control::encode(Body::Pong(nonce)))),
            Body::Pong(nonce) => {
                let sent = self.pings.lock().take_if(|(expected, _)| *expected == nonce);
                if let Some((_, at)) = sent {
                    self.rtt.send_replace(Some(at.elapsed().as_secs_f64()));
                }
            }
            Body::DialBack(ticket) => self.dial_back(&ticket)?,
            Body::DialBackFailed(FailedDial { ticket, reason }) => {
                let waiting = ticket_of(&ticket).and_then(|t| self.tickets.lock().remove(&t));
                if let Some(waiting) = waiting {
                    let reason = printable(&reason, REFUSAL_TEXT_MAX);
                    let failed =
                        SessionError::Lost(format!("the peer could not open the data stream: {reason}"));
                    // Whoever asked may have given up.
                    let _ = waiting.send(Err(failed));
                } else if let Some(carried) = ticket_of(&ticket).and_then(|t| self.lanes.bundle(&t)) {
                    carried.refuse(&format!(
                        "the peer could not open it: {}",
                        printable(&reason, REFUSAL_TEXT_MAX)
                    ));
                }
            }
            Body::OpenBundle(open) => self.open_for_peer(open)?,
            Body::MoreLanes(more) => self.more_lanes(&more)?,
            Body::Farewell(_) => {}
        }
        Ok(())
    }

    fn deliver(&self, id: u64, answer: Result<Bytes, SessionError>, wire: u64) -> Result<(), SessionError> {
        let waiting = self.waiting.lock().remove(&id);
        match waiting {
            // Whoever called may have given up.
            Some(waiting) => drop(waiting.answer.send((answer, wire))),
            None if self.is_closed() => {}
            None => return Err(SessionError::Protocol(format!("an answer to call {id}, which nobody made"))),
        }
        Ok(())
    }

    fn serve_call(self: &Arc<Self>, call: Payload) {
        let Ok(place) = Arc::clone(&self.around.peer_calls).try_acquire_owned() else {
            let message = format!("more than {CALLS_OUTSTANDING_MAX} calls are under way; try again");
            let busy = RefusedCall { id: call.id, code: "busy".to_owned(), message };
            // The calls queue is full only if the peer does not read its answers; then silence ends the session.
            if self.calls.try_send(control::encode(Body::Refused(busy))).is_err() {
                self.close("the peer makes calls and does not read the answers");
            }
            return;
        };
        let session = Arc::clone(self);
        self.around.tasks.spawn(async move {
            let answer = session.ask_service(call.body).await;
            let frame = match answer {
                Ok(body) => Body::Answer(Payload { id: call.id, body }),
                Err(refusal) => {
                    let Refusal { code, message } = bounded(&refusal);
                    Body::Refused(RefusedCall { id: call.id, code, message })
                }
            };
            // Free before the answer is out: the peer may call again as soon as it has it.
            drop(place);
            tokio::select! {
                () = session.lost.cancelled() => {}
                _ = session.calls.send(control::encode(frame)) => {}
            }
        });
    }

    /// Names the peer in every line that a service logs while it works for it.
    fn in_log(&self) -> tracing::Span {
        tracing::info_span!("peer", name = %self.terms.peer_name)
    }

    /// Answers even if the service panics: whoever called waits without a time limit.
    async fn ask_service(self: &Arc<Self>, request: Bytes) -> Result<Bytes, Refusal> {
        let failed = |message: String| Refusal { code: "failed".to_owned(), message };
        let session = Arc::clone(self);
        let link = self.link();
        let called = async move { session.around.service.call(&link, request).await };
        let answer = tokio::spawn(called.instrument(self.in_log())).await;
        match answer {
            Ok(Ok(body)) if body.len() > CALL_BYTES_MAX => {
                tracing::error!(peer = %self.terms.peer_name, bytes = body.len(), "an answer is larger than a call may be");
                Err(failed(format!("the answer has {} bytes; the limit is {CALL_BYTES_MAX}", body.len())))
            }
            Ok(answer) => answer,
            Err(e) => {
                tracing::error!(peer = %self.terms.peer_name, "a call ended by a fault of this site: {e}");
                Err(failed("an internal fault; the peer's log has more".to_owned()))
            }
        }
    }

    async fn write_frames(
        self: Arc<Self>,
        mut writer: WriteHalf<Control>,
        mut urgent: mpsc::Receiver<Bytes>,
        mut calls: mpsc::Receiver<Bytes>,
    ) {
        let broken = loop {
            let frame = tokio::select! {
                biased;
                () = self.lost.cancelled() => break None,
                Some(frame) = urgent.recv() => frame,
                Some(frame) = calls.recv() => frame,
            };
            // Each frame is flushed on its own: its records are what `wire_cost` counts.
            let written = tokio::select! {
                () = self.lost.cancelled() => break None,
                written = async { writer.write_all(&frame).await?; writer.flush().await } => written,
            };
            if let Err(e) = written {
                break Some(e);
            }
        };
        match broken {
            Some(e) => self.close(&e.to_string()),
            None => {
                // A frame may be cut off half: then the peer sees a broken frame instead of the reason.
                let farewell = control::encode(Body::Farewell(self.reason()));
                let part = async {
                    writer.write_all(&farewell).await?;
                    writer.shutdown().await
                };
                let _ = timeout(FAREWELL_TIMEOUT, part).await;
            }
        }
    }

    /// Pings, and closes the session when nothing has come for too long.
    async fn watch_for_silence(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(PING_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = (self.heard.received(), Instant::now());
        let mut limit = SILENCE_MAX;
        loop {
            tokio::select! {
                () = self.lost.cancelled() => return,
                _ = ticks.tick() => {}
                () = self.doubted.notified() => {
                    limit = SUSPECT_SILENCE_MAX;
                    heard = (self.heard.received(), Instant::now());
                    *self.pings.lock() = None;
                }
            }
            let received = self.heard.received();
            if received != heard.0 {
                heard = (received, Instant::now());
                limit = SILENCE_MAX;
            }
            if heard.1.elapsed() >= limit {
                self.close(&format!("nothing was heard of the peer for {} s", limit.as_secs()));
                return;
            }
            // Every tick sends one, answered or not: a pong may be stuck behind a large answer, and the pings
            // themselves are what the peer hears of us. Only one at a time is measured.
            let nonce = self.around.random.next_u64();
            let measured = self.pings.lock().get_or_insert((nonce, Instant::now())).0 == nonce;
            let queued = self.urgent.try_send(control::encode(Body::Ping(nonce)));
            if queued.is_err() && measured {
                *self.pings.lock() = None;
            }
            // That ping takes the first path; those that stand by are to be known to work, too.
            if let Some(control) = self.lanes.bundle(&CONTROL) {
                control.bundle.ask_lanes();
            }
        }
    }

    pub(crate) fn lost_token(&self) -> &CancellationToken {
        &self.lost
    }
}

#[async_trait]
impl PeerLink for Session {
    fn peer(&self) -> PeerId {
        self.terms.peer
    }

    async fn call(&self, request: Bytes, wire: Option<&WireCounters>) -> Result<Bytes, SessionError> {
        if request.len() > CALL_BYTES_MAX {
            return Err(SessionError::TooLarge { bytes: request.len(), limit: CALL_BYTES_MAX });
        }
        let place = tokio::select! {
            () = self.lost.cancelled() => return Err(self.loss()),
            place = Arc::clone(&self.places).acquire_owned() => place.map_err(|_| self.loss())?,
        };
        // The queue's place first: from the entry in `waiting` on nothing may wait, or a caller that gives up there
        // would leave an entry for a call that was never made.
        let queue = tokio::select! {
            () = self.lost.cancelled() => return Err(self.loss()),
            queue = self.calls.reserve() => queue.map_err(|_| self.loss())?,
        };
        let id = self.next_call.fetch_add(1, Ordering::Relaxed);
        let frame = control::encode(Body::Call(Payload { id, body: request }));
        let sent = wire_cost(frame.len());
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().insert(id, Waiting { answer, _place: place });
        if self.is_closed() {
            // `close` may have emptied the list just before this call joined it.
            self.waiting.lock().remove(&id);
            return Err(self.loss());
        }
        queue.send(frame);
        if let Some(wire) = wire {
            wire.add_sent(sent);
        }
        let (answer, received) = answered.await.map_err(|_| self.loss())?;
        if let Some(wire) = wire {
            wire.add_received(received);
        }
        answer
    }

    async fn open_stream(&self, header: Bytes, terms: StreamTerms) -> Result<DataStream, SessionError> {
        if header.len() > HEADER_BYTES_MAX {
            return Err(SessionError::TooLarge { bytes: header.len(), limit: HEADER_BYTES_MAX });
        }
        let place = Arc::clone(&self.streams_open).try_acquire_owned().map_err(|_| {
            SessionError::Local(format!(
                "{STREAMS_OPEN_MAX} data streams to {} are open already",
                self.terms.peer_name
            ))
        })?;
        if self.has_bundles() {
            let session = self.me.upgrade().ok_or_else(|| self.loss())?;
            let open = timeout(STREAM_OPEN_TIMEOUT, session.open_bundle(header, &terms, place));
            return tokio::select! {
                () = self.lost.cancelled() => Err(self.loss()),
                opened = open => opened.map_err(|_| {
                    SessionError::Lost(format!("no data stream within {} s", STREAM_OPEN_TIMEOUT.as_secs()))
                })?,
            };
        }
        let open = async {
            if self.terms.dialled.is_some() {
                return self.dial_stream(false, [0; 16], &write_header(&header)).await;
            }
            let mut io = self.ask_for_stream().await?;
            let lost = |e: std::io::Error| SessionError::Lost(e.to_string());
            io.write_all(&write_header(&header)).await.map_err(lost)?;
            io.flush().await.map_err(lost)?;
            Ok(io)
        };
        let io = tokio::select! {
            () = self.lost.cancelled() => return Err(self.loss()),
            opened = timeout(STREAM_OPEN_TIMEOUT, open) => opened.map_err(|_| {
                SessionError::Lost(format!("no data stream within {} s", STREAM_OPEN_TIMEOUT.as_secs()))
            })??,
        };
        self.bind(io, place, terms.throttle).ok_or_else(|| self.loss())
    }

    fn expect_bulk(&self) {
        if let Some(session) = self.me.upgrade() {
            session.make_ready();
        }
    }

    async fn closed(&self) {
        self.lost.cancelled().await;
    }

    fn rtt_seconds(&self) -> Option<f64> {
        *self.rtt.borrow()
    }

    fn wire(&self) -> Arc<WireCounters> {
        Arc::clone(&self.wire)
    }
}
