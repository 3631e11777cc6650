//! Storage by index, with free entries that are reused.

use crate::{Random, Sum};
use alloc::string::String;
use alloc::vec::Vec;
use slab::Slab;

/// Inserts and removes texts at random.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let (mut slab, mut keys): (Slab<String>, Vec<usize>) = (Slab::new(), Vec::new());
    for _ in 0..200 {
        if random.below(3) == 0 && !keys.is_empty() {
            let key = keys.swap_remove(random.below(keys.len() as u64) as usize);
            sum.bytes(slab.remove(key).as_bytes());
        } else {
            keys.push(slab.insert(random.text(20)));
        }
    }
    slab.shrink_to_fit();
    for (key, text) in &slab {
        sum.add(key as u64);
        sum.bytes(text.as_bytes());
    }
    sum.finish()
}
