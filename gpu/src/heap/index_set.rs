//! A set of indices as a hierarchy of bitmaps.
//!
//! ```text
//! level 2   | 1 |                       bit w: word w of level 1 may be nonzero
//! level 1   | 1 0 1 ... |               bit w: word w of level 0 may be nonzero
//! level 0   | 0100 | 0000 | 1101 | ...  bit i: index i is in the set
//! ```
//!
//! - I1. Index `i` is in the set while its bit in level 0 is set. The thread that clears it has
//!   removed it, alone.
//! - I2. While no insertion and no lowering is under way, a nonzero word has its bit in the level
//!   above: a thread that makes a word nonzero sets that bit next, and a thread that clears that
//!   bit reads the word once more.
//!
//! A bit of a word that is zero is harmless. Searches clear it (`lower`). Lock-free.

use super::moves::{Before, Moves};
use super::{INSERT, LOWER, RAISE, REMOVE};
use crate::lanes::Group;
use crate::sync::{AtomicU32, NATIVE_LAYOUT};

/// Bits in a word of any bitmap here.
pub(super) const WORD_BITS: u32 = 32;
pub(super) const WORD_LOG2: u32 = WORD_BITS.trailing_zeros();

/// Attempts to insert an index into a word that has others.
const BESIDE: u32 = if NATIVE_LAYOUT { 4 } else { 1 };

/// The set. Its words, level after level, are in device memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexSet {
    words: *const AtomicU32,
    /// Words of level 0.
    len: u32,
}

/// Words of all levels of a set of indices below `indices`.
pub(super) const fn total_words(indices: u32) -> u32 {
    let mut len = indices.div_ceil(WORD_BITS);
    let mut total = len;
    while len > 1 {
        len = len.div_ceil(WORD_BITS);
        total += len;
    }
    total
}

impl IndexSet {
    /// The set of indices below `indices` at this place.
    ///
    /// # Safety
    /// `words` starts [`total_words`] words, which stay there while the set or a copy of it is
    /// used.
    #[inline(always)]
    pub unsafe fn new(words: *const AtomicU32, indices: u32) -> Self {
        IndexSet { words, len: indices.div_ceil(WORD_BITS) }
    }

    #[inline(always)]
    fn at(&self, i: u32) -> &AtomicU32 {
        // SAFETY: a word of one of the levels, by the callers.
        let word = unsafe { self.words.add(i as usize) };
        // SAFETY: `new`'s promise.
        unsafe { &*word }
    }

    /// Word `w` of level 0.
    #[inline(always)]
    pub fn word(&self, w: u32) -> &AtomicU32 {
        debug_assert!(w < self.len);
        self.at(w)
    }

    /// The word of level 0 of an index.
    #[inline(always)]
    pub fn word_of(&self, i: u32) -> &AtomicU32 {
        self.word(i >> WORD_LOG2)
    }

    /// Number of words of level 0.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The first word of a level, and its number of words; none above the highest level.
    fn level(&self, level: u32) -> (u32, u32) {
        let (mut start, mut len) = (0, self.len);
        for _ in 0..level {
            start += len;
            len = if len > 1 { len.div_ceil(WORD_BITS) } else { 0 };
        }
        (start, len)
    }

    #[inline(always)]
    pub fn contains(&self, i: u32) -> bool {
        has(self.word_of(i).load_relaxed(), i)
    }

    /// Inserts an index. To be called during a move, unless no thread searches for it yet.
    pub fn insert(&self, i: u32) {
        self.insert_bits(i >> WORD_LOG2, 1 << (i % WORD_BITS));
    }

    /// Inserts an index into a word that has others. Returns whether it did. The levels above stay as
    /// they are, so this is no move.
    pub fn insert_beside(&self, i: u32) -> bool {
        let (word, bit) = (self.word(i >> WORD_LOG2), 1 << (i % WORD_BITS));
        (0..BESIDE).any(|_| {
            // Relaxed: the compare-and-swap decides.
            let seen = word.load_relaxed();
            // ordering: release; as in `insert_bits`.
            seen != 0 && word.at(INSERT).cas_release(seen, seen | bit).is_ok()
        })
    }

    /// [`insert`](Self::insert) behind a release fence.
    #[inline(always)]
    pub fn insert_relaxed(&self, i: u32) {
        // Relaxed: the fence.
        if self.word(i >> WORD_LOG2).or_relaxed(1 << (i % WORD_BITS)) == 0 {
            self.raise(0, i >> WORD_LOG2);
        }
    }

    /// Inserts the indices of a word of level 0.
    #[inline(never)]
    pub fn insert_bits(&self, w: u32, bits: u32) {
        // ordering: release; pairs with REMOVE: what the inserting thread did before.
        if self.word(w).at(INSERT).or_release(bits) == 0 {
            self.raise(0, w);
        }
    }

    /// Removes the indices `bits` of a word of level 0. Returns those that were in the set. The
    /// levels above keep their bits until a search clears them.
    #[inline(always)]
    pub fn remove_bits(&self, w: u32, bits: u32) -> u32 {
        // ordering: acquire; pairs with INSERT. Release; pairs with the fence of a search: a search
        // that sees the bits cleared sees the move of the thread that cleared them.
        self.word(w).at(REMOVE).and_acq_rel(!bits) & bits
    }

    /// Word `w` of `level` is nonzero: sets its bit in the level above, and so on.
    #[inline(never)]
    fn raise(&self, level: u32, w: u32) {
        let (mut level, mut w) = (level + 1, w);
        loop {
            let (start, len) = self.level(level);
            if len == 0 {
                return;
            }
            // ordering: release; pairs with LOWER: the word before its bit (I2).
            let old = self.at(start + (w >> WORD_LOG2)).at(RAISE).or_release(1 << (w % WORD_BITS));
            if old != 0 {
                return;
            }
            w >>= WORD_LOG2;
            level += 1;
        }
    }

    /// Word `w` of `level` was zero: clears its bit in the level above, unless it is nonzero again.
    #[cold]
    #[inline(never)]
    fn lower(&self, level: u32, w: u32) {
        let (start, _) = self.level(level + 1);
        // ordering: acquire; pairs with RAISE: the word of every thread that set this bit before
        // (I2). Release; pairs with the fence of a search, as REMOVE does.
        self.at(start + (w >> WORD_LOG2)).at(LOWER).and_acq_rel(!(1 << (w % WORD_BITS)));
        if self.at(self.level(level).0 + w).load_relaxed() != 0 {
            self.raise(level, w);
        }
    }

    /// Clears the bit of word `w` of level 0 in the level above, as a move, if the word is zero.
    /// Returns the number of moves. Lanes do this at once for the words that they look at, so that
    /// later searches do not come down to them one after the other.
    pub fn settle(&self, w: u32, moves: &Moves) -> u32 {
        let (above, above_len) = self.level(1);
        if w >= self.len || above_len == 0 || self.word(w).load_relaxed() != 0 {
            return 0;
        }
        // Relaxed: hints, as the word above.
        if self.at(above + (w >> WORD_LOG2)).load_relaxed() >> (w % WORD_BITS) & 1 == 0 {
            return 0;
        }
        moves.during(|| self.lower(0, w));
        1
    }

    /// The first index of the set from `from` on, and before `to`. Clears bits of words that are
    /// zero, as moves of its own.
    #[inline(never)]
    pub fn next(&self, from: u32, to: u32, moves: &Moves, before: &mut Before) -> Option<u32> {
        let (mut level, mut i, mut came_down) = (0, from, false);
        // Every turn goes up, or down to a later index.
        loop {
            let (start, len) = self.level(level);
            let w = i >> WORD_LOG2;
            if w >= len || (i as u64) << (WORD_LOG2 * level) >= to.into() {
                return None;
            }
            // Relaxed: a hint; a search that fails has a fence behind its reads.
            let word = self.at(start + w).load_relaxed();
            let rest = word >> (i % WORD_BITS) << (i % WORD_BITS);
            if rest == 0 {
                if came_down && word == 0 {
                    before.note_own(1);
                    moves.during(|| self.lower(level, w));
                }
                (level, i, came_down) = (level + 1, w + 1, false);
                continue;
            }
            i = w * WORD_BITS + rest.trailing_zeros();
            if level == 0 {
                return if i < to { Some(i) } else { None };
            }
            (level, i, came_down) = (level - 1, i * WORD_BITS, true);
        }
    }

    /// The same by the leader of a group, for all lanes. Only the leader's `before` counts.
    pub fn next_of(
        &self,
        group: Group,
        from: u32,
        to: u32,
        moves: &Moves,
        before: &mut Before,
    ) -> Option<u32> {
        let found = group.lead_64(|| self.next(from, to, moves, before).map_or(u64::MAX, u64::from));
        u32::try_from(found).ok()
    }

    /// The first word of level 0 that is nonzero without its bit in the level above, or the same of
    /// a higher level: its level and its number.
    pub fn unraised(&self) -> Option<(u32, u32)> {
        let mut level = 0;
        loop {
            let ((start, len), (above, above_len)) = (self.level(level), self.level(level + 1));
            if above_len == 0 {
                return None;
            }
            let is_unraised = |w: &u32| {
                self.at(start + w).load_relaxed() != 0
                    && self.at(above + w / WORD_BITS).load_relaxed() >> (w % WORD_BITS) & 1 == 0
            };
            if let Some(w) = (0..len).find(is_unraised) {
                return Some((level, w));
            }
            level += 1;
        }
    }
}

/// Whether a word of level 0 has the bit of index `i`.
#[inline(always)]
pub(super) const fn has(word: u32, i: u32) -> bool {
    word >> (i % WORD_BITS) & 1 == 1
}

/// The lowest `n` bits, all for 32 and more.
#[inline(always)]
pub(super) const fn low_bits(n: u32) -> u32 {
    if n >= WORD_BITS { u32::MAX } else { (1 << n) - 1 }
}

/// The number of consecutive set bits of `word` from `bit` on.
#[inline(always)]
pub(super) const fn run_at(word: u32, bit: u32) -> u32 {
    if bit >= WORD_BITS {
        return 0;
    }
    let run = (!(word >> bit)).trailing_zeros();
    if run < WORD_BITS - bit { run } else { WORD_BITS - bit }
}

/// The first bit of the first `least` consecutive set bits of `word`.
pub(super) const fn first_run(word: u32, least: u32) -> Option<u32> {
    let mut start = word.trailing_zeros();
    while start < WORD_BITS {
        let end = start + run_at(word, start);
        if end - start >= least {
            return Some(start);
        }
        let rest = if end < WORD_BITS { word >> end << end } else { 0 };
        start = rest.trailing_zeros();
    }
    None
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    fn words(indices: u32) -> Vec<AtomicU32> {
        (0..total_words(indices)).map(|_| AtomicU32::new(0)).collect()
    }

    #[test]
    fn it_is_a_set() {
        for indices in [1, 32, 33, 1000, 40_000] {
            let words = words(indices);
            // SAFETY: as many words as it has.
            let set = unsafe { IndexSet::new(words.as_ptr(), indices) };
            let (moves, mut model, mut state) = (Moves::new(), BTreeSet::new(), 1_u32);
            for _ in 0..3000 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let i = (state >> 8) % indices;
                match state >> 30 {
                    0 => {
                        let removed = set.remove_bits(i / WORD_BITS, 1 << (i % WORD_BITS)) != 0;
                        assert_eq!(removed, model.remove(&i));
                    }
                    1 => {
                        if !set.insert_beside(i) {
                            set.insert(i);
                        }
                        model.insert(i);
                    }
                    _ => {
                        let to = i + (indices - i).div_ceil(1 + (state >> 5) % 7);
                        let mut before = moves.search();
                        let found = set.next(i, to, &moves, &mut before);
                        assert_eq!(found, model.range(i..to).next().copied());
                        assert!(moves.is_unchanged(before));
                    }
                }
                assert_eq!(set.contains(i), model.contains(&i));
                assert_eq!(set.unraised(), None);
            }
        }
    }

    #[test]
    fn a_missing_bit_above_is_found() {
        let words = words(1 << 12);
        // SAFETY: as many words as it has.
        let set = unsafe { IndexSet::new(words.as_ptr(), 1 << 12) };
        set.insert(77);
        words[128].store_relaxed(0);
        assert_eq!(set.unraised(), Some((0, 2)));
        words[128].store_relaxed(1 << 2);
        words[132].store_relaxed(0);
        assert_eq!(set.unraised(), Some((1, 0)));
    }

    #[test]
    fn runs_of_bits() {
        assert_eq!((run_at(0b1110, 1), run_at(u32::MAX, 30), run_at(1, 32)), (3, 2, 0));
        assert_eq!((first_run(0b1101_1101, 3), first_run(0b1101_1101, 4)), (Some(2), None));
        assert_eq!((first_run(0, 1), first_run(u32::MAX, 32)), (None, Some(0)));
    }
}
