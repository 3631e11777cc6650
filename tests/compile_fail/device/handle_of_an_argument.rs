//! What an argument stands for is reached by unsafe code alone.

use warpheap::Arg;
use warpheap_device::heap::Heap;

fn open(heap: Arg<Heap>) -> Heap {
    heap.into_inner()
}

fn main() {}
