//! The sorts of `core` and `alloc`. Quicksort and the choice of its pivot are recursive.

extern crate alloc;

use super::{checksum, next};
use alloc::vec::Vec;

/// The checksum of `count` numbers with some duplicates, sorted by the algorithm `kind`, 0 to 3.
pub fn sorted(kind: u32, count: u32, seed: u64) -> u64 {
    let mut state = seed;
    let key = |state: &mut u64| next(state) % (u64::from(count) * 2);
    let mut numbers: Vec<u64> = (0..count).map(|_| key(&mut state)).collect();
    match kind {
        0 => numbers.sort(),
        1 => numbers.sort_unstable(),
        _ => {
            let mut pairs: Vec<(u64, u32)> = numbers.iter().copied().zip(0..).collect();
            match kind {
                2 => pairs.sort_by_key(|pair| pair.0),
                // The order of equal keys is unspecified, so the key is the whole pair.
                _ => pairs.sort_unstable_by_key(|pair| (pair.0 ^ 1, pair.1)),
            }
            return checksum(pairs.into_iter().flat_map(|(number, place)| [number, place.into()]));
        }
    }
    checksum(numbers)
}
