//! The trait of all host allocators.

use crate::driver::{Device, Stream};
use crate::error::Result;
use crate::report::MemoryReport;
use crate::usage::Usage;
use std::alloc::Layout;
use std::sync::Arc;
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
/// The implementation promises three things.
///
/// - A1: `allocate` returns memory of the device with the size and alignment of the layout.
/// - A2: the memory is exclusive to the caller until it is freed. Nothing else uses any of it
///   before `allocate` returns, nor, on any stream, before the work that was submitted to the
///   stream of the free by then.
/// - A3: `device` always returns the same device. Moving the allocator, or using it through `&A` or
///   `Arc<A>`, leaves its blocks valid.
pub unsafe trait DeviceAllocator: Send + Sync {
    /// The device that the memory belongs to.
    fn device(&self) -> &Device;

    /// Allocates uninitialised memory for work that is submitted to `stream` from now on.
    ///
    /// # Errors
    /// [`WrongDevice`](crate::Error::WrongDevice) if the stream belongs to another device,
    /// [`InvalidRequest`](crate::Error::InvalidRequest) for a size of zero and for layouts that the
    /// allocator never serves, [`OutOfMemory`](crate::Error::OutOfMemory), or an error of the
    /// driver. Nothing is allocated in these cases.
    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>>;

    /// Frees a block after the work submitted to `stream` so far.
    ///
    /// # Errors
    /// [`WrongDevice`](crate::Error::WrongDevice) if the stream belongs to another device,
    /// [`InvalidFree`](crate::Error::InvalidFree) if no live block starts at the address (foreign,
    /// interior or double free) or if the layout differs, or an error of the driver. The block
    /// stays allocated in these cases and can be freed again.
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

    /// What is in use, what is free, and what holds the memory. Unlike [`usage`](Self::usage), it
    /// may read the state of every block.
    ///
    /// Without an implementation, the report has the figures of `usage` only. An adaptor should
    /// forward the call.
    fn report(&self) -> MemoryReport {
        MemoryReport::new("an allocator", self.usage())
    }
}

macro_rules! forward {
    ($($pointer:ty),+) => {$(
        // SAFETY: A1 to A3 hold for the allocator that it points to.
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

            fn report(&self) -> MemoryReport {
                (**self).report()
            }
        }
    )+};
}
forward!(&A, Arc<A>, Box<A>);
