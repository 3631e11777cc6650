//! The heap: memory of any size for any thread, given back by any other.
//!
//! Decision 6 says what holds and what does not.
//!
//! ```text
//!  cursor[class][shard]   | end slab, blocks left |   what the class hands out next on a multiprocessor
//!  fresh[shard]           the first slab of the shard's partition of the heap that no one has had
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
//! end of a span stores the next one: idle runs of the class in the shard's partition of the heap, taken as they are; or
//! slabs that no one has had, or that are free; then what the class has elsewhere, idle or in cursors; then other classes'
//! idle runs and the runs that their cursors have whole, whose slabs become free for that. When there is nothing of all
//! that, a class hands out its holes, one by one; and before a refusal every cursor gives up what it has as holes.
//!
//! Neighbouring shards cross half a span apart, so that one's warps take from the other meanwhile. Lanes that ask for less
//! than a warp does share the cursors of a few shards.
//!
//! Each block of a slab that has a class is in exactly one of these states:
//!
//! - I1. *In a cursor*: it is among the blocks left of a span. One subtraction takes it from there.
//! - I2. *A hole*: its bit is set. Who has pinned the run and clears the bit has taken it, alone; who swaps the count of
//!   a whole run for that of one without holes, or for none, has taken all its blocks, alone: a pin keeps the count from
//!   being that of a whole run.
//! - I3. *Live*, or on its way: one thread has it, and has subtracted or cleared for it.
//!
//! And:
//!
//! - I4. What a thread wrote to a block happens before the bit that it sets; a bit before the claim that clears
//!   it; the claim of all bits of a run before its blocks are in a cursor again, or its slabs free; that before they
//!   are taken; and that before the subtraction that hands out their blocks.
//! - I5. A slab with a live block keeps its class: it becomes free only when one thread has taken all its blocks
//!   as holes, or has all of them from a cursor. So who holds a block, and only who does, may rely on the slab's entry.
//!   A slab without memory is free by its entry, and in neither the free set nor the rest of a partition: no thread finds it.
//!   The host puts it there when it has some, while no thread uses the heap.
//! - I6. The bits and the count of a free slab, and of a large allocation's, are zero, but for pins.
//! - I7. When no thread is between two steps, a run's count is that of its bits, a run with holes is in its class'
//!   partial set or all of its blocks are holes, and then it is in the idle set.
//! - I8. A cursor below zero that is not dry belongs to the one group that took it there, and a dry one to the one
//!   search for its span that is under way: `searches_begun` is one more than `scan_result / 2` then. Only the owner stores the
//!   next span; others subtract, or take all or half of what is left.
//! - I9. A search of the whole heap counts for every group that arrived before it began, and refuses no class for which a
//!   group is counted that looks for a dry cursor's span (`seekers`).
//!
//! A stale look at a set or a cursor of another class is harmless: what is taken is taken by I1 or I2, and both say of
//! which class the run is.
//!
//! Progress: lock-free but for a group that finds a cursor between two spans: it tries other shards' cursors, then waits
//! for the group that stores the next one, a bounded time. A refusal takes bounded time.

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

use crate::kernel::DeviceHandle;
use crate::sync::{NATIVE_LAYOUT, Site};
use crate::thread;
use entry::Entry;

/// Words from one slab's count to the next: those of one sector of the cache would be slow together.
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
/// The beginning and the end of a search of the whole heap.
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

/// A heap, as kernels hold it.
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
    /// A handle of the heap made of these parts.
    ///
    /// # Safety
    /// `layout` is one of [`HeapLayout`]'s constructors, with fewer classes at most. Each part is as [`Parts`] says and stays there while the handle or a copy of it is used. At first the
    /// cursors are [`Span::UNUSED`], `fresh` is each shard's [`HeapLayout::partition_start`], the entries are
    /// [`free_entry`](Self::free_entry), and every other word is zero. Where there are slabs without memory, `fresh` of
    /// their shards is where the partition ends, and the other slabs of these are in the set of free ones.
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

    /// Sizes and counts.
    #[inline(always)]
    pub const fn layout(&self) -> HeapLayout {
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
