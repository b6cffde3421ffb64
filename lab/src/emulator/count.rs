//! What one direction counts.

use hdrhistogram::Histogram;

use crate::link::{LineTime, Verdict};
use crate::record::{DirectionCounters, Lateness};

use super::pending::Out;

/// The longest lateness that is told apart, nanoseconds: a minute.
const LATENESS_NANOS_MAX: u64 = 60_000_000_000;

/// Digits of a lateness that are kept: 1 % is enough for it, and the table stays in the processor's cache.
const LATENESS_DIGITS: u8 = 2;

/// Counters of a direction since the last mark.
#[derive(Debug)]
pub(super) struct Counts {
    counters: DirectionCounters,
    lateness: Histogram<u64>,
    real_time: bool,
}

impl Counts {
    pub(super) fn new() -> Self {
        #[expect(clippy::unwrap_used, reason = "the bounds are constants that the histogram takes")]
        let lateness = Histogram::new_with_bounds(1, LATENESS_NANOS_MAX, LATENESS_DIGITS).unwrap();
        Self { counters: DirectionCounters::default(), lateness, real_time: false }
    }

    /// Whether the thread has real-time priority.
    pub(super) fn runs_in_real_time(&mut self, real_time: bool) {
        self.real_time = real_time;
    }

    /// A packet went in, and this becomes of it.
    pub(super) fn went_in(&mut self, bytes: usize, verdict: &Verdict) {
        self.counters.packets_in += 1;
        self.counters.bytes_in += bytes as u64;
        match verdict {
            Verdict::Passes(_) => {}
            Verdict::Lost => self.counters.lost += 1,
            Verdict::QueueFull => self.counters.dropped_queue += 1,
            Verdict::Down => self.counters.dropped_down += 1,
            Verdict::TooLarge => self.counters.dropped_size += 1,
        }
    }

    /// A packet came out at `now`.
    pub(super) fn came_out(&mut self, out: &Out, now: LineTime) {
        self.counters.packets_out += 1;
        self.counters.bytes_out += out.packet.bytes().len() as u64;
        self.counters.reordered += u64::from(out.overtaken);
        let late = now.since(out.due);
        self.lateness.saturating_record(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX));
    }

    /// A packet was on its way when the link went down.
    pub(super) fn cut_off(&mut self) {
        self.counters.dropped_down += 1;
    }

    /// A packet that the machine could not keep or the kernel did not take.
    pub(super) fn machine_dropped(&mut self) {
        self.counters.device_drops += 1;
    }

    /// Counts anew.
    pub(super) fn mark(&mut self) {
        self.counters = DirectionCounters::default();
        self.lateness.reset();
    }

    pub(super) fn report(&self) -> DirectionCounters {
        let micros = |nanos: u64| nanos as f64 / 1e3;
        DirectionCounters {
            lateness: Lateness {
                p50_us: micros(self.lateness.value_at_quantile(0.5)),
                p99_us: micros(self.lateness.value_at_quantile(0.99)),
                max_us: micros(self.lateness.max()),
                real_time: self.real_time,
            },
            ..self.counters.clone()
        }
    }
}
