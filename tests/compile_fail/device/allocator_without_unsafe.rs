//! Allocators implement an unsafe trait, because kernels write to the memory that they return.

use core::alloc::Layout;
use core::ptr::NonNull;
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::kernel::DeviceHandle;

#[derive(Clone, Copy)]
struct Dangling;

unsafe impl DeviceHandle for Dangling {
    fn for_each_range(&self, _: &mut dyn FnMut(u64, u64)) {}
}

impl DeviceAlloc for Dangling {
    const RECLAIMS: bool = true;
    fn alloc(&self, _: Layout) -> Option<NonNull<u8>> {
        Some(NonNull::dangling())
    }
    unsafe fn free(&self, _: NonNull<u8>, _: Layout) {}
    fn region(&self) -> (*mut u8, u64) {
        (core::ptr::null_mut(), 0)
    }
}

fn main() {}
