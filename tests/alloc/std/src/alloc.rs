//! `std::alloc`.

pub use alloc_crate::alloc::*;
pub use core::alloc::AllocError;
use core::ptr::NonNull;

/// The allocator of the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

// SAFETY: `Global` is an allocator.
unsafe impl Allocator for System {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        Global.allocate(layout)
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { Global.deallocate(block, layout) }
    }
}

// SAFETY: the functions of `alloc` are those of an allocator.
unsafe impl GlobalAlloc for System {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { alloc_crate::alloc::alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { alloc_crate::alloc::dealloc(block, layout) }
    }
}
