//! Refill by the crosser: stores the next lease of a shard, or retires the shard.

use super::handle::{Bump, KEEP_TAIL, LEND, STORE_LEASE};
use super::lease::{Lease, MAX_LEASE, Piece};
use super::state::decode;

/// The minimum length of a lease in granules while the root has more.
const MIN_LEASE: u64 = 1 << 12;

impl Bump {
    /// Keeps the remainder of a lease of shard `r`, if it is longer than the shard's current tail.
    /// The shorter of the two is wasted. Called by the crosser before it stores the shard's next
    /// lease.
    #[cold]
    #[inline(never)]
    pub(super) fn keep_tail(&self, r: u32, left: Lease) {
        let length = |lease: Lease| lease.remaining().unwrap_or(0);
        let mut lost = length(left);
        if lost == 0 {
            return;
        }
        let tail = &self.shard(r).tail;
        let held = Lease(tail.load_relaxed());
        KEEP_TAIL.delay();
        // Relaxed: LEND releases it. If the compare-and-swap fails, another thread took from the
        // tail just now; then the remainder is wasted, whichever of the two is longer.
        if length(held) < lost && tail.cas_relaxed(held.0, left.0).is_ok() {
            lost = length(held);
        }
        self.root().wasted.add_relaxed(lost.into());
    }

    /// Stores the next lease of shard `r`. The caller has taken the shard's word below zero (I2).
    /// The lease holds at least `granules`. If the root has fewer, the shard is retired until the
    /// next reset.
    #[cold]
    #[inline(never)]
    pub(super) fn store_next_lease(&self, r: u32, granules: u32) {
        // ordering: release; pairs with SEE_LENT in `search`: the word below zero before the root
        // that lends; and with SEE_TAIL in `longest_piece`: the tail before the lease after it.
        LEND.fence_release();
        let next = match self.take_from_root(self.lease_length(granules).into(), granules.into(), u64::MAX) {
            Piece::NOTHING => Lease::RETIRED,
            // The root is being settled. Leave the shard able to refill again.
            Piece::UNSETTLED => Lease::NONE,
            lease => Lease::of(lease),
        };
        STORE_LEASE.delay();
        // Relaxed: LEND is before it. A swap, as in the root.
        self.shard(r).lease.swap_relaxed(next.0);
    }

    /// An equal share of what the root has left, so that all shards run out together. A multiple of
    /// `granules`, so that requests of one size leave no tail. `granules` is at most `MAX_GROUP`.
    fn lease_length(&self, granules: u32) -> u32 {
        let remaining = decode(self.root().remaining.load_relaxed()).unwrap_or(0);
        let shards_log2 = self.shard_count().next_power_of_two().trailing_zeros();
        let share = (remaining >> shards_log2).clamp(MIN_LEASE, MAX_LEASE) as u32;
        (share - share % granules.max(1)).max(granules)
    }
}
