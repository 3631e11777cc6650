//! What lanes do with a set together, each at a word.

use super::{IndexSet, Run, longest_run, longest_start, low_bits, run_at};
use crate::heap::TAKE_RUN;
use crate::heap::layout::{WORD_BITS, WORD_LOG2};
use crate::lanes::{Group, Lanes};
use crate::sync::NATIVE_LAYOUT;

/// Races for a run of slabs that are lost before the word with it is passed over: each is another group's success.
const LOST_RACES: u32 = if NATIVE_LAYOUT { 64 } else { 2 };

/// Times as many words as there are lanes are looked at for a row at once: those of shards that have a cursor together.
pub(in crate::heap) const WINDOWS: usize = if NATIVE_LAYOUT { 4 } else { 1 };

impl Group {
    /// Runs `f` on the leader and gives every lane its answer.
    #[inline(always)]
    pub(in crate::heap) fn lead_run(self, f: impl FnOnce() -> Run) -> Run {
        let packed = self.lead_64(|| {
            let run = f();
            u64::from(run.first) << 32 | u64::from(run.len)
        });
        // What the leader took is before what the others do with it.
        self.order();
        Run { first: (packed >> 32) as u32, len: packed as u32 }
    }

    /// The most that a lane has, as far as a word has bits.
    pub(in crate::heap) fn longest(self, len: u32) -> u32 {
        self.union(low_bits(len)).count_ones()
    }
}

impl IndexSet {
    /// A word with slabs, the first from word `from` on, by all lanes together; by the summary alone.
    #[inline(never)]
    pub fn next_word_together(&self, lanes: Group, from: u32) -> Option<u32> {
        let (first, groups) = (from >> WORD_LOG2, self.len.div_ceil(WORD_BITS));
        let mut base = first;
        while base < groups {
            let group = base + lanes.rank();
            let seen = if group < groups { self.at(self.len + group).load_relaxed() } else { 0 };
            let seen = if group == first { seen & !low_bits(from % WORD_BITS) } else { seen };
            let found = lanes.ballot(seen != 0);
            if !found.is_empty() {
                let w = group * WORD_BITS + seen.trailing_zeros();
                return Some(lanes.read_32(w, found.leader()));
            }
            base += lanes.count();
        }
        None
    }

    /// Takes out slabs `step` apart, up to `most` and as many as there are lanes: a row that is seen in as many words
    /// from `from` on, and before `to`, in the first of these. Looks at `TIMES` times as many words at once. Hints both:
    /// others may take them at the same time. Returns the first and how many there are.
    #[inline(always)]
    pub fn row<const WHOLE: bool, const TIMES: usize>(
        &self,
        lanes: Lanes<WHOLE>,
        from: u32,
        to: u32,
        step: u32,
        most: u32,
    ) -> Run {
        let mut words = [0; TIMES];
        let mut w = from + lanes.rank();
        for word in &mut words {
            *word = if w < to { self.word(w).load_relaxed() } else { 0 };
            w += lanes.count();
        }
        let (mut from, mut marked) = (from, lanes.ballot(words[0] != 0));
        let mut seen = words[0];
        for word in words.into_iter().skip(1) {
            if marked.is_empty() {
                from += lanes.count();
                (seen, marked) = (word, lanes.ballot(word != 0));
            }
        }
        if marked.is_empty() {
            return Run::NONE;
        }
        self.take_row_at(lanes, from, seen, marked.leader(), step, most)
    }

    /// The same in the last of as many words as there are lanes.
    #[inline(always)]
    pub fn last_row(&self, lanes: Group, from: u32, to: u32, step: u32, most: u32) -> Run {
        let w = from + lanes.rank();
        let seen = if w < to { self.word(w).load_relaxed() } else { 0 };
        let marked = lanes.ballot(seen != 0);
        if marked.is_empty() {
            return Run::NONE;
        }
        self.take_row_at(lanes, from, seen, marked.last(), step, most)
    }

    /// Takes out the row that begins in the word that lane `found` has seen. The lanes have seen words from `from` on.
    #[inline(always)]
    fn take_row_at<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        from: u32,
        seen: u32,
        found: u32,
        step: u32,
        most: u32,
    ) -> Run {
        let w = from + lanes.rank();
        let first = lanes.read_32(w * WORD_BITS + seen.trailing_zeros(), found);
        let mine = first + lanes.rank() * step;
        let place = (mine >> WORD_LOG2) - from;
        let inside = place < lanes.count();
        let word = lanes.read_32(seen, lanes.lane_of(if inside { place } else { 0 }));
        let in_row = inside && lanes.rank() < most && word >> (mine % WORD_BITS) & 1 == 1;
        let beyond = lanes.ballot(!in_row);
        let len = if beyond.is_empty() { lanes.count() } else { lanes.rank_of(beyond.leader()) };
        if lanes.rank() < len {
            TAKE_RUN.delay();
            // Relaxed: who cannot take the run then looks at its count once more, behind a fence.
            self.word(mine >> WORD_LOG2).and_relaxed(!(1 << (mine % WORD_BITS)));
        }
        Run { first, len }
    }

    /// Takes from `least` to `most` slabs one after the other, the first found from word `from` on, by all lanes
    /// together: each looks at a word, and at how the next one goes on. `least` is a word's bits at most.
    #[inline(never)]
    pub fn claim_run_together(&self, lanes: Group, from: u32, least: u32, most: u32) -> Run {
        let (mut from, mut lost) = (from, 0);
        while let Some(base) = self.next_word_together(lanes, from) {
            let w = base + lanes.rank();
            let seen = if w < self.len { self.word(w).load_relaxed() } else { 0 };
            let next = if w + 1 < self.len { self.word(w + 1).load_relaxed() } else { 0 };
            let start = longest_start(seen, least);
            let len = run_at(seen, start);
            let beyond = if start + len == WORD_BITS { run_at(next, 0) } else { 0 };
            let found = lanes.ballot(seen != 0 && len + beyond >= least);
            from = base + lanes.count();
            if !found.is_empty() {
                let first = lanes.read_32(w * WORD_BITS + start, found.leader());
                let run = lanes.lead_run(|| self.claim_at(first, most));
                if run.len >= least {
                    return run;
                }
                // Others were faster. The rest of these words, once more.
                if lanes.leads() {
                    self.insert_run(run);
                }
                lost += 1;
                from = first / WORD_BITS + u32::from(lost > LOST_RACES);
            } else if lanes.leads() && seen == 0 {
                self.settle_summary(base);
            }
            lanes.sync();
        }
        Run::NONE
    }

    /// How many slabs lie one after the other in the set, at most, as far as a word has bits.
    #[inline(never)]
    pub fn longest_together(&self, lanes: Group) -> u32 {
        let (mut from, mut longest) = (0, 0);
        while let Some(base) = self.next_word_together(lanes, from) {
            let w = base + lanes.rank();
            let seen = if w < self.len { self.word(w).load_relaxed() } else { 0 };
            let next = if w + 1 < self.len { self.word(w + 1).load_relaxed() } else { 0 };
            longest = longest.max(longest_run(u64::from(next) << WORD_BITS | u64::from(seen)));
            from = base + lanes.count();
        }
        lanes.longest(longest)
    }
}
