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
use super::layout::{ClassInfo, full_word};
use super::sets::Run;
use super::{FREE, Heap, RETIRE};
use crate::lanes::{Group, Lanes};
use crate::sync::{NATIVE_LAYOUT, fence_acquire};

/// Words of a bitmap that a lane takes at once.
const AT_ONCE: usize = if NATIVE_LAYOUT { 4 } else { 2 };

/// Rows of a few words of the set that are tried: each that is not whole has lost its runs their place there.
const ROWS: u32 = if NATIVE_LAYOUT { 32 } else { 3 };

impl Heap {
    /// Takes up to `most` idle runs of the class, one after the other: the first that lie in words `from` to before
    /// `to` of their set.
    #[inline(never)]
    pub(super) fn reuse<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        class: SizeClass,
        words: (u32, u32),
        most: u32,
    ) -> Run {
        self.reuse_inline::<WHOLE, false>(lanes, class, self.class(class), words, most)
    }

    /// The same from the last of as many words as there are lanes, which those come to last who look from the start.
    #[inline(never)]
    pub(super) fn reuse_last(&self, lanes: Group, class: SizeClass, words: (u32, u32), most: u32) -> Run {
        self.reuse_inline::<false, true>(lanes, class, self.class(class), words, most)
    }

    /// The same, for the way that most spans come.
    #[inline(always)]
    pub(super) fn reuse_inline<const WHOLE: bool, const LAST: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        class: SizeClass,
        info: &ClassInfo,
        (from, to): (u32, u32),
        most: u32,
    ) -> Run {
        let mut base = from;
        while base < to {
            for _ in 0..ROWS {
                let row = self.idle(class).row::<WHOLE, LAST>(lanes, base, to, info.slabs, most);
                if row.len == 0 {
                    break;
                }
                if self.take_row(lanes, class, info, row) {
                    return Run { first: row.first, len: row.len * info.slabs };
                }
            }
            base += lanes.count();
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
        // ordering: acquire; pairs with FREE: what the owners wrote, before the next ones (I4).
        fence_acquire(RETIRE);
        let all = lanes.all(full);
        // What the lanes acquired is before what the others do with it.
        lanes.order();
        let run = row.first + lanes.rank() * info.slabs;
        let (has_run, whole) = (lanes.rank() < row.len, info.words() * Count::of(1, 1).0);
        if all {
            // Relaxed: of a run that is whole, with no addition to the count under way, it is all there is. One that came
            // later would be counted for who has the slabs then (I7).
            let exact = !has_run || self.count(run).sub_relaxed(whole) == whole;
            // With all blocks of a slab in hand, what its entry says stays so (I5).
            let taken_all = lanes.all(exact && (!has_run || self.is_of(class, run)));
            // What each lane acquired is before what the leader hands on.
            lanes.order();
            if taken_all {
                return true;
            }
            if has_run {
                self.shared().count_again(run, whole);
            }
        }
        self.shared().give_up_row(lanes.count(), lanes.rank(), class, row, taken);
        lanes.sync();
        false
    }

    /// Adds to a run's count what was subtracted on a wrong guess. Who saw too little in between may have passed it by.
    #[cold]
    #[inline(never)]
    fn count_again(&self, run: u32, whole: u32) {
        self.count(run).add_relaxed(whole);
        if let Some((run, class)) = self.owner_of(self.word_of(run, 0)) {
            self.partial(class).note(run);
        }
    }

    /// Clears words of the bits of a row, each lane its part, as long as they are full. Returns how many each lane
    /// found full, and whether all were.
    #[inline(always)]
    fn take_words<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, info: &ClassInfo, row: Run) -> (u32, bool) {
        let mut walk = self.walk(lanes.rank(), lanes.count(), info, row);
        let (mut taken, mut all) = (0, true);
        while !walk.is_done() && all {
            let (mut ahead, mut old) = (walk, [0; AT_ONCE]);
            for old in &mut old {
                if !ahead.is_done() {
                    // Relaxed: the fence is behind it. An acquire would wait for each of them.
                    *old = self.bits(ahead.word()).swap_relaxed(0);
                    ahead.step();
                }
            }
            for old in old {
                if !walk.is_done() {
                    if all && old == walk.full() {
                        taken += 1;
                    } else {
                        all = false;
                        self.shared().restore(walk.word(), old);
                    }
                    walk.step();
                }
            }
        }
        (taken, all)
    }

    /// The words of the bits of a row of runs that are those of the lane of a rank, of so many lanes.
    #[inline(always)]
    fn walk(&self, rank: u32, lanes: u32, info: &ClassInfo, row: Run) -> Walk {
        let words = info.words();
        // Of short runs the lanes take several at once.
        let (run, first, at_once) =
            if words >= lanes { (0, rank, 1) } else { (rank / words, rank % words, lanes / words) };
        let stride = info.slabs * self.layout.words_per_slab();
        Walk {
            base: self.word_of(row.first, 0) + run * stride,
            end: if run < at_once { self.word_of(row.first, 0) + row.len * stride } else { 0 },
            w: first,
            words: words as u16,
            first: first as u16,
            lanes,
            stride: at_once * stride,
            last: full_word(info.blocks, words - 1),
        }
    }

    /// Puts back the first `taken` words of the row that this lane took; and looks whether the lane's run of the row
    /// belongs in the set, which it was taken out of.
    #[cold]
    #[inline(never)]
    fn give_up_row(&self, step: u32, rank: u32, class: SizeClass, row: Run, taken: u32) {
        let info = self.class(class);
        let mut walk = self.walk(rank, step, info, row);
        for _ in 0..taken {
            self.restore(walk.word(), walk.full());
            walk.step();
        }
        if rank >= row.len {
            return;
        }
        let (run, set) = (row.first + rank * info.slabs, self.idle(class));
        // Out of the set before the look: who makes the run whole after it puts the run in again.
        set.remove(run);
        if self.count_after_note(run).whole() == info.words() && self.is_of(class, run) {
            set.note(run);
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
        // ordering: acquire; pairs with FREE: the entry that the blocks' owners saw, before the look at it (I5).
        fence_acquire(RETIRE);
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

/// Words of the bitmap, one after the other: some of each run.
#[derive(Clone, Copy)]
struct Walk {
    /// The first word of the run.
    base: u32,
    /// The first word behind the last run.
    end: u32,
    /// Which word of the run.
    w: u32,
    words: u16,
    first: u16,
    lanes: u32,
    stride: u32,
    last: u32,
}

impl Walk {
    #[inline(always)]
    fn is_done(&self) -> bool {
        self.base >= self.end
    }

    #[inline(always)]
    fn word(&self) -> u32 {
        self.base + self.w
    }

    /// What the word is when all its blocks are holes.
    #[inline(always)]
    fn full(&self) -> u32 {
        if self.w + 1 == self.words.into() { self.last } else { u32::MAX }
    }

    #[inline(always)]
    fn step(&mut self) {
        self.w += self.lanes;
        if self.w >= self.words.into() {
            self.w = self.first.into();
            self.base += self.stride;
        }
    }
}
