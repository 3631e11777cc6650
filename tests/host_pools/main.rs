//! Host allocators: properties that all of them share (`suite`), and the specifics of each.
//!
//! On the CPU, and on the first GPU if there is one.
#![cfg(not(loom))]

mod adaptors;
mod block_pool;
mod bump_pool;
mod caching;
mod caching_ladder;
mod caching_streams;
mod cases;
mod driver_pool;
mod drops;
mod handles;
#[path = "../driver/held.rs"]
mod held;
#[path = "../driver/kernels.rs"]
#[allow(dead_code, reason = "only some of the kernels are launched here")]
mod kernels;
mod limits;
mod logged;
mod output;
mod pending;
mod prelude;
mod suite;
#[path = "../driver/support.rs"]
#[allow(dead_code, reason = "`support` lends the GPU to one test at a time")]
mod support;
mod threads;
