//! The slabs, in the order of their addresses.

use super::{Defect, FreeSlab, LargeAudit, RunAudit, Visitor, Walk};
use crate::heap::class::SizeClass;
use crate::heap::class_info::full_word;
use crate::heap::count::Count;
use crate::heap::entry::Entry;

impl<V: Visitor> Walk<'_, V> {
    pub(super) fn slabs(&mut self) {
        let mut slab = 0;
        while slab < self.heap.layout.slabs {
            slab += self.slab(slab);
        }
    }

    /// Looks at what starts at a slab. Returns how many slabs that has.
    fn slab(&mut self, slab: u32) -> u32 {
        let entry = self.entry(slab);
        if entry == Entry::FREE {
            self.free(slab);
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

    /// Whether the slab is among those of its partition that no one has had. Slabs are asked for in their order.
    fn is_fresh(&mut self, slab: u32) -> bool {
        while slab >= self.heap.layout.partition_start(self.shard + 1) {
            self.shard += 1;
        }
        slab >= self.heap.fresh(self.shard).load_relaxed()
    }

    fn free(&mut self, slab: u32) {
        let (in_set, fresh) = (self.heap.free_slabs().contains(slab), self.is_fresh(slab));
        let withheld = slab >= self.present;
        let found = match (in_set, fresh) {
            (true, true) => Some(Defect::FreeTwice),
            (false, false) if withheld => None,
            (false, false) => Some(Defect::Lost),
            _ => withheld.then_some(Defect::Withheld),
        };
        if let Some(found) = found {
            self.slab_is(slab, found);
        }
        self.zeroes(slab);
        let place = match (in_set, fresh) {
            (true, _) => FreeSlab::InSet,
            (_, true) => FreeSlab::Fresh,
            _ if withheld => FreeSlab::Withheld,
            _ => FreeSlab::Lost,
        };
        self.visitor.free(slab, place);
    }

    /// Of a slab that is in use: no one else may take it.
    fn taken(&mut self, slab: u32) {
        let entry = self.entry(slab).0;
        if self.is_fresh(slab) || self.heap.free_slabs().contains(slab) {
            self.slab_is(slab, Defect::TakenAndFree { entry });
        }
    }

    /// Of a slab without a class: bits and count are zero.
    fn zeroes(&mut self, slab: u32) {
        let first = self.heap.word_of(slab, 0);
        for word in 0..self.heap.layout.words_per_slab() {
            let bits = self.heap.bits(first + word).load_relaxed();
            if bits != 0 {
                self.slab_is(slab, Defect::BitsWithoutClass { word, bits });
                break;
            }
        }
        self.no_count(slab);
    }

    fn no_count(&mut self, slab: u32) {
        let count = self.heap.count(slab).load_relaxed();
        if count != 0 {
            self.slab_is(slab, Defect::CountWithoutRun { count });
        }
    }

    /// How many of the slabs of a run or an allocation have their entries: all, or those before the first that has not.
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
        let mut run = RunAudit {
            heap: self.heap,
            slab,
            class,
            info,
            holes: 0,
            in_cursor: self.held[slab as usize],
            live: 0,
        };
        let (mut sum, mut both) = (Count::of_class(class), 0);
        for w in 0..info.words() {
            let (bits, full) =
                (self.heap.bits(self.heap.word_of(slab, 0) + w).load_relaxed(), full_word(info.blocks, w));
            sum = sum.plus(Count::of(bits, full));
            run.holes += (bits & full).count_ones();
            run.live += run.live_bits(w).count_ones();
            both += (bits & run.held_bits(w)).count_ones();
            self.beyond(slab, class, w, bits & !full);
        }
        for w in info.words()..info.slabs * self.heap.layout.words_per_slab() {
            self.beyond(slab, class, w, self.heap.bits(self.heap.word_of(slab, 0) + w).load_relaxed());
        }
        if both > 0 {
            self.tell(Some(slab), Some(class), None, Defect::HolesInCursor { blocks: both });
        }
        self.noted(&run, sum);
        self.visitor.run(&run);
        whole
    }

    fn beyond(&mut self, slab: u32, class: SizeClass, word: u32, bits: u32) {
        if bits != 0 {
            self.tell(Some(slab), Some(class), None, Defect::BitsBeyond { word, bits });
        }
    }

    /// Whether what the bits of a run come to is written down where it is looked for.
    fn noted(&mut self, run: &RunAudit<'_>, sum: Count) {
        let (slab, class) = (run.slab, run.class);
        let count = self.heap.count(slab).load_relaxed();
        if Count(count).unjoined() != sum {
            self.tell(Some(slab), Some(class), None, Defect::Count { bits: sum.0, count });
        }
        if run.holes == run.info.blocks {
            if !self.heap.idle(class).contains(slab) {
                self.tell(Some(slab), Some(class), None, Defect::NotIdle);
            }
        } else if run.holes > 0 && !self.heap.partial(class).contains(slab) {
            self.tell(Some(slab), Some(class), None, Defect::NotPartial);
        }
    }
}
