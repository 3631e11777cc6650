//! Vectors of bits.

use crate::{Random, Sum};
use bitvec::field::BitField;
use bitvec::prelude::{BitVec, Lsb0, Msb0, bitvec};

/// Pushes, shifts and searches bits, and stores integers in them.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut bits: BitVec<u32, Lsb0> = (0..200).map(|_| random.below(3) == 0).collect();
    bits.push(true);
    bits.rotate_left(13);
    bits[20..50].reverse();
    bits[60..101].store_le(random.number());
    sum.add(bits[60..101].load_le::<u64>());
    bits.iter_ones().for_each(|at| sum.add(at as u64));
    bits.drain(5..25);
    let mut mask = bitvec![u8, Msb0; 0; 64];
    mask.fill_with(|at| at % 3 == 0);
    mask |= bitvec![u8, Msb0; 1; 10];
    sum.add(mask.load_be::<u64>());
    sum.add(bits.count_ones() as u64);
    sum.add(bits.leading_zeros() as u64);
    sum.finish()
}
