//! Allocation.

use super::FreeList;
use super::claim::Claimed;
use super::reserve::{Reservation, Word};
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;
use crate::thread;
use crate::units::{BlockIndex, LaneMask};
use core::ptr::NonNull;

/// How often all regions are looked at while other threads change them. Each change is another thread's
/// success.
const LOOKS: u32 = if NATIVE_LAYOUT { 1 << 12 } else { 6 };

impl FreeList {
    /// A block, or `None` when all are taken. Any thread, any time, any subset of a warp.
    ///
    /// Cost per warp with room: a relaxed load and a relaxed atomic on a region's word, then an acquire
    /// atomic on a word of the bitmap (two when the cursor stands inside a word).
    #[inline(always)]
    pub fn alloc(&self) -> Option<NonNull<u8>> {
        let block = self.alloc_index()?;
        NonNull::new(self.address_of(block))
    }

    /// The place of a block instead of its address; see [`alloc`](Self::alloc).
    #[inline(always)]
    pub fn alloc_index(&self) -> Option<BlockIndex> {
        let group = Group::converged();
        let home = thread::warp_index() % self.geometry.regions();
        let (reservation, claimed) = self.take(group, home);
        if claimed.count() == group.count() {
            return Some(claimed.block(self, home, group.rank()));
        }
        self.alloc_slow(group, home, reservation, claimed)
    }

    /// Reserves in region `r` for the whole group and claims at the cursor. The reservation is the
    /// leader's to know; what was claimed, every lane's.
    #[inline(always)]
    fn take(&self, group: Group, r: u32) -> (Reservation, Claimed) {
        let mut reservation = Reservation::NONE;
        let mut claimed = Claimed::NONE;
        if group.leads() {
            reservation = self.reserve(r, group.count());
            if reservation.count > 0 {
                claimed = self.claim_at_cursor(r, reservation);
            }
        }
        let claimed = claimed.broadcast(group);
        // The leader claimed for all: what the last owners wrote is now before every lane (I3).
        group.sync();
        (reservation, claimed)
    }

    /// The region of this warp did not have a block for every lane under its cursor.
    #[cold]
    #[inline(never)]
    fn alloc_slow(
        self,
        group: Group,
        home: u32,
        leaders: Reservation,
        claimed: Claimed,
    ) -> Option<BlockIndex> {
        let mine = self.finish(group, home, leaders, claimed);
        let rest = group.filter(mine.is_none());
        if mine.is_some() { mine } else { self.hunt(rest, home) }
    }

    /// Gives every lane its part of a reservation: first what was claimed, then what a search finds.
    fn finish(self, group: Group, r: u32, leaders: Reservation, claimed: Claimed) -> Option<BlockIndex> {
        let reservation = leaders.broadcast(group);
        let taken = claimed.count();
        let mine = (group.rank() < taken).then(|| claimed.block(&self, r, group.rank()));
        if taken == reservation.count {
            return mine;
        }
        let found = self.claim_by_search(group, r, reservation.cursor, taken, reservation.count);
        // Any lane may have claimed for any other (I3).
        group.sync();
        mine.or(found)
    }

    /// Goes through the other regions until every lane of the group has a block or the pool has none.
    fn hunt(self, group: Group, home: u32) -> Option<BlockIndex> {
        let mut group = group;
        let mut empty_before = None;
        for _ in 0..LOOKS {
            match self.look(group, home) {
                Look::Candidate(r) => {
                    let (reservation, claimed) = self.take(group, r);
                    let mine = self.finish(group, r, reservation, claimed);
                    group = group.filter(mine.is_none());
                    if mine.is_some() {
                        return mine;
                    }
                    empty_before = None;
                }
                // Twice the same: at one moment in between, every region was empty (I4).
                Look::Empty { cursors } if empty_before == Some(cursors) => return None,
                Look::Empty { cursors } => empty_before = Some(cursors),
                Look::Unsettled => {
                    empty_before = None;
                    thread::nanosleep(100);
                }
            }
        }
        None
    }

    /// Looks at every region, a lane a region at a time, until one has blocks.
    fn look(&self, group: Group, home: u32) -> Look {
        let regions = self.geometry.regions();
        let mut cursors = 0u32;
        let mut below_zero = false;
        for base in (0..regions).step_by(group.count() as usize) {
            let place = base + group.rank();
            let r = (home + 1 + place) % regions;
            // Relaxed: a count is a hint here, and two equal looks are the proof (I4).
            let word =
                Word(if place < regions { self.region(r).word.load_relaxed() } else { Word::new(0).0 });
            let candidates = group.ballot(word.free() > 0);
            if candidates != LaneMask(0) {
                return Look::Candidate(group.read_32(r, candidates.leader()));
            }
            cursors = cursors.wrapping_add(word.cursor());
            below_zero |= word.free() < 0;
        }
        let settled = group.all(!below_zero);
        let cursors = group.wrapping_sum(cursors);
        if settled { Look::Empty { cursors } } else { Look::Unsettled }
    }
}

/// What a look at every region found.
enum Look {
    /// This region has blocks.
    Candidate(u32),
    /// None has any; the sum of their cursors, which grows with every reservation.
    Empty { cursors: u32 },
    /// None has any, but some count is below zero and may rise again (I5).
    Unsettled,
}
