//! Calls of an arena and of a free list.

use super::{DEFAULT_ALIGN, address, layout};
use core::ptr::{NonNull, null_mut};
use warpheap_device::bump::Bump;
use warpheap_device::freelist::FreeList;

/// Allocates `size` bytes, aligned to 16, from an arena. Returns null if `size` is 0 or no free
/// piece is large enough. The memory is freed with the whole arena, by a reset from the host.
///
/// # Safety
/// `arena` is null or the device address of a live arena.
#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle))]
pub unsafe extern "C" fn wh_bump_alloc(arena: Option<&Bump>, size: usize) -> *mut u8 {
    bump(arena, DEFAULT_ALIGN, size)
}

/// As [`wh_bump_alloc`], aligned to `align`. Returns null if that is not a power of two.
///
/// # Safety
/// As for [`wh_bump_alloc`].
#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle))]
pub unsafe extern "C" fn wh_bump_aligned_alloc(arena: Option<&Bump>, align: usize, size: usize) -> *mut u8 {
    bump(arena, align, size)
}

#[inline(always)]
fn bump(arena: Option<&Bump>, align: usize, size: usize) -> *mut u8 {
    let (Some(arena), Some(layout)) = (arena, layout(size, align)) else { return null_mut() };
    address(arena.alloc(layout))
}

/// Allocates a block of a free list. Returns null if all blocks are allocated.
///
/// # Safety
/// `list` is null or the device address of a live free list.
#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle))]
pub unsafe extern "C" fn wh_freelist_alloc(list: Option<&FreeList>) -> *mut u8 {
    address(list.and_then(FreeList::alloc))
}

/// Frees a block of a free list. Does nothing if it is null. If no live block starts there, nothing
/// is freed and a fault is recorded.
///
/// # Safety
/// As for [`wh_freelist_alloc`]. No thread uses the block any more.
#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle))]
pub unsafe extern "C" fn wh_freelist_free(list: Option<&FreeList>, block: *mut u8) {
    if let (Some(list), Some(block)) = (list, NonNull::new(block)) {
        // SAFETY: the caller's promise.
        unsafe { list.free(block) };
    }
}
