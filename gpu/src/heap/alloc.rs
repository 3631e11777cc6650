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
use super::cursor::Span;
use super::debug::CallSite;
use super::index_set::{WORD_BITS, low_bits};
use super::runs::Runs;
use crate::lanes::{Group, Lanes, Warp};
use core::ptr::NonNull;

/// The largest alignment of a block of a class: the size of the smallest slab.
pub(super) const SMALL_ALIGN: usize = 1 << 14;
/// A size up to this can be rounded up to that alignment in 32 bits.
const MOST_ROUNDED: usize = 1 << 31;

/// What a lane got for its ticket.
#[derive(Clone, Copy)]
pub(super) struct Drawn {
    /// The address of its block; 0 if it has none.
    pub address: u64,
    /// The cursor's span as the lane's group saw it.
    pub seen: Span,
    /// The word of the bitmap before the lane claimed blocks in it, if they are to be put back.
    pub stale: u32,
}

/// A block of a span, and the part in claiming the blocks of a group.
#[derive(Clone, Copy)]
pub(super) struct Ticket {
    /// Whether the ticket is for a block.
    is_valid: bool,
    run: u32,
    /// The number of the block in the run.
    number: u32,
    /// The lane, by its rank among its peers, that claims the block.
    claimer: u32,
    /// Bits that the lane claims; none if it is not the claimer.
    bits: u32,
}

impl Ticket {
    /// The ticket of this lane, if its group of `peers` subtracted from a cursor when it was `seen`.
    #[inline(always)]
    pub fn new<const ONE: bool>(info: &ClassInfo, seen: Span, peers: Lanes<ONE>, asks: bool) -> Self {
        let block = seen.block(peers.count(), peers.rank());
        let is_valid = asks && block < seen.blocks(info);
        let (run, number) = if is_valid { seen.place(info, block) } else { (0, 0) };
        let (bit, rank) = (number % WORD_BITS, peers.rank());
        // The lanes of `peers` before this one have the blocks before this one.
        let before = rank.min(bit);
        let with = (peers.count() - rank).min(WORD_BITS - bit).min(info.blocks - number);
        let bits = if is_valid && before == 0 { low_bits(with) << bit } else { 0 };
        Ticket { is_valid, run, number, claimer: rank - before, bits }
    }

    /// The word of the bitmap of the block.
    #[inline(always)]
    pub fn word(self, runs: Runs<'_>) -> u32 {
        runs.first_word(self.run) + self.number / WORD_BITS
    }

    /// The bits that the lane claims.
    pub fn bits(self) -> u32 {
        self.bits
    }
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
        self.shared().alloc_slow(
            warp.group(),
            class,
            warp.broadcast_32(shard),
            drawn.seen,
            drawn.address,
            drawn.stale,
        )
    }

    /// For a warp whose lanes ask for several classes.
    #[inline(always)]
    fn alloc_mixed(&self, warp: Warp, class: SizeClass) -> u64 {
        let shard = warp.broadcast_32(self.part_shard());
        let drawn = self.draw(warp, warp.matching(class.0), true, class, shard);
        if warp.all(drawn.address != 0) {
            return drawn.address;
        }
        self.shared().alloc_slow(warp.group(), class, shard, drawn.seen, drawn.address, drawn.stale)
    }

    /// For a part of a warp.
    #[inline(never)]
    fn alloc_partial(&self, group: Group, class: SizeClass) -> u64 {
        let shard = group.broadcast_32(self.part_shard());
        let drawn = self.draw(group, group.matching(class.0), true, class, shard);
        if group.all(drawn.address != 0) {
            return drawn.address;
        }
        self.alloc_slow(group, class, shard, drawn.seen, drawn.address, drawn.stale)
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
        let (info, cursor, leads) = (*self.class(class), self.cursor(class, shard), asks && peers.leads());
        let seen = if leads { cursor.take(peers.count()) } else { Span::UNUSED };
        let mut seen = Span(lanes.read_64(seen.0, peers.leader()));
        if !lanes.all(!asks || seen.left() >= peers.count() as i32) {
            let is_beyond = leads && seen.left() < peers.count() as i32;
            let next = if is_beyond { self.pass(class, shard, &info, seen) } else { seen };
            let next = Span(lanes.read_64(next.0, peers.leader()));
            if seen.ends_before(peers.count(), peers.rank()) {
                seen = next;
            }
        }
        let (runs, ticket) = (self.runs(), Ticket::new(&info, seen, peers, asks));
        // The first lane with a block in a word claims for all of the word.
        let old = if ticket.bits != 0 { runs.claim(ticket.word(runs), ticket.bits) } else { 0 };
        let seen_old = lanes.read_32(old, peers.lane_of(ticket.claimer));
        // What the claiming lane acquired is now before every lane (I3 of `runs`).
        lanes.order();
        let is_valid = ticket.is_valid && runs.starts(ticket.run, class, info.slabs);
        if is_valid && old & ticket.bits != 0 {
            runs.count_claim(ticket.run, old, full_word(info.blocks, ticket.number / WORD_BITS));
        }
        let is_mine = is_valid && seen_old >> (ticket.number % WORD_BITS) & 1 == 1;
        let address = if is_mine { self.block_address(&info, ticket.run, ticket.number) } else { 0 };
        Drawn { address, seen, stale: if is_valid { 0 } else { old } }
    }

    /// The span that tickets beyond the end of the span `seen` are for: the next one of the ring. The
    /// group that crossed the end replaces the span; if there is no next one, it is to
    /// [`advance`](Self::advance).
    #[inline(always)]
    fn pass(&self, class: SizeClass, shard: u32, info: &ClassInfo, seen: Span) -> Span {
        let next = self.ring(class, shard).after(info, seen.slot());
        if seen.is_dry() || next.runs() == 0 {
            return seen;
        }
        if seen.left() >= 0 {
            self.cursor(class, shard).replace(seen, next);
        }
        next.with_left(next.left() + seen.left()).passed()
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
