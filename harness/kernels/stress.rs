//! Kernels of the stress harness. Their bodies are in `warpheap_device::check`.

use core::ptr::NonNull;
use warpheap_device::bump::Bump;
use warpheap_device::check::census;
use warpheap_device::freelist::FreeList;
use warpheap_device::heap::Heap;
use warpheap_device::kernel;
use warpheap_device::kernel::DevicePtr;
use warpheap_device::stress_kernels;
use warpheap_device::sync::AtomicU64;

stress_kernels! { Bump { stress: stress_bump, exhaust: exhaust_bump, free_all: free_all_bump } }

stress_kernels! {
    FreeList {
        stress: stress_freelist,
        exhaust: exhaust_freelist,
        free_all: free_all_freelist,
        exchange: exchange_freelist,
        free_twice: plant_double_free,
    }
}

stress_kernels! {
    Heap {
        stress: stress_heap,
        exhaust: exhaust_heap,
        free_all: free_all_heap,
        exchange: exchange_heap,
        free_twice: plant_double_free_heap,
    }
}

stress_kernels!(checks);

kernel! {
    /// Allocates all of a heap at once: see [`census::alloc_entire_pool`]. For one thread.
    ///
    /// # Safety
    /// As for [`census::alloc_entire_pool`].
    pub unsafe fn take_whole_heap(pool: Heap, answer: DevicePtr<u64>) {
        // SAFETY: the caller's promise: live. An atomic has the layout of its integer.
        let answer = unsafe { &*answer.0.cast::<AtomicU64>() };
        // SAFETY: the caller's promises are those of `alloc_entire_pool`.
        unsafe { census::alloc_entire_pool(&pool, answer) }
    }

    /// Makes the block pool allocate a live block again. For one thread.
    ///
    /// # Safety
    /// As for `FreeList::corrupt_unclaim`.
    pub unsafe fn plant_overlap_freelist(pool: FreeList, address: u64) {
        if let Some(block) = NonNull::new(address as *mut u8) {
            // SAFETY: `corrupt_unclaim`'s promise, which this kernel's caller gives.
            unsafe { pool.corrupt_unclaim(block) };
        }
    }

    /// Makes the arena allocate the same memory again. For one thread.
    ///
    /// # Safety
    /// As for `Bump::corrupt_rewind`.
    pub unsafe fn plant_overlap_bump(pool: Bump, bytes: u64) {
        // SAFETY: `corrupt_rewind`'s promise, which this kernel's caller gives.
        unsafe { pool.corrupt_rewind(bytes) }
    }

    /// Makes the heap allocate a live block again: frees the block without its owner's knowledge.
    /// For one thread.
    ///
    /// # Safety
    /// Never safe for the block's owner: that is the purpose. No other thread uses the heap during
    /// the call.
    pub unsafe fn plant_overlap_heap(pool: Heap, address: u64) {
        if let Some(block) = NonNull::new(address as *mut u8) {
            // SAFETY: the free of a live block is intended, and no other thread uses the heap.
            unsafe { pool.free(block) };
        }
    }
}
