//! The heap: memory of any size for any thread, given back by any other.
//!
//! Decision 6 says what holds and what does not.
//!
//! ```text
//!  cursor[class][home]   | end slab, blocks left |   what the class hands out next on a multiprocessor
//!  fresh[home]           the first slab of the home's share of the heap that no one has had
//!  entry[slab]           what the slab is: free, of a class, large
//!  bitmap                a bit for every block: set while the block is a hole
//!  count[run]            its class, how many words of its bits have holes and how many are whole, and who looks at them
//!  free                  the set of free slabs that have been used
//!  partial[class]        the set of the class' runs that may have holes
//!  idle[class]           the set of the class' runs that may have nothing else
//!
//!  heap   | slab | slab | slab | ...       a run of class c, slabs:  | block | block | ... |
//! ```
//!
//! A warp takes the blocks for all its lanes from a *cursor* with one atomic subtraction ([`alloc`](Heap::alloc)). A
//! cursor's blocks are a *span*: *runs* of slabs, one after the other. To free, a warp sets its blocks' bits and adds
//! to the run's count; a run that has its first hole is noted as partial, one that is whole as idle. Who crosses the
//! end of a span stores the next one: idle runs of the class in the home's share of the heap, taken as they are; or
//! slabs that no one has had, or that are free; then what the class has elsewhere, idle or in cursors; then other classes'
//! idle runs and the runs that their cursors have whole, whose slabs become free for that. When there is nothing of all
//! that, a class hands out its holes, one by one; and before a refusal every cursor gives up what it has as holes.
//!
//! Neighbouring homes cross half a span apart, so that one's warps take from the other meanwhile. Lanes that ask for less
//! than a warp does share the cursors of a few homes.
//!
//! Each block of a slab that has a class is in exactly one of these states:
//!
//! - I1. *In a cursor*: it is among the blocks left of a span. One subtraction takes it from there.
//! - I2. *A hole*: its bit is set. Who has pinned the run and clears the bit has taken it, alone; who swaps the count of
//!   a whole run for none has taken all its blocks, alone: a pin keeps the count from being that of a whole run.
//! - I3. *Live*, or on its way: one thread has it, and has subtracted or cleared for it.
//!
//! And:
//!
//! - I4. What a thread wrote to a block happens before the bit that it sets; a bit before the claim that clears
//!   it; the claim of all bits of a run before its blocks are in a cursor again, or its slabs free; that before they
//!   are taken; and that before the subtraction that hands out their blocks.
//! - I5. A slab with a live block keeps its class: it becomes free only when one thread has taken all its blocks
//!   as holes, or has all of them from a cursor. So who holds a block, and only who does, may rely on the slab's entry.
//!   A slab without memory is free by its entry, and in neither the free set nor the rest of a share: no thread finds it.
//!   The host puts it there when it has some, while no thread uses the heap.
//! - I6. The bits and the count of a free slab, and of a large allocation's, are zero, but for pins.
//! - I7. When no thread is between two steps, a run's count is that of its bits, a run with holes is in its class'
//!   partial set or all of its blocks are holes, and then it is in the idle set.
//! - I8. A cursor below zero that is not dry belongs to the one group that took it there, and a dry one to the one
//!   search of it that is under way (I9). Only the owner stores the next span; others subtract, or take all or half of what is left.
//! - I9. A search for memory counts for every group that arrived before it began.
//!
//! A stale look at a set or a cursor of another class is harmless: what is taken is taken by I1 or I2, and both say of
//! which class the run is.
//!
//! Progress: lock-free but for a group that finds a cursor between two spans: it tries other homes' cursors, then waits
//! for the group that stores the next one, a bounded time. A refusal takes bounded time.

mod alloc;
mod audit;
mod block_cache;
pub mod class;
mod close;
mod count;
mod cursor;
pub mod debug;
mod entry;
mod free;
mod fresh;
mod full;
mod group;
mod holes;
mod large;
pub mod layout;
mod overview;
mod proof;
mod refill;
mod resize;
mod reuse;
mod sets;
mod sweep;

pub use audit::{CursorAudit, Found, FreeSlab, Invariant, LargeAudit, RunAudit, Violation, Visitor};
pub use block_cache::BlockCache;
pub use count::Count;
pub use cursor::{Cursor, Span};
pub use debug::DEBUG;
pub use fresh::FRESH_STRIDE;
pub use group::BlockShare;
pub use layout::{ClassInfo, Layout};
pub use overview::Overview;

use crate::fault::FaultLog;
use crate::kernel::KernelArg;
use crate::sync::{AtomicU32, AtomicU64, NATIVE_LAYOUT, QUAD, Site};
use crate::thread;
use class::SizeClass;
use debug::Debugger;
use entry::Entry;
use sets::IndexSet;

/// Words from one slab's count to the next: those of one sector of the cache would be slow together.
pub const COUNT_STRIDE: usize = 4;

/// Words with a bit for each class.
const CLASS_WORDS: usize = layout::MAX_CLASSES.div_ceil(32) as usize;

/// The largest alignment, in bytes.
pub const MAX_ALIGN: u64 = 1 << 21;

/// Homes next to each other that have one cursor of a class for lanes that ask for less than a warp does.
const PART_HOMES: u32 = if NATIVE_LAYOUT { 4 } else { 1 };

/// The pause between two looks at what another thread is changing.
const POLL_NANOS: u32 = 100;

/// The subtraction that takes blocks from a span.
const TAKE: Site = Site::new("heap/take");
/// The store of a span in a cursor.
const INSTALL: Site = Site::new("heap/install");
/// The bit that says that a block is a hole.
const FREE: Site = Site::new("heap/free");
/// The claim of a hole.
const CLAIM: Site = Site::new("heap/claim");
/// The claim of all bits of a run.
const RETIRE: Site = Site::new("heap/retire");
/// The insertion of a slab into a set.
const GIVE_SLAB: Site = Site::new("heap/give-slab");
/// The removal of a slab from a set.
const TAKE_SLAB: Site = Site::new("heap/take-slab");
/// The summary of a set.
const SUMMARISE: Site = Site::new("heap/summarise");
/// The arrival of a group that found no memory.
const ARRIVE: Site = Site::new("heap/arrive");
/// The beginning and the end of a search of the whole heap.
const VERDICT: Site = Site::new("heap/verdict");
/// The beginning and the end of a search for the next span of a dry cursor.
const SEARCH: Site = Site::new("heap/search");
/// What a proof sees of a search that is under way.
const SEEK: Site = Site::new("heap/seek");
/// Every named ordering of this structure, for checkers.
pub const SITES: [&str; 12] = [
    "heap/take",
    "heap/install",
    "heap/free",
    "heap/claim",
    "heap/retire",
    "heap/give-slab",
    "heap/take-slab",
    "heap/summarise",
    "heap/arrive",
    "heap/verdict",
    "heap/search",
    "heap/seek",
];

/// Where the parts of a heap's metadata lie.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Parts {
    /// The addresses to hand out, aligned to 2 MiB, or to a slab in a smaller heap. Slabs that have no memory are in neither
    /// `fresh` nor `slab_sets`.
    pub base: *mut u8,
    /// `layout.classes` of them.
    pub classes: *const ClassInfo,
    /// `layout.classes * layout.homes`, each `1 << cursor_stride_log2` bytes after the one before, all
    /// [`Span::UNUSED`].
    pub cursors: *const Cursor,
    /// A word a slab: what it is.
    pub entries: *const AtomicU32,
    /// Every [`COUNT_STRIDE`] words, a slab: the [`Count`] of the run that starts there.
    pub counts: *const AtomicU64,
    /// `layout.block_words()` words, aligned to 16 bytes: the holes.
    pub bitmap: *const AtomicU32,
    /// [`Layout::sets`] of `layout.set_words()` words: the free slabs; for each class the runs that may have holes; and
    /// for each the idle ones.
    pub slab_sets: *const AtomicU32,
    /// What is known of all classes.
    pub overview: *const Overview,
    /// Every [`FRESH_STRIDE`] words, a home: the first slab of its share that no one has had.
    pub fresh: *const AtomicU32,
    /// What threads did wrong.
    pub faults: *const FaultLog,
    /// Where a copy of the handle lies, or will lie before its first use.
    pub shared: *const Heap,
    /// What a debug heap has besides.
    pub debugger: Debugger,
}

/// A heap, as kernels hold it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Heap {
    parts: Parts,
    layout: Layout,
    cursor_stride_log2: u32,
    spare: u32,
}

const _: () =
    assert!(!NATIVE_LAYOUT || size_of::<Heap>() == 128 + 8 * DEBUG as usize && align_of::<Heap>() == 8);

// SAFETY: every thread may use the heap at once: its state is atomic, and a block has one owner (I1, I2, I3).
unsafe impl Send for Heap {}
// SAFETY: the same.
unsafe impl Sync for Heap {}
// SAFETY: `repr(C)` of addresses and integers; the layout is asserted above.
unsafe impl KernelArg for Heap {
    fn names(&self) -> Option<(u64, u64)> {
        Some((self.parts.base as u64, self.layout.bytes()))
    }
}
#[cfg(feature = "rustacuda")]
// SAFETY: a bitwise copy is another handle of the same heap, valid on the device.
unsafe impl rustacuda_core::DeviceCopy for Heap {}
#[cfg(feature = "cust")]
// SAFETY: the same.
unsafe impl cust_core::DeviceCopy for Heap {}

impl Heap {
    /// A handle of the heap made of these parts.
    ///
    /// # Safety
    /// Each part is as [`Parts`] says and stays there while the handle or a copy of it is used. At first the
    /// cursors are [`Span::UNUSED`], `fresh` is each home's [`Layout::share_start`], the entries are
    /// [`free_entry`](Self::free_entry), and every other word is zero. Where there are slabs without memory, `fresh` of
    /// their homes is where the share ends, and the other slabs of these are in the set of free ones.
    pub unsafe fn from_raw_parts(parts: Parts, layout: Layout, cursor_stride_log2: u32) -> Self {
        Heap { parts, layout, cursor_stride_log2, spare: 0 }
    }

    /// The entry of a free slab.
    pub const fn free_entry() -> u32 {
        Entry::FREE.0
    }

    /// The copy of this handle in memory, for code off the fast path: a call there passes its address, while
    /// a handle passed by value would be written to every thread's stack.
    #[inline(always)]
    fn shared(&self) -> &Heap {
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*self.parts.shared }
    }

    /// Sizes and counts.
    #[inline(always)]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// Where its memory starts.
    #[inline(always)]
    pub const fn base(&self) -> *mut u8 {
        self.parts.base
    }

    /// Bytes that can be handed out, in a heap that grows once it has memory for all of them.
    #[inline(always)]
    pub const fn capacity(&self) -> u64 {
        self.layout.bytes()
    }

    /// The cursors next to the multiprocessor that the caller runs on, as far as it knows; any would be right.
    #[inline(always)]
    fn home(&self) -> u32 {
        self.layout.home(thread::sm_id())
    }

    /// The cursors that lanes use who ask for other classes than the rest of their warp: those of a few
    /// multiprocessors together, so that many classes at once pin less.
    #[inline(always)]
    fn part_home(&self) -> u32 {
        self.home() / PART_HOMES * PART_HOMES
    }

    #[inline(always)]
    fn class(&self, class: SizeClass) -> &ClassInfo {
        debug_assert!(class.0 < self.layout.classes);
        // SAFETY: the class is one of the heap's, by the callers.
        let info = unsafe { self.parts.classes.add(class.0 as usize) };
        // SAFETY: `from_raw_parts`' promise; no one writes it.
        unsafe { &*info }
    }

    #[inline(always)]
    fn cursor(&self, class: SizeClass, home: u32) -> &Cursor {
        debug_assert!(class.0 < self.layout.classes && home < self.layout.homes);
        let offset = ((home * self.layout.classes + class.0) as usize) << self.cursor_stride_log2;
        // SAFETY: class and home are the heap's, by the callers.
        let cursor = unsafe { self.parts.cursors.byte_add(offset) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*cursor }
    }

    #[inline(always)]
    fn entry(&self, slab: u32) -> &AtomicU32 {
        debug_assert!(slab < self.layout.slabs);
        // SAFETY: a slab of the heap, by the callers.
        let word = unsafe { self.parts.entries.add(slab as usize) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*word }
    }

    #[inline(always)]
    fn count(&self, run: u32) -> &AtomicU64 {
        debug_assert!(run < self.layout.slabs);
        // SAFETY: a slab of the heap, by the callers.
        let word = unsafe { self.parts.counts.add(run as usize * COUNT_STRIDE) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*word }
    }

    /// Word `w` of the bitmap.
    #[inline(always)]
    fn bits(&self, w: u32) -> &AtomicU32 {
        debug_assert!(u64::from(w) < self.layout.block_words());
        // SAFETY: a word of a slab of the heap, by the callers.
        let word = unsafe { self.parts.bitmap.add(w as usize) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*word }
    }

    /// The words of the bitmap from `w` on, which is a multiple of [`QUAD`].
    #[inline(always)]
    fn quad(&self, w: u32) -> &[AtomicU32; QUAD] {
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
    fn word_of(&self, run: u32, block: u32) -> u32 {
        run * self.layout.words_per_slab() + block / layout::WORD_BITS
    }

    #[inline(always)]
    fn slab_set(&self, i: u32) -> IndexSet {
        debug_assert!(i < self.layout.sets());
        // SAFETY: one of the sets, by the callers.
        let words = unsafe { self.parts.slab_sets.add((i * self.layout.set_words()) as usize) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { IndexSet::new(words, self.layout.slab_words()) }
    }

    #[inline(always)]
    fn free_slabs(&self) -> IndexSet {
        self.slab_set(0)
    }

    /// Runs of the class that may have holes.
    #[inline(always)]
    fn partial(&self, class: SizeClass) -> IndexSet {
        self.slab_set(1 + class.0)
    }

    /// Runs of the class that may be whole.
    #[inline(always)]
    fn idle(&self, class: SizeClass) -> IndexSet {
        self.slab_set(1 + self.layout.classes + class.0)
    }

    #[inline(always)]
    fn faults(&self) -> &FaultLog {
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*self.parts.faults }
    }
}
