//! Kernels on the CPU: `warpheap::simt`, one property per module.
#![cfg(not(loom))]

mod collectives;
mod divergence;
mod endings;
mod errors;
mod grids;
mod race;
mod replay;
mod shared;
mod sums;
mod support;
