//! What is written down of a run. Records are lines of JSON in a journal, so that a killed experiment goes on where it
//! was; the report is made from them alone. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub mod compact;
pub mod flow;
pub mod result;

/// Version of the records and of the result file; a reader refuses another one.
pub const RECORD_VERSION: u32 = 2;

/// Which cell of the experiment's matrix a run belongs to. Its text form (`t3/postgres/rsync-zstd/cubic`) is what a
/// filter matches.
#[derive(Clone, Debug, Default, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Cell {
    /// The link's name in the experiment.
    pub link: String,
    /// The data set's name in the experiment; absent for probes of the link itself.
    pub data: Option<String>,
    /// The contender.
    pub contender: String,
    /// Congestion control of all hosts in the run.
    pub congestion: String,
}

/// One run of one cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`RECORD_VERSION`]; zero, and not written, in a result, whose head has it.
    #[serde(default, skip_serializing_if = "compact::is_default")]
    pub version: u32,
    /// Which cell.
    pub cell: Cell,
    /// Counted from 1.
    pub repetition: u32,
    /// Of the link's losses and jitter; follows from the experiment's. Results leave it out.
    #[serde(default, skip_serializing_if = "compact::is_zero")]
    pub seed: u64,
    /// Digest of what was run: link, data, contender, farside. Runs of one cell are compared only if theirs are equal. Results
    /// leave it out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// RFC 3339, UTC. Results have the first and the last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub started: String,
    /// The whole run with what is not counted (preparation, proof), seconds; estimates are made of it. Results leave it out.
    #[serde(default, serialize_with = "compact::float", skip_serializing_if = "compact::is_default")]
    pub whole_seconds: f64,
    /// Versions of what took part, by name: the contender's programs, farside's commit, the kernel. Results have them once.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseRecord {
    /// Name of the phase.
    pub phase: String,
    /// Which generation of the data it brought over (`A`, `B`, `day-3`); absent for probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<String>,
    /// Until the copy at b was complete and written.
    #[serde(serialize_with = "compact::float")]
    pub seconds: f64,
    /// What the link carried from a to b in it.
    pub forward: DirectionCounters,
    /// From b to a.
    pub back: DirectionCounters,
    /// Processor seconds of each site's processes, by site name.
    #[serde(serialize_with = "compact::floats")]
    pub cpu_seconds: BTreeMap<String, f64>,
    /// Load average (one minute) of the machine at the phase's end.
    pub load: f64,
    /// Of the machine's processor time in the phase, what the host of a virtual machine gave to others, percent; absent
    /// where the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "compact::maybe_float")]
    pub stolen_percent: Option<f64>,
    /// What came out of the link over time, where the experiment wants it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// What the contender measured itself, and what follows from the series ([`flow`]), by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, Figure>,
}

/// What came out of the link in each interval of a phase, from the start of the phase's scripts on, all paths together.
/// The last interval is not whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Length of an interval.
    pub every_ms: u32,
    /// Bytes of IP at b, in JSON as words: a number a line would make results ten times as long.
    #[serde(with = "compact::words")]
    pub forward: Vec<u64>,
}

/// A measured number; in JSON a pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "(f64, String)", from = "(f64, String)")]
pub struct Figure {
    /// The number.
    pub value: f64,
    /// Its unit, as a table's head shows it: `Mb/s`, `ms`, `%`.
    pub unit: String,
}

/// Counters of one direction of a link: packets and bytes of IP. In JSON, what is zero is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DirectionCounters {
    /// Packets that hosts gave to the link.
    #[serde(skip_serializing_if = "compact::is_zero")]
    pub packets_in: u64,
    /// Their bytes: what counts as bytes on the wire.
    #[serde(skip_serializing_if = "compact::is_zero")]
    pub bytes_in: u64,
    /// Packets that came out.
    #[serde(skip_serializing_if = "compact::is_zero")]
    pub packets_out: u64,
    /// Their bytes.
    #[serde(skip_serializing_if = "compact::is_zero")]
    pub bytes_out: u64,
    /// Lost by the loss model.
    #[serde(skip_serializing_if = "compact::is_zero")]
    pub lost: u64,
    /// Dropped because the queue was full.
    #[serde(skip_serializing_if = "compact::is_zero")]
    pub dropped_queue: u64,
    /// Dropped because the link was down.
    #[serde(skip_serializing_if = "compact::is_zero")]
    pub dropped_down: u64,
    /// Larger than the MTU.
    #[serde(skip_serializing_if = "compact::is_zero")]
    pub dropped_size: u64,
    /// Overtaken by later packets.
    #[serde(skip_serializing_if = "compact::is_zero")]
    pub reordered: u64,
    /// Dropped by the TUN device before or after the emulator saw them: the machine was too slow. Not zero means that
    /// the run measured the machine.
    #[serde(skip_serializing_if = "compact::is_zero")]
    pub device_drops: u64,
    /// How late packets came out, against the moment the link's model says.
    #[serde(skip_serializing_if = "compact::is_default")]
    pub lateness: Lateness,
}

/// The emulator's own lateness, microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lateness {
    /// Median.
    #[serde(serialize_with = "compact::float", skip_serializing_if = "compact::is_default")]
    pub p50_us: f64,
    /// 99th percentile.
    #[serde(serialize_with = "compact::float")]
    pub p99_us: f64,
    /// Largest.
    #[serde(serialize_with = "compact::float", skip_serializing_if = "compact::is_default")]
    pub max_us: f64,
    /// Whether the thread that carried the packets had real-time priority; without it other work delays them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub real_time: bool,
}

/// The figures that every counted phase has beside the contender's own: name and unit.
pub const COMMON_FIGURES: [(&str, &str); 13] = [
    ("seconds", "s"),
    ("forward_mb", "MB"),
    ("back_mb", "MB"),
    ("wire_mb", "MB"),
    ("forward_packets", "packets"),
    ("back_packets", "packets"),
    ("wire_packets", "packets"),
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
            "wire_packets" => Some((self.forward.packets_in + self.back.packets_in) as f64),
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

impl DirectionCounters {
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

impl From<Cell> for String {
    fn from(cell: Cell) -> Self {
        cell.to_string()
    }
}

impl TryFrom<String> for Cell {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let parts: Vec<&str> = text.split('/').collect();
        let (link, data, contender, congestion) = match parts[..] {
            [link, contender, congestion] => (link, None, contender, congestion),
            [link, data, contender, congestion] => (link, Some(data.to_owned()), contender, congestion),
            _ => return Err(format!("{text:?} is no cell: link/data/contender/congestion")),
        };
        let (link, contender) = (link.to_owned(), contender.to_owned());
        Ok(Self { link, data, contender, congestion: congestion.to_owned() })
    }
}

impl From<Figure> for (f64, String) {
    fn from(figure: Figure) -> Self {
        (compact::rounded(figure.value), figure.unit)
    }
}

impl From<(f64, String)> for Figure {
    fn from((value, unit): (f64, String)) -> Self {
        Self { value, unit }
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

    #[test]
    fn a_record_is_a_short_line_and_reads_back() {
        let cell = |text: &str| Cell::try_from(text.to_owned()).expect("a cell");
        for text in ["t3/ping/cubic", "t3/postgres/rsync/bbr"] {
            assert_eq!(cell(text).to_string(), text);
        }
        assert!(Cell::try_from("t3/cubic".to_owned()).is_err());
        let counters = DirectionCounters { packets_in: 7, ..DirectionCounters::default() };
        let text = serde_json::to_string(&counters).expect("json");
        assert_eq!(text, r#"{"packets_in":7}"#);
        assert_eq!(serde_json::from_str::<DirectionCounters>(&text).expect("counters"), counters);
        let figure = Figure { value: 1.0 / 3.0, unit: "s".to_owned() };
        assert_eq!(serde_json::to_string(&figure).expect("json"), r#"[0.333333,"s"]"#);
    }
    use crate::link::{Line, LineTime, LinkTerms, Verdict};

    #[test]
    fn a_full_queue_does_not_make_the_share_of_losses_larger() {
        let terms = LinkTerms { rate: Some(1_000_000), loss: Some(0.1), ..LinkTerms::default() };
        let mut line = Line::new(&terms.build("l").expect("a link").forward, 7);
        let mut counters = DirectionCounters::default();
        // Twice what the line carries: a packet of 1250 bytes takes it 10 ms, and one comes every 5 ms.
        for packet in 0..20_000 {
            counters.packets_in += 1;
            match line.arrive(LineTime(packet * 5_000_000), 1250) {
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
