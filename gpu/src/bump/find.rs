//! The search through everything that is left, when a shard's own lease was not enough.

use super::alloc::NO_START;
use super::lease::{Lease, Piece};
use super::{Bump, POLL_NANOS, SEE_LENT, SEE_TAIL, Shard};
use crate::lanes::{Group, Sum};
use crate::sync::{AtomicU64, NATIVE_LAYOUT};
use crate::thread;

/// How often everything is searched again because another thread was just changing it.
const SEARCHES: u32 = if NATIVE_LAYOUT { 1 << 12 } else { 4 };

impl Bump {
    /// Where `granules` for each lane of the group start: from the root, the leases and the tails. That
    /// there are none is exact: at no place there is, or ever will be, a piece that large; unless another
    /// thread was held up in the middle of a change for too long.
    ///
    /// The leader takes for all, so that a warp competes once for a word, not once a lane.
    #[cold]
    #[inline(never)]
    pub(super) fn hunt(&self, group: Group, granules: u64) -> u64 {
        let mut group = group;
        for _ in 0..SEARCHES {
            let Sum { before, total } = group.prefix_sum_64(granules);
            // The leader speaks for all that need as much; the others come after.
            let least = group.broadcast_64(granules);
            // For all of them or for the leader alone: what does not end with a lane would be lost.
            let mut piece = self.search(group, total, total);
            if piece == Piece::NOTHING && total > least {
                piece = self.search(group, least, least);
            }
            let fits = before + granules <= piece.len;
            let refused = piece == Piece::NOTHING && granules >= least;
            group = group.filter(!fits && !refused);
            if fits {
                return piece.start + before;
            }
            if refused {
                break;
            }
        }
        NO_START
    }

    /// `wanted` granules, or else `least`, from the root, or else from a shard. If there are none, and no one
    /// was changing anything, that is so for good: lowers the ceiling.
    fn search(&self, group: Group, wanted: u64, least: u64) -> Piece {
        // Relaxed: a stale ceiling only lets the search run (I5).
        if least >= group.lead_64(|| self.root().ceiling.load_relaxed()) {
            return Piece::NOTHING;
        }
        // The root first: it lends to the shards, and they never give back.
        let root = if group.leads() { self.take_from_root(wanted, least, least) } else { Piece::NOTHING };
        let root = root.broadcast(group);
        if !root.is_none() {
            return root;
        }
        // ordering: acquire; pairs with LEND in `lend`: what the root has lent by now is in its shard, or
        // that shard is seen unsettled.
        SEE_LENT.fence_acquire();
        let Look { shard, settled } = self.look(group, least);
        if shard != NO_SHARD {
            let piece =
                if group.leads() { carve_shard(self.shard(shard), wanted, least) } else { Piece::NOTHING };
            let piece = piece.broadcast(group);
            // It was there a moment ago: look again.
            return if piece.is_none() { Piece::UNSETTLED } else { piece };
        }
        if !settled || root == Piece::UNSETTLED {
            thread::nanosleep(POLL_NANOS);
            return Piece::UNSETTLED;
        }
        if group.leads() {
            self.root().ceiling.min_relaxed(least);
        }
        Piece::NOTHING
    }

    /// Looks at every shard, a lane a shard at a time, for one with a piece of `least`.
    #[inline(always)]
    fn look(&self, group: Group, least: u64) -> Look {
        let home = group.broadcast_32(self.home());
        let mut settled = true;
        let mut base = 0;
        while base < self.shard_count() {
            // Every lane takes part in every ballot, also one that has no shard left to look at.
            let place = base + group.rank();
            let r = if home + place < self.shard_count() {
                home + place
            } else {
                home + place - self.shard_count()
            };
            let longest = if place < self.shard_count() { longest_piece(self.shard(r)) } else { Some(0) };
            settled &= longest.is_some();
            let found = group.ballot(longest.is_some_and(|l| u64::from(l) >= least));
            if !found.is_empty() {
                return Look { shard: group.read_32(r, found.leader()), settled: true };
            }
            base += group.count();
        }
        Look { shard: NO_SHARD, settled: group.all(settled) }
    }
}

/// In place of a shard: none has a piece that large.
const NO_SHARD: u32 = u32::MAX;

/// What a look at every shard found.
struct Look {
    shard: u32,
    /// Whether no lease was just being stored.
    settled: bool,
}

/// The longer of what the lease and the tail of a shard have; `None` if that is just changing.
#[inline(always)]
fn longest_piece(shard: &Shard) -> Option<u32> {
    // ordering: acquire; pairs with LEND in `lend`: the tail that was kept before this lease.
    let lease = Lease(shard.lease.at(SEE_TAIL).load_acquire());
    let tail = Lease(shard.tail.load_relaxed()).remaining()?;
    if !lease.is_dry() {
        return Some(lease.remaining()?.max(tail));
    }
    Some(tail)
}

/// Takes from the lease of a shard, or else from its tail.
#[inline(always)]
fn carve_shard(shard: &Shard, wanted: u64, least: u64) -> Piece {
    let lease = Lease(shard.lease.load_relaxed());
    let piece = if lease.is_dry() { Piece::NOTHING } else { carve(&shard.lease, lease, wanted, least) };
    if piece.is_none() { carve(&shard.tail, Lease(shard.tail.load_relaxed()), wanted, least) } else { piece }
}

/// Takes `wanted` granules, or else `least`, from the front of a lease or a tail that was last seen as
/// `seen`; never below zero. A swap, not a subtraction: nothing is left to settle.
#[inline(always)]
fn carve(word: &AtomicU64, seen: Lease, wanted: u64, least: u64) -> Piece {
    let Some(piece) = seen.piece() else { return Piece::UNSETTLED };
    if piece.len < least {
        return Piece::NOTHING;
    }
    let len = if piece.len >= wanted { wanted } else { least };
    let rest = Lease::of(piece.after(len));
    if word.cas_relaxed(seen.0, rest.0).is_ok() {
        Piece { start: piece.start, len }
    } else {
        Piece::UNSETTLED
    }
}
