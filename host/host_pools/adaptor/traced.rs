//! Emits a `tracing` event for every call.

use crate::driver::{Device, Stream};
use crate::error::Result;
use crate::host_pools::allocator::DeviceAllocator;
use crate::host_pools::request::address_of;
use crate::report::MemoryReport;
use crate::usage::Usage;
use std::alloc::Layout;
use warpheap_device::kernel::DevicePtr;

/// Emits an event for every call: at level `DEBUG` for success, at `WARN` for failure, all with the
/// target `warpheap::host_pools`. The fields are `address` (absent for a failed allocation),
/// `bytes`, `align`, `stream` and, for failures, `error`.
#[derive(Debug)]
pub struct Traced<A> {
    upstream: A,
}

impl<A: DeviceAllocator> Traced<A> {
    /// Emits events for the calls of `upstream`.
    pub fn new(upstream: A) -> Traced<A> {
        Traced { upstream }
    }

    /// The wrapped allocator.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }
}

// SAFETY: A1 to A3 hold for the upstream.
unsafe impl<A: DeviceAllocator> DeviceAllocator for Traced<A> {
    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        let done = self.upstream.allocate(layout, stream);
        let (bytes, align, stream) = (layout.size(), layout.align(), stream.id());
        match &done {
            Ok(ptr) => {
                let address = address_of(*ptr);
                tracing::debug!(target: "warpheap::host_pools", address, bytes, align, %stream, "allocated");
            }
            Err(error) => {
                tracing::warn!(target: "warpheap::host_pools", bytes, align, %stream, %error, "allocation failed");
            }
        }
        done
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's promises P1 and P2.
        let done = unsafe { self.upstream.deallocate(ptr, layout, stream) };
        let (address, bytes, align, stream) = (address_of(ptr), layout.size(), layout.align(), stream.id());
        match &done {
            Ok(()) => {
                tracing::debug!(target: "warpheap::host_pools", address, bytes, align, %stream, "freed")
            }
            Err(error) => {
                tracing::warn!(target: "warpheap::host_pools", address, bytes, align, %stream, %error, "free failed");
            }
        }
        done
    }

    fn usage(&self) -> Usage {
        self.upstream.usage()
    }

    fn report(&self) -> MemoryReport {
        self.upstream.report()
    }
}
