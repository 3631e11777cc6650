//! What `warpheap-device`, the crate of kernels, and an executor of kernels on the CPU have in
//! common.
//!
//! - [`units`]: numbers that must not be mixed up;
//! - [`machine`]: what an executor does in place of a GPU for the lane that it runs;
//! - [`kernel`]: the trait of kernels, and their arguments.
//!
//! Programs use these modules as those of `warpheap-device`. An executor, such as that of
//! `warpheap-sim`, depends on this crate alone.
#![no_std]
#![warn(missing_debug_implementations)]

#[cfg(not(target_arch = "nvptx64"))]
extern crate std;

pub mod kernel;
#[cfg(not(target_arch = "nvptx64"))]
pub mod machine;
pub mod units;
