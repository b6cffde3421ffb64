//! What `/metrics` shows: names, units, buckets.

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// How long a flush of a host took, seconds. A flush on a good disk takes under a millisecond; one behind a
/// consistency point may take a second.
pub(crate) const FLUSH_SECONDS: &str = "farside_flush_seconds";

const FLUSH_BUCKETS: [f64; 12] =
    [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

/// Renders what has been measured.
#[derive(Clone)]
pub(crate) struct Metrics {
    handle: PrometheusHandle,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    /// Makes the process's recorder. In a process that has one already (several daemons in a test) that one stays,
    /// and this daemon's page shows only what is gathered when it is asked for.
    pub(crate) fn install() -> Metrics {
        let builder = PrometheusBuilder::new();
        // Fails only without buckets, and there are twelve.
        let builder = builder
            .set_buckets_for_metric(Matcher::Full(FLUSH_SECONDS.into()), &FLUSH_BUCKETS)
            .unwrap_or_else(|_| PrometheusBuilder::new());
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("this process records metrics already");
        }
        metrics::describe_histogram!(FLUSH_SECONDS, metrics::Unit::Seconds, "How long flushes of hosts took");
        Metrics { handle }
    }

    /// The page, in Prometheus's text format.
    pub(crate) fn render(&self) -> String {
        self.handle.run_upkeep();
        self.handle.render()
    }
}
