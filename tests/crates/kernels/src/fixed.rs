//! Fixed-point numbers.

use crate::{Random, Sum};
use alloc::format;
use fixed::types::{I16F16, I32F32, U8F8};

/// Arithmetic, conversions and texts.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    for _ in 0..30 {
        let a = I16F16::from_bits(random.number() as i32);
        let b = I16F16::from_bits(random.number() as i32 | 1);
        sum.add(a.wrapping_mul(b).to_bits() as u64);
        sum.add(a.wrapping_div(b).to_bits() as u64);
        sum.add(a.saturating_add(b).to_bits() as u64);
        sum.add(a.abs_diff(b).to_bits().into());
        sum.add(I32F32::from(a).wrapping_mul(I32F32::from(b)).to_bits() as u64);
        sum.add(U8F8::saturating_from_num(a).to_bits().into());
        sum.add(a.to_num::<f64>().to_bits());
        sum.add(a.round_ties_even().to_num::<i32>() as u64);
        let text = format!("{a:.3}");
        sum.bytes(text.as_bytes());
        sum.add(text.parse::<I16F16>().map_or(1, |back| back.to_bits() as u64));
    }
    sum.finish()
}
