//! A result as Markdown, for the manual, and as plain tables, for a terminal. Pure.

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

use crate::experiment::stats::spread;
use crate::record::result::{ExperimentResult, Role};

use super::describe;
use super::sheet::{self, Columns, Field, Mark, NOTHING, Sheet};
use super::text::{self, MEGABYTE, number, one_line};
use super::view;

/// Facts about the whole experiment, each a name and what there is to say.
#[must_use]
pub fn facts(result: &ExperimentResult) -> Vec<(&'static str, String)> {
    let machine = &result.machine;
    let or_nothing = |text: String| if text.is_empty() { NOTHING.to_owned() } else { text };
    let memory = number(machine.memory_bytes as f64 / MEGABYTE / 1e3);
    let counted = result.runs.iter().filter(|run| run.failed.is_none()).count();
    let mut runs = format!("{counted} that count");
    let failed = result.runs.len() - counted;
    if failed > 0 {
        runs.push_str(&format!(", {failed} failed"));
    }
    let slow = result.runs.iter().filter(|run| run.failed.is_none() && run.slow.is_some()).count();
    if slow > 0 {
        runs.push_str(&format!(", {slow} measured the machine rather than the link (\"slow\")"));
    }
    if result.runs_left > 0 {
        runs.push_str(&format!(", {} still to come", result.runs_left));
    }
    let versions =
        result.versions.iter().map(|(name, version)| format!("{} {}", one_line(name), one_line(version)));
    let phases = result.runs.iter().filter(|run| run.failed.is_none()).flat_map(|run| &run.phases);
    let stolen: Vec<f64> = phases.filter_map(|phase| phase.stolen_percent).collect();
    let stolen = spread(&stolen, "").filter(|stolen| stolen.max > 0.0);
    let mut facts = vec![
        ("Runs", runs),
        ("When", when(result)),
        (
            "Machine",
            format!(
                "{}, {} cores, {memory} GB; everything on it at once",
                one_line(&machine.cpu),
                machine.cores
            ),
        ),
        ("Kernel", or_nothing(one_line(&machine.kernel))),
        ("Load average", result.load.as_ref().map_or(NOTHING.to_owned(), |load| sheet::spread(load, number))),
        ("Versions", or_nothing(versions.collect::<Vec<_>>().join(", "))),
        ("To repeat", format!("scripts/bench-lab {}", one_line(&result.name))),
    ];
    if let Some(stolen) = stolen {
        let text = format!("{} % of the processor time", sheet::spread(&stolen, number));
        facts.insert(5, ("Taken by the machine's host", text));
    }
    facts
}

fn when(result: &ExperimentResult) -> String {
    match (result.started.as_str(), result.finished.as_str()) {
        ("", _) => "not begun".to_owned(),
        (started, finished) if finished.is_empty() || finished == started => one_line(started),
        (started, finished) => format!("{} to {}", one_line(started), one_line(finished)),
    }
}

/// How a table is to be read; stands before the first one.
pub const READING: &str = "MB are 10^6 bytes of IP packets given to the link, headers, acknowledgements and \
    retransmissions included. Seconds run until the copy at b was complete: \
    farside's is on stable storage then, others' may still be in memory. Figures are medians, with the \
    smallest and the largest run in brackets where runs differ. The best of a column is marked; a bound reads the whole \
    old image at both ends, which a mirror does not, and is never the best. Every copy was compared with its source.";

/// The head of a comparison: `t3 · db · cubic`.
#[must_use]
pub fn comparison_title(comparison: &view::Comparison<'_>) -> String {
    [comparison.link_name, comparison.data_name, comparison.congestion].map(one_line).join(" · ")
}

/// What a comparison is of: its link and its data in words.
#[must_use]
pub fn comparison_text(comparison: &view::Comparison<'_>) -> String {
    let mut text = Vec::new();
    text.extend(comparison.link.map(|link| format!("Link: {}.", describe::link(link))));
    text.extend(comparison.data.map(|data| format!("Data: {}.", describe::data(data))));
    text.join(" ")
}

/// The result as a section of the manual, from a heading of the second level on.
#[must_use]
pub fn markdown(result: &ExperimentResult) -> String {
    let escape = text::markdown;
    let mut page = format!("## {}\n\n", escape(&result.title));
    for paragraph in result.about.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty()) {
        // A paragraph of the file may be longer than what is shown of a program's output.
        let lines: Vec<String> = paragraph.lines().map(escape).collect();
        page.push_str(&format!("{}\n\n", lines.join("\n")));
    }
    for (name, fact) in facts(result) {
        let fact =
            if name == "To repeat" { format!("`{}`", fact.replace('`', "'")) } else { escape_long(&fact) };
        page.push_str(&format!("* {name}: {fact}\n"));
    }
    page.push('\n');
    let comparisons = view::comparisons(result);
    if !comparisons.is_empty() {
        page.push_str(&format!("{}\n\n", escape_long(READING)));
        let summary = sheet::summary(&comparisons);
        if !summary.rows.is_empty() {
            page.push_str(&format!("### Where farside stands\n\n{}", markdown_table(&summary)));
        }
    }
    for comparison in &comparisons {
        page.push_str(&format!("### {}\n\n", escape(&comparison_title(comparison))));
        page.push_str(&format!("{}\n\n", escape_long(&comparison_text(comparison))));
        page.push_str(&markdown_table(&sheet::comparison(comparison, Columns::All)));
    }
    let rungs = sheet::rungs(result);
    if !rungs.rows.is_empty() {
        page.push_str(&format!("### What travelled, by rung\n\n{}", markdown_table(&rungs)));
    }
    let probes = sheet::probes(result, Columns::All);
    if !probes.rows.is_empty() {
        page.push_str(&format!("### Figures and expectations\n\n{}", markdown_table(&probes)));
    }
    let ways = sheet::ways(result);
    if !ways.rows.is_empty() {
        page.push_str(&format!("### The emulated links themselves\n\n{}", markdown_table(&ways)));
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

/// Sentences of ours may be long, the foreign pieces in them were cut when they were put in.
pub(super) fn escape_long(sentence: &str) -> String {
    sentence.split(' ').map(text::markdown).collect::<Vec<_>>().join(" ")
}

pub(super) fn markdown_table(sheet: &Sheet) -> String {
    let mut table = String::new();
    let heads: Vec<String> = sheet.head.iter().map(|head| text::markdown(&head.text)).collect();
    table.push_str(&format!("| {} |\n", heads.join(" | ")));
    let rules: Vec<&str> =
        sheet.head.iter().map(|head| if head.is_figures { "---:" } else { "---" }).collect();
    table.push_str(&format!("| {} |\n", rules.join(" | ")));
    for row in &sheet.rows {
        let field = |(index, field): (usize, &Field)| {
            let escaped = escape_long(&field.text);
            let strong = field.mark != Mark::Plain || (index == 0 && row.role == Some(Role::Own));
            if strong { format!("**{escaped}**") } else { escaped }
        };
        let fields: Vec<String> = row.fields.iter().enumerate().map(field).collect();
        table.push_str(&format!("| {} |\n", fields.join(" | ")));
    }
    table.push('\n');
    for note in &sheet.notes {
        table.push_str(&format!("* {}\n", escape_long(note)));
    }
    if !sheet.notes.is_empty() {
        table.push('\n');
    }
    table
}

/// The result for a terminal of `width` columns.
#[must_use]
pub fn terminal(result: &ExperimentResult, width: u16) -> String {
    let mut text = format!("{}\n", one_line(&result.title));
    for (name, fact) in facts(result) {
        text.push_str(&format!("{name}: {fact}\n"));
    }
    let comparisons = view::comparisons(result);
    for comparison in &comparisons {
        text.push_str(&format!("\n{}\n", comparison_title(comparison)));
        text.push_str(&format!("{}\n", comparison_text(comparison)));
        text.push_str(&terminal_table(&sheet::comparison(comparison, Columns::Few), width));
    }
    for (head, sheet) in [
        ("Figures and expectations", sheet::probes(result, Columns::Few)),
        ("The emulated links themselves", sheet::ways(result)),
    ] {
        if !sheet.rows.is_empty() {
            text.push_str(&format!("\n{head}\n{}", terminal_table(&sheet, width)));
        }
    }
    text
}

fn terminal_table(sheet: &Sheet, width: u16) -> String {
    let mut table = Table::new();
    let rule = LineStyle::none().fill('─').junction('─');
    table.load_style(TableStyle::new().header_separator(rule));
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.set_header(sheet.head.iter().map(|head| head.text.as_str()).collect::<Vec<_>>());
    for row in &sheet.rows {
        let field = |(index, field): (usize, &Field)| match (index, row.role) {
            (0, Some(Role::Own)) => format!("> {}", field.text),
            _ => match field.mark {
                Mark::Plain => field.text.clone(),
                Mark::Best => format!("{} *", field.text),
                Mark::Bad => format!("{} !", field.text),
            },
        };
        table.add_row(row.fields.iter().enumerate().map(field).collect::<Vec<_>>());
    }
    for index in (0..sheet.head.len()).filter(|index| sheet.head[*index].is_figures) {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = format!("{table}\n");
    if sheet.rows.iter().any(|row| row.fields.iter().any(|field| field.mark == Mark::Best)) {
        text.push_str("> farside, * best of the column\n");
    }
    text = text.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    for note in &sheet.notes {
        text.push_str(&format!("- {note}\n"));
    }
    text
}

#[cfg(test)]
mod tests;
