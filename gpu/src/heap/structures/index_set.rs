//! A set of indices as a hierarchy of bitmaps.
//!
//! ```text
//! level 2   | 1 |                       a hint, bit w: word w of level 1 may be nonzero
//! level 1   | 1 0 1 ... |               a hint, bit w: word w of level 0 may be nonzero
//! level 0   | 0100 | 0000 | 1101 | ...  bit i: index i is in the set
//! ```
//!
//! - I1. Index `i` is in the set while its bit in level 0 is set. The thread that clears the bit,
//!   and no other, has removed the index.
//! - I2. While no insertion and no lowering is under way, a nonzero word has its bit in the level
//!   above: a thread that makes a word nonzero sets that bit next, and a thread that clears that
//!   bit reads the word once more.
//!
//! Two kinds of searches: [`next`](IndexSet::next) goes through the levels, and finds an index
//! soon. It clears set bits above zero words, so that later searches do not descend to zero words.
//! It may miss an index that is being inserted, or that is in a word with such an index, even if
//! the insertion happened before the search. [`scan`](IndexSet::scan) reads level 0, so it sees
//! every index that was inserted, or seen in the set, before the search. Lock-free.

use crate::heap::layout::bits::{WORD_BITS, WORD_LOG2, has, low_bits};
use crate::heap::layout::scatter::{hash, scaled};
use crate::heap::structures::orderings::{INSERT, LOWER, RAISE, REMOVE};
use crate::lanes::{Group, select_bit};
use crate::sync::{AtomicU32, NATIVE_LAYOUT};
use core::array::from_fn;

/// Words that each lane reads at once in a scan.
const AT_ONCE: u32 = if NATIVE_LAYOUT { 4 } else { 1 };

/// The set. Its words, level after level, are in device memory.
#[derive(Clone, Copy, Debug)]
pub(in crate::heap) struct IndexSet {
    words: *const AtomicU32,
    /// Words of level 0.
    len: u32,
}

impl IndexSet {
    /// The set of indices below `indices` in the words at `words`.
    ///
    /// # Safety
    /// `words` starts [`total_words`] words, which stay there while the set or a copy of it is
    /// used.
    #[inline(always)]
    pub unsafe fn new(words: *const AtomicU32, indices: u32) -> Self {
        IndexSet { words, len: indices.div_ceil(WORD_BITS) }
    }

    #[inline(always)]
    pub fn at(&self, i: u32) -> &AtomicU32 {
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
    pub fn level(&self, level: u32) -> (u32, u32) {
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

    /// Inserts an index. A thread that removes it must then read what the index stands for by
    /// read-modify-writes, behind a release fence. The caller must have changed that by a
    /// read-modify-write that acquires: either the other thread sees the change, or the caller
    /// acquired the removal, so that this insertion comes after it.
    #[inline(always)]
    pub fn insert_relaxed(&self, i: u32) {
        self.insert_bits_relaxed(i >> WORD_LOG2, 1 << (i % WORD_BITS));
    }

    /// [`insert_bits`](Self::insert_bits) behind a release fence, or as
    /// [`insert_relaxed`](Self::insert_relaxed).
    #[inline(always)]
    pub fn insert_bits_relaxed(&self, w: u32, bits: u32) {
        // Relaxed: the fence, or the read-modify-writes.
        if self.word(w).or_relaxed(bits) == 0 {
            self.raise(0, w);
        }
    }

    /// Inserts the indices of a word of level 0.
    #[inline(never)]
    pub fn insert_bits(&self, w: u32, bits: u32) {
        // ordering: release; pairs with REMOVE and CLAIM_SLABS: what the inserting thread did
        // before.
        if self.word(w).at(INSERT).or_release(bits) == 0 {
            self.raise(0, w);
        }
    }

    /// Removes the indices `bits` of a word of level 0. Returns those that were in the set. The
    /// levels above keep their bits until a search clears them.
    #[inline(always)]
    pub fn remove_bits(&self, w: u32, bits: u32) -> u32 {
        // ordering: acquire; pairs with INSERT and LIST. Release; pairs with the fence of a search:
        // a search that sees the bits cleared sees the move of the thread that cleared them.
        self.word(w).at(REMOVE).and_acq_rel(!bits) & bits
    }

    /// Sets the bit of word `w` of `level`, which is nonzero, in the level above, and so on.
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

    /// Clears the bit of word `w` of `level`, which was zero, in the level above. Sets the bit
    /// again if the word is nonzero meanwhile.
    #[cold]
    #[inline(never)]
    fn lower(&self, level: u32, w: u32) {
        let (start, _) = self.level(level + 1);
        // ordering: acquire; pairs with RAISE: the word of every thread that set this bit before
        // (I2).
        self.at(start + (w >> WORD_LOG2)).at(LOWER).and_acquire(!(1 << (w % WORD_BITS)));
        if self.at(self.level(level).0 + w).load_relaxed() != 0 {
            self.raise(level, w);
        }
    }
}

/// The result of [`IndexSet::pick`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::heap) enum Picked {
    /// Two indices, which may be the same.
    Two([u32; 2]),
    /// No index is near this word, which has none.
    Missed(u32),
    /// The levels above show no index.
    Empty,
}

impl IndexSet {
    /// An index of the set in `from..to`: the first one that the levels show. Clears set bits above
    /// zero words.
    #[inline(never)]
    pub fn next(&self, from: u32, to: u32) -> Option<u32> {
        let (mut level, mut i, mut came_down) = (0, from, false);
        // Every turn goes up, or down to a later index.
        loop {
            let (start, len) = self.level(level);
            let w = i >> WORD_LOG2;
            if w >= len || (i as u64) << (WORD_LOG2 * level) >= to.into() {
                return None;
            }
            // Relaxed: a hint.
            let word = self.at(start + w).load_relaxed();
            let rest = word >> (i % WORD_BITS) << (i % WORD_BITS);
            if rest == 0 {
                if came_down && word == 0 {
                    self.lower(level, w);
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

    /// Two pseudo-random indices in `start..end`, of two pseudo-random words. The two may be the
    /// same. `start` and `end` are the first indices of words. Skips zero words by means of the two
    /// levels above, as far as these show words near the first one. Calls no function: see
    /// `paths/probe.rs`.
    ///
    /// Cost: two loads at once. If both words are zero: up to three loads more, one after the
    /// other, and again two at once.
    #[inline(always)]
    pub fn pick(&self, start: u32, end: u32, salt: u32) -> Picked {
        let (first, last) = (start >> WORD_LOG2, end >> WORD_LOG2);
        let word_of = |salt| first + scaled(salt, last - first);
        let words = [word_of(salt), word_of(hash(salt))];
        if let Some(two) = self.two_of(words, salt) {
            return Picked::Two(two);
        }
        let (above, second) = (self.level(1), self.level(2));
        // Relaxed: hints, as in `next`.
        let load = |v| self.at(above.0 + v).load_relaxed() & within(v, first, last);
        let (mut v, mut word) = (words[0] >> WORD_LOG2, 0);
        if above.1 > 0 {
            word = load(v);
        }
        if word == 0 && second.1 > 0 {
            let (u, last_above) = (v >> WORD_LOG2, ((last - 1) >> WORD_LOG2) + 1);
            let nonzero = self.at(second.0 + u).load_relaxed() & within(u, first >> WORD_LOG2, last_above);
            if nonzero == 0 {
                // Further words of that level may have indices.
                let is_only = (first >> WORD_LOG2) >> WORD_LOG2 == (last_above - 1) >> WORD_LOG2;
                return if is_only { Picked::Empty } else { Picked::Missed(words[0]) };
            }
            v = any_of(nonzero, u, salt >> 5);
            word = load(v);
        }
        if word == 0 {
            return if second.1 > 0 { Picked::Missed((v << WORD_LOG2).max(first)) } else { Picked::Empty };
        }
        let words = [any_of(word, v, salt >> 3), any_of(word, v, salt >> 12)];
        if let Some(two) = self.two_of(words, salt) {
            return Picked::Two(two);
        }
        Picked::Missed(words[0])
    }

    /// A pseudo-random index of each of two words of level 0, or two of one word if the other is
    /// zero.
    #[inline(always)]
    fn two_of(&self, words: [u32; 2], salt: u32) -> Option<[u32; 2]> {
        let [one, other] = words.map(|w| (w, self.word(w).load_relaxed()));
        if one.1 | other.1 == 0 {
            return None;
        }
        let ((v, a), (w, b)) = (if one.1 == 0 { other } else { one }, if other.1 == 0 { one } else { other });
        Some([any_of(a, v, salt), any_of(b, w, salt >> 6)])
    }

    /// [`next`](Self::next) by the leader of a group, for all lanes.
    pub fn next_of(&self, group: Group, from: u32, to: u32) -> Option<u32> {
        let found = group.lead_64(|| self.next(from, to).map_or(u64::MAX, u64::from));
        u32::try_from(found).ok()
    }

    /// The first index of a word in `from..to` before which the set has no index, while one of this
    /// word and the `group.count() - 1` words after it has an index. `None` if level 0 has no index
    /// in `from..to`. All lanes of the group take part. `from` is the first index of a word.
    #[inline(never)]
    pub fn scan(&self, group: Group, from: u32, to: u32) -> Option<u32> {
        let (mut first, end) = (from >> WORD_LOG2, to.div_ceil(WORD_BITS).min(self.len));
        while first < end {
            let word = |i: u32| first + i * group.count() + group.rank();
            // One load is enough for the rest.
            if end - first <= group.count() {
                let row = self.word(word(0).min(end - 1)).load_relaxed();
                return (!group.all(row == 0)).then_some(first << WORD_LOG2);
            }
            // All loads before the first result is needed: none depends on a condition. Relaxed: a
            // search that fails has a fence behind its reads.
            let rows: [u32; AT_ONCE as usize] =
                from_fn(|i| self.word(word(i as u32).min(end - 1)).load_relaxed());
            let mut nonzero = 0;
            for (i, row) in (0..AT_ONCE).zip(rows) {
                nonzero |= u32::from(row != 0 && word(i) < end) << i;
            }
            let nonzero = group.union(nonzero);
            if nonzero != 0 {
                return Some((first + nonzero.trailing_zeros() * group.count()) << WORD_LOG2);
            }
            first += AT_ONCE * group.count();
        }
        None
    }

    /// The first index in `from..to`, by level 0.
    pub fn first(&self, from: u32, to: u32) -> Option<u32> {
        let mut i = from;
        while i < to {
            // Relaxed: as in `scan`.
            let rest = self.word_of(i).load_relaxed() >> (i % WORD_BITS) << (i % WORD_BITS);
            if rest != 0 {
                let found = i / WORD_BITS * WORD_BITS + rest.trailing_zeros();
                return (found < to).then_some(found);
            }
            i = self.scan(Group::alone(), (i | (WORD_BITS - 1)) + 1, to)?;
        }
        None
    }

    /// Clears the bit of word `w` of level 0 in the level above if the word is zero, and so on for
    /// the word above. Lanes do this at once for the words that they look at, so that later
    /// searches do not descend to them one after the other.
    pub fn settle(&self, w: u32) {
        let (mut level, mut w) = (0, w);
        loop {
            let ((start, len), (above, above_len)) = (self.level(level), self.level(level + 1));
            // Relaxed, as the word above: hints.
            if w >= len || above_len == 0 || self.at(start + w).load_relaxed() != 0 {
                return;
            }
            if self.at(above + (w >> WORD_LOG2)).load_relaxed() >> (w % WORD_BITS) & 1 == 1 {
                self.lower(level, w);
            }
            (level, w) = (level + 1, w >> WORD_LOG2);
        }
    }

    /// The level and number of a nonzero word without its bit in the level above: the first such
    /// word, of the lowest level that has one.
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

/// The bits of word `v` that stand for numbers in `first..last`.
#[inline(always)]
const fn within(v: u32, first: u32, last: u32) -> u32 {
    let start = v * WORD_BITS;
    low_bits(last.saturating_sub(start)) & !low_bits(first.saturating_sub(start))
}

/// The index of a set bit of the nonzero word `w`, chosen by 12 bits of `salt` with equal
/// probability.
#[inline(always)]
fn any_of(word: u32, w: u32, salt: u32) -> u32 {
    w * WORD_BITS + select_bit(word, scaled(salt << 20, word.count_ones()))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::heap::layout::bits::total_words;
    use crate::machine::Coords;
    use crate::sync::AtomicU32;
    use crate::test_lanes::{ForLanes, on_lanes};
    use std::collections::BTreeSet;
    use std::vec::Vec;

    impl IndexSet {
        /// Inserts an index.
        pub(in crate::heap) fn insert(&self, i: u32) {
            self.insert_bits(i >> WORD_LOG2, 1 << (i % WORD_BITS));
        }
    }

    fn words(indices: u32) -> Vec<AtomicU32> {
        (0..total_words(indices)).map(|_| AtomicU32::new(0)).collect()
    }

    #[test]
    fn it_is_a_set() {
        for indices in [1, 32, 33, 1000, 40_000] {
            let words = words(indices);
            // SAFETY: as many words as it has.
            let set = unsafe { IndexSet::new(words.as_ptr(), indices) };
            let (mut model, mut state) = (BTreeSet::new(), 1_u32);
            for _ in 0..3000 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let i = (state >> 8) % indices;
                match state >> 30 {
                    0 => {
                        let removed = set.remove_bits(i / WORD_BITS, 1 << (i % WORD_BITS)) != 0;
                        assert_eq!(removed, model.remove(&i));
                    }
                    1 => {
                        if state & 1 == 0 {
                            set.insert(i)
                        } else {
                            set.insert_relaxed(i)
                        }
                        model.insert(i);
                    }
                    _ => {
                        let to = i + (indices - i).div_ceil(1 + (state >> 5) % 7);
                        let expected = model.range(i..to).next().copied();
                        assert_eq!([set.next(i, to), set.first(i, to)], [expected; 2]);
                        let from = i / WORD_BITS * WORD_BITS;
                        let expected = model.range(from..to.next_multiple_of(WORD_BITS)).next();
                        let expected = expected.map(|first| first / WORD_BITS * WORD_BITS);
                        assert_eq!(set.scan(Group::alone(), from, to), expected);
                    }
                }
                assert_eq!(set.contains(i), model.contains(&i));
                assert_eq!(set.unraised(), None);
            }
        }
    }

    #[test]
    fn indices_are_picked_from_all_of_a_range_and_only_from_it() {
        let words = words(1 << 12);
        // SAFETY: as many words as it has.
        let set = unsafe { IndexSet::new(words.as_ptr(), 1 << 12) };
        let (start, end) = (1 << 10, 3 << 10);
        let pick = |salt: u32| match set.pick(start, end, salt.wrapping_mul(0x9e37_79b9)) {
            Picked::Two(two) => Some(two[(salt & 1) as usize]),
            _ => None,
        };
        [start - 1, end].into_iter().for_each(|i| set.insert(i));
        assert!((0..100).all(|salt| pick(salt).is_none()));
        // A word with several indices, and a word far from it.
        let members = [1500, 1501, 1510, 3000];
        members.into_iter().for_each(|i| set.insert(i));
        let found: BTreeSet<_> = (0..1000).filter_map(pick).collect();
        assert!(found.into_iter().eq(members));
        // Zero words are skipped, and later not even read.
        members.into_iter().for_each(|i| assert!(set.remove_bits(i / WORD_BITS, 1 << (i % WORD_BITS)) != 0));
        assert!((0..100).all(|salt| pick(salt).is_none()));
        assert_eq!(words[128 + 1].load_relaxed() & words[128 + 2].load_relaxed(), 0);
        assert_eq!(set.unraised(), None);
    }

    #[test]
    fn a_search_lowers_the_bits_of_words_that_are_zero() {
        let words = words(1 << 12);
        // SAFETY: as many words as it has.
        let set = unsafe { IndexSet::new(words.as_ptr(), 1 << 12) };
        let above = || words[128].load_relaxed();
        [77, 79, 1111].into_iter().for_each(|i| set.insert(i));
        set.remove_bits(2, 1 << 15);
        // A word that is not zero, or has no word above, stays as it is.
        [2, 128].into_iter().for_each(|w| set.settle(w));
        assert_eq!(above(), 1 << 2);
        set.remove_bits(2, 1 << 13);
        [2, 2].into_iter().for_each(|w| set.settle(w));
        // The word above is zero now, too.
        assert_eq!((above(), words[132].load_relaxed()), (0, 0b10));
        assert_eq!(words[129].load_relaxed(), 1 << 2);
        set.remove_bits(34, 1 << 23);
        set.settle(35);
        // Each search lowers one level, unless it starts in the word.
        for above in [(0, 0b10), (0, 0), (0, 0)] {
            assert_eq!(set.next(0, 1 << 12), None);
            assert_eq!((words[129].load_relaxed(), words[132].load_relaxed()), above);
        }
    }

    #[test]
    fn a_set_with_several_words_of_level_2_is_not_called_empty() {
        let words = words(1 << 16);
        // SAFETY: as many words as it has.
        let set = unsafe { IndexSet::new(words.as_ptr(), 1 << 16) };
        set.insert(60_000);
        let pick = |salt: u32| set.pick(0, 1 << 16, salt.wrapping_mul(0x9e37_79b9));
        assert!((0..100).all(|salt| pick(salt) != Picked::Empty));
        assert!((0..100).any(|salt| pick(salt) == Picked::Two([60_000; 2])));
        // Nor the half that one of these words stands for, unless it has no index.
        assert!((0..100).all(|salt| set.pick(0, 1 << 15, salt) == Picked::Empty));
    }

    #[test]
    fn all_lanes_scan_level_0() {
        let words = words(1 << 14);
        // SAFETY: as many words as it has.
        let set = unsafe { IndexSet::new(words.as_ptr(), 1 << 14) };
        // Word 100 is not in the levels above.
        words[100].store_relaxed(1 << 7);
        set.insert(32 * 500);
        assert_eq!(set.next(0, 1 << 14), Some(32 * 500));
        let scan = |lanes: u32, from: u32, to: u32| {
            let set = &ForLanes::new(set);
            on_lanes(lanes, Coords::SOLE, |group| set.get().scan(group, from, to)).results[0]
        };
        for (lanes, from, to, found) in [
            (1, 0, 1 << 14, Some(100)),
            (0b1110, 0, 1 << 14, Some(99)),
            (u32::MAX, 0, 1 << 14, Some(96)),
            (u32::MAX, 32 * 100, 1 << 14, Some(100)),
            (u32::MAX, 32 * 101, 1 << 14, Some(101 + 12 * 32)),
            (u32::MAX, 0, 32 * 100, None),
            (0b1110, 0, 32 * 100 + 1, Some(99)),
            (u32::MAX, 32 * 101, 32 * 500, None),
        ] {
            assert_eq!(scan(lanes, from, to), found.map(|w| w * WORD_BITS), "{lanes:x} {from} {to}");
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
}
