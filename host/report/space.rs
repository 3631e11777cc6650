//! The addresses of an allocator: what it holds, and which parts of that are used.
//!
//! ```text
//! segments   |                    |   |            |
//! pieces     |##|   |####|  |#|   |   |    |###|   |     used: no other block can get any of it
//! gaps           1        2    3    4       5            free ranges
//! ```
//!
//! I1: `segments` and `pieces` are sorted by address, and neither overlap themselves. I2: a piece
//! that lies in no segment is ignored.

use serde::Serialize;

/// Cells of a picture.
const CELLS: u64 = 64;

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Extent {
    pub start: u64,
    pub bytes: u64,
}

impl Extent {
    /// A block from its start and its bytes, all of which are used.
    pub fn used((start, bytes): (u64, u64)) -> (Extent, u64) {
        (Extent { start, bytes }, bytes)
    }

    fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes)
    }
}

/// A cell of a picture: a part of the addresses that an allocator holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Cell {
    /// Bytes of the cell.
    pub bytes: u64,
    /// Bytes of these that are not free.
    pub used_bytes: u64,
}

/// Sums of the free ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Free {
    pub bytes: u64,
    pub largest: u64,
    pub ranges: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Space {
    segments: Vec<Extent>,
    pieces: Vec<Extent>,
}

impl Space {
    /// Sorts the extents, and merges pieces that overlap (I1).
    pub fn new(mut segments: Vec<Extent>, mut pieces: Vec<Extent>) -> Space {
        segments.sort_unstable();
        pieces.sort_unstable();
        pieces.dedup_by(|next, last| {
            let overlaps = next.start < last.end();
            if overlaps {
                last.bytes = last.bytes.max(next.end() - last.start);
            }
            overlaps
        });
        Space { segments, pieces }
    }

    /// Calls `f` for each gap, with whether a piece follows it in its segment.
    fn for_each_gap(&self, mut f: impl FnMut(Extent, bool)) {
        let mut pieces = self.pieces.iter().peekable();
        for segment in &self.segments {
            let mut at = segment.start;
            while pieces.next_if(|piece| piece.start < segment.start).is_some() {}
            while let Some(piece) = pieces.next_if(|piece| piece.start < segment.end()) {
                if piece.start > at {
                    f(Extent { start: at, bytes: piece.start - at }, true);
                }
                at = piece.end();
            }
            if segment.end() > at {
                f(Extent { start: at, bytes: segment.end() - at }, false);
            }
        }
    }

    /// Bytes of the largest free range.
    pub fn largest_free(&self) -> u64 {
        self.free().largest
    }

    pub(super) fn free(&self) -> Free {
        let mut free = Free::default();
        self.for_each_gap(|gap, _| {
            free.bytes = free.bytes.saturating_add(gap.bytes);
            free.largest = free.largest.max(gap.bytes);
            free.ranges += 1;
        });
        free
    }

    /// The starts of the pieces before which a gap ends, in order.
    pub(super) fn gap_ends(&self) -> Vec<u64> {
        let mut ends = Vec::new();
        self.for_each_gap(|gap, is_followed| ends.extend(is_followed.then(|| gap.end())));
        ends
    }

    /// The piece that contains an address.
    pub(super) fn piece_of(&self, address: u64) -> Option<Extent> {
        let behind = self.pieces.partition_point(|piece| piece.start <= address);
        self.pieces[..behind].last().copied().filter(|piece| address < piece.end())
    }

    /// The segments, one after the other, in cells. `used`: ranges within the segments, and how
    /// many of their bytes are used. These count as evenly distributed.
    pub(super) fn picture(&self, used: impl IntoIterator<Item = (Extent, u64)>) -> Vec<Cell> {
        let mut befores = Vec::with_capacity(self.segments.len());
        let all = self.segments.iter().fold(0, |all: u64, segment| {
            befores.push(all);
            all.saturating_add(segment.bytes)
        });
        let size = all.div_ceil(CELLS).max(1);
        let cell = |index| Cell { bytes: size.min(all - index * size), used_bytes: 0 };
        let mut cells: Vec<Cell> = (0..all.div_ceil(size)).map(cell).collect();
        for (range, bytes) in used {
            let behind = self.segments.partition_point(|segment| segment.start <= range.start);
            let Some(index) = behind.checked_sub(1) else { continue };
            let segment = self.segments[index];
            let offset = |address: u64| {
                let in_segment = (address - segment.start).min(segment.bytes);
                befores[index].saturating_add(in_segment).min(all)
            };
            let (mut at, to) = (offset(range.start), offset(range.end()));
            while at < to {
                let (index, next) = (at / size, to.min((at / size + 1).saturating_mul(size)));
                let share = u128::from(bytes) * u128::from(next - at) / u128::from(range.bytes);
                let cell = &mut cells[index as usize];
                // The bytes of an invalid map may exceed those of its slabs.
                cell.used_bytes = cell.used_bytes.saturating_add(u64::try_from(share).unwrap_or(u64::MAX));
                at = next;
            }
        }
        cells
    }
}
