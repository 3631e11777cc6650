//! Kernels of the benchmarks of the heap's group calls.

use super::common::{Counter, Sizes, block_at, count, layout, store, touch};
use warpheap_device::heap::{BlockCache, Heap};
use warpheap_device::kernel;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::thread;

/// Threads with cache slots: all threads of a block in the benchmarks.
pub const CACHE_THREADS: u32 = 256;

kernel! {
    /// Every thread repeatedly allocates a block through the cache of its thread block, stores 8
    /// bytes in it and frees it.
    ///
    /// # Safety
    /// The heap is live, sizes are at least 8 bytes, and all threads use the same size.
    pub unsafe fn bench_heap_churn_cached(heap: Heap, sizes: Sizes, turns: u32, failures: Counter) {
        let i = thread::index_1d();
        let size = sizes.of(i);
        // SAFETY: all threads execute this call first, and the block has no other cache.
        let mut cache = unsafe { BlockCache::<CACHE_THREADS, 4>::begin(&heap, layout(size)) };
        for turn in 0..turns {
            let Some(block) = cache.alloc(layout(size)) else {
                count(failures);
                continue;
            };
            // SAFETY: this thread owns the block, which holds 8 bytes.
            unsafe { touch(block.as_ptr(), u64::from(i) << 32 | u64::from(turn)) };
            // SAFETY: allocated above and not used afterwards.
            unsafe { cache.free(block) };
        }
    }

    /// Every thread block allocates for all its threads at once. Every thread stores the address of
    /// its piece.
    ///
    /// # Safety
    /// `out` is live and nothing else accesses it. The heap is live. All threads use the same size.
    pub unsafe fn bench_heap_alloc_each(heap: Heap, out: DeviceSlice<u64>, sizes: Sizes) {
        let i = thread::index_1d();
        // SAFETY: all threads execute this call, with one layout.
        let share = unsafe { heap.alloc_block_each(layout(sizes.of(i))) };
        store(out, i, share.map(|share| share.piece));
    }

    /// Every thread block frees what it allocated for all its threads. The piece of its first
    /// thread is the start of the allocation.
    ///
    /// # Safety
    /// `blocks` was written by [`bench_heap_alloc_each`] in a launch of the same size.
    pub unsafe fn bench_heap_free_each(heap: Heap, blocks: DeviceSlice<u64>, failures: Counter) {
        let first = thread::index_1d() - thread::thread_idx_x();
        match block_at(blocks, first.into()) {
            // SAFETY: all threads of the block execute this call with the same address.
            Some(whole) => unsafe { heap.free_block(whole) },
            None => count(failures),
        }
    }
}
