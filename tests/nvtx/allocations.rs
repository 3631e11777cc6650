//! Counts the allocations of a thread on the host.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The allocator of the system. Counts its calls in [`COUNT`].
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: as for the allocator of the system, to which both calls go.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

/// The number of allocations that this thread makes in `call`.
pub fn count(call: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    call();
    COUNT.get() - before
}
