//! The cells of a map: one or more slabs each, in address order.

use super::key::{self, Key, letter};
use std::ops::Range;
use warpheap::device_pools::{HeapMap, MapPart, SlabContent};

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
pub fn analysed(map: &HeapMap, key: &Key, columns: usize, rows: usize) -> (Grid, Vec<key::Group>) {
    let held = key::held(map);
    (Grid::new(map, key, &held, columns, rows), key.sums(map, &held))
}
