//! Vectors that store few elements inline.

use crate::{Random, Sum};
use smallvec::{SmallVec, smallvec};

/// Vectors below and above the inline length.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut all: SmallVec<[SmallVec<[u64; 4]>; 8]> = SmallVec::new();
    for _ in 0..20 {
        let len = random.below(10) as usize;
        let mut one: SmallVec<[u64; 4]> = smallvec![random.number(); len];
        one.push(random.number());
        one.insert(len / 2, random.number());
        if random.below(2) == 0 {
            one.swap_remove(0);
        }
        one.extend((0..random.below(6)).map(|i| i * i));
        one.dedup();
        sum.add(one.spilled().into());
        all.push(one);
    }
    all.sort();
    for one in &mut all {
        let half = one.len() / 2;
        one.drain(half..).for_each(|number| sum.add(number));
        one.shrink_to_fit();
        one.iter().for_each(|number| sum.add(*number));
    }
    sum.finish()
}
