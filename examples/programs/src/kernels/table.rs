//! A hash table with concurrent insertion, which counts how often each key occurs.
//!
//! ```text
//! buckets | head | head | ...          head → node → node → null
//! node    | key | count | next |
//! ```
//!
//! I1. The key and the successor of a node do not change once it is in a chain. The node stays
//! there until the table is freed.
//! I2. A chain grows only at its head, so the nodes behind a head that was already searched need
//! not be searched again.
//!
//! Progress: lock-free. If a push fails, the thread has met another thread's node, and searches
//! the new nodes.

use super::node::{free_node, node_at};
use core::alloc::Layout;
use core::ptr::NonNull;
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::heap::Heap;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::sync::AtomicU64;
use warpheap_device::{kernel, kernel_arg, thread};

kernel_arg! {
    /// The chains: one word per bucket, initially all zeros.
    #[derive(Debug)]
    pub struct Table {
        /// The first node of each chain; 0 if the chain is empty.
        pub buckets: DeviceSlice<u64>,
    }
}

#[repr(C)]
struct Node {
    key: u64,
    count: AtomicU64,
    next: u64,
}

impl Table {
    fn head(&self, bucket: u64) -> &AtomicU64 {
        debug_assert!(bucket < self.buckets.len());
        // SAFETY: callers pass an index below the number of buckets.
        let word = unsafe { self.buckets.as_ptr().add(bucket as usize) };
        // SAFETY: live, by the kernels' callers; an atomic has the layout of its integer.
        unsafe { &*word.cast() }
    }

    fn head_of(&self, key: u64) -> &AtomicU64 {
        // The upper half of a product with the golden ratio's fraction spreads keys that are close
        // together.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.head(hash % self.buckets.len())
    }

    /// The node of `key` among those from `first` (inclusive) to `end` (exclusive).
    fn find(&self, key: u64, first: u64, end: u64) -> Option<&Node> {
        let mut at = first;
        // Chains have no cycles (I1).
        while at != end {
            // SAFETY: a node of the chain (I1).
            let node = unsafe { node_at::<Node>(at) }?;
            if node.key == key {
                return Some(node);
            }
            at = node.next;
        }
        None
    }

    /// Counts one occurrence of `key`, unless its node cannot be allocated.
    fn add<A: DeviceAlloc>(&self, memory: &A, key: u64) {
        let head = self.head_of(key);
        let mut searched_to = 0;
        let mut new: Option<NonNull<Node>> = None;
        // One iteration for each node that other threads push to this chain in the meantime.
        loop {
            // ordering: acquire; pairs with the push in `add`: the nodes before their address.
            let first = head.load_acquire();
            if let Some(node) = self.find(key, first, searched_to) {
                // Relaxed: a sum, read after the kernel has ended.
                node.count.add_relaxed(1);
                if let Some(mine) = new {
                    // SAFETY: allocated below for a node, and in no chain.
                    unsafe { free_node(memory, mine) };
                }
                return;
            }
            searched_to = first;
            let Some(mine) = new.or_else(|| memory.alloc(Layout::new::<Node>()).map(NonNull::cast)) else {
                return;
            };
            new = Some(mine);
            // SAFETY: the node is written to the heap's memory next, which is global.
            let count = unsafe { AtomicU64::in_global(1) };
            // SAFETY: allocated above for a node, and in no chain yet.
            unsafe { mine.write(Node { key, count, next: first }) };
            // ordering: release; pairs with the load above and `get`: the node before its address.
            if head.cas_release(first, mine.as_ptr() as u64).is_ok() {
                return;
            }
        }
    }

    /// The count of `key`.
    fn get(&self, key: u64) -> u64 {
        // ordering: acquire; pairs with the push in `add`: the nodes before their address.
        let first = self.head_of(key).load_acquire();
        self.find(key, first, 0).map_or(0, |node| node.count.load_relaxed())
    }

    /// Frees the nodes of a chain that no other thread uses.
    fn clear<A: DeviceAlloc>(&self, memory: &A, bucket: u64) {
        // Relaxed: the kernels that pushed have ended.
        let mut at = self.head(bucket).swap_relaxed(0);
        // SAFETY: a node of the chain, which this thread has taken.
        while let Some(node) = unsafe { node_at::<Node>(at) } {
            at = node.next;
            // SAFETY: `add` allocated it for a node; only this thread uses the chain.
            unsafe { free_node(memory, NonNull::from(node)) };
        }
    }
}

kernel! {
    /// Thread `i` counts key `i`. The heap counts failed allocations of nodes.
    ///
    /// # Safety
    /// Heap and table are live; no thread writes `keys`.
    pub unsafe fn table_count(heap: Heap, table: Table, keys: DeviceSlice<u64>) {
        // SAFETY: `keys` is only read.
        let Some(key) = (unsafe { keys.get(thread::index_1d().into()) }) else { return };
        table.add(&heap, key);
    }

    /// Thread `i` writes the count of key `i`.
    ///
    /// # Safety
    /// The table is live. No thread writes `keys`, and nothing else accesses `counts`.
    pub unsafe fn table_get(table: Table, keys: DeviceSlice<u64>, counts: DeviceSlice<u64>) {
        let i = thread::index_1d().into();
        // SAFETY: `keys` is only read.
        let Some(key) = (unsafe { keys.get(i) }) else { return };
        // SAFETY: each thread writes its own count.
        unsafe { counts.set(i, table.get(key)) };
    }

    /// Thread `i` frees the nodes of bucket `i`.
    ///
    /// # Safety
    /// Heap and table are live, and no other thread uses the table.
    pub unsafe fn table_clear(heap: Heap, table: Table) {
        let bucket = thread::index_1d().into();
        if bucket < table.buckets.len() {
            table.clear(&heap, bucket);
        }
    }
}
