//! Kernels of the stress harness, the benchmarks, the self-tests, the examples and the
//! demonstrations.

pub mod bench;
pub mod demo;
pub mod examples;
pub mod groups;
pub mod panics;
pub mod selftest;
pub mod stress;

warpheap_device::global_heap!();
