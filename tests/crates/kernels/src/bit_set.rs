//! A set of small integers.

use crate::{Random, Sum};
use bit_set::BitSet;

/// A sieve, and random sets compared with it.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut primes: BitSet = (2..400).collect();
    for n in 2..20 {
        for multiple in (n * n..400).step_by(n) {
            primes.remove(multiple);
        }
    }
    let mut set = BitSet::new();
    for _ in 0..100 {
        set.insert(random.below(400) as usize);
    }
    primes.intersection(&set).for_each(|number| sum.add(number as u64));
    set.difference_with(&primes);
    sum.add(set.iter().map(|number| number as u64).sum());
    sum.add(set.contains(8).into());
    sum.add(set.is_disjoint(&primes).into());
    sum.finish()
}
