//! `libwarpheap`: warpheap's pools for C and C++, with the header `bindings/c/include/warpheap.h`.
//!
//! ```text
//!   entry points: heap, bump, freelist, pool, device
//!        |  call()            one wrapper: panics, statuses, the last error
//!        |  Registry          an id of a pool -> Arc of the pool
//!        v
//!   warpheap-bindings         what Python shares: raw streams, texts, locks
//!        v
//!   crate `warpheap`          (named `host` here: the library itself is called `warpheap`)
//! ```
//!
//! C holds ids, never pointers to host objects. So a destroyed or invalid owner is found in no
//! registry and is an error. A call holds an `Arc` of its pool, so another thread may destroy the
//! pool meanwhile.
//!
//! The types and functions are named as in C, and their documentation is that of the header.
#![allow(non_camel_case_types, reason = "the names are those of the header")]
#![cfg(not(loom))]

mod arguments;
mod bump;
mod call;
mod device;
mod freelist;
mod heap;
mod pool;
mod registry;
mod status;

#[cfg(test)]
#[path = "../tests/fuzz/mod.rs"]
mod fuzz;
