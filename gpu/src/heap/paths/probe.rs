//! Probe: one free block for one lane, from a listed run at a pseudo-random place.
//!
//! For a heap that is aged or nearly full: free blocks lie singly among others, in most of the runs
//! of their class. Each lane searches by itself: it reads a word of each of two runs, and takes the
//! word with more free blocks. With one run only, runs in sparse words of the list would be read
//! more often than others, and would be full. Lanes of parts of warps that find no block make runs
//! of free slabs.
//!
//! Cost: two loads of the list, and some more if both words are zero; a load of a word of each of
//! two runs; an acquire atomic that claims a bit; a load of the run's entry. One after the other,
//! each for all lanes of the group at once. At its end a probe unlists at most one run that is
//! full, as a move of the class: the last one-word run of which it took the last block or saw no
//! free block. Of the runs with several words in which it saw no free block, it checks one in
//! eight.
//!
//! Progress: lock-free, and the number of looks is bounded.

use crate::heap::layout::bits::{WORD_BITS, full_word, has};
use crate::heap::layout::class::SizeClass;
use crate::heap::layout::scatter::{hash, mixed, salt, scaled};
use crate::heap::structures::heap_core::HeapCore;
use crate::heap::structures::index_set::Picked;
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;

/// Pairs of runs that a probe looks at.
const LOOKS: u32 = if NATIVE_LAYOUT { 8 } else { 1 };
/// Attempts to claim a bit of a word that other threads claim, too.
const CLAIMS: u32 = if NATIVE_LAYOUT { 4 } else { 1 };
/// Probes of a lane before its group continues in turns.
const ROUNDS: u32 = if NATIVE_LAYOUT { 6 } else { 1 };

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::heap) enum Probed {
    /// The address of a block, which is the caller's.
    Block(u64),
    /// It found no free block.
    Missed,
    /// No run of the class is listed, or the free blocks that it saw lie in fully free words.
    NoHole,
}

/// One in this many looks at a run of several words that seems full unlists the run, if it is full.
const UNLISTS: u32 = if NATIVE_LAYOUT { 8 } else { 1 };

/// In place of an index: no run.
const NONE: u32 = u32::MAX;

impl HeapCore {
    /// Allocates for the lanes that ask, each by its own probes. All lanes of the group take part.
    /// Returns 0 for no block. Takes blocks of fully free words only if `takes_words`.
    ///
    /// After each probe without a block, a lane of a part of a warp makes a run with a probability
    /// of `1 / blocks`, for runs of `blocks` blocks. So all such lanes together make about as many
    /// runs as they need. In later rounds the probability is up to four times as large.
    #[inline(always)]
    pub(in crate::heap) fn alloc_singly(
        &self,
        group: Group,
        asks: bool,
        class: SizeClass,
        takes_words: bool,
    ) -> u64 {
        let (mut address, mut asks, mut round) = (0, asks, 0);
        while round < ROUNDS && !group.all(!asks) {
            let salt = salt(round);
            match self.probe(group, asks, class, salt, takes_words) {
                Probed::Block(found) => (address, asks) = (found, false),
                // No run is listed: only a new run helps.
                Probed::NoHole => asks &= takes_words && self.free_slabs().has_any(),
                Probed::Missed => {}
            }
            group.sync();
            if asks && takes_words && scaled(hash(salt), self.class(class).blocks) <= round * 4 / ROUNDS {
                self.make_run(class, salt);
            }
            group.sync();
            round += 1;
        }
        address
    }

    /// Claims a free block for each lane of the group that asks. Takes blocks of fully free words
    /// only if `takes_words`: cursors have tickets for such words. All lanes of the group take
    /// part.
    ///
    /// Each look reads a word of each of two runs, and takes the word with more free blocks. So all
    /// runs have about the same number of free blocks, and few are full. The lanes wait for each
    /// other before each round trip, so that the round trips of all lanes overlap.
    #[inline(never)]
    pub(in crate::heap) fn probe(
        &self,
        group: Group,
        asks: bool,
        class: SizeClass,
        salt: u32,
        takes_words: bool,
    ) -> Probed {
        let (runs, info) = (self.runs(), self.class(class));
        let (start, end) =
            (self.layout.run_index(class, 0), self.layout.run_index(SizeClass(class.0 + 1), 0));
        let (mut probed, mut looks, mut turn, mut full) = (Probed::Missed, asks, 0, NONE);
        while turn < LOOKS && !group.all(!looks) {
            let salt = mixed(salt.wrapping_add(turn));
            turn += 1;
            let picked = if looks { runs.listed().pick(start, end, salt) } else { Picked::Missed };
            group.sync();
            let (mut run, mut w, mut word) = (0, 0, 0);
            let mut is_hole = true;
            if let Picked::Two([one, other]) = picked {
                let places = [(one, hash(salt)), (other, hash(salt >> 1))];
                let places = places.map(|(index, hash)| (index - start, scaled(hash, info.words())));
                // Relaxed: hints.
                let words = places.map(|(run, w)| runs.bits(runs.first_word(run) + w).load_relaxed());
                let is_open = |i: usize| takes_words || words[i] != full_word(info.blocks, places[i].1);
                let free = [0, 1].map(|i| if is_open(i) { words[i].count_ones() } else { 0 });
                let is_other = free[1] > free[0];
                ((run, w), word) = if is_other { (places[1], words[1]) } else { (places[0], words[0]) };
                is_hole = free != [0, 0] || words == [0, 0];
                let is_sole = info.words() == 1 || (salt >> 12).is_multiple_of(UNLISTS);
                full = if words == [0, 0] && is_sole { one } else { full };
            }
            if picked == Picked::Empty || !is_hole {
                (probed, looks, word) = (Probed::NoHole, false, 0);
            }
            group.sync();
            let (at, rotation) = (runs.first_word(run) + w, salt >> 7 & (WORD_BITS - 1));
            let (mut old, mut got, mut claims) = (0, 0, CLAIMS);
            while !group.all(word == 0) {
                if word != 0 {
                    let bit = 1 << ((word.rotate_right(rotation).trailing_zeros() + rotation) % WORD_BITS);
                    old = runs.claim(at, bit);
                    got = old & bit;
                    claims -= 1;
                    // Other bits, if another thread has claimed this one.
                    word = if got != 0 || claims == 0 { 0 } else { old };
                }
                group.sync();
            }
            if got != 0 {
                if runs.starts(run, class, info.slabs) {
                    runs.count_claim(run, old, full_word(info.blocks, w));
                    let address = self.block_address(info, run, w * WORD_BITS + got.trailing_zeros());
                    (probed, looks) = (Probed::Block(address), false);
                    // It was the last block of the run.
                    full = if info.words() == 1 && old == got { start + run } else { full };
                } else {
                    runs.put_back(at, got, old);
                }
            }
            group.sync();
        }
        if full != NONE && has(runs.listed().word_of(full).load_relaxed(), full) {
            // Unlists the run if it is full.
            let mut ignored = 0;
            runs.first_open(class, info, full / WORD_BITS, 1 << (full % WORD_BITS), &mut ignored);
        }
        group.sync();
        probed
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
