//! Charts as SVG for a page of results.
//!
//! `scale` chooses axes and ticks, `marks` tells series apart, `lines`
//! and `rows` draw the two kinds of charts. Colours are those of a light page. The style sheet of
//! the page replaces them by attribute, so one drawing serves light pages, dark pages and print.

pub mod lines;
pub mod marks;
pub mod picture;
pub mod rows;
pub mod scale;
#[cfg(test)]
mod tests;

use super::palette::LIGHT;
use crate::report::human::shortened;
use maud::{Markup, PreEscaped, html};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Units of a drawing for each pixel of its nominal size. plotters places elements at whole units.
pub const SCALE: u32 = 4;
/// Nominal width of a chart in pixels: that of a phone.
pub const WIDTH: u32 = 400;
/// Size of the text of charts, in pixels.
const TEXT: u32 = 12;

/// A drawing area.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Why a drawing failed.
pub type Error = DrawingAreaErrorKind<std::io::Error>;

/// Text of a chart.
#[derive(Clone, Copy, Debug)]
pub enum Ink {
    /// Names and values.
    Strong,
    /// Values that stand out.
    Bold,
    /// Labels of axes, and notes.
    Dim,
}

/// Units of a drawing.
pub fn px(pixels: u32) -> i32 {
    (pixels * SCALE) as i32
}

/// The colour of the palette.
pub fn colour(hex: &str) -> RGBColor {
    let part = |from: usize| u8::from_str_radix(&hex[from..from + 2], 16).unwrap_or(0);
    RGBColor(part(1), part(3), part(5))
}

/// The style of a text, with its anchor.
pub fn text(ink: Ink, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    let (hex, style) = match ink {
        Ink::Strong => (LIGHT.ink, FontStyle::Normal),
        Ink::Bold => (LIGHT.ink, FontStyle::Bold),
        Ink::Dim => (LIGHT.dim, FontStyle::Normal),
    };
    // plotters divides the size by 1.24 for SVG.
    let size = f64::from(TEXT * SCALE) * 1.24;
    ("sans-serif", size, style).into_font().color(&colour(hex)).pos(Pos::new(horizontal, vertical))
}

/// A line of `pixels`.
pub fn line(hex: &str, pixels: u32) -> ShapeStyle {
    colour(hex).stroke_width(pixels * SCALE)
}

/// An SVG element and its nominal size in pixels.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// The element.
    pub svg: Markup,
    /// Width and height.
    pub size: (u32, u32),
}

/// An SVG element of `size` pixels with what `draw` draws.
pub fn svg(
    size: (u32, u32),
    class: &str,
    title: &str,
    description: &str,
    draw: impl FnOnce(&Area<'_>) -> Result<(), Error>,
) -> Result<Drawing, Error> {
    let (width, height) = (size.0 * SCALE, size.1 * SCALE);
    let mut document = String::new();
    {
        let area = SVGBackend::with_string(&mut document, (width, height)).into_drawing_area();
        draw(&area)?;
        area.present()?;
    }
    // The outer element is written again, with a title and without a fixed size.
    let elements = document.split_once('>').map_or("", |(_, rest)| rest).trim_end();
    let elements = elements.strip_suffix("</svg>").unwrap_or(elements);
    // The default opacity is a fifth of the text.
    let elements = elements.replace(" opacity=\"1\"", "");
    let svg = html! {
        svg xmlns="http://www.w3.org/2000/svg" class=(class) role="img"
            viewBox={ "0 0 " (width) " " (height) } width=(size.0) height=(size.1) {
            title { (shortened(title, 200)) }
            desc { (shortened(description, 1000)) }
            (PreEscaped(elements))
        }
    };
    Ok(Drawing { svg, size })
}
