//! The files of a result: `result.jsonl`, `REPORT.md` and its plots. Each is replaced whole; a reader beside a running
//! experiment never sees half of one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::summary::cell_result;
use crate::record::result::ExperimentResult;
use crate::record::{DirectionCounters, Lateness, RECORD_VERSION, RunRecord};
use crate::report::page;
use crate::report::plot::PlotError;

/// The result for programs: what it is of in the first line, then a line per run. The report is made of it.
pub const RESULT_FILE: &str = "result.jsonl";
/// The report for readers.
pub const REPORT_FILE: &str = "REPORT.md";

/// Why a result's files cannot be read or written. The journal is safe: they can be made again.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The operating system refused.
    #[error("cannot {action} {path}: {source}; records of runs are safe", path = path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not a result.
    #[error("{path}:{line}: no result of an experiment: {source}; `farside-lab run` writes it", path = path.display())]
    Result {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
    /// Of another version of the laboratory.
    #[error(
        "{path} is of version {found}, this farside-lab knows {RECORD_VERSION}; use the one that wrote it",
        path = path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// A plot of the report.
    #[error(transparent)]
    Plot(#[from] PlotError),
}

/// Writes all files of `result` into `directory`, and tells their paths.
///
/// # Errors
/// [`OutputError::Io`], [`OutputError::Plot`].
pub fn write(directory: &Path, result: &ExperimentResult) -> Result<Vec<PathBuf>, OutputError> {
    let report = page::page(result)?;
    let path = directory.join(RESULT_FILE);
    let lines = at("write", &path, lines(result).map_err(io::Error::from))?;
    let mut texts = report.plots;
    texts.push((REPORT_FILE.to_owned(), report.markdown));
    // The last, so that who sees a new result finds its report.
    texts.push((RESULT_FILE.to_owned(), lines));
    texts.into_iter().map(|(name, text)| replace(&directory.join(name), &text)).collect()
}

/// The text of the result's file.
fn lines(result: &ExperimentResult) -> Result<String, serde_json::Error> {
    let mut head = ExperimentResult { runs: Vec::new(), ..result.clone() };
    head.cells.iter_mut().for_each(|cell| cell.phases.clear());
    let mut text = serde_json::to_string(&head)? + "\n";
    for run in &result.runs {
        text.push_str(&(serde_json::to_string(&published(run, result))? + "\n"));
    }
    Ok(text)
}

/// A run without what the head says for all of them, what only the journal's reader needs, and a series that no report shows.
#[must_use]
pub fn published(run: &RunRecord, result: &ExperimentResult) -> RunRecord {
    let mut run = RunRecord {
        cell: run.cell.clone(),
        repetition: run.repetition,
        phases: run.phases.clone(),
        failed: run.failed.clone(),
        slow: run.slow.clone(),
        ..RunRecord::default()
    };
    for phase in &mut run.phases {
        // Whether it was too much is in `slow`.
        phase.forward.lateness = Lateness::default();
        phase.back = DirectionCounters {
            lateness: Lateness::default(),
            packets_out: 0,
            bytes_out: 0,
            ..phase.back.clone()
        };
    }
    if !(result.report.series && run.repetition == 1) {
        run.phases.iter_mut().for_each(|phase| phase.series = None);
    }
    run
}

/// Reads the result in `directory`.
///
/// # Errors
/// [`OutputError`].
pub fn read(directory: &Path) -> Result<ExperimentResult, OutputError> {
    let path = directory.join(RESULT_FILE);
    let text = at("read", &path, fs::read_to_string(&path))?;
    let wrong = |line| {
        let path = path.clone();
        move |source| OutputError::Result { path, line, source }
    };
    let mut lines = text.lines();
    // The version first: of another one nothing else is certain.
    let head: serde_json::Value = serde_json::from_str(lines.next().unwrap_or_default()).map_err(wrong(1))?;
    if let Some(found) = head.get("version").and_then(serde_json::Value::as_u64)
        && found != u64::from(RECORD_VERSION)
    {
        return Err(OutputError::Version { path, found });
    }
    let mut result: ExperimentResult = serde_json::from_value(head).map_err(wrong(1))?;
    for (position, line) in lines.enumerate() {
        result.runs.push(serde_json::from_str(line).map_err(wrong(position + 2))?);
    }
    for cell in &mut result.cells {
        *cell = cell_result(&cell.cell, cell.planned, &result.runs);
    }
    Ok(result)
}

fn replace(path: &Path, text: &str) -> Result<PathBuf, OutputError> {
    let fresh = path.with_extension("new");
    at("write", &fresh, fs::write(&fresh, text))?;
    at("replace", path, fs::rename(&fresh, path))?;
    Ok(path.to_owned())
}

fn at<T>(action: &'static str, path: &Path, result: io::Result<T>) -> Result<T, OutputError> {
    result.map_err(|source| OutputError::Io { action, path: path.to_owned(), source })
}
