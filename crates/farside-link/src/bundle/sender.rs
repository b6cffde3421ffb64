//! The sending side of a bundle: what the application wrote, cut into segments that lanes take. Pure: no I/O, no clock.
//!
//! ```text
//! application ─► unsent ─► (a lane takes a segment) ─► retained, in flight on that lane ─► acknowledged, forgotten
//!                              ▲                                   │
//!                              └──── again: its lane died, or stalled ◄──┘
//! ```
//!
//! * A byte is retained until the peer's bundle has it, by the lane's own position or by the contiguous offset.
//! * What was on a lane that died or stalled goes first in line for the others, and is counted as retransmitted. A stalled lane keeps
//!   its list: when it comes back, what it delivered after all leaves the line.
//! * Never more is in flight than the peer granted, than this side will retain, and than a low priority allows.
//! * A stream's end is a segment like the others: retained, repeated, acknowledged.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::budget::WindowBudget;
use super::options::LaneId;
use super::segment::{Ack, HEADER_BYTES};
use crate::limits::{
    LANE_RATE_OVER, LANE_STALL_ALONE, LANE_STALL_MAX, LANE_STALL_MIN, LANE_STALL_ROUND_TRIPS,
    LOW_PRIORITY_SEGMENT_MIN, SEGMENT_PAYLOAD_MAX, SEGMENT_PAYLOAD_SLOW, SEGMENT_TIME, SEGMENTS_HELD_MAX,
    SEND_AHEAD, SEND_AHEAD_MAX, SEND_AHEAD_MIN, STANDSTILLS_MAX, WINDOW_MAX, WINDOW_MIN, WINDOW_START,
};
use crate::low_priority::Allowed;

/// The peer broke the protocol.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Broken(pub(super) String);

/// Why a lane gets nothing now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// The application has written nothing more.
    Application,
    /// The peer has granted no more, or this side retains no more.
    Window,
    /// A low priority's cap is in flight.
    LowPriority,
    /// Other lanes are preferred, or this one is stalled.
    Lane,
}

/// What a lane may take next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Up to so many bytes of data.
    Data(u64),
    /// The stream's end.
    End,
    Nothing(Wait),
}

/// A data segment for a lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) offset: u64,
    pub(super) bytes: Bytes,
    /// More than half of the credit is used with it.
    pub(super) crowded: bool,
}

/// Where the stream's end is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Open,
    /// After everything that is written.
    Due,
    /// A lane has it.
    OnLane(LaneId),
    Delivered,
}

#[derive(Debug)]
struct Retained {
    bytes: Bytes,
    /// The lane that last took it; `None` while it is in line again.
    lane: Option<LaneId>,
}

/// A segment that a lane has and that is not acknowledged there.
#[derive(Debug)]
struct Carried {
    /// The lane's position once it has arrived.
    until: u64,
    offset: u64,
    /// 0: the end.
    bytes: u64,
    at: Duration,
}

/// A lane as the sender sees it.
#[derive(Debug)]
struct LaneState {
    standby: bool,
    stalled: bool,
    position: u64,
    acknowledged: u64,
    in_flight: VecDeque<Carried>,
    /// A ping that waits for its pong.
    pinged: Option<Duration>,
    /// The shortest time of a ping's way there and back since somebody asked.
    round_trip: Option<Duration>,
    /// When a ping was last answered.
    answered: Option<Duration>,
    /// When it last made progress, or joined.
    moved: Duration,
    latency: Option<Duration>,
    /// When it took the newest segment that has arrived.
    newest: Duration,
    /// Payload delivered.
    delivered: u64,
    /// Start of the measure of its rate, and what was delivered then.
    measured: (Duration, u64),
    /// Bytes per second, when it was last measured.
    rate: f64,
    segment: u64,
}

impl LaneState {
    /// Since when the peer owes a sign of life.
    fn owed_since(&self) -> Option<Duration> {
        let oldest = self.in_flight.front().map(|carried| carried.at);
        let since = match (oldest, self.pinged) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b)?,
        };
        Some(since.max(self.moved))
    }

    fn patience(&self) -> Duration {
        let round_trips = self.latency.unwrap_or_default() * LANE_STALL_ROUND_TRIPS;
        round_trips.clamp(LANE_STALL_MIN, LANE_STALL_MAX)
    }

    fn on_progress(&mut self, now: Duration) {
        self.moved = now;
        self.stalled = false;
    }

    fn on_latency(&mut self, sample: Duration) {
        self.latency = Some(self.latency.map_or(sample, |old| (old * 7 + sample) / 8));
    }

    /// A segment takes at most [`SEGMENT_TIME`] where the lane is slow.
    fn measure(&mut self, now: Duration) {
        let over = now.saturating_sub(self.measured.0);
        if over >= LANE_RATE_OVER {
            self.rate = (self.delivered - self.measured.1) as f64 / over.as_secs_f64();
            let bytes = (self.rate * SEGMENT_TIME.as_secs_f64()) as u64;
            self.segment = bytes.clamp(SEGMENT_PAYLOAD_SLOW as u64, SEGMENT_PAYLOAD_MAX as u64);
            self.measured = (now, self.delivered);
        }
    }
}

/// What a low priority leaves to the stream, bytes.
#[derive(Clone, Copy, Debug)]
struct LowPriorityCredit {
    /// In flight altogether.
    in_flight: u64,
    /// To be taken until more is allowed.
    now: u64,
}

impl LowPriorityCredit {
    /// What may be taken now with so much in flight. Where nothing is, a segment may be.
    fn available(self, in_flight: u64) -> u64 {
        let cap = if in_flight == 0 { self.in_flight.max(LOW_PRIORITY_SEGMENT_MIN) } else { self.in_flight };
        cap.saturating_sub(in_flight).min(self.now)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Sender {
    /// What is written, in order: full segments, and the one being filled.
    ready: VecDeque<Bytes>,
    filling: BytesMut,
    unsent: u64,
    /// End of what lanes have taken.
    sent: u64,
    contiguous: u64,
    limit: u64,
    retained: BTreeMap<u64, Retained>,
    retained_bytes: u64,
    again: BTreeSet<u64>,
    end: End,
    lane_states: BTreeMap<LaneId, LaneState>,
    low_priority_credit: Option<LowPriorityCredit>,
    budget: Arc<WindowBudget>,
    /// Bytes that may be retained; what is past [`WINDOW_START`] is of the budget.
    retain_max: u64,
    given: u64,
    retransmitted: u64,
    standstill: Standstill,
}

/// Times in which no lane moved though they should have. They are no part of what a segment takes: an outage of three seconds would
/// make lanes be waited for that stand for twelve. What was on its way then still counts with the rest of its time: behind a
/// queue of a minute that is all there is to learn from.
#[derive(Debug, Default)]
struct Standstill {
    /// When a lane last moved, or began to owe it while no other did.
    moved: Duration,
    /// The end of the last standstill, and how long it was.
    until: Duration,
    stood: Duration,
    /// How many there were since something took no longer than it may.
    in_a_row: u32,
}

impl Standstill {
    /// A lane moves; `latency` is what a segment takes, as far as that is known.
    fn on_progress(&mut self, now: Duration, latency: impl FnOnce() -> Option<Duration>) {
        let stood = now.saturating_sub(self.moved);
        self.moved = now;
        if stood > LANE_STALL_MIN
            && self.in_a_row < STANDSTILLS_MAX
            && latency().is_some_and(|latency| stood > 2 * latency)
        {
            (self.until, self.stood) = (now, stood);
            self.in_a_row += 1;
        }
    }

    /// What a segment takes, of one that was taken at this moment and has arrived now.
    fn sample(&mut self, taken: Duration, now: Duration) -> Duration {
        let took = now.saturating_sub(taken);
        if taken < self.until {
            return took.saturating_sub(self.stood);
        }
        if took <= LANE_STALL_MIN {
            self.in_a_row = 0;
        }
        took
    }
}

impl Sender {
    pub(super) fn new(budget: Arc<WindowBudget>) -> Sender {
        Sender {
            ready: VecDeque::new(),
            filling: BytesMut::new(),
            unsent: 0,
            sent: 0,
            contiguous: 0,
            limit: WINDOW_MIN,
            retained: BTreeMap::new(),
            retained_bytes: 0,
            again: BTreeSet::new(),
            end: End::Open,
            lane_states: BTreeMap::new(),
            low_priority_credit: None,
            budget,
            retain_max: WINDOW_START,
            given: 0,
            retransmitted: 0,
            standstill: Standstill::default(),
        }
    }

    /// Takes what the application writes, as much as there is room for: nothing once enough waits.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> usize {
        let mut taken = 0;
        let ahead = self.ahead();
        while !bytes.is_empty() && self.unsent < ahead && self.end == End::Open {
            if self.filling.capacity() == self.filling.len() {
                self.cut();
                self.filling = BytesMut::with_capacity(SEGMENT_PAYLOAD_MAX);
            }
            let room = self.filling.capacity() - self.filling.len();
            let (now, rest) = bytes.split_at(bytes.len().min(room));
            self.filling.extend_from_slice(now);
            self.unsent += now.len() as u64;
            taken += now.len();
            bytes = rest;
        }
        taken
    }

    /// What may be written ahead of the lanes, bytes.
    pub(super) fn ahead(&self) -> u64 {
        let rate: f64 = self.lane_states.values().map(|lane_state| lane_state.rate).sum();
        ((rate * SEND_AHEAD.as_secs_f64()) as u64).clamp(SEND_AHEAD_MIN, SEND_AHEAD_MAX)
    }

    /// What is being filled becomes a segment as it is; what is left of its room is filled further.
    fn cut(&mut self) {
        if !self.filling.is_empty() {
            self.ready.push_back(self.filling.split().freeze());
        }
    }

    /// The application writes nothing more.
    pub(super) fn finish(&mut self) {
        if self.end == End::Open {
            self.end = End::Due;
        }
    }

    /// `handshake`: how long the connection took to be made, if its kernel knows.
    pub(super) fn add_lane(
        &mut self,
        lane: LaneId,
        standby: bool,
        handshake: Option<Duration>,
        now: Duration,
    ) {
        // Of a line with a round trip of 2 s nothing is late after one.
        let latency = self.latency().max(handshake);
        self.lane_states.insert(
            lane,
            LaneState {
                standby,
                stalled: false,
                position: 0,
                acknowledged: 0,
                in_flight: VecDeque::new(),
                pinged: None,
                round_trip: None,
                answered: None,
                moved: now,
                // It will wait in the same queues: without that, a lane added to a link with seconds of queue is taken for
                // stalled before anything can have arrived on it.
                latency,
                newest: Duration::ZERO,
                delivered: 0,
                measured: (now, 0),
                rate: 0.0,
                segment: SEGMENT_PAYLOAD_MAX as u64,
            },
        );
    }

    /// Whether `lane` carries data only while no other can. What it has on its way stays there.
    pub(super) fn set_standby(&mut self, lane: LaneId, standby: bool) {
        if let Some(lane_state) = self.lane_states.get_mut(&lane) {
            lane_state.standby = standby;
        }
    }

    pub(super) fn is_standby(&self, lane: LaneId) -> bool {
        self.lane_states.get(&lane).is_none_or(|lane_state| lane_state.standby)
    }

    /// Nothing that `lane` has taken is unacknowledged.
    pub(super) fn has_nothing_on(&self, lane: LaneId) -> bool {
        self.lane_states.get(&lane).is_none_or(|lane_state| lane_state.in_flight.is_empty())
    }

    /// The lane is gone: what it had goes over others.
    pub(super) fn remove_lane(&mut self, lane: LaneId) {
        self.send_again(lane);
        self.lane_states.remove(&lane);
    }

    /// What is in flight on a lane and on no other goes first in line.
    fn send_again(&mut self, lane: LaneId) {
        let Some(lane_state) = self.lane_states.get(&lane) else { return };
        for carried in &lane_state.in_flight {
            for (offset, retained) in self.retained.range_mut(carried.offset..carried.offset + carried.bytes)
            {
                if retained.lane == Some(lane) {
                    retained.lane = None;
                    self.again.insert(*offset);
                }
            }
        }
        if self.end == End::OnLane(lane) {
            self.end = End::Due;
        }
    }

    /// What `lane` may take now.
    pub(super) fn next(&mut self, lane: LaneId) -> Next {
        if !self.is_of_use(lane) {
            return Next::Nothing(Wait::Lane);
        }
        if let Some(offset) = self.again.first() {
            return Next::Data(self.retained[offset].bytes.len() as u64);
        }
        if self.unsent == 0 {
            return if self.end == End::Due { Next::End } else { Next::Nothing(Wait::Application) };
        }
        let front = self.ready.front().map_or(self.filling.len(), Bytes::len) as u64;
        let wanted = front.min(self.lane_states.get(&lane).map_or(front, |lane_state| lane_state.segment));
        let credit = self.limit.saturating_sub(self.sent).min(self.room(wanted));
        if credit == 0 || self.retained.len() >= SEGMENTS_HELD_MAX {
            return Next::Nothing(Wait::Window);
        }
        match self.low_priority_credit {
            None => Next::Data(wanted.min(credit)),
            // Never one of a few bytes, unless that is all there is.
            Some(low_priority) => match low_priority.available(self.retained_bytes) {
                room if room < wanted.min(LOW_PRIORITY_SEGMENT_MIN) => Next::Nothing(Wait::LowPriority),
                room => Next::Data(wanted.min(room).min(credit)),
            },
        }
    }

    /// Whether `lane` would get something, as far as that can be told without asking for room.
    pub(super) fn could_give(&self, lane: LaneId) -> bool {
        if !self.is_of_use(lane) {
            return false;
        }
        let may_retain = self.limit > self.sent
            && self.retained.len() < SEGMENTS_HELD_MAX
            && self.low_priority_credit.is_none_or(|credit| {
                credit.available(self.retained_bytes) >= LOW_PRIORITY_SEGMENT_MIN.min(self.unsent)
            });
        !self.again.is_empty() || self.unsent > 0 && may_retain || self.unsent == 0 && self.end == End::Due
    }

    /// `lane` may carry data: it moves, and is not kept for when no other does.
    fn is_of_use(&self, lane: LaneId) -> bool {
        let Some(lane_state) = self.lane_states.get(&lane) else { return false };
        let is_needed = !lane_state.standby || self.lane_states.values().all(|c| c.standby || c.stalled);
        !lane_state.stalled && is_needed
    }

    /// Bytes that may be retained further. Grows by the budget.
    fn room(&mut self, wanted: u64) -> u64 {
        let more = self.retain_max.min(WINDOW_MAX - self.retain_max);
        if self.retained_bytes + wanted > self.retain_max && more > 0 && self.budget.take(more) {
            self.retain_max += more;
        }
        self.retain_max.saturating_sub(self.retained_bytes)
    }

    /// The other side takes so many bytes of the stream, it said when it opened it.
    pub(super) fn may_send(&mut self, window: u64) {
        self.limit = self.limit.max(window.min(WINDOW_MAX));
    }

    /// `lane` takes data, at most `bytes` and at most what [`Sender::next`] has just said.
    pub(super) fn take(&mut self, lane: LaneId, bytes: u64, now: Duration) -> Option<Segment> {
        if self.retained_bytes == 0 {
            self.standstill.moved = now;
        }
        let lane_state = self.lane_states.get_mut(&lane)?;
        let (offset, segment) = if let Some(offset) = self.again.pop_first() {
            let whole = self.retained.get_mut(&offset)?;
            if whole.bytes.len() as u64 > bytes {
                let rest = whole.bytes.split_off(bytes as usize);
                self.retained.insert(offset + bytes, Retained { bytes: rest, lane: None });
                self.again.insert(offset + bytes);
            }
            let retained = self.retained.get_mut(&offset)?;
            retained.lane = Some(lane);
            self.retransmitted += retained.bytes.len() as u64;
            (offset, retained.bytes.clone())
        } else {
            if self.ready.is_empty() {
                // As `cut`, without it: the lane_state is borrowed.
                self.ready.push_back(self.filling.split().freeze());
            }
            let front = self.ready.front_mut()?;
            let segment = front.split_to(front.len().min(bytes as usize));
            if front.is_empty() {
                self.ready.pop_front();
            }
            let offset = self.sent;
            let length = segment.len() as u64;
            self.unsent -= length;
            self.sent += length;
            if let Some(credit) = &mut self.low_priority_credit {
                credit.now = credit.now.saturating_sub(length);
            }
            self.retained_bytes += length;
            self.retained.insert(offset, Retained { bytes: segment.clone(), lane: Some(lane) });
            (offset, segment)
        };
        let length = segment.len() as u64;
        self.given += length;
        lane_state.position += HEADER_BYTES as u64 + length;
        lane_state.in_flight.push_back(Carried {
            until: lane_state.position,
            offset,
            bytes: length,
            at: now,
        });
        let end = offset + length;
        let crowded = end.saturating_sub(self.contiguous) > self.limit.saturating_sub(end);
        Some(Segment { offset, bytes: segment, crowded })
    }

    /// `lane` takes the end; the stream's length.
    pub(super) fn take_end(&mut self, lane: LaneId, now: Duration) -> Option<u64> {
        let lane_state = self.lane_states.get_mut(&lane)?;
        self.end = End::OnLane(lane);
        lane_state.position += HEADER_BYTES as u64;
        lane_state.in_flight.push_back(Carried {
            until: lane_state.position,
            offset: self.sent,
            bytes: 0,
            at: now,
        });
        Some(self.sent)
    }

    /// An ack came over `lane`. Acks of several lanes may overtake each other: only a lane's own position must not go back.
    pub(super) fn on_ack(
        &mut self,
        lane: LaneId,
        contiguous: u64,
        ack: Ack,
        now: Duration,
    ) -> Result<(), Broken> {
        if contiguous > self.sent {
            return Err(Broken(format!("{contiguous} bytes are acknowledged of {} sent", self.sent)));
        }
        self.limit = self.limit.max(ack.limit);
        if contiguous > self.contiguous {
            self.contiguous = contiguous;
            while let Some(entry) = self.retained.first_entry()
                && entry.key() + entry.get().bytes.len() as u64 <= contiguous
            {
                let (offset, retained) = entry.remove_entry();
                self.again.remove(&offset);
                self.retained_bytes -= retained.bytes.len() as u64;
            }
        }
        if self.lane_states.get(&lane).is_some_and(|lane_state| ack.position > lane_state.acknowledged) {
            self.moves(now);
        }
        let Some(lane_state) = self.lane_states.get_mut(&lane) else { return Ok(()) };
        if ack.position > lane_state.position || ack.position < lane_state.acknowledged {
            return Err(Broken(format!(
                "a lane's position is acknowledged as {}; it was {} and cannot be past {}",
                ack.position, lane_state.acknowledged, lane_state.position
            )));
        }
        if ack.position > lane_state.acknowledged {
            lane_state.acknowledged = ack.position;
            // What waited for the end of a stall says nothing of the time a segment takes.
            let is_sample = !lane_state.stalled;
            lane_state.on_progress(now);
            while let Some(carried) =
                lane_state.in_flight.pop_front_if(|carried| carried.until <= ack.position)
            {
                if is_sample {
                    lane_state.on_latency(self.standstill.sample(carried.at, now));
                }
                lane_state.newest = lane_state.newest.max(carried.at);
                lane_state.delivered += carried.bytes;
                if carried.bytes == 0 {
                    self.end = End::Delivered;
                    continue;
                }
                // It may have been cut in two when it went over another lane.
                let end = carried.offset + carried.bytes;
                while let Some((&offset, retained)) = self.retained.range(carried.offset..end).next() {
                    self.retained_bytes -= retained.bytes.len() as u64;
                    self.retained.remove(&offset);
                    self.again.remove(&offset);
                }
            }
            lane_state.measure(now);
        }
        if self.retained.is_empty() && self.retain_max > WINDOW_START {
            self.budget.give_back(self.retain_max - WINDOW_START);
            self.retain_max = WINDOW_START;
        }
        Ok(())
    }

    fn moves(&mut self, now: Duration) {
        let longest = || self.lane_states.values().filter_map(|lane_state| lane_state.latency).max();
        self.standstill.on_progress(now, longest);
    }

    /// The peer says that it has everything, by leaving.
    ///
    /// # Errors
    /// If there was no end: then it cannot have it.
    pub(super) fn on_leave(&mut self) -> Result<(), Broken> {
        match self.end {
            End::OnLane(_) | End::Delivered => {}
            // A lane took it, and then stalled or died.
            End::Due if self.unsent == 0 => {}
            End::Open | End::Due => {
                return Err(Broken("it takes the stream for ended, which it is not".to_owned()));
            }
        }
        self.end = End::Delivered;
        self.again.clear();
        self.retained.clear();
        self.retained_bytes = 0;
        Ok(())
    }

    /// A ping goes over `lane`.
    pub(super) fn on_ping_sent(&mut self, lane: LaneId, now: Duration) {
        if !self.is_owed() {
            self.standstill.moved = now;
        }
        if let Some(lane_state) = self.lane_states.get_mut(&lane) {
            lane_state.pinged.get_or_insert(now);
        }
    }

    /// A ping is on its way over `lane`.
    pub(super) fn is_pinged(&self, lane: LaneId) -> bool {
        self.lane_states.get(&lane).is_some_and(|lane_state| lane_state.pinged.is_some())
    }

    /// It came back.
    pub(super) fn on_pong(&mut self, lane: LaneId, now: Duration) {
        self.moves(now);
        if let Some(lane_state) = self.lane_states.get_mut(&lane)
            && let Some(sent) = lane_state.pinged.take()
        {
            let took = now.saturating_sub(sent);
            lane_state.on_progress(now);
            lane_state.answered = Some(now);
            lane_state.on_latency(self.standstill.sample(sent, now));
            lane_state.round_trip = Some(lane_state.round_trip.map_or(took, |shortest| shortest.min(took)));
        }
    }

    /// When a ping over `lane` was last answered.
    pub(super) fn answered(&self, lane: LaneId) -> Option<Duration> {
        self.lane_states.get(&lane)?.answered
    }

    /// The shortest time that a ping over `lane` took there and back, of those answered since this was asked last. No peer holds
    /// a pong back, as it may an ack, and as a kernel may the acknowledgement of a segment.
    pub(super) fn take_round_trip(&mut self, lane: LaneId) -> Option<Duration> {
        self.lane_states.get_mut(&lane)?.round_trip.take()
    }

    /// `lane` moves, as its socket knows, though nothing has arrived: a segment may take long.
    pub(super) fn on_moved(&mut self, lane: LaneId, now: Duration) {
        if let Some(lane_state) = self.lane_states.get_mut(&lane) {
            lane_state.moved = now;
        }
    }

    /// Lanes that owe progress for too long, not yet taken for stalled: longer than
    /// [`LANE_STALL_MIN`] and some round trips while another one moved, [`LANE_STALL_ALONE`] if none did.
    pub(super) fn overdue(&self, now: Duration) -> Vec<LaneId> {
        let last_moved = |except| {
            self.lane_states
                .iter()
                .filter(|(id, _)| **id != except)
                .map(|(_, lane_state)| lane_state.moved)
                .max()
        };
        let is_overdue = |(id, lane_state): (&LaneId, &LaneState)| {
            let since = lane_state.owed_since().filter(|_| !lane_state.stalled)?;
            let waited = now.saturating_sub(since);
            let others_move = last_moved(*id).is_some_and(|moved| moved > since);
            let patience =
                if others_move { lane_state.patience() } else { lane_state.patience().max(LANE_STALL_ALONE) };
            (waited >= patience).then_some(*id)
        };
        self.lane_states.iter().filter_map(is_overdue).collect()
    }

    /// `lane` is taken for stalled: what it has goes over others, and it gets nothing until it moves again.
    pub(super) fn stall(&mut self, lane: LaneId) {
        self.send_again(lane);
        if let Some(lane_state) = self.lane_states.get_mut(&lane) {
            lane_state.stalled = true;
        }
    }

    /// The other side waits for one segment, the lane that has it stands, and what another lane took later has arrived: that segment
    /// goes first in line, as TCP sends a packet again of which later ones have arrived. The lane keeps the rest. Whether there
    /// was such a one.
    pub(super) fn send_edge_again(&mut self, now: Duration) -> bool {
        let Some((&offset, Retained { lane: Some(lane), .. })) = self.retained.first_key_value() else {
            return false;
        };
        let Some(standing) = self.lane_states.get(lane).filter(|lane_state| !lane_state.stalled) else {
            return false;
        };
        if now.saturating_sub(standing.moved) < LANE_STALL_MIN.max(standing.latency.unwrap_or_default()) {
            return false;
        }
        let has = |carried: &&Carried| (carried.offset..carried.offset + carried.bytes).contains(&offset);
        let Some(taken) = standing.in_flight.iter().find(has).map(|carried| carried.at) else { return false };
        let overtakes = |(id, other): (&LaneId, &LaneState)| {
            let later = LANE_STALL_MIN.max(other.latency.unwrap_or_default());
            id != lane && !other.stalled && other.newest >= taken + later
        };
        if !self.lane_states.iter().any(overtakes) {
            return false;
        }
        if let Some(retained) = self.retained.get_mut(&offset) {
            retained.lane = None;
            self.again.insert(offset);
        }
        true
    }

    /// Lanes that have used up half of the patience with them.
    pub(super) fn late(&self, now: Duration) -> Vec<LaneId> {
        let is_late = |(_, lane_state): &(&LaneId, &LaneState)| {
            let since = lane_state.owed_since().filter(|_| !lane_state.stalled);
            since.is_some_and(|since| now.saturating_sub(since) >= lane_state.patience() / 2)
        };
        self.lane_states.iter().filter(is_late).map(|(id, _)| *id).collect()
    }

    /// Some lane owes a sign of life, so that time must be watched.
    pub(super) fn is_owed(&self) -> bool {
        self.lane_states.values().any(|lane_state| lane_state.owed_since().is_some())
    }

    /// What a low priority allows from now on: so many bytes in flight, and so many more to be taken now. What was not taken before
    /// is kept only until that makes a segment or two: saved up, it would go as a burst. `None`: everything.
    pub(super) fn allow(&mut self, allowed: Option<Allowed>) {
        let before = self.low_priority_credit.map_or(0, |credit| credit.now);
        self.low_priority_credit = allowed.map(|Allowed { in_flight_bytes, more_bytes }| LowPriorityCredit {
            in_flight: in_flight_bytes,
            now: (before + more_bytes).min(more_bytes.max(2 * LOW_PRIORITY_SEGMENT_MIN)),
        });
    }

    /// Everything written was taken by lanes, the end too if there is one.
    pub(super) fn is_handed_out(&self) -> bool {
        self.unsent == 0 && self.end != End::Due
    }

    /// The peer has everything, and the end.
    pub(super) fn is_delivered(&self) -> bool {
        self.end == End::Delivered && self.retained.is_empty()
    }

    /// [`Sender::finish`] was called.
    pub(super) fn is_finished(&self) -> bool {
        self.end != End::Open
    }

    /// How many lanes could take something at once, credit aside.
    pub(super) fn segments_waiting(&self) -> usize {
        let filling = usize::from(!self.filling.is_empty());
        self.again.len() + self.ready.len() + filling + usize::from(self.end == End::Due)
    }

    /// There is something to send, or to send again.
    pub(super) fn has_waiting(&self) -> bool {
        self.unsent > 0 || !self.again.is_empty() || self.end == End::Due
    }

    /// Bytes that the peer is not known to have; an end that is due counts as one.
    pub(super) fn undelivered(&self) -> u64 {
        self.unsent + self.retained_bytes + u64::from(self.end != End::Delivered)
    }

    pub(super) fn unsent(&self) -> u64 {
        self.unsent
    }

    pub(super) fn written(&self) -> u64 {
        self.sent + self.unsent
    }

    /// End of what lanes have taken.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    pub(super) fn given(&self) -> u64 {
        self.given
    }

    pub(super) fn retransmitted(&self) -> u64 {
        self.retransmitted
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.retained_bytes
    }

    pub(super) fn credit(&self) -> u64 {
        self.limit.saturating_sub(self.sent)
    }

    pub(super) fn is_stalled(&self, lane: LaneId) -> bool {
        self.lane_states.get(&lane).is_none_or(|lane_state| lane_state.stalled)
    }

    /// For how long `lane` has made no progress.
    pub(super) fn quiet(&self, lane: LaneId, now: Duration) -> Duration {
        self.lane_states.get(&lane).map_or(now, |lane_state| now.saturating_sub(lane_state.moved))
    }

    /// Lanes that could carry data.
    pub(super) fn live(&self) -> usize {
        self.lane_states.values().filter(|lane_state| !lane_state.stalled).count()
    }

    /// Latency of a lane and what it has delivered.
    pub(super) fn lane(&self, lane: LaneId) -> (Option<Duration>, u64) {
        self.lane_states.get(&lane).map_or((None, 0), |lane_state| (lane_state.latency, lane_state.delivered))
    }

    /// The longest latency of a live lane: what a round trip over the bundle takes.
    pub(super) fn latency(&self) -> Option<Duration> {
        self.lane_states
            .values()
            .filter(|lane_state| !lane_state.stalled)
            .filter_map(|lane_state| lane_state.latency)
            .max()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.budget.give_back(self.retain_max - WINDOW_START);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::WINDOW_BUDGET;

    const SEGMENT: u64 = LOW_PRIORITY_SEGMENT_MIN;

    #[test]
    fn a_low_priority_sends_in_portions_and_saves_none_up() {
        let mut sender = Sender::new(Arc::new(WindowBudget::new(WINDOW_BUDGET)));
        let lane = LaneId(0);
        sender.add_lane(lane, false, None, Duration::ZERO);
        sender.write(&[7; 60_000]);
        let take = |sender: &mut Sender| match sender.next(lane) {
            Next::Data(bytes) => sender.take(lane, bytes, Duration::ZERO).map_or(0, |s| s.bytes.len() as u64),
            next => {
                assert_eq!((next, sender.could_give(lane)), (Next::Nothing(Wait::LowPriority), false));
                0
            }
        };
        let portion = |more_bytes| Some(Allowed { in_flight_bytes: 10 * SEGMENT, more_bytes });
        sender.allow(portion(4 * SEGMENT));
        assert_eq!((take(&mut sender), take(&mut sender)), (4 * SEGMENT, 0));
        for _ in 0..100 {
            sender.allow(portion(100));
        }
        assert_eq!((take(&mut sender), take(&mut sender)), (2 * SEGMENT, 0));
        sender.allow(portion(SEGMENT / 2));
        assert_eq!(take(&mut sender), 0, "no small packets");
        sender.allow(portion(100 * SEGMENT));
        assert_eq!((take(&mut sender), take(&mut sender)), (4 * SEGMENT, 0), "the cap is in flight");
        sender.allow(None);
        assert!(take(&mut sender) > 10 * SEGMENT);
    }

    #[test]
    fn a_ping_measures_its_round_trip_once() {
        let mut sender = Sender::new(Arc::new(WindowBudget::new(WINDOW_BUDGET)));
        let lane = LaneId(0);
        let ms = Duration::from_millis;
        sender.add_lane(lane, false, None, ms(0));
        for (sent, back) in [(0, 60), (60, 110), (120, 190)] {
            sender.on_ping_sent(lane, ms(sent));
            sender.on_pong(lane, ms(back));
        }
        assert_eq!(sender.take_round_trip(lane), Some(ms(50)));
        assert_eq!(sender.take_round_trip(lane), None);
    }
}
