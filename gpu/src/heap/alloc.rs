//! Allocation: one subtraction and one claim for the lanes of a warp that ask for the same class.
//!
//! Cost of a warp that asks for one class: three round trips, one after the other. An atomic
//! subtraction takes tickets from the cursor; an acquire atomic claims the bits of the blocks; a
//! load of the run's entry shows that the run is still one of the class (I2 of
//! [`runs`](super::runs)). If smaller groups use the cursor, too, the blocks can lie in two words
//! of the bitmap; then two lanes claim at once. A claim from a fully free word also subtracts from
//! the run's count, without waiting.

use super::Heap;
use super::class::SizeClass;
use super::debug::CallSite;
use crate::lanes::Group;
use core::ptr::NonNull;

/// The largest alignment of a block of a class: the size of the smallest slab.
pub(super) const SMALL_ALIGN: usize = 1 << 14;
/// A size up to this can be rounded up to that alignment in 32 bits.
const MOST_ROUNDED: usize = 1 << 31;

impl Heap {
    /// Allocates memory for `layout`. Returns `None` if the heap is out of memory. May be called
    /// from any thread and any divergent subset of a warp. For a zero-size layout the address must
    /// not be dereferenced. The largest alignment is 2 MiB.
    ///
    /// Cost per warp, if all lanes request the same size class: a relaxed atomic on a word of the
    /// warp's SM, an acquire atomic on the bitmap and a load, one after the other. Lanes with other
    /// classes do the same concurrently.
    #[track_caller]
    #[inline(always)]
    #[must_use = "memory without an address is never freed"]
    pub fn alloc(&self, layout: core::alloc::Layout) -> Option<NonNull<u8>> {
        self.alloc_at(layout, CallSite::here())
    }

    /// The same without what a debug heap adds.
    #[inline(always)]
    pub(super) fn alloc_plain(&self, layout: core::alloc::Layout) -> Option<NonNull<u8>> {
        let (size, align) = (layout.size(), layout.align());
        // In 32 bits: meaningless for a size or an alignment that is too large.
        let below = (align as u32).wrapping_sub(1);
        let bytes = (size as u32).wrapping_add(below) & !below;
        // One comparison for sizes from one byte to the limit: zero wraps around.
        let small = size <= MOST_ROUNDED && bytes.wrapping_sub(1) < self.layout.small_bytes;
        let address = if small && align <= SMALL_ALIGN {
            self.alloc_small(SizeClass::of(bytes))
        } else {
            self.shared().alloc_unusual(size, align)
        };
        NonNull::new(address as *mut u8)
    }

    /// For sizes and alignments that no class serves.
    #[cold]
    #[inline(never)]
    fn alloc_unusual(&self, size: usize, align: usize) -> u64 {
        if size == 0 {
            return align as u64;
        }
        let address = self.alloc_large(size as u64, align as u64);
        if address == 0 {
            self.note_failures(1, size as u64);
        }
        address
    }

    /// Counts `count` failed allocations, one of them of `bytes`. In a debug heap, the sizes here
    /// include records, and the allocation may still succeed.
    pub(super) fn note_failures(&self, count: u32, bytes: u64) {
        // Relaxed, as the next ones: statistics.
        self.failures_of(self.shard()).add_relaxed(count);
        let last = self.overview().last_failed();
        // All SMs share the word, so it is only written if it changes.
        if !self.is_debugged() && last.load_relaxed() != bytes {
            last.store_relaxed(bytes);
        }
    }

    #[inline(always)]
    fn alloc_small(&self, class: SizeClass) -> u64 {
        let group = Group::converged();
        let Some(warp) = group.whole() else { return self.shared().alloc_partial(group, class) };
        let shard = self.shard();
        let (drawn, shard) = if warp.all(class.0 == warp.broadcast_32(class.0)) {
            (self.draw(warp, warp, true, class, shard), shard)
        } else {
            // Lanes that ask for several classes use the cursors of parts of warps.
            let shard = warp.broadcast_32(self.part_of(shard));
            (self.draw(warp, warp.matching(class.0), true, class, shard), shard)
        };
        if warp.all(drawn.address != 0) {
            return drawn.address;
        }
        let shard = warp.broadcast_32(shard);
        self.shared().alloc_slow(warp.group(), class, shard, drawn.seen, drawn.address, drawn.stale)
    }

    /// For a part of a warp.
    #[inline(never)]
    fn alloc_partial(&self, group: Group, class: SizeClass) -> u64 {
        let shard = group.broadcast_32(self.part_of(self.shard()));
        let drawn = self.draw(group, group.matching(class.0), true, class, shard);
        if group.all(drawn.address != 0) {
            return drawn.address;
        }
        self.alloc_slow(group, class, shard, drawn.seen, drawn.address, drawn.stale)
    }
}
