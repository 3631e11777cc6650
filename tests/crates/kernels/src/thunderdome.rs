//! An arena with indices that know their generation.

use crate::{Random, Sum};
use alloc::string::String;
use alloc::vec::Vec;
use thunderdome::{Arena, Index};

/// Inserts and removes texts, and asks for removed ones.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let (mut arena, mut all): (Arena<String>, Vec<Index>) = (Arena::new(), Vec::new());
    for _ in 0..120 {
        all.push(arena.insert(random.text(10)));
        let index = all[random.below(all.len() as u64) as usize];
        if random.below(2) == 0 {
            match arena.remove(index) {
                Some(text) => sum.bytes(text.as_bytes()),
                None => sum.add(index.generation().into()),
            }
        }
    }
    arena.retain(|_, text| text.len() % 3 != 0);
    all.iter().for_each(|index| sum.add(arena.contains(*index).into()));
    for (index, text) in arena.drain() {
        sum.add(index.to_bits());
        sum.bytes(text.as_bytes());
    }
    sum.finish()
}
