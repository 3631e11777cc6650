//! The location of an address: its slab, its run and its block.

use crate::heap::layout::entry::Entry;
use crate::heap::structures::heap_core::HeapCore;
use crate::heap::structures::runs::Run;
use crate::sync::AtomicU32;

/// The location of an address.
#[derive(Clone, Copy, Debug)]
pub(in crate::heap) enum Located {
    /// Outside all slabs of the heap.
    Outside,
    /// In a slab without a class: its number and its entry.
    Slab(u32, Entry),
    /// In a run.
    Block(Place),
}

/// A place in a run.
#[derive(Clone, Copy, Debug)]
pub(in crate::heap) struct Place {
    pub run: Run,
    /// The number of the block in the run. Not less than the run's blocks if the place is after the
    /// last block.
    pub block: u32,
    /// Bytes from the start of the run.
    pub inside: u32,
}

impl Place {
    /// Whether a block starts at this place.
    #[inline(always)]
    pub fn is_start(&self) -> bool {
        self.block * self.run.class.bytes() == self.inside && self.is_in_block()
    }

    /// Whether the place is in a block, not after the last one.
    #[inline(always)]
    pub fn is_in_block(&self) -> bool {
        self.block < self.run.blocks
    }
}

impl HeapCore {
    /// Locates an address by the entry of its slab, which `load` loads. The result is certain for a
    /// thread that owns the block (I2 of [`runs`](super::runs)).
    #[inline(always)]
    pub(in crate::heap) fn locate(&self, address: u64, load: impl FnOnce(&AtomicU32) -> u32) -> Located {
        let offset = address.wrapping_sub(self.base() as u64);
        let slab = offset >> self.layout.slab_log2;
        if slab >= self.layout.slabs.into() {
            return Located::Outside;
        }
        let slab = slab as u32;
        let entry = Entry(load(self.runs().entry(slab)));
        let Some(class) = entry.class() else { return Located::Slab(slab, entry) };
        let first = slab - entry.place();
        let inside = (offset - (u64::from(first) << self.layout.slab_log2)) as u32;
        let blocks = class.blocks_in_run(entry.slabs() << self.layout.slab_log2);
        Located::Block(Place { run: Run { first, class, blocks }, block: class.blocks_in(inside), inside })
    }
}
