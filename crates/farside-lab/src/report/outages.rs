//! Cuts, dead paths and restarted daemons: seconds until data flows again, and bytes sent twice. Pure.

use crate::experiment::stats::{median, spread};
use crate::link::{Change, Link};
use crate::record::result::ExperimentResult;
use crate::record::{PhaseRecord, RunRecord};

use super::filling::{Section, head};
use super::flow::Flow;
use super::plot::{self, Curve, PlotError};
use super::sheet::{self, Line, NOTHING, Sheet, figures, words};
use super::table;
use super::text::{number, one_line};

/// Data flows again where an interval carries this share of the line.
const FLOWING: f64 = 0.2;

/// After something is killed, what is on its way still comes out; it takes no longer than this, seconds.
const DRAINED_SECONDS: f64 = 2.0;

/// Width of pictures, pixels.
const WIDTH: u32 = 700;

/// Seconds per point of a curve.
const POINT_SECONDS: f64 = 1.0;

const READING: &str = "*Seconds until data flows* count from the moment at which the line is whole again, or the \
    daemon is killed, until 100 ms carry a fifth of what the line carries. Where a path stays cut it is the longest time without that, from \
    the cut until the copy is there, what is asked and proved at the end included. *MB more* is what the source sent beyond the undisturbed \
    transfer's median: what it sent into the cut and what it sent twice. Lines, their cut included, are told under *what happens*.\n\n";

/// The section.
///
/// # Errors
/// [`PlotError`].
pub fn section(result: &ExperimentResult) -> Result<Section, PlotError> {
    let mut section = Section { markdown: head(result), pictures: Vec::new() };
    let mut sheet = Sheet { head: vec![words("what happens"), words("contender")], ..Sheet::default() };
    sheet.head.extend(["s until data flows", "s in all", "MB sent", "MB more"].map(figures));
    sheet.head.push(words("runs"));
    let mut curves = Vec::new();
    let mut legend = Vec::new();
    for cell in &result.cells {
        let Some(link) = result.links.iter().find(|link| link.name == cell.cell.link) else { continue };
        let runs: Vec<(&RunRecord, &PhaseRecord)> = result
            .runs
            .iter()
            .filter(|run| run.cell == cell.cell && run.failed.is_none())
            .filter_map(|run| Some((run, run.phases.first()?)))
            .collect();
        let of = |value: &dyn Fn(&PhaseRecord) -> Option<f64>| {
            let values: Vec<f64> = runs.iter().filter_map(|(_, phase)| value(phase)).collect();
            spread(&values, "")
        };
        let sent = |phase: &PhaseRecord| Some(phase.forward.bytes_in as f64 / 1e6);
        let undisturbed = undisturbed(result, &cell.cell.contender);
        let more = |phase: &PhaseRecord| Some(sent(phase)? - undisturbed?);
        let shown = |value: &dyn Fn(&PhaseRecord) -> Option<f64>| {
            of(value).map_or(NOTHING.to_owned(), |value| sheet::spread(&value, number)).into()
        };
        sheet.rows.push(Line {
            role: None,
            fields: vec![
                happening(link, runs.first().map(|(_, phase)| *phase)).into(),
                one_line(&cell.cell.contender).into(),
                shown(&|phase| paused(phase, link)),
                shown(&|phase| Some(phase.seconds)),
                shown(&sent),
                shown(&more),
                format!("{} of {}", runs.len(), cell.planned).into(),
            ],
        });
        if let Some((_, phase)) = runs.first()
            && let Some(series) = &phase.series
        {
            let points = Flow::new(series, link).points(POINT_SECONDS);
            let points = points.into_iter().map(|(at, mbit)| (at, mbit, mbit, mbit)).collect();
            let index = curves.len();
            legend.push(format!(
                "{} {}, {}",
                plot::mark(index),
                table::escape_long(&one_line(&cell.cell.link)),
                table::escape_long(&one_line(&cell.cell.contender))
            ));
            curves.push(Curve { series: index, points });
        }
    }
    section.markdown.push_str(READING);
    section.markdown.push_str(&table::markdown_table(&sheet));
    // The cut of minutes would leave the others a corner of the picture.
    let shortest =
        curves.iter().filter_map(|curve| Some(curve.points.last()?.0)).fold(f64::INFINITY, f64::min);
    let (curves, legend): (Vec<Curve>, Vec<String>) = curves
        .into_iter()
        .zip(legend)
        .filter(|(curve, _)| curve.points.last().is_some_and(|last| last.0 < shortest * 5.0))
        .unzip();
    if !curves.is_empty() {
        let name = format!("{}.svg", result.name);
        section.markdown.push_str(&format!(
            "![Mb/s over seconds while things break](measured/{name})\n\nMb/s of IP packets in each second of the first run: {}\n\n",
            legend.join(" · ")
        ));
        section.pictures.push((name, plot::curves(WIDTH, "s", "Mb/s", 0.0, &curves)?));
    }
    Ok(section)
}

/// MB that the contender sends when nothing happens to its link and nobody is killed.
fn undisturbed(result: &ExperimentResult, contender: &str) -> Option<f64> {
    // Variants end with the number of their paths; the one that kills nobody is the measure for all of them.
    let paths = contender.rsplit('-').next()?;
    let quiet = |run: &&RunRecord| {
        let link = result.links.iter().find(|link| link.name == run.cell.link);
        let of_kind = run.cell.contender.rsplit('-').next() == Some(paths);
        run.failed.is_none() && of_kind && link.is_some_and(|link| link.script.is_empty())
    };
    let untouched =
        |phase: &&PhaseRecord| phase.figures.get("killed").is_none_or(|killed| killed.value <= 0.0);
    let sent: Vec<f64> = result
        .runs
        .iter()
        .filter(quiet)
        .filter_map(|run| run.phases.first())
        .filter(untouched)
        .map(|phase| phase.forward.bytes_in as f64 / 1e6)
        .collect();
    median(&sent)
}

/// What the link's script does, or who is killed, in words.
fn happening(link: &Link, phase: Option<&PhaseRecord>) -> String {
    let mut words: Vec<String> = link
        .script
        .iter()
        .map(|event| {
            let what = match event.change {
                Change::Down => "cut",
                Change::Up => "whole again",
                _ => "changed",
            };
            let path = event.path.map_or(String::new(), |path| format!("path {path} "));
            format!("{path}{what} at {} s", number(event.at.as_secs_f64()))
        })
        .collect();
    let killed = phase.and_then(|phase| phase.figures.get("killed")).filter(|killed| killed.value > 0.0);
    words.extend(killed.map(|killed| format!("daemon killed at {} s", number(killed.value))));
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

/// Seconds until data flows again.
fn paused(phase: &PhaseRecord, link: &Link) -> Option<f64> {
    let flow = Flow::new(phase.series.as_ref()?, link);
    let rate = link.forward.rate_bits as f64;
    let whole_again =
        link.script.iter().rev().find(|event| event.change == Change::Up && event.path.is_none());
    if let Some(up) = whole_again {
        return flow.until_flowing(up.at.as_secs_f64(), rate, FLOWING);
    }
    let killed = phase.figures.get("killed").map(|killed| killed.value).filter(|killed| *killed > 0.0);
    let cut =
        link.script.iter().find(|event| event.change == Change::Down).map(|event| event.at.as_secs_f64());
    let at = killed.or(cut)?;
    if killed.is_none() {
        // What stays cut may stop a transfer at any time until the copy is there, its last question included.
        return Some(flow.longest_idle(at, phase.seconds, rate, FLOWING));
    }
    // The last packets first; where it never stops, nothing is paused.
    let Some(stops) = flow.until_idle(at, rate, FLOWING).filter(|stops| *stops <= DRAINED_SECONDS) else {
        return Some(0.0);
    };
    Some(stops + flow.until_flowing(at + stops, rate, FLOWING)?)
}
