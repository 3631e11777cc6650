//! Vectors that are an array first, in safe Rust.

use crate::{Random, Sum};
use tinyvec::{ArrayVec, TinyVec, tiny_vec};

/// Grows from an array to the heap.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    for _ in 0..10 {
        let mut vector: TinyVec<[u64; 6]> = tiny_vec!([u64; 6] => random.number(), random.number());
        for _ in 0..random.below(12) {
            vector.push(random.number());
        }
        sum.add(vector.is_heap().into());
        vector.retain(|number| number % 3 > 0);
        vector.sort_unstable();
        vector.insert(0, 7);
        let tail = vector.split_off(vector.len() / 2);
        tail.iter().chain(&vector).for_each(|number| sum.add(*number));
        let array: ArrayVec<[u64; 4]> = tail.into_iter().take(4).collect();
        sum.add(array.iter().copied().fold(0, u64::wrapping_add));
    }
    sum.finish()
}
