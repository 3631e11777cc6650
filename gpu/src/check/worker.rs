//! A thread of the stress kernels: allocates, verifies and frees blocks, and checks every step.

use super::hash::absorb;
use super::log::{Breach, BreachKind};
use super::mix;
use super::ownership::OwnershipMap;
use super::pattern::{Pattern, Tear};
use super::record::{Owner, Record, Records};
use super::round::Round;
use super::tally::Counts;
use crate::alloc::DeviceAlloc;
use crate::thread;
use crate::units::WARP_SIZE;
use core::ptr::NonNull;

/// A thread and its pseudo-random state.
pub(super) struct Worker<'a, A> {
    pool: &'a A,
    pub(super) records: Records,
    map: &'a OwnershipMap,
    pub(super) round: &'a Round,
    pub(super) column: u32,
    /// This thread's random state: changes with every step.
    pub(super) state: u64,
    /// The warp's random state: constant for the launch.
    warp_state: u64,
    pub(super) counts: Counts,
}

impl<'a, A: DeviceAlloc> Worker<'a, A> {
    /// The state of the calling thread, if the round has work for it.
    #[inline(always)]
    pub(super) fn new(
        pool: &'a A,
        records: Records,
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

    /// A number that is equal for all lanes of the warp in this step.
    #[inline(always)]
    pub(super) fn warp_hash(&self, step: u32) -> u64 {
        absorb(self.warp_state, step.into())
    }

    #[inline(always)]
    pub(super) fn allocate(&mut self, slot: Record, owner: Owner) -> Record {
        let layout = mix::draw(self.round, self.state);
        let Some(block) = self.pool.alloc(layout) else {
            self.counts.failed_allocations += 1;
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
    pub(super) fn verify(&mut self, record: Record, owner: Owner) -> Record {
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
        let breach = Breach::of(BreachKind::Torn, owner, record.address(), record.bytes());
        let Tear { offset, expected, found } = tear;
        self.map.log().record(&Breach { offset, expected, found, ..breach });
    }
}
