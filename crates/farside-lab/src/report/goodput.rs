//! What probes got of a line, as curves over round-trip time and loss. Pure.

use crate::link::Loss;
use crate::record::COMMON_FIGURES;
use crate::record::result::ExperimentResult;

use super::describe;
use super::plot::Curve;
use super::text::{exact, one_line};

/// Goodput of probes as curves: one picture per line rate and loss (or round-trip time), a curve per contender and
/// congestion control.
#[derive(Debug)]
pub struct Panel {
    /// What the picture shows.
    pub title: String,
    /// Name of the x axis.
    pub x_name: &'static str,
    /// Names of the curves.
    pub names: Vec<String>,
    /// The curves; y is percent of the line's rate.
    pub curves: Vec<Curve>,
}

/// What a picture of goodput is drawn from.
struct Goodput<'a> {
    figure: &'a str,
    rate_bits: u64,
    loss_percent: f64,
    rtt_ms: f64,
    series: String,
    percent: (f64, f64, f64),
}

/// Pictures of every figure in Mb/s that probes measured on lines that differ in round-trip time or loss.
#[must_use]
pub fn panels(result: &ExperimentResult) -> Vec<Panel> {
    let mut all: Vec<Goodput<'_>> = Vec::new();
    for cell in result.cells.iter().filter(|cell| cell.cell.data.is_none()) {
        let Some(link) = result.links.iter().find(|link| link.name == cell.cell.link) else { continue };
        let figures = cell.phases.iter().flat_map(|phase| &phase.figures);
        let own = figures.filter(|(name, spread)| {
            spread.unit == "Mb/s" && COMMON_FIGURES.iter().all(|(common, _)| common != name)
        });
        for (figure, spread) in own {
            let share = |mbit: f64| mbit * 1e8 / link.forward.rate_bits.max(1) as f64;
            all.push(Goodput {
                figure,
                rate_bits: link.forward.rate_bits,
                loss_percent: loss_percent(&link.forward.loss),
                rtt_ms: (link.forward.delay + link.back.delay).as_secs_f64() * 1e3,
                series: format!("{} {}", one_line(&cell.cell.contender), one_line(&cell.cell.congestion)),
                percent: (share(spread.min), share(spread.median), share(spread.max)),
            });
        }
    }
    let mut lines: Vec<(&str, u64)> = Vec::new();
    for goodput in &all {
        if !lines.contains(&(goodput.figure, goodput.rate_bits)) {
            lines.push((goodput.figure, goodput.rate_bits));
        }
    }
    lines
        .iter()
        .flat_map(|(figure, rate)| {
            let of_line = |goodput: &&Goodput<'_>| goodput.figure == *figure && goodput.rate_bits == *rate;
            panels_of(&all.iter().filter(of_line).collect::<Vec<_>>())
        })
        .collect()
}

/// The pictures of one figure on lines of one rate: over the property that takes more values, one for each value of the
/// other.
fn panels_of(line: &[&Goodput<'_>]) -> Vec<Panel> {
    let distinct = |of: fn(&Goodput<'_>) -> f64| {
        let mut values: Vec<f64> = line.iter().map(|goodput| of(goodput)).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        values
    };
    let (rtts, losses) = (distinct(|goodput| goodput.rtt_ms), distinct(|goodput| goodput.loss_percent));
    let over_rtt = rtts.len() >= losses.len();
    let (values, xs) = if over_rtt { (losses, rtts) } else { (rtts, losses) };
    if xs.len() < 2 {
        return Vec::new();
    }
    let place = |goodput: &Goodput<'_>| {
        let (rtt, loss) = (goodput.rtt_ms, goodput.loss_percent);
        if over_rtt { (rtt, loss) } else { (loss, rtt) }
    };
    // A series keeps its colour and mark in all pictures of the line.
    let mut names: Vec<String> = Vec::new();
    for goodput in line {
        if !names.contains(&goodput.series) {
            names.push(goodput.series.clone());
        }
    }
    let panel = |value: f64| {
        let curve = |(series, name): (usize, &String)| {
            let of_curve = |goodput: &&&Goodput<'_>| goodput.series == *name && place(goodput).1 == value;
            let point = |goodput: &&Goodput<'_>| {
                let (low, median, high) = goodput.percent;
                (place(goodput).0, low, median, high)
            };
            let mut points: Vec<_> = line.iter().filter(of_curve).map(point).collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            Curve { series, points }
        };
        let first = line.first();
        let rate = first.map_or(String::new(), |goodput| describe::rate(goodput.rate_bits));
        let figure = first.map_or(String::new(), |goodput| one_line(goodput.figure));
        let held =
            if over_rtt { format!("loss {} %", exact(value)) } else { format!("RTT {} ms", exact(value)) };
        Panel {
            title: format!("{figure} on {rate}, {held}: percent of the line"),
            x_name: if over_rtt { "RTT, ms" } else { "loss, %" },
            curves: names.iter().enumerate().map(curve).collect(),
            names: names.clone(),
        }
    };
    values.into_iter().map(panel).collect()
}

fn loss_percent(loss: &Loss) -> f64 {
    match loss {
        Loss::Random { rate } | Loss::Burst { rate, .. } => rate * 100.0,
    }
}
