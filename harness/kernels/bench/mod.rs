//! Kernels of the benchmarks. Next to each kernel is its floor: the same kernel without the
//! allocator.

pub(crate) mod common;
mod heap;
mod load;
mod pools;

pub(super) use common::count;
pub use common::{Counter, Order, Sizes};
pub use heap::*;
pub use load::*;
pub use pools::*;
