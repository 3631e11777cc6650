//! What `tests/heap_groups.rs` runs, on the CPU and on a GPU: allocations for warps and blocks, and the block's cache
//! under threads that end in every way.

use super::bench::Counter;
use core::alloc::Layout;
use core::ptr::NonNull;
use warpheap_device::heap::{BlockCache, Heap};
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::sync::{AtomicU32, AtomicU64};
use warpheap_device::units::{LaneMask, WARP_SIZE};
use warpheap_device::{kernel, kernel_arg, thread, warp};

/// Threads with slots in the tests: fewer than blocks have.
pub const CACHE_THREADS: u32 = 64;
/// Blocks that such a thread may keep.
const CACHE_SLOTS: u32 = 3;

type Cache<'h> = BlockCache<'h, CACHE_THREADS, CACHE_SLOTS>;

/// How threads end [`groups_cache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Endings {
    /// All return, some early.
    Return = 0,
    /// All end the cache together.
    Together = 1,
    /// Some return early, some exit or forget their part; the others end the cache together.
    Any = 2,
}

kernel_arg! {
    /// What the threads of [`groups_cache`] do.
    #[derive(Debug)]
    pub struct Plan {
        /// Steps of each thread, at most.
        pub steps: u32,
        /// Bytes of a block of the cache.
        pub bytes: u32,
        /// Decides what each thread does.
        pub seed: u32,
        /// An [`Endings`].
        pub endings: u32,
        /// Not 0: a thread in 16 frees a block twice, the second time through another thread.
        pub plant: u32,
    }
}

const _: () = assert!(size_of::<Plan>() == 20 && align_of::<Plan>() == 4);

#[inline(always)]
fn layout(bytes: u32) -> Layout {
    // SAFETY: 8 is a power of two, and sizes are far below the limit.
    unsafe { Layout::from_size_align_unchecked(bytes as usize, 8) }
}

fn count(counter: Counter) {
    // SAFETY: every kernel here is given live counters.
    unsafe { &*counter.0 }.add_relaxed(1);
}

/// Word `i` of a block.
///
/// # Safety
/// The block has the word, and is live.
unsafe fn word<'a>(block: NonNull<u8>, i: u32) -> &'a AtomicU64 {
    // SAFETY: the caller's promise.
    let place = unsafe { block.cast::<AtomicU64>().add(i as usize) };
    // SAFETY: the same; atomics have the layout of their integers.
    unsafe { place.as_ref() }
}

/// A generator of numbers that follow from a seed.
struct Numbers(u32);

impl Numbers {
    fn below(&mut self, n: u32) -> u32 {
        // A linear congruential generator; its high bits are the good ones.
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((u64::from(self.0) * u64::from(n)) >> 32) as u32
    }
}

/// Who owns which block: a word for every 16 bytes of the heap, 1 while someone does.
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
        // SAFETY: live; the layouts are the same.
        let mark = unsafe { &*mark.cast::<AtomicU32>() };
        if mark.swap_relaxed(to) != from {
            count(self.failures);
        }
    }
}

/// What a thread of [`groups_cache`] holds.
struct Worker<'h> {
    heap: &'h Heap,
    cache: Cache<'h>,
    owners: Owners,
    bytes: u32,
    held: Option<NonNull<u8>>,
}

impl Worker<'_> {
    /// Allocates, if it holds nothing.
    fn take(&mut self, bytes: u32) {
        if self.held.is_none() {
            self.held = self.cache.alloc(layout(bytes));
        } else {
            return;
        }
        if let Some(block) = self.held {
            self.owners.set(block, 0, 1);
            if self.heap.usable_size(block) < bytes as usize {
                count(self.owners.failures);
            }
        }
    }

    /// Frees what it holds.
    fn give(&mut self) {
        if let Some(block) = self.held.take() {
            self.owners.set(block, 1, 0);
            // SAFETY: this thread owns it, as its mark has said.
            unsafe { self.cache.free(block) };
        }
    }

    /// Leaves what it holds at a place, and takes what was there.
    fn swap(&mut self, place: &AtomicU64) {
        let mine = self.held.map_or(0, |block| block.as_ptr() as u64);
        // ordering: acquire and release; pairs with itself: what the former owner wrote, before the next one's.
        self.held = NonNull::new(place.swap_acq_rel(mine) as *mut u8);
    }

    fn step(&mut self, numbers: &mut Numbers, places: DeviceSlice<u64>) {
        match numbers.below(8) {
            0..3 => self.take(self.bytes),
            3..6 => self.give(),
            // Of another class: the heap's.
            6 => self.take(if numbers.below(2) == 0 { 3 * self.bytes } else { self.bytes / 3 }),
            _ => {
                let i = numbers.below(places.len() as u32);
                // SAFETY: a word of the places.
                let place = unsafe { places.as_ptr().add(i as usize) };
                // SAFETY: live, and used by exchanges alone; the layouts are the same.
                self.swap(unsafe { &*place.cast::<AtomicU64>() });
            }
        }
    }
}

kernel! {
    /// The lanes of `lanes` of each warp share an allocation, write a word each and read their neighbours'.
    ///
    /// # Safety
    /// The heap and the counter are live; `out` has a word for each thread; an allocation holds 32 words.
    pub unsafe fn groups_warp(
        heap: Heap,
        out: DeviceSlice<u64>,
        lanes: u32,
        bytes: u32,
        keep: u32,
        failures: Counter,
    ) {
        let (i, lane) = (thread::index_1d(), warp::lane_id());
        let present = (thread::block_threads() - (thread::index_in_block() - lane)).min(WARP_SIZE);
        let mask = LaneMask(lanes & (u32::MAX >> (WARP_SIZE - present)));
        if !mask.contains(lane) {
            return;
        }
        // SAFETY: every lane of the mask comes here.
        let Some(block) = (unsafe { heap.alloc_warp(mask, layout(bytes)) }) else { return };
        // SAFETY: the allocation has a word for each lane.
        unsafe { word(block, lane) }.store_relaxed(i.into());
        // SAFETY: every lane of the mask comes here.
        unsafe { warp::sync_warp(mask) };
        let above = LaneMask(mask.0 & !(u32::MAX >> (WARP_SIZE - 1 - lane)));
        let next = if above.is_empty() { mask.leader() } else { above.leader() };
        // SAFETY: the same.
        if unsafe { word(block, next) }.load_relaxed() != u64::from(i - lane + next) {
            count(failures);
        }
        // SAFETY: each thread writes its own word.
        unsafe { out.set(i.into(), block.as_ptr() as u64) };
        if keep == 0 {
            // SAFETY: every lane of the mask comes here, and uses the block no more.
            unsafe { heap.free_warp(mask, block) };
        }
    }

    /// Every block of threads allocates for all; each thread writes its piece and reads its neighbour's. Every
    /// thread whose number in the block is a multiple of `gone`, if that is not 0, ends before. Three times, one right
    /// after the other, or once if they are to `keep` it.
    ///
    /// # Safety
    /// The heap and the counter are live; `out` and `wholes` have a word for each thread.
    pub unsafe fn groups_block(
        heap: Heap,
        out: DeviceSlice<u64>,
        wholes: DeviceSlice<u64>,
        bytes: u32,
        gone: u32,
        keep: u32,
        failures: Counter,
    ) {
        let (i, number) = (thread::index_1d(), thread::index_in_block());
        let ends = |number: u32| gone != 0 && number.is_multiple_of(gone);
        if ends(number) {
            return;
        }
        for _ in 0..if keep == 0 { 3 } else { 1 } {
            // SAFETY: every thread comes here that has not ended.
            let Some(share) = (unsafe { heap.alloc_block_each(layout(bytes)) }) else { return };
            // SAFETY: a piece has a word.
            unsafe { word(share.piece, 0) }.store_relaxed(i.into());
            // SAFETY: every thread comes here that has not ended: all got a piece or none.
            unsafe { thread::sync_threads() };
            let next = number + 1;
            if next < thread::block_threads() && !ends(next) {
                // SAFETY: inside of the whole, and written.
                let piece = unsafe { share.piece.byte_add(bytes.next_multiple_of(8) as usize) };
                // SAFETY: the same.
                if unsafe { word(piece, 0) }.load_relaxed() != u64::from(i + 1) {
                    count(failures);
                }
            }
            // SAFETY: each thread writes its own words.
            unsafe { out.set(i.into(), share.piece.as_ptr() as u64) };
            // SAFETY: the same.
            unsafe { wholes.set(i.into(), share.whole.as_ptr() as u64) };
            if keep == 0 {
                // SAFETY: every thread comes here that has not ended, and uses its piece no more.
                unsafe { heap.free_block(share.whole) };
            }
        }
    }

    /// Threads allocate and free through the cache of their block, and leave blocks to one another, of their own
    /// block and of others; then they end as the plan says.
    ///
    /// # Safety
    /// All is live; `marks` has a zero for every 16 bytes of the heap, and `places` are addresses of blocks or 0.
    pub unsafe fn groups_cache(
        heap: Heap,
        marks: DeviceSlice<u32>,
        places: DeviceSlice<u64>,
        plan: Plan,
        failures: Counter,
    ) {
        let i = thread::index_1d();
        // SAFETY: all threads come here first, and the block has no other cache.
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
            // The mark says that it is not this thread's: whoever finds it there frees it again.
            worker.held = again;
            // SAFETY: there is a place.
            worker.swap(unsafe { &*places.as_ptr().cast::<AtomicU64>() });
        }
        worker.give();
        let ending = if plan.endings == Endings::Any as u32 { numbers.below(4) } else { plan.endings };
        match ending {
            // Returns, from the middle of the grid's work or from its end.
            0 => {}
            // SAFETY: every thread comes here that has not ended: the others end at once.
            1 => unsafe { worker.cache.end() },
            2 => thread::exit(),
            _ => core::mem::forget(worker.cache),
        }
    }

    /// Thread `i` frees block `i`, if there is one.
    ///
    /// # Safety
    /// The blocks are the heap's, and each is named once.
    pub unsafe fn groups_free(heap: Heap, blocks: DeviceSlice<u64>) {
        // SAFETY: only read.
        let address = unsafe { blocks.get(thread::index_1d().into()) }.unwrap_or(0);
        if let Some(block) = NonNull::new(address as *mut u8) {
            // SAFETY: the caller's promise.
            unsafe { heap.free(block) };
        }
    }

    /// Every thread takes blocks through the cache until the heap refuses or it has 32, writes down how many, and
    /// frees them through the cache, which all end together.
    ///
    /// # Safety
    /// All is live; `taken` has a word for each thread, and `marks` as for [`groups_cache`].
    pub unsafe fn groups_exhaust(
        heap: Heap,
        marks: DeviceSlice<u32>,
        taken: DeviceSlice<u64>,
        bytes: u32,
        failures: Counter,
    ) {
        // SAFETY: all threads come here first, and the block has no other cache.
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
            // SAFETY: this thread's, as its mark has said.
            unsafe { cache.free(block) };
        }
        // SAFETY: each thread writes its own word.
        unsafe { taken.set(thread::index_1d().into(), count) };
        // SAFETY: all threads come here.
        unsafe { cache.end() };
    }

    /// Every thread keeps blocks in the cache. One in `gone` exits without leaving; the others return, or end the
    /// cache if `together` is not 0.
    ///
    /// # Safety
    /// The heap is live, and `gone` is not 0.
    pub unsafe fn groups_vanish(heap: Heap, gone: u32, together: u32) {
        // SAFETY: all threads come here first, and the block has no other cache.
        let mut cache = unsafe { Cache::begin(&heap, layout(16)) };
        cache.fill(2);
        if thread::index_in_block().is_multiple_of(gone) {
            thread::exit();
        }
        if together != 0 {
            // SAFETY: every thread comes here that has not ended.
            unsafe { cache.end() };
        }
    }

    /// One misuse of the cache: the thread 0 of a block frees
    /// 0: a block twice; 1: a block that thread 1 has freed; 2: an address inside of a block; 3: no block at all.
    /// Then it allocates two, writes down where they are, and frees them.
    ///
    /// # Safety
    /// The heap is live, and `place` has three words.
    pub unsafe fn groups_misuse(heap: Heap, place: DeviceSlice<u64>, what: u32) {
        // SAFETY: all threads come here first, and the block has no other cache.
        let mut cache = unsafe { Cache::begin(&heap, layout(64)) };
        let number = thread::index_in_block();
        if number == 1 && let Some(block) = cache.alloc(layout(64)) {
            // SAFETY: thread 0 reads it behind the barrier.
            unsafe { place.set(0, block.as_ptr() as u64) };
            if what == 1 {
                // SAFETY: the second free, by thread 0, is the purpose, and nobody allocates.
                unsafe { cache.free(block) };
            }
        }
        // SAFETY: all threads come here.
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
                // SAFETY: the misuse is the purpose, and nobody allocates.
                unsafe { cache.free(block) };
            }
            let after = [cache.alloc(layout(64)), cache.alloc(layout(64))];
            for (i, block) in (1..).zip(after) {
                // SAFETY: thread 0 alone writes these.
                unsafe { place.set(i, block.map_or(0, |block| block.as_ptr() as u64)) };
                if let Some(block) = block {
                    // SAFETY: allocated above.
                    unsafe { cache.free(block) };
                }
            }
        }
        // SAFETY: all threads come here.
        unsafe { cache.end() };
    }

    /// One thread asks for so many bytes, frees them, and writes down whether it got them.
    ///
    /// # Safety
    /// The heap is live, and `out` has a word.
    pub unsafe fn groups_whole(heap: Heap, out: DeviceSlice<u64>, bytes: u64) {
        // SAFETY: 16 is a power of two, and the heap is no larger than memory.
        let layout = unsafe { Layout::from_size_align_unchecked(bytes as usize, 16) };
        let whole = heap.alloc(layout);
        // SAFETY: one thread, one word.
        unsafe { out.set(0, whole.is_some().into()) };
        if let Some(whole) = whole {
            // SAFETY: allocated above.
            unsafe { heap.free(whole) };
        }
    }
}
