//! One walk over all metadata of a heap that no thread uses: what is broken, and what every slab holds.
//!
//! | number | what the metadata is held to |
//! |---|---|
//! | I1 | what a cursor has left is blocks of runs of its class, in no other cursor, and the class is noted as used |
//! | I2 | a hole is a block, and in no cursor |
//! | I5 | a slab is what its entry says: runs and allocations are whole, a free slab with memory is in the free set or in the rest of a partition, not in both, and no other slab is |
//! | I6 | bits and count of a slab without a class are zero, and so is the count where no run starts |
//! | I7 | a count is that of the bits, a run of holes is idle, another with holes is in its class' partial set |
//! | I8 | no cursor is below zero but a dry one |
//! | I9 | every search that began has ended |
//! | I2 of sets | a word with slabs has its bit in the summary |
//!
//! I3 says what is live: every other block of a run. I4 is about the order of steps, and leaves no trace.
//!
//! Time is linear in the metadata: cursors come first, and leave a word in `held` for every run they have blocks of;
//! then slabs and their partitions, both in the order of addresses. It reads, and writes nothing but `held`.

mod slabs;
mod violation;
mod visitor;

pub use violation::{Defect, Invariant, Violation};
pub use visitor::{CursorAudit, FreeSlab, LargeAudit, RunAudit, Visitor};

use super::Heap;
use super::class::SizeClass;
use super::class_info::ClassInfo;
use super::entry::Entry;
use super::layout::WORD_BITS;
use super::sets::{IndexSet, low_bits};

impl Heap {
    /// Checks all metadata, and reports its contents and all violations to `visitor`. No thread may
    /// use the heap meanwhile. Slabs from `present` on have no memory yet. Takes time linear in the
    /// metadata. The heap's memory is not accessed.
    ///
    /// `held` is scratch memory: a word for every slab. Returns `None` without a check if it is
    /// shorter.
    #[must_use]
    pub fn audit(&self, present: u32, held: &mut [u32], visitor: &mut impl Visitor) -> Option<()> {
        let held = held.get_mut(..self.layout.slabs as usize)?;
        held.fill(0);
        let mut walk = Walk { heap: self, present, held, shard: 0, visitor };
        walk.scans();
        walk.cursors();
        walk.partitions();
        walk.sets();
        walk.slabs();
        Some(())
    }
}

struct Walk<'a, V> {
    heap: &'a Heap,
    present: u32,
    /// At the first slab of a run, how many of its first blocks are in a cursor.
    held: &'a mut [u32],
    /// The shard of the slab that was looked at last.
    shard: u32,
    visitor: &'a mut V,
}

impl<'a, V: Visitor> Walk<'a, V> {
    fn tell(&mut self, slab: Option<u32>, class: Option<SizeClass>, shard: Option<u32>, found: Defect) {
        self.visitor.violation(Violation { slab, class, shard, found });
    }

    fn slab_is(&mut self, slab: u32, found: Defect) {
        self.tell(Some(slab), None, None, found);
    }

    fn entry(&self, slab: u32) -> Entry {
        Entry(self.heap.entry(slab).load_relaxed())
    }

    fn scans(&mut self) {
        let (begun, ended) = self.heap.overview().scans.0.counts();
        if begun != ended {
            self.tell(None, None, None, Defect::ProofOpen { begun, ended });
        }
        for class in (0..self.heap.layout.classes).map(SizeClass) {
            let seekers = self.heap.seekers(class).load_relaxed();
            if seekers != 0 {
                self.tell(None, Some(class), None, Defect::SeekersLeft { seekers });
            }
        }
    }

    fn cursors(&mut self) {
        for class in (0..self.heap.layout.classes).map(SizeClass) {
            let info = self.heap.layout.class(class);
            if *self.heap.class(class) != info {
                self.tell(None, Some(class), None, Defect::ClassTable);
            }
            for shard in 0..self.heap.layout.shards {
                self.cursor(class, &info, shard);
            }
        }
    }

    fn cursor(&mut self, class: SizeClass, info: &ClassInfo, shard: u32) {
        let cursor = self.heap.cursor(class, shard);
        let (begun, scan_result) = (cursor.searches_begun.load_relaxed(), cursor.scan_result.load_relaxed());
        let (searches, found_none, left) = (scan_result / 2, scan_result % 2 == 1, cursor.span().left());
        self.visitor.cursor(CursorAudit { class, shard, left, searches, found_none });
        if begun != searches {
            self.tell(None, Some(class), Some(shard), Defect::SearchOpen { begun, ended: searches });
        }
        let Some(left) = left else {
            let left = cursor.span().signed_left();
            return self.tell(None, Some(class), Some(shard), Defect::SpanOwed { left });
        };
        if left > 0 && !self.heap.is_used(class) {
            self.tell(None, Some(class), Some(shard), Defect::ClassUnnoted);
        }
        self.hold(class, info, shard, cursor.span().end(), left);
    }

    /// Writes down which blocks the cursor has: those of the last runs before `end`, of the first of them the first
    /// blocks. Each run is written once, so that all cursors together take no longer than there are slabs.
    fn hold(&mut self, class: SizeClass, info: &ClassInfo, shard: u32, end: u32, left: u32) {
        let (mut run, mut rest) = (end, left);
        while rest > 0 {
            if run > self.heap.layout.slabs || run < info.slabs {
                return self.tell(None, Some(class), Some(shard), Defect::SpanOutside { end, left });
            }
            run -= info.slabs;
            let entry = self.entry(run);
            let found = match self.held[run as usize] {
                _ if entry != Entry::of_class(class, 0, info.slabs) => Defect::SpanOfOther { entry: entry.0 },
                0 => {
                    let blocks = rest.min(info.blocks);
                    self.held[run as usize] = blocks;
                    rest -= blocks;
                    continue;
                }
                _ => Defect::SpanShared,
            };
            return self.tell(Some(run), Some(class), Some(shard), found);
        }
    }

    fn partitions(&mut self) {
        for shard in 0..self.heap.layout.shards {
            let next = self.heap.fresh(shard).load_relaxed();
            if next < self.heap.layout.partition_start(shard) {
                self.tell(None, None, Some(shard), Defect::FreshBeforePartition { next });
            }
        }
    }

    fn sets(&mut self) {
        let last = self.heap.layout.slab_words() - 1;
        // Bits of the last word that no slab has.
        let beyond = !low_bits(self.heap.layout.slabs - last * WORD_BITS);
        let free = self.heap.free_slabs();
        if free.bits(last) & beyond != 0 {
            let slab = last * WORD_BITS + (free.bits(last) & beyond).trailing_zeros();
            self.slab_is(slab, Defect::FreeSlabOutside);
        }
        self.summary(free, None);
        for class in (0..self.heap.layout.classes).map(SizeClass) {
            for set in [self.heap.partial(class), self.heap.idle(class)] {
                let bits = set.bits(last) & beyond;
                if bits != 0 {
                    self.tell(None, Some(class), None, Defect::NoteOutside { bits });
                }
                self.summary(set, Some(class));
            }
        }
    }

    fn summary(&mut self, set: IndexSet, class: Option<SizeClass>) {
        for word in 0..self.heap.layout.slab_words() {
            let bits = set.bits(word);
            if bits != 0 && !set.is_summarised(word) {
                self.tell(None, class, None, Defect::NotInSummary { word, bits });
            }
        }
    }
}
