//! What came out of the link over time: a thread samples at the counters while a phase goes on, and what it saw is told
//! in even intervals.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::record::Series;
use crate::testbed::Laid;

/// Samples per interval: a sample that comes late shifts what it sees by less than half of one.
const SAMPLES: u32 = 2;

/// Most intervals of a series: an hour at 100 ms. Of a longer phase neighbours are put together until they fit.
const INTERVALS_MAX: usize = 36_000;

/// What the counters said: since the phase began, bytes out at b.
pub(super) type Sample = (Duration, u64);

/// A thread that samples until it is told to stop.
pub(super) struct Sampler<'scope> {
    stop: mpsc::Sender<()>,
    thread: ScopedJoinHandle<'scope, Vec<Sample>>,
}

impl<'scope> Sampler<'scope> {
    /// Begins now.
    pub(super) fn start(
        scope: &'scope thread::Scope<'scope, '_>,
        laid: &'scope Laid,
        every: Duration,
    ) -> Self {
        let (stop, stopped) = mpsc::channel();
        let begun = Instant::now();
        let thread = scope.spawn(move || {
            let mut samples: Vec<Sample> = Vec::new();
            // One sample more after the end, so that nothing that came out before it is missing.
            let mut is_last = false;
            while let Ok(counters) = laid.counters() {
                let out = counters.iter().map(|link| link.forward.bytes_out).sum();
                let at = begun.elapsed();
                samples.push((at, out));
                if is_last {
                    break;
                }
                let rest = (every / SAMPLES).saturating_sub(begun.elapsed() - at);
                is_last = stopped.recv_timeout(rest) != Err(RecvTimeoutError::Timeout);
            }
            samples
        });
        Self { stop, thread }
    }

    /// What it saw; nothing if the link failed, which the run itself tells.
    pub(super) fn stop(self) -> Vec<Sample> {
        // It may have ended by itself.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

/// In even intervals: between two samples bytes are taken to come evenly.
pub(super) fn by_intervals(samples: &[Sample], every: Duration) -> Series {
    let last = samples.last().map_or(0.0, |sample| sample.0.as_secs_f64());
    let mut seconds = every.as_secs_f64();
    while last / seconds > INTERVALS_MAX as f64 {
        seconds *= 2.0;
    }
    let every_ms = (seconds * 1e3).round() as u32;
    Series { every_ms, forward: intervals(samples, seconds, last) }
}

fn intervals(samples: &[Sample], seconds: f64, last: f64) -> Vec<u64> {
    let count = (last / seconds).ceil() as usize;
    let mut position = 0;
    // Bytes until a moment, moments in order.
    let mut until = |at: f64| -> f64 {
        while samples.get(position + 1).is_some_and(|sample| sample.0.as_secs_f64() <= at) {
            position += 1;
        }
        let Some(before) = samples.get(position) else { return 0.0 };
        let from = before.0.as_secs_f64();
        let Some(after) = samples.get(position + 1) else { return before.1 as f64 };
        let share = ((at - from) / (after.0.as_secs_f64() - from)).clamp(0.0, 1.0);
        before.1 as f64 + share * (after.1 as f64 - before.1 as f64)
    };
    let mut told = 0.0;
    let mut intervals = Vec::with_capacity(count);
    for index in 1..=count {
        // Rounded sums, not rounded parts: nothing is lost over a long phase.
        let now = until((index as f64 * seconds).min(last)).round().max(told);
        intervals.push((now - told) as u64);
        told = now;
    }
    intervals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(ms: u64, forward: u64) -> Sample {
        (Duration::from_millis(ms), forward)
    }

    #[test]
    fn late_looks_are_shared_out_over_the_intervals_and_nothing_is_lost() {
        let samples = [sample(0, 0), sample(50, 0), sample(150, 1000), sample(430, 3800)];
        let series = by_intervals(&samples, Duration::from_millis(100));
        assert_eq!(series.every_ms, 100);
        // 10 a millisecond from 50 on; the last interval has 30 ms.
        assert_eq!(series.forward, [500, 1000, 1000, 1000, 300]);
        assert_eq!(by_intervals(&[], Duration::from_millis(100)).forward, Vec::<u64>::new());
    }

    #[test]
    fn a_long_phase_has_longer_intervals() {
        let samples = [sample(0, 0), sample(50_000_000, 5_000_000)];
        let series = by_intervals(&samples, Duration::from_millis(100));
        assert_eq!(series.every_ms, 1600);
        assert!(series.forward.len() <= INTERVALS_MAX, "{}", series.forward.len());
        assert_eq!(series.forward.iter().sum::<u64>(), 5_000_000);
    }
}
