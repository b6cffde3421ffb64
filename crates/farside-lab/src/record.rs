//! What is written down of a run. Records are lines of JSON in a journal, so that a killed experiment goes on where it
//! was; the report is made from them alone. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub mod result;

/// Version of the records and of the result file; a reader refuses another one.
pub const RECORD_VERSION: u32 = 1;

/// Which cell of the experiment's matrix a run belongs to. Its text form (`t3/postgres/rsync-zstd/cubic`) is what a
/// filter matches.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// The link's name in the experiment.
    pub link: String,
    /// The data set's name in the experiment; absent for probes of the link itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// The contender.
    pub contender: String,
    /// Congestion control of all hosts in the run.
    pub congestion: String,
}

/// One run of one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// Which cell.
    pub cell: Cell,
    /// Counted from 1.
    pub repetition: u32,
    /// Of the link's losses and jitter.
    pub seed: u64,
    /// Digest of what was run: link, data, contender, farside. Runs of one cell are compared only if theirs are equal.
    pub digest: String,
    /// RFC 3339, UTC.
    pub started: String,
    /// The whole run with what is not counted (preparation, proof), seconds; estimates are made of it.
    pub whole_seconds: f64,
    /// Versions of what took part, by name: the contender's programs, farside's commit, the kernel.
    pub versions: BTreeMap<String, String>,
    /// The counted phases, in order.
    pub phases: Vec<PhaseRecord>,
    /// Why the run does not count; absent when it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Why the figures tell about the machine rather than the link: it dropped packets or sent them late. The run
    /// counts, and the report marks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow: Option<String>,
}

/// One counted phase of a run: `initial`, `update` or `measure`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseRecord {
    /// Name of the phase.
    pub phase: String,
    /// Which generation of the data it brought over (`A`, `B`, `day-3`); absent for probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<String>,
    /// Until the copy at b was complete and written.
    pub seconds: f64,
    /// What the link carried from a to b in it.
    pub forward: WayCounters,
    /// From b to a.
    pub back: WayCounters,
    /// Processor seconds of each site's processes, by site name.
    pub cpu_seconds: BTreeMap<String, f64>,
    /// Load average (one minute) of the machine at the phase's end.
    pub load: f64,
    /// Of the machine's processor time in the phase, what the host of a virtual machine gave to others, percent; absent
    /// where the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen_percent: Option<f64>,
    /// What came out of the link over time, where the experiment wants it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// What the contender measured itself, by name.
    #[serde(default)]
    pub figures: BTreeMap<String, Figure>,
}

/// What came out of the link in each interval of a phase, from the start of the phase's scripts on, all paths together.
/// The last interval is not whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Length of an interval.
    pub every_ms: u32,
    /// Bytes of IP at b, in JSON as words: a number a line would make results ten times as long.
    #[serde(with = "words")]
    pub forward: Vec<u64>,
}

/// Whole numbers as one string with blanks between them.
mod words {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(numbers: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
        let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
        serializer.serialize_str(&words.join(" "))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
        let words = String::deserialize(deserializer)?;
        words.split_ascii_whitespace().map(|word| word.parse().map_err(de::Error::custom)).collect()
    }
}

/// A measured number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The number.
    pub value: f64,
    /// Its unit, as a table's head shows it: `Mb/s`, `ms`, `%`.
    pub unit: String,
}

/// Counters of one way of a link: packets and bytes of IP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WayCounters {
    /// Packets that hosts gave to the link.
    pub packets_in: u64,
    /// Their bytes: what counts as bytes on the wire.
    pub bytes_in: u64,
    /// Packets that came out.
    pub packets_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Lost by the loss model.
    pub lost: u64,
    /// Dropped because the queue was full.
    pub dropped_queue: u64,
    /// Dropped because the link was down.
    pub dropped_down: u64,
    /// Larger than the MTU.
    pub dropped_size: u64,
    /// Overtaken by later packets.
    pub reordered: u64,
    /// Dropped by the TUN device before or after the emulator saw them: the machine was too slow. Not zero means that
    /// the run measured the machine.
    pub device_drops: u64,
    /// How late packets came out, against the moment the link's model says.
    pub lateness: Lateness,
}

/// The emulator's own lateness, microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Largest.
    pub max_us: f64,
    /// Share of packets more than 1 ms late, 0 to 1.
    pub over_1ms: f64,
    /// Whether the thread that carried the packets had real-time priority; without it other work delays them.
    #[serde(default)]
    pub real_time: bool,
}

/// The figures that every counted phase has beside the contender's own: name and unit.
pub const COMMON_FIGURES: [(&str, &str); 12] = [
    ("seconds", "s"),
    ("forward_mb", "MB"),
    ("back_mb", "MB"),
    ("wire_mb", "MB"),
    ("forward_packets", "packets"),
    ("back_packets", "packets"),
    ("forward_mbit", "Mb/s"),
    ("forward_loss_percent", "%"),
    ("back_loss_percent", "%"),
    ("cpu_a_seconds", "s"),
    ("cpu_b_seconds", "s"),
    ("cpu_seconds", "s"),
];

impl PhaseRecord {
    /// A figure by name: one of [`COMMON_FIGURES`], counted by the laboratory, or one of the contender's own. MB is
    /// 10^6 bytes of IP packets given to the link. `forward_loss_trials` and `back_loss_trials` are known beside them:
    /// how many packets the loss model decided about, for judging a share of losses.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<Figure> {
        let processor = |site: &str| self.cpu_seconds.get(site).copied();
        let value = match name {
            "seconds" => Some(self.seconds),
            "forward_mb" => Some(self.forward.bytes_in as f64 / 1e6),
            "back_mb" => Some(self.back.bytes_in as f64 / 1e6),
            "wire_mb" => Some((self.forward.bytes_in + self.back.bytes_in) as f64 / 1e6),
            "forward_packets" => Some(self.forward.packets_in as f64),
            "back_packets" => Some(self.back.packets_in as f64),
            "forward_mbit" => {
                (self.seconds > 0.0).then(|| self.forward.bytes_out as f64 * 8.0 / 1e6 / self.seconds)
            }
            "forward_loss_percent" => self.forward.loss_percent(),
            "back_loss_percent" => self.back.loss_percent(),
            "forward_loss_trials" => Some(self.forward.loss_trials() as f64),
            "back_loss_trials" => Some(self.back.loss_trials() as f64),
            "cpu_a_seconds" => processor("a"),
            "cpu_b_seconds" => processor("b"),
            "cpu_seconds" => (!self.cpu_seconds.is_empty()).then(|| self.cpu_seconds.values().sum()),
            own => return self.figures.get(own).cloned(),
        }?;
        let unit = COMMON_FIGURES.iter().find(|(common, _)| *common == name).map_or("", |(_, unit)| *unit);
        Some(Figure { value, unit: unit.to_owned() })
    }

    /// Names of all figures that this phase has, the common ones first.
    pub fn figure_names(&self) -> impl Iterator<Item = &str> {
        let common = COMMON_FIGURES.iter().map(|(name, _)| *name).filter(|name| self.figure(name).is_some());
        common.chain(self.figures.keys().map(String::as_str))
    }
}

impl WayCounters {
    /// Packets that the loss model had to decide about: it comes before the queue (`link/line.rs`), so those that found the
    /// queue full are among them; those that met an outage or are too large are not.
    #[must_use]
    pub fn loss_trials(&self) -> u64 {
        self.packets_in.saturating_sub(self.dropped_down + self.dropped_size)
    }

    /// What the loss model took, percent of [`Self::loss_trials`]; nothing if there were none.
    #[must_use]
    pub fn loss_percent(&self) -> Option<f64> {
        let trials = self.loss_trials();
        (trials > 0).then(|| self.lost as f64 * 100.0 / trials as f64)
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/", self.link)?;
        if let Some(data) = &self.data {
            write!(formatter, "{data}/")?;
        }
        write!(formatter, "{}/{}", self.contender, self.congestion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Line, LinkTerms, Moment, Verdict};

    #[test]
    fn a_full_queue_does_not_make_the_share_of_losses_larger() {
        let terms = LinkTerms { rate: Some(1_000_000), loss: Some(0.1), ..LinkTerms::default() };
        let mut line = Line::new(&terms.build("l").expect("a link").forward, 7);
        let mut counters = WayCounters::default();
        // Twice what the line carries: a packet of 1250 bytes takes it 10 ms, and one comes every 5 ms.
        for packet in 0..20_000 {
            counters.packets_in += 1;
            match line.arrive(Moment(packet * 5_000_000), 1250) {
                Verdict::Lost => counters.lost += 1,
                Verdict::QueueFull => counters.dropped_queue += 1,
                _ => {}
            }
        }
        assert!(counters.dropped_queue > 5_000, "{counters:?}");
        let percent = counters.loss_percent().expect("packets");
        // Three standard deviations of 20000 trials at 10 % are 0.64 %.
        assert!((percent - 10.0).abs() < 0.64, "{percent}");
    }
}
