//! A debug heap reads the record of the block. Elsewhere these may be the bytes of another thread.

use core::ptr::NonNull;
use warpheap_device::heap::Heap;

pub fn size(heap: &Heap, address: NonNull<u8>) -> usize {
    heap.usable_size(address)
}

fn main() {}
