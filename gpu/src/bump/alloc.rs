//! Allocation: one subtraction per warp, and what a warp does when that was not enough.

use super::lease::{Lease, MAX_GROUP, Outcome, Piece};
use super::{Bump, POLL_NANOS, SETTLE_POLLS};
use crate::lanes::Group;
use crate::thread;
use crate::units::WARP_SIZE;
use core::alloc::Layout;
use core::ptr::NonNull;

/// A lane that asks for more takes from the root by itself.
const MAX_LANE: u64 = MAX_GROUP / WARP_SIZE as u64;

/// How often a group waits for a lease that others then use up before it.
const RETRIES: u32 = 64;

/// A lane's share of what its group took: where it starts, or that it got none.
type Share = Option<u64>;

impl Bump {
    /// Memory for `layout`, or `None` when the arena holds no piece that large. Any thread, any time, any
    /// subset of a warp. A layout of no bytes gets an address that must not be touched.
    ///
    /// An allocation takes a whole number of granules. An alignment above a granule takes up to that
    /// alignment more.
    ///
    /// Cost per warp: 1 relaxed atomic on a word of this multiprocessor, 3 to 10 shuffles.
    #[inline(always)]
    pub fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        if layout.size() == 0 {
            return NonNull::new(layout.align() as *mut u8);
        }
        let granules = self.granules_for(layout)?;
        let start = if granules <= MAX_LANE {
            self.alloc_grouped(granules as u32)
        } else {
            self.alloc_alone(granules)
        };
        self.address(start?, layout.align())
    }

    #[inline(always)]
    fn alloc_grouped(&self, granules: u32) -> Share {
        let group = Group::converged();
        if self.shard_count == 0 {
            return self.hunt(group, granules);
        }
        let (before, total) = group.prefix_sum(granules);
        // Asked once: a thread can move, and a crosser must store into the shard that it crossed (I2).
        let home = self.home();
        // Relaxed: the word publishes nothing but itself, as the root's counter.
        let seen = Lease(group.lead_64(|| self.shard(home).lease.sub_relaxed(total.into())));
        match seen.outcome(total.into()) {
            Outcome::Got(start) => Some(start + u64::from(before)),
            outcome => self.alloc_slow(group, granules, home, outcome),
        }
    }

    /// Granules that surely hold `layout`, or `None` if the whole arena could not.
    #[inline(always)]
    fn granules_for(&self, layout: Layout) -> Option<u64> {
        let padding = (layout.align() as u64).saturating_sub(self.granule_bytes());
        let granules = (layout.size() as u64 + padding).div_ceil(self.granule_bytes());
        (granules <= self.granules).then_some(granules)
    }

    #[inline(always)]
    fn address(&self, start: u64, align: usize) -> Option<NonNull<u8>> {
        let address = self.base as u64 + (start << self.granule_log2);
        NonNull::new(address.next_multiple_of(align as u64) as *mut u8)
    }

    #[cold]
    fn alloc_alone(&self, granules: u64) -> Share {
        self.find(granules, granules).map(|piece| piece.start)
    }

    /// The lease of shard `home` did not hold what the group wanted.
    #[cold]
    #[inline(never)]
    fn alloc_slow(self, group: Group, granules: u32, home: u32, first: Outcome) -> Share {
        let (before, total) = group.prefix_sum(granules);
        let mut outcome = first;
        for _ in 0..RETRIES {
            match outcome {
                Outcome::Got(start) => return Some(start + u64::from(before)),
                Outcome::Crossed(tail) => return self.cross(group, granules, home, tail),
                Outcome::Dry => break,
                Outcome::Behind => {}
            }
            let seen = Lease(group.lead_64(|| self.retry(home, total)));
            outcome = seen.outcome(total.into());
        }
        self.hunt(group, granules)
    }

    /// Waits until the lease of shard `home` is stored, then takes from it. Answers an old value of the
    /// word, or a dry lease when that took too long.
    fn retry(&self, home: u32, total: u32) -> u64 {
        let lease = &self.shard(home).lease;
        for _ in 0..SETTLE_POLLS {
            let now = Lease(lease.load_relaxed());
            if now.is_dry() || now.remaining().is_some() {
                return lease.sub_relaxed(total.into());
            }
            thread::nanosleep(POLL_NANOS);
        }
        Lease::DRY.0
    }

    /// The group took shard `home` below zero: `tail` is its own, and it must store the next lease.
    fn cross(self, group: Group, granules: u32, home: u32, tail: Piece) -> Share {
        let (before, total) = group.prefix_sum(granules);
        let mine = share(before, granules, tail);
        // The group crossed, so some lane is without. All before the first such lane have theirs, and no
        // lane after it has.
        let rest = group.filter(mine.is_none());
        let used = group.read_32(before, rest.leader());
        let least = group.read_32(granules, rest.leader());
        let needed = u64::from(total - used);
        let piece = Piece::unpack(group.lead_64(|| {
            let left = tail.after(used.into());
            self.refill(home, left, needed, least.into()).pack(needed)
        }));
        if mine.is_some() {
            return mine;
        }
        let mine = share(before - used, granules, piece);
        let rest = rest.filter(mine.is_none());
        if mine.is_some() { mine } else { self.hunt(rest, granules) }
    }

    /// Looks everywhere for what the lanes of the group still need, until each has it or is refused.
    pub(super) fn hunt(self, group: Group, granules: u32) -> Share {
        let mut group = group;
        // Every round serves or refuses at least the leader.
        for _ in 0..WARP_SIZE {
            let (before, total) = group.prefix_sum(granules);
            let piece = Piece::unpack(group.lead_64(|| {
                let found = self.find(total.into(), granules.into());
                found.unwrap_or(Piece::NONE).pack(total.into())
            }));
            let refused = group.broadcast_32(granules);
            let mine = share(before, granules, piece);
            let out = piece.len == 0 && granules >= refused;
            group = group.filter(mine.is_none() && !out);
            if mine.is_some() || out {
                return mine;
            }
        }
        None
    }
}

/// The part of `piece` that belongs to the lane with `before` granules in front of it.
#[inline(always)]
fn share(before: u32, granules: u32, piece: Piece) -> Share {
    let fits = u64::from(before) + u64::from(granules) <= piece.len;
    fits.then_some(piece.start + u64::from(before))
}
