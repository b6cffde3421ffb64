//! An experiment's result as a Markdown page with plots, and for a terminal. Pure.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::Report;
use super::pivot::{Pivot, pivots};
use super::plot::{self, PlotError, Series};
use crate::experiment::expect::loss_rate;
use crate::experiment::stats::spread;
use crate::record::result::{ExperimentResult, Spread, Verdict};
use crate::text::{markdown, number, one_line, rate};

/// More bars would not be readable in one plot; what is more goes to another one.
const BARS_MAX: usize = 160;

/// More contenders are not told apart by colour: the table alone has them.
const SERIES_MAX: usize = 16;

/// How a table is to be read.
const READING: &str = "Figures are medians, with the smallest and the largest run in brackets where runs differ. MB are 10^6 \
    bytes of IP packets given to the link, headers, acknowledgements and retransmissions included. Every copy was compared with its source.";

/// The page, and its plots.
///
/// # Errors
/// [`PlotError`].
pub fn page(result: &ExperimentResult) -> Result<Report, PlotError> {
    let mut report = Report { markdown: format!("# {}\n\n", markdown(&result.title)), plots: Vec::new() };
    for paragraph in result.about.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let words = paragraph.split_whitespace().map(markdown).collect::<Vec<_>>();
        report.markdown.push_str(&format!("{}\n\n", words.join(" ")));
    }
    for (name, fact) in facts(result) {
        report.markdown.push_str(&format!("* {name}: {}\n", markdown_words(&fact)));
    }
    report.markdown.push_str(&format!("* To repeat: `scripts/bench-lab {}`\n\n{READING}\n\n", result.name));
    for pivot in pivots(result) {
        let title = format!("{} ({})", pivot.figure, pivot.unit);
        report.markdown.push_str(&format!("## {}\n\n{}\n\n", markdown(&title), pivot_table(&pivot)));
        if !(pivot.is_drawn && pivot.contenders.len() <= SERIES_MAX) {
            continue;
        }
        let jobs: Vec<usize> = (0..pivot.jobs.len()).collect();
        for (part, jobs) in jobs.chunks((BARS_MAX / pivot.contenders.len()).max(1)).enumerate() {
            let part = if part == 0 { String::new() } else { format!("-{}", part + 1) };
            report.show(format!("{}{part}.svg", pivot.figure), &title, bars(&pivot, &title, jobs)?);
        }
    }
    show_series(result, &mut report)?;
    for (title, table) in [
        ("Expectations", expectations(&result.expectations)),
        ("Runs that measured the machine", slow_runs(result)),
        ("Links", links(result)),
        ("Data", data(result)),
    ] {
        if let Some(mut table) = table {
            let table = table.load_style(presets::ASCII_MARKDOWN);
            report.markdown.push_str(&format!("## {title}\n\n{table}\n\n"));
        }
    }
    report.markdown.truncate(report.markdown.trim_end().len());
    report.markdown.push('\n');
    Ok(report)
}

/// The tables for a terminal of `width` columns.
#[must_use]
pub fn terminal(result: &ExperimentResult, width: u16) -> String {
    let mut text = format!("{}\n", one_line(&result.title));
    for (name, fact) in facts(result) {
        text.push_str(&format!("{name}: {fact}\n"));
    }
    let mut show = |title: &str, mut table: Table| {
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        text.push_str(&format!("\n{title}\n{}\n", table.set_width(width)));
    };
    for pivot in pivots(result) {
        show(&format!("{} ({})", one_line(&pivot.figure), one_line(&pivot.unit)), pivot_table(&pivot));
    }
    if let Some(table) = expectations(&result.expectations) {
        show("Expectations", table);
    }
    text
}

/// When, where and with what.
fn facts(result: &ExperimentResult) -> Vec<(&'static str, String)> {
    let counted = result.runs.iter().filter(|run| run.failed.is_none());
    let slow = counted.clone().filter(|run| run.slow.is_some()).count();
    let failed = result.runs.len() - counted.clone().count();
    let stolen: Vec<f64> =
        counted.clone().flat_map(|run| &run.phases).filter_map(|phase| phase.stolen_percent).collect();
    let machine = &result.machine;
    let versions: Vec<String> =
        result.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let shown = |spread: Option<Spread>| spread.map_or("–".to_owned(), |spread| in_brackets(&spread));
    vec![
        (
            "Runs",
            format!(
                "{} that count ({slow} of them slow), {failed} failed, {} still to come",
                counted.count(),
                result.runs_left
            ),
        ),
        ("When", format!("{} to {}", result.started, result.finished)),
        (
            "Machine",
            format!(
                "{}, {} cores, {} GB; everything on it at once",
                machine.cpu,
                machine.cores,
                number(machine.memory_bytes as f64 / 1e9)
            ),
        ),
        ("Kernel", machine.kernel.clone()),
        ("Load average", shown(result.load.clone())),
        ("Taken by the machine's host, percent of processor time", shown(spread(&stolen, "%"))),
        ("Versions", versions.join(", ")),
    ]
}

/// A page's own long sentences with foreign words in them.
fn markdown_words(text: &str) -> String {
    text.split(' ').map(markdown).collect::<Vec<_>>().join(" ")
}

/// A table of Markdown; its cells are safe there.
fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(head);
    table
}

fn pivot_table(pivot: &Pivot) -> Table {
    let mut table = table(&[]);
    let cell = |spread: &Option<Spread>| spread.as_ref().map_or("–".to_owned(), in_brackets);
    let jobs = pivot.jobs.iter().map(|job| markdown(job));
    let contenders = pivot.contenders.iter().map(|contender| markdown(&contender.name));
    let ratios: Vec<Option<f64>> = (0..pivot.jobs.len()).map(|job| pivot.ratio(job)).collect();
    let last = ratios.iter().any(Option::is_some).then_some("farside ÷ best peer");
    let ratio = |ratio: &Option<f64>| ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
    let blank = || std::iter::once(String::new());
    if pivot.is_wide() {
        table.set_header(blank().chain(jobs));
        for (column, contender) in contenders.enumerate() {
            let values = pivot.values.iter().map(|row| cell(&row[column]));
            table.add_row([contender].into_iter().chain(values));
        }
        if let Some(last) = last {
            table.add_row([last.to_owned()].into_iter().chain(ratios.iter().map(ratio)));
        }
    } else {
        table.set_header(blank().chain(contenders).chain(last.map(str::to_owned)));
        for ((job, row), of_job) in jobs.zip(&pivot.values).zip(&ratios) {
            let last = last.map(|_| ratio(of_job));
            table.add_row([job].into_iter().chain(row.iter().map(cell)).chain(last));
        }
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// `5.62 (5.10–6.00)`; the brackets only where they say something.
fn in_brackets(spread: &Spread) -> String {
    let [median, least, most] = [spread.median, spread.min, spread.max].map(number);
    if least == most { median } else { format!("{median} ({least}–{most})") }
}

fn bars(pivot: &Pivot, title: &str, jobs: &[usize]) -> Result<String, PlotError> {
    let series: Vec<Series<plot::Bar>> = pivot
        .contenders
        .iter()
        .enumerate()
        .map(|(column, contender)| Series {
            name: one_line(&contender.name),
            values: jobs
                .iter()
                .map(|job| pivot.values[*job][column].as_ref().map(|one| (one.median, one.min, one.max)))
                .collect(),
        })
        .collect();
    let jobs: Vec<String> = jobs.iter().map(|job| one_line(&pivot.jobs[*job])).collect();
    plot::bars(title, &pivot.unit, &jobs, &series)
}

/// Rate over time of the first run of each cell, one plot per link.
fn show_series(result: &ExperimentResult, report: &mut Report) -> Result<(), PlotError> {
    if !result.report.series {
        return Ok(());
    }
    report
        .markdown
        .push_str("## Rate over time\n\nIP packets out of the link in the first run of each, Mb/s.\n\n");
    for link in &result.links {
        let runs = result.runs.iter().filter(|run| run.cell.link == link.name && run.repetition == 1);
        let series: Vec<Series<(f64, f64)>> = runs
            .filter_map(|run| {
                let series = run.phases.first()?.series.as_ref()?;
                Some(Series { name: one_line(&run.cell.contender), values: series.rates() })
            })
            .collect();
        if !series.is_empty() {
            let title = format!("{}: rate over time", one_line(&link.name));
            let svg = plot::lines(&title, ("s", "Mb/s"), &series, false)?;
            report.show(format!("series-{}.svg", link.name), &title, svg);
        }
    }
    Ok(())
}

fn expectations(verdicts: &[Verdict]) -> Option<Table> {
    let mut table = table(&["cell", "phase", "figure", "measured", "expected", "how far at most", "met"]);
    for verdict in verdicts {
        let tolerance = if verdict.at_most { "not above".to_owned() } else { number(verdict.tolerance) };
        table.add_row([
            markdown(&verdict.cell.to_string()),
            markdown(&verdict.phase),
            markdown(&verdict.figure),
            verdict.measured.map_or("–".to_owned(), number),
            format!("{} {}", number(verdict.expected), markdown(&verdict.unit)),
            format!("{tolerance} ({})", markdown(&verdict.note)),
            if verdict.met { "yes" } else { "**no**" }.to_owned(),
        ]);
    }
    (!verdicts.is_empty()).then_some(table)
}

fn slow_runs(result: &ExperimentResult) -> Option<Table> {
    let mut table = table(&["run", "why"]);
    for run in &result.runs {
        let why = run.failed.as_ref().map(|failed| format!("failed: {failed}")).or_else(|| run.slow.clone());
        if let Some(why) = why {
            table.add_row([markdown(&format!("{} #{}", run.cell, run.repetition)), markdown(&why)]);
        }
    }
    (!table.is_empty()).then_some(table)
}

fn links(result: &ExperimentResult) -> Option<Table> {
    let mut table =
        table(&["link", "rate a→b", "rate b→a", "RTT ms", "loss % a→b, b→a", "queue KiB", "script"]);
    for link in &result.links {
        let (forward, back) = (&link.forward, &link.back);
        let rtt_ms = (forward.delay + back.delay).as_secs_f64() * 1e3;
        table.add_row([
            markdown(&link.name),
            rate(forward.rate_bits),
            rate(back.rate_bits),
            number(rtt_ms),
            format!(
                "{}, {}",
                number(loss_rate(&forward.loss) * 100.0),
                number(loss_rate(&back.loss) * 100.0)
            ),
            (forward.queue_bytes >> 10).to_string(),
            if link.script.is_empty() { String::new() } else { format!("{} changes", link.script.len()) },
        ]);
    }
    (!result.links.is_empty()).then_some(table)
}

fn data(result: &ExperimentResult) -> Option<Table> {
    let mut table =
        table(&["data", "set", "generation", "volumes", "MB", "changed blocks", "MB under zstd -3"]);
    for facts in &result.data {
        for generation in &facts.generations {
            table.add_row([
                markdown(&facts.name),
                markdown(&facts.set),
                markdown(&generation.name),
                generation.volumes.to_string(),
                number(generation.data_bytes as f64 / 1e6),
                generation.changed_blocks.map_or(String::new(), |blocks| blocks.to_string()),
                number(generation.zstd_bytes as f64 / 1e6),
            ]);
        }
    }
    (!table.is_empty()).then_some(table)
}

#[cfg(test)]
mod tests;
