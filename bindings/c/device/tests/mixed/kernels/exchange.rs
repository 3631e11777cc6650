//! Blocks that kernels in different languages allocate, fill, pass on through shared cells, verify
//! and free.
//!
//! ```text
//! block | bytes, language << 32 | key + GOLDEN | key + 2 * GOLDEN | ..   key: hash of the address
//! cells | address | 0 | ..   of blocks that no thread owns; a swap takes one and leaves another
//! ```
//!
//! - I1. A block is owned by the thread that allocated it or took it out of a cell. Only its owner
//!   accesses and frees it.
//! - I2. The swap orders the accesses of one owner before those of the next.
//!
//! If two live blocks overlap, the pattern of one is overwritten, and its owner counts it as torn.

use core::ptr::NonNull;
use warpheap_device::check::hash::{GOLDEN, absorb, below};
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::sync::{AtomicU64, peek_u64, poke_u64};
use warpheap_device::{kernel_arg, thread};

kernel_arg! {
    /// What the threads of a launch do.
    #[derive(Debug, PartialEq, Eq)]
    pub struct ExchangeRound {
        /// Determines sizes and cells.
        pub seed: u64,
        /// Blocks that each thread allocates; 0: thread `i` empties cell `i` instead.
        pub steps: u32,
        /// The smallest size in bytes, at least 16.
        pub min_bytes: u32,
        /// The largest size in bytes.
        pub max_bytes: u32,
        /// A number of the kernel's language.
        pub language: u32,
    }
}

const _: () = assert!(size_of::<ExchangeRound>() == 24 && align_of::<ExchangeRound>() == 8);

/// The allocator of a language.
pub struct Heaps<A: Fn(u32) -> *mut u8, F: Fn(NonNull<u8>)> {
    pub alloc: A,
    pub free: F,
}

/// The counters of all kernels: verified and freed blocks, failed allocations, torn blocks, and
/// blocks that were allocated by another language than freed them.
#[derive(Clone, Copy)]
pub struct Counts(DeviceSlice<u64>);

impl Counts {
    pub fn of(words: DeviceSlice<u64>) -> Counts {
        Counts(words)
    }

    pub fn add_failures(self, n: u64) {
        self.add(1, n);
    }

    fn add(self, i: usize, n: u64) {
        if n == 0 || i as u64 >= self.0.len() {
            return;
        }
        // SAFETY: inside of the slice.
        let word = unsafe { self.0.as_ptr().add(i) };
        // SAFETY: live memory, which all threads access as an atomic; it has its integer's layout.
        // Relaxed: a statistic.
        unsafe { &*word.cast::<AtomicU64>() }.add_relaxed(n);
    }
}

/// Runs one thread's part of a launch.
///
/// # Safety
/// The heap, `cells` and `counts` are live. `cells` is not empty, was 0 before the first exchange,
/// and only exchanges access it.
#[inline(always)]
pub unsafe fn exchange<A: Fn(u32) -> *mut u8, F: Fn(NonNull<u8>)>(
    heap: &Heaps<A, F>,
    cells: DeviceSlice<u64>,
    counts: Counts,
    round: ExchangeRound,
) {
    let (mut freed, mut failed, mut torn, mut crossed) = (0, 0, 0, 0);
    let mut retire = |block: u64| {
        let Some(block) = NonNull::new(block as *mut u8) else { return };
        // SAFETY: this thread owns the block (I1).
        match unsafe { verify(block, &round) } {
            Some(language) => crossed += u64::from(language != round.language),
            None => torn += 1,
        }
        freed += 1;
        (heap.free)(block);
    };
    let me = u64::from(thread::index_1d());
    if round.steps == 0 && me < cells.len() {
        retire(swap(cells, me as usize, 0));
    }
    let mut state = absorb(round.seed, me);
    for _ in 0..round.steps {
        state = absorb(state, 0);
        let bytes = round.min_bytes + below(state << 32, round.max_bytes - round.min_bytes + 1);
        let block = (heap.alloc)(bytes);
        if block.is_null() {
            failed += 1;
        } else {
            // SAFETY: this thread owns the block of so many bytes.
            unsafe { fill(block, bytes, &round) };
        }
        let cell = below(state, cells.len() as u32) as usize;
        retire(swap(cells, cell, block as u64));
    }
    counts.add(0, freed);
    counts.add(1, failed);
    counts.add(2, torn);
    counts.add(3, crossed);
}

/// Puts `block` into a cell and takes what was there.
#[inline(always)]
fn swap(cells: DeviceSlice<u64>, i: usize, block: u64) -> u64 {
    // SAFETY: the callers' `i` is below the number of cells.
    let cell = unsafe { cells.as_ptr().add(i) };
    // SAFETY: live memory, which all threads access as an atomic; it has its integer's layout.
    // ordering: acquire and release; pairs with itself and with the swap of the other language: the
    // last owner's accesses, before the next one's (I2).
    unsafe { &*cell.cast::<AtomicU64>() }.swap_acq_rel(block)
}

/// The pattern's key. The same block gets another one in a run with another seed.
#[inline(always)]
fn key(block: *mut u8, seed: u64) -> u64 {
    absorb(seed, block as u64)
}

/// # Safety
/// `block` is `bytes` bytes, at least 16, that the caller owns.
#[inline(always)]
unsafe fn fill(block: *mut u8, bytes: u32, round: &ExchangeRound) {
    let words = block.cast::<u64>();
    let mut word = key(block, round.seed);
    // SAFETY: the first word of the block.
    unsafe { poke_u64(words, u64::from(round.language) << 32 | u64::from(bytes)) };
    for i in 1..bytes as usize / 8 {
        word = word.wrapping_add(GOLDEN);
        // SAFETY: `i` is below the number of words.
        let place = unsafe { words.add(i) };
        // SAFETY: inside of the block, and aligned.
        unsafe { poke_u64(place, word) };
    }
}

/// The language that allocated the block, or `None` if the block does not contain its pattern.
///
/// # Safety
/// The caller owns the block, which [`fill`] wrote.
#[inline(always)]
unsafe fn verify(block: NonNull<u8>, round: &ExchangeRound) -> Option<u32> {
    let words = block.as_ptr().cast::<u64>();
    // SAFETY: the first word of the block.
    let head = unsafe { peek_u64(words) };
    let bytes = head as u32;
    if !(round.min_bytes..=round.max_bytes).contains(&bytes) {
        return None;
    }
    let mut word = key(block.as_ptr(), round.seed);
    for i in 1..bytes as usize / 8 {
        word = word.wrapping_add(GOLDEN);
        // SAFETY: `i` is below the number of words.
        let place = unsafe { words.add(i) };
        // SAFETY: inside of the block, and aligned.
        if unsafe { peek_u64(place) } != word {
            return None;
        }
    }
    Some((head >> 32) as u32)
}
