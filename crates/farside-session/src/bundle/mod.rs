//! Bundles: one reliable, ordered byte stream each way over up to [`LANES_MAX`] connections, the lanes.
//!
//! ```text
//!                  ┌─ lane ── TLS ── path 0 ─┐
//! application ─► Sender ─ lane ── TLS ── path 0 ─► Receiver ─► application       (and the same the other way)
//!                  └─ lane ── TLS ── path 1 ─┘
//! ```
//!
//! * [`sender`] and [`receiver`] decide and know neither sockets nor clocks; [`lane`] reads and writes one connection;
//!   [`tender`] watches the time; [`segment`] is what travels; [`stream`] is what the application holds.
//! * **Lanes take.** A lane asks for the next segment when its connection has taken the one before, so that load spreads by
//!   what each carries, whatever path it is on.
//! * **Lanes come** with [`Bundle::add_lane`], at any time: connections fresh from their handshake, or idle ones
//!   on which an [`Attach`] was the last segment. Both sides add the same connection.
//! * **Lanes go** when their connection ends, and are set aside when they make no progress; what they had goes over the others
//!   and is counted. A lane that moves again is used again. The side that dials learns of it by [`Bundle::lanes_wanted`].
//!   With no lane the bundle waits [`LANELESS_MAX`](crate::limits::LANELESS_MAX) for one.
//! * **The end.** When both sides have shut down and everything has arrived, the lanes are idle again and
//!   [`Bundle::ended`] gives them back. A stream dropped before that aborts the bundle: the other side reads an error,
//!   never an end of file. So does [`Bundle::close`].
//! * **Memory** is bounded by what was granted: the window of the receiving side, and at the sender what is not yet
//!   acknowledged; see [`WindowBudget`].
//! * **Limits**: lanes ask this side's throttle before they take, and credit is granted only as fast as it allows, so that
//!   each side's limits hold whatever the other does. A low priority bounds what is in flight.

mod budget;
mod lane;
mod pace;
mod receiver;
mod segment;
mod sender;
mod stream;
mod tender;
mod terms;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::control::wire_cost;
use crate::limits::{CREDIT_AHEAD, LANES_MAX, WINDOW_MIN};
use crate::link::{ByteStream, WireCounters};
use crate::throttle;
use crate::transport::LinkFigures;

pub(crate) use budget::WindowBudget;
pub use segment::fuzz_segments;
pub(crate) use segment::{Attach, encode_abort};
pub(crate) use stream::BundleStream;
pub use terms::{BlockedShares, BundleFigures, LaneFigures};
pub(crate) use terms::{BundleTerms, IdleLane, LaneId, LaneTerms, LanesWanted, LostLane};

use lane::{CLOSE, Handle, LEAVE, Lane, LaneEnd, PING, TELL, Taken};
use pace::{Limiting, Pace};
use receiver::Receiver;
use segment::Ack;
use sender::{Broken, Next, Sender, Wait};

/// What a data segment costs on the wire beside its payload: limits are in bytes of the wire.
fn overhead(payload: u64) -> u64 {
    wire_cost(segment::HEADER_BYTES + payload as usize) - payload
}

/// Why a bundle is lost.
#[derive(Clone, Debug)]
struct Loss {
    kind: io::ErrorKind,
    reason: String,
    /// What has arrived before is still read: the other side gave up, which a connection's end would not have told sooner.
    after_reading: bool,
    /// The peer is told.
    tell: bool,
}

impl Loss {
    fn error(&self) -> io::Error {
        io::Error::new(self.kind, self.reason.clone())
    }
}

/// What the application waits for before it writes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriterWaits {
    ForRoom,
    UntilHandedOut,
}

/// The sending side: one lock for it.
struct Outward {
    sender: Sender,
    /// Lanes that asked and got nothing, and why.
    hungry: Vec<(Arc<Handle>, Want)>,
    /// Lanes that were woken and have not asked since.
    roused: Vec<LaneId>,
    /// Segments that lanes have and that are not all in their connections' buffers.
    in_hand: usize,
    writer: Option<(Waker, WriterWaits)>,
    throttled_until: Option<Instant>,
    pace: Pace,
    lanes: usize,
    loss: Option<Loss>,
    /// Since when the application is gone though not everything it has shut down after is delivered; and what was not then.
    lingering: Option<(Instant, u64)>,
}

/// Why a lane got nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Sender(Wait),
    Throttle,
}

/// The receiving side: one lock for it.
struct Inward {
    receiver: Receiver,
    reader: Option<Waker>,
    loss: Option<Loss>,
    /// Credit is to be told, and lanes know.
    telling: bool,
    /// The throttle has granted nothing; when to ask again.
    throttled_until: Option<Instant>,
    /// As last measured.
    round_trip: Duration,
    /// Of what each side may send before it has heard anything: what has come, and was charged.
    charged: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Open,
    /// Ended in order, both ways.
    Finished,
    Lost,
}

struct Lanes {
    phase: Phase,
    handles: BTreeMap<LaneId, Arc<Handle>>,
    next: u32,
    /// Since when there is none.
    none_since: Option<Instant>,
    lost: Vec<LostLane>,
    idle: Vec<IdleLane>,
}

/// See the module.
pub(crate) struct Bundle {
    terms: BundleTerms,
    born: Instant,
    outward: Mutex<Outward>,
    inward: Mutex<Inward>,
    lanes: Mutex<Lanes>,
    wire: Arc<WireCounters>,
    /// Has the tender look again.
    bell: Notify,
    wanted: Notify,
    over: Notify,
}

// Lock order: lanes, then outward or inward; never both of these.
impl Bundle {
    /// A bundle without lanes, and the stream over it. Call within a tokio runtime.
    pub(crate) fn new(terms: BundleTerms) -> (Arc<Bundle>, BundleStream) {
        let born = Instant::now();
        let outward = Outward {
            sender: Sender::new(Arc::clone(&terms.budget)),
            hungry: Vec::new(),
            roused: Vec::new(),
            in_hand: 0,
            writer: None,
            throttled_until: None,
            pace: Pace::new(Duration::ZERO),
            lanes: 0,
            loss: None,
            lingering: None,
        };
        let inward = Inward {
            receiver: Receiver::new(terms.window, terms.window_start, Arc::clone(&terms.budget)),
            reader: None,
            loss: None,
            telling: false,
            throttled_until: None,
            round_trip: Duration::ZERO,
            charged: 0,
        };
        let lanes = Lanes {
            phase: Phase::Open,
            handles: BTreeMap::new(),
            next: 0,
            none_since: Some(born),
            lost: Vec::new(),
            idle: Vec::new(),
        };
        let bundle = Arc::new(Bundle {
            terms,
            born,
            outward: Mutex::new(outward),
            inward: Mutex::new(inward),
            lanes: Mutex::new(lanes),
            wire: Arc::default(),
            bell: Notify::new(),
            wanted: Notify::new(),
            over: Notify::new(),
        });
        bundle.grant(&mut bundle.inward.lock());
        bundle.terms.tasks.spawn(tender::tend(Arc::clone(&bundle)));
        let stream = BundleStream::new(Arc::clone(&bundle));
        (bundle, stream)
    }

    /// Takes a connection as a further lane. `None`, and the connection closed, if the bundle is over or has [`LANES_MAX`].
    pub(crate) fn add_lane(self: &Arc<Self>, io: Box<dyn ByteStream>, terms: LaneTerms) -> Option<LaneId> {
        let mut lanes = self.lanes.lock();
        if lanes.phase != Phase::Open || lanes.handles.len() >= LANES_MAX {
            return None;
        }
        let id = LaneId(lanes.next);
        lanes.next += 1;
        lanes.none_since = None;
        {
            let mut outward = self.outward.lock();
            outward.sender.add_lane(id, terms.standby, self.now());
            outward.lanes += 1;
        }
        let handle = Handle::new(id, terms, self.now());
        lanes.handles.insert(id, Arc::clone(&handle));
        drop(lanes);
        self.terms.tasks.spawn(Lane::new(Arc::clone(self), handle, io).run());
        self.bell.notify_one();
        Some(id)
    }

    /// Ends the bundle: reads and writes fail with the reason, the peer is told it if a lane still works. The first
    /// reason counts.
    pub(crate) fn close(&self, reason: &str) {
        self.lose(Loss {
            kind: io::ErrorKind::ConnectionReset,
            reason: reason.to_owned(),
            after_reading: false,
            tell: true,
        });
    }

    /// Has so many of the working lanes on each path carry what this side sends, those that have been there longest; the rest is on
    /// standby, and at hand when one of these dies. Only this side's sending: the peer has its own idea of what it needs.
    pub(crate) fn use_lanes(&self, on_path: impl Fn(usize) -> usize) {
        let lanes = self.lanes.lock();
        let mut used: BTreeMap<usize, usize> = BTreeMap::new();
        let mut outward = self.outward.lock();
        for handle in lanes.handles.values() {
            let used = used.entry(handle.terms.path).or_default();
            let is_used = !outward.sender.is_stalled(handle.id) && *used < on_path(handle.terms.path);
            *used += usize::from(is_used);
            outward.sender.set_standby(handle.id, !is_used);
        }
        outward.rouse();
        outward.paced(self.now());
    }

    /// Closes the lanes of paths that are no more. Each is put on standby first, and closed once nothing of this side's is on its
    /// way there; what the peer has on its way goes over others.
    pub(crate) fn retire_lanes(&self, is_retired: impl Fn(usize) -> bool) {
        let lanes = self.lanes.lock();
        let mut outward = self.outward.lock();
        for handle in lanes.handles.values().filter(|handle| is_retired(handle.terms.path)) {
            outward.sender.set_standby(handle.id, true);
            if outward.sender.has_nothing_on(handle.id) {
                handle.order(CLOSE);
            }
        }
    }

    /// Asks each lane for a sign of life, those too that carry nothing: one whose path has gone silent is found to be stalled.
    pub(crate) fn ask_lanes(&self) {
        for handle in self.handles() {
            if !self.outward.lock().sender.is_pinged(handle.id) {
                handle.order(PING);
            }
        }
    }

    /// Waits until a lane died or stalled. Never again once the bundle is over.
    pub(crate) async fn lanes_wanted(&self) -> LanesWanted {
        loop {
            let notified = self.wanted.notified();
            let lost = std::mem::take(&mut self.lanes.lock().lost);
            if !lost.is_empty() {
                let live = self.outward.lock().sender.live();
                return LanesWanted { live, lost };
            }
            notified.await;
        }
    }

    /// Waits until the bundle is over. Its lanes if it ended in order; `None` if it was lost. Only the first to ask gets
    /// the lanes.
    pub(crate) async fn ended(&self) -> Option<Vec<IdleLane>> {
        loop {
            let mut over = std::pin::pin!(self.over.notified());
            over.as_mut().enable();
            {
                let mut lanes = self.lanes.lock();
                match lanes.phase {
                    Phase::Lost => return None,
                    Phase::Finished if lanes.handles.is_empty() => {
                        return Some(std::mem::take(&mut lanes.idle));
                    }
                    Phase::Finished | Phase::Open => {}
                }
            }
            over.await;
        }
    }

    /// Whether there is any, stalled or not.
    pub(crate) fn has_lanes(&self) -> bool {
        !self.lanes.lock().handles.is_empty()
    }

    /// Whether there ever was any.
    pub(crate) fn has_had_lanes(&self) -> bool {
        self.lanes.lock().next > 0
    }

    /// What the bundle has cost on the wire, both ways.
    pub(crate) fn wire(&self) -> Arc<WireCounters> {
        Arc::clone(&self.wire)
    }

    /// How it goes. Asks each lane's socket: for about once in a round trip.
    pub(crate) fn figures(&self) -> BundleFigures {
        let handles = self.handles();
        let sockets: Vec<_> = handles.iter().map(|handle| handle.terms.figures.figures()).collect();
        let delivery_rate = LinkFigures::together(sockets.iter().flatten().cloned())
            .and_then(|together| together.delivery_rate);
        let (received_bytes, duplicate_bytes, window) = {
            let receiver = &self.inward.lock().receiver;
            (receiver.contiguous(), receiver.duplicates(), receiver.window())
        };
        let age = self.now();
        let outward = self.outward.lock();
        let sender = &outward.sender;
        let lane = |(handle, socket): (&Arc<Handle>, Option<LinkFigures>)| {
            let (latency, delivered_bytes) = sender.lane(handle.id);
            LaneFigures {
                id: handle.id,
                path: handle.terms.path,
                standby: sender.is_standby(handle.id),
                stalled: sender.is_stalled(handle.id),
                quiet: sender.quiet(handle.id, age),
                delivered_bytes,
                latency,
                socket,
            }
        };
        BundleFigures {
            lanes: handles.iter().zip(sockets).map(lane).collect(),
            written_bytes: sender.written(),
            sent_bytes: sender.given(),
            sent_twice_bytes: sender.given_twice(),
            in_flight_bytes: sender.in_flight(),
            received_bytes,
            duplicate_bytes,
            window,
            credit: sender.credit(),
            blocked: outward.pace.shares(self.now()),
            age,
            socket_limited: outward.pace.socket_limited(self.now()),
            delivery_rate,
        }
    }

    fn now(&self) -> Duration {
        self.born.elapsed()
    }

    fn handles(&self) -> Vec<Arc<Handle>> {
        self.lanes.lock().handles.values().cloned().collect()
    }

    fn lose(&self, loss: Loss) {
        let mut lanes = self.lanes.lock();
        if lanes.phase != Phase::Open {
            return;
        }
        lanes.phase = Phase::Lost;
        tracing::debug!(reason = loss.reason, "a bundle is lost");
        let writer = {
            let mut outward = self.outward.lock();
            outward.loss = Some(loss.clone());
            outward.writer.take()
        };
        let reader = {
            let mut inward = self.inward.lock();
            inward.loss = Some(loss);
            inward.reader.take()
        };
        lanes.handles.values().for_each(|handle| handle.order(CLOSE));
        drop(lanes);
        reader.into_iter().chain(writer.map(|(waker, _)| waker)).for_each(Waker::wake);
        self.bell.notify_one();
        self.over.notify_waiters();
    }

    /// Both ways may be through.
    fn settle(&self) {
        let is_sent = self.outward.lock().sender.is_delivered();
        if !is_sent || !self.inward.lock().receiver.is_complete() {
            return;
        }
        let mut lanes = self.lanes.lock();
        if lanes.phase == Phase::Open {
            lanes.phase = Phase::Finished;
            lanes.handles.values().for_each(|handle| handle.order(LEAVE));
            drop(lanes);
            self.bell.notify_one();
            self.over.notify_waiters();
        }
    }

    /// What a lane of a lost bundle says last.
    fn farewell(&self) -> Option<Vec<u8>> {
        let inward = self.inward.lock();
        inward.loss.as_ref().filter(|loss| loss.tell).map(|loss| segment::encode_abort(&loss.reason))
    }

    /// What went beside data counts too, and does not wait.
    fn charge(&self, bytes: usize) {
        self.terms.limits_out.charge(throttle::clock(), wire_cost(bytes));
    }

    fn count_wire(&self, sent: u64, received: u64) {
        self.wire.add_sent(sent);
        self.wire.add_received(received);
    }
}

/// Sending, as lanes see it.
impl Bundle {
    /// The next segment for a lane, or a place among those that wait for one.
    fn take(&self, lane: &Arc<Handle>) -> Taken {
        let now = self.now();
        let mut outward = self.outward.lock();
        outward.roused.retain(|id| *id != lane.id);
        outward.hungry.retain(|(handle, _)| handle.id != lane.id);
        let mut taken = Taken::Nothing;
        match outward.sender.next(lane.id) {
            Next::Nothing(wait) => outward.hungry.push((Arc::clone(lane), Want::Sender(wait))),
            Next::End => {
                if let Some(offset) = outward.sender.take_end(lane.id, now) {
                    taken = Taken::End(offset);
                }
            }
            Next::Data(_) if outward.throttled_until.is_some_and(|until| until > Instant::now()) => {
                outward.hungry.push((Arc::clone(lane), Want::Throttle));
            }
            Next::Data(bytes) => {
                let limits = &self.terms.limits_out;
                let granted = limits.take(throttle::clock(), bytes + overhead(bytes));
                if granted.bytes == 0 {
                    outward.throttled_until = Some(Instant::now() + granted.retry_after);
                    outward.hungry.push((Arc::clone(lane), Want::Throttle));
                    self.bell.notify_one();
                } else {
                    let payload = granted.bytes.saturating_sub(overhead(granted.bytes)).clamp(1, bytes);
                    if let Some(segment) = outward.sender.take(lane.id, payload, now) {
                        let cost = segment.bytes.len() as u64 + overhead(segment.bytes.len() as u64);
                        limits.give_back(granted.bytes.saturating_sub(cost));
                        taken = Taken::Data(segment);
                    }
                }
            }
        }
        let is_first = outward.in_hand == 0;
        if !matches!(taken, Taken::Nothing) {
            outward.in_hand += 1;
            lane.has_segment.store(true, Ordering::Relaxed);
            if is_first {
                // From now on somebody owes progress.
                self.bell.notify_one();
            }
        }
        outward.paced(now);
        let writer = outward.writer_to_wake();
        drop(outward);
        writer.into_iter().for_each(Waker::wake);
        taken
    }

    /// The connection of a lane has taken all of its segment.
    fn on_written(&self, lane: &Handle) {
        if !lane.has_segment.load(Ordering::Relaxed) {
            return;
        }
        let mut outward = self.outward.lock();
        outward.let_go(lane);
        let writer = outward.writer_to_wake();
        drop(outward);
        writer.into_iter().for_each(Waker::wake);
    }

    /// What the other side may send before it hears anything, bytes.
    pub(crate) fn granted(&self) -> u64 {
        self.inward.lock().receiver.limit()
    }

    /// The other side has said when it opened the stream that it takes so many bytes.
    pub(crate) fn may_send(&self, window: u64) {
        let mut outward = self.outward.lock();
        outward.sender.may_send(window);
        outward.rouse();
    }

    fn on_ack(&self, lane: LaneId, contiguous: u64, ack: Ack) -> Result<(), Broken> {
        let now = self.now();
        let mut outward = self.outward.lock();
        outward.sender.on_ack(lane, contiguous, ack, now)?;
        outward.rouse();
        outward.paced(now);
        let is_delivered = outward.sender.is_delivered();
        let is_lingering = outward.lingering.is_some();
        drop(outward);
        if is_delivered {
            self.settle();
            if is_lingering {
                self.bell.notify_one();
            }
        }
        Ok(())
    }

    fn on_ping_sent(&self, lane: LaneId) {
        self.outward.lock().sender.on_ping_sent(lane, self.now());
        self.bell.notify_one();
    }

    fn on_pong(&self, lane: LaneId) {
        let mut outward = self.outward.lock();
        outward.sender.on_pong(lane, self.now());
        outward.rouse();
    }

    /// The peer has everything.
    fn on_leave(&self) -> Result<(), Broken> {
        self.outward.lock().sender.on_leave()?;
        if !self.inward.lock().receiver.is_complete() {
            return Err(Broken("it leaves before the stream has ended".to_owned()));
        }
        self.settle();
        Ok(())
    }

    fn on_abort(&self, reason: &str) {
        self.lose(Loss {
            kind: io::ErrorKind::UnexpectedEof,
            reason: format!("the peer gave up the stream: {reason}"),
            after_reading: true,
            tell: false,
        });
    }

    fn on_broken(&self, broken: &Broken) {
        self.lose(Loss {
            kind: io::ErrorKind::InvalidData,
            reason: format!("the peer broke the protocol: {broken}"),
            after_reading: false,
            tell: true,
        });
    }

    fn on_lane_end(&self, lane: &Arc<Handle>, end: LaneEnd) {
        let mut lanes = self.lanes.lock();
        lanes.handles.remove(&lane.id);
        if lanes.handles.is_empty() {
            lanes.none_since = Some(Instant::now());
        }
        match end {
            LaneEnd::Left(io) => lanes.idle.push(IdleLane { io, terms: lane.terms.clone() }),
            LaneEnd::Lost(reason) if lanes.phase == Phase::Open => {
                tracing::debug!(path = lane.terms.path, "a lane is lost: {reason}");
                lanes.lost.push(LostLane { id: lane.id, path: lane.terms.path, ended: true, reason });
            }
            LaneEnd::Lost(_) | LaneEnd::Closed => {}
        }
        {
            let mut outward = self.outward.lock();
            outward.hungry.retain(|(handle, _)| handle.id != lane.id);
            outward.roused.retain(|id| *id != lane.id);
            outward.let_go(lane);
            outward.lanes -= 1;
            outward.sender.remove_lane(lane.id);
            outward.rouse();
            outward.paced(self.now());
            outward.writer_to_wake().into_iter().for_each(Waker::wake);
        }
        // What it was to tell, the others tell.
        lanes.handles.values().for_each(|handle| handle.order(TELL));
        drop(lanes);
        self.wanted.notify_one();
        self.bell.notify_one();
        self.over.notify_waiters();
    }
}

/// Receiving, as lanes see it.
impl Bundle {
    fn admits(&self, offset: u64, bytes: usize) -> Result<(), Broken> {
        self.inward.lock().receiver.admits(offset, bytes)
    }

    /// Data came; bytes of a lane's after which an ack is due there.
    fn on_data(&self, offset: u64, bytes: Bytes, crowded: bool) -> Result<u64, Broken> {
        let bytes_came = bytes.len() as u64;
        let end = offset + bytes_came;
        let mut inward = self.inward.lock();
        let has_more = inward.receiver.on_data(offset, bytes, crowded)?;
        if inward.charged < WINDOW_MIN {
            // That much was granted before anybody asked the throttle.
            let charged = end.min(WINDOW_MIN).max(inward.charged);
            self.terms.limits_in.charge(throttle::clock(), charged - inward.charged);
            inward.charged = charged;
        }
        self.terms.limits_in.charge(throttle::clock(), overhead(bytes_came));
        let every = inward.receiver.ack_every();
        let is_complete = inward.receiver.is_complete();
        let reader = if has_more { inward.reader.take() } else { None };
        drop(inward);
        reader.into_iter().for_each(Waker::wake);
        if is_complete {
            self.settle();
        }
        Ok(every)
    }

    fn on_end(&self, offset: u64) -> Result<(), Broken> {
        let mut inward = self.inward.lock();
        inward.receiver.on_end(offset)?;
        let is_complete = inward.receiver.is_complete();
        let reader = if is_complete { inward.reader.take() } else { None };
        drop(inward);
        reader.into_iter().for_each(Waker::wake);
        if is_complete {
            self.settle();
        }
        Ok(())
    }

    /// For an ack that goes out now.
    fn tell(&self) -> (u64, u64) {
        let mut inward = self.inward.lock();
        inward.telling = false;
        self.grant(&mut inward);
        inward.receiver.tell()
    }

    fn has_news(&self) -> bool {
        self.inward.lock().receiver.has_news()
    }

    /// Grants what there is room for, as far as the throttle lets it.
    fn grant(&self, inward: &mut Inward) {
        let limits = &self.terms.limits_in;
        let now = Instant::now();
        inward.throttled_until = inward.throttled_until.filter(|until| *until > now);
        while inward.throttled_until.is_none() {
            let mut wanted = inward.receiver.grantable();
            if let Some(rate) = limits.rate() {
                // Not more than what comes while the next is on its way: what the sender does not use at once it may send later,
                // faster than the limit.
                let ahead = (rate as f64 * (CREDIT_AHEAD + inward.round_trip).as_secs_f64()) as u64;
                wanted = wanted.min(ahead.max(WINDOW_MIN).saturating_sub(inward.receiver.unused()));
            }
            if wanted == 0 {
                return;
            }
            let granted = limits.take(throttle::clock(), wanted);
            inward.receiver.grant(granted.bytes);
            if granted.bytes == 0 {
                inward.throttled_until = Some(now + granted.retry_after);
                self.bell.notify_one();
            }
        }
    }

    /// Has one or two lanes tell the sender of its credit: two, since one may have just died.
    fn tell_soon(&self) {
        let mut handles = self.handles();
        handles.sort_by_key(|handle| std::cmp::Reverse(handle.heard()));
        handles.iter().take(2).for_each(|handle| handle.order(TELL));
    }
}

impl Outward {
    /// Wakes as many waiting lanes as could take something now, the fastest first.
    fn rouse(&mut self) {
        let waiting = self.sender.segments_waiting();
        while self.roused.len() < waiting
            && let Some(at) = self.best_to_rouse()
        {
            let (handle, _) = self.hungry.swap_remove(at);
            self.roused.push(handle.id);
            handle.ring();
        }
    }

    fn best_to_rouse(&self) -> Option<usize> {
        let latency = |(at, (handle, _)): (usize, &(Arc<Handle>, Want))| (self.sender.lane(handle.id).0, at);
        self.hungry
            .iter()
            .enumerate()
            .filter(|(_, (handle, want))| *want != Want::Throttle && self.sender.could_give(handle.id))
            .map(latency)
            .min()
            .map(|(_, at)| at)
    }

    /// Notes what limits from `now` on.
    fn paced(&mut self, now: Duration) {
        let wants = |want| self.hungry.iter().any(|(_, w)| *w == want);
        let limiting = if !self.sender.has_waiting() {
            Limiting::Application
        } else if wants(Want::Sender(Wait::Window)) {
            Limiting::Window
        } else if wants(Want::Throttle) {
            Limiting::Throttle
        } else if wants(Want::Sender(Wait::Yielding)) {
            Limiting::Yielding
        } else if self.hungry.len() < self.lanes {
            Limiting::Socket
        } else {
            Limiting::Lanes
        };
        self.pace.switch(limiting, now);
    }

    /// Nobody waits any longer for what `lane` has and its connection has not taken.
    fn let_go(&mut self, lane: &Handle) {
        self.in_hand -= usize::from(lane.has_segment.swap(false, Ordering::Relaxed));
    }

    fn is_handed_out(&self) -> bool {
        self.sender.is_handed_out() && self.in_hand == 0
    }

    /// The application, if what it waits for is there. Half of the room at once, so that it is not woken for each segment.
    fn writer_to_wake(&mut self) -> Option<Waker> {
        let is_due = match self.writer.as_ref()?.1 {
            WriterWaits::ForRoom => self.sender.unsent() <= self.sender.ahead() / 2,
            WriterWaits::UntilHandedOut => self.is_handed_out(),
        };
        if is_due { self.writer.take().map(|(waker, _)| waker) } else { None }
    }
}
