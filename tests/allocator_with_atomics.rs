//! Kernels on the CPU in a program with a global allocator that uses the facade's atomics.
//!
//! A program of its own, because of the allocator.
#![cfg(not(loom))]

#[path = "simt/support.rs"]
#[allow(dead_code, reason = "only some of it is used here")]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use support::{Words, grid, modes, run, word};
use warpheap_device::kernel;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::sync::AtomicU64;
use warpheap_device::thread;

/// Counts its allocations. Each operation on the count is a step of the lane that allocates, if
/// there is one.
struct Counting(OnceLock<AtomicU64>);

#[global_allocator]
static ALLOCATOR: Counting = Counting(OnceLock::new());

impl Counting {
    fn count(&self) -> &AtomicU64 {
        self.0.get_or_init(|| AtomicU64::new(0))
    }
}

// SAFETY: as for the allocator of the system, to which both calls go.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.count().add_relaxed(1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.count().or_relaxed(0);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

kernel! {
    /// Every thread allocates, waits for the others, and adds up what it has written.
    unsafe fn allocates(words: DeviceSlice<u32>) {
        let values: Vec<u32> = (0..thread::index_in_block()).collect();
        // SAFETY: all threads reach this barrier.
        unsafe { thread::sync_threads() };
        word(words, 0).add_relaxed(values.iter().map(|_| 1).sum());
    }
}

#[test]
fn lanes_and_the_executor_allocate() {
    const THREADS: u32 = 64;
    for mode in modes() {
        let words = Words::zeroed(1);
        let before = ALLOCATOR.count().load_relaxed();
        run(allocates, mode, grid(8, THREADS), (words.slice(),)).unwrap();
        assert_eq!(words.values(), [8 * THREADS * (THREADS - 1) / 2], "{mode:?}");
        let allocations = ALLOCATOR.count().load_relaxed() - before;
        assert!(allocations > u64::from(8 * (THREADS - 1)), "{allocations} with {mode:?}");
    }
}
