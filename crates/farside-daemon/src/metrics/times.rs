//! How histograms that are counted elsewhere are shown.

use std::fmt::Write;

use farside_platform::Histogram;

/// A histogram's name, without what Prometheus appends, and what it is of.
pub(super) struct Times {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
}

/// As Prometheus has histograms: each part with all before it, in rising order. The exporter's own take no counts from elsewhere, and
/// keep each time in memory until somebody asks.
pub(super) fn show(page: &mut String, of: &Times, bounds_seconds: &[f64], counts: &[u64], sum_seconds: f64) {
    let Times { name, help } = of;
    let mut below = 0;
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} histogram");
    let bounds = bounds_seconds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
    for (bound, count) in bounds.zip(counts) {
        below += count;
        let _ = writeln!(page, "{name}_bucket{{le=\"{bound}\"}} {below}");
    }
    let _ = writeln!(page, "{name}_sum {sum_seconds}\n{name}_count {below}\n");
}

const READ: Times =
    Times { name: "farside_host_read_seconds", help: "How long reads of hosts took in the store" };
const WRITE: Times =
    Times { name: "farside_host_write_seconds", help: "How long writes of hosts took in the store" };
/// A flush on a good disk takes under a millisecond; one behind a consistency point may take a second.
const FLUSH: Times = Times { name: "farside_flush_seconds", help: "How long flushes of hosts took" };

/// What hosts waited for the store, without their network and the queue before it.
#[derive(Debug, Default)]
pub(crate) struct HostTimes {
    pub(crate) read: Histogram,
    pub(crate) write: Histogram,
    pub(crate) flush: Histogram,
}

impl HostTimes {
    pub(super) fn show(&self, page: &mut String) {
        for (times, of) in [(&READ, &self.read), (&WRITE, &self.write), (&FLUSH, &self.flush)] {
            let counted = of.counted();
            show(page, times, &counted.bounds_seconds, &counted.counts, counted.sum_seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_has_one_type_and_rising_parts() {
        let mut page = String::new();
        show(&mut page, &FLUSH, &[0.001, 0.01, 10.0], &[1, 2, 0, 4], 0.5);
        assert_eq!(
            page,
            "# HELP farside_flush_seconds How long flushes of hosts took\n# TYPE farside_flush_seconds histogram\n\
             farside_flush_seconds_bucket{le=\"0.001\"} 1\nfarside_flush_seconds_bucket{le=\"0.01\"} 3\n\
             farside_flush_seconds_bucket{le=\"10\"} 3\nfarside_flush_seconds_bucket{le=\"+Inf\"} 7\n\
             farside_flush_seconds_sum 0.5\nfarside_flush_seconds_count 7\n\n"
        );
    }
}
