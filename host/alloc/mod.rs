//! Device memory that the host hands out: what allocators have in common, the allocators, and what wraps them.
//!
//! ```text
//!   BlockPool ─┐                                                          ┌─ DriverMemory, DriverPool (a GPU, or the CPU)
//!   BumpPool   ├─ Statistics, Limit, Logged, Traced, FailureInjected ─ … ─┤
//!   another   ─┘                                                          └─ any other allocator
//! ```
//!
//! Every allocator is a [`DeviceAllocator`]: memory is taken for a [`Stream`] and given back after the work of one. Each takes
//! its memory from an *upstream*, which is another one; at the end of the chain is [`DriverMemory`] or [`DriverPool`]. An adaptor is an
//! allocator that passes every call on and adds one thing.
//!
//! ```
//! use std::alloc::Layout;
//! use warpheap::Device;
//! use warpheap::alloc::{BlockPool, DeviceAllocator, DriverMemory, Statistics};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::cpu();
//! let stream = device.stream()?;
//! let pool = BlockPool::builder(Layout::from_size_align(4096, 256)?, 100).build_over(DriverMemory::new(&device))?;
//! let pool = Statistics::new(pool);
//! let block = pool.allocate(Layout::new::<[f32; 1024]>(), &stream)?;
//! // ... launches on `stream` that use `block` ...
//! // SAFETY: allocated above, and nothing but that work uses it.
//! unsafe { pool.deallocate(block, Layout::new::<[f32; 1024]>(), &stream)? };
//! assert_eq!((pool.stats().live_blocks, pool.stats().peak_bytes), (0, 4096));
//! # Ok(())
//! # }
//! ```

mod adaptor;
mod block;
mod bump;
mod caching;
mod driver;
mod driver_pool;
mod handle;
mod live;

pub use adaptor::{
    AllocStats, FailureInjected, Failures, Limit, LogAction, LogRecord, Logged, Statistics, Traced,
};
#[cfg(feature = "csv")]
pub use adaptor::{LogRow, read_log, read_rows};
pub use block::{BlockPool, BlockPoolBuilder, BlockPoolStats};
pub use bump::{BumpPool, BumpPoolBuilder, BumpPoolStats, Overflow};
pub use caching::{CachingClassStats, CachingPool, CachingPoolBuilder, CachingPoolStats, RungStats};
pub use driver::DriverMemory;
pub use driver_pool::{DriverPool, DriverPoolBuilder, DriverPoolStats, ReusePolicies};
pub use handle::{DeallocateError, PoolBox, PoolBuffer, PoolParts};

use crate::driver::{Device, Stream};
use crate::error::{Bytes, Error, InvalidRequest, Result};
use std::alloc::Layout;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use warpheap_device::kernel::DevicePtr;

/// Memory of a device, handed out by the host.
///
/// Memory belongs to the order of a stream, not to a moment: what [`allocate`](Self::allocate) returns may be used by work that the
/// stream is given from then on, and what [`deallocate`](Self::deallocate) takes back may still be in use by work that its stream was
/// given before. To use a block elsewhere as well, order the other stream: after the allocation
/// ([`Stream::record`], [`Stream::wait`]), and the stream of the free after the other stream's work.
///
/// Any thread may call it. A block may be given back by another thread, and on another stream, than it was allocated on.
///
/// # Safety
/// Whoever implements it promises that what `allocate` returns is memory of the device, of the size and alignment of the layout, and
/// that no one else has any of it until it is given back: neither before that call returns nor, on any stream, before the work
/// that the stream of the free was given by then.
pub unsafe trait DeviceAllocator: Send + Sync {
    /// The device it is memory of.
    fn device(&self) -> &Device;

    /// Memory, of any content, for work that `stream` is given from now on.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] for a stream of another device, [`Error::InvalidRequest`] for no bytes and for what the
    /// allocator never serves, [`Error::OutOfMemory`], or what the driver answers. Nothing is allocated then.
    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>>;

    /// Takes a block back, after the work that `stream` was given so far.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] for a stream of another device, [`Error::InvalidFree`] for an address that no live block starts at
    /// (foreign, interior, given back before) and for another layout, or what the driver answers. The block stays allocated
    /// then and can be given back again.
    ///
    /// # Safety
    /// Nothing uses the block any more but work that `stream` was given before, and work that this stream was ordered after. It was
    /// allocated here: wrong addresses are errors, but a block that was given back twice may have another owner by then.
    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()>;

    /// What it holds at the moment. While others allocate, the numbers are of one moment, which may be over.
    fn usage(&self) -> Usage;
}

/// What an allocator holds, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Usage {
    /// What live blocks take, with what sizes were rounded up by.
    pub used_bytes: u64,
    /// What it has of its upstream: used, or kept for later.
    pub reserved_bytes: u64,
    /// The largest block that can be allocated without more of the upstream; `None` if only the driver knows, or a search through all blocks would tell.
    pub largest_free_bytes: Option<u64>,
}

macro_rules! pass_on {
    ($($pointer:ty),+) => {$(
        // SAFETY: the promise of what it points to.
        unsafe impl<A: DeviceAllocator + ?Sized> DeviceAllocator for $pointer {
            fn device(&self) -> &Device {
                (**self).device()
            }

            fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
                (**self).allocate(layout, stream)
            }

            unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
                // SAFETY: the caller's promise.
                unsafe { (**self).deallocate(ptr, layout, stream) }
            }

            fn usage(&self) -> Usage {
                (**self).usage()
            }
        }
    )+};
}
pass_on!(&A, Arc<A>, Box<A>);

/// A panic elsewhere leaves what is behind these locks whole: nothing panics between two changes that belong together.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A layout in words.
fn words(layout: Layout) -> String {
    format!("{} aligned to {}", Bytes(layout.size() as u64), layout.align())
}

/// The address as a number.
#[inline]
pub(crate) fn address_of(ptr: DevicePtr<u8>) -> u64 {
    ptr.0.addr() as u64
}

/// For a pool that goes: gives memory of its upstream back, and tries once more. What is left then is logged, and stays with the upstream.
///
/// # Safety
/// As for [`DeviceAllocator::deallocate`].
unsafe fn give_back_at_the_end(
    upstream: &impl DeviceAllocator,
    ptr: DevicePtr<u8>,
    layout: Layout,
    stream: &Stream,
) {
    // SAFETY: the caller's promise; after a failure it is still allocated.
    let give = || unsafe { upstream.deallocate(ptr, layout, stream) };
    if let Err(error) = give().or_else(|_| give()) {
        let bytes = layout.size();
        tracing::warn!(%error, bytes, address = address_of(ptr), "a pool that goes could not give memory back");
    }
}

/// Fails on a stream of another device and on no bytes.
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
