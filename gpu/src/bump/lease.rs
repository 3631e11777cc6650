//! A lease in one word, so that one subtraction takes from it and tells where.
//!
//! ```text
//! 63                          29 28                          0
//! | end of the lease, granules | remaining + BIAS, granules  |
//! ```
//!
//! The next free granule is `end - remaining`. A subtraction that asks for too much leaves `remaining`
//! below zero; BIAS keeps it from borrowing out of `end` until `BIAS` granules too many were asked for,
//! and that is more than all warps of a GPU can ask for at once: see the assertion.

const LOW_BITS: u32 = 29;
const LOW: u64 = (1 << LOW_BITS) - 1;

/// The longest lease, in granules.
pub(super) const MAX_LEASE: u64 = (1 << 26) - 1;
const BIAS: u64 = (1 << LOW_BITS) - (1 << 26);

/// The largest `end`; one above it marks a dry shard.
pub(super) const MAX_END: u64 = (1 << (64 - LOW_BITS)) - 2;
const DRY_END: u64 = MAX_END + 1;

/// The most granules a warp takes from a lease with one subtraction.
pub(super) const MAX_GROUP: u64 = 1 << 14;

/// More warps than any GPU runs at once: 160 multiprocessors of 64.
const RESIDENT_WARPS: u64 = 160 * 64;
/// A dry lease that has sunk this far is put back to its start by whoever sees it.
pub(super) const SUNK: i64 = -(1 << 26);
const _: () = assert!(RESIDENT_WARPS * MAX_GROUP + (1 << 26) < BIAS);

/// A piece of the pool, in granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub start: u64,
    pub len: u64,
}

impl Piece {
    pub const NONE: Piece = Piece { start: 0, len: 0 };
    const LEN_BITS: u32 = 28;

    /// The same in one word, cut to `most` granules.
    #[inline(always)]
    pub fn pack(self, most: u64) -> u64 {
        self.start << Self::LEN_BITS | self.len.min(most)
    }

    #[inline(always)]
    pub fn unpack(word: u64) -> Self {
        Piece { start: word >> Self::LEN_BITS, len: word & ((1 << Self::LEN_BITS) - 1) }
    }

    /// What is left behind the first `used` granules.
    #[inline(always)]
    pub fn after(self, used: u64) -> Self {
        Piece { start: self.start + used, len: self.len - used }
    }
}
const _: () = assert!(MAX_LEASE < 1 << Piece::LEN_BITS);

/// What an old value of a lease means to the thread that has subtracted `wanted` from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The granules from here on are the caller's.
    Got(u64),
    /// Too little was left, and it is now the caller's, who must store the next lease (I2).
    Crossed(Piece),
    /// Another thread is storing the next lease.
    Behind,
    /// There will be no next lease.
    Dry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease(pub u64);

impl Lease {
    /// No granules, but a root to take the next lease from.
    pub const NONE: Lease = Lease(BIAS);
    /// No granules and nothing to come.
    pub const DRY: Lease = Lease(DRY_END << LOW_BITS | (BIAS - 1));

    #[inline(always)]
    pub fn of(piece: Piece) -> Self {
        debug_assert!(piece.len <= MAX_LEASE && piece.start + piece.len <= MAX_END);
        Lease((piece.start + piece.len) << LOW_BITS | (piece.len + BIAS))
    }

    #[inline(always)]
    pub fn is_dry(self) -> bool {
        self.0 >> LOW_BITS == DRY_END
    }

    #[inline(always)]
    pub fn signed_remaining(self) -> i64 {
        (self.0 & LOW) as i64 - BIAS as i64
    }

    /// Granules left; `None` below zero.
    #[inline(always)]
    pub fn remaining(self) -> Option<u64> {
        u64::try_from(self.signed_remaining()).ok()
    }

    /// What is left; `None` below zero, or dry.
    #[inline(always)]
    pub fn piece(self) -> Option<Piece> {
        let len = self.remaining()?;
        Some(Piece { start: (self.0 >> LOW_BITS) - len, len })
    }

    #[inline(always)]
    pub fn outcome(self, wanted: u64) -> Outcome {
        let remaining = self.signed_remaining();
        if remaining >= wanted as i64 {
            return Outcome::Got((self.0 >> LOW_BITS) - remaining as u64);
        }
        if self.is_dry() {
            return Outcome::Dry;
        }
        match self.piece() {
            Some(piece) => Outcome::Crossed(piece),
            None => Outcome::Behind,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_lease_hands_out_its_granules_in_order_and_then_crosses_once() {
        let mut word = Lease::of(Piece { start: 1000, len: 100 }).0;
        let mut take = |n: u64| {
            let old = Lease(word);
            word = word.wrapping_sub(n);
            old.outcome(n)
        };
        assert_eq!(take(60), Outcome::Got(1000));
        assert_eq!(take(40), Outcome::Got(1060));
        assert_eq!(take(7), Outcome::Crossed(Piece { start: 1100, len: 0 }));
        assert_eq!(take(7), Outcome::Behind);
    }

    #[test]
    fn every_warp_of_a_gpu_asking_too_much_at_once_leaves_the_end_intact() {
        for start in [Lease::of(Piece { start: MAX_END - 5, len: 5 }), Lease::DRY] {
            let mut word = start.0;
            for _ in 0..RESIDENT_WARPS {
                word = word.wrapping_sub(MAX_GROUP);
            }
            assert_eq!(word >> LOW_BITS, start.0 >> LOW_BITS);
            assert!(Lease(word).signed_remaining() < 0);
        }
    }

    #[test]
    fn pieces_survive_packing() {
        for piece in [Piece::NONE, Piece { start: MAX_END, len: MAX_LEASE }, Piece { start: 1, len: 2 }] {
            assert_eq!(Piece::unpack(piece.pack(u64::MAX)), piece);
        }
    }
}
