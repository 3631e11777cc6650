//! Allocation.

use super::claim::{SCATTERED, Taken};
use super::geometry::WORD_BLOCKS;
use super::handle::{FreeList, POLL_NANOS};
use super::reserve::Reservation;
use super::scan::Look;
use crate::lanes::{Group, Lanes};
use crate::spill::with_spilled;
use crate::sync::NATIVE_LAYOUT;
use crate::thread;
use crate::units::BlockIndex;
use core::ptr::NonNull;

/// The budget of fruitless searches before an allocation fails without a scan that finds the pool
/// empty. Losing a block to a faster thread costs one. A scan during which only other threads
/// reserved blocks costs `UNSETTLED`.
const PATIENCE: u32 = if NATIVE_LAYOUT { 64 } else { 6 };
const UNSETTLED: u32 = if NATIVE_LAYOUT { 8 } else { 1 };

impl FreeList {
    /// Allocates a block. Returns `None` if all blocks are taken.
    ///
    /// May be called from any thread at any time, and from any divergent subset of a warp.
    ///
    /// Cost per warp if the region has room: a relaxed load and a relaxed atomic on the region's
    /// word, then an acquire atomic on a word of the bitmap (two if the cursor points inside a
    /// word).
    #[inline(always)]
    #[must_use = "memory without an address is never freed"]
    pub fn alloc(&self) -> Option<NonNull<u8>> {
        let block = self.alloc_index()?;
        NonNull::new(self.address_of(block))
    }

    /// Like [`alloc`](Self::alloc), but returns the block's index instead of its address.
    #[inline(always)]
    #[must_use = "memory without an address is never freed"]
    pub fn alloc_index(&self) -> Option<BlockIndex> {
        let group = Group::converged();
        match group.whole() {
            Some(warp) => self.alloc_aggregated(warp),
            None => self.shared().alloc_partial(group),
        }
    }

    /// Out of line, for a subset of a warp.
    #[inline(never)]
    fn alloc_partial(&self, group: Group) -> Option<BlockIndex> {
        self.alloc_aggregated(group)
    }

    #[inline(always)]
    fn alloc_aggregated<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>) -> Option<BlockIndex> {
        let first = self.geometry.first_region(thread::warp_index());
        let (start, taken) =
            if lanes.leads() { self.take(first, lanes.count()) } else { (SCATTERED, Taken::NONE) };
        let start = lanes.broadcast_32(start);
        // The leader claimed for all lanes: the last owners' writes happen before every lane's
        // (I3).
        lanes.order();
        if start != SCATTERED {
            return Some(BlockIndex(start + lanes.rank()));
        }
        self.shared().alloc_slow(lanes, first, taken)
    }

    /// Region `first` did not have a block for every lane under its cursor. `leaders` is valid in
    /// the leader only.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_slow<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        first: u32,
        leaders: Taken,
    ) -> Option<BlockIndex> {
        let leaders = if lanes.leads() { leaders.settled(self, first) } else { leaders };
        let taken = leaders.broadcast(lanes);
        let reserved = taken.reservation().count;
        if reserved == 0 && self.scan_finds_empty(lanes, first) {
            return None;
        }
        let rank = lanes.rank();
        let rest = lanes.filter(rank >= reserved);
        if rank < taken.count() {
            Some(self.nth_taken(first, taken, rank))
        } else if rank < reserved {
            self.claim_one(first, taken.reservation().cursor + rank * WORD_BLOCKS)
        } else {
            self.search(rest, first)
        }
    }

    /// Searches the other regions until every lane of the group has a block or the pool is empty.
    #[inline(never)]
    pub(super) fn search(&self, group: Group, first: u32) -> Option<BlockIndex> {
        let (mut group, mut first) = (group, first);
        let mut patience = PATIENCE;
        // Every round serves a lane or uses up patience.
        while patience > 0 {
            let kept = (group, first, patience);
            let (kept, look) = with_spilled(kept, || self.scan_in_part(group, first));
            (group, first, patience) = kept;
            match look {
                Look::Candidate(r) => {
                    let leaders =
                        if group.leads() { self.reserve(r, group.count()) } else { Reservation::NONE };
                    let kept = (group, first);
                    let (kept, leaders) = with_spilled(kept, || self.settle(r, leaders));
                    (group, first) = kept;
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
