//! Results for the tests: as an experiment would make them, with figures of real tools; farside's own are invented.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::experiment::stats::spread;
use crate::experiment::summary::cell_result;
use crate::link::{Link, Loss, Shape};
use crate::record::result::{
    CellResult, ContenderFacts, DataFacts, ExperimentResult, GenerationFacts, Machine, Role, Verdict,
};
use crate::record::{Cell, Figure, Lateness, PhaseRecord, RECORD_VERSION, RunRecord, WayCounters};

/// Link, data, contender, runs; then seconds, MB a→b and MB b→a of the initial copy and of the update.
const MAIN_JOB: &str = "\
t3 db farside 3 5.9 9.7 0.21 1.9 3.42 0.11
t3 db rsync-zlib 3 8.7 11.99 0.24 5.5 5.62 0.20
t3 db rsync-zstd 3 7.4 10.41 0.21 2.3 4.69 0.20
t3 db rsync-zstd-4k 1 8.4 10.41 0.17 2.8 3.03 0.34
t3 db zstd-full 3 7.0 10.38 0.23 4.0 10.93 0.23
t3 db zstd-full-long 1 3.8 5.31 0.13 2.1 5.31 0.11
t3 db zstd-patch-from 1 - - - 1.3 0.82 0.02
t3 db xdelta3 1 - - - 2.2 0.84 0.03
t3 db rdiff 1 - - - 3.5 4.71 0.58
t3 db restic 3 10.4 11.04 0.19 6.8 7.85 0.14
t3 db borg 3 8.1 10.39 0.17 4.2 8.39 0.14
t3 db borg-fixed-64k 1 10.5 10.72 0.20 4.7 6.68 0.12
t3 db btrfs-send 3 7.1 10.61 0.22 1.2 3.48 0.09
t3 tree farside 3 8.1 13.1 0.29 1.6 1.61 0.05
t3 tree rsync-zlib 3 12.6 15.40 0.43 4.1 0.74 0.68
t3 tree rsync-zstd 3 10.5 13.56 0.37 6.9 0.77 0.68
t3 tree zstd-full 3 9.0 12.82 0.26 4.9 12.83 0.28
t3 tree zstd-full-long 1 8.3 11.00 0.24 7.0 11.02 0.21
t3 tree zstd-patch-from 1 - - - 0.7 0.28 0.01
t3 tree xdelta3 1 - - - 0.8 0.10 0.00
t3 tree rdiff 1 - - - 3.0 7.87 0.49
t3 tree restic 3 12.4 17.86 0.37 3.5 2.84 0.06
t3 tree borg 3 14.1 16.94 0.37 3.8 2.63 0.05
t3 tree btrfs-send 3 9.8 13.53 0.25 1.3 1.42 0.04
t1 db farside 1 51.2 9.69 0.26 18.9 3.41 0.1
t1 db rsync-zlib 1 62.8 11.97 0.29 30.7 5.61 0.24
t1 db rsync-zstd 1 54.5 10.40 0.25 25.6 4.68 0.22
t1 db rsync-zstd-4k 1 54.5 10.40 0.25 17.9 3.03 0.37
t1 db zstd-full 1 54.0 10.37 0.28 57.0 10.92 0.28
t1 db zstd-full-long 1 27.8 5.30 0.14 28.4 5.31 0.14
t1 db zstd-patch-from 1 - - - 6.0 0.82 0.02
t1 db xdelta3 1 - - - 9.8 0.84 0.02
t1 db rdiff 1 - - - 28.8 4.71 0.61
t1 db restic 1 62.9 11.04 0.28 42.8 7.78 0.19
t1 db borg 1 55.8 10.38 0.25 44.6 8.39 0.20
t1 db borg-fixed-64k 1 56.8 10.71 0.28 35.6 6.67 0.17
t1 db btrfs-send 1 55.2 10.59 0.27 18.4 3.47 0.09
t1 tree farside 1 68.9 13.1 0.33 9.1 1.6 0.04
t1 tree rsync-zlib 1 80.4 15.39 0.56 11.9 0.74 0.69
t1 tree rsync-zstd 1 70.8 13.54 0.52 4.9 0.76 0.68
t1 tree zstd-full 1 66.7 12.80 0.34 66.8 12.82 0.33
t1 tree zstd-full-long 1 57.5 10.99 0.28 57.7 11.01 0.28
t1 tree zstd-patch-from 1 - - - 2.5 0.28 0.01
t1 tree xdelta3 1 - - - 1.9 0.10 0.00
t1 tree rdiff 1 - - - 43.3 7.86 0.49
t1 tree restic 1 96.3 17.84 0.45 17.4 2.84 0.07
t1 tree borg 1 89.0 16.93 0.49 14.7 2.63 0.07
t1 tree borg-fixed-64k 1 89.6 17.01 0.49 14.4 2.50 0.07
t1 tree btrfs-send 1 70.5 13.51 0.35 8.1 1.42 0.03
10mb db farside 1 8.7 9.69 0.22 3.6 3.41 0.11
10mb db rsync-zlib 1 11.1 11.97 0.25 6.9 5.61 0.23
10mb db rsync-zstd 1 9.8 10.40 0.23 5.7 4.68 0.24
10mb db rsync-zstd-4k 1 9.9 10.40 0.20 7.7 3.03 0.36
10mb db zstd-full 1 9.1 10.37 0.20 9.4 10.92 0.24
10mb db zstd-full-long 1 4.9 5.30 0.13 4.9 5.31 0.12
10mb db zstd-patch-from 1 - - - 1.7 0.82 0.02
10mb db xdelta3 1 - - - 3.0 0.84 0.02
10mb db rdiff 1 - - - 5.6 4.71 0.63
10mb db restic 1 12.0 11.01 0.22 10.0 8.24 0.18
10mb db borg 1 12.1 10.38 0.21 8.9 8.39 0.18
10mb db borg-fixed-64k 1 11.5 10.71 0.24 8.9 6.67 0.16
10mb db btrfs-send 1 9.1 10.59 0.25 3.4 3.47 0.10
10mb tree farside 1 11.4 13.1 0.28 2.3 1.6 0.04
10mb tree rsync-zlib 1 14.9 15.39 0.45 6.9 0.74 0.68
10mb tree rsync-zstd 1 12.4 13.54 0.46 3.8 0.77 0.68
10mb tree zstd-full 1 10.9 12.80 0.27 10.9 12.82 0.28
10mb tree zstd-full-long 1 9.7 10.99 0.24 9.6 11.01 0.24
10mb tree zstd-patch-from 1 - - - 1.5 0.28 0.01
10mb tree xdelta3 1 - - - 1.5 0.10 0.00
10mb tree rdiff 1 - - - 8.0 7.87 0.47
10mb tree restic 1 22.5 17.84 0.40 7.6 2.84 0.07
10mb tree borg 1 21.2 16.93 0.41 4.9 2.63 0.09
10mb tree btrfs-send 1 11.7 13.51 0.29 2.2 1.41 0.03
";

/// A link of `mbit` Mb/s, `rtt_ms` round trip, `loss_percent` lost each way.
pub(super) fn link(name: &str, mbit: f64, rtt_ms: u64, loss_percent: f64) -> Link {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fixture's own numbers")]
    let rate_bits = (mbit * 1e6) as u64;
    let shape = Shape {
        rate_bits,
        delay: Duration::from_millis(rtt_ms) / 2,
        jitter: Duration::ZERO,
        loss: Loss::Random { rate: loss_percent / 100.0 },
        reorder: 0.0,
        queue_bytes: 1 << 18,
        mtu: 1500,
    };
    Link { name: name.to_owned(), forward: shape.clone(), back: shape, script: Vec::new() }
}

/// A contender.
pub(super) fn contender(name: &str, role: Role) -> ContenderFacts {
    ContenderFacts { name: name.to_owned(), about: format!("about {name}"), role, pinned: BTreeMap::new() }
}

/// A cell.
pub(super) fn cell(link: &str, data: Option<&str>, contender: &str) -> Cell {
    Cell {
        link: link.to_owned(),
        data: data.map(str::to_owned),
        contender: contender.to_owned(),
        congestion: "cubic".to_owned(),
    }
}

/// A run without phases, which counts.
pub(super) fn run(cell: &Cell, repetition: u32) -> RunRecord {
    RunRecord {
        version: RECORD_VERSION,
        cell: cell.clone(),
        repetition,
        seed: 7,
        digest: "d".to_owned(),
        started: "2026-11-22T03:00:00Z".to_owned(),
        whole_seconds: 20.0,
        versions: BTreeMap::from([
            (cell.contender.clone(), "1.0".to_owned()),
            ("kernel".to_owned(), "Linux 6.18".to_owned()),
        ]),
        phases: Vec::new(),
        failed: None,
        slow: None,
    }
}

/// A counted phase.
pub(super) fn phase(phase: &str, seconds: f64, forward_mb: f64, back_mb: f64) -> PhaseRecord {
    let way = |mb: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a fixture's own numbers"
        )]
        let bytes = (mb * 1e6).round() as u64;
        let packets = bytes / 1000;
        WayCounters {
            packets_in: packets,
            bytes_in: bytes,
            packets_out: packets - packets / 1000,
            bytes_out: bytes - bytes / 1000,
            lost: packets / 1000,
            lateness: Lateness {
                mean_us: 20.0,
                p50_us: 14.0,
                p99_us: 92.0,
                max_us: 1430.0,
                over_1ms: 0.0001,
                real_time: true,
            },
            ..WayCounters::default()
        }
    };
    PhaseRecord {
        phase: phase.to_owned(),
        generation: (phase != "measure").then(|| if phase == "initial" { "A" } else { "B" }.to_owned()),
        seconds,
        forward: way(forward_mb),
        back: way(back_mb),
        cpu_seconds: BTreeMap::from([("a".to_owned(), seconds * 0.2), ("b".to_owned(), seconds * 0.1)]),
        load: 1.5,
        stolen_percent: None,
        series: None,
        figures: BTreeMap::new(),
    }
}

/// A result of these links, contenders and runs; each cell of the runs was planned for `planned` runs.
pub(super) fn result(
    links: Vec<Link>,
    contenders: Vec<ContenderFacts>,
    runs: Vec<RunRecord>,
    planned: u32,
) -> ExperimentResult {
    let mut cells: Vec<CellResult> = Vec::new();
    for run in &runs {
        if cells.iter().all(|cell| cell.cell != run.cell) {
            cells.push(cell_result(&run.cell, planned, &runs));
        }
    }
    let loads: Vec<f64> = runs.iter().flat_map(|run| &run.phases).map(|phase| phase.load).collect();
    ExperimentResult {
        version: RECORD_VERSION,
        name: "fixture".to_owned(),
        title: "Fixture".to_owned(),
        about: String::new(),
        digest: "d".to_owned(),
        topology: "sites".to_owned(),
        paths: 1,
        started: "2026-11-22T03:00:00Z".to_owned(),
        finished: "2026-11-22T04:40:00Z".to_owned(),
        runs_left: 0,
        machine: Machine {
            cpu: "Xeon".to_owned(),
            cores: 2,
            memory_bytes: 24_000_000_000,
            kernel: "Linux 6.18.44".to_owned(),
        },
        versions: BTreeMap::new(),
        links,
        data: Vec::new(),
        contenders,
        load: spread(&loads, ""),
        cells,
        expectations: Vec::new(),
        runs,
    }
}

/// An experiment that has not begun.
pub(super) fn nothing() -> ExperimentResult {
    let mut result =
        result(vec![link("t3", 44.736, 50, 0.1)], vec![contender("farside", Role::Own)], Vec::new(), 1);
    result.cells = vec![cell_result(&cell("t3", Some("db"), "farside"), 3, &[])];
    (result.runs_left, result.started, result.finished) = (3, String::new(), String::new());
    result.name = "nothing".to_owned();
    result
}

/// farside and three others on one link, by seconds and MB a→b of an update; farside has `own`.
pub(super) fn standing(own: &[(f64, f64)]) -> ExperimentResult {
    type Row<'a> = (&'a str, Role, &'a [(f64, f64)]);
    let peers: [Row<'_>; 4] = [
        ("farside", Role::Own, own),
        ("rsync", Role::Peer, &[(4.0, 4.0), (5.0, 4.0), (6.0, 4.0)]),
        ("restic", Role::Peer, &[(9.0, 8.0)]),
        ("patch", Role::Bound, &[(2.0, 1.0)]),
    ];
    let mut runs = Vec::new();
    for (name, _, figures) in peers {
        for (repetition, (seconds, mb)) in (1..).zip(figures) {
            let mut run = run(&cell("t1", Some("db"), name), repetition);
            run.phases.push(phase("update", *seconds, *mb, 0.0));
            runs.push(run);
        }
    }
    let contenders = peers.map(|(name, role, _)| contender(name, role)).to_vec();
    result(vec![link("t1", 1.544, 40, 0.0)], contenders, runs, 3)
}

/// The main job: all contenders, three links, two data sets; one cell failed once, one is not run yet, one was slow.
pub(super) fn main_job() -> ExperimentResult {
    let mut runs = Vec::new();
    let mut contenders: Vec<ContenderFacts> = Vec::new();
    for row in MAIN_JOB.lines() {
        let words: Vec<&str> = row.split_whitespace().collect();
        let (name, figures) = (words[2], &words[4..]);
        let role = match name {
            "farside" => Role::Own,
            "zstd-patch-from" | "xdelta3" => Role::Bound,
            _ => Role::Peer,
        };
        if contenders.iter().all(|contender| contender.name != name) {
            contenders.push(contender(name, role));
        }
        let cell = cell(words[0], Some(words[1]), name);
        for repetition in 1..=words[3].parse::<u32>().expect("runs") {
            let mut run = run(&cell, repetition);
            // Other seeds, other seconds.
            let spread = 1.0 + 0.07 * (f64::from(repetition) - 2.0).clamp(-1.0, 1.0);
            for (word, figures) in ["initial", "update"].iter().zip(figures.chunks(3)) {
                if let [Ok(seconds), Ok(forward), Ok(back)] =
                    [figures[0], figures[1], figures[2]].map(str::parse::<f64>)
                {
                    run.phases.push(phase(word, seconds * spread, forward, back));
                }
            }
            if name == "restic" && words[0] == "t3" && repetition == 3 {
                run.failed =
                    Some("the copy at b differs from its source (verify ended with status 1)".to_owned());
            }
            if name == "borg" && words[0] == "t3" && repetition == 1 {
                run.slow = Some("device drops: 12".to_owned());
            }
            if name == "rsync-zlib" {
                run.versions = BTreeMap::from([("rsync".to_owned(), "3.2.7".to_owned())]);
            }
            runs.push(run);
        }
    }
    for contender in contenders.iter_mut().filter(|contender| contender.name == "rsync-zlib") {
        contender.pinned.insert("rsync".to_owned(), "3.5.0".to_owned());
    }
    let links = vec![link("t3", 44.736, 50, 0.1), link("t1", 1.544, 40, 0.0), link("10mb", 10.0, 100, 0.0)];
    let mut result = result(links, contenders, runs, 3);
    let todo = cell("10mb", Some("tree"), "btrfs-send");
    result.runs.retain(|run| run.cell != todo);
    for cell in result.cells.iter_mut().filter(|cell| cell.cell == todo) {
        (cell.counted, cell.phases) = (0, Vec::new());
    }
    result.runs_left = 3;
    result.name = "main-job".to_owned();
    result.title = "The main job: first copy and update".to_owned();
    result.about = "Every contender brings the same volume over the same link, first whole, then its next state.\n\nBytes \
                    are exact, seconds depend on where losses fall."
        .to_owned();
    result.versions = BTreeMap::from([
        ("farside".to_owned(), "0.9.0 (95efc7c)".to_owned()),
        ("rsync".to_owned(), "3.2.7".to_owned()),
    ]);
    let generation = |name: &str, changed, zstd_bytes| GenerationFacts {
        name: name.to_owned(),
        volumes: 1,
        size_bytes: 167_772_160,
        data_bytes: 128_000_000,
        changed_blocks: changed,
        zstd_bytes,
    };
    let data = |name: &str, kind: &str| DataFacts {
        name: name.to_owned(),
        set: if kind == "tree" { "packages" } else { "postgres" }.to_owned(),
        kind: kind.to_owned(),
        seed: 1,
        generations: vec![generation("A", None, 10_000_000), generation("B", Some(10_407), 10_900_000)],
    };
    result.data = vec![data("db", "image"), data("tree", "tree")];
    result
}

/// A probe's run: one figure, `value`.
pub(super) fn probe_run(cell: &Cell, repetition: u32, name: &str, value: f64, unit: &str) -> RunRecord {
    let mut run = run(cell, repetition);
    let mut phase = phase("measure", 10.0, 3.0, 0.2);
    phase.figures.insert(name.to_owned(), Figure { value, unit: unit.to_owned() });
    run.phases.push(phase);
    run
}

/// Proof of the emulator: round-trip time and rate on every profile against what they should be, one of them missed.
pub(super) fn emulator() -> ExperimentResult {
    let profiles = [
        ("frac-t1", 0.256),
        ("t1", 1.544),
        ("dsl", 6.0),
        ("10mb", 10.0),
        ("t3", 44.736),
        ("oc3", 155.52),
        ("oc12", 622.08),
        ("1gb", 1000.0),
    ];
    let links: Vec<Link> = profiles.iter().map(|(name, mbit)| link(name, *mbit, 50, 1.0)).collect();
    let (mut runs, mut verdicts) = (Vec::new(), Vec::new());
    for (index, (name, mbit)) in profiles.into_iter().enumerate() {
        for (probe, figure, expected, unit, tolerance) in
            [("ping", "rtt", 50.0, "ms", 1.0), ("iperf3-udp", "rate", mbit, "Mb/s", mbit / 100.0)]
        {
            let cell = cell(name, None, probe);
            let off = if name == "1gb" { 0.97 } else { 1.003 };
            for repetition in 1..=3 {
                let value = expected * off * (1.0 + f64::from(repetition) * 1e-4);
                let mut run = probe_run(&cell, repetition, figure, value, unit);
                for phase in &mut run.phases {
                    let slower = 1.0 + index as f64 * index as f64;
                    for way in [&mut phase.forward, &mut phase.back] {
                        way.lateness.p50_us = 9.0 * slower;
                        way.lateness.p99_us = 60.0 * slower;
                        way.lateness.max_us = 900.0 * slower;
                        way.device_drops = if name == "1gb" { 17 } else { 0 };
                    }
                }
                run.slow = (name == "1gb").then(|| "51 packets dropped by the devices".to_owned());
                runs.push(run);
            }
            let measured = expected * off * 1.0002;
            let met = (measured - expected).abs() <= tolerance;
            verdicts.push(Verdict {
                cell,
                phase: "measure".to_owned(),
                figure: figure.to_owned(),
                measured: Some(measured),
                expected,
                tolerance,
                at_most: false,
                unit: unit.to_owned(),
                met,
                note: if met { String::new() } else { "more than 1 % away".to_owned() },
            });
        }
    }
    let probes = ["ping", "iperf3-udp"].map(|name| contender(name, Role::Probe)).to_vec();
    let mut result = result(links, probes, runs, 3);
    result.title = "The emulator against ping and iperf3".to_owned();
    result.name = "emulator".to_owned();
    result.expectations = verdicts;
    result
}

/// TCP over T3 and OC-3: goodput against round-trip time, for several losses and streams.
pub(super) fn goodput() -> ExperimentResult {
    let (mut links, mut runs) = (Vec::new(), Vec::new());
    for (line, mbit) in [("t3", 44.736), ("oc3", 155.52)] {
        for rtt in [50_u32, 100, 300] {
            for loss in [0.0, 0.1, 1.0] {
                let name = format!("{line}-{rtt}ms-{loss}");
                links.push(link(&name, mbit, u64::from(rtt), loss));
                for streams in [1, 8] {
                    for congestion in ["cubic", "bbr"] {
                        let mut cell = cell(&name, None, &format!("iperf3-{streams}"));
                        congestion.clone_into(&mut cell.congestion);
                        let mathis = 1.2 * 1448.0 * 8.0 / (f64::from(rtt) * 1e3) / (loss / 100.0_f64).sqrt();
                        let most = mbit * (0.97 - f64::from(rtt) / 1500.0);
                        let value = if congestion == "bbr" {
                            most * 0.98
                        } else {
                            most.min(mathis * f64::from(streams))
                        };
                        for repetition in 1..=3 {
                            let value = value * (1.0 - 0.05 * f64::from(repetition - 1));
                            runs.push(probe_run(&cell, repetition, "goodput", value, "Mb/s"));
                        }
                    }
                }
            }
        }
    }
    let probes = ["iperf3-1", "iperf3-8"].map(|name| contender(name, Role::Probe)).to_vec();
    let mut result = result(links, probes, runs, 3);
    result.title = "What TCP gets of a lossy line".to_owned();
    result.name = "tcp".to_owned();
    result
}
