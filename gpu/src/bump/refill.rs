//! The crosser's duty: the next lease of a shard, or that there is none.

use super::lease::{Lease, MAX_LEASE, Piece};
use super::root::{Found, decode};
use super::{Bump, PUBLISH, Shard};

/// Leases get no shorter than this many granules while the root has more.
const MIN_LEASE: u64 = 1 << 12;

impl Bump {
    /// Takes the next lease from the root and stores it in shard `home`, whose word the caller has taken
    /// below zero. `left` is what remains of the lease before. Returns a piece of up to `needed`
    /// granules for the caller, at least `least` or empty.
    #[cold]
    pub(super) fn refill(&self, home: u32, left: Piece, needed: u64, least: u64) -> Piece {
        let shard = self.shard(home);
        self.keep_tail(shard, left);
        let (mine, next) = match self.take_from_root(self.lease_length(needed, least), least) {
            Found::Piece(lease) => {
                let mine = Piece { start: lease.start, len: lease.len.min(needed) };
                (mine, Lease::of(lease.after(mine.len)))
            }
            Found::Nothing => (Piece::NONE, Lease::DRY),
            // The root is being settled. Leave the shard able to ask again.
            Found::Unsettled => (Piece::NONE, Lease::NONE),
        };
        // ordering: release; pairs with SEE_TAIL in `find`: the tail before the word that follows it.
        shard.lease.store_release(next.0, PUBLISH);
        mine
    }

    /// A share of what the root has, so that all shards run out together; a multiple of `least`, so that
    /// requests of one size leave no tail.
    fn lease_length(&self, needed: u64, least: u64) -> u64 {
        let remaining = decode(self.root().remaining.load_relaxed()).unwrap_or(0);
        let share = (remaining / (2 * u64::from(self.shard_count))).clamp(MIN_LEASE, MAX_LEASE);
        (share - share % least).max(needed)
    }

    /// Keeps the larger of `left` and the tail the shard has; the other is wasted.
    fn keep_tail(&self, shard: &Shard, left: Piece) {
        if left.len == 0 {
            return;
        }
        let old = Lease(shard.tail.load_relaxed());
        let held = old.remaining().unwrap_or(0);
        // Relaxed: the store of the next lease releases it. A swap that fails means another thread took
        // from the tail just now; then the leftover is the loser, whichever is larger.
        let kept = held < left.len && shard.tail.cas_relaxed(old.0, Lease::of(left).0).is_ok();
        self.root().wasted.add_relaxed(if kept { held } else { left.len });
    }
}
