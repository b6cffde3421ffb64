//! What an experiment showed: `result.json`, made from the journal's records alone. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Cell, RunRecord};
use crate::link::Link;

/// The result of an experiment, whole or as far as it has come. Its file has this as the first line, without the runs and without what
/// follows from them, and then a line per run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExperimentResult {
    /// [`super::RECORD_VERSION`].
    pub version: u32,
    /// Name of the experiment: its file's, without directory and ending.
    pub name: String,
    /// The file's title.
    pub title: String,
    /// The file's text about it.
    pub about: String,
    /// Digest of what was measured: the file's meaning, data, contenders, farside's version.
    pub digest: String,
    /// Parallel links between the ends.
    pub paths: u32,
    /// Start of the earliest run, RFC 3339, UTC; empty while there is none.
    pub started: String,
    /// Start of the latest run.
    pub finished: String,
    /// Runs that the plan has and the journal does not: zero when the experiment is whole.
    pub runs_left: u32,
    /// What it ran on.
    pub machine: Machine,
    /// Versions of all that took part, by name.
    pub versions: BTreeMap<String, String>,
    /// The links, in the file's order.
    pub links: Vec<Link>,
    /// The data sets, in the file's order.
    pub data: Vec<DataFacts>,
    /// The contenders, in the file's order.
    pub contenders: Vec<ContenderFacts>,
    /// Load average over all counted phases.
    pub load: Option<Spread>,
    /// Every cell of the plan, in its order, those without a run too.
    pub cells: Vec<CellResult>,
    /// What the report shows.
    #[serde(default)]
    pub report: ReportEntry,
    /// How the expectations came out, in the file's order.
    pub expectations: Vec<Verdict>,
    /// The raw records, in the order in which they were made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<RunRecord>,
}

/// What the report of an experiment shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReportEntry {
    /// The figures, each a table and a plot; none: the usual ones and the contenders' own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<String>,
    /// Plots of the rate over time, of the first run of each cell; the result keeps the series of these runs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub series: bool,
}

/// The machine that everything ran on: sites, links and data at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Its cores as the kernel counts them.
    pub cores: u32,
    /// Memory.
    pub memory_bytes: u64,
    /// Name and release of the kernel.
    pub kernel: String,
}

/// What a data set was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataFacts {
    /// Its name in the cells.
    pub name: String,
    /// Which set.
    pub set: String,
    /// `image` or `tree`.
    pub kind: String,
    /// Of the generator.
    pub seed: u64,
    /// Its generations, in order.
    pub generations: Vec<GenerationFacts>,
}

/// One generation of a data set, all volumes together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerationFacts {
    /// `A`, `B`, `day-3`.
    pub name: String,
    /// Volumes.
    pub volumes: u32,
    /// Size of the images.
    pub size_bytes: u64,
    /// Of it, what is not holes.
    pub data_bytes: u64,
    /// 4 KiB blocks that differ from the generation before; absent for the first.
    pub changed_blocks: Option<u64>,
    /// Size under `zstd -3`.
    pub zstd_bytes: u64,
}

/// What a contender is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContenderFacts {
    /// Its name in the cells.
    pub name: String,
    /// One line about it.
    pub about: String,
    /// What its figures are compared as.
    pub role: Role,
}

/// What a contender's figures are compared as.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// farside itself.
    Own,
    /// A tool that people use for the job.
    #[default]
    Peer,
    /// Shows how far one could get: it reads the whole old content at both ends, which a mirror does not.
    Bound,
    /// Measures the link itself; compared with nothing.
    Probe,
}

/// One cell, over its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// Which.
    pub cell: Cell,
    /// Runs that the plan wants.
    pub planned: u32,
    /// Runs that count.
    pub counted: u32,
    /// Runs that failed.
    pub failed: u32,
    /// Of those that count: how many measured the machine rather than the link ([`RunRecord::slow`]).
    pub slow: u32,
    /// The counted phases, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseResult>,
}

/// One phase of a cell, over the runs that count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseResult {
    /// `initial`, `update` or `measure`.
    pub phase: String,
    /// Which generation it brought over; absent for probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<String>,
    /// By name: [`crate::record::PhaseRecord::figure_names`] that every phase has, and the contender's own.
    pub figures: BTreeMap<String, Spread>,
}

/// A figure over several runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Runs.
    pub n: u32,
    /// Unit of the three.
    pub unit: String,
}

/// How an expectation came out in one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Which cell.
    pub cell: Cell,
    /// Which phase.
    pub phase: String,
    /// Which figure.
    pub figure: String,
    /// The median; absent where no run has the figure, which misses the expectation.
    pub measured: Option<f64>,
    /// What it should be.
    pub expected: f64,
    /// How far it may be away, in the figure's unit.
    pub tolerance: f64,
    /// Whether less than expected is as good.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_most: bool,
    /// Unit of the three.
    pub unit: String,
    /// Whether it is as expected.
    pub met: bool,
    /// What the tolerance is, or why there is nothing to judge, in words.
    pub note: String,
}
