//! Maps of heaps as one SVG: self-contained, without scripts, for light and dark pages. It is as
//! wide as a phone and scales up. Letters and patterns repeat what the colours show.

use super::svg::{Canvas, STYLES};
use crate::report::heap_map::{
    Cell, Content, Grid, Group, Key, analysed, date, ends, figures, meanings, scaled, shares, used_shares,
};
use crate::report::human::{BinaryBytes, Count, percent, short, shortened};
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use warpheap::device_pools::{HeapMap, MapTotals};

/// Width of the picture in its own units, the margin at all sides, and the right end of all
/// content.
const WIDTH: u32 = 480;
const MARGIN: u32 = 16;
const RIGHT: u32 = WIDTH - MARGIN;
/// From one line of text to the next.
const LINE: u32 = 16;
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

/// The rules of maps. The backgrounds of cells have the same luminance, so that the letters on them
/// are equally readable.
const RULES: &str = "
.heap-map{width:100%;max-width:960px;height:auto;background:$page}
.heap-map text{font-size:11px}.heap-map .offset{font-size:9px;fill:$dim;text-anchor:end}
.heap-map .glyph{font:9px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;text-anchor:middle}
.heap-map .c0{fill:$a0}.heap-map .c1{fill:$a1}.heap-map .c2{fill:$a2}.heap-map .c3{fill:$a3}
.heap-map .c4{fill:$a4}.heap-map .c5{fill:$a5}.heap-map .c6{fill:$a6}.heap-map .c7{fill:$a7}
.heap-map .c8{fill:$a8}.heap-map .l0{fill-opacity:.15}.heap-map .l1{fill-opacity:.3}
.heap-map .l2{fill-opacity:.5}.heap-map .l3{fill-opacity:.75}
.heap-map .large,.heap-map .s-live{fill:$line}.heap-map .free{fill:none;stroke:$line;stroke-width:.6}
.heap-map .fresh,.heap-map .s-fresh{fill:$line;fill-opacity:.18}
.heap-map .unmapped,.heap-map .s-unmapped{fill:none}.heap-map .unknown,.heap-map .s-unknown{fill:$a7}
.heap-map .s-quarantined{fill:$a5}.heap-map .s-runs{fill:url(#heap-map-runs)}
.heap-map .s-free{fill:url(#heap-map-free)}.heap-map .held,.heap-map .dots{fill:$ink}
.heap-map .bar{fill:none;stroke:$dim;stroke-width:.8}.heap-map .hatch{fill:none;stroke:$dim;stroke-width:1.2}
.heap-map .mark{fill:none;stroke:$l7;stroke-width:2}
";

/// Patterns of the parts of a bar over time.
const PATTERNS: &str = r#"<defs>
<pattern id="heap-map-runs" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M-1 1L1 -1M0 6L6 0M5 7L7 5" class="hatch"/></pattern>
<pattern id="heap-map-free" width="5" height="5" patternUnits="userSpaceOnUse"><circle cx="2.5" cy="2.5" r=".9" class="dots"/></pattern>
</defs>
"#;

/// The figures over time if there are several maps, then all maps.
pub fn picture_of_maps(maps: &[HeapMap]) -> String {
    let key = Key::of(maps);
    let mut picture = Picture { canvas: Canvas::default(), top: MARGIN };
    picture.canvas.raw(PATTERNS);
    if maps.len() > 1 {
        picture.over_time(maps);
    }
    maps.iter().for_each(|map| picture.map(map, &key));
    let title = match maps {
        [map] => format!("Heap map: {}", map.label),
        _ => format!("{} heap maps", maps.len()),
    };
    picture.canvas.document("heap-map", (WIDTH, picture.top + MARGIN), &title, RULES)
}

/// A picture that is drawn from top to bottom.
struct Picture {
    canvas: Canvas,
    /// The top of what is drawn next.
    top: u32,
}

impl Picture {
    /// A text in the line of the top.
    fn text(&mut self, x: u32, class: &str, text: impl Display) {
        self.canvas.text((x, self.top + 10), class, text);
    }

    /// A row of a table: texts that end at the places of their columns.
    fn row(&mut self, columns: &[(&str, u32)], class: &str, texts: impl IntoIterator<Item = String>) {
        columns.iter().zip(texts).for_each(|((_, right), text)| self.text(*right, class, text));
        self.top += LINE;
    }

    /// The headings of a table.
    fn headings(&mut self, columns: &[(&str, u32)]) {
        self.row(columns, "dim end", columns.iter().map(|(heading, _)| (*heading).to_owned()));
    }

    /// Draws a map: its figures, its cells in rows, the table of its classes, and the meaning of
    /// its cells.
    fn map(&mut self, map: &HeapMap, key: &Key) {
        let (grid, groups) = analysed(map, key, COLUMNS, ROWS);
        self.canvas.text((MARGIN, self.top + 14), "title", shortened(&map.label, 48));
        self.canvas.text((MARGIN, self.top + 31), "dim", date(map));
        let slabs = match grid.slabs_per_cell {
            1 => "a cell is one slab".to_owned(),
            count => format!("a cell is {} slabs", Count(count)),
        };
        let bytes = BinaryBytes(grid.slabs_per_cell * map.slab_bytes);
        self.canvas.text((RIGHT, self.top + 31), "dim end", format_args!("{slabs}, {bytes}"));
        self.top += 41;
        for (name, text) in figures(map, &map.totals()) {
            self.text(MARGIN, "dim", name);
            self.text(LEFT, "", text);
            self.top += LINE;
        }
        self.top += 6;
        self.cells(map, &grid);
        self.top += 10;
        self.classes(key, &groups);
        self.legend(&grid.cells);
        self.top += LINE;
    }

    /// One path for all cells that look the same.
    fn cells(&mut self, map: &HeapMap, grid: &Grid) {
        let mut paths: BTreeMap<String, String> = BTreeMap::new();
        for (row, (_, cells)) in (0..).zip(grid.rows()) {
            for (column, cell) in (0..).zip(cells) {
                let (x, y) = (LEFT + column * PITCH, self.top + row * ROW);
                let mut add = |class: String, y: u32, height: u32| {
                    let _ = write!(paths.entry(class).or_default(), "M{x} {y}h{CELL}v{height}h-{CELL}z");
                };
                add(class_of(cell), y, CELL);
                if cell.is_held {
                    add("held".into(), y + CELL + 1, 1);
                }
            }
        }
        paths.iter().for_each(|(class, path)| self.canvas.path(path, class));
        for (slab, cells) in grid.rows() {
            self.canvas.text((LEFT - 6, self.top + 9), "offset", BinaryBytes(slab * map.slab_bytes));
            let places = (0..cells.len() as u32).map(|column| (LEFT + CELL / 2 + column * PITCH).to_string());
            let glyphs: String = cells.iter().map(Cell::glyph).collect();
            self.canvas.text((places.collect::<Vec<_>>().join(" "), self.top + 9), "glyph", glyphs);
            self.top += ROW;
        }
    }

    /// A cell with its character at `x`.
    fn cell(&mut self, x: u32, cell: &Cell) {
        self.canvas.rect((x, self.top), (CELL, CELL), &class_of(cell));
        self.canvas.text((x + CELL / 2, self.top + 9), "glyph", cell.glyph());
        if cell.is_held {
            self.canvas.rect((x, self.top + CELL + 1), (CELL, 1), "held");
        }
    }

    /// A cell in the legend, with its meaning.
    fn sample(&mut self, cell: &Cell, text: &str) {
        self.cell(MARGIN, cell);
        self.text(MARGIN + 18, "", text);
    }

    /// A table of the classes that the map has.
    fn classes(&mut self, key: &Key, groups: &[Group]) {
        const TABLE: [(&str, u32); 5] =
            [("slabs", 192), ("held", 240), ("idle", 288), ("live / blocks", 408), ("fill", RIGHT)];
        let used: Vec<_> = key.names().zip(groups).enumerate().filter(|(_, (_, g))| g.slabs > 0).collect();
        if used.is_empty() {
            return;
        }
        self.text(MARGIN, "dim", "class");
        self.headings(&TABLE);
        for (index, ((_, name), group)) in used {
            self.sample(&Cell { content: Content::Run(index), level: 2, is_held: false }, &name);
            let counts =
                [group.slabs, group.held_slabs, group.idle_slabs].map(|count| Count(count).to_string());
            let blocks = format!("{} / {}", short(group.live_blocks as f64), short(group.blocks as f64));
            let fill = percent(group.live_bytes, group.bytes);
            self.row(&TABLE, "end", counts.into_iter().chain([blocks, fill]));
        }
        self.top += 4;
    }

    /// The shades, and the meaning of each kind of cell that the map has.
    fn legend(&mut self, cells: &[Cell]) {
        let is_live = |cell: &&Cell| matches!(cell.content, Content::Run(_)) && cell.level > 0;
        if let Some(cell) = cells.iter().find(is_live) {
            self.text(MARGIN, "", "live part of a run:");
            for (level, text) in (1..).zip(["to 25 %", "to 50 %", "to 75 %", "more"]) {
                let x = 62 + 76 * level;
                self.cell(x, &Cell { level: level as usize, is_held: false, ..*cell });
                self.text(x + 16, "", text);
            }
            self.top += LINE;
        }
        for (cell, meaning) in meanings(cells) {
            self.sample(&cell, meaning);
            self.top += LINE;
        }
        if let Some(cell) = cells.iter().find(|cell| cell.is_held) {
            self.sample(cell, "line below a cell: held, in a span of a cursor of its class");
            self.top += LINE;
        }
    }

    /// Draws a stacked bar for each map with the largest free range as a line, their legend and
    /// their figures.
    fn over_time(&mut self, maps: &[HeapMap]) {
        const HEIGHT: u32 = 160;
        /// The columns of the table.
        const TABLE: [(&str, u32); 4] =
            [("live", 232), ("free", 304), ("largest", 376), ("fragmentation", RIGHT)];
        let totals: Vec<MapTotals> = maps.iter().map(HeapMap::totals).collect();
        let whole = maps.iter().map(|map| map.heap_bytes).max().unwrap_or(0);
        self.canvas.text((MARGIN, self.top + 14), "title", "Over time");
        self.top += 32;
        self.bars(maps, &totals, whole, HEIGHT);
        self.top += HEIGHT + 28;
        for parts in used_shares(maps).chunks(2) {
            for (x, part) in [MARGIN, 250].into_iter().zip(parts) {
                self.canvas.rect((x, self.top), (18, 11), part.class);
                self.canvas.rect((x, self.top), (18, 11), "bar");
                self.text(x + 25, "", part.name);
            }
            self.top += LINE;
        }
        self.canvas.path(&format!("M{MARGIN} {}h18", self.top + 6), "mark");
        self.text(MARGIN + 25, "", "largest free range");
        self.top += LINE + 6;
        self.headings(&TABLE);
        for (number, (map, totals)) in (1..).zip(maps.iter().zip(&totals)) {
            self.text(MARGIN, "", format_args!("{} {}", Count(number), shortened(&map.label, 18)));
            let bytes = [totals.live_bytes, totals.free_bytes, totals.largest_free_bytes];
            let bytes = bytes.map(|bytes| BinaryBytes(bytes).to_string());
            let fragmentation = format!("{:.1} %", 100.0 * totals.fragmentation());
            self.row(&TABLE, "end", bytes.into_iter().chain([fragmentation]));
        }
        self.top += LINE;
    }

    fn bars(&mut self, maps: &[HeapMap], totals: &[MapTotals], whole: u64, height: u32) {
        /// The left end of the bars, after the labels of the axis.
        const LEFT: u32 = 80;
        let (count, bottom) = (maps.len() as u32, self.top + height);
        for half in 0..3 {
            let y = bottom - height * half / 2;
            self.canvas.path(&format!("M{LEFT} {y}H{RIGHT}"), "line");
            self.canvas.text((LEFT - 6, y + 4), "dim end", BinaryBytes(whole / 2 * u64::from(half)));
        }
        let place = (RIGHT - LEFT) / count;
        let width = (place * 7 / 10).clamp(1, 44);
        // Numbers below bars are at least 24 apart.
        let every = 24_u32.div_ceil(place.max(1));
        let (mut line, mut marks) = (String::new(), String::new());
        for (index, (map, totals)) in (0..).zip(maps.iter().zip(totals)) {
            let x = LEFT + (RIGHT - LEFT) * (2 * index + 1) / (2 * count);
            let (parts, mut from) = (shares(map, totals), 0);
            for (part, end) in parts.iter().zip(ends(&parts, whole, height.into())) {
                let end = end as u32;
                if end > from {
                    self.canvas.rect((x - width / 2, bottom - end), (width, end - from), part.class);
                    from = end;
                }
            }
            self.canvas.rect((x - width / 2, bottom - from), (width, from), "bar");
            let y = bottom - scaled(totals.largest_free_bytes, whole, height.into()) as u32;
            let _ = write!(line, "{}{x} {y}", if index == 0 { "M" } else { "L" });
            let _ = write!(marks, "M{x} {y}m-3 0h6");
            if index % every == 0 {
                self.canvas.text((x, bottom + 15), "dim middle", index + 1);
            }
        }
        self.canvas.path(&(line + &marks), "mark");
    }
}

fn class_of(cell: &Cell) -> String {
    match cell.content {
        Content::Run(index) => format!("c{} l{}", index % STYLES, cell.level),
        Content::Large | Content::LargeRest => "large".into(),
        Content::Free => "free".into(),
        Content::Fresh => "fresh".into(),
        Content::Unmapped => "unmapped".into(),
        Content::Unknown => "unknown".into(),
    }
}
