//! Ring: all spans of a cursor.
//!
//! A cursor goes through one span again and again. When no block of it is free any more, the group
//! that has locked the cursor goes on with another span of the ring. Only if all of them are used
//! up, it adds a new one. So a ring has grown to what its SM needs after a few kernels, and then
//! allocation searches for nothing.
//!
//! - I1. Slots are written only by the group that has locked the cursor.
//! - I2. All spans are of the cursor's class.
//!
//! Spans are hints: their runs may have been retired since. All operations are relaxed.

use super::class::SizeClass;
use super::class_info::ClassInfo;
use super::cursor::Span;
use super::runs::Runs;
use crate::sync::AtomicU32;

/// Spans of a ring.
const SLOTS: usize = 15;

/// The upper halves of the words of the spans. Initially all are zero.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Ring {
    spans: [AtomicU32; SLOTS],
    /// 1 after a search for many free slabs in a row found none.
    settled: AtomicU32,
}

impl Ring {
    #[cfg(not(target_arch = "nvptx64"))]
    /// A ring without spans.
    pub fn new() -> Self {
        Ring { spans: core::array::from_fn(|_| AtomicU32::new(0)), settled: AtomicU32::new(0) }
    }

    /// Whether the cursor goes on with the spans that it has, instead of a larger one.
    pub(super) fn is_settled(&self) -> bool {
        self.settled.load_relaxed() != 0
    }

    pub(super) fn settle(&self) {
        self.settled.store_relaxed(1);
    }

    /// The spans, all of their blocks left.
    pub(super) fn spans(&self, info: &ClassInfo) -> impl Iterator<Item = Span> {
        self.spans.iter().map(|slot| Span::of_range(info, slot.load_relaxed()))
    }

    /// The span after `last`, if its first run has a fully free word: in most cases the one that was
    /// not used for the longest time.
    pub(super) fn next_free(
        &self,
        runs: Runs<'_>,
        class: SizeClass,
        info: &ClassInfo,
        last: Span,
    ) -> Option<Span> {
        let (mut next, mut is_after) = (Span::UNUSED, true);
        for span in self.spans(info) {
            if is_after && span.runs() > 0 {
                next = span;
            }
            is_after = span.range() == last.range();
        }
        let first = next.first(info);
        let is_free = next.range() != last.range()
            && next.runs() > 0
            && runs.free_words(first) > 0
            && runs.starts(first, class, info.slabs);
        if is_free { Some(next) } else { None }
    }

    /// The largest span other than `last` with a fully free word in its first run.
    pub(super) fn largest_free(
        &self,
        runs: Runs<'_>,
        class: SizeClass,
        info: &ClassInfo,
        last: Span,
    ) -> Option<Span> {
        let mut found = None;
        let mut most = 0;
        for span in self.spans(info) {
            let first = span.first(info);
            if span.runs() > most
                && span.range() != last.range()
                && runs.free_words(first) > 0
                && runs.starts(first, class, info.slabs)
            {
                (found, most) = (Some(span), span.runs());
            }
        }
        found
    }

    /// Adds a span: in an unused slot, in place of a span whose runs were retired, or of the
    /// smallest one.
    pub(super) fn add(&self, runs: Runs<'_>, class: SizeClass, info: &ClassInfo, new: Span) {
        let (mut slot, mut least) = (&self.spans[0], u32::MAX);
        for (candidate, span) in self.spans.iter().zip(self.spans(info)) {
            let is_used = span.runs() > 0 && runs.starts(span.first(info), class, info.slabs);
            let size = if is_used { span.runs() } else { 0 };
            if size < least {
                (slot, least) = (candidate, size);
            }
        }
        slot.store_relaxed(new.range());
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Default for Ring {
    fn default() -> Self {
        Ring::new()
    }
}
