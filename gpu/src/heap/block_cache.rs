//! Block cache: blocks of one size class in shared memory, a few for each thread of a thread block.
//!
//! ```text
//! slot 0       | thread 0 | thread 1 | ... | thread THREADS - 1 |     0, or the address of a block
//! slot 1       | thread 0 | thread 1 | ... |
//! ...
//! members      | warp 0 | warp 1 | ...                  one bit per thread: has begun and not left
//!
//! of one thread, bottom to limit:   | block | block | top: 0 | 0 |
//! ```
//!
//! `alloc` takes a block from the slots of the calling thread. `free` puts a block into them,
//! whichever thread allocated it. The accesses are loads and stores in shared memory, without
//! atomics and fences. A thread with empty slots allocates from the heap, together with the lanes
//! of its warp that do the same. A thread with full slots frees the block to the heap.
//!
//! - I1. The thread's slots from `bottom` up to `top` hold addresses. Those from `top` up to
//!   `limit` hold 0.
//! - I2. I1 holds between the thread's calls, also for a thread that ends between two calls without
//!   leaving.
//! - I3. While a thread's bit in `members` is set, only this thread uses its slots. When it has
//!   ended, the thread that clears the bit after a barrier of the thread block owns the slots.
//! - I4. A block in a slot is live for the heap: its slab keeps its class, and the block is not
//!   allocated to another thread. So each block that `free` or `fill` put into a slot is freed to
//!   the heap exactly once: from a slot, by its thread (`drop`) or by the thread that owns its
//!   slots (`end`), or by the thread to which `alloc` allocated it.
//! - I5. The writes of a thread to a block happen before the accesses of the next owner. In the
//!   cache, the next owner is the same thread. Outside the cache, the heap's release and acquire
//!   order them. If another thread frees the block to the heap, `end`'s barrier is between the two.
//!   PTX guarantees this for threads at the barrier. We *assume* it for the writes of threads that
//!   ended before, for which the barrier does not wait.
//!
//! Progress: wait-free in the cache; otherwise that of the heap. `begin` and `end` wait for the
//! thread block.

mod slots;

use crate::fault::FaultCheck;
use crate::heap::Heap;
use crate::heap::checks::debug::CallSite;
use crate::heap::layout::class::SizeClass;
use crate::heap::structures::heap_core::HeapCore;
use crate::heap::structures::locate::Located;
use crate::shared::SharedWord;
use crate::spill::with_spilled;
use crate::thread;
use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use slots::Slots;

/// The calling thread's part of its thread block's cache of one size class.
///
/// `THREADS`: the number of threads with slots, those with the lowest indices in the thread block;
/// all others use the heap. `SLOTS`: the maximum number of blocks that a thread caches. A kernel
/// uses `8 * THREADS * SLOTS` bytes of shared memory for them, and 8 for each warp. `Owner`: any
/// type that distinguishes concurrent caches. Any divergent subset of a warp may allocate and free.
///
/// # Misuse
/// A freed address that is not a block of the class is passed to the heap, which checks it. A
/// second free by a thread with the block in its slots is recorded at once. Other double frees are
/// not detected while the block is cached: it is cached twice, or also free in the heap, and **may
/// be allocated to two owners**. The heap records the second free that reaches it, unless the block
/// was allocated in between. [Debug heaps](crate::heap::debug) are not cached, and detect more.
///
/// # Cached memory
/// Each thread keeps up to `SLOTS` blocks until it leaves the cache. Only this thread can allocate
/// them.
///
/// ```
/// use core::alloc::Layout;
/// use warpheap_device::heap::{BlockCache, Heap};
/// use warpheap_device::kernel;
///
/// kernel! {
///     /// # Safety
///     /// The heap is live.
///     pub unsafe fn churn(heap: Heap) {
///         let layout = Layout::new::<u64>();
///         // SAFETY: all threads of the block execute this call first; no other cache is in use.
///         let mut cache = unsafe { BlockCache::<256, 4>::begin(&heap, layout) };
///         for i in 0..64_u64 {
///             let Some(block) = cache.alloc(layout) else { break };
///             // SAFETY: the block is as large as a u64, and this thread owns it.
///             unsafe { block.cast().write(i) };
///             // SAFETY: the block is not used any more.
///             unsafe { cache.free(block) };
///         }
///     } // A thread that returns, here or earlier, frees its cached blocks to the heap.
/// }
/// ```
#[must_use = "a thread leaves the cache when this is dropped"]
pub struct BlockCache<'h, const THREADS: u32, const SLOTS: u32, Owner: 'static = ()> {
    heap: &'h Heap,
    part: Part,
    /// Each part belongs to one thread: it is not `Send`.
    owner: PhantomData<*mut Owner>,
}

/// The state of a thread's slots and their class. In registers, and on the stack during a slow
/// path.
#[derive(Clone, Copy, Debug)]
struct Part {
    class: SizeClass,
    bottom: SharedWord,
    top: SharedWord,
    /// Equal to `bottom` for a thread without slots.
    limit: SharedWord,
}

impl<'h, const THREADS: u32, const SLOTS: u32, Owner: 'static> BlockCache<'h, THREADS, SLOTS, Owner> {
    /// Joins the thread block's cache of the size class of `layout`. The slots are initially empty.
    ///
    /// Dropping the cache leaves it and frees the thread's blocks to the heap, without waiting. A
    /// thread that ends without a drop (`thread::exit`, `mem::forget`) withholds up to `SLOTS`
    /// blocks from the heap until another thread of the thread block calls [`end`](Self::end).
    ///
    /// Cost: a `bar.sync`, an atomic per warp in shared memory, and a store for each slot of the
    /// thread and each warp of the cache.
    ///
    /// # Safety
    /// - As for [`sync_threads`](thread::sync_threads): every thread of the block that has not
    ///   ended executes this call, with the same parameters.
    /// - A thread block has one cache of these parameters at a time: each thread has dropped or
    ///   ended its part of the previous one.
    /// - The thread drops, ends or forgets its part before its thread block ends. Safe code could
    ///   keep a part of a `&'static Heap` in a thread-local variable of the CPU.
    #[inline(always)]
    pub unsafe fn begin(heap: &'h Heap, layout: Layout) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Slots::<THREADS, SLOTS, Owner>::join() };
        let class = heap.core.class_of(layout);
        let thread = thread::index_in_block();
        let has_slots = class.is_some() && thread < THREADS && !heap.is_debugged();
        let class = class.unwrap_or(SizeClass(0));
        let bottom = Slots::<THREADS, SLOTS, Owner>::bottom(if has_slots { thread } else { 0 });
        let limit = if has_slots { bottom.plus(SLOTS * THREADS) } else { bottom };
        BlockCache { heap, part: Part { class, bottom, top: bottom, limit }, owner: PhantomData }
    }

    /// Allocates memory for `layout`: from the thread's slots if they hold a block of its class,
    /// otherwise by the heap's [`alloc`](Heap::alloc). Returns `None` if the heap is out of memory.
    ///
    /// Cost from a slot: a load and a store in shared memory.
    #[track_caller]
    #[inline(always)]
    #[must_use = "the memory is lost unless it is freed"]
    pub fn alloc(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let address = if self.part.top != self.part.bottom
            && self.heap.core.class_of(layout) == Some(self.part.class)
        {
            self.pop()
        } else {
            let call = CallSite::here();
            self.without_cache(|heap| heap.alloc_out_of_line(layout, call))
        };
        NonNull::new(address as *mut u8)
    }

    /// Frees memory of the heap: to the thread's slots if it is a block of their class and a slot
    /// is empty, otherwise to the heap. Any thread may have allocated it, with or without a cache.
    /// A second free of a block that is still in the thread's slots frees nothing and is recorded,
    /// like every misuse that the heap detects. Not every double free is detected.
    ///
    /// Cost of a free to a slot: a load of the slab's entry, mostly from the L1, a load for each
    /// block in the thread's slots, and a store in shared memory.
    ///
    /// # Safety
    /// No thread uses the memory any more.
    #[inline(always)]
    pub unsafe fn free(&mut self, block: NonNull<u8>) {
        let address = block.as_ptr() as u64;
        let Part { class, top, limit, .. } = self.part;
        if top == limit || !self.heap.core.is_block_of(class, address) {
            // SAFETY: the caller's promise.
            self.without_cache(|heap| unsafe { heap.free_out_of_line(block) });
        } else if self.holds(address) {
            self.without_cache(|heap| heap.core.misuse(FaultCheck::InSlots, address));
        } else {
            self.push(address);
        }
    }

    /// Allocates up to `blocks` blocks from the heap into empty slots. Returns their number, which
    /// is smaller if the slots are full or the heap is out of memory. Cost: one heap allocation for
    /// each block, together for all converged lanes.
    #[inline(always)]
    pub fn fill(&mut self, blocks: u32) -> u32 {
        // SAFETY: 4 is a power of two, and the size of a block is far below the limit.
        let layout = unsafe { Layout::from_size_align_unchecked(self.part.class.bytes() as usize, 4) };
        for filled in 0..blocks {
            if self.part.top == self.part.limit {
                return filled;
            }
            match self.without_cache(|heap| heap.alloc_out_of_line(layout, CallSite::here())) {
                0 => return filled,
                address => self.push(address),
            }
        }
        blocks
    }

    /// Leaves the cache, and frees the blocks of threads that ended without leaving it.
    ///
    /// Cost: a `bar.sync`, and a load in shared memory for each warp of the cache.
    ///
    /// # Safety
    /// Every thread of the thread block that has not ended executes this call, as for
    /// [`sync_threads`](thread::sync_threads).
    #[inline(always)]
    pub unsafe fn end(self) {
        let heap = self.heap.shared();
        drop(self);
        // SAFETY: the caller's promise.
        unsafe { thread::sync_threads() };
        // SAFETY: all threads have left or have ended.
        unsafe { Slots::<THREADS, SLOTS, Owner>::reclaim(heap) };
    }

    /// Takes the block out of the highest slot that holds one.
    #[inline(always)]
    fn pop(&mut self) -> u64 {
        self.part.top = self.part.top.minus(THREADS);
        // SAFETY: a slot of this thread (I1).
        let address = unsafe { self.part.top.load_relaxed() };
        // SAFETY: as above; the slot is empty now (I2).
        unsafe { self.part.top.store_relaxed(0) };
        address
    }

    /// Puts a block into the lowest empty slot. There is one.
    #[inline(always)]
    fn push(&mut self, address: u64) {
        // SAFETY: a slot of this thread (I1).
        unsafe { self.part.top.store_relaxed(address) };
        self.part.top = self.part.top.plus(THREADS);
    }

    /// Whether a slot of the thread holds this block.
    #[inline(always)]
    fn holds(&self, address: u64) -> bool {
        let mut slot = self.part.bottom;
        // At most `SLOTS` iterations (I1).
        while slot != self.part.top {
            // SAFETY: a slot of this thread.
            if unsafe { slot.load_relaxed() } == address {
                return true;
            }
            slot = slot.plus(THREADS);
        }
        false
    }

    /// Calls a function off the fast path, with the thread's part in memory meanwhile.
    #[inline(always)]
    fn without_cache<R>(&mut self, f: impl FnOnce(&Heap) -> R) -> R {
        let heap = self.heap.shared();
        let (part, result) = with_spilled(self.part, || f(heap));
        self.part = part;
        result
    }
}

impl<const THREADS: u32, const SLOTS: u32, Owner: 'static> fmt::Debug
    for BlockCache<'_, THREADS, SLOTS, Owner>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache").field("part", &self.part).finish_non_exhaustive()
    }
}

impl<const THREADS: u32, const SLOTS: u32, Owner: 'static> Drop for BlockCache<'_, THREADS, SLOTS, Owner> {
    #[inline(always)]
    fn drop(&mut self) {
        Slots::<THREADS, SLOTS, Owner>::flush(self.heap.shared(), self.part.bottom, self.part.top);
        Slots::<THREADS, SLOTS, Owner>::leave();
    }
}

impl HeapCore {
    /// Whether a block of the class starts at `address`. The caller passes a live block, or an
    /// address that is not a block.
    #[inline(always)]
    fn is_block_of(&self, class: SizeClass, address: u64) -> bool {
        // The caller owns the block or received it from the owner, so the entry was written before
        // (I2 of `runs`). The load may hit the L1, which the acquire of a claim or of the caller
        // invalidates.
        // SAFETY: no thread writes the entry of a slab with a live block (I2 of `runs`). At another
        // address, which is misuse, the load may return an older entry: then the heap checks it.
        let located = self.locate(address, |entry| unsafe { entry.load_unraced() });
        matches!(located, Located::Block(place) if place.run.class == class && place.is_start())
    }
}
