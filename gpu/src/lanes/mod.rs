//! Lanes of a warp that execute the same request together, and the collectives that they share.

mod group;
pub mod selftest;
mod sums;

pub(crate) use group::{Group, Lanes, Warp, select_bit};
pub(crate) use sums::Sum;
