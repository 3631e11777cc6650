//! Kernels of an application.

use core::alloc::Layout;
use warpheap_device::heap::Heap;
use warpheap_device::kernel::{DeviceSlice, Pod};
use warpheap_device::{kernel, thread};

kernel! {
    /// Thread `i` computes the square of `i` in a block of the heap, multiplies it by the first
    /// factor and adds the second.
    ///
    /// # Safety
    /// `out` and the heap are live, and no other kernel accesses `out`.
    pub unsafe fn user_square(heap: Heap, factors: Pod<[u64; 2]>, out: DeviceSlice<u64>) {
        let i = u64::from(thread::index_1d());
        let Some(block) = heap.alloc(Layout::new::<u64>()) else { return };
        let place = block.cast::<u64>();
        // SAFETY: this thread owns the block, which has 8 bytes and is aligned to 16.
        unsafe { place.write(i * i) };
        // SAFETY: initialised above by this thread.
        let squared = unsafe { place.read() };
        // SAFETY: allocated above and not used afterwards.
        unsafe { heap.free(block) };
        // SAFETY: each thread writes its own element.
        unsafe { out.set(i, factors.0[0] * squared + factors.0[1]) };
    }
}
