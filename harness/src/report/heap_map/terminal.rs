//! Maps as text. Colours are in addition to the characters, which suffice alone.

use super::{
    Cell, Content, Group, Key, analysed, date, ends, figures, meanings, scaled, shares, used_shares,
};
use crate::report::human::{BinaryBytes, Count, percent, shortened};
use crate::report::table::Summary;
use std::fmt::Write;
use warpheap::device_pools::{HeapMap, MapTotals};

/// Columns before the cells: the offset of the row.
const MARGIN: usize = 12;
/// The most rows of cells.
const ROWS: usize = 32;
const RESET: &str = "\x1b[0m";

/// How text is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Columns of a line.
    pub width: usize,
    /// Whether to use the colours of a terminal with 256.
    pub has_colour: bool,
    /// Whether tables have lines.
    pub is_terminal: bool,
}

/// All maps, and then their figures over time if there are several.
pub fn terminal(maps: &[HeapMap], style: Style) -> String {
    let key = Key::of(maps);
    let mut text: String = maps.iter().map(|map| map_text(map, &key, style)).collect();
    if maps.len() > 1 {
        text += &over_time(maps, style);
    }
    text.truncate(text.trim_end().len());
    text
}

fn map_text(map: &HeapMap, key: &Key, style: Style) -> String {
    let columns = 1 << style.width.saturating_sub(MARGIN).max(16).ilog2();
    let (grid, groups) = analysed(map, key, columns, ROWS);
    let mut text = format!("heap map: {}\n", shortened(&map.label, style.width.saturating_sub(10)));
    let date = date(map);
    if !date.is_empty() {
        let _ = writeln!(text, "  {:<10} {date}", "taken");
    }
    for (name, line) in figures(map, &map.totals()) {
        let _ = writeln!(text, "  {name:<10} {line}");
    }
    let cell_bytes = grid.slabs_per_cell * map.slab_bytes;
    let slabs = if grid.slabs_per_cell == 1 { "slab" } else { "slabs" };
    let count = Count(grid.slabs_per_cell);
    let _ = writeln!(text, "  {:<10} {count} {slabs}, {}\n", "a cell", BinaryBytes(cell_bytes));
    for (slab, cells) in grid.rows() {
        let offset = BinaryBytes(slab * map.slab_bytes).to_string();
        let _ = writeln!(text, "{offset:>10}  {}", row(cells, style.has_colour));
        if cells.iter().any(|cell| cell.is_held) {
            let marks: String = cells.iter().map(|cell| if cell.is_held { '^' } else { ' ' }).collect();
            let _ = writeln!(text, "{:MARGIN$}{}", "", marks.trim_end());
        }
    }
    text + "\n" + &legend(&grid.cells, key, &groups, style) + "\n"
}

/// The characters of a row; with colours, an escape sequence where the colour changes.
fn row(cells: &[Cell], has_colour: bool) -> String {
    let (mut text, mut last) = (String::new(), None);
    for cell in cells {
        let colours = if has_colour { colours(cell) } else { None };
        if colours != last {
            text += if last.is_some() { RESET } else { "" };
            if let Some((back, front)) = colours {
                let _ = write!(text, "\x1b[48;5;{back};38;5;{front}m");
            }
            last = colours;
        }
        text.push(cell.glyph());
    }
    text + if last.is_some() { RESET } else { "" }
}

/// Hues as red, green and blue, 0 to 5 each. Classes beyond the last begin with the first again.
const HUES: [[u8; 3]; 9] =
    [[2, 3, 5], [5, 3, 1], [2, 5, 3], [5, 3, 4], [5, 5, 1], [4, 3, 5], [1, 5, 5], [5, 3, 3], [2, 4, 5]];

/// Background and foreground of a cell, as numbers of the terminal's 256 colours.
fn colours(cell: &Cell) -> Option<(u8, u8)> {
    const BLACK: u8 = 16;
    const WHITE: u8 = 231;
    match cell.content {
        Content::Run(index) => {
            let dimmed = |part: u8| (part * (cell.level as u8 + 1) + 2) / 5;
            let [red, green, blue] = HUES[index % HUES.len()].map(dimmed);
            let front = if cell.level >= 3 { BLACK } else { WHITE };
            Some((16 + 36 * red + 6 * green + blue, front))
        }
        Content::Large | Content::LargeRest => Some((250, BLACK)),
        Content::Unknown => Some((196, WHITE)),
        Content::Free | Content::Fresh | Content::Unmapped => None,
    }
}

/// The classes with their sums, and the meaning of each character that the map has.
fn legend(cells: &[Cell], key: &Key, groups: &[Group], style: Style) -> String {
    let mut text = String::new();
    let used = || key.names().enumerate().zip(groups).filter(|(_, group)| group.slabs > 0);
    if used().next().is_some() {
        let mut table =
            Summary::new(&["class", "slabs", "held", "idle", "blocks", "live", "fill"], style.is_terminal);
        for ((_, (letter, name)), group) in used() {
            let counts = [group.slabs, group.held_slabs, group.idle_slabs, group.blocks, group.live_blocks];
            let counts = counts.map(|count| Count(count).to_string());
            let fill = percent(group.live_bytes, group.bytes);
            let cells = [format!("{letter} {name}")].into_iter().chain(counts).chain([fill]);
            table.row(cells.collect());
        }
        for line in table.render().lines() {
            let _ = writeln!(text, "  {line}");
        }
        text += "\n";
    }
    if cells.iter().any(|cell| matches!(cell.content, Content::Run(_)) && cell.level > 0) {
        text += "  a  run of class a; live: up to half of its blocks, A: more\n";
    }
    for (cell, meaning) in meanings(cells) {
        let _ = writeln!(text, "  {}  {meaning}", row(&[cell], style.has_colour));
    }
    if cells.iter().any(|cell| cell.is_held) {
        text += "  ^  held: in a span in which a cursor of its class looks for free blocks first\n";
    }
    text
}

/// A bar for each map, with the largest free range below it, and a table of figures.
fn over_time(maps: &[HeapMap], style: Style) -> String {
    let width = style.width.saturating_sub(7).max(16) as u64;
    let whole = maps.iter().map(|map| map.heap_bytes).max().unwrap_or(0);
    let totals: Vec<MapTotals> = maps.iter().map(HeapMap::totals).collect();
    let mut text = "over time\n\n".to_owned();
    for (number, (map, totals)) in (1..).zip(maps.iter().zip(&totals)) {
        let parts = shares(map, totals);
        let mut from = 0;
        let _ = write!(text, "{number:>4}  ");
        for (part, end) in parts.iter().zip(ends(&parts, whole, width)) {
            text.extend(std::iter::repeat_n(part.glyph, (end - from) as usize));
            from = end;
        }
        let largest = scaled(totals.largest_free_bytes, whole, width);
        text += "\n";
        if largest > 0 {
            let _ = writeln!(text, "      {}", "=".repeat(largest as usize));
        }
    }
    for part in used_shares(maps) {
        let _ = writeln!(text, "  {}  {}", part.glyph, part.name);
    }
    text += "  =  largest free range\n\n";
    let headings = ["", "live", "in runs", "free slabs", "largest range", "fragmentation", "failed"];
    let mut table = Summary::new(&headings, style.is_terminal);
    for (number, (map, totals)) in (1..).zip(maps.iter().zip(&totals)) {
        let bytes = [
            totals.live_bytes,
            totals.free_block_bytes + totals.slack_bytes,
            totals.free_slab_bytes + totals.fresh_bytes,
            totals.largest_free_bytes,
        ];
        let name = format!("{number} {}", shortened(&map.label, 24));
        let rest =
            [format!("{:.1} %", 100.0 * totals.fragmentation()), Count(map.failed_allocations).to_string()];
        let bytes = bytes.map(|bytes| BinaryBytes(bytes).to_string());
        table.row([name].into_iter().chain(bytes).chain(rest).collect());
    }
    text + &table.render() + "\n"
}
