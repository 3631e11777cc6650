//! What tests and measures warpheap's allocators, and those of others: stress with checks that no two live blocks
//! overlap, injected faults, figures, and replays of logs. The program `warpheap`, behind the
//! feature `cli`, is its command line.
//!
//! [`stress::stress`] runs over this library's allocators; [`stress::stress_allocator`] over one of your own, of which it asks
//! a [`stress::Subject`] and three kernels, declared by [`stress_kernels!`](warpheap_device::stress_kernels!).
//!
//! Modules, each using only those before it: [`kernels`] → [`mod@bench`], [`stress`], [`examples`] → [`pools`].

pub mod bench;
pub mod build_info;
mod error;
pub mod examples;
#[path = "../kernels/mod.rs"]
pub mod kernels;
mod own;
pub mod pools;
pub mod stress;

pub use error::{Error, Result};
pub use own::OwnModule;
