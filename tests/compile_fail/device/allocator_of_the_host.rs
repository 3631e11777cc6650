//! The global allocator of kernels ends a thread that it has no memory for, which a program of the host cannot.

use warpheap_device::global::GlobalHeap;

#[global_allocator]
static ALLOCATOR: GlobalHeap = GlobalHeap::unset();

fn main() {}
