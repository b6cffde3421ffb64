//! Tables in words, without a form: [`super::table`] writes them as Markdown and for a terminal, [`mod@super::page`] as HTML.
//! All text in a sheet is plain; who writes it out escapes it.

use crate::link::Way;
use crate::record::result::{CellResult, ExperimentResult, Role, Spread};

use super::describe::{link, rate, way};
use super::text::{count, number, number_within, one_line, times};
use super::view::{self, Against, Comparison, Job, Measure, Row, Standing, Version};

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sheet {
    /// Heads of the columns; the first column names the row.
    pub head: Vec<Head>,
    /// The rows.
    pub rows: Vec<Line>,
    /// Sentences to stand under the table.
    pub notes: Vec<String>,
}

/// Head of a column.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// What it says.
    pub text: String,
    /// The column holds figures, which are set to the right.
    pub is_figures: bool,
}

/// A row of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Whose row it is.
    pub role: Option<Role>,
    /// One per head.
    pub fields: Vec<Field>,
}

/// A field of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// What it says.
    pub text: String,
    /// What a reader should see at a glance.
    pub mark: Mark,
}

/// What a reader should see of a field at a glance.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mark {
    /// Nothing.
    Plain,
    /// The best of its column.
    Best,
    /// farside loses, or an expectation is missed.
    Bad,
}

impl From<String> for Field {
    fn from(text: String) -> Self {
        Self { text, mark: Mark::Plain }
    }
}

impl From<&str> for Field {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

pub(super) fn words(text: &str) -> Head {
    Head { text: text.to_owned(), is_figures: false }
}

pub(super) fn figures(text: &str) -> Head {
    Head { text: text.to_owned(), is_figures: true }
}

/// Stands where there is no figure and none could be.
pub const NOTHING: &str = "–";

/// Stands where all runs failed.
const FAILED: &str = "failed";

impl Sheet {
    /// Takes out columns of which no row has anything. That a contender failed is in the column of its runs too.
    fn without_empty_columns(mut self) -> Self {
        let empty = |column: usize| {
            self.rows
                .iter()
                .all(|row| row.fields.get(column).is_none_or(|f| f.text == NOTHING || f.text == FAILED))
        };
        for column in (0..self.head.len()).rev().filter(|column| empty(*column)).collect::<Vec<_>>() {
            self.head.remove(column);
            for row in self.rows.iter_mut().filter(|row| column < row.fields.len()) {
                row.fields.remove(column);
            }
        }
        self
    }
}

/// Median, and smallest to largest where there are several: `8.70 (7.90–9.40)`.
#[must_use]
pub fn spread(spread: &Spread, show: fn(f64) -> String) -> String {
    let median = show(spread.median);
    let (min, max) = (show(spread.min), show(spread.max));
    // Runs whose figures look the same need no range.
    if spread.n > 1 && (min != median || max != median) {
        format!("{median} ({min}–{max})")
    } else {
        median
    }
}

/// Which columns a table of a comparison has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Columns {
    /// Everything that was measured.
    All,
    /// What fits a terminal.
    Few,
}

/// The table of a comparison.
#[must_use]
pub fn comparison(comparison: &Comparison<'_>, columns: Columns) -> Sheet {
    let rows = &comparison.rows;
    let own = view::own(rows);
    let measures: &[(Measure, &str)] = match columns {
        Columns::All => &[
            (Measure::Seconds, "s"),
            (Measure::ForwardMb, "MB a→b"),
            (Measure::BackMb, "MB b→a"),
            (Measure::Packets, "packets"),
            (Measure::CpuA, "CPU s at a"),
            (Measure::CpuB, "CPU s at b"),
        ],
        Columns::Few => {
            &[(Measure::Seconds, "s"), (Measure::ForwardMb, "MB a→b"), (Measure::BackMb, "MB b→a")]
        }
    };
    let mut sheet = Sheet { head: vec![words("contender")], ..Sheet::default() };
    for job in Job::ALL {
        sheet.head.extend(measures.iter().map(|(_, head)| figures(&format!("{}: {head}", job.phase()))));
    }
    sheet.head.push(words("runs"));
    if columns == Columns::All {
        sheet.head.push(words("versions"));
    }
    let own = own.filter(|_| columns == Columns::All);
    if own.is_some() {
        sheet.head.push(words("farside loses to it by"));
    }
    for row in rows {
        let mut fields: Vec<Field> = vec![row_name(row).into()];
        for job in Job::ALL {
            for (measure, _) in measures {
                fields.push(figure(rows, row, job, *measure));
            }
        }
        fields.push(runs(row.cell).into());
        if columns == Columns::All {
            fields.push(versions(&row.versions).into());
        }
        if let Some(own) = own {
            fields.push(if std::ptr::eq(own, row) { NOTHING.into() } else { losses(own, row).into() });
        }
        sheet.rows.push(Line { role: Some(row.role), fields });
    }
    sheet.notes = standing_notes(comparison);
    sheet.notes.extend(run_notes(rows));
    sheet.without_empty_columns()
}

fn row_name(row: &Row<'_>) -> String {
    match row.role {
        Role::Bound => format!("{} (bound)", one_line(row.name)),
        Role::Own | Role::Peer | Role::Probe => one_line(row.name),
    }
}

fn shown(measure: Measure) -> fn(f64) -> String {
    if measure == Measure::Packets { count } else { number }
}

fn figure(rows: &[Row<'_>], row: &Row<'_>, job: Job, measure: Measure) -> Field {
    let Some(figure) = row.figures.get(&(job, measure)) else {
        return if row.cell.counted == 0 && row.cell.failed > 0 { FAILED.into() } else { NOTHING.into() };
    };
    let show = shown(measure);
    // What looks like the best is the best: a reader sees no more digits than these.
    let is_best = view::best(rows, job, measure).is_some_and(|best| show(best) == show(figure.median));
    let mark = if is_best && row.role != Role::Bound { Mark::Best } else { Mark::Plain };
    Field { text: spread(figure, show), mark }
}

/// `3`, `2 of 3, 1 failed`, `none yet`, with a mark where the machine was too slow.
fn runs(cell: &CellResult) -> String {
    let mut text = match (cell.counted, cell.failed) {
        (0, 0) => "none yet".to_owned(),
        (counted, failed) if counted == cell.planned && failed == 0 => counted.to_string(),
        (counted, 0) => format!("{counted} of {}", cell.planned),
        (counted, failed) => format!("{counted} of {}, {failed} failed", cell.planned),
    };
    if cell.slow > 0 {
        text.push_str(&format!(", {} slow", cell.slow));
    }
    text
}

/// `restic 0.14.0, rclone 1.60.1 (pinned: 1.60.0)`.
#[must_use]
pub fn versions(versions: &[Version<'_>]) -> String {
    if versions.is_empty() {
        return NOTHING.to_owned();
    }
    let one = |version: &Version<'_>| {
        let seen = version.seen.iter().map(|seen| one_line(seen)).collect::<Vec<_>>().join(" and ");
        let pinned =
            version.pinned.map(|pinned| format!(" (pinned: {})", one_line(pinned))).unwrap_or_default();
        format!("{} {seen}{pinned}", one_line(version.program))
    };
    versions.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Where farside loses to this contender, with how many times as much it needs.
fn losses(own: &Row<'_>, row: &Row<'_>) -> String {
    let mut losses = Vec::new();
    let mut compared = false;
    for job in Job::ALL {
        for measure in Measure::COMPARED {
            let Some(against) = row.against(own, job, measure) else { continue };
            compared = true;
            if against.loses() {
                losses.push(format!("{} {} {} ×", job.phase(), measure.word(), times(against.ratio)));
            }
        }
    }
    match (compared, losses.is_empty()) {
        (false, _) => NOTHING.to_owned(),
        (true, true) => "nothing".to_owned(),
        (true, false) => losses.join(", "),
    }
}

/// The sentences about how farside stands.
#[must_use]
pub fn standing_notes(comparison: &Comparison<'_>) -> Vec<String> {
    if view::own(&comparison.rows).is_none() {
        return Vec::new();
    }
    if comparison.standings.is_empty() {
        return vec!["There is nothing yet to compare farside with.".to_owned()];
    }
    let list = |wanted: &dyn Fn(&Standing<'_>) -> Option<String>| {
        comparison.standings.iter().filter_map(wanted).collect::<Vec<_>>().join("; ")
    };
    let item = |standing: &Standing<'_>, against: &Against<'_>| {
        let overlaps = if against.overlaps { " (the runs overlap)" } else { "" };
        let (job, word) = (standing.job.phase(), standing.measure.word());
        format!("{job} {word} {} × {}{overlaps}", times(against.ratio), one_line(against.name))
    };
    let against_peer = |wanted: fn(&Against<'_>) -> bool| {
        list(&|standing| standing.peer.as_ref().filter(|peer| wanted(peer)).map(|peer| item(standing, peer)))
    };
    let mut notes = Vec::new();
    let has_peer = comparison.standings.iter().any(|standing| standing.peer.is_some());
    let lost = against_peer(|peer| peer.loses());
    if !lost.is_empty() {
        notes.push(format!("Where farside loses, against the best practical peer: {lost}."));
    } else if has_peer {
        notes.push("farside loses to no practical peer here.".to_owned());
    }
    let won = against_peer(|peer| peer.wins());
    if !won.is_empty() {
        notes.push(format!("Where farside is ahead of the best practical peer: {won}."));
    }
    let bound = |wanted: fn(&Against<'_>) -> bool| {
        list(&|standing| {
            standing.bound.as_ref().filter(|bound| wanted(bound)).map(|bound| item(standing, bound))
        })
    };
    let above = bound(|bound| bound.loses());
    if !above.is_empty() {
        notes.push(format!("Against bounds, which read the whole old image at both ends: {above}."));
    }
    let beyond = bound(|bound| bound.wins());
    if !beyond.is_empty() {
        notes.push(format!("Better than the bounds: {beyond}."));
    }
    notes
}

fn run_notes(rows: &[Row<'_>]) -> Vec<String> {
    let mut notes = Vec::new();
    for row in rows {
        let name = one_line(row.name);
        notes.extend(row.failures.iter().map(|why| format!("{name} failed: {}", one_line(why))));
        notes.extend(row.slow.iter().map(|why| format!("{name}, slow: {}", one_line(why))));
        if row.updates > 1 {
            notes.push(format!("{name}: the update is the sum of {} updates.", row.updates));
        }
    }
    notes
}

/// How farside stands in all comparisons at a glance: its median ÷ the best other's, per measure.
#[must_use]
pub fn summary(comparisons: &[Comparison<'_>]) -> Sheet {
    let mut sheet = Sheet {
        head: vec![words("link · data"), words("job"), words("against the best")],
        ..Sheet::default()
    };
    sheet.head.extend(Measure::COMPARED.map(|measure| words(measure.word())));
    for comparison in comparisons {
        let name = format!("{} · {}", one_line(comparison.link_name), one_line(comparison.data_name));
        // The congestion control only where it tells comparisons apart.
        let others = comparisons.iter().any(|other| other.congestion != comparison.congestion);
        let name = if others { format!("{name} · {}", one_line(comparison.congestion)) } else { name };
        for job in Job::ALL {
            let of_job: Vec<&Standing<'_>> = comparison.standings.iter().filter(|s| s.job == job).collect();
            let mut line = |role: Role, other: &str, against: &dyn Fn(&Standing<'_>) -> Option<Field>| {
                let field =
                    |measure: Measure| of_job.iter().find(|s| s.measure == measure).and_then(|s| against(s));
                let standings = Measure::COMPARED.map(field);
                if standings.iter().any(Option::is_some) {
                    let mut fields = [name.as_str(), job.phase(), other].map(Field::from).to_vec();
                    fields.extend(standings.map(|field| field.unwrap_or_else(|| NOTHING.into())));
                    sheet.rows.push(Line { role: Some(role), fields });
                }
            };
            let text =
                |against: &Against<'_>| format!("{} × {}", times(against.ratio), one_line(against.name));
            line(Role::Peer, "practical peer", &|standing| {
                let peer = standing.peer.as_ref()?;
                Some(Field { text: text(peer), mark: if peer.loses() { Mark::Bad } else { Mark::Plain } })
            });
            line(Role::Bound, "bound", &|standing| Some(text(standing.bound.as_ref()?).into()));
        }
    }
    if !sheet.rows.is_empty() {
        sheet.notes.push(
            "Each field is farside's median divided by that of the contender that is best in this measure: above 1 \
             farside loses."
                .to_owned(),
        );
    }
    sheet
}

/// The rungs that farside counts by, in the figures `rung-NAME-in` and `rung-NAME-out`, cheapest first.
const RUNGS: [&str; 5] = ["known", "repeat", "delta", "compressed", "raw"];

/// What travelled of farside's transfers, by rung, and what no rung accounts for.
#[must_use]
pub fn rungs(result: &ExperimentResult) -> Sheet {
    let mut sheet = Sheet { head: vec![words("cell"), words("phase")], ..Sheet::default() };
    sheet.head.extend(RUNGS.map(figures));
    sheet.head.extend(["overhead", "TCP and IP", "on the wire"].map(figures));
    for cell in &result.cells {
        for phase in &cell.phases {
            let median = |name: &str| phase.figures.get(name).map(|spread| spread.median);
            let of_rung = |rung: &str| {
                let (bytes, cost) =
                    (median(&format!("rung-{rung}-in"))?, median(&format!("rung-{rung}-out"))?);
                Some(if bytes > 0.0 {
                    format!("{} → {}", number(bytes), number(cost))
                } else {
                    NOTHING.into()
                })
            };
            let Some(rungs) = RUNGS.iter().map(|rung| of_rung(rung)).collect::<Option<Vec<String>>>() else {
                continue;
            };
            let wire = median("wire_mb");
            let carried = wire.zip(median("wire")).map(|(all, of_tls)| all - of_tls);
            let generation = phase.generation.as_deref().map(|name| format!(" to {}", one_line(name)));
            let mut fields: Vec<Field> = vec![
                one_line(&cell.cell.to_string()).into(),
                format!("{}{}", one_line(&phase.phase), generation.unwrap_or_default()).into(),
            ];
            fields.extend(rungs.into_iter().map(Field::from));
            let shown = [median("overhead"), carried, wire];
            fields.extend(shown.map(|figure| Field::from(figure.map_or(NOTHING.to_owned(), number))));
            sheet.rows.push(Line { role: None, fields });
        }
    }
    if !sheet.rows.is_empty() {
        sheet.notes.push(
            "MB of the volume → MB that they cost, both as the destination counted them. Overhead is what no rung accounts \
             for of what TLS carried, both ways: frame headers and tables, questions and answers, messages, TLS records; \
             TCP and IP are what the link carried beyond that."
                .to_owned(),
        );
    }
    sheet.without_empty_columns()
}

/// The table of probes and expectations.
#[must_use]
pub fn probes(result: &ExperimentResult, columns: Columns) -> Sheet {
    let mut sheet = Sheet {
        head: vec![
            words("cell"),
            words("link"),
            words("figure"),
            figures("measured"),
            figures("expected"),
            words("verdict"),
            words("runs"),
        ],
        ..Sheet::default()
    };
    for probe in &view::probes(result) {
        let cell = one_line(&probe.cell.to_string());
        let (measured, expected) = measured_and_expected(probe);
        let verdict = match probe.verdict {
            None => NOTHING.into(),
            Some(verdict) if verdict.met && verdict.at_most => {
                format!("as expected: {}", one_line(&verdict.note)).into()
            }
            Some(verdict) if verdict.met => "as expected".into(),
            Some(verdict) => Field { text: format!("MISSED: {}", one_line(&verdict.note)), mark: Mark::Bad },
        };
        sheet.rows.push(Line {
            role: None,
            fields: vec![
                match probe.phase {
                    None | Some("measure") => cell.as_str().into(),
                    Some(phase) => format!("{cell}, {}", one_line(phase)).into(),
                },
                probe.link.filter(|_| columns == Columns::All).map_or(NOTHING.to_owned(), link).into(),
                probe.figure.map_or(NOTHING.to_owned(), one_line).into(),
                measured.into(),
                expected.into(),
                verdict,
                runs(probe.counts).into(),
            ],
        });
        for note in probe.failures.iter().map(|why| format!("{cell} failed: {}", one_line(why))) {
            if !sheet.notes.contains(&note) {
                sheet.notes.push(note);
            }
        }
    }
    let judged: Vec<bool> = result.expectations.iter().map(|verdict| verdict.met).collect();
    if !judged.is_empty() {
        let met = judged.iter().filter(|met| **met).count();
        sheet.notes.insert(0, format!("{met} of {} expectations are met.", judged.len()));
    }
    sheet.without_empty_columns()
}

/// Both with as many digits as the tolerance makes sense of.
fn measured_and_expected(probe: &view::Probe<'_>) -> (String, String) {
    let Some(verdict) = probe.verdict else {
        let measured = probe.measured.map(|measured| with_unit(spread(measured, number), &measured.unit));
        return (measured.unwrap_or_else(|| NOTHING.to_owned()), NOTHING.to_owned());
    };
    let show = |value: f64| number_within(value, verdict.tolerance);
    let expected = match verdict.at_most {
        true => format!("≤ {}", show(verdict.expected)),
        false => format!("{} ± {}", show(verdict.expected), show(verdict.tolerance)),
    };
    let expected = with_unit(expected, &verdict.unit);
    let range = probe.measured.filter(|spread| spread.n > 1 && show(spread.min) != show(spread.max));
    let measured = match (verdict.measured, range) {
        (None, _) => NOTHING.to_owned(),
        // What was judged may be all runs pooled instead of their median.
        (Some(judged), Some(range)) => {
            with_unit(format!("{} ({}–{})", show(judged), show(range.min), show(range.max)), &verdict.unit)
        }
        (Some(judged), None) => with_unit(show(judged), &verdict.unit),
    };
    (measured, expected)
}

fn with_unit(text: String, unit: &str) -> String {
    if unit.is_empty() { text } else { format!("{text} {}", one_line(unit)) }
}

/// The table of the links themselves: what they carried and how late.
#[must_use]
pub fn ways(result: &ExperimentResult) -> Sheet {
    let mut sheet = Sheet { head: vec![words("link"), words("way")], ..Sheet::default() };
    let heads = [
        "rate",
        "runs",
        "packets",
        "lost",
        "queue full",
        "device drops",
        "late p50 µs",
        "p99 µs",
        "max µs",
        "over 1 ms",
        "load",
    ];
    sheet.head.extend(heads.map(figures));
    for report in view::ways(result) {
        let shape = match report.way {
            Way::Forward => &report.link.forward,
            Way::Back => &report.link.back,
        };
        let words = [
            one_line(&report.link.name),
            way(report.way).to_owned(),
            rate(shape.rate_bits),
            report.runs.to_string(),
            count(report.packets as f64),
            report.lost_percent.map_or(NOTHING.to_owned(), |percent| format!("{} %", number(percent))),
            count(report.dropped_queue as f64),
            count(report.device_drops as f64),
            number(report.p50_us),
            number(report.p99_us),
            number(report.max_us),
            format!("{} %", number(report.over_1ms_percent)),
            spread(&report.load, number),
        ];
        sheet.rows.push(Line { role: None, fields: words.map(Field::from).to_vec() });
        if !report.real_time {
            let link = one_line(&report.link.name);
            let way = way(report.way);
            sheet.notes.push(format!(
                "{link} {way}: carried without real-time priority, so other work delays packets."
            ));
        }
    }
    if !sheet.rows.is_empty() {
        sheet.notes.push(
            "Lateness is how long after the moment that the link's model says a packet left the emulator: p50 is the \
             median over all counted phases, p99 and max are of the worst phase."
                .to_owned(),
        );
    }
    sheet
}
