//! Allocation.

use super::claim::{SCATTERED, Taken};
use super::geometry::WORD_BLOCKS;
use super::reserve::Reservation;
use super::{FreeList, POLL_NANOS};
use crate::lanes::{Group, Lanes};
use crate::park::with_parked;
use crate::sync::NATIVE_LAYOUT;
use crate::thread;
use crate::units::BlockIndex;
use core::ptr::NonNull;

/// What a group spends on looks in vain before it is refused without a proof. A block lost to a faster
/// thread costs one, two looks at everything in which only others got something cost `UNSETTLED`.
const PATIENCE: u32 = if NATIVE_LAYOUT { 64 } else { 6 };
const UNSETTLED: u32 = if NATIVE_LAYOUT { 8 } else { 1 };

impl FreeList {
    /// A block, or `None` when all are taken. Any thread, any time, any subset of a warp.
    ///
    /// Cost per warp with room: a relaxed load and a relaxed atomic on a region's word, then an acquire
    /// atomic on a word of the bitmap (two when the cursor stands inside a word).
    #[inline(always)]
    #[must_use = "memory without an address is never freed"]
    pub fn alloc(&self) -> Option<NonNull<u8>> {
        let block = self.alloc_index()?;
        NonNull::new(self.address_of(block))
    }

    /// The place of a block instead of its address; see [`alloc`](Self::alloc).
    #[inline(always)]
    #[must_use = "memory without an address is never freed"]
    pub fn alloc_index(&self) -> Option<BlockIndex> {
        let group = Group::converged();
        match group.whole() {
            Some(warp) => self.alloc_together(warp),
            None => self.shared().alloc_partial(group),
        }
    }

    /// For a part of a warp.
    #[inline(never)]
    fn alloc_partial(&self, group: Group) -> Option<BlockIndex> {
        self.alloc_together(group)
    }

    #[inline(always)]
    fn alloc_together<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>) -> Option<BlockIndex> {
        let home = self.geometry.home(thread::warp_index());
        let (start, taken) =
            if lanes.leads() { self.take(home, lanes.count()) } else { (SCATTERED, Taken::NONE) };
        let start = lanes.broadcast_32(start);
        // The leader claimed for all: what the last owners wrote is now before every lane (I3).
        lanes.order();
        if start != SCATTERED {
            return Some(BlockIndex(start + lanes.rank()));
        }
        self.shared().alloc_slow(lanes, home, taken)
    }

    /// Region `home` did not have a block for every lane under its cursor. `leaders` is the leader's.
    #[cold]
    #[inline(never)]
    fn alloc_slow<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        home: u32,
        leaders: Taken,
    ) -> Option<BlockIndex> {
        let leaders = if lanes.leads() { leaders.settled(self, home) } else { leaders };
        let taken = leaders.broadcast(lanes);
        let reserved = taken.reservation().count;
        if reserved == 0 && self.is_known_empty(lanes, home) {
            return None;
        }
        let rank = lanes.rank();
        let rest = lanes.filter(rank >= reserved);
        if rank < taken.count() {
            Some(self.nth_taken(home, taken, rank))
        } else if rank < reserved {
            self.claim_one(home, taken.reservation().cursor + rank * WORD_BLOCKS)
        } else {
            self.hunt(rest, home)
        }
    }

    /// Goes through the other regions until every lane of the group has a block or the pool has none.
    #[inline(never)]
    fn hunt(&self, group: Group, home: u32) -> Option<BlockIndex> {
        let (mut group, mut home) = (group, home);
        let mut patience = PATIENCE;
        // Every round serves a lane or costs some of it.
        while patience > 0 {
            let kept = (group, home, patience);
            let (kept, look) = with_parked(kept, || self.look_twice_in_part(group, home));
            (group, home, patience) = kept;
            match look {
                Look::Candidate(r) => {
                    let leaders =
                        if group.leads() { self.reserve(r, group.count()) } else { Reservation::NONE };
                    let kept = (group, home);
                    let (kept, leaders) = with_parked(kept, || self.settle(r, leaders));
                    (group, home) = kept;
                    let reservation = leaders.broadcast(group);
                    patience -= u32::from(reservation.count == 0);
                    let rank = group.rank();
                    group = group.filter(rank >= reservation.count);
                    if rank < reservation.count {
                        return self.claim_one(r, reservation.cursor + rank * WORD_BLOCKS);
                    }
                }
                Look::Empty { .. } => return None,
                Look::Unsettled => {
                    patience = patience.saturating_sub(UNSETTLED);
                    thread::nanosleep(POLL_NANOS);
                }
            }
        }
        None
    }
}

/// What a look at every region found.
pub(super) enum Look {
    /// This region has blocks.
    Candidate(u32),
    /// None has any; the sum of their cursors, which grows with every reservation.
    Empty { cursors: u32 },
    /// None had any, but blocks were reserved between two looks.
    Unsettled,
}
