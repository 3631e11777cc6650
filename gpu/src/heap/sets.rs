//! A set of numbers, mostly of slabs, that any thread puts some into and takes some from.
//!
//! ```text
//! summary  | 1 0 1 ... |          bit w: word w may have slabs
//! words    | 0100 | 0000 | 1101 | ...   bit i: slab i is in the set
//! ```
//!
//! - I1. A slab belongs to the set while its bit is set. Who clears it has taken the slab, alone.
//! - I2. A word with slabs, and no insertion or clearing of it under way, has its bit in the summary: who
//!   puts the first slab in sets the bit after, and who clears the bit looks at the word once more.
//!
//! Lock-free: a claim that gets nothing lost to another claim.

#[cfg(all(test, not(loom)))]
mod tests;
mod together;

pub(super) use together::WINDOWS;

use super::layout::{WORD_BITS, WORD_LOG2};
use super::{GIVE_SLAB, NOTE_RUN, SUMMARISE, TAKE_SLAB};
use crate::sync::{AtomicU32, NATIVE_LAYOUT};

/// Words that are taken at once.
const AT_ONCE: usize = if NATIVE_LAYOUT { 4 } else { 1 };

/// Slabs one after the other, or runs of slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub first: u32,
    /// None for 0.
    pub len: u32,
}

impl Run {
    pub const NONE: Run = Run { first: 0, len: 0 };

    /// Runs of `slabs` slabs, as slabs.
    #[inline(always)]
    pub const fn of_slabs(self, slabs: u32) -> Self {
        Run { first: self.first, len: self.len * slabs }
    }
}

/// The set. Its words and their summary lie in device memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexSet {
    words: *const AtomicU32,
    len: u32,
}

impl IndexSet {
    /// The set at this place.
    ///
    /// # Safety
    /// `words` starts `len` words and a summary word for every 32 of them, as [`HeapLayout::set_words`] counts them,
    /// which stay there while the set or a copy of it is used.
    ///
    /// [`HeapLayout::set_words`]: super::layout::HeapLayout::set_words
    #[inline(always)]
    pub unsafe fn new(words: *const AtomicU32, len: u32) -> Self {
        IndexSet { words, len }
    }

    #[inline(always)]
    fn at(&self, i: u32) -> &AtomicU32 {
        // SAFETY: inside the words and their summary, by the callers.
        let word = unsafe { self.words.add(i as usize) };
        // SAFETY: `new`'s promise.
        unsafe { &*word }
    }

    #[inline(always)]
    fn word(&self, w: u32) -> &AtomicU32 {
        debug_assert!(w < self.len);
        self.at(w)
    }

    #[inline(always)]
    fn summary(&self, w: u32) -> &AtomicU32 {
        debug_assert!(w < self.len);
        self.at(self.len + (w >> WORD_LOG2))
    }

    /// Inserts a run to be looked at. It publishes nothing: it runs only after the addition to the run's count has
    /// returned, and a thread that takes the run out then reads the count by a read-modify-write, so it sees the addition.
    #[inline(always)]
    pub fn note(&self, run: u32) {
        let w = run >> WORD_LOG2;
        NOTE_RUN.delay();
        // Relaxed: the above.
        if self.word(w).or_relaxed(1 << (run % WORD_BITS)) == 0 {
            // ordering: release; pairs with `settle_summary`: the word before its bit (I2).
            self.summary(w).at(SUMMARISE).or_release(1 << (w % WORD_BITS));
        }
    }

    /// Puts slabs in.
    #[inline(never)]
    pub fn insert_run(&self, run: Run) {
        let (mut slab, end) = (run.first, run.first + run.len);
        while slab < end {
            let bits = low_bits(end - slab) << (slab % WORD_BITS);
            self.insert_bits(slab >> WORD_LOG2, bits);
            slab = (slab | (WORD_BITS - 1)) + 1;
        }
    }

    /// Sets bits of a word and returns it as it was.
    #[inline(never)]
    fn insert_bits(&self, w: u32, bits: u32) -> u32 {
        // ordering: release; pairs with TAKE_SLAB: what the last users wrote before the next ones.
        let old = self.word(w).at(GIVE_SLAB).or_release(bits);
        if old == 0 {
            // ordering: release; pairs with `settle_summary`: the word before its bit (I2).
            self.summary(w).at(SUMMARISE).or_release(1 << (w % WORD_BITS));
        }
        old
    }

    /// Clears bits of a word and returns those that were set: the caller's slabs.
    fn claim_bits(&self, w: u32, bits: u32) -> u32 {
        // ordering: acquire; pairs with GIVE_SLAB.
        let old = self.word(w).at(TAKE_SLAB).and_acquire(!bits);
        if old & !bits == 0 {
            self.settle_summary(w);
        }
        old & bits
    }

    /// Clears the bit of word `w` in the summary if it has no slabs.
    pub fn settle(&self, w: u32) {
        if self.word(w).load_relaxed() == 0 {
            self.settle_summary(w);
        }
    }

    /// Word `w` was seen empty: clears its bit of the summary, unless it has slabs again.
    #[inline(never)]
    fn settle_summary(&self, w: u32) {
        let bit = 1 << (w % WORD_BITS);
        // ordering: acquire; pairs with SUMMARISE: who set this bit before had set the word's (I2).
        self.summary(w).at(SUMMARISE).and_acq_rel(!bit);
        if self.word(w).load_relaxed() != 0 {
            // ordering: release; pairs with itself above, as the first insertion's does.
            self.summary(w).at(SUMMARISE).or_release(bit);
        }
    }

    /// Takes a slab out. Whether it was there.
    #[inline(never)]
    pub fn remove(&self, slab: u32) -> bool {
        self.claim_bits(slab >> WORD_LOG2, 1 << (slab % WORD_BITS)) != 0
    }

    /// A word with slabs, the first from word `from` on, around the end; by the summary alone, so it may have
    /// none by now.
    #[inline(never)]
    pub fn next_word(&self, from: u32) -> Option<u32> {
        let groups = self.len.div_ceil(WORD_BITS);
        let (first, within) = (from >> WORD_LOG2, from % WORD_BITS);
        // The first group once for the words from `from` on, and at the end for those before.
        for i in 0..=groups {
            let group = if first + i < groups { first + i } else { first + i - groups };
            let seen = self.at(self.len + group).load_relaxed();
            let seen = match i {
                0 => seen & !low_bits(within),
                _ if i == groups => seen & low_bits(within),
                _ => seen,
            };
            if seen != 0 {
                return Some(group * WORD_BITS + seen.trailing_zeros());
            }
        }
        None
    }

    /// A slab in the set, the first from word `from` on, around the end. It may be taken by now.
    #[inline(never)]
    pub fn next(&self, from: u32) -> Option<u32> {
        let mut from = from;
        // Each word at most: those with a bit in the summary and no slab are rare.
        for _ in 0..self.len {
            let w = self.next_word(from)?;
            let seen = self.word(w).load_relaxed();
            if seen != 0 {
                return Some(w * WORD_BITS + seen.trailing_zeros());
            }
            self.settle_summary(w);
            from = if w + 1 < self.len { w + 1 } else { 0 };
        }
        None
    }

    /// Takes as many slabs from `first` on as are there, `most` at most.
    #[inline(never)]
    pub fn claim_at(&self, first: u32, most: u32) -> Run {
        let mut len = 0;
        while len < most && (first + len) >> WORD_LOG2 < self.len {
            // A few words at once: their round trips are as long as one.
            let mut got = [0; AT_ONCE];
            let mut slab = first + len;
            for got in &mut got {
                let (w, bit) = (slab >> WORD_LOG2, slab % WORD_BITS);
                if slab < first + most && w < self.len {
                    let wanted = low_bits(first + most - slab) << bit;
                    // ordering: acquire; pairs with GIVE_SLAB.
                    *got = self.word(w).at(TAKE_SLAB).and_acquire(!wanted);
                }
                slab = (slab | (WORD_BITS - 1)) + 1;
            }
            let mut joined = true;
            let mut slab = first + len;
            for old in got {
                if slab >= first + most || slab >> WORD_LOG2 >= self.len {
                    return Run { first, len };
                }
                let (w, bit) = (slab >> WORD_LOG2, slab % WORD_BITS);
                let wanted = low_bits(first + most - slab) << bit;
                if old & !wanted == 0 {
                    self.settle_summary(w);
                }
                let got = old & wanted;
                let run = if joined { run_at(got, bit) } else { 0 };
                // What is not joined to the run goes back.
                let surplus = got & !(low_bits(run) << bit);
                if surplus != 0 {
                    self.insert_bits(w, surplus);
                }
                len += run;
                joined &= bit + run == WORD_BITS;
                slab = (slab | (WORD_BITS - 1)) + 1;
            }
            if !joined {
                break;
            }
        }
        Run { first, len }
    }

    /// Word `w`: a bit for each of its slabs in the set.
    pub fn bits(&self, w: u32) -> u32 {
        self.word(w).load_relaxed()
    }

    /// Whether the summary says that word `w` may have slabs.
    pub fn is_summarised(&self, w: u32) -> bool {
        self.summary(w).load_relaxed() >> (w % WORD_BITS) & 1 == 1
    }

    /// Whether a slab is in the set.
    pub fn contains(&self, slab: u32) -> bool {
        self.bits(slab >> WORD_LOG2) >> (slab % WORD_BITS) & 1 == 1
    }

    /// Whether none of the set is in the word of `first` from there on.
    pub fn is_clear_from(&self, first: u32) -> bool {
        self.word(first >> WORD_LOG2).load_relaxed() >> (first % WORD_BITS) == 0
    }

    /// How many slabs from `first` on are in the set, `most` at most.
    #[inline(never)]
    pub fn len_at(&self, first: u32, most: u32) -> u32 {
        let mut len = 0;
        while len < most && (first + len) >> WORD_LOG2 < self.len {
            let slab = first + len;
            let run = run_at(self.word(slab >> WORD_LOG2).load_relaxed(), slab % WORD_BITS);
            len += run;
            if slab % WORD_BITS + run < WORD_BITS {
                break;
            }
        }
        if len < most { len } else { most }
    }
}

/// The lowest `n` bits, all for 32 and more.
#[inline(always)]
pub(super) const fn low_bits(n: u32) -> u32 {
    if n >= WORD_BITS { u32::MAX } else { (1 << n) - 1 }
}

/// Set bits of `word` from `bit` on until the first clear one.
#[inline(always)]
const fn run_at(word: u32, bit: u32) -> u32 {
    if bit >= WORD_BITS {
        return 0;
    }
    let run = (!(word >> bit)).trailing_zeros();
    if run < WORD_BITS - bit { run } else { WORD_BITS - bit }
}

/// How many set bits there are in a row, at most.
fn longest_run(bits: u64) -> u32 {
    let (mut rest, mut len) = (bits, 0);
    while rest != 0 {
        // What is left is where runs of one more end.
        rest &= rest << 1;
        len += 1;
    }
    len
}

/// Where the first `least` set bits in a row start; where the last set bits do when there is no such place.
fn longest_start(word: u32, least: u32) -> u32 {
    let mut start = word.trailing_zeros();
    while start < WORD_BITS {
        let end = start + run_at(word, start);
        let rest = if end < WORD_BITS { word >> end << end } else { 0 };
        if end - start >= least || rest == 0 {
            break;
        }
        start = rest.trailing_zeros();
    }
    start
}
