//! How long things take: histograms with fixed bounds, for status and metrics. No clock, and no memory that grows: whoever
//! never asks costs nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the parts of a histogram, microseconds; what is longer has a part of its own. From a read that memory answers
/// to what a person takes for a hang.
const BOUNDS_MICROSECONDS: [u64; 17] = [
    25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000,
];

/// How often something took how long.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [AtomicU64; BOUNDS_MICROSECONDS.len() + 1],
    sum_nanoseconds: AtomicU64,
}

/// What a histogram says.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// Upper bounds of the parts, seconds, rising.
    pub bounds_seconds: Vec<f64>,
    /// One more than there are bounds: the last is of what took longer than all of them.
    pub counts: Vec<u64>,
    /// Of all that was counted.
    pub sum_seconds: f64,
}

impl Histogram {
    /// It took so long once more.
    pub fn observe(&self, took: Duration) {
        self.observe_many(1, took);
    }

    /// It took so long so many times.
    pub fn observe_many(&self, times: u64, took: Duration) {
        let micros = took.as_nanos().div_ceil(1000);
        let at = BOUNDS_MICROSECONDS.partition_point(|bound| u128::from(*bound) < micros);
        self.counts[at].fetch_add(times, Ordering::Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.sum_nanoseconds.fetch_add(nanoseconds.wrapping_mul(times), Ordering::Relaxed);
    }

    /// What was counted until now.
    pub fn counted(&self) -> Counted {
        Counted {
            bounds_seconds: BOUNDS_MICROSECONDS.iter().map(|bound| *bound as f64 / 1e6).collect(),
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum_seconds: self.sum_nanoseconds.load(Ordering::Relaxed) as f64 / 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_counted_in_the_part_that_it_belongs_to() {
        let histogram = Histogram::default();
        for micros in [0, 25, 26, 5_000_000, 5_000_001] {
            histogram.observe(Duration::from_micros(micros));
        }
        histogram.observe_many(3, Duration::from_nanos(25_001));
        let counted = histogram.counted();
        assert_eq!(counted.counts.len(), counted.bounds_seconds.len() + 1);
        assert_eq!(
            (counted.counts[0], counted.counts[1], counted.counts[16], counted.counts[17]),
            (2, 4, 1, 1)
        );
        assert_eq!(counted.counts.iter().sum::<u64>(), 8);
        assert!((counted.bounds_seconds[0] - 0.000_025).abs() < 1e-9);
        assert!((counted.sum_seconds - 10.000_127).abs() < 1e-6, "{}", counted.sum_seconds);
    }

    #[test]
    fn what_took_longer_than_can_be_said_is_counted_too() {
        let histogram = Histogram::default();
        histogram.observe(Duration::MAX);
        assert_eq!(histogram.counted().counts.last(), Some(&1));
    }
}
