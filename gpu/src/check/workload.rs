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

use super::Owner;
use super::hash::absorb;
use super::log::{Breach, BreachKind};
use super::mix;
use super::ownership::OwnershipMap;
use super::pattern::{Pattern, Tear};
use super::record::Record;
use super::tally::Counts;
use crate::alloc::DeviceAlloc;
use crate::kernel::DeviceSlice;
use crate::thread;
use crate::units::WARP_SIZE;
use core::ptr::NonNull;

/// Records per thread.
pub const SLOTS: u32 = 8;

/// The task of a launch's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Phase {
    /// Each step allocates into an empty slot or frees a live one, so that each thread ends up with
    /// one block or two. In a pool that does not reclaim, the step verifies the pattern instead of
    /// freeing.
    Churn = 0,
    /// Allocate into every empty slot. With more slots than blocks, until the pool is empty.
    Fill = 1,
    /// Verify every pattern.
    Verify = 2,
    /// Free everything.
    Drain = 3,
    /// Free blocks of other threads, and allocate for other threads: see
    /// [`exchange`](super::exchange).
    Exchange = 4,
    /// Allocate for other threads.
    Produce = 5,
    /// Free blocks of other threads.
    Consume = 6,
}

crate::kernel_arg! {
    /// The parameters of a launch, equal for all its threads.
    #[derive(Debug, Default)]
    pub struct Round {
        /// The seed of all pseudo-random choices.
        pub seed: u64,
        /// A [`Phase`].
        pub phase: u32,
        /// The launch's number in the run, so that each launch chooses differently.
        pub number: u32,
        /// The index of the launch's first record in the table of all records.
        pub first_record: u32,
        /// Number of columns, and of the threads that work on them.
        pub threads: u32,
        /// Coprime to `threads`.
        pub multiplier: u32,
        /// The column of thread 0.
        pub offset: u32,
        /// The number of steps that a thread takes in [`Phase::Churn`].
        pub steps: u32,
        /// The smallest allocation, in bytes.
        pub min_bytes: u32,
        /// The largest allocation, in bytes.
        pub max_bytes: u32,
        /// The base-2 logarithm of the largest alignment, in bytes.
        pub max_align_log2: u32,
        /// 1 if the threads of a warp act alike in [`Phase::Churn`], otherwise 0.
        pub together: u32,
        /// A [`Mix`](super::mix::Mix) of sizes.
        pub mix: u32,
    }
}

const _: () = assert!(size_of::<Round>() == 56 && align_of::<Round>() == 8);

/// Runs one thread's part of a launch.
///
/// # Safety
/// `records` are `SLOTS * round.threads` records of blocks of `pool`, claimed in `map`; only this
/// launch accesses them. `stripes` is live, and `round.multiplier` is coprime to `round.threads`.
#[inline(always)]
pub unsafe fn run<A: DeviceAlloc>(
    pool: &A,
    records: DeviceSlice<Record>,
    map: &OwnershipMap,
    stripes: DeviceSlice<u64>,
    round: &Round,
) {
    let Some(mut worker) = Worker::new(pool, records, map, round) else { return };
    worker.work();
    worker.counts.publish(stripes);
}

/// A thread and its pseudo-random state.
pub(super) struct Worker<'a, A> {
    pool: &'a A,
    pub(super) records: DeviceSlice<Record>,
    map: &'a OwnershipMap,
    pub(super) round: &'a Round,
    column: u32,
    /// This thread's random state: changes with every step.
    pub(super) state: u64,
    /// The warp's random state: constant for the launch.
    warp_state: u64,
    pub(super) counts: Counts,
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
    let gives = full.count_ones() + (hash as u32 & 1) >= 2;
    let among = if gives { full } else { !full };
    let mut slot = (hash >> 8) as u32 % SLOTS;
    for _ in 1..SLOTS {
        slot = if among >> slot & 1 == 1 { slot } else { (slot + 1) % SLOTS };
    }
    (slot, if gives { Act::Free } else { Act::Allocate })
}

impl<'a, A: DeviceAlloc> Worker<'a, A> {
    /// The state of the calling thread, if the round has work for it.
    #[inline(always)]
    pub(super) fn new(
        pool: &'a A,
        records: DeviceSlice<Record>,
        map: &'a OwnershipMap,
        round: &'a Round,
    ) -> Option<Self> {
        let index = thread::index_1d();
        if index >= round.threads {
            return None;
        }
        let column = (u64::from(index) * u64::from(round.multiplier) + u64::from(round.offset))
            % u64::from(round.threads);
        let launch = u64::from(round.number) << 32 | u64::from(round.first_record);
        Some(Worker {
            pool,
            records,
            map,
            round,
            column: column as u32,
            state: absorb(absorb(round.seed, launch), column),
            warp_state: absorb(absorb(round.seed, launch), u64::from(index / WARP_SIZE)),
            counts: Counts::default(),
        })
    }

    /// Advances the random state.
    #[inline(always)]
    pub(super) fn begin_step(&mut self, step: u32) {
        self.state = absorb(self.state, step.into());
    }

    /// The owner of this thread's record in a slot.
    #[inline(always)]
    pub(super) fn owner(&self, slot: u32) -> Owner {
        Owner::of_record(self.round.first_record.wrapping_add(slot * self.round.threads + self.column))
    }

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

    /// A number that is equal for all lanes of the warp in this step.
    #[inline(always)]
    pub(super) fn warp_hash(&self, step: u32) -> u64 {
        absorb(self.warp_state, step.into())
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

    #[inline(always)]
    pub(super) fn allocate(&mut self, slot: Record, owner: Owner) -> Record {
        let layout = mix::draw(self.round, self.state);
        let Some(block) = self.pool.alloc(layout) else {
            self.counts.refused += 1;
            return slot;
        };
        self.counts.allocations += 1;
        let record = slot.next(block.as_ptr() as u64, layout);
        if record.address() & (record.align() - 1) != 0 {
            self.map.report_misaligned(record, owner);
        }
        if self.map.claim(record.address(), record.bytes(), owner).is_err() {
            return record.clashed();
        }
        // SAFETY: the allocator returned the block, it lies in the pool, and no other owner has
        // claimed it.
        unsafe { self.pattern(record, owner).fill(block.as_ptr(), record.bytes().into()) };
        self.counts.bytes_written += u64::from(record.bytes());
        record
    }

    #[inline(always)]
    fn verify(&mut self, record: Record, owner: Owner) -> Record {
        if record.is_clashed() {
            return record;
        }
        let (start, bytes) = (record.address() as *mut u8, u64::from(record.bytes()));
        self.counts.bytes_read += bytes;
        // SAFETY: the block lies in the pool, and its owner has written all of it.
        if let Some(tear) = unsafe { self.pattern(record, owner).verify(start, bytes) } {
            self.report_tear(record, owner, tear);
        }
        record
    }

    #[inline(always)]
    pub(super) fn free(&mut self, record: Record, owner: Owner) -> Record {
        self.verify(record, owner);
        if !record.is_clashed() {
            // A failure is in the log; the block is freed anyway.
            let _ = self.map.release(record.address(), record.bytes(), owner);
        }
        if let Some(block) = NonNull::new(record.address() as *mut u8) {
            // SAFETY: the pool returned it for this layout. Only the record holds its address, and
            // is emptied.
            unsafe { self.pool.free(block, record.layout()) };
            self.counts.frees += 1;
        }
        record.emptied()
    }

    #[inline(always)]
    fn pattern(&self, record: Record, owner: Owner) -> Pattern {
        Pattern::new(self.round.seed, owner, record.generation())
    }

    #[cold]
    #[inline(never)]
    fn report_tear(&self, record: Record, owner: Owner, tear: Tear) {
        let (kind, other) = (BreachKind::Torn, Owner::NONE);
        let (address, bytes) = (record.address(), record.bytes());
        let Tear { offset, expected, found } = tear;
        self.map.log().record(&Breach { kind, owner, other, address, bytes, offset, expected, found });
    }
}
