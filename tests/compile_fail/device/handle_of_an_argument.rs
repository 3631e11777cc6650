//! Only unsafe code can get the handle inside an argument.

use warpheap::Arg;
use warpheap_device::heap::Heap;

fn open(heap: Arg<Heap>) -> Heap {
    heap.into_inner()
}

fn main() {}
