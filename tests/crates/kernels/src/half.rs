//! Floating-point numbers of 16 bits.

use crate::{Random, Sum};
use alloc::format;
use half::{bf16, f16};

/// Conversions, arithmetic and texts.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    for _ in 0..60 {
        let x = (random.unit() * 2000.0 - 1000.0) as f32;
        let (a, b) = (f16::from_f32(x), f16::from_f64(random.unit()));
        for value in [a + b, a * b, a - b, a / b, -a] {
            sum.add(value.to_bits().into());
        }
        sum.add(bf16::from_f32(x).to_bits().into());
        sum.add(bf16::from_f32(x).to_f32().to_bits().into());
        sum.add((a > b).into());
        sum.bytes(format!("{a}").as_bytes());
    }
    sum.finish()
}
