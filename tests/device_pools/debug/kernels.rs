//! Kernels that each make one mistake, or none.

use std::alloc::Layout;
use std::ptr::NonNull;
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::heap::{BlockCache, Heap};
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::sync::{peek_u8, poke_u8};
use warpheap_device::units::LaneMask;
use warpheap_device::{kernel, thread};

/// The thread that makes the mistake.
pub const CULPRIT: u32 = 69;
/// Position of the culprit: thread 5 of block 1.
pub const CULPRIT_AT: (u32, u32) = (5, 1);
pub const THREADS: u32 = 128;

pub fn layout(size: u64, align: u64) -> Layout {
    Layout::from_size_align(size as usize, align as usize).unwrap()
}

fn block(address: u64) -> NonNull<u8> {
    NonNull::new(address as *mut u8).unwrap()
}

/// Writes or reads an address that the thread does not own, but which is in the heap's memory.
pub fn scribble(address: u64, byte: u8) {
    // SAFETY: the address is in the heap's memory, which is live.
    unsafe { poke_u8(address as *mut u8, byte) }
}

fn look(address: u64) -> u8 {
    // SAFETY: the address is in the heap's memory, which is live.
    unsafe { peek_u8(address as *const u8) }
}

/// The line of the allocation in `panics_with_a_block`.
pub const PANICS_LINE: u32 = line!() + 30;
/// The line of the allocation in `stray`, 11 lines below.
pub const STRAY_LINE: u32 = line!() + 11;

kernel! {
    /// Every thread allocates, fills and frees a block. The culprit also writes `bytes` bytes, from
    /// byte `at` of its block on. Each thread stores the address of its block.
    ///
    /// # Safety
    /// The heap is live, and `out` has a word for every thread.
    pub unsafe fn stray(heap: Heap, size: u64, at: i64, bytes: u64, out: DeviceSlice<u64>) {
        let i = thread::index_1d();

        let got = heap.alloc(layout(size, 1)).unwrap();
        let user = got.as_ptr() as u64;
        (0..size).for_each(|byte| scribble(user + byte, i as u8));
        if i == CULPRIT {
            (0..bytes).for_each(|byte| scribble(user.wrapping_add_signed(at) + byte, 0x11));
        }
        // SAFETY: each thread writes its own word.
        unsafe { out.set(i.into(), user) };
        // SAFETY: this thread allocated the block.
        unsafe { heap.free(got) };
    }

    /// Every thread allocates a block. The threads from `first` on panic, the others free theirs.
    ///
    /// # Safety
    /// The heap is live.
    pub unsafe fn panics_with_a_block(heap: Heap, first: u32) {
        let got = heap.alloc(layout(24, 1)).unwrap();
        assert!(thread::index_1d() < first, "this thread owns a block");
        // SAFETY: this thread allocated the block.
        unsafe { heap.free(got) };
    }

    /// Every thread allocates a block and stores its address.
    ///
    /// # Safety
    /// See [`stray`].
    pub unsafe fn take(heap: Heap, size: u64, align: u64, out: DeviceSlice<u64>) {
        let got = heap.alloc(layout(size, align)).map_or(0, |got| got.as_ptr() as u64);
        // SAFETY: each thread writes its own word.
        unsafe { out.set(thread::index_1d().into(), got) };
    }

    /// Every thread frees the address in its word plus `at`, `times` times, unless the word is 0.
    ///
    /// # Safety
    /// The heap is live, and no thread uses the blocks.
    pub unsafe fn give(heap: Heap, blocks: DeviceSlice<u64>, at: u64, times: u32) {
        // SAFETY: no thread writes to `blocks`.
        let address = unsafe { blocks.get(thread::index_1d().into()) }.unwrap_or(0);
        for _ in 0..if address == 0 { 0 } else { times } {
            // SAFETY: `give` requires that no thread uses the block.
            unsafe { heap.free(block(address + at)) };
        }
    }

    /// All threads free the address in word 0.
    ///
    /// # Safety
    /// See [`give`].
    pub unsafe fn give_all(heap: Heap, blocks: DeviceSlice<u64>) {
        // SAFETY: no thread writes to `blocks`.
        let address = unsafe { blocks.get(0) }.unwrap_or(0);
        // SAFETY: `give_all` requires that no thread uses the block.
        unsafe { heap.free(block(address)) };
    }

    /// Counts in each thread's word the bytes of a new block, a zeroed block and a freed block that
    /// do not have the expected value.
    ///
    /// # Safety
    /// See [`stray`].
    pub unsafe fn read_poison(heap: Heap, size: u64, unset: u8, freed: u8, out: DeviceSlice<u64>) {
        let other = |user: NonNull<u8>, byte| {
            (0..size).filter(|at| look(user.as_ptr() as u64 + at) != byte).count() as u64
        };
        let new = heap.alloc(layout(size, 1)).unwrap();
        let zeroed = heap.alloc_zeroed(layout(size, 1)).unwrap();
        let wrong = other(new, unset) + other(zeroed, 0);
        // SAFETY: this thread allocated the block.
        unsafe { heap.free(new) };
        // SAFETY: this thread allocated the block.
        unsafe { heap.free(zeroed) };
        // SAFETY: each thread writes its own word.
        unsafe { out.set(thread::index_1d().into(), wrong + other(new, freed)) };
    }

    /// One thread repeatedly allocates and frees a block, and stores each address.
    ///
    /// # Safety
    /// See [`stray`]; `out` has a word for every turn.
    pub unsafe fn churn_alone(heap: Heap, size: u64, out: DeviceSlice<u64>) {
        for turn in 0..out.len() {
            let got = heap.alloc(layout(size, 1)).unwrap();
            // SAFETY: this is the only thread.
            unsafe { out.set(turn, got.as_ptr() as u64) };
            // SAFETY: this thread allocated the block.
            unsafe { heap.free(got) };
        }
    }

    /// Every thread allocates, writes all bytes of, resizes and frees blocks of many sizes and
    /// alignments. Stores the number of failed allocations times 2^32, plus the number of wrong
    /// results.
    ///
    /// # Safety
    /// See [`stray`].
    pub unsafe fn behave(heap: Heap, turns: u32, out: DeviceSlice<u64>) {
        let i = thread::index_1d();
        let (mut failed, mut wrong) = (0_u64, 0_u64);
        for turn in 0..turns {
            let (size, align) = (u64::from((i * 37 + turn * 101) % 700 + 1), 1 << ((i + turn) % 9));
            let Some(first) = heap.alloc(layout(size, align)) else {
                failed += 1;
                continue;
            };
            // SAFETY: this thread allocated the block.
            let fits = unsafe { is_of(&heap, first, size, align) };
            wrong += u64::from(!fits);
            (0..size).for_each(|at| scribble(first.as_ptr() as u64 + at, i as u8));
            let new_size = u64::from((i + turn * 53) % 900 + 1);
            // SAFETY: this thread allocated the block, with this layout.
            let next = unsafe { heap.realloc(first, layout(size, align), new_size as usize) };
            let Some(next) = next else {
                failed += 1;
                // SAFETY: this thread's block, which a failed `realloc` leaves allocated.
                unsafe { heap.free(first) };
                continue;
            };
            let kept = (0..size.min(new_size)).all(|at| look(next.as_ptr() as u64 + at) == i as u8);
            // SAFETY: this thread allocated the block.
            let fits = unsafe { is_of(&heap, next, new_size, align) };
            wrong += u64::from(!kept || !fits);
            (0..new_size).for_each(|at| scribble(next.as_ptr() as u64 + at, turn as u8));
            // SAFETY: this thread allocated the block.
            unsafe { heap.free(next) };
        }
        // SAFETY: each thread writes its own word.
        unsafe { out.set(i.into(), failed << 32 | wrong) };
    }
}

/// Whether a live block of the calling thread has this size and alignment.
///
/// # Safety
/// The calling thread has allocated the block and not freed it.
unsafe fn is_of(heap: &Heap, user: NonNull<u8>, size: u64, align: u64) -> bool {
    // SAFETY: the caller's block.
    let usable = unsafe { heap.usable_size(user) };
    usable as u64 == size && (user.as_ptr() as u64).is_multiple_of(align)
}

/// The lines of the allocations in `everyway`, in order; the first is 11 lines below.
pub const EVERY_LINE: [u32; 8] = {
    let first = line!() + 11;
    [first, first + 1, first + 3, first + 5, first + 7, first + 9, first + 11, first + 14]
};

kernel! {
    /// One warp. Every lane allocates through every function of the interface and keeps the blocks.
    ///
    /// # Safety
    /// The heap is live.
    pub unsafe fn everyway(heap: Heap) {
        let of = |size| layout(size, 1);
        heap.alloc(of(10)).unwrap();
        heap.alloc_zeroed(of(20)).unwrap();
        // SAFETY: the first allocation has that layout and is not used.
        unsafe { heap.realloc(heap.alloc(of(1)).unwrap(), of(1), 30) }.unwrap();
        // SAFETY: all lanes call this together.
        unsafe { heap.alloc_warp(LaneMask::ALL, of(40)) }.unwrap();
        // SAFETY: all threads of the block call this together.
        unsafe { heap.alloc_block(of(50)) }.unwrap();
        // SAFETY: all threads of the block call this together.
        unsafe { heap.alloc_block_each(of(60)) }.unwrap();

        DeviceAlloc::alloc(&heap, of(70)).unwrap();
        // SAFETY: all threads of the block call this together, and the block has no other cache.
        let mut cache = unsafe { BlockCache::<32, 2>::begin(&heap, of(80)) };
        cache.alloc(of(80)).unwrap();
        assert_eq!(cache.fill(2), 0);
    }
}
