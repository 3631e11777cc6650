//! Threads that allocate and free pseudo-randomly from a seed, and check every step.
//!
//! ```text
//! records   | slot 0 of columns 0..n | slot 1 of columns 0..n | ...     SLOTS * n records
//! thread t works on column (t * multiplier + offset) mod n, a different one in each round
//! ```
//!
//! In some rounds the threads of a warp act alike, so that full warps call the allocator. In the
//! others each thread acts on its own, so that divergent subsets of a warp call it.
//!
//! A block stays in a slot from one kernel to the next, and the thread that frees it is not the one
//! that allocated it. An owner claims its block in the ownership map right after the allocation and
//! fills it with a pattern. Before it frees the block, it verifies the pattern and releases its
//! claim.

use super::ownership::OwnershipMap;
use super::record::Records;
pub use super::round::{Phase, Round, SLOTS};
use super::worker::Worker;
use crate::alloc::DeviceAlloc;
use crate::kernel::DeviceSlice;

/// Runs one thread's part of a launch.
///
/// # Safety
/// `records` are `SLOTS * round.threads` records of blocks of `pool`, claimed in `map`; only this
/// launch accesses them. `stripes` is live, and `round.multiplier` is coprime to `round.threads`.
#[inline(always)]
pub unsafe fn run<A: DeviceAlloc>(
    pool: &A,
    records: Records,
    map: &OwnershipMap,
    stripes: DeviceSlice<u64>,
    round: &Round,
) {
    let Some(mut worker) = Worker::new(pool, records, map, round) else { return };
    worker.work();
    worker.counts.publish(stripes);
}

/// The action of a step on its slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    /// Allocate, if the slot is empty.
    Allocate,
    /// Free the block, if the slot is live.
    Free,
    /// Verify the pattern, if the slot is live.
    Verify,
}

/// Chooses one of the slots in `full` to free, or one of the others to allocate into, so that one
/// or two slots are full.
#[inline(always)]
fn draw(hash: u64, full: u32) -> (u32, Act) {
    let frees = full.count_ones() + (hash as u32 & 1) >= 2;
    let among = if frees { full } else { !full };
    let mut slot = (hash >> 8) as u32 % SLOTS;
    for _ in 1..SLOTS {
        slot = if among >> slot & 1 == 1 { slot } else { (slot + 1) % SLOTS };
    }
    (slot, if frees { Act::Free } else { Act::Allocate })
}

impl<A: DeviceAlloc> Worker<'_, A> {
    #[inline(always)]
    fn work(&mut self) {
        let phase = self.round.phase;
        let churns = phase == Phase::Churn as u32;
        let steps = if churns { self.round.steps } else { SLOTS };
        // The slots that the thread assumes to be full. If a warp acts together, equal on all its
        // lanes.
        let mut full = if A::RECLAIMS { (1 << SLOTS) - 1 } else { 0 };
        for step in 0..steps {
            self.begin_step(step);
            let (slot, act) = if churns {
                let together = self.round.together != 0;
                let choice = draw(if together { self.warp_hash(step) } else { self.state }, full);
                if !together && self.state >> 16 & 7 == 0 {
                    continue;
                }
                full ^= 1 << choice.0;
                choice
            } else {
                let slot = (step + self.column) % SLOTS;
                (slot, [Act::Allocate, Act::Verify, Act::Free][(phase as usize).wrapping_sub(1) % 3])
            };
            self.visit(slot, act);
        }
    }

    #[inline(always)]
    fn visit(&mut self, slot: u32, act: Act) {
        let place = u64::from(slot) * u64::from(self.round.threads) + u64::from(self.column);
        // SAFETY: this thread's column: `run`'s promise for the records, and `column` is a
        // permutation.
        let Some(record) = (unsafe { self.records.get(place) }) else { return };
        let owner = self.owner(slot);
        let reads = act == Act::Verify || (!A::RECLAIMS && self.round.phase == Phase::Churn as u32);
        let after = match record.is_live() {
            false if act == Act::Allocate => self.allocate(record, owner),
            true if act == Act::Allocate => return,
            true if reads => self.verify(record, owner),
            true => self.free(record, owner),
            false => return,
        };
        // SAFETY: this thread's column, as for the read above.
        unsafe { self.records.set(place, after) };
    }
}
