//! A lease in one word: one subtraction allocates from it and returns the position.
//!
//! ```text
//! 63                          29 28                          0
//! | end of the lease, granules | remaining + BIAS, granules  |
//! ```
//!
//! The next free granule is `end - remaining`. A subtraction of too much leaves `remaining` below
//! zero. BIAS keeps it from borrowing from `end` until the failed subtractions add up to `BIAS`
//! granules, which is more than all warps of a GPU can request at once: see the assertion.

use crate::lanes::Group;

const LOW_BITS: u32 = 29;
const LOW: u64 = (1 << LOW_BITS) - 1;

/// The maximum length of a lease, in granules.
pub(super) const MAX_LEASE: u64 = (1 << 26) - 1;
const BIAS: u64 = (1 << LOW_BITS) - (1 << 26);

/// The maximum `end`; the value one above it marks a retired shard.
pub(super) const MAX_END: u64 = (1 << (64 - LOW_BITS)) - 2;
const RETIRED_END: u64 = MAX_END + 1;

/// The most granules that a warp takes from a lease with one subtraction.
pub(super) const MAX_GROUP: u32 = 1 << 15;

/// The most warps that may use one lease at once: 160 SMs of 64 warps. With more, `remaining` could
/// borrow from `end`.
pub const RESIDENT_WARPS: u64 = 160 * 64;
/// When a retired lease has dropped below this value, the next thread that subtracts from it resets
/// it.
pub(super) const RESET_BELOW: i32 = -(1 << 26);
const _: () = assert!(RESIDENT_WARPS * MAX_GROUP as u64 + (1 << 26) < BIAS);

/// In place of the granule where an allocation starts: allocation failed.
pub(super) const NO_START: u64 = u64::MAX;

/// A piece of the pool, in granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub start: u64,
    pub len: u64,
}

impl Piece {
    /// In place of a piece: no piece is large enough. Exact.
    pub const NOTHING: Piece = Piece { start: 0, len: 0 };
    /// In place of a piece: another thread is changing the counter and took too long to settle it.
    pub const UNSETTLED: Piece = Piece { start: 1, len: 0 };

    /// Whether it is `NOTHING` or `UNSETTLED`. A piece of two registers is returned in registers;
    /// an enum around it would go through every thread's stack.
    #[inline(always)]
    pub fn is_none(self) -> bool {
        self.len == 0
    }

    /// Broadcasts the leader's piece to the group.
    #[inline(always)]
    pub fn broadcast(self, group: Group) -> Self {
        Piece { start: group.broadcast_64(self.start), len: group.broadcast_64(self.len) }
    }

    /// The rest of the piece after its first `used` granules.
    #[inline(always)]
    pub fn after(self, used: u64) -> Self {
        Piece { start: self.start + used, len: self.len - used }
    }
}

/// What the old value of a lease means to the thread that subtracted `wanted` from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The caller owns the granules from this one on.
    Got(u64),
    /// Too little was left. The caller now owns it, and must store the next lease (I2).
    Crossed(Piece),
    /// Another thread is storing the next lease.
    Refilling,
    /// There will be no next lease.
    Retired,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease(pub u64);

impl Lease {
    /// Empty lease of a shard that can still get another one from the root.
    pub const NONE: Lease = Lease(BIAS);
    /// Empty lease of a shard that gets no further lease.
    pub const RETIRED: Lease = Lease(RETIRED_END << LOW_BITS | (BIAS - 1));

    #[inline(always)]
    pub fn of(piece: Piece) -> Self {
        debug_assert!(piece.len <= MAX_LEASE && piece.start + piece.len <= MAX_END);
        Lease((piece.start + piece.len) << LOW_BITS | (piece.len + BIAS))
    }

    #[inline(always)]
    pub fn is_retired(self) -> bool {
        self.0 >> LOW_BITS == RETIRED_END
    }

    #[inline(always)]
    pub fn signed_remaining(self) -> i32 {
        (self.0 as u32 & LOW as u32) as i32 - BIAS as i32
    }

    /// Granules left; `None` if the counter is below zero.
    #[inline(always)]
    pub fn remaining(self) -> Option<u32> {
        u32::try_from(self.signed_remaining()).ok()
    }

    /// The remaining piece; `None` if the counter is below zero or the lease is retired.
    #[inline(always)]
    pub fn piece(self) -> Option<Piece> {
        let len = self.remaining()?.into();
        Some(Piece { start: (self.0 >> LOW_BITS) - len, len })
    }

    /// Where the `wanted` granules start, if this value had that many left.
    #[inline(always)]
    pub fn start_if_enough(self, wanted: u32) -> Option<u64> {
        let remaining = self.signed_remaining();
        (remaining >= wanted as i32).then(|| (self.0 >> LOW_BITS) - remaining as u64)
    }

    pub fn outcome(self, wanted: u32) -> Outcome {
        if let Some(start) = self.start_if_enough(wanted) {
            return Outcome::Got(start);
        }
        if self.is_retired() {
            return Outcome::Retired;
        }
        match self.piece() {
            Some(piece) => Outcome::Crossed(piece),
            None => Outcome::Refilling,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_allocated_in_order_and_then_crossed_once() {
        let mut word = Lease::of(Piece { start: 1000, len: 100 }).0;
        let mut take = |n: u32| {
            let old = Lease(word);
            word = word.wrapping_sub(n.into());
            old.outcome(n)
        };
        assert_eq!(take(60), Outcome::Got(1000));
        assert_eq!(take(40), Outcome::Got(1060));
        assert_eq!(take(7), Outcome::Crossed(Piece { start: 1100, len: 0 }));
        assert_eq!(take(7), Outcome::Refilling);
    }

    #[test]
    fn a_lease_may_end_where_the_largest_arena_does() {
        for end in [MAX_END - 1, MAX_END] {
            let (piece, lease) =
                (Piece { start: end - 5, len: 5 }, Lease::of(Piece { start: end - 5, len: 5 }));
            assert_eq!((lease.is_retired(), lease.piece()), (false, Some(piece)));
        }
        assert!(Lease::RETIRED.is_retired() && !Lease::NONE.is_retired());
    }

    #[test]
    fn failed_subtractions_of_every_warp_of_a_gpu_leave_the_end_intact() {
        for start in [Lease::of(Piece { start: MAX_END - 5, len: 5 }), Lease::RETIRED] {
            let mut word = start.0;
            for _ in 0..RESIDENT_WARPS {
                word = word.wrapping_sub(MAX_GROUP.into());
            }
            assert_eq!(word >> LOW_BITS, start.0 >> LOW_BITS);
            assert!(Lease(word).signed_remaining() < 0);
        }
    }
}
