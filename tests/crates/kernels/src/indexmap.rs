//! Hash maps that keep the order of insertion.

use crate::{Random, Sum};
use alloc::string::String;
use hashbrown::DefaultHashBuilder;
use indexmap::IndexMap;

/// Inserts, swaps, sorts and iterates in order.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut map: IndexMap<String, u64, DefaultHashBuilder> = IndexMap::default();
    for i in 0..120 {
        map.insert(random.text(3), i);
    }
    for _ in 0..20 {
        if let Some((word, i)) = map.swap_remove_index(random.below(map.len() as u64) as usize) {
            sum.bytes(word.as_bytes());
            sum.add(i);
        }
    }
    if let Some((at, word, i)) = map.get_full("a") {
        sum.add(at as u64 + i + word.len() as u64);
    }
    for (word, i) in &map {
        sum.bytes(word.as_bytes());
        sum.add(*i);
    }
    map.sort_keys();
    map.values().for_each(|i| sum.add(*i));
    map.shift_remove("b").into_iter().for_each(|i| sum.add(i));
    sum.add(map.first().map_or(0, |(_, i)| *i));
    sum.finish()
}
