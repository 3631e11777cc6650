//! The quarantine of a debug heap under loom, with at most [`PREEMPTIONS`] preemptions a run. For
//! what loom cannot see, see docs/memory-model.md.
#![cfg(loom)]

#[macro_use]
mod loom_support;

use loom_support::{Model, PREEMPTIONS, Values, both, every_site_is_needed, model};
use std::sync::Arc;
use warpheap_device::heap::debug::{DEBUG_ORDERINGS, Quarantine};
use warpheap_device::sync::AtomicU64;

/// The report of two holders that access a block without an order.
const UNORDERED: &str = "Concurrent write accesses";
const OVERLOOKED: &str = "neither in quarantine nor on its way, and not the heap's";

/// A ring, a plain value per block that only the block's holder may access, and the set of blocks
/// that the heap got back.
struct QuarantineModel {
    ring: Quarantine,
    values: Values<u32>,
    back: Vec<AtomicU64>,
    _slots: Vec<AtomicU64>,
}

// SAFETY: the ring is a handle of atomics that the quarantine owns.
unsafe impl Sync for QuarantineModel {}
// SAFETY: the ring is a handle of atomics that the quarantine owns.
unsafe impl Send for QuarantineModel {}

impl QuarantineModel {
    /// A quarantine of `slots` slots, for blocks 1 to `blocks`.
    fn new(slots: u64, blocks: u32) -> Arc<QuarantineModel> {
        let slots: Vec<_> = (0..slots).map(|_| AtomicU64::new(0)).collect();
        Arc::new(QuarantineModel {
            // SAFETY: the slots are stored next to the ring, and do not move.
            ring: unsafe { Quarantine::over(slots.as_ptr(), slots.len() as u64) },
            values: Values::new(1 + blocks as usize),
            back: (0..=blocks).map(|_| AtomicU64::new(0)).collect(),
            _slots: slots,
        })
    }

    fn touch(&self, block: u64) {
        self.values.access(block as usize, |value| *value += 1);
    }

    /// Writes to a block for the last time, and frees it.
    fn free(&self, block: u64) {
        self.touch(block);
        self.ring.put(block, |out| self.leave(out));
    }

    fn leave(&self, block: u64) {
        self.touch(block);
        assert_eq!(self.back[block as usize].add_relaxed(1), 0, "one block left twice");
    }

    /// Acts once like a thread after a failed allocation: checks that a ring found empty was really
    /// empty.
    fn failed(&self, block: u64) {
        if !self.ring.empty(|out| self.leave(out)) {
            assert_eq!(self.back[block as usize].load_relaxed(), 1, "{OVERLOOKED}");
        }
    }

    fn is_back(&self, block: u64) -> bool {
        self.back[block as usize].load_relaxed() == 1
    }
}

/// Of two frees, the later one takes out the block that the earlier one put in, and sees its
/// writes.
const DISPLACED: Model = model(PREEMPTIONS, || {
    let quarantine = QuarantineModel::new(1, 2);
    both(&quarantine, |quarantine| quarantine.free(1), |quarantine| quarantine.free(2));
    assert!(quarantine.is_back(1) != quarantine.is_back(2), "one is out, one is in");
});

/// After failed allocations two threads empty the ring: neither gives up while the other still
/// holds the block.
const EMPTIED_BY_TWO: Model = model(PREEMPTIONS, || {
    let quarantine = QuarantineModel::new(2, 1);
    quarantine.free(1);
    both(&quarantine, |quarantine| quarantine.failed(1), |quarantine| quarantine.failed(1));
    assert!(quarantine.is_back(1));
});

/// A thread empties the ring while a free takes a block out.
const EMPTIED_BESIDE_A_FREE: Model = model(PREEMPTIONS, || {
    let quarantine = QuarantineModel::new(1, 2);
    quarantine.free(1);
    both(&quarantine, |quarantine| quarantine.free(2), |quarantine| quarantine.failed(1));
    assert!(quarantine.is_back(1));
});

holds! {
    a_block_leaves_once_and_with_what_was_written_to_it: DISPLACED;
    no_block_is_overlooked_on_its_way_out: EMPTIED_BY_TWO;
    no_block_is_overlooked_beside_a_free: EMPTIED_BESIDE_A_FREE;
}

#[test]
fn every_weakened_ordering_is_noticed() {
    let noticed_by = [
        ("heap/quarantine:acquire", DISPLACED, UNORDERED),
        ("heap/quarantine:release", DISPLACED, UNORDERED),
        ("heap/quarantine:release", EMPTIED_BY_TWO, OVERLOOKED),
        ("heap/see-quarantine", EMPTIED_BY_TWO, OVERLOOKED),
        ("heap/left", EMPTIED_BY_TWO, OVERLOOKED),
        ("heap/see-left", EMPTIED_BY_TWO, OVERLOOKED),
    ];
    every_site_is_needed(&DEBUG_ORDERINGS, &["heap/quarantine"], &noticed_by);
}
