//! The matrix of the EqualLogic paper: volumes × transfer size × line, with host load; latency × window; loss × packet size. The
//! paper's figures beside those measured here, and lines that this machine cannot carry by calculation. Pure.

use std::collections::BTreeSet;

use crate::experiment::stats::{median, spread};
use crate::link::{Link, Loss};
use crate::record::result::{CellResult, ExperimentResult, Spread};

use super::describe;
use super::filling::{Section, head};
use super::model::{Job, Model};
use super::plot::{self, Curve, PlotError};
use super::sheet::{self, Field, Line, NOTHING, Sheet, figures, words};
use super::table;
use super::text::{self, exact, number, one_line, times};

/// The line of the paper that no emulator on such a machine carries, bits a second.
const CALCULATED_BITS: f64 = 10e9;

/// Width of pictures, pixels.
const WIDTH: u32 = 700;

/// What a contender's name says: `v18-t3-loaded`, `window-73728`, `frames`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Setting {
    volumes: u32,
    at_once: u32,
    loaded: bool,
    window: Option<u64>,
}

/// Volumes in the experiments about windows and frames, as in the paper.
const FEW_VOLUMES: u32 = 3;

fn setting(name: &str) -> Setting {
    let mut setting = Setting { volumes: FEW_VOLUMES, at_once: FEW_VOLUMES, ..Setting::default() };
    for part in name.split('-') {
        if let Some(volumes) = part.strip_prefix('v').and_then(|number| number.parse().ok()) {
            setting.volumes = volumes;
        } else if let Some(at_once) = part.strip_prefix('t').and_then(|number| number.parse().ok()) {
            setting.at_once = at_once;
        } else if part == "loaded" {
            setting.loaded = true;
        } else if let Ok(window) = part.parse() {
            setting.window = Some(window);
        }
    }
    setting
}

/// A cell with what its name and its link say.
struct Measured<'a> {
    link: &'a Link,
    setting: Setting,
    seconds: Spread,
    payload_mb: f64,
    /// Host operations a second beside the transfers ÷ alone.
    host: Option<Spread>,
}

fn measured(result: &ExperimentResult) -> Vec<Measured<'_>> {
    let of_cell = |cell: &CellResult| {
        let link = result.links.iter().find(|link| link.name == cell.cell.link)?;
        let phases = || {
            let runs = result.runs.iter().filter(|run| run.failed.is_none() && run.cell == cell.cell);
            runs.filter_map(|run| run.phases.first())
        };
        let seconds: Vec<f64> = phases().map(|phase| phase.seconds).collect();
        let payload: Vec<f64> =
            phases().filter_map(|phase| phase.figures.get("payload")).map(|figure| figure.value).collect();
        let host: Vec<f64> = phases()
            .filter_map(|phase| {
                let value = |name: &str| phase.figures.get(name).map(|figure| figure.value);
                text::ratio(value("iops-beside")?, value("iops-alone")?)
            })
            .collect();
        Some(Measured {
            link,
            setting: setting(&cell.cell.contender),
            seconds: spread(&seconds, "s")?,
            payload_mb: median(&payload)?,
            host: spread(&host, ""),
        })
    };
    result.cells.iter().filter_map(of_cell).collect()
}

impl Measured<'_> {
    fn job(&self) -> Job {
        let shape = &self.link.forward;
        let loss = match shape.loss {
            Loss::Random { rate } | Loss::Burst { rate, .. } => rate,
        };
        Job {
            rate_bits: shape.rate_bits as f64,
            rtt_seconds: self.rtt(),
            loss,
            mtu: f64::from(shape.mtu),
            volumes: self.setting.volumes,
            at_once: self.setting.at_once.min(self.setting.volumes),
            window: self.setting.window.map_or(f64::INFINITY, |window| window as f64),
            bytes: self.payload_mb * 1e6,
        }
    }

    fn rtt(&self) -> f64 {
        (self.link.forward.delay + self.link.back.delay).as_secs_f64()
    }

    fn mbit(&self) -> f64 {
        self.payload_mb * 8.0 / self.seconds.median
    }

    /// RTT in ms, and Mb/s of the slowest run, the median and the fastest.
    fn point(&self) -> (f64, f64, f64, f64) {
        let mbit = |seconds: f64| self.payload_mb * 8.0 / seconds;
        (self.rtt() * 1e3, mbit(self.seconds.max), self.mbit(), mbit(self.seconds.min))
    }

    fn field(&self) -> Field {
        format!("{} s, {} Mb/s", sheet::spread(&self.seconds, number), number(self.mbit())).into()
    }
}

/// What the paper says, of what ours is beside it.
struct Beside {
    of: String,
    paper: &'static str,
    ours: Option<String>,
}

fn beside_table(rows: Vec<Beside>) -> String {
    let mut sheet =
        Sheet { head: vec![words("of"), words("the paper"), words("measured here")], ..Sheet::default() };
    for row in rows {
        let ours = row.ours.unwrap_or_else(|| NOTHING.to_owned());
        sheet.rows.push(Line { role: None, fields: vec![row.of.into(), row.paper.into(), ours.into()] });
    }
    format!("### Beside the paper\n\n{}", table::markdown_table(&sheet))
}

/// The fitted model in words, with what it says of 10 Gb/s for the jobs of the fastest line.
fn calculated(all: &[Measured<'_>], name: impl Fn(&Measured<'_>) -> String) -> String {
    let idle = |cell: &&Measured<'_>| !cell.setting.loaded;
    let pairs: Vec<(Job, f64)> =
        all.iter().filter(idle).map(|cell| (cell.job(), cell.seconds.median)).collect();
    let Some(model) = Model::fit(&pairs) else { return String::new() };
    let (middle, most) = model.errors(&pairs);
    let mut page = format!(
        "### 10 Gb/s, by calculation\n\nNo emulator on such a machine carries 10 Gb/s: what follows is **calculated, not \
         measured**. A transfer goes at the least of what the line carries, what its windows allow (window ÷ round trip, for each \
         transfer at once) and what the processors of both sites manage; each needs some round trips and some time besides. Fitted \
         to the {} cells above: {} Mb/s by the processors, {} round trips and {} s a transfer. It is off from what was measured by \
         {:.0} % in the median cell and by {:.0} % in the worst.\n\n",
        pairs.len(),
        number(model.processors_bits / 1e6),
        exact(model.round_trips),
        exact(model.seconds),
        middle * 100.0,
        most * 100.0
    );
    let fastest = all.iter().map(|cell| cell.link.forward.rate_bits).max().unwrap_or(0);
    let mut sheet = Sheet { head: vec![words("cell")], ..Sheet::default() };
    let heads = ["measured s", "calculated s", "at 10 Gb/s: s", "with processors ten times as fast: s"];
    sheet.head.extend(heads.map(figures));
    for cell in all.iter().filter(idle).filter(|cell| cell.link.forward.rate_bits == fastest) {
        let job = cell.job();
        let faster = Job { rate_bits: CALCULATED_BITS, ..job };
        let ten_times = Model { processors_bits: model.processors_bits * 10.0, ..model };
        let shown =
            [cell.seconds.median, model.seconds(&job), model.seconds(&faster), ten_times.seconds(&faster)];
        let mut fields: Vec<Field> = vec![name(cell).into()];
        fields.extend(shown.map(|seconds| Field::from(number(seconds))));
        sheet.rows.push(Line { role: None, fields });
    }
    page.push_str(&table::markdown_table(&sheet));
    page
}

fn line_name(link: &Link) -> String {
    describe::rate(link.forward.rate_bits)
}

fn rates(all: &[Measured<'_>]) -> BTreeSet<u64> {
    all.iter().map(|cell| cell.link.forward.rate_bits).collect()
}

/// Volumes × transfer size × line, with host load and without.
///
/// # Errors
/// None; sections have this form.
pub fn volumes_section(result: &ExperimentResult) -> Result<Section, PlotError> {
    let all = measured(result);
    let mut markdown = head(result);
    let sizes: BTreeSet<u32> = all.iter().map(|cell| cell.setting.at_once).collect();
    let mut sheet = Sheet { head: vec![words("line"), words("volumes"), words("host")], ..Sheet::default() };
    sheet.head.extend(sizes.iter().map(|size| figures(&format!("{size} at once"))));
    let rows: BTreeSet<(u64, u32, bool)> = all
        .iter()
        .map(|cell| (cell.link.forward.rate_bits, cell.setting.volumes, cell.setting.loaded))
        .collect();
    let find = |rate: u64, volumes: u32, loaded: bool, at_once: u32| {
        all.iter().find(|cell| {
            let setting = cell.setting;
            cell.link.forward.rate_bits == rate
                && (setting.volumes, setting.loaded, setting.at_once) == (volumes, loaded, at_once)
        })
    };
    for (rate, volumes, loaded) in rows {
        let mut fields: Vec<Field> = vec![
            describe::rate(rate).into(),
            volumes.to_string().into(),
            if loaded { "loaded".into() } else { "idle".into() },
        ];
        fields.extend(sizes.iter().map(|at_once| match find(rate, volumes, loaded, *at_once) {
            None => NOTHING.into(),
            Some(cell) => match cell.host.as_ref().filter(|_| loaded) {
                None => cell.field(),
                Some(host) => {
                    Field::from(format!("{}, host {} %", cell.field().text, number(host.median * 100.0)))
                }
            },
        }));
        sheet.rows.push(Line { role: None, fields });
    }
    markdown.push_str(
        "Seconds until all copies are there, and Mb/s of payload. *Host* is what a host's load on the source (8 KiB at random, 70 % \
         reads, 30 at a time) got beside the transfers, percent of what it got alone. All copies are asked for at \
         once, and the destination's transfer size (`farside site set --transfer-size`) says how many run.\n\n",
    );
    markdown.push_str(&table::markdown_table(&sheet));
    let mut beside = Vec::new();
    let (few, many) = (3, 18);
    let largest = sizes.last().copied().unwrap_or(16);
    for rate in rates(&all) {
        let ratio = |one: Option<&Measured<'_>>, other: Option<&Measured<'_>>| {
            text::ratio(one?.seconds.median, other?.seconds.median)
        };
        let host =
            |at_once| find(rate, many, true, at_once).and_then(|cell| Some(cell.host.as_ref()?.median));
        let name = describe::rate(rate);
        let (paper_volumes, paper_size, paper_host) = match rate {
            0..=200_000_000 => ("6 × (OC-3)", "–", "no difference (OC-3)"),
            _ => ("3 × (10 Gb/s)", "3.5 × (10 Gb/s)", "1.10 to 1.15 × (1 Gb/s), 1.5 × (10 Gb/s)"),
        };
        beside.push(Beside {
            of: format!("{name}: time of 18 volumes ÷ of 3, {largest} at once"),
            paper: paper_volumes,
            ours: ratio(
                find(rate, many, false, largest),
                find(rate, few, false, largest.min(few)).or(find(rate, few, false, largest)),
            )
            .map(|ratio| format!("{} ×", times(ratio))),
        });
        beside.push(Beside {
            of: format!("{name}: time of 18 volumes, 1 at once ÷ {largest} at once, host loaded"),
            paper: paper_size,
            ours: ratio(find(rate, many, true, 1), find(rate, many, true, largest))
                .map(|ratio| format!("{} ×", times(ratio))),
        });
        beside.push(Beside {
            of: format!("{name}: host operations, 1 at once ÷ {largest} at once"),
            paper: paper_host,
            ours: host(1)
                .zip(host(largest))
                .and_then(|(one, all)| text::ratio(one, all))
                .map(|ratio| format!("{} ×", times(ratio))),
        });
    }
    markdown.push_str(&beside_table(beside));
    markdown.push_str(&calculated(&all, |cell| {
        format!(
            "{} volumes, {} at once, {}",
            cell.setting.volumes,
            cell.setting.at_once,
            line_name(cell.link)
        )
    }));
    Ok(Section { markdown, pictures: Vec::new() })
}

fn window_words(window: Option<u64>) -> String {
    match window {
        None => "auto".to_owned(),
        Some(bytes) if bytes >= 1 << 20 => format!("{} MB", exact(bytes as f64 / f64::from(1 << 20))),
        Some(bytes) => format!("{} KB", exact(bytes as f64 / 1024.0)),
    }
}

/// Latency × window × line.
///
/// # Errors
/// [`PlotError`].
pub fn window_section(result: &ExperimentResult) -> Result<Section, PlotError> {
    let all = measured(result);
    let mut markdown = head(result);
    let mut windows: Vec<Option<u64>> = all.iter().map(|cell| cell.setting.window).collect();
    windows.sort_by_key(|window| window.unwrap_or(u64::MAX));
    windows.dedup();
    let mut sheet = Sheet { head: vec![words("line"), words("RTT")], ..Sheet::default() };
    sheet.head.extend(windows.iter().map(|window| figures(&format!("window {}", window_words(*window)))));
    let find = |link: &str, window: Option<u64>| {
        all.iter().find(|cell| cell.link.name == link && cell.setting.window == window)
    };
    for link in &result.links {
        let mut fields: Vec<Field> = vec![
            line_name(link).into(),
            format!("{} ms", exact((link.forward.delay + link.back.delay).as_secs_f64() * 1e3)).into(),
        ];
        fields.extend(
            windows.iter().map(|window| find(&link.name, *window).map_or(NOTHING.into(), Measured::field)),
        );
        sheet.rows.push(Line { role: None, fields });
    }
    markdown.push_str(&format!(
        "Seconds until the copies of {FEW_VOLUMES} volumes, all at once, are there, and Mb/s of payload. A window allows each of them \
         window ÷ round trip. (The paper's table 2 divides by the one-way latency: its 72 KB at 50 ms give 11 Mb/s; by the round \
         trip it is half of that.)\n\n"
    ));
    markdown.push_str(&table::markdown_table(&sheet));
    let mut pictures = Vec::new();
    let marks: Vec<String> = windows
        .iter()
        .enumerate()
        .map(|(series, window)| format!("{} {}", plot::mark(series), window_words(*window)))
        .collect();
    for rate in rates(&all) {
        let name = format!("{}-{}.svg", result.name, rate / 1000);
        let title = format!("{}: Mb/s over RTT in ms", describe::rate(rate));
        markdown
            .push_str(&format!("![{title}](measured/{name})\n\n{title}; window {}\n\n", marks.join(" · ")));
        let curve = |(series, window): (usize, &Option<u64>)| {
            let of_curve =
                |cell: &&Measured<'_>| cell.link.forward.rate_bits == rate && cell.setting.window == *window;
            let mut points: Vec<_> = all.iter().filter(of_curve).map(Measured::point).collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            Curve { series, points }
        };
        let curves: Vec<Curve> = windows.iter().enumerate().map(curve).collect();
        pictures.push((name, plot::curves(WIDTH, "RTT, ms", "Mb/s", 0.0, &curves)?));
    }
    let mut beside = Vec::new();
    for link in result.links.iter().filter(|link| link.forward.delay.as_millis() == 50) {
        let narrow = windows.first().and_then(|window| find(&link.name, *window));
        let saved = |wide: Option<&Measured<'_>>| {
            let share = text::ratio(wide?.seconds.median, narrow?.seconds.median)?;
            Some(format!("{:.0} %", (1.0 - share) * 100.0))
        };
        let paper = match link.forward.rate_bits {
            0..=100_000_000 => "not told (T3)",
            100_000_001..=200_000_000 => "12 % (OC-3)",
            _ => "8 % (1 Gb/s), 15 % (10 Gb/s)",
        };
        let name = line_name(link);
        beside.push(Beside {
            of: format!("{name}, 50 ms one way: time saved by 1 MB against 72 KB"),
            paper,
            ours: saved(find(&link.name, Some(1 << 20))),
        });
        beside.push(Beside {
            of: format!("{name}, 50 ms one way: time saved by a window that grows against 72 KB"),
            paper: "–",
            ours: saved(find(&link.name, None)),
        });
    }
    markdown.push_str(&beside_table(beside));
    markdown.push_str(&calculated(&all, |cell| {
        format!(
            "{}, RTT {} ms, window {}",
            line_name(cell.link),
            exact(cell.rtt() * 1e3),
            window_words(cell.setting.window)
        )
    }));
    Ok(Section { markdown, pictures })
}

/// Loss × packet size × line.
///
/// # Errors
/// None; sections have this form.
pub fn frames_section(result: &ExperimentResult) -> Result<Section, PlotError> {
    let all = measured(result);
    let mut markdown = head(result);
    let mtus: BTreeSet<u32> = result.links.iter().map(|link| link.forward.mtu).collect();
    let mut sheet = Sheet { head: vec![words("line, RTT, loss")], ..Sheet::default() };
    sheet.head.extend(mtus.iter().map(|mtu| figures(&format!("packets of {mtu}"))));
    sheet.head.push(figures("time saved by large ones"));
    let without_packets =
        |name: &str| name.rsplit_once('-').map_or(name.to_owned(), |(rest, _)| rest.to_owned());
    let mut done = BTreeSet::new();
    let mut beside = Vec::new();
    for link in &result.links {
        let name = without_packets(&link.name);
        if !done.insert(name.clone()) {
            continue;
        }
        let find = |mtu: u32| {
            all.iter().find(|cell| cell.link.forward.mtu == mtu && without_packets(&cell.link.name) == name)
        };
        let mut fields: Vec<Field> = vec![describe::link(link).into()];
        fields.extend(mtus.iter().map(|mtu| find(*mtu).map_or(NOTHING.into(), Measured::field)));
        let (small, large) =
            (mtus.first().and_then(|mtu| find(*mtu)), mtus.last().and_then(|mtu| find(*mtu)));
        let saved = small.zip(large).and_then(|(small, large)| {
            let share = text::ratio(large.seconds.median, small.seconds.median)?;
            Some(format!("{:.0} %", (1.0 - share) * 100.0))
        });
        fields.push(saved.clone().unwrap_or_else(|| NOTHING.to_owned()).into());
        sheet.rows.push(Line { role: None, fields });
        if link.forward.rate_bits >= 1_000_000_000 {
            let paper = match link.forward.loss {
                Loss::Random { rate } if rate >= 0.01 => "60 % (1 Gb/s), 67 % (10 Gb/s)",
                Loss::Random { rate } if rate > 0.0 => "40 % (10 Gb/s)",
                _ => "10 to 15 % (1 Gb/s), about half (10 Gb/s)",
            };
            let of = format!("{}: time saved by large packets", one_line(&describe::link(link)));
            beside.push(Beside { of, paper, ours: saved });
        }
    }
    markdown
        .push_str("Seconds until the copies of 3 volumes, all at once, are there, and Mb/s of payload.\n\n");
    markdown.push_str(&table::markdown_table(&sheet));
    markdown.push_str(&beside_table(beside));
    markdown.push_str(&calculated(&all, |cell| describe::link(cell.link)));
    Ok(Section { markdown, pictures: Vec::new() })
}
