//! R*-trees.

use crate::{Random, Sum};
use alloc::vec::Vec;
use rstar::{AABB, RTree};

/// Inserts, removes, and searches for neighbours and in rectangles.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut point = || [random.unit(), random.unit()];
    let points: Vec<[f64; 2]> = (0..60).map(|_| point()).collect();
    let mut tree = RTree::bulk_load(points.clone());
    (0..20).for_each(|_| tree.insert(point()));
    for gone in &points[..10] {
        sum.add(tree.remove(gone).is_some().into());
    }
    for _ in 0..10 {
        let at = point();
        if let Some(near) = tree.nearest_neighbor(at) {
            sum.add(near[0].to_bits());
        }
        let square = AABB::from_corners(at, [at[0] + 0.25, at[1] + 0.25]);
        sum.add(tree.locate_in_envelope_intersecting(square).count() as u64);
        sum.add(
            tree.nearest_neighbor_iter(at).take(4).map(|near| near[1].to_bits()).fold(0, u64::wrapping_add),
        );
    }
    sum.finish()
}
