//! More methods of iterators.

use crate::{Random, Sum};
use alloc::vec::Vec;
use itertools::Itertools;

/// Groups, products, permutations and joins.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let numbers: Vec<u64> = (0..40).map(|_| random.below(10)).collect();
    for (key, group) in &numbers.iter().chunk_by(|number| **number / 3) {
        sum.add(key * 100 + group.count() as u64);
    }
    numbers
        .iter()
        .take(5)
        .permutations(3)
        .for_each(|three| sum.add(three[0] * 100 + three[1] * 10 + three[2]));
    numbers.iter().tuple_windows().for_each(|(a, b)| sum.add(a * b));
    numbers.iter().sorted().dedup_with_count().for_each(|(count, number)| sum.add(count as u64 ^ number));
    numbers[..6].iter().cartesian_product(&numbers[6..9]).for_each(|(a, b)| sum.add(a + b));
    sum.bytes(numbers.iter().join("; ").as_bytes());
    sum.add(numbers.iter().k_smallest(7).sum());
    sum.finish()
}
