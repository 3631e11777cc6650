//! What a slab is, in one word.
//!
//! ```text
//! 31     16 15     8 7      0
//! | slabs   | place   | class  |      a slab of a run: how many it has, and which of them this is
//! | length            | LARGE  |      the first slab of a large allocation
//! ```
//!
//! Written by who has taken the slab as free, before it hands out any of it, and by who has taken back all of it.

use super::class::SizeClass;

/// A later slab of an allocation of whole slabs.
const REST: u32 = 0xfd;
/// The first slab of such an allocation.
const LARGE: u32 = 0xfe;
const PLACE_SHIFT: u32 = 8;
const SLABS_SHIFT: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(pub(super) u32);

impl Entry {
    /// In the free set, or on its way to or from there.
    pub const FREE: Entry = Entry(u32::MAX);
    /// A later slab of an allocation of whole slabs.
    pub const REST: Entry = Entry(REST);

    /// The first slab of an allocation of `slabs` slabs.
    pub const fn large(slabs: u32) -> Self {
        Entry(slabs << PLACE_SHIFT | LARGE)
    }

    /// How many slabs the allocation has that starts here, if one does.
    pub const fn large_slabs(self) -> Option<u32> {
        let is_large = self.0 & ((1 << PLACE_SHIFT) - 1) == LARGE;
        if is_large { Some(self.0 >> PLACE_SHIFT) } else { None }
    }

    /// Slab number `place` of a run of the class, which has `slabs`.
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

    /// The slab's number in its run.
    #[inline(always)]
    pub const fn place(self) -> u32 {
        self.0 >> PLACE_SHIFT & 0xff
    }

    /// Slabs of its run.
    #[inline(always)]
    pub const fn slabs(self) -> u32 {
        self.0 >> SLABS_SHIFT
    }
}
