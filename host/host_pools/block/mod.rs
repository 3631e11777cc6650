//! A pool of equal blocks in one piece of memory.
//!
//! ```text
//! memory     | 0 | 1 | 2 | … | 63 | 64 | …               | 99 |    one upstream allocation
//! slabs      └ cut into blocks ────┘└ not cut yet ───────────┘
//! block 2    live, in a stream's cache, or free: for a stream, behind an event, or idle
//! ```
//!
//! The pool is a [`CachingPool`] of one class and one segment, which it owns for its entire
//! lifetime. [`caching`](super::caching) describes how blocks are cached for the stream of the
//! free, when other streams wait, and what a free checks. An allocate/free pair that the stream's
//! cache serves costs five atomic read-modify-writes, makes no driver call and takes no lock but
//! the cache's own.
//!
//! I1: block `i` starts at `start + i * block.size()`, and `region` has the size of `blocks`
//! blocks. I2: `stats().free_blocks` blocks are not live; an allocation fails only if at one moment
//! no block was free.

#[cfg(test)]
mod tests;

use super::caching::{CachingPool, ClaimError, FreeOutcome};
use crate::driver::{Device, Stream};
use crate::error::{Bytes, Error, OutOfMemory, Result};
use crate::host_pools::allocator::DeviceAllocator;
use crate::host_pools::request::{
    address_of, check_request, describe, explain, invalid_free, invalid_layout, invalid_setting, named,
    wrong_layout,
};
use crate::host_pools::sync_driver::SyncDriverAllocator;
use crate::report::MemoryReport;
use crate::usage::Usage;
use serde::Serialize;
use std::alloc::Layout;
use std::fmt;
use warpheap_device::kernel::DevicePtr;

/// The largest block: the caching pool cannot encode a larger layout.
const MAX_BLOCK: usize = 1 << 48;

/// A pool of equal blocks, allocated from its upstream in one piece.
///
/// The stream of a free can allocate the block again at once, without a driver call. Other streams
/// get, in this order: blocks that no work can be using, blocks of streams that have no work left,
/// and blocks that another stream freed, for which they wait on the device. No allocation waits on
/// the host, unless the driver cannot record an event on a stream.
///
/// Dropping the pool frees the memory after all pending frees. If blocks are still allocated, it
/// waits for the device and logs a warning.
#[must_use = "its memory is freed when it is dropped"]
pub struct BlockPool<A: DeviceAllocator = SyncDriverAllocator> {
    pool: CachingPool<A>,
    start: u64,
    /// Its size is a multiple of its alignment.
    block: Layout,
    region: Layout,
    blocks: u32,
    /// The pool in messages.
    name: String,
}

/// Builder for a [`BlockPool`].
#[derive(Clone, Debug)]
#[must_use = "call build or build_over"]
pub struct BlockPoolBuilder {
    name: Option<String>,
    block: Layout,
    blocks: usize,
}

/// Statistics of a [`BlockPool`]. While other threads allocate, the figures are not a snapshot of
/// one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BlockPoolStats {
    /// Usage in bytes.
    pub usage: Usage,
    /// Number of blocks in the pool.
    pub blocks: u64,
    /// Blocks that can be allocated.
    pub free_blocks: u64,
    /// Live blocks.
    pub live_blocks: u64,
    /// Allocations served by the stream's own cache.
    pub hits: u64,
    /// Allocations not served by the stream's own cache.
    pub misses: u64,
}

impl BlockPoolBuilder {
    /// A name for the pool, which its errors and reports contain. Default: none.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Builds a pool over the driver memory of `device`.
    ///
    /// # Errors
    /// The errors of [`build_over`](Self::build_over).
    pub fn build(&self, device: &Device) -> Result<BlockPool> {
        self.build_over(SyncDriverAllocator::new(device))
    }

    /// Builds a pool in one allocation of `upstream`.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] for zero blocks or zero bytes, and for more than 2^32 - 1 blocks or
    /// 2^63 - 1 bytes; errors of the upstream.
    pub fn build_over<A: DeviceAllocator>(&self, upstream: A) -> Result<BlockPool<A>> {
        let &BlockPoolBuilder { block, blocks, .. } = self;
        let block = block.pad_to_align();
        if block.size() == 0 {
            return Err(invalid_setting("block", describe(block), "the size must be at least 1 B"));
        }
        if block.size() > MAX_BLOCK {
            return Err(invalid_setting("block", describe(block), "the size must be at most 256 TiB"));
        }
        let Some(count) = u32::try_from(blocks).ok().filter(|count| *count > 0) else {
            return Err(invalid_setting("blocks", blocks, "it must be from 1 to 4294967295"));
        };
        let bytes = block.size().checked_mul(blocks);
        let region = bytes.and_then(|bytes| Layout::from_size_align(bytes, block.align()).ok());
        let Some(region) = region else {
            let given = format!("{blocks} of {}", describe(block));
            return Err(invalid_setting("blocks", given, "their total size exceeds the address space"));
        };
        let kind = named("block pool", self.name.as_deref());
        let name = format!("{kind} of {blocks} blocks of {}", Bytes(block.size() as u64));
        let (pool, start) = CachingPool::of_equal(upstream, kind, block, region)?;
        Ok(BlockPool { pool, start, block, region, blocks: count, name })
    }
}

impl BlockPool {
    /// Returns the builder of a pool of `blocks` blocks with the size and alignment of `block`. The
    /// size is rounded up to a multiple of the alignment. On the host, each block takes some 100
    /// bytes from its first use on.
    pub fn builder(block: Layout, blocks: usize) -> BlockPoolBuilder {
        BlockPoolBuilder { name: None, block, blocks }
    }
}

impl<A: DeviceAllocator> BlockPool<A> {
    /// Size and alignment of a block: the largest layout that the pool serves.
    pub fn block(&self) -> Layout {
        self.block
    }

    /// Start address of the pool.
    pub fn address(&self) -> u64 {
        self.start
    }

    /// The upstream allocator.
    pub fn upstream(&self) -> &A {
        self.pool.upstream()
    }

    /// Statistics since the pool was created.
    pub fn stats(&self) -> BlockPoolStats {
        let stats = self.pool.stats();
        let (blocks, live_blocks) = (u64::from(self.blocks), stats.live_blocks);
        BlockPoolStats {
            usage: self.usage_of(live_blocks),
            blocks,
            free_blocks: blocks.saturating_sub(live_blocks),
            live_blocks,
            hits: stats.hits,
            misses: stats.misses,
        }
    }

    fn usage_of(&self, live: u64) -> Usage {
        let size = self.block.size() as u64;
        Usage {
            used_bytes: live * size,
            reserved_bytes: self.region.size() as u64,
            largest_free_bytes: Some(if live < u64::from(self.blocks) { size } else { 0 }),
        }
    }

    #[cold]
    fn unsupported(&self, layout: Layout) -> Error {
        let why = format!("its blocks are {}; allocate it from another pool", describe(self.block));
        invalid_layout(&*self.name, layout, why)
    }

    #[cold]
    fn out_of_memory(&self, layout: Layout) -> Error {
        let all = Bytes(self.region.size() as u64);
        let error = Error::OutOfMemory(OutOfMemory::Pool {
            allocator: self.name.clone(),
            requested: Bytes(layout.size() as u64),
            used: all,
            reserved: all,
            cached: Bytes(0),
            largest: Bytes(0),
            advice: "free blocks, or build it with more",
            report: None,
        });
        explain(error, layout, self)
    }

    /// The error for an invalid free.
    #[cold]
    fn invalid_free(&self, address: u64, layout: Layout, error: ClaimError) -> Error {
        let (size, bytes) = (self.block.size() as u64, self.region.size() as u64);
        let why = match address.checked_sub(self.start).filter(|offset| *offset < bytes) {
            None => format!("it is not in the {} at {:#x} of the pool", Bytes(bytes), self.start),
            Some(offset) if offset % size > 0 => {
                let (index, start) = (offset / size, address - offset % size);
                format!("it lies inside of block {index}, which starts at {start:#x}")
            }
            Some(offset) => match error {
                ClaimError::Layout(given) => {
                    let index = offset / size;
                    format!("block {index}: {}", wrong_layout(given, layout))
                }
                ClaimError::Free | ClaimError::Unknown => format!("block {} is already free", offset / size),
            },
        };
        invalid_free(&*self.name, address, why)
    }
}

// SAFETY: A1 to A3 hold for the caching pool; its blocks do not overlap (I1). `allocate` accepts
// only layouts that fit the size and alignment of a block (A1).
unsafe impl<A: DeviceAllocator> DeviceAllocator for BlockPool<A> {
    fn device(&self) -> &Device {
        self.pool.device()
    }

    #[inline]
    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        check_request(&self.name, self.device(), layout, stream)?;
        if layout.size() > self.block.size() || layout.align() > self.block.align() {
            return Err(self.unsupported(layout));
        }
        match self.pool.alloc_cached(&self.pool.need_of_equal(), layout, stream) {
            Some(ptr) => Ok(ptr),
            None => self.pool.alloc_equal(layout, stream)?.ok_or_else(|| self.out_of_memory(layout)),
        }
    }

    #[inline]
    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        self.device().same_as(stream.device(), "the stream")?;
        let address = address_of(ptr);
        // SAFETY: the caller's promises P1 and P2. The stream is of the device: checked above (P3).
        let outcome = unsafe { self.pool.free_recent(address, layout, stream) };
        if outcome == FreeOutcome::Cached {
            return Ok(());
        }
        let freed = self.pool.free_slow(outcome, address, layout, stream);
        freed.map_err(|error| self.invalid_free(address, layout, error))
    }

    fn usage(&self) -> Usage {
        self.usage_of(self.pool.usage().used_bytes / self.block.size() as u64)
    }

    fn report(&self) -> MemoryReport {
        // Any free block can be allocated, so their places do not matter.
        let (report, allocator) = (self.pool.report(), self.name.clone());
        MemoryReport { allocator, largest_free_bytes: None, free_ranges: None, ..report }.concluded()
    }
}

impl<A: DeviceAllocator> fmt::Debug for BlockPool<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let free = self.stats().free_blocks;
        write!(f, "{} at {:#x}, {free} of them free", self.name, self.start)
    }
}
