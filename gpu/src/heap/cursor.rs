//! A cursor: the blocks that one class hands out next to the warps of one multiprocessor.
//!
//! ```text
//! 63      32 31              0
//! | end      | left + BIAS    |       the last `left` blocks of the runs that end before slab `end`
//! ```
//!
//! A warp subtracts what it wants. From a count that had as much it gets the first of those blocks. Blocks are
//! numbered from the last run backwards, so that the word needs no total.

use super::STORE_SPAN;
use super::class_info::{ClassInfo, divided};
use crate::sync::{AtomicU64, NATIVE_LAYOUT};

const BIAS: u64 = 1 << 31;
/// In place of a slab: there was no memory for the class when it was last looked for.
const DRY: u32 = u32::MAX;
/// In place of a slab: the class has had no span here yet.
const UNUSED: u32 = u32::MAX - 1;

/// A dry cursor is put back to its start when failed subtractions have sunk it this far; all warps of a
/// GPU together cannot sink it as far again before that is done.
const SUNK: i32 = -(1 << 28);

/// What a cursor's old value means to the group that has subtracted from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// There was enough.
    Got,
    /// Too little was left; that is now the group's, which must store the next span.
    Crossed,
    /// Another group is storing the next span.
    Behind,
    /// There is no span.
    Dry,
}

/// Blocks of one or more consecutive runs of slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub(super) u64);

impl Span {
    /// No blocks, and no refill under way.
    pub const DRY: Span = Span((DRY as u64) << 32 | (BIAS - 1));
    /// No blocks yet: the first group that allocates must refill the cursor.
    pub const UNUSED: Span = Span::new(UNUSED, 0);

    /// The last `left` blocks of the runs that end before slab `end`.
    #[inline(always)]
    pub const fn new(end: u32, left: u32) -> Self {
        Span((end as u64) << 32 | (left as u64 + BIAS))
    }

    /// The slab after the span.
    #[inline(always)]
    pub const fn end(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Blocks left; below zero what failed subtractions have taken.
    #[inline(always)]
    pub(super) const fn signed_left(self) -> i32 {
        (self.0 as u32 ^ BIAS as u32) as i32
    }

    /// Whether there is no span and no refill is under way.
    #[inline(always)]
    pub const fn is_dry(self) -> bool {
        self.end() == DRY
    }

    /// Whether there has been none yet.
    #[inline(always)]
    pub(super) const fn is_unused(self) -> bool {
        self.end() == UNUSED
    }

    /// Blocks left; `None` while a group is refilling the cursor. A dry span has none.
    #[inline(always)]
    pub const fn left(self) -> Option<u32> {
        match self.signed_left() {
            _ if self.is_dry() => Some(0),
            left if left >= 0 => Some(left as u32),
            _ => None,
        }
    }

    /// How many of `wanted` blocks it has.
    #[inline(always)]
    pub(super) const fn granted(self, wanted: u32) -> u32 {
        match self.left() {
            Some(left) if left < wanted => left,
            Some(_) => wanted,
            None => 0,
        }
    }

    /// Without `blocks` that it has.
    #[inline(always)]
    pub(super) const fn without(self, blocks: u32) -> Self {
        Span(self.0 - blocks as u64)
    }

    #[inline(always)]
    pub(super) const fn outcome(self, wanted: u32) -> Outcome {
        let left = self.signed_left();
        if left >= wanted as i32 {
            Outcome::Got
        } else if self.is_dry() {
            Outcome::Dry
        } else if left >= 0 {
            Outcome::Crossed
        } else {
            Outcome::Behind
        }
    }

    pub(super) const fn has_sunk(self) -> bool {
        self.signed_left() < SUNK
    }

    /// The run of block `block` of the span, and the number of the block in the run.
    #[inline(always)]
    pub const fn place(self, info: &ClassInfo, block: u32) -> (u32, u32) {
        let runs = divided(block, info.blocks_reciprocal);
        (self.end() - (runs + 1) * info.slabs, block - runs * info.blocks)
    }
}

/// A cursor's words, in their own cache sector; in large heaps, in their own cache line.
#[repr(C, align(32))]
#[derive(Debug)]
pub struct Cursor {
    pub(super) span: AtomicU64,
    /// Searches for memory begun by groups that found none here.
    pub(super) searches_begun: AtomicU64,
    /// Twice the number of those that have ended, and 1 if the last found none.
    pub(super) scan_result: AtomicU64,
    /// Runs of the last span that was stored in place of one that was used up. A hint.
    pub(super) runs: AtomicU64,
}

impl Cursor {
    #[cfg(not(target_arch = "nvptx64"))]
    /// A cursor with this span.
    pub fn new(span: Span) -> Self {
        let [searches_begun, scan_result, runs] = [0; 3].map(AtomicU64::new);
        Cursor { span: AtomicU64::new(span.0), searches_begun, scan_result, runs }
    }

    /// Stores the next span, for who owes it, behind a release of what it rests on.
    #[inline(always)]
    pub(super) fn install(&self, next: Span) {
        STORE_SPAN.delay();
        if NATIVE_LAYOUT {
            self.span.store_relaxed(next.0);
        } else {
            // The same to all who subtract. Of a store, loom would let subtractions go on as if it were not there.
            self.span.swap_relaxed(next.0);
        }
    }

    /// Its current span.
    pub fn span(&self) -> Span {
        Span(self.span.load_relaxed())
    }

    #[cfg(not(target_arch = "nvptx64"))]
    /// The in-memory representation for device memory, for the host to write.
    pub fn to_words(&self) -> [u64; 4] {
        [&self.span, &self.searches_begun, &self.scan_result, &self.runs].map(AtomicU64::load_relaxed)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    /// Decodes the representation in device memory, which the host has read.
    pub fn from_words(words: [u64; 4]) -> Self {
        let [span, searches_begun, scan_result, runs] = words.map(AtomicU64::new);
        Cursor { span, searches_begun, scan_result, runs }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::class::SizeClass;
    use super::super::layout::HeapLayout;
    use super::*;

    #[test]
    fn a_span_is_handed_out_from_its_start_and_crossed_once() {
        let mut word = Span::new(7, 100).0;
        let mut take = |n: u32| {
            let old = Span(word);
            word -= u64::from(n);
            (old.outcome(n), old.signed_left())
        };
        assert_eq!(take(60), (Outcome::Got, 100));
        assert_eq!(take(32), (Outcome::Got, 40));
        assert_eq!(take(32), (Outcome::Crossed, 8));
        assert_eq!(take(1), (Outcome::Behind, -24));
    }

    #[test]
    fn the_first_blocks_are_in_the_first_run() {
        let info = HeapLayout::new(8 << 30, 132).unwrap().class(SizeClass::of(8192));
        let span = Span::new(10 * info.slabs, 4 * info.blocks);
        assert_eq!(span.place(&info, 4 * info.blocks - 1), (6 * info.slabs, info.blocks - 1));
        assert_eq!(span.place(&info, 0), (9 * info.slabs, 0));
    }

    #[test]
    fn a_dry_cursor_stays_dry_however_many_ask() {
        let sunk = Span(Span::DRY.0 - (1 << 30));
        assert_eq!((sunk.outcome(1), sunk.has_sunk(), sunk.left()), (Outcome::Dry, true, Some(0)));
        assert_eq!(Span::UNUSED.outcome(1), Outcome::Crossed);
    }
}
