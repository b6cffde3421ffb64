//! What tables and pages show of a result: which contenders did the same job over the same link, how farside stands among
//! them, and how good the emulated links were. Pure; [`super::sheet`] gives it words.
//!
//! Guarantees: only runs that count are in a figure; a bound is never the best of a column, nor is farside ever said to
//! lose less than its median says. What is not there is absent, never zero.

use std::collections::{BTreeMap, BTreeSet};

use crate::experiment::stats::spread;
use crate::link::{Link, Way};
use crate::record::result::{CellResult, ContenderFacts, DataFacts, ExperimentResult, Role, Spread, Verdict};
use crate::record::{COMMON_FIGURES, Cell, PhaseRecord, RunRecord, WayCounters};

/// What a mirror is asked to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub enum Job {
    /// The first copy.
    Initial,
    /// All later generations of a run together.
    Update,
}

impl Job {
    /// Both, in order.
    pub const ALL: [Job; 2] = [Job::Initial, Job::Update];

    /// As the records name the phase.
    #[must_use]
    pub fn phase(self) -> &'static str {
        match self {
            Job::Initial => "initial",
            Job::Update => "update",
        }
    }
}

/// A measure of a job; less is better in each.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub enum Measure {
    /// Until the copy was complete and written.
    Seconds,
    /// 10^6 bytes of IP packets from a to b.
    ForwardMb,
    /// The same from b to a.
    BackMb,
    /// Both ways together.
    WireMb,
    /// IP packets, both ways together.
    Packets,
    /// Processor seconds at a.
    CpuA,
    /// Processor seconds at b.
    CpuB,
    /// Processor seconds at both.
    Cpu,
}

impl Measure {
    /// All.
    pub const ALL: [Measure; 8] = [
        Measure::Seconds,
        Measure::ForwardMb,
        Measure::BackMb,
        Measure::WireMb,
        Measure::Packets,
        Measure::CpuA,
        Measure::CpuB,
        Measure::Cpu,
    ];
    /// Those by which contenders are compared; the others are their parts.
    pub const COMPARED: [Measure; 4] = [Measure::Seconds, Measure::WireMb, Measure::Packets, Measure::Cpu];

    /// As a sentence names it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Measure::Seconds => "seconds",
            Measure::ForwardMb => "bytes a→b",
            Measure::BackMb => "bytes b→a",
            Measure::WireMb => "bytes",
            Measure::Packets => "packets",
            Measure::CpuA => "CPU seconds at a",
            Measure::CpuB => "CPU seconds at b",
            Measure::Cpu => "CPU seconds",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Measure::Seconds | Measure::CpuA | Measure::CpuB | Measure::Cpu => "s",
            Measure::ForwardMb | Measure::BackMb | Measure::WireMb => "MB",
            Measure::Packets => "packets",
        }
    }

    fn of(self, phase: &PhaseRecord) -> Option<f64> {
        let figure = |name: &str| phase.figure(name).map(|figure| figure.value);
        let sum = |one: &str, other: &str| Some(figure(one)? + figure(other)?);
        match self {
            Measure::Seconds => figure("seconds"),
            Measure::ForwardMb => figure("forward_mb"),
            Measure::BackMb => figure("back_mb"),
            Measure::WireMb => sum("forward_mb", "back_mb"),
            Measure::Packets => sum("forward_packets", "back_packets"),
            Measure::CpuA => figure("cpu_a_seconds"),
            Measure::CpuB => figure("cpu_b_seconds"),
            Measure::Cpu => sum("cpu_a_seconds", "cpu_b_seconds"),
        }
    }
}

/// Contenders that did the same job over the same link.
#[derive(Debug)]
pub struct Comparison<'a> {
    /// The link, if the result describes it.
    pub link: Option<&'a Link>,
    /// The link's name.
    pub link_name: &'a str,
    /// The data set, if the result describes it.
    pub data: Option<&'a DataFacts>,
    /// The data set's name.
    pub data_name: &'a str,
    /// Congestion control of all hosts.
    pub congestion: &'a str,
    /// One per contender, in the plan's order.
    pub rows: Vec<Row<'a>>,
    /// How farside stands, by job and measure; nothing where farside has no figure.
    pub standings: Vec<Standing<'a>>,
}

/// A contender in a comparison.
#[derive(Debug)]
pub struct Row<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it is compared as.
    pub role: Role,
    /// How many runs were planned, count, failed, and measured the machine.
    pub cell: &'a CellResult,
    /// Figures by job and measure, over the runs that count.
    pub figures: BTreeMap<(Job, Measure), Spread>,
    /// The seconds of every run that counts.
    pub seconds: BTreeMap<Job, Vec<f64>>,
    /// How many updates a run makes.
    pub updates: usize,
    /// Versions of its programs.
    pub versions: Vec<Version<'a>>,
    /// Why runs failed, each reason once.
    pub failures: Vec<&'a str>,
    /// Why runs measured the machine, each reason once.
    pub slow: Vec<&'a str>,
}

/// A program's version in the runs.
#[derive(Debug, PartialEq)]
pub struct Version<'a> {
    /// The program.
    pub program: &'a str,
    /// Every version that took part; more than one is worth a look.
    pub seen: BTreeSet<&'a str>,
    /// The version that published figures are made with, where it is another one.
    pub pinned: Option<&'a str>,
}

/// How farside stands in a measure of a job.
#[derive(Debug, PartialEq)]
pub struct Standing<'a> {
    /// Which job.
    pub job: Job,
    /// Which measure.
    pub measure: Measure,
    /// Against the best of the peers.
    pub peer: Option<Against<'a>>,
    /// Against the best of the bounds.
    pub bound: Option<Against<'a>>,
}

/// farside's figure against another's.
#[derive(Debug, PartialEq)]
pub struct Against<'a> {
    /// The other.
    pub name: &'a str,
    /// farside's median ÷ the other's.
    pub ratio: f64,
    /// The runs of one lie among those of the other: another repetition may turn it.
    pub overlaps: bool,
}

/// Differences below this share are none: the figures are not that exact.
const EQUAL_WITHIN: f64 = 0.005;

impl Against<'_> {
    /// farside is worse.
    #[must_use]
    pub fn loses(&self) -> bool {
        self.ratio > 1.0 + EQUAL_WITHIN
    }

    /// farside is better.
    #[must_use]
    pub fn wins(&self) -> bool {
        self.ratio < 1.0 - EQUAL_WITHIN
    }
}

/// All comparisons of a result, in the plan's order.
#[must_use]
pub fn comparisons(result: &ExperimentResult) -> Vec<Comparison<'_>> {
    let mut comparisons: Vec<Comparison<'_>> = Vec::new();
    for cell in &result.cells {
        let Some(data) = cell.cell.data.as_deref() else { continue };
        let (link, congestion) = (cell.cell.link.as_str(), cell.cell.congestion.as_str());
        let row = Row::of(result, cell);
        let same =
            |c: &&mut Comparison<'_>| (c.link_name, c.data_name, c.congestion) == (link, data, congestion);
        if let Some(comparison) = comparisons.iter_mut().find(same) {
            comparison.rows.push(row);
            continue;
        }
        comparisons.push(Comparison {
            link: result.links.iter().find(|l| l.name == link),
            link_name: link,
            data: result.data.iter().find(|d| d.name == data),
            data_name: data,
            congestion,
            rows: vec![row],
            standings: Vec::new(),
        });
    }
    for comparison in &mut comparisons {
        comparison.standings = standings(&comparison.rows);
    }
    comparisons
}

impl<'a> Row<'a> {
    fn of(result: &'a ExperimentResult, cell: &'a CellResult) -> Self {
        let facts = result.contenders.iter().find(|facts| facts.name == cell.cell.contender);
        let runs: Vec<&RunRecord> = result.runs.iter().filter(|run| run.cell == cell.cell).collect();
        let counted: Vec<&RunRecord> = runs.iter().copied().filter(|run| run.failed.is_none()).collect();
        let mut figures = BTreeMap::new();
        let mut seconds = BTreeMap::new();
        let mut updates = 0;
        for job in Job::ALL {
            let phases =
                |run: &'a RunRecord| run.phases.iter().filter(move |phase| phase.phase == job.phase());
            if job == Job::Update {
                updates = counted.iter().map(|run| phases(run).count()).max().unwrap_or(0);
            }
            for measure in Measure::ALL {
                // A run without the phase or the figure has no sum; of an update in several steps all must be there.
                let sum = |run: &&'a RunRecord| {
                    phases(run)
                        .map(|phase| measure.of(phase))
                        .try_fold(None, |sum: Option<f64>, value| Some(Some(sum.unwrap_or(0.0) + value?)))?
                };
                let values: Vec<f64> = counted.iter().filter_map(sum).collect();
                if let Some(spread) = spread(&values, measure.unit()) {
                    figures.insert((job, measure), spread);
                }
                if measure == Measure::Seconds {
                    seconds.insert(job, values);
                }
            }
        }
        Self {
            name: &cell.cell.contender,
            role: facts.map_or(Role::Peer, |facts| facts.role),
            cell,
            figures,
            seconds,
            updates,
            versions: versions(facts, &counted),
            failures: reasons(&runs, |run| run.failed.as_deref()),
            slow: reasons(&counted, |run| run.slow.as_deref()),
        }
    }

    /// The median of a measure of a job.
    #[must_use]
    pub fn median(&self, job: Job, measure: Measure) -> Option<f64> {
        self.figures.get(&(job, measure)).map(|spread| spread.median)
    }

    /// How `own`, farside's row, stands against this one.
    #[must_use]
    pub fn against(&self, own: &Row<'_>, job: Job, measure: Measure) -> Option<Against<'a>> {
        let (own, other) = (own.figures.get(&(job, measure))?, self.figures.get(&(job, measure))?);
        let ratio = super::text::ratio(own.median, other.median)?;
        let overlaps = own.n > 1 && other.n > 1 && own.min <= other.max && other.min <= own.max;
        Some(Against { name: self.name, ratio, overlaps })
    }
}

/// What every run has, whatever the contender; it stands with the facts of the experiment.
const MACHINES: [&str; 2] = ["kernel", "farside-lab"];

/// Versions by program, of all runs.
fn versions<'a>(facts: Option<&'a ContenderFacts>, runs: &[&'a RunRecord]) -> Vec<Version<'a>> {
    let mut seen: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (program, version) in
        runs.iter().flat_map(|run| &run.versions).filter(|(program, _)| !MACHINES.contains(&program.as_str()))
    {
        seen.entry(program).or_default().insert(version);
    }
    let pinned = |program: &str| facts.and_then(|facts| facts.pinned.get(program)).map(String::as_str);
    let version = |(program, seen): (&'a str, BTreeSet<&'a str>)| Version {
        program,
        pinned: pinned(program).filter(|pinned| seen.iter().any(|seen| seen != pinned)),
        seen,
    };
    seen.into_iter().map(version).collect()
}

fn reasons<'a>(runs: &[&'a RunRecord], why: impl Fn(&'a RunRecord) -> Option<&'a str>) -> Vec<&'a str> {
    let mut reasons: Vec<&str> = Vec::new();
    for reason in runs.iter().filter_map(|run| why(run)) {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons
}

/// farside's row: the first of its role.
#[must_use]
pub fn own<'r, 'a>(rows: &'r [Row<'a>]) -> Option<&'r Row<'a>> {
    rows.iter().find(|row| row.role == Role::Own)
}

fn standings<'a>(rows: &[Row<'a>]) -> Vec<Standing<'a>> {
    let Some(own) = own(rows) else { return Vec::new() };
    let best = |role: Role, job, measure| {
        let all = rows.iter().filter(|row| row.role == role).filter_map(|row| row.against(own, job, measure));
        // The best of the others is the one that farside's figure is the largest multiple of.
        all.max_by(|one, other| one.ratio.total_cmp(&other.ratio))
    };
    let mut standings = Vec::new();
    for job in Job::ALL {
        for measure in Measure::COMPARED {
            if own.median(job, measure).is_none() {
                continue;
            }
            let (peer, bound) = (best(Role::Peer, job, measure), best(Role::Bound, job, measure));
            if peer.is_some() || bound.is_some() {
                standings.push(Standing { job, measure, peer, bound });
            }
        }
    }
    standings
}

/// The least median of a column among farside and its peers; nothing where they do not differ.
#[must_use]
pub fn best(rows: &[Row<'_>], job: Job, measure: Measure) -> Option<f64> {
    let fair = rows.iter().filter(|row| matches!(row.role, Role::Own | Role::Peer));
    let medians: Vec<f64> = fair.filter_map(|row| row.median(job, measure)).collect();
    let (least, most) = medians
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), m| (least.min(*m), most.max(*m)));
    (least < most).then_some(least)
}

/// A figure of a cell, with what was expected of it.
#[derive(Debug)]
pub struct Probe<'a> {
    /// Which cell.
    pub cell: &'a Cell,
    /// Its link, if the result describes it.
    pub link: Option<&'a Link>,
    /// Counts of its runs.
    pub counts: &'a CellResult,
    /// The phase.
    pub phase: Option<&'a str>,
    /// Name of the figure; absent where the cell has none at all.
    pub figure: Option<&'a str>,
    /// What was measured.
    pub measured: Option<&'a Spread>,
    /// What was expected.
    pub verdict: Option<&'a Verdict>,
    /// Why runs failed, each reason once.
    pub failures: Vec<&'a str>,
}

/// What is expected of cells, and all figures of probes of which nothing is expected, in the plan's order.
#[must_use]
pub fn probes(result: &ExperimentResult) -> Vec<Probe<'_>> {
    let mut probes = Vec::new();
    for counts in &result.cells {
        let cell = &counts.cell;
        let verdicts: Vec<&Verdict> =
            result.expectations.iter().filter(|verdict| verdict.cell == *cell).collect();
        let runs: Vec<&RunRecord> = result.runs.iter().filter(|run| run.cell == *cell).collect();
        let link = result.links.iter().find(|link| link.name == cell.link);
        // Where something is expected of a cell, its other figures are only in the raw result.
        let is_judged = !verdicts.is_empty();
        let before = probes.len();
        let probe = |phase, figure, measured, verdict| Probe {
            phase,
            cell,
            link,
            counts,
            figure,
            measured,
            verdict,
            failures: reasons(&runs, |run| run.failed.as_deref()),
        };
        for (position, verdict) in verdicts.iter().enumerate() {
            let same = |other: &&&Verdict| (&other.phase, &other.figure) == (&verdict.phase, &verdict.figure);
            // An update in several steps has a verdict for each, in their order.
            let earlier = verdicts[..position].iter().filter(same).count();
            let of_phase = counts.phases.iter().filter(|phase| phase.phase == verdict.phase);
            let all: Vec<&Spread> = of_phase.filter_map(|phase| phase.figures.get(&verdict.figure)).collect();
            let measured = all.get(earlier).or(all.last()).copied();
            probes.push(probe(
                Some(verdict.phase.as_str()),
                Some(verdict.figure.as_str()),
                measured,
                Some(*verdict),
            ));
        }
        let all = counts.phases.iter().filter(|_| !is_judged && cell.data.is_none());
        for (phase, (name, measured)) in
            all.flat_map(|phase| phase.figures.iter().map(move |figure| (phase, figure)))
        {
            if COMMON_FIGURES.iter().all(|(common, _)| common != name) {
                probes.push(probe(Some(phase.phase.as_str()), Some(name.as_str()), Some(measured), None));
            }
        }
        if probes.len() == before && cell.data.is_none() {
            probes.push(probe(None, None, None, None));
        }
    }
    probes
}

/// How one way of a link did over all runs that count.
#[derive(Debug)]
pub struct WayReport<'a> {
    /// The link.
    pub link: &'a Link,
    /// Which way.
    pub way: Way,
    /// Runs.
    pub runs: usize,
    /// Packets given to it.
    pub packets: u64,
    /// Of those that the loss model decided about, how many it took, percent.
    pub lost_percent: Option<f64>,
    /// Dropped because the queue was full.
    pub dropped_queue: u64,
    /// Dropped by the devices: the machine was too slow.
    pub device_drops: u64,
    /// Median lateness, µs: the median over phases.
    pub p50_us: f64,
    /// 99th percentile, µs: the worst phase's.
    pub p99_us: f64,
    /// Largest, µs.
    pub max_us: f64,
    /// Packets more than 1 ms late, percent.
    pub over_1ms_percent: f64,
    /// Whether all packets were carried with real-time priority.
    pub real_time: bool,
    /// Load average of the machine at the ends of phases.
    pub load: Spread,
}

/// Every way of every link that carried something in a run that counts.
#[must_use]
pub fn ways(result: &ExperimentResult) -> Vec<WayReport<'_>> {
    let mut reports = Vec::new();
    for link in &result.links {
        let runs: Vec<&RunRecord> =
            result.runs.iter().filter(|run| run.cell.link == link.name && run.failed.is_none()).collect();
        let phases: Vec<&PhaseRecord> = runs.iter().flat_map(|run| &run.phases).collect();
        let loads: Vec<f64> = phases.iter().map(|phase| phase.load).collect();
        let Some(load) = spread(&loads, "") else { continue };
        for way in [Way::Forward, Way::Back] {
            let counters: Vec<&WayCounters> = phases
                .iter()
                .map(|phase| match way {
                    Way::Forward => &phase.forward,
                    Way::Back => &phase.back,
                })
                .collect();
            let sum = |of: fn(&WayCounters) -> u64| counters.iter().map(|counters| of(counters)).sum::<u64>();
            let largest = |of: fn(&WayCounters) -> f64| counters.iter().map(|c| of(c)).fold(0.0, f64::max);
            let p50s: Vec<f64> =
                counters.iter().filter(|c| c.packets_out > 0).map(|c| c.lateness.p50_us).collect();
            let (trials, out) = (sum(WayCounters::loss_trials), sum(|c| c.packets_out));
            let over: f64 = counters.iter().map(|c| c.lateness.over_1ms * c.packets_out as f64).sum();
            reports.push(WayReport {
                link,
                way,
                runs: runs.len(),
                packets: sum(|c| c.packets_in),
                lost_percent: super::text::ratio(sum(|c| c.lost) as f64 * 100.0, trials as f64),
                dropped_queue: sum(|c| c.dropped_queue),
                device_drops: sum(|c| c.device_drops),
                p50_us: spread(&p50s, "µs").map_or(0.0, |spread| spread.median),
                p99_us: largest(|c| c.lateness.p99_us),
                max_us: largest(|c| c.lateness.max_us),
                over_1ms_percent: super::text::ratio(over * 100.0, out as f64).unwrap_or(0.0),
                real_time: counters.iter().all(|c| c.lateness.real_time || c.packets_out == 0),
                load: load.clone(),
            });
        }
    }
    reports
}
