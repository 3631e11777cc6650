//! Allocation: one subtraction for the lanes of a warp that ask for the same class.

use super::class::{SizeClass, rounded_up};
use super::cursor::{Outcome, Span};
use super::layout::{ClassInfo, divided};
use super::{Heap, POLL_NANOS, TAKE};
use crate::lanes::{Group, Lanes, Warp};
use crate::sync::NATIVE_LAYOUT;
use crate::thread;
use core::ptr::NonNull;

/// How often a group looks whether the next span is there: its search takes tens of microseconds at most.
const SETTLE_POLLS: u32 = if NATIVE_LAYOUT { 1 << 12 } else { 3 };

/// How often a group starts again because others took what was found for it.
const PATIENCE: u32 = if NATIVE_LAYOUT { 256 } else { 6 };

/// The largest alignment that a block of a class may be asked for: that of the smallest slab.
const SMALL_ALIGN: usize = 1 << 14;

impl Heap {
    /// Memory for `layout`, or `None` when the heap has none for it. Any thread, any time, any subset of a
    /// warp. A layout of no bytes gets an address that must not be touched. Alignments are 2 MiB at most.
    ///
    /// Cost per warp whose lanes ask for the same class: 1 acquire atomic on a word of the warp's
    /// multiprocessor. Lanes that ask for other classes do the same at the same time.
    #[inline(always)]
    pub fn alloc(&self, layout: core::alloc::Layout) -> Option<NonNull<u8>> {
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
        if size == 0 { align as u64 } else { self.alloc_large(size as u64, align as u64) }
    }

    #[inline(always)]
    fn alloc_small(&self, class: SizeClass) -> u64 {
        let group = Group::converged();
        let Some(warp) = group.whole() else { return self.shared().alloc_partial(group, class) };
        if warp.all(class.0 == warp.broadcast_32(class.0)) {
            self.alloc_together(warp, class)
        } else {
            self.shared().alloc_mixed(warp, class)
        }
    }

    /// For a part of a warp.
    #[inline(never)]
    fn alloc_partial(&self, group: Group, class: SizeClass) -> u64 {
        let peers = group.matching(class.0);
        self.alloc_together(peers, class)
    }

    /// For a warp whose lanes ask for several classes: the leaders of all take at once.
    #[inline(never)]
    fn alloc_mixed(&self, warp: Warp, class: SizeClass) -> u64 {
        let peers = warp.matching(class.0);
        let home = self.home();
        let seen = if peers.leads() { self.take(peers.count(), class, home).0 } else { 0 };
        let seen = Span(warp.read_64(seen, peers.leader()));
        // The leaders took for all: what the last owners wrote is now before every lane (I4).
        warp.order();
        self.place_or_again(peers, class, home, seen)
    }

    #[inline(always)]
    fn alloc_together<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, class: SizeClass) -> u64 {
        let home = self.home();
        let seen = Span(lanes.lead_64(|| self.take(lanes.count(), class, home).0));
        lanes.order();
        self.place_or_again(lanes, class, home, seen)
    }

    #[inline(always)]
    fn place_or_again<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        class: SizeClass,
        home: u32,
        seen: Span,
    ) -> u64 {
        let (left, wanted) = (seen.signed_left(), lanes.count() as i32);
        if left >= wanted {
            self.block_of_span(self.class(class), seen.first(), (left - wanted) as u32 + lanes.rank())
        } else {
            self.shared().alloc_again(lanes.group(), class, home, seen)
        }
    }

    /// Takes blocks from a cursor, if it has as many. Returns the cursor as it was.
    #[inline(always)]
    fn take(&self, wanted: u32, class: SizeClass, home: u32) -> Span {
        let cursor = self.cursor_at(self.cursor_index(class, home));
        // ordering: acquire; pairs with INSTALL: the slabs' entries, and what their last owners wrote (I4).
        Span(cursor.span.sub_acquire(wanted.into(), TAKE))
    }

    /// The address of a block of the span from slab `first` on.
    #[inline(always)]
    fn block_of_span(&self, info: &ClassInfo, first: u32, block: u32) -> u64 {
        let runs = divided(block, info.blocks_reciprocal);
        self.block_address(info, first + runs * info.slabs, block - runs * info.blocks)
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

    /// The cursor of the class did not have what the group wanted: the leader saw `seen` there.
    #[cold]
    #[inline(never)]
    fn alloc_again(&self, group: Group, class: SizeClass, home: u32, seen: Span) -> u64 {
        let (mut group, mut seen) = (group, seen);
        for _ in 0..PATIENCE {
            let rank = group.rank();
            match seen.outcome(group.count()) {
                Outcome::Got => {
                    let block = seen.signed_left() as u32 - group.count() + rank;
                    return self.block_of_span(self.class(class), seen.first(), block);
                }
                Outcome::Crossed => {
                    let left = seen.signed_left() as u32;
                    self.refill(group, class, home, group.count());
                    if rank < left {
                        return self.block_of_span(self.class(class), seen.first(), rank);
                    }
                    group = group.filter(rank >= left);
                }
                Outcome::Behind => self.await_span(class, home),
                Outcome::Dry => {
                    if seen.has_sunk() && group.leads() {
                        self.lift(class, home);
                    }
                    let hole = self.claim_hole(class, home, rank);
                    let rest = group.filter(hole == 0);
                    if hole != 0 {
                        return hole;
                    }
                    group = rest;
                    if self.is_known_full(group, class, home) {
                        return 0;
                    }
                }
            }
            seen = Span(group.lead_64(|| self.take(group.count(), class, home).0));
            group.order();
        }
        0
    }

    /// Puts a dry cursor back to its start, before failed subtractions borrow from its upper half.
    #[inline(never)]
    fn lift(&self, class: SizeClass, home: u32) {
        let span = &self.cursor_at(self.cursor_index(class, home)).span;
        let seen = Span(span.load_relaxed());
        if seen.is_dry() {
            // Relaxed: a dry cursor hands nothing out. A failure is another's success, or another span.
            let _ = span.cas_relaxed(seen.0, Span::DRY.0);
        }
    }

    /// Waits until no group is looking for the next span, or for long enough.
    #[inline(never)]
    fn await_span(&self, class: SizeClass, home: u32) {
        let span = &self.cursor_at(self.cursor_index(class, home)).span;
        for _ in 0..SETTLE_POLLS {
            if Span(span.load_relaxed()).left().is_some() {
                return;
            }
            thread::nanosleep(POLL_NANOS);
        }
    }
}
