//! Kernels of the stress harness, the benchmarks, the self-tests and the demonstrations.

pub mod bench;
pub mod collections;
pub mod demo;
pub mod groups;
pub mod panics;
pub mod selftest;
pub mod stress;

warpheap_device::global_heap!();
