//! Maps of heaps: the slabs as cells, and the parts of heaps as bars over time.
//!
//! A [`Key`] assigns a letter to each size class, a [`Grid`] groups slabs into cells. `terminal`
//! and `view::map` draw them.

mod terminal;
#[cfg(test)]
pub mod tests;

pub use terminal::{Style, terminal};

use super::human::{BinaryBytes, Count, percent};
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use warpheap::device_pools::{HeapMap, MapPart, MapTotals, SlabContent};

/// With more classes, those between two powers of two share a letter.
const MAX_CLASSES: usize = 16;

/// The letters of the size classes of one or several maps, smallest class first.
#[derive(Debug)]
pub struct Key(Vec<RangeInclusive<u64>>);

/// Some size classes of a map with the same letter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Slabs of their runs.
    pub slabs: u64,
    /// Slabs of runs without a live block.
    pub idle_slabs: u64,
    /// Slabs in the span of a cursor of their class.
    pub held_slabs: u64,
    /// Blocks, live or free.
    pub blocks: u64,
    /// Live blocks.
    pub live_blocks: u64,
    /// Bytes of all blocks.
    pub bytes: u64,
    /// Bytes of the live blocks.
    pub live_bytes: u64,
}

impl Key {
    /// Letters for the classes of all of these maps.
    pub fn of(maps: &[HeapMap]) -> Key {
        let classes: BTreeSet<u64> =
            maps.iter().flat_map(|map| map.parts.iter().filter_map(class_of)).collect();
        let same = |one: u64, other: u64| {
            one == other || classes.len() > MAX_CLASSES && power_above(one) == power_above(other)
        };
        let mut groups: Vec<RangeInclusive<u64>> = Vec::new();
        for &class in &classes {
            match groups.last_mut() {
                Some(last) if same(*last.start(), class) => *last = *last.start()..=class,
                _ => groups.push(class..=class),
            }
        }
        Key(groups)
    }

    /// The place of a class in the key.
    pub fn index(&self, block_bytes: u64) -> usize {
        self.0.partition_point(|group| *group.end() < block_bytes)
    }

    /// The letters and the names: `a` and `64 B`, or `b` and `80 to 128 B`.
    pub fn names(&self) -> impl Iterator<Item = (char, String)> {
        self.0.iter().enumerate().map(|(index, group)| {
            let (min, max) = (group.start(), group.end());
            (letter(index), if min == max { format!("{min} B") } else { format!("{min} to {max} B") })
        })
    }

    /// The sums of a map for each letter. `held`: for each slab, whether a cursor holds it.
    pub fn sums(&self, map: &HeapMap, held: &[bool]) -> Vec<Group> {
        let mut groups = vec![Group::default(); self.0.len()];
        for part in &map.parts {
            let SlabContent::Run { block_bytes, blocks, free_blocks, quarantined_blocks } = part.content
            else {
                continue;
            };
            let group = &mut groups[self.index(block_bytes)];
            let live = u64::from(blocks - free_blocks - quarantined_blocks);
            let slabs = u64::from(part.slabs);
            group.slabs += slabs;
            group.idle_slabs += if part.is_free() { slabs } else { 0 };
            group.held_slabs += held[slabs_of(part)].iter().filter(|held| **held).count() as u64;
            group.blocks += u64::from(blocks);
            group.live_blocks += live;
            group.bytes += u64::from(blocks) * block_bytes;
            group.live_bytes += live * block_bytes;
        }
        groups
    }
}

/// The letter at a place of the key.
pub fn letter(index: usize) -> char {
    char::from(b'a' + index.min(25) as u8)
}

/// For each slab of a valid map, whether it is in a span of a cursor of its class.
pub fn held(map: &HeapMap) -> Vec<bool> {
    let mut classes = vec![None; map.slabs() as usize];
    for part in &map.parts {
        classes[slabs_of(part)].fill(class_of(part));
    }
    let mut held = vec![false; classes.len()];
    for span in &map.spans {
        let first = span.first_slab as usize;
        for slab in first..first + span.slabs as usize {
            held[slab] |= classes[slab] == Some(span.block_bytes);
        }
    }
    held
}

fn slabs_of(part: &MapPart) -> Range<usize> {
    part.first_slab as usize..part.end() as usize
}

fn class_of(part: &MapPart) -> Option<u64> {
    match part.content {
        SlabContent::Run { block_bytes, .. } => Some(block_bytes),
        _ => None,
    }
}

/// The exponent of the first power of two that is not below `bytes`.
fn power_above(bytes: u64) -> u32 {
    bytes.saturating_sub(1).checked_ilog2().map_or(0, |log| log + 1)
}

/// Fill levels of a cell: 0 without a live block, otherwise the quarter that its fill lies in.
pub const LEVELS: usize = 5;

/// What a cell shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Content {
    /// Runs of the classes at this place of the key.
    Run(usize),
    /// The start of a large allocation.
    Large,
    /// Other slabs of a large allocation.
    LargeRest,
    /// Free slabs that were used before.
    Free,
    /// Slabs that were never used.
    Fresh,
    /// Slabs without memory.
    Unmapped,
    /// Slabs with contradictory metadata.
    Unknown,
}

/// One or more consecutive slabs.
///
/// If any of them has a live block, the cell shows the content with the most live bytes, and
/// otherwise the content of most slabs. So a cell without live blocks is free entirely. Of large
/// allocations, a cell shows the start of one if any starts in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The content that it shows.
    pub content: Content,
    /// Live bytes of all bytes of blocks and free slabs, in quarters, rounded up.
    pub level: usize,
    /// Whether a cursor holds any of the slabs.
    pub is_held: bool,
}

impl Cell {
    /// The character of the cell, with and without colour.
    pub fn glyph(&self) -> char {
        match self.content {
            Content::Run(_) if self.level == 0 => '+',
            Content::Run(index) if self.level <= 2 => letter(index),
            Content::Run(index) => letter(index).to_ascii_uppercase(),
            Content::Large => '#',
            Content::LargeRest => '=',
            Content::Free => '-',
            Content::Fresh => '.',
            Content::Unmapped => '~',
            Content::Unknown => '?',
        }
    }
}

/// The kinds of cells that a map has, but for runs with live blocks: a cell of each, and its
/// meaning.
pub fn meanings(cells: &[Cell]) -> impl Iterator<Item = (Cell, &'static str)> {
    let all = [
        (Content::Run(0), "run without a live block (idle): its slabs are free for any class"),
        (Content::Large, "large allocation; = marks its other slabs"),
        (Content::Free, "free slab, used before"),
        (Content::Fresh, "slab that was never used"),
        (Content::Unmapped, "no memory mapped"),
        (Content::Unknown, "contradictory metadata; call `check`"),
    ];
    all.into_iter().filter_map(|(content, meaning)| {
        let found = cells.iter().find_map(|cell| match (cell.content, content) {
            (Content::Run(_), Content::Run(_)) => (cell.level == 0).then_some(cell.content),
            (Content::LargeRest, Content::Large) => Some(content),
            (found, content) => (found == content).then_some(content),
        });
        Some((Cell { content: found?, level: 0, is_held: false }, meaning))
    })
}

/// All cells of a map, in rows.
#[derive(Debug)]
pub struct Grid {
    /// Slabs per cell, a power of two. The last cell may have fewer.
    pub slabs_per_cell: u64,
    /// Cells per row.
    pub columns: usize,
    /// The cells in address order.
    pub cells: Vec<Cell>,
}

impl Grid {
    /// The cells of a valid map, in at most `rows` rows. Those after the row with the last mapped
    /// slab are left out. `held`: for each slab, whether a cursor holds it.
    pub fn new(map: &HeapMap, key: &Key, held: &[bool], columns: usize, rows: usize) -> Grid {
        let mapped = map.parts.iter().rfind(|part| part.content != SlabContent::Unmapped);
        let mapped = mapped.map_or(1, |part| u64::from(part.end()));
        let slabs_per_cell = mapped.div_ceil((columns * rows) as u64).next_power_of_two();
        let slabs = mapped.next_multiple_of(slabs_per_cell * columns as u64).min(map.slabs());
        let count = slabs.div_ceil(slabs_per_cell) as usize;
        let mut sums = vec![Sum::default(); count];
        for part in &map.parts {
            for cell in cells_of(part, slabs_per_cell).take_while(|cell| *cell < count) {
                let first = cell as u64 * slabs_per_cell;
                let from = first.max(part.first_slab.into());
                let to = (first + slabs_per_cell).min(part.end().into());
                sums[cell].add(part, from..to, key, map.slab_bytes);
            }
        }
        let held = held.chunks(slabs_per_cell as usize).map(|slabs| slabs.contains(&true));
        let cells = sums.iter().zip(held).map(|(sum, is_held)| sum.cell(is_held)).collect();
        Grid { slabs_per_cell, columns, cells }
    }

    /// The rows, each with the number of its first slab.
    pub fn rows(&self) -> impl Iterator<Item = (u64, &[Cell])> {
        let slabs_per_row = self.slabs_per_cell * self.columns as u64;
        self.cells
            .chunks(self.columns)
            .enumerate()
            .map(move |(row, cells)| (row as u64 * slabs_per_row, cells))
    }
}

fn cells_of(part: &MapPart, slabs_per_cell: u64) -> Range<usize> {
    let (first, end) = (u64::from(part.first_slab), u64::from(part.end()));
    (first / slabs_per_cell) as usize..end.div_ceil(slabs_per_cell) as usize
}

/// What the slabs of a cell contain.
#[derive(Clone, Debug, Default)]
struct Sum {
    /// Each content with its slabs and the bytes of its blocks that are not free.
    contents: Vec<(Content, u64, u64)>,
    /// Bytes of blocks and free slabs.
    capacity: u64,
}

impl Sum {
    /// Adds the slabs `slabs` of a part. The live blocks of a run count as evenly distributed.
    fn add(&mut self, part: &MapPart, slabs: Range<u64>, key: &Key, slab_bytes: u64) {
        let count = slabs.end - slabs.start;
        let share = |bytes: u64| {
            let share = (u128::from(bytes) * u128::from(count)).div_ceil(u128::from(part.slabs));
            share as u64
        };
        let (content, taken, capacity) = match part.content {
            SlabContent::Run { block_bytes, blocks, free_blocks, .. } => {
                let of = |blocks: u32| share(u64::from(blocks) * block_bytes);
                (Content::Run(key.index(block_bytes)), of(blocks - free_blocks), of(blocks))
            }
            SlabContent::Large { .. } => {
                let is_start = slabs.start == u64::from(part.first_slab);
                let content = if is_start { Content::Large } else { Content::LargeRest };
                (content, count * slab_bytes, count * slab_bytes)
            }
            SlabContent::Free => (Content::Free, 0, count * slab_bytes),
            SlabContent::Fresh => (Content::Fresh, 0, count * slab_bytes),
            SlabContent::Unmapped => (Content::Unmapped, 0, 0),
            _ => (Content::Unknown, 0, 0),
        };
        self.capacity += capacity;
        match self.contents.iter_mut().find(|(other, ..)| *other == content) {
            Some((_, slabs, sum)) => (*slabs, *sum) = (*slabs + count, *sum + taken),
            None => self.contents.push((content, count, taken)),
        }
    }

    fn cell(&self, is_held: bool) -> Cell {
        let taken: u64 = self.contents.iter().map(|(.., taken)| taken).sum();
        // Of equal contents, the first in address order.
        let most = |of: fn(&(Content, u64, u64)) -> u64| {
            self.contents.iter().rev().max_by_key(|content| of(content)).map(|(content, ..)| *content)
        };
        let content = match self.contents.iter().any(|(content, ..)| *content == Content::Unknown) {
            true => Some(Content::Unknown),
            false if taken > 0 => most(|(.., taken)| *taken),
            false => most(|(_, slabs, _)| *slabs),
        };
        let starts_large = self.contents.iter().any(|(content, ..)| *content == Content::Large);
        let content = match content {
            Some(Content::LargeRest) if starts_large => Some(Content::Large),
            content => content,
        };
        let quarters = (u128::from(taken) * 4).div_ceil(u128::from(self.capacity.max(1)));
        Cell {
            content: content.unwrap_or(Content::Unknown),
            level: quarters.min(LEVELS as u128 - 1) as usize,
            is_held,
        }
    }
}

/// The cells of a map and the sums of its classes.
pub fn analysed(map: &HeapMap, key: &Key, columns: usize, rows: usize) -> (Grid, Vec<Group>) {
    let held = held(map);
    (Grid::new(map, key, &held, columns, rows), key.sums(map, &held))
}

/// The figures of a map as lines: name and text.
pub fn figures(map: &HeapMap, totals: &MapTotals) -> Vec<(&'static str, String)> {
    let mapped = match map.heap_bytes - map.mapped_bytes {
        0 => "all of it mapped".to_owned(),
        _ => format!("{} mapped", BinaryBytes(map.mapped_bytes)),
    };
    let slabs = format!("{} slabs of {}", Count(map.slabs()), BinaryBytes(map.slab_bytes));
    let MapTotals { live_bytes, large_bytes, free_bytes, largest_free_bytes, .. } = *totals;
    let live = format!(
        "{} ({}) in {} blocks; large ones: {}",
        BinaryBytes(live_bytes),
        percent(live_bytes, map.mapped_bytes),
        Count(totals.live_blocks),
        BinaryBytes(large_bytes)
    );
    let free = format!(
        "{} ({}); in free slabs: {}",
        BinaryBytes(free_bytes),
        percent(free_bytes, map.mapped_bytes),
        BinaryBytes(totals.free_slab_bytes + totals.fresh_bytes)
    );
    let largest = format!(
        "largest range {}; fragmentation {:.1} %",
        BinaryBytes(largest_free_bytes),
        100.0 * totals.fragmentation()
    );
    let mut lines = vec![
        ("heap", format!("{}, {mapped}; {slabs}", BinaryBytes(map.heap_bytes))),
        ("live", live),
        ("free", free),
        ("", largest),
    ];
    if totals.quarantined_bytes > 0 {
        lines.push(("quarantine", BinaryBytes(totals.quarantined_bytes).to_string()));
    }
    let failures = format!("{} allocations, {} faults", Count(map.failed_allocations), Count(map.faults));
    lines.push(("failed", failures));
    if totals.unknown_bytes > 0 {
        lines.push(("BROKEN", format!("metadata of {}; see `check`", BinaryBytes(totals.unknown_bytes))));
    }
    lines
}

/// The date of a map, as `2026-11-25 12:00:00 UTC`; empty if it has none.
pub fn date(map: &HeapMap) -> String {
    let seconds = i64::try_from(map.unix_seconds).ok().filter(|seconds| *seconds > 0);
    let time = seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    time.map(|time| time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()).unwrap_or_default()
}

/// A part of a heap in a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its name in legends.
    pub name: &'static str,
    /// Its class in an SVG.
    pub class: &'static str,
    /// Its character on a terminal.
    pub glyph: char,
    /// Its size.
    pub bytes: u64,
}

/// The parts of a heap in the order in which they are stacked. They sum to the size of the heap.
pub fn shares(map: &HeapMap, totals: &MapTotals) -> [Share; 7] {
    let share = |name, class, glyph, bytes| Share { name, class, glyph, bytes };
    // Of the parts, as all other sums: a saved map may contradict itself.
    let unmapped = map.parts.iter().filter(|part| part.content == SlabContent::Unmapped);
    let unmapped = unmapped.map(|part| u64::from(part.slabs) * map.slab_bytes).sum();
    [
        share("live", "s-live", '#', totals.live_bytes),
        share("in quarantine", "s-quarantined", 'q', totals.quarantined_bytes),
        share("contradictory metadata", "s-unknown", '?', totals.unknown_bytes),
        share("free inside runs", "s-runs", '+', totals.free_block_bytes + totals.slack_bytes),
        share("free slabs, used before", "s-free", '-', totals.free_slab_bytes),
        share("never used", "s-fresh", '.', totals.fresh_bytes),
        share("no memory mapped", "s-unmapped", '~', unmapped),
    ]
}

/// The parts that any of the maps has.
pub fn used_shares(maps: &[HeapMap]) -> Vec<Share> {
    let all: Vec<[Share; 7]> = maps.iter().map(|map| shares(map, &map.totals())).collect();
    let used = (0..7).filter(|part| all.iter().any(|shares| shares[*part].bytes > 0));
    used.map(|part| all[0][part]).collect()
}

/// The ends of consecutive parts on a scale where `whole` has length `length`.
pub fn ends(parts: &[Share], whole: u64, length: u64) -> Vec<u64> {
    let mut sum = 0;
    let mut end = |bytes: u64| {
        sum += bytes;
        scaled(sum, whole, length)
    };
    parts.iter().map(|part| end(part.bytes)).collect()
}

/// `bytes` on a scale where `whole` has length `length`, rounded to the nearest.
pub fn scaled(bytes: u64, whole: u64, length: u64) -> u64 {
    let whole = u128::from(whole.max(1));
    ((u128::from(bytes) * u128::from(length) * 2 + whole) / (2 * whole)) as u64
}
