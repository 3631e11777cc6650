//! Allocation: one subtraction per warp. If that was not enough, the crosser refills the lease of
//! its shard, and other warps wait for it or search all remaining memory.

use super::handle::{
    Bump, CARVE, KEEP_TAIL, LEND, LOWER_CEILING, POLL_NANOS, RESET_RETIRED, SEE_LENT, SEE_TAIL, SETTLE_POLLS,
    STORE_LEASE, SUBTRACT, Shard, decode,
};
use super::lease::{Lease, MAX_LEASE, NO_START, Outcome, Piece, RESET_BELOW};
use crate::lanes::{Group, Lanes, Sum};
use crate::spill::with_spilled;
use crate::sync::{AtomicU64, NATIVE_LAYOUT};
use crate::thread;
use core::alloc::Layout;
use core::ptr::NonNull;

/// Maximum subtractions of a group before it searches the whole arena.
const RETRIES: u32 = 64;

/// Sentinel alignment: one granule, which every allocation has.
const GRANULE_ALIGN: u32 = 0;

impl Bump {
    /// Allocates memory for `layout`. Returns `None` if no free piece of the arena is large enough,
    /// or if a bounded wait for another thread expired.
    ///
    /// May be called from any thread at any time, and from any divergent subset of a warp. A
    /// zero-size layout gets an address that must not be dereferenced.
    ///
    /// An allocation takes a whole number of granules. An alignment above a granule takes up to
    /// that alignment more.
    ///
    /// Cost per full warp if the lease has enough: 1 relaxed atomic on a word of this SM. From
    /// sm_80 on, also a reduction, a vote and 2 shuffles (7 if sizes differ); before that, a vote
    /// and 3 shuffles (9).
    #[inline(always)]
    #[must_use = "memory whose address is dropped is lost until the next reset"]
    pub fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        let (size, align) = (layout.size(), layout.align());
        // True for sizes from one byte to the limit, with one comparison: zero wraps around.
        let small = size >> 32 == 0 && (size as u32).wrapping_sub(1) < self.small_bytes;
        let address = if small && align <= self.granule_bytes as usize {
            let granules = granules_in(size as u32, self.granule_bytes, self.granule_log2);
            self.alloc_small(granules, GRANULE_ALIGN)
        } else {
            self.shared().alloc_uncommon_layout(size, align)
        };
        NonNull::new(address as *mut u8)
    }

    /// Allocates with sizes and alignments that are not on the fast path of [`alloc`](Self::alloc).
    #[inline(never)]
    fn alloc_uncommon_layout(&self, size: usize, align: usize) -> u64 {
        if size == 0 {
            return align as u64;
        }
        if size.max(align) > self.small_bytes as usize {
            return self.alloc_large(size as u64, align as u64);
        }
        let padding = (align as u32).saturating_sub(self.granule_bytes);
        self.alloc_small(
            granules_in(size as u32 + padding, self.granule_bytes, self.granule_log2),
            align as u32,
        )
    }

    /// The address of the allocation that starts at granule `start`.
    #[inline(always)]
    fn address(&self, start: u64, align: u32) -> u64 {
        let address = self.base as u64 + (start << self.granule_log2);
        if align == GRANULE_ALIGN {
            return address;
        }
        let align = u64::from(align);
        (address + align - 1) & !(align - 1)
    }

    /// Like `address`, but returns 0 for [`NO_START`].
    #[inline(always)]
    fn address_or_null(&self, start: u64, align: u32) -> u64 {
        if start == NO_START { 0 } else { self.address(start, align) }
    }

    #[inline(always)]
    fn alloc_small(&self, granules: u32, align: u32) -> u64 {
        let group = Group::converged();
        match group.whole() {
            Some(warp) => self.alloc_aggregated(warp, granules, align),
            None => self.shared().alloc_partial(group, granules, align),
        }
    }

    /// Out of line, for a subset of a warp.
    #[inline(never)]
    fn alloc_partial(&self, group: Group, granules: u32, align: u32) -> u64 {
        self.alloc_aggregated(group, granules, align)
    }

    #[inline(always)]
    fn alloc_aggregated<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, granules: u32, align: u32) -> u64 {
        // Read once: a thread can move to another SM, and a crosser must store into the shard that
        // it crossed (I2).
        let shard = self.own_shard();
        let (sum, seen) =
            lanes.prefix_sum_with(granules, |total| self.subtract_on_leader(lanes, shard, total));
        let seen = Lease(lanes.broadcast_64(seen));
        match seen.start_if_enough(sum.total) {
            Some(start) => self.address(start + u64::from(sum.before), align),
            None => self.shared().alloc_again(lanes.group(), granules, align, shard, seen),
        }
    }

    /// The leader subtracts for the whole group.
    #[inline(always)]
    fn subtract_for_group<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, shard: u32, total: u32) -> Lease {
        Lease(lanes.broadcast_64(self.subtract_on_leader(lanes, shard, total)))
    }

    #[inline(always)]
    fn subtract_on_leader<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, shard: u32, total: u32) -> u64 {
        if lanes.leads() {
            SUBTRACT.delay();
            // Relaxed: like the root's counter, the word publishes nothing but itself.
            self.shard(shard).lease.sub_relaxed(total.into())
        } else {
            0
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_again(&self, group: Group, granules: u32, align: u32, shard: u32, seen: Lease) -> u64 {
        let (align, start) = with_spilled(align, || self.alloc_slow(group, granules, shard, seen));
        self.address_or_null(start, align)
    }

    /// The slow path: the lease of shard `shard` was too small for the group. `seen` is its value
    /// before the leader's subtraction.
    #[inline(always)]
    fn alloc_slow(&self, group: Group, granules: u32, shard: u32, seen: Lease) -> u64 {
        let mut request = Request { bump: self, group, granules, shard };
        let mut seen = seen;
        for tries in 0..RETRIES {
            let kept = (request, seen, tries);
            let (kept, Sum { before, total }) =
                with_spilled(kept, || request.group.prefix_sum(request.granules));
            (request, seen) = (kept.0, kept.1);
            if kept.2 > 0 {
                seen = request.bump.subtract_for_group(request.group, request.shard, total);
            }
            match seen.outcome(total) {
                Outcome::Got(start) => return start + u64::from(before),
                Outcome::Retired => {
                    request.reset_retired(seen);
                    break;
                }
                Outcome::Refilling => {
                    // A bounded wait instead of another subtraction: each failed one brings
                    // `remaining` closer to a borrow from `end`.
                    if !request.group.all(request.bump.await_settled(request.shard)) {
                        break;
                    }
                }
                Outcome::Crossed(tail) => {
                    let mine = request.share_tail(tail, before);
                    if mine != NO_START {
                        return mine;
                    }
                }
            }
        }
        request.bump.alloc_anywhere(request.group, request.granules.into())
    }

    /// Waits until no crosser is about to store the lease of shard `shard`. Returns whether that
    /// happened in time.
    fn await_settled(&self, shard: u32) -> bool {
        for _ in 0..SETTLE_POLLS {
            let now = Lease(self.shard(shard).lease.load_relaxed());
            if now.is_retired() || now.remaining().is_some() {
                return true;
            }
            thread::nanosleep(POLL_NANOS);
        }
        false
    }

    /// Allocates with a size or an alignment that is too large to share a subtraction.
    fn alloc_large(&self, size: u64, align: u64) -> u64 {
        let padding = align.saturating_sub(self.granule_bytes());
        let granules = (size.saturating_add(padding)).div_ceil(self.granule_bytes());
        let start =
            if granules > self.granules { NO_START } else { self.alloc_anywhere(Group::alone(), granules) };
        if start == NO_START {
            return 0;
        }
        let address = self.address(start, GRANULE_ALIGN);
        (address + align - 1) & !(align - 1)
    }
}

/// The request of a group.
#[derive(Clone, Copy)]
struct Request<'a> {
    bump: &'a Bump,
    group: Group,
    granules: u32,
    shard: u32,
}

impl Request<'_> {
    /// `seen` is retired. Resets the word to `RETIRED` if failed subtractions took it below
    /// `RESET_BELOW`, before `remaining` borrows from `end`. A retired lease holds no granules
    /// (I4).
    #[inline(always)]
    fn reset_retired(&self, seen: Lease) {
        if seen.signed_remaining() < RESET_BELOW && self.group.leads() {
            RESET_RETIRED.delay();
            // Relaxed swap, not a store: a read-modify-write keeps the release sequence of the swap
            // that retired the shard.
            self.bump.shard(self.shard).lease.swap_relaxed(Lease::RETIRED.0);
        }
    }

    /// The group crossed, and owns `tail`: the first lanes get memory from it, and the shard gets
    /// its next lease. Returns where this lane's part starts. Lanes without a part stay in the
    /// group.
    #[inline(always)]
    fn share_tail(&mut self, tail: Piece, before: u32) -> u64 {
        let fits = u64::from(before + self.granules) <= tail.len;
        let mine = if fits { tail.start + u64::from(before) } else { NO_START };
        // At least one lane is left over. If a lane does not fit, the lanes after it do not fit
        // either.
        let rest = self.group.filter(!fits);
        let used = self.group.read_32(before, rest.leader());
        let leads = self.group.leads();
        self.group = rest;
        if leads {
            let left = Lease::of(tail.after(used.into()));
            let kept = (*self, mine);
            let ((request, mine), ()) = with_spilled(kept, || kept.0.bump.keep_tail(kept.0.shard, left));
            let kept = (request, mine);
            let (kept, ()) =
                with_spilled(kept, || request.bump.store_next_lease(request.shard, request.granules));
            *self = kept.0;
            return kept.1;
        }
        mine
    }
}

/// The number of granules that hold `bytes` bytes.
#[inline(always)]
const fn granules_in(bytes: u32, granule_bytes: u32, granule_log2: u32) -> u32 {
    (bytes + (granule_bytes - 1)) >> granule_log2
}

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

#[cfg(all(test, not(loom)))]
mod tests;
