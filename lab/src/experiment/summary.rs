//! Records to a result: cells with medians and spread, verdicts, load. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::expect;
use super::file::{DataKind, Experiment};
use super::plan::PlannedRun;
use super::slowness::slowness;
use super::stats::spread;
use crate::contender::Contender;
use crate::data::{Generation, Manifest};
use crate::link::Link;
use crate::record::result::{
    CellResult, ContenderFacts, DataFacts, ExperimentResult, GenerationFacts, Machine, PhaseResult,
};
use crate::record::{Cell, PhaseRecord, RECORD_VERSION, RunRecord};

/// What a result is made of beside the records.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Name of the experiment.
    pub name: &'a str,
    /// Its file.
    pub experiment: &'a Experiment,
    /// Digest of what it is of.
    pub digest: &'a str,
    /// All runs it wants.
    pub planned: &'a [PlannedRun],
    /// Its links, in order.
    pub links: &'a [Link],
    /// Its data sets, in order.
    pub data: &'a [DataFacts],
    /// Its contenders, in order.
    pub contenders: &'a [Contender],
    /// The machine.
    pub machine: &'a Machine,
}

impl Frame<'_> {
    /// The result that `runs` show; those of cells that the plan does not have are left out.
    #[must_use]
    pub fn summarize(&self, runs: &[RunRecord]) -> ExperimentResult {
        let wanted: BTreeSet<(&Cell, u32)> =
            self.planned.iter().map(|run| (&run.cell, run.repetition)).collect();
        let of_plan = |run: &&RunRecord| wanted.contains(&(&run.cell, run.repetition));
        let runs: Vec<RunRecord> =
            runs.iter().filter(of_plan).map(|run| judged_anew(run, self.links)).collect();
        let done: BTreeSet<(&Cell, u32)> = counting(&runs).map(|run| (&run.cell, run.repetition)).collect();
        let cells = self.cells(&runs);
        let loads: Vec<f64> = counting(&runs).flat_map(|run| &run.phases).map(|phase| phase.load).collect();
        let started = runs.iter().map(|run| run.started.as_str());
        ExperimentResult {
            version: RECORD_VERSION,
            name: self.name.to_owned(),
            title: self.experiment.title.clone(),
            about: self.experiment.about.clone(),
            digest: self.digest.to_owned(),
            paths: self.experiment.paths,
            started: started.clone().min().unwrap_or_default().to_owned(),
            finished: started.max().unwrap_or_default().to_owned(),
            runs_left: u32::try_from(wanted.len() - done.len()).unwrap_or(u32::MAX),
            machine: self.machine.clone(),
            versions: versions(&runs),
            links: self.links.to_vec(),
            data: self.data.to_vec(),
            contenders: self.contenders.iter().map(contender_facts).collect(),
            load: spread(&loads, ""),
            report: self.experiment.report.clone(),
            expectations: expect::judge(&self.experiment.expectations, &cells, &runs, self.links),
            cells,
            runs,
        }
    }

    /// Every cell of the plan, link by link, data set by data set, as the file has them.
    fn cells(&self, runs: &[RunRecord]) -> Vec<CellResult> {
        let mut planned: Vec<(&PlannedRun, u32)> = Vec::new();
        for run in self.planned {
            match planned.iter_mut().find(|(other, _)| other.cell == run.cell) {
                Some((_, count)) => *count += 1,
                None => planned.push((run, 1)),
            }
        }
        // The plan has every repetition of all links one after the other; within one it has the file's order.
        planned.sort_by_key(|(run, _)| (run.link, run.data));
        planned.into_iter().map(|(run, count)| cell_result(&run.cell, count, runs)).collect()
    }
}

/// What counts as slow is this program's word, not that of the one that made the run.
fn judged_anew(run: &RunRecord, links: &[Link]) -> RunRecord {
    let link = links.iter().find(|link| link.name == run.cell.link);
    RunRecord { slow: link.and_then(|link| slowness(&run.phases, link)), ..run.clone() }
}

/// One cell of a result, over those of `runs` that are of it.
pub(crate) fn cell_result(cell: &Cell, planned: u32, runs: &[RunRecord]) -> CellResult {
    let of_cell = || runs.iter().filter(|run| run.cell == *cell);
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let counted: Vec<&RunRecord> = of_cell().filter(|run| run.failed.is_none()).collect();
    let mut phases: Vec<PhaseResult> = Vec::new();
    for phase in counted.iter().flat_map(|run| &run.phases) {
        if !phases.iter().any(|known| is_same(known, phase)) {
            phases.push(PhaseResult {
                phase: phase.phase.clone(),
                generation: phase.generation.clone(),
                figures: BTreeMap::new(),
            });
        }
    }
    for result in &mut phases {
        let records: Vec<&PhaseRecord> =
            counted.iter().flat_map(|run| &run.phases).filter(|phase| is_same(result, phase)).collect();
        let names: BTreeSet<&str> = records.iter().flat_map(|record| record.figure_names()).collect();
        for name in names {
            let figures: Vec<_> = records.iter().filter_map(|record| record.figure(name)).collect();
            let values: Vec<f64> = figures.iter().map(|figure| figure.value).collect();
            let unit = figures.first().map_or("", |figure| figure.unit.as_str());
            if let Some(spread) = spread(&values, unit) {
                result.figures.insert(name.to_owned(), spread);
            }
        }
    }
    CellResult {
        cell: cell.clone(),
        planned,
        counted: number(counted.len()),
        failed: number(of_cell().filter(|run| run.failed.is_some()).count()),
        slow: number(counted.iter().filter(|run| run.slow.is_some()).count()),
        phases,
    }
}

fn is_same(result: &PhaseResult, record: &PhaseRecord) -> bool {
    result.phase == record.phase && result.generation == record.generation
}

fn counting(runs: &[RunRecord]) -> impl Iterator<Item = &RunRecord> {
    runs.iter().filter(|run| run.failed.is_none())
}

/// Versions by name; where runs had different ones, all of them.
fn versions(runs: &[RunRecord]) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, version) in counting(runs).flat_map(|run| &run.versions) {
        all.entry(name.clone()).or_default().insert(version.clone());
    }
    all.into_iter()
        .map(|(name, versions)| (name, versions.into_iter().collect::<Vec<_>>().join(", ")))
        .collect()
}

fn contender_facts(contender: &Contender) -> ContenderFacts {
    ContenderFacts { name: contender.name.clone(), about: contender.about.clone(), role: contender.role }
}

/// What a data set of the experiment is, from its manifest.
#[must_use]
pub fn data_facts(name: &str, kind: DataKind, manifest: &Manifest) -> DataFacts {
    DataFacts {
        name: name.to_owned(),
        set: manifest.set.clone(),
        kind: kind.as_str().to_owned(),
        seed: manifest.seed,
        generations: manifest
            .generations
            .iter()
            .map(|generation| generation_facts(kind, generation))
            .collect(),
    }
}

fn generation_facts(kind: DataKind, generation: &Generation) -> GenerationFacts {
    let volumes = &generation.volumes;
    let of_images = volumes.iter().map(|volume| volume.zstd3_bytes).sum();
    let changed: Option<u64> =
        volumes.iter().map(|volume| volume.changed.as_ref().map(|changed| changed.blocks)).sum();
    let tree = generation.tree.as_ref().filter(|_| kind == DataKind::Tree);
    GenerationFacts {
        name: generation.name.clone(),
        volumes: u32::try_from(volumes.len()).unwrap_or(u32::MAX),
        size_bytes: volumes.iter().map(|volume| volume.size_bytes).sum(),
        data_bytes: volumes.iter().map(|volume| volume.data_bytes).sum(),
        changed_blocks: changed,
        zstd_bytes: tree.map_or(of_images, |tree| tree.zstd3_bytes),
    }
}

#[cfg(test)]
mod tests;
