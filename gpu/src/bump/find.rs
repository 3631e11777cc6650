//! The search of all remaining memory, used if the shard's own lease was not enough.

use super::handle::{Bump, CARVE, LOWER_CEILING, POLL_NANOS, SEE_LENT, SEE_TAIL};
use super::lease::{Lease, NO_START, Piece};
use super::state::Shard;
use crate::lanes::{Group, Sum};
use crate::sync::{AtomicU64, NATIVE_LAYOUT};
use crate::thread;

/// Maximum repetitions of the full search while other threads are changing what it reads.
const SEARCHES: u32 = if NATIVE_LAYOUT { 1 << 12 } else { 6 };

impl Bump {
    /// Allocates `granules` for each lane of the group from the root, the leases and the tails.
    /// Returns where they start. A failure is exact: no piece that large exists, or ever will until
    /// the next reset. The exception is a thread that was held up for too long in the middle of a
    /// change.
    ///
    /// The leader allocates for all lanes, so that a warp contends once for a word, not once per
    /// lane.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_anywhere(&self, group: Group, granules: u64) -> u64 {
        let mut group = group;
        for _ in 0..SEARCHES {
            let Sum { before, total } = group.prefix_sum_64(granules);
            // The leader searches for all lanes that need as much as it does. The other lanes
            // search later.
            let min = group.broadcast_64(granules);
            // Enough for all lanes, or for the leader only: the part of a piece that no lane fits
            // into would be lost.
            let mut piece = self.search(group, total);
            if piece == Piece::NOTHING && total > min {
                piece = self.search(group, min);
            }
            let fits = before + granules <= piece.len;
            let failed = piece == Piece::NOTHING && granules >= min;
            group = group.filter(!fits && !failed);
            if fits {
                return piece.start + before;
            }
            if failed {
                break;
            }
        }
        NO_START
    }

    /// Allocates `wanted` granules from the root, or else from a shard. If there are not as many in
    /// one piece and no thread was changing anything, this result is final until the next reset:
    /// lowers the ceiling.
    fn search(&self, group: Group, wanted: u64) -> Piece {
        // Relaxed: a stale ceiling only lets the search run (I5).
        if wanted >= group.lead_64(|| self.root().ceiling.load_relaxed()) {
            return Piece::NOTHING;
        }
        // The root first: memory moves from the root to the shards, never back.
        let root = if group.leads() { self.take_from_root(wanted, wanted, wanted) } else { Piece::NOTHING };
        let root = root.broadcast(group);
        if !root.is_none() {
            return root;
        }
        // ordering: acquire; pairs with LEND in `store_next_lease`: what the root has leased by now
        // is in its shard, or that shard is seen unsettled.
        SEE_LENT.fence_acquire();
        let Look { shard, settled } = self.look(group, wanted);
        if shard != NO_SHARD {
            let piece = if group.leads() { carve_shard(self.shard(shard), wanted) } else { Piece::NOTHING };
            let piece = piece.broadcast(group);
            // The piece was there a moment ago: search again.
            return if piece.is_none() { Piece::UNSETTLED } else { piece };
        }
        if !settled || root == Piece::UNSETTLED {
            thread::nanosleep(POLL_NANOS);
            return Piece::UNSETTLED;
        }
        if group.leads() {
            LOWER_CEILING.delay();
            self.root().ceiling.min_relaxed(wanted);
        }
        Piece::NOTHING
    }

    /// Looks at every shard, one shard per lane at a time, for a piece of `min` granules.
    #[inline(always)]
    fn look(&self, group: Group, min: u64) -> Look {
        let shard = group.broadcast_32(self.own_shard());
        let mut settled = true;
        let mut base = 0;
        while base < self.shard_count() {
            // Every lane takes part in every ballot, including lanes with no shard left to look at.
            let place = base + group.rank();
            let r = if shard + place < self.shard_count() {
                shard + place
            } else {
                shard + place - self.shard_count()
            };
            let longest = if place < self.shard_count() { longest_piece(self.shard(r)) } else { Some(0) };
            settled &= longest.is_some();
            let found = group.ballot(longest.is_some_and(|l| u64::from(l) >= min));
            if !found.is_empty() {
                return Look { shard: group.read_32(r, found.leader()), settled: true };
            }
            base += group.count();
        }
        Look { shard: NO_SHARD, settled: group.all(settled) }
    }
}

/// In place of a shard: no shard has a piece that large.
const NO_SHARD: u32 = u32::MAX;

/// The result of a look at every shard.
struct Look {
    shard: u32,
    /// Whether no lease was waiting for its crosser's store.
    settled: bool,
}

/// The longer of the shard's lease and tail, in granules. Returns `None` while a thread is changing
/// them.
#[inline(always)]
fn longest_piece(shard: &Shard) -> Option<u32> {
    // ordering: acquire; pairs with LEND in `store_next_lease`: the tail that was kept before this
    // lease.
    let lease = Lease(shard.lease.at(SEE_TAIL).load_acquire());
    let tail = Lease(shard.tail.load_relaxed()).remaining()?;
    if !lease.is_retired() {
        return Some(lease.remaining()?.max(tail));
    }
    Some(tail)
}

/// Takes granules from the lease of a shard, or else from its tail.
#[inline(always)]
fn carve_shard(shard: &Shard, wanted: u64) -> Piece {
    let lease = Lease(shard.lease.load_relaxed());
    let piece = if lease.is_retired() { Piece::NOTHING } else { carve(&shard.lease, lease, wanted) };
    if piece.is_none() { carve(&shard.tail, Lease(shard.tail.load_relaxed()), wanted) } else { piece }
}

/// Takes `wanted` granules from the front of a lease or a tail whose last read value is `seen`.
/// Never goes below zero. Uses a compare-and-swap instead of a subtraction: nothing is left to
/// settle.
#[inline(always)]
fn carve(word: &AtomicU64, seen: Lease, wanted: u64) -> Piece {
    let Some(piece) = seen.piece() else { return Piece::UNSETTLED };
    if piece.len < wanted {
        return Piece::NOTHING;
    }
    let rest = Lease::of(piece.after(wanted));
    CARVE.delay();
    if word.cas_relaxed(seen.0, rest.0).is_ok() {
        Piece { start: piece.start, len: wanted }
    } else {
        Piece::UNSETTLED
    }
}
