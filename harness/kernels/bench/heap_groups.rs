//! What the benchmarks of the heap's group calls time.

use super::heap::layout;
use super::{Counter, Sizes, count, store, touch};
use warpheap_device::heap::{BlockCache, Heap};
use warpheap_device::kernel;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::thread;

/// Threads with slots: all of a block of the benchmarks.
pub const CACHE_THREADS: u32 = 256;

kernel! {
    /// Every thread allocates a block through its block's cache, stores 8 bytes in it and frees it, again and again.
    ///
    /// # Safety
    /// The heap is live, sizes are 8 bytes at least, and all threads ask for the same.
    pub unsafe fn bench_heap_churn_cached(heap: Heap, sizes: Sizes, turns: u32, failures: Counter) {
        let i = thread::index_1d();
        let size = sizes.of(i);
        // SAFETY: all threads come here first, and the block has no other cache.
        let mut cache = unsafe { BlockCache::<CACHE_THREADS, 4>::begin(&heap, layout(size)) };
        for turn in 0..turns {
            let Some(block) = cache.alloc(layout(size)) else {
                count(failures.0);
                continue;
            };
            // SAFETY: the block is this thread's and holds 8 bytes.
            unsafe { touch(block.as_ptr(), u64::from(i) << 32 | u64::from(turn)) };
            // SAFETY: allocated above and not used after.
            unsafe { cache.free(block) };
        }
    }

    /// Every block of threads allocates for all of them at once; every thread stores the address of its piece.
    ///
    /// # Safety
    /// `out` is live and no one else touches it; the heap is live; all threads ask for the same.
    pub unsafe fn bench_heap_alloc_each(heap: Heap, out: DeviceSlice<u64>, sizes: Sizes) {
        let i = thread::index_1d();
        // SAFETY: all threads come here, with one layout.
        let share = unsafe { heap.alloc_block_each(layout(sizes.of(i))) };
        store(out, i, share.map(|share| share.piece));
    }

    /// Every block of threads gives back what it allocated for all of them: the piece of its first thread is the
    /// start of the whole.
    ///
    /// # Safety
    /// `blocks` was written by [`bench_heap_alloc_each`] in a launch of the same size.
    pub unsafe fn bench_heap_free_each(heap: Heap, blocks: DeviceSlice<u64>, failures: Counter) {
        let first = thread::index_1d() - thread::thread_idx_x();
        // SAFETY: only read.
        let address = unsafe { blocks.get(first.into()) }.unwrap_or(0);
        match core::ptr::NonNull::new(address as *mut u8) {
            // SAFETY: all threads of the block come here, with the same address.
            Some(whole) => unsafe { heap.free_block(whole) },
            None => count(failures.0),
        }
    }
}
