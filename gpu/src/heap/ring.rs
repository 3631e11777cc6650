//! Ring: the spans that a cursor goes through again and again.
//!
//! ```text
//! slot  0         1         2        3 ...
//! | span    | span    | span   | none |        3 is followed by 0
//! ```
//!
//! Blocks are allocated from one span after the other; the next lap finds those that were freed
//! meanwhile. A ring has grown to what its SM needs when all blocks of the next span are free as
//! often as the cursor comes to it. Then allocation searches for nothing.
//!
//! - I1. Slots are written only by the group that crossed the end of the cursor's span.
//! - I2. The slots in use are the first ones. All spans are of the cursor's class.
//!
//! Spans are hints: their runs may have been retired since. All operations are relaxed.

use super::class_info::{ClassInfo, divided};
use crate::sync::AtomicU32;

const END_BITS: u32 = 22;
const RUN_BITS: u32 = 8;
/// The most runs of a span.
pub(super) const MAX_RUNS: u32 = (1 << RUN_BITS) - 1;
/// Spans of a ring.
pub(super) const SLOTS: u32 = 16;

/// Consecutive runs of slabs: so many before slab `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub(super) u32);

impl Span {
    pub(super) const NONE: Span = Span(0);

    /// `runs` runs from slab `first` on.
    pub(super) const fn new(info: &ClassInfo, first: u32, runs: u32) -> Self {
        Span(runs << END_BITS | (first + runs * info.slabs))
    }

    /// The slab after the span.
    #[inline(always)]
    pub const fn end(self) -> u32 {
        self.0 & ((1 << END_BITS) - 1)
    }

    #[inline(always)]
    pub const fn runs(self) -> u32 {
        self.0 >> END_BITS
    }

    /// The number of blocks.
    #[inline(always)]
    pub(super) const fn blocks(self, info: &ClassInfo) -> u32 {
        self.runs() * info.blocks
    }

    /// The first slab of the first run.
    #[inline(always)]
    pub(super) const fn first(self, info: &ClassInfo) -> u32 {
        self.end() - self.runs() * info.slabs
    }

    /// The run of block `block` of the span, counted back from its end, and the number of the block
    /// in the run.
    #[inline(always)]
    pub const fn place(self, info: &ClassInfo, block: u32) -> (u32, u32) {
        let runs = divided(block, info.blocks_reciprocal);
        (self.end() - (runs + 1) * info.slabs, block - runs * info.blocks)
    }
}

/// The spans of a cursor. Initially all words are zero.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Ring([AtomicU32; SLOTS as usize]);

impl Ring {
    #[cfg(not(target_arch = "nvptx64"))]
    /// A ring without spans.
    pub fn new() -> Self {
        Ring(core::array::from_fn(|_| AtomicU32::new(0)))
    }

    #[inline(always)]
    fn word(&self, slot: u32) -> &AtomicU32 {
        &self.0[(slot % SLOTS) as usize]
    }

    #[inline(always)]
    pub fn span(&self, slot: u32) -> Span {
        Span(self.word(slot).load_relaxed())
    }

    /// The span after a slot, and its slot.
    #[inline(always)]
    pub fn after(&self, slot: u32) -> (Span, u32) {
        let (next, first) = (self.span(slot + 1), self.span(0));
        if next == Span::NONE || slot + 1 == SLOTS { (first, 0) } else { (next, slot + 1) }
    }

    pub fn set(&self, slot: u32, span: Span) {
        self.word(slot).store_relaxed(span.0);
    }

    /// The number of slots in use, and that of all runs of their spans.
    pub fn size(&self) -> (u32, u32) {
        let (mut slots, mut runs) = (0, 0);
        for slot in 0..SLOTS {
            let span = self.span(slot);
            slots += (span != Span::NONE) as u32;
            runs += span.runs();
        }
        (slots, runs)
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Default for Ring {
    fn default() -> Self {
        Ring::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::class::SizeClass;
    use super::super::layout::HeapLayout;
    use super::*;

    #[test]
    fn the_last_span_is_followed_by_the_first() {
        let info = HeapLayout::new(8 << 30, 132).unwrap().class(SizeClass::of(8192));
        let (ring, span) = (Ring::new(), |i: u32| Span::new(&info, 16 * i, 1 + i));
        assert_eq!(ring.after(0), (Span::NONE, 0));
        for i in 0..SLOTS {
            ring.set(i, span(i));
            assert_eq!(ring.after(i), (span(0), 0));
            assert_eq!(ring.size(), (i + 1, (1..=i + 1).sum()));
        }
        assert_eq!(ring.after(4), (span(5), 5));
    }

    #[test]
    fn the_first_blocks_are_in_the_first_run() {
        let info = HeapLayout::new(8 << 30, 132).unwrap().class(SizeClass::of(8192));
        let span = Span::new(&info, 6 * info.slabs, 4);
        assert_eq!((span.first(&info), span.end(), span.runs()), (6 * info.slabs, 10 * info.slabs, 4));
        assert_eq!(span.place(&info, 4 * info.blocks - 1), (6 * info.slabs, info.blocks - 1));
        assert_eq!(span.place(&info, 0), (9 * info.slabs, 0));
    }
}
