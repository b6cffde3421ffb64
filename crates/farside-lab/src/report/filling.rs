//! How full lines get: the rates of farside, of iperf3's variants and of rsync in the same cells, as a section of the manual
//! with pictures. Pure.
//!
//! A *rate* is one of payload: what came out of the link (its own counters) times the payload's share of it. Of farside and rsync
//! that share is the volume's bytes divided by all bytes that came out; so headers, TLS and whatever came twice count
//! against them. Of iperf3 it is what a full packet has (1448 of 1500 bytes): nothing that came twice counts against it.

use std::collections::BTreeMap;

use crate::experiment::stats::{median, spread};
use crate::link::{Link, Loss};
use crate::record::result::{ExperimentResult, Spread};
use crate::record::{PhaseRecord, RunRecord};

use super::describe;
use super::flow::Flow;
use super::plot::{self, Dots, Kind, PlotError};
use super::sheet::{self, Field, Line, Mark, NOTHING, Sheet, figures, words};
use super::table;
use super::text::{self, number, one_line, times};

/// Headers of IP and TCP with time stamps in a packet.
const HEADER_BYTES: f64 = 52.0;

/// The contender whose rows are farside's.
const OWN: &str = "farside-link";

/// The contender with two transfers on one session.
const WARM: &str = "farside-warm";

/// The contender that copies whole files.
const RSYNC: &str = "rsync-whole";

/// Variants of iperf3 begin with this.
const TCP: &str = "tcp-";

/// One stream as most hosts send it.
const PLAIN: &str = "tcp-cubic-1";

/// Fastest line, OC-3, to which the higher of the wanted ratios applies.
const FAST_BITS: u64 = 155_520_000;

/// Wanted of farside's steady rate over the best iperf3 variant's: of the median over cells, of each cell up to OC-3, of each
/// above.
const WANTED: [f64; 3] = [0.97, 0.92, 0.90];

/// Width of pictures, pixels: the manual's column.
const WIDTH: u32 = 700;

/// A section of the manual, and its pictures by file name.
#[derive(Debug, Default)]
pub struct Section {
    /// From a heading of the second level on.
    pub markdown: String,
    /// Names and contents of SVG files.
    pub pictures: Vec<(String, String)>,
}

/// What one contender got of one link.
#[derive(Clone, Debug, Default)]
struct Got {
    /// Mb/s of payload in the steady state, of each run.
    steady: Vec<f64>,
    /// Mb/s of payload of the whole transfer, of each run.
    whole: Vec<f64>,
    /// Seconds of the whole transfer.
    seconds: Vec<f64>,
    /// Processors busy at both sites together.
    processors: Vec<f64>,
    /// Runs that measured the machine.
    slow: usize,
}

/// All that was measured over one link.
struct Filled<'a> {
    link: &'a Link,
    /// MB of the volume.
    payload: Option<f64>,
    got: BTreeMap<&'a str, Got>,
}

impl Filled<'_> {
    fn steady(&self, contender: &str) -> Option<Spread> {
        spread(&self.got.get(contender)?.steady, "Mb/s")
    }

    fn whole(&self, contender: &str) -> Option<Spread> {
        spread(&self.got.get(contender)?.whole, "Mb/s")
    }

    /// The variant of iperf3 whose median is the highest.
    fn best(&self, of: impl Fn(&Got) -> &[f64]) -> Option<(&str, Spread)> {
        let variants = self.got.iter().filter(|(name, _)| name.starts_with(TCP));
        let spreads = variants.filter_map(|(name, got)| Some((*name, spread(of(got), "Mb/s")?)));
        spreads.max_by(|one, other| one.1.median.total_cmp(&other.1.median))
    }

    fn line_mbit(&self) -> f64 {
        self.link.forward.rate_bits as f64 / 1e6
    }

    /// farside's steady median over the best variant's.
    fn ratio(&self) -> Option<f64> {
        text::ratio(self.steady(OWN)?.median, self.best(|got| &got.steady)?.1.median)
    }
}

/// The payload's share of the bytes that came out of the link.
fn payload_share(phase: &PhaseRecord, link: &Link) -> Option<f64> {
    match phase.figures.get("payload") {
        Some(payload) => text::ratio(payload.value * 1e6, phase.forward.bytes_out as f64),
        None => Some(1.0 - HEADER_BYTES / f64::from(link.forward.mtu.max(1))),
    }
}

fn add(got: &mut Got, run: &RunRecord, phase: &PhaseRecord, link: &Link) {
    let steady = phase.series.as_ref().and_then(|series| Flow::new(series, link).steady());
    got.steady.extend(steady.zip(payload_share(phase, link)).map(|(bits, share)| bits * share / 1e6));
    if phase.seconds > 0.0 {
        got.processors.push(phase.cpu_seconds.values().sum::<f64>() / phase.seconds);
        match (phase.figures.get("payload"), phase.figures.get("whole")) {
            (Some(payload), _) => {
                got.whole.push(payload.value * 8.0 / phase.seconds);
                got.seconds.push(phase.seconds);
            }
            (None, Some(whole)) => got.whole.push(whole.value),
            (None, None) => {}
        }
    }
    got.slow += usize::from(run.slow.is_some());
}

fn filled(result: &ExperimentResult) -> Vec<Filled<'_>> {
    let of_link = |link| {
        let mut filled = Filled { link, payload: None, got: BTreeMap::new() };
        for run in result.runs.iter().filter(|run| run.failed.is_none() && run.cell.link == link.name) {
            let Some(phase) = run.phases.first() else { continue };
            if run.cell.contender == OWN {
                filled.payload = phase.figures.get("payload").map(|figure| figure.value);
            }
            add(filled.got.entry(&run.cell.contender).or_default(), run, phase, link);
        }
        filled
    };
    result.links.iter().map(of_link).filter(|filled| filled.got.contains_key(OWN)).collect()
}

/// The section of steady states: a table, how it stands to what is wanted, and pictures.
///
/// # Errors
/// [`PlotError`].
pub fn steady_section(result: &ExperimentResult) -> Result<Section, PlotError> {
    let all = filled(result);
    let mut section = Section { markdown: head(result), pictures: Vec::new() };
    section.markdown.push_str(STEADY_READING);
    section.markdown.push_str(&table::markdown_table(&steady_sheet(&all)));
    section.markdown.push_str(&standing(&all));
    section.markdown.push_str("### Whole transfers on these lines\n\n");
    section.markdown.push_str(WHOLE_READING);
    section.markdown.push_str(&table::markdown_table(&whole_sheet(&all)));
    let mut rates: Vec<u64> = all.iter().map(|filled| filled.link.forward.rate_bits).collect();
    rates.dedup();
    for rate in rates {
        let of_rate: Vec<&Filled<'_>> = all.iter().filter(|f| f.link.forward.rate_bits == rate).collect();
        let name = format!("{}-{}.svg", result.name, rate / 1000);
        let title = format!("Steady state on {}: percent of the line", describe::rate(rate));
        section.markdown.push_str(&format!("![{title}](measured/{name})\n\n{title}.\n\n"));
        section.pictures.push((name, steady_picture(&of_rate)?));
    }
    Ok(section)
}

/// The section of whole transfers, and of those on a warm session.
///
/// # Errors
/// [`PlotError`].
pub fn transfers_section(result: &ExperimentResult) -> Result<Section, PlotError> {
    let all = filled(result);
    let mut section = Section { markdown: head(result), pictures: Vec::new() };
    if !all.is_empty() {
        section.markdown.push_str(WHOLE_READING);
        section.markdown.push_str(&table::markdown_table(&whole_sheet(&all)));
    }
    let warm = warm_sheet(result);
    if !warm.rows.is_empty() {
        section.markdown.push_str(&format!("### The second transfer on a session\n\n{WARM_READING}"));
        section.markdown.push_str(&table::markdown_table(&warm));
    }
    Ok(section)
}

/// Title, what it is about, and the facts.
pub(super) fn head(result: &ExperimentResult) -> String {
    let mut page = format!("## {}\n\n", text::markdown(&result.title));
    for paragraph in result.about.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty()) {
        let lines: Vec<String> = paragraph.lines().map(text::markdown).collect();
        page.push_str(&format!("{}\n\n", lines.join("\n")));
    }
    for (name, fact) in table::facts(result) {
        let fact =
            if name == "To repeat" { "`make bench-link`".to_owned() } else { table::escape_long(&fact) };
        page.push_str(&format!("* {name}: {fact}\n"));
    }
    page.push('\n');
    page
}

const STEADY_READING: &str = "Rates are Mb/s of payload in the steady state: from 20 round trips (and half a second) after the first data \
    until 95 % of all bytes are out, by the link's own counters. Of farside and rsync payload is the volume's share of all bytes that \
    came out, so that TLS, headers and whatever came twice count against them; of iperf3 it is what full packets have (1448 of 1500 \
    bytes, 96.5 % of the line at most), so that nothing that came twice counts against it. Medians, with the smallest and the largest \
    run in brackets. *Processors* are those that both sites together kept busy; the machine has as many as stand above, and the \
    emulator needs its share of them.\n\n";

const WHOLE_READING: &str = "From the command until the copy is on stable storage: connecting, finding the rate and the commit \
    included. Share of the line is payload divided by what the line carries in that time, headers not taken off; 96 % is the most \
    that is possible. iperf3 sends for as long as the line needs for the same data and does not count its own beginning; rsync is \
    stopped after twice that time.\n\n";

const WARM_READING: &str = "Two transfers on one session with some seconds of idleness in between. *First second* is the rate of the second \
    that follows the first data. A connection that begins anew after idleness would need several round trips to find its rate.\n\n";

fn link_words(link: &Link) -> String {
    let rtt = (link.forward.delay + link.back.delay).as_secs_f64() * 1e3;
    let loss = match link.forward.loss {
        Loss::Random { rate } | Loss::Burst { rate, .. } => rate * 100.0,
    };
    format!("{}, {} ms, {} %", describe::rate(link.forward.rate_bits), text::exact(rtt), text::exact(loss))
}

fn or_nothing(figure: Option<String>) -> Field {
    figure.unwrap_or_else(|| NOTHING.to_owned()).into()
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn shown(figure: Option<&Spread>) -> Field {
    or_nothing(figure.map(|figure| sheet::spread(figure, number)))
}

fn steady_sheet(all: &[Filled<'_>]) -> Sheet {
    let mut sheet = Sheet { head: vec![words("line, RTT, loss each way")], ..Sheet::default() };
    sheet.head.extend(
        ["farside", "of the line", "best iperf3", "farside ÷ it", "cubic × 1", "rsync", "processors"]
            .map(figures),
    );
    sheet.head.push(words("runs"));
    for filled in all {
        let own = filled.steady(OWN);
        let best = filled.best(|got| &got.steady);
        let ratio = filled.ratio();
        let wanted = if filled.link.forward.rate_bits <= FAST_BITS { WANTED[1] } else { WANTED[2] };
        let got = &filled.got[OWN];
        let mut runs = got.seconds.len().to_string();
        if got.slow > 0 {
            runs.push_str(&format!(", {} slow", got.slow));
        }
        sheet.rows.push(Line {
            role: None,
            fields: vec![
                link_words(filled.link).into(),
                shown(own.as_ref()),
                or_nothing(own.as_ref().map(|own| percent(own.median / filled.line_mbit()))),
                or_nothing(
                    best.as_ref()
                        .map(|(name, best)| format!("{} {}", variant(name), sheet::spread(best, number))),
                ),
                Field {
                    text: ratio.map_or(NOTHING.to_owned(), |ratio| format!("{ratio:.3}")),
                    mark: if ratio.is_some_and(|ratio| ratio < wanted) { Mark::Bad } else { Mark::Plain },
                },
                shown(filled.steady(PLAIN).as_ref()),
                shown(filled.steady(RSYNC).as_ref()),
                or_nothing(median(&got.processors).map(number)),
                runs.into(),
            ],
        });
    }
    sheet
}

/// `tcp-bbr-8` is shown as `bbr × 8`.
fn variant(name: &str) -> String {
    one_line(&name.trim_start_matches(TCP).replace('-', " × "))
}

/// How the ratios stand to what is wanted.
fn standing(all: &[Filled<'_>]) -> String {
    let ratios: Vec<(f64, &Link)> =
        all.iter().filter_map(|filled| Some((filled.ratio()?, filled.link))).collect();
    let Some(middle) = median(&ratios.iter().map(|(ratio, _)| *ratio).collect::<Vec<_>>()) else {
        return "Nothing can be compared yet.\n\n".to_owned();
    };
    let least = |fast: bool| {
        let of_kind = ratios.iter().filter(|(_, link)| (link.forward.rate_bits > FAST_BITS) == fast);
        of_kind.min_by(|one, other| one.0.total_cmp(&other.0))
    };
    let judge = |ratio: f64, wanted: f64| {
        format!("wanted {wanted:.2}: {}", if ratio >= wanted { "reached" } else { "**missed**" })
    };
    let mut lines = vec![format!(
        "* farside ÷ the best iperf3 variant, median over the cells ({}): {middle:.3} ({}).",
        ratios.len(),
        judge(middle, WANTED[0])
    )];
    for (fast, name, wanted) in [(false, "up to OC-3", WANTED[1]), (true, "above", WANTED[2])] {
        if let Some((ratio, link)) = least(fast) {
            lines.push(format!(
                "* The least {name}: {ratio:.3}, at {} ({}).",
                table::escape_long(&link_words(link)),
                judge(*ratio, wanted)
            ));
        }
    }
    let gains: Vec<f64> = all
        .iter()
        .filter_map(|filled| text::ratio(filled.steady(OWN)?.median, filled.steady(PLAIN)?.median))
        .collect();
    if let Some(gains) = spread(&gains, "") {
        lines.push(format!("* farside ÷ one stream of cubic: {} ×.", sheet::spread(&gains, times)));
    }
    lines.join("\n") + "\n\n"
}

fn whole_sheet(all: &[Filled<'_>]) -> Sheet {
    let mut sheet = Sheet { head: vec![words("line, RTT, loss each way")], ..Sheet::default() };
    sheet.head.extend(
        ["MB", "farside: s", "share of the line", "best iperf3", "its share", "cubic × 1", "rsync"]
            .map(figures),
    );
    for filled in all {
        let share = |mbit: f64| percent(mbit / filled.line_mbit());
        let of = |figure: Option<Spread>| or_nothing(figure.map(|figure| share(figure.median)));
        let own = filled.whole(OWN);
        let own_share = own.map(|own| {
            let shares = (share(own.median), share(own.min), share(own.max));
            if own.n > 1 { format!("{} ({}–{})", shares.0, shares.1, shares.2) } else { shares.0 }
        });
        let best = filled.best(|got| &got.whole);
        sheet.rows.push(Line {
            role: None,
            fields: vec![
                link_words(filled.link).into(),
                or_nothing(filled.payload.map(number)),
                shown(spread(&filled.got[OWN].seconds, "s").as_ref()),
                or_nothing(own_share),
                or_nothing(best.as_ref().map(|(name, _)| variant(name))),
                of(best.map(|(_, best)| best)),
                of(filled.whole(PLAIN)),
                of(filled.whole(RSYNC)),
            ],
        });
    }
    sheet
}

fn warm_sheet(result: &ExperimentResult) -> Sheet {
    let mut sheet = Sheet { head: vec![words("line, RTT, loss each way")], ..Sheet::default() };
    sheet.head.extend(
        [
            "first transfer: steady",
            "its first second",
            "second transfer: steady",
            "its first second",
            "of the steady state",
        ]
        .map(figures),
    );
    for link in &result.links {
        let runs = result
            .runs
            .iter()
            .filter(|run| run.failed.is_none() && run.cell.link == link.name && run.cell.contender == WARM);
        let runs: Vec<&RunRecord> = runs.collect();
        let of = |phase: &str, rate: fn(&Flow<'_>) -> Option<f64>| -> Vec<Option<f64>> {
            let of_run = |run: &&RunRecord| {
                let phase = run.phases.iter().find(|record| record.phase == phase)?;
                let flow = Flow::new(phase.series.as_ref()?, link);
                Some(rate(&flow)? * payload_share(phase, link)? / 1e6)
            };
            runs.iter().map(of_run).collect()
        };
        let told = |values: &[Option<f64>]| {
            let values: Vec<f64> = values.iter().copied().flatten().collect();
            shown(spread(&values, "Mb/s").as_ref())
        };
        let second = of("update", |flow| flow.first(1.0));
        let steady = of("update", |flow| flow.steady());
        let shares: Vec<f64> = second
            .iter()
            .zip(&steady)
            .filter_map(|(second, steady)| text::ratio((*second)?, (*steady)?))
            .collect();
        if runs.is_empty() {
            continue;
        }
        sheet.rows.push(Line {
            role: None,
            fields: vec![
                link_words(link).into(),
                told(&of("initial", |flow| flow.steady())),
                told(&of("initial", |flow| flow.first(1.0))),
                told(&steady),
                told(&second),
                or_nothing(median(&shares).map(percent)),
            ],
        });
    }
    sheet
}

/// farside, the best iperf3 variant, one stream of cubic and rsync over each of the links, percent of the line.
fn steady_picture(all: &[&Filled<'_>]) -> Result<String, PlotError> {
    let mut rows = Vec::new();
    for filled in all {
        let best = filled.best(|got| &got.steady).map_or(PLAIN, |(name, _)| name).to_owned();
        let mut shown: Vec<(&str, String, Kind)> = vec![
            (OWN, "farside".to_owned(), Kind::Own),
            (&best, format!("iperf3 {}", variant(&best)), Kind::Bound),
            (PLAIN, "cubic × 1".to_owned(), Kind::Peer),
            (RSYNC, "rsync".to_owned(), Kind::Peer),
        ];
        if best == PLAIN {
            shown.remove(2);
        }
        for (contender, name, kind) in shown {
            let steady = filled.got.get(contender).map_or(&[][..], |got| &got.steady);
            let values: Vec<f64> = steady.iter().map(|mbit| mbit * 100.0 / filled.line_mbit()).collect();
            let rtt = (filled.link.forward.delay + filled.link.back.delay).as_millis();
            let loss = match filled.link.forward.loss {
                Loss::Random { rate } | Loss::Burst { rate, .. } => rate * 100.0,
            };
            let name = format!("{rtt} ms, {} %: {name}", text::exact(loss));
            rows.push(Dots { name, kind, median: median(&values), values });
        }
    }
    plot::dots(WIDTH, "percent of the line", &rows)
}
