use std::path::Path;

use super::*;
use crate::contender::Carries;
use crate::experiment::plan::{self, Abilities};
use crate::record::{DirectionCounters, Figure};

const FILE: &str = r#"
title = "t"
about = "why"
contenders = ["ping", "rsync"]
repetitions = 3
[[link]]
name = "slow"
rate = "1Mbit"
repetitions = 1
[[link]]
name = "fast"
rate = "10Mbit"
[[data]]
name = "d"
set = "random"
[[expect]]
contender = "ping"
links = ["slow"]
figure = "rtt_ms"
of = 10
within = { absolute = 1.0 }
"#;

fn experiment() -> Experiment {
    Experiment::parse(Path::new("x.toml"), FILE).expect("the file")
}

fn planned() -> Vec<PlannedRun> {
    let abilities: Abilities =
        [("ping", Carries::Link), ("rsync", Carries::Image)].map(|(n, c)| (n.to_owned(), vec![c])).into();
    plan::plan(&experiment(), &abilities)
}

fn record(run: &PlannedRun, seconds: f64) -> RunRecord {
    let phase = |phase: &str, generation: Option<&str>, seconds| PhaseRecord {
        phase: phase.to_owned(),
        generation: generation.map(str::to_owned),
        seconds,
        forward: DirectionCounters { bytes_in: 2_000_000, ..DirectionCounters::default() },
        cpu_seconds: [("a".to_owned(), 0.5)].into(),
        load: seconds / 10.0,
        figures: [("rtt_ms".to_owned(), Figure { value: 10.5, unit: "ms".to_owned() })].into(),
        ..PhaseRecord::default()
    };
    RunRecord {
        version: RECORD_VERSION,
        cell: run.cell.clone(),
        repetition: run.repetition,
        seed: run.seed,
        digest: String::new(),
        started: format!("2026-11-22T00:00:{:02}Z", seconds as u32),
        whole_seconds: seconds,
        versions: [("tool".to_owned(), "1.0".to_owned())].into(),
        phases: match run.data {
            None => vec![phase("measure", None, seconds)],
            Some(_) => vec![phase("initial", Some("A"), seconds), phase("update", Some("B"), seconds / 2.0)],
        },
        failed: None,
        slow: None,
    }
}

fn summarize(runs: &[RunRecord]) -> ExperimentResult {
    let experiment = experiment();
    let planned = planned();
    let frame = Frame {
        name: "x",
        experiment: &experiment,
        digest: "d",
        planned: &planned,
        links: &experiment.build_links().expect("links"),
        data: &[],
        contenders: &[],
        machine: &Machine::default(),
    };
    frame.summarize(runs)
}

#[test]
fn a_result_has_every_cell_of_the_plan_in_the_files_order() {
    let result = summarize(&[]);
    let cells: Vec<String> =
        result.cells.iter().map(|cell| format!("{} {}", cell.cell, cell.planned)).collect();
    assert_eq!(
        cells,
        ["slow/ping/cubic 1", "slow/d/rsync/cubic 1", "fast/ping/cubic 3", "fast/d/rsync/cubic 3"]
    );
    assert_eq!((result.runs_left, result.load, result.started.as_str()), (8, None, ""));
    assert!(!result.expectations[0].met);
}

#[test]
fn medians_are_of_the_runs_that_count_phase_by_phase() {
    let planned = planned();
    let of_cell: Vec<&PlannedRun> =
        planned.iter().filter(|run| run.cell.to_string() == "fast/d/rsync/cubic").collect();
    let mut failed = record(of_cell[0], 50.0);
    failed.failed = Some("hung".to_owned());
    let mut slow = record(of_cell[2], 30.0);
    // It said nothing itself: a result judges by the counters.
    slow.phases[0].back.device_drops = 1;
    slow.versions = [("tool".to_owned(), "2.0".to_owned())].into();
    let unknown = RunRecord { repetition: 4, ..record(of_cell[0], 1.0) };
    let result = summarize(&[failed, record(of_cell[1], 10.0), slow, unknown]);
    assert_eq!(result.runs[2].slow.as_deref(), Some("initial, b to a: devices dropped 1 packets"));

    let cell = &result.cells[3];
    assert_eq!((cell.planned, cell.counted, cell.failed, cell.slow), (3, 2, 1, 1));
    let phases: Vec<(&str, Option<&str>)> =
        cell.phases.iter().map(|phase| (phase.phase.as_str(), phase.generation.as_deref())).collect();
    assert_eq!(phases, [("initial", Some("A")), ("update", Some("B"))]);
    let seconds = &cell.phases[0].figures["seconds"];
    assert_eq!(
        (seconds.median, seconds.min, seconds.max, seconds.n, seconds.unit.as_str()),
        (20.0, 10.0, 30.0, 2, "s")
    );
    assert_eq!(cell.phases[1].figures["seconds"].median, 10.0);
    assert_eq!(cell.phases[0].figures["forward_mb"].median, 2.0);
    assert_eq!(cell.phases[0].figures["cpu_a_seconds"].n, 2);
    assert_eq!(cell.phases[0].figures["rtt_ms"].unit, "ms");
    assert!(!cell.phases[0].figures.contains_key("cpu_b_seconds"), "nobody measured it");

    assert_eq!(result.runs.len(), 3, "failed runs stay in it, those that nobody planned do not");
    assert_eq!(result.runs_left, 6);
    assert_eq!(result.versions["tool"], "1.0, 2.0");
    let load = result.load.expect("load");
    assert_eq!((load.min, load.max, load.n), (0.5, 3.0, 4));
    assert_eq!(
        (result.started.as_str(), result.finished.as_str()),
        ("2026-11-22T00:00:10Z", "2026-11-22T00:00:50Z")
    );
}

#[test]
fn expectations_are_judged_on_the_medians() {
    let planned = planned();
    let result = summarize(&[record(&planned[0], 1.0)]);
    assert_eq!(result.expectations.len(), 1);
    assert_eq!((result.expectations[0].measured, result.expectations[0].met), (Some(10.5), true));
    let text = serde_json::to_string(&result).expect("json");
    assert_eq!(serde_json::from_str::<ExperimentResult>(&text).expect("reads back"), result);
}
