//! Floating-point numbers as the shortest texts.

use crate::{Random, Sum};
use ryu::Buffer;

/// Numbers of all magnitudes.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum, mut buffer) = (Random::new(seed), Sum::new(), Buffer::new());
    for _ in 0..30 {
        let bits = random.number();
        sum.bytes(buffer.format(f64::from_bits(bits)).as_bytes());
        sum.bytes(buffer.format(f32::from_bits(bits as u32)).as_bytes());
        sum.bytes(buffer.format(bits as u16 as f64 / 100.0).as_bytes());
    }
    sum.finish()
}
