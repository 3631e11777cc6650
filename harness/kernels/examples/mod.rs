//! Example kernels: data structures whose size is unknown before they run.
//!
//! [`vectors`] uses Rust's own collections, which allocate from the module's global heap. All
//! threads of a grid share the others, which take the heap, or any other allocator, as an argument.

pub mod graph;
pub mod octree;
pub mod table;
pub mod vectors;

use core::alloc::Layout;
use warpheap_device::heap::Heap;
use warpheap_device::kernel::DevicePtr;
use warpheap_device::sync::AtomicU64;
use warpheap_device::{kernel, thread};

/// Increments a counter in device memory that all threads share.
#[inline(always)]
fn count(counter: DevicePtr<u64>) {
    // SAFETY: the kernels' callers promise a live word, and an atomic has the layout of its
    // integer.
    let word = unsafe { &*counter.0.cast::<AtomicU64>() };
    // Relaxed: the host reads after the kernel has ended.
    word.add_relaxed(1);
}

kernel! {
    /// One thread allocates all memory of the heap in one piece. On success it counts in `taken`:
    /// no block of any other kernel is left.
    ///
    /// # Safety
    /// The heap and `taken` are live.
    pub unsafe fn example_take_all(heap: Heap, taken: DevicePtr<u64>) {
        if thread::index_1d() != 0 {
            return;
        }
        let Ok(whole) = Layout::from_size_align(heap.capacity() as usize, 16) else { return };
        if let Some(block) = heap.alloc(whole) {
            count(taken);
            // SAFETY: allocated above, and not used.
            unsafe { heap.free(block) };
        }
    }
}
