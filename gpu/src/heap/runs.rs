//! Runs: the blocks of the slabs that have a size class. A run is a few consecutive slabs.
//!
//! ```text
//! entry[slab]        the class, the run's slabs, and the slab's number among them
//! bitmap             a bit for each block: set while the block is free
//! count[run]         the number of fully free words of the run
//! listed             the set of runs that may have free blocks, by class
//! idle               the set of runs that may be fully free, by class
//! ```
//!
//! The bitmap alone decides which blocks are free. Everything else are hints.
//!
//! - I1. A block is free while its bit is set. The thread that clears the bit owns the block; it
//!   sets the bit to free the block. The bits of a slab without a class are zero.
//! - I2. While a thread owns a block, the run keeps its entries: they are written only by a thread
//!   that owns all blocks of the run, or all of its slabs. So a thread that claims a bit and then
//!   finds its class in the run's entry owns a block of that class. If it finds another class, it
//!   owns a block of the run that the slab belongs to now, and sets the bit again.
//! - I3. Writes to a block happen before its bit is set, and that before the claim that clears the
//!   bit. A run's entries are written before its bits are set by the same thread.
//! - I4. A thread that makes a word fully free adds 1 to the count, and a thread that claims from a
//!   fully free word subtracts 1, each after the change of the word. So without operations under
//!   way, `count = fully free words`. Between the two steps of several threads it can differ by the
//!   number of these threads.
//! - I5. A run with a block that a free has set free is listed when that free returns, except
//!   during a move.
//! - I6. A fully free run is idle, except during the free that made it so, and during a move.
//!
//! A thread that retires a run swaps its count from "all words" to 0 and then claims all bits. If a
//! bit is missing, the thread sets the others again.

use super::class::SizeClass;
use super::class_info::{ClassInfo, full_word, words};
use super::entry::Entry;
use super::index_set::{IndexSet, WORD_BITS};
use super::layout::HeapLayout;
use super::moves::Before;
use super::overview::Overview;
use super::parts::Parts;
use super::{
    ADD_COUNT, BEGIN_COUNT, CLAIM, FREE_ENTRY, LIST, LOOK_AGAIN, PUBLISH, PUT_BACK, RELEASE, RETIRE,
    SET_BITS, STORE_ENTRY, UNLIST,
};
use crate::lanes::select_bit;
use crate::sync::{AtomicU32, NATIVE_LAYOUT};

/// All runs of a heap.
#[derive(Clone, Copy)]
pub(super) struct Runs<'a> {
    pub parts: &'a Parts,
    pub layout: &'a HeapLayout,
}

/// A run and what is known of it.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// Its first slab.
    pub first: u32,
    pub class: SizeClass,
    /// Its number of blocks.
    pub blocks: u32,
}

/// What a free found besides the bits it set.
#[derive(Clone, Copy)]
pub(super) struct Released {
    /// The word before.
    pub old: u32,
    /// Whether `finish_release` has something to do.
    pub is_unfinished: bool,
    /// Whether the run may be fully free now.
    pub is_idle: bool,
}

impl Runs<'_> {
    #[inline(always)]
    pub fn entry(&self, slab: u32) -> &AtomicU32 {
        debug_assert!(slab < self.layout.slabs);
        // SAFETY: a slab of the heap, by the callers.
        let word = unsafe { self.parts.entries.add(slab as usize) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*word }
    }

    #[inline(always)]
    pub fn count(&self, run: u32) -> &AtomicU32 {
        debug_assert!(run < self.layout.slabs);
        // SAFETY: a slab of the heap, by the callers.
        let word = unsafe { self.parts.counts.add(run as usize) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*word }
    }

    /// The number of fully free words of a run. A hint; less than zero while claims overtake frees
    /// (I4).
    #[inline(always)]
    pub fn free_words(&self, run: u32) -> i32 {
        self.count(run).load_relaxed().cast_signed()
    }

    /// Word `w` of the bitmap.
    #[inline(always)]
    pub fn bits(&self, w: u32) -> &AtomicU32 {
        debug_assert!(u64::from(w) < self.layout.block_words());
        // SAFETY: a word of a slab of the heap, by the callers.
        let word = unsafe { self.parts.bitmap.add(w as usize) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*word }
    }

    /// The first word of the bitmap of a run.
    #[inline(always)]
    pub fn first_word(&self, run: u32) -> u32 {
        run * self.layout.words_per_slab()
    }

    #[inline(always)]
    pub fn listed(&self) -> IndexSet {
        // SAFETY: `from_raw_parts`' promise.
        unsafe { IndexSet::new(self.parts.listed, self.layout.run_indices()) }
    }

    #[inline(always)]
    pub fn idle(&self) -> IndexSet {
        // SAFETY: `from_raw_parts`' promise.
        unsafe { IndexSet::new(self.parts.idle, self.layout.run_indices()) }
    }

    #[inline(always)]
    fn overview(&self) -> &Overview {
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*self.parts.overview }
    }

    fn index(&self, run: Run) -> u32 {
        self.layout.run_index(run.class, run.first)
    }

    /// Whether a run of the class starts at this slab. Certain for a thread that owns a block of
    /// the run (I2).
    #[inline(always)]
    pub fn starts(&self, run: u32, class: SizeClass, slabs: u32) -> bool {
        // Relaxed: a thread that owns a block acquired the entry with the claim (I3).
        self.entry(run).load_relaxed() == Entry::of_class(class, 0, slabs).0
    }

    /// Clears bits of a word and returns the word as it was.
    #[inline(always)]
    pub fn claim(&self, w: u32, bits: u32) -> u32 {
        // ordering: acquire; pairs with FREE and PUBLISH: the last owner's writes and the run's
        // entries before the claim (I3).
        self.bits(w).at(CLAIM).and_acquire(!bits)
    }

    /// Accounts for a claim of bits from a word of a run that was `old`.
    #[inline(always)]
    pub fn count_claim(&self, run: u32, old: u32, full: u32) {
        if old == full {
            // Relaxed: a hint (I4).
            self.count(run).sub_relaxed(1);
        }
    }

    /// Sets bits of word `w` of a run. A release fence is before it. The caller owns the blocks.
    #[inline(always)]
    pub fn release(&self, run: Run, w: u32, bits: u32) -> Released {
        let old = self.set_bits(run, w, bits);
        self.count_release(run, w, bits, old)
    }

    /// Sets the bits. Returns the word before.
    #[inline(always)]
    fn set_bits(&self, run: Run, w: u32, bits: u32) -> u32 {
        SET_BITS.delay();
        // ordering: acquire; pairs with UNLIST: if the run was unlisted, the list without it before
        // the look of `count_release`. The fence before it releases.
        self.bits(self.first_word(run.first) + w).at(RELEASE).or_acquire(bits)
    }

    /// Accounts for bits that were set in a word that was `old`, and looks at the hints.
    #[inline(always)]
    fn count_release(&self, run: Run, w: u32, bits: u32, old: u32) -> Released {
        let full = full_word(run.blocks, w);
        let mut is_idle = false;
        if old | bits == full && old != full {
            // ordering: acquire; pairs with LOOK_AGAIN: if the run was removed from the idle set,
            // the set without it before the look below.
            let before = self.count(run.first).at(ADD_COUNT).add_acquire(1);
            // At least: claims from fully free words may not be counted yet.
            is_idle = before.cast_signed() + 1 >= words(run.blocks) as i32
                && !self.idle().contains(self.index(run));
        }
        // Also if the word was nonzero: the free that made it so may not have listed the run yet,
        // and may return later than this one (I5).
        let is_unlisted = !self.listed().contains(self.index(run));
        Released { old, is_unfinished: is_unlisted || is_idle || old & bits != 0, is_idle }
    }

    /// Completes the hints after a release of `bits` in a word of a run (I5, I6).
    #[cold]
    #[inline(never)]
    pub fn finish_release(&self, run: Run, is_idle: bool) {
        let index = self.index(run);
        // Searches for other classes and for slabs look at idle runs, too.
        let overview = self.overview();
        let moves = if is_idle { overview.common() } else { overview.class(run.class) };
        moves.during(|| {
            if !self.listed().contains(index) {
                self.listed().insert(index);
            }
            if is_idle {
                self.idle().insert(index);
            }
        });
    }

    /// Releases bits of a word that the caller claimed by a ticket for a run that is gone (I2).
    /// `old` is the word as it was before the claim.
    #[cold]
    #[inline(never)]
    pub fn put_back(&self, w: u32, bits: u32, old: u32) {
        let slab = w / self.layout.words_per_slab();
        let entry = Entry(self.entry(slab).load_relaxed());
        let Some(class) = entry.class() else { return };
        let blocks = class.blocks_in_run(entry.slabs() << self.layout.slab_log2);
        let run = Run { first: slab - entry.place(), class, blocks };
        let w = w - self.first_word(run.first);
        // ordering: release; pairs with RELEASE: the changes of the count, here and in `take`,
        // before the addition of a thread that makes the word fully free later. That one must not
        // find the count too small, nor a thread that retires the run find it too large (I6). The
        // writes of the last owner (I3) were released before, and each later change of the word is
        // a read-modify-write until the next `dedicate`.
        let before = PUT_BACK.release_between(
            || self.count_claim(run.first, old, full_word(blocks, w)),
            || self.set_bits(run, w, bits),
        );
        let released = self.count_release(run, w, bits, before);
        if released.is_unfinished {
            self.finish_release(run, released.is_idle);
        }
    }

    /// Makes a run of slabs that the caller took from the free set, all of its blocks free. To be
    /// called during a move of the class.
    pub fn dedicate(&self, first: u32, class: SizeClass, info: &ClassInfo) {
        for place in 0..info.slabs {
            STORE_ENTRY.delay();
            // Relaxed: the fence below releases it.
            self.entry(first + place).store_relaxed(Entry::of_class(class, place, info.slabs).0);
        }
        BEGIN_COUNT.delay();
        // An addition: late operations on an earlier run of these slabs add up to zero (I4).
        self.count(first).add_relaxed(info.words());
        // ordering: release; pairs with CLAIM: the entries before the bits (I3).
        PUBLISH.fence_release();
        // ordering: release; pairs with REMOVE: the bits before the hints. A thread that removes a
        // hint finds the bits then, and restores the hint (I5, I6).
        LIST.release_between(
            || self.set_all(first, info),
            || {
                let index = self.layout.run_index(class, first);
                self.listed().insert_relaxed(index);
                self.idle().insert_relaxed(index);
            },
        );
    }

    /// Sets the bits of a new run, behind a fence.
    #[inline(always)]
    fn set_all(&self, first: u32, info: &ClassInfo) {
        for w in 0..info.words() {
            // Relaxed: the fence. Nothing else sets these bits: they are zero, and no block is
            // live.
            let (word, full) = (self.bits(self.first_word(first) + w), full_word(info.blocks, w));
            if NATIVE_LAYOUT {
                word.store_relaxed(full);
            } else {
                // Under loom, claims after a store could continue the values before it.
                word.swap_relaxed(full);
            }
        }
    }

    /// Claims a free block of a listed run. Returns its number. Starts at a word and a bit that
    /// depend on `salt`.
    pub fn claim_any(&self, run: u32, class: SizeClass, info: &ClassInfo, salt: u32) -> Option<u32> {
        let (first, words) = (self.first_word(run), info.words());
        let mut w = salt % words;
        for _ in 0..words {
            // Relaxed: a hint.
            let seen = self.bits(first + w).load_relaxed();
            if seen != 0 {
                let bit = 1 << select_bit(seen, salt % seen.count_ones());
                let old = self.claim(first + w, bit);
                if old & bit != 0 {
                    if self.starts(run, class, info.slabs) {
                        self.count_claim(run, old, full_word(info.blocks, w));
                        return Some(w * WORD_BITS + bit.trailing_zeros());
                    }
                    self.put_back(first + w, bit, old);
                    return None;
                }
            }
            w = if w + 1 < words { w + 1 } else { 0 };
        }
        None
    }

    /// Removes a run without free blocks from the list. Returns whether it is without.
    pub fn unlist(&self, run: u32, class: SizeClass, info: &ClassInfo, before: &mut Before) -> bool {
        let index = self.layout.run_index(class, run);
        before.note_own();
        self.overview().class(class).during(|| {
            self.listed().remove(index);
            // ordering: acquire and release; pairs with FREE: a thread that frees a block after
            // this look sees the list without the run, and lists it (I5). An addition of no bits.
            let word = |w| self.bits(self.first_word(run) + w).at(UNLIST).or_acq_rel(0);
            let is_empty = !self.starts(run, class, info.slabs) || (0..info.words()).all(|w| word(w) == 0);
            if !is_empty {
                self.listed().insert(index);
            }
            is_empty
        })
    }

    /// Which of the runs `bits` of word `w` of the idle set are fully free by their counts. Removes
    /// the others from the set.
    pub fn sweep(&self, class: SizeClass, info: &ClassInfo, w: u32, bits: u32) -> u32 {
        let first = w * WORD_BITS - self.layout.run_index(class, 0);
        let (all, mut free, mut rest) = (info.words(), 0, bits);
        while rest != 0 {
            let bit = rest.trailing_zeros();
            // Relaxed: a hint.
            if self.count(first + bit).load_relaxed() == all {
                free |= 1 << bit;
            }
            rest &= rest - 1;
        }
        if free != bits {
            // Not of the class: searches for other classes and for slabs look at idle runs, too.
            self.overview().common().during(|| self.remove_idle(w, first, all, bits & !free));
        }
        free
    }

    /// Removes runs from the idle set, but for those that are fully free.
    fn remove_idle(&self, w: u32, first: u32, all: u32, bits: u32) {
        let (mut rest, mut free) = (self.idle().remove_bits(w, bits), 0);
        // ordering: as in `retire` (I6).
        LOOK_AGAIN.fence_release();
        while rest != 0 {
            let bit = rest.trailing_zeros();
            // An addition of nothing: it has a place among all changes of the count.
            if self.count(first + bit).add_relaxed(0) == all {
                free |= 1 << bit;
            }
            rest &= rest - 1;
        }
        if free != 0 {
            self.idle().insert_bits(w, free);
        }
    }

    /// Takes all blocks of the runs `bits` of word `w` of the idle set, if they are fully free.
    /// Returns the runs whose slabs are then the caller's, with the entry of free slabs. To be
    /// called during moves of the class and of the free slabs.
    pub fn retire(&self, class: SizeClass, info: &ClassInfo, w: u32, bits: u32) -> u32 {
        let first = w * WORD_BITS - self.layout.run_index(class, 0);
        let (mut rest, mut taken) = (self.idle().remove_bits(w, bits), 0);
        // ordering: release; pairs with ADD_COUNT: a thread that makes a run fully free after the
        // looks below sees the idle set without it, and inserts it (I6).
        LOOK_AGAIN.fence_release();
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
            // An addition of nothing: it has a place among all changes of the count.
            if self.count(run).add_relaxed(0) == all {
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
