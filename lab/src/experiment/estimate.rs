//! How long runs will take, from what earlier ones took and, before there are any, from how much data there is and how
//! fast the link is. Pure. Estimates also set the limits after which a phase counts as hung ([`phase_limit`]).

use std::time::Duration;

use super::expect::loss_rate;
use super::plan::{self, PlannedRun};
use super::stats::median;
use crate::link::Link;
use crate::record::RunRecord;
use crate::record::result::DataFacts;

/// Laying the link and starting programs where nothing is known: runs of next to no data take about a second.
const UNCOUNTED_SECONDS: f64 = 1.5;

/// Reading, hashing and comparing the data, per byte and generation: 200 MB/s on a busy machine, three times.
const SECONDS_PER_BYTE: f64 = 3.0 / 200e6;

/// What a probe of the link takes where nothing is known: ten seconds of traffic, and the start.
const PROBE_SECONDS: f64 = 15.0;

/// How many times as long as the line needs a contender takes at most for a portion of data.
const PORTION_PATIENCE: f64 = 2.0;

/// A phase may take this many times the estimate of its whole run before it counts as hung. Peers differ in bytes by a
/// factor of ten, and losses fall badly by a factor of two.
const LIMIT_FACTOR: f64 = 20.0;

/// No phase counts as hung before: an estimate of seconds says nothing on a machine that is busy with something else.
const LIMIT_LEAST: Duration = Duration::from_secs(300);

/// No phase may take longer than a day, whatever the estimate.
const LIMIT_MOST: Duration = Duration::from_secs(24 * 3600);

/// Where an estimate comes from, the best first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Source {
    /// Earlier runs of the same cell.
    SameCell,
    /// The size of the data under `zstd -3` and the rate of the link.
    Computed,
}

/// How long one run will take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The whole run, seconds.
    pub seconds: f64,
    /// From where.
    pub source: Source,
}

/// What is known before anything runs.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Runs made before.
    pub records: &'a [RunRecord],
    /// The experiment's links.
    pub links: &'a [Link],
    /// How many bytes of the data each of them carries; all where nothing is said.
    pub portions: &'a [Option<u64>],
    /// The experiment's data sets.
    pub data: &'a [DataFacts],
}

impl Known<'_> {
    /// How long `run` will take.
    #[must_use]
    pub fn estimate(&self, run: &PlannedRun) -> Estimate {
        let earlier = self.records.iter().filter(|record| record.failed.is_none() && record.cell == run.cell);
        let seconds: Vec<f64> = earlier.map(|record| record.whole_seconds).collect();
        if let Some(seconds) = median(&seconds) {
            return Estimate { seconds, source: Source::SameCell };
        }
        Estimate { seconds: self.computed(run), source: Source::Computed }
    }

    /// How long all of `left` will take, runs beside each other where they may be.
    #[must_use]
    pub fn total_seconds(&self, left: &[PlannedRun]) -> f64 {
        let mut waiting = left.to_vec();
        let mut running: Vec<(f64, PlannedRun)> = Vec::new();
        let mut now = 0.0;
        while !waiting.is_empty() || !running.is_empty() {
            let beside: Vec<PlannedRun> = running.iter().map(|(_, run)| run.clone()).collect();
            if let Some(position) = plan::next(&waiting, &beside) {
                let run = waiting.remove(position);
                running.push((now + self.estimate(&run).seconds, run));
                continue;
            }
            let earliest =
                running.iter().enumerate().min_by(|(_, one), (_, other)| one.0.total_cmp(&other.0));
            let Some((position, _)) = earliest else { break };
            now = running.swap_remove(position).0;
        }
        now
    }

    /// What a run takes where nothing is known of such ones; at least as long as what happens to its link.
    fn computed(&self, run: &PlannedRun) -> f64 {
        let script = self.links[run.link].script.last().map_or(0.0, |event| event.at.as_secs_f64());
        script + self.computed_undisturbed(run)
    }

    fn computed_undisturbed(&self, run: &PlannedRun) -> f64 {
        let link = &self.links[run.link];
        let portion = self.portions.get(run.link).copied().flatten();
        let Some(data) = run.data.and_then(|data| self.data.get(data)) else {
            let of_portion =
                |bytes: u64| bytes as f64 * 8.0 / link.forward.rate_bits.max(1) as f64 + UNCOUNTED_SECONDS;
            return portion.map_or(PROBE_SECONDS, of_portion);
        };
        let rate = goodput_bits(link, &run.cell.congestion);
        let mut seconds = UNCOUNTED_SECONDS;
        for generation in &data.generations {
            // An update sends the changed blocks at best, which compress as the rest does.
            let changed = generation.changed_blocks.map_or(1.0, |blocks| {
                (blocks as f64 * 4096.0 / (generation.size_bytes.max(1) as f64)).min(1.0)
            });
            let size = generation.size_bytes.max(1) as f64;
            let share = portion.map_or(1.0, |bytes| (bytes as f64 / size).min(1.0));
            let sent = generation.zstd_bytes as f64 * share * changed * 8.0;
            // Who carries a portion does not try for longer than a few times what the line needs.
            let rate = if portion.is_some() {
                rate.max(link.forward.rate_bits as f64 / PORTION_PATIENCE)
            } else {
                rate
            };
            seconds += sent / rate;
            seconds += size * share * SECONDS_PER_BYTE;
        }
        seconds
    }
}

/// What one TCP connection gets from a to b, bits a second, at most the line's rate. Random losses keep cubic and reno
/// to about 1.2 segments per round trip and root of the loss; bbr does not care below some percent.
fn goodput_bits(link: &Link, congestion: &str) -> f64 {
    let rate = link.forward.rate_bits as f64;
    let loss = loss_rate(&link.forward.loss);
    let rtt = (link.forward.delay + link.back.delay).as_secs_f64();
    if congestion.starts_with("bbr") || loss <= 0.0 || rtt <= 0.0 {
        return rate;
    }
    let segment_bits = f64::from(link.forward.mtu.saturating_sub(52)) * 8.0;
    rate.min(1.2 * segment_bits / (rtt * loss.sqrt())).max(1.0)
}

/// How long one phase of a run may take before it counts as hung.
#[must_use]
pub fn phase_limit(estimate: Estimate) -> Duration {
    let seconds = (estimate.seconds * LIMIT_FACTOR).min(LIMIT_MOST.as_secs_f64());
    Duration::try_from_secs_f64(seconds).map_or(LIMIT_LEAST, |limit| limit.max(LIMIT_LEAST))
}

#[cfg(test)]
mod tests;
