//! Kernels of the benchmarks. Next to each kernel is its floor: the same kernel without the
//! allocator.

mod heap;
mod heap_groups;

pub use heap::*;
pub use heap_groups::*;

use core::alloc::Layout;
use core::ptr::NonNull;
use warpheap_device::bump::Bump;
use warpheap_device::freelist::FreeList;
use warpheap_device::kernel::{DevicePtr, DeviceSlice};
use warpheap_device::sync::AtomicU64;
use warpheap_device::thread;
use warpheap_device::{kernel, kernel_arg};

kernel_arg! {
    /// The sizes that the threads allocate: always `min`, or pseudo-random from `min..=max`.
    #[derive(Debug, PartialEq, Eq)]
    pub struct Sizes {
        /// The smallest size, in bytes.
        pub min: u32,
        /// The largest size, in bytes.
        pub max: u32,
    }
}

const _: () = assert!(size_of::<Sizes>() == 8 && align_of::<Sizes>() == 4);

impl Sizes {
    /// The size that thread `i` allocates, in bytes.
    #[inline(always)]
    pub fn of(self, i: u32) -> u32 {
        let range = u64::from(self.max - self.min) + 1;
        self.min + ((u64::from(mix(i)) * range) >> 32) as u32
    }
}

kernel_arg! {
    /// The order in which the threads free: thread `i` frees the pointer at `place(i)`.
    #[derive(Debug, PartialEq, Eq)]
    pub struct Order {
        /// The base-2 logarithm of the number of threads.
        pub log2: u32,
        /// 0: its own pointer. 1: one that is far from those of its neighbours.
        pub permuted: u32,
    }
}

const _: () = assert!(size_of::<Order>() == 8 && align_of::<Order>() == 4);

impl Order {
    /// The index of the pointer that thread `i` frees. A bijection of `0..2^log2`: multiplication
    /// by an odd factor and xor with a shifted value are invertible.
    #[inline(always)]
    pub fn place(self, i: u32) -> u64 {
        if self.permuted == 0 {
            return i.into();
        }
        let mask = (1u64 << self.log2) as u32 - 1;
        let half = self.log2 / 2;
        let mut x = i.wrapping_mul(0x9e37_79b1) & mask;
        x ^= x >> half;
        x = x.wrapping_mul(0x85eb_ca6b) & mask;
        x ^= x >> half;
        x.into()
    }
}

/// A 32-bit finaliser: every bit of `i` changes about half of the result's bits.
#[inline(always)]
fn mix(i: u32) -> u32 {
    let mut x = i ^ 0x5851_f42d;
    x = (x ^ x >> 16).wrapping_mul(0x7feb_352d);
    x = (x ^ x >> 15).wrapping_mul(0x846c_a68b);
    x ^ x >> 16
}

#[inline(always)]
fn store(out: DeviceSlice<u64>, i: u32, block: Option<NonNull<u8>>) {
    let address = block.map_or(0, |b| b.as_ptr() as u64);
    // SAFETY: each thread writes its own entry.
    unsafe { out.set(i.into(), address) };
}

/// Writes to a block in a way that the compiler cannot remove.
///
/// # Safety
/// `block` is 8 bytes, aligned to 8, that the calling thread owns.
#[inline(always)]
unsafe fn touch(block: *mut u8, value: u64) {
    // SAFETY: live and aligned, by the caller's promise. The compiler cannot remove a store through
    // the facade.
    unsafe { &*block.cast::<AtomicU64>() }.store_relaxed(value);
}

/// Reads what [`touch`] wrote, from memory.
///
/// # Safety
/// `block` is 8 bytes, aligned to 8, that the calling thread owns.
#[inline(always)]
unsafe fn reread(block: *mut u8) -> u64 {
    // SAFETY: live and aligned, by the caller's promise.
    unsafe { &*block.cast::<AtomicU64>() }.load_relaxed()
}

#[inline(always)]
fn count(failures: *const AtomicU64) {
    // SAFETY: every kernel here is given a live counter.
    unsafe { &*failures }.add_relaxed(1);
}

/// A counter in device memory.
pub type Counter = DevicePtr<AtomicU64>;

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
        let size = sizes.of(i) as usize;
        // SAFETY: 16 is a power of two, and sizes are far below the limit of `Layout`.
        let layout = unsafe { Layout::from_size_align_unchecked(size, 16) };
        store(out, i, pool.alloc(layout));
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
        // SAFETY: `blocks` is only read.
        let address = unsafe { blocks.get(order.place(thread::index_1d())) };
        if address.is_none_or(|a| a == 0) {
            count(failures.0);
        }
    }

    /// Every thread frees one block.
    ///
    /// # Safety
    /// `blocks` were allocated from the pool, and each is named once.
    pub unsafe fn bench_freelist_free(pool: FreeList, blocks: DeviceSlice<u64>, order: Order, failures: Counter) {
        // SAFETY: `blocks` is only read.
        let address = unsafe { blocks.get(order.place(thread::index_1d())) };
        match NonNull::new(address.unwrap_or(0) as *mut u8) {
            // SAFETY: a block of the pool, named once, by the caller's promise.
            Some(block) => unsafe { pool.free(block) },
            None => count(failures.0),
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

    /// Every thread repeatedly allocates a block, stores 8 bytes in it and frees it.
    ///
    /// # Safety
    /// The pool is live and its blocks hold 8 bytes.
    pub unsafe fn bench_freelist_churn(pool: FreeList, turns: u32, failures: Counter) {
        let i = thread::index_1d();
        for turn in 0..turns {
            let Some(block) = pool.alloc() else {
                count(failures.0);
                continue;
            };
            // SAFETY: this thread owns the block, which holds 8 bytes.
            unsafe { touch(block.as_ptr(), u64::from(i) << 32 | u64::from(turn)) };
            // SAFETY: allocated above and not used afterwards.
            unsafe { pool.free(block) };
        }
    }
}
