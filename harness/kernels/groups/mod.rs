//! Kernels of `harness/tests/heap_groups/`, for the CPU and a GPU: allocations for warps and
//! blocks, and the block's cache under threads that end in every possible way.

mod cache;
mod share;
mod word;

pub use cache::*;
pub use share::*;
