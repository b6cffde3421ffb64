//! Low priority: how many bytes a stream may have in flight so that it gives way to whatever else uses the path. Pure: the
//! clock and what was measured are arguments.
//!
//! After LEDBAT (RFC 6817) and LEDBAT++: what the round trip is longer than the shortest of the last minutes is a queue. A queue
//! shorter than a target is somebody's luck, a longer one somebody's delay. So the cap
//!
//! * doubles each round trip at first, until there is a queue of three quarters of the target;
//! * then grows by up to an eighth, the more the shorter the queue, and shrinks by up to half, the more the longer it is;
//! * falls to an eighth for two round trips now and then, so that the queue that it makes itself drains and the
//!   path shows its shortest round trip: one that begins beside a full queue would else take that for the path's own.
//!
//! The target is an eighth of the path's round trip, within 5 and 50 ms and at least what three segments take: RFC 6817's
//! 60 to 100 ms everywhere would be more queue than BBR ever makes on a short path, and beside BBR it would take its
//! share. On its own it loses nothing by a short target: the path is full when the queue begins.
//!
//! What the cap does not do is heed loss: the lanes' own congestion control does, beneath it.

#[cfg(test)]
mod simulation;

use std::time::Duration;

use crate::limits::PATHS_MAX;

/// Bounds of the target.
const TARGET: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));
/// Parts of the path's round trip that are the target.
const TARGET_PART: u32 = 8;
/// Segments whose time at the path's rate is the target at least: a queue is made of whole ones.
const TARGET_SEGMENTS: f64 = 3.0;
/// Share of the target at which the first, fast growth ends.
const ENOUGH: f64 = 0.75;
/// Growth in a round trip without a queue.
const GROWTH: f64 = 0.125;
/// The most that it shrinks by in a round trip.
const SHRINK_MAX: f64 = 0.5;
/// How much it shrinks for each target's length of queue beyond the target.
const SHRINK: f64 = 0.5;
/// Segments in flight at first.
const START_SEGMENTS: u64 = 10;
/// Segments in flight at least. Two were a fifth of a T1 beside a full queue.
const SEGMENTS_MIN: u64 = 1;
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

/// What is seen of a stream at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow<'a> {
    /// Time on any clock that only goes forward.
    pub(crate) now: Duration,
    /// Number of each path in use, and the shortest of the round trips that its lanes see now.
    pub(crate) rtts: &'a [(usize, Duration)],
    /// Bytes in flight now.
    pub(crate) in_flight_bytes: u64,
    /// Payload of a segment, bytes.
    pub(crate) mss: u32,
    /// Bytes per second that arrive, if that is known.
    pub(crate) delivery_rate: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    /// Doubles until there is a queue, or until it is back where it was.
    Start {
        until: u64,
    },
    Steady,
    /// Lets the queue drain until then; what the cap was before.
    Slow {
        until: Duration,
        before: u64,
    },
}

/// The shortest round trip of the last minutes on one path.
#[derive(Clone, Copy, Debug)]
struct Base {
    path: usize,
    spans: [Duration; BASE_SPANS],
    /// Number of the newest span since the clock's beginning.
    newest: u64,
}

/// The cap of one stream.
#[derive(Clone, Debug)]
pub(crate) struct Yielding {
    cap: u64,
    phase: Phase,
    bases: Vec<Base>,
    /// When it last decided, and the longest queue seen since.
    decided: Duration,
    queue: Option<Duration>,
    /// The cap was what limited the stream since then.
    was_used: bool,
    slow_at: Option<Duration>,
    /// The highest rate that was seen, bytes per second: the path's, not what is left of it now.
    fastest: u64,
}

impl Yielding {
    pub(crate) fn new() -> Yielding {
        Yielding {
            cap: 0,
            phase: Phase::Start { until: u64::MAX },
            bases: Vec::new(),
            decided: Duration::ZERO,
            queue: None,
            was_used: false,
            slow_at: None,
            fastest: 0,
        }
    }

    /// Learns from what is seen, several times in a round trip if that is cheap, and says how many bytes may be in flight. Nothing
    /// is decided more often than once in a round trip.
    pub(crate) fn see(&mut self, flow: &Flow<'_>) -> u64 {
        let least = SEGMENTS_MIN * u64::from(flow.mss);
        if self.cap == 0 {
            self.cap = START_SEGMENTS * u64::from(flow.mss.max(1));
        }
        let mut longest: Option<(Duration, Duration)> = None;
        for (path, rtt) in flow.rtts.iter().copied().filter(|(_, rtt)| !rtt.is_zero()).take(PATHS_MAX) {
            let base = self.base(path, rtt, flow.now);
            let queue = rtt.saturating_sub(base);
            if longest.is_none_or(|(most, _)| queue >= most) {
                longest = Some((queue, base));
            }
        }
        let Some((queue, base)) = longest else { return self.cap.max(least) };
        self.fastest = self.fastest.max(flow.delivery_rate.unwrap_or(0));
        self.was_used |= flow.in_flight_bytes >= self.cap / 2;
        // The shortest of a round trip's samples: a single long one may be the receiver's pause.
        self.queue = Some(self.queue.map_or(queue, |seen| seen.min(queue)));
        let rtt = base + queue;
        if flow.now.saturating_sub(self.decided) < rtt {
            return self.cap.max(least);
        }
        let queue = self.queue.take().unwrap_or(queue);
        self.decide(flow, least, queue.as_secs_f64() / self.target(base, flow.mss).as_secs_f64(), base, rtt);
        self.decided = flow.now;
        self.was_used = false;
        self.cap
    }

    /// `queue` is in targets.
    fn decide(&mut self, flow: &Flow<'_>, least: u64, queue: f64, base: Duration, rtt: Duration) {
        let pause = (SLOW_EVERY.0 * base).max(SLOW_EVERY.1);
        let slow_at = *self.slow_at.get_or_insert(flow.now + pause / 4);
        match self.phase {
            Phase::Slow { until, before } if flow.now >= until => {
                self.phase = Phase::Start { until: before };
                self.slow_at = Some(flow.now + pause);
            }
            Phase::Slow { .. } => return,
            Phase::Steady if flow.now >= slow_at && self.was_used => {
                let drains = rtt.saturating_sub(base);
                self.phase = Phase::Slow {
                    until: flow.now + drains + SLOW_RTTS * base.max(TARGET.0),
                    before: self.cap,
                };
                self.cap = (self.cap / SLOW_PART).max(least);
                return;
            }
            _ => {}
        }
        let factor = match self.phase {
            Phase::Start { until } if queue < ENOUGH && self.cap < until => 2.0,
            _ => {
                self.phase = Phase::Steady;
                if queue <= 1.0 {
                    1.0 + GROWTH * (1.0 - queue)
                } else {
                    1.0 - (SHRINK * (queue - 1.0)).min(SHRINK_MAX)
                }
            }
        };
        if factor > 1.0 && !self.was_used {
            return;
        }
        let next = (self.cap as f64 * factor) as u64;
        self.cap = match self.phase {
            Phase::Start { until } => next.min(until),
            _ => next,
        }
        .max(least);
    }

    fn target(&self, base: Duration, mss: u32) -> Duration {
        let segments = match self.fastest {
            0 => 0.0,
            rate => TARGET_SEGMENTS * f64::from(mss) / rate as f64,
        };
        let segments = Duration::from_secs_f64(segments.min(TARGET.1.as_secs_f64()));
        (base / TARGET_PART).max(segments).clamp(TARGET.0, TARGET.1)
    }

    /// The path's shortest round trip, this one included.
    fn base(&mut self, path: usize, rtt: Duration, now: Duration) -> Duration {
        let number = now.as_secs() / BASE_SPAN.as_secs();
        let at = match self.bases.iter().position(|base| base.path == path) {
            Some(at) => at,
            None => {
                if self.bases.len() >= PATHS_MAX {
                    self.bases.remove(0);
                }
                self.bases.push(Base { path, spans: [Duration::MAX; BASE_SPANS], newest: number });
                self.bases.len() - 1
            }
        };
        let base = &mut self.bases[at];
        for passed in base.newest + 1..=number.min(base.newest + BASE_SPANS as u64) {
            base.spans[(passed % BASE_SPANS as u64) as usize] = Duration::MAX;
        }
        base.newest = base.newest.max(number);
        let newest = &mut base.spans[(number % BASE_SPANS as u64) as usize];
        *newest = rtt.min(*newest);
        base.spans.iter().copied().min().unwrap_or(rtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(now_ms: u64, rtts: &[(usize, Duration)]) -> Flow<'_> {
        Flow {
            now: Duration::from_millis(now_ms),
            rtts,
            in_flight_bytes: u64::MAX / 4,
            mss: 1448,
            delivery_rate: Some(10_000_000),
        }
    }

    #[test]
    fn the_base_is_forgotten_after_ten_minutes() {
        let mut yielding = Yielding::new();
        let minute = |n: u64| Duration::from_secs(60 * n);
        assert_eq!(yielding.base(0, Duration::from_millis(20), minute(0)), Duration::from_millis(20));
        for n in 1..10 {
            assert_eq!(yielding.base(0, Duration::from_millis(50), minute(n)), Duration::from_millis(20));
        }
        assert_eq!(yielding.base(0, Duration::from_millis(50), minute(10)), Duration::from_millis(50));
        assert_eq!(yielding.base(0, Duration::from_millis(70), minute(1000)), Duration::from_millis(70));
    }

    #[test]
    fn grows_without_a_queue_and_gives_way_to_one() {
        let mut yielding = Yielding::new();
        let short = [(0, Duration::from_millis(100))];
        let mut cap = 0;
        for n in 1..=8 {
            cap = yielding.see(&flow(100 * n, &short));
        }
        assert!(cap > 100 * START_SEGMENTS * 1448, "{cap}");
        let long = [(0, Duration::from_millis(200))];
        for n in 1..=30 {
            cap = yielding.see(&flow(800 + 200 * n, &long));
        }
        assert_eq!(cap, SEGMENTS_MIN * 1448);
    }

    #[test]
    fn the_path_with_the_queue_decides_and_each_has_its_own_base() {
        let mut yielding = Yielding::new();
        let calm = [(0, Duration::from_millis(10)), (1, Duration::from_millis(90))];
        for n in 1..=10 {
            yielding.see(&flow(100 * n, &calm));
        }
        let grown = yielding.see(&flow(1100, &calm));
        let queued = [(0, Duration::from_millis(60)), (1, Duration::from_millis(90))];
        let mut cap = grown;
        for n in 1..=10 {
            cap = yielding.see(&flow(1100 + 100 * n, &queued));
        }
        assert!(cap < grown / 100, "{cap} after {grown}");
    }

    #[test]
    fn what_is_not_used_does_not_grow() {
        let mut yielding = Yielding::new();
        let rtts = [(0, Duration::from_millis(50))];
        for n in 1..=50 {
            let cap = yielding.see(&Flow { in_flight_bytes: 1000, ..flow(50 * n, &rtts) });
            assert_eq!(cap, START_SEGMENTS * 1448);
        }
        // Nothing measured: as it is.
        assert_eq!(yielding.see(&flow(4000, &[])), START_SEGMENTS * 1448);
    }
}
