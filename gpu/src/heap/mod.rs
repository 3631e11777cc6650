//! The heap: memory of any size for any thread, which any thread can free.
//!
//! Its state and limits are in decision 6 (`docs/decisions/0006-heap.md`).
//!
//! ```text
//!  cursor[class][shard]   | end slab, blocks left |   the blocks that a shard allocates next
//!  fresh[shard]           the first fresh (never used) slab of the shard's partition of the heap
//!  entry[slab]            the use of the slab: free, of a class, large
//!  bitmap                 a bit for every block: set while the block is free
//!  count[run]             its class, its words with free blocks, its fully free words, its pins
//!  free                   the set of free slabs that are not fresh
//!  partial[class]         the set of the class' runs that may have free blocks
//!  idle[class]            the set of the class' runs that may be fully free
//!
//!  heap   | slab | slab | slab | ...       a run of class c, slabs:  | block | block | ... |
//! ```
//!
//! A warp allocates for all its lanes from a *cursor* with one atomic subtraction
//! ([`alloc`](Heap::alloc)). The blocks of a cursor are a *span*: one or more consecutive *runs* of
//! slabs. A free sets the bits of the blocks and adds to the run's count. A run with its first free
//! block becomes partial, a fully free run becomes idle. The group that exhausts a span refills the
//! cursor. It searches, in this order: idle runs of the class in the shard's partition; fresh and
//! free slabs; the class' other idle runs and cursors; idle runs of other classes and runs that
//! are entirely in their cursors, which it turns into free slabs. If nothing is found, lanes claim
//! single free blocks of the class. Before an allocation fails, a scan turns the blocks of all
//! cursors into free blocks.
//!
//! Neighbouring shards exhaust their spans half a span apart, so that the warps of one can use the
//! cursor of the other meanwhile. Groups of less than a warp share the cursors of a few shards.
//!
//! Each block of a slab with a class is in exactly one of these states:
//!
//! - I1. *In a cursor*: it is among the blocks left in a span. One subtraction allocates it.
//! - I2. *Free*: its bit is set. The thread that has pinned the run and clears the bit owns the
//!   block. The thread that swaps the count of a fully free run for that of a run without free
//!   blocks, or for none, owns all its blocks: a pinned run's count is never that of a fully free
//!   run.
//! - I3. *Live*, or being allocated: one thread owns it, and has subtracted or cleared for it.
//!
//! And:
//!
//! - I4. Writes to a block happen before its bit is set; that before the claim that clears the bit;
//!   the claim of all bits of a run before its blocks are in a cursor again, or its slabs free;
//!   that before these are claimed; and that before the subtraction that allocates their blocks.
//! - I5. A slab with a live block keeps its class: it becomes free only when one thread owns all
//!   its blocks, as free blocks or from a cursor. So only the owner of a block may rely on the
//!   slab's entry. A slab without memory has the entry of a free slab, but is neither in the free
//!   set nor fresh: no thread finds it. The host adds it there with its memory, while no thread
//!   uses the heap.
//! - I6. The bits and the count of a free slab, and of a large allocation, are zero, except for
//!   pins.
//! - I7. Between operations, a run's count is that of its bits, and a run with free blocks is in
//!   its class' partial set, or is fully free and in the idle set.
//! - I8. A cursor below zero that is not exhausted ("dry") belongs to the group that made it
//!   negative; a dry one belongs to the one search for its span: `searches_begun` is then one more
//!   than `scan_result / 2`. Only the owner stores the next span. Others subtract, or claim all or
//!   half of the blocks left.
//! - I9. The result of a scan is valid for every group that arrived before the scan began. It fails
//!   no class with groups that are counted as searching for the span of a dry cursor (`seekers`).
//!
//! A stale read of a set or of another class' cursor is harmless: the claim is by I1 or I2, and
//! both give the class of the run.
//!
//! Progress: lock-free, except that a group may find a cursor that another group is refilling: it
//! tries the cursors of other shards, then waits for a bounded time. A failing allocation takes
//! bounded time.

mod alloc;
mod audit;
mod block_cache;
pub mod class;
mod class_info;
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
mod parts;
mod points;
mod refill;
mod resize;
mod reuse;
mod scan;
mod sets;
mod short;
mod sweep;
mod take;

pub use audit::{CursorAudit, Defect, FreeSlab, Invariant, LargeAudit, RunAudit, Violation, Visitor};
pub use block_cache::BlockCache;
pub use class_info::ClassInfo;
pub use count::Count;
pub use cursor::{Cursor, Span};
pub use debug::DEBUG;
pub use fresh::FRESH_STRIDE;
pub use group::BlockShare;
pub use layout::HeapLayout;
pub use overview::Overview;
pub use parts::Parts;
pub use points::POINTS;

use crate::kernel::DeviceHandle;
use crate::sync::{NATIVE_LAYOUT, Site};
use crate::thread;
use entry::Entry;
use points::{
    ADD_COUNT, BEGIN_COUNT, CLEAR_BITS, CLOSE_ENTRY, FREE_LARGE, MARK_JOINED, NOTE_RUN, RETURN_RUN, SET_BITS,
    STORE_ENTRY, STORE_LARGE, STORE_RESULT, STORE_RUNS, STORE_SPAN, SWEEP_ENTRY, TAKE_ALL_FRESH, TAKE_FRESH,
    TAKE_RUN,
};

/// Words from one slab's count to the next, which avoids false sharing of a cache sector.
pub const COUNT_STRIDE: usize = 4;

/// Words with a bit for each class.
const CLASS_WORDS: usize = layout::MAX_CLASSES.div_ceil(32) as usize;

/// The largest alignment, in bytes.
pub const MAX_ALIGN: u64 = 1 << 21;

/// Shards next to each other that have one cursor of a class for lanes that ask for less than a warp does.
const PART_SHARDS: u32 = if NATIVE_LAYOUT { 4 } else { 1 };

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
/// The beginning and the end of a scan of the whole heap.
const SCAN_RESULT: Site = Site::new("heap/scan-result");
/// The beginning and the end of a search for the next span of a dry cursor.
const SEARCH: Site = Site::new("heap/search");
/// What a scan sees of a search that is under way.
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
    "heap/scan-result",
    "heap/search",
    "heap/seek",
];

/// A heap in the form that kernels use: a handle.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Heap {
    parts: Parts,
    layout: HeapLayout,
    cursor_stride_log2: u32,
    spare: u32,
}

const _: () =
    assert!(!NATIVE_LAYOUT || size_of::<Heap>() == 128 + 8 * DEBUG as usize && align_of::<Heap>() == 8);

// SAFETY: `repr(C)` of addresses and integers; the layout is asserted above. Every thread may use the heap at once.
unsafe impl DeviceHandle for Heap {
    fn for_each_range(&self, found: &mut dyn FnMut(u64, u64)) {
        found(self.parts.base as u64, self.layout.bytes());
    }
}

impl Heap {
    /// The handle of a heap with these parts.
    ///
    /// # Safety
    /// `layout` was returned by a constructor of [`HeapLayout`], and may have fewer classes. Each
    /// part is as described in [`Parts`] and remains valid while the handle or a copy of it is
    /// used. Initially the cursors are [`Span::UNUSED`], `fresh` is each shard's
    /// [`HeapLayout::partition_start`], the entries are [`free_entry`](Self::free_entry), and all
    /// other words are zero. If some slabs have no memory, `fresh` of their shards is the end of
    /// the partition, and the other slabs of these partitions are in the free set.
    pub unsafe fn from_raw_parts(parts: Parts, layout: HeapLayout, cursor_stride_log2: u32) -> Self {
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

    /// The sizes and counts of the heap.
    #[inline(always)]
    pub const fn layout(&self) -> HeapLayout {
        self.layout
    }

    /// The start of the heap's memory.
    #[inline(always)]
    pub const fn base(&self) -> *mut u8 {
        self.parts.base
    }

    /// Bytes that can be allocated, once a heap that grows has memory for all of them.
    #[inline(always)]
    pub const fn capacity(&self) -> u64 {
        self.layout.bytes()
    }

    /// The cursors next to the multiprocessor that the caller runs on, as far as it knows; any would be right.
    #[inline(always)]
    fn shard(&self) -> u32 {
        self.layout.shard(thread::sm_id())
    }

    /// The cursors that lanes use who ask for other classes than the rest of their warp: those of a few
    /// multiprocessors together, so that many classes at once pin less.
    #[inline(always)]
    fn part_shard(&self) -> u32 {
        self.shard() / PART_SHARDS * PART_SHARDS
    }
}
