//! Several maps over time: a stacked bar for each, and the largest free range as a line.

use super::canvas::{Anchor, Canvas};
use super::{MARGIN, RIGHT};
use crate::report::heap_map::{Share, ends, scaled, shares};
use crate::report::human::{BinaryBytes, Count, shortened};
use warpheap::device_pools::{HeapMap, MapTotals};

/// Height of the bars.
const HEIGHT: u32 = 160;
/// The left end of the bars, after the labels of the axis.
const LEFT: u32 = 80;
/// The widest bar, and the least distance between two numbers below bars.
const MAX_BAR: u32 = 44;
const MIN_NUMBERS: u32 = 24;
const LINE: u32 = 16;
/// The columns of the table: their right ends.
const TABLE: [(&str, u32); 4] = [("live", 232), ("free", 304), ("largest", 376), ("fragmentation", RIGHT)];

/// Draws the bars, their legend and their figures.
pub fn draw(canvas: &mut Canvas, maps: &[HeapMap]) {
    let totals: Vec<MapTotals> = maps.iter().map(HeapMap::totals).collect();
    let whole = maps.iter().map(|map| map.heap_bytes).max().unwrap_or(0);
    canvas.text((MARGIN, canvas.top + 14), Anchor::Start, "title", "Over time");
    canvas.top += 32;
    axis(canvas, whole);
    bars(canvas, maps, &totals, whole);
    canvas.top += HEIGHT + 28;
    legend(canvas, maps, &totals);
    table(canvas, maps, &totals);
    canvas.top += LINE;
}

fn axis(canvas: &mut Canvas, whole: u64) {
    for quarter in [0, 2, 4] {
        let y = canvas.top + HEIGHT - HEIGHT * quarter / 4;
        canvas.path(&format!("M{LEFT} {y}H{RIGHT}"), "line");
        let bytes = BinaryBytes(whole / 4 * u64::from(quarter));
        canvas.text((LEFT - 6, y + 4), Anchor::End, "dim", bytes);
    }
}

/// The centre of bar `index` of `count`.
fn centre(index: u32, count: u32) -> u32 {
    LEFT + (RIGHT - LEFT) * (2 * index + 1) / (2 * count)
}

fn bars(canvas: &mut Canvas, maps: &[HeapMap], totals: &[MapTotals], whole: u64) {
    let (count, bottom) = (maps.len() as u32, canvas.top + HEIGHT);
    let place = (RIGHT - LEFT) / count;
    let width = (place * 7 / 10).clamp(1, MAX_BAR);
    let every = MIN_NUMBERS.div_ceil(place.max(1));
    let mut line = String::new();
    for (index, (map, totals)) in (0..).zip(maps.iter().zip(totals)) {
        let (x, parts) = (centre(index, count), shares(map, totals));
        let mut from = 0;
        for (part, end) in parts.iter().zip(ends(&parts, whole, HEIGHT.into())) {
            let end = end as u32;
            if end > from {
                canvas.rect((x - width / 2, bottom - end), (width, end - from), part.class);
                from = end;
            }
        }
        canvas.rect((x - width / 2, bottom - from), (width, from), "bar");
        let y = bottom - scaled(totals.largest_free_bytes, whole, HEIGHT.into()) as u32;
        line += &format!("{}{x} {y}", if line.is_empty() { "M" } else { "L" });
        if index % every == 0 {
            canvas.text((x, bottom + 15), Anchor::Middle, "dim", index + 1);
        }
    }
    let ends = line[1..].split('L').map(|end| format!("M{end}m-3 0h6"));
    let ends: String = ends.collect();
    canvas.path(&(line + &ends), "mark");
}

/// The parts that any of the maps has.
fn legend(canvas: &mut Canvas, maps: &[HeapMap], totals: &[MapTotals]) {
    let used = |index: &usize| maps.iter().zip(totals).any(|(map, sums)| shares(map, sums)[*index].bytes > 0);
    let parts = shares(&maps[0], &totals[0]);
    let parts: Vec<Share> = (0..parts.len()).filter(used).map(|index| parts[index]).collect();
    let columns = [MARGIN, 250];
    for (index, part) in parts.iter().enumerate() {
        let (x, y) = (columns[index % 2], canvas.top + LINE * (index as u32 / 2));
        canvas.rect((x, y), (18, 11), part.class);
        canvas.rect((x, y), (18, 11), "bar");
        canvas.text((x + 25, y + 10), Anchor::Start, "fg", part.name);
    }
    canvas.top += LINE * parts.len().div_ceil(2) as u32;
    canvas.path(&format!("M{MARGIN} {}h18", canvas.top + 6), "mark");
    canvas.text((MARGIN + 25, canvas.top + 10), Anchor::Start, "fg", "largest free range");
    canvas.top += LINE + 6;
}

fn table(canvas: &mut Canvas, maps: &[HeapMap], totals: &[MapTotals]) {
    for (heading, right) in TABLE {
        canvas.text((right, canvas.top + 10), Anchor::End, "dim", heading);
    }
    canvas.top += LINE;
    for (number, (map, totals)) in (1..).zip(maps.iter().zip(totals)) {
        let name = format!("{} {}", Count(number), shortened(&map.label, 18));
        canvas.text((MARGIN, canvas.top + 10), Anchor::Start, "fg", name);
        let bytes = [totals.live_bytes, totals.free_bytes, totals.largest_free_bytes];
        let bytes = bytes.map(|bytes| BinaryBytes(bytes).to_string());
        let fragmentation = format!("{:.1} %", 100.0 * totals.fragmentation());
        for ((_, right), text) in TABLE.iter().zip(bytes.into_iter().chain([fragmentation])) {
            canvas.text((*right, canvas.top + 10), Anchor::End, "fg", text);
        }
        canvas.top += LINE;
    }
}
