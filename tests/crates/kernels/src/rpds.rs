//! Persistent lists, vectors and maps: a change leaves the old version as it is.

use crate::{Random, Sum};
use rpds::{List, RedBlackTreeMap, Vector};

/// Keeps old versions, and compares them with new ones.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut list: List<u64> = List::new();
    let mut vector: Vector<u64> = Vector::new();
    let mut map: RedBlackTreeMap<u64, u64> = RedBlackTreeMap::new();
    let mut old = (list.clone(), vector.clone(), map.clone());
    for i in 0..100 {
        if i == 50 {
            old = (list.clone(), vector.clone(), map.clone());
        }
        list = list.push_front(random.number());
        vector = vector.push_back(random.number());
        map = map.insert(random.below(80), i);
        if random.below(4) == 0 {
            map = map.remove(&random.below(80));
            vector = vector.set(0, random.number()).unwrap_or(vector);
        }
    }
    for (list, vector, map) in [(list, vector, map), old] {
        list.iter().chain(&vector).for_each(|number| sum.add(*number));
        map.iter().for_each(|(key, value)| sum.add(key << 32 | value));
    }
    sum.finish()
}
