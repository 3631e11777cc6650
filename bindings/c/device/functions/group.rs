//! One allocation of a heap for the lanes of a warp, or for a thread block.

use super::{DEFAULT_ALIGN, address, layout};
use core::ptr::{NonNull, null_mut};
use warpheap_device::heap::Heap;
use warpheap_device::units::LaneMask;

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
