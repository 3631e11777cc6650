//! The random numbers of ChaCha.

use crate::Sum;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Numbers and bytes of one stream, and of another position in it.
pub fn checksum(seed: u64) -> u64 {
    let mut sum = Sum::new();
    let mut numbers = ChaCha12Rng::seed_from_u64(seed);
    (0..40).for_each(|_| sum.add(numbers.next_u64()));
    let mut bytes = [0; 77];
    numbers.fill_bytes(&mut bytes);
    sum.bytes(&bytes);
    numbers.set_word_pos(1000);
    numbers.set_stream(seed);
    (0..20).for_each(|_| sum.add(numbers.next_u32().into()));
    sum.finish()
}
