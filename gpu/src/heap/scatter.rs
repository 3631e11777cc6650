//! Scatter: pseudo-random places at which groups start that would otherwise all start at the same.

/// A hash: those of consecutive numbers are far from each other.
pub const fn hash(n: u32) -> u32 {
    // 2^32 by the golden ratio.
    n.wrapping_mul(0x9e37_79b9)
}

/// A hash as a number below `end`, in proportion.
pub const fn scaled(hash: u32, end: u32) -> u32 {
    ((hash as u64 * end as u64) >> 32) as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

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
