//! Integers as texts.

use crate::{Random, Sum};
use itoa::Buffer;

/// Integers of all lengths and types.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum, mut buffer) = (Random::new(seed), Sum::new(), Buffer::new());
    for shift in 0..64 {
        let number = random.number() >> shift;
        sum.bytes(buffer.format(number).as_bytes());
        sum.bytes(buffer.format(number as i64).as_bytes());
        sum.bytes(buffer.format(number as i16).as_bytes());
        sum.bytes(buffer.format(u128::from(number) * u128::from(random.number())).as_bytes());
    }
    sum.finish()
}
