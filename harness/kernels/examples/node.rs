//! What the data structures share: nodes from an allocator, and counters.

use core::alloc::Layout;
use core::ptr::NonNull;
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::kernel::DevicePtr;
use warpheap_device::sync::AtomicU64;

/// Increments a counter in device memory that all threads share.
#[inline(always)]
pub(super) fn count(counter: DevicePtr<u64>) {
    // SAFETY: the kernels' callers promise a live word, and an atomic has the layout of its
    // integer.
    let word = unsafe { &*counter.0.cast::<AtomicU64>() };
    // Relaxed: the host reads after the kernel has ended.
    word.add_relaxed(1);
}

/// The node at `address`.
///
/// # Safety
/// `address` is 0, or that of a node that is not freed while the reference is used.
pub(super) unsafe fn node_at<'a, T>(address: u64) -> Option<&'a T> {
    // SAFETY: null or a live node, by the caller's promise.
    unsafe { (address as *const T).as_ref() }
}

/// Frees a node.
///
/// # Safety
/// The node was allocated from `memory` with the layout of `T`, and no thread can find it.
pub(super) unsafe fn free_node<T, A: DeviceAlloc>(memory: &A, node: NonNull<T>) {
    // SAFETY: the caller's promise.
    unsafe { memory.free(node.cast(), Layout::new::<T>()) };
}
