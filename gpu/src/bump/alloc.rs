//! Allocation: one subtraction per warp, and the slow path if that was not enough.

use super::handle::{Bump, POLL_NANOS, RESET_RETIRED, SETTLE_POLLS, SUBTRACT};
use super::lease::{Lease, NO_START, Outcome, Piece, RESET_BELOW};
use crate::lanes::{Group, Lanes, Sum};
use crate::spill::with_spilled;
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

#[cfg(all(test, not(loom)))]
mod tests;
