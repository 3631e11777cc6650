//! Floating-point numbers with a total order.

use crate::{Random, Sum};
use alloc::collections::{BTreeMap, BinaryHeap};
use ordered_float::{NotNan, OrderedFloat};

/// Numbers as keys of a map and in a priority queue, NaN included.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let (mut map, mut queue) = (BTreeMap::new(), BinaryHeap::new());
    for i in 0..80_u64 {
        let number = match random.below(10) {
            0 => f64::NAN,
            1 => f64::NEG_INFINITY,
            2 => -0.0,
            _ => random.unit() - 0.5,
        };
        map.insert(OrderedFloat(number), i);
        match NotNan::new(number) {
            Ok(number) => queue.push(number),
            Err(_) => sum.add(1),
        }
    }
    map.values().for_each(|i| sum.add(*i));
    while let Some(number) = queue.pop() {
        sum.add(number.into_inner().to_bits());
    }
    sum.finish()
}
