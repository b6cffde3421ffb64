//! Tables in words, without a form: [`super::table`] writes them as Markdown and for a terminal, [`super::page`] as HTML.
//! All text in a sheet is plain; who writes it out escapes it.

use crate::link::{Link, Loss, Shape, Way};
use crate::record::result::{DataFacts, ExperimentResult, Role, Spread};

use super::text::{MEGABYTE, count, number, one_line, times};
use super::view::{self, Against, Comparison, Job, Measure, Row, Standing, Version};

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sheet {
    /// Heads of the columns; the first column names the row.
    pub head: Vec<String>,
    /// The rows.
    pub rows: Vec<Line>,
    /// Sentences to stand under the table.
    pub notes: Vec<String>,
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Field {
    /// What it says.
    pub text: String,
    /// The best of its column.
    pub best: bool,
}

impl From<String> for Field {
    fn from(text: String) -> Self {
        Self { text, best: false }
    }
}

impl From<&str> for Field {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// Stands where there is no figure and none could be.
pub const NOTHING: &str = "–";

impl Sheet {
    /// Takes out columns that hold nothing in any row.
    fn without_empty_columns(mut self) -> Self {
        let empty = |column: usize| {
            self.rows.iter().all(|row| row.fields.get(column).is_none_or(|f| f.text == NOTHING))
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
    /// What fits a terminal: seconds, bytes, runs.
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
    let mut sheet = Sheet { head: vec!["contender".to_owned()], ..Sheet::default() };
    for job in Job::ALL {
        sheet.head.extend(measures.iter().map(|(_, head)| format!("{}: {head}", job.phase())));
    }
    sheet.head.push("runs".to_owned());
    if columns == Columns::All {
        sheet.head.push("versions".to_owned());
    }
    if own.is_some() {
        sheet.head.push("farside loses to it by".to_owned());
    }
    for row in rows {
        let mut fields: Vec<Field> = vec![row_name(row).into()];
        for job in Job::ALL {
            for (measure, _) in measures {
                fields.push(figure(rows, row, job, *measure));
            }
        }
        fields.push(runs(row).into());
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
        return if row.cell.counted == 0 && row.cell.failed > 0 { "failed".into() } else { NOTHING.into() };
    };
    let show = shown(measure);
    // What looks like the best is the best: a reader sees no more digits than these.
    let is_best = view::best(rows, job, measure).is_some_and(|best| show(best) == show(figure.median));
    Field { text: spread(figure, show), best: is_best && row.role != Role::Bound }
}

/// `3`, `2 of 3, 1 failed`, `none yet`, with a mark where the machine was too slow.
fn runs(row: &Row<'_>) -> String {
    let cell = row.cell;
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

/// The table of probes and expectations.
#[must_use]
pub fn probes(result: &ExperimentResult) -> Sheet {
    let probes = view::probes(result);
    let mut sheet = Sheet {
        head: ["cell", "link", "figure", "measured", "expected", "verdict", "runs"]
            .map(str::to_owned)
            .to_vec(),
        ..Sheet::default()
    };
    for probe in &probes {
        let unit = |unit: &str| if unit.is_empty() { String::new() } else { format!(" {}", one_line(unit)) };
        let measured = match (probe.verdict.and_then(|verdict| verdict.measured), probe.measured) {
            // What was judged may be all runs pooled instead of their median.
            (Some(judged), Some(spread)) if spread.n > 1 => {
                let range = (number(spread.min), number(spread.max));
                format!("{} ({}–{}){}", number(judged), range.0, range.1, unit(&spread.unit))
            }
            (Some(judged), measured) => {
                let own_unit =
                    measured.map(|spread| spread.unit.as_str()).or(probe.verdict.map(|v| v.unit.as_str()));
                format!("{}{}", number(judged), unit(own_unit.unwrap_or_default()))
            }
            (None, Some(measured)) => format!("{}{}", spread(measured, number), unit(&measured.unit)),
            (None, None) => NOTHING.to_owned(),
        };
        let expected = probe.verdict.map_or(NOTHING.to_owned(), |verdict| {
            format!("{} ± {}{}", number(verdict.expected), number(verdict.tolerance), unit(&verdict.unit))
        });
        let judged = match probe.verdict {
            None => NOTHING.to_owned(),
            Some(verdict) if verdict.met => "as expected".to_owned(),
            Some(verdict) => format!("MISSED: {}", one_line(&verdict.note)),
        };
        let counts = probe.counts;
        let mut runs = format!("{} of {}", counts.counted, counts.planned);
        if counts.failed > 0 {
            runs.push_str(&format!(", {} failed", counts.failed));
        }
        if counts.slow > 0 {
            runs.push_str(&format!(", {} slow", counts.slow));
        }
        let words = [
            one_line(&probe.cell.to_string()),
            probe.link.map_or(NOTHING.to_owned(), link),
            probe.figure.map_or(NOTHING.to_owned(), one_line),
            measured,
            expected,
            judged,
            runs,
        ];
        sheet.rows.push(Line { role: None, fields: words.map(Field::from).to_vec() });
        let cell = one_line(&probe.cell.to_string());
        let failures = probe.failures.iter().map(|why| format!("{cell} failed: {}", one_line(why)));
        for note in failures {
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

/// The table of the links themselves: what they carried and how late.
#[must_use]
pub fn ways(result: &ExperimentResult) -> Sheet {
    let head = [
        "link",
        "way",
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
    let mut sheet = Sheet { head: head.map(str::to_owned).to_vec(), ..Sheet::default() };
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

/// A way in words.
#[must_use]
pub fn way(way: Way) -> &'static str {
    match way {
        Way::Forward => "a→b",
        Way::Back => "b→a",
    }
}

/// `1.544 Mb/s`, `256 kb/s`.
#[must_use]
pub fn rate(bits: u64) -> String {
    let (value, unit) = match bits {
        0..1_000_000 => (bits as f64 / 1e3, "kb/s"),
        1_000_000..1_000_000_000 => (bits as f64 / 1e6, "Mb/s"),
        _ => (bits as f64 / 1e9, "Gb/s"),
    };
    format!("{} {unit}", exact(value))
}

/// A number that somebody wrote, not one that was measured: all of its digits, up to six.
fn exact(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A link in words: `44.736 Mb/s, RTT 50 ms, loss 0.1 % each way`.
#[must_use]
pub fn link(link: &Link) -> String {
    let (forward, back) = (&link.forward, &link.back);
    let both = |of: &dyn Fn(&Shape) -> String| {
        let (one, other) = (of(forward), of(back));
        if one == other { one } else { format!("{one} a→b, {other} b→a") }
    };
    let rtt = forward.delay + back.delay;
    let mut words =
        vec![both(&|shape| rate(shape.rate_bits)), format!("RTT {} ms", exact(rtt.as_secs_f64() * 1e3))];
    let loss = |shape: &Shape| match shape.loss {
        Loss::Random { rate } if rate > 0.0 => format!("loss {} %", exact(rate * 100.0)),
        Loss::Burst { rate, mean_burst } if rate > 0.0 => {
            format!("loss {} % in bursts of {}", exact(rate * 100.0), exact(mean_burst))
        }
        Loss::Random { .. } | Loss::Burst { .. } => "no loss".to_owned(),
    };
    let losses = both(&loss);
    words.push(if losses.starts_with("loss") && !losses.contains('→') {
        losses + " each way"
    } else {
        losses
    });
    if forward.jitter + back.jitter > std::time::Duration::ZERO {
        words.push(both(&|shape| format!("jitter {} ms", exact(shape.jitter.as_secs_f64() * 1e3))));
    }
    if forward.reorder + back.reorder > 0.0 {
        words.push(both(&|shape| format!("{} % reordered", exact(shape.reorder * 100.0))));
    }
    if !link.script.is_empty() {
        words.push("changes while it runs".to_owned());
    }
    words.join(", ")
}

/// A data set in words: `volume image of 168 MB, of which 128 MB are not zero; A→B: 10407 of 40960 4 KiB blocks change`.
#[must_use]
pub fn data(facts: &DataFacts) -> String {
    let mb = |bytes: u64| number(bytes as f64 / MEGABYTE);
    let kind = if facts.kind == "tree" { "a tree of files" } else { "images of volumes" };
    let mut words = vec![format!("set {}, {kind}, seed {}", one_line(&facts.set), facts.seed)];
    for generation in &facts.generations {
        let volumes =
            if generation.volumes == 1 { String::new() } else { format!("{} volumes, ", generation.volumes) };
        let mut text = format!(
            "{}: {volumes}{} MB, {} MB without holes, {} MB under zstd -3",
            one_line(&generation.name),
            mb(generation.size_bytes),
            mb(generation.data_bytes),
            mb(generation.zstd_bytes),
        );
        if let Some(changed) = generation.changed_blocks {
            let blocks = (generation.size_bytes / 4096).max(1);
            let percent = number(changed as f64 * 100.0 / blocks as f64);
            text.push_str(&format!(", {} blocks of 4 KiB changed ({percent} %)", count(changed as f64)));
        }
        words.push(text);
    }
    words.join("; ")
}
