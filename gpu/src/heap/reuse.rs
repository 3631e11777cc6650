//! Taking runs of which every block is a hole, as they are: no slab changes its class, and no set but that of the
//! idle runs is touched.
//!
//! A run is in the set of its class' idle runs when a free made it whole. That is a hint: who swaps the run's count
//! from the one of a whole run of the class to that of one without holes, or of none, has all its blocks (I2). It waits
//! until it sees their bits, and clears them, which no one else changes then. Whoever takes a run takes it out of the set;
//! who makes it whole afterwards, or lets go of it, puts it in again.
//!
//! Round trips of a whole warp for a row of runs: the set, the counts, the bits, a release.

use super::class::SizeClass;
use super::class_info::ClassInfo;
use super::count::Count;
use super::layout::WORD_BITS;
use super::sets::{Run, WINDOWS};
use super::{CLEAR_BITS, Heap, RETIRE, RETURN_RUN};
use crate::lanes::{Group, Lanes};
use crate::sync::{NATIVE_LAYOUT, QUAD, quad};

/// Rows of a few words of the set that are tried: each that is not whole has lost its runs their place there.
const ROWS: u32 = if NATIVE_LAYOUT { 32 } else { 3 };

/// Looks at bits that were on their way before the count that tells of them: a few are enough.
const BIT_POLLS: u32 = if NATIVE_LAYOUT { 1 << 10 } else { 2 };

/// Bits in as many words as are read at once.
const QUAD_BITS: u32 = QUAD as u32 * WORD_BITS;

/// Times as many words that a lane reads one after the other, before it looks at the first of them.
const AT_ONCE: usize = if NATIVE_LAYOUT { 2 } else { 1 };

impl Heap {
    /// Takes up to `most` idle runs of the class, one after the other: the first that lie in words `from` to before
    /// `to` of their set. They are the caller's to hand out, all of their blocks.
    #[inline(never)]
    pub(super) fn reuse<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        class: SizeClass,
        (from, to): (u32, u32),
        most: u32,
    ) -> Run {
        let (info, idle) = (self.class(class), self.idle(class));
        let mut from = from;
        while from < to {
            // Few words take no longer to look at than the summary does.
            let is_near = to - from <= WINDOWS as u32 * lanes.count();
            let next = if is_near { Some(from) } else { idle.next_word_together(lanes.group(), from) };
            let Some(w) = next.filter(|w| *w < to) else { break };
            for _ in 0..ROWS {
                let row = idle.row::<WHOLE, WINDOWS>(lanes, w, to, info.slabs, most);
                if row.len == 0 {
                    break;
                }
                let row = self.take_row::<WHOLE, true>(lanes, class, info, row);
                if row.len > 0 {
                    return row.of_slabs(info.slabs);
                }
            }
            from = (w + WINDOWS as u32 * lanes.count()).min(to);
            if !is_near {
                self.settle_words(lanes.group(), class, w, from);
            }
        }
        Run::NONE
    }

    /// The same from the last of as many words as there are lanes, which those come to last who look from the start;
    /// and the runs are of no class any more: their slabs can be made free.
    #[inline(never)]
    pub(super) fn take_last(&self, lanes: Group, class: SizeClass, (from, to): (u32, u32), most: u32) -> Run {
        let info = self.class(class);
        let mut base = from;
        while base < to {
            for _ in 0..ROWS {
                let row = self.idle(class).last_row(lanes, base, to, info.slabs, most);
                if row.len == 0 {
                    break;
                }
                let row = self.take_row::<false, false>(lanes, class, info, row);
                if row.len > 0 {
                    return row.of_slabs(info.slabs);
                }
            }
            base += lanes.count();
        }
        Run::NONE
    }

    /// Takes every block of a row of idle runs, which has no more runs than there are lanes; or of the first ones of
    /// them, or none. Returns the row of those. With `KEEP` the runs stay their class', for who stores a span of them, behind a
    /// release; otherwise they are of none. No one else changes their bits until their blocks are handed out.
    #[inline(always)]
    pub(super) fn take_row<const WHOLE: bool, const KEEP: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        class: SizeClass,
        info: &ClassInfo,
        row: Run,
    ) -> Run {
        let (asks, run) = (lanes.rank() < row.len, row.first + lanes.rank() * info.slabs);
        let whole = Count::of_class(class).plus(Count::of_whole(info.words()));
        let taken = taken_count::<KEEP>(class);
        let mut seen = whole.0;
        if asks {
            // ordering: acquire; pairs with FREE: what the owners wrote, before the next ones (I4).
            seen = self.count(run).at(RETIRE).cas_acquire(whole.0, taken.0).unwrap_or_else(|seen| seen);
        }
        // A free's addition to the count may be there before its bits. Once they are seen, by who looks after the swap of
        // their run's count, they are before their clearing.
        lanes.sync();
        let full = self.is_full(lanes, info, row);
        let mut len = row.len;
        // What each lane acquired is before what the others do with it.
        if lanes.all(full && seen == whole.0) {
            lanes.order();
        } else {
            len = self.shared().take_joined::<KEEP>(lanes.group(), class, row, seen);
            lanes.sync();
        }
        let row = Run { len, ..row };
        self.clear_bits(lanes, info, row);
        row
    }

    /// Whether all bits of a row of runs are set, as far as this lane looks.
    #[inline(always)]
    fn is_full<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, info: &ClassInfo, row: Run) -> bool {
        let (mut quads, mut wrong) = (self.quads(lanes, info, row), 0);
        while quads.run < quads.end {
            // Some at once, so that they take one round trip: what is seen, and how many bits it should have.
            let mut looks = [([0; QUAD], 0); AT_ONCE];
            for (seen, holes) in &mut looks {
                if quads.run < quads.end {
                    *seen = self.read_quad(quads.word());
                    // Bits behind the last block's are clear.
                    *holes = (info.blocks - quads.place * QUAD_BITS).min(QUAD_BITS);
                    quads.step();
                }
            }
            for (seen, holes) in &looks {
                // Each by itself: a run that the lanes have not got may have more bits, of another class.
                wrong |= holes ^ seen.iter().map(|word| word.count_ones()).sum::<u32>();
            }
        }
        wrong == 0
    }

    #[inline(always)]
    fn read_quad(&self, w: u32) -> [u32; QUAD] {
        if NATIVE_LAYOUT {
            quad::load_relaxed(self.quad(w))
        } else {
            // Of a load, loom would let what is there be unseen for as long as this waits.
            self.quad(w).each_ref().map(|word| word.or_relaxed(0))
        }
    }

    /// Clears all bits of a row of runs that the lanes have taken.
    #[inline(always)]
    fn clear_bits<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, info: &ClassInfo, row: Run) {
        let mut quads = self.quads(lanes, info, row);
        while quads.run < quads.end {
            CLEAR_BITS.delay();
            // Relaxed: a cursor or a set hands the run on.
            quad::clear_relaxed(self.quad(quads.word()));
            quads.step();
        }
    }

    /// The words with the bits of a row of runs, as far as they are this lane's.
    #[inline(always)]
    fn quads<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, info: &ClassInfo, row: Run) -> Quads {
        let (rank, count, base) = (lanes.rank(), lanes.count(), self.word_of(row.first, 0));
        let (own, step) = (info.run_of_quad(rank), info.run_of_quad(count));
        let stride = info.slabs * self.layout.words_per_slab();
        Quads {
            run: base + own * stride,
            place: rank - own * info.quads(),
            end: base + row.len * stride,
            quads: info.quads(),
            stride,
            run_step: step * stride,
            place_step: count - step * info.quads(),
        }
    }

    /// The rest of [`take_row`](Self::take_row), when some runs did not have the simplest count of a whole one, or not
    /// all bits yet. Returns how many of the first ones are taken; the others are given back. Lanes
    /// may return at different times.
    #[cold]
    #[inline(never)]
    fn take_joined<const KEEP: bool>(&self, lanes: Group, class: SizeClass, row: Run, seen: u64) -> u32 {
        let info = self.class(class);
        let (asks, run) = (lanes.rank() < row.len, row.first + lanes.rank() * info.slabs);
        let whole = Count::of_class(class).plus(Count::of_whole(info.words()));
        let (joined, mine) = (whole.plus(Count::JOINED), taken_count::<KEEP>(class));
        let (mut had, mut taken) = (whole, asks && seen == whole.0);
        if asks && seen == joined.0 {
            had = joined;
            // ordering: acquire; pairs with FREE, as above.
            taken = self.count(run).at(RETIRE).cas_acquire(joined.0, mine.0).is_ok();
        }
        let lost = lanes.ballot(asks && !taken);
        let mut len = if lost.is_empty() { row.len } else { lanes.rank_of(lost.leader()) };
        // The looks at bits are after the swaps of all lanes.
        lanes.order();
        if !self.await_bits(lanes, info, Run { len, ..row }) {
            len = 0;
        }
        if taken && lanes.rank() >= len {
            self.let_go(class, run, had.minus(mine));
        }
        if asks && !taken {
            self.look_again(class, run);
        }
        len
    }

    /// Waits until all bits are there that the counts of a row of runs told of, which the lanes have taken. Whether they
    /// are.
    fn await_bits(&self, lanes: Group, info: &ClassInfo, row: Run) -> bool {
        for _ in 0..BIT_POLLS {
            let full = self.is_full(lanes, info, row);
            if lanes.all(full) {
                // ordering: acquire; pairs with FREE: of those, too, who have not changed the count (I4).
                RETIRE.fence_acquire();
                return true;
            }
        }
        false
    }

    /// Gives back a run that was taken whole, with what that took of its count.
    fn let_go(&self, class: SizeClass, run: u32, change: Count) {
        RETURN_RUN.delay();
        // Relaxed: a read-modify-write, so who takes the run next acquires what this one did.
        let before = Count(self.count(run).add_relaxed(change.0));
        self.note_if_whole(class, run, before.plus(change));
    }

    /// A run that was taken out of the set could not be taken: whole again by now, or only pinned, it belongs there.
    fn look_again(&self, class: SizeClass, run: u32) {
        // ordering: acquire and release; pairs with itself and with the addition to the count that makes a run whole: the
        // run is out of the set before this look, and who makes it whole after the look puts it in.
        RETIRE.fence_acq_rel();
        let count = self.count_after_note(run);
        if count.is_of(class) {
            self.note_if_whole(class, run, count);
        }
    }

    #[inline(always)]
    fn note_if_whole(&self, class: SizeClass, run: u32, count: Count) {
        if count.whole() == self.class(class).words() {
            self.idle(class).note(run);
        }
    }
}

/// The count of a run that one thread has taken whole: of the class without holes with `KEEP`, otherwise of none.
#[inline(always)]
const fn taken_count<const KEEP: bool>(class: SizeClass) -> Count {
    if KEEP { Count::of_class(class) } else { Count::NONE }
}

/// Words of the bitmap, [`QUAD`] at once: some of each run of a row. Its steps are additions: `ptxas` 13.0 has been seen
/// to take products out of such a loop that must stay there.
#[derive(Clone, Copy)]
struct Quads {
    /// The first word of the run.
    run: u32,
    /// Which quad of the run.
    place: u32,
    /// The first word behind the last run.
    end: u32,
    quads: u32,
    stride: u32,
    run_step: u32,
    place_step: u32,
}

impl Quads {
    #[inline(always)]
    fn word(&self) -> u32 {
        self.run + self.place * QUAD as u32
    }

    #[inline(always)]
    fn step(&mut self) {
        self.run += self.run_step;
        self.place += self.place_step;
        if self.place >= self.quads {
            self.place -= self.quads;
            self.run += self.stride;
        }
    }
}
