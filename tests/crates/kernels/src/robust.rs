//! Geometric tests without rounding errors.

use crate::{Random, Sum};
use robust::{Coord, Coord3D, incircle, orient2d, orient3d};

/// Orientations of points that are nearly on a line, on a plane and on a circle.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut point = |near: f64| {
        let mut error = || (random.below(3) as f64 - 1.0) * f64::EPSILON;
        Coord { x: near + error(), y: near + error() }
    };
    for i in 0..40 {
        let [a, b, c, d] = [0.5, 12.0, 24.0, f64::from(i)].map(&mut point);
        let sign = |value: f64| value.partial_cmp(&0.0).map_or(2, |order| order as i8 as u64);
        sum.add(sign(orient2d(a, b, c)));
        sum.add(sign(incircle(a, b, c, d)));
        let [p, q, r, s] = [a, b, c, d].map(|point| Coord3D { x: point.x, y: point.y, z: point.x + point.y });
        sum.add(sign(orient3d(p, q, r, s)));
    }
    sum.finish()
}
