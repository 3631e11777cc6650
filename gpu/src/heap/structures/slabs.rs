//! The free slabs: a set, and claims of consecutive slabs from it.
//!
//! - I1. A slab is free while its bit is set. The thread that clears the bit owns the slab.
//! - I2. The last user's writes happen before the insertion, and that before the claim.
//!
//! Lock-free: if a claim gets too few slabs, other claims got them.

use crate::heap::layout::bits::{WORD_BITS, WORD_LOG2, first_run, low_bits, ones_from};
use crate::heap::structures::index_set::IndexSet;
use crate::heap::structures::moves::Moves;
use crate::heap::structures::orderings::CLAIM_SLABS;
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;

/// Words that are claimed at once.
const AT_ONCE: u32 = if NATIVE_LAYOUT { 8 } else { 1 };

/// Words that a picky claim reads.
const LOOKS: u32 = if NATIVE_LAYOUT { 32 } else { 2 };

/// Attempts at words from which other threads are claiming slabs.
const ATTEMPTS: u32 = if NATIVE_LAYOUT { 64 } else { 3 };

/// Consecutive slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::heap) struct Slabs {
    pub first: u32,
    /// 0 for none.
    pub len: u32,
}

impl Slabs {
    pub const NONE: Slabs = Slabs { first: 0, len: 0 };
}

/// The set of free slabs.
/// How [`FreeSlabs::claim`] searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::heap) enum SlabSearch {
    /// Reads only a few words. Accepts only the most slabs that were requested, or a whole word.
    Brief,
    /// Reads all words. Accepts one unit.
    Full,
}

#[derive(Clone, Copy)]
pub(in crate::heap) struct FreeSlabs<'a> {
    pub set: IndexSet,
    pub slabs: u32,
    pub moves: &'a Moves,
}

impl FreeSlabs<'_> {
    /// Inserts slabs that the caller owns. Slabs that others could have claimed before, too, are
    /// inserted during a move.
    #[inline(never)]
    pub fn insert(&self, slabs: Slabs) {
        let (mut slab, end) = (slabs.first, slabs.first + slabs.len);
        while slab < end {
            self.set.insert_bits(slab >> WORD_LOG2, low_bits(end - slab) << (slab % WORD_BITS));
            slab = (slab | (WORD_BITS - 1)) + 1;
        }
    }

    /// Inserts slab `first + i` for each set bit `i` of `mask`. `first` is the first slab of a
    /// word. To be called during a move.
    pub fn insert_mask(&self, first: u32, mask: u64) {
        for (w, bits) in [mask as u32, (mask >> WORD_BITS) as u32].into_iter().enumerate() {
            if bits != 0 {
                self.set.insert_bits(first / WORD_BITS + w as u32, bits);
            }
        }
    }

    /// Whether a claim of `unit` slabs may find some, as far as the levels of the set show.
    pub fn has(&self, unit: u32) -> bool {
        let mut from = 0;
        while let Some(slab) = self.set.next(from, self.slabs) {
            let w = slab >> WORD_LOG2;
            if first_run(self.set.word(w).load_relaxed(), unit).is_some() {
                return true;
            }
            from = (w + 1) * WORD_BITS;
        }
        false
    }

    /// Whether level 0 of the set has `unit` slabs in a row. All lanes of the group take part.
    pub fn scan(&self, group: Group, unit: u32) -> bool {
        let mut from = 0;
        while let Some(slab) = self.set.scan(group, from, self.slabs) {
            let w = (slab >> WORD_LOG2) + group.rank();
            let word = if w < self.set.len() { self.set.word(w).load_relaxed() } else { 0 };
            if !group.all(first_run(word, unit).is_none()) {
                return true;
            }
            from = ((slab >> WORD_LOG2) + group.count()) * WORD_BITS;
        }
        false
    }

    /// Whether there seems to be a free slab.
    pub fn has_any(&self) -> bool {
        self.set.next(0, self.slabs).is_some()
    }

    /// Claims consecutive slabs by all lanes of a group: a multiple of `unit`, at most `most`, the
    /// first ones found from slab `from` on, then from slab 0 on. Up to a word's number of slabs
    /// lie in one word.
    ///
    /// If it claims slabs, it has begun a move, which the caller ends when searches find the memory
    /// again.
    #[inline(never)]
    pub fn claim(&self, group: Group, from: u32, unit: u32, most: u32, search: SlabSearch) -> Slabs {
        let (mut attempts, mut looks) = (0, 0);
        let is_brief = search == SlabSearch::Brief;
        let least = if is_brief { most.min(WORD_BITS) / unit * unit } else { unit };
        for (mut from, to) in [(from, self.slabs), (0, from)] {
            while let Some(slab) = self.set.next_of(group, from, to) {
                // Each lane looks at a word.
                let w = (slab >> WORD_LOG2) + group.rank();
                let word = if w < self.set.len() { self.set.word(w).load_relaxed() } else { 0 };
                let bit = first_run(word, least);
                let found = group.ballot(bit.is_some());
                let mut claimed = Slabs::NONE;
                if let (Some(bit), true) = (bit, group.lane() == found.leader()) {
                    self.moves.begin();
                    claimed = self.claim_from(w, word, bit, unit, most);
                    if claimed.len == 0 {
                        self.moves.end();
                    }
                }
                if !found.is_empty() {
                    let packed = u64::from(claimed.first) << 32 | u64::from(claimed.len);
                    let packed = group.read_64(packed, found.leader());
                    // What the claiming lane acquired is before what the other lanes do with the
                    // slabs (I2).
                    group.order();
                    claimed = Slabs { first: (packed >> 32) as u32, len: packed as u32 };
                }
                if claimed.len > 0 {
                    return claimed;
                }
                looks += group.count();
                if is_brief && looks >= LOOKS {
                    return Slabs::NONE;
                }
                // Other threads took some of these slabs: looks at the words again.
                attempts += 1;
                if found.is_empty() || attempts >= ATTEMPTS {
                    self.set.settle(w);
                    from = ((slab >> WORD_LOG2) + group.count()) * WORD_BITS;
                }
            }
        }
        Slabs::NONE
    }

    /// Claims slabs from `bit` on in word `w`, which was read as `word`. Claims none if the word
    /// has changed.
    fn claim_from(&self, w: u32, word: u32, bit: u32, unit: u32, most: u32) -> Slabs {
        if word == u32::MAX && most > WORD_BITS && WORD_BITS.is_multiple_of(unit) {
            return self.claim_words(w, unit, most);
        }
        self.claim_in(w, word, bit, unit, ones_from(word, bit).min(most))
    }

    /// Claims `len` slabs, rounded down to a multiple of `unit`, from `bit` on in word `w`, which
    /// was read as `word`. Claims none if the word has changed.
    fn claim_in(&self, w: u32, word: u32, bit: u32, unit: u32, len: u32) -> Slabs {
        let len = len / unit * unit;
        // ordering: acquire; pairs with INSERT (I2). Release; pairs with the fence of a search, as
        // REMOVE does. All or none, so no slab is hidden from others.
        match self.set.word(w).at(CLAIM_SLABS).cas_acq_rel(word, word & !(low_bits(len) << bit)) {
            Ok(_) => Slabs { first: w * WORD_BITS + bit, len },
            Err(_) => Slabs::NONE,
        }
    }

    /// Claims slabs of several words, from the start of word `w` on. To be called during a move.
    fn claim_words(&self, w: u32, unit: u32, most: u32) -> Slabs {
        let most = most.min((self.set.len() - w) * WORD_BITS);
        let (mut len, mut is_whole) = (0, true);
        while is_whole && len < most {
            let (first, mut got) = (w + len / WORD_BITS, [0; AT_ONCE as usize]);
            let (start, batch) = (len, (most - len).min(AT_ONCE * WORD_BITS));
            let words = batch.div_ceil(WORD_BITS);
            // All of them before the first result is needed: their round trips overlap.
            for (i, got) in (0..words).zip(&mut got) {
                *got = self.set.remove_bits(first + i, low_bits(batch - i * WORD_BITS));
            }
            for (i, got) in (0..words).zip(got) {
                let joined = if len == start + i * WORD_BITS { ones_from(got, 0) } else { 0 };
                let surplus = got & !low_bits(joined);
                if surplus != 0 {
                    self.set.insert_bits(first + i, surplus);
                }
                len += joined;
            }
            is_whole = len == start + batch;
        }
        let rest = len % unit;
        if rest > 0 {
            self.insert(Slabs { first: w * WORD_BITS + len - rest, len: rest });
        }
        Slabs { first: w * WORD_BITS, len: len - rest }
    }

    /// Claims `len` consecutive free slabs that start at a multiple of `step`: the first ones from
    /// slab `from` to the end, then those from slab 0. Finds none only if level 0 of the set has
    /// none.
    #[inline(never)]
    pub fn claim_aligned(&self, from: u32, len: u32, step: u32) -> Slabs {
        for (from, to, is_exact) in [(from, self.slabs, false), (0, from, false), (0, self.slabs, true)] {
            let mut first = from.next_multiple_of(step);
            // Every turn goes on to a later slab.
            while first < to && first + len <= self.slabs {
                let there = self.len_at(first, len);
                let next = if there == len {
                    let got = self.claim_at(first, len);
                    if got == len {
                        return Slabs { first, len };
                    }
                    Some(first + got + 1)
                } else if there > 0 {
                    Some(first + there + 1)
                } else if is_exact {
                    self.set.first(first + 1, to)
                } else {
                    self.set.next(first + 1, to)
                };
                let Some(next) = next else { break };
                first = next.next_multiple_of(step);
            }
        }
        Slabs::NONE
    }

    /// The number of consecutive free slabs from `first` on, at most `most`. All `most` slabs must
    /// be in the heap.
    pub fn len_at(&self, first: u32, most: u32) -> u32 {
        let mut len = 0;
        while len < most {
            let slab = first + len;
            let run = ones_from(self.set.word(slab >> WORD_LOG2).load_relaxed(), slab % WORD_BITS);
            len += run;
            if slab % WORD_BITS + run < WORD_BITS {
                break;
            }
        }
        len.min(most)
    }

    /// Claims the `len` slabs from `first` on, all or none. Returns how many consecutive ones were
    /// free.
    pub fn claim_at(&self, first: u32, len: u32) -> u32 {
        self.moves.during(|| self.claim_at_moving(first, len))
    }

    /// [`claim_at`](Self::claim_at) during a move of the caller.
    pub fn claim_at_moving(&self, first: u32, len: u32) -> u32 {
        let (mut slab, end) = (first, first + len);
        while slab < end {
            let (w, bit) = (slab >> WORD_LOG2, slab % WORD_BITS);
            let bits = low_bits(end - slab) << bit;
            let got = self.set.remove_bits(w, bits);
            if got != bits {
                if got != 0 {
                    self.set.insert_bits(w, got);
                }
                self.insert(Slabs { first, len: slab - first });
                return slab - first + ones_from(got, bit);
            }
            slab = (slab | (WORD_BITS - 1)) + 1;
        }
        len
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
