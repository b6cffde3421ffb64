//! The experiment file: what it says, strictly read. A key that nobody knows, a name that nothing has and a value out
//! of range are errors that tell the place and the remedy; nothing is guessed. Pure but for [`Experiment::read`].
//!
//! `docs/src/development/laboratory.md` has every key with an example. What is checked beyond the form is in `check.rs`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::link::{Change, Direction, Event, Link, LinkTerms, Loss, units};
use crate::record::result::ReportEntry;

mod check;
mod matrix;

pub use matrix::{GridEntry, Portion, Value, Values, VariantEntry};

/// An experiment as its file says it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// One line: head of the report.
    pub title: String,
    /// What it measures and how to read it; a few paragraphs, shown in the report.
    #[serde(default)]
    pub about: String,
    /// Parallel links between the two ends of the WAN, each an address pair of its own.
    #[serde(default = "one")]
    pub paths: u32,
    /// Names of contenders (`lab/contenders/NAME.toml`), in the order in which they run and are shown; once read, the
    /// variants' names are behind them.
    #[serde(default)]
    pub contenders: Vec<String>,
    /// Contenders with settings, each combination a contender of its own.
    #[serde(default, rename = "variant")]
    pub variants: Vec<VariantEntry>,
    /// How often each cell runs, unless its link says otherwise.
    #[serde(default = "one")]
    pub repetitions: u32,
    /// How many runs go on at once, unless the link says otherwise; more than one only for slow links, where the
    /// processor idles.
    #[serde(default = "one")]
    pub parallel: u32,
    /// Everything random follows from it: losses, jitter, data.
    #[serde(default = "one_u64")]
    pub seed: u64,
    /// Length of the intervals in which a record tells what came out of the link: `100ms`. Absent: records tell totals only.
    #[serde(default, deserialize_with = "time")]
    pub series: Option<Duration>,
    /// What is set in every host.
    #[serde(default)]
    pub hosts: HostsEntry,
    /// The links, in order; once read, those of the grids are behind them.
    #[serde(default, rename = "link")]
    pub links: Vec<LinkEntry>,
    /// Links by their properties, each combination a link.
    #[serde(default, rename = "grid")]
    pub grids: Vec<GridEntry>,
    /// The data sets; none where every contender is a probe of the link.
    #[serde(default, rename = "data")]
    pub data: Vec<DataEntry>,
    /// What the report shows.
    #[serde(default)]
    pub report: ReportEntry,
    /// What the result must show.
    #[serde(default, rename = "expect")]
    pub expectations: Vec<Expectation>,
}

/// What is set in every host.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostsEntry {
    /// TCP congestion controls: an axis of the matrix.
    #[serde(default = "cubic")]
    pub congestion: Vec<String>,
    /// Largest receive buffer of a TCP connection (`256MiB`); absent: the machine's.
    #[serde(default, deserialize_with = "bytes")]
    pub tcp_rmem_max: Option<u64>,
    /// Largest send buffer of a TCP connection; absent: the machine's.
    #[serde(default, deserialize_with = "bytes")]
    pub tcp_wmem_max: Option<u64>,
}

impl Default for HostsEntry {
    fn default() -> Self {
        Self { congestion: cubic(), tcp_rmem_max: None, tcp_wmem_max: None }
    }
}

/// One link of the matrix: a profile's values with those given here in their place.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkEntry {
    /// Its name in the cells and the report.
    pub name: String,
    /// A profile by name (lab/src/link/profile.rs), which gives both rates; else `rate` must be given.
    #[serde(default)]
    pub profile: Option<String>,
    /// Rate from a to b, and back unless `rate_back` is given: `44.736Mbit`.
    #[serde(default, deserialize_with = "rate")]
    pub rate: Option<u64>,
    /// Rate from b to a.
    #[serde(default, deserialize_with = "rate")]
    pub rate_back: Option<u64>,
    /// Round-trip time of the empty link: half of it each direction. `50ms`.
    #[serde(default, deserialize_with = "time")]
    pub rtt: Option<Duration>,
    /// One-way delay from a to b in place of half of `rtt`.
    #[serde(default, deserialize_with = "time")]
    pub delay_forward: Option<Duration>,
    /// One-way delay from b to a in place of half of `rtt`.
    #[serde(default, deserialize_with = "time")]
    pub delay_back: Option<Duration>,
    /// Delay varies by up to this much more, each direction.
    #[serde(default, deserialize_with = "time")]
    pub jitter: Option<Duration>,
    /// Share of packets lost, each direction unless `loss_back` is given: `0.1%`.
    #[serde(default, deserialize_with = "share")]
    pub loss: Option<f64>,
    /// Share of packets lost from b to a.
    #[serde(default, deserialize_with = "share")]
    pub loss_back: Option<f64>,
    /// Mean number of packets lost in a row; absent: each packet by itself.
    #[serde(default)]
    pub burst: Option<f64>,
    /// Share of packets that later ones overtake.
    #[serde(default, deserialize_with = "share")]
    pub reorder: Option<f64>,
    /// Bytes that may wait for the line, each direction: `256KiB`; absent: the larger of one bandwidth-delay product and
    /// 100 packets.
    #[serde(default, deserialize_with = "bytes")]
    pub queue: Option<u64>,
    /// Largest IP packet, bytes.
    #[serde(default)]
    pub mtu: Option<u32>,
    /// What happens to it while it runs.
    #[serde(default)]
    pub script: Vec<ScriptEntry>,
    /// How much of the data contenders bring over it, for those that heed it; absent: all.
    #[serde(default)]
    pub portion: Option<Portion>,
    /// How often its cells run; absent: as the experiment says.
    #[serde(default)]
    pub repetitions: Option<u32>,
    /// How many runs may go on at once while one on this link does; absent: as the experiment says.
    #[serde(default)]
    pub parallel: Option<u32>,
    /// Only these contenders run on it; absent: all.
    #[serde(default)]
    pub contenders: Option<Vec<String>>,
    /// Only these data sets go over it; absent: all.
    #[serde(default)]
    pub data: Option<Vec<String>>,
    /// Only these congestion controls on it; absent: all of `[hosts]`. May name others than `[hosts]` does.
    #[serde(default)]
    pub congestion: Option<Vec<String>>,
}

/// One scripted change of a link: a time and exactly one of `rate`, `delay`, `loss`, `down`, `up`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptEntry {
    /// Since the link came up: `2s`.
    #[serde(deserialize_with = "moment")]
    pub at: Duration,
    /// `forward` or `back`; both if absent.
    #[serde(default)]
    pub direction: Option<Direction>,
    /// Which of the experiment's `paths`, counted from 0; all if absent.
    #[serde(default)]
    pub path: Option<u32>,
    /// New rate.
    #[serde(default, deserialize_with = "rate")]
    pub rate: Option<u64>,
    /// New one-way delay.
    #[serde(default, deserialize_with = "time")]
    pub delay: Option<Duration>,
    /// New share of losses.
    #[serde(default, deserialize_with = "share")]
    pub loss: Option<f64>,
    /// With `loss`: mean number lost in a row.
    #[serde(default)]
    pub burst: Option<f64>,
    /// `true`: nothing gets through from now on.
    #[serde(default)]
    pub down: bool,
    /// `true`: packets pass again.
    #[serde(default)]
    pub up: bool,
}

/// One data set of the matrix.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataEntry {
    /// Its name in the cells and the report.
    pub name: String,
    /// Which set (`farside-lab data` lists them).
    pub set: String,
    /// About how large (`160MiB`); absent: the set's own default.
    #[serde(default, deserialize_with = "bytes")]
    pub size: Option<u64>,
    /// What contenders get: volume images or a tree of files.
    #[serde(default)]
    pub kind: DataKind,
    /// Of the generator; absent: the experiment's.
    #[serde(default)]
    pub seed: Option<u64>,
}

/// What contenders get of a data set.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataKind {
    /// Images of volumes: `0.img`, `1.img`…
    #[default]
    Image,
    /// A directory: `tree/`.
    Tree,
}

impl DataKind {
    /// As files write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Tree => "tree",
        }
    }
}

/// What the result must show, judged for each cell that it names, on the median of the cell's runs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Which contender's cells.
    pub contender: String,
    /// Only on these links; absent: all.
    #[serde(default)]
    pub links: Option<Vec<String>>,
    /// Only with these data sets; absent: all.
    #[serde(default)]
    pub data: Option<Vec<String>>,
    /// Only with these congestion controls; absent: all.
    #[serde(default)]
    pub congestion: Option<Vec<String>>,
    /// In which phase; absent: every phase that has the figure.
    #[serde(default)]
    pub phase: Option<String>,
    /// Which figure: one of the contender's own, or one that every phase has (`seconds`, `forward_mb`…).
    pub figure: String,
    /// What it should be.
    pub of: Target,
    /// How far from it the figure may be.
    pub within: Tolerance,
}

/// What a figure is compared with.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Target {
    /// A number in the figure's own unit.
    Number(f64),
    /// A property of the cell's link: `link.rtt_ms`, `link.rate_mbit`…
    Property(String),
    /// The same figure of other contenders.
    Others(Others),
}

/// The least median that any of these contenders has of the same figure, phase and generation in the same link, data and
/// congestion control: `of = { best = ["rsync-zstd", "restic"], times = 0.33 }`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Others {
    /// Their names.
    pub best: Vec<String>,
    /// What it is multiplied by.
    #[serde(default = "one_f64")]
    pub times: f64,
}

/// How far from its target a figure may be: exactly one of the four.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tolerance {
    /// At most this much away, in the figure's unit: `within = { absolute = 1.0 }`.
    Absolute(f64),
    /// At most this share of the target away: `within = { relative = 0.01 }`.
    Relative(f64),
    /// For shares in percent: within three standard deviations of a binomial with as many trials as this figure
    /// counts (`within = { sampling = "packets" }`), all runs of the cell together.
    Sampling(String),
    /// Not above it: `within = "at-most"`.
    AtMost,
}

impl Experiment {
    /// Reads and checks the file at `path`.
    ///
    /// # Errors
    /// [`FileError`]: it cannot be read or says something that is not understood or cannot be.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| FileError::Read { path: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Checks `text`; `path` is where it came from, for errors.
    ///
    /// # Errors
    /// [`FileError`], but not that it cannot be read.
    pub fn parse(path: &Path, text: &str) -> Result<Self, FileError> {
        let mut experiment: Self = toml::from_str(text)
            .map_err(|source| FileError::Syntax { path: path.to_owned(), source: Box::new(source) })?;
        experiment
            .expand()
            .and_then(|()| experiment.check())
            .map_err(|wrong| FileError::Meaning { path: path.to_owned(), wrong })?;
        Ok(experiment)
    }

    /// How often the cells of `link` run.
    #[must_use]
    pub fn repetitions_of(&self, link: &LinkEntry) -> u32 {
        link.repetitions.unwrap_or(self.repetitions)
    }

    /// The generator's seed of `data`.
    #[must_use]
    pub fn seed_of(&self, data: &DataEntry) -> u64 {
        data.seed.unwrap_or(self.seed)
    }

    /// How many bytes of the data each of `links`, which are the experiment's, carries; all where nothing is said.
    #[must_use]
    pub fn portions(&self, links: &[Link]) -> Vec<Option<u64>> {
        let of = |(entry, link): (&LinkEntry, &Link)| Some(entry.portion?.bytes(link));
        self.links.iter().zip(links).map(of).collect()
    }

    /// All links, in order.
    ///
    /// # Errors
    /// [`Wrong`]: one that cannot be. [`Experiment::parse`] has refused such a file already.
    pub fn build_links(&self) -> Result<Vec<Link>, Wrong> {
        self.links.iter().map(LinkEntry::build).collect()
    }
}

impl LinkEntry {
    /// The link that the entry describes.
    ///
    /// # Errors
    /// [`Wrong`]: no such profile, no rate, a value outside its limits, or a script entry without exactly one change.
    pub fn build(&self) -> Result<Link, Wrong> {
        let place = || format!("[[link]] \"{}\"", self.name);
        let script =
            self.script.iter().map(ScriptEntry::event).collect::<Option<Vec<Event>>>().ok_or_else(|| {
                Wrong::new(
                    place(),
                    "an entry of its script says no change or several",
                    "give exactly one of rate, delay, loss, down, up",
                )
            })?;
        let terms = LinkTerms {
            profile: self.profile.clone(),
            rate: self.rate,
            rate_back: self.rate_back,
            rtt: self.rtt,
            delay_forward: self.delay_forward,
            delay_back: self.delay_back,
            jitter: self.jitter,
            loss: self.loss,
            loss_back: self.loss_back,
            burst: self.burst,
            reorder: self.reorder,
            queue: self.queue,
            mtu: self.mtu,
            script,
        };
        terms
            .build(&self.name)
            .map_err(|error| Wrong::new(place(), error.to_string(), "change the link's entry"))
    }
}

impl ScriptEntry {
    /// The change; nothing if the entry says none or several.
    fn event(&self) -> Option<Event> {
        let loss = self.loss.map(|rate| match self.burst {
            Some(mean_burst) => Loss::Burst { rate, mean_burst },
            None => Loss::Random { rate },
        });
        let mut changes = [
            self.rate.map(|rate_bits| Change::Rate { rate_bits }),
            self.delay.map(|delay| Change::Delay { delay }),
            loss.map(|loss| Change::Loss { loss }),
            self.down.then_some(Change::Down),
            self.up.then_some(Change::Up),
        ]
        .into_iter()
        .flatten();
        let change = changes.next()?;
        let single = changes.next().is_none() && (self.burst.is_none() || self.loss.is_some());
        single.then_some(Event { at: self.at, direction: self.direction, path: self.path, change })
    }
}

/// Something in an experiment file that cannot be meant.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{place}: {what}; {remedy}")]
pub struct Wrong {
    /// Which part of the file.
    pub place: String,
    /// What is wrong with it.
    pub what: String,
    /// What to write.
    pub remedy: String,
}

impl Wrong {
    fn new(place: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into(), remedy: remedy.into() }
    }
}

/// Why an experiment file cannot be used. Nothing has been run.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("cannot read the experiment {path}: {source}; `lab/experiments/` has those of the project", path = path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not TOML, or has keys or values that an experiment does not.
    #[error("{path}: {source}(docs/src/development/laboratory.md lists every key)", path = path.display())]
    Syntax {
        /// Which.
        path: PathBuf,
        /// Where and what.
        source: Box<toml::de::Error>,
    },
    /// It contradicts itself or names something that is not there.
    #[error("{path}: {wrong}", path = path.display())]
    Meaning {
        /// Which.
        path: PathBuf,
        /// Where and what.
        wrong: Wrong,
    },
}

fn one() -> u32 {
    1
}

fn one_u64() -> u64 {
    1
}

fn one_f64() -> f64 {
    1.0
}

fn cubic() -> Vec<String> {
    vec!["cubic".to_owned()]
}

/// Reads words as a quantity, so that a mistake is told with its line.
fn quantity<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: fn(&str) -> Result<T, units::UnitError>,
) -> Result<T, D::Error> {
    let words = String::deserialize(deserializer)?;
    parse(&words).map_err(serde::de::Error::custom)
}

fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    quantity(deserializer, units::parse_rate).map(Some)
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    quantity(deserializer, units::parse_time).map(Some)
}

fn moment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    quantity(deserializer, units::parse_time)
}

fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    quantity(deserializer, units::parse_share).map(Some)
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    quantity(deserializer, units::parse_bytes).map(Some)
}

#[cfg(test)]
mod tests;
