//! Colours of pictures and charts. The pale ones are backgrounds of cells on light pages and lines
//! on dark ones, the deep ones the reverse.

/// Nine pale colours of equal luminance.
pub const PALE: [&str; 9] =
    ["#7cb4fc", "#e5a059", "#76c788", "#ef90ae", "#bcb554", "#bd9ff2", "#31c8c9", "#f49383", "#49c1ea"];
/// The deep colours of the same hues.
pub const DEEP: [&str; 9] =
    ["#3464a0", "#8d5406", "#2b7440", "#944561", "#6d6600", "#6d5398", "#007677", "#98483c", "#006f92"];

/// The colours of a page: background, text, secondary text and lines.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// The background.
    pub page: &'static str,
    /// Text.
    pub ink: &'static str,
    /// Secondary text.
    pub dim: &'static str,
    /// Lines of axes and tables.
    pub line: &'static str,
}

/// A light page.
pub const LIGHT: Page = Page { page: "#ffffff", ink: "#1c1c1c", dim: "#595959", line: "#a8a8a8" };
/// A dark page.
pub const DARK: Page = Page { page: "#161616", ink: "#f0f0f0", dim: "#b3b3b3", line: "#5c5c5c" };
