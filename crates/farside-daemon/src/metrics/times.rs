//! How histograms that are counted elsewhere are shown.

use farside_platform::Histogram;
use metrics::{Unit, counter, describe_counter, gauge};

/// The names of a histogram.
pub(super) struct Times {
    pub(super) bucket: &'static str,
    pub(super) sum: &'static str,
    pub(super) count: &'static str,
}

/// As Prometheus has histograms: each part with all before it. The exporter's own take no counts from elsewhere, and keep each
/// time in memory until somebody asks.
pub(super) fn show(names: &Times, bounds_seconds: &[f64], counts: &[u64], sum_seconds: f64) {
    let mut below = 0;
    let bounds = bounds_seconds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
    for (bound, count) in bounds.zip(counts) {
        below += count;
        counter!(names.bucket, "le" => bound).absolute(below);
    }
    counter!(names.count).absolute(below);
    gauge!(names.sum).set(sum_seconds);
}

const READ: Times = Times {
    bucket: "farside_host_read_seconds_bucket",
    sum: "farside_host_read_seconds_sum",
    count: "farside_host_read_seconds_count",
};
const WRITE: Times = Times {
    bucket: "farside_host_write_seconds_bucket",
    sum: "farside_host_write_seconds_sum",
    count: "farside_host_write_seconds_count",
};
/// A flush on a good disk takes under a millisecond; one behind a consistency point may take a second.
const FLUSH: Times = Times {
    bucket: "farside_flush_seconds_bucket",
    sum: "farside_flush_seconds_sum",
    count: "farside_flush_seconds_count",
};

/// What hosts waited for the store, without their network and the queue before it.
#[derive(Debug, Default)]
pub(crate) struct HostTimes {
    pub(crate) read: Histogram,
    pub(crate) write: Histogram,
    pub(crate) flush: Histogram,
}

impl HostTimes {
    pub(super) fn show(&self) {
        describe_counter!(READ.bucket, Unit::Count, "How long reads of hosts took in the store");
        describe_counter!(WRITE.bucket, Unit::Count, "How long writes of hosts took in the store");
        describe_counter!(FLUSH.bucket, Unit::Count, "How long flushes of hosts took");
        for (names, of) in [(&READ, &self.read), (&WRITE, &self.write), (&FLUSH, &self.flush)] {
            let counted = of.counted();
            show(names, &counted.bounds_seconds, &counted.counts, counted.sum_seconds);
        }
    }
}
