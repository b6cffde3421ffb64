//! What a link may be: each value's limits, with their reasons.

use std::time::Duration;

use thiserror::Error;

use super::{Change, Direction, Link, Loss, Shape};

/// Slowest line, bits a second: a packet of 1500 bytes takes 12 s on it.
pub const RATE_BITS_MIN: u64 = 1_000;

/// Fastest line: far beyond what a user-space emulator carries, still exact in the line's arithmetic.
pub const RATE_BITS_MAX: u64 = 100_000_000_000;

/// Longest one-way delay and jitter: ten seconds each, more than any path on Earth or by satellite.
pub const DELAY_MAX: Duration = Duration::from_secs(10);

/// What a direction may hold, waiting or on its way, in bytes of packets: a gigabit for 2 s with a queue as long. Buffers for
/// small packets cost more than these (`emulator/pool.rs` says how much).
pub const HELD_BYTES_MAX: u64 = 512 << 20;

/// IPv4 demands that every link carries 68 bytes.
pub const MTU_MIN: u32 = 68;

/// The largest IPv4 packet.
pub const MTU_MAX: u32 = 65_535;

/// Most packets lost in a row, in the mean: a burst of a thousand is an outage, which a script says better.
pub const MEAN_BURST_MAX: f64 = 1_000.0;

/// Largest share of packets held back: if more than half are, the others are what is out of order.
pub const REORDER_MAX: f64 = 0.5;

/// A value outside its limits.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("{what} is {given}; it must be {limits}")]
pub struct LimitError {
    /// Which value.
    pub what: &'static str,
    /// As given.
    pub given: String,
    /// What it may be.
    pub limits: String,
}

impl LimitError {
    fn new(what: &'static str, given: impl ToString, limits: impl ToString) -> Self {
        Self { what, given: given.to_string(), limits: limits.to_string() }
    }
}

impl Link {
    /// Whether every value is within its limits, now and after each change of the script.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check(&self) -> Result<(), LimitError> {
        self.forward.check()?;
        self.back.check()?;
        let mut before = Duration::ZERO;
        let mut shapes = [(Direction::Forward, self.forward.clone()), (Direction::Back, self.back.clone())];
        for event in &self.script {
            if event.at < before {
                return Err(LimitError::new(
                    "the time of a scripted change",
                    format!("{:?}", event.at),
                    "no earlier than the one before it",
                ));
            }
            before = event.at;
            for (direction, shape) in &mut shapes {
                if event.direction.is_none_or(|only| only == *direction) {
                    *shape = shape.changed(&event.change);
                    shape.check()?;
                }
            }
        }
        Ok(())
    }
}

impl Shape {
    /// Whether every value is within its limits.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check(&self) -> Result<(), LimitError> {
        if !(RATE_BITS_MIN..=RATE_BITS_MAX).contains(&self.rate_bits) {
            return Err(LimitError::new(
                "the rate",
                format!("{} bit/s", self.rate_bits),
                "1 kbit/s to 100 Gbit/s",
            ));
        }
        for (what, time) in [("the delay", self.delay), ("the jitter", self.jitter)] {
            if time > DELAY_MAX {
                return Err(LimitError::new(what, format!("{time:?}"), "at most 10s"));
            }
        }
        self.loss.check()?;
        if !(0.0..=REORDER_MAX).contains(&self.reorder) {
            return Err(LimitError::new(
                "the share of packets overtaken",
                percent(self.reorder),
                "0% to 50%",
            ));
        }
        if !(MTU_MIN..=MTU_MAX).contains(&self.mtu) {
            return Err(LimitError::new("the MTU", self.mtu, "68 to 65535 bytes"));
        }
        if self.queue_bytes < u64::from(self.mtu) {
            return Err(LimitError::new(
                "the queue",
                format!("{} bytes", self.queue_bytes),
                format!("at least one packet of the largest size ({} bytes)", self.mtu),
            ));
        }
        if self.held_bytes() > HELD_BYTES_MAX {
            return Err(LimitError::new(
                "what the link holds (queue, and rate times delay)",
                format!("{} MiB", self.held_bytes() >> 20),
                format!("at most {} MiB each direction", HELD_BYTES_MAX >> 20),
            ));
        }
        Ok(())
    }

    /// Most bytes of packets that can wait or be on their way at once.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        let longest = self.delay + self.jitter + self.hold_back();
        let on_the_way = u128::from(self.rate_bits) * longest.as_nanos() / 8 / 1_000_000_000;
        self.queue_bytes
            .saturating_add(u64::try_from(on_the_way).unwrap_or(u64::MAX))
            .saturating_add(u64::from(self.mtu))
    }

    /// The shape after `change`; `Down` and `Up` leave it as it is.
    #[must_use]
    pub fn changed(&self, change: &Change) -> Self {
        let mut shape = self.clone();
        match change {
            Change::Rate { rate_bits } => shape.rate_bits = *rate_bits,
            Change::Delay { delay } => shape.delay = *delay,
            Change::Loss { loss } => shape.loss = loss.clone(),
            Change::Down | Change::Up => {}
        }
        shape
    }
}

impl Loss {
    /// Whether a sequence with these values exists.
    ///
    /// # Errors
    /// The value that is outside its limits.
    pub fn check(&self) -> Result<(), LimitError> {
        let (rate, mean_burst) = match *self {
            Self::Random { rate } => (rate, 1.0),
            Self::Burst { rate, mean_burst } => (rate, mean_burst),
        };
        if !(0.0..=1.0).contains(&rate) {
            return Err(LimitError::new("the loss", percent(rate), "0% to 100%"));
        }
        if !(1.0..=MEAN_BURST_MAX).contains(&mean_burst) {
            return Err(LimitError::new("the mean number of packets lost in a row", mean_burst, "1 to 1000"));
        }
        // Between two bursts at least one packet passes, so no more than burst / (burst + 1) can be lost.
        if matches!(self, Self::Burst { .. }) && rate > mean_burst / (mean_burst + 1.0) {
            return Err(LimitError::new(
                "the loss",
                percent(rate),
                format!(
                    "at most {} with bursts of {mean_burst}, as packets pass between bursts",
                    percent(mean_burst / (mean_burst + 1.0))
                ),
            ));
        }
        Ok(())
    }
}

fn percent(share: f64) -> String {
    format!("{:.3}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Event, LinkTerms};

    fn link(terms: LinkTerms) -> Link {
        let terms = LinkTerms { rate: Some(1_000_000_000), ..terms };
        terms.build("x").unwrap()
    }

    /// What of a link is refused when `change` makes it wrong.
    fn refused(change: impl FnOnce(&mut Link)) -> &'static str {
        let mut link = link(LinkTerms::default());
        change(&mut link);
        link.check().unwrap_err().what
    }

    #[test]
    fn each_value_has_its_limits() {
        assert_eq!(refused(|l| l.back.rate_bits = 999), "the rate");
        assert_eq!(refused(|l| l.forward.delay = Duration::from_secs(11)), "the delay");
        assert_eq!(refused(|l| l.forward.jitter = Duration::from_secs(11)), "the jitter");
        assert_eq!(refused(|l| l.forward.reorder = 0.6), "the share of packets overtaken");
        assert_eq!(refused(|l| l.forward.reorder = f64::NAN), "the share of packets overtaken");
        assert_eq!(refused(|l| l.forward.mtu = 67), "the MTU");
        assert_eq!(refused(|l| l.forward.queue_bytes = 1499), "the queue");
        assert_eq!(refused(|l| l.forward.loss = Loss::Random { rate: f64::NAN }), "the loss");
        let burst = |rate, mean_burst| move |l: &mut Link| l.back.loss = Loss::Burst { rate, mean_burst };
        assert_eq!(refused(burst(0.1, 0.5)), "the mean number of packets lost in a row");
        // Bursts of two with one packet between them lose two thirds.
        assert_eq!(refused(burst(0.67, 2.0)), "the loss");
        let held = "what the link holds (queue, and rate times delay)";
        assert_eq!(refused(|l| l.forward.delay = Duration::from_secs(5)), held);
    }

    #[test]
    fn a_script_is_checked_as_it_adds_up() {
        let event = |at_ms, change| Event {
            at: Duration::from_millis(at_ms),
            direction: Some(Direction::Back),
            path: None,
            change,
        };
        let slower = event(1, Change::Rate { rate_bits: 1_000_000 });
        let longer = event(2, Change::Delay { delay: Duration::from_secs(5) });
        let script = |events: [&Event; 2]| Link {
            script: events.into_iter().cloned().collect(),
            ..link(LinkTerms::default())
        };
        assert_eq!(script([&slower, &longer]).check(), Ok(()));
        let backwards = script([&longer, &slower]).check().unwrap_err();
        assert_eq!(backwards.what, "what the link holds (queue, and rate times delay)");
        let (early, late) = (event(5, Change::Down), event(4, Change::Up));
        assert_eq!(script([&early, &late]).check().unwrap_err().what, "the time of a scripted change");
    }
}
