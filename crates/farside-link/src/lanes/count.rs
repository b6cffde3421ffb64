//! How many connections carry a stream: as few as fill the link. Pure: the clock and what was measured are arguments.
//!
//! One connection under BBR fills a link that is not long by itself; one under cubic does where nothing is lost, and gets about
//! `1.2 x segment / (round trip x root of loss)` where something is: 12 Mb/s at 20 ms and 0.3 %. Then two connections get twice that, and
//! more of a link that is shared with others than one would. A send buffer that is smaller than rate x round trip has the
//! same remedy.
//!
//! The rule is to try: with some more lanes, is the rate higher? Rates are compared over [`MEASURE_RTTS`] round trips, the lanes
//! that are new having had [`SETTLE_RTTS`] to find theirs. More lanes are kept for [`GAIN`] more; otherwise it goes back, and
//! waits twice as long until it tries again. Now and then fewer are tried and kept if they lose less than half of that. What
//! is measured while the stream had nothing to send, or was held back by a throttle or by the peer's window, counts for
//! nothing.
//!
//! Where the kernel itself says that a buffer is what limits most of the time, nothing needs to be tried: there are [`BUFFER_STEP`]
//! times as many at once. A line of OC-3 with 300 ms holds three buffers of 2 MiB, and a transfer of half a minute cannot wait
//! for a measure before each step.
//!
//! And nothing needs to be tried where the line is [`LONG`]: a loss keeps what came after it in the receiver's buffer for a round
//! trip or two, and of buffers of 4 to 6 MiB half is payload. So there are several lanes at least. A line that is [`FAR`] has
//! them before its rate is known; where every lane sees the queue of a full line no more are tried.
//!
//! What it guarantees: never more than it was allowed, never none; a step that is tried is a quarter of the lanes that there are,
//! or as many again after a step that paid for itself or where a buffer is what limits.

use std::time::Duration;

/// Lanes where each loss costs a connection a part of its rate, before anything is measured: with four a loss costs the stream
/// an eighth, not half.
const UNPACED_START: usize = 4;
/// A line that holds more has [`LONG_START`] lanes, bytes. Of an OC-3 with 100 ms and 0.1 %, which holds 1.9 MB, one connection
/// under BBR gets 123 Mb/s and four 149; of an OC-12 with 50 ms, 3.9 MB, one 316 and four 616 (iperf3). On an OC-3 with 20 ms,
/// 0.4 MB, one does.
const LONG: u64 = 512 * 1024;
/// See [`LONG`]. More at once gained nothing: on 1 Gb/s with 20 ms ten got 846 Mb/s (two runs), four 866 (five).
const LONG_START: usize = 4;
/// A line with such a round trip has them before its rate is known: that takes ten round trips, and then a lane is made in three more.
/// On an OC-3 with 300 ms a transfer was at full rate after seven seconds.
pub(crate) const FAR: Duration = Duration::from_millis(100);
/// A stream of which much is to come has [`LONG_START`] of them from its first byte there, and [`FARTHEST_START`] here: each doubles what
/// it sends in a round trip, beginning with 14 KB, and eight that begin at once have filled an OC-3 with 300 ms after seven (iperf3), where one
/// that is joined by three more needs eleven.
const FARTHEST: Duration = Duration::from_millis(200);
/// See [`FARTHEST`].
const FARTHEST_START: usize = 8;
/// On a line that is longer still, bytes of the line for each lane: a buffer of 4 MiB has 2.8 MB in flight, and a lost packet holds
/// what came after it for a round trip or two. With 2 MiB each four lanes of an OC-3 with 300 ms and 0.1 % had 1.75 of 1.94 MB in
/// 100 ms, limited by their buffers.
const LANE_HOLDS: u64 = 1 << 20;
/// A higher rate that is worth more lanes, as a factor. Less is within what a link shows by itself.
const GAIN: f64 = 1.05;
/// Rate that fewer lanes may lose, as a factor.
const LOSS: f64 = 0.975;
/// Round trips that new lanes have until they count: ten segments become some thousand in eight doublings.
const SETTLE_RTTS: u32 = 10;
/// Round trips over which a rate is measured: about one saw tooth of a connection with 0.1 % of loss.
const MEASURE_RTTS: u32 = 20;
/// The same at least, where a round trip is nothing: a daemon's own pauses must be small against it.
const SETTLE_MIN: Duration = Duration::from_millis(250);
/// See [`SETTLE_MIN`].
const MEASURE_MIN: Duration = Duration::from_millis(500);
/// Measures until more lanes are tried again after they gained nothing: at first and at most.
const WAIT_UP: (u32, u32) = (2, 256);
/// The same at first, where every lane is paced.
const PACED_WAIT_UP: u32 = 16;
/// The same for fewer lanes.
const WAIT_DOWN: (u32, u32) = (16, 256);
/// Share of the time in which a send buffer was full, that makes it what limits.
const BUFFER_LIMITS: f64 = 0.2;
/// The same, where it is so for sure and more are made without a trial; and how many.
const BUFFER_LIMITS_FOR_SURE: f64 = 0.5;
/// See [`BUFFER_LIMITS_FOR_SURE`].
const BUFFER_STEP: usize = 4;

/// What is seen of a stream's lanes at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Time on any clock that only goes forward.
    pub(crate) now: Duration,
    /// Lanes of each path that carry data. A measure waits until they are as many as were wanted.
    pub(crate) lanes: usize,
    /// Bytes that have arrived at the peer, all lanes together, since the stream began.
    pub(crate) delivered_bytes: u64,
    /// Round trip, of the path where it is longest.
    pub(crate) rtt: Duration,
    /// The shortest, without queues. Zero: not known.
    pub(crate) min_rtt: Duration,
    /// Every lane has a congestion control that loss does not slow (BBR), or a path that is so near that it does not for long.
    pub(crate) is_paced: bool,
    /// Every lane sees a queue as BBR makes it on a line that is full: more lanes would only make it longer.
    pub(crate) is_full: bool,
    /// Since the last time the stream always had more to send than its sockets took.
    pub(crate) was_backlogged: bool,
    /// Bytes that each path holds: the rate at which they arrive now x the round trip without queues. 0: not known.
    pub(crate) held_bytes: u64,
    /// Share of the time since then in which this side's socket buffers were what limited the lanes. Not the peer's: they are
    /// full when its machine is busy, too.
    pub(crate) buffer_limited: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Trial {
    None,
    /// With fewer lanes before, and their rate.
    More {
        before: usize,
        rate: f64,
    },
    /// With more lanes before, and their rate.
    Fewer {
        before: usize,
        rate: f64,
    },
}

/// A span over which a rate is measured.
#[derive(Clone, Copy, Debug)]
struct Measure {
    /// What is seen earlier does not count.
    not_before: Duration,
    /// When it began and what had arrived then.
    since: Option<(Duration, u64)>,
    buffer_limited: f64,
    looks: u32,
}

/// How many lanes each path of a stream should have.
#[derive(Clone, Debug)]
pub(crate) struct LaneCount {
    most: usize,
    /// As many as the line's length asks for.
    least: usize,
    /// Lanes to begin with, if that is known.
    start: Option<usize>,
    wanted: usize,
    pub(super) has_started: bool,
    trial: Trial,
    measure: Measure,
    /// Lanes that are new have found their rate by then.
    settled: Duration,
    /// The next step upwards may be as large as what there is.
    is_fast: bool,
    /// Measures until the next trial, and how many there were the last time.
    until_more: (u32, u32),
    until_fewer: (u32, u32),
}

impl LaneCount {
    /// For a stream which may have `most` lanes on each path, on a link where `start` were right the last time, if that is known.
    pub(crate) fn new(start: Option<usize>, most: usize) -> LaneCount {
        let most = most.max(1);
        LaneCount {
            most,
            least: 1,
            start: start.map(|lanes| lanes.clamp(1, most)),
            wanted: 1,
            has_started: false,
            trial: Trial::None,
            measure: Measure::from(Duration::ZERO),
            settled: Duration::ZERO,
            is_fast: false,
            until_more: (0, WAIT_UP.0),
            until_fewer: (WAIT_DOWN.0, WAIT_DOWN.0),
        }
    }

    /// The same with so many lanes before anything is sent.
    #[must_use]
    pub(crate) fn at_once(mut self, lanes: usize) -> LaneCount {
        if lanes > 1 {
            self.wanted = lanes.min(self.most);
            self.start = self.start.max(Some(self.wanted));
        }
        self
    }

    /// Lanes that each path should have now.
    pub(crate) fn wanted(&self) -> usize {
        self.wanted
    }

    /// Lanes that have proved themselves: what is only being tried is not among them.
    pub(super) fn kept(&self) -> usize {
        match self.trial {
            Trial::None => self.wanted,
            Trial::More { before, .. } | Trial::Fewer { before, .. } => before,
        }
    }

    /// Learns from what is seen, as often as once in a round trip or so, and says how many lanes each path should have now.
    pub(crate) fn see(&mut self, seen: &Seen) -> usize {
        if !self.has_started && seen.was_backlogged {
            self.has_started = true;
            self.wanted = match self.start {
                Some(lanes) => lanes,
                None if seen.is_paced => 1,
                None => UNPACED_START.min(self.most),
            };
            if seen.is_paced {
                // Loss does not slow it: what there is to gain by more is rare.
                self.until_more = (PACED_WAIT_UP, PACED_WAIT_UP);
            }
            if self.start.is_some() {
                // The link may have changed.
                self.until_fewer = (1, WAIT_DOWN.0);
            }
            self.measure = Measure::from(seen.now + settle(seen.rtt));
        }
        let is_far = seen.min_rtt >= FAR && seen.was_backlogged;
        self.least = least(seen.held_bytes).max(if is_far { LONG_START } else { 1 }).min(self.most);
        if !seen.was_backlogged {
            // Whatever is being tried was not tried.
            if let Trial::More { before, .. } | Trial::Fewer { before, .. } = self.trial {
                self.wanted = before;
                self.trial = Trial::None;
            }
            self.measure = Measure::from(seen.now);
        } else if self.wanted < self.least {
            self.wanted = self.least;
            self.trial = Trial::None;
            self.settled = seen.now + settle(seen.rtt);
            self.measure = Measure::from(self.settled);
        } else if seen.lanes < self.wanted {
            // Lanes that are still being made, or cannot be.
            self.settled = seen.now + settle(seen.rtt);
            self.measure = Measure::from(self.settled);
        } else if seen.buffer_limited >= BUFFER_LIMITS_FOR_SURE
            && seen.now >= self.settled
            && matches!(self.trial, Trial::Fewer { .. })
        {
            // These are too few.
            self.wanted = self.kept();
            self.trial = Trial::None;
            wait(&mut self.until_fewer, WAIT_DOWN.1);
            self.settled = seen.now + settle(seen.rtt);
            self.measure = Measure::from(self.settled);
        } else if seen.buffer_limited >= BUFFER_LIMITS_FOR_SURE
            && seen.now >= self.settled
            && self.wanted < self.most
        {
            self.wanted = (BUFFER_STEP * self.wanted).min(self.most);
            self.trial = Trial::None;
            self.until_more = (0, WAIT_UP.0);
            // That may have been too large a step.
            self.until_fewer = (1, WAIT_DOWN.0);
            self.settled = seen.now + settle(seen.rtt);
            self.measure = Measure::from(self.settled);
        } else if let Some((rate, buffer_limited)) = self.measure.look(seen) {
            self.decide(rate, buffer_limited >= BUFFER_LIMITS, seen.is_full && seen.is_paced);
            self.measure = Measure::from(match self.trial {
                Trial::None => seen.now,
                _ => seen.now + settle(seen.rtt),
            });
        }
        self.wanted
    }

    fn decide(&mut self, rate: f64, is_buffer_limited: bool, is_full: bool) {
        match self.trial {
            Trial::More { before, rate: earlier } => {
                self.trial = Trial::None;
                if rate >= GAIN * earlier {
                    // Did each new lane bring half of what each old one carried, there is likely more.
                    let added = (self.wanted - before) as f64 / before as f64;
                    self.is_fast = rate / earlier - 1.0 >= 0.5 * added;
                    self.until_more = (0, WAIT_UP.0);
                    // A large step that brought less went too far.
                    let soon = if added > 0.5 && !self.is_fast { 1 } else { WAIT_DOWN.0 };
                    self.until_fewer = (soon, WAIT_DOWN.0);
                } else {
                    self.wanted = before;
                    self.is_fast = false;
                    wait(&mut self.until_more, WAIT_UP.1);
                    return;
                }
            }
            Trial::Fewer { before, rate: earlier } => {
                self.trial = Trial::None;
                if rate >= LOSS * earlier {
                    self.until_fewer = (0, WAIT_DOWN.0);
                } else {
                    self.wanted = before;
                    wait(&mut self.until_fewer, WAIT_DOWN.1);
                    return;
                }
            }
            Trial::None => {}
        }
        if self.until_more.0 == 0 && self.wanted < self.most && !is_full {
            let step = if self.is_fast || is_buffer_limited { self.wanted } else { self.wanted.div_ceil(4) };
            self.trial = Trial::More { before: self.wanted, rate };
            self.wanted = (self.wanted + step).min(self.most);
        } else if self.until_fewer.0 == 0 && self.wanted > self.least {
            self.trial = Trial::Fewer { before: self.wanted, rate };
            self.wanted = (self.wanted - self.wanted.div_ceil(4)).max(self.least);
        } else {
            self.until_more.0 = self.until_more.0.saturating_sub(1);
            self.until_fewer.0 = self.until_fewer.0.saturating_sub(1);
        }
    }
}

/// Lanes on each path that a stream of which much is to come begins with, by the round trip without queues; zero: not known.
pub fn lanes_of_bulk(min_rtt: Duration) -> usize {
    match min_rtt {
        rtt if rtt >= FARTHEST => FARTHEST_START,
        rtt if rtt >= FAR => LONG_START,
        _ => 1,
    }
}

/// Lanes for a line that holds so many bytes.
pub(super) fn least(held_bytes: u64) -> usize {
    if held_bytes < LONG {
        return 1;
    }
    usize::try_from(held_bytes.div_ceil(LANE_HOLDS)).unwrap_or(usize::MAX).max(LONG_START)
}

/// The next time, and twice as long the time after.
fn wait(until: &mut (u32, u32), most: u32) {
    *until = (until.1, (2 * until.1).min(most));
}

fn settle(rtt: Duration) -> Duration {
    (rtt * SETTLE_RTTS).max(SETTLE_MIN)
}

impl Measure {
    fn from(not_before: Duration) -> Measure {
        Measure { not_before, since: None, buffer_limited: 0.0, looks: 0 }
    }

    /// Bytes per second, and the share of the time for which buffers were full, once it has lasted.
    fn look(&mut self, seen: &Seen) -> Option<(f64, f64)> {
        if seen.now < self.not_before {
            return None;
        }
        let (began, before) = *self.since.get_or_insert((seen.now, seen.delivered_bytes));
        let lasted = seen.now.saturating_sub(began);
        if lasted.is_zero() {
            return None;
        }
        self.buffer_limited += seen.buffer_limited;
        self.looks += 1;
        if lasted < (seen.rtt * MEASURE_RTTS).max(MEASURE_MIN) {
            return None;
        }
        let bytes = seen.delivered_bytes.saturating_sub(before) as f64;
        Some((bytes / lasted.as_secs_f64(), self.buffer_limited / f64::from(self.looks)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// Feeds what a link with this rate for each number of lanes shows, for so many round trips.
    fn run(count: &mut LaneCount, start: &mut Seen, rtts: u32, rate: impl Fn(usize) -> f64) -> Vec<usize> {
        let mut wanted = Vec::new();
        for _ in 0..rtts {
            start.now += RTT;
            start.delivered_bytes += (rate(start.lanes) * RTT.as_secs_f64()) as u64;
            start.lanes = count.see(start);
            wanted.push(start.lanes);
        }
        wanted
    }

    fn seen(is_paced: bool) -> Seen {
        Seen {
            now: Duration::ZERO,
            lanes: 1,
            delivered_bytes: 0,
            rtt: RTT,
            is_paced,
            was_backlogged: true,
            min_rtt: Duration::ZERO,
            is_full: false,
            held_bytes: 0,
            buffer_limited: 0.0,
        }
    }

    #[test]
    fn one_lane_that_fills_the_link_stays_alone() {
        let (mut count, mut at) = (LaneCount::new(None, 32), seen(true));
        let wanted = run(&mut count, &mut at, 20_000, |_| 1e7);
        let alone = wanted.iter().filter(|n| **n == 1).count();
        assert!(alone * 100 >= wanted.len() * 95, "{alone} of {}", wanted.len());
    }

    #[test]
    fn as_many_as_the_link_pays_and_never_more_than_allowed() {
        let (mut count, mut at) = (LaneCount::new(None, 32), seen(false));
        let wanted = run(&mut count, &mut at, 2000, |n| 1e6 * n.min(11) as f64);
        assert!((11..=16).contains(wanted.last().unwrap()), "{wanted:?}");
        let (mut count, mut at) = (LaneCount::new(None, 16), seen(false));
        let wanted = run(&mut count, &mut at, 1000, |n| 1e6 * n as f64);
        assert_eq!((wanted.iter().max(), wanted.last()), (Some(&16), Some(&16)));
    }

    #[test]
    fn goes_back_when_the_link_no_longer_pays() {
        let (mut count, mut at) = (LaneCount::new(None, 32), seen(false));
        run(&mut count, &mut at, 1000, |n| 1e6 * n as f64);
        assert_eq!(count.wanted(), 32);
        let wanted = run(&mut count, &mut at, 40_000, |n| 1e6 * n.min(3) as f64);
        assert!(*wanted.last().unwrap() <= 4, "{:?}", wanted.last());
    }

    #[test]
    fn begins_with_what_was_right_the_last_time_and_does_not_stick_to_it() {
        let (mut count, mut at) = (LaneCount::new(Some(8), 32), seen(true));
        assert_eq!(count.wanted(), 1, "nothing is known to be sent");
        assert_eq!(run(&mut count, &mut at, 100, |n| 1e6 * n.min(8) as f64)[0], 8);
        let (mut count, mut at) = (LaneCount::new(Some(8), 32), seen(true));
        let wanted = run(&mut count, &mut at, 2000, |_| 8e6);
        assert_eq!(wanted.last(), Some(&1), "{wanted:?}");
    }

    #[test]
    fn as_many_as_the_line_is_long_without_a_trial() {
        let (mut count, mut at) = (LaneCount::new(None, 16), seen(true));
        run(&mut count, &mut at, 1, |_| 1e7);
        for (held, lanes) in
            [(0, 1), (500_000, 1), (972_000, 4), (3_900_000, 4), (12_500_000, 12), (37_500_000, 16)]
        {
            at.held_bytes = held;
            assert_eq!(run(&mut count, &mut at, 3, |_| 1e7).last(), Some(&lanes), "{held}");
        }
        let wanted = run(&mut count, &mut at, 2000, |_| 1e7);
        assert_eq!(wanted.iter().min(), Some(&16), "fewer are not even tried");
        at.held_bytes = 0;
        let wanted = run(&mut count, &mut at, 4000, |_| 1e7);
        assert_eq!(wanted.last(), Some(&1), "until the line is shorter");
    }

    #[test]
    fn a_line_that_is_full_is_not_tried_with_more() {
        let (mut count, mut at) = (LaneCount::new(None, 32), seen(true));
        at.is_full = true;
        assert_eq!(run(&mut count, &mut at, 5000, |_| 1e7).iter().max(), Some(&1));
        // It may be somebody else's queue, where loss slows these lanes.
        let (mut count, mut at) = (LaneCount::new(None, 32), seen(false));
        at.is_full = true;
        assert_eq!(run(&mut count, &mut at, 2000, |n| 1e6 * n as f64).last(), Some(&32));
    }

    #[test]
    fn a_line_that_is_far_has_several_before_its_rate_is_known() {
        let (mut count, mut at) = (LaneCount::new(None, 32), seen(true));
        at.min_rtt = FAR;
        at.was_backlogged = false;
        assert_eq!(run(&mut count, &mut at, 3, |_| 1e4), [1; 3]);
        at.was_backlogged = true;
        assert_eq!(run(&mut count, &mut at, 3, |_| 1e4), [LONG_START; 3]);
    }

    #[test]
    fn a_stream_of_which_much_is_to_come_begins_with_several_on_a_far_line() {
        let ms = Duration::from_millis;
        assert_eq!([0, 20, 100, 150, 200, 300].map(|rtt| lanes_of_bulk(ms(rtt))), [1, 1, 4, 4, 8, 8]);
        let (mut count, mut at) = (LaneCount::new(None, 32).at_once(8), seen(true));
        (at.lanes, at.min_rtt, at.was_backlogged) = (8, FAR, false);
        assert_eq!(count.wanted(), 8);
        assert_eq!(run(&mut count, &mut at, 3, |_| 1e4), [8; 3], "whatever the start shows");
        at.was_backlogged = true;
        assert_eq!(run(&mut count, &mut at, 20, |_| 1e6), [8; 20]);
        let wanted = run(&mut count, &mut at, 2000, |_| 1e6);
        assert_eq!(wanted.last(), Some(&LONG_START), "where fewer bring as much, fewer stay");
        let known = LaneCount::new(Some(12), 32).at_once(8);
        assert_eq!((known.wanted(), known.start), (8, Some(12)), "more were right the last time");
        assert_eq!(LaneCount::new(Some(12), 32).at_once(1).wanted(), 1);
    }

    #[test]
    fn a_full_buffer_needs_no_trial() {
        let (mut count, mut at) = (LaneCount::new(None, 32), seen(true));
        let mut steps = Vec::new();
        for _ in 0..500 {
            // Eight buffers fill the link.
            at.buffer_limited = if at.lanes < 8 { 0.9 } else { 0.0 };
            steps.extend(run(&mut count, &mut at, 1, |n| 1e6 * n.min(8) as f64));
        }
        let last = *steps.last().unwrap();
        assert!((8..=10).contains(&last), "{steps:?}");
        steps.dedup();
        assert_eq!(steps[..2], [4, 16], "{steps:?}");
    }

    #[test]
    fn a_buffer_that_is_full_at_times_doubles_for_a_trial() {
        let (mut count, mut at) = (LaneCount::new(None, 32), seen(true));
        at.buffer_limited = 0.3;
        let mut steps = run(&mut count, &mut at, 1000, |n| 1e6 * n.min(8) as f64);
        steps.dedup();
        assert_eq!(steps[..4], [1, 2, 4, 8], "{steps:?}");
    }

    #[test]
    fn what_had_nothing_to_send_proves_nothing() {
        let (mut count, mut at) = (LaneCount::new(None, 32), seen(true));
        at.was_backlogged = false;
        assert_eq!(run(&mut count, &mut at, 500, |n| 1e6 * n as f64), vec![1; 500]);
        at.was_backlogged = true;
        run(&mut count, &mut at, 22, |n| 1e6 * n as f64);
        at.was_backlogged = false;
        let wanted = run(&mut count, &mut at, 1, |n| 1e6 * n as f64);
        assert_eq!(wanted, vec![1], "a trial in which the stream ran dry is taken back");
    }
}
