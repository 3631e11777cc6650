//! The block pool under loom, with at most [`PREEMPTIONS`] preemptions a run. For what loom cannot
//! see, see docs/memory-model.md.
#![cfg(loom)]

#[macro_use]
mod loom_support;

#[path = "support/list.rs"]
mod list;

use list::List;
use loom_support::{Model, PREEMPTIONS, Values, both, both_at, every_site_is_needed, model, with};
use std::ops::Deref;
use std::sync::Arc;
use warpheap_device::fault::FaultKind;
use warpheap_device::freelist::ORDERINGS;
use warpheap_device::units::BlockIndex;

/// A pool, and a plain value per block that only the block's owner may access.
struct Pool {
    list: List,
    values: Values<u32>,
}

impl Deref for Pool {
    type Target = List;

    fn deref(&self) -> &List {
        &self.list
    }
}

impl Pool {
    /// A pool of `capacity` blocks, of which the first `taken` are allocated.
    fn new(capacity: u32, taken: u32) -> Arc<Pool> {
        Arc::new(Pool { list: List::new(capacity, 8, taken), values: Values::new(capacity as usize) })
    }

    /// Allocates a block and uses it as its owner.
    fn alloc(&self) -> Option<BlockIndex> {
        let block = self.handle.alloc_index()?;
        self.touch(block);
        Some(block)
    }

    fn touch(&self, block: BlockIndex) {
        self.values.access(block.0 as usize, |value| *value += 1);
    }

    /// Uses the block for the last time and frees it.
    fn free(&self, block: BlockIndex) {
        self.touch(block);
        // SAFETY: the block is not used any more.
        unsafe { self.handle.free_index(block) };
    }

    /// To be called when all threads have ended: no fault, counts that match the bits, and `taken`
    /// blocks allocated.
    fn check(&self, taken: u32) {
        assert_eq!(self.faults.count(), 0);
        self.list.check(taken);
    }
}

/// A block changes owners: the writes of the former owner are visible to the next.
const BLOCK_CHANGES_OWNER: Model = model(PREEMPTIONS, || {
    let pool = Pool::new(1, 0);
    let first = pool.alloc().unwrap();
    let (second, ()) = both_at([1, 0], &pool, Pool::alloc, move |pool| pool.free(first));
    pool.check(second.is_some().into());
});

/// Two threads and two blocks; each thread allocates and frees. No allocation fails, and the
/// threads never share a block.
const ROOM_FOR_ALL: Model = model(PREEMPTIONS, || {
    let pool = Pool::new(2, 0);
    let work = |pool: &Pool| {
        let block = pool.alloc().expect("there is a block for each");
        pool.free(block);
    };
    both(&pool, work, work);
    pool.check(0);
});

/// Three threads, two blocks: exactly two allocations succeed. The third thread allocates after it
/// joined the other two.
const EXHAUSTED: Model = model(PREEMPTIONS, || {
    let pool = Pool::new(2, 0);
    let others = [0, 1].map(|lane| with(&pool, lane, Pool::alloc));
    let mut served: Vec<_> = others.into_iter().filter_map(|other| other.join().unwrap()).collect();
    served.extend(pool.alloc());
    assert_eq!(served.len(), 2);
    assert_ne!(served[0], served[1]);
    pool.check(2);
});

/// Like [`EXHAUSTED`], with all three threads concurrent, over two regions.
const EXHAUSTED_REGIONS: Model = model(4, || {
    let pool = Pool::new(33, 31);
    let threads = [0, 1, 0].map(|lane| with(&pool, lane, Pool::alloc));
    let served: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect();
    assert_eq!(served.len(), 2);
    assert_ne!(served[0], served[1]);
    pool.check(33);
});

/// One thread repeatedly allocates and frees the only block. If its allocation fails although the
/// other thread never gets the block, the failure was wrong.
const FAILURE_DURING_CHURN: Model = model(5, || {
    let pool = Pool::new(1, 0);
    let churn = |pool: &Pool| {
        let (mut failed, mut held) = (0, None);
        for _ in 0..3 {
            if let Some(block) = held.take() {
                pool.free(block);
            }
            held = pool.alloc();
            failed += u32::from(held.is_none());
        }
        (failed, held)
    };
    let (second, (failed, held)) = both(&pool, Pool::alloc, churn);
    assert!(second.is_some() || failed == 0, "the block was free, and no other thread ever had it");
    pool.check((second.is_some() || held.is_some()).into());
});

/// Thread A frees the only block, which is not in A's first region, and allocates again. Thread B,
/// with the same first region, fails concurrently. B's scan began before A's free, so A must not
/// use its result.
const FREE_IN_OTHER_REGION: Model = model(PREEMPTIONS, || {
    let pool = Pool::new(33, 33);
    let free_and_alloc = |pool: &Pool| {
        pool.free(BlockIndex(32));
        pool.alloc()
    };
    let (second, first) = both(&pool, Pool::alloc, free_and_alloc);
    assert!(first.is_some() != second.is_some(), "exactly one of two allocations must succeed");
    pool.check(33);
});

/// Two threads free one block: exactly one free is valid.
const FREED_TWICE: Model = model(PREEMPTIONS, || {
    let pool = Pool::new(2, 1);
    // SAFETY: no thread uses the block.
    let free = |pool: &Pool| unsafe { pool.handle.free_index(BlockIndex(0)) };
    both_at([1, 0], &pool, free, free);
    let faults: Vec<_> = pool.faults.faults().map(|fault| (fault.kind, fault.detail)).collect();
    assert_eq!(faults, [(FaultKind::DoubleFree, 0)]);
    pool.list.check(0);
});

holds! {
    a_block_goes_from_owner_to_owner: BLOCK_CHANGES_OWNER;
    with_room_for_all_no_allocation_fails: ROOM_FOR_ALL;
    exactly_as_many_allocations_succeed_as_there_are_blocks: EXHAUSTED;
    the_same_over_two_regions: EXHAUSTED_REGIONS;
    a_failure_beside_a_churn_is_exact: FAILURE_DURING_CHURN;
    a_shared_scan_sees_what_its_warps_have_freed: FREE_IN_OTHER_REGION;
    of_two_frees_of_one_block_one_is_recorded: FREED_TWICE;
}

#[test]
fn every_weakened_ordering_is_noticed() {
    // Two owners of a block write without an order, or an allocation fails although a block was
    // freed before.
    let noticed_by = [
        ("freelist/claim", BLOCK_CHANGES_OWNER, "Concurrent write accesses"),
        ("freelist/release", BLOCK_CHANGES_OWNER, "Concurrent write accesses"),
        ("freelist/arrive", FREE_IN_OTHER_REGION, "exactly one of two allocations must succeed"),
        ("freelist/begin-scan", FREE_IN_OTHER_REGION, "exactly one of two allocations must succeed"),
    ];
    every_site_is_needed(&ORDERINGS, &[], &noticed_by);
}
