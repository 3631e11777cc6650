//! Kernels of the benchmarks of the arena and the free list, and the floors of all benchmarks.

use super::common::{Counter, Order, Sizes, block_at, count, layout, store, touch};
use core::ptr::NonNull;
use warpheap_device::bump::Bump;
use warpheap_device::freelist::FreeList;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{kernel, thread};

kernel! {
    /// Keeps the device busy for about `nanos`, so that the timed kernel is already queued.
    ///
    /// # Safety
    /// No requirement beyond a live launch.
    pub unsafe fn bench_spin(nanos: u64) {
        let start = thread::global_timer_nanos();
        // At most a few hundred thousand of these steps fit into 40 µs.
        for _ in 0..10_000_000 {
            if thread::global_timer_nanos() - start >= nanos {
                break;
            }
        }
    }

    /// Floor of the allocations: every thread stores an address.
    ///
    /// # Safety
    /// `out` is live and nothing else accesses it.
    pub unsafe fn bench_alloc_floor(base: u64, out: DeviceSlice<u64>, sizes: Sizes) {
        let i = thread::index_1d();
        store(out, i, NonNull::new((base + u64::from(i) * 16 + u64::from(sizes.of(i))) as *mut u8));
    }

    /// Every thread allocates from an arena and stores the address.
    ///
    /// # Safety
    /// `out` is live and nothing else accesses it; the arena is live.
    pub unsafe fn bench_bump_alloc(pool: Bump, out: DeviceSlice<u64>, sizes: Sizes) {
        let i = thread::index_1d();
        store(out, i, pool.alloc(layout(sizes.of(i))));
    }

    /// Every thread allocates a block and stores the address.
    ///
    /// # Safety
    /// `out` is live and nothing else accesses it; the pool is live.
    pub unsafe fn bench_freelist_alloc(pool: FreeList, out: DeviceSlice<u64>) {
        store(out, thread::index_1d(), pool.alloc());
    }

    /// Floor of the frees: every thread loads an address and compares it with null.
    ///
    /// # Safety
    /// `blocks` and `failures` are live.
    pub unsafe fn bench_free_floor(blocks: DeviceSlice<u64>, order: Order, failures: Counter) {
        if block_at(blocks, order.place(thread::index_1d())).is_none() {
            count(failures);
        }
    }

    /// Every thread frees one block.
    ///
    /// # Safety
    /// `blocks` were allocated from the pool, and each is named once.
    pub unsafe fn bench_freelist_free(pool: FreeList, blocks: DeviceSlice<u64>, order: Order, failures: Counter) {
        match block_at(blocks, order.place(thread::index_1d())) {
            // SAFETY: the caller's promises: a block of the pool, named once.
            Some(block) => unsafe { pool.free(block) },
            None => count(failures),
        }
    }

    /// Floor of the churn: every thread repeatedly stores to its own place.
    ///
    /// # Safety
    /// `out` is live and nothing else accesses it.
    pub unsafe fn bench_churn_floor(out: DeviceSlice<u64>, turns: u32) {
        let i = thread::index_1d();
        // SAFETY: `out` has an entry for each thread of the launch.
        let mine = unsafe { out.as_ptr().add(i as usize) };
        for turn in 0..turns {
            // SAFETY: each thread writes its own entry.
            unsafe { touch(mine.cast(), u64::from(i) << 32 | u64::from(turn)) };
        }
    }

    /// Floor of the churn of a suite: every thread repeatedly stores to its own place, `stride`
    /// words of 8 bytes after the place of the previous thread.
    ///
    /// # Safety
    /// `memory` has `stride` words for each thread, it is live, and nothing else accesses it.
    pub unsafe fn bench_churn_strided_floor(memory: DeviceSlice<u64>, stride: u32, turns: u32) {
        let i = thread::index_1d();
        // SAFETY: `memory` has `stride` words for each thread of the launch.
        let mine = unsafe { memory.as_ptr().add(i as usize * stride as usize) };
        for turn in 0..turns {
            // SAFETY: each thread writes its own word.
            unsafe { touch(mine.cast(), u64::from(i) << 32 | u64::from(turn)) };
        }
    }

    /// Every thread repeatedly allocates a block, stores 8 bytes in it and frees it.
    ///
    /// # Safety
    /// The pool is live and its blocks hold 8 bytes.
    pub unsafe fn bench_freelist_churn(pool: FreeList, turns: u32, failures: Counter) {
        let i = thread::index_1d();
        for turn in 0..turns {
            let Some(block) = pool.alloc() else {
                count(failures);
                continue;
            };
            // SAFETY: this thread owns the block, which holds 8 bytes.
            unsafe { touch(block.as_ptr(), u64::from(i) << 32 | u64::from(turn)) };
            // SAFETY: allocated above and not used afterwards.
            unsafe { pool.free(block) };
        }
    }
}
