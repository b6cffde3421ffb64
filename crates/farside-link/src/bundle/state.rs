//! What the tasks of a bundle share: its two sides, its lanes, and how each changes.

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

use crate::limits::{CREDIT_AHEAD, CREDIT_HELD_AFTER, WINDOW_MIN};
use crate::throttle::{self, Bucket, Limits, Rate};
use crate::transport::LinkStats;
use crate::wire::{WireCounters, wire_cost};

use super::handle::{CLOSE, Handle, LEAVE, LaneEnd, PING, SEND_ACK, Taken};
use super::options::{BundleOptions, BundleStats, IdleLane, LaneId, LaneStats, LanesWanted, LostLane};
use super::pace::{Limiting, Pace};
use super::receiver::Receiver;
use super::segment::{self, Ack};
use super::sender::{Broken, Next, Sender, Wait};

/// What a data segment costs on the wire beside its payload: limits are in bytes of the wire.
fn overhead(payload: u64) -> u64 {
    wire_cost(segment::HEADER_BYTES + payload as usize) - payload
}

/// Why a bundle is lost.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    pub(super) kind: io::ErrorKind,
    pub(super) reason: String,
    /// What has arrived before is still read: the other side gave up, which a connection's end would not have told sooner.
    pub(super) after_reading: bool,
    /// The peer is told.
    pub(super) notify: bool,
}

impl Loss {
    pub(super) fn error(&self) -> io::Error {
        io::Error::new(self.kind, self.reason.clone())
    }
}

/// What the application waits for before it writes on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WriterWaits {
    ForRoom,
    UntilHandedOut,
}

/// The sending side: one lock for it.
pub(super) struct Outward {
    pub(super) sender: Sender,
    /// Lanes that asked and got nothing, and why.
    pub(super) starved: Vec<(Arc<Handle>, Want)>,
    /// Lanes that were woken and have not asked since.
    pub(super) woken: Vec<LaneId>,
    /// Segments that lanes have and that are not all in their connections' buffers.
    pub(super) in_hand: usize,
    pub(super) writer: Option<(Waker, WriterWaits)>,
    pub(super) throttled_until: Option<Instant>,
    /// What the other side has granted and now wants more slowly: the limit, and the offset up to which it holds.
    pub(super) hold: Option<(Limits, u64)>,
    pub(super) pace: Pace,
    pub(super) lanes: usize,
    pub(super) loss: Option<Loss>,
    /// Since when the application is gone though not everything it has shut down after is delivered; and what was not then.
    pub(super) lingering: Option<(Instant, u64)>,
}

/// Why a lane got nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Sender(Wait),
    Throttle,
}

/// The receiving side: one lock for it.
pub(super) struct Inward {
    pub(super) receiver: Receiver,
    pub(super) reader: Option<Waker>,
    pub(super) loss: Option<Loss>,
    /// An ack is due, and lanes know.
    pub(super) ack_due: bool,
    /// The throttle has granted nothing; when to ask again.
    pub(super) throttled_until: Option<Instant>,
    /// As last measured.
    pub(super) round_trip: Duration,
    /// Of what each side may send before it has received anything: what has come, and was charged.
    pub(super) charged: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Open,
    /// Ended in order, both ways.
    Finished,
    Lost,
}

pub(super) struct Lanes {
    pub(super) phase: Phase,
    pub(super) handles: BTreeMap<LaneId, Arc<Handle>>,
    pub(super) next: u32,
    /// Since when there is none.
    pub(super) none_since: Option<Instant>,
    pub(super) lost: Vec<LostLane>,
    pub(super) idle: Vec<IdleLane>,
}

/// See the module.
pub struct Bundle {
    pub(super) options: BundleOptions,
    pub(super) started: Instant,
    pub(super) outward: Mutex<Outward>,
    pub(super) inward: Mutex<Inward>,
    pub(super) lanes: Mutex<Lanes>,
    pub(super) wire: Arc<WireCounters>,
    /// Has the supervisor look again.
    pub(super) wakeup: Notify,
    pub(super) wanted: Notify,
    pub(super) over: Notify,
}

// Lock order: lanes, then outward or inward; never both of these.
impl Bundle {
    /// Ends the bundle: reads and writes fail with the reason, the peer is told it if a lane still works. The first
    /// reason counts.
    pub fn close(&self, reason: &str) {
        self.lose(Loss {
            kind: io::ErrorKind::ConnectionReset,
            reason: reason.to_owned(),
            after_reading: false,
            notify: true,
        });
    }

    /// Has so many of the working lanes on each path carry what this side sends, those that have been there longest; the rest is on
    /// standby, and at hand when one of these dies. Only this side's sending: the peer has its own idea of what it needs.
    pub fn use_lanes(&self, on_path: impl Fn(usize) -> usize) {
        let lanes = self.lanes.lock();
        let mut used: BTreeMap<usize, usize> = BTreeMap::new();
        let mut outward = self.outward.lock();
        for handle in lanes.handles.values() {
            let used = used.entry(handle.options.path).or_default();
            let is_used = !outward.sender.is_stalled(handle.id) && *used < on_path(handle.options.path);
            *used += usize::from(is_used);
            outward.sender.set_standby(handle.id, !is_used);
        }
        outward.wake_lanes();
        outward.paced(self.now());
    }

    /// Closes the lanes of paths that are no more. Each is put on standby first, and closed once nothing of this side's is on its
    /// way there; what the peer has on its way goes over others.
    pub fn retire_lanes(&self, is_retired: impl Fn(usize) -> bool) {
        let lanes = self.lanes.lock();
        let mut outward = self.outward.lock();
        for handle in lanes.handles.values().filter(|handle| is_retired(handle.options.path)) {
            outward.sender.set_standby(handle.id, true);
            if outward.sender.has_nothing_on(handle.id) {
                handle.order(CLOSE);
            }
        }
    }

    /// Closes these lanes; what is on its way there goes over others.
    pub fn close_lanes(&self, which: impl Fn(LaneId) -> bool) {
        self.handles().iter().filter(|handle| which(handle.id)).for_each(|handle| handle.order(CLOSE));
    }

    /// Some lane has data that is not acknowledged.
    pub fn has_data_on_its_way(&self) -> bool {
        self.outward.lock().sender.in_flight() > 0
    }

    /// Asks each lane for a sign of life, those too that carry nothing: one whose path has gone silent is found to be stalled.
    pub fn ask_lanes(&self) {
        self.ask_those(|_| true);
    }

    /// The same of those that stand by: others show that they work by what they carry.
    pub fn ask_standby_lanes(&self) {
        self.ask_those(|is_standby| is_standby);
    }

    fn ask_those(&self, which: impl Fn(bool) -> bool) {
        for handle in self.handles() {
            if !which(self.outward.lock().sender.is_standby(handle.id)) {
                continue;
            }
            if !self.outward.lock().sender.is_pinged(handle.id) {
                handle.order(PING);
            }
        }
    }

    /// Waits until a lane died or stalled. Never again once the bundle is over.
    pub async fn lanes_wanted(&self) -> LanesWanted {
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
    pub async fn ended(&self) -> Option<Vec<IdleLane>> {
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
    pub fn has_lanes(&self) -> bool {
        !self.lanes.lock().handles.is_empty()
    }

    /// Whether there ever was any.
    pub fn has_had_lanes(&self) -> bool {
        self.lanes.lock().next > 0
    }

    /// What the bundle has cost on the wire, both ways.
    pub fn wire(&self) -> Arc<WireCounters> {
        Arc::clone(&self.wire)
    }

    /// How it goes. Asks each lane's socket: for about once in a round trip.
    pub fn stats(&self) -> BundleStats {
        let handles = self.handles();
        let sockets: Vec<_> = handles.iter().map(|handle| handle.options.stats.stats()).collect();
        let delivery_rate = LinkStats::together(sockets.iter().flatten().cloned())
            .and_then(|together| together.delivery_rate);
        let (received_bytes, duplicate_bytes, window) = {
            let receiver = &self.inward.lock().receiver;
            (receiver.contiguous(), receiver.duplicates(), receiver.window())
        };
        let age = self.now();
        let outward = self.outward.lock();
        let sender = &outward.sender;
        let lane = |(handle, socket): (&Arc<Handle>, Option<LinkStats>)| {
            let (latency, delivered_bytes) = sender.lane(handle.id);
            LaneStats {
                id: handle.id,
                path: handle.options.path,
                standby: sender.is_standby(handle.id),
                stalled: sender.is_stalled(handle.id),
                quiet: sender.quiet(handle.id, age),
                has_data: !sender.has_nothing_on(handle.id),
                answered: sender.answered(handle.id).map(|at| age.saturating_sub(at)),
                heard: age.saturating_sub(handle.last_received()),
                received_bytes: handle.options.wire.received().saturating_sub(handle.wire_before.1),
                delivered_bytes,
                latency,
                socket,
            }
        };
        BundleStats {
            lanes: handles.iter().zip(sockets).map(lane).collect(),
            written_bytes: sender.written(),
            sent_bytes: sender.given(),
            retransmitted_bytes: sender.retransmitted(),
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

    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn handles(&self) -> Vec<Arc<Handle>> {
        self.lanes.lock().handles.values().cloned().collect()
    }

    pub(super) fn lose(&self, loss: Loss) {
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
        self.wakeup.notify_one();
        self.over.notify_waiters();
    }

    /// Both ways may be through.
    pub(super) fn finish_if_complete(&self) {
        let is_sent = self.outward.lock().sender.is_delivered();
        if !is_sent || !self.inward.lock().receiver.is_complete() {
            return;
        }
        let mut lanes = self.lanes.lock();
        if lanes.phase == Phase::Open {
            lanes.phase = Phase::Finished;
            lanes.handles.values().for_each(|handle| handle.order(LEAVE));
            drop(lanes);
            self.wakeup.notify_one();
            self.over.notify_waiters();
        }
    }

    /// What a lane of a lost bundle says last.
    pub(super) fn closing_segment(&self) -> Option<Vec<u8>> {
        let inward = self.inward.lock();
        inward.loss.as_ref().filter(|loss| loss.notify).map(|loss| segment::encode_abort(&loss.reason))
    }

    /// What went beside data counts too, and does not wait.
    pub(super) fn charge(&self, bytes: usize) {
        self.options.limits_out.charge(throttle::clock(), wire_cost(bytes));
    }

    pub(super) fn count_wire(&self, sent: u64, received: u64) {
        self.wire.add_sent(sent);
        self.wire.add_received(received);
    }
}

/// Sending, as lanes see it.
impl Bundle {
    /// The next segment for a lane, or a place among those that wait for one.
    pub(super) fn take(&self, lane: &Arc<Handle>) -> Taken {
        let now = self.now();
        let mut outward = self.outward.lock();
        outward.woken.retain(|id| *id != lane.id);
        outward.starved.retain(|(handle, _)| handle.id != lane.id);
        let mut taken = Taken::Nothing;
        match outward.sender.next(lane.id) {
            Next::Nothing(wait) => outward.starved.push((Arc::clone(lane), Want::Sender(wait))),
            Next::End => {
                if let Some(offset) = outward.sender.take_end(lane.id, now) {
                    taken = Taken::End(offset);
                }
            }
            Next::Data(_) if outward.throttled_until.is_some_and(|until| until > Instant::now()) => {
                outward.starved.push((Arc::clone(lane), Want::Throttle));
            }
            Next::Data(bytes) => {
                let limits = &self.options.limits_out;
                let wanted = bytes + overhead(bytes);
                let granted = match outward.held() {
                    None => limits.take(throttle::clock(), wanted),
                    Some(hold) => {
                        let held = hold.take(throttle::clock(), wanted);
                        let granted =
                            if held.bytes > 0 { limits.take(throttle::clock(), held.bytes) } else { held };
                        hold.give_back(held.bytes - granted.bytes);
                        granted
                    }
                };
                if granted.bytes == 0 {
                    outward.throttled_until = Some(Instant::now() + granted.retry_after);
                    outward.starved.push((Arc::clone(lane), Want::Throttle));
                    self.wakeup.notify_one();
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
                self.wakeup.notify_one();
            }
        }
        outward.paced(now);
        let writer = outward.writer_to_wake();
        drop(outward);
        writer.into_iter().for_each(Waker::wake);
        taken
    }

    /// The connection of a lane has taken all of its segment.
    pub(super) fn on_written(&self, lane: &Handle) {
        if !lane.has_segment.load(Ordering::Relaxed) {
            return;
        }
        let mut outward = self.outward.lock();
        outward.release(lane);
        let writer = outward.writer_to_wake();
        drop(outward);
        writer.into_iter().for_each(Waker::wake);
    }

    /// The other side has lowered a limit: what it granted before, up to the offset `until`, goes no faster than `rate` bytes per
    /// second from now on. What it grants from now on comes no faster by itself. 0: as fast as granted, again.
    pub fn hold(&self, rate: u64, until: u64) {
        let mut outward = self.outward.lock();
        let limit = || Limits::chain([Arc::new(Bucket::new(Rate::committed(rate)))]);
        outward.hold = (rate > 0 && until > outward.sender.sent()).then(|| (limit(), until));
        outward.throttled_until = None;
        outward.wake_lanes();
        drop(outward);
        self.wakeup.notify_one();
    }

    /// The limits of what this side receives have been lowered since it granted credit that takes longer to use up than it should:
    /// the limit now, bytes per second, and the offset up to which it was granted.
    pub fn excess_credit(&self) -> Option<(u64, u64)> {
        let rate = self.options.limits_in.rate()?;
        let inward = self.inward.lock();
        let soon = (rate as f64 * (CREDIT_HELD_AFTER + inward.round_trip).as_secs_f64()) as u64;
        (inward.receiver.unused() > soon).then(|| (rate, inward.receiver.limit()))
    }

    /// The limit of what this side receives, bytes per second.
    pub fn limit_in(&self) -> Option<u64> {
        self.options.limits_in.rate()
    }

    /// What the other side may send before it receives anything, bytes.
    pub fn granted(&self) -> u64 {
        self.inward.lock().receiver.limit()
    }

    /// The other side has said when it opened the stream that it takes so many bytes.
    pub fn may_send(&self, window: u64) {
        let mut outward = self.outward.lock();
        outward.sender.may_send(window);
        outward.wake_lanes();
    }

    pub(super) fn on_ack(&self, lane: LaneId, contiguous: u64, ack: Ack) -> Result<(), Broken> {
        let now = self.now();
        let mut outward = self.outward.lock();
        outward.sender.on_ack(lane, contiguous, ack, now)?;
        outward.wake_lanes();
        outward.paced(now);
        let is_delivered = outward.sender.is_delivered();
        let is_lingering = outward.lingering.is_some();
        drop(outward);
        if is_delivered {
            self.finish_if_complete();
            if is_lingering {
                self.wakeup.notify_one();
            }
        }
        Ok(())
    }

    pub(super) fn on_ping_sent(&self, lane: LaneId) {
        self.outward.lock().sender.on_ping_sent(lane, self.now());
        self.wakeup.notify_one();
    }

    pub(super) fn on_pong(&self, lane: LaneId) {
        let mut outward = self.outward.lock();
        outward.sender.on_pong(lane, self.now());
        outward.wake_lanes();
    }

    /// The peer has everything.
    pub(super) fn on_leave(&self) -> Result<(), Broken> {
        self.outward.lock().sender.on_leave()?;
        if !self.inward.lock().receiver.is_complete() {
            return Err(Broken("it leaves before the stream has ended".to_owned()));
        }
        self.finish_if_complete();
        Ok(())
    }

    pub(super) fn on_abort(&self, reason: &str) {
        self.lose(Loss {
            kind: io::ErrorKind::UnexpectedEof,
            reason: format!("the peer gave up the stream: {reason}"),
            after_reading: true,
            notify: false,
        });
    }

    pub(super) fn on_broken(&self, broken: &Broken) {
        self.lose(Loss {
            kind: io::ErrorKind::InvalidData,
            reason: format!("the peer broke the protocol: {broken}"),
            after_reading: false,
            notify: true,
        });
    }

    pub(super) fn on_lane_end(&self, lane: &Arc<Handle>, end: LaneEnd) {
        let mut lanes = self.lanes.lock();
        lanes.handles.remove(&lane.id);
        if lanes.handles.is_empty() {
            lanes.none_since = Some(Instant::now());
        }
        match end {
            LaneEnd::Left(io) => lanes.idle.push(IdleLane { io, options: lane.options.clone() }),
            LaneEnd::Lost(reason) if lanes.phase == Phase::Open => {
                tracing::debug!(path = lane.options.path, "a lane is lost: {reason}");
                lanes.lost.push(LostLane { id: lane.id, path: lane.options.path, ended: true, reason });
            }
            LaneEnd::Lost(_) | LaneEnd::Closed => {}
        }
        {
            let mut outward = self.outward.lock();
            outward.starved.retain(|(handle, _)| handle.id != lane.id);
            outward.woken.retain(|id| *id != lane.id);
            outward.release(lane);
            outward.lanes -= 1;
            outward.sender.remove_lane(lane.id);
            outward.wake_lanes();
            outward.paced(self.now());
            outward.writer_to_wake().into_iter().for_each(Waker::wake);
        }
        // What it was to acknowledge, the others acknowledge.
        lanes.handles.values().for_each(|handle| handle.order(SEND_ACK));
        drop(lanes);
        self.wanted.notify_one();
        self.wakeup.notify_one();
        self.over.notify_waiters();
    }
}

/// Receiving, as lanes see it.
impl Bundle {
    pub(super) fn admits(&self, offset: u64, bytes: usize) -> Result<(), Broken> {
        self.inward.lock().receiver.admits(offset, bytes)
    }

    /// Data came; bytes of a lane's after which an ack is due there.
    pub(super) fn on_data(&self, offset: u64, bytes: Bytes, crowded: bool) -> Result<u64, Broken> {
        let bytes_came = bytes.len() as u64;
        let end = offset + bytes_came;
        let mut inward = self.inward.lock();
        let has_more = inward.receiver.on_data(offset, bytes, crowded)?;
        if inward.charged < WINDOW_MIN {
            // That much was granted before anybody asked the throttle.
            let charged = end.min(WINDOW_MIN).max(inward.charged);
            self.options.limits_in.charge(throttle::clock(), charged - inward.charged);
            inward.charged = charged;
        }
        self.options.limits_in.charge(throttle::clock(), overhead(bytes_came));
        let every = inward.receiver.ack_every();
        let is_complete = inward.receiver.is_complete();
        let reader = if has_more { inward.reader.take() } else { None };
        drop(inward);
        reader.into_iter().for_each(Waker::wake);
        if is_complete {
            self.finish_if_complete();
        }
        Ok(every)
    }

    pub(super) fn on_end(&self, offset: u64) -> Result<(), Broken> {
        let mut inward = self.inward.lock();
        inward.receiver.on_end(offset)?;
        let is_complete = inward.receiver.is_complete();
        let reader = if is_complete { inward.reader.take() } else { None };
        drop(inward);
        reader.into_iter().for_each(Waker::wake);
        if is_complete {
            self.finish_if_complete();
        }
        Ok(())
    }

    /// For an ack that goes out now.
    pub(super) fn send_ack(&self) -> (u64, u64) {
        let mut inward = self.inward.lock();
        inward.ack_due = false;
        self.grant(&mut inward);
        inward.receiver.send_ack()
    }

    pub(super) fn has_unannounced(&self) -> bool {
        self.inward.lock().receiver.has_unannounced()
    }

    /// Grants what there is room for, as far as the throttle lets it.
    pub(super) fn grant(&self, inward: &mut Inward) {
        let limits = &self.options.limits_in;
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
                self.wakeup.notify_one();
            }
        }
    }

    /// Has one or two lanes send an ack with the credit: two, since one may have just died.
    pub(super) fn ack_soon(&self) {
        let mut handles = self.handles();
        handles.sort_by_key(|handle| std::cmp::Reverse(handle.last_received()));
        handles.iter().take(2).for_each(|handle| handle.order(SEND_ACK));
    }
}

impl Outward {
    /// Wakes as many waiting lanes as could take something now, the fastest first.
    pub(super) fn wake_lanes(&mut self) {
        let waiting = self.sender.segments_waiting();
        while self.woken.len() < waiting
            && let Some(at) = self.best_to_wake()
        {
            let (handle, _) = self.starved.swap_remove(at);
            self.woken.push(handle.id);
            handle.wake();
        }
    }

    pub(super) fn best_to_wake(&self) -> Option<usize> {
        let latency = |(at, (handle, _)): (usize, &(Arc<Handle>, Want))| (self.sender.lane(handle.id).0, at);
        self.starved
            .iter()
            .enumerate()
            .filter(|(_, (handle, want))| *want != Want::Throttle && self.sender.could_give(handle.id))
            .map(latency)
            .min()
            .map(|(_, at)| at)
    }

    /// The limit for what was granted before the other side lowered its own, if such is what goes next.
    fn held(&mut self) -> Option<Limits> {
        let until = self.hold.as_ref()?.1;
        if self.sender.sent() >= until {
            self.hold = None;
        }
        self.hold.as_ref().map(|(limit, _)| limit.clone())
    }

    /// Notes what limits from `now` on.
    pub(super) fn paced(&mut self, now: Duration) {
        let wants = |want| self.starved.iter().any(|(_, w)| *w == want);
        let limiting = if !self.sender.has_waiting() {
            Limiting::Application
        } else if wants(Want::Sender(Wait::Window)) {
            Limiting::Window
        } else if wants(Want::Throttle) {
            Limiting::Throttle
        } else if wants(Want::Sender(Wait::LowPriority)) {
            Limiting::LowPriority
        } else if self.starved.len() < self.lanes {
            Limiting::Socket
        } else {
            Limiting::Lanes
        };
        self.pace.switch(limiting, now);
    }

    /// Nobody waits any longer for what `lane` has and its connection has not taken.
    pub(super) fn release(&mut self, lane: &Handle) {
        self.in_hand -= usize::from(lane.has_segment.swap(false, Ordering::Relaxed));
    }

    pub(super) fn is_handed_out(&self) -> bool {
        self.sender.is_handed_out() && self.in_hand == 0
    }

    /// The application, if what it waits for is there. Half of the room at once, so that it is not woken for each segment.
    pub(super) fn writer_to_wake(&mut self) -> Option<Waker> {
        let is_due = match self.writer.as_ref()?.1 {
            WriterWaits::ForRoom => self.sender.unsent() <= self.sender.ahead() / 2,
            WriterWaits::UntilHandedOut => self.is_handed_out(),
        };
        if is_due { self.writer.take().map(|(waker, _)| waker) } else { None }
    }
}
