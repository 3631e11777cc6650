//! Kernels that fill a heap and exchange its blocks, for measurements over its load.
//!
//! A *place* is an entry of `slots`: the address of a live block or null. A block contains the
//! number of its place in its first 8 bytes.

use super::common::{layout, mix, reread, touch};
use core::ptr::NonNull;
use warpheap_device::heap::Heap;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::thread;
use warpheap_device::{kernel, kernel_arg};

/// The thread's allocation failed.
pub const LOAD_FAILED: u8 = 0;
/// The thread has a block.
pub const LOAD_GRANTED: u8 = 1;
/// The thread's old block had a wrong content. The thread neither freed nor allocated.
pub const LOAD_WRONG: u8 = 2;

/// Sizes are multiples of this.
const STEP_BYTES: u32 = 16;

kernel_arg! {
    /// The sizes that are allocated: pseudo-random multiples of 16 in `min..=max`, which are
    /// multiples of 16.
    #[derive(Debug, PartialEq, Eq)]
    pub struct Draw {
        /// The smallest size, in bytes. At least 16.
        pub min: u32,
        /// The largest size, in bytes.
        pub max: u32,
        /// Different seeds give a place different sizes.
        pub seed: u32,
    }
}

const _: () = assert!(size_of::<Draw>() == 12 && align_of::<Draw>() == 4);

impl Draw {
    /// The size of the block at `place`, in bytes.
    #[inline(always)]
    pub fn of(self, place: u32) -> u32 {
        let count = u64::from((self.max - self.min) / STEP_BYTES) + 1;
        self.min + STEP_BYTES * ((u64::from(mix(place ^ mix(self.seed))) * count) >> 32) as u32
    }
}

kernel_arg! {
    /// The places that the threads of a kernel use, each its own.
    #[derive(Debug, PartialEq, Eq)]
    pub struct Stripe {
        /// The place of thread 0.
        pub first: u32,
        /// The distance between the places of adjacent threads, with a wrap at `total`. It has no
        /// common divisor with `total`.
        pub step: u32,
        /// The number of places.
        pub total: u32,
        /// Threads that have a place, at most `total`. The others do nothing.
        pub threads: u32,
    }
}

const _: () = assert!(size_of::<Stripe>() == 16 && align_of::<Stripe>() == 4);

impl Stripe {
    /// The place of thread `i`.
    #[inline(always)]
    pub fn place(self, i: u32) -> u32 {
        ((u64::from(self.first) + u64::from(i) * u64::from(self.step)) % u64::from(self.total)) as u32
    }
}

/// The address of the entry of `slots` for `place`.
///
/// # Safety
/// `slots` is live and has more than `place` entries.
#[inline(always)]
unsafe fn slot(slots: DeviceSlice<u64>, place: u32) -> *mut u8 {
    // SAFETY: in bounds, by the caller's promise.
    unsafe { slots.as_ptr().add(place as usize) }.cast()
}

/// Allocates the block of `place`, writes to it and stores its address, or null.
///
/// # Safety
/// As for [`slot`]. No other thread uses the entry.
#[inline(always)]
pub(crate) unsafe fn alloc_at(heap: Heap, slots: DeviceSlice<u64>, place: u32, draw: Draw) -> u8 {
    let block = heap.alloc(layout(draw.of(place)));
    if let Some(block) = block {
        // SAFETY: this thread owns the block, which holds 8 bytes.
        unsafe { touch(block.as_ptr(), place.into()) };
    }
    // SAFETY: the caller's promises.
    let entry = unsafe { slot(slots, place) };
    // SAFETY: only this thread uses the entry.
    unsafe { touch(entry, block.map_or(0, |block| block.as_ptr() as u64)) };
    if block.is_some() { LOAD_GRANTED } else { LOAD_FAILED }
}

/// The block of `place`, if it has one.
///
/// # Safety
/// As for [`slot`].
#[inline(always)]
unsafe fn block_of(slots: DeviceSlice<u64>, place: u32) -> Option<NonNull<u8>> {
    // SAFETY: the caller's promise.
    let entry = unsafe { slot(slots, place) };
    // SAFETY: live and aligned; entries are accessed through the facade.
    NonNull::new(unsafe { reread(entry) } as *mut u8)
}

kernel! {
    /// Every thread allocates the block of its place.
    ///
    /// # Safety
    /// The heap and the buffers are live and nothing else accesses the buffers. `slots` has an
    /// entry for each place of `stripe`, and `results` for each of its threads.
    pub unsafe fn bench_load_fill(
        heap: Heap,
        slots: DeviceSlice<u64>,
        results: DeviceSlice<u8>,
        stripe: Stripe,
        draw: Draw,
    ) {
        let i = thread::index_1d();
        if i < stripe.threads {
            // SAFETY: the caller's promises; threads have different places.
            let result = unsafe { alloc_at(heap, slots, stripe.place(i), draw) };
            // SAFETY: each thread writes its own entry.
            unsafe { results.set(i.into(), result) };
        }
    }

    /// Every thread frees the block of its place, if there is one, and allocates another. It checks
    /// the content of the block before.
    ///
    /// # Safety
    /// As for [`bench_load_fill`]. Each entry of `slots` is null or a live block of the heap that
    /// holds 8 bytes, and no two are the same.
    pub unsafe fn bench_load_turn(
        heap: Heap,
        slots: DeviceSlice<u64>,
        results: DeviceSlice<u8>,
        stripe: Stripe,
        draw: Draw,
    ) {
        let i = thread::index_1d();
        if i >= stripe.threads {
            return;
        }
        let place = stripe.place(i);
        // SAFETY: the caller's promises.
        let old = unsafe { block_of(slots, place) };
        // SAFETY: a live block of 8 bytes or more.
        let is_right = old.is_none_or(|old| unsafe { reread(old.as_ptr()) } == u64::from(place));
        let result = if is_right {
            if let Some(old) = old {
                // SAFETY: a live block of the heap, which only this thread uses.
                unsafe { heap.free(old) };
            }
            // SAFETY: the caller's promises; threads have different places.
            unsafe { alloc_at(heap, slots, place, draw) }
        } else {
            LOAD_WRONG
        };
        // SAFETY: each thread writes its own entry.
        unsafe { results.set(i.into(), result) };
    }

    /// The floor of [`bench_load_turn`], without an allocator: every thread reads its block, and
    /// writes to the block of a place that is far away.
    ///
    /// # Safety
    /// As for [`bench_load_turn`].
    pub unsafe fn bench_load_turn_floor(
        slots: DeviceSlice<u64>,
        results: DeviceSlice<u8>,
        stripe: Stripe,
    ) {
        let i = thread::index_1d();
        if i >= stripe.threads {
            return;
        }
        let place = stripe.place(i);
        let far = (place + stripe.total / 3) % stripe.total;
        // SAFETY: the caller's promises.
        let old = unsafe { block_of(slots, place) };
        // SAFETY: as above.
        let other = unsafe { block_of(slots, far) };
        // SAFETY: a live block of 8 bytes or more.
        let is_right = old.is_none_or(|old| unsafe { reread(old.as_ptr()) } == u64::from(place));
        if let Some(other) = other {
            // SAFETY: a live block of 8 bytes or more. Its content does not change: all threads
            // write the number of its place.
            unsafe { touch(other.as_ptr(), far.into()) };
        }
        // SAFETY: the caller's promises.
        let entry = unsafe { slot(slots, place) };
        // SAFETY: live and aligned. The value does not change.
        unsafe { touch(entry, old.map_or(0, |old| old.as_ptr() as u64)) };
        // SAFETY: each thread writes its own entry.
        unsafe { results.set(i.into(), if is_right { LOAD_GRANTED } else { LOAD_WRONG }) };
    }
}
