//! Every call as an event of the crate `tracing`.

use crate::alloc::{DeviceAllocator, Usage, address_of};
use crate::driver::{Device, Stream};
use crate::error::Result;
use std::alloc::Layout;
use warpheap_device::kernel::DevicePtr;

/// Makes an event of every call: of those that go well at the level `DEBUG`, of those that fail at `WARN`, all with the target
/// `warpheap::alloc`. Their fields are `address` (not of an allocation that failed), `bytes`, `align`, `stream` and, of those that
/// failed, `error`.
#[derive(Debug)]
pub struct Traced<A> {
    upstream: A,
}

impl<A: DeviceAllocator> Traced<A> {
    /// Makes events of the calls of `upstream`.
    pub fn new(upstream: A) -> Traced<A> {
        Traced { upstream }
    }

    /// What it wraps.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }
}

// SAFETY: the upstream's promise.
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
                tracing::debug!(target: "warpheap::alloc", address, bytes, align, %stream, "allocated");
            }
            Err(error) => {
                tracing::warn!(target: "warpheap::alloc", bytes, align, %stream, %error, "not allocated");
            }
        }
        done
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        let done = unsafe { self.upstream.deallocate(ptr, layout, stream) };
        let (address, bytes, align, stream) = (address_of(ptr), layout.size(), layout.align(), stream.id());
        match &done {
            Ok(()) => {
                tracing::debug!(target: "warpheap::alloc", address, bytes, align, %stream, "given back")
            }
            Err(error) => {
                tracing::warn!(target: "warpheap::alloc", address, bytes, align, %stream, %error, "not given back");
            }
        }
        done
    }

    fn usage(&self) -> Usage {
        self.upstream.usage()
    }
}
