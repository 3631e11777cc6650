//! Probe: one free block for one lane, from a listed run at a pseudo-random place.
//!
//! For a heap that is aged or nearly full: free blocks lie singly among others, in most of the runs
//! of their class. Each lane looks for one by itself, and waits for no other lane.
//!
//! Cost: a load of the list, and some more where few runs are listed; a load of a few words of a
//! run; an acquire atomic that claims a bit; a load of the run's entry. One after the other. If the
//! run is full, a probe looks at all of its words, and unlists it as a move of the class.
//!
//! Progress: lock-free, and the number of looks is bounded.

use super::Heap;
use super::bits::{WORD_BITS, full_word};
use super::class::SizeClass;
use super::scatter::{hash, mixed, scaled};
use crate::sync::NATIVE_LAYOUT;

/// Places that a probe looks at.
const LOOKS: u32 = if NATIVE_LAYOUT { 8 } else { 1 };
/// Words that a probe loads together: their round trips overlap.
const AT_ONCE: u32 = if NATIVE_LAYOUT { 4 } else { 1 };

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probed {
    /// The address of a block, which is the caller's.
    Block(u64),
    /// It found no free block.
    Missed,
    /// No run of the class is listed, or the free blocks that it saw lie in fully free words.
    NoHole,
}

impl Heap {
    /// Claims a free block for the calling lane. One of a fully free word only if `takes_words`:
    /// cursors have tickets for such words.
    #[inline(never)]
    pub(super) fn probe(&self, class: SizeClass, salt: u32, takes_words: bool) -> Probed {
        let (runs, info, common) = (self.runs(), self.class(class), self.overview().common());
        let (start, end) = (self.layout.run_index(class, 0), self.layout.run_index(class, self.layout.slabs));
        let words = info.words().next_multiple_of(AT_ONCE);
        // One look in each turn, so that the lanes of a warp go through the turns together.
        for turn in 0..LOOKS {
            let salt = mixed(salt.wrapping_add(turn));
            let Some(index) = runs.listed().pick(start, end, salt, common) else { return Probed::NoHole };
            let (run, first) = (index - start, scaled(hash(salt), words) / AT_ONCE * AT_ONCE);
            let at = runs.first_word(run) + first;
            // Words after the last one have no bits (I1 of `runs`). Relaxed: hints.
            let load = |i| if i < AT_ONCE { runs.bits(at + i).load_relaxed() } else { 0 };
            let seen = [load(0), load(1), load(2), load(3)];
            let full = |i| full_word(info.blocks, first + i);
            let may_take = |i: u32| seen[i as usize] != 0 && (takes_words || seen[i as usize] != full(i));
            let open = u32::from(may_take(0))
                | u32::from(may_take(1)) << 1
                | u32::from(may_take(2)) << 2
                | u32::from(may_take(3)) << 3;
            if open == 0 {
                if seen != [0; 4] {
                    return Probed::NoHole;
                }
                // Unlists the run if it is full.
                let mut ignored = 0;
                runs.first_open(class, info, index / WORD_BITS, 1 << (index % WORD_BITS), &mut ignored);
                continue;
            }
            // One of them, and a bit of it, by bits of the salt that did not choose the run.
            let (from, turn) = (salt >> 5 & 3, salt >> 7 & (WORD_BITS - 1));
            let i = (((open << 4 | open) >> from).trailing_zeros() + from) % 4;
            let low = if i & 1 == 0 { seen[0] } else { seen[1] };
            let high = if i & 1 == 0 { seen[2] } else { seen[3] };
            let word = if i < 2 { low } else { high };
            let bit = (word.rotate_right(turn).trailing_zeros() + turn) % WORD_BITS;
            if runs.claim_some(run, class, info, first + i, 1 << bit) != 0 {
                return Probed::Block(self.block_address(info, run, (first + i) * WORD_BITS + bit));
            }
        }
        Probed::Missed
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
