//! Draw: tickets of a cursor, and the claim of their blocks, for lanes that ask for the same class.
//!
//! The fast path of an allocation, and a turn of its slow path.

use super::Heap;
use super::bits::{WORD_BITS, full_word, low_bits};
use super::class::SizeClass;
use super::class_info::ClassInfo;
use super::cursor::Span;
use super::runs::Runs;
use crate::lanes::Lanes;
use crate::sync::NATIVE_LAYOUT;
use crate::units::WARP_SIZE;

/// The most spans after the end of one that tickets are for.
const MOST_PASSED: u32 = if NATIVE_LAYOUT { 8 } else { 2 };

/// What a lane got for its ticket.
#[derive(Clone, Copy)]
pub(super) struct Drawn {
    /// The address of its block; 0 if it has none.
    pub address: u64,
    /// The cursor's span as the lane's group saw it.
    pub seen: Span,
    /// The word before the lane claimed bits in it, if these must be set again; otherwise 0.
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
    /// The ticket of this lane, if its group of `peers` subtracted from a cursor when it was
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

impl Heap {
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
        // The blocks of a full warp are those of a word, in the next span, too.
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

    /// The blocks of a full warp with tickets for those of one word, or for none. One lane claims
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
    /// It is to [`advance`](Self::advance) if there are no more spans or, for a warp, if the first
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
mod tests;
