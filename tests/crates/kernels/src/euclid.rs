//! Points and transforms with units.

use crate::{Random, Sum};
use euclid::default::{Box2D, Point2D, Transform2D, Vector2D};
use euclid::{Angle, Length, Scale};

struct Metres;
struct Feet;

/// Transforms, boxes and lengths, to the last bit.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut bounds = Box2D::<f64>::zero();
    for _ in 0..30 {
        let point = Point2D::new(random.unit(), random.unit() * 8.0);
        let turn =
            Transform2D::rotation(Angle::radians(random.unit())).then_translate(Vector2D::new(1.0, 2.0));
        let moved = turn.transform_point(point);
        bounds = bounds.union(&Box2D::from_points([point, moved]));
        sum.add(moved.x.to_bits());
        sum.add(turn.inverse().map_or(1, |back| back.transform_point(moved).y.to_bits()));
        sum.add(point.distance_to(moved).to_bits());
        let length: Length<f64, Metres> = Length::new(point.x) * Scale::<f64, Feet, Metres>::new(0.3048);
        sum.add(length.get().to_bits());
    }
    sum.add(bounds.area().to_bits());
    sum.finish()
}
