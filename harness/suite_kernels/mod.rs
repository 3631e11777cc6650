//! Kernels of the benchmark suites: CUDA's `malloc`, and calls that are timed one by one.
//!
//! On the GPU this is a module of its own. Its global allocator is CUDA's `malloc`, so the kernels
//! of Rust's collections are compiled a second time here.

#[cfg(target_arch = "nvptx64")]
#[path = "../kernels/collections.rs"]
pub mod collections;
#[cfg(target_arch = "nvptx64")]
#[path = "../kernels/bench/common.rs"]
#[allow(dead_code, reason = "these kernels use a part")]
mod common;
mod latency;
mod malloc;

#[cfg(not(target_arch = "nvptx64"))]
use crate::kernels::bench::common;

pub use latency::*;
pub use malloc::*;
