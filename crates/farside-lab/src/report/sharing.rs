//! A mirror beside other traffic: what each gets. Pure.

use crate::record::result::{ExperimentResult, PhaseResult};

use super::filling::{Section, head};
use super::plot::{self, Bar, Kind, PlotError};
use super::sheet::{self, Field, Line, NOTHING, Sheet, figures, words};
use super::table;
use super::text::{number, one_line};

/// Width of pictures, pixels.
const WIDTH: u32 = 700;

const READING: &str = "Milliseconds from the moment at which a request of 100 bytes is due until its answer of 1000 bytes is there; a \
    request is due every 50 ms. Answers, the greedy stream and the mirror travel the same way.\n\n";

/// The section.
///
/// # Errors
/// [`PlotError`].
pub fn section(result: &ExperimentResult) -> Result<Section, PlotError> {
    let mut section = Section { markdown: head(result), pictures: Vec::new() };
    let mut sheet = Sheet { head: vec![words("link"), words("traffic")], ..Sheet::default() };
    sheet.head.extend(
        ["median ms", "95 % ms", "99 % ms", "longest ms", "answered", "mirror Mb/s", "greedy Mb/s"]
            .map(figures),
    );
    let mut bars = Vec::new();
    for cell in &result.cells {
        let Some(phase) = cell.phases.first() else { continue };
        let field = |name: &str| -> Field {
            let figure = phase.figures.get(name).filter(|figure| figure.median != 0.0);
            figure.map_or(NOTHING.to_owned(), |figure| sheet::spread(figure, number)).into()
        };
        let traffic = one_line(&cell.cell.contender);
        let mut fields: Vec<Field> = vec![one_line(&cell.cell.link).into(), traffic.clone().into()];
        fields.extend(
            ["median-ms", "p95-ms", "p99-ms", "max-ms", "answered-percent", "mirror-mbit", "greedy-mbit"]
                .map(field),
        );
        sheet.rows.push(Line { role: None, fields });
        let name = format!("{}: {traffic}", one_line(&cell.cell.link));
        bars.push(Bar { name, kind: Kind::Own, first: of(phase, "median-ms"), second: rest(phase) });
    }
    section.markdown.push_str(READING);
    section.markdown.push_str(&table::markdown_table(&sheet));
    if !bars.is_empty() {
        let name = format!("{}.svg", result.name);
        section.markdown.push_str(&format!(
            "![Latency beside a mirror](measured/{name})\n\nMilliseconds of the median answer, and, paler, up to those that 95 % need.\n\n"
        ));
        section.pictures.push((name, plot::bars(WIDTH, "ms", &bars)?));
    }
    Ok(section)
}

fn of(phase: &PhaseResult, name: &str) -> Option<f64> {
    phase.figures.get(name).map(|figure| figure.median)
}

/// From the median to what 95 % of the answers need.
fn rest(phase: &PhaseResult) -> f64 {
    of(phase, "p95-ms").zip(of(phase, "median-ms")).map_or(0.0, |(most, middle)| (most - middle).max(0.0))
}
