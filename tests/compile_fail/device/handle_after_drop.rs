//! The host cannot allocate through the argument that it passes to kernels.

use core::alloc::Layout;
use warpheap::Device;
use warpheap::device_pools::Heap;

fn main() {
    let heap = Heap::builder(1 << 20).build(&Device::cpu()).unwrap();
    let handle = heap.handle();
    drop(heap);
    handle.alloc(Layout::new::<u64>());
}
