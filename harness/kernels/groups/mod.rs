//! Kernels of `harness/tests/heap_groups/`, for the CPU and a GPU: allocations for warps and
//! blocks, and the block's cache under threads that end in every possible way.

mod cache;
mod share;

pub use cache::*;
pub use share::*;

use core::alloc::Layout;
use core::ptr::NonNull;
use warpheap_device::sync::AtomicU64;

#[inline(always)]
fn layout(bytes: u32) -> Layout {
    // SAFETY: 8 is a power of two, and sizes are far below the limit of `Layout`.
    unsafe { Layout::from_size_align_unchecked(bytes as usize, 8) }
}

/// Word `i` of a block.
///
/// # Safety
/// The block is live and has this word.
unsafe fn word<'a>(block: NonNull<u8>, i: u32) -> &'a AtomicU64 {
    // SAFETY: the caller's second promise: the block has the word.
    let place = unsafe { block.cast::<AtomicU64>().add(i as usize) };
    // SAFETY: the caller's first promise: the block is live. An atomic has its integer's layout.
    unsafe { place.as_ref() }
}
