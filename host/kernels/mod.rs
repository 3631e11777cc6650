//! The kernels that the library itself launches: the host's own allocations from a heap, and what it gives back.

use core::alloc::Layout;
use core::ptr::NonNull;
use warpheap_device::heap::Heap;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{kernel, thread};

kernel! {
    /// Thread `i` asks for request `i`, a size and an alignment, and writes the block's address, or 0 if there is none.
    ///
    /// # Safety
    /// The heap is live, `requests` are, and `blocks` has as many words that no one else touches.
    pub unsafe fn heap_alloc_many(heap: Heap, requests: DeviceSlice<[u64; 2]>, blocks: DeviceSlice<u64>) {
        let i = thread::index_1d().into();
        // SAFETY: only read.
        let Some([size, align]) = (unsafe { requests.get(i) }) else { return };
        let layout = Layout::from_size_align(size as usize, align as usize);
        let block = layout.ok().and_then(|layout| heap.alloc(layout));
        // SAFETY: each thread has its own word.
        unsafe { blocks.set(i, block.map_or(0, |block| block.as_ptr() as u64)) };
    }

    /// Thread `i` gives the block at address `i` back.
    ///
    /// # Safety
    /// The heap and `blocks` are live, and no one uses the blocks any more.
    pub unsafe fn heap_free_many(heap: Heap, blocks: DeviceSlice<u64>) {
        // SAFETY: only read.
        let block = unsafe { blocks.get(thread::index_1d().into()) };
        if let Some(block) = block.and_then(|block| NonNull::new(block as *mut u8)) {
            // SAFETY: the caller's promise.
            unsafe { heap.free(block) };
        }
    }
}
