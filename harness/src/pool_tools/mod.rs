//! Operations on host pools: benchmarks of the pools of [`replay`], and [`timeline`], which reads a
//! log as a stream of events.

pub mod bench;
pub mod timeline;

pub use warpheap::host_pools::replay::{self, BLOCKS, CACHING, DRIVER, DRIVER_POOL, POOLS, PoolKind};
