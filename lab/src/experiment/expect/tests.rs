use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::experiment::file::Others;
use crate::link::LinkTerms;
use crate::record::{DirectionCounters, Figure, PhaseRecord, RECORD_VERSION};

fn link() -> Link {
    LinkTerms {
        rate: Some(2_000_000),
        rate_back: Some(1_000_000),
        rtt: Some(Duration::from_millis(40)),
        loss: Some(0.01),
        loss_back: Some(0.02),
        ..LinkTerms::default()
    }
    .build("l")
    .expect("a link")
}

fn cell() -> Cell {
    Cell { link: "l".to_owned(), data: None, contender: "ping".to_owned(), congestion: "cubic".to_owned() }
}

fn run(figures: &[(&str, f64)]) -> RunRecord {
    RunRecord {
        version: RECORD_VERSION,
        cell: cell(),
        repetition: 1,
        seed: 1,
        digest: String::new(),
        started: String::new(),
        whole_seconds: 1.0,
        versions: BTreeMap::new(),
        phases: vec![PhaseRecord {
            phase: "measure".to_owned(),
            seconds: 1.0,
            forward: DirectionCounters { packets_in: 10_000, lost: 120, ..DirectionCounters::default() },
            figures: figures
                .iter()
                .map(|(name, value)| ((*name).to_owned(), Figure { value: *value, unit: "u".to_owned() }))
                .collect(),
            ..PhaseRecord::default()
        }],
        failed: None,
        slow: None,
    }
}

fn expectation(figure: &str, of: Target, within: Tolerance) -> Expectation {
    let contender = "ping".to_owned();
    Expectation {
        contender,
        links: None,
        data: None,
        congestion: None,
        phase: None,
        figure: figure.to_owned(),
        of,
        within,
    }
}

fn judge_one(expectation: Expectation, runs: &[RunRecord]) -> Verdict {
    let cells = [crate::experiment::summary::cell_result(&cell(), 1, runs)];
    let verdicts = judge(&[expectation], &cells, runs, &[link()]);
    assert_eq!(verdicts.len(), 1, "{verdicts:?}");
    verdicts.into_iter().next().expect("one")
}

#[test]
fn properties_of_a_link_are_what_its_terms_say() {
    let of = |name: &str| property(&link(), name).expect(name);
    assert_eq!(of("link.rtt_ms"), 40.0);
    // 672 bits at 2 and at 1 Mb/s: 0.336 and 0.672 ms.
    assert!((of("link.ping_ms") - 41.008).abs() < 1e-9, "{}", of("link.ping_ms"));
    assert_eq!((of("link.rate_mbit"), of("link.rate_back_mbit")), (2.0, 1.0));
    assert_eq!((of("link.loss_percent"), of("link.loss_back_percent")), (1.0, 2.0));
    assert!((of("link.loss_round_percent") - 2.98).abs() < 1e-9);
    assert_eq!(property(&link(), "link.colour"), None);
    assert!(PROPERTIES.iter().all(|(name, _)| property(&link(), name).is_some()));
}

#[test]
fn absolute_and_relative_tolerances_take_the_median() {
    let rtt = |value: f64| run(&[("rtt_ms", value)]);
    let within =
        |away| expectation("rtt_ms", Target::Property("link.rtt_ms".to_owned()), Tolerance::Absolute(away));
    let verdict = judge_one(within(1.0), &[rtt(40.9), rtt(55.0), rtt(39.0)]);
    assert_eq!(
        (verdict.measured, verdict.expected, verdict.tolerance, verdict.met),
        (Some(40.9), 40.0, 1.0, true)
    );
    assert!(!judge_one(within(0.8), &[rtt(40.9)]).met);
    assert!(!judge_one(within(0.8), &[rtt(39.1)]).met, "too good is as wrong");
    let relative = |share| expectation("rtt_ms", Target::Number(41.0), Tolerance::Relative(share));
    assert!(judge_one(relative(0.01), &[rtt(41.4)]).met);
    assert!(!judge_one(relative(0.01), &[rtt(41.5)]).met);
}

#[test]
fn a_share_may_miss_by_three_sigma_of_its_sample() {
    let sampled = |percent, n: f64| run(&[("loss", percent), ("packets", n)]);
    let expect = || {
        expectation(
            "loss",
            Target::Property("link.loss_percent".to_owned()),
            Tolerance::Sampling("packets".into()),
        )
    };
    // 1 % of 10000: sigma is 0.0995 %.
    let verdict = judge_one(expect(), &[sampled(1.29, 10_000.0)]);
    assert!(verdict.met && (verdict.tolerance - 0.2985).abs() < 0.0001, "{verdict:?}");
    assert!(!judge_one(expect(), &[sampled(1.31, 10_000.0)]).met);
    // Four times the trials, half the tolerance; runs count by their trials.
    let verdict = judge_one(expect(), &[sampled(1.3, 30_000.0), sampled(0.1, 10_000.0)]);
    assert!(verdict.met && (verdict.measured.expect("measured") - 1.0).abs() < 1e-9, "{verdict:?}");
    assert!((verdict.tolerance - 0.14925).abs() < 0.0001, "{verdict:?}");
    // What the link itself counted: 120 of 10000.
    let own = Tolerance::Sampling("forward_loss_trials".to_owned());
    assert!(judge_one(expectation("forward_loss_percent", Target::Number(1.0), own), &[run(&[])]).met);
}

#[test]
fn losses_in_bursts_scatter_more() {
    let random = Loss::Random { rate: 0.01 };
    let burst = |mean_burst| Loss::Burst { rate: 0.01, mean_burst };
    assert_eq!(variance_inflation(&random), 1.0);
    assert_eq!(variance_inflation(&burst(1.0)), 1.0);
    // r = 1 - 1/4 - 1/4 * 0.01/0.99 = 0.74747: (1 + r) / (1 - r) = 6.92.
    assert!((variance_inflation(&burst(4.0)) - 6.92).abs() < 0.001);
}

#[test]
fn what_is_not_shown_misses() {
    let expect = |figure| expectation(figure, Target::Number(1.0), Tolerance::Absolute(1e9));
    let none = judge_one(expect("rtt_ms"), &[]);
    assert!(!none.met && none.measured.is_none() && none.note.contains("no run counts"), "{none:?}");
    let other = judge_one(expect("rtt_ms"), &[run(&[("loss", 1.0)])]);
    assert!(!other.met && other.note.contains("no run has this figure"), "{other:?}");
    let mut failed = run(&[("rtt_ms", 1.0)]);
    failed.failed = Some("hung".to_owned());
    assert!(!judge_one(expect("rtt_ms"), &[failed]).met);
    let sampling = expectation("loss", Target::Number(1.0), Tolerance::Sampling("packets".to_owned()));
    assert!(!judge_one(sampling, &[run(&[("loss", 1.0)])]).met, "without its count a share cannot be judged");
}

#[test]
fn an_expectation_concerns_only_the_cells_that_it_names() {
    let runs = [run(&[("rtt_ms", 40.0)])];
    let cells = [crate::experiment::summary::cell_result(&cell(), 1, &runs)];
    let count = |change: &dyn Fn(&mut Expectation)| {
        let mut expectation = expectation("rtt_ms", Target::Number(40.0), Tolerance::Absolute(1.0));
        change(&mut expectation);
        judge(&[expectation], &cells, &runs, &[link()]).len()
    };
    assert_eq!(count(&|_| {}), 1);
    assert_eq!(count(&|e| e.contender = "iperf".to_owned()), 0);
    assert_eq!(count(&|e| e.links = Some(vec!["m".to_owned()])), 0);
    assert_eq!(count(&|e| e.data = Some(vec!["postgres".to_owned()])), 0, "a probe carries none");
    assert_eq!(count(&|e| e.congestion = Some(vec!["bbr".to_owned()])), 0);
    assert_eq!(count(&|e| e.congestion = Some(vec!["cubic".to_owned()])), 1);
}

#[test]
fn a_figure_can_be_held_against_the_best_of_others() {
    let of_contender = |name: &str, link: &str, value: Option<f64>| {
        let mut run = run(&value.map_or(vec![], |value| vec![("mb", value)]));
        run.cell.contender = name.to_owned();
        run.cell.link = link.to_owned();
        crate::experiment::summary::cell_result(&run.cell.clone(), 1, &[run])
    };
    let judge_times = |times: f64, cells: &[CellResult]| {
        let others = Others { best: vec!["rsync".to_owned(), "restic".to_owned()], times };
        let expectation = expectation("mb", Target::Others(others), Tolerance::AtMost);
        judge(&[expectation], cells, &[], &[link()]).pop().expect("one")
    };
    let ping = of_contender("ping", "l", Some(2.0));
    // The better of the two; what ran over another link, or is not named, is nothing to be compared with.
    let cells = [
        ping.clone(),
        of_contender("rsync", "l", Some(8.0)),
        of_contender("restic", "l", Some(6.0)),
        of_contender("restic", "other", Some(1.0)),
        of_contender("borg", "l", Some(1.0)),
    ];
    let verdict = judge_times(1.0 / 3.0, &cells);
    assert!(verdict.met && verdict.at_most && verdict.expected == 2.0, "{verdict:?}");
    assert!(verdict.note.contains("restic's 6"), "{verdict:?}");
    assert!(!judge_times(0.33, &cells).met);
    let alone = judge_times(1.0, &[ping, of_contender("rsync", "l", None)]);
    assert!(!alone.met && alone.note.contains("none of rsync, restic has run"), "{alone:?}");
}
