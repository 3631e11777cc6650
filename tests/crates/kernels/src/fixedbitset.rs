//! Sets of bits.

use crate::{Random, Sum};
use fixedbitset::FixedBitSet;

/// Joins, intersects and inverts sets.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut set = |count: u64| {
        let mut set = FixedBitSet::with_capacity(500);
        (0..count).for_each(|_| set.insert(random.below(500) as usize));
        set
    };
    let (mut a, b) = (set(200), set(150));
    sum.add(a.intersection_count(&b) as u64);
    a.symmetric_difference_with(&b);
    a.toggle_range(40..77);
    a.ones().for_each(|bit| sum.add(bit as u64));
    a.intersect_with(&b);
    a.grow(700);
    a.set(699, true);
    sum.add(a.count_ones(..) as u64);
    sum.add(a.maximum().unwrap_or(0) as u64);
    sum.add(a.is_subset(&b).into());
    sum.finish()
}
