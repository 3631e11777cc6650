//! Debug heaps: each mistake is planted and seen, and a correct program is told of none.
//!
//! On the CPU in parallel and under some seeds of the replay; what the host can plant by itself on a GPU as well, if
//! there is one.
#![cfg(not(loom))]

mod blocks;
mod bounds;
mod kernels;
mod leaks;
mod quarantine;
mod settings;
mod support;
