use super::*;
use crate::experiment::summary::cell_result;
use crate::link::LinkTerms;
use crate::record::result::{ContenderFacts, ReportEntry, Role};
use crate::record::{Cell, PhaseRecord, RECORD_VERSION, RunRecord, Series as Samples};

/// One run of each, over a T1: seconds of the first copy.
fn result(runs: &[(&str, Role, f64)]) -> ExperimentResult {
    let link =
        LinkTerms { profile: Some("t1".to_owned()), ..LinkTerms::default() }.build("t1").expect("a link");
    let records: Vec<RunRecord> = runs
        .iter()
        .map(|(contender, _, seconds)| RunRecord {
            version: RECORD_VERSION,
            cell: Cell::try_from(format!("t1/db/{contender}/cubic")).expect("a cell"),
            repetition: 1,
            phases: vec![PhaseRecord {
                phase: "initial".to_owned(),
                seconds: *seconds,
                series: Some(Samples { every_ms: 500, forward: vec![1_000; 8] }),
                ..PhaseRecord::default()
            }],
            ..RunRecord::default()
        })
        .collect();
    ExperimentResult {
        version: RECORD_VERSION,
        name: "x".to_owned(),
        title: "Who | is quicker".to_owned(),
        about: "One\nparagraph.\n\nAnother <b>.".to_owned(),
        links: vec![link],
        contenders: runs
            .iter()
            .map(|(name, role, _)| ContenderFacts {
                name: (*name).to_owned(),
                role: *role,
                ..ContenderFacts::default()
            })
            .collect(),
        cells: records.iter().map(|run| cell_result(&run.cell, 1, &records)).collect(),
        runs: records,
        report: ReportEntry { figures: vec!["seconds".to_owned()], series: true },
        ..ExperimentResult::default()
    }
}

#[test]
fn a_table_has_jobs_in_rows_and_says_how_farside_stands_to_the_best_peer() {
    let result =
        result(&[("farside", Role::Own, 3.0), ("rsync", Role::Peer, 6.0), ("zstd", Role::Bound, 1.0)]);
    let report = page(&result).expect("a report");
    for part in [
        "# Who \\| is quicker",
        "One paragraph.\n\nAnother &lt;b&gt;.",
        "farside ÷ best peer",
        "| t1 |",
        "0.50",
        "1.544 Mb/s",
        "](seconds.svg)",
        "](series-t1.svg)",
        "scripts/bench-lab x",
    ] {
        assert!(report.markdown.contains(part), "no {part} in {}", report.markdown);
    }
    let names: Vec<&str> = report.plots.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["seconds.svg", "series-t1.svg"]);
    assert!(terminal(&result, 80).contains("farside ÷ best peer"));
}

#[test]
fn many_contenders_are_rows_and_nothing_at_all_is_a_page_too() {
    let names: Vec<String> = (0..20).map(|index| format!("setting-{index}")).collect();
    let runs: Vec<(&str, Role, f64)> = names.iter().map(|name| (name.as_str(), Role::Own, 2.0)).collect();
    let report = page(&result(&runs)).expect("a report");
    assert!(report.markdown.contains("| setting-11 |"), "{}", report.markdown);
    assert!(report.plots.iter().all(|(name, _)| name != "seconds.svg"), "too many bars");
    assert!(page(&ExperimentResult::default()).is_ok());
}
