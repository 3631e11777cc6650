//! Writes the elements of a picture from top to bottom.

use super::style::{PATTERNS, STYLE};
use super::{MARGIN, WIDTH};
use std::fmt::{Display, Write};

/// A picture under construction.
pub struct Canvas {
    body: String,
    /// The top of what is drawn next.
    pub top: u32,
}

/// The end of a text at its position.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

impl Canvas {
    /// An empty picture.
    pub fn new() -> Canvas {
        Canvas { body: String::new(), top: MARGIN }
    }

    /// A text with its baseline at `y`.
    pub fn text(&mut self, (x, y): (u32, u32), anchor: Anchor, class: &str, text: impl Display) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        let text = escaped(&text.to_string());
        let _ = writeln!(self.body, r#"<text x="{x}" y="{y}"{anchor} class="{class}">{text}</text>"#);
    }

    /// Characters at `width` from each other, the first one centred at `x`. A space leaves a place
    /// empty.
    pub fn glyphs(&mut self, (x, y): (u32, u32), width: u32, glyphs: &str) {
        let places = || (0..).zip(glyphs.chars()).filter(|(_, glyph)| *glyph != ' ');
        let at: Vec<String> = places().map(|(index, _)| (x + index * width).to_string()).collect();
        let text: String = places().map(|(_, glyph)| glyph).collect();
        if !text.is_empty() {
            let (at, text) = (at.join(" "), escaped(&text));
            let _ = writeln!(self.body, r#"<text x="{at}" y="{y}" class="glyph">{text}</text>"#);
        }
    }

    /// A rectangle.
    pub fn rect(&mut self, (x, y): (u32, u32), (width, height): (u32, u32), class: &str) {
        let _ = writeln!(
            self.body,
            r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" class="{class}"/>"#
        );
    }

    /// A path.
    pub fn path(&mut self, path: &str, class: &str) {
        let _ = writeln!(self.body, r#"<path d="{path}" class="{class}"/>"#);
    }

    /// The document.
    pub fn finish(self, title: &str) -> String {
        let (height, title) = (self.top + MARGIN, escaped(title));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"heap-map\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"100%\" style=\"max-width:{}px\" role=\"img\" aria-label=\"{title}\">\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n{PATTERNS}\n<rect width=\"{WIDTH}\" height=\"{height}\" class=\"page\"/>\n{}</svg>\n",
            2 * WIDTH,
            self.body
        )
    }
}

/// Text for XML. Characters that XML forbids are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
