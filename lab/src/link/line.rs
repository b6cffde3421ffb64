//! One direction of a link as a calculation: of each packet that arrives, when it comes out at the other end, or why it never
//! does.
//!
//! A packet that arrives meets, in this order: an outage; the MTU; the loss model; the queue; the line, which sends one
//! packet after the other at its rate; the delay, which varies by the jitter; and, if it is one of those to be overtaken,
//! some more delay. Losses come first, as the kernel's netem has it: a lost packet takes no time on the line, and which
//! packets are lost depends on the seed and their order alone, not on timing.
//!
//! The line keeps its own clock, exact to a fraction of a nanosecond: of a backlog, each packet leaves when the one before
//! it has left, whenever somebody asks. So an emulator that is late for one packet is not later for the next.
//!
//! Jitter is a delay that wanders with time, not by packet: it runs straight from one random value to the next, slowly
//! enough that no packet catches up with an earlier one. Packets close together share it, as on a real path whose queues
//! fill and drain.
//!
//! No clock, no device: time is what the caller says, and must not run backwards.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::loss::Losses;
use super::{Change, Shape};

const NANOS: u64 = 1_000_000_000;

/// A held back packet is late by at least this much, and by [`HOLD_BACK_PACKETS`] of the largest packets' time on the line,
/// so that four overtake it on a busy line: fewer than three do not make TCP think of a loss.
const HOLD_BACK_MIN: Duration = Duration::from_millis(1);
const HOLD_BACK_PACKETS: u64 = 5;

/// Nanoseconds since the link came up.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct LineTime(pub u64);

impl LineTime {
    /// That long after the link came up.
    #[must_use]
    pub fn after(time: Duration) -> Self {
        Self(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Time since `earlier`; none if that is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for LineTime {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(Self::after(time).0))
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It comes out.
    Passes(Passage),
    /// The loss model took it.
    Lost,
    /// The queue was full.
    QueueFull,
    /// The link is down.
    Down,
    /// It is larger than the MTU.
    TooLarge,
}

/// A packet's way through the line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Passage {
    /// Position among the packets that pass, in order of arrival.
    pub sequence: u64,
    /// When it comes out.
    pub due: LineTime,
    /// When its last bit leaves the line and the delay begins.
    sent: LineTime,
    /// From then until it comes out, if nothing is in front of it.
    transit: Duration,
    /// Later packets may overtake it.
    pub held_back: bool,
}

/// One direction of a link at work.
#[derive(Clone, Debug)]
pub struct Line {
    shape: Shape,
    up: bool,
    /// When all that the line was given is sent: whole nanoseconds, and the rest as a numerator over the rate.
    idle_at: u64,
    idle_fraction: u64,
    passed: u64,
    /// No packet comes out before this, unless held back: none overtakes.
    floor: LineTime,
    losses: Losses,
    jitter_process: JitterProcess,
    reorder: SmallRng,
}

impl Line {
    /// A line that is up and idle. All that is random in it follows from `seed`.
    #[must_use]
    pub fn new(shape: &Shape, seed: u64) -> Self {
        // Each kind of chance has a sequence of its own, so that switching one on leaves the others as they are.
        let mut seeds = SmallRng::seed_from_u64(seed);
        Self {
            up: true,
            idle_at: 0,
            idle_fraction: 0,
            passed: 0,
            floor: LineTime(0),
            losses: Losses::new(shape.loss.clone(), seeds.random()),
            jitter_process: JitterProcess::new(seeds.random()),
            reorder: SmallRng::seed_from_u64(seeds.random()),
            shape: shape.clone(),
        }
    }

    /// What it does to packets now.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// A packet of `bytes` arrives at `now`, no earlier than the one before it.
    pub fn arrive(&mut self, now: LineTime, bytes: u32) -> Verdict {
        if !self.up {
            return Verdict::Down;
        }
        if bytes > self.shape.mtu {
            return Verdict::TooLarge;
        }
        if self.losses.next() {
            return Verdict::Lost;
        }
        if self.waiting_bits(now) + u128::from(bytes) * 8 > u128::from(self.shape.queue_bytes) * 8 {
            return Verdict::QueueFull;
        }
        if self.idle_at < now.0 {
            self.idle_at = now.0;
            self.idle_fraction = 0;
        }
        // 65535 bytes in bits times 10^9 is below 2^50; the fraction is below the rate.
        let work = u64::from(bytes) * 8 * NANOS + self.idle_fraction;
        self.idle_at += work / self.shape.rate_bits;
        self.idle_fraction = work % self.shape.rate_bits;
        let sent = LineTime(self.idle_at);

        let held_back = self.shape.reorder > 0.0 && self.reorder.random::<f64>() < self.shape.reorder;
        let mut transit = self.shape.delay + self.jitter_process.at(sent, self.shape.jitter);
        if held_back {
            transit += self.shape.hold_back();
        }
        let sequence = self.passed;
        self.passed += 1;
        let mut passage = Passage { sequence, due: LineTime(0), sent, transit, held_back };
        self.let_out(&mut passage);
        Verdict::Passes(passage)
    }

    /// The shape changes at `now`. `on_the_way` are the passages of all packets that are not out yet; those that are not held
    /// back in order of arrival.
    ///
    /// A new rate holds for what waits too: passages get new times. Delay and loss hold for packets that arrive from now
    /// on, and none of these overtakes an earlier one. After [`Change::Down`] nothing that is on the way comes out: the caller
    /// drops it.
    pub fn change<'a>(
        &mut self,
        now: LineTime,
        change: &Change,
        on_the_way: impl Iterator<Item = &'a mut Passage>,
    ) {
        match change {
            Change::Rate { rate_bits } => {
                let before = self.shape.rate_bits;
                self.shape.rate_bits = *rate_bits;
                let retimed = |moment: u64| {
                    let bits_nanos = u128::from(moment.saturating_sub(now.0)) * u128::from(before);
                    let left = u64::try_from(bits_nanos / u128::from(*rate_bits)).unwrap_or(u64::MAX);
                    now.0.saturating_add(left)
                };
                if self.idle_at > now.0 {
                    self.idle_at = retimed(self.idle_at);
                }
                self.idle_fraction = 0;
                self.floor = LineTime(0);
                for passage in on_the_way {
                    if passage.sent > now {
                        passage.sent = LineTime(retimed(passage.sent.0));
                    }
                    self.let_out(passage);
                }
            }
            Change::Delay { delay } => self.shape.delay = *delay,
            Change::Loss { loss } => {
                self.shape.loss = loss.clone();
                self.losses.change(loss.clone());
            }
            Change::Down => {
                self.up = false;
                self.idle_at = now.0;
                self.idle_fraction = 0;
                self.floor = now;
            }
            Change::Up => self.up = true,
        }
    }

    /// Bits that wait for the line at `now`, the rest of the packet that it sends included.
    fn waiting_bits(&self, now: LineTime) -> u128 {
        let Some(nanos) = self.idle_at.checked_sub(now.0) else {
            return 0;
        };
        let work = u128::from(nanos) * u128::from(self.shape.rate_bits) + u128::from(self.idle_fraction);
        work.div_ceil(u128::from(NANOS))
    }

    /// When the packet comes out: after its transit, and no earlier than those before it.
    fn let_out(&mut self, passage: &mut Passage) {
        let due = passage.sent + passage.transit;
        if passage.held_back {
            passage.due = due;
        } else {
            passage.due = due.max(self.floor);
            self.floor = passage.due;
        }
    }
}

impl Shape {
    /// How long a packet that is to be overtaken is held back.
    #[must_use]
    pub fn hold_back(&self) -> Duration {
        if self.reorder == 0.0 {
            return Duration::ZERO;
        }
        let packets = HOLD_BACK_PACKETS * u64::from(self.mtu) * 8 * NANOS / self.rate_bits.max(1);
        HOLD_BACK_MIN.max(Duration::from_nanos(packets))
    }
}

/// Jitter as a function of time: straight lines between random values at even distances.
#[derive(Clone, Debug)]
struct JitterProcess {
    seed: u64,
    /// Which stretch the values belong to, and the values at its ends, 0 to 1.
    stretch: Option<(u64, f64, f64)>,
}

impl JitterProcess {
    fn new(seed: u64) -> Self {
        Self { seed, stretch: None }
    }

    /// The additional delay of a packet sent at `moment`, at most `jitter`.
    fn at(&mut self, moment: LineTime, jitter: Duration) -> Duration {
        let most = LineTime::after(jitter).0;
        if most == 0 {
            return Duration::ZERO;
        }
        // Values are two jitters apart, so the delay falls by at most half a second a second: packets come closer, to half
        // their distance at most, and none overtakes.
        let length = 2 * most;
        let index = moment.0 / length;
        let (from, to) = match self.stretch {
            Some((held, from, to)) if held == index => (from, to),
            _ => {
                let ends = (self.value(index), self.value(index + 1));
                self.stretch = Some((index, ends.0, ends.1));
                ends
            }
        };
        let part = (moment.0 % length) as f64 / length as f64;
        Duration::from_nanos(((from + (to - from) * part) * most as f64) as u64)
    }

    /// The value at an end of a stretch: by its number alone, so that idle time costs nothing.
    fn value(&self, index: u64) -> f64 {
        SmallRng::seed_from_u64(self.seed.wrapping_add(index)).random()
    }
}

#[cfg(test)]
mod tests;
