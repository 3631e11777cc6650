//! Holes: blocks that were given back, and are handed out one by one.

use super::class::SizeClass;
use super::class_info::{ClassInfo, full_word};
use super::count::Count;
use super::layout::WORD_BITS;
use super::{CLAIM, Heap};
use crate::lanes::select_bit;
use crate::sync::NATIVE_LAYOUT;

/// How many runs of a class a lane looks at for a hole. More than a few only lose to other lanes.
const LOOKS: u32 = if NATIVE_LAYOUT { 64 } else { 3 };

impl Heap {
    /// The address of a hole of the class, now the caller's; 0 if none was found. Each lane looks for itself,
    /// and those of other ranks elsewhere.
    #[inline(never)]
    pub(super) fn claim_hole(&self, class: SizeClass, shard: u32, rank: u32) -> u64 {
        let set = self.partial(class);
        let words = self.layout.slab_words();
        let mut from = (self.layout.partition_start(shard) / WORD_BITS + rank) % words;
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

    /// The same in one run, which is pinned meanwhile: so it keeps its class, and no one takes it whole.
    #[inline(never)]
    fn claim_hole_of(&self, class: SizeClass, run: u32, rank: u32) -> u64 {
        // ordering: acquire; pairs with FREE: the run's bits were cleared before the frees that the count tells of.
        let pinned = Count(self.count(run).at(CLAIM).add_acquire(Count::PIN.0));
        let (address, change) = match pinned.is_of(class) && pinned.some() > 0 {
            true => self.claim_bit(self.class(class), run, rank),
            false => (0, Count::NONE),
        };
        self.unpin(run, change);
        address
    }

    /// The address of a hole of a pinned run, and what its claim made of the count; 0 if none was found.
    #[inline(always)]
    fn claim_bit(&self, info: &ClassInfo, run: u32, rank: u32) -> (u64, Count) {
        let (words, first) = (info.words(), self.word_of(run, 0));
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
            let old = self.bits(first + w).at(CLAIM).and_acquire(!bit);
            if old & bit != 0 {
                let change = Count::change(old, old & !bit, full_word(info.blocks, w));
                return (self.block_address(info, run, w * WORD_BITS + bit.trailing_zeros()), change);
            }
        }
        (0, Count::NONE)
    }

    /// Lets go of a pinned run, of which bits were cleared that make this change of the count; and notes what it is then.
    #[inline(always)]
    fn unpin(&self, run: u32, change: Count) {
        // ordering: release; pairs with RETIRE: this look at the bits, before who takes the run clears them.
        let before = Count(self.count(run).at(CLAIM).add_release(change.minus(Count::PIN).0));
        // Of whatever class it is: who has found it pinned does not look again.
        let Some(class) = before.class() else { return };
        let (words, after) = (self.class(class).words(), before.plus(change));
        if after.whole() == words || before.whole() == words {
            self.note(run, class, after.whole() == words);
        }
    }

    /// Whether a run of the class has holes, by its count.
    #[inline(always)]
    fn has_holes(&self, class: SizeClass, run: u32) -> bool {
        let count = self.count_after_note(run);
        count.some() != 0 && count.is_of(class)
    }
}
