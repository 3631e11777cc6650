//! Integers of any size.

use crate::{Random, Sum};
use num_bigint::{BigInt, BigUint};

/// Arithmetic, powers modulo a number, roots, and decimal texts.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut number = |words: u64| {
        BigUint::from_slice(&(0..words).map(|_| random.number() as u32 | 1).collect::<alloc::vec::Vec<u32>>())
    };
    let (a, b, m) = (number(9), number(5), number(3));
    for value in [&a + &b, &a * &b, &a / &b, &a % &b, b.modpow(&m, &a), a.sqrt(), &a << 77_u32, &a >> 45_u32]
    {
        value.to_u64_digits().iter().for_each(|word| sum.add(*word));
        sum.add(value.bits());
    }
    let difference = BigInt::from(b) - BigInt::from(a.clone());
    let text = difference.to_str_radix(10);
    sum.bytes(text.as_bytes());
    sum.add(text.parse::<BigInt>().is_ok_and(|back| back == difference).into());
    sum.bytes(&a.to_bytes_be());
    sum.finish()
}
