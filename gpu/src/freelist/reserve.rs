//! Reservation: a warp's right to some clear bits of a region (I1).

use super::handle::{CANCEL, CANCEL_ALL, CREDIT, FreeList, RESERVE};
use super::region::Word;
use crate::lanes::Lanes;

/// Maximum attempts of a cancellation. Each failed attempt means that another thread succeeded.
/// While the count is below zero, only threads that owe or free blocks of this region succeed.
const CANCELS: u32 = 1 << 12;

/// Blocks reserved in a region, and the cursor at which to look for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reservation {
    pub count: u32,
    /// Blocks that the region did not have; to be settled.
    pub owed: u32,
    pub cursor: u32,
}

/// Bits that hold a number of lanes.
const LANE_BITS: u32 = 8;

impl Reservation {
    pub const NONE: Reservation = Reservation { count: 0, owed: 0, cursor: 0 };

    #[inline(always)]
    pub fn pack(self) -> u64 {
        u64::from(self.cursor) << 32 | u64::from(self.owed << LANE_BITS | self.count)
    }

    #[inline(always)]
    pub fn unpack(packed: u64) -> Self {
        let low = packed as u32;
        Reservation {
            count: low & ((1 << LANE_BITS) - 1),
            owed: low >> LANE_BITS,
            cursor: (packed >> 32) as u32,
        }
    }

    /// Broadcasts the leader's reservation to the group.
    pub fn broadcast<const WHOLE: bool>(self, group: Lanes<WHOLE>) -> Self {
        Reservation::unpack(group.broadcast_64(self.pack()))
    }
}

impl FreeList {
    /// Reserves up to `wanted` blocks of region `r`, at most one per lane. Reserves fewer if the
    /// region has fewer. What the result owes must be settled.
    ///
    /// The load before the atomic lets the count go below zero only in a race for the last blocks.
    /// Relaxed: a reservation is a right to some bits (I1); the memory behind a bit is ordered by
    /// its claim (I3).
    #[inline(always)]
    pub(super) fn reserve(&self, r: u32, wanted: u32) -> Reservation {
        let word = &self.region(r).word;
        let there = Word(word.load_relaxed()).free();
        if there <= 0 {
            return Reservation::NONE;
        }
        let wanted = wanted.min(there as u32);
        RESERVE.delay();
        let old = Word(word.add_relaxed(Word::step(wanted)));
        if old.free() >= wanted as i32 {
            return Reservation { count: wanted, owed: 0, cursor: old.cursor() };
        }
        // Other threads were faster: keep the blocks that were left, and owe the rest.
        let count = old.free().max(0) as u32;
        Reservation { count, owed: wanted - count, cursor: old.cursor() }
    }

    /// Cancels what was reserved beyond what region `r` had. Blocks that were freed since may have
    /// filled part of it: those stay reserved (I5).
    #[inline(always)]
    pub(super) fn settle(&self, r: u32, reservation: Reservation) -> Reservation {
        let Reservation { count, owed, cursor } = reservation;
        let filled = if owed == 0 { 0 } else { owed - self.cancel(r, owed) };
        Reservation { count: count + filled, owed: 0, cursor }
    }

    /// Cancels the part of `owed` blocks that is still unfilled. Returns the number of blocks
    /// cancelled.
    #[inline(never)]
    fn cancel(&self, r: u32, owed: u32) -> u32 {
        let word = &self.region(r).word;
        let mut seen = Word(word.load_relaxed());
        for _ in 0..CANCELS {
            let unfilled = seen.free().min(0).unsigned_abs().min(owed);
            if unfilled == 0 {
                return 0;
            }
            CANCEL.delay();
            match word.cas_relaxed(seen.0, seen.0 + u64::from(unfilled)) {
                Ok(_) => return unfilled,
                Err(now) => seen = Word(now),
            }
        }
        CANCEL_ALL.delay();
        word.add_relaxed(owed.into());
        owed
    }

    /// Adds `n` blocks to the count of region `r`, after their bits were released (I1).
    ///
    /// Relaxed: the release has returned its old value, so it has taken place. A claim that still
    /// misses it looks again.
    #[inline(always)]
    pub(super) fn credit(&self, r: u32, n: u32) {
        CREDIT.delay();
        self.region(r).word.add_relaxed(n.into());
    }
}
