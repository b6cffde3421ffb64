//! Which runs an experiment consists of, which of them are left, and which may go on beside which. Pure.
//!
//! Cells are links × data × contenders × congestion, without those that a contender cannot carry: a probe of the link
//! has no data, and a tool for images gets no tree. Runs are interleaved, the repetition outermost, so that an
//! experiment that is stopped early has every cell measured about as often, and a machine that gets slower during the
//! day is slower for all.

use std::collections::{BTreeMap, BTreeSet};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::file::{DataKind, Experiment};
use crate::contender::Carries;
use crate::record::{Cell, RunRecord};

/// What each contender can carry, by its name.
pub type Abilities = BTreeMap<String, Vec<Carries>>;

/// A run that the experiment wants.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlannedRun {
    /// Which cell.
    pub cell: Cell,
    /// Position of its link in the experiment.
    pub link: usize,
    /// Position of its data set; absent for a probe of the link.
    pub data: Option<usize>,
    /// Counted from 1.
    pub repetition: u32,
    /// Of the link's losses and jitter: the same for every contender of a repetition.
    pub seed: u64,
    /// How many runs may go on at once while this one does, itself included.
    pub parallel: u32,
}

/// All runs of `experiment`, in the order in which they are to be made.
#[must_use]
pub fn plan(experiment: &Experiment, abilities: &Abilities) -> Vec<PlannedRun> {
    let most = experiment.links.iter().map(|link| experiment.repetitions_of(link)).max().unwrap_or(0);
    let mut runs = Vec::new();
    for repetition in 1..=most {
        for (position, link) in experiment.links.iter().enumerate() {
            if repetition > experiment.repetitions_of(link) {
                continue;
            }
            let seed = seed_of(experiment.seed, &link.name, repetition);
            for (data, congestion, contender) in combinations(experiment, position) {
                let carried = abilities.get(contender).map_or(&[][..], Vec::as_slice);
                if !carried.contains(&wanted(experiment, data)) {
                    continue;
                }
                runs.push(PlannedRun {
                    cell: Cell {
                        link: link.name.clone(),
                        data: data.map(|data| experiment.data[data].name.clone()),
                        contender: contender.clone(),
                        congestion: congestion.clone(),
                    },
                    link: position,
                    data,
                    repetition,
                    seed,
                    parallel: link.parallel.unwrap_or(experiment.parallel),
                });
            }
        }
    }
    runs
}

/// Every data set (and none, for probes), congestion control and contender that the link at `position` admits.
fn combinations(experiment: &Experiment, position: usize) -> Vec<(Option<usize>, &String, &String)> {
    let link = &experiment.links[position];
    let admits =
        |list: &Option<Vec<String>>, name: &String| list.as_ref().is_none_or(|names| names.contains(name));
    let data =
        (0..experiment.data.len()).filter(|data| admits(&link.data, &experiment.data[*data].name)).map(Some);
    let congestion = link.congestion.as_ref().unwrap_or(&experiment.hosts.congestion);
    let contenders: Vec<&String> =
        experiment.contenders.iter().filter(|name| admits(&link.contenders, name)).collect();
    let mut combinations = Vec::new();
    for data in std::iter::once(None).chain(data) {
        for congestion in congestion {
            combinations.extend(contenders.iter().map(|contender| (data, congestion, *contender)));
        }
    }
    combinations
}

fn wanted(experiment: &Experiment, data: Option<usize>) -> Carries {
    match data.map(|data| experiment.data[data].kind) {
        None => Carries::Link,
        Some(DataKind::Image) => Carries::Image,
        Some(DataKind::Tree) => Carries::Tree,
    }
}

/// Seed of the link's losses: of the experiment, the link and the repetition, so that each contender of a repetition
/// meets the same losses as far as it sends the same packets. 53 bits, because readers of JSON keep no more.
fn seed_of(experiment: u64, link: &str, repetition: u32) -> u64 {
    let mut hasher = blake3::Hasher::new_derive_key("farside-lab 2026 seed of a run");
    hasher.update(&experiment.to_le_bytes());
    hasher.update(&repetition.to_le_bytes());
    hasher.update(link.as_bytes());
    let mut first = [0; 8];
    hasher.finalize_xof().fill(&mut first);
    u64::from_le_bytes(first) >> 11
}

/// Selects cells by globs on their text, `t3/postgres/rsync-zstd/cubic`: `*` is any text (`/` too), `?` one character,
/// `{a,b}` either. Without globs it selects all.
#[derive(Clone, Debug)]
pub struct Filter(Option<GlobSet>);

impl Filter {
    /// Selects cells that at least one of `globs` matches.
    ///
    /// # Errors
    /// A glob that is none.
    pub fn new<S: AsRef<str>>(globs: &[S]) -> Result<Self, globset::Error> {
        if globs.is_empty() {
            return Ok(Self(None));
        }
        let mut set = GlobSetBuilder::new();
        for glob in globs {
            set.add(GlobBuilder::new(glob.as_ref()).literal_separator(false).build()?);
        }
        Ok(Self(Some(set.build()?)))
    }

    /// Whether it selects `cell`.
    #[must_use]
    pub fn selects(&self, cell: &Cell) -> bool {
        self.0.as_ref().is_none_or(|globs| globs.is_match(cell.to_string()))
    }
}

/// What of `planned` is selected and not in `records` yet, in order. A failed run does not count and is left.
#[must_use]
pub fn left(planned: &[PlannedRun], records: &[RunRecord], filter: &Filter) -> Vec<PlannedRun> {
    let done: BTreeSet<(&Cell, u32)> = records
        .iter()
        .filter(|record| record.failed.is_none())
        .map(|record| (&record.cell, record.repetition))
        .collect();
    planned
        .iter()
        .filter(|run| filter.selects(&run.cell) && !done.contains(&(&run.cell, run.repetition)))
        .cloned()
        .collect()
}

/// Which of `waiting` may start now beside `running`: the first whose cell is not running. It waits, and all after
/// it, while more runs go on than its link or theirs allows; so one that must be alone gets its turn.
#[must_use]
pub fn next(waiting: &[PlannedRun], running: &[PlannedRun]) -> Option<usize> {
    let position = waiting.iter().position(|run| running.iter().all(|other| other.cell != run.cell))?;
    let allowed = running.iter().map(|run| run.parallel).fold(waiting[position].parallel, u32::min);
    (running.is_empty() || running.len() < allowed as usize).then_some(position)
}

#[cfg(test)]
mod tests;
