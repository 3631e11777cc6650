//! The search through everything that is left, when a shard's own lease was not enough.

use super::lease::{Lease, Piece, SUNK};
use super::root::Found;
use super::{Bump, POLL_NANOS, SEE_TAIL};
use crate::sync::{AtomicU64, NATIVE_LAYOUT, fence_acquire};
use crate::thread;

/// How often everything is searched again because some counter was being settled.
const SEARCHES: u32 = if NATIVE_LAYOUT { 64 } else { 3 };

impl Bump {
    /// A piece of up to `wanted` granules and at least `least`, or `None` when there is none that large in
    /// the root, in any lease and in any tail. For one thread, on behalf of its group.
    #[cold]
    pub(super) fn find(&self, wanted: u64, least: u64) -> Option<Piece> {
        for _ in 0..SEARCHES {
            // Relaxed: a stale ceiling only lets the search run (I5).
            if least >= self.root().ceiling.load_relaxed() {
                return None;
            }
            let root = self.take_from_root(wanted, least);
            if let Found::Piece(piece) = root {
                return Some(piece);
            }
            // The root first: it lends to the shards, and they never give back. A lease taken before this
            // look is in its shard by the time that shard is settled.
            match (root, self.search_shards(wanted, least)) {
                (_, Found::Piece(piece)) => return Some(piece),
                (Found::Nothing, Found::Nothing) => {
                    self.root().ceiling.min_relaxed(least);
                    return None;
                }
                _ => thread::nanosleep(POLL_NANOS),
            }
        }
        None
    }

    /// Looks at every lease and every tail, the caller's own shard first.
    fn search_shards(&self, wanted: u64, least: u64) -> Found {
        let mut result = Found::Nothing;
        let home = if self.shard_count == 0 { 0 } else { self.home() };
        for i in 0..self.shard_count {
            let shard = self.shard((home + i) % self.shard_count);
            let lease = Lease(shard.lease.load_relaxed());
            let from_lease = if lease.is_dry() {
                if lease.signed_remaining() < SUNK {
                    // Failed subtractions only: nothing is in a dry lease (I4).
                    shard.lease.store_relaxed(Lease::DRY.0);
                }
                Found::Nothing
            } else {
                carve(&shard.lease, wanted, least)
            };
            if let Found::Piece(_) = from_lease {
                return from_lease;
            }
            // ordering: acquire; pairs with PUBLISH in `refill`: the tail kept before the lease just seen.
            fence_acquire(SEE_TAIL);
            let from_tail = carve(&shard.tail, wanted, least);
            if let Found::Piece(_) = from_tail {
                return from_tail;
            }
            if from_lease == Found::Unsettled || from_tail == Found::Unsettled {
                result = Found::Unsettled;
            }
        }
        result
    }
}

/// How often a carve is tried while others change the word; the search comes back to it.
const CARVE_TRIES: u32 = 8;

/// Takes up to `wanted` granules from the front of a lease or a tail if it has `least`; never below zero.
fn carve(word: &AtomicU64, wanted: u64, least: u64) -> Found {
    for _ in 0..CARVE_TRIES {
        let seen = Lease(word.load_relaxed());
        if seen.is_dry() {
            return Found::Nothing;
        }
        let Some(piece) = seen.piece() else { return Found::Unsettled };
        if piece.len < least {
            return Found::Nothing;
        }
        let mine = Piece { start: piece.start, len: piece.len.min(wanted) };
        if word.cas_relaxed(seen.0, Lease::of(piece.after(mine.len)).0).is_ok() {
            return Found::Piece(mine);
        }
    }
    Found::Unsettled
}
