//! `farside-lab run`: an experiment, or what is left of it.

use std::env;
use std::io::{IsTerminal, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use farside_lab::data::{self, DataError};
use farside_lab::experiment::conduct::{Conductor, Ending};
use farside_lab::experiment::estimate::{Known, Source};
use farside_lab::experiment::journal::{self, JOURNAL_FILE, Journal, JournalError};
use farside_lab::experiment::machine;
use farside_lab::experiment::outputs;
use farside_lab::experiment::plan::{self, Filter, PlannedRun};
use farside_lab::experiment::progress::{Progress, duration};
use farside_lab::experiment::run::Places;
use farside_lab::experiment::setting::{Data, Digests, Setting, SettingError};
use farside_lab::experiment::summary::Frame;
use farside_lab::record::RunRecord;
use farside_lab::record::result::{DataFacts, ExperimentResult};
use farside_lab::report::page;
use farside_lab::testbed::{self, TestBed};

use crate::cli::{Place, RunArguments};
use crate::commands::Outcome;

/// Where results go unless `--out` says otherwise.
const RESULTS: &str = "lab-results";

/// Columns of tables that go to no terminal.
const COLUMNS: u16 = 120;

/// A run failed, or the result is not as expected.
const NOT_AS_WANTED: u8 = 1;

/// As shells have it for what SIGINT stopped.
const INTERRUPTED: u8 = 130;

pub(crate) fn run(place: &Place, arguments: &RunArguments) -> Outcome {
    let filter = Filter::new(&arguments.filter)?;
    let name = arguments.file.file_stem().unwrap_or_default();
    let out = arguments.out.clone().unwrap_or_else(|| Path::new(RESULTS).join(name));
    // Scripts run in directories of their own.
    let out = std::path::absolute(out)?;
    let setting = Setting::read(&arguments.file, arguments.repetitions, places(&arguments.file, &out)?)?;
    if !setting.planned.iter().any(|run| filter.selects(&run.cell)) {
        let cells: Vec<String> = setting.planned.iter().take(3).map(|run| run.cell.to_string()).collect();
        let text = format!("no cell matches the filter; cells are called {}…", cells.join(", "));
        return Err(SettingError::Empty(text).into());
    }
    if arguments.estimate {
        return estimate(place, &setting, &filter, &out);
    }
    let test_bed = testbed::enter(&place.work())?;
    let mut journal = open(&out, arguments.fresh, &filter)?;
    let progress = Progress::new(0);
    let data = prepare(place, &setting, &filter, &test_bed, &progress)?;
    progress.end();
    let digests = setting.digests(&data)?;
    setting.refuse_stale(journal.records(), &digests)?;
    let left = plan::left(&setting.planned, journal.records(), &filter);
    let versions = setting.versions(&left)?;
    let facts = setting.data_facts(&data);
    tell_beginning(&setting, &journal, &left, &facts);

    let mut progress = Progress::new(left.len());
    let conductor = Conductor {
        test_bed: &test_bed,
        setting: &setting,
        data: &data,
        facts: &facts,
        digests: &digests,
        versions: &versions,
    };
    let ending = conductor.conduct(left, &mut journal, &mut progress)?;
    progress.end();
    let result = summarize(&setting, &digests, &facts, journal.records());
    outputs::write(&out, &result)?;
    tell_end(arguments, &filter, &out, &result, &ending)?;
    Ok(status(&result, &ending))
}

/// Where things are: contenders beside the experiments, farside beside this program unless FARSIDE_BIN says otherwise.
fn places(file: &Path, out: &Path) -> std::io::Result<Places> {
    let file = std::path::absolute(file)?;
    let lab = file.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    Ok(Places {
        contenders: lab.join("contenders"),
        farside_bin: farside_bin()?,
        lab: env::current_exe()?,
        logs: out.join("logs"),
    })
}

/// The directory of `farside` and `farsided`.
pub(crate) fn farside_bin() -> std::io::Result<PathBuf> {
    let beside = env::current_exe()?.parent().unwrap_or(Path::new("/")).to_owned();
    Ok(env::var_os("FARSIDE_BIN").map_or(beside, PathBuf::from))
}

fn open(out: &Path, fresh: bool, filter: &Filter) -> Result<Journal, JournalError> {
    let mut aside = None;
    let journal = match Journal::open(out) {
        // What cannot be read cannot be picked from either: all of it is moved.
        Err(JournalError::Damaged { .. } | JournalError::Version { .. }) if fresh => {
            aside = journal::set_all_aside(out)?;
            Journal::open(out)?
        }
        Ok(mut journal) if fresh => {
            aside = journal.set_aside(|record| filter.selects(&record.cell))?;
            journal
        }
        opened => opened?,
    };
    if let Some(aside) = aside {
        eprintln!("earlier runs are kept in {}", aside.display());
    }
    if journal.dropped_torn_line() {
        eprintln!("the last record was torn by a crash and is dropped; its run is made again");
    }
    Ok(journal)
}

/// The data of all selected runs, made where it is missing; of other cells what is there.
fn prepare(
    place: &Place,
    setting: &Setting,
    filter: &Filter,
    test_bed: &TestBed,
    progress: &Progress,
) -> Result<Data, Box<dyn std::error::Error>> {
    let cache = place.data();
    let mut all = setting.find_data(&cache)?;
    for position in setting.needed_data(filter) {
        if all[position].is_some() {
            continue;
        }
        test_bed.check()?;
        let entry = &setting.experiment.data[position];
        progress.say(&format!("making data set {} ({}), kept in {}", entry.name, entry.set, cache.display()));
        let mut tell = |step: data::Progress<'_>| progress.now(&format!("{}: {}", entry.name, step.step));
        let prepared = match data::prepare(&setting.order(position), &cache, test_bed, &mut tell) {
            // An interrupt stays what it is.
            Err(DataError::TestBed(error)) => return Err(error.into()),
            prepared => prepared.map_err(|source| SettingError::Data { name: entry.name.clone(), source })?,
        };
        all[position] = Some(prepared);
    }
    Ok(all)
}

/// How long it would take, run by run; makes nothing and needs no root.
fn estimate(place: &Place, setting: &Setting, filter: &Filter, out: &Path) -> Outcome {
    let data = setting.find_data(&place.data())?;
    let records = if out.join(JOURNAL_FILE).exists() { journal::read_records(out)? } else { Vec::new() };
    setting.refuse_stale(&records, &setting.digests(&data)?)?;
    let left = plan::left(&setting.planned, &records, filter);
    let facts = setting.data_facts(&data);
    let known = Known { records: &records, links: &setting.links, portions: &setting.portions, data: &facts };
    let mut text = String::new();
    for run in &left {
        let estimate = known.estimate(run);
        let source = match estimate.source {
            Source::SameCell => "from its earlier runs",
            Source::Computed => "from size and rate",
        };
        text +=
            &format!("{:>10}  {} #{}  ({source})\n", duration(estimate.seconds), run.cell, run.repetition);
    }
    let unmade = facts.iter().zip(&data).filter(|(_, prepared)| prepared.is_none());
    for (facts, _) in unmade {
        text += &format!(
            "data set {} has not been made: its size is a guess, and making it takes minutes more\n",
            facts.name
        );
    }
    text += &format!("{} runs, about {} in all\n", left.len(), duration(known.total_seconds(&left)));
    stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn tell_beginning(setting: &Setting, journal: &Journal, left: &[PlannedRun], facts: &[DataFacts]) {
    let known =
        Known { records: journal.records(), links: &setting.links, portions: &setting.portions, data: facts };
    let (count, all) = (left.len(), setting.planned.len());
    eprintln!(
        "{}: {count} of {all} runs to make, about {}",
        setting.name,
        duration(known.total_seconds(left))
    );
}

fn summarize(
    setting: &Setting,
    digests: &Digests,
    facts: &[DataFacts],
    records: &[RunRecord],
) -> ExperimentResult {
    let frame = Frame {
        name: &setting.name,
        experiment: &setting.experiment,
        digest: &setting.digest(digests),
        planned: &setting.planned,
        links: &setting.links,
        data: facts,
        contenders: &setting.contenders,
        machine: &machine::describe(),
    };
    frame.summarize(records)
}

fn tell_end(
    arguments: &RunArguments,
    filter: &Filter,
    out: &Path,
    result: &ExperimentResult,
    ending: &Ending,
) -> Result<(), Box<dyn std::error::Error>> {
    let text = if arguments.json {
        serde_json::to_string(result)? + "\n"
    } else {
        page::terminal(result, columns())
    };
    stdout().write_all(text.as_bytes())?;
    for cell in &ending.stopped {
        eprintln!(
            "{cell} failed three times and was given up; its logs are below {}",
            out.join("logs").display()
        );
    }
    if ending.failed > 0 {
        eprintln!("{} runs failed; the same command tries them again", ending.failed);
    }
    // Of cells that nobody asked for nothing can be said yet.
    for verdict in result.expectations.iter().filter(|verdict| !verdict.met && filter.selects(&verdict.cell))
    {
        eprintln!("not as expected: {} {}: {}", verdict.cell, verdict.figure, verdict.note);
    }
    if ending.interrupted {
        eprintln!("stopped; the run that was going on is thrown away, the others are kept");
    }
    if result.runs_left > 0 {
        eprintln!("{} runs are left; the same command goes on with them", result.runs_left);
    }
    eprintln!("result and report: {}", out.display());
    Ok(())
}

fn status(result: &ExperimentResult, ending: &Ending) -> ExitCode {
    let missed = result.runs_left == 0 && result.expectations.iter().any(|verdict| !verdict.met);
    match (ending.interrupted, ending.failed > 0 || missed) {
        (true, _) => ExitCode::from(INTERRUPTED),
        (false, true) => ExitCode::from(NOT_AS_WANTED),
        (false, false) => ExitCode::SUCCESS,
    }
}

/// Columns of the terminal; a usual number where there is none.
pub(crate) fn columns() -> u16 {
    if !stdout().is_terminal() {
        return COLUMNS;
    }
    rustix::termios::tcgetwinsize(stdout()).map_or(COLUMNS, |size| size.ws_col)
}
