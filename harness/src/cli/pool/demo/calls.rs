//! Calls of pools, with the injected fault of a stage.

use super::fault::{Fault, First};
use super::stage::Stage;
use std::alloc::Layout;
use std::sync::{MutexGuard, PoisonError};
use warpheap::host_pools::DeviceAllocator;
use warpheap::{Result, Stream};
use warpheap_device::kernel::{DevicePtr, DeviceSlice};

pub const MIB: usize = 1 << 20;

/// Additional bytes of each leaked block.
const LEAK: usize = 32 << 20;

pub type Block = DevicePtr<u8>;

pub fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 256).expect("a size far below isize::MAX")
}

/// The words of a block of `bytes`.
pub fn words(block: Block, bytes: usize) -> DeviceSlice<u32> {
    // SAFETY: the block has that many bytes, and a launch checks that they are live.
    unsafe { DeviceSlice::from_raw_parts(block.0.cast(), bytes as u64 / 4) }
}

// With an injected fault, blocks may overlap and work may be unordered, on purpose: the launches of
// a step fail unless the memory is live, and its kernels that access the same words are ordered by
// `Stage::hold`.
impl Stage {
    pub fn allocate(&self, pool: &impl DeviceAllocator, layout: Layout, stream: &Stream) -> Result<Block> {
        if self.fault.is_none() {
            return pool.allocate(layout, stream);
        }
        match &mut *self.first() {
            Some(first) if self.has(Fault::Overlapping) => {
                first.times += 1;
                return Ok(first.block);
            }
            Some(_) if self.has(Fault::Elsewhere) => return self.other_memory.allocate(layout, stream),
            _ => {}
        }
        // Without the lock: threads allocate concurrently.
        let outcome = pool.allocate(self.changed(layout), self.seen(stream));
        match &outcome {
            Ok(block) => {
                self.first().get_or_insert(First { block: *block, layout, times: 1 });
            }
            Err(_) if self.has(Fault::FailureConsumes) => drop(pool.allocate(Layout::new::<u8>(), stream)),
            Err(_) => {}
        }
        outcome
    }

    /// Frees a block. Steps use it afterwards only by work submitted to the stream before, or on
    /// purpose in a way that is rejected.
    pub fn free(
        &self,
        pool: &impl DeviceAllocator,
        block: Block,
        layout: Layout,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: P1 as described above. P2: of this pool, or of no pool, which is an error.
        let free = |layout| unsafe { pool.deallocate(block, layout, self.seen(stream)) };
        // SAFETY: as above, for a block of the other memory.
        let free_other = || unsafe { self.other_memory.deallocate(block, layout, stream) };
        match self.fault {
            Some(Fault::Keeps | Fault::Leaks) => Ok(()),
            Some(Fault::Overlapping) => self.end_share(block, layout).map_or(Ok(()), free),
            Some(Fault::Elsewhere) => free(layout).or_else(|_| free_other()),
            _ => free(self.changed(layout)),
        }
    }

    /// Drops the handle of a block.
    pub fn release_memory<T>(&self, handle: T) {
        if self.has(Fault::Leaks) { std::mem::forget(handle) } else { drop(handle) }
    }

    /// The stream that is passed to the pool.
    pub fn seen<'a>(&'a self, stream: &'a Stream) -> &'a Stream {
        if self.has(Fault::Unordered) { &self.other_stream } else { stream }
    }

    fn changed(&self, layout: Layout) -> Layout {
        let changed = match self.fault {
            Some(Fault::Misaligned) => Layout::from_size_align(layout.size(), 1),
            Some(Fault::Leaks) => Layout::from_size_align(layout.size() + LEAK, layout.align()),
            _ => Ok(layout),
        };
        changed.expect("a size far below isize::MAX")
    }

    /// The layout to free the block with, or `None` if it is the first block and still shared.
    /// Threads that allocated the first block at the same time got different ones.
    fn end_share(&self, block: Block, layout: Layout) -> Option<Layout> {
        let mut first = self.first();
        let Some(shared) = first.as_mut().filter(|first| first.block.0 == block.0) else {
            return Some(layout);
        };
        shared.times -= 1;
        if shared.times > 0 { None } else { first.take().map(|shared| shared.layout) }
    }

    fn first(&self) -> MutexGuard<'_, Option<First>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
