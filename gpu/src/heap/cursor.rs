//! Cursor: the blocks of one size class that an SM allocates next.
//!
//! ```text
//! 63   54 53     32 31              0
//! | runs | end     | left + BIAS    |   the span: `runs` runs before slab `end`; `left` of its blocks
//! ```
//!
//! A warp takes `n` blocks with one atomic subtraction of `n` from `left`. If `left >= n`, its
//! ticket is for blocks `left - n .. left` of the span, counted back from its end. Otherwise it must
//! refill or wait. A ticket is a hint: a block belongs to the thread that clears its bit in the
//! bitmap, and nothing is lost with a ticket that is not used.
//!
//! - I1. At most one group per span is told [`Crossed`](Outcome::Crossed): the one that took `left`
//!   below zero. It installs the next span, or none. No other group stores to the word.
//!
//! All operations are relaxed: the claim of the bits orders what a ticket leads to.

use super::STORE_SPAN;
use super::class_info::{ClassInfo, divided};
use crate::sync::{AtomicU64, NATIVE_LAYOUT};

const BIAS: u64 = 1 << 31;
const END_BITS: u32 = 22;
/// The most runs of a span.
pub(super) const MAX_RUNS: u32 = (1 << (32 - END_BITS)) - 1;

/// The outcome of a subtraction for the group that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All tickets are for blocks.
    Enough,
    /// The first or only some tickets are for blocks. The group must install the next span.
    Crossed,
    /// No ticket is for a block, and another group is looking for the next span.
    Behind,
    /// No ticket is for a block: the last search found no span.
    Dry,
}

/// Blocks of one or more consecutive runs of slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub(super) u64);

impl Span {
    /// Before the first span.
    pub const UNUSED: Span = Span::of(0, 0, 0);
    /// None was found.
    pub(super) const DRY: Span = Span::of(0, 1, 0);

    const fn of(end: u32, runs: u32, left: u32) -> Self {
        Span(((runs << END_BITS | end) as u64) << 32 | (left as u64 + BIAS))
    }

    /// All blocks of `runs` runs from slab `first` on.
    #[inline(always)]
    pub(super) const fn new(info: &ClassInfo, first: u32, runs: u32) -> Self {
        Span::of(first + runs * info.slabs, runs, runs * info.blocks)
    }

    /// The slab after the span.
    #[inline(always)]
    pub const fn end(self) -> u32 {
        (self.0 >> 32) as u32 & ((1 << END_BITS) - 1)
    }

    /// Runs of the span; none of an unused or a dry one.
    #[inline(always)]
    pub const fn runs(self) -> u32 {
        if self.end() == 0 { 0 } else { (self.0 >> (32 + END_BITS)) as u32 }
    }

    /// Blocks left; negative by the number of tickets for none.
    #[inline(always)]
    pub(super) const fn left(self) -> i32 {
        (self.0 as u32 ^ BIAS as u32) as i32
    }

    #[inline(always)]
    pub(super) const fn is_dry(self) -> bool {
        self.0 >> 32 == Span::DRY.0 >> 32
    }

    /// The outcome for a group that subtracted `wanted` from this span.
    #[inline(always)]
    pub(super) const fn outcome(self, wanted: u32) -> Outcome {
        let left = self.left();
        if left >= wanted as i32 {
            Outcome::Enough
        } else if left >= 0 {
            Outcome::Crossed
        } else if self.is_dry() {
            Outcome::Dry
        } else {
            Outcome::Behind
        }
    }

    /// The run of block `block` of the span, and the number of the block in the run.
    #[inline(always)]
    pub const fn place(self, info: &ClassInfo, block: u32) -> (u32, u32) {
        let runs = divided(block, info.blocks_reciprocal);
        (self.end() - (runs + 1) * info.slabs, block - runs * info.blocks)
    }
}

/// The word of a cursor.
#[repr(transparent)]
#[derive(Debug)]
pub struct Cursor(AtomicU64);

impl Cursor {
    #[cfg(not(target_arch = "nvptx64"))]
    /// A cursor with this span.
    pub fn new(span: Span) -> Self {
        Cursor(AtomicU64::new(span.0))
    }

    /// Its current span.
    pub fn span(&self) -> Span {
        Span(self.0.load_relaxed())
    }

    /// Subtracts `wanted` blocks. Returns the span as it was.
    #[inline(always)]
    pub(super) fn take(&self, wanted: u32) -> Span {
        Span(self.0.sub_relaxed(wanted.into()))
    }

    /// Installs the next span, for the group that crossed the last one (I1).
    #[inline(always)]
    pub(super) fn install(&self, next: Span) {
        STORE_SPAN.delay();
        if NATIVE_LAYOUT {
            self.0.store_relaxed(next.0);
        } else {
            // Under loom, subtractions after a store could continue the values before it.
            self.0.swap_relaxed(next.0);
        }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    /// The in-memory representation for device memory.
    pub fn to_word(&self) -> u64 {
        self.0.load_relaxed()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::class::SizeClass;
    use super::super::layout::HeapLayout;
    use super::*;

    fn info(bytes: u32) -> ClassInfo {
        HeapLayout::new(8 << 30, 132).unwrap().class(SizeClass::of(bytes))
    }

    #[test]
    fn a_span_is_crossed_once() {
        let info = info(8192);
        let cursor = Cursor::new(Span::new(&info, 7 * info.slabs, 1));
        let take = |n: u32| {
            let old = cursor.take(n);
            (old.outcome(n), old.left(), old.end(), old.runs())
        };
        let end = 8 * info.slabs;
        assert_eq!(take(108), (Outcome::Enough, 128, end, 1));
        assert_eq!(take(12), (Outcome::Enough, 20, end, 1));
        assert_eq!(take(32), (Outcome::Crossed, 8, end, 1));
        assert_eq!(take(1), (Outcome::Behind, -24, end, 1));
        assert_eq!(take(1), (Outcome::Behind, -25, end, 1));
    }

    #[test]
    fn the_end_of_a_span_is_crossed_by_the_next_group() {
        let info = info(8192);
        let cursor = Cursor::new(Span::new(&info, 0, 1));
        assert_eq!(cursor.take(info.blocks).outcome(info.blocks), Outcome::Enough);
        assert_eq!([1, 1].map(|n| cursor.take(n).outcome(n)), [Outcome::Crossed, Outcome::Behind]);
    }

    #[test]
    fn the_first_blocks_are_in_the_first_run() {
        let info = info(8192);
        let span = Span::new(&info, 6 * info.slabs, 4);
        assert_eq!(span.place(&info, 4 * info.blocks - 1), (6 * info.slabs, info.blocks - 1));
        assert_eq!(span.place(&info, 0), (9 * info.slabs, 0));
    }

    #[test]
    fn cursors_without_a_span() {
        assert_eq!([Span::UNUSED, Span::DRY].map(|span| span.outcome(1)), [Outcome::Crossed; 2]);
        assert_eq!([Span::UNUSED, Span::DRY].map(Span::runs), [0; 2]);
        let behind = |span: Span| Span(span.0 - 40).outcome(1);
        assert_eq!([Span::UNUSED, Span::DRY].map(behind), [Outcome::Behind, Outcome::Dry]);
    }
}
