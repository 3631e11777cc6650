//! A limit on the bytes that are live at a time.
//!
//! I1: `used <= limit`; `used` is the sum of the requested sizes of blocks that are live, being
//! allocated, or being freed.

use crate::driver::{Device, Stream};
use crate::error::{Bytes, Error, OutOfMemory, Result};
use crate::host_pools::allocator::DeviceAllocator;
use crate::host_pools::request::explain;
use crate::lock::lock;
use crate::report::MemoryReport;
use crate::usage::Usage;
use std::alloc::Layout;
use std::sync::Mutex;
use warpheap_device::kernel::DevicePtr;

/// Fails allocations that would exceed a limit of live bytes, without asking its upstream.
///
/// An allocation counts while it is in progress, even if the upstream then fails it.
#[derive(Debug)]
pub struct Limit<A> {
    upstream: A,
    limit: u64,
    used: Mutex<u64>,
}

impl<A: DeviceAllocator> Limit<A> {
    /// Limits `upstream` to `bytes` live bytes, by requested sizes.
    pub fn new(upstream: A, bytes: u64) -> Limit<A> {
        Limit { upstream, limit: bytes, used: Mutex::default() }
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The wrapped allocator.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }

    /// Counts `bytes` as used. On failure returns the bytes used so far.
    fn claim(&self, bytes: u64) -> Result<(), u64> {
        let mut used = lock(&self.used);
        if bytes > self.limit - *used {
            return Err(*used);
        }
        *used += bytes;
        Ok(())
    }

    fn unclaim(&self, bytes: u64) {
        let mut used = lock(&self.used);
        // Does not underflow if the upstream accepted a free with a different size.
        *used = used.saturating_sub(bytes);
    }

    fn exceeded(&self, requested: u64, used: u64) -> Error {
        let (left, upstream) = (self.limit - used, self.upstream.usage());
        Error::OutOfMemory(OutOfMemory::Pool {
            allocator: "a limit".into(),
            requested: Bytes(requested),
            used: Bytes(used),
            reserved: Bytes(self.limit),
            cached: Bytes(upstream.reserved_bytes.saturating_sub(upstream.used_bytes)),
            largest: Bytes(upstream.largest_free_bytes.map_or(left, |bytes| bytes.min(left))),
            advice: "free blocks, or raise the limit (Limit::new)",
            report: None,
        })
    }
}

// SAFETY: A1 to A3 hold for the upstream.
unsafe impl<A: DeviceAllocator> DeviceAllocator for Limit<A> {
    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        let bytes = layout.size() as u64;
        self.claim(bytes).map_err(|used| explain(self.exceeded(bytes, used), layout, self))?;
        self.upstream.allocate(layout, stream).inspect_err(|_| self.unclaim(bytes))
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's promises P1 and P2.
        unsafe { self.upstream.deallocate(ptr, layout, stream) }?;
        self.unclaim(layout.size() as u64);
        Ok(())
    }

    fn usage(&self) -> Usage {
        let left = self.limit - *lock(&self.used);
        let usage = self.upstream.usage();
        Usage { largest_free_bytes: usage.largest_free_bytes.map(|bytes| bytes.min(left)), ..usage }
    }

    /// The report of the upstream, with the limit of this and what counts towards it.
    fn report(&self) -> MemoryReport {
        let (report, used) = (self.upstream.report(), *lock(&self.used));
        let allocator = format!("a limit of {:#} on {}", Bytes(self.limit), report.allocator);
        let (limit_bytes, limited_bytes) = (Some(self.limit), Some(used));
        MemoryReport { allocator, limit_bytes, limited_bytes, ..report }.concluded()
    }
}
