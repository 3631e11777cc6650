//! Audit: one walk over all metadata of a heap that no thread uses. It reports violated invariants
//! and the contents of every slab.
//!
//! The time is linear in the metadata: cursors and sets first, then slabs in address order. The
//! walk only reads.

mod slabs;
mod violation;
mod visitor;

pub use violation::{Defect, Invariant, Violation};
pub use visitor::{FreeSlab, LargeAudit, RunAudit, SpanAudit, Visitor};

use crate::heap::layout::bits::{WORD_BITS, low_bits};
use crate::heap::layout::class::SizeClass;
use crate::heap::layout::entry::Entry;
use crate::heap::structures::cursor::Span;
use crate::heap::structures::heap_core::HeapCore;
use crate::heap::structures::index_set::IndexSet;

impl HeapCore {
    /// Checks all metadata, and reports its contents and all violations to `visitor`. No thread may
    /// use the heap during the audit. Slabs from `present` on have no memory yet. Takes time linear
    /// in the metadata. The heap's memory is not accessed.
    pub(in crate::heap) fn audit(&self, present: u32, visitor: &mut impl Visitor) {
        let mut walk = Walk { heap: self, present, visitor };
        walk.moves();
        walk.classes();
        walk.sets();
        walk.slabs();
    }
}

struct Walk<'a, V> {
    heap: &'a HeapCore,
    present: u32,
    visitor: &'a mut V,
}

impl<V: Visitor> Walk<'_, V> {
    fn tell(&mut self, slab: Option<u32>, class: Option<SizeClass>, found: Defect) {
        self.visitor.violation(Violation { slab, class, found });
    }

    fn slab_is(&mut self, slab: u32, found: Defect) {
        self.tell(Some(slab), None, found);
    }

    fn entry(&self, slab: u32) -> Entry {
        Entry(self.heap.runs().entry(slab).load_relaxed())
    }

    fn moves(&mut self) {
        let open = self.heap.overview().common().open();
        if open != 0 {
            self.tell(None, None, Defect::MoveOpen { open });
        }
    }

    fn classes(&mut self) {
        for class in (0..self.heap.layout.classes).map(SizeClass) {
            if *self.heap.class(class) != self.heap.layout.class(class) {
                self.tell(None, Some(class), Defect::ClassTable);
            }
            let open = self.heap.overview().class(class).open();
            if open != 0 {
                self.tell(None, Some(class), Defect::MoveOpen { open });
            }
            for shard in 0..self.heap.layout.shards {
                let (cursor, ring) = (self.heap.cursor(class, shard), self.heap.ring(class, shard));
                let left = cursor.span().left();
                if left < 0 {
                    self.tell(None, Some(class), Defect::SpanNotReplaced { beyond: left.unsigned_abs() });
                }
                let mut spans = ring.spans(self.heap.class(class)).chain([cursor.span()]);
                if let Some(span) = spans.find(|span| span.end() > self.heap.layout.slabs) {
                    self.tell(None, Some(class), Defect::SpanOutside { end: span.end() });
                }
                self.spans(class, shard);
            }
        }
    }

    /// Visits the spans of a cursor. Its current span is normally in its ring.
    fn spans(&mut self, class: SizeClass, shard: u32) {
        let (current, ring) = (self.heap.cursor(class, shard).span(), self.heap.ring(class, shard));
        let info = self.heap.layout.class(class);
        let is_current = |span: Span| (span.slot(), span.range()) == (current.slot(), current.range());
        let only_cursor = !ring.spans(&info).any(is_current);
        for span in ring.spans(&info).chain(only_cursor.then_some(current)) {
            let slabs = span.runs() * info.slabs;
            if slabs > 0 && slabs <= span.end() && span.end() <= self.heap.layout.slabs {
                let (slab, is_current) = (span.first(&info), is_current(span));
                self.visitor.span(SpanAudit { class, shard, slab, slabs, is_current });
            }
        }
    }

    fn sets(&mut self) {
        let runs = self.heap.runs();
        self.set(self.heap.free_slabs().set, None, 0);
        self.set(runs.idle(), None, 0);
        for class in (0..self.heap.layout.classes).map(SizeClass) {
            self.set(runs.listed(), Some(class), self.heap.layout.run_index(class, 0) / WORD_BITS);
        }
        for set in [self.heap.free_slabs().set, runs.listed(), runs.idle()] {
            if let Some((level, word)) = set.unraised() {
                self.tell(None, None, Defect::NotRaised { level, word });
            }
        }
    }

    /// Checks that no slab after the last one is in a set. The set's slab 0 is in word `first`.
    fn set(&mut self, set: IndexSet, class: Option<SizeClass>, first: u32) {
        let last = self.heap.layout.slabs.div_ceil(WORD_BITS) - 1;
        let beyond = !low_bits(self.heap.layout.slabs - last * WORD_BITS);
        let bits = set.word(first + last).load_relaxed() & beyond;
        if bits != 0 {
            self.tell(None, class, Defect::SlabOutside { slab: last * WORD_BITS + bits.trailing_zeros() });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
