//! Ring: all spans of a cursor.
//!
//! ```text
//! slot   0     1     2     3 ...
//!      | A  |  B  |  C  |  0  |      the cursor goes on from A to B, to C, and to A again
//! ```
//!
//! A cursor goes through its spans one after the other. When it finds no free blocks in them, the
//! group that crosses the end adds a span. So a ring has grown to what its SM needs after a few
//! kernels, and then allocation searches for nothing.
//!
//! - I1. Slots are written only by the group that crossed the end of the cursor's span.
//! - I2. Slots after an unused one are unused.
//!
//! Spans are hints: their runs may have been retired since. All operations are relaxed.

use super::class::SizeClass;
use super::class_info::ClassInfo;
use super::cursor::Span;
use super::runs::Runs;
use crate::sync::AtomicU32;

/// Spans of a ring.
const SLOTS: u32 = 16;
/// A span so many times as large as all others replaces them: each end of a span costs time.
const REPLACES: u32 = 4;

/// The [ranges](Span::range) of the spans; initially all are zero, which is unused.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Ring([AtomicU32; SLOTS as usize]);

/// The spans of a ring after the cursor's one.
pub(super) struct Survey {
    /// The next one with a free word.
    pub free: Option<Span>,
    /// Runs of all spans.
    pub runs: u32,
}

impl Ring {
    #[cfg(not(target_arch = "nvptx64"))]
    /// A ring without spans.
    pub fn new() -> Self {
        Ring(core::array::from_fn(|_| AtomicU32::new(0)))
    }

    #[inline(always)]
    fn slot(&self, slot: u32) -> &AtomicU32 {
        debug_assert!(slot < SLOTS);
        // SAFETY: the slot is less than `SLOTS`, by the callers.
        unsafe { self.0.get_unchecked(slot as usize) }
    }

    /// The spans, all of their blocks left.
    pub(super) fn spans(&self, info: &ClassInfo) -> impl Iterator<Item = Span> {
        (0..SLOTS).map(|slot| Span::of_range(info, self.slot(slot).load_relaxed()).in_slot(slot))
    }

    /// The span after that in slot `slot`; the same one if it is the only one.
    #[inline(always)]
    pub(super) fn after(&self, info: &ClassInfo, slot: u32) -> Span {
        let after = (slot + 1) % SLOTS;
        // Both loads at once.
        let (next, first) = (self.slot(after).load_relaxed(), self.slot(0).load_relaxed());
        let (slot, range) = if next == 0 { (0, first) } else { (after, next) };
        Span::of_range(info, range).in_slot(slot)
    }

    /// Looks at all spans, starting after that in slot `slot`.
    pub(super) fn survey(&self, runs: Runs<'_>, class: SizeClass, info: &ClassInfo, slot: u32) -> Survey {
        let mut found = Survey { free: None, runs: 0 };
        for i in 1..=SLOTS {
            let slot = (slot + i) % SLOTS;
            let span = Span::of_range(info, self.slot(slot).load_relaxed()).in_slot(slot);
            if span.runs() > 0 && runs.starts(span.first(info), class, info.slabs) {
                found.runs += span.runs();
                if found.free.is_none() && i < SLOTS && runs.free_words(span.first(info)) > 0 {
                    found.free = Some(span);
                }
            }
        }
        found
    }

    /// Adds a span: in an unused slot, in place of a span whose runs were retired, or of the
    /// smallest one. Returns it in its slot.
    pub(super) fn add(&self, runs: Runs<'_>, class: SizeClass, info: &ClassInfo, new: Span) -> Span {
        let (mut slot, mut least, mut total) = (0, u32::MAX, 0);
        for span in self.spans(info) {
            let is_used = span.runs() > 0 && runs.starts(span.first(info), class, info.slabs);
            let size = if is_used { span.runs() } else { 0 };
            total += size;
            if size < least {
                (slot, least) = (span.slot(), size);
            }
        }
        if new.runs() >= REPLACES * total {
            slot = 0;
            (1..SLOTS).for_each(|slot| self.slot(slot).store_relaxed(0));
        }
        self.slot(slot).store_relaxed(new.range());
        new.in_slot(slot)
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
    use super::super::layout::HeapLayout;
    use super::*;

    #[test]
    fn the_last_span_is_followed_by_the_first() {
        let info = HeapLayout::new(8 << 30, 132).unwrap().class(SizeClass::of(2048));
        let (ring, span) = (Ring::new(), |i: u32| Span::new(&info, 8 * i, i));
        assert_eq!(ring.after(&info, 0).runs(), 0);
        for i in 1..=SLOTS {
            ring.slot(i - 1).store_relaxed(span(i).range());
            assert_eq!(ring.after(&info, 0), span(i.min(2)).in_slot(u32::from(i > 1)));
            assert_eq!(ring.after(&info, i - 1), span(1));
        }
    }
}
