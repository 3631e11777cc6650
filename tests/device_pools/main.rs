//! The pools in device memory: full and partial warps on the CPU, in parallel mode and replayed
//! under many seeds; the heap from the host, on a GPU as well; and, with the feature `debug`, debug
//! heaps.
#![cfg(not(loom))]

mod addresses;
mod arguments;
mod bump;
#[cfg(feature = "debug")]
mod debug;
#[path = "../driver/support.rs"]
#[allow(dead_code, reason = "`support` lends the GPU to one test at a time")]
mod driver_support;
mod freelist;
mod global_heap;
mod heap_growth;
mod heap_host;
mod kernels;
mod settings;
mod support;
