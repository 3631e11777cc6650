//! Kernels that the library itself launches: the host's allocations from a heap, and its frees.

use core::alloc::Layout;
use core::ptr::NonNull;
use warpheap_device::heap::Heap;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{kernel, thread};

kernel! {
    /// Thread `i` serves request `i`, a size and an alignment. It writes the block's address, or 0
    /// if the allocation fails.
    ///
    /// # Safety
    /// The heap and `requests` are live. `blocks` has at least as many words as `requests`, and
    /// nothing else accesses them.
    pub unsafe fn heap_alloc_many(heap: Heap, requests: DeviceSlice<[u64; 2]>, blocks: DeviceSlice<u64>) {
        let i = thread::index_1d().into();
        // SAFETY: `requests` is only read.
        let Some([size, align]) = (unsafe { requests.get(i) }) else { return };
        let layout = Layout::from_size_align(size as usize, align as usize);
        let block = layout.ok().and_then(|layout| heap.alloc(layout));
        // SAFETY: each thread has its own word.
        unsafe { blocks.set(i, block.map_or(0, |block| block.as_ptr() as u64)) };
    }

    /// Thread `i` frees the block at the address that element `i` of `blocks` contains.
    ///
    /// # Safety
    /// The heap and `blocks` are live, and no thread uses the blocks any more.
    pub unsafe fn heap_free_many(heap: Heap, blocks: DeviceSlice<u64>) {
        // SAFETY: `blocks` is only read.
        let block = unsafe { blocks.get(thread::index_1d().into()) };
        if let Some(block) = block.and_then(|block| NonNull::new(block as *mut u8)) {
            // SAFETY: the caller's second promise: a block that no thread uses any more.
            unsafe { heap.free(block) };
        }
    }
}
