//! Runs: the blocks of the slabs that have a size class. A run is a few consecutive slabs.
//!
//! ```text
//! entry[slab]        the class, the run's slabs, and the slab's number among them
//! bitmap             a bit for each block: set while the block is free
//! count[run]         the number of fully free words of the run
//! listed             the set of runs that may have free blocks, by class
//! idle               the set of runs that may be fully free, by their first slabs
//! ```
//!
//! The bitmap alone decides which blocks are free. Everything else is a hint.
//!
//! - I1. A block is free while its bit is set. The thread that clears the bit owns the block; it
//!   sets the bit to free the block. A run has its bits in the words of its first slab. The bits of
//!   its later slabs and of slabs without a class are zero.
//! - I2. While a thread owns a block, the run keeps its entries: they are written only by a thread
//!   that owns all blocks of the run, or all of its slabs. So a thread that claims a bit and then
//!   finds its class in the run's entry owns a block of that class. If it finds another class, it
//!   owns a block of the run that the slab belongs to now, and sets the bit again.
//! - I3. Writes to a block happen before its bit is set, and that before the claim that clears the
//!   bit. A run's entries are written before its bits are set by the same thread.
//! - I4. A thread that makes a word fully free adds 1 to the count, and a thread that claims from a
//!   fully free word subtracts 1, each after the change of the word. So `count = fully free words`
//!   while no operation is under way. While `n` threads are between these two steps, the two sides
//!   can differ by up to `n`.
//! - I5. A run with a block that a free made free is listed when that free returns, except during a
//!   move.
//! - I6. A fully free run is idle, except during the free that made it so, and during a move. Each
//!   free that makes a word fully free marks the run idle, so an idle run need not be fully free.
//!
//! - [`Runs::first_open`] removes runs without free blocks from the list.
//! - [`Runs::sweep`] removes runs that are not fully free from the idle set.
//! - [`Runs::retire`] removes fully free runs from both sets, takes all of their blocks and makes
//!   their slabs free.
//!
//! A run is first removed from a set and then checked again. If it changed meanwhile, either this
//! check finds the change, or the thread that made the change finds the run removed and inserts it.
//! (Only `retire` removes a run from the list without another check: it then owns all blocks.) A
//! thread that retires a run swaps its count from "all words" to 0 and then claims all bits. If a
//! bit is missing, the thread sets the others again.

use crate::heap::layout::HeapLayout;
use crate::heap::layout::bits::{WORD_BITS, full_word, has, low_bits, words};
use crate::heap::layout::class::{ClassInfo, MAX_RUN, SizeClass};
use crate::heap::layout::entry::Entry;
use crate::heap::structures::heap_core::{HeapCore, Parts};
use crate::heap::structures::index_set::IndexSet;
use crate::heap::structures::moves::Overview;
use crate::heap::structures::orderings::{
    BEGIN_COUNT, CLAIM, FREE_ENTRY, LIST, PUBLISH, RELEASE, RETIRE, STORE_ENTRY, SWEEP, TAKE, UNLIST,
};
use crate::sync::{AtomicU32, NATIVE_LAYOUT, load_two_relaxed};
use core::array::from_fn;
use core::ops::BitOr;

/// Words of the bitmap that a probe reads at once. A slab of a model checker has one word.
pub(in crate::heap) const PAIR: u32 = if NATIVE_LAYOUT { 2 } else { 1 };

/// All runs of a heap.
#[derive(Clone, Copy)]
pub(in crate::heap) struct Runs<'a> {
    pub parts: &'a Parts,
    pub layout: &'a HeapLayout,
}

impl HeapCore {
    #[inline(always)]
    pub(in crate::heap) fn runs(&self) -> Runs<'_> {
        Runs { parts: &self.parts, layout: &self.layout }
    }
}

/// A run, as its entry describes it.
#[derive(Clone, Copy, Debug)]
pub(in crate::heap) struct Run {
    /// Its first slab.
    pub first: u32,
    pub class: SizeClass,
    /// Its number of blocks.
    pub blocks: u32,
}

/// The result of setting the bits of freed blocks.
#[derive(Clone, Copy)]
pub(in crate::heap) struct Released {
    /// The word before the bits were set.
    pub old: u32,
    /// Whether the free is unfinished: the run is to be listed or marked idle, or a bit was already
    /// set.
    pub is_unfinished: bool,
    /// Whether the run is to be marked idle.
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

    /// Words `w` and `w + 1` of the bitmap, for a multiple `w` of [`PAIR`]. Under loom, only word
    /// `w`. Relaxed: hints.
    #[inline(always)]
    pub fn pair(&self, w: u32) -> [u32; 2] {
        if PAIR == 1 {
            return [self.bits(w).load_relaxed(), 0];
        }
        debug_assert!(w.is_multiple_of(PAIR));
        // SAFETY: neighbours of one slab, which has an even number of words, in a bitmap that is
        // aligned to 8 bytes, by `from_raw_parts`' promise.
        unsafe { load_two_relaxed(self.bits(w), self.bits(w + 1)) }
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
        unsafe { IndexSet::new(self.parts.idle, self.layout.slabs) }
    }

    #[inline(always)]
    pub fn overview(&self) -> &Overview {
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*self.parts.overview }
    }

    fn index(&self, run: Run) -> u32 {
        self.layout.run_index(run.class, run.first)
    }

    /// The word of the list that has the runs of the class at the first slabs.
    fn index_word(&self, class: SizeClass) -> u32 {
        self.layout.run_index(class, 0) / WORD_BITS
    }

    /// The run that starts at a slab, and its entry, if one does. Certain for a thread that owns a
    /// block of the run (I2).
    fn run_at(&self, slab: u32) -> Option<(Run, Entry)> {
        // Relaxed: a thread that owns a block acquired the entry with the claim (I3).
        let entry = Entry(self.entry(slab).load_relaxed());
        let class = entry.class().filter(|_| entry.place() == 0)?;
        let blocks = class.blocks_in_run(entry.slabs() << self.layout.slab_log2);
        Some((Run { first: slab, class, blocks }, entry))
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
        // ordering: acquire; pairs with RELEASE and PUBLISH: the last owner's writes and the run's
        // entries before the claim (I3).
        self.bits(w).at(CLAIM).and_acquire(!bits)
    }

    /// Updates the count of a run after a claim of bits from a word that was `old`.
    #[inline(always)]
    pub fn count_claim(&self, run: u32, old: u32, full: u32) {
        if old == full {
            // Relaxed: a hint (I4).
            self.count(run).sub_relaxed(1);
        }
    }

    /// Sets bits of word `w` of a run. The caller owns the blocks.
    #[inline(always)]
    pub fn release(&self, run: Run, w: u32, bits: u32) -> Released {
        let old = self.set_bits(run, w, bits);
        self.count_release(run, w, bits, old)
    }

    /// Sets the bits. Returns the word as it was before.
    #[inline(always)]
    fn set_bits(&self, run: Run, w: u32, bits: u32) -> u32 {
        // ordering: release; pairs with CLAIM: the owner's writes before the bits (I3). Acquire;
        // pairs with UNLIST, SWEEP and TAKE: if the run was removed from the list or the idle set,
        // the set without it before the look of `count_release`.
        self.bits(self.first_word(run.first) + w).at(RELEASE).or_acq_rel(bits)
    }

    /// Updates the count after bits were set in a word that was `old`, and reads the hints.
    #[inline(always)]
    fn count_release(&self, run: Run, w: u32, bits: u32, old: u32) -> Released {
        let (index, full) = (self.index(run), full_word(run.blocks, w));
        // Both loads are issued before the first result is needed. The list is read even if the
        // word was nonzero: the free that made the word nonzero may not have listed the run yet,
        // and may return later than this one (I5).
        let listed = self.listed().word_of(index).load_relaxed();
        let mut idle = u32::MAX;
        if old | bits == full && old != full {
            idle = self.idle().word_of(run.first).load_relaxed();
            // Relaxed: a hint (I4).
            self.count(run.first).add_relaxed(1);
        }
        let (is_listed, is_idle) = (has(listed, index), has(idle, run.first));
        let is_unfinished = !is_listed || !is_idle || old & bits != 0;
        Released { old, is_unfinished, is_idle: !is_idle }
    }

    /// Completes the hints after a release of `bits` in a word of a run (I5, I6).
    #[cold]
    #[inline(never)]
    pub fn finish_release(&self, run: Run, is_idle: bool) {
        let (index, listed) = (self.index(run), self.listed());
        if !listed.contains(index) {
            listed.insert_relaxed(index);
        }
        if is_idle {
            self.idle().insert_relaxed(run.first);
        }
    }

    /// Releases bits of a word that the caller claimed by a ticket for a run that is gone (I2).
    /// `old` is the word as it was before the claim.
    #[cold]
    #[inline(never)]
    pub fn put_back(&self, w: u32, bits: u32, old: u32) {
        let slab = w / self.layout.words_per_slab();
        // The bits of a later slab are zero (I1), and the claim acquired the entry (I2, I3).
        let Some((run, _)) = self.run_at(slab) else { return };
        let w = w - self.first_word(slab);
        self.count_claim(run.first, old, full_word(run.blocks, w));
        let before = self.set_bits(run, w, bits);
        let released = self.count_release(run, w, bits, before);
        if released.is_unfinished {
            self.finish_release(run, released.is_idle);
        }
    }

    /// Makes `runs` runs, with all of their blocks free, of slabs that the caller took from the
    /// free set. To be called during a move of [`common`](Overview::common).
    pub fn dedicate(&self, first: u32, runs: u32, class: SizeClass, info: &ClassInfo) {
        let firsts = || (0..runs).map(|i| first + i * info.slabs);
        for run in firsts() {
            for place in 0..info.slabs {
                STORE_ENTRY.delay();
                // Relaxed: the fence below releases it.
                self.entry(run + place).store_relaxed(Entry::of_class(class, place, info.slabs).0);
            }
        }
        BEGIN_COUNT.delay();
        // An addition, not a store: late operations on an earlier run of these slabs add up to zero
        // (I4).
        for run in firsts() {
            self.count(run).add_relaxed(info.words());
        }
        // ordering: release; pairs with CLAIM: the entries before the bits (I3).
        PUBLISH.fence_release();
        // ordering: release; pairs with REMOVE: the bits before the hints. A thread that then
        // removes a hint finds the bits, and restores the hint (I5, I6).
        LIST.release_between(
            || firsts().for_each(|run| self.set_all(run, info)),
            || {
                let (mut run, end) = (first, first + runs * info.slabs);
                while run < end {
                    let index = |run| self.layout.run_index(class, run);
                    let (w, mut bits) = (index(run) / WORD_BITS, 0);
                    // The runs of one word of the sets.
                    while run < end && index(run) / WORD_BITS == w {
                        bits |= 1 << (index(run) % WORD_BITS);
                        run += info.slabs;
                    }
                    self.listed().insert_bits_relaxed(w, bits);
                    self.idle().insert_bits_relaxed(w - self.index_word(class), bits);
                }
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
                // Under loom, claims after a plain store could still act on the values before it.
                word.swap_relaxed(full);
            }
        }
    }

    /// Claims `bits` of word `w` of a listed run. Returns those that are now the caller's.
    pub fn claim_some(&self, run: u32, class: SizeClass, info: &ClassInfo, w: u32, bits: u32) -> u32 {
        if bits == 0 {
            return 0;
        }
        let word = self.first_word(run) + w;
        let old = self.claim(word, bits);
        if old & bits == 0 {
            return 0;
        }
        if !self.starts(run, class, info.slabs) {
            self.put_back(word, old & bits, old);
            return 0;
        }
        self.count_claim(run, old, full_word(info.blocks, w));
        old & bits
    }
}

// The slabs of the runs of a word are in 64 bits.
const _: () = assert!(WORD_BITS - 1 + MAX_RUN.0 <= u64::BITS);

/// Words or counts that are loaded together, so that their round trips overlap.
const AT_ONCE: usize = if NATIVE_LAYOUT { 4 } else { 1 };

impl Runs<'_> {
    /// The first of the runs `bits` of word `w` of the list that seems to have free blocks. Unlists
    /// those before it, which seem to have none.
    pub fn first_open(&self, class: SizeClass, info: &ClassInfo, w: u32, bits: u32) -> Option<u32> {
        let first = w * WORD_BITS - self.layout.run_index(class, 0);
        let mut rest = bits;
        // Relaxed: hints. A run of another class is listed here if a free listed it late.
        let is_full =
            |run| self.is_full(run, info, |word| word.load_relaxed()) || !self.starts(run, class, info.slabs);
        while rest != 0 && is_full(first + rest.trailing_zeros()) {
            rest &= rest - 1;
        }
        // Another thread may have unlisted them meanwhile. Relaxed: a hint that saves a move.
        let full = if rest == bits { 0 } else { bits & !rest & self.listed().word(w).load_relaxed() };
        if full != 0 {
            rest |= self.overview().class(class).during(|| self.unlist(class, info, w, full));
        }
        (rest != 0).then(|| first + rest.trailing_zeros())
    }

    /// Whether no block of a run is free, by its words as `look` reads them.
    fn is_full(&self, run: u32, info: &ClassInfo, look: impl Fn(&AtomicU32) -> u32) -> bool {
        let first = self.first_word(run);
        let at = |w: u32| look(self.bits(first + w));
        // Up to the end of the slab, words after the last one have no bits (I1).
        (0..info.words()).step_by(AT_ONCE).all(|w| {
            let words: [u32; AT_ONCE] = from_fn(|i| at(w + i as u32));
            words.into_iter().fold(0, BitOr::bitor) == 0
        })
    }

    /// Removes runs from the list, except those that have free blocks. Returns the latter.
    fn unlist(&self, class: SizeClass, info: &ClassInfo, w: u32, bits: u32) -> u32 {
        let first = w * WORD_BITS - self.layout.run_index(class, 0);
        let (mut rest, mut open) = (self.listed().remove_bits(w, bits), 0);
        // ordering: release; pairs with RELEASE: a thread that frees a block after the looks below
        // sees the list without the run, and lists it (I5).
        UNLIST.fence_release();
        while rest != 0 {
            let bit = rest.trailing_zeros();
            // An OR of no bits: it has a place in the modification order of the word.
            let is_full = || self.is_full(first + bit, info, |word| word.or_relaxed(0));
            if self.starts(first + bit, class, info.slabs) && !is_full() {
                open |= 1 << bit;
            }
            rest &= rest - 1;
        }
        if open != 0 {
            self.listed().insert_bits_relaxed(w, open);
        }
        open
    }

    /// Which of the runs `bits` of word `w` of the idle set are fully free by their counts.
    pub fn free_by_count(&self, w: u32, bits: u32, is_wanted: impl Fn(Entry) -> bool) -> u32 {
        let (mut free, mut rest) = (0, bits);
        while rest != 0 {
            let next = [(); AT_ONCE].map(|()| {
                let bit = rest.trailing_zeros() % WORD_BITS;
                rest &= rest.wrapping_sub(1);
                bit
            });
            // Relaxed: hints.
            let counts = next.map(|bit| self.count(w * WORD_BITS + bit).load_relaxed());
            for (bit, count) in next.into_iter().zip(counts) {
                let run = if count == 0 { None } else { self.run_at(w * WORD_BITS + bit) };
                let is_free = run.is_some_and(|(run, entry)| count == words(run.blocks) && is_wanted(entry));
                free |= u32::from(is_free) << bit;
            }
        }
        free & bits
    }

    /// [`free_by_count`](Self::free_by_count). Removes the other runs from the idle set.
    pub fn sweep(&self, w: u32, bits: u32) -> u32 {
        let free = self.free_by_count(w, bits, |_| true);
        if free != bits {
            self.overview().common().during(|| self.remove_idle(w, bits & !free));
        }
        free
    }

    /// Removes runs from the idle set, but for those that are fully free.
    fn remove_idle(&self, w: u32, bits: u32) {
        let (mut rest, mut free) = (self.idle().remove_bits(w, bits), 0);
        // ordering: release; pairs with RELEASE, as in `retire` (I6).
        SWEEP.fence_release();
        while rest != 0 {
            let bit = rest.trailing_zeros();
            free |= u32::from(self.is_free(w * WORD_BITS + bit)) << bit;
            rest &= rest - 1;
        }
        if free != 0 {
            self.idle().insert_bits_relaxed(w, free);
        }
    }

    /// Whether a run starts at a slab that was removed from the idle set, and all of its blocks are
    /// free. If not all are, it has seen a word that is not fully free, and the free that changes
    /// this marks the run idle.
    fn is_free(&self, slab: u32) -> bool {
        self.run_at(slab).is_some_and(|(run, _)| {
            (0..words(run.blocks)).all(|w| {
                let (word, full) = (self.bits(self.first_word(slab) + w), full_word(run.blocks, w));
                // Relaxed: the fence. An OR of no bits has a place among all changes of the word.
                word.load_relaxed() == full || word.or_relaxed(0) == full
            })
        })
    }

    /// Takes all blocks of the runs `bits` of word `w` of the idle set, if they are fully free.
    /// Returns the slabs that are then the caller's, from the first one of the word on, with the
    /// entry of free slabs. To be called during a move that all searches read: one of
    /// [`common`](Overview::common).
    pub fn retire(&self, w: u32, bits: u32) -> u64 {
        let (mut rest, mut taken) = (self.idle().remove_bits(w, bits), 0);
        // ordering: release; pairs with RELEASE: a thread that makes a word fully free after the
        // looks below sees the idle set without the run, and inserts it (I6).
        TAKE.fence_release();
        while rest != 0 {
            let bit = rest.trailing_zeros();
            let first = w * WORD_BITS + bit;
            if let Some((run, entry)) = self.take(first) {
                taken |= u64::from(low_bits(entry.slabs())) << bit;
                for slab in first..first + entry.slabs() {
                    FREE_ENTRY.delay();
                    // Relaxed: the insertion into the free set releases it.
                    self.entry(slab).store_relaxed(Entry::FREE.0);
                }
                let index = self.index(run);
                self.listed().remove_bits(index / WORD_BITS, 1 << (index % WORD_BITS));
            }
            rest &= rest - 1;
        }
        taken
    }

    /// Takes all blocks of the run at a slab that was idle, if it is fully free. All or none.
    fn take(&self, slab: u32) -> Option<(Run, Entry)> {
        let (run, entry) = self.run_at(slab)?;
        let (all, first) = (words(run.blocks), self.first_word(slab));
        // Relaxed, as the next one: the bits decide.
        if self.count(slab).cas_relaxed(all, 0).is_err() {
            if self.is_free(slab) {
                self.idle().insert_relaxed(slab);
            }
            return None;
        }
        let (mut taken, mut old) = (0, 0);
        while taken < all {
            RETIRE.delay();
            old = self.claim(first + taken, u32::MAX);
            if old != full_word(run.blocks, taken) {
                break;
            }
            taken += 1;
        }
        // Certain now (I2), if there is a block.
        if taken == all && self.entry(slab).load_relaxed() == entry.0 {
            return Some((run, entry));
        }
        self.count(slab).add_relaxed(all);
        if taken < all && old != 0 {
            self.put_back(first + taken, old, old);
        }
        for w in 0..taken {
            let full = full_word(run.blocks, w);
            self.put_back(first + w, full, full);
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, not(loom)))]
mod retire_tests;
