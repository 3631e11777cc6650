//! Storage by keys that are not reused.

use crate::{Random, Sum};
use alloc::vec::Vec;
use slotmap::{DefaultKey, SecondaryMap, SlotMap};

/// Inserts, removes, and asks for removed keys.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut map: SlotMap<DefaultKey, u64> = SlotMap::new();
    let mut names = SecondaryMap::new();
    let mut keys: Vec<DefaultKey> = Vec::new();
    for _ in 0..150 {
        let key = map.insert(random.number());
        names.insert(key, random.text(8));
        keys.push(key);
        if random.below(2) == 0 {
            let old = keys[random.below(keys.len() as u64) as usize];
            sum.add(map.remove(old).unwrap_or(1));
        }
    }
    for key in keys {
        sum.add(map.get(key).copied().unwrap_or(2));
        sum.bytes(names.get(key).map_or(b"", |name| name.as_bytes()));
    }
    sum.add(map.len() as u64);
    map.iter().for_each(|(_, number)| sum.add(*number));
    sum.finish()
}
