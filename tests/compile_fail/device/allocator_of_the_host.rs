//! The global allocator of kernels ends a thread when out of memory. A host program cannot do so.

use warpheap_device::global::GlobalHeap;

#[global_allocator]
static ALLOCATOR: GlobalHeap = GlobalHeap::unset();

fn main() {}
