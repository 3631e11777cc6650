//! Charts over logarithmic axes: series as lines, and named rows of values.

use super::svg::{Canvas, STYLES};
use crate::report::human::{Unit, shortened};
use maud::Markup;
use std::ops::Range;

/// Width of a chart in pixels: that of a phone.
pub const WIDTH: u32 = 400;
/// The values that an axis can show. Others are left out of charts; tables have them.
const SHOWN: Range<f64> = 1e-9..1e18;
/// The most ticks of an axis of lines, of a decimal axis below lines, and of an axis of rows.
pub const LINE_TICKS: usize = 7;
pub const DECIMAL_TICKS: usize = 5;
pub const ROW_TICKS: usize = 5;

/// The rules of charts. Series differ by colour, by dashes, and by the shapes of their marks.
pub const RULES: &str = "
.chart .s0{color:$l0}.chart .s1{color:$l1}.chart .s2{color:$l2}.chart .s3{color:$l3}.chart .s4{color:$l4}
.chart .s5{color:$l5}.chart .s6{color:$l6}.chart .s7{color:$l7}.chart .s8{color:$l8}
.chart .through,.chart .range,.chart .band{fill:none;stroke:currentColor}
.chart .through{stroke-width:2}.chart .band{stroke-width:3}
.chart .through.s1,.chart .through.s5{stroke-dasharray:6 3}.chart .through.s2,.chart .through.s6{stroke-dasharray:2 3}
.chart .through.s3,.chart .through.s7{stroke-dasharray:9 3 2 3}.chart .through.s8{stroke-dasharray:4 2}
.chart .full{fill:currentColor}.chart .hollow{fill:$page;stroke:currentColor;stroke-width:1.5}
.chart .axis{fill:none;stroke:$dim}.chart .reference{fill:none;stroke:$ink}
.chart .target{fill:none;stroke:$ink;stroke-width:2}.chart .shade{fill:$line;fill-opacity:.25}
";

/// The path of each mark from its centre, and whether it is filled. A hollow one hides the line
/// below it.
const MARKS: [(&str, bool); STYLES] = [
    ("m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", true),
    ("m-3-3h6v6h-6z", false),
    ("m0-4l3.5 6h-7z", true),
    ("m0-4l4 4l-4 4l-4-4z", false),
    ("m-3-3h6v6h-6z", true),
    ("m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", false),
    ("m0 4l3.5-6h-7z", true),
    ("m0-5l1.3 3.7l3.7 1.3l-3.7 1.3l-1.3 3.7l-1.3-3.7l-3.7-1.3l3.7-1.3z", true),
    ("m0 4l3.5-6h-7z", false),
];

/// A measured value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// The value.
    pub value: f64,
    /// The smallest and the largest value; equal without a range.
    pub range: (f64, f64),
}

impl Value {
    /// A value without a range.
    pub fn exact(value: f64) -> Value {
        Value { value, range: (value, value) }
    }

    /// Whether an axis can show the range.
    fn has_range(&self) -> bool {
        self.range.0 < self.range.1 && SHOWN.contains(&self.range.0)
    }
}

/// An axis of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The first and the last value.
    pub range: Range<f64>,
    /// The values with a label, in ascending order.
    pub ticks: Vec<f64>,
    /// The unit of the labels.
    pub unit: Unit,
}

/// The smallest and the largest value that an axis can show.
fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let mut shown = values.filter(|value| SHOWN.contains(value));
    let first = shown.next()?;
    Some(shown.fold((first, first), |(low, high), value| (low.min(value), high.max(value))))
}

impl Axis {
    /// An axis with ticks at powers of two. `None` without a value.
    pub fn powers_of_two(values: impl Iterator<Item = f64>, unit: Unit) -> Option<Axis> {
        let (low, high) = ends(values)?;
        let (first, last) =
            (low.log2().floor() as i32, (high.log2().ceil() as i32).max(low.log2() as i32 + 1));
        let step = step(&[1, 2, 4, 8, 16], (last - first) as usize, LINE_TICKS);
        let ticks = (first..=last).filter(|power| power.rem_euclid(step) == 0).map(|power| 2f64.powi(power));
        // Space for marks at both ends.
        let margin = 2f64.powf(f64::from(last - first) * 0.02);
        let range = 2f64.powi(first) / margin..2f64.powi(last) * margin;
        Some(Axis { range, ticks: ticks.collect(), unit })
    }

    /// An axis with ticks at round decimal values, about `most` of them. `None` without a value.
    pub fn decimal(values: impl Iterator<Item = f64>, unit: Unit, most: usize) -> Option<Axis> {
        let (low, high) = ends(values)?;
        // Less than a factor of two would magnify noise.
        let widen = (2.0 / (high / low)).max(1.0).sqrt();
        let margin = (high / low).max(2.0).powf(0.04);
        let (low, high) = (low / widen / margin, high * widen * margin);
        Some(Axis { range: low..high, ticks: decimal_ticks(low, high, most), unit })
    }

    /// The place of a value between two pixels, to a tenth.
    fn place(&self, value: f64, from: u32, to: u32) -> f64 {
        let Range { start, end } = self.range;
        let part = (value.clamp(start, end) / start).ln() / (end / start).ln();
        tenth(f64::from(from) + part * (f64::from(to) - f64::from(from)))
    }
}

/// A coordinate with one decimal digit.
fn tenth(place: f64) -> f64 {
    (place * 10.0).round() / 10.0
}

/// The first step with at most `most` ticks over `span`, or the last one.
fn step(steps: &[i32], span: usize, most: usize) -> i32 {
    let fits = |step: &&i32| (span / **step as usize) < most;
    *steps.iter().find(fits).unwrap_or(&steps[steps.len() - 1])
}

/// Ticks from `low` to `high`: the densest of some round sets that has at most `most`, and at least
/// two.
fn decimal_ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    const SETS: [&[f64]; 5] = [
        &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
        &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
        &[1.0, 2.0, 5.0],
        &[1.0, 3.0],
        &[1.0],
    ];
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let sets = SETS.map(|set| -> Vec<f64> {
        let all = decades.clone().flat_map(|decade| set.iter().map(move |digit| digit * 10f64.powi(decade)));
        all.filter(|tick| (low..=high).contains(tick)).collect()
    });
    if let Some(ticks) = sets.iter().find(|ticks| ticks.len() <= most) {
        return ticks.clone();
    }
    let [.., powers] = sets;
    let step = step(&[2, 3, 4, 6, 12], powers.len(), most);
    powers.into_iter().filter(|tick| (tick.log10().round() as i32).rem_euclid(step) == 0).collect()
}

/// Draws the marks of style `style` at these places.
fn marks(canvas: &mut Canvas, places: &[(f64, f64)], style: usize) {
    let (shape, is_full) = MARKS[style % STYLES];
    let path: String = places.iter().map(|(x, y)| format!("M{x} {y}{shape}")).collect();
    canvas.path(&path, &format!("s{} {}", style % STYLES, if is_full { "full" } else { "hollow" }));
}

/// A line with a mark, for legends.
pub fn sample(style: usize, name: &str) -> Markup {
    let (width, height) = SAMPLE;
    let mut canvas = Canvas::default();
    canvas.path(&format!("M0 {}h{width}", height / 2), &format!("s{} through", style % STYLES));
    marks(&mut canvas, &[(f64::from(width / 2), f64::from(height / 2))], style);
    canvas.svg("chart sample", SAMPLE, name, "line and mark of this series")
}

/// Size of a sample.
const SAMPLE: (u32, u32) = (36, 14);

/// A chart and its height.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The SVG element.
    pub svg: Markup,
    /// Its height.
    pub height: u32,
}

/// The points of a series from left to right, each with its place on the horizontal axis.
#[derive(Clone, Debug)]
pub struct Line {
    /// Number of its style.
    pub style: usize,
    /// The points.
    pub points: Vec<(f64, Value)>,
}

/// Series as lines through marks, with the range of each value as a whisker.
#[derive(Debug)]
pub struct Lines<'a> {
    /// Title and description, for readers without the picture.
    pub title: &'a str,
    pub description: &'a str,
    /// The horizontal axis and its name.
    pub x: Axis,
    pub across: &'a str,
    /// The vertical axis and its name.
    pub y: Axis,
    pub up: &'a str,
    /// A value to compare with, drawn as a line across the chart.
    pub reference: Option<f64>,
    /// The end of a shaded part of the horizontal axis, from its start.
    pub shaded: Option<f64>,
    /// The series.
    pub lines: &'a [Line],
}

impl Lines<'_> {
    /// Draws the chart.
    pub fn draw(&self) -> Chart {
        const HEIGHT: u32 = 280;
        const LEFT: u32 = 70;
        const RIGHT: u32 = WIDTH - 22;
        const TOP: u32 = 24;
        const BOTTOM: u32 = HEIGHT - 38;
        let x = |value| self.x.place(value, LEFT, RIGHT);
        let y = |value| self.y.place(value, BOTTOM, TOP);
        let mut canvas = Canvas::default();
        canvas.text((2, 14), "dim", self.up);
        canvas.text((RIGHT, HEIGHT - 4), "dim end", self.across);
        for tick in &self.x.ticks {
            canvas.path(&format!("M{} {TOP}V{}", x(*tick), BOTTOM + 3), "line");
            canvas.text((x(*tick), BOTTOM + 16), "dim middle", self.x.unit.tick(*tick));
        }
        for tick in &self.y.ticks {
            canvas.path(&format!("M{} {}H{RIGHT}", LEFT - 3, y(*tick)), "line");
            canvas.text((LEFT - 6, tenth(y(*tick) + 4.0)), "dim end", self.y.unit.tick(*tick));
        }
        canvas.path(&format!("M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"), "axis");
        if let Some(end) = self.shaded.filter(|end| *end > self.x.range.start) {
            canvas.rect((LEFT, TOP), (tenth(x(end) - f64::from(LEFT)), BOTTOM - TOP), "shade");
        }
        if let Some(value) = self.reference {
            canvas.path(&format!("M{LEFT} {}H{RIGHT}", y(value)), "reference");
        }
        for Line { style, points } in self.lines {
            let shown = points.iter().filter(|(x, y)| SHOWN.contains(x) && SHOWN.contains(&y.value));
            let places: Vec<_> = shown.clone().map(|(at, value)| (x(*at), y(value.value))).collect();
            let ranges = shown.filter(|(_, value)| value.has_range());
            let ranges =
                ranges.map(|(at, Value { range, .. })| format!("M{} {}V{}", x(*at), y(range.0), y(range.1)));
            canvas.path(&ranges.collect::<String>(), &format!("s{} range", style % STYLES));
            let through: Vec<_> = places.iter().map(|(x, y)| format!("{x} {y}")).collect();
            let through = if through.is_empty() { String::new() } else { format!("M{}", through.join("L")) };
            canvas.path(&through, &format!("s{} through", style % STYLES));
            marks(&mut canvas, &places, *style);
        }
        Chart { svg: canvas.svg("chart", (WIDTH, HEIGHT), self.title, self.description), height: HEIGHT }
    }
}

/// A row of a chart.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// The values with the numbers of their styles.
    pub dots: Vec<(usize, Value)>,
    /// The target, drawn as a line across the row.
    pub target: Option<f64>,
    /// The values as text.
    pub text: String,
    /// Whether the text is bold.
    pub is_marked: bool,
}

/// Draws named rows over one axis: values with their ranges, and the target of each.
pub fn rows(title: &str, description: &str, axis: &Axis, rows: &[Row]) -> Chart {
    const ROW: u32 = 36;
    const LEFT: u32 = 26;
    const RIGHT: u32 = 262;
    /// Width of a letter of a label.
    const LETTER: f64 = 6.0;
    let bottom = ROW * rows.len() as u32;
    let place = |value| axis.place(value, LEFT, RIGHT);
    let mut canvas = Canvas::default();
    let mut free = 0.0;
    for tick in &axis.ticks {
        let x = place(*tick);
        // Across the axes of the rows, not across their names.
        let ticks = (0..).zip(rows).map(|(row, _)| format!("M{x} {}v6", ROW * row + 23));
        canvas.path(&ticks.collect::<String>(), "line");
        canvas.path(&format!("M{x} {bottom}v3"), "axis");
        let label = axis.unit.tick(*tick);
        let half = label.chars().count() as f64 * LETTER / 2.0;
        // A label that would touch the one before it is left out.
        if x - half >= free {
            canvas.text((x, bottom + 16), "dim middle", label);
            free = x + half + LETTER;
        }
    }
    canvas.path(&format!("M{LEFT} {bottom}H{RIGHT}"), "axis");
    for (top, row) in (0..).step_by(ROW as usize).zip(rows) {
        let y = top + 26;
        canvas.text((4, top + 15), "", shortened(&row.name, 60));
        canvas.path(&format!("M{LEFT} {y}H{RIGHT}"), "line");
        canvas.text((RIGHT + 14, y + 4), if row.is_marked { "bold" } else { "" }, &row.text);
        if let Some(target) = row.target.filter(|target| SHOWN.contains(target)) {
            canvas.path(&format!("M{} {}v14", place(target), y - 7), "target");
        }
        for (style, value) in row.dots.iter().filter(|(_, value)| SHOWN.contains(&value.value)) {
            if value.has_range() {
                let (low, high) = (place(value.range.0), place(value.range.1));
                // Thicker than the line below it.
                canvas.path(&format!("M{low} {y}H{high}"), &format!("s{} band", style % STYLES));
            }
            marks(&mut canvas, &[(place(value.value), f64::from(y))], *style);
        }
    }
    let height = bottom + 26;
    Chart { svg: canvas.svg("chart", (WIDTH, height), title, description), height }
}

/// A chart with its texts.
#[derive(Clone, Debug)]
pub struct Card {
    /// The title.
    pub title: String,
    /// What does not vary in the chart.
    pub note: String,
    /// The chart.
    pub chart: Chart,
    /// The styles and the names of the series; empty if the chart needs no legend.
    pub legend: Vec<(usize, String)>,
}

impl Card {
    /// The card as a file: one SVG for light and dark pages.
    pub fn picture(&self) -> String {
        const MARGIN: u32 = 16;
        /// From one line of text to the next.
        const LINE: u32 = 18;
        /// Width of a character in a wide font, and the space between two entries of the legend.
        const LETTER: u32 = 7;
        const GAP: u32 = 20;
        let mut canvas = Canvas::default();
        let (mut x, mut y) = (MARGIN, MARGIN + LINE);
        canvas.text((x, y), "title", &self.title);
        for line in wrapped(&self.note) {
            y += LINE;
            canvas.text((x, y), "dim", line);
        }
        canvas.drawing((x, y + LINE / 2), &self.chart.svg);
        y += LINE / 2 + self.chart.height + LINE;
        for (style, name) in &self.legend {
            let width = SAMPLE.0 + LETTER + name.chars().count() as u32 * LETTER + GAP;
            if x > MARGIN && x + width > WIDTH + MARGIN + GAP {
                (x, y) = (MARGIN, y + LINE);
            }
            canvas.drawing((x, y + 3 - SAMPLE.1), &sample(*style, name));
            canvas.text((x + SAMPLE.0 + LETTER, y), "name", name);
            x += width;
        }
        let title = format!("{}: {}", self.title, self.note);
        canvas.document("chart", (WIDTH + 2 * MARGIN, y + LINE), &title, RULES)
    }
}

/// Lines of at most 60 characters, which fill the width in a wide font, but for longer words.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= 60 => {
                *line += &format!(" {word}")
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
