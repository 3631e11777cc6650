//! The writer of SVG for charts and maps: elements, and colours for light and dark pages.
//!
//! Elements have classes. A style sheet gives them the colours of a page by name (`$ink`), so one
//! drawing serves light pages, dark pages and print.

use crate::report::human::{printable, shortened};
use maud::{Markup, PreEscaped, html};
use std::fmt::{Display, Write};

/// Number of series and of size classes with different colours. Others begin with the first again.
pub const STYLES: usize = 9;
/// Nine pale colours of equal luminance: cells on light pages, and lines on dark ones.
const PALE: [&str; STYLES] =
    ["#7cb4fc", "#e5a059", "#76c788", "#ef90ae", "#bcb554", "#bd9ff2", "#31c8c9", "#f49383", "#49c1ea"];
/// The deep colours of the same hues: lines on light pages, and cells on dark ones.
const DEEP: [&str; STYLES] =
    ["#3464a0", "#8d5406", "#2b7440", "#944561", "#6d6600", "#6d5398", "#007677", "#98483c", "#006f92"];
/// The background, text, secondary text and lines of pages.
const LIGHT: [(&str, &str); 4] =
    [("$page", "#ffffff"), ("$ink", "#1c1c1c"), ("$dim", "#595959"), ("$line", "#a8a8a8")];
const DARK: [(&str, &str); 4] =
    [("$page", "#161616"), ("$ink", "#f0f0f0"), ("$dim", "#b3b3b3"), ("$line", "#5c5c5c")];

/// The rules of all drawings. All selectors are below the class of the drawing, which may be part
/// of a page.
pub const RULES: &str = "
.drawing text{font:12px system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:$ink}
.drawing .middle{text-anchor:middle}.drawing .end{text-anchor:end}
.drawing .title{font-size:15px;font-weight:600}.drawing .bold{font-weight:600}.drawing .dim{fill:$dim}
.drawing .page{fill:$page}.drawing .line{fill:none;stroke:$line}
";

/// Rules with the colours of a light page, and with those of a dark one where the media query
/// `dark` applies. `$l0` to `$l8` are the colours of lines, `$a0` to `$a8` those of areas.
pub fn themed(rules: &str, dark: &str) -> String {
    let with = |page: [(&str, &str); 4], lines: [&str; STYLES], areas: [&str; STYLES]| {
        let rules = page.iter().fold(rules.to_owned(), |rules, (name, hex)| rules.replace(name, hex));
        (0..STYLES).fold(rules, |rules, style| {
            rules.replace(&format!("$l{style}"), lines[style]).replace(&format!("$a{style}"), areas[style])
        })
    };
    format!("{}@media {dark}{{{}}}\n", with(LIGHT, DEEP, PALE), with(DARK, PALE, DEEP))
}

/// The elements of a drawing, the lowest first. Coordinates are pixels.
#[derive(Debug, Default)]
pub struct Canvas(String);

impl Canvas {
    /// A text with its baseline at `y`.
    pub fn text(&mut self, (x, y): (impl Display, impl Display), class: &str, text: impl Display) {
        let text = printable(&text.to_string());
        self.put(html! { text x=(x) y=(y) class=[(!class.is_empty()).then_some(class)] { (text) } });
    }

    /// A rectangle.
    pub fn rect(
        &mut self,
        (x, y): (impl Display, impl Display),
        (width, height): (impl Display, impl Display),
        class: &str,
    ) {
        self.put(html! { rect x=(x) y=(y) width=(width) height=(height) class=(class) {} });
    }

    /// A path; nothing if it is empty.
    pub fn path(&mut self, path: &str, class: &str) {
        if !path.is_empty() {
            self.put(html! { path d=(path) class=(class) {} });
        }
    }

    /// Another drawing.
    pub fn drawing(&mut self, (x, y): (u32, u32), drawing: &Markup) {
        self.put(html! { g transform={ "translate(" (x) " " (y) ")" } { (drawing) } });
    }

    /// SVG elements as text.
    pub fn raw(&mut self, elements: &str) {
        self.0 += elements;
    }

    fn put(&mut self, element: Markup) {
        let _ = writeln!(self.0, "{}", element.into_string());
    }

    /// The SVG element. Title and description are for readers without the picture.
    pub fn svg(self, class: &str, (width, height): (u32, u32), title: &str, description: &str) -> Markup {
        html! {
            svg xmlns="http://www.w3.org/2000/svg" class={ "drawing " (class) } role="img"
                viewBox={ "0 0 " (width) " " (height) } width=(width) height=(height) {
                title { (shortened(title, 200)) }
                @if !description.is_empty() { desc { (shortened(description, 1000)) } }
                (PreEscaped(self.0))
            }
        }
    }

    /// A file with the drawing on a page of its own. `rules` are those of its elements.
    pub fn document(self, class: &str, (width, height): (u32, u32), title: &str, rules: &str) -> String {
        let style = themed(&[RULES, rules].concat(), "(prefers-color-scheme:dark)");
        let mut canvas = Canvas::default();
        canvas.put(html! { style { (PreEscaped(style)) } });
        canvas.rect((0, 0), (width, height), "page");
        canvas.0 += &self.0;
        canvas.svg(class, (width, height), title, "").into_string() + "\n"
    }
}
