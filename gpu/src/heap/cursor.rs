//! Cursor: the blocks of one size class that an SM allocates next.
//!
//! ```text
//! 63     62    61   54 53   32 31              0
//! | busy | dry | runs | end   | left + BIAS    |   the span: `runs` runs before slab `end`
//! ```
//!
//! A warp takes `n` tickets with one atomic subtraction of `n` from `left`. They are for blocks
//! `left - n .. left` of the span, counted back from its end. The span is a ring: the group that
//! takes `left` below zero adds the number of blocks of the span, and the tickets below zero are
//! for the blocks of that next lap. So no group waits at the end of a span.
//!
//! A ticket is a hint: a block belongs to the thread that clears its bit in the bitmap, and nothing
//! is lost with a ticket that is not used. So `left` may have any value. A number beyond the span
//! is no ticket.
//!
//! - I1. A span is replaced only by the group that set `busy`, which the new word clears.
//!
//! All operations are relaxed: the claim of the bits orders what a ticket leads to.

use super::STORE_SPAN;
use super::class_info::{ClassInfo, divided};
use crate::sync::{AtomicU64, NATIVE_LAYOUT};

const BIAS: u64 = 1 << 31;
const END_BITS: u32 = 22;
const RUN_BITS: u32 = 8;
const BUSY: u64 = 1 << 63;
const DRY: u64 = 1 << 62;
/// The most runs of a span.
pub(super) const MAX_RUNS: u32 = (1 << RUN_BITS) - 1;

/// Blocks of one or more consecutive runs of slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub(super) u64);

/// The result of [`Cursor::lock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lock {
    /// The caller may replace the span.
    Taken,
    /// Another group is replacing the span.
    Busy,
    /// Another group has replaced the span.
    Replaced,
}

impl Span {
    /// Before the first span.
    pub const UNUSED: Span = Span::of(0, 0, 0);

    const fn of(end: u32, runs: u32, left: u32) -> Self {
        Span(((runs << END_BITS | end) as u64) << 32 | (left as u64 + BIAS))
    }

    /// All blocks of `runs` runs from slab `first` on.
    #[inline(always)]
    pub(super) const fn new(info: &ClassInfo, first: u32, runs: u32) -> Self {
        Span::of(first + runs * info.slabs, runs, runs * info.blocks)
    }

    /// The same span from its first block on. No search found another one.
    pub(super) const fn dry(self, info: &ClassInfo) -> Self {
        Span(Span::of_range(info, self.range()).0 | DRY)
    }

    /// All blocks of the span with this [`range`](Self::range).
    #[inline(always)]
    pub(super) const fn of_range(info: &ClassInfo, range: u32) -> Self {
        let runs = range >> END_BITS;
        Span((range as u64) << 32 | ((runs * info.blocks) as u64 + BIAS))
    }

    /// Its end and its number of runs, in one word.
    #[inline(always)]
    pub(super) const fn range(self) -> u32 {
        (self.0 >> 32) as u32 & !((BUSY | DRY) >> 32) as u32
    }

    /// The slab after the span.
    #[inline(always)]
    pub const fn end(self) -> u32 {
        (self.0 >> 32) as u32 & ((1 << END_BITS) - 1)
    }

    /// Runs of the span; none of an unused one.
    #[inline(always)]
    pub const fn runs(self) -> u32 {
        (self.0 >> (32 + END_BITS)) as u32 & MAX_RUNS
    }

    /// Blocks left of this lap; negative by the number of tickets for the next one.
    #[inline(always)]
    pub(super) const fn left(self) -> i32 {
        (self.0 as u32 ^ BIAS as u32) as i32
    }

    /// Whether a group is replacing the span.
    pub(super) const fn is_busy(self) -> bool {
        self.0 & BUSY != 0
    }

    /// The first slab.
    pub(super) const fn first(self, info: &ClassInfo) -> u32 {
        self.end() - self.runs() * info.slabs
    }

    /// Whether the last search for another span found none.
    pub(super) const fn is_dry(self) -> bool {
        self.0 & DRY != 0
    }

    /// Whether a group that subtracted `wanted` from this span began the next lap.
    #[inline(always)]
    pub(super) const fn is_crossed_by(self, wanted: u32) -> bool {
        let left = self.left();
        left >= 0 && left < wanted as i32
    }

    /// The block for the ticket `rank` of a group that took `wanted`. At least the number of blocks
    /// of the span if there is none.
    #[inline(always)]
    pub(super) const fn block(self, info: &ClassInfo, wanted: u32, rank: u32) -> u32 {
        let block = self.left() - wanted as i32 + rank as i32;
        (if block < 0 { block + self.blocks(info) as i32 } else { block }) as u32
    }

    /// The number of blocks of the span.
    #[inline(always)]
    pub(super) const fn blocks(self, info: &ClassInfo) -> u32 {
        self.runs() * info.blocks
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

    /// Begins the next lap of a span of so many blocks, for the group that crossed its end.
    #[inline(always)]
    pub(super) fn begin_lap(&self, blocks: u32) {
        self.0.add_relaxed(blocks.into());
    }

    /// Asks to replace the span that the caller has seen (I1).
    pub(super) fn lock(&self, seen: Span) -> Lock {
        let old = self.0.or_relaxed(BUSY);
        if old & BUSY != 0 {
            return Lock::Busy;
        }
        if (old ^ seen.0) >> 32 == 0 {
            return Lock::Taken;
        }
        self.0.and_relaxed(!BUSY);
        Lock::Replaced
    }

    /// Takes blocks of a cursor `from` which no group took any meanwhile.
    pub(super) fn skip(&self, from: Span, blocks: u32) {
        if blocks > 0 {
            let _ = self.0.cas_relaxed(from.0, from.0 - u64::from(blocks));
        }
    }

    /// Replaces the span, for the group that has locked the cursor (I1).
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
    fn a_span_is_a_ring() {
        let info = info(2048);
        let cursor = Cursor::new(Span::new(&info, 7 * info.slabs, 1));
        let take = |n: u32| {
            let old = cursor.take(n);
            if old.is_crossed_by(n) {
                cursor.begin_lap(old.blocks(&info));
            }
            (old.is_crossed_by(n), old.block(&info, n, 0), old.block(&info, n, n - 1))
        };
        assert_eq!((info.blocks, cursor.span().end(), cursor.span().runs()), (128, 8 * info.slabs, 1));
        assert_eq!(take(108), (false, 20, 127));
        assert_eq!(take(12), (false, 8, 19));
        assert_eq!(take(32), (true, 104, 7));
        assert_eq!(take(1), (false, 103, 103));
        assert_eq!(take(103), (false, 0, 102));
        assert_eq!(take(1), (true, 127, 127));
    }

    #[test]
    fn there_are_tickets_for_one_more_lap() {
        let info = info(2048);
        let span = |left: i32| Span(Span::new(&info, 0, 1).0.wrapping_add_signed((left - 128).into()));
        assert_eq!(span(-127).block(&info, 1, 0), 0);
        for left in [-128, -1000, 200, 1000] {
            assert!(span(left).block(&info, 1, 0) >= 128, "{left}");
        }
        assert!(Span::UNUSED.block(&info, 1, 0) >= Span::UNUSED.blocks(&info));
    }

    #[test]
    fn the_first_blocks_are_in_the_first_run() {
        let info = info(2048);
        let span = Span::new(&info, 6 * info.slabs, 4);
        assert_eq!(span.place(&info, 4 * info.blocks - 1), (6 * info.slabs, info.blocks - 1));
        assert_eq!(span.place(&info, 0), (9 * info.slabs, 0));
    }

    #[test]
    fn one_group_replaces_a_span() {
        let info = info(64);
        let span = Span::new(&info, 0, 3);
        let cursor = Cursor::new(span);
        let seen = cursor.take(5);
        assert_eq!([0; 2].map(|_| cursor.lock(seen)), [Lock::Taken, Lock::Busy]);
        cursor.install(span.dry(&info));
        assert_eq!((cursor.lock(seen), cursor.span().is_busy()), (Lock::Replaced, false));
        assert!(cursor.span().is_dry() && cursor.span().blocks(&info) == span.blocks(&info));
    }
}
