//! Scatter: pseudo-random starting places for groups that would otherwise all start at the same
//! place.

use crate::sync::NATIVE_LAYOUT;
use crate::thread;

/// A number that differs between lanes, between turns and between kernels.
pub fn salt(turn: u32) -> u32 {
    // No clock under a model checker: it repeats executions.
    let time = if NATIVE_LAYOUT { thread::clock() as u32 } else { 0 };
    mixed(thread::index_1d().wrapping_add(hash(time)).wrapping_add(turn))
}

/// Fibonacci hash: spreads consecutive numbers.
pub const fn hash(n: u32) -> u32 {
    // 2^32 divided by the golden ratio.
    n.wrapping_mul(0x9e37_79b9)
}

/// A hash. None of its bits depends only on a few bits of the number.
pub const fn mixed(n: u32) -> u32 {
    let hashed = hash(n);
    let again = hash(hashed ^ hashed >> 15);
    again ^ again >> 15
}

/// Scales a hash to a number below `end`.
pub const fn scaled(hash: u32, end: u32) -> u32 {
    ((hash as u64 * end as u64) >> 32) as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_bit_of_a_number_changes_about_half_of_the_bits_of_a_mixed_one() {
        for bit in 0..32 {
            let changed = |n: u32| (mixed(n) ^ mixed(n ^ 1 << bit)).count_ones();
            let sum: u32 = (0..1000).map(changed).sum();
            assert!((13_000..19_000).contains(&sum), "bit {bit}: {sum} of 32,000");
        }
    }

    #[test]
    fn consecutive_numbers_start_at_places_all_over_the_range() {
        for (end, most) in [(132, 9), (1, 0), (5000, 350)] {
            let mut places: std::vec::Vec<u32> = (0..32).map(|n| scaled(hash(n), end)).collect();
            assert!(places.iter().all(|place| *place < end));
            places.sort_unstable();
            let gaps = places.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
            assert!(gaps <= most, "{gaps} of {end}");
        }
    }
}
