//! Host-side allocation of device memory: the allocator trait, the allocators and their adaptors.
//!
//! ```text
//! BlockPool ─┐
//! BumpPool   ├─ Statistics, Limit, Logged, Traced, FailureInjected ─┐
//! another   ─┘                                                      │
//!                                                                   ├─ SyncDriverAllocator, DriverPool
//!                                                                   └─ any other allocator
//! ```
//!
//! Every allocator is a [`DeviceAllocator`]: memory is allocated for a [`Stream`] and freed in the
//! order of a stream. Each allocator takes its memory from an *upstream* allocator. At the end of
//! the chain is [`SyncDriverAllocator`] or [`DriverPool`], on a GPU or on the CPU. An adaptor is an
//! allocator that forwards every call and adds one feature.
//!
//! ```
//! use std::alloc::Layout;
//! use warpheap::Device;
//! use warpheap::host_pools::{BlockPool, DeviceAllocator, SyncDriverAllocator, Statistics};
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
mod block;
mod block_table;
mod bump;
mod caching;
mod driver_pool;
mod handle;
mod sync_driver;

pub use adaptor::{
    AllocStats, FailureInjected, Failures, Limit, LogAction, LogRecord, Logged, Statistics, Traced,
};
#[cfg(feature = "csv")]
pub use adaptor::{LogRow, read_log, read_rows};
pub use block::{BlockPool, BlockPoolBuilder, BlockPoolStats};
pub use bump::{BumpPool, BumpPoolBuilder, BumpPoolStats, Overflow};
pub use caching::{CachingClassStats, CachingPool, CachingPoolBuilder, CachingPoolStats, RungStats};
pub use driver_pool::{DriverPool, DriverPoolBuilder, DriverPoolStats, ReusePolicies};
pub use handle::{DeallocateError, PoolBox, PoolBuffer, PoolParts};
pub use sync_driver::SyncDriverAllocator;

use crate::driver::{Device, Stream};
use crate::error::{Bytes, Error, InvalidRequest, Result};
use std::alloc::Layout;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use warpheap_device::kernel::DevicePtr;

/// Device memory, allocated by the host.
///
/// Allocation is stream-ordered. Work submitted to the stream after [`allocate`](Self::allocate)
/// returns may use the block. Work submitted to the stream of the free before
/// [`deallocate`](Self::deallocate) may still be using the block when that call returns. To use a
/// block on another stream, order that stream after the allocation ([`Stream::record`],
/// [`Stream::wait`]), and order the stream of the free after the other stream's work.
///
/// All methods may be called from any thread. A block may be freed by another thread, and on
/// another stream, than it was allocated on.
///
/// # Safety
/// The implementation promises two things.
///
/// - A1: `allocate` returns memory of the device with the size and alignment of the layout.
/// - A2: the memory is exclusive to the caller until it is freed. Nothing else uses any of it
///   before `allocate` returns, nor, on any stream, before the work that was submitted to the
///   stream of the free by then.
pub unsafe trait DeviceAllocator: Send + Sync {
    /// The device that the memory belongs to.
    fn device(&self) -> &Device;

    /// Allocates uninitialised memory for work that is submitted to `stream` from now on.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] if the stream belongs to another device, [`Error::InvalidRequest`]
    /// for a size of zero and for layouts that the allocator never serves, [`Error::OutOfMemory`],
    /// or an error of the driver. Nothing is allocated in these cases.
    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>>;

    /// Frees a block after the work submitted to `stream` so far.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] if the stream belongs to another device, [`Error::InvalidFree`] if no
    /// live block starts at the address (foreign, interior or double free) or if the layout
    /// differs, or an error of the driver. The block stays allocated in these cases and can be
    /// freed again.
    ///
    /// # Safety
    /// - P1: only work submitted to `stream` before this call, and work that `stream` was ordered
    ///   after, uses the block.
    /// - P2: the block was allocated here and has not been freed since. Wrong addresses are
    ///   reported as errors, but after a double free the block may already belong to another
    ///   caller.
    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()>;

    /// Current usage. While other threads allocate, the figures may be out of date when the call
    /// returns.
    fn usage(&self) -> Usage;
}

/// Bytes that an allocator holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Usage {
    /// Bytes of live blocks, including rounding.
    pub used_bytes: u64,
    /// Bytes allocated from the upstream: used, or cached for later.
    pub reserved_bytes: u64,
    /// Size of the largest block that can be allocated without more memory from the upstream.
    /// `None` if only the driver knows it, or if finding it would need a search through all blocks.
    pub largest_free_bytes: Option<u64>,
}

macro_rules! pass_on {
    ($($pointer:ty),+) => {$(
        // SAFETY: A1 and A2 hold for the allocator that it points to.
        unsafe impl<A: DeviceAllocator + ?Sized> DeviceAllocator for $pointer {
            fn device(&self) -> &Device {
                (**self).device()
            }

            fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
                (**self).allocate(layout, stream)
            }

            unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
                // SAFETY: the caller's promises P1 and P2, forwarded unchanged.
                unsafe { (**self).deallocate(ptr, layout, stream) }
            }

            fn usage(&self) -> Usage {
                (**self).usage()
            }
        }
    )+};
}
pass_on!(&A, Arc<A>, Box<A>);

/// Locks a mutex and ignores poisoning. The data stays consistent: no code panics between two
/// updates that belong together.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The layout as text for messages.
fn words(layout: Layout) -> String {
    format!("{} aligned to {}", Bytes(layout.size() as u64), layout.align())
}

/// The address as an integer.
#[inline]
pub(crate) fn address_of(ptr: DevicePtr<u8>) -> u64 {
    ptr.0.addr() as u64
}

/// Frees memory of the upstream while a pool is dropped, with one retry. If both attempts fail, the
/// failure is logged and the memory stays with the upstream.
///
/// # Safety
/// P1 and P2 of [`DeviceAllocator::deallocate`].
unsafe fn give_back_at_the_end(
    upstream: &impl DeviceAllocator,
    ptr: DevicePtr<u8>,
    layout: Layout,
    stream: &Stream,
) {
    // SAFETY: the caller's promises P1 and P2. After a failure the block is still allocated.
    let give = || unsafe { upstream.deallocate(ptr, layout, stream) };
    if let Err(error) = give().or_else(|_| give()) {
        let bytes = layout.size();
        tracing::warn!(%error, bytes, address = address_of(ptr), "a pool that goes could not give memory back");
    }
}

/// Rejects a stream of another device and a size of zero.
#[inline]
fn check_request(allocator: &str, device: &Device, layout: Layout, stream: &Stream) -> Result<()> {
    device.same_as(stream.device(), "the stream")?;
    if layout.size() > 0 { Ok(()) } else { Err(no_bytes(allocator, layout)) }
}

#[cold]
fn no_bytes(allocator: &str, layout: Layout) -> Error {
    let why = "a block has at least 1 B; do without one where there is nothing to hold".into();
    Error::InvalidRequest(InvalidRequest::Layout { allocator: allocator.into(), asked: words(layout), why })
}
