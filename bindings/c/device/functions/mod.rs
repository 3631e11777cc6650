//! The device functions of the C library.
//!
//! A handle is the address of a pool's copy of its handle in device memory, which the host library
//! returns (`warpheap::device_pools::Heap::device_address`). A call with a null handle allocates
//! nothing and frees nothing.
//!
//! The functions cost what those of `warpheap_device` cost, and the call: nothing is inlined across
//! a link, and each call loads the words of the handle that it needs, which the L1 cache serves.

pub mod heap;
pub mod pools;

use core::alloc::Layout;
use core::ptr::{NonNull, null_mut};

/// The alignment of allocations that request none, in bytes: that of C's `max_align_t`.
pub const DEFAULT_ALIGN: usize = 16;

/// The address of a block, or null.
#[inline(always)]
fn address(block: Option<NonNull<u8>>) -> *mut u8 {
    block.map_or(null_mut(), NonNull::as_ptr)
}

/// The layout of a request. `None` if it has no bytes, if its alignment is not a power of two, or
/// if its size does not fit into an address space.
#[inline(always)]
fn layout(size: usize, align: usize) -> Option<Layout> {
    Layout::from_size_align(size, align).ok().filter(|layout| layout.size() > 0)
}

/// The allocators never panic. Without an assertion, the library has no call of this function.
#[cfg(target_arch = "nvptx64")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    warpheap_device::thread::trap()
}
