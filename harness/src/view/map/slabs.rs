//! The map of the slabs: figures, cells in rows, legend.

use super::canvas::{Anchor, Canvas};
use super::style::COLOURS;
use super::{MARGIN, RIGHT};
use crate::report::heap_map::cells::{Cell, Content, Grid, analysed};
use crate::report::heap_map::key::{Group, Key};
use crate::report::heap_map::{date, figures};
use crate::report::human::{BinaryBytes, Count, percent, short, shortened};
use std::collections::BTreeMap;
use std::fmt::Write;
use warpheap::device_pools::HeapMap;

/// Cells of a row, and the most rows.
const COLUMNS: usize = 32;
const ROWS: usize = 64;
/// From one cell to the next, and the size of a cell.
const PITCH: u32 = 12;
const CELL: u32 = 11;
/// From one row to the next. Between two rows is the mark of cells that a cursor holds.
const ROW: u32 = 15;
/// The left end of the cells.
const LEFT: u32 = RIGHT - PITCH * COLUMNS as u32;
/// From one line of text to the next.
const LINE: u32 = 16;
/// The columns of the table of classes: their right ends.
const TABLE: [(&str, u32); 5] =
    [("slabs", 192), ("held", 240), ("idle", 288), ("live / blocks", 408), ("fill", RIGHT)];

/// Draws a map with its legend below what is there.
pub fn draw(canvas: &mut Canvas, map: &HeapMap, key: &Key) {
    let (grid, groups) = analysed(map, key, COLUMNS, ROWS);
    heading(canvas, map, &grid);
    cells(canvas, map, &grid);
    canvas.top += 10;
    classes(canvas, key, &groups);
    legend(canvas, &grid.cells);
    canvas.top += LINE;
}

fn heading(canvas: &mut Canvas, map: &HeapMap, grid: &Grid) {
    let top = canvas.top;
    canvas.text((MARGIN, top + 14), Anchor::Start, "title", shortened(&map.label, 48));
    canvas.text((MARGIN, top + 31), Anchor::Start, "dim", date(map));
    let slabs = match grid.slabs_per_cell {
        1 => "a cell is one slab".to_owned(),
        count => format!("a cell is {} slabs", Count(count)),
    };
    let bytes = BinaryBytes(grid.slabs_per_cell * map.slab_bytes);
    canvas.text((RIGHT, top + 31), Anchor::End, "dim", format_args!("{slabs}, {bytes}"));
    canvas.top += 40;
    for (name, text) in figures(map, &map.totals()) {
        canvas.text((MARGIN, canvas.top + 11), Anchor::Start, "dim", name);
        canvas.text((LEFT, canvas.top + 11), Anchor::Start, "fg", text);
        canvas.top += LINE;
    }
    canvas.top += 6;
}

/// One path for all cells that look the same.
fn cells(canvas: &mut Canvas, map: &HeapMap, grid: &Grid) {
    let top = canvas.top;
    let mut paths: BTreeMap<String, String> = BTreeMap::new();
    for (row, (_, cells)) in (0..).zip(grid.rows()) {
        for (column, cell) in (0..).zip(cells) {
            let (x, y) = (LEFT + column * PITCH, top + row * ROW);
            let mut add = |class: String, (y, height): (u32, u32)| {
                let path = paths.entry(class).or_default();
                let _ = write!(path, "M{x} {y}h{CELL}v{height}h-{CELL}z");
            };
            add(class_of(cell), (y, CELL));
            if cell.is_held {
                add("held".into(), (y + CELL + 1, 1));
            }
        }
    }
    paths.iter().for_each(|(class, path)| canvas.path(path, class));
    for (slab, cells) in grid.rows() {
        let offset = BinaryBytes(slab * map.slab_bytes);
        canvas.text((LEFT - 6, canvas.top + 9), Anchor::End, "offset", offset);
        let glyphs: String = cells.iter().map(Cell::glyph).collect();
        canvas.glyphs((LEFT + CELL / 2, canvas.top + 9), PITCH, &glyphs);
        canvas.top += ROW;
    }
}

fn class_of(cell: &Cell) -> String {
    match cell.content {
        Content::Run(index) => format!("c{} l{}", index % COLOURS, cell.level),
        Content::Large | Content::LargeRest => "large".into(),
        Content::Free => "free".into(),
        Content::Fresh => "fresh".into(),
        Content::Unmapped => "unmapped".into(),
        Content::Unknown => "unknown".into(),
    }
}

/// A cell in the legend, with its text.
fn sample(canvas: &mut Canvas, cell: Cell, text: &str) {
    let top = canvas.top;
    canvas.rect((MARGIN, top), (CELL, CELL), &class_of(&cell));
    canvas.glyphs((MARGIN + CELL / 2, top + 9), PITCH, &cell.glyph().to_string());
    if cell.is_held {
        canvas.rect((MARGIN, top + CELL + 1), (CELL, 1), "held");
    }
    canvas.text((MARGIN + 18, top + 10), Anchor::Start, "fg", text);
}

/// A table of the classes that the map has.
fn classes(canvas: &mut Canvas, key: &Key, groups: &[Group]) {
    let used: Vec<_> = key.names().zip(groups).enumerate().filter(|(_, (_, g))| g.slabs > 0).collect();
    if used.is_empty() {
        return;
    }
    canvas.text((MARGIN, canvas.top + 10), Anchor::Start, "dim", "class");
    for (heading, right) in TABLE {
        canvas.text((right, canvas.top + 10), Anchor::End, "dim", heading);
    }
    canvas.top += LINE;
    for (index, ((_, name), group)) in used {
        sample(canvas, Cell { content: Content::Run(index), level: 2, is_held: false }, &name);
        let texts = [
            Count(group.slabs).to_string(),
            Count(group.held_slabs).to_string(),
            Count(group.idle_slabs).to_string(),
            format!("{} / {}", short(group.live_blocks as f64), short(group.blocks as f64)),
            percent(group.live_bytes, group.bytes),
        ];
        for ((_, right), text) in TABLE.iter().zip(texts) {
            canvas.text((*right, canvas.top + 10), Anchor::End, "fg", text);
        }
        canvas.top += LINE;
    }
    canvas.top += 4;
}

/// The shades, and the meaning of each kind of cell that the map has.
fn legend(canvas: &mut Canvas, cells: &[Cell]) {
    let has = |is_it: &dyn Fn(&Cell) -> bool| cells.iter().any(is_it);
    let run = cells.iter().find(|cell| matches!(cell.content, Content::Run(_)) && cell.level > 0);
    if let Some(cell) = run {
        let top = canvas.top;
        canvas.text((MARGIN, top + 10), Anchor::Start, "fg", "live part of a run:");
        for (level, text) in (1..).zip(["to 25 %", "to 50 %", "to 75 %", "more"]) {
            let (cell, x) = (Cell { level, is_held: false, ..*cell }, 138 + 76 * (level as u32 - 1));
            canvas.rect((x, top), (CELL, CELL), &class_of(&cell));
            canvas.glyphs((x + CELL / 2, top + 9), PITCH, &cell.glyph().to_string());
            canvas.text((x + 16, top + 10), Anchor::Start, "fg", text);
        }
        canvas.top += LINE;
    }
    let idle = cells.iter().find(|cell| matches!(cell.content, Content::Run(_)) && cell.level == 0);
    if let Some(cell) = idle {
        let cell = Cell { is_held: false, ..*cell };
        sample(canvas, cell, "run without a live block (idle): its slabs are free for any class");
        canvas.top += LINE;
    }
    for (content, meaning) in [
        (Content::Large, "large allocation; = marks its other slabs"),
        (Content::Free, "free slab that was used before"),
        (Content::Fresh, "slab that was never used"),
        (Content::Unmapped, "no memory mapped"),
        (Content::Unknown, "contradictory metadata; call check"),
    ] {
        let is_large = |cell: &Cell| matches!(cell.content, Content::Large | Content::LargeRest);
        if has(&|cell| cell.content == content || content == Content::Large && is_large(cell)) {
            sample(canvas, Cell { content, level: 0, is_held: false }, meaning);
            canvas.top += LINE;
        }
    }
    if let Some(cell) = cells.iter().find(|cell| cell.is_held) {
        sample(canvas, *cell, "line below a cell: held, in a span of a cursor of its class");
        canvas.top += LINE;
    }
}
