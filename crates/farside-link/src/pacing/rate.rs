//! How fast the lanes of one path may send, so that a start does not flood a short queue. Pure: the clock and what was measured are
//! arguments.
//!
//! BBR doubles its rate in each round trip until three of them in a row brought no more, and has up to 2.9 times what the line
//! holds in flight by then. Where the queue before the line is as long as the line, as is usual, one to two lines' worth
//! is dropped and sent again; each further lane that begins on a line that is full does it once more. So
//!
//! * while the line's rate is not known nothing is held back, until the lanes see a queue: longer than a quarter of the round
//!   trip. What then arrives is what the line carries, and the lanes are held to that. A queue that is gone within two round trips
//!   was somebody else's, or a machine's pause: they go on doubling. One that stays for [`HOLD_RTTS`] has shown the line's rate;
//!   by then BBR has seen three round trips without growth, and lets the queue drain;
//! * from then on the lanes together have a little more than the line has shown while there is a queue, and a quarter more while
//!   there is none, as much as BBR tries: part of the line is free then. One in turn, or a single one, always has that quarter more
//!   of its share: a line that has become faster is found, and while it shows more all may try;
//! * each lane's share is by what it brings, and a part is divided evenly: a lane that begins grows into its own while the others
//!   make room, and what one does not use the others have. Fixed even shares leave a part of the line empty whenever a lane
//!   does not fill its own, and giving each what the others leave gives the same room to several.
//!
//! What the line carries is the most that arrived over a round trip in the last seconds ([`SPAN`]). Times in which the lanes had
//! too little to send say nothing of it, and after [`FORGOTTEN_AFTER`] without data it is forgotten.
//!
//! The idea of leaving the fast start when the round trip grows is HyStart's (Ha and Rhee, 2011).

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// A queue is one if it is longer than this part of the round trip,
const QUEUE_PART: u32 = 4;
/// and than this: timers and busy machines make some milliseconds.
const QUEUE_MIN: Duration = Duration::from_millis(3);
/// Round trips, queues included, that the lanes are held to what arrives. BBR takes three without growth for a full line.
const HOLD_RTTS: u32 = 4;
/// Round trips after which a queue that is gone was none.
const DOUBT_RTTS: u32 = 2;
/// What all lanes together may send after a queue that was none, of the most that has arrived: they go on doubling, but do not begin
/// anew. On an OC-3 with 300 ms four lanes at BBR's first gain were paced at 4.6 times the line by then.
const GROW: f64 = 2.0;
/// What one lane may send of its share: BBR tries a quarter more.
const PROBE: f64 = 1.25;
/// What the others may: they keep the line full while one of them sends less.
const LEFT: f64 = 1.05;
/// Part of the line that is divided evenly; the rest goes to lanes as they have it.
const EVEN: f64 = 0.25;
/// A lane that begins sends so many packets in its first round trip: ten, at BBR's first gain,
const FIRST: f64 = 30.0;
/// and may bring so many times what it brought a round trip ago.
const BEGINS: f64 = 2.0;
/// Round trips of the turn in which one of several lanes tries that: BBR does once in eight.
const PROBE_RTTS: u32 = 10;
/// More than was known by this factor is a line that has become faster: then all may try.
const GROWTH: f64 = 1.03;
/// Round trips for which a lane is one that begins, and does not try.
const BEGINNER_RTTS: u32 = 6;
/// The line's rate is the most of the last one to two spans: this long, and this many round trips.
const SPAN: (Duration, u32) = (Duration::from_secs(10), 20);
/// A rate is measured over half a round trip, queues included, and at least so long: a few turns of a daemon.
const MEASURE_MIN: Duration = Duration::from_millis(10);
/// Without data for so long, the line may be another one.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);
/// Looks that are remembered, for the rate over half a round trip of up to three seconds.
const LOOKS_MAX: usize = 64;
/// Packets in a round trip that a lane may send at least: BBR itself has four in flight at least.
const PACKETS_MIN: f64 = 4.0;

/// How often is looked while it is not yet known what the line carries, or a lane begins: eight times in a round trip, within these.
const LOOK: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(25));
/// The same when it is known.
const LOOK_KNOWN: Duration = Duration::from_millis(50);
/// The same while nothing is in flight: what begins then is in its first round trips.
pub(crate) const LOOK_IDLE: Duration = Duration::from_millis(20);

/// Segments in flight that make a lane busy: the other direction's acknowledgements come in less.
pub(crate) const BUSY_SEGMENTS: u64 = 8;

/// Whether a round trip of a path shows a queue, given the shortest of that path: as long as BBR makes one on a line that is full.
pub(crate) fn is_queue(rtt: Duration, min_rtt: Duration) -> bool {
    rtt.saturating_sub(min_rtt) > (min_rtt / QUEUE_PART).max(QUEUE_MIN)
}

/// What is seen of a lane at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneSeen {
    /// Tells the lanes of a path apart.
    pub(crate) id: u64,
    /// Round trip, queues included; zero: not measured.
    pub(crate) rtt: Duration,
    /// The same without queues.
    pub(crate) min_rtt: Duration,
    /// Bytes that have arrived, since it was made.
    pub(crate) delivered_bytes: u64,
    /// It has some segments in flight ([`BUSY_SEGMENTS`]), not just an answer.
    pub(crate) is_busy: bool,
    /// The kernel has run out of what it could send. It says so, too, when its send buffer is full of what is on its way.
    pub(crate) app_limited: bool,
    /// For how long, since it was made, its send buffer was what limited.
    pub(crate) buffer_limited: Duration,
    /// Payload of a segment, bytes.
    pub(crate) mss: u32,
}

/// What is known of a lane.
#[derive(Clone, Copy, Debug)]
struct Lane {
    delivered_bytes: u64,
    /// When it was first busy.
    began: Option<Duration>,
    /// Smoothed over a round trip or so, bytes per second.
    rate: f64,
    buffer_limited: Duration,
    /// It always had something to send, since the last look.
    has_plenty: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    /// The line's rate is not known.
    Unknown,
    /// There is a queue, since then.
    Held {
        since: Duration,
    },
    Known,
}

/// The lanes of one path, those of all streams together.
#[derive(Debug)]
pub(crate) struct PathRate {
    phase: Phase,
    lanes: HashMap<u64, Lane>,
    /// When it was looked at, and what all lanes had brought by then since the beginning.
    looks: VecDeque<(Duration, u64)>,
    delivered_bytes: u64,
    /// Most bytes per second, of the span that runs and of the one before.
    most: [f64; 2],
    span_began: Duration,
    last_busy: Duration,
    /// When more arrived than ever in the two spans.
    grew: Option<Duration>,
    /// There was a queue at the last look.
    has_queue: bool,
}

impl PathRate {
    pub(crate) fn new() -> PathRate {
        PathRate {
            phase: Phase::Unknown,
            lanes: HashMap::new(),
            looks: VecDeque::new(),
            delivered_bytes: 0,
            most: [0.0; 2],
            span_began: Duration::ZERO,
            last_busy: Duration::ZERO,
            grew: None,
            has_queue: false,
        }
    }

    /// Bytes per second that the line carries, if that is known.
    pub(crate) fn carries(&self) -> Option<f64> {
        (self.phase == Phase::Known).then(|| self.most[0].max(self.most[1]))
    }

    /// Learns from what is seen at `now`, on any clock that only goes forward, of all lanes of the path that can be asked. The most that
    /// each may send, bytes per second, in their order; `None`: as much as it likes.
    pub(crate) fn see(&mut self, now: Duration, seen: &[LaneSeen]) -> Vec<Option<u64>> {
        let busy = || seen.iter().filter(|lane| lane.is_busy && !lane.rtt.is_zero());
        if busy().next().is_none() {
            if now.saturating_sub(self.last_busy) >= FORGOTTEN_AFTER {
                *self = PathRate { lanes: std::mem::take(&mut self.lanes), ..PathRate::new() };
            }
            // A rate over a pause would be none.
            self.looks.clear();
            self.note_lanes(now, seen, Duration::ZERO);
            return self.caps(now, seen, Duration::ZERO);
        }
        let was_idle = self.looks.is_empty();
        self.last_busy = now;
        let rtt = busy().map(|lane| lane.rtt).min().unwrap_or_default();
        let min_rtt = busy().map(|lane| lane.min_rtt).filter(|rtt| !rtt.is_zero()).min().unwrap_or(rtt);
        let over = self.looks.back().map_or(Duration::ZERO, |(at, _)| now.saturating_sub(*at));
        self.note_lanes(now, seen, over);
        let rate = self.measure(now, rtt);
        let has_plenty = self.lanes.values().any(|lane| lane.has_plenty);
        self.turn_span(now, rtt, has_plenty && !was_idle);
        let is_queue = is_queue(rtt, min_rtt);
        self.has_queue = is_queue;
        match self.phase {
            // With little to send it would be the queue of somebody else, or of the other direction.
            Phase::Unknown if is_queue && has_plenty => {
                if let Some(rate) = rate {
                    self.phase = Phase::Held { since: now };
                    self.most = [rate, 0.0];
                    self.span_began = now;
                }
            }
            Phase::Unknown => {
                if let Some(rate) = rate.filter(|_| self.most[0] > 0.0) {
                    self.most[0] = self.most[0].max(rate);
                }
            }
            Phase::Held { since } => {
                let held = now.saturating_sub(since);
                if let Some(rate) = rate {
                    self.most[0] = self.most[0].max(rate);
                }
                if held >= rtt * HOLD_RTTS {
                    self.phase = Phase::Known;
                } else if !is_queue && held < min_rtt * DOUBT_RTTS {
                    self.phase = Phase::Unknown;
                }
            }
            Phase::Known => {
                if let Some(rate) = rate {
                    if rate > GROWTH * self.most[0].max(self.most[1]) {
                        self.grew = Some(now);
                    }
                    self.most[0] = self.most[0].max(rate);
                }
            }
        }
        self.caps(now, seen, min_rtt)
    }

    /// Counts what has arrived since the last look, `over` ago.
    fn note_lanes(&mut self, now: Duration, seen: &[LaneSeen], over: Duration) {
        self.lanes.retain(|id, _| seen.iter().any(|lane| lane.id == *id));
        for at in seen {
            let lane = self.lanes.entry(at.id).or_insert(Lane {
                delivered_bytes: at.delivered_bytes,
                began: None,
                rate: 0.0,
                buffer_limited: at.buffer_limited,
                has_plenty: false,
            });
            lane.has_plenty = at.is_busy && (!at.app_limited || at.buffer_limited > lane.buffer_limited);
            lane.buffer_limited = at.buffer_limited;
            let brought = at.delivered_bytes.saturating_sub(lane.delivered_bytes);
            lane.delivered_bytes = at.delivered_bytes;
            self.delivered_bytes += brought;
            if at.is_busy && lane.began.is_none() {
                lane.began = Some(now);
            }
            if !over.is_zero() {
                let part = (over.as_secs_f64() / at.rtt.max(MEASURE_MIN).as_secs_f64()).min(1.0);
                lane.rate += part * (brought as f64 / over.as_secs_f64() - lane.rate);
            }
        }
    }

    /// Bytes per second over the last half round trip, once it is that old.
    fn measure(&mut self, now: Duration, rtt: Duration) -> Option<f64> {
        let over = (rtt / 2).max(MEASURE_MIN);
        // The youngest look that is old enough, and none before it.
        while self.looks.len() > 1 && self.looks.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) >= over)
        {
            self.looks.pop_front();
        }
        let first = self.looks.front().copied();
        if self.looks.len() < LOOKS_MAX {
            self.looks.push_back((now, self.delivered_bytes));
        }
        let (at, before) = first?;
        let lasted = now.saturating_sub(at);
        (lasted >= over).then(|| (self.delivered_bytes - before) as f64 / lasted.as_secs_f64())
    }

    /// The older span's most is dropped when the running one has lasted. It does not run while there was too little to send.
    fn turn_span(&mut self, now: Duration, rtt: Duration, runs: bool) {
        if !runs {
            let over =
                self.looks.iter().rev().nth(1).map_or(Duration::ZERO, |(at, _)| now.saturating_sub(*at));
            self.span_began += over;
        } else if now.saturating_sub(self.span_began) >= SPAN.0.max(rtt * SPAN.1) {
            self.most = [0.0, self.most[0]];
            self.span_began = now;
        }
    }

    fn caps(&self, now: Duration, seen: &[LaneSeen], min_rtt: Duration) -> Vec<Option<u64>> {
        if self.most == [0.0; 2] {
            return vec![None; seen.len()];
        }
        let carries = self.most[0].max(self.most[1]);
        let busy = seen.iter().filter(|lane| lane.is_busy).count().max(1);
        let span = min_rtt.max(QUEUE_MIN) * PROBE_RTTS;
        // Without a queue some of the line is free, whatever it has shown.
        let all_probe =
            busy == 1 || !self.has_queue || self.grew.is_some_and(|at| now.saturating_sub(at) < span);
        let turn = (now.as_nanos() / span.as_nanos()) as usize % seen.len().max(1);
        let begins = |at: &LaneSeen| {
            let began = self.lanes.get(&at.id).and_then(|lane| lane.began);
            began.is_none_or(|began| now.saturating_sub(began) < at.rtt.max(min_rtt) * BEGINNER_RTTS)
        };
        // What one of many tries beside them would be too much: BBR in two connections has four times what the line holds in mind.
        let may_probe = busy == 1 || !seen.iter().any(|at| at.is_busy && begins(at));
        let mss = f64::from(seen.iter().map(|at| at.mss).max().unwrap_or_default().max(1));
        let first = FIRST * mss / min_rtt.max(QUEUE_MIN).as_secs_f64();
        let fair = carries / busy as f64;
        let weight = |at: &LaneSeen| {
            let rate = self.lanes.get(&at.id).map_or(0.0, |lane| lane.rate);
            // Not more than a lane that begins can have come to: nobody else would use it.
            let even = if begins(at) { (EVEN * fair).min(first + BEGINS * rate) } else { EVEN * fair };
            even + (1.0 - EVEN) * rate
        };
        let all: f64 = seen.iter().filter(|at| at.is_busy).map(weight).sum();
        let of = |(number, at): (usize, &LaneSeen)| {
            // One that has nothing in flight may begin at any time, as one more.
            let share = weight(at) / (if at.is_busy { all } else { all + weight(at) });
            let factor = match (self.phase, begins(at)) {
                (Phase::Unknown, _) => GROW,
                (Phase::Held { .. }, _) => 1.0,
                (_, false) if may_probe && (all_probe || number == turn) => PROBE,
                _ => LEFT,
            };
            let least = PACKETS_MIN * f64::from(at.mss.max(1)) / min_rtt.max(QUEUE_MIN).as_secs_f64();
            Some((factor * carries * share).max(least) as u64)
        };
        seen.iter().enumerate().map(of).collect()
    }

    /// When to look again, given the shortest round trip of the path and whether anything is in flight.
    pub(crate) fn look_again(&self, now: Duration, seen: &[LaneSeen]) -> Duration {
        let busy = || seen.iter().filter(|lane| lane.is_busy && !lane.min_rtt.is_zero());
        let Some(rtt) = busy().map(|lane| lane.min_rtt).min() else { return LOOK_IDLE };
        let is_young = |lane: &Lane| {
            lane.began
                .is_none_or(|began| now.saturating_sub(began) < (rtt * 2 * BEGINNER_RTTS).max(LOOK_IDLE))
        };
        let settles = self.phase != Phase::Known
            || seen.iter().any(|at| at.is_busy && self.lanes.get(&at.id).is_none_or(is_young));
        if settles { (rtt / 8).clamp(LOOK.0, LOOK.1) } else { LOOK_KNOWN.max(rtt / 4) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn lane(id: u64, now: Duration, rate: f64, queue: Duration) -> LaneSeen {
        LaneSeen {
            id,
            rtt: RTT + queue,
            min_rtt: RTT,
            delivered_bytes: (rate * now.as_secs_f64()) as u64,
            is_busy: true,
            app_limited: false,
            buffer_limited: Duration::ZERO,
            mss: 1448,
        }
    }

    /// One lane with this rate and queue from `from` to `until`; its last cap.
    fn run(path: &mut PathRate, from_ms: u64, until_ms: u64, rate: f64, queue_ms: u64) -> Option<u64> {
        let mut cap = None;
        for ms in (from_ms..until_ms).step_by(12) {
            let now = Duration::from_millis(ms);
            cap = path.see(now, &[lane(0, now, rate, Duration::from_millis(queue_ms))])[0];
        }
        cap
    }

    #[test]
    fn nothing_is_held_back_without_a_queue() {
        let mut path = PathRate::new();
        assert_eq!(run(&mut path, 0, 60_000, 1e6, 20), None);
        assert_eq!(path.carries(), None);
    }

    #[test]
    fn a_queue_that_stays_shows_what_the_line_carries() {
        let mut path = PathRate::new();
        run(&mut path, 0, 1000, 1e6, 0);
        let held = run(&mut path, 1000, 1100, 1e6, 50).expect("held");
        assert!((900_000..=1_100_000).contains(&held), "{held}");
        run(&mut path, 1100, 2000, 1e6, 50);
        assert!((0.9e6..1.1e6).contains(&path.carries().expect("known")), "{path:?}");
    }

    #[test]
    fn after_a_queue_that_goes_at_once_they_go_on_doubling() {
        let mut path = PathRate::new();
        run(&mut path, 0, 1000, 1e6, 0);
        assert!(run(&mut path, 1000, 1100, 1e6, 50).is_some());
        let cap = run(&mut path, 1100, 2000, 1e6, 0).expect("held to twice as much");
        assert!((1_900_000..2_200_000).contains(&cap), "{cap}");
        assert_eq!(path.carries(), None);
    }

    #[test]
    fn with_little_to_send_a_queue_is_somebody_elses() {
        let mut path = PathRate::new();
        for ms in (0..3000).step_by(12) {
            let now = Duration::from_millis(ms);
            let seen = LaneSeen { app_limited: true, ..lane(0, now, 1e5, RTT) };
            assert_eq!(path.see(now, &[seen]), [None]);
        }
        // But a send buffer that is full is not little.
        for ms in (3000..6000).step_by(12) {
            let now = Duration::from_millis(ms);
            path.see(now, &[LaneSeen { app_limited: true, buffer_limited: now, ..lane(0, now, 1e5, RTT) }]);
        }
        assert!(path.carries().is_some());
    }

    #[test]
    fn all_lanes_together_have_little_more_than_the_line_carries() {
        for (queue_ms, most) in [(50, 1_150_000), (0, 1_300_000)] {
            let mut path = PathRate::new();
            run(&mut path, 0, 1000, 1e6, 0);
            run(&mut path, 1000, 3000, 1e6, 50);
            let queue = Duration::from_millis(queue_ms);
            for ms in (3000..6000).step_by(50) {
                let now = Duration::from_millis(ms);
                let since = now.saturating_sub(Duration::from_secs(3));
                let first = LaneSeen {
                    delivered_bytes: 3_000_000 + (0.7e6 * since.as_secs_f64()) as u64,
                    ..lane(0, now, 0.0, queue)
                };
                let others = (1..4).map(|id| lane(id, since, 0.1e6, queue));
                let seen: Vec<LaneSeen> = std::iter::once(first).chain(others).collect();
                let caps = path.see(now, &seen);
                let sum: u64 = caps.iter().map(|cap| cap.expect("known")).sum();
                // One of them in turn tries a quarter more of its share.
                assert!(sum <= most + caps[0].unwrap_or_default() / 4, "{caps:?}");
                assert!(caps[0] > caps[1], "{caps:?}");
            }
        }
    }

    #[test]
    fn what_the_line_carries_is_kept_over_a_pause_and_forgotten_after_a_long_one() {
        let mut path = PathRate::new();
        run(&mut path, 0, 1000, 1e6, 0);
        run(&mut path, 1000, 2000, 1e6, 50);
        let idle = |path: &mut PathRate, seconds: u64| {
            let now = Duration::from_secs(seconds);
            path.see(now, &[LaneSeen { is_busy: false, ..lane(0, Duration::from_secs(2), 1e6, RTT) }])[0]
        };
        assert!(idle(&mut path, 100).is_some());
        assert_eq!(idle(&mut path, 400), None);
    }
}
