//! How long things take: histograms with fixed bounds, for status and metrics. No clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::control;

/// Upper bounds of the parts of a histogram, microseconds; what is longer has a part of its own. From what a quick machine takes to
/// what a person feels.
const BOUNDS_MICROSECONDS: [u64; 14] = [
    100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
];

/// How often something took how long.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [AtomicU64; BOUNDS_MICROSECONDS.len() + 1],
    sum_microseconds: AtomicU64,
}

impl Histogram {
    /// It took so long once more.
    pub fn observe(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS_MICROSECONDS.partition_point(|bound| *bound < micros);
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        self.sum_microseconds.fetch_add(micros, Ordering::Relaxed);
    }

    /// As it is told.
    pub fn told(&self) -> control::Histogram {
        control::Histogram {
            bounds_seconds: BOUNDS_MICROSECONDS.iter().map(|bound| *bound as f64 / 1e6).collect(),
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum_seconds: self.sum_microseconds.load(Ordering::Relaxed) as f64 / 1e6,
        }
    }
}

/// What all trunks and the task that holds connections measure.
#[derive(Debug, Default)]
pub struct Figures {
    /// From a part's last byte to its being handed to the session: encoding, and the wait behind other parts.
    pub block_wait: Histogram,
    /// From a client's first packet to the decision about it.
    pub connection_hold: Histogram,
    /// First packets that are held now.
    pub held: AtomicU64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_counted_in_the_part_that_it_belongs_to() {
        let histogram = Histogram::default();
        for micros in [0, 100, 101, 2_500_000, 2_500_001, u64::MAX / 4] {
            histogram.observe(Duration::from_micros(micros));
        }
        let told = histogram.told();
        assert_eq!(told.counts.len(), told.bounds_seconds.len() + 1);
        assert_eq!((told.counts[0], told.counts[1], told.counts[13], told.counts[14]), (2, 1, 1, 2));
        assert_eq!(told.counts.iter().sum::<u64>(), 6);
        assert!((told.bounds_seconds[0] - 0.0001).abs() < 1e-9);
    }
}
