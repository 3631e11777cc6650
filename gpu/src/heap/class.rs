//! Size classes: four per doubling, so that a block is at most a quarter larger than the request.
//!
//! ```text
//! class   0  1  2  3 |  4  5  6  7 |  8  9 10  11 | ...
//! bytes  16 20 24 28 | 32 40 48 56 | 64 80 96 112 | ...     (4 + class % 4) << (2 + class / 4)
//! ```
//!
//! A request is rounded up to its alignment first. The block of that size's class is then aligned, too: a
//! class is a multiple of every power of two that its least size is a multiple of.

use super::bits::WORD_BITS;

/// Bytes of the smallest block.
pub const MIN_BLOCK: u32 = 16;

/// A size class of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SizeClass(pub u32);

impl SizeClass {
    /// The smallest class with blocks of at least `bytes`, which is from 1 to 2^31.
    #[inline(always)]
    pub const fn of(bytes: u32) -> Self {
        // The least size of a class is one more than the class before holds.
        let least = if bytes < MIN_BLOCK { MIN_BLOCK - 1 } else { bytes - 1 };
        let log2 = 31 - least.leading_zeros();
        // The three leading bits, 4 to 7, say which quarter of the doubling it is in.
        SizeClass((least >> (log2 - 2)) + 4 * log2 - 19)
    }

    /// Bytes of a block.
    #[inline(always)]
    pub const fn bytes(self) -> u32 {
        self.quarters() << self.shift()
    }

    /// The number of blocks in `bytes`, which are at most 2^26 for the smallest class.
    #[inline(always)]
    pub(super) const fn blocks_in(self, bytes: u32) -> u32 {
        // `ceil(2^32 / quarters)`: exact for what is at most 2^32 / quarters.
        // Of two choices, for which there are instructions: `ptxas` makes jumps of a choice of four.
        let (is_odd, is_late) = (self.0 & 1 != 0, self.0 & 2 != 0);
        let early = if is_odd { 858_993_460 } else { 1 << 30 };
        let late = if is_odd { 613_566_757 } else { 715_827_883 };
        let reciprocal = if is_late { late } else { early };
        divided(bytes >> self.shift(), reciprocal)
    }

    /// The number of blocks of a run of so many bytes: whole words of the bitmap, unless that would
    /// waste more than a sixteenth.
    #[inline(always)]
    pub(super) const fn blocks_in_run(self, bytes: u32) -> u32 {
        let blocks = self.blocks_in(bytes);
        let over = blocks % WORD_BITS;
        if over * 16 <= blocks { blocks - over } else { blocks }
    }

    /// A block is this many times two to the [`shift`](Self::shift): 4 to 7.
    #[inline(always)]
    pub(super) const fn quarters(self) -> u32 {
        4 + self.0 % 4
    }

    #[inline(always)]
    pub(super) const fn shift(self) -> u32 {
        2 + self.0 / 4
    }
}

/// `bytes` rounded up to a multiple of `align`, a power of two.
#[inline(always)]
pub(super) const fn rounded_up(bytes: u64, align: u64) -> u64 {
    (bytes + (align - 1)) & !(align - 1)
}

/// `ceil(2^32 / n)` for `n` from 2 on: the factor of [`divided`].
pub(super) const fn reciprocal(n: u32) -> u32 {
    ((1u64 << 32).div_ceil(n as u64)) as u32
}

/// `x / n` for the [`reciprocal`] of `n`, exact while `x * n` is at most 2^32.
#[inline(always)]
pub(super) const fn divided(x: u32, reciprocal: u32) -> u32 {
    ((x as u64 * reciprocal as u64) >> 32) as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_block_that_holds_it() {
        for bytes in 1..=1 << 21 {
            let class = SizeClass::of(bytes);
            assert!(class.bytes() >= bytes, "{bytes} bytes in {class:?}");
            assert!(class.0 == 0 || SizeClass(class.0 - 1).bytes() < bytes, "{bytes} bytes in {class:?}");
        }
    }

    #[test]
    fn at_most_a_quarter_is_wasted() {
        for bytes in MIN_BLOCK..=1 << 21 {
            let block = SizeClass::of(bytes).bytes();
            assert!((block - bytes) * 4 < bytes, "{bytes} bytes in a block of {block}");
        }
    }

    #[test]
    fn a_block_for_a_size_rounded_up_to_its_alignment_is_aligned() {
        for align in (0..=16).map(|log2| 1u32 << log2) {
            for bytes in (1..=1 << 20).step_by(7).chain([align, 3 * align, 5 * align]) {
                let class = SizeClass::of(rounded_up(bytes.into(), align.into()) as u32);
                assert!(class.bytes().is_multiple_of(align), "{bytes} bytes aligned to {align} in {class:?}");
            }
        }
    }

    #[test]
    fn blocks_are_counted_without_a_division() {
        for class in (0..64).map(SizeClass) {
            for bytes in (0..1 << 26).step_by(104_729).chain([1 << 26]) {
                for bytes in [bytes, bytes / class.bytes() * class.bytes()] {
                    assert_eq!(class.blocks_in(bytes), bytes / class.bytes(), "{bytes} bytes in {class:?}");
                }
            }
        }
    }

    #[test]
    fn a_run_has_whole_words_unless_they_waste_a_sixteenth() {
        let blocks = |blocks: u32| SizeClass(0).blocks_in_run(blocks * MIN_BLOCK);
        assert_eq!([31, 33, 34, 35, 64, 500, 512].map(blocks), [31, 32, 32, 35, 64, 480, 512]);
    }

    #[test]
    fn the_largest_size_has_a_class() {
        assert_eq!(SizeClass::of(1 << 31).bytes(), 1 << 31);
        assert_eq!(SizeClass::of(1 << 24).bytes(), 1 << 24);
    }
}
