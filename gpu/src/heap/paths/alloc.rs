//! Allocation: one subtraction and one claim for the lanes of a warp that ask for the same class.
//!
//! Cost of a warp that asks for one class: three round trips, one after the other. An atomic
//! subtraction takes tickets from the cursor; an acquire atomic claims the bits of the blocks; a
//! load of the run's entry shows that the run is still one of the class (I2 of
//! [`Runs`]). If smaller groups use the cursor, too, the blocks can lie in two words
//! of the bitmap; then two lanes claim at once. A claim from a fully free word also subtracts from
//! the run's count, without waiting.

use crate::heap::layout::LEAST_SLAB_LOG2;
use crate::heap::layout::bits::{WORD_BITS, full_word, low_bits};
use crate::heap::layout::class::{ClassInfo, SizeClass, rounded_up};
use crate::heap::structures::cursor::Span;
use crate::heap::structures::heap_core::HeapCore;
use crate::heap::structures::runs::Runs;
use crate::lanes::{Group, Lanes};
use crate::sync::NATIVE_LAYOUT;
use crate::units::WARP_SIZE;
use core::alloc::Layout;
use core::ptr::NonNull;

/// The largest alignment of a block of a class: the size of the smallest slab.
pub(in crate::heap) const SMALL_ALIGN: usize = 1 << LEAST_SLAB_LOG2;
/// A size up to this can be rounded up to [`SMALL_ALIGN`] in 32 bits.
const MOST_ROUNDED: usize = 1 << 31;

impl HeapCore {
    /// Allocates memory for `layout`. Returns `None` if the heap is out of memory.
    #[inline(always)]
    pub(in crate::heap) fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
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

    /// Allocates for sizes and alignments that no class serves.
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

    /// The class that serves allocations of this layout, if there is one.
    #[inline(always)]
    pub(in crate::heap) fn class_of(&self, layout: Layout) -> Option<SizeClass> {
        let (size, align) = (layout.size(), layout.align());
        let bytes = rounded_up(size as u64, align as u64);
        // One comparison for sizes from one byte to the limit: zero wraps around.
        let small = bytes.wrapping_sub(1) < u64::from(self.layout.small_bytes) && align <= SMALL_ALIGN;
        small.then(|| SizeClass::of(bytes as u32))
    }

    /// Counts `count` failed allocations, one of them of `bytes`. In a debug heap, the sizes here
    /// include records, and the allocation may still succeed.
    pub(in crate::heap) fn note_failures(&self, count: u32, bytes: u64) {
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
            let shard = warp.broadcast_32(self.partial_warp_shard(shard));
            (self.draw(warp, warp.matching(class.0), true, class, shard), shard)
        };
        if warp.all(drawn.address != 0) {
            return drawn.address;
        }
        let shard = warp.broadcast_32(shard);
        self.shared().alloc_slow(warp.group(), class, shard, drawn.seen, drawn.address, drawn.stale)
    }

    /// Allocates for a part of a warp.
    #[inline(never)]
    fn alloc_partial(&self, group: Group, class: SizeClass) -> u64 {
        let shard = group.broadcast_32(self.partial_warp_shard(self.shard()));
        let drawn = self.draw(group, group.matching(class.0), true, class, shard);
        if group.all(drawn.address != 0) {
            return drawn.address;
        }
        self.alloc_slow(group, class, shard, drawn.seen, drawn.address, drawn.stale)
    }
}

/// The most spans that tickets beyond the end of a span advance by.
const MOST_PASSED: u32 = if NATIVE_LAYOUT { 8 } else { 2 };

/// The result of a lane's ticket.
#[derive(Clone, Copy)]
pub(in crate::heap) struct Drawn {
    /// The address of its block; 0 if it has none.
    pub address: u64,
    /// The cursor's span as the lane's group saw it.
    pub seen: Span,
    /// The word before the lane claimed bits in it, if these must be set again; otherwise 0.
    pub stale: u32,
}

/// The block of a lane's ticket, and the lane's part in the claim of its group's blocks.
#[derive(Clone, Copy)]
pub(in crate::heap) struct Ticket {
    /// Whether the ticket is for a block.
    is_valid: bool,
    run: u32,
    /// The number of the block in the run.
    number: u32,
    /// The rank, among the peers, of the lane that claims the block.
    claimer: u32,
    /// Bits that the lane claims; none if it is not the claimer.
    bits: u32,
}

impl Ticket {
    /// The ticket of this lane in a group of `peers` that subtracted from a cursor when it was
    /// `seen`.
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

impl HeapCore {
    /// Takes tickets for the groups of `peers` that ask, and claims their blocks.
    #[inline(always)]
    pub(in crate::heap) fn draw<const WHOLE: bool, const ONE: bool>(
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
        // Whether the blocks of a full warp are those of one word, also in the next span.
        let is_word = WHOLE && ONE && (seen.left().cast_unsigned() | info.blocks).is_multiple_of(WORD_BITS);
        if !lanes.all(!asks || seen.left() >= peers.count() as i32) {
            let is_beyond = leads && seen.left() < peers.count() as i32;
            let next = if is_beyond { self.pass(class, shard, &info, seen, peers.count()) } else { seen };
            let next = Span(lanes.read_64(next.0, peers.leader()));
            if seen.ends_before(peers.count(), peers.rank()) {
                seen = next;
            }
        }
        if is_word {
            return self.draw_word(lanes, class, &info, seen);
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

    /// Draws for a full warp with tickets for the blocks of one word, or for none. One lane claims
    /// the word.
    #[inline(always)]
    fn draw_word<const WHOLE: bool>(
        &self,
        warp: Lanes<WHOLE>,
        class: SizeClass,
        info: &ClassInfo,
        seen: Span,
    ) -> Drawn {
        let block = seen.block(WARP_SIZE, 0);
        if block >= seen.blocks(info) {
            return Drawn { address: 0, seen, stale: 0 };
        }
        let ((run, number), runs) = (seen.place(info, block), self.runs());
        let w = runs.first_word(run) + number / WORD_BITS;
        let old = warp.lead_32(|| runs.claim(w, u32::MAX));
        // What the claiming lane acquired is now before every lane (I3 of `runs`).
        warp.order();
        let is_valid = runs.starts(run, class, info.slabs);
        if is_valid && warp.leads() {
            runs.count_claim(run, old, u32::MAX);
        }
        let is_mine = is_valid && old >> warp.rank() & 1 == 1;
        let address = if is_mine { self.block_address(info, run, number + warp.rank()) } else { 0 };
        Drawn { address, seen, stale: if is_valid || !warp.leads() { 0 } else { old } }
    }

    /// The span that tickets beyond the end of the span `seen` are for: the next one of the ring,
    /// or one after that. The group that crossed the end replaces the span until tickets are left.
    /// It is to [`refill`](Self::refill) if there are no more spans or, for a warp, if the first
    /// run of the next one has no fully free word.
    #[inline(always)]
    fn pass(&self, class: SizeClass, shard: u32, info: &ClassInfo, seen: Span, wanted: u32) -> Span {
        let (ring, cursor) = (self.ring(class, shard), self.cursor(class, shard));
        if seen.is_dry() {
            return seen;
        }
        // The span of the cursor, that of the group's tickets, and whether tickets are left.
        let (mut last, mut own, mut is_replaced) = (seen, seen, seen.left() < 0);
        for turn in 0..MOST_PASSED {
            let next = ring.after(info, last.slot());
            // A hint: a warp only goes on to a run with a fully free word.
            let is_used = || self.runs().free_words(next.first(info)) <= 0;
            if next.runs() == 0 || !is_replaced && wanted == WARP_SIZE && is_used() {
                break;
            }
            if !is_replaced {
                is_replaced = cursor.replace(last, next);
            }
            if turn == 0 || own.left() <= 0 {
                own = next.with_left(own.left() + next.left());
            }
            if is_replaced && own.left() > 0 {
                return own.passed();
            }
            last = next;
        }
        if is_replaced { own.passed() } else { last.with_left(0) }
    }
}

#[cfg(all(test, not(loom)))]
mod draw_tests;
