//! Delaunay triangulations.

use crate::{Random, Sum};
use alloc::vec::Vec;
use delaunator::{Point, next_halfedge, triangulate};

/// Triangulates random points, some of them equal or on a line.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut points: Vec<Point> = (0..40).map(|_| Point { x: random.unit(), y: random.unit() }).collect();
    points.extend((0..5).map(|i| Point { x: 0.5, y: f64::from(i) / 4.0 }));
    points.push(points[3].clone());
    let found = triangulate(&points);
    sum.add(found.len() as u64);
    found.triangles.iter().chain(&found.hull).for_each(|corner| sum.add(*corner as u64));
    for (edge, opposite) in found.halfedges.iter().enumerate() {
        sum.add((next_halfedge(edge) ^ opposite) as u64);
    }
    sum.finish()
}
