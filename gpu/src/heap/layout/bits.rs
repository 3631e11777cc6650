//! Words of bits: the arithmetic of bitmaps, the same on host and device.

/// Bits in a word of any bitmap here.
pub(in crate::heap) const WORD_BITS: u32 = 32;
pub(in crate::heap) const WORD_LOG2: u32 = WORD_BITS.trailing_zeros();

/// Words of all levels of a set of indices below `indices`.
pub(in crate::heap) const fn total_words(indices: u32) -> u32 {
    let mut len = indices.div_ceil(WORD_BITS);
    let mut total = len;
    while len > 1 {
        len = len.div_ceil(WORD_BITS);
        total += len;
    }
    total
}

/// Words of the bitmap that hold the bits of a run's blocks.
#[inline(always)]
pub(in crate::heap) const fn words(blocks: u32) -> u32 {
    (blocks + (WORD_BITS - 1)) >> WORD_LOG2
}

/// The bits of the blocks of a run in word `w` of its bitmap; none after the last.
#[inline(always)]
pub(in crate::heap) const fn full_word(blocks: u32, w: u32) -> u32 {
    let left = blocks.saturating_sub(w * WORD_BITS);
    if left >= WORD_BITS { u32::MAX } else { (1 << left) - 1 }
}

/// Whether the bit of index `i` is set in its word of the bitmap.
#[inline(always)]
pub(in crate::heap) const fn has(word: u32, i: u32) -> bool {
    word >> (i % WORD_BITS) & 1 == 1
}

/// The lowest `n` bits; all of them if `n` is 32 or more.
#[inline(always)]
pub(in crate::heap) const fn low_bits(n: u32) -> u32 {
    if n >= WORD_BITS { u32::MAX } else { (1 << n) - 1 }
}

/// The number of consecutive set bits of `word` from `bit` on.
#[inline(always)]
pub(in crate::heap) const fn ones_from(word: u32, bit: u32) -> u32 {
    if bit >= WORD_BITS { 0 } else { (!(word >> bit)).trailing_zeros() }
}

/// The first bit of the first `least` consecutive set bits of `word`.
pub(in crate::heap) const fn first_run(word: u32, least: u32) -> Option<u32> {
    let mut start = word.trailing_zeros();
    while start < WORD_BITS {
        let end = start + ones_from(word, start);
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

    #[test]
    fn runs_of_bits() {
        assert_eq!((ones_from(0b1110, 1), ones_from(u32::MAX, 30), ones_from(1, 32)), (3, 2, 0));
        assert_eq!((first_run(0b1101_1101, 3), first_run(0b1101_1101, 4)), (Some(2), None));
        assert_eq!((first_run(0, 1), first_run(u32::MAX, 32)), (None, Some(0)));
        assert_eq!((first_run(0b0111_0001, 3), first_run(0b0111_1011, 3)), (Some(4), Some(3)));
    }

    #[test]
    fn the_first_run_is_the_first_of_all_places_with_as_many_bits() {
        let words = (0..1 << 16).chain((0..1 << 16).map(|word: u32| word.wrapping_mul(0x9e37_79b9)));
        for (word, least) in words.flat_map(|word| [1, 2, 3, 7, 16].map(|least| (word, least))) {
            let is_run = |bit: &u32| word >> bit & low_bits(least) == low_bits(least);
            assert_eq!(first_run(word, least), (0..=WORD_BITS - least).find(is_run), "{word:#x}, {least}");
        }
    }

    #[test]
    fn a_set_has_words_of_all_levels() {
        assert_eq!([1, 32, 33, 1024, 1025, 1 << 15].map(total_words), [1, 1, 3, 33, 36, 1057]);
    }
}
