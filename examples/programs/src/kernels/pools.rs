//! Kernels whose threads allocate one block each, from a bump pool and from a free list.

use core::alloc::Layout;
use core::ptr::NonNull;
use warpheap_device::bump::Bump;
use warpheap_device::freelist::FreeList;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{kernel, thread};

/// Stored in place of an offset or an address: the allocation failed.
pub const NONE: u64 = u64::MAX;

kernel! {
    /// Each of the first `threads` threads allocates `bytes` from the pool, aligned to 4, and
    /// writes its number there: the sum of `first` and its index. It stores the offset of its
    /// block, or [`NONE`].
    ///
    /// # Safety
    /// The pool is live. The offsets are live, and nothing else accesses them. `bytes` is at least
    /// 4.
    pub unsafe fn bump_take(pool: Bump, threads: u32, bytes: u32, first: u32, offsets: DeviceSlice<u64>) {
        let i = thread::index_1d();
        if i >= threads {
            return;
        }
        let Ok(layout) = Layout::from_size_align(bytes as usize, align_of::<u32>()) else { return };
        let block = pool.alloc(layout);
        if let Some(block) = block {
            // SAFETY: this thread owns the block, which has room for a number.
            unsafe { block.cast::<u32>().write(first + i) };
        }
        let offset = block.map_or(NONE, |block| block.as_ptr() as u64 - pool.base() as u64);
        // SAFETY: only this thread writes element `i`.
        unsafe { offsets.set(i.into(), offset) };
    }

    /// Each thread with an element of `blocks` allocates a block, writes its index there, and
    /// stores the address of the block, or [`NONE`].
    ///
    /// # Safety
    /// The list is live, and its blocks have at least 4 bytes. `blocks` is live, and nothing else
    /// accesses it.
    pub unsafe fn list_take(list: FreeList, blocks: DeviceSlice<u64>) {
        let i = thread::index_1d();
        if u64::from(i) >= blocks.len() {
            return;
        }
        let block = list.alloc();
        if let Some(block) = block {
            // SAFETY: this thread owns the block, which has room for a number.
            unsafe { block.cast::<u32>().write(i) };
        }
        // SAFETY: only this thread writes element `i`.
        unsafe { blocks.set(i.into(), block.map_or(NONE, |block| block.as_ptr() as u64)) };
    }

    /// Each thread reads the number in the block of `blocks` at its index, stores the number in its
    /// place, and frees the block.
    ///
    /// # Safety
    /// The list is live. `blocks` was filled by [`list_take`], and nothing else accesses it or its
    /// blocks.
    pub unsafe fn list_free(list: FreeList, blocks: DeviceSlice<u64>) {
        let i = thread::index_1d().into();
        // SAFETY: only this thread accesses element `i`.
        let Some(block) = (unsafe { blocks.get(i) }).filter(|block| *block != NONE) else { return };
        let Some(block) = NonNull::new(block as *mut u8) else { return };
        // SAFETY: the block is live, and its owner wrote a number.
        let number = unsafe { block.cast::<u32>().read() };
        // SAFETY: only this thread accesses element `i`.
        unsafe { blocks.set(i, number.into()) };
        // SAFETY: the block is live, and only this thread frees it.
        unsafe { list.free(block) };
    }
}
