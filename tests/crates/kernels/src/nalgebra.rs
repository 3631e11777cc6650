//! Matrices and their decompositions.

use crate::{Random, Sum};
use nalgebra::{DMatrix, Matrix4, Rotation3, Vector3};

/// Inverses, determinants and decompositions, to the last bit.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let small = Matrix4::from_fn(|_, _| random.unit());
    sum.add(small.determinant().to_bits());
    if let Some(inverse) = small.try_inverse() {
        (inverse * small).iter().for_each(|value| sum.add(value.to_bits()));
    }
    let large = DMatrix::from_fn(6, 6, |_, _| random.unit());
    let positive = &large * large.transpose() + DMatrix::identity(6, 6);
    if let Some(cholesky) = positive.clone().cholesky() {
        cholesky.l().iter().for_each(|value| sum.add(value.to_bits()));
    }
    positive.lu().u().iter().for_each(|value| sum.add(value.to_bits()));
    large.qr().r().iter().for_each(|value| sum.add(value.to_bits()));
    let axis = Vector3::new(random.unit(), random.unit(), 1.0);
    let turned = Rotation3::new(axis) * Vector3::x();
    turned.iter().for_each(|value| sum.add(value.to_bits()));
    sum.finish()
}
