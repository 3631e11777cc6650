//! The kernels of the stress harness, the benchmarks, the self-tests, the examples and the demonstrations.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

extern crate alloc;

pub mod bench;
pub mod demo;
pub mod examples;
pub mod groups;
pub mod host_calls;
pub mod selftest;
pub mod stress;

warpheap_device::global_heap!();
