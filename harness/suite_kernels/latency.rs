//! Calls that are timed one by one, by the clock of the multiprocessor.
//!
//! A call's duration is the difference of two reads of the clock by the calling thread. The lanes
//! of a warp that call together have the same duration. All kernels store a duration for each call:
//! call `t` of thread `i` in entry `t * threads + i`.

use super::common::{Sizes, block_at, layout, store, touch};
use super::malloc::CudaMalloc;
use core::alloc::Layout;
use core::ptr::NonNull;
use warpheap_device::heap::Heap;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{kernel, thread};

/// The bit of a duration that marks a failed allocation.
pub const FAILED: u64 = 1 << 63;
/// In place of a duration: there was no block to free.
pub const NOT_CALLED: u64 = u64::MAX;

/// An allocator whose calls are timed.
trait Timed {
    fn timed_alloc(&self, layout: Layout) -> Option<NonNull<u8>>;

    /// # Safety
    /// A block of this allocator that was not freed and that no thread uses any more.
    unsafe fn timed_free(&self, block: NonNull<u8>);
}

impl Timed for Heap {
    #[inline(always)]
    fn timed_alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.alloc(layout)
    }

    #[inline(always)]
    unsafe fn timed_free(&self, block: NonNull<u8>) {
        // SAFETY: the caller's promise.
        unsafe { self.free(block) }
    }
}

impl Timed for CudaMalloc {
    #[inline(always)]
    fn timed_alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.alloc(layout)
    }

    #[inline(always)]
    unsafe fn timed_free(&self, block: NonNull<u8>) {
        // SAFETY: the caller's promise.
        unsafe { self.free(block) }
    }
}

/// Stores a duration. Only this thread stores in entry `i`.
#[inline(always)]
fn store_duration(durations: DeviceSlice<u64>, i: u64, duration: u64) {
    // SAFETY: the kernels' callers promise live memory that nothing else accesses.
    unsafe { durations.set(i, duration) };
}

/// Allocates, and stores the duration in entry `i`.
#[inline(always)]
fn alloc<A: Timed>(memory: &A, layout: Layout, durations: DeviceSlice<u64>, i: u64) -> Option<NonNull<u8>> {
    let start = thread::clock();
    let block = memory.timed_alloc(layout);
    let duration = thread::clock() - start;
    store_duration(durations, i, if block.is_some() { duration } else { duration | FAILED });
    block
}

/// Frees, and stores the duration in entry `i`.
///
/// # Safety
/// A block of `memory` that was not freed and that no thread uses any more.
#[inline(always)]
unsafe fn free<A: Timed>(memory: &A, block: Option<NonNull<u8>>, durations: DeviceSlice<u64>, i: u64) {
    let Some(block) = block else { return store_duration(durations, i, NOT_CALLED) };
    let start = thread::clock();
    // SAFETY: the caller's promise.
    unsafe { memory.timed_free(block) };
    store_duration(durations, i, thread::clock() - start);
}

/// Repeatedly allocates a block, stores 8 bytes in it and frees it.
#[inline(always)]
fn churn<A: Timed>(memory: &A, sizes: Sizes, turns: u32, allocs: DeviceSlice<u64>, frees: DeviceSlice<u64>) {
    let i = thread::index_1d();
    let layout = layout(sizes.of(i));
    for turn in 0..turns {
        let entry = u64::from(turn) * u64::from(thread::threads_1d()) + u64::from(i);
        let block = alloc(memory, layout, allocs, entry);
        if let Some(block) = block {
            // SAFETY: this thread owns the block, which holds 8 bytes.
            unsafe { touch(block.as_ptr(), entry) };
        }
        // SAFETY: allocated above and not used afterwards.
        unsafe { free(memory, block, frees, entry) };
    }
}

kernel! {
    /// Every thread allocates from a heap and stores the address.
    ///
    /// # Safety
    /// `out` and `durations` are live and nothing else accesses them; the heap is live.
    pub unsafe fn suite_heap_alloc_latency(
        heap: Heap,
        sizes: Sizes,
        out: DeviceSlice<u64>,
        durations: DeviceSlice<u64>,
    ) {
        let i = thread::index_1d();
        store(out, i, alloc(&heap, layout(sizes.of(i)), durations, i.into()));
    }

    /// Every thread frees its block, if it has one.
    ///
    /// # Safety
    /// The blocks in `blocks` were allocated from the heap, and each is freed once. `durations` are
    /// live and nothing else accesses them.
    pub unsafe fn suite_heap_free_latency(heap: Heap, blocks: DeviceSlice<u64>, durations: DeviceSlice<u64>) {
        let i = u64::from(thread::index_1d());
        // SAFETY: the caller's promises: a block of the heap, freed once.
        unsafe { free(&heap, block_at(blocks, i), durations, i) };
    }

    /// Every thread repeatedly allocates a block, stores 8 bytes in it and frees it.
    ///
    /// # Safety
    /// The heap is live, and sizes are at least 8 bytes. `allocs` and `frees` are live and nothing
    /// else accesses them.
    pub unsafe fn suite_heap_churn_latency(
        heap: Heap,
        sizes: Sizes,
        turns: u32,
        allocs: DeviceSlice<u64>,
        frees: DeviceSlice<u64>,
    ) {
        churn(&heap, sizes, turns, allocs, frees);
    }

    /// As [`suite_heap_alloc_latency`], by CUDA's `malloc`.
    ///
    /// # Safety
    /// `out` and `durations` are live and nothing else accesses them.
    pub unsafe fn suite_malloc_alloc_latency(
        sizes: Sizes,
        out: DeviceSlice<u64>,
        durations: DeviceSlice<u64>,
    ) {
        let i = thread::index_1d();
        store(out, i, alloc(&CudaMalloc, layout(sizes.of(i)), durations, i.into()));
    }

    /// As [`suite_heap_free_latency`], by CUDA's `free`.
    ///
    /// # Safety
    /// The blocks in `blocks` were allocated by CUDA's `malloc`, and each is freed once.
    /// `durations` are live and nothing else accesses them.
    pub unsafe fn suite_malloc_free_latency(blocks: DeviceSlice<u64>, durations: DeviceSlice<u64>) {
        let i = u64::from(thread::index_1d());
        // SAFETY: the caller's promises: a block of `malloc`, freed once.
        unsafe { free(&CudaMalloc, block_at(blocks, i), durations, i) };
    }

    /// As [`suite_heap_churn_latency`], by CUDA's `malloc` and `free`.
    ///
    /// # Safety
    /// Sizes are at least 8 bytes. `allocs` and `frees` are live and nothing else accesses them.
    pub unsafe fn suite_malloc_churn_latency(
        sizes: Sizes,
        turns: u32,
        allocs: DeviceSlice<u64>,
        frees: DeviceSlice<u64>,
    ) {
        churn(&CudaMalloc, sizes, turns, allocs, frees);
    }
}
