//! The interface that all allocators of this crate share, for kernels that are generic over the
//! allocator.
//!
//! ```
//! use core::alloc::Layout;
//! use warpheap_device::alloc::DeviceAlloc;
//!
//! /// Copies `value` into memory of the pool.
//! fn store<A: DeviceAlloc>(pool: &A, value: u64) -> Option<core::ptr::NonNull<u64>> {
//!     let place = pool.alloc(Layout::new::<u64>())?.cast();
//!     // SAFETY: this thread owns the memory, which is large enough and aligned.
//!     unsafe { place.write(value) };
//!     Some(place)
//! }
//! ```

use crate::bump::{self, Bump};
use crate::freelist::{self, FreeList};
use crate::heap::{self, Heap};
use crate::kernel::DeviceHandle;
use crate::scans;
use core::alloc::Layout;
use core::ptr::NonNull;

/// An allocator in the form that kernels use: a `Copy` handle. Any thread may call it at any time,
/// in any divergent subset of a warp.
///
/// # Safety
/// `alloc` returns live global memory with the size and alignment of the layout. It has no other
/// owner until it is freed. It lies in the `region`.
///
/// This may not hold for an allocator under test, as long as only the kernels of
/// [`stress_kernels!`](crate::stress_kernels!) call it. They do not rely on it: they access a block
/// only after they have checked that it lies in the pool and have claimed its memory. All other
/// code may rely on it.
pub unsafe trait DeviceAlloc: DeviceHandle {
    /// Whether freed memory is allocated again.
    const RECLAIMS: bool;

    /// The names of the points at which a stress test can delay a thread: those of the
    /// [`Site`](crate::sync::Site)s of its operations, and others. Lists of the structures that it
    /// consists of. Default: none.
    const POINTS: &'static [&'static [&'static str]] = &[];

    /// Allocates memory for `layout`. Returns `None` if the allocator is out of memory. For a
    /// zero-size layout the address may be one that must not be dereferenced.
    #[must_use = "memory without an address is never freed"]
    fn alloc(&self, layout: Layout) -> Option<NonNull<u8>>;

    /// Frees memory. May be called from any thread, not only the one that allocated it.
    ///
    /// # Safety
    /// [`alloc`](Self::alloc) of this pool returned `block` for `layout`, it has not been freed
    /// since, and no thread uses it any more.
    unsafe fn free(&self, block: NonNull<u8>, layout: Layout);

    /// The memory that blocks are allocated from: its start and its length in bytes.
    fn region(&self) -> (*mut u8, u64);
}

/// An arena frees memory only by a reset: `free` does nothing, and the block stays in use.
// SAFETY: allocated memory is disjoint (I1 of the arena).
unsafe impl DeviceAlloc for Bump {
    const RECLAIMS: bool = false;
    const POINTS: &'static [&'static [&'static str]] = &[&bump::ORDERINGS, &bump::POINTS];

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

/// Each allocation is a full block. Allocation fails for a layout that does not fit into a block.
// SAFETY: a block has one owner (I2 of the pool), and the layout fits by the check.
unsafe impl DeviceAlloc for FreeList {
    const RECLAIMS: bool = true;
    const POINTS: &'static [&'static [&'static str]] =
        &[&freelist::ORDERINGS, &freelist::POINTS, &scans::POINTS];

    #[inline(always)]
    fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        let stride = self.geometry().stride();
        // Every block is aligned to any power of two that divides both the pool's start and the
        // stride.
        let aligned = (self.base() as u64 | stride).is_multiple_of(layout.align() as u64);
        let fits = layout.size() as u64 <= stride && aligned;
        if fits { self.alloc() } else { None }
    }

    #[inline(always)]
    unsafe fn free(&self, block: NonNull<u8>, _: Layout) {
        // SAFETY: the caller's promises: an allocated block, not freed since, that no thread uses.
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
    const POINTS: &'static [&'static [&'static str]] = if heap::DEBUG {
        &[&heap::ORDERINGS, &heap::POINTS, &heap::debug::DEBUG_ORDERINGS]
    } else {
        &[&heap::ORDERINGS, &heap::POINTS]
    };

    #[track_caller]
    #[inline(always)]
    fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.alloc(layout)
    }

    #[inline(always)]
    unsafe fn free(&self, block: NonNull<u8>, _: Layout) {
        // SAFETY: the caller's promises: an allocated block, not freed since, that no thread uses.
        unsafe { self.free(block) }
    }

    #[inline(always)]
    fn region(&self) -> (*mut u8, u64) {
        (self.base(), self.capacity())
    }
}
