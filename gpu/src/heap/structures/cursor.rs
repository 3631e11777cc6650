//! Cursor: the blocks of one size class that an SM allocates next.
//!
//! ```text
//! 63    62       61  57 56  49 48   27 26         0
//! | dry | passed | slot | runs | end  | left + BIAS |   the span: `runs` runs before slab `end`
//! ```
//!
//! A warp takes `n` tickets with one atomic subtraction of `n` from `left`. They are for blocks
//! `left - n .. left` of the span, counted back from its end. Tickets below zero are for the blocks
//! of the next span of the cursor's ring, and beyond that for the spans after it, so no group waits
//! at the end of a span. The group that makes `left` negative by its subtraction *crosses* the end:
//! it adds the difference to the next span (`replace`), again if all tickets of that one were taken
//! meanwhile, until `left` is not negative any more. After `MOST_PASSED` spans
//! (`paths/alloc.rs`) it refills instead: it swaps in a span with all of its tickets (`restart`).
//!
//! A cursor is *aged* if it has tickets but no runs (`aged`): then lanes probe for single blocks.
//! The group that crosses the end of these tickets checks whether a span is better. The cursor is
//! then also dry, so that no group waits for this check.
//!
//! A ticket is a hint: a block belongs to the thread that clears its bit in the bitmap, and an
//! unused ticket loses no block. A number beyond the span is no ticket.
//!
//! - I1. While `left` is negative, no subtraction crosses the end: one group has already crossed
//!   it.
//! - I2. Only the group that crossed the end changes the span, until `left >= 0`.
//! - I3. `left > -BIAS`. Until the span is replaced, a lane takes at most 65 tickets of it for
//!   which it found no free block, and one in each of the 129 turns of an allocation that draw
//!   (`PATIENCE`), which take 1 ms or more. For the 2^18 lanes of a GPU that is 3/4 of `BIAS`, so
//!   one allocation by each of them may fail while a span is replaced.
//!
//! All operations are relaxed: the claim of the bits orders the use of the blocks. Wait-free.

use crate::heap::layout::MAX_SLABS;
use crate::heap::layout::class::{ClassInfo, MAX_BLOCKS, MAX_RUNS, divided};
use crate::heap::structures::orderings::STORE_SPAN;
use crate::sync::{AtomicU64, NATIVE_LAYOUT};

const LEFT_BITS: u32 = 27;
const LEFT: u64 = (1 << LEFT_BITS) - 1;
pub(in crate::heap) const BIAS: u64 = 1 << (LEFT_BITS - 1);
const END_BITS: u32 = 22;
const RUN_BITS: u32 = 8;
/// The end and the runs of a span, above `left`.
const RANGE: u32 = (1 << (END_BITS + RUN_BITS)) - 1;
const SLOT_SHIFT: u32 = LEFT_BITS + END_BITS + RUN_BITS;
pub(in crate::heap) const SLOT_BITS: u32 = 5;
const PASSED: u64 = 1 << 62;
const DRY: u64 = 1 << 63;

/// Tickets of an aged cursor. More than its lanes take in hundreds of kernels, because one group
/// that looks for a span delays the end of a kernel. Lanes that find fully free words end the aged
/// state earlier (`end_aged` in `paths/probe.rs`).
const AGED_TICKETS: i32 = if NATIVE_LAYOUT { 1 << 20 } else { 2 };

const _: () = assert!(MAX_BLOCKS as u64 == BIAS && MAX_RUNS == (1 << RUN_BITS) - 1);
const _: () = assert!(PASSED == 1 << (SLOT_SHIFT + SLOT_BITS) && DRY == PASSED << 1);
const _: () = assert!(MAX_SLABS < 1 << END_BITS);

/// Blocks of one or more consecutive runs of slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub(in crate::heap) u64);

impl Span {
    /// The state of a cursor before its first span.
    pub const UNUSED: Span = Span(BIAS);

    /// All blocks of `runs` runs from slab `first` on.
    pub(in crate::heap) const fn new(info: &ClassInfo, first: u32, runs: u32) -> Self {
        Span::of_range(info, runs << END_BITS | (first + runs * info.slabs))
    }

    /// All blocks of the span with this [`range`](Self::range), in slot 0.
    #[inline(always)]
    pub(in crate::heap) const fn of_range(info: &ClassInfo, range: u32) -> Self {
        let runs = range >> END_BITS;
        Span((range as u64) << LEFT_BITS | ((runs * info.blocks) as u64 + BIAS))
    }

    /// This span in slot `slot` of its ring.
    #[inline(always)]
    pub(in crate::heap) const fn in_slot(self, slot: u32) -> Self {
        Span(self.0 & !(((1 << SLOT_BITS) - 1) << SLOT_SHIFT) | (slot as u64) << SLOT_SHIFT)
    }

    /// This span with `left` blocks left.
    #[inline(always)]
    pub(in crate::heap) const fn with_left(self, left: i32) -> Self {
        Span(self.0 & !LEFT | (left + BIAS as i32) as u64)
    }

    /// This span after a search for other memory found none. Where lanes probe, only an
    /// [`aged`](Self::aged) cursor is dry.
    pub(in crate::heap) const fn dry(self) -> Self {
        Span(self.0 | DRY)
    }

    /// No span: lanes are to use single free blocks of the class before free slabs, or there is no
    /// memory for a span. Its tickets are for no block. The group that crosses their end decides
    /// again. Dry, so that others do not wait for it.
    pub(in crate::heap) const fn aged(self) -> Self {
        Span::UNUSED.in_slot(self.slot()).with_left(AGED_TICKETS).dry()
    }

    /// This span, marked so that no group crosses its end. Only in copies, never in memory.
    #[inline(always)]
    pub(in crate::heap) const fn passed(self) -> Self {
        Span(self.0 | PASSED)
    }

    /// The end and the number of runs, in one word.
    #[inline(always)]
    pub(in crate::heap) const fn range(self) -> u32 {
        (self.0 >> LEFT_BITS) as u32 & RANGE
    }

    /// The slab after the span.
    #[inline(always)]
    pub const fn end(self) -> u32 {
        (self.0 >> LEFT_BITS) as u32 & ((1 << END_BITS) - 1)
    }

    /// Number of runs; 0 for an unused span.
    #[inline(always)]
    pub const fn runs(self) -> u32 {
        (self.0 >> (LEFT_BITS + END_BITS)) as u32 & MAX_RUNS
    }

    /// The slot of the cursor's ring that has the span.
    #[inline(always)]
    pub(in crate::heap) const fn slot(self) -> u32 {
        (self.0 >> SLOT_SHIFT) as u32 & ((1 << SLOT_BITS) - 1)
    }

    /// Blocks left; negative by the number of tickets taken beyond the end.
    #[inline(always)]
    pub(in crate::heap) const fn left(self) -> i32 {
        (self.0 & LEFT) as i32 - BIAS as i32
    }

    /// The first slab.
    pub(in crate::heap) const fn first(self, info: &ClassInfo) -> u32 {
        self.end() - self.runs() * info.slabs
    }

    /// Whether all of the `wanted` tickets that a group took were for blocks of the cursor's span.
    #[inline(always)]
    pub(in crate::heap) const fn is_drawn(self, wanted: u32) -> bool {
        self.0 & PASSED == 0 && self.left() >= wanted as i32
    }

    /// Whether the cursor has tickets but no blocks: see [`aged`](Self::aged).
    #[inline(always)]
    pub(in crate::heap) const fn is_aged(self) -> bool {
        self.runs() == 0 && self.left() > 0
    }

    /// Whether the last search for another span found none.
    pub(in crate::heap) const fn is_dry(self) -> bool {
        self.0 & DRY != 0
    }

    /// Whether a group that took `wanted` tickets from this span crossed its end, and is to
    /// [replace](Cursor::replace) it (I1).
    #[inline(always)]
    pub(in crate::heap) const fn is_crossed_by(self, wanted: u32) -> bool {
        let left = self.left();
        self.0 & PASSED == 0 && left >= 0 && left < wanted as i32
    }

    /// The block for ticket `rank` of a group that took `wanted` tickets. If there is none, a
    /// number that is not less than the number of blocks of the span.
    #[inline(always)]
    pub(in crate::heap) const fn block(self, wanted: u32, rank: u32) -> u32 {
        (self.left() - wanted as i32 + rank as i32) as u32
    }

    /// Whether ticket `rank` of a group that took `wanted` tickets is beyond the end of the span.
    #[inline(always)]
    pub(in crate::heap) const fn ends_before(self, wanted: u32, rank: u32) -> bool {
        (self.block(wanted, rank) as i32) < 0
    }

    /// The number of blocks of the span.
    #[inline(always)]
    pub(in crate::heap) const fn blocks(self, info: &ClassInfo) -> u32 {
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

    /// The current span.
    pub fn span(&self) -> Span {
        Span(self.0.load_relaxed())
    }

    /// Takes `wanted` tickets. Returns the span as it was.
    #[inline(always)]
    pub(in crate::heap) fn take(&self, wanted: u32) -> Span {
        Span(self.0.sub_relaxed(wanted.into()))
    }

    /// Takes tickets that the caller does not use, if no group took any since the span was `seen`.
    /// Returns whether it did.
    pub(in crate::heap) fn skip(&self, seen: Span, tickets: u32) -> bool {
        self.0.cas_relaxed(seen.0, seen.0 - u64::from(tickets)).is_ok()
    }

    /// Replaces the span that was `seen` by `next`, for the group that crossed its end (I2).
    /// Tickets taken meanwhile are for `next`. Returns whether `left >= 0` again. Otherwise the
    /// group must replace `next`, too.
    #[inline(always)]
    pub(in crate::heap) fn replace(&self, seen: Span, next: Span) -> bool {
        STORE_SPAN.delay();
        let old = Span(self.0.add_relaxed(next.0.wrapping_sub(seen.with_left(0).0)));
        old.left() + next.left() >= 0
    }

    /// Starts a span with all of its tickets, for the group that crossed the end of the last one
    /// (I2). Tickets taken meanwhile are for no block, or for blocks with tickets taken again.
    pub(in crate::heap) fn restart(&self, next: Span) {
        STORE_SPAN.delay();
        self.0.swap_relaxed(next.0);
    }

    #[cfg(not(target_arch = "nvptx64"))]
    /// The in-memory representation for device memory.
    pub fn to_word(&self) -> u64 {
        self.0.load_relaxed()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
