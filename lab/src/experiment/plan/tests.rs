use std::path::Path;

use super::*;

const FILE: &str = r#"
title = "t"
contenders = ["ping", "rsync", "patch"]
repetitions = 2
parallel = 2

[hosts]
congestion = ["cubic", "bbr"]

[[link]]
name = "slow"
rate = "1Mbit"
repetitions = 1
congestion = ["cubic"]

[[link]]
name = "fast"
rate = "100Mbit"
parallel = 1
contenders = ["ping", "rsync"]
data = ["image"]

[[data]]
name = "image"
set = "random"

[[data]]
name = "other"
set = "random"
seed = 2
"#;

fn experiment() -> Experiment {
    Experiment::parse(Path::new("x.toml"), FILE).expect("the file")
}

fn abilities() -> Abilities {
    [("ping", Carries::Link), ("rsync", Carries::Image), ("patch", Carries::Image)]
        .map(|(name, carries)| (name.to_owned(), vec![carries]))
        .into()
}

fn texts(runs: &[PlannedRun]) -> Vec<String> {
    runs.iter().map(|run| format!("{} {}", run.repetition, run.cell)).collect()
}

#[test]
fn repetitions_are_outermost_and_contenders_innermost() {
    assert_eq!(
        texts(&plan(&experiment(), &abilities())),
        [
            "1 slow/ping/cubic",
            "1 slow/image/rsync/cubic",
            "1 slow/image/patch/cubic",
            "1 slow/other/rsync/cubic",
            "1 slow/other/patch/cubic",
            "1 fast/ping/cubic",
            "1 fast/ping/bbr",
            "1 fast/image/rsync/cubic",
            "1 fast/image/rsync/bbr",
            "2 fast/ping/cubic",
            "2 fast/ping/bbr",
            "2 fast/image/rsync/cubic",
            "2 fast/image/rsync/bbr",
        ]
    );
}

#[test]
fn what_a_contender_cannot_carry_is_left_out() {
    let mut abilities = abilities();
    abilities.insert("rsync".to_owned(), vec![Carries::Tree]);
    abilities.remove("patch");
    let runs = plan(&experiment(), &abilities);
    assert!(runs.iter().all(|run| run.cell.contender == "ping" && run.data.is_none()), "{:?}", texts(&runs));
}

#[test]
fn contenders_of_a_repetition_meet_the_same_losses_and_repetitions_others() {
    let runs = plan(&experiment(), &abilities());
    let seed = |text: &str| {
        let position = texts(&runs).iter().position(|other| other == text).expect(text);
        runs[position].seed
    };
    assert_eq!(seed("1 slow/image/rsync/cubic"), seed("1 slow/other/patch/cubic"));
    assert_ne!(seed("1 fast/ping/cubic"), seed("2 fast/ping/cubic"));
    assert_ne!(seed("1 fast/ping/cubic"), seed("1 slow/ping/cubic"));
    let mut other = experiment();
    other.seed = 2;
    assert_ne!(plan(&other, &abilities())[0].seed, runs[0].seed);
    assert!(runs.iter().all(|run| run.seed < 1 << 53), "a reader of JSON would round a seed");
}

#[test]
fn filters_match_the_text_of_a_cell() {
    let planned = plan(&experiment(), &abilities());
    let selected = |globs: &[&str]| left(&planned, &[], &Filter::new(globs).expect("globs")).len();
    assert_eq!(selected(&[]), planned.len());
    assert_eq!(selected(&["slow/*"]), 5);
    assert_eq!(selected(&["*/rsync/*"]), 6);
    assert_eq!(selected(&["*/rsync/bbr", "slow/ping/*"]), 3);
    assert_eq!(selected(&["{slow,fast}/ping/cubic"]), 3);
    assert_eq!(selected(&["slow"]), 0, "a glob is about the whole text");
    assert!(Filter::new(&["a[b"]).is_err());
}

fn record(run: &PlannedRun, failed: Option<&str>) -> RunRecord {
    RunRecord {
        version: crate::record::RECORD_VERSION,
        cell: run.cell.clone(),
        repetition: run.repetition,
        seed: run.seed,
        digest: String::new(),
        started: "2026-11-22T00:00:00Z".to_owned(),
        whole_seconds: 1.0,
        versions: BTreeMap::new(),
        phases: Vec::new(),
        failed: failed.map(str::to_owned),
        slow: None,
    }
}

#[test]
fn what_is_there_and_counts_is_not_left() {
    let planned = plan(&experiment(), &abilities());
    let all = Filter::new::<&str>(&[]).expect("no globs");
    let records = [record(&planned[0], None), record(&planned[2], Some("hung")), record(&planned[5], None)];
    let left_over = left(&planned, &records, &all);
    assert_eq!(left_over.len(), planned.len() - 2);
    assert!(left_over.contains(&planned[2]), "a failed run is made again");
    assert!(left_over.contains(&planned[9]), "another repetition of the cell is left");
    let everything: Vec<RunRecord> = planned.iter().map(|run| record(run, None)).collect();
    assert_eq!(left(&planned, &everything, &all), []);
}

#[test]
fn runs_go_on_at_once_only_where_every_link_concerned_allows_it() {
    let planned = plan(&experiment(), &abilities());
    let (slow, fast) = (&planned[..5], &planned[5..]);
    assert_eq!(next(slow, &[]), Some(0));
    assert_eq!(next(&slow[1..], &slow[..1]), Some(0));
    assert_eq!(next(&slow[2..], &slow[..2]), None, "two at once, not three");
    assert_eq!(next(fast, &slow[..1]), None, "the fast link's runs are alone");
    assert_eq!(next(slow, &fast[..1]), None, "and stay alone");
    assert_eq!(next(&[], &[]), None);
}

#[test]
fn the_same_cell_never_runs_twice_at_once() {
    let mut experiment = experiment();
    experiment.links[1].parallel = Some(2);
    let planned = plan(&experiment, &abilities());
    let again: Vec<PlannedRun> = planned
        .iter()
        .filter(|run| run.cell == planned[5].cell || run.cell == planned[6].cell)
        .cloned()
        .collect();
    assert_eq!(
        texts(&again),
        ["1 fast/ping/cubic", "1 fast/ping/bbr", "2 fast/ping/cubic", "2 fast/ping/bbr"]
    );
    assert_eq!(next(&again[2..], &again[..1]), Some(1), "the next cell goes first");
    assert_eq!(next(&again[2..3], &again[..1]), None);
}
