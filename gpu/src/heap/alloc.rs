//! Allocation: one subtraction for the lanes of a warp that ask for the same class.

use super::Heap;
use super::class::{SizeClass, rounded_up};
use super::class_info::ClassInfo;
use super::cursor::Span;
use super::debug::CallSite;
use crate::lanes::Group;
use core::ptr::NonNull;

/// The largest alignment that a block of a class may be asked for: that of the smallest slab.
pub(super) const SMALL_ALIGN: usize = 1 << 14;

impl Heap {
    /// Memory for `layout`, or `None` when the heap has none for it. Any thread, any time, any subset of a
    /// warp. A layout of no bytes gets an address that must not be touched. Alignments are 2 MiB at most.
    ///
    /// Cost per warp whose lanes ask for the same class: 1 acquire atomic on a word of the warp's
    /// multiprocessor. Lanes that ask for other classes do the same at the same time.
    #[track_caller]
    #[inline(always)]
    pub fn alloc(&self, layout: core::alloc::Layout) -> Option<NonNull<u8>> {
        self.alloc_at(layout, CallSite::here())
    }

    /// The same, without what a debug heap adds.
    #[inline(always)]
    pub(super) fn alloc_plain(&self, layout: core::alloc::Layout) -> Option<NonNull<u8>> {
        let (size, align) = (layout.size(), layout.align());
        let bytes = rounded_up(size as u64, align as u64);
        // Sizes from one byte to the limit, compared once: zero wraps around.
        let small = bytes.wrapping_sub(1) < u64::from(self.layout.small_bytes);
        let address = if small && align <= SMALL_ALIGN {
            self.alloc_small(SizeClass::of(bytes as u32))
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
        let is_one = warp.all(class.0 == warp.broadcast_32(class.0));
        // Read here: what is acquired below empties the multiprocessor's cache.
        let info = *self.class(class);
        let (peers, home, seen) = if is_one {
            let mut home = self.home();
            let seen = Span(warp.lead_64(|| self.take_in_turn(warp.count(), class, &mut home).0));
            // The leader took for all: what the last owners wrote is now before every lane (I4).
            warp.order();
            let rest = seen.signed_left() - warp.count() as i32;
            if rest >= 0 {
                return self.block_of_span(&info, seen, rest as u32 + warp.rank());
            }
            (warp.group(), warp.broadcast_32(home), seen)
        } else {
            // The leaders of all take at once.
            let (peers, home) = (warp.matching(class.0), self.part_home());
            let seen = self.take_together(warp, peers, true, class, home);
            let rest = seen.signed_left() - peers.count() as i32;
            if warp.all(rest >= 0) {
                return self.block_of_span(&info, seen, rest as u32 + peers.rank());
            }
            (peers, home, seen)
        };
        self.alloc_crossed(warp, peers, class, &info, home, seen)
    }

    /// For a part of a warp.
    #[inline(never)]
    fn alloc_partial(&self, group: Group, class: SizeClass) -> u64 {
        if group.count() > 1 {
            return self.alloc_parts(group, class);
        }
        let info = *self.class(class);
        let mut home = self.part_home();
        let mut seen = self.take_in_turn(1, class, &mut home);
        if seen.is_unused() && seen.left() == Some(0) {
            seen = self.first_span(group, group, true, class, home, seen);
        }
        if seen.signed_left() > 0 {
            self.block_of_span(&info, seen, seen.signed_left() as u32 - 1)
        } else {
            self.alloc_short(group, group, class, home, seen, 0)
        }
    }

    /// For several lanes of a warp, that may ask for several classes.
    #[inline(always)]
    fn alloc_parts(&self, group: Group, class: SizeClass) -> u64 {
        let (peers, home) = (group.matching(class.0), self.part_home());
        let info = *self.class(class);
        let seen = self.take_together(group, peers, true, class, home);
        let rest = seen.signed_left() - peers.count() as i32;
        if group.all(rest >= 0) {
            self.block_of_span(&info, seen, rest as u32 + peers.rank())
        } else {
            self.alloc_short(group, peers, class, home, seen, 0)
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
