//! What every allocator of this crate is to a kernel, so that a kernel can be written once for all of them.
//!
//! ```
//! use core::alloc::Layout;
//! use warpheap_device::alloc::DeviceAlloc;
//!
//! /// Copies `value` into memory of the pool.
//! fn store<A: DeviceAlloc>(pool: &A, value: u64) -> Option<core::ptr::NonNull<u64>> {
//!     let place = pool.alloc(Layout::new::<u64>())?.cast();
//!     // SAFETY: the memory is this thread's alone, large enough and aligned.
//!     unsafe { place.write(value) };
//!     Some(place)
//! }
//! ```

use crate::bump::Bump;
use crate::freelist::FreeList;
use crate::heap::Heap;
use crate::kernel::DeviceHandle;
use core::alloc::Layout;
use core::ptr::NonNull;

/// An allocator as kernels hold it: a `Copy` handle that any thread may call, any time, in any subset of a
/// warp.
///
/// # Safety
/// What `alloc` returns is live global memory, as large and as aligned as the layout, and no one else's until it is freed.
/// It lies in the `region`.
///
/// For an allocator under test this may not hold, as long as only the kernels of
/// [`stress_kernels!`](crate::stress_kernels!) call it: they rely on none of it, and access a block
/// only after they have checked that it lies in the pool and have claimed its memory. All other
/// code may rely on it.
pub unsafe trait DeviceAlloc: DeviceHandle {
    /// Whether memory that was given back is handed out again.
    const RECLAIMS: bool;

    /// Memory for `layout`, or `None` when there is none. For a layout of no bytes the address may be one
    /// that must not be touched.
    #[must_use = "memory without an address is never freed"]
    fn alloc(&self, layout: Layout) -> Option<NonNull<u8>>;

    /// Gives memory back. Any thread may, also one that did not allocate it.
    ///
    /// # Safety
    /// `block` is what [`alloc`](Self::alloc) of this pool gave for `layout`, it was not given back
    /// since, and no thread uses it any more.
    unsafe fn free(&self, block: NonNull<u8>, layout: Layout);

    /// The memory that blocks are cut from: its start, and its length in bytes.
    fn region(&self) -> (*mut u8, u64);
}

/// An arena forgets nothing before its reset: `free` does nothing, and the block stays used.
// SAFETY: granted memory is disjoint (I1 of the arena).
unsafe impl DeviceAlloc for Bump {
    const RECLAIMS: bool = false;

    #[inline(always)]
    fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.alloc(layout)
    }

    #[inline(always)]
    unsafe fn free(&self, _: NonNull<u8>, _: Layout) {}

    #[inline(always)]
    fn region(&self) -> (*mut u8, u64) {
        (self.base(), self.capacity())
    }
}

/// Each allocation is a whole block. A layout that no block can hold is refused.
// SAFETY: a block has one owner (I2 of the pool), and fits by the check.
unsafe impl DeviceAlloc for FreeList {
    const RECLAIMS: bool = true;

    #[inline(always)]
    fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        let stride = self.geometry().stride();
        // Every block is aligned to what divides both its pool's start and the stride.
        let aligned = (self.base() as u64 | stride).is_multiple_of(layout.align() as u64);
        let fits = layout.size() as u64 <= stride && aligned;
        if fits { self.alloc() } else { None }
    }

    #[inline(always)]
    unsafe fn free(&self, block: NonNull<u8>, _: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.free(block) }
    }

    #[inline(always)]
    fn region(&self) -> (*mut u8, u64) {
        (self.base(), self.geometry().bytes())
    }
}

// SAFETY: a block has one owner (I1 to I3 of the heap).
unsafe impl DeviceAlloc for Heap {
    const RECLAIMS: bool = true;

    #[track_caller]
    #[inline(always)]
    fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.alloc(layout)
    }

    #[inline(always)]
    unsafe fn free(&self, block: NonNull<u8>, _: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.free(block) }
    }

    #[inline(always)]
    fn region(&self) -> (*mut u8, u64) {
        (self.base(), self.capacity())
    }
}
