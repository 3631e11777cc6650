//! Threads that allocate and free by a seed, and check every step.
//!
//! ```text
//! records   | slot 0 of columns 0..n | slot 1 of columns 0..n | ...     SLOTS * n records
//! thread t works on column (t * multiplier + offset) mod n, another one in each round
//! ```
//!
//! In some rounds the threads of a warp act alike, so that whole warps come to the allocator, in others each
//! acts for itself, so that all subsets of a warp do.
//!
//! A block lives in a slot from one kernel to the next, and another thread gives it back than the one that
//! allocated it. An owner claims its block in the ownership map right after it was allocated, writes a
//! pattern over it, and before it gives the block back reads the pattern again and releases its claim.

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

/// Records of each thread.
pub const SLOTS: u32 = 8;

/// What the threads of a launch do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Phase {
    /// Each step allocates into an empty slot or gives a full one back (or, in a pool that takes nothing back,
    /// reads its pattern), so that each thread comes to hold one block or two.
    Churn = 0,
    /// Allocate into every empty slot: with more slots than blocks, until the pool is empty.
    Fill = 1,
    /// Read every pattern.
    Verify = 2,
    /// Give everything back.
    Drain = 3,
    /// Give back what others allocated, and allocate for others: see [`exchange`](super::exchange).
    Exchange = 4,
    /// Allocate for others.
    Produce = 5,
    /// Give back what others allocated.
    Consume = 6,
}

crate::kernel_arg! {
    /// What a launch does: the same for all its threads.
    #[derive(Debug, Default)]
    pub struct Round {
        /// Decides everything that the threads choose.
        pub seed: u64,
        /// A [`Phase`].
        pub phase: u32,
        /// Counts the launches of a run, so that each chooses anew.
        pub number: u32,
        /// The place of the launch's first record in the table of all.
        pub first_record: u32,
        /// Columns, and threads that work on them.
        pub threads: u32,
        /// Coprime to `threads`.
        pub multiplier: u32,
        /// The column of thread 0.
        pub offset: u32,
        /// How many steps a thread takes in [`Phase::Churn`].
        pub steps: u32,
        /// The smallest allocation, in bytes.
        pub min_bytes: u32,
        /// The largest, in bytes.
        pub max_bytes: u32,
        /// The base-2 logarithm of the largest alignment, in bytes.
        pub max_align_log2: u32,
        /// Whether the threads of a warp act alike in [`Phase::Churn`]: 1, or 0.
        pub together: u32,
        /// A [`Mix`](super::mix::Mix) of sizes.
        pub mix: u32,
    }
}

const _: () = assert!(size_of::<Round>() == 56 && align_of::<Round>() == 8);

/// One thread's part of a launch.
///
/// # Safety
/// `records` are `SLOTS * round.threads` records of blocks of `pool`, claimed in `map`; the records are
/// touched by this launch alone. `stripes` is live, and `round.multiplier` is coprime to `round.threads`.
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

/// A thread, and what it chooses by.
pub(super) struct Worker<'a, A> {
    pool: &'a A,
    pub(super) records: DeviceSlice<Record>,
    map: &'a OwnershipMap,
    pub(super) round: &'a Round,
    column: u32,
    /// What this thread chooses by: changes with every step.
    pub(super) state: u64,
    /// What its warp chooses by: the same all the time.
    warp_state: u64,
    pub(super) counts: Counts,
}

/// What a step does with its slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    /// Allocate, if it is empty.
    Allocate,
    /// Give back, if it is live.
    Free,
    /// Read its pattern, if it is live.
    Verify,
}

/// One slot of those in `full` to be given back, or one of the others to be allocated into: so that one slot
/// is full, or two are.
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
    /// The calling thread, if the round has work for it.
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

    /// Chooses anew.
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
        // The slots that a thread takes for full; when a warp acts together, the same on all its lanes.
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

    /// A number that all lanes of the warp draw alike in this step.
    #[inline(always)]
    pub(super) fn warp_hash(&self, step: u32) -> u64 {
        absorb(self.warp_state, step.into())
    }

    #[inline(always)]
    fn visit(&mut self, slot: u32, act: Act) {
        let place = u64::from(slot) * u64::from(self.round.threads) + u64::from(self.column);
        // SAFETY: this thread's column, by `run`'s promise and because `column` is a permutation.
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
        // SAFETY: the same.
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
        // SAFETY: the allocator gave it, it lies in the pool, and no one else has claimed it.
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
            // A failure is in the log; the block goes back all the same.
            let _ = self.map.release(record.address(), record.bytes(), owner);
        }
        if let Some(block) = NonNull::new(record.address() as *mut u8) {
            // SAFETY: the pool gave it for this layout, and the record, which alone knows it, is emptied.
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
