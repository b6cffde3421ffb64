//! Plots as SVG text. Pure: numbers in, text out.
//!
//! A plot is drawn in the colours of [`INKS`] for a light page; the page's style sheet replaces each of them by its dark
//! twin where the reader prefers dark ([`dark_rules`]), so the same picture serves both and stands alone as a file too.
//! Colours are those of Okabe and Ito, told apart by colour-blind readers; every distinction is also one of place or of
//! the mark's form.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use thiserror::Error;

use super::text::number;

/// Why a plot was not drawn: the drawing library refused. The table beside it has the same numbers.
#[derive(Debug, Error)]
#[error("the plot was not drawn: {0}")]
pub struct PlotError(String);

impl PlotError {
    fn of(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// A colour and its twin on a dark page.
#[derive(Clone, Copy, Debug)]
pub struct Ink {
    /// On white.
    pub light: RGBColor,
    /// On near black, as CSS writes it.
    pub dark: &'static str,
}

/// Text and axes.
const TEXT: Ink = Ink { light: RGBColor(0x22, 0x28, 0x30), dark: "#e4e7eb" };
/// Lines of the grid.
const GRID: Ink = Ink { light: RGBColor(0xd8, 0xdc, 0xe1), dark: "#3a414a" };
/// farside.
const OWN: Ink = Ink { light: RGBColor(0xd5, 0x5e, 0x00), dark: "#ff8c42" };
/// farside's second part of a bar.
const OWN_PALE: Ink = Ink { light: RGBColor(0xf0, 0xb5, 0x8a), dark: "#a85a26" };
/// Peers.
const PEER: Ink = Ink { light: RGBColor(0x00, 0x72, 0xb2), dark: "#56a8e0" };
/// A peer's second part.
const PEER_PALE: Ink = Ink { light: RGBColor(0x99, 0xc6, 0xe2), dark: "#2b618a" };
/// Bounds: tools that read the whole old content at both ends.
const BOUND: Ink = Ink { light: RGBColor(0x76, 0x7d, 0x86), dark: "#a3abb5" };
/// A bound's second part.
const BOUND_PALE: Ink = Ink { light: RGBColor(0xbf, 0xc4, 0xca), dark: "#626a74" };
/// Series of curves, in order; the first is farside's own colour on purpose only where farside is the first series.
pub const SERIES: [Ink; 8] = [
    PEER,
    OWN,
    Ink { light: RGBColor(0x00, 0x8a, 0x65), dark: "#35c59b" },
    Ink { light: RGBColor(0xa9, 0x4f, 0x86), dark: "#dd8fbd" },
    Ink { light: RGBColor(0x9a, 0x6c, 0x00), dark: "#e6b422" },
    Ink { light: RGBColor(0x33, 0x99, 0xcc), dark: "#8bd0f5" },
    Ink { light: RGBColor(0x3d, 0x44, 0x4d), dark: "#f2f2f2" },
    BOUND,
];
/// Every colour that a plot may hold.
const INKS: [&[Ink]; 2] = [&[TEXT, GRID, OWN, OWN_PALE, PEER, PEER_PALE, BOUND, BOUND_PALE], &SERIES];

/// Most points on one curve and most rows of one plot; more would not be readable, and an experiment's file cannot make
/// the page grow without bound.
pub const ROWS_MAX: usize = 60;

/// Height of a row of bars or dots, pixels: two lines of text would fit.
const ROW_PIXELS: u32 = 24;
/// Room under the rows for the axis and its name, pixels.
const AXIS_PIXELS: u32 = 44;
/// Height of a plot of curves, pixels.
const CURVES_PIXELS: u32 = 280;
/// The library divides sizes by 1.24; this comes out as 12.9 pixels.
const TEXT_SIZE: f64 = 16.0;
/// Mean width of a character of a sans-serif font at that size, pixels; a little more than measured, so that nothing is cut.
const CHARACTER_PIXELS: f64 = 7.2;

/// Whose row it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// farside itself.
    Own,
    /// A tool that people use for the job.
    Peer,
    /// A tool that shows how far one can get, under conditions that the job does not offer.
    Bound,
}

impl Kind {
    fn inks(self) -> (RGBColor, RGBColor) {
        match self {
            Kind::Own => (OWN.light, OWN_PALE.light),
            Kind::Peer => (PEER.light, PEER_PALE.light),
            Kind::Bound => (BOUND.light, BOUND_PALE.light),
        }
    }
}

/// A row of a bar plot.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Shown left of the bar.
    pub name: String,
    /// Decides the colour.
    pub kind: Kind,
    /// Length of the first part; absent if there is no figure.
    pub first: Option<f64>,
    /// Length of the second, paler part, put after the first.
    pub second: f64,
}

/// A row of a plot of single runs.
#[derive(Clone, Debug)]
pub struct Dots {
    /// Shown left of the row.
    pub name: String,
    /// Decides the colour.
    pub kind: Kind,
    /// Each run. The smallest and the largest are joined by a line, the median has a bar across.
    pub values: Vec<f64>,
    /// Where the bar goes; absent if there are no values.
    pub median: Option<f64>,
}

/// A row of a plot of lateness: percentiles on a logarithmic axis.
#[derive(Clone, Debug)]
pub struct Percentiles {
    /// Shown left of the row.
    pub name: String,
    /// Disc.
    pub p50: f64,
    /// Triangle.
    pub p99: f64,
    /// Cross.
    pub max: f64,
}

/// A curve: points in the order of x.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Which of [`SERIES`], and which [`mark`].
    pub series: usize,
    /// x, smallest y, median y, largest y.
    pub points: Vec<(f64, f64, f64, f64)>,
}

/// The forms of the marks on curves.
const MARKS: [&str; 5] = ["●", "▲", "✕", "○", "■"];

/// The style rules that replace every colour of a plot by its dark twin; they go inside a media query.
#[must_use]
pub fn dark_rules() -> String {
    let mut rules = String::new();
    for ink in INKS.iter().copied().flatten() {
        let light = css(ink.light);
        let dark = ink.dark;
        rules.push_str(&format!(
            "svg [fill=\"{light}\"]{{fill:{dark}}}svg [stroke=\"{light}\"]{{stroke:{dark}}}"
        ));
    }
    rules
}

/// As the library writes a colour.
fn css(color: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", color.0, color.1, color.2)
}

/// The mark of series `index`, as a legend in text shows it. Colour and mark together tell 40 series apart: the mark moves
/// on by one each time the colours begin anew.
#[must_use]
pub fn mark(index: usize) -> &'static str {
    MARKS[form(index)]
}

fn form(index: usize) -> usize {
    (index + index / SERIES.len()) % MARKS.len()
}

/// Horizontal bars of one or two parts, first row on top; the sum stands at each bar's end.
///
/// # Errors
/// If the library refuses.
pub fn bars(width: u32, unit: &str, rows: &[Bar]) -> Result<String, PlotError> {
    let rows = &rows[..rows.len().min(ROWS_MAX)];
    let sum = |row: &Bar| row.first.map_or(0.0, |first| first + row.second);
    let largest = rows.iter().map(sum).fold(0.0, f64::max);
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    // Room for the figure behind the longest bar.
    let frame = Frame { width, unit, names: &names, from: 0.0, to: positive(largest) * 1.14 };
    draw_rows(&frame, |area, at, index| {
        let row = &rows[index];
        let Some(first) = row.first else {
            return area
                .draw(&Text::new("no figure", at(0.0, 0, 4), words(HPos::Left, VPos::Center)))
                .map_err(PlotError::of);
        };
        let (ink, pale) = row.kind.inks();
        let thick = ROW_PIXELS.cast_signed() / 2 - 4;
        area.draw(&Rectangle::new([at(0.0, -thick, 0), at(first, thick, 0)], ink.filled()))
            .map_err(PlotError::of)?;
        if row.second > 0.0 {
            let part =
                Rectangle::new([at(first, -thick, 0), at(first + row.second, thick, 0)], pale.filled());
            area.draw(&part).map_err(PlotError::of)?;
        }
        let figure = Text::new(number(sum(row)), at(sum(row), 0, 5), words(HPos::Left, VPos::Center));
        area.draw(&figure).map_err(PlotError::of)
    })
}

/// Every run as a dot, a line from the smallest to the largest, a bar at the median; first row on top.
///
/// # Errors
/// If the library refuses.
pub fn dots(width: u32, unit: &str, rows: &[Dots]) -> Result<String, PlotError> {
    let rows = &rows[..rows.len().min(ROWS_MAX)];
    let largest =
        rows.iter().flat_map(|row| row.values.iter().copied()).filter(|v| v.is_finite()).fold(0.0, f64::max);
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    let frame = Frame { width, unit, names: &names, from: 0.0, to: positive(largest) * 1.14 };
    draw_rows(&frame, |area, at, index| {
        let row = &rows[index];
        let Some(median) = row.median else {
            return area
                .draw(&Text::new("no figure", at(0.0, 0, 4), words(HPos::Left, VPos::Center)))
                .map_err(PlotError::of);
        };
        let (ink, _) = row.kind.inks();
        let (low, high) =
            row.values.iter().fold((median, median), |(low, high), v| (low.min(*v), high.max(*v)));
        let line = PathElement::new([at(low, 0, 0), at(high, 0, 0)], ink.stroke_width(2));
        area.draw(&line).map_err(PlotError::of)?;
        let bar = PathElement::new([at(median, -8, 0), at(median, 8, 0)], ink.stroke_width(3));
        area.draw(&bar).map_err(PlotError::of)?;
        for value in &row.values {
            area.draw(&Circle::new(at(*value, 0, 0), 3, ink.filled())).map_err(PlotError::of)?;
        }
        let figure = Text::new(number(median), at(high, 0, 8), words(HPos::Left, VPos::Center));
        area.draw(&figure).map_err(PlotError::of)
    })
}

/// Percentiles per row, µs, on a logarithmic axis; what is below 1 µs is shown there.
///
/// # Errors
/// If the library refuses.
pub fn percentiles(width: u32, name: &str, rows: &[Percentiles]) -> Result<String, PlotError> {
    let rows = &rows[..rows.len().min(ROWS_MAX)];
    let log = |value: f64| if value.is_finite() { value.max(1.0).log10() } else { 0.0 };
    let largest = rows.iter().map(|row| log(row.max.max(row.p99))).fold(1.0, f64::max);
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    let frame = Frame { width, unit: name, names: &names, from: f64::NEG_INFINITY, to: largest.ceil() };
    draw_rows(&frame, |area, at, index| {
        let row = &rows[index];
        let (p50, p99, max) = (log(row.p50), log(row.p99), log(row.max));
        let line = PathElement::new([at(p50, 0, 0), at(max.max(p99), 0, 0)], GRID.light.stroke_width(2));
        area.draw(&line).map_err(PlotError::of)?;
        area.draw(&Circle::new(at(p50, 0, 0), 4, SERIES[0].light.filled())).map_err(PlotError::of)?;
        area.draw(&TriangleMarker::new(at(p99, 0, 0), 6, SERIES[1].light.filled())).map_err(PlotError::of)?;
        area.draw(&Cross::new(at(max, 0, 0), 4, SERIES[6].light.stroke_width(2))).map_err(PlotError::of)
    })
}

/// Curves with a whisker from the smallest to the largest at each point; both axes begin at 0.
///
/// # Errors
/// If the library refuses.
pub fn curves(
    width: u32,
    x_name: &str,
    y_name: &str,
    y_max: f64,
    curves: &[Curve],
) -> Result<String, PlotError> {
    let points = || curves.iter().flat_map(|curve| curve.points.iter());
    let x_max = positive(points().map(|point| point.0).fold(0.0, f64::max));
    let y_max = positive(points().map(|point| point.3).fold(y_max, f64::max));
    let axes =
        Axes { x: 0.0..x_max * 1.04, y: 0.0..y_max * 1.04, x_ticks: ticks(width), y_ticks: 6, label: tick };
    draw_curves((width, x_name, y_name), axes, curves)
}

/// The same where both axes are logarithmic; what is not above zero is left out.
///
/// # Errors
/// If the library refuses.
pub fn decades(width: u32, x_name: &str, y_name: &str, curves: &[Curve]) -> Result<String, PlotError> {
    let in_decades: Vec<Curve> = curves
        .iter()
        .map(|curve| {
            let above = curve.points.iter().filter(|point| point.0 > 0.0 && point.1 > 0.0);
            let points = above.map(|p| (p.0.log10(), p.1.log10(), p.2.log10(), p.3.log10()));
            Curve { series: curve.series, points: points.collect() }
        })
        .collect();
    let whole = |values: Vec<f64>| {
        let values = values.into_iter();
        let (least, most) =
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), v| (least.min(v), most.max(v)));
        if least.is_finite() { least.floor()..most.ceil().max(least.floor() + 1.0) } else { 0.0..1.0 }
    };
    let points = || in_decades.iter().flat_map(|curve| &curve.points);
    let (x, y) = (whole(points().map(|p| p.0).collect()), whole(points().map(|p| p.2).collect()));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few decades")]
    let ticks = |range: &std::ops::Range<f64>| (range.end - range.start) as usize + 1;
    let (x_ticks, y_ticks) = (ticks(&x), ticks(&y));
    let label = |exponent: f64| tick(10_f64.powf(exponent));
    draw_curves((width, x_name, y_name), Axes { x, y, x_ticks, y_ticks, label }, &in_decades)
}

/// The axes of curves: their ranges, how many labels, and what a label says.
struct Axes {
    x: std::ops::Range<f64>,
    y: std::ops::Range<f64>,
    x_ticks: usize,
    y_ticks: usize,
    label: fn(f64) -> String,
}

fn draw_curves(
    (width, x_name, y_name): (u32, &str, &str),
    axes: Axes,
    curves: &[Curve],
) -> Result<String, PlotError> {
    let curves = &curves[..curves.len().min(ROWS_MAX)];
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, CURVES_PIXELS)).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin_top(10)
            .margin_right(18)
            .x_label_area_size(AXIS_PIXELS)
            .y_label_area_size(58)
            .build_cartesian_2d(axes.x, axes.y)
            .map_err(PlotError::of)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.light)
            .axis_style(TEXT.light)
            .x_labels(axes.x_ticks)
            .y_labels(axes.y_ticks)
            .x_label_formatter(&|x| (axes.label)(*x))
            .y_label_formatter(&|y| (axes.label)(*y))
            .x_desc(x_name)
            .y_desc(y_name)
            .label_style(font())
            .axis_desc_style(font())
            .draw()
            .map_err(PlotError::of)?;
        for curve in curves {
            let ink = SERIES[curve.series % SERIES.len()].light;
            let line =
                LineSeries::new(curve.points.iter().map(|point| (point.0, point.2)), ink.stroke_width(2));
            chart.draw_series(line).map_err(PlotError::of)?;
            let spread = curve.points.iter().filter(|point| point.3 > point.1);
            let whiskers = spread
                .map(|point| PathElement::new([(point.0, point.1), (point.0, point.3)], ink.stroke_width(1)));
            chart.draw_series(whiskers).map_err(PlotError::of)?;
            let at = || curve.points.iter().map(|point| (point.0, point.2));
            match form(curve.series) {
                0 => chart.draw_series(at().map(|place| Circle::new(place, 4, ink.filled()))).map(|_| ()),
                1 => chart
                    .draw_series(at().map(|place| TriangleMarker::new(place, 6, ink.filled())))
                    .map(|_| ()),
                2 => {
                    chart.draw_series(at().map(|place| Cross::new(place, 4, ink.stroke_width(2)))).map(|_| ())
                }
                3 => chart
                    .draw_series(at().map(|place| Circle::new(place, 5, ink.stroke_width(2))))
                    .map(|_| ()),
                _ => {
                    let square =
                        |place| EmptyElement::at(place) + Rectangle::new([(-4, -4), (4, 4)], ink.filled());
                    chart.draw_series(at().map(square)).map(|_| ())
                }
            }
            .map_err(PlotError::of)?;
        }
        root.present().map_err(PlotError::of)?;
    }
    Ok(svg)
}

/// What all plots of rows share.
struct Frame<'a> {
    width: u32,
    unit: &'a str,
    names: &'a [&'a str],
    /// Negative infinity: the axis is logarithmic, values are decades and begin at 0.
    from: f64,
    to: f64,
}

/// Draws axis, grid and names, then lets `row` draw each row. `row` gets the area, a function from (value, pixels down,
/// pixels right) to the place, and the row's number.
fn draw_rows<F>(frame: &Frame<'_>, row: F) -> Result<String, PlotError>
where
    F: Fn(
        &DrawingArea<SVGBackend<'_>, Shift>,
        &dyn Fn(f64, i32, i32) -> (i32, i32),
        usize,
    ) -> Result<(), PlotError>,
{
    let rows = u32::try_from(frame.names.len()).unwrap_or(u32::MAX).max(1);
    let logarithmic = frame.from.is_infinite();
    let from = if logarithmic { 0.0 } else { frame.from };
    let longest = frame.names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few hundred pixels")]
    let names_pixels = ((longest.min(40) as f64 * CHARACTER_PIXELS) as u32 + 12).min(frame.width * 9 / 20);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (frame.width, rows * ROW_PIXELS + AXIS_PIXELS + 8))
            .into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin_top(4)
            .margin_bottom(4)
            .margin_right(28)
            .x_label_area_size(AXIS_PIXELS)
            .y_label_area_size(names_pixels)
            .build_cartesian_2d(from..frame.to, 0.0..f64::from(rows))
            .map_err(PlotError::of)?;
        let decades = |x: &f64| microseconds(10_f64.powf(*x));
        let plain = |x: &f64| tick(*x);
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.light)
            .axis_style(TEXT.light)
            .x_labels(if logarithmic { 8 } else { ticks(frame.width - names_pixels) })
            .x_label_formatter(if logarithmic { &decades } else { &plain })
            .x_desc(frame.unit)
            .label_style(font())
            .axis_desc_style(font())
            .draw()
            .map_err(PlotError::of)?;
        for (index, name) in frame.names.iter().enumerate() {
            let middle = f64::from(rows) - index as f64 - 0.5;
            let at = |value: f64, down: i32, right: i32| {
                let value = if value.is_finite() { value } else { from };
                let (x, y) = chart.backend_coord(&(value, middle));
                (x + right, y + down)
            };
            let name = Text::new(cut(name, names_pixels), at(from, 0, -6), words(HPos::Right, VPos::Center));
            root.draw(&name).map_err(PlotError::of)?;
            row(&root, &at, index)?;
        }
        root.present().map_err(PlotError::of)?;
    }
    Ok(svg)
}

/// A name that does not fit is cut; the table has it whole.
fn cut(name: &str, pixels: u32) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few dozen characters")]
    let room = (f64::from(pixels - 8) / CHARACTER_PIXELS) as usize;
    if name.chars().count() <= room {
        return name.to_owned();
    }
    name.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

fn font() -> TextStyle<'static> {
    ("sans-serif", TEXT_SIZE).into_font().color(&TEXT.light)
}

fn words(horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    font().pos(Pos::new(horizontal, vertical))
}

/// About how many numbers fit under an axis: one in 70 pixels.
fn ticks(pixels: u32) -> usize {
    (pixels / 70).clamp(2, 10) as usize
}

/// A number at an axis: as short as it can be.
fn tick(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

fn microseconds(value: f64) -> String {
    match value {
        _ if value < 999.0 => format!("{} µs", tick(value)),
        _ if value < 999_000.0 => format!("{} ms", tick(value / 1e3)),
        _ => format!("{} s", tick(value / 1e6)),
    }
}

/// An axis needs some length.
fn positive(value: f64) -> f64 {
    if value.is_finite() && value > 0.0 { value } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(name: &str, kind: Kind, first: Option<f64>) -> Bar {
        Bar { name: name.to_owned(), kind, first, second: 0.2 }
    }

    #[test]
    fn bars_have_a_name_and_their_sum_and_their_lengths_are_in_proportion() {
        let rows = [
            bar("farside", Kind::Own, Some(0.8)),
            bar("rsync", Kind::Peer, Some(1.8)),
            bar("none", Kind::Peer, None),
        ];
        let svg = bars(600, "MB", &rows).unwrap();
        let lengths: Vec<f64> = svg
            .lines()
            .filter(|line| line.starts_with("<rect") && !line.contains("#FFFFFF"))
            .map(|line| line.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(lengths.len(), 4, "{svg}");
        let (own, peer) = (lengths[0] + lengths[1], lengths[2] + lengths[3]);
        assert!((peer / own - 2.0).abs() < 0.03, "{own} {peer}");
        for word in ["farside", "rsync", "1.00", "2.00", "no figure", "MB"] {
            assert!(svg.contains(&format!(">\n{word}\n</text>")), "{word} in {svg}");
        }
    }

    #[test]
    fn every_run_is_a_dot() {
        let rows =
            [Dots { name: "a".to_owned(), kind: Kind::Peer, values: vec![1.0, 2.0, 4.0], median: Some(2.0) }];
        let svg = dots(600, "s", &rows).unwrap();
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("\n2.00\n"));
    }

    #[test]
    fn nothing_and_not_a_number_still_draw() {
        assert!(bars(340, "MB", &[]).is_ok());
        let rows =
            [Dots { name: String::new(), kind: Kind::Own, values: vec![f64::NAN], median: Some(f64::NAN) }];
        assert!(dots(340, "s", &rows).is_ok());
        let row = Percentiles { name: "x".to_owned(), p50: 0.0, p99: f64::INFINITY, max: -1.0 };
        assert!(percentiles(340, "µs", &[row]).is_ok());
        assert!(curves(340, "ms", "%", 0.0, &[Curve { series: 9, points: vec![] }]).is_ok());
    }

    #[test]
    fn colour_and_mark_together_tell_series_apart() {
        let series = SERIES.len() * MARKS.len();
        let looks: std::collections::BTreeSet<_> = (0..series).map(|i| (i % SERIES.len(), mark(i))).collect();
        assert_eq!(looks.len(), series);
        // And the first few without colour: as many as there are efforts.
        let first: std::collections::BTreeSet<_> = (0..5).map(mark).collect();
        assert_eq!(first.len(), 5);
    }

    #[test]
    fn names_from_outside_are_escaped_and_cut() {
        let svg = bars(340, "<b>", &[bar(&"<&\"".repeat(30), Kind::Own, Some(1.0))]).unwrap();
        assert!(svg.contains("&lt;&amp;&quot;") && svg.contains('…') && !svg.contains("<b>"));
    }

    #[test]
    fn every_colour_of_a_plot_has_a_dark_twin() {
        let rules = dark_rules();
        let curve = |series| Curve { series, points: vec![(1.0, 1.0, 2.0, 3.0), (2.0, 1.0, 2.0, 3.0)] };
        let all: Vec<Curve> = (0..SERIES.len()).map(curve).collect();
        let svg = [
            bars(
                600,
                "MB",
                &[
                    bar("a", Kind::Own, Some(1.0)),
                    bar("b", Kind::Peer, Some(1.0)),
                    bar("c", Kind::Bound, Some(1.0)),
                ],
            ),
            curves(600, "x", "y", 1.0, &all),
            percentiles(600, "µs", &[Percentiles { name: "x".to_owned(), p50: 2.0, p99: 30.0, max: 400.0 }]),
        ]
        .map(Result::unwrap)
        .concat();
        for piece in svg.split('"').filter(|piece| piece.starts_with('#')) {
            assert!(rules.contains(&format!("[fill=\"{piece}\"]")), "{piece}");
        }
    }
}
