//! Kernels of the benchmarks of the heap and its group calls.

use super::common::{Counter, Order, Sizes, block_at, count, layout, mix, reread, store, touch};
use warpheap_device::heap::{BlockCache, Heap};
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::thread;
use warpheap_device::{kernel, kernel_arg};

kernel_arg! {
    /// Where the threads of a churn without a heap write: thread `i` in turn `t` writes word
    /// `i * stride + t * step`.
    #[derive(Debug, PartialEq, Eq)]
    pub struct Places {
        /// The distance between the places of adjacent threads, in words of 8 bytes.
        pub stride: u32,
        /// The distance between a thread's places in consecutive turns, in words of 8 bytes; 0 if
        /// it uses one place for all turns.
        pub step: u32,
    }
}

const _: () = assert!(size_of::<Places>() == 8 && align_of::<Places>() == 4);

/// Threads with cache slots: all threads of a block in the benchmarks.
pub const CACHE_THREADS: u32 = 256;

kernel! {
    /// Every thread allocates from a heap and stores the address.
    ///
    /// # Safety
    /// `out` is live and nothing else accesses it; the heap is live.
    pub unsafe fn bench_heap_alloc(heap: Heap, out: DeviceSlice<u64>, sizes: Sizes) {
        let i = thread::index_1d();
        store(out, i, heap.alloc(layout(sizes.of(i))));
    }

    /// Every thread frees one block.
    ///
    /// # Safety
    /// `blocks` were allocated from the heap, and each is named once.
    pub unsafe fn bench_heap_free(heap: Heap, blocks: DeviceSlice<u64>, order: Order, failures: Counter) {
        match block_at(blocks, order.place(thread::index_1d())) {
            // SAFETY: the caller's promises: a block of the heap, named once.
            Some(block) => unsafe { heap.free(block) },
            None => count(failures),
        }
    }

    /// Every thread frees its block, if it has one.
    ///
    /// # Safety
    /// The blocks in `blocks` were allocated from the heap, and each is freed once.
    pub unsafe fn bench_heap_free_sparse(heap: Heap, blocks: DeviceSlice<u64>) {
        if let Some(block) = block_at(blocks, thread::index_1d().into()) {
            // SAFETY: the caller's promises: a block of the heap, freed once.
            unsafe { heap.free(block) };
        }
    }

    /// One lane in 32 allocates. Every thread stores an address or null.
    ///
    /// # Safety
    /// `out` is live and nothing else accesses it; the heap is live.
    pub unsafe fn bench_heap_alloc_sparse(heap: Heap, out: DeviceSlice<u64>, sizes: Sizes) {
        let i = thread::index_1d();
        let block = if i.is_multiple_of(32) { heap.alloc(layout(sizes.of(i))) } else { None };
        store(out, i, block);
    }

    /// Every thread repeatedly allocates a block, stores 8 bytes in it and frees it.
    ///
    /// # Safety
    /// The heap is live, and sizes are at least 8 bytes.
    pub unsafe fn bench_heap_churn(heap: Heap, sizes: Sizes, turns: u32, failures: Counter) {
        let i = thread::index_1d();
        let size = sizes.of(i);
        for turn in 0..turns {
            let Some(block) = heap.alloc(layout(size)) else {
                count(failures);
                continue;
            };
            // SAFETY: this thread owns the block, which holds 8 bytes.
            unsafe { touch(block.as_ptr(), u64::from(i) << 32 | u64::from(turn)) };
            // SAFETY: allocated above and not used afterwards.
            unsafe { heap.free(block) };
        }
    }

    /// Every thread repeatedly allocates a block, of a different size each time, writes its index
    /// to it, reads it back and frees the block.
    ///
    /// # Safety
    /// The heap is live, and sizes are at least 8 bytes.
    pub unsafe fn bench_heap_churn_mixed(heap: Heap, sizes: Sizes, turns: u32, failures: Counter) {
        let i = thread::index_1d();
        for turn in 0..turns {
            let size = sizes.of(mix(i) ^ turn);
            let Some(block) = heap.alloc(layout(size)) else {
                count(failures);
                continue;
            };
            let value = u64::from(i) << 32 | u64::from(turn);
            // SAFETY: this thread owns the block, which holds 8 bytes.
            unsafe { touch(block.as_ptr(), value) };
            // SAFETY: written above.
            if unsafe { reread(block.as_ptr()) } != value {
                count(failures);
            }
            // SAFETY: allocated above and not used afterwards.
            unsafe { heap.free(block) };
        }
    }

    /// The floor of [`bench_heap_churn_mixed`], without a heap: every thread uses its places from
    /// `places`.
    ///
    /// # Safety
    /// `memory` is live, and nothing else accesses it. It has a word for each turn of each thread,
    /// and no two threads share one.
    pub unsafe fn bench_churn_mixed_floor(
        memory: DeviceSlice<u64>,
        places: Places,
        sizes: Sizes,
        turns: u32,
        failures: Counter,
    ) {
        let i = thread::index_1d();
        for turn in 0..turns {
            let size = sizes.of(mix(i) ^ turn);
            let place = u64::from(i) * u64::from(places.stride) + u64::from(turn) * u64::from(places.step);
            // SAFETY: the caller's third promise: a word for each turn of each thread.
            let mine = unsafe { memory.as_ptr().add(place as usize) };
            let value = (u64::from(i) << 32 | u64::from(turn)) + u64::from(size);
            // SAFETY: no other thread uses this word.
            unsafe { touch(mine.cast(), value) };
            // SAFETY: written above.
            if unsafe { reread(mine.cast()) } != value {
                count(failures);
            }
        }
    }

    /// Every thread for which the hash of its index and `seed` is odd frees its block, clears the
    /// entry and counts the free: a random half of all threads.
    ///
    /// # Safety
    /// Each entry of `blocks` is null or a block of the heap, and each block is named once. Nothing
    /// else accesses `blocks` or the counter.
    pub unsafe fn bench_heap_free_half(heap: Heap, blocks: DeviceSlice<u64>, seed: u32, freed: Counter) {
        let i = thread::index_1d();
        let is_freed = |_: &_| mix(i ^ mix(seed)) & 1 == 1;
        let Some(block) = block_at(blocks, i.into()).filter(is_freed) else { return };
        // SAFETY: the caller's promises: a block of the heap, named once.
        unsafe { heap.free(block) };
        // SAFETY: each thread writes its own entry.
        unsafe { blocks.set(i.into(), 0) };
        count(freed);
    }

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
