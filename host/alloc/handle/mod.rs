//! Handles: values in memory of a [`DeviceAllocator`](super::DeviceAllocator) that give it back by themselves.
//!
//! ```text
//!   PoolBox ── PoolBuffer ── Owned ─┬─ the allocator: &P, Arc<P>, or P itself
//!   1 value    len values           ├─ the block and its layout
//!                                   └─ its stream, and others that use it, too
//! ```
//!
//! A handle holds what it allocates from. One over `&P` cannot outlive the pool, and one over `Arc<P>` keeps it alive.
//!
//! A handle has a *stream*: the one that it was allocated on. Its copies are work of that stream, and it is given back there when it is
//! dropped, behind all work that may use it:
//!
//! | call | then |
//! |---|---|
//! | [`record_stream`](PoolBuffer::record_stream) | another stream uses the values, too: whatever the handle does next waits for that one on the device |
//! | [`move_to`](PoolBuffer::move_to) | the values are another stream's from now on, which waits for the streams before |
//! | [`deallocate_on`](PoolBuffer::deallocate_on) | it is given back on another stream, which waits for the others |
//!
//! None of them, and no drop, waits on the host, but for copies to and from the host, and a drop after a failure.
//!
//! ```
//! use std::alloc::Layout;
//! use std::sync::Arc;
//! use warpheap::alloc::{BlockPool, DriverMemory, PoolBox, PoolBuffer};
//! use warpheap::{Device, LaunchConfig};
//! # use warpheap_device::{kernel, kernel::{DevicePtr, DeviceSlice}, thread};
//! # kernel! {
//! #     /// # Safety
//! #     /// All are live, as many, and nobody else touches `out`.
//! #     pub unsafe fn add(out: DeviceSlice<f32>, values: DeviceSlice<f32>, more: DevicePtr<f32>) {
//! #         let i = thread::index_1d().into();
//! #         // SAFETY: it was written.
//! #         let Some(value) = (unsafe { values.get(i) }) else { return };
//! #         // SAFETY: the same.
//! #         let more = unsafe { more.0.read() };
//! #         // SAFETY: each thread has its own.
//! #         unsafe { out.set(i, value + more) };
//! #     }
//! # }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::cpu();
//! let (module, stream, other) = (device.native_module()?, device.stream()?, device.stream()?);
//! let pool = BlockPool::builder(Layout::from_size_align(4096, 256)?, 100).build_over(DriverMemory::new(&device))?;
//! let pool = Arc::new(pool);
//!
//! let values = PoolBuffer::from_slice(&*pool, &[1.0_f32, 2.0, 3.0], &stream)?;
//! let more = PoolBox::new(&*pool, 0.5_f32, &stream)?;
//! // Memory of any content, which a kernel writes first; this one keeps the pool alive.
//! let out = PoolBuffer::<f32, _>::new_uninit(pool.clone(), 3, &stream)?;
//! let (grid, args) = (LaunchConfig::linear(3, 32), (out.slice_to_init(), values.slice(), more.ptr()));
//! // SAFETY: all three outlive the kernel in the order of `stream`, and nobody else uses them.
//! unsafe { stream.launch(&module, add, &grid, args)? };
//! // SAFETY: the kernel wrote all values, on the buffer's stream.
//! let out = unsafe { out.assume_init() };
//! assert_eq!(out.copy_to_vec()?, [1.5, 2.5, 3.5]);
//!
//! drop(values); // back to the pool, behind the kernel
//! out.deallocate_on(&other)?; // the same, for the next one that asks on `other`
//! assert_eq!(pool.stats().free_blocks, 99);
//! # Ok(())
//! # }
//! ```
//!
//! What the types cannot say: a [`DeviceSlice`](warpheap_device::kernel::DeviceSlice) or
//! [`DevicePtr`](warpheap_device::kernel::DevicePtr) is an address, which a kernel takes by value, and no borrow. A launch finds one that
//! is stale as long as its memory went back to the driver. That of a pool is still the pool's, and may be someone else's: whoever launches
//! promises that the handle is still there.

mod boxed;
mod buffer;
mod bytes;
mod error;
mod owned;
mod parts;
mod values;

#[cfg(test)]
mod tests;

pub use boxed::PoolBox;
pub use buffer::PoolBuffer;
pub use error::DeallocateError;
pub use parts::PoolParts;
