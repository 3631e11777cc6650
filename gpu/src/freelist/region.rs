//! The state of a region: a count that says whether it has free blocks, and a cursor that says
//! where to look for them.
//!
//! ```text
//! 63       32 31              0
//! | cursor   | free + BIAS     |
//! ```
//!
//! The cursor counts blocks and wraps. It is in the upper half, so its overflow does not change the
//! count.

use crate::scans::Scans;
use crate::sync::{AtomicU64, NATIVE_LAYOUT};

/// Half the range of the count is room for failing reservations, at most one per resident warp.
const BIAS: u64 = 1 << 31;
const CURSOR_SHIFT: u32 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub u64);

impl Word {
    pub const fn new(free: u32) -> Self {
        Word(BIAS + free as u64)
    }

    /// Free blocks. Below zero: the number of blocks that threads owe (I5).
    #[inline(always)]
    pub const fn free(self) -> i32 {
        (self.0 as u32 ^ BIAS as u32) as i32
    }

    #[inline(always)]
    pub const fn cursor(self) -> u32 {
        (self.0 >> CURSOR_SHIFT) as u32
    }

    /// The addend that reserves `n` blocks: the cursor advances, the count drops.
    #[inline(always)]
    pub const fn step(n: u32) -> u64 {
        ((n as u64) << CURSOR_SHIFT).wrapping_sub(n as u64)
    }
}

/// The count and the cursor of one region. One region per cache line avoids false sharing: eight
/// regions in one line cost five times as much when all warps allocate.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Region {
    pub(super) word: AtomicU64,
    /// Scans for free blocks, shared by the warps of this region.
    pub(super) scans: Scans,
}

const _: () = assert!(!NATIVE_LAYOUT || size_of::<Region>() == 128);

#[cfg(not(target_arch = "nvptx64"))]
impl Region {
    /// A region of `blocks` blocks, all free.
    pub fn new(blocks: u32) -> Self {
        Region { word: AtomicU64::new(Word::new(blocks).0), scans: Scans::new() }
    }

    /// The in-memory representation for device memory, for the host to write.
    pub fn to_words(&self) -> [u64; 16] {
        let mut words = [0; 16];
        words[0] = self.word.load_relaxed();
        words[1..3].copy_from_slice(&self.scans.to_words());
        words
    }

    /// Decodes the representation in device memory, which the host has read.
    pub fn from_words(words: [u64; 16]) -> Self {
        let [word, begun, result, ..] = words;
        Region { word: AtomicU64::new(word), scans: Scans::from_words([begun, result]) }
    }

    /// Free blocks according to the count. Negative while threads that reserved too much owe
    /// blocks.
    pub fn free(&self) -> i32 {
        Word(self.word.load_relaxed()).free()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_region_arrives_on_the_device_as_it_is() {
        let words = Region::new(77).to_words();
        let copy = Region::from_words(words);
        assert_eq!((copy.free(), copy.to_words()), (77, words));
    }

    #[test]
    fn a_cursor_that_wraps_leaves_the_count_alone() {
        let mut word = Word((u32::MAX as u64) << CURSOR_SHIFT | (BIAS + 100));
        word.0 = word.0.wrapping_add(Word::step(32));
        assert_eq!((word.cursor(), word.free()), (31, 68));
    }

    #[test]
    fn a_count_below_zero_leaves_the_cursor_alone() {
        let mut word = Word::new(5);
        for _ in 0..20_000 {
            word.0 = word.0.wrapping_add(Word::step(32));
        }
        assert_eq!((word.cursor(), word.free()), (20_000 * 32, 5 - 20_000 * 32));
    }
}
