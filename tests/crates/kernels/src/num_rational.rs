//! Fractions.

use crate::{Random, Sum};
use num_rational::Ratio;

/// Sums, products and powers of fractions, in lowest terms.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut total = Ratio::new(0_i64, 1);
    for _ in 0..60 {
        let ratio = Ratio::new(random.below(2000) as i64 - 1000, 1 + random.below(60) as i64);
        total = (total + ratio) * Ratio::new(1, 2);
        sum.add(*total.numer() as u64);
        sum.add(*total.denom() as u64);
        total = total.fract() + Ratio::from_integer(ratio.round().to_integer() % 7);
        total = Ratio::new(*total.numer() % 1000, 1 + *total.denom() % 1000);
        sum.add((total > ratio).into());
        sum.add(*ratio.pow(2).numer() as u64);
    }
    sum.finish()
}
