//! What the kernels of the benchmarks share: their arguments, and access to blocks.

use core::alloc::Layout;
use core::ptr::NonNull;
use warpheap_device::kernel::{DevicePtr, DeviceSlice};
use warpheap_device::kernel_arg;
use warpheap_device::sync::AtomicU64;

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
pub(crate) fn mix(i: u32) -> u32 {
    let mut x = i ^ 0x5851_f42d;
    x = (x ^ x >> 16).wrapping_mul(0x7feb_352d);
    x = (x ^ x >> 15).wrapping_mul(0x846c_a68b);
    x ^ x >> 16
}

#[inline(always)]
pub(crate) fn store(out: DeviceSlice<u64>, i: u32, block: Option<NonNull<u8>>) {
    let address = block.map_or(0, |b| b.as_ptr() as u64);
    // SAFETY: each thread writes its own entry.
    unsafe { out.set(i.into(), address) };
}

/// Writes to a block in a way that the compiler cannot remove.
///
/// # Safety
/// `block` is 8 bytes, aligned to 8, that the calling thread owns.
#[inline(always)]
pub(crate) unsafe fn touch(block: *mut u8, value: u64) {
    // SAFETY: live and aligned, by the caller's promise. The compiler cannot remove a store through
    // the facade.
    unsafe { &*block.cast::<AtomicU64>() }.store_relaxed(value);
}

/// Reads what [`touch`] wrote, from memory.
///
/// # Safety
/// `block` is 8 bytes, aligned to 8, that the calling thread owns.
#[inline(always)]
pub(crate) unsafe fn reread(block: *mut u8) -> u64 {
    // SAFETY: live and aligned, by the caller's promise.
    unsafe { &*block.cast::<AtomicU64>() }.load_relaxed()
}

/// A counter in device memory.
pub type Counter = DevicePtr<AtomicU64>;

/// Adds 1 to a counter, which must be live.
#[inline(always)]
pub(crate) fn count(counter: Counter) {
    // SAFETY: every kernel here is given a live counter.
    unsafe { &*counter.0 }.add_relaxed(1);
}

/// The block whose address is entry `i`, if there is one. Only kernels that read all entries may
/// call it, or threads that access only their own entry.
#[inline(always)]
pub(crate) fn block_at(blocks: DeviceSlice<u64>, i: u64) -> Option<NonNull<u8>> {
    // SAFETY: no other thread writes the entry.
    let address = unsafe { blocks.get(i) }.unwrap_or(0);
    NonNull::new(address as *mut u8)
}

/// A layout of `size` bytes, aligned to 16.
#[inline(always)]
pub(crate) fn layout(size: u32) -> Layout {
    // SAFETY: 16 is a power of two, and sizes are far below the limit of `Layout`.
    unsafe { Layout::from_size_align_unchecked(size as usize, 16) }
}
