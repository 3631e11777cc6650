//! CUDA's own allocator in kernels: `malloc` and `free`, which the driver links to every module
//! that declares them. On the CPU they are those of the C library.

use super::common::{Counter, Order, Sizes, block_at, count, layout, store, touch};
#[cfg(target_arch = "nvptx64")]
use core::alloc::GlobalAlloc;
use core::alloc::Layout;
use core::ptr::NonNull;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{kernel, thread};

/// The alignment of CUDA's blocks, in bytes.
const ALIGN: usize = 16;

/// CUDA's allocator, with one heap for all modules of a context.
#[derive(Clone, Copy, Debug)]
pub(super) struct CudaMalloc;

impl CudaMalloc {
    /// Allocates memory. Returns `None` if the heap is exhausted, or for an alignment of more than
    /// 16.
    #[inline(always)]
    pub fn alloc(self, layout: Layout) -> Option<NonNull<u8>> {
        unsafe extern "C" {
            fn malloc(bytes: usize) -> *mut u8;
        }
        if layout.align() > ALIGN {
            return None;
        }
        // SAFETY: `malloc` accepts any size.
        NonNull::new(unsafe { malloc(layout.size()) })
    }

    /// Frees memory.
    ///
    /// # Safety
    /// [`alloc`](Self::alloc) returned `block`, it was not freed since, and no thread uses it.
    #[inline(always)]
    pub unsafe fn free(self, block: NonNull<u8>) {
        unsafe extern "C" {
            fn free(block: *mut u8);
        }
        // SAFETY: the caller's promise.
        unsafe { free(block.as_ptr()) }
    }
}

#[cfg(target_arch = "nvptx64")]
#[global_allocator]
static GLOBAL: CudaMalloc = CudaMalloc;

// Out of line, as those of `GlobalHeap`.
// SAFETY: CUDA's blocks have the requested size and alignment, and one owner. A failed allocation
// does not return.
#[cfg(target_arch = "nvptx64")]
unsafe impl GlobalAlloc for CudaMalloc {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match CudaMalloc::alloc(*self, layout) {
            Some(block) => block.as_ptr(),
            // As for a `GlobalHeap`: Rust's `alloc` would end the grid.
            None => thread::exit(),
        }
    }

    #[inline(never)]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        if let Some(block) = NonNull::new(block) {
            // SAFETY: the block was allocated here and is used no more, by `dealloc`'s contract.
            unsafe { self.free(block) };
        }
    }
}

kernel! {
    /// Every thread allocates by CUDA's `malloc` and stores the address.
    ///
    /// # Safety
    /// `out` is live and nothing else accesses it.
    pub unsafe fn suite_malloc_alloc(out: DeviceSlice<u64>, sizes: Sizes) {
        let i = thread::index_1d();
        store(out, i, CudaMalloc.alloc(layout(sizes.of(i))));
    }

    /// Every thread frees one block.
    ///
    /// # Safety
    /// `blocks` were allocated by [`suite_malloc_alloc`], and each is named once.
    pub unsafe fn suite_malloc_free(blocks: DeviceSlice<u64>, order: Order, failures: Counter) {
        match block_at(blocks, order.place(thread::index_1d())) {
            // SAFETY: the caller's promises: a block of `malloc`, named once.
            Some(block) => unsafe { CudaMalloc.free(block) },
            None => count(failures),
        }
    }

    /// Every thread repeatedly allocates a block, stores 8 bytes in it and frees it.
    ///
    /// # Safety
    /// The counter is live, and sizes are at least 8 bytes.
    pub unsafe fn suite_malloc_churn(sizes: Sizes, turns: u32, failures: Counter) {
        let i = thread::index_1d();
        let size = sizes.of(i);
        for turn in 0..turns {
            let Some(block) = CudaMalloc.alloc(layout(size)) else {
                count(failures);
                continue;
            };
            // SAFETY: this thread owns the block, which holds 8 bytes.
            unsafe { touch(block.as_ptr(), u64::from(i) << 32 | u64::from(turn)) };
            // SAFETY: allocated above and not used afterwards.
            unsafe { CudaMalloc.free(block) };
        }
    }
}
