//! Pseudo-random numbers, reproducible from a seed.

/// The increment of a splitmix generator's state: 2^64 divided by the golden ratio, odd.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes the bits of `x`: a bijection in which each bit of `x` flips each bit of the result about
/// half the time.
///
/// The output function of splitmix64: Steele, Lea and Flood, *Fast Splittable Pseudorandom Number
/// Generators*, OOPSLA 2014, with the constants of Stafford's variant 13.
#[inline(always)]
pub const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Mixes `word` into the running hash `state`.
#[inline(always)]
pub const fn absorb(state: u64, word: u64) -> u64 {
    mix(state.wrapping_add(GOLDEN) ^ word)
}

/// A number below `bound` from the upper half of a hash; 0 for a bound of 0. The deviation from a
/// uniform distribution is less than `bound / 2^32`.
#[inline(always)]
pub const fn below(hash: u64, bound: u32) -> u32 {
    (((hash >> 32) * bound as u64) >> 32) as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_is_splitmix64() {
        // The first outputs of the reference generator with the seed 1234567.
        let mut state = 1_234_567u64;
        let mut next = || {
            state = state.wrapping_add(GOLDEN);
            mix(state)
        };
        assert_eq!(next(), 6_457_827_717_110_365_317);
        assert_eq!(next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn below_reaches_every_value_and_no_other() {
        let mut seen = [0u32; 7];
        for i in 0..7000 {
            seen[below(mix(i), 7) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| n > 800), "{seen:?}");
        assert_eq!(below(u64::MAX, u32::MAX), u32::MAX - 1);
        assert_eq!(below(u64::MAX, 0), 0);
    }
}
