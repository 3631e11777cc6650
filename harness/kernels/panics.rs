//! Kernels of `harness/tests/panics/`: threads that panic.

use core::alloc::Layout;
use warpheap_device::heap::Heap;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{kernel, thread};

/// The line of the index in `look_up`.
pub const INDEX_LINE: u32 = line!() + 4;

#[inline(always)]
fn look_up(table: &[u32], i: u32) -> u32 {
    table[i as usize]
}

/// The checks of [`demo_check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// `assert!`
    Assert,
    /// A division by zero.
    Division,
    /// `Option::unwrap`
    Unwrap,
    /// `debug_assert!`, which a kernel has only with `Builder::debug_assertions`.
    DebugAssert,
    /// An overflow, checked only with `Builder::debug_assertions`.
    Overflow,
}

/// The line of the match in `check`. The checks are in the lines after it.
pub const CHECK_LINE: u32 = line!() + 6;

/// A check that fails if `one` is 1.
#[inline(always)]
#[rustfmt::skip]
fn check(number: u32, one: u32) -> u32 {
    match number {
        0 => { assert!(one != 1, "one is {one}"); one }
        1 => 7 / (one ^ 1),
        2 => (one ^ 1).checked_sub(1).unwrap(),
        3 => { debug_assert!(one != 1, "one is {one}"); one }
        _ => u32::MAX + one,
    }
}

kernel! {
    /// Thread `i` allocates a block, looks up value `i` of `table`, writes it to `out` and frees
    /// the block. A thread that finds no value panics, because its index is out of bounds.
    ///
    /// # Safety
    /// The heap, `table` and `out` are live, and nothing else accesses `out`.
    pub unsafe fn demo_index(heap: Heap, table: DeviceSlice<u32>, out: DeviceSlice<u32>) {
        let i = thread::index_1d();
        let block = heap.alloc(Layout::new::<[u64; 2]>());
        // SAFETY: the table is live, and nothing writes it.
        let table = unsafe { core::slice::from_raw_parts(table.as_ptr(), table.len() as usize) };
        let value = look_up(table, i);
        // SAFETY: each thread writes its own value.
        unsafe { out.set(i.into(), value) };
        if let Some(block) = block {
            // SAFETY: allocated above, and not used after.
            unsafe { heap.free(block) };
        }
    }

    /// Thread 70 makes check `number` (the [`Check`]s in their order), which fails if `one` is 1.
    /// The threads of each block wait for each other, then all but thread 70 write 1 to `out`.
    ///
    /// # Safety
    /// `out` is live, and nothing else accesses it.
    pub unsafe fn demo_check(number: u32, one: u32, out: DeviceSlice<u32>) {
        let i = thread::index_1d();
        let value = if i == 70 { check(number, one) } else { 1 };
        // SAFETY: all threads of the block that have not ended reach this barrier.
        unsafe { thread::sync_threads() };
        // SAFETY: each thread writes its own value.
        unsafe { out.set(i.into(), value) };
    }
}
