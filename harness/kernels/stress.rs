//! The kernels of the stress harness. What they do is in `warpheap_device::check`.

use core::ptr::NonNull;
use warpheap_device::bump::Bump;
use warpheap_device::check::census;
use warpheap_device::freelist::FreeList;
use warpheap_device::heap::Heap;
use warpheap_device::kernel;
use warpheap_device::kernel::DevicePtr;
use warpheap_device::stress_kernels;
use warpheap_device::sync::AtomicU64;

stress_kernels! { Bump { stress: stress_bump, grab: grab_bump, give_back: give_back_bump } }

stress_kernels! {
    FreeList {
        stress: stress_freelist,
        grab: grab_freelist,
        give_back: give_back_freelist,
        exchange: exchange_freelist,
        free_twice: plant_double_free,
    }
}

stress_kernels! {
    Heap {
        stress: stress_heap,
        grab: grab_heap,
        give_back: give_back_heap,
        exchange: exchange_heap,
        free_twice: plant_double_free_heap,
    }
}

stress_kernels!(checks);

kernel! {
    /// Takes a whole heap at once: see [`census::take_whole`]. For one thread.
    ///
    /// # Safety
    /// As for [`census::take_whole`].
    pub unsafe fn take_whole_heap(pool: Heap, answer: DevicePtr<u64>) {
        // SAFETY: the caller's promise; an atomic has the layout of its integer.
        let answer = unsafe { &*answer.0.cast::<AtomicU64>() };
        // SAFETY: the caller's promise.
        unsafe { census::take_whole(&pool, answer) }
    }

    /// Makes the block pool hand out a live block again. For one thread.
    ///
    /// # Safety
    /// As for `FreeList::corrupt_unclaim`.
    pub unsafe fn plant_overlap_freelist(pool: FreeList, address: u64) {
        if let Some(block) = NonNull::new(address as *mut u8) {
            // SAFETY: the caller's promise.
            unsafe { pool.corrupt_unclaim(block) };
        }
    }

    /// Makes the arena hand out memory again. For one thread.
    ///
    /// # Safety
    /// As for `Bump::corrupt_rewind`.
    pub unsafe fn plant_overlap_bump(pool: Bump, bytes: u64) {
        // SAFETY: the caller's promise.
        unsafe { pool.corrupt_rewind(bytes) }
    }

    /// Makes the heap hand out a live block again, by a free behind its owner's back. For one thread.
    ///
    /// # Safety
    /// Never safe for the owner, which is the purpose. No one else uses the heap at the moment.
    pub unsafe fn plant_overlap_heap(pool: Heap, address: u64) {
        if let Some(block) = NonNull::new(address as *mut u8) {
            // SAFETY: the caller's promise.
            unsafe { pool.free(block) };
        }
    }
}
