//! The pool as an allocator, and its drop.

use super::super::allocator::DeviceAllocator;
use super::super::request::{address_of, check_request, explain, ptr_at};
use super::bins::FreeOutcome;
use super::class::Need;
use super::pool::CachingPool;
use crate::driver::{Device, Stream};
use crate::error::Result;
use crate::lock::lock;
use crate::report::MemoryReport;
use crate::usage::Usage;
use std::alloc::Layout;
use std::fmt;
use warpheap_device::kernel::DevicePtr;

impl<A: DeviceAllocator> CachingPool<A> {
    #[cold]
    fn allocate_slow(&self, need: &Need, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        let found = self.alloc_by_ladder(*need, layout, stream)?;
        found.map(ptr_at).map_err(|failure| explain(self.out_of_memory(layout, &failure), layout, self))
    }
}

// SAFETY: live blocks do not overlap (A1, A2 by I1). A block is allocated after all work that may
// use it (A2 by I2). A3 holds for the upstream; segments are device memory, which does not move
// with the pool.
unsafe impl<A: DeviceAllocator> DeviceAllocator for CachingPool<A> {
    fn device(&self) -> &Device {
        self.upstream.device()
    }

    #[inline]
    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        check_request(&self.settings.name, self.device(), layout, stream)?;
        // Through the pool: a local copy of the classes would be stored and loaded again.
        let Some(need) = self.settings.classes.need(layout) else {
            return Err(self.settings.classes.unsupported(&self.settings.name, layout));
        };
        match self.alloc_cached(&need, layout, stream) {
            Some(ptr) => Ok(ptr),
            None => self.allocate_slow(&need, layout, stream),
        }
    }

    #[inline]
    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        self.device().same_as(stream.device(), "the stream")?;
        let address = address_of(ptr);
        if !self.settings.is_ordered {
            stream.settle()?;
        }
        // SAFETY: the caller's promises P1 and P2. The stream is of the device: checked above (P3).
        let outcome = unsafe { self.free_recent(address, layout, stream) };
        if outcome == FreeOutcome::Cached {
            return Ok(());
        }
        let freed = self.free_slow(outcome, address, layout, stream);
        freed.map_err(|error| self.invalid_free(address, layout, error))
    }

    /// Reads each stream's cache, not the blocks. The largest free block would need a scan of all
    /// blocks; error messages report it.
    fn usage(&self) -> Usage {
        let shared = lock(&self.shared);
        Usage {
            used_bytes: self.counts(&shared).used(),
            reserved_bytes: shared.arena.reserved(),
            largest_free_bytes: None,
        }
    }

    fn report(&self) -> MemoryReport {
        self.memory_report()
    }
}

impl<A: DeviceAllocator> Drop for CachingPool<A> {
    fn drop(&mut self) {
        self.streams.close();
        let (unmarked, pending, counts) = {
            let mut shared = lock(&self.shared);
            self.flush_all(&mut shared);
            (shared.unmarked(), shared.pending(), self.counts(&shared))
        };
        // Ordered on the device, as far as the driver supports that.
        let ordered = pending.iter().try_for_each(|(_, event)| self.pool_stream.wait(event));
        let (blocks, bytes) = (counts.blocks(), counts.used());
        if blocks > 0 || !unmarked.is_empty() || ordered.is_err() {
            self.device().driver().drain();
        }
        if blocks > 0 {
            let pool = &self.settings.name;
            tracing::warn!(blocks, bytes, "{pool} was dropped while some of its blocks were allocated");
        }
        self.release_all();
    }
}

impl<A: DeviceAllocator> fmt::Debug for CachingPool<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Usage { used_bytes, reserved_bytes, .. } = self.usage();
        write!(f, "CachingPool({}, {used_bytes} B of {reserved_bytes} B in use)", self.device())
    }
}
