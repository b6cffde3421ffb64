//! From which link rate on an effort of the codec no longer pays, and what a smaller index costs: computed from bytes and
//! processor time of the codec alone, as `scripts/bench-codec` measures them. Pure.
//!
//! The model: coding and sending overlap, so a transfer takes as long as the slower of the two. Coding shares out over all
//! processors of the machine. With F bytes on the wire and C processor seconds, a link of R bits a second and n
//! processors: `max(8 F / R, C / n)`. A stronger effort pays as long as that is less than with the next cheaper one, which is
//! up to the rate at which the cheaper one's bytes take `C / n` of the stronger.

use serde::Deserialize;

use super::plot::{self, Curve, PlotError};
use super::text::{self, number, one_line};

/// What the codec made of images.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Measurements {
    /// Day, `2026-11-22`.
    pub date: String,
    /// How it is repeated.
    pub command: String,
    /// What it ran on.
    pub machine: Machine,
    /// In the order in which they were made.
    pub measurements: Vec<Measurement>,
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

/// One image brought over.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Measurement {
    /// `effort`: one figure per effort; `index`: one point of a curve over the size of the index; `zstd`: one figure.
    pub what: What,
    /// Which data set.
    pub set: String,
    /// `initial` or `update`.
    pub job: String,
    /// Bytes of the image that are not holes.
    pub content_bytes: u64,
    /// What each effort made of it.
    pub efforts: Vec<Figures>,
}

/// What a measurement is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Comparing efforts.
    Effort,
    /// Comparing sizes of the index.
    Index,
    /// What `zstd -3` makes of the same bytes as one stream, on one processor.
    Zstd,
}

/// What one effort made of an image, as the codec's example prints it; it prints more.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Figures {
    /// `raw`, `fast`, `standard`, `strong`.
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

impl Figures {
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
}

/// When the stronger of two efforts pays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pays {
    /// Whatever the link: it costs no more processor time.
    Always,
    /// On no link: it makes nothing smaller.
    Never,
    /// Up to this rate, bits a second.
    UpTo(f64),
}

/// When `stronger` pays against `cheaper` on `cores` processors.
#[must_use]
pub fn pays(cheaper: &Figures, stronger: &Figures, cores: u32) -> Pays {
    let (cheap, strong) = (cheaper.processor_seconds(), stronger.processor_seconds());
    if stronger.frame_bytes >= cheaper.frame_bytes {
        Pays::Never
    } else if strong <= cheap {
        Pays::Always
    } else {
        Pays::UpTo(cheaper.frame_bytes as f64 * 8.0 * f64::from(cores.max(1)) / strong)
    }
}

/// A section of the manual, and its pictures by file name.
#[derive(Debug)]
pub struct Section {
    /// Markdown, from a heading of the second level on.
    pub markdown: String,
    /// SVG.
    pub pictures: Vec<(String, String)>,
}

/// Width of the pictures, pixels.
const WIDTH: u32 = 720;

/// Link rates of the curves, bits a second: a T1 to 10 Gb/s, so many points to a decade.
const RATES_BITS: (f64, f64) = (1.544e6, 1e10);
const POINTS_PER_DECADE: f64 = 4.0;

/// Sets whose curves are drawn; the table has all.
const DRAWN_MAX: usize = 4;

/// Bytes of a TiB: the index's size is told per TiB of content.
const TIB: f64 = (1_u64 << 40) as f64;

/// The section.
///
/// # Errors
/// If a picture cannot be drawn.
pub fn section(measured: &Measurements) -> Result<Section, PlotError> {
    let mut pictures = Vec::new();
    let escape = |text: &str| text::markdown(&one_line(text));
    let mut page = String::from("## What compression pays for\n\n");
    let machine = &measured.machine;
    page.push_str(&format!(
        "The codec alone, by its own processor time, on {} with {} processors ({}), {}. To repeat: `{}`.\n\n",
        escape(&machine.cpu),
        machine.cores,
        escape(&machine.kernel),
        escape(&measured.date),
        one_line(&measured.command).replace('`', "'")
    ));
    page.push_str(
        "Coding and sending overlap, so a transfer takes as long as the slower of them; coding shares out over all \
         processors. From that follows up to which link rate an effort is quicker than the next cheaper one on this machine. \
         MB (10^6 bytes) of frames are before TLS and TCP.\n\n",
    );
    page.push_str(&effort_table(measured));
    page.push_str(&zstd_table(measured));
    let of_efforts = || measured.measurements.iter().filter(|one| one.what == What::Effort && one.changes());
    let (updates, copies): (Vec<_>, Vec<_>) = of_efforts().partition(|one| one.job == "update");
    for one in updates.into_iter().take(DRAWN_MAX).chain(copies.into_iter().take(DRAWN_MAX)) {
        let name = format!("codec-{}-{}.svg", file_word(&one.set), file_word(&one.job));
        let legend: Vec<String> = one
            .efforts
            .iter()
            .enumerate()
            .map(|(index, figures)| format!("{} {}", plot::mark(index), escape(&figures.effort)))
            .collect();
        let (set, job) = (escape(&one.set), escape(&one.job));
        page.push_str(&format!(
            "### {set}, {job}: MB of the volume per second over the link's rate\n\n![{set}, {job}: each effort follows the \
             link until the processors are busy](measured/{name})\n\n{}\n\n",
            legend.join(" · ")
        ));
        pictures.push((name, alone(&draw_efforts(one, machine.cores)?)));
    }
    if let Some((text, (name, picture))) = index_curve(measured)? {
        page.push_str(&text);
        pictures.push((name, alone(&picture)));
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    Ok(Section { markdown: page, pictures })
}

impl Measurement {
    /// Whether there was anything to bring over.
    fn changes(&self) -> bool {
        self.efforts.iter().any(|figures| figures.data_bytes + figures.repeat_bytes > 0)
    }
}

/// A picture for a page whose colours are not known: on white.
fn alone(svg: &str) -> String {
    svg.replacen('>', "><rect width=\"100%\" height=\"100%\" fill=\"white\"/>", 1)
}

/// Letters and digits stay, whatever else stands in a name of a set becomes a dash.
fn file_word(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

fn effort_table(measured: &Measurements) -> String {
    let mut table = String::from(
        "| set | job | effort | MB changed | of it repeats | MB in frames | MB/s per processor | quicker than the one above up to |\n\
         | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for one in measured.measurements.iter().filter(|one| one.what == What::Effort && one.changes()) {
        for (index, figures) in one.efforts.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| &one.efforts[before]);
            let pays = before.map(|before| pays(before, figures, measured.machine.cores));
            let pays = match pays {
                None => "–".to_owned(),
                Some(Pays::Always) => "any rate".to_owned(),
                Some(Pays::Never) => "no rate".to_owned(),
                Some(Pays::UpTo(rate_bits)) => format!("{} Mb/s", number(rate_bits / 1e6)),
            };
            let mb = |bytes: u64| number(bytes as f64 / 1e6);
            table.push_str(&format!(
                "| {} | {} | {} | {} | {} | {} | {} | {pays} |\n",
                text::markdown(&one_line(&one.set)),
                text::markdown(&one_line(&one.job)),
                text::markdown(&one_line(&figures.effort)),
                mb(figures.data_bytes + figures.repeat_bytes),
                mb(figures.repeat_bytes),
                mb(figures.frame_bytes),
                number(figures.both_mbs),
            ));
        }
    }
    table.push('\n');
    table
}

/// First copies beside `zstd -3`: every effort that is not slower, and what it makes.
fn zstd_table(measured: &Measurements) -> String {
    let mut rows = String::new();
    for plain in measured.measurements.iter().filter(|one| one.what == What::Zstd) {
        let Some(zstd) = plain.efforts.first() else { continue };
        let same =
            |one: &&Measurement| one.what == What::Effort && (&one.set, &one.job) == (&plain.set, &plain.job);
        let Some(ours) = measured.measurements.iter().find(same) else { continue };
        let figures = |one: &Figures| {
            format!("{} MB at {} MB/s", number(one.frame_bytes as f64 / 1e6), number(one.both_mbs))
        };
        let of = |effort: &str| {
            let one = ours.efforts.iter().find(|one| one.effort == effort);
            one.map_or_else(|| "–".to_owned(), figures)
        };
        let set = text::markdown(&one_line(&plain.set));
        rows.push_str(&format!("| {set} | {} | {} | {} |\n", figures(zstd), of("fast"), of("standard")));
    }
    if rows.is_empty() {
        return rows;
    }
    format!(
        "### First copies beside zstd -3\n\nThe same bytes (what is not a hole and not a repeat within the copy) as one \
         stream of `zstd -3`, one processor each; farside's frames carry fingerprints and can each be decoded alone.\n\n\
         | set | zstd -3 | fast | standard |\n| --- | ---: | ---: | ---: |\n{rows}\n"
    )
}

fn draw_efforts(one: &Measurement, cores: u32) -> Result<String, PlotError> {
    let decades = (RATES_BITS.1 / RATES_BITS.0).log10();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few decades")]
    let steps = (decades * POINTS_PER_DECADE).ceil() as u32;
    let curves: Vec<Curve> = one
        .efforts
        .iter()
        .enumerate()
        .map(|(series, figures)| {
            let point = |step: u32| {
                let rate_bits = RATES_BITS.0 * 10_f64.powf(decades * f64::from(step) / f64::from(steps));
                let throughput = figures.throughput(rate_bits, cores);
                (rate_bits / 1e6, throughput, throughput, throughput)
            };
            Curve { series, points: (0..=steps).map(point).collect() }
        })
        .collect();
    plot::decades(WIDTH, "link, Mb/s", "volume, MB/s", &curves)
}

/// Bytes of an update over the size of the index, a curve per set: text, and the picture with its name.
#[expect(clippy::type_complexity, reason = "a text and a named picture")]
fn index_curve(measured: &Measurements) -> Result<Option<(String, (String, String))>, PlotError> {
    let mut sets: Vec<(&str, Vec<(f64, f64)>)> = Vec::new();
    for one in measured.measurements.iter().filter(|one| one.what == What::Index && one.changes()) {
        let Some(figures) = one.efforts.first() else { continue };
        let mib_per_tib =
            figures.index_bytes as f64 / one.content_bytes.max(1) as f64 * TIB / f64::from(1 << 20);
        let point = (mib_per_tib, figures.frame_bytes as f64 / 1e6);
        match sets.iter_mut().find(|(set, _)| *set == one.set) {
            Some((_, points)) => points.push(point),
            None => sets.push((&one.set, vec![point])),
        }
    }
    if sets.is_empty() {
        return Ok(None);
    }
    let mut text = String::from(
        "### Bytes of an update against the size of the index\n\nThe index of similar content tells where to look for \
         what moved. Its size is told as MiB per TiB of what is not zero; MB are of frames.\n\n\
         | set | MiB per TiB | MB in frames |\n| --- | ---: | ---: |\n",
    );
    let mut curves = Vec::new();
    let mut legend = Vec::new();
    for (series, (set, points)) in sets.iter_mut().enumerate() {
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let set = text::markdown(&one_line(set));
        for (size, megabytes) in points.iter() {
            text.push_str(&format!("| {set} | {} | {} |\n", number(*size), number(*megabytes)));
        }
        legend.push(format!("{} {set}", plot::mark(series)));
        let points = points.iter().map(|(size, megabytes)| (*size, *megabytes, *megabytes, *megabytes));
        curves.push(Curve { series, points: points.collect() });
    }
    let name = "codec-index.svg".to_owned();
    text.push_str(&format!(
        "\n![The larger the index, the fewer bytes, up to a point](measured/{name})\n\n{}\n\n",
        legend.join(" · ")
    ));
    let picture = plot::curves(WIDTH, "index, MiB per TiB", "frames, MB", 0.0, &curves)?;
    Ok(Some((text, (name, picture))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(effort: &str, frame_bytes: u64, both_mbs: f64) -> Figures {
        Figures {
            effort: effort.to_owned(),
            data_bytes: 100_000_000,
            repeat_bytes: 0,
            frame_bytes,
            index_bytes: 0,
            both_mbs,
        }
    }

    #[test]
    fn an_effort_pays_up_to_the_rate_at_which_its_processor_time_is_what_sending_more_takes() {
        let raw = figures("raw", 100_000_000, 2_000.0);
        let standard = figures("standard", 25_000_000, 200.0);
        // Half a second on one processor: 100 MB take that at 1.6 Gb/s; with two processors at twice the rate.
        assert_eq!(pays(&raw, &standard, 1), Pays::UpTo(1.6e9));
        assert_eq!(pays(&raw, &standard, 2), Pays::UpTo(3.2e9));
        assert_eq!(pays(&raw, &figures("fast", 30_000_000, 2_500.0), 1), Pays::Always);
        assert_eq!(pays(&raw, &figures("fast", 100_000_000, 500.0), 1), Pays::Never);
        // At that rate, and at it alone, both take the same time.
        let volume = |figures: &Figures, rate_bits| figures.throughput(rate_bits, 1);
        assert!((volume(&raw, 1.6e9) - volume(&standard, 1.6e9)).abs() < 1e-6);
        assert!(volume(&raw, 1.5e9) < volume(&standard, 1.5e9));
        assert!(volume(&raw, 1.7e9) > volume(&standard, 1.7e9));
    }

    #[test]
    fn the_section_has_a_table_and_pictures_of_what_was_measured() {
        let text = r#"{"date": "2026-11-22", "command": "scripts/bench-codec",
            "machine": {"cpu": "Fast <One>", "cores": 2, "kernel": "Linux 6"},
            "measurements": [
                {"what": "effort", "set": "db", "job": "update", "content_bytes": 1099511627776, "efforts": [
                    {"effort": "raw", "data_bytes": 40000000, "repeat_bytes": 1000000, "frame_bytes": 40000000,
                     "index_bytes": 7, "both_mbs": 2000, "more": 1},
                    {"effort": "fast", "data_bytes": 40000000, "repeat_bytes": 1000000, "frame_bytes": 4000000,
                     "index_bytes": 7, "both_mbs": 400}]},
                {"what": "effort", "set": "still", "job": "update", "content_bytes": 1, "efforts": [
                    {"effort": "raw", "data_bytes": 0, "repeat_bytes": 0, "frame_bytes": 0, "index_bytes": 0, "both_mbs": 0}]},
                {"what": "zstd", "set": "db", "job": "update", "content_bytes": 1099511627776, "efforts": [
                    {"effort": "zstd -3", "data_bytes": 40000000, "repeat_bytes": 0, "frame_bytes": 5000000,
                     "index_bytes": 0, "both_mbs": 200}]},
                {"what": "index", "set": "db", "job": "update", "content_bytes": 1099511627776, "efforts": [
                    {"effort": "standard", "data_bytes": 1, "repeat_bytes": 0, "frame_bytes": 900000,
                     "index_bytes": 67108864, "both_mbs": 100}]},
                {"what": "index", "set": "db", "job": "update", "content_bytes": 1099511627776, "efforts": [
                    {"effort": "standard", "data_bytes": 1, "repeat_bytes": 0, "frame_bytes": 3000000,
                     "index_bytes": 0, "both_mbs": 100}]}]}"#;
        let measured: Measurements = serde_json::from_str(text).expect("measurements");
        let section = section(&measured).expect("pictures");
        for line in [
            "on Fast &lt;One&gt; with 2 processors",
            "| db | update | raw | 41.0 | 1.00 | 40.0 | 2000 | – |",
            // 0.1 s of processor time on two: 40 MB take 0.05 s at 6.4 Gb/s.
            "| db | update | fast | 41.0 | 1.00 | 4.00 | 400 | 6400 Mb/s |",
            "| db | 5.00 MB at 200 MB/s | 4.00 MB at 400 MB/s | – |",
            "| db | 0 | 3.00 |\n| db | 64.0 | 0.90 |",
            "(measured/codec-db-update.svg)",
        ] {
            assert!(section.markdown.contains(line), "no {line:?} in {}", section.markdown);
        }
        assert!(!section.markdown.contains("still"), "where nothing changed nothing is measured");
        let names: Vec<&str> = section.pictures.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["codec-db-update.svg", "codec-index.svg"]);
        for (name, svg) in &section.pictures {
            assert!(
                svg.starts_with("<svg") && svg.contains("xmlns") && !svg.contains("NaN"),
                "{name}: {svg}"
            );
        }
    }
}
