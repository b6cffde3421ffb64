//! Plots as SVG text, by the drawing library's own charts. Pure.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::text::number;

/// Why a plot was not drawn: the drawing library refused. The table beside it has the same numbers.
#[derive(Debug, thiserror::Error)]
#[error("the plot was not drawn: {0}")]
pub struct PlotError(String);

/// Width and height of a plot, pixels.
const SIZE: (u32, u32) = (960, 440);

/// Width of the names of the series, at the right, pixels.
const LEGEND: i32 = 190;

/// Where figures differ by more than this, their axis is logarithmic: the small ones would not be seen.
const LOGARITHMIC_FROM: f64 = 100.0;

/// Colours of Okabe and Ito, told apart by colour-blind readers.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x50, 0x58, 0x60),
    RGBColor(0xb0, 0xa0, 0x10),
];

/// A named series: bars, one per group, or points of a line.
#[derive(Clone, Debug)]
pub struct Series<T> {
    /// Shown in the legend.
    pub name: String,
    /// Bars: median, smallest, largest of each group, absent without a figure. Lines: x and y.
    pub values: Vec<T>,
}

/// Median, smallest and largest of a group; absent if it has no figure.
pub type Bar = Option<(f64, f64, f64)>;

/// Bars in groups: `groups` names them, each series has one value for each. Whiskers reach from the smallest to the largest.
///
/// # Errors
/// [`PlotError`].
pub fn bars(title: &str, unit: &str, groups: &[String], series: &[Series<Bar>]) -> Result<String, PlotError> {
    let all = || series.iter().flat_map(|series| series.values.iter().flatten());
    let (y, floor) = axis(all().flat_map(|(median, least, most)| [*median, *least, *most]));
    let x = -0.5..groups.len() as f64 - 0.5;
    let width = 0.84 / series.len().max(1) as f64;
    let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
    let labels = ("sans-serif", 13).into_font().transform(FontTransform::Rotate270).into_text_style(&SIZE);
    let labels = labels.pos(Pos::new(HPos::Right, VPos::Center));
    draw(title, &names, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(10)
            .caption(title, ("sans-serif", 18))
            .x_label_area_size(130)
            .y_label_area_size(60)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .x_labels(groups.len())
            .x_label_formatter(&|_| String::new())
            .y_label_formatter(&|y| number(*y))
            .y_desc(unit)
            .draw()?;
        // Upright and below the axis, which the chart's own labels cannot be.
        for (group, name) in groups.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(group as f64, floor));
            root.draw(&Text::new(name.clone(), (x, y + 8), labels.clone()))?;
        }
        for (index, series) in series.iter().enumerate() {
            let colour = colour(index);
            let bars = series.values.iter().enumerate().filter_map(|(group, bar)| Some((group, (*bar)?)));
            for (group, (median, least, most)) in bars {
                let left = group as f64 - 0.42 + index as f64 * width;
                let bar = [(left, floor), (left + width * 0.9, median.max(floor))];
                let middle = left + width * 0.45;
                chart.plotting_area().draw(&Rectangle::new(bar, colour.filled()))?;
                let whisker = vec![(middle, least.max(floor)), (middle, most.max(floor))];
                chart.plotting_area().draw(&PathElement::new(whisker, BLACK.mix(0.6)))?;
            }
        }
        Ok(())
    })
}

/// Lines over a common x axis; with `decades`, both axes are logarithmic.
///
/// # Errors
/// [`PlotError`].
pub fn lines(
    title: &str,
    (x_name, y_name): (&str, &str),
    series: &[Series<(f64, f64)>],
    decades: bool,
) -> Result<String, PlotError> {
    let points = || series.iter().flat_map(|series| &series.values);
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(f64::MIN_POSITIVE, f64::max);
    let least = |of: fn(&(f64, f64)) -> f64| {
        points().map(of).filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min)
    };
    let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
    let (x_most, y_most) = (most(|point| point.0), most(|point| point.1) * 1.05);
    draw(title, &names, |root| {
        if decades {
            let x = Scale::Decades(least(|point| point.0).min(x_most), x_most);
            let y = Scale::Decades(least(|point| point.1).min(y_most), y_most);
            draw_lines(root, title, (x_name, y_name), series, x, y)
        } else {
            let (x, y) = (Scale::Even(0.0, x_most), Scale::Even(0.0, y_most));
            draw_lines(root, title, (x_name, y_name), series, x, y)
        }
    })
}

fn draw_lines(
    root: &Area<'_>,
    title: &str,
    (x_name, y_name): (&str, &str),
    series: &[Series<(f64, f64)>],
    x: Scale,
    y: Scale,
) -> Drawn {
    let mut chart = ChartBuilder::on(root)
        .margin(10)
        .caption(title, ("sans-serif", 18))
        .x_label_area_size(45)
        .y_label_area_size(60)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|x| number(*x))
        .y_label_formatter(&|y| number(*y))
        .x_desc(x_name)
        .y_desc(y_name)
        .draw()?;
    for (index, series) in series.iter().enumerate() {
        let points = series.values.iter().copied();
        chart.draw_series(LineSeries::new(points, colour(index).stroke_width(2)))?;
    }
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The chart at the left, the names of its series at the right.
fn draw(title: &str, names: &[&str], chart: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String, PlotError> {
    let mut svg = String::new();
    let drawn = || -> Drawn {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (left, right) = root.split_horizontally(SIZE.0 as i32 - LEGEND);
        chart(&left)?;
        for (index, name) in names.iter().enumerate() {
            let top = 40 + 20 * index as i32;
            right.draw(&Rectangle::new([(0, top), (12, top + 12)], colour(index).filled()))?;
            right.draw(&Text::new((*name).to_owned(), (18, top), ("sans-serif", 14)))?;
        }
        root.present()?;
        Ok(())
    };
    drawn().map_err(|error| PlotError(format!("{title}: {error}")))?;
    Ok(svg)
}

/// The second round of the colours is paler.
fn colour(index: usize) -> RGBAColor {
    COLOURS[index % COLOURS.len()].mix(if index < COLOURS.len() { 1.0 } else { 0.5 })
}

/// An axis that shows all `values` and where its bars begin: at zero, or logarithmic where the small ones would not be seen.
fn axis(values: impl Iterator<Item = f64>) -> (Scale, f64) {
    let (mut least, mut most) = (f64::INFINITY, f64::MIN_POSITIVE);
    for value in values.filter(|value| *value > 0.0) {
        (least, most) = (least.min(value), most.max(value));
    }
    if most > least * LOGARITHMIC_FROM {
        let floor = least / 2.0;
        (Scale::Decades(floor, most * 1.3), floor)
    } else {
        (Scale::Even(0.0, most * 1.05), 0.0)
    }
}

/// One type for the library's even and its logarithmic axis, so that a chart is described once.
#[derive(Clone, Debug)]
enum Scale {
    Even(f64, f64),
    Decades(f64, f64),
}

impl Ranged for Scale {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = match *self {
            Self::Even(from, to) => (value - from) / (to - from),
            Self::Decades(from, to) => (value.max(from) / from).log10() / (to / from).log10(),
        };
        limit.0 + (f64::from(limit.1 - limit.0) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match *self {
            Self::Even(from, to) => RangedCoordf64::from(from..to).key_points(hint),
            Self::Decades(from, to) => {
                let points: Vec<f64> = (-9..=12)
                    .flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(power)))
                    .filter(|point| (from..=to).contains(point))
                    .collect();
                let skip = points.len().div_ceil(hint.max_num_points().max(1)).max(1);
                points.into_iter().step_by(skip).collect()
            }
        }
    }

    fn range(&self) -> std::ops::Range<f64> {
        let (Self::Even(from, to) | Self::Decades(from, to)) = *self;
        from..to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_are_whole_and_hold_what_they_show() {
        let series = [
            Series { name: "farside".to_owned(), values: vec![Some((1.0, 0.9, 1.1)), None] },
            Series {
                name: "rsync".to_owned(),
                values: vec![Some((900.0, 800.0, 950.0)), Some((3.0, 3.0, 3.0))],
            },
        ];
        let groups = ["t3 <postgres>".to_owned(), "t1".to_owned()];
        let svg = bars("seconds", "s", &groups, &series).expect("a plot");
        for part in ["<svg", "farside", "rsync", "t3 &lt;postgres&gt;", "seconds", "</svg>"] {
            assert!(svg.contains(part), "no {part} in {svg}");
        }
        let line = [Series { name: "a".to_owned(), values: vec![(1.0, 1.0), (1000.0, 40.0)] }];
        for decades in [false, true] {
            let svg = lines("rate", ("s", "Mb/s"), &line, decades).expect("a plot");
            assert!(svg.contains("polyline") && !svg.contains("NaN"), "{svg}");
        }
        // Nothing at all is an empty chart, not a panic.
        assert!(bars("t", "s", &[], &[]).is_ok());
        assert!(lines("t", ("x", "y"), &[], true).is_ok());
    }
}
