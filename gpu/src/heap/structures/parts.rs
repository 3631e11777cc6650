//! The parts of a heap: its memory and its metadata.

use crate::fault::FaultLog;
use crate::heap::Heap;
use crate::heap::checks::debug::Debugger;
use crate::heap::layout::class::ClassInfo;
use crate::heap::layout::class::SizeClass;
use crate::heap::structures::cursor::Cursor;
use crate::heap::structures::moves::Overview;
use crate::heap::structures::ring::Ring;
use crate::sync::AtomicU32;

/// Words from the hint of one shard to the next: each has a sector of the cache of its own.
pub const HINT_STRIDE: usize = 8;

/// The addresses of a heap's memory and of the parts of its metadata.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Parts {
    /// The memory of the slabs, aligned to 2 MiB, or to a slab in a smaller heap.
    pub base: *mut u8,
    /// `layout.classes` elements.
    pub classes: *const ClassInfo,
    /// `layout.classes * layout.shards` elements, shard by shard, initially
    /// [`Span::UNUSED`](crate::heap::Span::UNUSED).
    pub cursors: *const Cursor,
    /// The ring of each cursor, initially zero.
    pub rings: *const Ring,
    /// The entry of each slab.
    pub entries: *const AtomicU32,
    /// For each slab: the count of the run that starts there.
    pub counts: *const AtomicU32,
    /// The bitmap of free blocks: `layout.block_words()` words.
    pub bitmap: *const AtomicU32,
    /// The set of free slabs: `layout.slab_set_words()` words. Slabs without memory are not in it.
    pub free: *const AtomicU32,
    /// The set of runs that may have free blocks: `layout.run_set_words()` words.
    pub listed: *const AtomicU32,
    /// The set of runs that may be fully free: as many words.
    pub idle: *const AtomicU32,
    /// State of all classes together.
    pub overview: *const Overview,
    /// Three words for each shard, at a stride of [`HINT_STRIDE`] words: a hint, the end of its
    /// last claim of slabs, in slabs after the start of its partition; the failed allocations of
    /// its SM; those of them that failed without a proof that there was no memory.
    pub hints: *const AtomicU32,
    /// The log of misuse.
    pub faults: *const FaultLog,
    /// A copy of the handle, which is written before its first use.
    pub shared: *const Heap,
    /// The extra state of a debug heap.
    pub debugger: Debugger,
}

impl Heap {
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

    /// The failed allocations of an SM, modulo 2^32.
    #[inline(always)]
    pub(in crate::heap) fn failures_of(&self, shard: u32) -> &AtomicU32 {
        self.word_of_shard(shard, 1)
    }

    /// The failed allocations of an SM without a proof that there was no memory, modulo 2^32.
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
}
