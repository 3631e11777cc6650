//! Linked lists, each of one thread: from the heap, and in an array without an allocator.

use core::alloc::Layout;
use core::ptr::NonNull;
use warpheap_device::heap::Heap;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{kernel, thread};

/// The nodes of a list.
pub const NODES: u32 = 16;

/// A value, and the address of the next node; 0 if there is none.
pub type Node = [u64; 2];

/// The sum over the nodes from `head` on. Calls `done` with each node after its last use.
///
/// # Safety
/// The nodes are live, and only this thread uses them.
unsafe fn sum(head: u64, done: impl Fn(NonNull<Node>)) -> u64 {
    let (mut at, mut sum) = (head, 0);
    while let Some(node) = NonNull::new(at as *mut Node) {
        // SAFETY: a live node of this thread, by the caller's promise.
        let [value, next] = unsafe { node.read() };
        sum += value;
        at = next;
        done(node);
    }
    sum
}

kernel! {
    /// Thread `i` builds a list of the values `i`, `i + 1`, … from the heap, writes their sum, and
    /// frees the list.
    ///
    /// # Safety
    /// The heap and `sums` are live, and nothing else accesses `sums`.
    pub unsafe fn list_sum(heap: Heap, sums: DeviceSlice<u64>) {
        let i = thread::index_1d();
        if u64::from(i) >= sums.len() {
            return;
        }
        let mut head = 0;
        for k in 0..NODES {
            // The heap counts failed allocations, and the sum is too small then.
            let Some(block) = heap.alloc(Layout::new::<Node>()) else { break };
            let node = block.cast::<Node>();
            // SAFETY: the block is this thread's, and large enough and aligned for a node.
            unsafe { node.write([u64::from(i + k), head]) };
            head = node.as_ptr() as u64;
        }
        // SAFETY: allocated above, and not used after.
        let free = |node: NonNull<Node>| unsafe { heap.free(node.cast()) };
        // SAFETY: all nodes were written above, by this thread.
        let sum = unsafe { sum(head, free) };
        // SAFETY: each thread writes its own sum.
        unsafe { sums.set(i.into(), sum) };
    }

    /// Does the work of [`list_sum`] with the nodes of thread `i` in an array: node `k` is
    /// `nodes[k * n + i]`, with `n` sums.
    ///
    /// # Safety
    /// `nodes` and `sums` are live, and nothing else accesses them.
    pub unsafe fn list_sum_floor(nodes: DeviceSlice<Node>, sums: DeviceSlice<u64>) {
        let i = thread::index_1d();
        if u64::from(i) >= sums.len() {
            return;
        }
        let mut head = 0;
        for k in 0..NODES {
            let place = u64::from(k) * sums.len() + u64::from(i);
            // SAFETY: each thread writes its own nodes.
            if !unsafe { nodes.set(place, [u64::from(i + k), head]) } {
                break;
            }
            // SAFETY: in bounds, as `set` has checked.
            head = unsafe { nodes.as_ptr().add(place as usize) } as u64;
        }
        // SAFETY: all nodes were written above, by this thread.
        let sum = unsafe { sum(head, |_| ()) };
        // SAFETY: each thread writes its own sum.
        unsafe { sums.set(i.into(), sum) };
    }
}
