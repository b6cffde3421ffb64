//! What the codec alone makes of data sets, as `scripts/bench-codec` measures it, and up to which link rate a stronger effort
//! pays. Pure.
//!
//! The model: coding and sending overlap, so a transfer takes as long as the slower of the two. Coding shares out over all
//! processors. With F bytes on the wire and C processor seconds, a link of R bits a second and n processors:
//! `max(8 F / R, C / n)`. So an effort pays up to the rate at which the next cheaper one's bytes take C / n.

use comfy_table::{Table, presets};
use serde::Deserialize;

use super::Report;
use super::plot::{self, PlotError, Series};
use crate::text::{markdown, number};

/// When and where it was measured: the first line of the file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Head {
    /// Day, `2026-11-22`.
    pub date: String,
    /// How it is repeated.
    pub command: String,
    /// What it ran on.
    pub machine: Machine,
}

/// What the codec ran on.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Processors.
    pub cores: u32,
    /// Name and release of the kernel.
    pub kernel: String,
}

/// One image brought over: each further line.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Measurement {
    /// What was compared.
    pub what: What,
    /// Which data set.
    pub set: String,
    /// `initial` or `update`.
    pub job: String,
    /// Bytes of the image that are not holes.
    pub content_bytes: u64,
    /// What each effort made of it.
    pub efforts: Vec<Effort>,
}

/// What a measurement compares.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Efforts.
    Effort,
    /// Sizes of the index, one each.
    Index,
    /// `zstd -3` of the same bytes as one stream, on one processor.
    Zstd,
}

/// What one effort made of an image, as the codec's example prints it; it prints more.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Effort {
    /// `raw`, `fast`, `standard`…
    pub effort: String,
    /// Bytes of the blocks that were coded.
    pub data_bytes: u64,
    /// Bytes of the blocks that were only named.
    pub repeat_bytes: u64,
    /// Bytes of the frames.
    pub frame_bytes: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Coded bytes per second of processor time, search included, 10^6 bytes.
    pub both_mbs: f64,
}

impl Effort {
    /// Processor seconds; none where nothing was coded.
    fn processor_seconds(&self) -> f64 {
        if self.both_mbs > 0.0 { self.data_bytes as f64 / 1e6 / self.both_mbs } else { 0.0 }
    }

    /// Changed bytes of the volume per second over a link of `rate_bits`, 10^6 bytes.
    fn throughput(&self, rate_bits: f64, cores: u32) -> f64 {
        let sending = self.frame_bytes as f64 * 8.0 / rate_bits;
        let coding = self.processor_seconds() / f64::from(cores.max(1));
        (self.data_bytes + self.repeat_bytes) as f64 / 1e6 / sending.max(coding).max(f64::MIN_POSITIVE)
    }

    /// Up to which rate, in bits a second, it is quicker than `cheaper`: infinite where it costs no more processor time,
    /// zero where it makes nothing smaller.
    #[must_use]
    pub fn pays_up_to(&self, cheaper: &Self, cores: u32) -> f64 {
        let (cheap, own) = (cheaper.processor_seconds(), self.processor_seconds());
        if self.frame_bytes >= cheaper.frame_bytes {
            0.0
        } else if own <= cheap {
            f64::INFINITY
        } else {
            cheaper.frame_bytes as f64 * 8.0 * f64::from(cores.max(1)) / own
        }
    }
}

/// Link rates of the curves, bits a second: a T1 to 10 Gb/s.
const RATES_BITS: (f64, f64) = (1.544e6, 1e10);
const POINTS: u32 = 16;

/// Bytes of a TiB: the index's size is told per TiB of content.
const TIB: f64 = (1_u64 << 40) as f64;

/// The page.
///
/// # Errors
/// [`PlotError`].
pub fn page(head: &Head, measurements: &[Measurement]) -> Result<Report, PlotError> {
    let machine = &head.machine;
    let mut report = Report {
        markdown: format!(
            "# The codec alone\n\nBytes and speed of each effort, on one processor, by its own processor time. *Pays up to* is the \
             link rate up to which a transfer is quicker with this effort than with the one above it, with all {} \
             processors of this machine.\n\n* When: {}\n* Machine: {}, {}\n* To repeat: `{}`\n\n",
            machine.cores,
            markdown(&head.date),
            markdown(&machine.cpu),
            markdown(&machine.kernel),
            head.command
        ),
        plots: Vec::new(),
    };
    let mut efforts =
        table(&["set", "job", "effort", "MB changed", "of it repeats", "MB in frames", "MB/s", "pays up to"]);
    let mut index = table(&["set", "index, MiB per TiB", "MB in frames"]);
    for one in measurements.iter().filter(|one| one.changes()) {
        let mut cheaper: Option<&Effort> = None;
        for effort in &one.efforts {
            let mb = |bytes: u64| number(bytes as f64 / 1e6);
            if one.what == What::Index {
                let per_tib = effort.index_bytes as f64 / one.content_bytes.max(1) as f64 * TIB;
                index.add_row([
                    markdown(&one.set),
                    number(per_tib / f64::from(1 << 20)),
                    mb(effort.frame_bytes),
                ]);
                continue;
            }
            let pays = cheaper.map(|cheaper| match effort.pays_up_to(cheaper, machine.cores) {
                rate if rate.is_infinite() => "any rate".to_owned(),
                0.0 => "no rate".to_owned(),
                rate => format!("{} Mb/s", number(rate / 1e6)),
            });
            efforts.add_row([
                markdown(&one.set),
                markdown(&one.job),
                if one.what == What::Zstd { "zstd -3".to_owned() } else { markdown(&effort.effort) },
                mb(effort.data_bytes + effort.repeat_bytes),
                mb(effort.repeat_bytes),
                mb(effort.frame_bytes),
                number(effort.both_mbs),
                pays.unwrap_or_default(),
            ]);
            cheaper = Some(effort);
        }
    }
    report.markdown.push_str(&format!("{efforts}\n\n"));
    if !index.is_empty() {
        report
            .markdown
            .push_str(&format!("## Bytes of an update against the size of the index\n\n{index}\n\n"));
    }
    for one in
        measurements.iter().filter(|one| one.what == What::Effort && one.job == "update" && one.changes())
    {
        let title = format!("{}, {}: MB of the volume per second over the link's rate", one.set, one.job);
        let svg = plot::lines(&title, ("link, Mb/s", "volume, MB/s"), &curves(one, machine.cores), true)?;
        let name = one.set.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        report.show(format!("{name}-update.svg"), &title, svg);
    }
    report.markdown.truncate(report.markdown.trim_end().len());
    report.markdown.push('\n');
    Ok(report)
}

impl Measurement {
    /// Whether there was anything to bring over.
    fn changes(&self) -> bool {
        self.efforts.iter().any(|effort| effort.data_bytes + effort.repeat_bytes > 0)
    }
}

fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(head);
    table
}

fn curves(one: &Measurement, cores: u32) -> Vec<Series<(f64, f64)>> {
    let rate =
        |step: u32| RATES_BITS.0 * (RATES_BITS.1 / RATES_BITS.0).powf(f64::from(step) / f64::from(POINTS));
    let curve = |effort: &Effort| Series {
        name: effort.effort.clone(),
        values: (0..=POINTS).map(|step| (rate(step) / 1e6, effort.throughput(rate(step), cores))).collect(),
    };
    one.efforts.iter().map(curve).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effort(name: &str, frame_bytes: u64, both_mbs: f64) -> Effort {
        let (effort, data_bytes) = (name.to_owned(), 100_000_000);
        Effort { effort, data_bytes, repeat_bytes: 0, frame_bytes, index_bytes: 0, both_mbs }
    }

    #[test]
    fn an_effort_pays_up_to_the_rate_at_which_the_cheaper_ones_bytes_take_its_time() {
        let (fast, strong) = (effort("fast", 50_000_000, 1000.0), effort("strong", 25_000_000, 10.0));
        // Ten processor seconds on two processors; 400 Mbit in five seconds.
        assert_eq!(strong.pays_up_to(&fast, 2), 80e6);
        assert_eq!(fast.pays_up_to(&strong, 2), 0.0);
        assert!(effort("free", 25_000_000, 1000.0).pays_up_to(&fast, 2).is_infinite());
        // 8 Mb/s carry a megabyte of frames a second, which is four of the volume.
        assert!((strong.throughput(8e6, 2) - 4.0).abs() < 1e-9);
    }

    #[test]
    fn the_page_has_every_effort() {
        let machine = Machine { cpu: "one | two".to_owned(), cores: 2, kernel: "Linux".to_owned() };
        let head = Head { date: "2026-11-24".to_owned(), command: "scripts/bench-codec".to_owned(), machine };
        let measurement = |what, job: &str| Measurement {
            what,
            set: "postgres".to_owned(),
            job: job.to_owned(),
            content_bytes: 1 << 30,
            efforts: vec![effort("fast", 50_000_000, 1000.0), effort("strong", 25_000_000, 10.0)],
        };
        let report = page(&head, &[measurement(What::Effort, "update"), measurement(What::Index, "update")]);
        let report = report.expect("a page");
        assert!(report.markdown.contains("80.0 Mb/s") && report.markdown.contains("one \\| two"));
        assert_eq!(report.plots.len(), 1);
    }
}
