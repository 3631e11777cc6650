//! Holes: blocks that were given back, and are handed out one by one.

use super::class::SizeClass;
use super::count::Count;
use super::entry::Entry;
use super::layout::{WORD_BITS, full_word};
use super::{CLAIM, Heap};
use crate::lanes::select_bit;
use crate::sync::NATIVE_LAYOUT;

/// How many runs of a class a lane looks at for a hole. More than a few only lose to other lanes.
const LOOKS: u32 = if NATIVE_LAYOUT { 64 } else { 3 };

impl Heap {
    /// The address of a hole of the class, now the caller's; 0 if none was found. Each lane looks for itself,
    /// and those of other ranks elsewhere.
    #[inline(never)]
    pub(super) fn claim_hole(&self, class: SizeClass, home: u32, rank: u32) -> u64 {
        let set = self.partial(class);
        let words = self.layout.slab_words();
        let mut from = (self.layout.share_start(home) / WORD_BITS + rank) % words;
        for _ in 0..LOOKS {
            let Some(run) = set.next(from) else { return 0 };
            let address = self.claim_hole_of(class, run, rank);
            if address != 0 {
                return address;
            }
            // Nothing was seen. If there is nothing: takes the run out, and looks once more, or a hole in between is
            // lost (I7). While it is out, others do not find what it has.
            if !self.has_holes(class, run) {
                set.remove(run);
                if self.has_holes(class, run) {
                    set.note(run);
                }
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
            let bit = 1 << select_bit(seen, rank % seen.count_ones());
            // ordering: acquire; pairs with FREE: what the last owner wrote, before the next (I4).
            let old = self.bits(first + w).and_acquire(!bit, CLAIM);
            if old & bit == 0 {
                continue;
            }
            let full = full_word(info.blocks, w);
            if self.is_of(class, run) {
                self.add_to_count(run, class, Count::change(old, old & !bit, full));
                return self.block_address(info, run, w * WORD_BITS + bit.trailing_zeros());
            }
            self.put_back_taken(first + w, old, bit);
            return 0;
        }
        0
    }

    /// Whether a run of the class has holes, by its count.
    #[inline(always)]
    fn has_holes(&self, class: SizeClass, run: u32) -> bool {
        self.count_after_note(run).some() != 0 && self.is_of(class, run)
    }

    /// Whether a run of the class starts at this slab. Certain for who holds a block of it (I5).
    #[inline(always)]
    pub(super) fn is_of(&self, class: SizeClass, run: u32) -> bool {
        Entry(self.entry(run).load_relaxed()).starts(class)
    }

    /// Sets a bit that was cleared on a wrong guess, of a word that was `old` before: the slab has another class.
    #[cold]
    #[inline(never)]
    fn put_back_taken(&self, word: u32, old: u32, bit: u32) {
        let Some((run, class)) = self.owner_of(word) else { return };
        let full = full_word(self.class(class).blocks, word - self.word_of(run, 0));
        self.add_to_count(run, class, Count::change(old, old & !bit, full));
        self.put_back(word, bit);
    }
}
