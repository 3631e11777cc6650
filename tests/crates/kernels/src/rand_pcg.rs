//! The random numbers of PCG.

use crate::Sum;
use rand_pcg::rand_core::{Rng, SeedableRng};
use rand_pcg::{Pcg32, Pcg64, Pcg64Mcg};

/// Numbers of three generators, with jumps.
pub fn checksum(seed: u64) -> u64 {
    let mut sum = Sum::new();
    let (mut a, mut b, mut c) =
        (Pcg32::seed_from_u64(seed), Pcg64::new(seed.into(), 5), Pcg64Mcg::new(seed.into()));
    for _ in 0..40 {
        sum.add(a.next_u32().into());
        sum.add(b.next_u64());
        sum.add(c.next_u64());
        a.advance(1 << 20);
        b.advance(u128::from(seed) << 30);
    }
    sum.finish()
}
