//! A result as one HTML file: tables, plots, and the raw result as JSON inside. Pure.
//!
//! The file needs nothing from elsewhere and holds no script that runs. It follows the reader's preference of light or
//! dark, every plot is drawn twice, for a wide and for a narrow window, has a text that says the same, and its table
//! beside it. All foreign text is escaped.

use std::fmt::Write as _;

use crate::record::result::{ExperimentResult, Role};

use super::describe;
use super::goodput;
use super::plot::{self, Bar, Dots, Kind, PlotError};
use super::sheet::{self, Columns, Head, Mark, Sheet};
use super::table::{self, comparison_text, comparison_title};
use super::text::{self, html, number, one_line};
use super::view::{self, Comparison, Job, Measure, Row};

/// A result larger than this is not put into the page but only linked: browsers get slow, and the file lies beside it.
pub const EMBEDDED_BYTES_MAX: usize = 4 << 20;

/// Widths of a plot, pixels: two beside each other on a page of 1180, and one on a telephone.
const WIDE: u32 = 560;
/// On a telephone.
const NARROW: u32 = 350;

/// Fields longer than this get a wider column.
const LONG_CHARS: usize = 40;

const STYLE: &str = include_str!("page.css");

/// The page. `result_json` is the text of the result file, which lies beside the page as `result.json`.
#[must_use]
pub fn page(result: &ExperimentResult, result_json: &str) -> String {
    let comparisons = view::comparisons(result);
    let mut body = String::new();
    body.push_str(&header(result));
    body.push_str(&contents(result, &comparisons));
    if !comparisons.is_empty() {
        body.push_str(&summary(&comparisons));
    }
    for (index, comparison) in comparisons.iter().enumerate() {
        body.push_str(&comparison_section(index, comparison));
    }
    body.push_str(&rung_section(result));
    body.push_str(&probe_section(result));
    body.push_str(&way_section(result));
    body.push_str(&raw_section(result_json));
    let title = html(&one_line(&result.title));
    let dark = plot::dark_rules();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{title}</title>\n\
         <style>\n{STYLE}@media (prefers-color-scheme: dark){{{dark}}}\n</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

fn header(result: &ExperimentResult) -> String {
    let mut text = format!("<header>\n<h1>{}</h1>\n", html(&one_line(&result.title)));
    if result.runs_left > 0 {
        let _ = writeln!(
            text,
            "<p class=\"warning\">Not finished: {} runs are still to come. The same command goes on.</p>",
            result.runs_left
        );
    }
    for paragraph in result.about.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty()) {
        let _ = writeln!(text, "<p>{}</p>", html(paragraph));
    }
    text.push_str("<dl>\n");
    for (name, fact) in table::facts(result) {
        let fact = if name == "To repeat" { format!("<code>{}</code>", html(&fact)) } else { html(&fact) };
        let _ = writeln!(text, "<div><dt>{name}</dt><dd>{fact}</dd></div>");
    }
    text.push_str("</dl>\n</header>\n");
    text
}

fn contents(result: &ExperimentResult, comparisons: &[Comparison<'_>]) -> String {
    let mut text = String::from("<nav aria-label=\"Contents\"><ul>\n");
    if !comparisons.is_empty() {
        text.push_str("<li><a href=\"#standing\">Where farside stands</a></li>\n");
    }
    for (index, comparison) in comparisons.iter().enumerate() {
        let _ = writeln!(text, "<li><a href=\"#c{index}\">{}</a></li>", html(&comparison_title(comparison)));
    }
    if !sheet::rungs(result).rows.is_empty() {
        text.push_str("<li><a href=\"#rungs\">What travelled, by rung</a></li>\n");
    }
    if !view::probes(result).is_empty() {
        text.push_str("<li><a href=\"#figures\">Figures and expectations</a></li>\n");
    }
    if !view::ways(result).is_empty() {
        text.push_str("<li><a href=\"#links\">The emulated links</a></li>\n");
    }
    text.push_str("<li><a href=\"#raw\">Raw result</a></li>\n</ul></nav>\n");
    text
}

fn summary(comparisons: &[Comparison<'_>]) -> String {
    let sheet = sheet::summary(comparisons);
    let mut text = String::from("<section id=\"standing\">\n<h2>Where farside stands</h2>\n");
    let _ = writeln!(text, "<p>{}</p>", html(table::READING));
    if sheet.rows.is_empty() {
        text.push_str("<p>There is nothing yet to compare farside with.</p>\n");
    } else {
        text.push_str(&html_table("farside's medians, as multiples of the best other's", &sheet));
    }
    text.push_str("</section>\n");
    text
}

fn kind(role: Role) -> Kind {
    match role {
        Role::Own => Kind::Own,
        Role::Peer | Role::Probe => Kind::Peer,
        Role::Bound => Kind::Bound,
    }
}

fn comparison_section(index: usize, comparison: &Comparison<'_>) -> String {
    let title = comparison_title(comparison);
    let mut text = format!("<section id=\"c{index}\">\n<h2>{}</h2>\n", html(&title));
    let _ = writeln!(text, "<p>{}</p>", html(&comparison_text(comparison)));
    text.push_str(KINDS_LEGEND);
    text.push_str("<div class=\"plots\">\n");
    for job in Job::ALL {
        text.push_str(&bytes_plot(comparison, job));
    }
    for job in Job::ALL {
        text.push_str(&seconds_plot(comparison, job));
    }
    text.push_str("</div>\n");
    text.push_str(&html_table(&title, &sheet::comparison(comparison, Columns::All)));
    text.push_str("</section>\n");
    text
}

const KINDS_LEGEND: &str = "<p class=\"legend\"><span class=\"own\">■ farside</span> <span class=\"peer\">■ practical \
    peer</span> <span class=\"bound\">■ bound</span> <span>end of a bar: back from b to a</span></p>\n";

/// The rows that do this job at all, or should have.
fn rows_of<'r, 'a>(comparison: &'r Comparison<'a>, job: Job) -> Vec<&'r Row<'a>> {
    let has = |row: &&Row<'_>| row.median(job, Measure::Seconds).is_some() || row.cell.counted == 0;
    comparison.rows.iter().filter(has).collect()
}

fn bytes_plot(comparison: &Comparison<'_>, job: Job) -> String {
    let rows = rows_of(comparison, job);
    if rows.iter().all(|row| row.median(job, Measure::WireMb).is_none()) {
        return String::new();
    }
    let bar = |row: &&Row<'_>| Bar {
        name: one_line(row.name),
        kind: kind(row.role),
        first: row.median(job, Measure::ForwardMb),
        second: row.median(job, Measure::BackMb).unwrap_or(0.0),
    };
    let bars: Vec<Bar> = rows.iter().map(bar).collect();
    let caption = format!("Bytes on the wire, {}, MB", job.phase());
    let said = said(&rows, |row| row.median(job, Measure::WireMb), "MB");
    figure(&caption, &said, "", |width| plot::bars(width, "MB on the wire", &bars))
}

fn seconds_plot(comparison: &Comparison<'_>, job: Job) -> String {
    let rows = rows_of(comparison, job);
    if rows.iter().all(|row| row.median(job, Measure::Seconds).is_none()) {
        return String::new();
    }
    let dots = |row: &&Row<'_>| Dots {
        name: one_line(row.name),
        kind: kind(row.role),
        values: row.seconds.get(&job).cloned().unwrap_or_default(),
        median: row.median(job, Measure::Seconds),
    };
    let dots: Vec<Dots> = rows.iter().map(dots).collect();
    let caption = format!("Seconds, {}: each run a dot, the median a bar", job.phase());
    let said = said(&rows, |row| row.median(job, Measure::Seconds), "s");
    figure(&caption, &said, "", |width| plot::dots(width, "seconds", &dots))
}

/// A plot of rows in words.
fn said(rows: &[&Row<'_>], value: impl Fn(&Row<'_>) -> Option<f64>, unit: &str) -> String {
    let one = |row: &&Row<'_>| {
        let value = value(row).map_or("no figure".to_owned(), |value| format!("{} {unit}", number(value)));
        format!("{} {value}", one_line(row.name))
    };
    rows.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// A plot with its caption and the text that stands for it. `legend` is HTML.
fn figure(
    caption: &str,
    said: &str,
    legend: &str,
    draw: impl Fn(u32) -> Result<String, PlotError>,
) -> String {
    let mut text = format!("<figure>\n<figcaption>{}</figcaption>\n{legend}", html(caption));
    let label = html(&format!("{caption}: {said}"));
    for (class, width) in [("wide", WIDE), ("narrow", NARROW)] {
        match draw(width) {
            Ok(svg) => {
                let _ = writeln!(
                    text,
                    "<div class=\"{class}\" role=\"img\" aria-label=\"{label}\">\n{svg}</div>"
                );
            }
            Err(error) => {
                let _ = writeln!(text, "<p class=\"{class} warning\">{}</p>", html(&error.to_string()));
            }
        }
    }
    text.push_str("</figure>\n");
    text
}

fn html_table(caption: &str, sheet: &Sheet) -> String {
    let mut text = String::new();
    let label = html(caption);
    let _ = writeln!(
        text,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table: {label}\">\n<table>"
    );
    let _ = writeln!(text, "<caption>{label}</caption>\n<thead><tr>");
    let class = |head: &Head| if head.is_figures { " class=\"number\"" } else { "" };
    for head in &sheet.head {
        let _ = writeln!(text, "<th scope=\"col\"{}>{}</th>", class(head), html(&head.text));
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for row in &sheet.rows {
        let role = match row.role {
            Some(Role::Own) => " class=\"own\"",
            Some(Role::Bound) => " class=\"bound\"",
            _ => "",
        };
        let _ = write!(text, "<tr{role}>");
        for (index, (field, head)) in row.fields.iter().zip(&sheet.head).enumerate() {
            let words = html(&field.text);
            let _ = match field.mark {
                _ if index == 0 => write!(text, "<th scope=\"row\">{words}</th>"),
                Mark::Best => write!(text, "<td{}><strong title=\"best\">{words}</strong></td>", class(head)),
                Mark::Bad => write!(text, "<td class=\"bad\">{words}</td>"),
                // A long text would else make its column narrow and its row high.
                Mark::Plain if field.text.len() > LONG_CHARS => {
                    write!(text, "<td class=\"long\">{words}</td>")
                }
                Mark::Plain => write!(text, "<td{}>{words}</td>", class(head)),
            };
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody>\n</table>\n</div>\n");
    if !sheet.notes.is_empty() {
        text.push_str("<ul class=\"notes\">\n");
        for note in &sheet.notes {
            let _ = writeln!(text, "<li>{}</li>", html(note));
        }
        text.push_str("</ul>\n");
    }
    text
}

fn rung_section(result: &ExperimentResult) -> String {
    let sheet = sheet::rungs(result);
    if sheet.rows.is_empty() {
        return String::new();
    }
    let table = html_table("What travelled, by rung", &sheet);
    format!("<section id=\"rungs\">\n<h2>What travelled, by rung</h2>\n{table}</section>\n")
}

fn probe_section(result: &ExperimentResult) -> String {
    let sheet = sheet::probes(result, Columns::All);
    if sheet.rows.is_empty() {
        return String::new();
    }
    let mut text =
        String::from("<section id=\"figures\">\n<h2>Figures and expectations</h2>\n<div class=\"plots\">\n");
    for panel in goodput::panels(result) {
        let mut legend = String::from("<p class=\"legend\">");
        let mut said = Vec::new();
        for (index, (name, curve)) in panel.names.iter().zip(&panel.curves).enumerate() {
            let mark = plot::mark(index);
            let _ = write!(
                legend,
                "<span class=\"s{}\">{mark} {}</span> ",
                index % plot::SERIES.len(),
                html(name)
            );
            let points = curve.points.iter();
            let points = points.map(|point| format!("{} % at {}", number(point.2), number(point.0)));
            said.push(format!("{name} {}", points.collect::<Vec<_>>().join(", ")));
        }
        legend.push_str("</p>\n");
        let draw = |width| plot::curves(width, panel.x_name, "% of the line", 100.0, &panel.curves);
        text.push_str(&figure(&panel.title, &said.join("; "), &legend, draw));
    }
    text.push_str("</div>\n");
    text.push_str(&html_table("Figures and expectations", &sheet));
    text.push_str("</section>\n");
    text
}

fn way_section(result: &ExperimentResult) -> String {
    let sheet = sheet::ways(result);
    if sheet.rows.is_empty() {
        return String::new();
    }
    let rows: Vec<plot::Percentiles> = view::ways(result)
        .iter()
        .map(|report| plot::Percentiles {
            name: format!("{} {}", one_line(&report.link.name), describe::way(report.way)),
            p50: report.p50_us,
            p99: report.p99_us,
            max: report.max_us,
        })
        .collect();
    let say = |row: &plot::Percentiles| {
        format!("{} {}, {} and {} µs", row.name, number(row.p50), number(row.p99), number(row.max))
    };
    let said = rows.iter().take(plot::ROWS_MAX).map(say).collect::<Vec<_>>().join("; ");
    let mut text =
        String::from("<section id=\"links\">\n<h2>The emulated links</h2>\n<div class=\"plots\">\n");
    text.push_str(&figure("Lateness of packets, µs, logarithmic", &said, LATENESS_LEGEND, |width| {
        plot::percentiles(width, "late", &rows)
    }));
    text.push_str("</div>\n");
    text.push_str(&html_table("The emulated links", &sheet));
    text.push_str("</section>\n");
    text
}

const LATENESS_LEGEND: &str = "<p class=\"legend\"><span class=\"s0\">● p50</span> <span class=\"s1\">▲ p99, worst \
    phase</span> <span class=\"s6\">✕ largest</span></p>\n";

fn raw_section(result_json: &str) -> String {
    let mut text = String::from(
        "<section id=\"raw\">\n<h2>Raw result</h2>\n<p>Every run with all its counters is in \
         <a href=\"result.json\">result.json</a> beside this page",
    );
    if result_json.len() <= EMBEDDED_BYTES_MAX {
        text.push_str(", and in this file itself, in the element <code>result</code>.</p>\n");
        let _ = writeln!(
            text,
            "<script type=\"application/json\" id=\"result\">{}</script>",
            text::json_in_html(result_json)
        );
    } else {
        text.push_str(".</p>\n");
    }
    text.push_str("</section>\n");
    text
}

#[cfg(test)]
mod tests;
