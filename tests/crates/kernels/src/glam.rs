//! Vectors, matrices and quaternions for graphics.

use crate::{Random, Sum};
use glam::camera::rh::proj::vulkan;
use glam::camera::rh::view;
use glam::{Affine3A, Quat, Vec3, Vec4, Vec4Swizzles};

/// Rotations and projections, to the last bit.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    for _ in 0..15 {
        let mut number = || random.unit() as f32 * 4.0 - 2.0;
        let (a, b) = (Vec3::new(number(), number(), number()), Vec3::new(number(), number(), number()));
        let turn = Quat::from_axis_angle(Vec3::Z, number()) * Quat::from_rotation_x(number());
        let view = view::look_at_mat4(a, b, Vec3::Y);
        let seen = vulkan::perspective(1.0, 1.5, 0.1, 100.0) * view * a.extend(1.0);
        let moved = Affine3A::from_rotation_translation(turn, b).transform_point3(a);
        for value in [turn * a, a.cross(b), seen.wzy(), moved, a.lerp(b, 0.25), a.normalize_or_zero()] {
            value.to_array().iter().for_each(|value| sum.add(value.to_bits().into()));
        }
        sum.add(view.inverse().determinant().to_bits().into());
        sum.add(Vec4::splat(a.length()).dot(seen).to_bits().into());
    }
    sum.finish()
}
