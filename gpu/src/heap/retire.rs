//! Retire: removes runs from their sets, and makes the slabs of fully free runs free.
//!
//! - [`Runs::first_open`] removes runs without free blocks from the list.
//! - [`Runs::sweep`] removes runs that are not fully free from the idle set.
//! - [`Runs::retire`] removes fully free runs from both sets and takes all of their blocks.
//!
//! A run is removed from a set first and then looked at again. If it changed meanwhile, either this
//! look finds the change, or the thread that made the change finds the run removed and inserts it.
//! (Only `retire` removes a run from the list without another look: it owns all blocks then.)
//!
//! A thread that retires a run swaps its count from "all words" to 0 and then claims all bits. If a
//! bit is missing, the thread sets the others again.
//!
//! The invariants are those of [`runs`](super::runs).

use super::bits::{WORD_BITS, full_word};
use super::class::SizeClass;
use super::class_info::ClassInfo;
use super::entry::Entry;
use super::runs::Runs;
use super::{FREE_ENTRY, RETIRE, SWEEP, TAKE, UNLIST};
use crate::sync::{AtomicU32, NATIVE_LAYOUT};
use core::array::from_fn;
use core::ops::BitOr;

/// Words or counts that are looked at together: their round trips overlap.
const AT_ONCE: usize = if NATIVE_LAYOUT { 4 } else { 1 };

impl Runs<'_> {
    /// The first of the runs `bits` of word `w` of the list that seems to have free blocks. Unlists
    /// those before it, which have none; `moves` counts the moves.
    pub fn first_open(
        &self,
        class: SizeClass,
        info: &ClassInfo,
        w: u32,
        bits: u32,
        moves: &mut u32,
    ) -> Option<u32> {
        let first = w * WORD_BITS - self.layout.run_index(class, 0);
        let mut rest = bits;
        // Relaxed: hints. A run of another class is listed here if a free listed it late.
        let is_full =
            |run| self.is_full(run, info, |word| word.load_relaxed()) || !self.starts(run, class, info.slabs);
        while rest != 0 && is_full(first + rest.trailing_zeros()) {
            rest &= rest - 1;
        }
        if rest != bits {
            *moves += 1;
            rest |= self.overview().class(class).during(|| self.unlist(class, info, w, bits & !rest));
        }
        (rest != 0).then(|| first + rest.trailing_zeros())
    }

    /// Whether no block of a run is free, in words that are looked at by `look`.
    fn is_full(&self, run: u32, info: &ClassInfo, look: impl Fn(&AtomicU32) -> u32) -> bool {
        let first = self.first_word(run);
        let at = |w: u32| look(self.bits(first + w));
        // Up to the end of the slab, words after the last one have no bits (I1).
        (0..info.words()).step_by(AT_ONCE).all(|w| {
            let words: [u32; AT_ONCE] = from_fn(|i| at(w + i as u32));
            words.into_iter().fold(0, BitOr::bitor) == 0
        })
    }

    /// Removes runs from the list, but for those that have free blocks. Returns the latter.
    fn unlist(&self, class: SizeClass, info: &ClassInfo, w: u32, bits: u32) -> u32 {
        let first = w * WORD_BITS - self.layout.run_index(class, 0);
        let (mut rest, mut open) = (self.listed().remove_bits(w, bits), 0);
        // ordering: release; pairs with RELEASE: a thread that frees a block after the looks below
        // sees the list without the run, and lists it (I5).
        UNLIST.fence_release();
        while rest != 0 {
            let bit = rest.trailing_zeros();
            // An OR of no bits: it has a place among all changes of the word.
            let is_full = || self.is_full(first + bit, info, |word| word.or_relaxed(0));
            if self.starts(first + bit, class, info.slabs) && !is_full() {
                open |= 1 << bit;
            }
            rest &= rest - 1;
        }
        if open != 0 {
            self.listed().insert_bits(w, open);
        }
        open
    }

    /// Which of the runs `bits` of word `w` of the idle set are fully free by their counts. Removes
    /// the others from the set.
    pub fn sweep(&self, class: SizeClass, info: &ClassInfo, w: u32, bits: u32) -> u32 {
        let first = w * WORD_BITS - self.layout.run_index(class, 0);
        let (all, mut free, mut rest) = (info.words(), 0, bits);
        while rest != 0 {
            let next = [(); AT_ONCE].map(|()| {
                let bit = rest.trailing_zeros() % WORD_BITS;
                rest &= rest.wrapping_sub(1);
                bit
            });
            // Relaxed: hints.
            let counts = next.map(|bit| self.count(first + bit).load_relaxed());
            for (bit, count) in next.into_iter().zip(counts) {
                free |= u32::from(count == all) << bit;
            }
        }
        free &= bits;
        if free != bits {
            // Not of the class: searches for other classes and for slabs look at idle runs, too.
            self.overview().common().during(|| self.remove_idle(class, info, w, bits & !free));
        }
        free
    }

    /// Removes runs from the idle set, but for those that are fully free.
    fn remove_idle(&self, class: SizeClass, info: &ClassInfo, w: u32, bits: u32) {
        let first = w * WORD_BITS - self.layout.run_index(class, 0);
        let (mut rest, mut free) = (self.idle().remove_bits(w, bits), 0);
        // ordering: release; pairs with RELEASE, as in `retire` (I6).
        SWEEP.fence_release();
        while rest != 0 {
            let bit = rest.trailing_zeros();
            free |= u32::from(self.is_free(first + bit, class, info)) << bit;
            rest &= rest - 1;
        }
        if free != 0 {
            self.idle().insert_bits(w, free);
        }
    }

    /// Whether all blocks of a run that was removed from the idle set are free. If not, it has seen
    /// a word that is not fully free, and the free that changes this marks the run idle. A run of
    /// another class is idle here if a free marked it late.
    fn is_free(&self, run: u32, class: SizeClass, info: &ClassInfo) -> bool {
        self.starts(run, class, info.slabs)
            && (0..info.words()).all(|w| {
                let (word, full) = (self.bits(self.first_word(run) + w), full_word(info.blocks, w));
                // Relaxed: the fence. An OR of no bits has a place among all changes of the word.
                word.load_relaxed() == full || word.or_relaxed(0) == full
            })
    }

    /// Takes all blocks of the runs `bits` of word `w` of the idle set, if they are fully free.
    /// Returns the runs whose slabs are then the caller's, with the entry of free slabs. To be
    /// called during a move that all searches look at: one of
    /// [`common`](super::overview::Overview::common).
    pub fn retire(&self, class: SizeClass, info: &ClassInfo, w: u32, bits: u32) -> u32 {
        let first = w * WORD_BITS - self.layout.run_index(class, 0);
        let (mut rest, mut taken) = (self.idle().remove_bits(w, bits), 0);
        // ordering: release; pairs with RELEASE: a thread that makes a word fully free after the
        // looks below sees the idle set without the run, and inserts it (I6).
        TAKE.fence_release();
        while rest != 0 {
            let bit = rest & rest.wrapping_neg();
            let run = first + bit.trailing_zeros();
            if self.take(run, class, info) {
                taken |= bit;
                for slab in run..run + info.slabs {
                    FREE_ENTRY.delay();
                    // Relaxed: the insertion into the free set releases it.
                    self.entry(slab).store_relaxed(Entry::FREE.0);
                }
            }
            rest ^= bit;
        }
        if taken != 0 {
            self.listed().remove_bits(w, taken);
        }
        taken
    }

    /// Takes all blocks of a run that was idle, if it is fully free. All or none.
    fn take(&self, run: u32, class: SizeClass, info: &ClassInfo) -> bool {
        let (all, first) = (info.words(), self.first_word(run));
        // Relaxed, as the next one: the bits decide.
        if !self.starts(run, class, info.slabs) {
            return false;
        }
        if self.count(run).cas_relaxed(all, 0).is_err() {
            if self.is_free(run, class, info) {
                self.idle().insert(self.layout.run_index(class, run));
            }
            return false;
        }
        let (mut taken, mut old) = (0, 0);
        while taken < all {
            RETIRE.delay();
            old = self.claim(first + taken, u32::MAX);
            if old != full_word(info.blocks, taken) {
                break;
            }
            taken += 1;
        }
        // Certain now (I2), if there is a block.
        if taken == all && self.starts(run, class, info.slabs) {
            return true;
        }
        self.count(run).add_relaxed(all);
        if taken < all && old != 0 {
            self.put_back(first + taken, old, old);
        }
        for w in 0..taken {
            let full = full_word(info.blocks, w);
            self.put_back(first + w, full, full);
        }
        false
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
