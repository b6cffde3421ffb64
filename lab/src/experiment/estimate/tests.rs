use std::collections::BTreeMap;

use super::*;
use crate::link::LinkTerms;
use crate::record::result::GenerationFacts;
use crate::record::{Cell, DirectionCounters, PhaseRecord, RECORD_VERSION};

fn link(name: &str, rate_bits: u64, loss: f64) -> Link {
    let rtt = Some(Duration::from_millis(50));
    LinkTerms { rate: Some(rate_bits), rtt, loss: Some(loss), ..LinkTerms::default() }
        .build(name)
        .expect("a link")
}

fn links() -> Vec<Link> {
    vec![link("slow", 1_000_000, 0.0), link("fast", 8_000_000, 0.0), link("lossy", 80_000_000, 0.001)]
}

fn data() -> Vec<DataFacts> {
    let generation = |name: &str, changed_blocks| GenerationFacts {
        name: name.to_owned(),
        volumes: 1,
        size_bytes: 40_960_000,
        data_bytes: 40_960_000,
        changed_blocks,
        zstd_bytes: 10_000_000,
    };
    vec![DataFacts {
        name: "d".to_owned(),
        set: "random".to_owned(),
        kind: "image".to_owned(),
        seed: 1,
        generations: vec![generation("A", None), generation("B", Some(2500))],
    }]
}

fn planned(link: usize, contender: &str, congestion: &str, parallel: u32) -> PlannedRun {
    let cell = Cell {
        link: links()[link].name.clone(),
        data: Some("d".to_owned()),
        contender: contender.to_owned(),
        congestion: congestion.to_owned(),
    };
    PlannedRun { cell, link, data: Some(0), repetition: 1, seed: 1, parallel }
}

fn record(run: &PlannedRun, whole_seconds: f64, forward_bytes: u64) -> RunRecord {
    RunRecord {
        version: RECORD_VERSION,
        cell: run.cell.clone(),
        repetition: run.repetition,
        seed: 1,
        digest: String::new(),
        started: String::new(),
        whole_seconds,
        versions: BTreeMap::new(),
        phases: vec![PhaseRecord {
            phase: "initial".to_owned(),
            generation: Some("A".to_owned()),
            seconds: 1.0,
            forward: DirectionCounters { bytes_in: forward_bytes, ..DirectionCounters::default() },
            ..PhaseRecord::default()
        }],
        failed: None,
        slow: None,
    }
}

fn estimate(records: &[RunRecord], run: &PlannedRun) -> Estimate {
    Known { records, links: &links(), portions: &[], data: &data() }.estimate(run)
}

#[test]
fn earlier_runs_of_the_cell_are_the_best_estimate() {
    let run = planned(0, "rsync", "cubic", 1);
    let other = planned(0, "rsync", "bbr", 1);
    let records =
        [record(&run, 30.0, 0), record(&run, 10.0, 0), record(&run, 20.0, 0), record(&other, 99.0, 0)];
    assert_eq!(estimate(&records, &run), Estimate { seconds: 20.0, source: Source::SameCell });
    let mut failed = record(&run, 1000.0, 0);
    failed.failed = Some("hung".to_owned());
    assert_eq!(estimate(&[failed, record(&run, 10.0, 0)], &run).seconds, 10.0);
}

#[test]
fn before_anything_ran_the_size_and_the_rate_tell() {
    let computed = estimate(&[], &planned(0, "rsync", "cubic", 1));
    assert_eq!(computed.source, Source::Computed);
    // 10 MB, and a quarter of it for the update, at 1 Mb/s; the rest is preparation and proof.
    let beside = UNCOUNTED_SECONDS + 2.0 * 40_960_000.0 * SECONDS_PER_BYTE;
    assert!((computed.seconds - 100.0 - beside).abs() < 1e-6, "{computed:?}");
    let probe = PlannedRun { data: None, ..planned(0, "ping", "cubic", 1) };
    assert_eq!(estimate(&[], &probe).seconds, PROBE_SECONDS);
}

#[test]
fn losses_slow_cubic_and_not_bbr() {
    let lossy = &links()[2];
    assert_eq!(goodput_bits(lossy, "bbr"), 80e6);
    let cubic = goodput_bits(lossy, "cubic");
    assert!((8e6..12e6).contains(&cubic), "about 10 Mb/s at 50 ms and 0.1 %, not {cubic}");
    assert_eq!(goodput_bits(&links()[1], "cubic"), 8e6);
}

#[test]
fn the_total_knows_what_runs_at_once() {
    let (one, two, alone) =
        (planned(0, "a", "cubic", 2), planned(0, "b", "cubic", 2), planned(1, "a", "cubic", 1));
    let records = [record(&one, 10.0, 0), record(&two, 30.0, 0), record(&alone, 5.0, 0)];
    let (links, data) = (links(), data());
    let known = Known { records: &records, links: &links, portions: &[], data: &data };
    assert_eq!(known.total_seconds(&[one.clone(), two.clone()]), 30.0);
    assert_eq!(known.total_seconds(&[one.clone(), two, alone.clone()]), 35.0);
    assert_eq!(known.total_seconds(&[one.clone(), alone, one]), 25.0);
    assert_eq!(known.total_seconds(&[]), 0.0);
}

#[test]
fn limits_are_generous_and_bounded() {
    let limit = |seconds| phase_limit(Estimate { seconds, source: Source::Computed });
    assert_eq!(limit(1.0), LIMIT_LEAST);
    assert_eq!(limit(100.0), Duration::from_secs(2000));
    assert_eq!(limit(1e9), LIMIT_MOST);
    assert_eq!(limit(f64::NAN), LIMIT_MOST, "a limit there must be");
}
