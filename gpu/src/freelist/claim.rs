//! Claiming: turning a reservation into blocks.

use super::geometry::WORD_BLOCKS;
use super::reserve::Reservation;
use super::{CLAIM, FreeList};
use crate::fault::FaultKind;
use crate::lanes::{Group, select_bit};
use crate::sync::NATIVE_LAYOUT;
use crate::thread;
use crate::units::BlockIndex;

/// Blocks claimed in a word of the bitmap and in the one after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimed {
    /// The word, and [`WRAPS`](Self::WRAPS) if the one after it is the first of the region.
    word: u32,
    low: u32,
    high: u32,
}

impl Claimed {
    pub const NONE: Claimed = Claimed { word: 0, low: 0, high: 0 };
    /// Pools have at most 2^26 words.
    const WRAPS: u32 = 1 << 31;

    /// What the leader of the group claimed.
    #[inline(always)]
    pub fn broadcast(self, group: Group) -> Self {
        Claimed {
            word: group.broadcast_32(self.word),
            low: group.broadcast_32(self.low),
            high: group.broadcast_32(self.high),
        }
    }

    #[inline(always)]
    pub fn count(self) -> u32 {
        self.low.count_ones() + self.high.count_ones()
    }

    /// The block that has `rank` others before it, in region `r`.
    #[inline(always)]
    pub fn block(self, list: &FreeList, r: u32, rank: u32) -> BlockIndex {
        if self.low == u32::MAX {
            return BlockIndex((self.word & !Self::WRAPS) * WORD_BLOCKS + rank);
        }
        let in_low = self.low.count_ones();
        let (word, bit) = if rank < in_low {
            (self.word & !Self::WRAPS, select_bit(self.low, rank))
        } else if self.word & Self::WRAPS == 0 {
            (self.word + 1, select_bit(self.high, rank - in_low))
        } else {
            (list.geometry.first_word(r), select_bit(self.high, rank - in_low))
        };
        BlockIndex(word * WORD_BLOCKS + bit)
    }
}

/// The lowest `n` of `bits`.
#[inline(always)]
fn lowest(bits: u32, n: u32) -> u32 {
    if n >= bits.count_ones() { bits } else { bits & ((1 << select_bit(bits, n)) - 1) }
}

/// Passes over a region before its metadata is called broken. A reservation is as good as a clear bit
/// (I1), and each pass that misses lost its bits to another claim, so a few are enough.
const PASSES: u32 = if NATIVE_LAYOUT { 1 << 10 } else { 4 };

impl FreeList {
    /// Claims what it can of a reservation in region `r` in the words under the cursor, without looking.
    #[inline(always)]
    pub(super) fn claim_at_cursor(&self, r: u32, reservation: Reservation) -> Claimed {
        let (first, words) = (self.geometry.first_word(r), self.geometry.words_in(r));
        let place = reservation.cursor / WORD_BLOCKS % words;
        let bit = reservation.cursor % WORD_BLOCKS;
        let window = ((1u64 << reservation.count) - 1) << bit;
        let low = self.claim(first + place, window as u32);
        if window >> WORD_BLOCKS == 0 {
            return Claimed { word: first + place, low, high: 0 };
        }
        let (next, wraps) = if place + 1 < words { (place + 1, 0) } else { (0, Claimed::WRAPS) };
        let high = self.claim(first + next, (window >> WORD_BLOCKS) as u32);
        Claimed { word: (first + place) | wraps, low, high }
    }

    /// Sets `wanted` bits of a word and returns those that were clear: the caller's blocks.
    #[inline(always)]
    fn claim(&self, word: u32, wanted: u32) -> u32 {
        // ordering: acquire; pairs with RELEASE in `free`: the last owner's writes before the bit (I3).
        wanted & !self.word(word).or_acquire(wanted, CLAIM)
    }

    /// Finds the blocks of a reservation that the cursor did not lead to. The lanes look at one word each
    /// at a time; those of rank `taken..needed` get one block each, the others none.
    #[cold]
    pub(super) fn claim_by_search(
        self,
        group: Group,
        r: u32,
        cursor: u32,
        taken: u32,
        needed: u32,
    ) -> Option<BlockIndex> {
        let (first, words) = (self.geometry.first_word(r), self.geometry.words_in(r));
        let start = cursor / WORD_BLOCKS % words;
        let mut taken = taken;
        let mut mine = None;
        for pass in 0..PASSES {
            for base in (0..words).step_by(group.count() as usize) {
                let place = base + group.rank();
                let word = first + (start + place) % words;
                let bits = self.claim_some(group, word, place < words, needed - taken);
                mine = mine.or(pick(group, word, bits, taken));
                taken += group.sum(bits.count_ones());
                if taken == needed {
                    return mine;
                }
            }
            if pass > 0 {
                thread::nanosleep(100);
            }
        }
        if group.leads() {
            self.faults().record(FaultKind::CountMismatch, 0, r.into());
        }
        mine
    }

    /// One step of the search: each lane claims clear bits of its word, all lanes together at most `needed`.
    fn claim_some(&self, group: Group, word: u32, inside: bool, needed: u32) -> u32 {
        // Relaxed: the claim looks again.
        let clear = if inside { !self.word(word).load_relaxed() } else { 0 };
        let (before, _) = group.prefix_sum(clear.count_ones());
        let wanted = lowest(clear, needed.saturating_sub(before));
        if wanted == 0 { 0 } else { self.claim(word, wanted) }
    }
}

/// This lane's block among the `bits` that all lanes have just claimed in their words, when the lanes of
/// rank below `taken` have theirs already.
fn pick(group: Group, word: u32, bits: u32, taken: u32) -> Option<BlockIndex> {
    let mut before = taken;
    let mut mine = None;
    let mut holders = group.ballot(bits != 0);
    while !holders.is_empty() {
        let holder = holders.leader();
        let (word, bits) = (group.read_32(word, holder), group.read_32(bits, holder));
        let rank = group.rank().wrapping_sub(before);
        if rank < bits.count_ones() {
            mine = Some(BlockIndex(word * WORD_BLOCKS + select_bit(bits, rank)));
        }
        before += bits.count_ones();
        holders = holders.without_leader();
    }
    mine
}
