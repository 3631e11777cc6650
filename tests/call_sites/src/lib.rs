//! Kernels with one call of the heap each, and kernels without any. `tests/ptx/call_sites.rs`
//! limits the registers and the spills of each.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

use core::alloc::Layout;
use core::ptr::NonNull;
use warpheap_device::heap::Heap;
use warpheap_device::kernel;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::thread;

/// `bytes`, aligned to 16.
#[inline(always)]
fn layout(bytes: u32) -> Layout {
    // SAFETY: 16 is a power of two, and any 32-bit size is far below the limit.
    unsafe { Layout::from_size_align_unchecked(bytes as usize, 16) }
}

#[inline(always)]
fn store(out: DeviceSlice<u64>, block: Option<NonNull<u8>>) {
    // SAFETY: each thread writes its own entry.
    unsafe { out.set(thread::index_1d().into(), block.map_or(0, |block| block.as_ptr() as u64)) };
}

#[inline(always)]
fn load(blocks: DeviceSlice<u64>) -> Option<NonNull<u8>> {
    // SAFETY: no thread writes to `blocks`.
    let address = unsafe { blocks.get(thread::index_1d().into()) }?;
    NonNull::new(address as *mut u8)
}

kernel! {
    /// Allocates a size that is known to the compiler, and stores the address.
    ///
    /// # Safety
    /// The heap and `out` are live.
    pub unsafe fn site_alloc(heap: Heap, out: DeviceSlice<u64>) {
        store(out, heap.alloc(layout(64)));
    }

    /// Allocates a size that is known at run time only, and stores the address.
    ///
    /// # Safety
    /// The heap and `out` are live.
    pub unsafe fn site_alloc_any(heap: Heap, bytes: u32, out: DeviceSlice<u64>) {
        store(out, heap.alloc(layout(bytes)));
    }

    /// The store without an allocation.
    ///
    /// # Safety
    /// `out` is live.
    pub unsafe fn site_store(address: u64, out: DeviceSlice<u64>) {
        store(out, NonNull::new(address as *mut u8));
    }

    /// Loads an address and frees the block.
    ///
    /// # Safety
    /// The heap is live, and `blocks` are live blocks of it.
    pub unsafe fn site_free(heap: Heap, blocks: DeviceSlice<u64>) {
        if let Some(block) = load(blocks) {
            // SAFETY: `site_free` requires that the block belongs to the heap.
            unsafe { heap.free(block) };
        }
    }

    /// The load without a free.
    ///
    /// # Safety
    /// `blocks` and `out` are live.
    pub unsafe fn site_load(blocks: DeviceSlice<u64>, out: DeviceSlice<u64>) {
        store(out, load(blocks));
    }
}
