//! Lanes of a warp that execute the same request together, and the collectives that they share.

pub mod selftest;
mod sums;

pub(crate) use sums::Sum;

use crate::units::{LaneMask, WARP_SIZE};
use crate::warp;

/// Lanes that entered an allocator together. Every lane of `mask` holds an equal `Lanes` and makes
/// the same calls on it. The `unsafe` collectives below rely on this.
///
/// `WHOLE`: the compiler knows that the mask is a full warp. This matters: for a mask that is
/// unknown at compile time, the assembler inserts a check of some 200 cycles before every
/// collective.
#[derive(Clone, Copy)]
pub(crate) struct Lanes<const WHOLE: bool> {
    pub(super) mask: LaneMask,
    pub(super) lane: u32,
}

/// Any lanes of a warp.
pub(crate) type Group = Lanes<false>;

/// All lanes of a warp.
pub(crate) type Warp = Lanes<true>;

impl Group {
    /// The lanes that execute this call together. Any subset of a warp is valid.
    #[track_caller]
    #[inline(always)]
    pub fn converged() -> Self {
        Lanes { mask: warp::activemask(), lane: warp::lane_id() }
    }

    /// The lanes of `mask`.
    ///
    /// # Safety
    /// The calling lane is in `mask`, and every lane of `mask` makes the same calls on an equal
    /// group.
    #[inline(always)]
    pub unsafe fn of(mask: LaneMask) -> Self {
        Lanes { mask, lane: warp::lane_id() }
    }

    /// The calling lane only.
    pub fn alone() -> Self {
        let lane = warp::lane_id();
        Lanes { mask: LaneMask::only(lane), lane }
    }

    /// The group as a full warp, if it is one.
    #[inline(always)]
    pub fn whole(self) -> Option<Warp> {
        (self.mask == LaneMask::ALL).then_some(Lanes { mask: LaneMask::ALL, lane: self.lane })
    }
}

impl<const WHOLE: bool> Lanes<WHOLE> {
    #[inline(always)]
    pub(super) fn mask(self) -> LaneMask {
        if WHOLE { LaneMask::ALL } else { self.mask }
    }

    /// These lanes as a group, without the static knowledge of a full warp.
    #[inline(always)]
    pub fn group(self) -> Group {
        Lanes { mask: self.mask(), lane: self.lane }
    }

    /// The lanes of the group that hold the caller's value.
    #[track_caller]
    #[inline(always)]
    pub fn matching(self, value: u32) -> Group {
        // SAFETY: every lane of the group executes this call.
        Lanes { mask: unsafe { warp::warp_match_any_32(self.mask(), value) }, lane: self.lane }
    }

    /// The lanes of this group on which `predicate` holds. Every lane of the group must call it.
    /// Only lanes on which it holds may use the result for collectives.
    #[inline(always)]
    pub fn filter(self, predicate: bool) -> Group {
        Lanes { mask: self.ballot(predicate), lane: self.lane }
    }

    /// The lanes of the group.
    #[inline(always)]
    pub fn members(self) -> LaneMask {
        self.mask()
    }

    #[inline(always)]
    pub fn count(self) -> u32 {
        self.mask().count()
    }

    /// The lowest lane of the group.
    #[inline(always)]
    pub fn leader(self) -> u32 {
        self.mask().leader()
    }

    /// The number of lanes of the group below this one.
    #[inline(always)]
    pub fn rank(self) -> u32 {
        if WHOLE { self.lane } else { self.mask.rank(self.lane) }
    }

    /// The lane with a given rank, which must be less than [`count`](Self::count).
    #[inline(always)]
    pub fn lane_of(self, rank: u32) -> u32 {
        if WHOLE { rank } else { select_bit(self.mask().0, rank) }
    }

    #[inline(always)]
    pub fn leads(self) -> bool {
        self.mask().leader() == self.lane
    }

    /// The calling lane.
    #[inline(always)]
    pub fn lane(self) -> u32 {
        self.lane
    }

    /// Whether the calling lane is in the group.
    #[inline(always)]
    pub fn is_member(self) -> bool {
        self.mask().contains(self.lane)
    }

    /// The lanes of the group on which `predicate` holds.
    #[track_caller]
    #[inline(always)]
    pub fn ballot(self, predicate: bool) -> LaneMask {
        // SAFETY: every lane of the group executes this call.
        unsafe { warp::warp_vote_ballot(self.mask(), predicate) }
    }

    #[track_caller]
    #[inline(always)]
    pub fn all(self, predicate: bool) -> bool {
        // SAFETY: every lane of the group executes this call.
        unsafe { warp::warp_vote_all(self.mask(), predicate) }
    }

    /// The value of `lane`, which must be in the group.
    #[track_caller]
    #[inline(always)]
    pub fn read_32(self, value: u32, lane: u32) -> u32 {
        // SAFETY: every lane of the group executes this call, and `lane` is one of them.
        unsafe { warp::warp_shuffle_idx_32(self.mask(), value, lane) }
    }

    /// The value of `lane`, which must be in the group.
    #[track_caller]
    #[inline(always)]
    pub fn read_64(self, value: u64, lane: u32) -> u64 {
        // SAFETY: every lane of the group executes this call, and `lane` is one of them.
        unsafe { warp::warp_shuffle_idx_64(self.mask(), value, lane) }
    }

    /// The leader's value.
    #[track_caller]
    #[inline(always)]
    pub fn broadcast_32(self, value: u32) -> u32 {
        self.read_32(value, self.mask().leader())
    }

    /// The leader's value.
    #[track_caller]
    #[inline(always)]
    pub fn broadcast_64(self, value: u64) -> u64 {
        self.read_64(value, self.mask().leader())
    }

    /// Orders memory among the lanes, which have just synchronised in another collective. Between
    /// the two is no call of a function that is not inlined.
    #[inline(always)]
    pub fn order(self) {
        // SAFETY: every lane of the group executes this call.
        unsafe { warp::order_warp(self.mask()) }
    }

    /// Waits for the group and orders memory among its lanes.
    #[track_caller]
    #[inline(always)]
    pub fn sync(self) {
        // SAFETY: every lane of the group executes this call.
        unsafe { warp::sync_warp(self.mask()) }
    }

    /// Runs `f` on the leader and broadcasts its result to every lane.
    #[track_caller]
    #[inline(always)]
    pub fn lead_32(self, f: impl FnOnce() -> u32) -> u32 {
        let answer = if self.leads() { f() } else { 0 };
        self.broadcast_32(answer)
    }

    /// [`lead_32`](Self::lead_32) for 64 bits.
    #[track_caller]
    #[inline(always)]
    pub fn lead_64(self, f: impl FnOnce() -> u64) -> u64 {
        let answer = if self.leads() { f() } else { 0 };
        self.broadcast_64(answer)
    }
}

/// The index of the set bit of `bits` that has `rank` set bits below it.
#[inline(always)]
pub(crate) fn select_bit(bits: u32, rank: u32) -> u32 {
    let mut rank = rank;
    let mut place = 0;
    let mut width = WARP_SIZE / 2;
    while width > 0 {
        let below = (bits >> place & ((1 << width) - 1)).count_ones();
        if rank >= below {
            rank -= below;
            place += width;
        }
        width /= 2;
    }
    place
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::select_bit;

    #[test]
    fn select_bit_agrees_with_counting() {
        for bits in (0..u32::MAX).step_by(65_521).chain([u32::MAX, 1, 1 << 31]) {
            let mut rank = 0;
            for place in 0..32 {
                if bits >> place & 1 == 1 {
                    assert_eq!(select_bit(bits, rank), place, "bits {bits:#x} rank {rank}");
                    rank += 1;
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod lane_tests;
