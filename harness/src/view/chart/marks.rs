//! How series are told apart: by colour, by the shape of their markers and by dashes. The style
//! sheet makes colours follow the page.

use super::{Area, Drawing, Error, SCALE, colour, line, px, svg};
use crate::view::palette::{DARK, DEEP, LIGHT, PALE, Page};
use plotters::prelude::*;
use std::f64::consts::PI;
use std::fmt::Write;

/// Number of different styles. Further series begin with the first again.
pub const STYLES: usize = DEEP.len();
/// The dashes of each style in pixels; empty for a solid line.
pub const DASHES: [&[u32]; STYLES] =
    [&[], &[6, 3], &[2, 3], &[9, 3, 2, 3], &[], &[6, 3], &[2, 3], &[9, 3, 2, 3], &[4, 2]];
/// Radius of a marker in pixels.
const RADIUS: u32 = 4;
/// Width of the outline of a hollow marker, in units of a drawing.
const OUTLINE: u32 = 6;
/// Size of a sample in pixels.
const SAMPLE: (u32, u32) = (36, 14);
/// Width of the lines of series in pixels. The style sheet finds them by it.
pub const LINE: u32 = 2;

/// The colour of style `index`.
pub fn hex(index: usize) -> &'static str {
    DEEP[index % STYLES]
}

/// The corners of a marker with a radius of one, or `None` for a circle, and whether it is filled.
fn shape(index: usize) -> (Option<Vec<(f64, f64)>>, bool) {
    let polygon = |corners: u32, turn: f64| {
        let angle = move |corner: u32| PI * (2.0 * f64::from(corner) / f64::from(corners) + turn);
        Some((0..corners).map(move |corner| (angle(corner).sin(), -angle(corner).cos())).collect())
    };
    let star = |points: u32| {
        let corner = move |at: u32| {
            let (angle, radius) =
                (PI * f64::from(at) / f64::from(points), if at.is_multiple_of(2) { 1.25 } else { 0.45 });
            (radius * angle.sin(), -radius * angle.cos())
        };
        Some((0..2 * points).map(corner).collect())
    };
    match index % STYLES {
        0 => (None, true),
        1 => (polygon(4, 0.25), false),
        2 => (polygon(3, 0.0), true),
        3 => (polygon(4, 0.0), false),
        4 => (polygon(4, 0.25), true),
        5 => (None, false),
        6 => (polygon(3, 1.0), true),
        7 => (star(4), true),
        _ => (polygon(3, 1.0), false),
    }
}

/// Draws the marker of style `index` at a point of the area.
pub fn draw(area: &Area<'_>, at: (i32, i32), index: usize) -> Result<(), Error> {
    let (corners, is_filled) = shape(index);
    let outline = colour(hex(index)).stroke_width(OUTLINE);
    // A hollow marker hides the line below it.
    let inside = colour(if is_filled { hex(index) } else { LIGHT.page }).filled();
    let Some(corners) = corners else {
        area.draw(&Circle::new(at, px(RADIUS), inside))?;
        return if is_filled { Ok(()) } else { area.draw(&Circle::new(at, px(RADIUS), outline)) };
    };
    let radius = f64::from(px(RADIUS));
    let place = |(x, y): (f64, f64)| (at.0 + (radius * x).round() as i32, at.1 + (radius * y).round() as i32);
    let mut corners: Vec<_> = corners.into_iter().map(place).collect();
    area.draw(&Polygon::new(corners.clone(), inside))?;
    corners.extend(corners.first().copied());
    if is_filled { Ok(()) } else { area.draw(&PathElement::new(corners, outline)) }
}

/// Draws the range of a value: a line of one pixel between its ends.
pub fn whisker(area: &Area<'_>, ends: [(i32, i32); 2], index: usize) -> Result<(), Error> {
    area.draw(&PathElement::new(ends, line(hex(index), 1)))
}

/// A line with a marker, for legends.
pub fn sample(index: usize, name: &str) -> Result<Drawing, Error> {
    let (width, height) = SAMPLE;
    svg(SAMPLE, "chart sample", name, "line and marker of this series", |area| {
        let y = px(height) / 2;
        area.draw(&PathElement::new([(0, y), (px(width), y)], line(hex(index), LINE)))?;
        draw(area, (px(width) / 2, y), index)
    })
}

/// A style sheet with the colours of a page and of its charts. They are dark where the media query
/// `dark` applies.
pub fn colours(dark: &str) -> String {
    let (light, pale) = (variables(LIGHT, DEEP), variables(DARK, PALE));
    let mut sheet = format!(":root{{color-scheme:light dark;{light}}}\n@media {dark}{{:root{{{pale}}}}}\n");
    // `svg` writes colours in upper case.
    let mut rule = |hex: &str, name: &str| {
        let hex = hex.to_uppercase();
        let _ = writeln!(sheet, ".chart [fill=\"{hex}\"]{{fill:var(--{name})}}");
        let _ = writeln!(sheet, ".chart [stroke=\"{hex}\"]{{stroke:var(--{name})}}");
    };
    for (hex, name) in [(LIGHT.page, "page"), (LIGHT.ink, "ink"), (LIGHT.dim, "dim"), (LIGHT.line, "line")] {
        rule(hex, name);
    }
    (0..STYLES).for_each(|style| rule(hex(style), &format!("c{style}")));
    for (style, dashes) in DASHES.iter().enumerate().filter(|(_, dashes)| !dashes.is_empty()) {
        let dashes: Vec<_> = dashes.iter().map(|pixels| (pixels * SCALE).to_string()).collect();
        let (hex, width) = (hex(style).to_uppercase(), LINE * SCALE);
        let _ = writeln!(
            sheet,
            ".chart polyline[stroke=\"{hex}\"][stroke-width=\"{width}\"]{{stroke-dasharray:{}}}",
            dashes.join(" ")
        );
    }
    sheet
}

fn variables(page: Page, colours: [&str; STYLES]) -> String {
    let Page { page, ink, dim, line } = page;
    let colours = colours.iter().enumerate().map(|(index, hex)| format!("--c{index}:{hex};"));
    format!("--page:{page};--ink:{ink};--dim:{dim};--line:{line};{}", colours.collect::<String>())
}
