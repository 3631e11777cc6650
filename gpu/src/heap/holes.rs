//! Holes: blocks that were given back, and are handed out one by one.

use super::class::SizeClass;
use super::entry::Entry;
use super::layout::WORD_BITS;
use super::{CLAIM, FREE, Heap};
use crate::lanes::{Group, select_bit};
use crate::sync::NATIVE_LAYOUT;

/// How many slabs of a class a lane looks at for a hole. More than a few only lose to other lanes.
const LOOKS: u32 = if NATIVE_LAYOUT { 64 } else { 3 };

impl Heap {
    /// The address of a hole of the class, now the caller's; 0 if none was found. Each lane looks for itself,
    /// and those of other ranks elsewhere.
    #[inline(never)]
    pub(super) fn claim_hole(&self, class: SizeClass, home: u32, rank: u32) -> u64 {
        let set = self.partial(class);
        let words = self.layout.slab_words();
        let mut from = (self.hint(home).load_relaxed() / WORD_BITS + rank) % words;
        for _ in 0..LOOKS {
            let Some(run) = set.next(from) else { return 0 };
            let address = self.claim_hole_of(class, run, rank);
            if address != 0 {
                return address;
            }
            // Nothing was seen: takes the run out, and looks once more, or a hole in between is lost (I7).
            set.remove(run);
            if self.holes(run).load_relaxed() != 0 && self.is_of(class, run) {
                set.insert(run);
            }
            from = (run / WORD_BITS + 1) % words;
        }
        0
    }

    /// The same in one run.
    #[inline(never)]
    fn claim_hole_of(&self, class: SizeClass, run: u32, rank: u32) -> u64 {
        let info = self.class(class);
        let words = info.words();
        let first = self.word_of(run, 0);
        let mut w = rank % words;
        // Once around, and once more for what others take on the way.
        for _ in 0..2 * words {
            let seen = self.bits(first + w).load_relaxed();
            if seen == 0 {
                w = if w + 1 < words { w + 1 } else { 0 };
                continue;
            }
            let bit = select_bit(seen, rank % seen.count_ones());
            // ordering: acquire; pairs with FREE: what the last owner wrote, before the next (I4).
            if self.bits(first + w).and_acquire(!(1 << bit), CLAIM) >> bit & 1 == 0 {
                continue;
            }
            if self.is_of(class, run) {
                self.holes(run).sub_relaxed(1);
                return self.block_address(info, run, w * WORD_BITS + bit);
            }
            self.put_back(run, first + w, 1 << bit);
            return 0;
        }
        0
    }

    /// Whether a run of the class starts at this slab. Certain for who holds a block of it (I5).
    #[inline(always)]
    fn is_of(&self, class: SizeClass, run: u32) -> bool {
        self.entry(run).load_relaxed() == Entry::of_class(class, 0).0
    }

    /// Sets bits that were cleared on a wrong guess: the slab `run` has another class by now. Who tried to take
    /// all its bits in the meantime has failed, so this thread tries again for them (I7).
    #[cold]
    #[inline(never)]
    fn put_back(&self, run: u32, word: u32, bits: u32) {
        // ordering: release; pairs with CLAIM and with `retire`.
        self.bits(word).or_release(bits, FREE);
        let entry = Entry(self.entry(run).load_relaxed());
        if let Some(class) = entry.class() {
            self.retire(Group::alone(), run - entry.place(), class);
        }
    }
}
