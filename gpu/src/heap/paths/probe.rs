//! Probe: one free block for one lane, from a listed run at a pseudo-random place.
//!
//! For a heap that is aged or nearly full: free blocks lie singly among others, in most of the runs
//! of their class. Each lane searches by itself: it reads two words of each of two runs, and takes
//! a free block of the run with more of them. With one run only, runs in sparse words of the list
//! would be read more often than others, and would be full. Lanes of parts of warps that find no
//! block make runs of free slabs.
//!
//! Cost: two loads of the list, and some more if both words are zero; a load of two words of each
//! of two runs; an acquire atomic that claims a bit; a load of the run's entry. At its end a probe
//! unlists at most one run that is full, as a move of the class: the last one of up to two words of
//! which it took the last block or saw no free block. Of the runs with more words in which it saw
//! no free block, it checks one in sixteen.
//!
//! Progress: lock-free, and the number of looks is bounded.

use crate::heap::layout::bits::{WORD_BITS, full_word, has};
use crate::heap::layout::class::SizeClass;
use crate::heap::layout::scatter::{hash, mixed, salt, scaled};
use crate::heap::structures::heap_core::HeapCore;
use crate::heap::structures::index_set::Picked;
use crate::heap::structures::runs::PAIR;
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;

/// Whether lanes probe. Models of whole allocations would not end with probes. Probes have their
/// own models.
pub(in crate::heap) const PROBES: bool = NATIVE_LAYOUT;
/// Pairs of runs that a probe looks at.
const LOOKS: u32 = if NATIVE_LAYOUT { 16 } else { 1 };
/// Probes of a lane before its group continues in turns.
const ROUNDS: u32 = if NATIVE_LAYOUT { 3 } else { 1 };
/// One in this many looks at a run of several words that seems full unlists the run, if it is full.
const UNLISTS: u32 = if NATIVE_LAYOUT { 16 } else { 1 };

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::heap) enum Probed {
    /// A block, which is the caller's.
    Block {
        address: u64,
        /// Whether all blocks of its word were free.
        is_whole: bool,
    },
    /// It found no free block.
    Missed,
    /// The list shows no run of the class, and the levels above are few enough to know.
    Empty,
}

/// In place of an index: no run.
const NONE: u32 = u32::MAX;

impl HeapCore {
    /// Allocates for the lanes without an address, which have probed once, by more probes and then
    /// in turns. All lanes of the group take part. Lanes of parts of warps make runs; whole warps
    /// leave that to their cursor.
    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn alloc_singly(&self, group: Group, class: SizeClass, address: u64) -> u64 {
        let is_one = group.whole().is_some() && group.all(class.0 == group.broadcast_32(class.0));
        let address = self.probe_again(group, class, address, !is_one);
        if group.all(address != 0) {
            return address;
        }
        let shard = self.shard_of(group, is_one);
        // They have no tickets: they have not crossed its end.
        let seen = self.cursor(class, shard).span().passed();
        self.alloc_in_turns(group, class, shard, seen, address, 0)
    }

    /// More probes for the lanes without an address. If `grows`, a lane makes a run before each of
    /// them with a probability of `2 / blocks` and then `3 / blocks`, for runs of `blocks` blocks.
    /// So all such lanes together make about as many runs as they need.
    #[inline(always)]
    fn probe_again(&self, group: Group, class: SizeClass, address: u64, grows: bool) -> u64 {
        let (mut address, mut asks, mut round) = (address, address == 0, 1);
        while round < ROUNDS && !group.all(!asks) {
            let salt = salt(round);
            if asks && grows && scaled(hash(salt), self.class(class).blocks) <= round * 4 / ROUNDS {
                self.make_run(class, salt);
            }
            group.sync();
            match self.probe(group, asks, class, salt) {
                Probed::Block { address: found, .. } => (address, asks) = (found, false),
                // No run is listed: only a new run helps.
                Probed::Empty => asks = grows && self.free_slabs().has_any(),
                Probed::Missed => {}
            }
            round += 1;
        }
        address
    }

    /// The shard of the cursors of a group that asks for one class, or for several.
    fn shard_of(&self, group: Group, is_one: bool) -> u32 {
        let shard = self.shard();
        group.broadcast_32(if is_one { shard } else { self.partial_warp_shard(shard) })
    }

    /// Ends the aged state of the leader's cursor, and finds a span for it: lanes that probed, and
    /// all have blocks, found mostly fully free words.
    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn end_aged(&self, group: Group, class: SizeClass, address: u64) -> u64 {
        let is_one = group.whole().is_some() && group.all(class.0 == group.broadcast_32(class.0));
        let shard = self.shard_of(group, is_one);
        let cursor = self.cursor(class, shard);
        let now = cursor.span();
        let mut seen = now.passed();
        if group.leads() && now.is_aged() && cursor.skip(now, now.left() as u32) {
            let old = cursor.take(1);
            // Unless another group has crossed the end meanwhile.
            seen = if old.is_crossed_by(1) { old } else { seen };
        }
        self.alloc_in_turns(group, class, shard, seen, address, 0)
    }

    /// Claims a free block for each lane that asks. All lanes of the group take part.
    ///
    /// Each look reads two words of each of two runs, and takes the two with more free blocks. So
    /// all runs have about the same number of free blocks, and few are full.
    ///
    /// The loop calls no function, and what is rare is done behind it: each value that lives across
    /// a call costs a store and a load of the thread's stack, where each lane has its own address.
    #[inline(never)]
    pub(in crate::heap) fn probe(&self, group: Group, asks: bool, class: SizeClass, salt: u32) -> Probed {
        let (runs, info) = (self.runs(), *self.class(class));
        let start = self.layout.run_index(class, 0);
        let end = self.layout.run_index(SizeClass(class.0 + 1), 0);
        let pairs = info.words().div_ceil(PAIR);
        let (mut probed, mut full, mut turn) = (Probed::Missed, NONE, if asks { 0 } else { LOOKS });
        // The claimed bit, its word, the word as it was, and the run's index.
        let (mut bit, mut at, mut old, mut index) = (0, 0, 0, start);
        while turn < LOOKS {
            let salt = mixed(salt.wrapping_add(turn));
            turn += 1;
            let [one, other] = match runs.listed().pick(start, end, salt) {
                Picked::Two(two) => two,
                Picked::Missed(w) => {
                    full = w * WORD_BITS;
                    continue;
                }
                Picked::Empty => {
                    probed = Probed::Empty;
                    break;
                }
            };
            let place = |index: u32, hash| runs.first_word(index - start) + PAIR * scaled(hash, pairs);
            let places = [place(one, hash(salt)), place(other, hash(salt >> 1))];
            let words = places.map(|w| runs.pair(w));
            let free = words.map(|two| two[0].count_ones() + two[1].count_ones());
            let is_other = free[1] > free[0];
            index = if is_other { other } else { one };
            let (w, two) = if is_other { (places[1], words[1]) } else { (places[0], words[0]) };
            let is_second = two[1] != 0 && (two[0] == 0 || salt & 1 == 1);
            let word;
            (at, word) = if is_second { (w + 1, two[1]) } else { (w, two[0]) };
            if word == 0 {
                let is_sole = pairs == 1 || (salt >> 12).is_multiple_of(UNLISTS);
                full = if is_sole { index } else { full };
                continue;
            }
            let rotation = salt >> 7 & (WORD_BITS - 1);
            let wanted = 1 << ((word.rotate_right(rotation).trailing_zeros() + rotation) % WORD_BITS);
            old = runs.claim(at, wanted);
            if old & wanted != 0 {
                bit = wanted;
                break;
            }
        }
        group.sync();
        let run = index - start;
        if bit != 0 && runs.starts(run, class, info.slabs) {
            let w = at - runs.first_word(run);
            runs.count_claim(run, old, full_word(info.blocks, w));
            let is_whole = old == full_word(info.blocks, w);
            let block = w * WORD_BITS + bit.trailing_zeros();
            probed = Probed::Block { address: self.block_address(&info, run, block), is_whole };
            // It was the last free block that the lane saw of the run.
            full = if pairs == 1 && old == bit { index } else { full };
        } else if bit != 0 {
            runs.put_back(at, bit, old);
        }
        if full != NONE {
            self.tidy(class, full);
        }
        group.sync();
        probed
    }

    /// Unlists a run if it is full. Clears the bit above its word of the list if the word is zero.
    #[cold]
    #[inline(never)]
    fn tidy(&self, class: SizeClass, index: u32) {
        let (listed, w) = (self.runs().listed(), index / WORD_BITS);
        let word = listed.word(w).load_relaxed();
        if has(word, index) {
            self.runs().first_open(class, self.class(class), w, 1 << (index % WORD_BITS));
        } else if word == 0 {
            listed.settle(w);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
