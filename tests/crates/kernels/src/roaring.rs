//! Compressed sets of integers.

use crate::{Random, Sum};
use roaring::RoaringBitmap;

/// Sets with sparse and dense parts, joined and intersected.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut set = || {
        let mut set = RoaringBitmap::new();
        for _ in 0..3 {
            let start = random.below(1 << 18) as u32;
            set.insert_range(start..start + random.below(3000) as u32);
        }
        for _ in 0..80 {
            set.insert(random.below(1 << 18) as u32);
        }
        set
    };
    let (a, b) = (set(), set());
    for joined in [&a & &b, &a | &b, &a ^ &b, &a - &b] {
        sum.add(joined.len());
        sum.add(joined.rank(1 << 17));
        sum.add(joined.select(random.below(joined.len() + 1) as u32).unwrap_or(0).into());
        sum.add(joined.iter().step_by(97).map(u64::from).sum());
    }
    sum.add(a.is_subset(&(&a | &b)).into());
    sum.finish()
}
