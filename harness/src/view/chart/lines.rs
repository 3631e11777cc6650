//! Lines over a logarithmic axis: medians with markers, and the range of each as a whisker.

use super::scale::{Axis, is_shown};
use super::{Area, Drawing, Error, Ink, WIDTH, colour, line, marks, px, svg, text};
use crate::view::palette::LIGHT;
use plotters::coord::combinators::WithKeyPoints;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// Height of a chart in pixels.
const HEIGHT: u32 = 280;
/// Space for the labels of the axes, and above the chart, in pixels.
const LEFT: u32 = 70;
const BELOW: u32 = 38;
const ABOVE: u32 = 24;
const RIGHT: u32 = 22;
/// Opacity of a shaded part.
const SHADE: f64 = 0.25;
/// The most ticks of each axis.
pub const X_TICKS: usize = 7;
pub const Y_TICKS: usize = 7;

/// A value with its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Its place on the axis.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// The smallest and the largest value; equal without a range.
    pub range: (f64, f64),
}

/// The points of a series, from left to right.
#[derive(Clone, Debug)]
pub struct Line {
    /// Number of its style.
    pub style: usize,
    /// The points.
    pub points: Vec<Point>,
}

/// A chart.
#[derive(Debug)]
pub struct Chart<'a> {
    /// Title, for readers without the picture.
    pub title: &'a str,
    /// What the chart shows, for readers without the picture.
    pub description: &'a str,
    /// Name of the horizontal axis.
    pub across: &'a str,
    /// Name of the vertical axis.
    pub up: &'a str,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// A value to compare with, drawn as a line across the chart.
    pub reference: Option<f64>,
    /// The end of a shaded part of the horizontal axis, from its start.
    pub shaded: Option<f64>,
    /// The series.
    pub lines: &'a [Line],
}

impl Chart<'_> {
    /// The chart as SVG.
    pub fn svg(&self) -> Result<Drawing, Error> {
        svg((WIDTH, HEIGHT), "chart", self.title, self.description, |area| self.draw(area))
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), Error> {
        let mut chart = ChartBuilder::on(area)
            .margin_top(px(ABOVE))
            .margin_right(px(RIGHT))
            .x_label_area_size(px(BELOW))
            .y_label_area_size(px(LEFT))
            .build_cartesian_2d(coordinate(&self.x), coordinate(&self.y))?;
        chart
            .configure_mesh()
            .set_all_tick_mark_size(px(3))
            .axis_style(line(LIGHT.dim, 1))
            .bold_line_style(line(LIGHT.line, 1))
            .light_line_style(TRANSPARENT)
            .label_style(text(Ink::Dim, HPos::Left, VPos::Top))
            .x_label_formatter(&|value| self.x.unit.tick(*value))
            .y_label_formatter(&|value| self.y.unit.tick(*value))
            .draw()?;
        let (width, height) = (px(WIDTH - RIGHT), px(HEIGHT));
        area.draw_text(self.up, &text(Ink::Dim, HPos::Left, VPos::Top), (px(2), px(4)))?;
        area.draw_text(self.across, &text(Ink::Dim, HPos::Right, VPos::Bottom), (width, height - px(1)))?;
        let inner = chart.plotting_area();
        let place =
            |x: f64, y: f64| inner.map_coordinate(&(x, y.clamp(self.y.range.start, self.y.range.end)));
        if let Some(end) = self.shaded.filter(|end| *end > self.x.range.start) {
            let corners =
                [(self.x.range.start, self.y.range.end), (end.min(self.x.range.end), self.y.range.start)];
            let corners = corners.map(|(x, y)| place(x, y));
            area.draw(&Rectangle::new(corners, colour(LIGHT.line).mix(SHADE).filled()))?;
        }
        if let Some(value) = self.reference {
            let ends = [place(self.x.range.start, value), place(self.x.range.end, value)];
            area.draw(&PathElement::new(ends, line(LIGHT.ink, 1)))?;
        }
        self.lines.iter().try_for_each(|line| draw_line(area, line, place))
    }
}

/// The logarithmic coordinate of an axis.
fn coordinate(axis: &Axis) -> WithKeyPoints<LogCoord<f64>> {
    axis.range.clone().log_scale().with_key_points(axis.ticks.clone())
}

/// The whiskers, the line through the values, and the markers.
fn draw_line(area: &Area<'_>, series: &Line, place: impl Fn(f64, f64) -> (i32, i32)) -> Result<(), Error> {
    let shown: Vec<_> = series.points.iter().filter(|point| is_shown(point.x) && is_shown(point.y)).collect();
    for point in &shown {
        let (low, high) = point.range;
        if low < high && is_shown(low) {
            marks::whisker(area, [place(point.x, low), place(point.x, high)], series.style)?;
        }
    }
    let through: Vec<_> = shown.iter().map(|point| place(point.x, point.y)).collect();
    area.draw(&PathElement::new(through.clone(), line(marks::hex(series.style), marks::LINE)))?;
    through.into_iter().try_for_each(|at| marks::draw(area, at, series.style))
}
