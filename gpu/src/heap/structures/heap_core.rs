//! Heap core: the handle that all paths work on, and the addresses of a heap's parts.

use crate::fault::FaultLog;
use crate::heap::layout::class::{ClassInfo, SizeClass};
use crate::heap::layout::{HeapLayout, PARTIAL_WARP_SHARDS};
use crate::heap::structures::cursor::Cursor;
use crate::heap::structures::index_set::IndexSet;
use crate::heap::structures::moves::Overview;
use crate::heap::structures::ring::Ring;
use crate::heap::structures::slabs::FreeSlabs;
use crate::sync::AtomicU32;
use crate::thread;
use core::ffi::c_void;

/// Whether this build supports debug heaps: the feature `debug`.
pub const DEBUG: bool = cfg!(feature = "debug");

/// The address of the extra state of a debug heap. Zero-sized without the feature `debug`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Debugger([*const c_void; DEBUG as usize]);

impl Debugger {
    /// The value for a heap that is not a debug heap.
    pub const NONE: Debugger = Debugger([core::ptr::null(); DEBUG as usize]);

    /// The address of the extra state `extra`.
    pub(in crate::heap) const fn at(extra: *const c_void) -> Debugger {
        Debugger([extra; DEBUG as usize])
    }

    /// The extra state, or null.
    #[inline(always)]
    pub(in crate::heap) fn extra(&self) -> *const c_void {
        self.0.first().map_or(core::ptr::null(), |extra| *extra)
    }
}

/// Words from the hint of one shard to that of the next: each hint has its own cache sector.
pub const HINT_STRIDE: usize = 8;

/// The addresses of a heap's memory and of the parts of its metadata.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Parts {
    /// The memory of the slabs, aligned to 2 MiB, or to a slab in a smaller heap.
    pub base: *mut u8,
    /// `layout.classes` elements: element `i` is `layout.class(SizeClass(i))`.
    pub classes: *const ClassInfo,
    /// `layout.classes * layout.shards` elements, shard by shard, initially
    /// [`Span::UNUSED`](crate::heap::Span::UNUSED).
    pub cursors: *const Cursor,
    /// The ring of each cursor, in the same order, initially zero.
    pub rings: *const Ring,
    /// The entry of each slab: `layout.slabs` words.
    pub entries: *const AtomicU32,
    /// For each slab, the count of the run that starts there: `layout.slabs` words.
    pub counts: *const AtomicU32,
    /// The bitmap of free blocks: `layout.block_words()` words. On a GPU, its address is a multiple
    /// of 8.
    pub bitmap: *const AtomicU32,
    /// The set of free slabs: `layout.slab_set_words()` words. Slabs without memory are not in it.
    pub free: *const AtomicU32,
    /// The set of runs that may have free blocks: `layout.run_set_words()` words.
    pub listed: *const AtomicU32,
    /// The set of runs that may be fully free: `layout.slab_set_words()` words.
    pub idle: *const AtomicU32,
    /// State of all classes together.
    pub overview: *const Overview,
    /// Three words for each shard, at a stride of [`HINT_STRIDE`] words: a hint, the end of its
    /// last claim of slabs, in slabs after the start of its partition; the failed allocations of
    /// its SMs; those of them that failed without a proof that there was no memory.
    pub hints: *const AtomicU32,
    /// The log of misuse.
    pub faults: *const FaultLog,
    /// A copy of this handle, as a [`Heap`](crate::heap::Heap), which has the same layout. It is
    /// written before its first use and does not change.
    pub shared: *const HeapCore,
    /// The extra state of a debug heap: [`Debugger::NONE`], or of an
    /// [`Extra`](crate::heap::debug::Extra) of which all addresses are valid.
    pub debugger: Debugger,
}

/// A heap without the additions of debug heaps. Users have a [`Heap`](crate::heap::Heap).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HeapCore {
    pub(in crate::heap) parts: Parts,
    pub(in crate::heap) layout: HeapLayout,
}

impl HeapCore {
    /// The copy of this handle in memory. Calls off the fast path pass its address: a handle passed
    /// by value would be written to every thread's stack.
    #[inline(always)]
    pub(in crate::heap) fn shared(&self) -> &HeapCore {
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*self.parts.shared }
    }

    pub(in crate::heap) fn free_slabs(&self) -> FreeSlabs<'_> {
        // SAFETY: `from_raw_parts`' promise.
        let set = unsafe { IndexSet::new(self.parts.free, self.layout.slabs) };
        FreeSlabs { set, slabs: self.layout.slabs, moves: self.overview().common() }
    }

    /// The shard of the SM that the caller runs on. A hint: any shard would be correct.
    #[inline(always)]
    pub(in crate::heap) fn shard(&self) -> u32 {
        self.layout.shard(thread::sm_id())
    }

    /// The shard for groups smaller than a warp.
    #[inline(always)]
    pub(in crate::heap) fn partial_warp_shard(&self, shard: u32) -> u32 {
        shard / PARTIAL_WARP_SHARDS * PARTIAL_WARP_SHARDS
    }

    /// The start of the heap's memory.
    #[inline(always)]
    pub(in crate::heap) const fn base(&self) -> *mut u8 {
        self.parts.base
    }

    /// Whether the heap is a debug heap. False in a build without the feature `debug`.
    #[inline(always)]
    pub(in crate::heap) fn is_debugged(&self) -> bool {
        DEBUG && !self.parts.debugger.extra().is_null()
    }

    #[inline(always)]
    pub(in crate::heap) fn class(&self, class: SizeClass) -> &ClassInfo {
        debug_assert!(class.0 < self.layout.classes);
        // SAFETY: the class is one of the heap's, by the callers.
        let info = unsafe { self.parts.classes.add(class.0 as usize) };
        // SAFETY: `from_raw_parts`' promise; no thread writes it.
        unsafe { &*info }
    }

    #[inline(always)]
    pub(in crate::heap) fn cursor(&self, class: SizeClass, shard: u32) -> &Cursor {
        // SAFETY: class and shard are the heap's, by the callers.
        let cursor = unsafe { self.parts.cursors.add(self.cursor_index(class, shard)) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*cursor }
    }

    #[inline(always)]
    pub(in crate::heap) fn ring(&self, class: SizeClass, shard: u32) -> &Ring {
        // SAFETY: class and shard are the heap's, by the callers.
        let ring = unsafe { self.parts.rings.add(self.cursor_index(class, shard)) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*ring }
    }

    #[inline(always)]
    fn cursor_index(&self, class: SizeClass, shard: u32) -> usize {
        debug_assert!(class.0 < self.layout.classes && shard < self.layout.shards);
        (shard * self.layout.classes + class.0) as usize
    }

    #[inline(always)]
    pub(in crate::heap) fn hint(&self, shard: u32) -> &AtomicU32 {
        self.word_of_shard(shard, 0)
    }

    /// The number of failed allocations of a shard, modulo 2^32.
    #[inline(always)]
    pub(in crate::heap) fn failures_of(&self, shard: u32) -> &AtomicU32 {
        self.word_of_shard(shard, 1)
    }

    /// The number of allocations of a shard that failed without a proof that there was no memory,
    /// modulo 2^32.
    #[inline(always)]
    pub(in crate::heap) fn contended_of(&self, shard: u32) -> &AtomicU32 {
        self.word_of_shard(shard, 2)
    }

    #[inline(always)]
    fn word_of_shard(&self, shard: u32, i: usize) -> &AtomicU32 {
        debug_assert!(shard < self.layout.shards && i < HINT_STRIDE);
        // SAFETY: one of the shards, by the callers.
        let word = unsafe { self.parts.hints.add(shard as usize * HINT_STRIDE + i) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*word }
    }

    #[inline(always)]
    pub(in crate::heap) fn overview(&self) -> &Overview {
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*self.parts.overview }
    }

    #[inline(always)]
    pub(in crate::heap) fn faults(&self) -> &FaultLog {
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*self.parts.faults }
    }

    /// The address of a block of a run.
    #[inline(always)]
    pub(in crate::heap) fn block_address(&self, info: &ClassInfo, run: u32, block: u32) -> u64 {
        self.slab_address(run) + u64::from(block * info.bytes)
    }

    #[inline(always)]
    pub(in crate::heap) fn slab_address(&self, slab: u32) -> u64 {
        self.base() as u64 + (u64::from(slab) << self.layout.slab_log2)
    }

    /// The slab of an address of the heap.
    #[inline(always)]
    pub(in crate::heap) fn slab_of(&self, address: u64) -> Option<u32> {
        let slab = address.wrapping_sub(self.base() as u64) >> self.layout.slab_log2;
        if slab < self.layout.slabs.into() { Some(slab as u32) } else { None }
    }
}
