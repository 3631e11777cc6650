//! The functions of C's mathematical library.

use crate::{Random, Sum};

/// Roots, powers and trigonometric functions, to the last bit.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    for _ in 0..20 {
        let x = random.unit() * 100.0 - 50.0;
        let y = random.unit() * 10.0;
        for value in [
            libm::sin(x),
            libm::cos(x),
            libm::tan(x),
            libm::exp(y),
            libm::log(y),
            libm::pow(y, x),
            libm::sqrt(y),
            libm::cbrt(x),
            libm::atan2(x, y),
            libm::sinh(y),
            libm::tgamma(y),
            libm::fma(x, y, 1.0),
            libm::fmod(x, y),
            libm::hypot(x, y),
            libm::round(x),
        ] {
            sum.add(value.to_bits());
        }
        sum.add(libm::sinf(x as f32).to_bits().into());
        sum.add(libm::expf(y as f32).to_bits().into());
    }
    sum.finish()
}
