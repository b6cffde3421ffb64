//! One table per figure: what was done in rows, who did it in columns. Pure.

use std::collections::BTreeSet;

use crate::record::COMMON_FIGURES;
use crate::record::result::{ExperimentResult, Role, Spread};

/// What is shown of jobs with data where the experiment's file does not say it.
const OF_JOBS: [&str; 4] = ["seconds", "wire_mb", "wire_packets", "cpu_seconds"];

/// Of more contenders than this each has a row: columns would not fit.
const COLUMNS_MAX: usize = 10;

/// One figure in all cells that have it.
#[derive(Clone, Debug, PartialEq)]
pub struct Pivot {
    /// Name of the figure.
    pub figure: String,
    /// Its unit.
    pub unit: String,
    /// What was done: link, data, phase.
    pub jobs: Vec<String>,
    /// Who did it.
    pub contenders: Vec<Contender>,
    /// Whether it has a plot beside the table.
    pub is_drawn: bool,
    /// By job and contender.
    pub values: Vec<Vec<Option<Spread>>>,
}

/// A column.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// Name, with the congestion control where the experiment has several.
    pub name: String,
    /// What its figures are compared as.
    pub role: Role,
}

impl Pivot {
    /// Whether more is better, as with rates.
    #[must_use]
    pub fn wants_most(&self) -> bool {
        self.unit == "Mb/s"
    }

    /// farside's median divided by the best peer's in job `job`; absent where one of them has no figure.
    #[must_use]
    pub fn ratio(&self, job: usize) -> Option<f64> {
        let medians = |role: Role| {
            let of_job = self.contenders.iter().zip(&self.values[job]);
            of_job.filter(move |(c, _)| c.role == role).filter_map(|(_, value)| Some(value.as_ref()?.median))
        };
        let best = |one: f64, other: f64| if self.wants_most() { one.max(other) } else { one.min(other) };
        let (own, peer) = (medians(Role::Own).reduce(best)?, medians(Role::Peer).reduce(best)?);
        (peer > 0.0).then(|| own / peer)
    }

    /// Whether contenders are to be the rows.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        self.contenders.len() > COLUMNS_MAX
    }
}

/// The tables of a result, one for each figure that its file names, or else for the usual ones.
#[must_use]
pub fn pivots(result: &ExperimentResult) -> Vec<Pivot> {
    let all = figures(result).into_iter().map(|(figure, is_drawn)| pivot(result, &figure, is_drawn));
    all.filter(|pivot| !pivot.jobs.is_empty()).collect()
}

/// Names of figures, and whether they are drawn.
fn figures(result: &ExperimentResult) -> Vec<(String, bool)> {
    if !result.report.figures.is_empty() {
        return result.report.figures.iter().map(|name| (name.clone(), true)).collect();
    }
    let mut names: Vec<(String, bool)> = Vec::new();
    let has_data = result.cells.iter().any(|cell| cell.cell.data.is_some());
    if has_data {
        names.extend(OF_JOBS.map(|name| (name.to_owned(), true)));
    }
    let is_common = |name: &str| COMMON_FIGURES.iter().any(|(common, _)| *common == name);
    let phases = result.cells.iter().flat_map(|cell| &cell.phases);
    let own: BTreeSet<&String> =
        phases.flat_map(|phase| phase.figures.keys()).filter(|name| !is_common(name)).collect();
    names.extend(own.into_iter().map(|name| (name.clone(), !has_data)));
    names
}

fn pivot(result: &ExperimentResult, figure: &str, is_drawn: bool) -> Pivot {
    let congestions: BTreeSet<&String> = result.cells.iter().map(|cell| &cell.cell.congestion).collect();
    let mut pivot = Pivot {
        figure: figure.to_owned(),
        unit: String::new(),
        jobs: Vec::new(),
        contenders: Vec::new(),
        is_drawn,
        values: Vec::new(),
    };
    // What is the same in all rows needs no word, and probes stand beside copies over the same link.
    let has_phases = result.cells.iter().any(|cell| cell.phases.len() > 1);
    let data: BTreeSet<&String> = result.cells.iter().filter_map(|cell| cell.cell.data.as_ref()).collect();
    for cell in &result.cells {
        for phase in &cell.phases {
            let Some(spread) = phase.figures.get(figure) else { continue };
            let mut words = vec![cell.cell.link.as_str()];
            words.extend(cell.cell.data.as_deref().filter(|_| data.len() > 1));
            if has_phases {
                words.push(&phase.phase);
                words.extend(phase.generation.as_deref().filter(|_| phase.phase == "update"));
            }
            let job = words.join(" ");
            let mut name = cell.cell.contender.clone();
            if congestions.len() > 1 {
                name.push_str(&format!(" {}", cell.cell.congestion));
            }
            let facts = result.contenders.iter().find(|facts| facts.name == cell.cell.contender);
            let role = facts.map_or(Role::Probe, |facts| facts.role);
            pivot.unit.clone_from(&spread.unit);
            let row = find_or_add(&mut pivot.jobs, job);
            let column = find_or_add(&mut pivot.contenders, Contender { name, role });
            pivot.values.resize_with(pivot.jobs.len(), Vec::new);
            for values in &mut pivot.values {
                values.resize(pivot.contenders.len(), None);
            }
            pivot.values[row][column] = Some(spread.clone());
        }
    }
    pivot
}

fn find_or_add<T: PartialEq>(list: &mut Vec<T>, one: T) -> usize {
    list.iter().position(|other| *other == one).unwrap_or_else(|| {
        list.push(one);
        list.len() - 1
    })
}
