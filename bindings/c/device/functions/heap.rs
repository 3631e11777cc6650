//! Calls of a heap: by single threads, with the semantics of C's functions, and one allocation for
//! the lanes of a warp or for a thread block.

use super::{DEFAULT_ALIGN, address, layout};
use core::ptr::{NonNull, null_mut};
use warpheap_device::heap::Heap;
use warpheap_device::heap::split::{AllocStep, FreeStep};
use warpheap_device::units::LaneMask;

/// Allocates `size` bytes, aligned to 16. Returns null if `size` is 0 or the heap is out of memory.
///
/// # Safety
/// `heap` is null or the device address of a live heap, which is one without debugging.
#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle))]
pub unsafe extern "C" fn wh_malloc(heap: Option<&Heap>, size: usize) -> *mut u8 {
    alloc(heap, DEFAULT_ALIGN, size)
}

/// Allocates `size` bytes, aligned to `align`, a power of two up to 2 MiB. Returns null for another
/// alignment, if `size` is 0, or if the heap is out of memory.
///
/// # Safety
/// As for [`wh_malloc`].
#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle))]
pub unsafe extern "C" fn wh_aligned_alloc(heap: Option<&Heap>, align: usize, size: usize) -> *mut u8 {
    alloc(heap, align, size)
}

/// The first part of [`wh_malloc`], which calls no other function. If `rest` of the result is not
/// 0, [`wh_malloc_finish`] follows; otherwise `address` is the result.
///
/// # Safety
/// As for [`wh_malloc`].
#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle))]
pub unsafe extern "C" fn wh_malloc_begin(heap: &Heap, size: usize) -> AllocStep {
    let Some(layout) = layout(size, DEFAULT_ALIGN) else { return AllocStep::done(0) };
    heap.begin_alloc(layout)
}

/// The second part of [`wh_malloc`].
///
/// # Safety
/// [`wh_malloc_begin`] returned `step` to this thread for the same arguments. All lanes of a warp
/// to which it returned a `rest` make this call.
#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle))]
pub unsafe extern "C" fn wh_malloc_finish(heap: Option<&Heap>, size: usize, step: AllocStep) -> *mut u8 {
    let (Some(heap), Some(layout)) = (heap, layout(size, DEFAULT_ALIGN)) else { return null_mut() };
    // SAFETY: the caller's promise.
    address(unsafe { heap.finish_alloc(layout, step) })
}

#[inline(always)]
fn alloc(heap: Option<&Heap>, align: usize, size: usize) -> *mut u8 {
    let (Some(heap), Some(layout)) = (heap, layout(size, align)) else { return null_mut() };
    address(heap.alloc(layout))
}

/// Allocates `count * size` bytes of zeros, aligned to 16. Returns null if the product is 0 or too
/// large, or if the heap is out of memory.
///
/// # Safety
/// As for [`wh_malloc`].
#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle))]
pub unsafe extern "C" fn wh_calloc(heap: Option<&Heap>, count: usize, size: usize) -> *mut u8 {
    let bytes = count.checked_mul(size).and_then(|bytes| layout(bytes, DEFAULT_ALIGN));
    let (Some(heap), Some(layout)) = (heap, bytes) else { return null_mut() };
    address(heap.alloc_zeroed(layout))
}

/// Resizes `block` to `size` bytes and returns its new address, aligned to 16. The first bytes, as
/// many as fit into both sizes, are kept. A null `block` is allocated; a `size` of 0 frees it.
/// Returns null if the heap is out of memory; then `block` is unchanged. An address outside the
/// heap is recorded as a fault.
///
/// # Safety
/// As for [`wh_malloc`]. `block` is null or a block of this heap that no other thread uses.
#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle))]
pub unsafe extern "C" fn wh_realloc(heap: Option<&Heap>, block: *mut u8, size: usize) -> *mut u8 {
    let Some(heap) = heap else { return null_mut() };
    let Some(old) = NonNull::new(block) else { return alloc(Some(heap), DEFAULT_ALIGN, size) };
    // SAFETY: the caller's promise.
    let usable = unsafe { heap.usable_size(old) };
    let Some(layout) = layout(usable, DEFAULT_ALIGN).filter(|_| size > 0) else {
        // SAFETY: the caller's promise; an address outside the heap is recorded.
        unsafe { heap.free(old) };
        return null_mut();
    };
    // SAFETY: the caller's promise; the block has so many bytes, and at least this alignment.
    address(unsafe { heap.realloc(old, layout, size) })
}

/// Frees `block`. Does nothing if it is null. If no live block starts there, nothing is freed and a
/// fault is recorded.
///
/// # Safety
/// As for [`wh_malloc`]. No thread uses the block any more.
#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle))]
pub unsafe extern "C" fn wh_free(heap: Option<&Heap>, block: *mut u8) {
    if let (Some(heap), Some(block)) = (heap, NonNull::new(block)) {
        // SAFETY: the caller's promise.
        unsafe { heap.free(block) };
    }
}

/// The first part of [`wh_free`], which calls no other function. If `rest` of the result is not 0,
/// [`wh_free_finish`] follows.
///
/// # Safety
/// As for [`wh_free`].
#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle))]
pub unsafe extern "C" fn wh_free_begin(heap: &Heap, block: *mut u8) -> FreeStep {
    let Some(block) = NonNull::new(block) else { return FreeStep::DONE };
    // SAFETY: the caller's promise.
    unsafe { heap.begin_free(block) }
}

/// The second part of [`wh_free`].
///
/// # Safety
/// [`wh_free_begin`] returned `step` to this thread for the same arguments. All lanes of a warp to
/// which it returned a `rest` make this call.
#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle))]
pub unsafe extern "C" fn wh_free_finish(heap: Option<&Heap>, block: *mut u8, step: FreeStep) {
    if let (Some(heap), Some(block)) = (heap, NonNull::new(block)) {
        // SAFETY: the caller's promise.
        unsafe { heap.finish_free_step(block, step) };
    }
}

/// The usable bytes of `block`, at least the requested size. 0 for null and for addresses outside
/// the heap.
///
/// # Safety
/// As for [`wh_malloc`]. `block` is null, a live block of this heap, or outside it.
#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle))]
pub unsafe extern "C" fn wh_usable_size(heap: Option<&Heap>, block: *mut u8) -> usize {
    let (Some(heap), Some(block)) = (heap, NonNull::new(block)) else { return 0 };
    // SAFETY: the caller's promise.
    unsafe { heap.usable_size(block) }
}

/// Allocates `size` bytes once for all lanes of `mask`. Each of them receives the address, or null.
///
/// # Safety
/// `heap` is null or the device address of a live heap. The calling lane is in `mask`, and all
/// lanes of `mask` make this call with the same arguments.
#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle))]
pub unsafe extern "C" fn wh_malloc_warp(heap: Option<&Heap>, mask: u32, size: usize) -> *mut u8 {
    let (Some(heap), Some(layout)) = (heap, layout(size, DEFAULT_ALIGN)) else { return null_mut() };
    // SAFETY: the caller's promise; all lanes came here alike.
    address(unsafe { heap.alloc_warp(LaneMask(mask), layout) })
}

/// Frees `block` once for all lanes of `mask`. Does nothing if it is null.
///
/// # Safety
/// As for [`wh_malloc_warp`]. No thread uses the block any more.
#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle))]
pub unsafe extern "C" fn wh_free_warp(heap: Option<&Heap>, mask: u32, block: *mut u8) {
    if let (Some(heap), Some(block)) = (heap, NonNull::new(block)) {
        // SAFETY: the caller's promise; all lanes came here alike.
        unsafe { heap.free_warp(LaneMask(mask), block) };
    }
}

/// Allocates `size` bytes once for the thread block. Each thread receives the address, or null.
///
/// # Safety
/// `heap` is null or the device address of a live heap. Every thread of the thread block that has
/// not ended makes this call with the same arguments, as for `__syncthreads`.
#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle))]
pub unsafe extern "C" fn wh_malloc_block(heap: Option<&Heap>, size: usize) -> *mut u8 {
    let (Some(heap), Some(layout)) = (heap, layout(size, DEFAULT_ALIGN)) else { return null_mut() };
    // SAFETY: the caller's promise; all threads came here alike.
    address(unsafe { heap.alloc_block(layout) })
}

/// Allocates `size` bytes for each thread of the thread block, in one allocation. Each thread
/// receives its own part, aligned to 16, or null. Stores the address of the allocation, for
/// [`wh_free_block`], to `whole`, or null.
///
/// # Safety
/// As for [`wh_malloc_block`]. `whole` is null, or a word that only the calling thread accesses.
#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle))]
pub unsafe extern "C" fn wh_malloc_block_each(
    heap: Option<&Heap>,
    size: usize,
    whole: *mut *mut u8,
) -> *mut u8 {
    let share = match (heap, layout(size, DEFAULT_ALIGN)) {
        // SAFETY: the caller's promise; all threads came here alike.
        (Some(heap), Some(layout)) => unsafe { heap.alloc_block_each(layout) },
        _ => None,
    };
    if !whole.is_null() {
        // SAFETY: the caller's promise: the thread's own word.
        unsafe { whole.write(address(share.map(|share| share.whole))) };
    }
    address(share.map(|share| share.piece))
}

/// Frees an allocation of [`wh_malloc_block`] or [`wh_malloc_block_each`] once for the thread
/// block. Does nothing if `block` is null.
///
/// # Safety
/// As for [`wh_malloc_block`]. No thread uses the block any more.
#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle))]
pub unsafe extern "C" fn wh_free_block(heap: Option<&Heap>, block: *mut u8) {
    if let (Some(heap), Some(block)) = (heap, NonNull::new(block)) {
        // SAFETY: the caller's promise; all threads came here alike.
        unsafe { heap.free_block(block) };
    }
}
