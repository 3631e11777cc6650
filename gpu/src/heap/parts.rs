//! Where the parts of a heap lie, and each word of them.

use super::class::SizeClass;
use super::class_info::ClassInfo;
use super::cursor::Cursor;
use super::debug::Debugger;
use super::layout::WORD_BITS;
use super::overview::Overview;
use super::sets::IndexSet;
use super::{COUNT_STRIDE, Heap};
use crate::fault::FaultLog;
use crate::sync::{AtomicU32, AtomicU64, QUAD};

/// The addresses of a heap's memory and of the parts of its metadata.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Parts {
    /// The memory of the slabs, aligned to 2 MiB, or to a slab in a smaller heap. Slabs without
    /// memory are in neither `fresh` nor `slab_sets`.
    pub base: *mut u8,
    /// `layout.classes` elements.
    pub classes: *const ClassInfo,
    /// `layout.classes * layout.shards` elements at a stride of `1 << cursor_stride_log2` bytes,
    /// initially [`Span::UNUSED`](super::Span::UNUSED).
    pub cursors: *const Cursor,
    /// The entry of each slab.
    pub entries: *const AtomicU32,
    /// For each slab, at a stride of [`COUNT_STRIDE`] words: the [`Count`](super::Count) of the run
    /// that starts there.
    pub counts: *const AtomicU64,
    /// The bitmap of free blocks: `layout.block_words()` words, aligned to 16 bytes.
    pub bitmap: *const AtomicU32,
    /// [`HeapLayout::sets`](super::HeapLayout::sets) sets of `layout.set_words()` words: the free
    /// slabs, then the partial runs of each class, then the idle runs of each class.
    pub slab_sets: *const AtomicU32,
    /// State of all classes together.
    pub overview: *const Overview,
    /// For each shard, at a stride of [`FRESH_STRIDE`](super::FRESH_STRIDE) words: the first fresh
    /// slab of its partition.
    pub fresh: *const AtomicU32,
    /// The log of misuse.
    pub faults: *const FaultLog,
    /// A copy of the handle, which is written before its first use.
    pub shared: *const Heap,
    /// The extra state of a debug heap.
    pub debugger: Debugger,
}

impl Heap {
    #[inline(always)]
    pub(super) fn class(&self, class: SizeClass) -> &ClassInfo {
        debug_assert!(class.0 < self.layout.classes);
        // SAFETY: the class is one of the heap's, by the callers.
        let info = unsafe { self.parts.classes.add(class.0 as usize) };
        // SAFETY: `from_raw_parts`' promise; no one writes it.
        unsafe { &*info }
    }

    #[inline(always)]
    pub(super) fn cursor(&self, class: SizeClass, shard: u32) -> &Cursor {
        debug_assert!(class.0 < self.layout.classes && shard < self.layout.shards);
        let offset = ((shard * self.layout.classes + class.0) << self.cursor_stride_log2) as usize;
        // SAFETY: class and shard are the heap's, by the callers.
        let cursor = unsafe { self.parts.cursors.byte_add(offset) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*cursor }
    }

    #[inline(always)]
    pub(super) fn entry(&self, slab: u32) -> &AtomicU32 {
        debug_assert!(slab < self.layout.slabs);
        // SAFETY: a slab of the heap, by the callers.
        let word = unsafe { self.parts.entries.add(slab as usize) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*word }
    }

    #[inline(always)]
    pub(super) fn count(&self, run: u32) -> &AtomicU64 {
        debug_assert!(run < self.layout.slabs);
        // SAFETY: a slab of the heap, by the callers.
        let word = unsafe { self.parts.counts.add(run as usize * COUNT_STRIDE) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*word }
    }

    /// Word `w` of the bitmap.
    #[inline(always)]
    pub(super) fn bits(&self, w: u32) -> &AtomicU32 {
        debug_assert!(u64::from(w) < self.layout.block_words());
        // SAFETY: a word of a slab of the heap, by the callers.
        let word = unsafe { self.parts.bitmap.add(w as usize) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*word }
    }

    /// The words of the bitmap from `w` on, which is a multiple of [`QUAD`].
    #[inline(always)]
    pub(super) fn quad(&self, w: u32) -> &[AtomicU32; QUAD] {
        debug_assert!(
            w.is_multiple_of(QUAD as u32) && u64::from(w) + QUAD as u64 <= self.layout.block_words()
        );
        // SAFETY: words of a slab of the heap, by the callers.
        let words = unsafe { self.parts.bitmap.add(w as usize) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*words.cast() }
    }

    /// The word of the bitmap with the bit of block `block` of a run.
    #[inline(always)]
    pub(super) fn word_of(&self, run: u32, block: u32) -> u32 {
        run * self.layout.words_per_slab() + block / WORD_BITS
    }

    #[inline(always)]
    pub(super) fn slab_set(&self, i: u32) -> IndexSet {
        debug_assert!(i < self.layout.sets());
        // SAFETY: one of the sets, by the callers.
        let words = unsafe { self.parts.slab_sets.add((i * self.layout.set_words()) as usize) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { IndexSet::new(words, self.layout.slab_words()) }
    }

    #[inline(always)]
    pub(super) fn free_slabs(&self) -> IndexSet {
        self.slab_set(0)
    }

    /// Runs of the class that may have holes.
    #[inline(always)]
    pub(super) fn partial(&self, class: SizeClass) -> IndexSet {
        self.slab_set(1 + class.0)
    }

    /// Runs of the class that may be whole.
    #[inline(always)]
    pub(super) fn idle(&self, class: SizeClass) -> IndexSet {
        self.slab_set(1 + self.layout.classes + class.0)
    }

    #[inline(always)]
    pub(super) fn faults(&self) -> &FaultLog {
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*self.parts.faults }
    }
}
