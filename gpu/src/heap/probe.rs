//! Probe: one free block for one lane, from a listed run at a pseudo-random place.
//!
//! For a heap that is aged or nearly full: free blocks lie singly among others, in most of the runs
//! of their class. Each lane looks for one by itself, and waits for no other lane.
//!
//! Cost: a load of the list, and some more where few runs are listed; a load of a few words of a
//! run; an acquire atomic that claims a bit; a load of the run's entry. One after the other. If the
//! run is full, one probe of eight looks at all of its words, and unlists it as a move of the class.
//!
//! Progress: lock-free, and the number of looks is bounded.

use super::Heap;
use super::bits::{WORD_BITS, full_word, has};
use super::class::SizeClass;
use super::scatter::{hash, mixed, scaled};
use super::set_search::Picked;
use crate::lanes::Group;
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

/// One of so many looks at a full run unlists it.
const UNLISTS: u32 = if NATIVE_LAYOUT { 8 } else { 1 };

/// What a lane sees in a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// It does not look, or it picked no run.
    Nothing,
    /// A free block.
    Free,
    /// Only fully free words, which cursors have tickets for.
    Words,
    /// No free block where it looked.
    Full,
}

impl Heap {
    /// Claims a free block for each lane of the group that asks. One of a fully free word only if
    /// `takes_words`: cursors have tickets for such words. All lanes of the group take part.
    ///
    /// One look of each lane in each turn. The lanes wait for each other before each round trip, so
    /// that those of all lanes overlap.
    #[inline(never)]
    pub(super) fn probe(
        &self,
        group: Group,
        asks: bool,
        class: SizeClass,
        salt: u32,
        takes_words: bool,
    ) -> Probed {
        let (runs, info, common) = (self.runs(), self.class(class), self.overview().common());
        let (start, end) =
            (self.layout.run_index(class, 0), self.layout.run_index(SizeClass(class.0 + 1), 0));
        let words = info.words().next_multiple_of(AT_ONCE);
        let (mut probed, mut looks, mut turn) = (Probed::Missed, asks, 0);
        while turn < LOOKS && !group.all(!looks) {
            let salt = mixed(salt.wrapping_add(turn));
            turn += 1;
            let picked = if looks { runs.listed().pick(start, end, salt, common) } else { Picked::Missed };
            group.sync();
            let (mut seen, mut run, mut w, mut bit) = (Seen::Nothing, 0, 0, 0);
            if let Picked::Index(index) = picked {
                run = index - start;
                let first = scaled(hash(salt), words) / AT_ONCE * AT_ONCE;
                let at = runs.first_word(run) + first;
                // Words after the last one have no bits (I1 of `runs`). Relaxed: hints.
                let load = |i| if i < AT_ONCE { runs.bits(at + i).load_relaxed() } else { 0 };
                let word = [load(0), load(1), load(2), load(3)];
                let may_take = |i: u32| {
                    let word = word[i as usize];
                    u32::from(word != 0 && (takes_words || word != full_word(info.blocks, first + i))) << i
                };
                let open = may_take(0) | may_take(1) | may_take(2) | may_take(3);
                // One of them, and a bit of it, by bits of the salt that did not choose the run.
                let (from, rotation) = (salt >> 5 & 3, salt >> 7 & (WORD_BITS - 1));
                let i = (((open << 4 | open) >> from).trailing_zeros() + from) % 4;
                let low = if i & 1 == 0 { word[0] } else { word[1] };
                let high = if i & 1 == 0 { word[2] } else { word[3] };
                let chosen = if i < 2 { low } else { high };
                w = first + i;
                bit = (chosen.rotate_right(rotation).trailing_zeros() + rotation) % WORD_BITS;
                seen = match open {
                    0 if word == [0; 4] => Seen::Full,
                    0 => Seen::Words,
                    _ => Seen::Free,
                };
            }
            if picked == Picked::Empty || seen == Seen::Words {
                (probed, looks) = (Probed::NoHole, false);
            }
            group.sync();
            if seen == Seen::Free && runs.claim_some(run, class, info, w, 1 << bit) != 0 {
                let address = self.block_address(info, run, w * WORD_BITS + bit);
                (probed, looks) = (Probed::Block(address), false);
            }
            group.sync();
            let index = start + run;
            // Most looks at a full run leave it listed: many lanes look at it at the same time.
            if seen == Seen::Full
                && (salt >> 12).is_multiple_of(UNLISTS)
                && has(runs.listed().word_of(index).load_relaxed(), index)
            {
                // Unlists the run if it is full.
                let mut ignored = 0;
                runs.first_open(class, info, index / WORD_BITS, 1 << (index % WORD_BITS), &mut ignored);
            }
        }
        probed
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
