//! Vectors and texts with a fixed capacity, without an allocator.

use crate::{Random, Sum};
use arrayvec::{ArrayString, ArrayVec};
use core::fmt::Write;

/// Pushes up to the capacity, and formats numbers.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut vector: ArrayVec<u64, 32> = ArrayVec::new();
    for _ in 0..60 {
        if let Err(error) = vector.try_push(random.below(1000)) {
            sum.add(error.element());
            vector.truncate(random.below(32) as usize);
        }
    }
    vector.sort_unstable();
    vector.retain(|number| *number % 3 != 0);
    let mut text: ArrayString<16> = ArrayString::new();
    for number in &vector {
        if write!(text, "{number},").is_err() {
            sum.bytes(text.as_bytes());
            text.clear();
        }
    }
    sum.bytes(text.as_bytes());
    vector.into_iter().for_each(|number| sum.add(number));
    sum.finish()
}
