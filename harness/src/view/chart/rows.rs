//! Named rows over one logarithmic axis: values with their ranges, and the target of each.

use super::scale::{Axis, is_shown};
use super::{Area, Drawing, Error, Ink, WIDTH, line, marks, px, svg, text};
use crate::report::human::shortened;
use crate::view::palette::LIGHT;
use plotters::coord::ranged1d::Ranged;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// Height of a row, and of the axis with its labels, in pixels.
const ROW: u32 = 36;
const AXIS: u32 = 26;
/// The left end of names, the ends of the axis, and the left end of the text of values, in pixels.
const NAMES: u32 = 4;
const LEFT: u32 = 26;
const RIGHT: u32 = 262;
const VALUES: u32 = 276;
/// Columns of a name.
const NAME: usize = 60;
/// Distances from the top of a row, in pixels: its name, its axis, half the height of a target.
const NAME_TOP: u32 = 4;
const MIDDLE: u32 = 26;
const TARGET: u32 = 7;
/// Width of a letter of a label, in pixels.
const LETTER: u32 = 6;
/// Half the length of a tick, in pixels.
const TICK: u32 = 3;
/// Width of the line of a range.
const RANGE: u32 = 3;
/// The most ticks of the axis.
pub const TICKS: usize = 5;

/// A value of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dot {
    /// Number of its style.
    pub style: usize,
    /// The value.
    pub value: f64,
    /// The smallest and the largest value; equal without a range.
    pub range: (f64, f64),
}

/// A row of a chart.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// The values.
    pub dots: Vec<Dot>,
    /// The target, drawn as a line across the row.
    pub target: Option<f64>,
    /// The values as text.
    pub text: String,
    /// Whether the text is bold.
    pub is_marked: bool,
}

/// A chart.
#[derive(Debug)]
pub struct Chart<'a> {
    /// Title, for readers without the picture.
    pub title: &'a str,
    /// What the chart shows, for readers without the picture.
    pub description: &'a str,
    /// The axis.
    pub axis: Axis,
    /// The rows.
    pub rows: &'a [Row],
}

impl Chart<'_> {
    /// The chart as SVG.
    pub fn svg(&self) -> Result<Drawing, Error> {
        let height = ROW * self.rows.len() as u32 + AXIS;
        svg((WIDTH, height), "chart", self.title, self.description, |area| self.draw(area))
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), Error> {
        let bottom = px(ROW * self.rows.len() as u32);
        let range = &self.axis.range;
        let scale: LogCoord<f64> = range.clone().log_scale().into();
        let place = |value: f64| scale.map(&value.clamp(range.start, range.end), (px(LEFT), px(RIGHT)));
        let mut free = 0;
        for tick in &self.axis.ticks {
            let x = place(*tick);
            // Across the axes of the rows, not across their names.
            for y in (0..).zip(self.rows).map(|(index, _)| px(ROW * index + MIDDLE)) {
                area.draw(&PathElement::new([(x, y - px(TICK)), (x, y + px(TICK))], line(LIGHT.line, 1)))?;
            }
            area.draw(&PathElement::new([(x, bottom), (x, bottom + px(TICK))], line(LIGHT.dim, 1)))?;
            let label = self.axis.unit.tick(*tick);
            // A label that would touch the one before it is left out.
            let half = px(label.chars().count() as u32 * LETTER / 2);
            if x - half >= free {
                area.draw_text(&label, &text(Ink::Dim, HPos::Center, VPos::Top), (x, bottom + px(6)))?;
                free = x + half + px(LETTER);
            }
        }
        area.draw(&PathElement::new([(px(LEFT), bottom), (px(RIGHT), bottom)], line(LIGHT.dim, 1)))?;
        (0..).zip(self.rows).try_for_each(|(index, row)| draw_row(area, px(ROW * index), row, &place))
    }
}

/// The name above, the values on their axis, and the text beside it.
fn draw_row(area: &Area<'_>, top: i32, row: &Row, place: &impl Fn(f64) -> i32) -> Result<(), Error> {
    let (left, y) = (px(LEFT), top + px(MIDDLE));
    let name = shortened(&row.name, NAME);
    area.draw_text(&name, &text(Ink::Strong, HPos::Left, VPos::Top), (px(NAMES), top + px(NAME_TOP)))?;
    area.draw(&PathElement::new([(left, y), (px(RIGHT), y)], line(LIGHT.line, 1)))?;
    let ink = if row.is_marked { Ink::Bold } else { Ink::Strong };
    area.draw_text(&row.text, &text(ink, HPos::Left, VPos::Center), (px(VALUES), y))?;
    if let Some(target) = row.target.filter(|target| is_shown(*target)) {
        let (x, half) = (place(target), px(TARGET));
        area.draw(&PathElement::new([(x, y - half), (x, y + half)], line(LIGHT.ink, 2)))?;
    }
    for dot in row.dots.iter().filter(|dot| is_shown(dot.value)) {
        let (low, high) = dot.range;
        if low < high && is_shown(low) {
            // Thicker than the line below it.
            let ends = [(place(low), y), (place(high), y)];
            area.draw(&PathElement::new(ends, line(marks::hex(dot.style), RANGE)))?;
        }
        marks::draw(area, (place(dot.value), y), dot.style)?;
    }
    Ok(())
}
