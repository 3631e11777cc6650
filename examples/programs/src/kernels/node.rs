//! What the table and the octree share: nodes from an allocator.

use core::alloc::Layout;
use core::ptr::NonNull;
use warpheap_device::alloc::DeviceAlloc;

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
