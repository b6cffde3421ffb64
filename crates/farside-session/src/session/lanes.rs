//! The lanes of a session's bundles: dialled, dialled again, kept warm.
//!
//! Lanes are always made by the side that dialled the session; the other may be behind a firewall or a NAT. Each lane is a
//! connection on one of the peer's paths and carries one bundle at a time, told by an *attach* segment. A bundle that has
//! ended in order leaves its lanes behind: at the side that dials they wait in the pool of warm lanes, at the other for the
//! next *attach*.
//!
//! The *keeper* of a bundle (side that dials) compares what lanes there are with what there should be, and dials what is
//! missing, with pauses that grow while a path does not answer. The control stream is a bundle too, with one lane on each path: it
//! shows which paths work.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Duration, Instant, sleep_until, timeout};

use super::Session;
use super::pacing::PacedLanes;
use super::paths::Paths;
use super::pool::WarmLanes;
use crate::bundle::{
    Attach, Bundle, BundleFigures, BundleStream, BundleTerms, IdleLane, LaneTerms, encode_abort,
};
use crate::control::{self, Body, MoreLanes, Opening};
use crate::error::SessionError;
use crate::hello::Role;
use crate::lanes::{LaneWatch, lanes_of_bulk, min_rtt};
use crate::limits::{
    BUNDLES_REMEMBERED, FAREWELL_TIMEOUT, HANDSHAKE_TIMEOUT, LANES_DIALLED_AT_ONCE, LANES_LOOKED_AT_EVERY,
    LANES_MAX, LANES_PER_PATH_MAX, PATHS_NUMBERED_MAX, SESSION_LANES_MAX, WARM_LANES_IDLE_MAX,
};
use crate::link::WireCounters;
use crate::terms::{PathTerms, Priority, StreamTerms};
use crate::throttle::{Limits, StreamLimits};
use crate::tls::Secured;
use crate::transport::SocketLimits;

/// The id of the control stream's bundle.
pub(super) const CONTROL: [u8; 16] = [0; 16];

/// Whether a bundle has what it needs to begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Given {
    Nothing,
    /// A lane.
    Lane,
    /// It is over, and why: its keeper stops.
    Refused(String),
}

/// A bundle and what its session knows of it.
pub(super) struct Carried {
    pub(super) id: [u8; 16],
    pub(super) bundle: Arc<Bundle>,
    /// Instead of the peer's; empty: the peer's.
    pub(super) paths: Vec<PathTerms>,
    /// What each lane tells the other side until that has the bundle; empty if it opened the bundle itself.
    opening: Bytes,
    /// Lanes on each path that the other side asks for.
    asked: AtomicUsize,
    watch: Mutex<LaneWatch>,
    pub(super) given: watch::Sender<Given>,
    /// Why the last dial failed.
    pub(super) trouble: Mutex<Option<String>>,
    /// Wakes its keeper.
    pub(super) look: Notify,
}

impl Carried {
    pub(super) fn is_control(&self) -> bool {
        self.id == CONTROL
    }

    /// Has as many lanes as pay carry what this side sends, on each of the paths with these numbers, and says how many; see
    /// [`LaneWatch`].
    pub(super) fn use_lanes(&self, figures: &BundleFigures, paths: &[usize]) -> usize {
        let most = (LANES_MAX / paths.len().max(1)).max(1);
        let wanted = self.watch.lock().look(figures, paths).min(most);
        self.bundle.use_lanes(|path| if paths.contains(&path) { wanted } else { 0 });
        wanted
    }

    /// Lanes on each path that the other side asks for.
    pub(super) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// The other side asks for so many lanes on each path.
    pub(super) fn ask(&self, lanes: u32) {
        let lanes = usize::try_from(lanes).unwrap_or(usize::MAX).min(LANES_PER_PATH_MAX);
        self.asked.store(lanes, Ordering::Relaxed);
        self.look.notify_one();
    }

    /// What a new lane's *attach* says. The opening is repeated until the other side has shown that it has the bundle.
    fn attach(&self) -> Bytes {
        let figures = self.bundle.figures();
        let is_known =
            figures.received_bytes > 0 || figures.lanes.iter().any(|lane| lane.delivered_bytes > 0);
        let opening = if is_known { Bytes::new() } else { self.opening.clone() };
        Attach { bundle: self.id, opening }.encode()
    }

    /// Ends it, if it has not ended, and stops its keeper.
    pub(super) fn refuse(&self, reason: &str) {
        self.given.send_if_modified(|given| {
            let is_news = !matches!(given, Given::Refused(_));
            if is_news {
                *given = Given::Refused(reason.to_owned());
            }
            is_news
        });
        self.bundle.close(reason);
    }
}

/// What a session has of lanes.
pub(super) struct Lanes {
    pub(super) started: Instant,
    /// As the side that dials sees them.
    pub(super) paths: Mutex<Paths>,
    /// What the numbers in [`LaneTerms`] mean: paths at the side that dials, pairs of addresses at the other. Only grows.
    numbers: Mutex<Vec<Numbered>>,
    bundles: Mutex<HashMap<[u8; 16], Arc<Carried>>>,
    /// One lane at a time looks for its bundle, and opens it.
    opening: Mutex<()>,
    /// Bundles that have ended, newest last: an *attach* that comes too late does not open one of them again.
    ended: Mutex<VecDeque<[u8; 16]>>,
    pub(super) warm: Mutex<WarmLanes<IdleLane>>,
    warm_changed: Notify,
    pub(super) dials: Semaphore,
    /// Places for lanes at the side that is dialled.
    places: Arc<Semaphore>,
    warm_starts: AtomicU64,
    /// Bytes sent twice by bundles that have ended.
    sent_twice: AtomicU64,
    /// The window that the last stream ended with: the next one begins with it.
    last_window: AtomicU64,
    /// Lanes on each path that this side's sending last needed: the next stream begins with so many.
    last_lanes: AtomicUsize,
    pub(super) paced: PacedLanes,
}

/// A path and what it has carried, all lanes that ever were on it together.
#[derive(Clone)]
pub(super) struct Numbered {
    pub(super) path: PathTerms,
    pub(super) wire: Arc<WireCounters>,
}

impl Lanes {
    pub(super) fn new(paths: Paths) -> Lanes {
        Lanes {
            started: Instant::now(),
            paths: Mutex::new(paths),
            numbers: Mutex::default(),
            bundles: Mutex::default(),
            opening: Mutex::default(),
            ended: Mutex::default(),
            warm: Mutex::default(),
            warm_changed: Notify::new(),
            dials: Semaphore::new(LANES_DIALLED_AT_ONCE),
            places: Arc::new(Semaphore::new(SESSION_LANES_MAX)),
            warm_starts: AtomicU64::new(0),
            sent_twice: AtomicU64::new(0),
            last_window: AtomicU64::new(0),
            last_lanes: AtomicUsize::new(0),
            paced: PacedLanes::default(),
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// The number of a path in this session.
    pub(super) fn number(&self, path: &PathTerms) -> usize {
        let mut numbers = self.numbers.lock();
        if let Some(known) = numbers.iter().position(|numbered| numbered.path == *path) {
            return known;
        }
        if numbers.len() >= PATHS_NUMBERED_MAX {
            // Its lanes are then counted, used and let go of with those of the first: more lanes or fewer than would pay.
            return 0;
        }
        numbers.push(Numbered { path: path.clone(), wire: Arc::default() });
        numbers.len() - 1
    }

    /// All paths that have a number, in its order.
    pub(super) fn numbered(&self) -> Vec<Numbered> {
        self.numbers.lock().clone()
    }

    pub(super) fn bundle(&self, id: &[u8; 16]) -> Option<Arc<Carried>> {
        self.bundles.lock().get(id).cloned()
    }

    pub(super) fn bundles(&self) -> Vec<Arc<Carried>> {
        self.bundles.lock().values().cloned().collect()
    }

    /// Streams that began on a warm lane.
    pub(super) fn warm_starts(&self) -> u64 {
        self.warm_starts.load(Ordering::Relaxed)
    }

    /// Bytes that lanes were given a second time, in all bundles so far.
    pub(super) fn sent_twice(&self) -> u64 {
        let now: u64 = self.bundles().iter().map(|carried| carried.bundle.figures().sent_twice_bytes).sum();
        now + self.sent_twice.load(Ordering::Relaxed)
    }

    /// Whether there are streams of data.
    pub(super) fn has_data(&self) -> bool {
        self.bundles.lock().values().any(|carried| !carried.is_control())
    }

    /// Wakes every keeper: paths have changed.
    pub(super) fn look_everywhere(&self) {
        self.bundles.lock().values().for_each(|carried| carried.look.notify_one());
    }

    /// Ends all bundles but the control stream's, whose writer still says farewell.
    pub(super) fn close_data(&self, reason: &str) {
        for carried in self.bundles() {
            if !carried.is_control() {
                carried.refuse(reason);
            }
        }
        drop(std::mem::take(&mut *self.warm.lock()));
    }
}

/// A lane's connection and its place among the lanes of a session.
struct Placed {
    io: Secured,
    _place: Option<OwnedSemaphorePermit>,
}

impl AsyncRead for Placed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Placed {
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

impl Session {
    /// Makes a bundle of this session and sets its tasks to work. If this side opens it, `opening` is told what it takes from the
    /// start.
    pub(super) fn carry(
        self: &Arc<Self>,
        id: [u8; 16],
        terms: &StreamTerms,
        opening: Option<&mut Opening>,
    ) -> (Arc<Carried>, BundleStream) {
        let lanes = &self.lanes;
        let is_control = id == CONTROL;
        let window_start = Some(lanes.last_window.load(Ordering::Relaxed)).filter(|w| *w > 0 && !is_control);
        // Calls do not wait for throttles; what they cost is charged by their sockets.
        let limits = if is_control {
            StreamLimits { sent: Limits::unlimited(), received: Limits::unlimited() }
        } else {
            self.around.throttles.limits(self.terms.peer, terms.throttle.clone())
        };
        let last_lanes = Some(lanes.last_lanes.load(Ordering::Relaxed)).filter(|lanes| *lanes > 0);
        let is_bulk = terms.bulk && terms.priority == Priority::Normal;
        let at_once = if is_bulk { lanes_of_bulk(self.min_rtt()) } else { 1 };
        let (bundle, stream) = Bundle::new(BundleTerms {
            window: terms.window,
            window_start,
            priority: terms.priority,
            limits_out: limits.sent,
            limits_in: limits.received,
            budget: Arc::clone(&self.around.budget),
            tasks: self.around.tasks.clone(),
        });
        let opening = opening.map(|opening| {
            opening.window = bundle.granted();
            Bytes::from(opening.encode_to_vec())
        });
        // The side that was dialled says it in a call.
        let opening = opening.filter(|_| self.terms.dialled.is_some()).unwrap_or_default();
        let carried = Arc::new(Carried {
            id,
            bundle,
            paths: terms.paths.clone(),
            opening,
            asked: AtomicUsize::new(at_once),
            watch: Mutex::new(LaneWatch::new(last_lanes, at_once)),
            given: watch::Sender::new(Given::Nothing),
            trouble: Mutex::default(),
            look: Notify::new(),
        });
        lanes.bundles.lock().insert(id, Arc::clone(&carried));
        self.around.tasks.spawn(Arc::clone(self).tend(Arc::clone(&carried)));
        if self.terms.dialled.is_some() {
            self.around.tasks.spawn(Arc::clone(self).keep_lanes(Arc::clone(&carried)));
        } else if !is_control {
            self.around.tasks.spawn(Arc::clone(self).ask_for_lanes(Arc::clone(&carried)));
        }
        if !is_control {
            lanes.paced.look();
        }
        (carried, stream)
    }

    /// The shortest round trip that the control stream's connections have seen; zero if none is known.
    pub(super) fn min_rtt(&self) -> Duration {
        let control = self.lanes.bundle(&CONTROL);
        control.map_or(Duration::ZERO, |control| min_rtt(&control.bundle.figures()))
    }

    /// Sees a bundle to its end and takes its lanes back.
    async fn tend(self: Arc<Self>, carried: Arc<Carried>) {
        let left = carried.bundle.ended().await;
        let lanes = &self.lanes;
        // Remembered first: a late lane that finds it in neither would open it again.
        {
            let mut ended = lanes.ended.lock();
            ended.push_back(carried.id);
            if ended.len() > BUNDLES_REMEMBERED {
                ended.pop_front();
            }
        }
        lanes.bundles.lock().remove(&carried.id);
        carried.refuse("the stream has ended");
        let figures = carried.bundle.figures();
        tracing::debug!(peer = %self.terms.peer_name, ?figures.blocked, figures.window, figures.sent_bytes, figures.received_bytes, "a stream has ended");
        lanes.sent_twice.fetch_add(figures.sent_twice_bytes, Ordering::Relaxed);
        if let Some(needed) = carried.watch.lock().needed() {
            lanes.last_lanes.store(needed, Ordering::Relaxed);
        }
        let Some(left) = left else { return };
        lanes.last_window.store(figures.window, Ordering::Relaxed);
        for lane in left {
            if self.terms.dialled.is_none() {
                self.around.tasks.spawn(Arc::clone(&self).await_attach(lane, WARM_LANES_IDLE_MAX * 2));
            } else if !self.is_closed() {
                let path = lanes.numbers.lock().get(lane.terms.path).map(|numbered| numbered.path.clone());
                if let Some(path) = path {
                    drop(lanes.warm.lock().put(path, lane, lanes.now()));
                    lanes.warm_changed.notify_one();
                }
            }
        }
    }

    /// Closes warm lanes that nobody uses.
    pub(super) async fn tend_warm_lanes(self: Arc<Self>) {
        let lanes = &self.lanes;
        loop {
            drop(lanes.warm.lock().expire(lanes.now()));
            let next = lanes.warm.lock().next_expiry();
            let expired = async {
                match next {
                    Some(at) => sleep_until(lanes.started + at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.lost.cancelled() => break,
                () = lanes.warm_changed.notified() => {}
                () = expired => {}
            }
        }
        drop(std::mem::take(&mut *lanes.warm.lock()));
    }

    /// The side that is dialled: asks for lanes when this side's sending could use more than there are.
    async fn ask_for_lanes(self: Arc<Self>, carried: Arc<Carried>) {
        let mut given = carried.given.subscribe();
        let mut asked = 1;
        loop {
            tokio::select! {
                () = self.lost.cancelled() => return,
                ended = given.wait_for(|given| matches!(given, Given::Refused(_))) => { drop(ended); return }
                () = carried.look.notified() => {}
                _ = carried.bundle.lanes_wanted() => {}
                () = tokio::time::sleep(LANES_LOOKED_AT_EVERY) => {}
            }
            if self.lanes.bundle(&carried.id).is_none() {
                return;
            }
            let figures = carried.bundle.figures();
            // This side knows no order of paths: it sends over whatever there is.
            let paths: BTreeSet<usize> = figures.lanes.iter().map(|lane| lane.path).collect();
            let wanted = carried.use_lanes(&figures, &Vec::from_iter(paths));
            if wanted > asked {
                asked = wanted;
                let bundle = Bytes::copy_from_slice(&carried.id);
                let frame = control::encode(Body::MoreLanes(MoreLanes { bundle, lanes: wanted as u32 }));
                // Lost with a full queue: then it gets on with what it has.
                let _ = self.urgent.try_send(frame);
            }
        }
    }

    /// Gives a connection that is past its *attach* to a bundle.
    pub(super) fn give(&self, carried: &Carried, lane: IdleLane) {
        if carried.bundle.add_lane(lane.io, lane.terms).is_none() {
            return;
        }
        carried.given.send_if_modified(|given| {
            let is_first = *given == Given::Nothing;
            if is_first {
                *given = Given::Lane;
            }
            is_first
        });
    }

    /// A new connection as a lane without a bundle.
    pub(super) fn lane(
        &self,
        io: Secured,
        path: &PathTerms,
        place: Option<OwnedSemaphorePermit>,
    ) -> IdleLane {
        let number = self.lanes.number(path);
        let of_path = self.lanes.numbers.lock().get(number).map(|numbered| Arc::clone(&numbered.wire));
        self.adopt(&io, of_path);
        let socket = io.get_ref().0;
        let (figures, wire) = (socket.figures(), socket.wire());
        self.lanes.paced.add(number, &figures);
        let terms = LaneTerms { path: number, standby: false, figures, wire };
        IdleLane { io: Box::new(Placed { io, _place: place }), terms }
    }

    /// A warm lane on this path that still works, its *attach* said.
    pub(super) async fn warm_lane(&self, path: &PathTerms, carried: &Carried) -> Option<IdleLane> {
        loop {
            let mut lane = self.lanes.warm.lock().take(path)?;
            if !is_quiet(&mut lane.io) {
                continue;
            }
            let attach = carried.attach();
            let said = async {
                lane.io.write_all(&attach).await?;
                lane.io.flush().await
            };
            if let Ok(Ok(())) = timeout(FAREWELL_TIMEOUT, said).await {
                if *carried.given.borrow() == Given::Nothing {
                    self.lanes.warm_starts.fetch_add(1, Ordering::Relaxed);
                }
                return Some(lane);
            }
        }
    }

    /// A new connection on a path, its *attach* said. Waits while many are dialled.
    pub(super) async fn new_lane(
        &self,
        path: &PathTerms,
        carried: &Carried,
    ) -> Result<IdleLane, SessionError> {
        let _turn = self.lanes.dials.acquire().await.map_err(|_| self.loss())?;
        let attach = carried.attach();
        let dial = async {
            let connection = self.connection(path).await?;
            let (dialler, terms) = (&self.around.dialler, &self.terms);
            dialler.greet(connection, path, terms.peer, Role::Lane, terms.id, [0; 16], &attach).await
        };
        let (io, _) = tokio::select! {
            () = self.lost.cancelled() => return Err(self.loss()),
            dialled = dial => dialled?,
        };
        if carried.is_control() {
            let limits = self.around.throttles.limits(self.terms.peer, None);
            io.get_ref().0.limit(SocketLimits::Counts(limits));
        }
        let lane = self.lane(io, path, None);
        // The handshake is part of what this stream costs.
        let wire = carried.bundle.wire();
        wire.add_sent(lane.terms.wire.sent());
        wire.add_received(lane.terms.wire.received());
        Ok(lane)
    }

    /// The side that is dialled: waits on an idle lane for its next bundle.
    pub(super) async fn await_attach(self: Arc<Self>, mut lane: IdleLane, patience: Duration) {
        let attach = tokio::select! {
            () = self.lost.cancelled() => return,
            attach = timeout(patience, Attach::read(&mut lane.io)) => attach,
        };
        // A lane that is closed or not used: the side that dials has let it go.
        let Ok(Ok(Some(attach))) = attach else { return };
        // Held until the bundle is among them: several lanes bring the same opening at the same moment, and it is opened once.
        let turn = self.lanes.opening.lock();
        let carried = match self.lanes.bundle(&attach.bundle) {
            Some(carried) => Ok(carried),
            None if attach.opening.is_empty() => Err("the stream that it joins has ended".to_owned()),
            None if self.lanes.ended.lock().contains(&attach.bundle) => {
                Err("the stream that it opens has ended".to_owned())
            }
            None => match Opening::decode(attach.opening) {
                Ok(opening) => self.opened_by_peer(attach.bundle, opening),
                Err(e) => Err(format!("its opening does not decode: {e}")),
            },
        };
        drop(turn);
        match carried {
            Ok(carried) => self.give(&carried, lane),
            Err(reason) => {
                tracing::debug!(peer = %self.terms.peer_name, "turned a lane away: {reason}");
                let part = async {
                    lane.io.write_all(&encode_abort(&reason)).await?;
                    lane.io.shutdown().await
                };
                let _ = timeout(FAREWELL_TIMEOUT, part).await;
            }
        }
    }

    /// Whether lanes may join: those of a session that the peer dialled.
    pub(crate) fn takes_lanes(&self) -> bool {
        !self.is_closed() && self.terms.dialled.is_none() && self.has_bundles()
    }

    /// A place for one more lane that the peer dials.
    pub(crate) fn lane_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.lanes.places).try_acquire_owned().ok()
    }

    /// Carries on with a lane that was welcomed.
    pub(crate) async fn accept_lane(
        self: &Arc<Self>,
        io: Secured,
        path: &PathTerms,
        place: OwnedSemaphorePermit,
    ) {
        let lane = self.lane(io, path, Some(place));
        Arc::clone(self).await_attach(lane, HANDSHAKE_TIMEOUT).await;
    }
}
