//! The block cache, used by threads that end in every possible way.

use super::super::bench::{Counter, count};
use super::layout;
use core::ptr::NonNull;
use warpheap_device::heap::{BlockCache, Heap};
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::sync::{AtomicU32, AtomicU64};
use warpheap_device::{kernel, kernel_arg, thread};

/// Threads with cache slots in the tests: fewer than a block has.
pub const CACHE_THREADS: u32 = 64;
/// Blocks that a thread with slots may keep.
const CACHE_SLOTS: u32 = 3;

type Cache<'h> = BlockCache<'h, CACHE_THREADS, CACHE_SLOTS>;

/// How threads end [`groups_cache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Endings {
    /// All threads return, some early.
    Return = 0,
    /// All threads end the cache together.
    Together = 1,
    /// Some threads return early, some exit or forget their cache handle; the others end the cache
    /// together.
    Any = 2,
}

kernel_arg! {
    /// The plan for the threads of [`groups_cache`].
    #[derive(Debug)]
    pub struct Plan {
        /// The maximum number of steps per thread.
        pub steps: u32,
        /// The size of a block of the cache, in bytes.
        pub bytes: u32,
        /// The seed of every choice that a thread makes.
        pub seed: u32,
        /// An [`Endings`].
        pub endings: u32,
        /// If not 0, one thread in 16 plants a double free: it frees a block, and another thread
        /// frees it again.
        pub plant: u32,
    }
}

const _: () = assert!(size_of::<Plan>() == 20 && align_of::<Plan>() == 4);

/// A generator of pseudo-random numbers from a seed.
struct Numbers(u32);

impl Numbers {
    fn below(&mut self, n: u32) -> u32 {
        // A linear congruential generator: its high bits are the better ones.
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((u64::from(self.0) * u64::from(n)) >> 32) as u32
    }
}

/// Marks the owned blocks: a word per 16 bytes of the heap, 1 while a thread owns the block that
/// starts there.
#[derive(Clone, Copy)]
struct Owners {
    marks: DeviceSlice<u32>,
    base: u64,
    failures: Counter,
}

impl Owners {
    fn set(self, block: NonNull<u8>, from: u32, to: u32) {
        let i = (block.as_ptr() as u64 - self.base) / 16;
        // SAFETY: there is a word for every block.
        let mark = unsafe { self.marks.as_ptr().add(i as usize) };
        // SAFETY: the word is live, and an atomic has the layout of its integer.
        let mark = unsafe { &*mark.cast::<AtomicU32>() };
        if mark.swap_relaxed(to) != from {
            count(self.failures);
        }
    }
}

/// State of one thread of [`groups_cache`].
struct Worker<'h> {
    heap: &'h Heap,
    cache: Cache<'h>,
    owners: Owners,
    bytes: u32,
    held: Option<NonNull<u8>>,
}

impl Worker<'_> {
    /// Allocates, unless the thread already holds a block.
    fn take(&mut self, bytes: u32) {
        if self.held.is_none() {
            self.held = self.cache.alloc(layout(bytes));
        } else {
            return;
        }
        if let Some(block) = self.held {
            self.owners.set(block, 0, 1);
            // SAFETY: this thread just allocated the block.
            let usable = unsafe { self.heap.usable_size(block) };
            if usable < bytes as usize {
                count(self.owners.failures);
            }
        }
    }

    /// Frees the block that the thread holds.
    fn give(&mut self) {
        if let Some(block) = self.held.take() {
            self.owners.set(block, 1, 0);
            // SAFETY: this thread owns the block: its mark was 1.
            unsafe { self.cache.free(block) };
        }
    }

    /// Exchanges the block that the thread holds for the one at `place`.
    fn swap(&mut self, place: &AtomicU64) {
        let mine = self.held.map_or(0, |block| block.as_ptr() as u64);
        // ordering: acquire and release; pairs with itself: the former owner's writes before the
        // next owner's.
        self.held = NonNull::new(place.swap_acq_rel(mine) as *mut u8);
    }

    fn step(&mut self, numbers: &mut Numbers, places: DeviceSlice<u64>) {
        match numbers.below(8) {
            0..3 => self.take(self.bytes),
            3..6 => self.give(),
            // A size of another class, which the heap serves.
            6 => self.take(if numbers.below(2) == 0 { 3 * self.bytes } else { self.bytes / 3 }),
            _ => {
                let i = numbers.below(places.len() as u32);
                // SAFETY: `i` is below the number of places.
                let place = unsafe { places.as_ptr().add(i as usize) };
                // SAFETY: the word is live and only exchanged atomically; an atomic has the layout
                // of its integer.
                self.swap(unsafe { &*place.cast::<AtomicU64>() });
            }
        }
    }
}

kernel! {
    /// Threads allocate and free through the cache of their block, and exchange blocks with threads
    /// of the same block and of other blocks. Then they end as the plan says.
    ///
    /// # Safety
    /// All arguments are live. `marks` has a zero for every 16 bytes of the heap. `places` are
    /// addresses of blocks, or 0.
    pub unsafe fn groups_cache(
        heap: Heap,
        marks: DeviceSlice<u32>,
        places: DeviceSlice<u64>,
        plan: Plan,
        failures: Counter,
    ) {
        let i = thread::index_1d();
        // SAFETY: all threads execute this call first, and the block has no other cache.
        let cache = unsafe { Cache::begin(&heap, layout(plan.bytes)) };
        let owners = Owners { marks, base: heap.base() as u64, failures };
        let mut worker = Worker { heap: &heap, cache, owners, bytes: plan.bytes, held: None };
        let mut numbers = Numbers(plan.seed ^ i.wrapping_mul(0x9e37_79b9));
        let all_stay = plan.endings == Endings::Together as u32;
        let steps = if all_stay || numbers.below(2) == 0 { plan.steps } else { numbers.below(plan.steps) };
        for _ in 0..steps {
            worker.step(&mut numbers, places);
        }
        if plan.plant != 0 && i.is_multiple_of(16) {
            worker.take(plan.bytes);
            let again = worker.held;
            worker.give();
            // The mark says that this thread no longer owns the block. The thread that takes it
            // from the place frees it again.
            worker.held = again;
            // SAFETY: there is at least one place.
            worker.swap(unsafe { &*places.as_ptr().cast::<AtomicU64>() });
        }
        worker.give();
        let ending = if plan.endings == Endings::Any as u32 { numbers.below(4) } else { plan.endings };
        match ending {
            // Returns, in the middle of the grid's work or at its end.
            0 => {}
            // SAFETY: every thread that has not ended executes this call; the others end without
            // it.
            1 => unsafe { worker.cache.end() },
            2 => thread::exit(),
            _ => core::mem::forget(worker.cache),
        }
    }

    /// Every thread allocates through the cache until allocation fails or it holds 32 blocks,
    /// writes the number of blocks, and frees them through the cache. All threads end the cache
    /// together.
    ///
    /// # Safety
    /// All arguments are live. `taken` has a word for each thread. `marks` as for [`groups_cache`].
    pub unsafe fn groups_exhaust(
        heap: Heap,
        marks: DeviceSlice<u32>,
        taken: DeviceSlice<u64>,
        bytes: u32,
        failures: Counter,
    ) {
        // SAFETY: all threads execute this call first, and the block has no other cache.
        let mut cache = unsafe { Cache::begin(&heap, layout(bytes)) };
        let owners = Owners { marks, base: heap.base() as u64, failures };
        cache.fill(u32::MAX);
        let mut blocks = [None; 32];
        let mut count = 0;
        for place in &mut blocks {
            *place = cache.alloc(layout(bytes));
            match *place {
                Some(block) => owners.set(block, 0, 1),
                None => break,
            }
            count += 1;
        }
        for block in blocks.into_iter().flatten() {
            owners.set(block, 1, 0);
            // SAFETY: this thread owns the block: its mark was 1.
            unsafe { cache.free(block) };
        }
        // SAFETY: each thread writes its own word.
        unsafe { taken.set(thread::index_1d().into(), count) };
        // SAFETY: all threads execute this call.
        unsafe { cache.end() };
    }

    /// Every thread keeps blocks in the cache. One thread in `gone` exits without ending the cache.
    /// The others return, or end the cache together if `together` is not 0.
    ///
    /// # Safety
    /// The heap is live, and `gone` is not 0.
    pub unsafe fn groups_vanish(heap: Heap, gone: u32, together: u32) {
        // SAFETY: all threads execute this call first, and the block has no other cache.
        let mut cache = unsafe { Cache::begin(&heap, layout(16)) };
        cache.fill(2);
        if thread::index_in_block().is_multiple_of(gone) {
            thread::exit();
        }
        if together != 0 {
            // SAFETY: every thread that has not ended executes this call.
            unsafe { cache.end() };
        }
    }

    /// One misuse of the cache. Thread 0 of a block frees:
    /// - `what` 0: a block twice;
    /// - `what` 1: a block that thread 1 has freed;
    /// - `what` 2: an address inside a block;
    /// - `what` 3: an address that is no block at all.
    ///
    /// Then it allocates two blocks, writes their addresses to `place`, and frees them.
    ///
    /// # Safety
    /// The heap is live, and `place` has three words.
    pub unsafe fn groups_misuse(heap: Heap, place: DeviceSlice<u64>, what: u32) {
        // SAFETY: all threads execute this call first, and the block has no other cache.
        let mut cache = unsafe { Cache::begin(&heap, layout(64)) };
        let number = thread::index_in_block();
        if number == 1 && let Some(block) = cache.alloc(layout(64)) {
            // SAFETY: only this thread writes the word; thread 0 reads it after the barrier.
            unsafe { place.set(0, block.as_ptr() as u64) };
            if what == 1 {
                // SAFETY: the second free, by thread 0, is intended, and no thread allocates in
                // between.
                unsafe { cache.free(block) };
            }
        }
        // SAFETY: all threads execute this call.
        unsafe { thread::sync_threads() };
        // SAFETY: written before the barrier.
        let address = unsafe { place.get(0) }.unwrap_or(0);
        let block = NonNull::new(match what {
            2 => address + 4,
            3 => heap.base() as u64 - 64,
            _ => address,
        } as *mut u8);
        if number == 0 && let Some(block) = block {
            for _ in 0..if what == 0 { 2 } else { 1 } {
                // SAFETY: the misuse is intended, and no thread allocates in between.
                unsafe { cache.free(block) };
            }
            let after = [cache.alloc(layout(64)), cache.alloc(layout(64))];
            for (i, block) in (1..).zip(after) {
                // SAFETY: only thread 0 writes these words.
                unsafe { place.set(i, block.map_or(0, |block| block.as_ptr() as u64)) };
                if let Some(block) = block {
                    // SAFETY: allocated above.
                    unsafe { cache.free(block) };
                }
            }
        }
        // SAFETY: all threads execute this call.
        unsafe { cache.end() };
    }
}
