//! Allocation: one subtraction and one claim for the lanes of a warp that ask for the same class.
//!
//! Cost of a warp whose lanes all ask for one class: three round trips, one after the other. An
//! atomic subtraction takes tickets from the cursor; an acquire atomic claims the bits of the
//! blocks; a load of the run's entry shows that the run is still one of the class (I2 of
//! [`runs`](super::runs)). If the blocks lie in two words of the bitmap, two lanes claim at once. A
//! claim from a fully free word also subtracts from the run's count, without waiting.

use super::Heap;
use super::class::SizeClass;
use super::class_info::{ClassInfo, full_word};
use super::cursor::Position;
use super::debug::CallSite;
use super::index_set::{WORD_BITS, low_bits};
use super::ring::Span;
use crate::lanes::{Group, Lanes, Warp};
use core::ptr::NonNull;

/// The largest alignment of a block of a class: the size of the smallest slab.
pub(super) const SMALL_ALIGN: usize = 1 << 14;
/// A size up to this can be rounded up to that alignment in 32 bits.
const MOST_ROUNDED: usize = 1 << 31;

/// What a group got for its tickets.
#[derive(Clone, Copy)]
pub(super) struct Drawn {
    /// The address of the lane's block; 0 if it has none.
    pub address: u64,
    /// The cursor before.
    pub at: Position,
    /// The span that the tickets below zero were for, if there were any. None if the group must
    /// find one.
    pub next: Span,
}

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
            // Relaxed: a statistic.
            self.overview().failures().add_relaxed(1);
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
        let shard = self.shard();
        let drawn = self.draw(warp, warp, true, class, shard);
        if warp.all(drawn.address != 0) {
            return drawn.address;
        }
        self.shared().alloc_slow(warp.group(), class, warp.broadcast_32(shard), drawn)
    }

    /// For a warp whose lanes ask for several classes.
    #[inline(always)]
    fn alloc_mixed(&self, warp: Warp, class: SizeClass) -> u64 {
        let shard = warp.broadcast_32(self.part_shard());
        let drawn = self.draw(warp, warp.matching(class.0), true, class, shard);
        if warp.all(drawn.address != 0) {
            return drawn.address;
        }
        self.shared().alloc_slow(warp.group(), class, shard, drawn)
    }

    /// For a part of a warp.
    #[inline(never)]
    fn alloc_partial(&self, group: Group, class: SizeClass) -> u64 {
        let shard = group.broadcast_32(self.part_shard());
        let drawn = self.draw(group, group.matching(class.0), true, class, shard);
        if group.all(drawn.address != 0) {
            return drawn.address;
        }
        self.alloc_slow(group, class, shard, drawn)
    }

    /// Takes tickets for the groups of `peers` that ask, and claims their blocks.
    #[inline(always)]
    pub(super) fn draw<const WHOLE: bool, const ONE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        peers: Lanes<ONE>,
        asks: bool,
        class: SizeClass,
        shard: u32,
    ) -> Drawn {
        let (info, leads) = (*self.class(class), asks && peers.leads());
        let seen = if leads { self.cursor(class, shard).take(peers.count()).0 } else { 0 };
        let at = Position(lanes.read_64(seen, peers.leader()));
        let mut block = at.left() - peers.count() as i32 + peers.rank() as i32;
        let (mut span, mut next) = (at.span(), Span::NONE);
        if !lanes.all(!asks || block >= 0) {
            let is_short = leads && block < 0;
            let found =
                if is_short { self.follow(class, shard, at, peers.count(), &info) } else { Span::NONE };
            next = Span(lanes.read_32(found.0, peers.leader()));
            if block < 0 {
                (span, block) = (next, block + next.blocks(&info) as i32);
            }
        }
        let has_ticket = asks && block >= 0;
        let block = if has_ticket { block as u32 } else { 0 };
        let address = self.claim_ticket(lanes, peers, has_ticket, class, &info, span, block);
        Drawn { address, at, next }
    }

    /// The span after the one of a cursor from which a group took more blocks than are left. If the
    /// group crossed its end, it moves the cursor on; unless no block of the next run is free: then
    /// none.
    #[inline(always)]
    fn follow(&self, class: SizeClass, shard: u32, at: Position, wanted: u32, info: &ClassInfo) -> Span {
        let (next, slot) = self.ring(class, shard).after(at.slot());
        if at.is_crossed_by(wanted) {
            let first = next.first(info);
            if next == Span::NONE
                || self.runs().free_words(first) <= 0
                || !self.runs().starts(first, class, info.slabs)
            {
                return Span::NONE;
            }
            self.cursor(class, shard).advance(at, next, slot, info);
        }
        next
    }

    /// Claims the block of each lane with a ticket. Of the lanes with blocks in the same word, the
    /// first one claims for all.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "in registers")]
    fn claim_ticket<const WHOLE: bool, const ONE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        peers: Lanes<ONE>,
        has_ticket: bool,
        class: SizeClass,
        info: &ClassInfo,
        span: Span,
        block: u32,
    ) -> u64 {
        let runs = self.runs();
        let (run, number) = if has_ticket { span.place(info, block) } else { (0, 0) };
        let (bit, rank, w) = (number % WORD_BITS, peers.rank(), number / WORD_BITS);
        // The lanes of `peers` before this one have the blocks before this one.
        let before = rank.min(bit);
        let claims = has_ticket && before == 0;
        let with = (peers.count() - rank).min(WORD_BITS - bit).min(info.blocks - number);
        let bits = low_bits(with) << bit;
        let word = runs.first_word(run) + w;
        let old = if claims { runs.claim(word, bits) } else { 0 };
        let seen_old = lanes.read_32(old, peers.lane_of(rank - before));
        // What the claiming lane acquired is now before every lane (I3 of `runs`).
        lanes.order();
        let is_valid = has_ticket && runs.starts(run, class, info.slabs);
        if claims && old & bits != 0 {
            if is_valid {
                runs.count_claim(run, old, full_word(info.blocks, w));
            } else {
                self.shared().runs().put_back(word, old & bits, old);
            }
        }
        if is_valid && seen_old >> bit & 1 == 1 { self.block_address(info, run, number) } else { 0 }
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
