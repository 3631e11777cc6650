//! The heap: memory of any size for any thread, which any thread can free.
//!
//! [Decision 15](../../../docs/decisions/0015-heap-of-bitmaps.md) has the reasons and the figures.
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
//! probe      each lane a free block of a listed run, if the cursor is aged, dry or of little use;
//!            without one, a new run of free slabs
//!               | none
//!               v
//! search     free blocks of listed runs, or the proof that there are none; after a long wait also
//!            a new run of free slabs
//!
//! free       the slab's entry ---> runs: set bits ---> the run is listed; idle if fully free
//! ```
//!
//! Four folders, each of which uses only those before it:
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
//! Progress: lock-free, except that a group may find that another group is replacing the span of a
//! cursor, and that its ring has no next span. Then it draws from the cursor of another shard, and
//! after some turns searches for blocks, too. The number of turns is bounded.

mod block_cache;
mod checks;
pub mod layout;
mod paths;
mod structures;
#[cfg(all(test, not(loom)))]
mod tests;

pub use block_cache::BlockCache;
pub use checks::audit::{Defect, FreeSlab, Invariant, LargeAudit, RunAudit, SpanAudit, Violation, Visitor};
pub use checks::debug::{self, DEBUG};
#[cfg(loom)]
pub use checks::steps::Searched;
pub use layout::HeapLayout;
pub use layout::class::{self, ClassInfo};
pub use paths::group::BlockShare;
#[doc(hidden)]
pub use paths::split;
pub use structures::cursor::{Cursor, Span};
pub use structures::moves::{Moves, Overview};
pub use structures::orderings::{POINTS, SITES};
pub use structures::parts::{HINT_STRIDE, Parts};
pub use structures::ring::Ring;

use crate::kernel::DeviceHandle;
use crate::sync::NATIVE_LAYOUT;
use crate::thread;
use layout::PART_SHARDS;
use layout::entry::Entry;
use structures::index_set::IndexSet;
use structures::runs::Runs;
use structures::slabs::FreeSlabs;

/// The largest alignment, in bytes.
pub const MAX_ALIGN: u64 = 1 << 21;

/// A heap in the form that kernels use: a handle.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Heap {
    parts: Parts,
    layout: HeapLayout,
}

const _: () =
    assert!(!NATIVE_LAYOUT || size_of::<Heap>() == 144 + 8 * DEBUG as usize && align_of::<Heap>() == 8);

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
    /// used. Initially the cursors are [`Span::UNUSED`], the entries are
    /// [`fresh_entry`](Self::fresh_entry), the slabs with memory are in the set of free slabs on all
    /// of its levels, and all other words are zero.
    pub unsafe fn from_raw_parts(parts: Parts, layout: HeapLayout) -> Self {
        Heap { parts, layout }
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
        let of_shards = (0..self.layout.shards).map(|shard| self.failures_of(shard).load_relaxed());
        of_shards.fold(0, u32::wrapping_add)
    }

    /// The number of [`failures`](Self::failures) that gave up after many attempts, none of which
    /// proved that there was no memory. Modulo 2^32.
    pub fn contended_failures(&self) -> u32 {
        let of_shards = (0..self.layout.shards).map(|shard| self.contended_of(shard).load_relaxed());
        of_shards.fold(0, u32::wrapping_add)
    }

    /// The bytes of the last failed allocation: those that were requested in a debug heap,
    /// otherwise rounded up to the size class if there is one. 0 if none has failed.
    pub fn last_failed_bytes(&self) -> u64 {
        self.overview().last_failed().load_relaxed()
    }

    /// The copy of this handle in memory, for code off the fast path: a call there passes its
    /// address. A handle passed by value would be written to every thread's stack.
    #[inline(always)]
    fn shared(&self) -> &Heap {
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*self.parts.shared }
    }

    #[inline(always)]
    fn runs(&self) -> Runs<'_> {
        Runs { parts: &self.parts, layout: &self.layout }
    }

    fn free_slabs(&self) -> FreeSlabs<'_> {
        // SAFETY: `from_raw_parts`' promise.
        let set = unsafe { IndexSet::new(self.parts.free, self.layout.slabs) };
        FreeSlabs { set, slabs: self.layout.slabs, moves: self.overview().common() }
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

    /// The shard of the SM that the caller runs on. A hint: any shard would be correct.
    #[inline(always)]
    fn shard(&self) -> u32 {
        self.layout.shard(thread::sm_id())
    }

    /// The shard for groups smaller than a warp.
    #[inline(always)]
    fn part_of(&self, shard: u32) -> u32 {
        shard / PART_SHARDS * PART_SHARDS
    }
}
