//! Retiring: a run of which every block is a hole becomes free slabs again.

use super::class::SizeClass;
use super::entry::Entry;
use super::sets::Run;
use super::{FREE, Heap, POLL_NANOS, RETIRE};
use crate::sync::NATIVE_LAYOUT;
use crate::thread;

/// How often a thread tries to take all bits of a run whose count is full. A bit that is missing is on its way
/// there, or another thread has taken it for a moment.
const TRIES: u32 = if NATIVE_LAYOUT { 64 } else { 3 };

impl Heap {
    /// If all blocks of the run are holes, takes them all and returns its slabs to the free set.
    #[inline(never)]
    pub(super) fn retire_if_all_holes(&self, run: u32, class: SizeClass) {
        let info = self.class(class);
        for _ in 0..TRIES {
            // Acquire and release: after a try in vain, whose bits are back, the last of those who tried sees
            // the count that all others left (I7).
            if self.holes(run).add_acq_rel(0, RETIRE) != info.blocks {
                return;
            }
            if self.take_all_holes(run, class) {
                self.partial(class).remove(run);
                self.holes(run).sub_relaxed(info.blocks);
                self.give_slabs(Run { first: run, len: info.slabs });
                return;
            }
            thread::nanosleep(POLL_NANOS);
        }
    }

    /// Clears every bit of the run, if every one is set; none otherwise.
    fn take_all_holes(&self, run: u32, class: SizeClass) -> bool {
        let info = self.class(class);
        let first = self.word_of(run, 0);
        for w in 0..info.words() {
            // ordering: acquire; pairs with FREE: what the owners wrote, before the slabs are free (I4).
            let old = self.bits(first + w).swap_acquire(0, RETIRE);
            if old != info.full_word(w) {
                self.set_bits(first + w, old);
                (0..w).for_each(|w| self.set_bits(first + w, info.full_word(w)));
                return false;
            }
        }
        true
    }

    #[inline(always)]
    fn set_bits(&self, word: u32, bits: u32) {
        if bits != 0 {
            // ordering: release; pairs with CLAIM and RETIRE: it hands on what it has acquired (I4).
            self.bits(word).or_release(bits, FREE);
        }
    }

    /// Returns slabs, of which no one holds anything, to the free set.
    pub(super) fn give_slabs(&self, run: Run) {
        for slab in run.first..run.first + run.len {
            // Relaxed: the set's release is behind it.
            self.entry(slab).store_relaxed(Entry::FREE.0);
        }
        self.free_slabs().insert_run(run);
    }
}
