//! Heap: allocates memory of any size for any thread. Any thread can free it.
//!
//! [Decision 19](../../../docs/decisions/0019-heap-for-all-loads.md) has the reasons and the
//! figures.
//!
//! ```text
//! alloc      cursor: tickets ---> runs: claim bits ---> the run's entry is of the class: done
//!               |                      | a bit is missing: next tickets (slow)
//!               | beyond the end, or the cursor is aged: each lane probes first
//!               v                      v
//! ring       the next span          the tickets left, if no block ahead is free
//!               | none                 |
//!               v                      v
//! grow       each leading lane of a warp with many classes: a new span of free slabs in a row
//!               | the slabs are not free, or the ring may have a free span
//!               v
//! refill     a span of the ring with free blocks, else new spans of many free slabs, else a span
//!            of a longer ring, else any free slabs, else slabs of idle runs of other classes
//!            ---> next span
//!               | none
//!               v
//! probe      each lane a free block of a listed run, if the cursor is aged or of little use;
//!            without one, a new run of free slabs
//!               | none
//!               v
//! search     free blocks of listed runs, or the proof that there are none; after a long wait also
//!            a new run of free slabs
//!
//! free       the slab's entry ---> runs: set bits ---> the run is listed; idle if fully free
//! ```
//!
//! Four folders; each uses only those above it. The public calls of [`Heap`] and the
//! [`BlockCache`] are on top:
//!
//! | folder | what it has |
//! |---|---|
//! | `layout` | sizes, size classes and the arithmetic of bitmaps; no state |
//! | `structures` | the words in device memory, each structure with its invariants |
//! | `paths` | what an allocation or a free does, from the fast path to the proof of failure |
//! | `checks` | the audit, debug heaps, and single steps for model checkers |
//!
//! A block belongs to the thread that cleared its bit, and a slab to the thread that cleared its
//! bit or owns all blocks of its run. No other state decides ownership: a thread that acts on a
//! stale hint claims nothing, or claims a block of another class, finds that in the entry, and sets
//! the bit again.
//!
//! Progress: lock-free, except while another group replaces the span of a cursor and its ring has
//! no next span. A group then draws from the cursor of another shard, and after some turns also
//! searches for blocks. The number of turns is bounded.

mod block_cache;
mod checks;
pub mod layout;
mod paths;
mod structures;
#[cfg(all(test, not(loom)))]
mod tests;

pub use block_cache::BlockCache;
pub use checks::audit::{Defect, FreeSlab, Invariant, LargeAudit, RunAudit, SpanAudit, Violation, Visitor};
pub use checks::debug;
#[cfg(loom)]
pub use checks::steps::Searched;
pub use layout::class::{self, ClassInfo};
pub use layout::{HeapLayout, MAX_ALIGN};
pub use paths::group::BlockShare;
#[doc(hidden)]
pub use paths::split;
pub use structures::cursor::{Cursor, Span};
pub use structures::heap_core::{DEBUG, HINT_STRIDE, HeapCore, Parts};
pub use structures::moves::{Moves, Overview};
pub use structures::orderings::{ORDERINGS, POINTS};
pub use structures::ring::Ring;

use crate::fault::FaultCheck;
use crate::kernel::DeviceHandle;
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;
use crate::thread;
use crate::units::LaneMask;
use checks::debug::CallSite;
use core::alloc::Layout;
use core::ptr::NonNull;
use layout::class::rounded_up;
use layout::entry::Entry;
use paths::group;
use paths::split::{AllocStep, FreeStep};

/// The handle of a heap, for kernels.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Heap {
    core: HeapCore,
}

const _: () = assert!(
    !NATIVE_LAYOUT
        || size_of::<Heap>() == 8 * Heap::ADDRESSES + 4 * Heap::NUMBERS + 8 * DEBUG as usize
            && align_of::<Heap>() == 8
);

// SAFETY: `repr(C)` of addresses and integers; the layout is asserted above. Every thread may use
// the heap at once.
unsafe impl DeviceHandle for Heap {
    fn for_each_range(&self, found: &mut dyn FnMut(u64, u64)) {
        found(self.core.base() as u64, self.core.layout.bytes());
    }
}

impl Heap {
    /// Number of addresses, of 8 bytes each, with which a handle starts: those of [`Parts`] that
    /// all heaps have.
    pub const ADDRESSES: usize = 14;
    /// Number of sizes and counts, of 4 bytes each, with which a handle ends: its [`HeapLayout`].
    pub const NUMBERS: usize = 8;

    /// The handle of a heap with these parts.
    ///
    /// # Safety
    /// `layout` was returned by a constructor of [`HeapLayout`], and may have fewer classes. Each
    /// part is as described in [`Parts`] and remains valid while the handle or a copy of it is
    /// used. Initially the cursors are [`Span::UNUSED`], the entries are
    /// [`fresh_entry`](Self::fresh_entry), the slabs with memory are in the set of free slabs on
    /// all of its levels, and all other words are zero.
    pub unsafe fn from_raw_parts(parts: Parts, layout: HeapLayout) -> Self {
        Heap { core: HeapCore { parts, layout } }
    }

    /// The entry of a slab that was never used.
    pub const fn fresh_entry() -> u32 {
        Entry::FRESH.0
    }

    /// The entry of a slab that was used and is free.
    pub const fn free_entry() -> u32 {
        Entry::FREE.0
    }

    /// The number of failed allocations since the heap was created, modulo 2^32.
    pub fn failures(&self) -> u32 {
        let core = &self.core;
        let of_shards = (0..core.layout.shards).map(|shard| core.failures_of(shard).load_relaxed());
        of_shards.fold(0, u32::wrapping_add)
    }

    /// The number of [`failures`](Self::failures) that gave up after many attempts, none of which
    /// proved that there was no memory. Modulo 2^32.
    pub fn contended_failures(&self) -> u32 {
        let core = &self.core;
        let of_shards = (0..core.layout.shards).map(|shard| core.contended_of(shard).load_relaxed());
        of_shards.fold(0, u32::wrapping_add)
    }

    /// The bytes of the last failed allocation: the requested bytes in a debug heap, otherwise
    /// rounded up to the size class if there is one. 0 if no allocation has failed.
    pub fn last_failed_bytes(&self) -> u64 {
        self.core.overview().last_failed().load_relaxed()
    }

    /// The sizes and counts of the heap.
    #[inline(always)]
    pub const fn layout(&self) -> HeapLayout {
        self.core.layout
    }

    /// The start of the heap's memory.
    #[inline(always)]
    pub const fn base(&self) -> *mut u8 {
        self.core.base()
    }

    /// Bytes that can be allocated: in a heap that grows, once it has memory for all of them.
    #[inline(always)]
    pub const fn capacity(&self) -> u64 {
        self.core.layout.bytes()
    }

    /// Allocates memory for `layout`. Returns `None` if the heap is out of memory. May be called
    /// from any thread and any divergent subset of a warp. For a zero-size layout the address must
    /// not be dereferenced. The largest alignment is 2 MiB.
    ///
    /// Cost per warp, if all lanes request the same size class: a relaxed atomic on a word of the
    /// warp's SM, an acquire atomic on the bitmap and a load, one after the other. Lanes with other
    /// classes do the same concurrently.
    #[track_caller]
    #[inline(always)]
    #[must_use = "memory without an address is never freed"]
    pub fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.alloc_at(layout, CallSite::here())
    }

    /// Allocates memory for `layout` at call site `call`.
    #[inline(always)]
    fn alloc_at(&self, layout: Layout, call: CallSite) -> Option<NonNull<u8>> {
        if self.is_debugged() {
            NonNull::new(self.core.shared().alloc_debugged(layout, call) as *mut u8)
        } else {
            self.core.alloc(layout)
        }
    }

    /// Like [`alloc`](Self::alloc), with all bytes of `layout` set to 0. The calling thread writes
    /// them, 4 bytes at a time.
    #[track_caller]
    #[inline(always)]
    #[must_use = "memory without an address is never freed"]
    pub fn alloc_zeroed(&self, layout: Layout) -> Option<NonNull<u8>> {
        if self.is_debugged() {
            return self.core.shared().alloc_zeroed_debugged(layout, CallSite::here());
        }
        self.core.alloc_zeroed(layout)
    }

    /// Frees memory. May be called from any thread, not only the one that allocated it. If no live
    /// block starts at the address, nothing is freed and a fault is recorded.
    ///
    /// Cost per warp that frees the blocks that it allocated: a load, then an atomic that releases
    /// and acquires, then two loads at once. For the other cases see the head of `paths/free.rs`.
    ///
    /// # Safety
    /// No thread uses the memory any more.
    #[inline(always)]
    pub unsafe fn free(&self, block: NonNull<u8>) {
        if self.is_debugged() {
            return self.core.shared().free_debugged(block);
        }
        // SAFETY: the caller's promise.
        unsafe { self.core.free(block) }
    }

    /// Resizes `block` to `new_size` bytes: in place if the block fits, otherwise by allocating a
    /// new block, copying the first `min(layout.size(), new_size)` bytes and freeing the old block.
    /// Returns `None` if the heap is out of memory; the old block is then unchanged.
    ///
    /// Cost in place: a load of the slab's entry and one of its class. Otherwise: an
    /// [`alloc`](Self::alloc), a copy by the calling thread, 4 bytes at a time, and a
    /// [`free`](Self::free).
    ///
    /// # Safety
    /// This heap returned `block` for `layout`, and it has not been freed since. No other thread
    /// uses it during the call, or afterwards at its old address.
    #[track_caller]
    #[inline(always)]
    #[must_use = "the block may have moved"]
    pub unsafe fn realloc(&self, block: NonNull<u8>, layout: Layout, new_size: usize) -> Option<NonNull<u8>> {
        if self.is_debugged() {
            // SAFETY: the caller's promise.
            return unsafe { self.core.shared().realloc_debugged(block, layout, new_size, CallSite::here()) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.core.realloc(block, layout, new_size) }
    }

    /// The usable bytes of `block`: at least the requested size. 0 for an address outside the heap,
    /// such as that of a zero-size allocation.
    ///
    /// Cost: a load of the slab's entry and one of its class. In a debug heap, a load of the
    /// block's record, too.
    ///
    /// # Safety
    /// `block` was allocated from this heap, or is an address outside it. It is not freed or
    /// resized before the call returns.
    #[inline(always)]
    pub unsafe fn usable_size(&self, block: NonNull<u8>) -> usize {
        if self.is_debugged() {
            // SAFETY: the caller's promise.
            return unsafe { self.core.shared().usable_size_debugged(block) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.core.usable_size(block) }
    }

    /// One allocation for all lanes of `mask`. Every lane receives its address, or every lane
    /// `None`. [`warp::activemask`](crate::warp::activemask) returns the lanes that are converged.
    /// The allocation must be freed once, by [`free_warp`](Self::free_warp) or by one thread's
    /// [`free`](Self::free).
    ///
    /// Cost per call: an [`alloc`](Self::alloc) by one lane, and two shuffles.
    ///
    /// # Safety
    /// The calling lane is in `mask`, and every lane of `mask` executes this call with the same
    /// mask and layout.
    #[track_caller]
    #[inline(always)]
    #[must_use = "memory without an address is never freed"]
    pub unsafe fn alloc_warp(&self, mask: LaneMask, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise; the lanes do the same below.
        let lanes = unsafe { Group::of(mask) };
        let call = CallSite::here();
        let alloc = || self.shared().alloc_out_of_line(layout, call);
        let address = match lanes.whole() {
            Some(warp) => group::alloc_by_leader(warp, alloc),
            None => group::alloc_by_leader(lanes, alloc),
        };
        NonNull::new(address as *mut u8)
    }

    /// Frees an allocation of [`alloc_warp`](Self::alloc_warp), once for all lanes of `mask`. The
    /// mask may differ from that of the allocation.
    ///
    /// Cost per call: a [`free`](Self::free) by one lane.
    ///
    /// # Safety
    /// The calling lane is in `mask`, and every lane of `mask` executes this call with the same
    /// mask and block. No thread uses the block any more.
    #[inline(always)]
    pub unsafe fn free_warp(&self, mask: LaneMask, block: NonNull<u8>) {
        // SAFETY: the caller's promise; the lanes do the same below.
        let lanes = unsafe { Group::of(mask) };
        // SAFETY: the caller's promise.
        let free = || unsafe { self.shared().free_out_of_line(block) };
        match lanes.whole() {
            Some(warp) => group::free_by_leader(warp, free),
            None => group::free_by_leader(lanes, free),
        }
    }

    /// One allocation for the whole thread block. Every thread receives its address, or every
    /// thread `None`. It must be freed once, by [`free_block`](Self::free_block) or by one thread's
    /// [`free`](Self::free).
    ///
    /// Cost per thread block: an [`alloc`](Self::alloc) by one thread, and two `bar.sync`.
    ///
    /// # Safety
    /// Every thread of the thread block that has not ended executes this call with the same layout,
    /// as for [`sync_threads`](thread::sync_threads), even if it needs no memory.
    #[track_caller]
    #[inline(always)]
    #[must_use = "memory without an address is never freed"]
    pub unsafe fn alloc_block(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise.
        NonNull::new(unsafe { self.shared().alloc_by_chosen(layout, CallSite::here()) } as *mut u8)
    }

    /// Allocates an array with an element of `layout` for each thread index of the thread block,
    /// including threads that have ended. Every thread receives its element, or every thread
    /// `None`. The elements cannot be freed individually, only all together by
    /// [`free_block`](Self::free_block) or [`free`](Self::free) of [`BlockShare::whole`].
    ///
    /// Cost per thread block: that of [`alloc_block`](Self::alloc_block).
    ///
    /// # Safety
    /// See [`alloc_block`](Self::alloc_block).
    #[track_caller]
    #[inline(always)]
    #[must_use = "memory without an address is never freed"]
    pub unsafe fn alloc_block_each(&self, layout: Layout) -> Option<BlockShare> {
        let stride = rounded_up(layout.size() as u64, layout.align() as u64);
        let bytes = stride.checked_mul(thread::block_threads().into())?;
        // SAFETY: the caller's promise: either all threads return above, or none does.
        let whole =
            unsafe { self.alloc_block(Layout::from_size_align(bytes as usize, layout.align()).ok()?) }?;
        let offset = stride * u64::from(thread::index_in_block());
        // SAFETY: inside the allocation; with no bytes, the same address.
        Some(BlockShare { whole, piece: unsafe { whole.byte_add(offset as usize) } })
    }

    /// Frees an allocation of [`alloc_block`](Self::alloc_block) or
    /// [`alloc_block_each`](Self::alloc_block_each), once for the thread block.
    ///
    /// Cost per thread block: a [`free`](Self::free) by one thread, and two `bar.sync`.
    ///
    /// # Safety
    /// Every thread of the thread block that has not ended executes this call with the same
    /// `block`, and does not use it any more.
    #[inline(always)]
    pub unsafe fn free_block(&self, block: NonNull<u8>) {
        // SAFETY: the caller's promise.
        unsafe { self.shared().free_by_chosen(block) }
    }

    /// Allocates by one thread of a group, or for a block cache that has no block.
    #[cold]
    #[inline(never)]
    fn alloc_out_of_line(&self, layout: Layout, call: CallSite) -> u64 {
        self.alloc_at(layout, call).map_or(0, |block| block.as_ptr() as u64)
    }

    /// A free by one thread of a group, or without an empty slot of a block cache.
    ///
    /// # Safety
    /// See [`free`](Self::free).
    #[cold]
    #[inline(never)]
    unsafe fn free_out_of_line(&self, block: NonNull<u8>) {
        // SAFETY: the caller's promise.
        unsafe { self.free(block) }
    }

    /// # Safety
    /// See [`alloc_block`](Self::alloc_block).
    #[inline(never)]
    unsafe fn alloc_by_chosen(&self, layout: Layout, call: CallSite) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { group::alloc_by_chosen(|| self.alloc_out_of_line(layout, call)) }
    }

    /// # Safety
    /// See [`free_block`](Self::free_block).
    #[inline(never)]
    unsafe fn free_by_chosen(&self, block: NonNull<u8>) {
        // SAFETY: the caller's promise.
        let free = || unsafe { self.free_out_of_line(block) };
        // SAFETY: the caller's promise.
        unsafe { group::free_by_chosen(free) }
    }

    /// Records that an allocation failed, and that the calling thread cannot continue without it.
    #[cold]
    #[inline(never)]
    pub(crate) fn record_out_of_memory(&self, size: usize) {
        self.core.faults().record(FaultCheck::NoMemory, 0, size as u64);
    }

    /// Checks all metadata, and reports its contents and all violations to `visitor`. No thread may
    /// use the heap during the audit. Slabs from `present` on have no memory yet. Takes time linear
    /// in the metadata. The heap's memory is not accessed.
    pub fn audit(&self, present: u32, visitor: &mut impl Visitor) {
        self.core.audit(present, visitor);
    }

    /// The heap without the public calls, for models of single steps.
    #[cfg(loom)]
    pub fn core(&self) -> &HeapCore {
        &self.core
    }

    /// Whether the heap has canaries, poison, quarantine and sites. False in a build without the
    /// feature `debug`.
    #[inline(always)]
    pub fn is_debugged(&self) -> bool {
        self.core.is_debugged()
    }

    /// The copy of this handle in memory; see [`HeapCore::shared`].
    #[inline(always)]
    fn shared(&self) -> &Heap {
        // SAFETY: `Heap` is `repr(transparent)`.
        unsafe { &*core::ptr::from_ref(self.core.shared()).cast::<Heap>() }
    }
}

/// The two parts of an allocation and of a free, for the C library.
#[doc(hidden)]
impl Heap {
    /// The first part of [`alloc`](Self::alloc). If `rest` is not 0,
    /// [`finish_alloc`](Self::finish_alloc) follows. Not for debug heaps.
    #[inline(always)]
    #[must_use = "the second part follows if `rest` is not 0"]
    pub fn begin_alloc(&self, layout: Layout) -> AllocStep {
        self.core.begin_alloc(layout)
    }

    /// The second part of [`alloc`](Self::alloc).
    ///
    /// # Safety
    /// [`begin_alloc`](Self::begin_alloc) has returned `step` to this lane for the same layout. All
    /// lanes of a warp to which it returned a `rest` make this call.
    #[inline(always)]
    #[must_use = "memory without an address is never freed"]
    pub unsafe fn finish_alloc(&self, layout: Layout, step: AllocStep) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise.
        unsafe { self.core.finish_alloc(layout, step) }
    }

    /// The first part of [`free`](Self::free). If `rest` is not 0,
    /// [`finish_free_step`](Self::finish_free_step) follows.
    ///
    /// # Safety
    /// See [`free`](Self::free). The heap is not a debug heap.
    #[inline(always)]
    #[must_use = "the second part follows if `rest` is not 0"]
    pub unsafe fn begin_free(&self, block: NonNull<u8>) -> FreeStep {
        // SAFETY: the caller's promise.
        unsafe { self.core.begin_free(block) }
    }

    /// The second part of [`free`](Self::free).
    ///
    /// # Safety
    /// [`begin_free`](Self::begin_free) has returned `step` to this lane for the same block. All
    /// lanes of a warp to which it returned a `rest` make this call.
    #[inline(always)]
    pub unsafe fn finish_free_step(&self, block: NonNull<u8>, step: FreeStep) {
        // SAFETY: the caller's promise.
        unsafe { self.core.finish_free_step(block, step) }
    }
}
