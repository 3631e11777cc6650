//! Allocation: one subtraction for the lanes of a warp that ask for the same class.

use super::Heap;
use super::class::SizeClass;
use super::class_info::ClassInfo;
use super::cursor::Span;
use super::debug::CallSite;
use crate::lanes::{Group, Warp};
use core::ptr::NonNull;

/// The largest alignment that a block of a class may be asked for: that of the smallest slab.
pub(super) const SMALL_ALIGN: usize = 1 << 14;
/// What is no larger can be rounded up to that in 32 bits.
const MOST_ROUNDED: usize = 1 << 31;

impl Heap {
    /// Allocates memory for `layout`. Returns `None` if the heap is out of memory. May be called
    /// from any thread and any divergent subset of a warp. For a zero-size layout the address must
    /// not be dereferenced. The largest alignment is 2 MiB.
    ///
    /// Cost per warp, if all lanes request the same size class: 1 acquire atomic on a word of the
    /// warp's SM. Lanes with other classes do the same concurrently.
    #[track_caller]
    #[inline(always)]
    #[must_use = "memory without an address is never freed"]
    pub fn alloc(&self, layout: core::alloc::Layout) -> Option<NonNull<u8>> {
        self.alloc_at(layout, CallSite::here())
    }

    /// The same, without what a debug heap adds.
    #[inline(always)]
    pub(super) fn alloc_plain(&self, layout: core::alloc::Layout) -> Option<NonNull<u8>> {
        let (size, align) = (layout.size(), layout.align());
        // In 32 bits, so of a size or an alignment that is too large it says nothing.
        let below = (align as u32).wrapping_sub(1);
        let bytes = (size as u32).wrapping_add(below) & !below;
        // Sizes from one byte to the limit, compared once: zero wraps around.
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
            // Relaxed: a figure.
            self.refusal_count().add_relaxed(1);
        }
        address
    }

    #[inline(always)]
    fn alloc_small(&self, class: SizeClass) -> u64 {
        let group = Group::converged();
        let Some(warp) = group.whole() else { return self.shared().alloc_partial(group, class) };
        if !warp.all(class.0 == warp.broadcast_32(class.0)) {
            return self.alloc_mixed(warp, class);
        }
        // Read here: what is acquired below empties the multiprocessor's cache.
        let info = *self.class(class);
        let mut shard = self.shard();
        let seen = Span(warp.lead_64(|| self.take_in_turn(warp.count(), class, &mut shard).0));
        // The leader took for all: what the last owners wrote is now before every lane (I4).
        warp.order();
        let rest = seen.signed_left() - warp.count() as i32;
        if rest >= 0 {
            self.block_of_span(&info, seen, rest as u32 + warp.rank())
        } else {
            let shard = warp.broadcast_32(shard);
            self.shared().alloc_crossed(warp, class, shard, seen)
        }
    }

    /// For a part of a warp.
    #[inline(never)]
    fn alloc_partial(&self, group: Group, class: SizeClass) -> u64 {
        let (peers, shard) = (group.matching(class.0), self.part_shard());
        let info = *self.class(class);
        let seen = self.take_together(group, peers, true, class, shard);
        let rest = seen.signed_left() - peers.count() as i32;
        if group.all(rest >= 0) {
            self.block_of_span(&info, seen, rest as u32 + peers.rank())
        } else {
            self.alloc_short(group, peers, class, shard, seen)
        }
    }

    /// For a warp whose lanes ask for several classes: the leaders of all take at once.
    #[inline(always)]
    fn alloc_mixed(&self, warp: Warp, class: SizeClass) -> u64 {
        let shard = self.part_shard();
        let peers = warp.matching(class.0);
        let info = *self.class(class);
        let seen = self.take_together(warp, peers, true, class, shard);
        let rest = seen.signed_left() - peers.count() as i32;
        if warp.all(rest >= 0) {
            self.block_of_span(&info, seen, rest as u32 + peers.rank())
        } else {
            self.shared().alloc_short(warp, peers, class, shard, seen)
        }
    }

    #[inline(always)]
    pub(super) fn block_of_span(&self, info: &ClassInfo, span: Span, block: u32) -> u64 {
        let (run, block) = span.place(info, block);
        self.block_address(info, run, block)
    }

    /// The address of a block of a run.
    #[inline(always)]
    pub(super) fn block_address(&self, info: &ClassInfo, run: u32, block: u32) -> u64 {
        self.slab_address(run) + u64::from(block * info.bytes)
    }

    #[inline(always)]
    pub(super) fn slab_address(&self, slab: u32) -> u64 {
        self.base() as u64 + (u64::from(slab) << self.layout.slab_log2)
    }
}
