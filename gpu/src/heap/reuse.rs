//! Taking runs of which every block is a hole, as they are: no slab changes its class, and no set but that of the
//! idle runs is touched.
//!
//! A run is in the set of its class' idle runs when a free made it whole. That is a hint: who has cleared every bit
//! of the run, and found each set, has all its blocks (I2). Whoever takes a run takes it out of the set; where it was
//! not whole after all, the bits go back, and the run into the set if its count says that it is whole by now.
//!
//! Round trips of a whole warp for a row of runs with eight words of bits a lane: the set, the bits, the entries.

use super::class::SizeClass;
use super::count::Count;
use super::layout::{ClassInfo, WORD_BITS, full_word};
use super::sets::Run;
use super::{FREE, Heap, RETIRE};
use crate::lanes::Lanes;
use crate::sync::NATIVE_LAYOUT;

/// Words of a bitmap that a lane takes at once.
const AT_ONCE: usize = if NATIVE_LAYOUT { 8 } else { 2 };

/// Rows of a few words of the set that are tried: each that is not whole has lost its runs their place there.
const ROWS: u32 = if NATIVE_LAYOUT { 32 } else { 3 };

impl Heap {
    /// Takes up to `most` idle runs of the class, one after the other: the first that lie in words `from` to before
    /// `to` of their set.
    #[inline(always)]
    pub(super) fn reuse<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        class: SizeClass,
        (from, to): (u32, u32),
        most: u32,
    ) -> Run {
        let info = self.class(class);
        let (mut base, mut tries) = (from, 0);
        while base < to {
            let row = self.idle(class).row(lanes, base, to, info.slabs, most);
            if row.len == 0 || tries == ROWS {
                (base, tries) = (base + lanes.count(), 0);
            } else if self.take_row(lanes, class, info, row) {
                return Run { first: row.first, len: row.len * info.slabs };
            } else {
                tries += 1;
            }
        }
        Run::NONE
    }

    /// Takes every block of a row of idle runs, which has no more runs than there are lanes; or none.
    #[inline(always)]
    fn take_row<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        class: SizeClass,
        info: &ClassInfo,
        row: Run,
    ) -> bool {
        let (taken, full) = self.take_words(lanes, info, row);
        let all = lanes.all(full);
        // What the lanes acquired is before what the others do with it.
        lanes.order();
        let run = row.first + lanes.rank() * info.slabs;
        let has_run = lanes.rank() < row.len;
        // With all blocks of a slab in hand, what its entry says stays so (I5).
        if lanes.all(all && (!has_run || self.is_of(class, run))) {
            if has_run {
                // Relaxed: it says when to look at the bits.
                self.count(run).sub_relaxed(info.words() * Count::of(1, 1).0);
            }
            return true;
        }
        self.give_up_row(lanes.group().count(), lanes.rank(), class, row, taken);
        lanes.sync();
        false
    }

    /// Word `i` of the bits of a row of runs, and what it is when all its blocks are holes.
    #[inline(always)]
    fn word_of_row(&self, info: &ClassInfo, first: u32, i: u32) -> (u32, u32) {
        let words = info.words();
        let (run, w) = (i / words, i % words);
        (self.word_of(first + run * info.slabs, 0) + w, full_word(info.blocks, w))
    }

    /// Clears words of the bits of a row, each lane its part, as long as they are full. Returns how many each lane
    /// found full, and whether all were.
    #[inline(always)]
    fn take_words<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, info: &ClassInfo, row: Run) -> (u32, bool) {
        let (mut i, step, words) = (lanes.rank(), lanes.count(), row.len * info.words());
        let (mut taken, mut all) = (0, true);
        while i < words && all {
            let mut old = [0; AT_ONCE];
            for (k, old) in (0..).zip(&mut old) {
                if i + k * step < words {
                    let (word, _) = self.word_of_row(info, row.first, i + k * step);
                    // ordering: acquire; pairs with FREE: what the owners wrote, before the next ones (I4).
                    *old = self.bits(word).swap_acquire(0, RETIRE);
                }
            }
            for old in old {
                if i < words {
                    let (word, full) = self.word_of_row(info, row.first, i);
                    if all && old == full {
                        taken += 1;
                    } else {
                        all = false;
                        self.restore(word, old);
                    }
                }
                i += step;
            }
        }
        (taken, all)
    }

    /// Puts back the first `taken` words of the row that this lane took; and looks whether the lane's run of the row
    /// belongs in the set, which it was taken out of.
    #[cold]
    #[inline(never)]
    fn give_up_row(&self, step: u32, rank: u32, class: SizeClass, row: Run, taken: u32) {
        let info = self.class(class);
        for i in 0..taken {
            let (word, full) = self.word_of_row(info, row.first, rank + i * step);
            self.restore(word, full);
        }
        if rank >= row.len {
            return;
        }
        let (run, set) = (row.first + rank * info.slabs, self.idle(class));
        // Out of the set before the look: who makes the run whole after it puts the run in again.
        set.remove(run);
        if Count(self.count(run).load_relaxed()).whole() == info.words() && self.is_of(class, run) {
            set.insert(run);
        }
    }

    /// Sets bits of a word again that were all it had when they were taken. Its slab may be another class' than
    /// was thought.
    #[cold]
    #[inline(never)]
    fn restore(&self, word: u32, bits: u32) {
        if bits == 0 {
            return;
        }
        let Some((run, class)) = self.owner_of(word) else { return };
        let blocks = self.class(class).blocks;
        let full = full_word(blocks, word - self.word_of(run, 0));
        // ordering: release; pairs with CLAIM and RETIRE: it hands on what the claim acquired (I4).
        let old = self.bits(word).or_release(bits, FREE);
        // The count has what the word was before it was taken.
        let change = Count::change(old, old | bits, full).plus(Count::change(bits, 0, full));
        self.add_to_count(run, class, change);
    }
}

/// The bits of a word that begins with slab `base`, of slabs from `first` to before `end`, `step` apart.
#[inline(always)]
pub(super) const fn row_bits(base: u32, first: u32, end: u32, step: u32) -> u32 {
    let mut slab = if first >= base { first } else { first + (base - first).div_ceil(step) * step };
    let end = if end < base + WORD_BITS { end } else { base + WORD_BITS };
    let mut bits = 0;
    while slab < end {
        bits |= 1 << (slab - base);
        slab += step;
    }
    bits
}
