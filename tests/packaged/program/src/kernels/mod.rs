//! Kernels of a user's program.

use core::alloc::Layout;
use warpheap_device::heap::Heap;
use warpheap_device::kernel::{DeviceSlice, Pod};
use warpheap_device::{kernel, thread};

kernel! {
    /// Thread `i` squares `i` in a block of the heap, times one number and plus another.
    ///
    /// # Safety
    /// `out` and the heap are live, and no other kernel touches `out`.
    pub unsafe fn user_square(heap: Heap, factors: Pod<[u64; 2]>, out: DeviceSlice<u64>) {
        let i = u64::from(thread::index_1d());
        let Some(block) = heap.alloc(Layout::new::<u64>()) else { return };
        let place = block.cast::<u64>();
        // SAFETY: the block is this thread's, 8 bytes long and aligned to 16.
        unsafe { place.write(i * i) };
        // SAFETY: written above, by this thread.
        let squared = unsafe { place.read() };
        // SAFETY: allocated above, and not used after.
        unsafe { heap.free(block) };
        // SAFETY: each thread writes its own element.
        unsafe { out.set(i, factors.0[0] * squared + factors.0[1]) };
    }
}
