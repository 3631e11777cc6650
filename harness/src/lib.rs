//! Tests and benchmarks of warpheap's allocators and of third-party ones: stress runs that check
//! that no two live blocks overlap, injected faults, figures, and replays of logs. The program
//! `warpheap`, behind the feature `cli`, is its command line; `program` is `cli` without drawings.
//!
//! [`stress::stress`] runs on this library's allocators. [`stress::stress_allocator`] runs on your
//! own, which must implement [`stress::Subject`] and three kernels, declared by
//! [`stress_kernels!`](warpheap_device::stress_kernels!).
//!
//! Modules, each using only those before it: [`kernels`] → [`suite_kernels`] → [`mod@bench`],
//! [`stress`] → [`pool_tools`].

pub mod bench;
pub mod build_info;
mod error;
#[path = "../kernels/mod.rs"]
pub mod kernels;
mod own_module;
pub mod pool_tools;
pub mod stress;
#[path = "../suite_kernels/mod.rs"]
pub mod suite_kernels;
mod summary;
mod threads;

pub use error::{Error, Result};
pub use own_module::OwnModule;

/// A name in results: static in those of a run, owned in those that were read from a file.
type Name = std::borrow::Cow<'static, str>;
