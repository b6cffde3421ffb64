//! Conducts an experiment: the runs that are left, in order, as many at once as their links allow, each written down
//! before the next decision.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread;

use super::estimate::{Known, phase_limit};
use super::journal::{Journal, JournalError};
use super::plan::{self, PlannedRun};
use super::progress::Progress;
use super::run::Job;
use super::setting::{Data, Digests, Setting};
use crate::record::result::DataFacts;
use crate::record::{Cell, RunRecord};
use crate::testbed::{TestBed, TestBedError};

/// A cell that failed so often in one go fails for a reason that another try does not cure.
const FAILURES_MAX: u32 = 3;

/// An experiment that is being conducted.
#[derive(Debug)]
pub struct Conductor<'a> {
    /// The laboratory's namespaces.
    pub test_bed: &'a TestBed,
    /// The experiment.
    pub setting: &'a Setting,
    /// Its data, all that its runs need.
    pub data: &'a Data,
    /// What the data is.
    pub facts: &'a [DataFacts],
    /// What each cell is of.
    pub digests: &'a Digests,
    /// Versions of what takes part, by contender.
    pub versions: &'a BTreeMap<String, BTreeMap<String, String>>,
}

/// How it ended.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ending {
    /// Somebody asked it to stop; what is left can be resumed.
    pub interrupted: bool,
    /// Runs that failed this time.
    pub failed: u32,
    /// Cells that are not tried again this time.
    pub stopped: Vec<Cell>,
}

impl Conductor<'_> {
    /// Makes all runs of `waiting`.
    ///
    /// # Errors
    /// [`JournalError`]: a record could not be written down. What was written before is safe.
    pub fn conduct(
        &self,
        mut waiting: Vec<PlannedRun>,
        journal: &mut Journal,
        progress: &mut Progress,
    ) -> Result<Ending, JournalError> {
        let mut ending = Ending::default();
        let mut failures: BTreeMap<Cell, u32> = BTreeMap::new();
        let mut running: Vec<PlannedRun> = Vec::new();
        let mut broken = None;
        let (report, reports) = mpsc::channel();
        thread::scope(|scope| {
            loop {
                let go_on = broken.is_none() && !ending.interrupted;
                if go_on && let Some(position) = plan::next(&waiting, &running) {
                    let run = waiting.remove(position);
                    let known = self.known(journal.records());
                    let estimate = known.estimate(&run);
                    progress.started(&run, estimate, known.total_seconds(&waiting));
                    running.push(run.clone());
                    let report = report.clone();
                    scope.spawn(move || {
                        let outcome =
                            catch_unwind(AssertUnwindSafe(|| self.make(&run, phase_limit(estimate))));
                        // The receiver lives as long as the scope.
                        let _ = report.send((run, outcome));
                    });
                    continue;
                }
                if running.is_empty() {
                    break;
                }
                let Ok((run, outcome)) = reports.recv() else { break };
                running.retain(|other| *other != run);
                let record = match outcome.unwrap_or_else(|panic| resume_unwind(panic)) {
                    Ok(record) => record,
                    Err(_interrupted) => {
                        ending.interrupted = true;
                        continue;
                    }
                };
                if record.failed.is_some() {
                    ending.failed += 1;
                    let of_cell = failures.entry(run.cell.clone()).or_default();
                    *of_cell += 1;
                    if *of_cell == FAILURES_MAX {
                        waiting.retain(|other| other.cell != run.cell);
                        ending.stopped.push(run.cell.clone());
                    }
                }
                if let Err(error) = journal.append(record.clone()) {
                    broken = Some(error);
                    continue;
                }
                let ahead: Vec<PlannedRun> = running.iter().chain(&waiting).cloned().collect();
                progress.finished(&record, self.known(journal.records()).total_seconds(&ahead));
            }
        });
        match broken {
            Some(error) => Err(error),
            None => Ok(ending),
        }
    }

    fn known<'r>(&'r self, records: &'r [RunRecord]) -> Known<'r> {
        let (links, portions) = (&self.setting.links, &self.setting.portions);
        Known { records, links, portions, data: self.facts }
    }

    fn make(&self, run: &PlannedRun, limit: std::time::Duration) -> Result<RunRecord, TestBedError> {
        let setting = self.setting;
        let data = run.data.and_then(|position| {
            let prepared = self.data[position].as_ref()?;
            Some((prepared, setting.experiment.data[position].kind))
        });
        let none = BTreeMap::new();
        let job = Job {
            test_bed: self.test_bed,
            places: &setting.places,
            run,
            digest: self.digests.get(&run.cell).map_or("", String::as_str),
            paths: setting.experiment.paths,
            link: &setting.links[run.link],
            hosts: &setting.hosts(&run.cell.congestion),
            data,
            portion: setting.portions[run.link],
            series: setting.experiment.series,
            contender: setting.contender(&run.cell.contender),
            versions: self.versions.get(&run.cell.contender).unwrap_or(&none),
            limit,
        };
        job.run()
    }
}
