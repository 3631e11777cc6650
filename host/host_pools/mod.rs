//! Host-side allocation of device memory: the allocator trait, the allocators and their adaptors.
//!
//! ```text
//!                                   upstream →
//!
//! CachingPool ─┐
//! BlockPool    ├─ Statistics, Tagged, Limit, Logged, Traced, .. ─┬─ SyncDriverAllocator
//! BumpPool     │                                                 └─ DriverPool, another
//! another     ─┘
//! ```
//!
//! Every allocator is a [`DeviceAllocator`]: memory is allocated for a [`Stream`](crate::Stream)
//! and freed in the order of a stream. Each allocator takes its memory from an *upstream*
//! allocator. At the end of the chain is [`SyncDriverAllocator`] or [`DriverPool`], on a GPU or on
//! the CPU. An adaptor is an allocator that forwards every call and adds one feature.
//!
//! ```
//! use std::alloc::Layout;
//! use warpheap::Device;
//! use warpheap::host_pools::{BlockPool, DeviceAllocator, Statistics, SyncDriverAllocator};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::cpu();
//! let stream = device.stream()?;
//! let pool = BlockPool::builder(Layout::from_size_align(4096, 256)?, 100)
//!     .build_over(SyncDriverAllocator::new(&device))?;
//! let pool = Statistics::new(pool);
//! let block = pool.allocate(Layout::new::<[f32; 1024]>(), &stream)?;
//! // ... launches on `stream` that use `block` ...
//! // SAFETY: allocated above; only the launches on `stream` use it (P1, P2).
//! unsafe { pool.deallocate(block, Layout::new::<[f32; 1024]>(), &stream)? };
//! assert_eq!((pool.stats().live_blocks, pool.stats().peak_bytes), (0, 4096));
//! # Ok(())
//! # }
//! ```

mod adaptor;
mod allocator;
mod block;
mod block_table;
mod bump;
mod caching;
mod driver_pool;
mod handle;
#[cfg(feature = "csv")]
pub mod replay;
mod request;
mod sync_driver;
mod tag;

pub use adaptor::{
    AllocStats, Annotated, AnnotatedMemory, FailureInjected, Failures, Limit, LogAction, LogRecord, Logged,
    Statistics, TagStats, Tagged, Traced,
};
#[cfg(feature = "csv")]
pub use adaptor::{LogReader, LogRow, LogTicks, read_log, read_rows};
pub use allocator::DeviceAllocator;
pub use block::{BlockPool, BlockPoolBuilder, BlockPoolStats};
pub use bump::{BumpPool, BumpPoolBuilder, BumpPoolStats, Overflow};
pub use caching::{CachingClassStats, CachingPool, CachingPoolBuilder, CachingPoolStats, RungStats};
pub use driver_pool::{DriverPool, DriverPoolBuilder, DriverPoolStats, ReusePolicies};
pub use handle::{DeallocateError, PoolBox, PoolBuffer, PoolParts};
#[cfg(test)]
pub(crate) use request::address_of;
pub use sync_driver::SyncDriverAllocator;
pub use tag::{TagScope, tag};
