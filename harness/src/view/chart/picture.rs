//! A chart with its title, its note and its legend, and the same as a picture: one SVG file for
//! light and dark pages.

use super::marks::colours;
use super::{Drawing, WIDTH};
use crate::view::palette::LIGHT;
use maud::{Markup, PreEscaped, html};

/// A line with a marker, and the name of its series.
pub type Legend = Vec<(Drawing, String)>;

/// A chart with its texts.
#[derive(Clone, Debug)]
pub struct Card {
    /// The title.
    pub title: String,
    /// What does not vary in the chart.
    pub note: String,
    /// The chart.
    pub chart: Drawing,
    /// The series; empty if the chart needs no legend.
    pub legend: Legend,
}

/// Space around the chart, in pixels.
const MARGIN: u32 = 16;
/// From one line of text to the next.
const LINE: u32 = 18;
/// Characters of a line of the note: they fill the width in a wide font.
const COLUMNS: usize = 60;
/// Width of a character in a wide font, and the space between two entries of the legend.
const LETTER: u32 = 7;
const GAP: u32 = 20;

impl Card {
    /// The card as an SVG document.
    pub fn picture(&self) -> String {
        let mut top = MARGIN;
        let mut next = |height: u32| {
            top += height;
            top
        };
        let title = text(MARGIN, next(LINE), "title", &self.title);
        let notes: Vec<_> =
            wrapped(&self.note).iter().map(|line| text(MARGIN, next(LINE), "note", line)).collect();
        let chart = at(MARGIN, next(LINE / 2), &self.chart.svg);
        next(self.chart.size.1);
        let (legend, rows) = self.legend(next(LINE));
        let height = next(rows * LINE);
        let width = WIDTH + 2 * MARGIN;
        let document = html! {
            svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img"
                viewBox={ "0 0 " (width) " " (height) } width=(width) height=(height) {
                title { (self.title) ": " (self.note) }
                style { (PreEscaped(colours("(prefers-color-scheme:dark)"))) (PreEscaped(FONTS)) }
                rect width=(width) height=(height) fill=(LIGHT.page.to_uppercase()) {}
                (title)
                @for line in notes { (line) }
                (chart)
                (legend)
            }
        };
        document.into_string() + "\n"
    }

    /// The entries of the legend in rows from `top`, and the number of rows.
    fn legend(&self, top: u32) -> (Markup, u32) {
        let (mut x, mut row) = (MARGIN, 0);
        let entries: Vec<_> = self
            .legend
            .iter()
            .map(|(sample, name)| {
                let names = sample.size.0 + LETTER;
                let width = names + name.chars().count() as u32 * LETTER + GAP;
                if x > MARGIN && x + width > WIDTH + MARGIN + GAP {
                    (x, row) = (MARGIN, row + 1);
                }
                let (left, y) = (x, top + row * LINE);
                x += width;
                html! { (at(left, y - sample.size.1 + 3, &sample.svg)) (text(left + names, y, "name", name)) }
            })
            .collect();
        (html! { @for entry in &entries { (entry) } }, row + 1)
    }
}

const FONTS: &str = "text{font-family:system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
.title{font-size:15px;font-weight:600}.note,.name{font-size:12px}
";

/// A text with its baseline at `y`.
fn text(x: u32, y: u32, class: &str, text: &str) -> Markup {
    let ink = if class == "note" { LIGHT.dim } else { LIGHT.ink };
    html! { text x=(x) y=(y) class=(class) fill=(ink.to_uppercase()) { (text) } }
}

/// A part of the picture at a place.
fn at(x: u32, y: u32, part: &Markup) -> Markup {
    html! { g transform={ "translate(" (x) " " (y) ")" } { (part) } }
}

/// Lines of at most [`COLUMNS`] characters, but for longer words.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= COLUMNS => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
