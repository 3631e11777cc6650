//! Retiring: a run of which every block is a hole becomes free slabs again.

use super::class::SizeClass;
use super::entry::Entry;
use super::sets::Run;
use super::{FREE, Heap, POLL_NANOS, RETIRE};
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;
use crate::thread;

/// How often a thread tries to take all bits of a run whose count is full. A bit that is missing is on its way
/// there, or another thread has taken it for a moment.
const TRIES: u32 = if NATIVE_LAYOUT { 64 } else { 3 };

/// Words that a lane takes at once.
const AT_ONCE: usize = if NATIVE_LAYOUT { 4 } else { 1 };

impl Heap {
    /// If all blocks of the run are holes, takes them all and returns its slabs to the free set. Whether it did.
    /// Every lane of the group calls it alike.
    #[inline(never)]
    pub(super) fn retire(&self, group: Group, run: u32, class: SizeClass) -> bool {
        let info = self.class(class);
        for _ in 0..TRIES {
            // Acquire and release: after a try in vain, whose bits are back, the last of those who tried sees
            // the count that all others left (I7).
            let holes = group.lead_64(|| self.holes(run).add_acq_rel(0, RETIRE).into());
            if holes != info.blocks.into() {
                return false;
            }
            if self.take_all_holes(group, run, class) {
                if group.leads() {
                    self.holes(run).sub_relaxed(info.blocks);
                    self.give_slabs(Run { first: run, len: info.slabs });
                }
                return true;
            }
            thread::nanosleep(POLL_NANOS);
        }
        false
    }

    /// Clears every bit of the run, if every one is set; none otherwise.
    fn take_all_holes(&self, group: Group, run: u32, class: SizeClass) -> bool {
        let info = self.class(class);
        let (first, words) = (self.word_of(run, 0), info.words());
        let mut all = true;
        let mut w = group.rank();
        // How many of its words the lane has taken whole.
        let mut taken = 0;
        while w < words && all {
            // A few at once: their round trips are as long as one.
            let mut old = [0; AT_ONCE];
            for (i, old) in (0..).zip(&mut old) {
                if w + i * group.count() < words {
                    // ordering: acquire; pairs with FREE: what the owners wrote, before the slabs are free (I4).
                    *old = self.bits(first + w + i * group.count()).swap_acquire(0, RETIRE);
                }
            }
            for old in old {
                if w < words {
                    if all && old == info.full_word(w) {
                        taken += 1;
                    } else {
                        self.set_bits(first + w, old);
                        all = false;
                    }
                }
                w += group.count();
            }
        }
        if group.all(all) {
            // What the lanes acquired is before what the leader gives on.
            group.sync();
            return true;
        }
        (0..taken).map(|i| group.rank() + i * group.count()).for_each(|w| {
            self.set_bits(first + w, info.full_word(w));
        });
        group.sync();
        false
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
