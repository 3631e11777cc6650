//! Handles: values in memory of a [`DeviceAllocator`](super::DeviceAllocator) that are freed on
//! drop.
//!
//! ```text
//!   PoolBox ── PoolBuffer ─┬─ the allocator: &P, Arc<P>, or P itself
//!   1 value    len values  ├─ the block and its layout
//!                          └─ its stream, and others that use it, too
//! ```
//!
//! A handle holds a reference to its allocator. A handle over `&P` cannot outlive the pool; a
//! handle over `Arc<P>` keeps the pool alive.
//!
//! A handle has a *stream*: initially the one that it was allocated on. Its copies are work of that
//! stream. On drop it is freed on that stream, after all work that may use it:
//!
//! - [`record_stream`](PoolBuffer::record_stream): another stream uses the values too. The next
//!   operation on the handle waits for that stream on the device.
//! - [`move_to`](PoolBuffer::move_to): the values move to another stream, which waits for the
//!   previous streams.
//! - [`deallocate_on`](PoolBuffer::deallocate_on): the values are freed on another stream, which
//!   waits for the others.
//!
//! None of these calls, and no drop, waits on the host, except copies to and from the host, and a
//! drop after a failure.
//!
//! ```
//! use std::alloc::Layout;
//! use std::sync::Arc;
//! use warpheap::host_pools::{BlockPool, SyncDriverAllocator, PoolBox, PoolBuffer};
//! use warpheap::{Device, LaunchConfig};
//! # use warpheap_device::{kernel, kernel::{DevicePtr, DeviceSlice}, thread};
//! # kernel! {
//! #     /// # Safety
//! #     /// All are live, with the same length, and no other code uses `out`.
//! #     pub unsafe fn add(out: DeviceSlice<f32>, values: DeviceSlice<f32>, more: DevicePtr<f32>) {
//! #         let i = thread::index_1d().into();
//! #         // SAFETY: the value was written.
//! #         let Some(value) = (unsafe { values.get(i) }) else { return };
//! #         // SAFETY: the value was written.
//! #         let more = unsafe { more.0.read() };
//! #         // SAFETY: each thread writes its own element.
//! #         unsafe { out.set(i, value + more) };
//! #     }
//! # }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::cpu();
//! let (module, stream, other) = (device.native_module()?, device.stream()?, device.stream()?);
//! let pool = BlockPool::builder(Layout::from_size_align(4096, 256)?, 100)
//!     .build_over(SyncDriverAllocator::new(&device))?;
//! let pool = Arc::new(pool);
//!
//! let values = PoolBuffer::from_slice(&*pool, &[1.0_f32, 2.0, 3.0], &stream)?;
//! let more = PoolBox::new(&*pool, 0.5_f32, &stream)?;
//! // Uninitialised memory, which a kernel writes first. This handle keeps the pool alive.
//! let out = PoolBuffer::<f32, _>::new_uninit(pool.clone(), 3, &stream)?;
//! let grid = LaunchConfig::linear(3, 32);
//! let args = (out.slice_to_init(), values.slice(), more.ptr());
//! // SAFETY: all three outlive the kernel in the order of `stream`, and no other work uses them.
//! unsafe { stream.launch(&module, add, &grid, args)? };
//! // SAFETY: the kernel wrote all values, on the buffer's stream.
//! let out = unsafe { out.assume_init() };
//! assert_eq!(out.copy_to_vec()?, [1.5, 2.5, 3.5]);
//!
//! drop(values); // freed to the pool, after the kernel
//! out.deallocate_on(&other)?; // likewise, for the next allocation on `other`
//! assert_eq!(pool.stats().free_blocks, 99);
//! # Ok(())
//! # }
//! ```
//!
//! What the types cannot express: a [`DeviceSlice`](warpheap_device::kernel::DeviceSlice) or
//! [`DevicePtr`](warpheap_device::kernel::DevicePtr) is an address that a kernel takes by value,
//! not a borrow. A launch detects a stale address only if its memory was returned to the driver.
//! Memory that was freed to a pool still belongs to the pool, and may have been allocated again.
//! The caller of a launch promises that the handle still exists.

mod boxed;
mod buffer;
mod owned;
mod values;

#[cfg(test)]
mod tests;

pub use boxed::PoolBox;
pub use buffer::PoolBuffer;
pub use owned::{DeallocateError, PoolParts};
