//! Cursor: where an SM allocates blocks of one size class next.
//!
//! ```text
//! 63    62 61  54 53  32 31  28 27             0
//! | dry | 0 | runs | end | slot | left + BIAS    |   in the span of slot `slot` of the ring
//! ```
//!
//! A warp takes `n` tickets with one atomic subtraction of `n` from `left`. They are for blocks
//! `left - n .. left` of the span, counted back from its end. Tickets below zero are for the span
//! that follows in the [ring](super::ring), so no group waits at the end of a span.
//!
//! A ticket is a hint: a block belongs to the thread that clears its bit in the bitmap, and nothing
//! is lost with a ticket that is not used.
//!
//! - I1. Of each lap over a span one group [crosses](Position::is_crossed_by) the end: the one that
//!   takes `left` below zero. It alone moves the cursor on, which makes `left` positive again, and
//!   it alone writes the ring until then.
//!
//! All operations are relaxed: the claim of the bits orders what a ticket leads to.

use super::STORE_SPAN;
use super::class_info::ClassInfo;
use super::ring::{SLOTS, Span};
use crate::sync::{AtomicU64, NATIVE_LAYOUT};

const LEFT_BITS: u32 = 28;
const BIAS: u64 = 1 << (LEFT_BITS - 1);
const DRY: u64 = 1 << 63;

const _: () = assert!(SLOTS == 1 << (32 - LEFT_BITS));

/// The word of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(pub(super) u64);

impl Position {
    /// Before the first span.
    pub const UNUSED: Position = Position::new(Span::NONE, 0, 0);

    /// With `left` blocks left of a span.
    #[inline(always)]
    const fn new(span: Span, slot: u32, left: u32) -> Self {
        Position((span.0 as u64) << 32 | (slot << LEFT_BITS) as u64 | (left as u64 + BIAS))
    }

    #[inline(always)]
    pub const fn span(self) -> Span {
        Span((self.0 >> 32) as u32 & !(DRY >> 32) as u32)
    }

    /// The slot of the span in the ring.
    #[inline(always)]
    pub(super) const fn slot(self) -> u32 {
        self.0 as u32 >> LEFT_BITS
    }

    /// Blocks left of the span; negative by the number of tickets for the next one.
    #[inline(always)]
    pub(super) const fn left(self) -> i32 {
        (self.0 as u32 & ((1 << LEFT_BITS) - 1)) as i32 - BIAS as i32
    }

    /// Whether the last search for another span found none.
    #[inline(always)]
    pub(super) const fn is_dry(self) -> bool {
        self.0 & DRY != 0
    }

    /// Whether a group that subtracted `wanted` here is to move the cursor on (I1).
    #[inline(always)]
    pub(super) const fn is_crossed_by(self, wanted: u32) -> bool {
        let left = self.left();
        left >= 0 && left < wanted as i32
    }

    /// Whether no ticket drawn since is for another lap or span.
    pub(super) const fn is_before(self, later: Position) -> bool {
        (self.0 ^ later.0) >> LEFT_BITS == 0 && later.left() <= self.left()
    }
}

/// The word.
#[repr(transparent)]
#[derive(Debug)]
pub struct Cursor(AtomicU64);

impl Cursor {
    #[cfg(not(target_arch = "nvptx64"))]
    /// A cursor at this position.
    pub fn new(position: Position) -> Self {
        Cursor(AtomicU64::new(position.0))
    }

    pub fn position(&self) -> Position {
        Position(self.0.load_relaxed())
    }

    /// Subtracts `wanted` blocks. Returns the position before.
    #[inline(always)]
    pub(super) fn take(&self, wanted: u32) -> Position {
        Position(self.0.sub_relaxed(wanted.into()))
    }

    /// Takes the blocks down to `left` of the span, unless another group took some meanwhile.
    pub(super) fn skip_to(&self, from: Position, left: u32) {
        let to = Position(from.0 - (from.left() as u32 - left) as u64);
        let _ = self.0.cas_relaxed(from.0, to.0);
    }

    /// Moves on to the next span, for the group that crossed the end of the last one (I1). Tickets
    /// that others drew for the next span remain valid, up to its number of blocks.
    #[inline(always)]
    pub(super) fn advance(&self, crossed: Position, next: Span, slot: u32, info: &ClassInfo) {
        let blocks = next.blocks(info);
        // An addition, as subtractions by others go on. It changes all parts of the word.
        let end = Position::new(crossed.span(), crossed.slot(), 0).0 | crossed.0 & DRY;
        STORE_SPAN.delay();
        let old = Position(self.0.add_relaxed(Position::new(next, slot, blocks).0.wrapping_sub(end)));
        if old.left() + (blocks as i32) < 0 {
            // Nobody else would cross.
            self.restart(next, slot, info);
        }
    }

    /// The same without regard to tickets that others drew.
    #[cold]
    #[inline(never)]
    fn restart(&self, next: Span, slot: u32, info: &ClassInfo) {
        self.set(Position::new(next, slot, next.blocks(info)));
    }

    /// The same if no search found another span.
    pub(super) fn set_dry(&self, next: Span, slot: u32, info: &ClassInfo) {
        self.set(Position(Position::new(next, slot, next.blocks(info)).0 | DRY));
    }

    fn set(&self, position: Position) {
        if NATIVE_LAYOUT {
            self.0.store_relaxed(position.0);
        } else {
            // Under loom, subtractions after a store could continue the values before it.
            self.0.swap_relaxed(position.0);
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
    fn the_end_of_a_span_is_crossed_once() {
        let info = info(2048);
        let (first, second) = (Span::new(&info, 0, 1), Span::new(&info, 64, 2));
        let cursor = Cursor::new(Position::new(first, 3, info.blocks));
        let take = |n: u32| {
            let old = cursor.take(n);
            (old.is_crossed_by(n), old.left(), old.span(), old.slot())
        };
        assert_eq!(take(108), (false, 128, first, 3));
        assert_eq!(take(12), (false, 20, first, 3));
        let crossed = cursor.position();
        assert_eq!(take(32), (true, 8, first, 3));
        assert_eq!(take(1), (false, -24, first, 3));
        cursor.advance(crossed, second, 0, &info);
        assert_eq!(take(231), (false, 256 - 25, second, 0));
        assert_eq!(take(1), (true, 0, second, 0));
    }

    #[test]
    fn a_span_shorter_than_the_tickets_for_it_starts_again() {
        let info = info(2048);
        let span = Span::new(&info, 0, 1);
        let cursor = Cursor::new(Position::UNUSED);
        let crossed = cursor.take(500);
        assert!(crossed.is_crossed_by(500));
        cursor.advance(crossed, span, 5, &info);
        assert_eq!((cursor.position().left(), cursor.position().slot()), (128, 5));
    }

    #[test]
    fn a_dry_cursor_keeps_its_span() {
        let info = info(64);
        let (span, next) = (Span::new(&info, 0, 3), Span::new(&info, 7, 2));
        let cursor = Cursor::new(Position::UNUSED);
        cursor.set_dry(span, 2, &info);
        let dry = cursor.position();
        assert!(dry.is_dry() && dry.span() == span && dry.left() == 3 * info.blocks as i32);
        cursor.skip_to(dry, 5);
        cursor.skip_to(dry, 7);
        let crossed = cursor.take(6);
        assert!(crossed.is_crossed_by(6) && dry.is_before(crossed) && !crossed.is_before(dry));
        cursor.advance(crossed, next, 1, &info);
        let at = cursor.position();
        assert!(!at.is_dry() && at.span() == next && at.left() == 2 * info.blocks as i32 - 1);
    }
}
