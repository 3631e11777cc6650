//! Kernels of the stress harness, the benchmarks and the self-tests.

pub mod bench;
pub mod collections;
pub mod groups;
pub mod panics;
pub mod selftest;
pub mod stress;

warpheap_device::global_heap!();
