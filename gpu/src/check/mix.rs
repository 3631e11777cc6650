//! The distribution of the requested sizes and alignments.

use super::hash::below;
use super::round::Round;
use core::alloc::Layout;

/// The distribution of sizes between the smallest and the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Mix {
    /// All sizes with equal probability.
    Uniform = 0,
    /// Powers of two only, all with equal probability; the largest size if the range contains no
    /// power of two.
    Powers = 1,
    /// Fifteen of sixteen sizes from the lowest sixteenth of the range, the others from all of it.
    Small = 2,
}

/// Base-2 logarithm of the largest common alignment. Seven of eight larger draws are replaced by a
/// common alignment. With a largest logarithm of 12, those from 0 to 5 have a probability of
/// 1.875 / 13 each, 6 has 1 / 13, and those from 7 to 12 have 0.125 / 13.
const COMMON_ALIGN_LOG2: u32 = 6;

/// A size and an alignment, determined by `hash`.
#[inline(always)]
pub(super) fn draw(round: &Round, hash: u64) -> Layout {
    let Round { min_bytes, max_bytes, max_align_log2, mix, .. } = *round;
    let bytes = if mix == Mix::Uniform as u32 {
        min_bytes + below(hash, (max_bytes - min_bytes).saturating_add(1))
    } else {
        skewed(min_bytes, max_bytes, mix, hash)
    };
    let drawn = below(hash << 32, max_align_log2.saturating_add(1));
    let rare = drawn > COMMON_ALIGN_LOG2 && hash & 7 != 0;
    let align_log2 = if rare { drawn - (COMMON_ALIGN_LOG2 + 1) } else { drawn };
    // SAFETY: a power of two; the sizes have 32 bits, so rounding up cannot overflow.
    unsafe { Layout::from_size_align_unchecked(bytes as usize, 1 << (align_log2 & 31)) }
}

/// A size of a non-uniform distribution. Out of line, so that drawing a uniform size needs few
/// registers.
#[inline(never)]
fn skewed(min: u32, max: u32, mix: u32, hash: u64) -> u32 {
    let span = max - min;
    if mix == Mix::Powers as u32 {
        power(min, max, hash)
    } else if hash >> 3 & 15 != 0 {
        min + below(hash, (span / 16).saturating_add(1))
    } else {
        min + below(hash, span.saturating_add(1))
    }
}

/// A power of two from `min` to `max`; `max` if there is none.
#[inline(always)]
fn power(min: u32, max: u32, hash: u64) -> u32 {
    let first = 32 - (min - 1).leading_zeros();
    let count = (32 - max.leading_zeros()).saturating_sub(first);
    if count == 0 { max } else { 1 << (first + below(hash, count)) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::hash::mix as spread;
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    fn sizes(min_bytes: u32, max_bytes: u32, mix: Mix) -> Vec<u32> {
        let round = Round { min_bytes, max_bytes, max_align_log2: 12, mix: mix as u32, ..Round::default() };
        (0..4000).map(|i| draw(&round, spread(i)).size() as u32).collect()
    }

    #[test]
    fn sizes_stay_in_range() {
        for (min, max) in [(1, 1), (1, 2), (16, 512), (17, 31), (33, 64), (1, 1 << 31), (512, 512)] {
            for mix in [Mix::Uniform, Mix::Powers, Mix::Small] {
                let all = sizes(min, max, mix);
                assert!(all.iter().all(|size| (min..=max).contains(size)), "{min} {max} {mix:?}");
            }
        }
    }

    #[test]
    fn all_powers_of_two_occur_and_nothing_else() {
        let all: BTreeSet<u32> = sizes(9, 300, Mix::Powers).into_iter().collect();
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [16, 32, 64, 128, 256]);
        assert!(sizes(17, 31, Mix::Powers).iter().all(|size| *size == 31));
    }

    #[test]
    fn most_sizes_of_small_are_small() {
        let all = sizes(16, 1616, Mix::Small);
        let small = all.iter().filter(|size| **size <= 116).count();
        assert!((3700..3950).contains(&small), "{small}");
        assert!(all.iter().any(|size| *size > 1400));
    }

    #[test]
    fn large_alignments_are_rare() {
        let round = Round { min_bytes: 8, max_bytes: 8, max_align_log2: 12, ..Round::default() };
        let aligns: Vec<u32> = (0..4000).map(|i| draw(&round, spread(i)).align().ilog2()).collect();
        let large = aligns.iter().filter(|log2| **log2 > COMMON_ALIGN_LOG2).count();
        assert!((150..350).contains(&large), "{large}");
        assert_eq!(aligns.into_iter().collect::<BTreeSet<_>>().len(), 13);
    }
}
