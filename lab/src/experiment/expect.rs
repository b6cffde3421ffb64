//! Judges what a result must show. Pure.
//!
//! Each expectation is judged in every cell of the plan that it names. A cell without the figure (nothing has run, or
//! the contender does not print it) misses it: what is not shown is not there.

use super::file::{Expectation, Target, Tolerance};
use crate::link::{Link, Loss};
use crate::record::result::{CellResult, PhaseResult, Verdict};
use crate::record::{Cell, RunRecord};
use crate::text::number;

/// Standard deviations that a sampled share may be away: by chance, 1 in 370 is further.
const SAMPLING_SIGMAS: f64 = 3.0;

/// Bytes of the IP packet that `ping` sends unless told otherwise: what [`property`] `link.ping_ms` reckons with.
const PING_BYTES: f64 = 84.0;

/// The properties of a link that a figure can be compared with, and what each is.
pub const PROPERTIES: [(&str, &str); 7] = [
    ("link.rtt_ms", "round-trip time without queues and without the time on the line"),
    ("link.ping_ms", "the same with the time that the 84 bytes of a ping take on the line, both directions"),
    ("link.rate_mbit", "rate from a to b, Mb/s of IP packets"),
    ("link.rate_back_mbit", "rate from b to a"),
    ("link.loss_percent", "share of packets lost from a to b"),
    ("link.loss_back_percent", "share lost from b to a"),
    ("link.loss_round_percent", "share of round trips lost, either direction"),
];

/// The property `name` of `link`, as it is before its script changes anything; nothing for a name not in
/// [`PROPERTIES`].
#[must_use]
pub fn property(link: &Link, name: &str) -> Option<f64> {
    let rtt_ms = (link.forward.delay + link.back.delay).as_secs_f64() * 1e3;
    let (forward_loss, back_loss) = (loss_rate(&link.forward.loss), loss_rate(&link.back.loss));
    Some(match name {
        "link.rtt_ms" => rtt_ms,
        "link.ping_ms" => {
            let on_the_line = |rate_bits: u64| PING_BYTES * 8.0 / rate_bits as f64 * 1e3;
            rtt_ms + on_the_line(link.forward.rate_bits) + on_the_line(link.back.rate_bits)
        }
        "link.rate_mbit" => link.forward.rate_bits as f64 / 1e6,
        "link.rate_back_mbit" => link.back.rate_bits as f64 / 1e6,
        "link.loss_percent" => forward_loss * 100.0,
        "link.loss_back_percent" => back_loss * 100.0,
        "link.loss_round_percent" => (1.0 - (1.0 - forward_loss) * (1.0 - back_loss)) * 100.0,
        _ => return None,
    })
}

/// How `expectations` came out in `cells`, made of `runs` over `links`; in the order of the expectations.
#[must_use]
pub fn judge(
    expectations: &[Expectation],
    cells: &[CellResult],
    runs: &[RunRecord],
    links: &[Link],
) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for expectation in expectations {
        for cell in cells.iter().filter(|cell| concerns(expectation, &cell.cell)) {
            let Some(link) = links.iter().find(|link| link.name == cell.cell.link) else { continue };
            let before = verdicts.len();
            for phase in cell.phases.iter().filter(|phase| wants_phase(expectation, phase)) {
                let target = target(expectation, link, cell, phase, cells);
                verdicts.push(judge_phase(expectation, &target, cell, phase, runs, link));
            }
            if verdicts.len() == before {
                verdicts.push(unseen(expectation, cell, link));
            }
        }
    }
    verdicts
}

fn concerns(expectation: &Expectation, cell: &Cell) -> bool {
    let admits =
        |list: &Option<Vec<String>>, name: &String| list.as_ref().is_none_or(|names| names.contains(name));
    expectation.contender == cell.contender
        && admits(&expectation.links, &cell.link)
        && cell.data.as_ref().map_or(expectation.data.is_none(), |data| admits(&expectation.data, data))
        && admits(&expectation.congestion, &cell.congestion)
}

/// The phase that is named, or else each that has the figure.
fn wants_phase(expectation: &Expectation, phase: &PhaseResult) -> bool {
    let named = expectation.phase.as_ref().is_none_or(|name| *name == phase.phase);
    named && phase.figures.contains_key(&expectation.figure)
}

fn judge_phase(
    expectation: &Expectation,
    target: &Wanted,
    cell: &CellResult,
    phase: &PhaseResult,
    runs: &[RunRecord],
    link: &Link,
) -> Verdict {
    let spread = &phase.figures[&expectation.figure];
    let expected = target.value.unwrap_or_default();
    let mut verdict = Verdict {
        cell: cell.cell.clone(),
        phase: phase.phase.clone(),
        figure: expectation.figure.clone(),
        measured: Some(spread.median),
        expected,
        tolerance: 0.0,
        at_most: expectation.within == Tolerance::AtMost,
        unit: spread.unit.clone(),
        met: false,
        note: String::new(),
    };
    if target.value.is_none() {
        verdict.note = target.words.clone();
        return verdict;
    }
    match &expectation.within {
        Tolerance::Absolute(away) => {
            verdict.tolerance = *away;
            verdict.note = format!("median of {} within {away} {}", spread.n, spread.unit);
        }
        Tolerance::Relative(share) => {
            verdict.tolerance = share * expected.abs();
            verdict.note = format!("median of {} within {} %", spread.n, share * 100.0);
        }
        Tolerance::AtMost => {
            verdict.note = format!("median of {} at most {}", spread.n, target.words);
            verdict.met = spread.median <= expected;
            return verdict;
        }
        Tolerance::Sampling(count) => match pooled(cell, phase, &expectation.figure, count, runs) {
            Some((percent, trials)) => {
                verdict.measured = Some(percent);
                verdict.tolerance = SAMPLING_SIGMAS * deviation_percent(expected / 100.0, trials, link);
                verdict.note = format!("all runs together, {SAMPLING_SIGMAS} sigma of {trials} trials");
            }
            None => {
                verdict.note = format!("no run counts its trials: figure {count} is missing or zero");
                return verdict;
            }
        },
    }
    verdict.met = verdict.measured.is_some_and(|measured| (measured - expected).abs() <= verdict.tolerance);
    verdict
}

fn unseen(expectation: &Expectation, cell: &CellResult, link: &Link) -> Verdict {
    Verdict {
        cell: cell.cell.clone(),
        phase: expectation.phase.clone().unwrap_or_default(),
        figure: expectation.figure.clone(),
        measured: None,
        expected: expected_before(expectation, link),
        tolerance: 0.0,
        at_most: expectation.within == Tolerance::AtMost,
        unit: String::new(),
        met: false,
        note: if cell.counted == 0 { "no run counts yet" } else { "no run has this figure" }.to_owned(),
    }
}

/// What a figure should be.
struct Wanted {
    /// Nothing where those that it is compared with have not run.
    value: Option<f64>,
    /// What it is, or why there is none.
    words: String,
}

fn target(
    expectation: &Expectation,
    link: &Link,
    cell: &CellResult,
    phase: &PhaseResult,
    cells: &[CellResult],
) -> Wanted {
    let Target::Others(others) = &expectation.of else {
        let value = expected_before(expectation, link);
        return Wanted { value: Some(value), words: number(value) };
    };
    let beside = |other: &&CellResult| {
        let (one, other) = (&cell.cell, &other.cell);
        others.best.contains(&other.contender)
            && (&one.link, &one.data, &one.congestion) == (&other.link, &other.data, &other.congestion)
    };
    let same = |other: &&PhaseResult| (&other.phase, &other.generation) == (&phase.phase, &phase.generation);
    let medians = cells.iter().filter(beside).filter_map(|other| {
        let spread = other.phases.iter().find(same)?.figures.get(&expectation.figure)?;
        Some((spread.median, other.cell.contender.as_str()))
    });
    match medians.min_by(|(one, _), (other, _)| one.total_cmp(other)) {
        Some((median, name)) => Wanted {
            value: Some(median * others.times),
            words: format!("{} × {name}'s {}", others.times, number(median)),
        },
        None => Wanted { value: None, words: format!("none of {} has run", others.best.join(", ")) },
    }
}

/// What a figure should be whatever others do, zero where it depends on them; a property that is not known, which the
/// file's check refuses, is met by nothing.
fn expected_before(expectation: &Expectation, link: &Link) -> f64 {
    match &expectation.of {
        Target::Number(number) => *number,
        Target::Property(name) => property(link, name).unwrap_or(f64::NAN),
        Target::Others(_) => 0.0,
    }
}

/// A share in percent over all runs of the cell that count, each by its number of trials; and these together.
fn pooled(
    cell: &CellResult,
    phase: &PhaseResult,
    figure: &str,
    count: &str,
    runs: &[RunRecord],
) -> Option<(f64, u64)> {
    let (mut hits, mut trials) = (0.0, 0.0);
    for run in runs.iter().filter(|run| run.cell == cell.cell && run.failed.is_none()) {
        for record in run.phases.iter().filter(|r| r.phase == phase.phase && r.generation == phase.generation)
        {
            let (percent, tried) = (record.figure(figure)?.value, record.figure(count)?.value);
            hits += percent / 100.0 * tried;
            trials += tried;
        }
    }
    (trials >= 1.0).then(|| (hits / trials * 100.0, trials as u64))
}

/// Standard deviation, in percent, of a share `p` seen in `trials` packets. Losses in bursts come in fewer independent
/// pieces: of a chain whose neighbours correlate by r, the variance is (1 + r) / (1 - r) times as large.
fn deviation_percent(p: f64, trials: u64, link: &Link) -> f64 {
    let inflation = variance_inflation(&link.forward.loss).max(variance_inflation(&link.back.loss));
    (p * (1.0 - p) / trials as f64 * inflation).max(0.0).sqrt() * 100.0
}

fn variance_inflation(loss: &Loss) -> f64 {
    match *loss {
        Loss::Burst { rate, mean_burst } if rate > 0.0 && rate < 1.0 && mean_burst > 1.0 => {
            let leave_burst = 1.0 / mean_burst;
            let enter_burst = leave_burst * rate / (1.0 - rate);
            let correlation = 1.0 - leave_burst - enter_burst;
            (1.0 + correlation) / (1.0 - correlation)
        }
        Loss::Random { .. } | Loss::Burst { .. } => 1.0,
    }
}

/// Share of packets lost in the long run.
pub(crate) fn loss_rate(loss: &Loss) -> f64 {
    match *loss {
        Loss::Random { rate } | Loss::Burst { rate, .. } => rate,
    }
}

#[cfg(test)]
mod tests;
