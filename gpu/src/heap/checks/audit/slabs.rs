//! Audit of the slabs, in address order.

use super::{Defect, FreeSlab, LargeAudit, RunAudit, Visitor, Walk};
use crate::heap::layout::bits::full_word;
use crate::heap::layout::class::SizeClass;
use crate::heap::layout::entry::Entry;

impl<V: Visitor> Walk<'_, V> {
    pub(super) fn slabs(&mut self) {
        let mut slab = 0;
        while slab < self.heap.layout.slabs {
            slab += self.slab(slab);
        }
    }

    /// Checks the run, allocation or free slab that starts at a slab. Returns its number of slabs.
    fn slab(&mut self, slab: u32) -> u32 {
        let entry = self.entry(slab);
        if entry.is_free() {
            self.free(slab, entry);
            return 1;
        }
        let class = entry.class().filter(|class| class.0 < self.heap.layout.classes);
        match (entry.large_slabs(), class) {
            (Some(slabs), _) if slabs > 0 => self.large(slab, slabs),
            (None, Some(class)) if entry == self.first_of(class) => self.run(slab, class),
            _ => {
                self.slab_is(slab, Defect::Orphan { entry: entry.0 });
                self.taken(slab);
                1
            }
        }
    }

    /// The entry of the first slab of a run.
    fn first_of(&self, class: SizeClass) -> Entry {
        Entry::of_class(class, 0, self.heap.layout.class(class).slabs)
    }

    fn is_in_set(&self, slab: u32) -> bool {
        self.heap.free_slabs().set.contains(slab)
    }

    fn free(&mut self, slab: u32, entry: Entry) {
        let (in_set, withheld) = (self.is_in_set(slab), slab >= self.present);
        let (place, found) = match (in_set, withheld) {
            (true, true) => (FreeSlab::Withheld, Some(Defect::Withheld)),
            (false, true) => (FreeSlab::Withheld, None),
            (false, false) => (FreeSlab::Lost, Some(Defect::Lost)),
            _ if entry == Entry::FRESH => (FreeSlab::Fresh, None),
            _ => (FreeSlab::Used, None),
        };
        if let Some(found) = found {
            self.slab_is(slab, found);
        }
        self.zeroes(slab);
        self.visitor.free(slab, place);
    }

    /// Checks that a slab in use is not in the free set.
    fn taken(&mut self, slab: u32) {
        let entry = self.entry(slab).0;
        if self.is_in_set(slab) {
            self.slab_is(slab, Defect::TakenAndFree { entry });
        }
    }

    /// Checks that the bits and the count of a slab without a class are zero.
    fn zeroes(&mut self, slab: u32) {
        let first = self.heap.runs().first_word(slab);
        for word in 0..self.heap.layout.words_per_slab() {
            let bits = self.heap.runs().bits(first + word).load_relaxed();
            if bits != 0 {
                self.slab_is(slab, Defect::BitsWithoutClass { word, bits });
                break;
            }
        }
        self.no_count(slab);
    }

    fn no_count(&mut self, slab: u32) {
        let count = self.heap.runs().count(slab).load_relaxed();
        if count != 0 {
            self.slab_is(slab, Defect::CountWithoutRun { count });
        }
    }

    /// Returns the number of slabs of a run or an allocation before the first slab with a wrong
    /// entry.
    fn whole(&mut self, slab: u32, slabs: u32, entry_at: impl Fn(u32) -> Entry) -> u32 {
        let there = self.heap.layout.slabs - slab;
        if there < slabs {
            self.slab_is(slab, Defect::ReachesPastEnd { slabs });
        }
        for i in 0..slabs.min(there) {
            let entry = self.entry(slab + i);
            if i > 0 && entry != entry_at(i) {
                self.slab_is(slab + i, Defect::Torn { entry: entry.0 });
                return i;
            }
            self.taken(slab + i);
        }
        slabs.min(there)
    }

    fn large(&mut self, slab: u32, slabs: u32) -> u32 {
        let whole = self.whole(slab, slabs, |_| Entry::REST);
        (slab..slab + whole).for_each(|slab| self.zeroes(slab));
        self.visitor.large(LargeAudit { slab, slabs: whole, address: self.heap.slab_address(slab) });
        whole
    }

    fn run(&mut self, slab: u32, class: SizeClass) -> u32 {
        let info = self.heap.layout.class(class);
        let whole = self.whole(slab, info.slabs, |place| Entry::of_class(class, place, info.slabs));
        (slab + 1..slab + whole).for_each(|slab| self.no_count(slab));
        if whole < info.slabs {
            return whole;
        }
        let mut run = RunAudit { heap: self.heap, slab, class, info, free: 0, live: 0 };
        let (first, mut free_words) = (self.heap.runs().first_word(slab), 0);
        for w in 0..info.slabs * self.heap.layout.words_per_slab() {
            let bits = self.heap.runs().bits(first + w).load_relaxed();
            let full = full_word(info.blocks, w);
            if full != 0 {
                free_words += u32::from(bits == full);
                run.free += (bits & full).count_ones();
                run.live += run.live_bits(w).count_ones();
            }
            if bits & !full != 0 {
                self.tell(Some(slab), Some(class), Defect::BitsBeyond { word: w, bits: bits & !full });
            }
        }
        self.hints(&run, free_words);
        self.visitor.run(&run);
        whole
    }

    /// Checks that the count and the sets agree with the bits of a run.
    fn hints(&mut self, run: &RunAudit<'_>, free_words: u32) {
        let (slab, class, runs) = (run.slab, run.class, self.heap.runs());
        let (count, index) = (runs.count(slab).load_relaxed(), self.heap.layout.run_index(class, slab));
        let defects = [
            (count != free_words, Defect::Count { bits: free_words, count }),
            (run.free > 0 && !runs.listed().contains(index), Defect::NotListed),
            (run.live == 0 && !runs.idle().contains(slab), Defect::NotIdle),
        ];
        for (_, found) in defects.into_iter().filter(|(is_found, _)| *is_found) {
            self.tell(Some(slab), Some(class), found);
        }
    }
}
