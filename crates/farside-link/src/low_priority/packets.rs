//! Low priority on a nearly free link, in steps of a quarter of a millisecond: what [`super::simulation`], whose step is a round
//! trip, cannot show. The stream lets data go in portions; its peer acknowledges them to the kernel by twos and to the stream
//! some milliseconds after they came; the kernel smooths what it sees; somebody else sends a small packet now and then; and
//! the peer answers some pings late, because its machine is busy.

use std::collections::VecDeque;
use std::time::Duration;

use super::cap::{Flow, LowPriority, PathSeen};
use crate::limits::{
    ACK_AFTER, LOW_PRIORITY_LOOK_EVERY, LOW_PRIORITY_SEGMENT_MIN, SEGMENT_PAYLOAD_MAX, SEGMENT_PAYLOAD_SLOW,
    SEGMENT_TIME,
};

const STEP: f64 = 0.000_25;
const SEGMENT: f64 = 1448.0;
/// How much faster than the link the kernel sends what it has: BBR's, as long as it has seen nothing but portions.
const KERNEL_GAIN: f64 = 2.0;
/// A request of this size every so often, seconds.
const REQUEST: (f64, f64) = (1066.0, 0.05);
/// Of so many pings one is answered so much too late, seconds.
const BUSY: (u64, f64) = (7, 0.004);

#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Bytes per second.
    rate: f64,
    rtt: f64,
    without: Without,
}

/// What the stream does without.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Without {
    Nothing,
    /// What the cap allows goes as soon as there is room, all at once.
    Portions,
    /// The socket's round trip alone says what the queue is.
    Pings,
    Both,
}

#[derive(Debug)]
struct Outcome {
    /// Of the link.
    share: f64,
    /// What the requests waited in the queue, seconds: median and 95 in 100.
    waited: (f64, f64),
}

/// Something on its way.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: f64,
    arrives: f64,
    bytes: f64,
}

/// When a ping goes, and the peer has it, and its pong is back.
#[derive(Clone, Copy, Debug)]
struct Ping {
    sent: f64,
    arrives: f64,
    back: f64,
    is_there: bool,
}

/// What the peer has and has not acknowledged.
#[derive(Clone, Copy, Debug)]
struct Owed {
    since: f64,
    sent_at: f64,
    bytes: f64,
}

fn owe(owed: &mut Option<Owed>, sent: Sent) -> Owed {
    let before = owed.unwrap_or(Owed { since: sent.arrives, sent_at: sent.at, bytes: 0.0 });
    *owed.insert(Owed { bytes: before.bytes + sent.bytes, ..before })
}

fn run(cell: Cell) -> Outcome {
    let Cell { rate, rtt, without } = cell;
    let has_portions = matches!(without, Without::Nothing | Without::Pings);
    let has_pings = matches!(without, Without::Nothing | Without::Portions);
    let (warm, until) = (10.0_f64.max(100.0 * rtt), 40.0_f64.max(400.0 * rtt));
    let mut low_priority = LowPriority::new();
    let (mut now, mut next_look, mut next_request) = (0.0, 0.0, 0.0);
    // Of the link's queue, of the kernel's before it, and of the stream's in flight, bytes.
    let (mut queue, mut socket, mut in_flight) = (0.0_f64, 0.0_f64, 0.0_f64);
    let (mut cap, mut may) = (0.0_f64, 0.0_f64);
    let (mut segments, mut acknowledged) = (VecDeque::<f64>::new(), 0.0);
    let (mut data, mut acks, mut told) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
    let (mut owed_by_kernel, mut owed_by_peer): (Option<Owed>, Option<Owed>) = (None, None);
    let (mut smoothed, mut arrived_in_window, mut rate_since) = (0.0_f64, 0.0, 0.0);
    let (mut delivery_rate, mut pings, mut ping): (f64, u64, Option<Ping>) = (0.0, 0, None);
    let (mut delivered, mut waited) = (0.0, Vec::new());
    while now < until {
        now += STEP;
        queue = (queue - rate * STEP).max(0.0);
        if now >= next_request {
            if now >= warm {
                waited.push(queue / rate);
            }
            queue += REQUEST.0;
            next_request += REQUEST.1;
        }
        // The far side, whose acknowledgements are back half a round trip later.
        while let Some(sent) = data.pop_front_if(|sent: &mut Sent| sent.arrives <= now) {
            if now >= warm {
                delivered += sent.bytes;
            }
            let owed = owe(&mut owed_by_kernel, sent);
            owe(&mut owed_by_peer, sent);
            if owed.bytes >= 2.0 * SEGMENT {
                acks.push_back((now + rtt / 2.0, owed.sent_at, owed.bytes));
                owed_by_kernel = None;
            }
        }
        // What has come is acknowledged to the stream with a pong, or after a time; and that is a packet, which takes the kernel's
        // acknowledgement along.
        let pongs = ping
            .as_mut()
            .is_some_and(|ping| ping.arrives <= now && !std::mem::replace(&mut ping.is_there, true));
        let is_due = |owed: &mut Owed| pongs || now >= owed.since + ACK_AFTER.as_secs_f64();
        if let Some(owed) = owed_by_peer.take_if(is_due) {
            told.push_back((now + rtt / 2.0, owed.bytes));
            if let Some(owed) = owed_by_kernel.take() {
                acks.push_back((now + rtt / 2.0, owed.sent_at, owed.bytes));
            }
        }
        while let Some((_, sent_at, bytes)) = acks.pop_front_if(|(at, _, _): &mut (f64, f64, f64)| *at <= now)
        {
            let sample = now - sent_at;
            smoothed = if smoothed == 0.0 { sample } else { smoothed + (sample - smoothed) / 8.0 };
            arrived_in_window += bytes;
            if now - rate_since > rtt {
                delivery_rate = delivery_rate.max((arrived_in_window / (now - rate_since)).min(rate));
                (arrived_in_window, rate_since) = (0.0, now);
            }
        }
        while let Some((_, bytes)) = told.pop_front_if(|(at, _): &mut (f64, f64)| *at <= now) {
            acknowledged += bytes;
            // A segment of the stream is acknowledged as a whole.
            while let Some(segment) = segments.pop_front_if(|segment| *segment <= acknowledged + 0.5) {
                acknowledged -= segment;
                in_flight -= segment;
            }
        }
        if now >= next_look {
            next_look = now + LOW_PRIORITY_LOOK_EVERY.as_secs_f64();
            let answered = ping.take_if(|ping| ping.back <= now).map(|ping| ping.back - ping.sent);
            if ping.is_none() && has_pings {
                pings += 1;
                let late = if pings % BUSY.0 == 0 { BUSY.1 } else { 0.0 };
                let arrives = now + socket / (KERNEL_GAIN * rate) + queue / rate + rtt / 2.0 + late;
                ping = Some(Ping { sent: now, arrives, back: arrives + rtt / 2.0, is_there: false });
            }
            let seen = PathSeen {
                path: 0,
                socket: Duration::from_secs_f64(if smoothed == 0.0 { rtt } else { smoothed }),
                ping: answered.map(Duration::from_secs_f64),
            };
            let allowed = low_priority.see(&Flow {
                now: Duration::from_secs_f64(now),
                paths: &[seen],
                in_flight_bytes: in_flight as u64,
                mss: SEGMENT as u32,
                delivery_rate: (delivery_rate > 0.0).then_some(delivery_rate as u64),
            });
            cap = allowed.in_flight_bytes as f64;
            let more = allowed.more_bytes as f64;
            may = (may + more).min(more.max(2.0 * LOW_PRIORITY_SEGMENT_MIN as f64));
        }
        let room = (cap - in_flight).min(if has_portions { may } else { f64::MAX });
        if room >= LOW_PRIORITY_SEGMENT_MIN as f64 {
            let most = (rate * SEGMENT_TIME.as_secs_f64())
                .clamp(SEGMENT_PAYLOAD_SLOW as f64, SEGMENT_PAYLOAD_MAX as f64);
            for at in (0..).map(|n| f64::from(n) * most).take_while(|at| *at < room) {
                segments.push_back((room - at).min(most));
            }
            may -= room;
            in_flight += room;
            socket += room;
        }
        let sends = socket.min(KERNEL_GAIN * rate * STEP);
        if sends > 0.0 {
            socket -= sends;
            queue += sends;
            data.push_back(Sent { at: now, arrives: now + queue / rate + rtt / 2.0, bytes: sends });
        }
    }
    waited.sort_by(f64::total_cmp);
    Outcome {
        share: delivered / (until - warm) / rate,
        waited: (waited[waited.len() / 2], waited[waited.len() * 95 / 100]),
    }
}

fn cells(without: Without) -> impl Iterator<Item = Cell> {
    [193e3, 1.25e6, 5.592e6, 125e6]
        .into_iter()
        .flat_map(move |rate| [0.001, 0.01, 0.04, 0.1, 0.3].map(move |rtt| Cell { rate, rtt, without }))
}

#[test]
fn beside_small_requests_it_takes_the_rest_and_hardly_delays_them() {
    for cell in cells(Without::Nothing) {
        let outcome = run(cell);
        println!("{cell:?} {outcome:?}");
        let rest = 1.0 - REQUEST.0 / REQUEST.1 / cell.rate;
        assert!(outcome.share > 0.93 * rest, "{cell:?} {outcome:?}");
        let target = (cell.rtt / 8.0).max(0.005).max(3.0 * SEGMENT / cell.rate);
        assert!(outcome.waited.0 < 1.5 * target, "{cell:?} {outcome:?}");
        assert!(outcome.waited.1 < 2.0 * target, "{cell:?} {outcome:?}");
    }
}

/// Why there are pings, and portions: acknowledgements that are kept back look like two targets of queue once the cap is small, and
/// a cap that goes at once finds its own burst in the queue. Both together kept the cap at a segment.
#[test]
fn without_pings_or_portions_it_would_leave_much_of_ten_megabits_empty() {
    for (without, most) in [(Without::Pings, 0.75), (Without::Portions, 0.75), (Without::Both, 0.1)] {
        let outcome = run(Cell { rate: 1.25e6, rtt: 0.04, without });
        println!("{without:?} {outcome:?}");
        assert!(outcome.share < most, "{without:?} {outcome:?}");
    }
}
