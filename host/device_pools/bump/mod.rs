//! The host side of the bump arena.

mod builder;
mod pool;

pub use builder::BumpBuilder;
pub use pool::{Bump, BumpStats};
