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
//! A bit of a word that is zero is harmless. [Searches](super::set_search) clear it. Lock-free.

use super::bits::{WORD_BITS, WORD_LOG2, has};
use super::{INSERT, INSERT_BESIDE, LOWER, RAISE, REMOVE};
use crate::sync::{AtomicU32, NATIVE_LAYOUT};

/// Attempts to insert an index into a word that has others.
const BESIDE: u32 = if NATIVE_LAYOUT { 4 } else { 1 };

/// The set. Its words, level after level, are in device memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexSet {
    words: *const AtomicU32,
    /// Words of level 0.
    len: u32,
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

    /// Inserts an index. To be called during a move, unless no thread searches for it yet.
    pub fn insert(&self, i: u32) {
        self.insert_bits(i >> WORD_LOG2, 1 << (i % WORD_BITS));
    }

    /// Inserts an index into a word that has others. Returns whether it did. The levels above stay as
    /// they are, so this is no move. The caller must have acquired, by a read-modify-write of what
    /// the index stands for, every earlier removal of the index.
    pub fn insert_beside_relaxed(&self, i: u32) -> bool {
        let (word, bit) = (self.word(i >> WORD_LOG2), 1 << (i % WORD_BITS));
        (0..BESIDE).any(|_| {
            // Relaxed: the compare-and-swap decides.
            let seen = word.load_relaxed();
            INSERT_BESIDE.delay();
            // Relaxed: a thread that removes the index then reads the bits of the run by
            // read-modify-writes, behind a release fence. Either it sees the caller's bits, or RELEASE
            // acquired its removal, so that this insertion comes after it.
            seen != 0 && word.cas_relaxed(seen, seen | bit).is_ok()
        })
    }

    /// [`insert_bits`](Self::insert_bits) behind a release fence.
    #[inline(always)]
    pub fn insert_bits_relaxed(&self, w: u32, bits: u32) {
        // Relaxed: the fence.
        if self.word(w).or_relaxed(bits) == 0 {
            self.raise(0, w);
        }
    }

    /// Inserts the indices of a word of level 0.
    #[inline(never)]
    pub fn insert_bits(&self, w: u32, bits: u32) {
        // ordering: release; pairs with REMOVE and CLAIM_SLABS: what the inserting thread did before.
        if self.word(w).at(INSERT).or_release(bits) == 0 {
            self.raise(0, w);
        }
    }

    /// Removes the indices `bits` of a word of level 0. Returns those that were in the set. The
    /// levels above keep their bits until a search clears them.
    #[inline(always)]
    pub fn remove_bits(&self, w: u32, bits: u32) -> u32 {
        // ordering: acquire; pairs with INSERT and LIST. Release; pairs with the fence of a search: a
        // search that sees the bits cleared sees the move of the thread that cleared them.
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
    pub fn lower(&self, level: u32, w: u32) {
        let (start, _) = self.level(level + 1);
        // ordering: acquire; pairs with RAISE: the word of every thread that set this bit before
        // (I2). Release; pairs with the fence of a search, as REMOVE does.
        self.at(start + (w >> WORD_LOG2)).at(LOWER).and_acq_rel(!(1 << (w % WORD_BITS)));
        if self.at(self.level(level).0 + w).load_relaxed() != 0 {
            self.raise(level, w);
        }
    }
}
