//! Heaps: the texts of allocations and frees by the host that fail.

use std::alloc::Layout;
use warpheap::device_pools::Heap;
use warpheap::error::{Bytes, InvalidFree};
use warpheap::{Error, Result};
use warpheap_device::kernel::DevicePtr;

/// Why a heap did not allocate or free a block.
#[derive(Debug)]
pub enum Failure {
    /// It is out of memory: the text.
    OutOfMemory(String),
    /// No live block starts at the address: the text.
    InvalidFree(String),
    /// Another error.
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            // Without the counts: one block was freed.
            Error::InvalidFree(InvalidFree::Heap { first, .. }) => {
                Failure::InvalidFree(format!("a heap cannot free a block: {first}; free each block once"))
            }
            error => Failure::Other(error),
        }
    }
}

/// Allocates a block. `advice` ends the text of a heap that is out of memory: what to do.
///
/// # Errors
/// `OutOfMemory`, or an error of [`Heap::allocate`].
pub fn allocate(heap: &Heap, layout: Layout, advice: &str) -> std::result::Result<DevicePtr<u8>, Failure> {
    heap.allocate(layout)?.ok_or_else(|| {
        let (capacity, bytes, align) = (Bytes(heap.capacity()), Bytes(layout.size() as u64), layout.align());
        Failure::OutOfMemory(format!(
            "the heap of {capacity} cannot allocate {bytes} aligned to {align}: it is out of memory; {advice}"
        ))
    })
}

/// Frees a block.
///
/// # Errors
/// `InvalidFree`, or an error of [`Heap::deallocate`].
///
/// # Safety
/// That of [`Heap::deallocate`]: no kernel uses the block any more.
pub unsafe fn deallocate(heap: &Heap, block: DevicePtr<u8>) -> std::result::Result<(), Failure> {
    // SAFETY: the caller's promise.
    let freed: Result<()> = unsafe { heap.deallocate(block) };
    Ok(freed?)
}
