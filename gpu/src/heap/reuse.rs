//! Taking runs of which every block is a hole, as they are: no slab changes its class, and no set but that of the
//! idle runs is touched.
//!
//! A run is in the set of its class' idle runs when a free made it whole. That is a hint: who swaps the run's count
//! from the one of a whole run of the class to nothing has all its blocks (I2). It waits until it sees their bits, clears
//! them, which no one else changes then, and hands the run on by giving it a count again. Whoever takes a run takes it
//! out of the set; who makes it whole afterwards, or lets go of it, puts it in again.
//!
//! Round trips of a whole warp for a row of runs: the set, the counts, the bits, a release.

use super::class::SizeClass;
use super::class_info::{ClassInfo, full_word};
use super::count::Count;
use super::sets::Run;
use super::{Heap, INSTALL, RETIRE};
use crate::lanes::{Group, Lanes};
use crate::sync::{NATIVE_LAYOUT, QUAD, fence_acq_rel, fence_acquire, fence_release, quad};

/// Rows of a few words of the set that are tried: each that is not whole has lost its runs their place there.
const ROWS: u32 = if NATIVE_LAYOUT { 32 } else { 3 };

/// Looks at bits that were on their way before the count that tells of them: a few are enough.
const BIT_POLLS: u32 = if NATIVE_LAYOUT { 1 << 10 } else { 2 };

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
        while let Some(w) = idle.next_word_together(lanes.group(), from) {
            if w >= to {
                break;
            }
            for _ in 0..ROWS {
                let row = idle.row::<WHOLE, false>(lanes, w, to, info.slabs, most);
                if row.len == 0 {
                    break;
                }
                let run = self.take_row(lanes, class, info, row);
                if run.len > 0 {
                    let count = self.keep(lanes, class, info, run);
                    self.kept(lanes, class, info, run, count);
                    return run;
                }
            }
            from = (w + lanes.count()).min(to);
            self.settle_words(lanes.group(), class, w, from);
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
                let row = self.idle(class).row::<false, true>(lanes, base, to, info.slabs, most);
                if row.len == 0 {
                    break;
                }
                let run = self.take_row(lanes, class, info, row);
                if run.len > 0 {
                    return run;
                }
            }
            base += lanes.count();
        }
        Run::NONE
    }

    /// Takes every block of a row of idle runs, which has no more runs than there are lanes; or of the first ones of
    /// them, or none. Returns their slabs. No one else can change their bits, until they have a class again.
    #[inline(always)]
    pub(super) fn take_row<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        class: SizeClass,
        info: &ClassInfo,
        row: Run,
    ) -> Run {
        let (asks, run) = (lanes.rank() < row.len, row.first + lanes.rank() * info.slabs);
        let whole = Count::of_class(class).plus(Count::of_whole(info.words()));
        let mut seen = whole.0;
        if asks {
            // ordering: acquire; pairs with FREE: what the owners wrote, before the next ones (I4).
            seen = self.count(run).cas_acquire(whole.0, Count::NONE.0, RETIRE).unwrap_or_else(|seen| seen);
        }
        // A free's addition to the count may be there before its bits. Once they are seen, by who looks after the swap of
        // their run's count, they are before their clearing.
        lanes.sync();
        let full = self.is_full(lanes, info, row);
        let mut len = row.len;
        if !lanes.all(full && seen == whole.0) {
            len = self.shared().take_joined(lanes.group(), class, row, seen);
        }
        // What each lane acquired is before what the others do with it.
        lanes.order();
        self.clear_bits(lanes, info, Run { len, ..row });
        Run { first: row.first, len: len * info.slabs }
    }

    /// Whether all bits of a row of runs are set, as far as this lane looks.
    #[inline(always)]
    fn is_full<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, info: &ClassInfo, row: Run) -> bool {
        let (mut quads, mut full) = (self.quads(lanes, info, row), true);
        while quads.run < quads.end {
            let seen = self.read_quad(quads.word());
            let mut i = 0;
            while i < QUAD {
                full &= seen[i] == full_word(info.blocks, quads.place * QUAD as u32 + i as u32);
                i += 1;
            }
            quads.step();
        }
        full
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
            // Relaxed: `keep` or a set hands the run on.
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
            place: rank - own * info.quads,
            end: base + row.len * stride,
            quads: info.quads,
            stride,
            run_step: step * stride,
            place_step: count - step * info.quads,
        }
    }

    /// The rest of [`take_row`](Self::take_row), when some runs did not have the simplest count of a whole one, or not
    /// all bits yet. Returns how many of the first ones are taken; the others are given back.
    #[cold]
    #[inline(never)]
    fn take_joined(&self, lanes: Group, class: SizeClass, row: Run, seen: u64) -> u32 {
        let info = self.class(class);
        let (asks, run) = (lanes.rank() < row.len, row.first + lanes.rank() * info.slabs);
        let whole = Count::of_class(class).plus(Count::of_whole(info.words()));
        let joined = whole.plus(Count::JOINED);
        let (mut had, mut taken) = (whole, asks && seen == whole.0);
        if asks && seen == joined.0 {
            had = joined;
            // ordering: acquire; pairs with FREE, as above.
            taken = self.count(run).cas_acquire(joined.0, Count::NONE.0, RETIRE).is_ok();
        }
        let lost = lanes.ballot(asks && !taken);
        let mut len = if lost.is_empty() { row.len } else { lanes.rank_of(lost.leader()) };
        // The looks at bits are after the swaps of all lanes.
        lanes.order();
        if !self.await_bits(lanes, info, Run { len, ..row }) {
            len = 0;
        }
        if taken && lanes.rank() >= len {
            self.let_go(class, run, had);
        }
        if asks && !taken {
            self.look_again(class, run);
        }
        lanes.sync();
        len
    }

    /// Waits until all bits are there that the counts of a row of runs told of, which the lanes have taken. Whether they
    /// are.
    fn await_bits(&self, lanes: Group, info: &ClassInfo, row: Run) -> bool {
        for _ in 0..BIT_POLLS {
            let full = self.is_full(lanes, info, row);
            if lanes.all(full) {
                // ordering: acquire; pairs with FREE: of those, too, who have not changed the count (I4).
                fence_acquire(RETIRE);
                return true;
            }
        }
        false
    }

    /// Gives back a run that was taken whole, with the count that it had.
    fn let_go(&self, class: SizeClass, run: u32, had: Count) {
        // Relaxed: a read-modify-write, so who takes the run next acquires what this one did.
        let before = Count(self.count(run).add_relaxed(had.0));
        self.note_if_whole(class, run, before.plus(had));
    }

    /// A run that was taken out of the set could not be taken: whole again by now, or only pinned, it belongs there.
    fn look_again(&self, class: SizeClass, run: u32) {
        // ordering: acquire and release; pairs with itself and with the addition to the count that makes a run whole: the
        // run is out of the set before this look, and who makes it whole after the look puts it in.
        fence_acq_rel(RETIRE);
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

    /// Runs that the lanes have taken are of the class again, with all blocks in their hands. Returns the count of the
    /// lane's run, for [`kept`](Self::kept).
    #[inline(always)]
    pub(super) fn keep<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        class: SizeClass,
        info: &ClassInfo,
        run: Run,
    ) -> Count {
        // All lanes' clearing is before each lane's fence.
        lanes.sync();
        // ordering: release; pairs with CLAIM: the bits were cleared, before who pins the run looks at them; and with
        // TAKE: what was acquired with the runs (I4).
        fence_release(INSTALL);
        let own = lanes.rank() * info.slabs;
        if own >= run.len {
            return Count::NONE;
        }
        let class = Count::of_class(class);
        Count(self.count(run.first + own).add_relaxed(class.0)).plus(class)
    }

    /// Once the blocks are handed out. Another lane's run may have come back whole before it had a class again: then who
    /// looked for an idle one has passed it by.
    #[inline(always)]
    pub(super) fn kept<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        class: SizeClass,
        info: &ClassInfo,
        run: Run,
        count: Count,
    ) {
        if count.whole() == info.words() {
            self.shared().idle(class).note(run.first + lanes.rank() * info.slabs);
        }
    }
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
