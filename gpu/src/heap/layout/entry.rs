//! Entry: the use of a slab, in one word.
//!
//! ```text
//! 31     16 15     8 7      0
//! | slabs   | place   | class  |      a slab of a run: the run's slabs, and the slab's number among them
//! | length            | LARGE  |      the first slab of a large allocation
//! ```
//!
//! The thread that owns the slab writes the entry: after it took the slab from the free set and
//! before other threads can use the memory, or after it reclaimed all of the memory.

use crate::heap::layout::class::{MAX_RUN, SizeClass};
use crate::heap::layout::{MAX_CLASSES, MAX_SLABS};

/// A later slab of a large allocation.
const REST: u32 = 0xfd;
/// The first slab of a large allocation.
const LARGE: u32 = 0xfe;
const PLACE_SHIFT: u32 = 8;
const SLABS_SHIFT: u32 = 16;

const _: () = assert!(MAX_CLASSES <= REST && MAX_RUN.0 <= 1 << (SLABS_SHIFT - PLACE_SHIFT));
const _: () = assert!(MAX_SLABS < 1 << (32 - PLACE_SHIFT));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(pub(in crate::heap) u32);

impl Entry {
    /// Free, and never used since the heap was reset.
    pub const FRESH: Entry = Entry(u32::MAX);
    /// Free: in the free set, or on the way to or from there.
    pub const FREE: Entry = Entry(u32::MAX - (1 << PLACE_SHIFT));
    /// A later slab of a large allocation.
    pub const REST: Entry = Entry(REST);

    /// The first slab of a large allocation of `slabs` slabs.
    pub const fn large(slabs: u32) -> Self {
        Entry(slabs << PLACE_SHIFT | LARGE)
    }

    /// The number of slabs of the large allocation that starts here, if one does.
    pub const fn large_slabs(self) -> Option<u32> {
        let is_large = self.0 & ((1 << PLACE_SHIFT) - 1) == LARGE;
        if is_large { Some(self.0 >> PLACE_SHIFT) } else { None }
    }

    /// Slab number `place` of a run of the class, which has `slabs` slabs.
    #[inline(always)]
    pub const fn of_class(class: SizeClass, place: u32, slabs: u32) -> Self {
        Entry(slabs << SLABS_SHIFT | place << PLACE_SHIFT | class.0)
    }

    /// The class; `None` for a slab without one.
    #[inline(always)]
    pub const fn class(self) -> Option<SizeClass> {
        let kind = self.0 & ((1 << PLACE_SHIFT) - 1);
        if kind < REST { Some(SizeClass(kind)) } else { None }
    }

    /// Whether the slab is free.
    pub const fn is_free(self) -> bool {
        self.0 == Entry::FREE.0 || self.0 == Entry::FRESH.0
    }

    /// The slab's number in its run.
    #[inline(always)]
    pub const fn place(self) -> u32 {
        self.0 >> PLACE_SHIFT & 0xff
    }

    /// Number of slabs of the run.
    #[inline(always)]
    pub const fn slabs(self) -> u32 {
        self.0 >> SLABS_SHIFT
    }
}
