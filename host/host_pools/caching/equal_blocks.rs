//! A caching pool of equal blocks, the base of [`BlockPool`](crate::host_pools::BlockPool): one
//! class, and one segment for its entire lifetime.

use super::super::allocator::DeviceAllocator;
use super::super::request::ptr_at;
use super::class::Need;
use super::pool::CachingPool;
use super::settings::Settings;
use crate::driver::Stream;
use crate::error::Result;
use std::alloc::Layout;
use warpheap_device::kernel::DevicePtr;

impl<A: DeviceAllocator> CachingPool<A> {
    /// Creates a pool of equal blocks in one upstream allocation, which is freed when the pool is
    /// dropped. Also returns the start address.
    pub(in crate::host_pools) fn of_equal(
        upstream: A,
        name: String,
        block: Layout,
        region: Layout,
    ) -> Result<(CachingPool<A>, u64)> {
        let (bytes, align) = (region.size() as u64, region.align() as u64);
        let pool = CachingPool::new(upstream, None, Settings::of_equal(name, block.size() as u64, bytes))?;
        let start = pool.alloc_region(bytes, align)?;
        Ok((pool, start))
    }

    /// The size and class of every block of a pool of equal blocks.
    #[inline]
    pub(in crate::host_pools) fn need_of_equal(&self) -> Need {
        self.settings.classes.need_of_equal()
    }

    /// Allocates a block that the stream's cache does not have. `None` if all blocks are live,
    /// or other threads took each free block first.
    #[cold]
    pub(in crate::host_pools) fn alloc_equal(
        &self,
        layout: Layout,
        stream: &Stream,
    ) -> Result<Option<DevicePtr<u8>>> {
        Ok(self.alloc_by_ladder(self.need_of_equal(), layout, stream)?.ok().map(ptr_at))
    }
}
