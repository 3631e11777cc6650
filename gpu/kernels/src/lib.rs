//! The kernels of the stress harness, the benchmarks and the self-tests: entry points, no logic.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

pub mod bench;
pub mod selftest;
pub mod stress;
