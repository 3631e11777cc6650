//! Hash maps and sets, with the default hash function.

use crate::{Random, Sum};
use alloc::string::String;
use alloc::vec::Vec;
use hashbrown::{HashMap, HashSet};

/// Counts words, removes some, and joins sets.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut counts: HashMap<String, u64> = HashMap::new();
    for _ in 0..100 {
        *counts.entry(random.text(3)).or_insert(0) += random.below(100);
    }
    counts.retain(|word, _| word.len() != 1);
    if let Some(count) = counts.remove("ab") {
        sum.add(count);
    }
    let mut sorted: Vec<_> = counts.iter().collect();
    sorted.sort();
    for (word, count) in sorted {
        sum.bytes(word.as_bytes());
        sum.add(*count);
    }
    let sets = [(); 2].map(|()| (0..60).map(|_| random.below(150)).collect::<HashSet<u64>>());
    let mut both: Vec<u64> = sets[0].intersection(&sets[1]).copied().collect();
    both.sort_unstable();
    both.iter().for_each(|number| sum.add(*number));
    sum.add((0..150).filter(|number| sets[0].contains(number)).count() as u64);
    sum.finish()
}
