//! Kernels in Rust that use a heap together with kernels in CUDA C++, and the same work for
//! timings. `bindings/c/gpu/kernels.cuh` has their counterparts.

mod exchange;

use core::alloc::Layout;
use core::ptr::NonNull;
pub use exchange::{Counts, ExchangeRound, Heaps, exchange};
use warpheap_device::heap::Heap;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::sync::poke_u64;
use warpheap_device::{kernel, thread};

#[inline(always)]
fn alloc(heap: &Heap, bytes: u32) -> *mut u8 {
    let layout = Layout::from_size_align(bytes as usize, 16).ok();
    layout.and_then(|layout| heap.alloc(layout)).map_or(core::ptr::null_mut(), NonNull::as_ptr)
}

kernel! {
    /// Every thread allocates and stores the address.
    ///
    /// # Safety
    /// The heap is live. `blocks` is live, and only this kernel accesses it.
    pub unsafe fn rust_alloc(heap: Heap, blocks: DeviceSlice<u64>, bytes: u32) {
        let block = alloc(&heap, bytes);
        // SAFETY: each thread writes its own word.
        unsafe { blocks.set(thread::index_1d().into(), block as u64) };
    }

    /// Every thread frees its block.
    ///
    /// # Safety
    /// As for [`rust_alloc`], which wrote `blocks`.
    pub unsafe fn rust_free(heap: Heap, blocks: DeviceSlice<u64>) {
        // SAFETY: nothing writes to `blocks`.
        let block = unsafe { blocks.get(thread::index_1d().into()) };
        if let Some(block) = block.and_then(|block| NonNull::new(block as *mut u8)) {
            // SAFETY: allocated by `rust_alloc`, and freed once.
            unsafe { heap.free(block) };
        }
    }

    /// Every thread repeatedly allocates a block, stores 8 bytes in it and frees it. Counts failed
    /// allocations.
    ///
    /// # Safety
    /// The heap and `counts` are live.
    pub unsafe fn rust_pairs(heap: Heap, counts: DeviceSlice<u64>, turns: u32, bytes: u32) {
        let mut failures = 0;
        for turn in 0..turns {
            let Some(block) = NonNull::new(alloc(&heap, bytes)) else {
                failures += 1;
                continue;
            };
            // SAFETY: this thread owns the block, which has 8 bytes and is aligned to 16.
            unsafe { poke_u64(block.as_ptr().cast(), u64::from(thread::index_1d()) << 32 | u64::from(turn)) };
            // SAFETY: allocated above and not used afterwards.
            unsafe { heap.free(block) };
        }
        if failures > 0 {
            Counts::of(counts).add_failures(failures);
        }
    }

    /// One thread's part of an exchange: see [`exchange()`].
    ///
    /// # Safety
    /// As for [`exchange()`].
    pub unsafe fn rust_exchange(
        heap: Heap,
        cells: DeviceSlice<u64>,
        counts: DeviceSlice<u64>,
        round: ExchangeRound,
    ) {
        let own = Heaps {
            alloc: |bytes| alloc(&heap, bytes),
            // SAFETY: the exchange frees a block that it owns.
            free: |block| unsafe { heap.free(block) },
        };
        // SAFETY: the caller's promise.
        unsafe { exchange(&own, cells, Counts::of(counts), round) }
    }
}
