//! Low priority: how many bytes a stream may have in flight so that it gives way to whatever else uses the path. Pure: the
//! clock and what was measured are arguments.
//!
//! After LEDBAT (RFC 6817) and LEDBAT++: what the round trip is longer than the shortest of the last minutes is a queue. A queue
//! shorter than a target is somebody's luck, a longer one somebody's delay. So the cap
//!
//! * doubles at first with each decision, until there is a queue of three quarters of the target;
//! * then grows by up to an eighth, the more the shorter the queue, and faster where there has hardly been one for a while;
//! * shrinks by what is queued beyond the target, as if all of it were its own, and to no less than a half: alone, that leaves one
//!   target of queue; beside others, who fill the room that it makes, it shrinks again and again;
//! * falls to an eighth for two round trips now and then, so that the queue that it makes itself drains and the
//!   path shows its shortest round trip: one that begins beside a full queue would else take that for the path's own.
//!
//! A decision is made from what was sent after the one before: for a round trip nothing is measured, for another one
//! everything is. One in each round trip answered each queue twice, and left a quarter of a free link empty.
//!
//! The target is an eighth of the path's round trip, within 5 and 50 ms and at least what three segments take: RFC 6817's
//! 60 to 100 ms everywhere would be more queue than BBR ever makes on a short path, and beside BBR it would take its
//! share. On its own it loses nothing by a short target: the path is full when the queue begins.
//!
//! With a target of four packets, a measure must not take for a queue what is none:
//!
//! * A socket's round trip counts the time for which a kernel keeps an acknowledgement back, until a second segment or the stream's
//!   own acknowledgement ([`ACK_AFTER`]): twice the target, where little is on its way. And it is smoothed over eight
//!   acknowledgements, which are as many round trips then. A cap that had shrunk stayed small: 0.6 Mb/s of a line of 10.
//! * A ping is answered at once. Its time counts what waits in this side's socket, and pauses of busy machines.
//!
//! So both are taken, each against its own shortest time, and what both show is the queue.
//!
//! And the stream sends the cap in portions, over a round trip, not when there is room: the acknowledgement of a burst lets
//! go the next, and a burst is a queue while it lasts, for others and for its own ping. Without that it had 2.0 Mb/s of the 10,
//! with it 9.4.
//!
//! What the cap does not do is heed loss: the lanes' own congestion control does, beneath it.

use std::time::Duration;

use crate::limits::{ACK_AFTER, LOW_PRIORITY_CATCH_UP, LOW_PRIORITY_LOOK_EVERY, PATHS_MAX};

/// Bounds of the target.
const TARGET: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));
/// Parts of the path's round trip that are the target.
const TARGET_PART: u32 = 8;
/// Segments whose time at the path's rate is the target at least: a queue is made of whole ones.
const TARGET_SEGMENTS: f64 = 3.0;
/// Share of the target at which the first, fast growth ends.
const ENOUGH: f64 = 0.75;
/// Targets of queue at which it does not go on to where it was before the queue had time to drain.
const RESUME_QUEUE: f64 = 2.0;
/// Growth in a decision without a queue.
const GROWTH: f64 = 0.125;
/// Share of the target below which there is hardly a queue.
const CALM: f64 = 0.25;
/// After so many decisions in a row that saw hardly a queue the growth doubles with each further one: others have gone.
const CALM_AFTER: u32 = 3;
/// So many times: to a half.
const GROWTH_DOUBLINGS_MAX: u32 = 2;
/// The least that a decision leaves of the cap.
const SHRUNK_MIN: f64 = 0.5;
/// Segments in flight at first.
const START_SEGMENTS: u64 = 10;
/// Segments in flight at least. Two were a fifth of a T1 beside a full queue.
const SEGMENTS_MIN: u64 = 1;
/// Round trips for which it waits for the pings of every path.
const PATIENCE: u32 = 2;
/// Part of the cap that is left while the queue drains.
const SLOW_PART: u64 = 8;
/// Round trips for which it stays so, after the queue has had the time to drain.
const SLOW_RTTS: u32 = 2;
/// Time between two of these: round trips, and at least. They cost some four round trips, so four per cent.
const SLOW_EVERY: (u32, Duration) = (100, Duration::from_secs(10));
/// The base is the shortest round trip of so many spans.
const BASE_SPANS: usize = 10;
/// Length of a span: a route that has become longer is believed after ten minutes.
const BASE_SPAN: Duration = Duration::from_secs(60);

/// Round trips of a path at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PathSeen {
    /// Its number.
    pub(crate) path: usize,
    /// As a socket has smoothed it.
    pub(crate) socket: Duration,
    /// Of a ping that was answered since the last look.
    pub(crate) ping: Option<Duration>,
}

impl PathSeen {
    /// Another lane of the same path: the shorter of each counts.
    pub(crate) fn join(&mut self, lane: PathSeen) {
        self.socket = self.socket.min(lane.socket);
        self.ping = self.ping.into_iter().chain(lane.ping).min();
    }
}

/// What is seen of a stream at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow<'a> {
    /// Time on any clock that only goes forward.
    pub(crate) now: Duration,
    /// Each path in use once.
    pub(crate) paths: &'a [PathSeen],
    /// Bytes in flight now.
    pub(crate) in_flight_bytes: u64,
    /// Payload of a segment, bytes.
    pub(crate) mss: u32,
    /// Bytes per second that arrive, if that is known.
    pub(crate) delivery_rate: Option<u64>,
}

/// What the stream may do until the next look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allowed {
    /// Have so many bytes in flight.
    pub(crate) in_flight_bytes: u64,
    /// Send so many more.
    pub(crate) more_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    /// Doubles until there is a queue.
    Start,
    /// Doubles until it is back where it was.
    Resume {
        until: u64,
    },
    Steady,
    /// Lets the queue drain until then; what the cap was before.
    Slow {
        until: Duration,
        before: u64,
    },
}

/// The shortest round trip of the last minutes, and the shortest queue since the last decision, by one way of measuring.
#[derive(Clone, Copy, Debug)]
struct Measure {
    spans: [Duration; BASE_SPANS],
    /// Number of the newest span since the clock's beginning.
    newest: u64,
    queue: Option<Duration>,
}

/// What is known of a path.
#[derive(Clone, Copy, Debug)]
struct Path {
    number: usize,
    socket: Measure,
    ping: Measure,
}

/// The cap of one stream.
#[derive(Clone, Debug)]
pub(crate) struct LowPriority {
    cap: u64,
    phase: Phase,
    paths: Vec<Path>,
    /// What is seen from then on shows the effect of the last decision.
    settled: Duration,
    /// Decisions in a row that saw hardly a queue.
    calm: u32,
    /// When it last looked.
    seen: Option<Duration>,
    /// The cap was what limited the stream since then.
    was_used: bool,
    slow_at: Option<Duration>,
    /// The highest rate that was seen, bytes per second: the path's, not what is left of it now.
    fastest: u64,
}

impl LowPriority {
    pub(crate) fn new() -> LowPriority {
        LowPriority {
            cap: 0,
            phase: Phase::Start,
            paths: Vec::new(),
            settled: Duration::ZERO,
            calm: 0,
            seen: None,
            was_used: false,
            slow_at: None,
            fastest: 0,
        }
    }

    /// Learns from what is seen, several times in a round trip if that is cheap, and says what may be sent until the next time.
    /// Nothing is decided more often than once in two round trips.
    pub(crate) fn see(&mut self, flow: &Flow<'_>) -> Allowed {
        let least = SEGMENTS_MIN * u64::from(flow.mss);
        if self.cap == 0 {
            self.cap = START_SEGMENTS * u64::from(flow.mss.max(1));
        }
        self.fastest = self.fastest.max(flow.delivery_rate.unwrap_or(0));
        self.was_used |= flow.in_flight_bytes >= self.cap / 2;
        let passed = self.seen.map_or(LOW_PRIORITY_LOOK_EVERY, |seen| flow.now.saturating_sub(seen));
        self.seen = Some(flow.now);
        let mut longest = Duration::ZERO;
        for seen in flow.paths.iter().filter(|seen| !seen.socket.is_zero()).take(PATHS_MAX) {
            let path = self.path(seen.path, flow.now);
            path.socket.see(seen.socket, flow.now);
            if let Some(ping) = seen.ping {
                path.ping.see(ping, flow.now);
            }
            longest = longest.max(path.socket.base());
        }
        if flow.now < self.settled {
            // What comes back now was sent before the last decision.
            self.paths.iter_mut().for_each(Path::begin);
        } else if let Some((queue, base)) = self.queue() {
            let is_measured =
                self.paths.iter().all(|path| path.socket.queue.is_none() || path.ping.queue.is_some());
            let rtt = base + queue;
            if flow.now - self.settled >= rtt * if is_measured { 1 } else { PATIENCE } {
                self.decide(flow, queue, base);
                self.settled = flow.now + rtt;
                self.was_used = false;
                self.paths.iter_mut().for_each(Path::begin);
            }
        }
        self.cap = self.cap.max(least);
        let over = longest + ACK_AFTER;
        let part = passed.min(LOW_PRIORITY_CATCH_UP).as_secs_f64() / over.as_secs_f64();
        Allowed { in_flight_bytes: self.cap, more_bytes: (self.cap as f64 * part).ceil() as u64 }
    }

    /// The queue and the shortest round trip of the path where the queue is longest. `None` until there is enough to say.
    fn queue(&self) -> Option<(Duration, Duration)> {
        let queues = self.paths.iter().filter_map(|path| Some((path.queue()?, path.socket.base())));
        queues.max()
    }

    fn decide(&mut self, flow: &Flow<'_>, queue: Duration, base: Duration) {
        let pause = (SLOW_EVERY.0 * base).max(SLOW_EVERY.1);
        let slow_at = *self.slow_at.get_or_insert(flow.now + pause / 4);
        let target = self.target(base, flow.mss);
        let targets = queue.as_secs_f64() / target.as_secs_f64();
        match self.phase {
            Phase::Slow { until, before } if flow.now >= until => {
                self.phase = Phase::Resume { until: before };
                self.slow_at = Some(flow.now + pause);
            }
            Phase::Slow { .. } => return,
            Phase::Steady if flow.now >= slow_at && self.was_used => {
                self.phase = Phase::Slow {
                    until: flow.now + queue + SLOW_RTTS * base.max(TARGET.0),
                    before: self.cap,
                };
                self.cap /= SLOW_PART;
                return;
            }
            _ => {}
        }
        if targets >= CALM {
            self.calm = 0;
        } else if self.was_used {
            self.calm += 1;
        }
        let factor = match self.phase {
            Phase::Start if targets < ENOUGH => 2.0,
            Phase::Resume { until } if self.cap < until && targets < 1.0 => 2.0,
            // It knows where it was: one long round trip does not keep it from there.
            Phase::Resume { until } if self.cap < until && targets < RESUME_QUEUE => 1.0,
            _ => {
                self.phase = Phase::Steady;
                if targets <= 1.0 {
                    1.0 + self.growth() * (1.0 - targets)
                } else {
                    ((base + target).as_secs_f64() / (base + queue).as_secs_f64()).max(SHRUNK_MIN)
                }
            }
        };
        if factor > 1.0 && !self.was_used {
            return;
        }
        let next = (self.cap as f64 * factor) as u64;
        self.cap = match self.phase {
            Phase::Resume { until } => next.min(until),
            _ => next,
        };
    }

    /// In a decision without a queue.
    fn growth(&self) -> f64 {
        let doublings = self.calm.saturating_sub(CALM_AFTER).min(GROWTH_DOUBLINGS_MAX);
        GROWTH * f64::from(1_u32 << doublings)
    }

    /// The queue that it may make.
    fn target(&self, base: Duration, mss: u32) -> Duration {
        let segments = match self.fastest {
            0 => 0.0,
            rate => TARGET_SEGMENTS * f64::from(mss) / rate as f64,
        };
        let segments = Duration::from_secs_f64(segments.min(TARGET.1.as_secs_f64()));
        (base / TARGET_PART).max(segments).clamp(TARGET.0, TARGET.1)
    }

    /// What is known of the path with this number.
    fn path(&mut self, number: usize, now: Duration) -> &mut Path {
        let at = match self.paths.iter().position(|path| path.number == number) {
            Some(at) => at,
            None => {
                if self.paths.len() >= PATHS_MAX {
                    self.paths.remove(0);
                }
                self.paths.push(Path { number, socket: Measure::new(now), ping: Measure::new(now) });
                self.paths.len() - 1
            }
        };
        &mut self.paths[at]
    }
}

impl Path {
    /// What both measures take for a queue: an ack that is late lengthens the one, a machine that is busy the other.
    fn queue(&self) -> Option<Duration> {
        match (self.socket.queue, self.ping.queue) {
            (Some(socket), Some(ping)) => Some(socket.min(ping)),
            (socket, ping) => socket.or(ping),
        }
    }

    fn begin(&mut self) {
        self.socket.queue = None;
        self.ping.queue = None;
    }
}

impl Measure {
    fn new(now: Duration) -> Measure {
        Measure { spans: [Duration::MAX; BASE_SPANS], newest: span(now), queue: None }
    }

    /// The shortest queue counts: a single long round trip may be the receiver's pause.
    fn see(&mut self, rtt: Duration, now: Duration) {
        let number = span(now);
        for passed in self.newest + 1..=number.min(self.newest + BASE_SPANS as u64) {
            self.spans[(passed % BASE_SPANS as u64) as usize] = Duration::MAX;
        }
        self.newest = self.newest.max(number);
        let newest = &mut self.spans[(number % BASE_SPANS as u64) as usize];
        *newest = rtt.min(*newest);
        let queue = rtt.saturating_sub(self.base());
        self.queue = Some(self.queue.map_or(queue, |shortest| shortest.min(queue)));
    }

    fn base(&self) -> Duration {
        self.spans.iter().copied().min().unwrap_or_default()
    }
}

fn span(now: Duration) -> u64 {
    now.as_secs() / BASE_SPAN.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(path: usize, rtt_ms: u64) -> PathSeen {
        let rtt = Duration::from_millis(rtt_ms);
        PathSeen { path, socket: rtt, ping: Some(rtt) }
    }

    fn flow(now_ms: u64, paths: &[PathSeen]) -> Flow<'_> {
        Flow {
            now: Duration::from_millis(now_ms),
            paths,
            in_flight_bytes: u64::MAX / 4,
            mss: 1448,
            delivery_rate: Some(10_000_000),
        }
    }

    #[test]
    fn the_base_is_forgotten_after_ten_minutes() {
        let minute = |n: u64| Duration::from_secs(60 * n);
        let mut measure = Measure::new(minute(0));
        let mut base = |rtt_ms, n| {
            measure.see(Duration::from_millis(rtt_ms), minute(n));
            measure.base()
        };
        assert_eq!(base(20, 0), Duration::from_millis(20));
        for n in 1..10 {
            assert_eq!(base(50, n), Duration::from_millis(20));
        }
        assert_eq!(base(50, 10), Duration::from_millis(50));
        assert_eq!(base(70, 1000), Duration::from_millis(70));
    }

    #[test]
    fn grows_without_a_queue_and_gives_way_to_one() {
        let mut low_priority = LowPriority::new();
        let short = [seen(0, 100)];
        let mut cap = 0;
        for n in 1..=16 {
            cap = low_priority.see(&flow(100 * n, &short)).in_flight_bytes;
        }
        assert!(cap > 100 * START_SEGMENTS * 1448, "{cap}");
        let long = [seen(0, 200)];
        for n in 1..=60 {
            cap = low_priority.see(&flow(1600 + 200 * n, &long)).in_flight_bytes;
        }
        assert_eq!(cap, SEGMENTS_MIN * 1448);
    }

    #[test]
    fn the_path_with_the_queue_decides_and_each_has_its_own_base() {
        let mut low_priority = LowPriority::new();
        let calm = [seen(0, 10), seen(1, 90)];
        for n in 1..=10 {
            low_priority.see(&flow(100 * n, &calm));
        }
        let grown = low_priority.see(&flow(1100, &calm)).in_flight_bytes;
        let queued = [seen(0, 60), seen(1, 90)];
        let mut cap = grown;
        for n in 1..=20 {
            cap = low_priority.see(&flow(1100 + 100 * n, &queued)).in_flight_bytes;
        }
        assert!(cap < grown / 100, "{cap} after {grown}");
    }

    #[test]
    fn what_is_not_used_does_not_grow() {
        let mut low_priority = LowPriority::new();
        let paths = [seen(0, 50)];
        for n in 1..=50 {
            let allowed = low_priority.see(&Flow { in_flight_bytes: 1000, ..flow(50 * n, &paths) });
            assert_eq!(allowed.in_flight_bytes, START_SEGMENTS * 1448);
        }
        // Nothing measured: as it is.
        assert_eq!(LowPriority::new().see(&flow(4000, &[])).in_flight_bytes, START_SEGMENTS * 1448);
    }
}
