//! Slabs that no one has used since the heap was made: a partition for each shard, handed out in order.
//!
//! ```text
//! fresh[shard]   the next slab of the shard's partition that no one has had
//! ```
//!
//! One relaxed addition takes slabs. It hands nothing on: what lies there has had no owner.

use super::class_info::ClassInfo;
use super::sets::Run;
use super::{Heap, TAKE_ALL_FRESH, TAKE_FRESH};
use crate::sync::AtomicU32;

/// Words from one shard's to the next, which avoids false sharing of a cache sector.
pub const FRESH_STRIDE: usize = 8;

impl Heap {
    #[inline(always)]
    pub(super) fn fresh(&self, shard: u32) -> &AtomicU32 {
        debug_assert!(shard < self.layout.shards);
        // SAFETY: one of the shards, by the callers.
        let word = unsafe { self.parts.fresh.add(shard as usize * FRESH_STRIDE) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*word }
    }

    /// Takes slabs of a shard's partition, without a look first: for a class' first span there, which happens once.
    #[inline(always)]
    pub(super) fn claim_fresh(&self, shard: u32, slabs: u32) -> Run {
        TAKE_FRESH.delay();
        let first = self.fresh(shard).add_relaxed(slabs);
        if first + slabs <= self.layout.partition_start(shard + 1) {
            return Run { first, len: slabs };
        }
        self.give_tail(shard, first);
        Run::NONE
    }

    /// The slabs from `first` on to the end of a shard's partition are the caller's, but too few: anyone may have them.
    #[cold]
    #[inline(never)]
    fn give_tail(&self, shard: u32, first: u32) {
        let end = self.layout.partition_start(shard + 1);
        if first < end {
            self.free_slabs().insert_run(Run { first, len: end - first });
        }
    }

    /// Takes up to `most` slabs of a shard's partition, whole runs of the class.
    pub(super) fn claim_fresh_part(&self, shard: u32, info: &ClassInfo, most: u32) -> Run {
        let end = self.layout.partition_start(shard + 1);
        let seen = self.fresh(shard).load_relaxed();
        if seen >= end || end - seen < info.slabs {
            return Run::NONE;
        }
        let wanted = if end - seen < most { (end - seen) / info.slabs * info.slabs } else { most };
        self.claim_fresh(shard, wanted)
    }

    /// Takes `slabs` slabs in a row of a shard's partition, all or none.
    pub(super) fn claim_fresh_row(&self, shard: u32, slabs: u32) -> Run {
        if self.fresh_left(shard) < slabs { Run::NONE } else { self.claim_fresh(shard, slabs) }
    }

    /// Slabs of a shard's partition that no one has had.
    pub(super) fn fresh_left(&self, shard: u32) -> u32 {
        self.layout.partition_start(shard + 1).saturating_sub(self.fresh(shard).load_relaxed())
    }

    /// Whether there are some.
    pub(super) fn has_fresh(&self, shard: u32) -> bool {
        self.fresh_left(shard) > 0
    }

    /// Puts every slab that no one has had in the free set, for large allocations to find. Whether there were any.
    #[cold]
    #[inline(never)]
    pub(super) fn release_fresh(&self) -> bool {
        let mut any = false;
        for shard in 0..self.layout.shards {
            if self.has_fresh(shard) {
                TAKE_ALL_FRESH.delay();
                let first = self.fresh(shard).swap_relaxed(self.layout.partition_start(shard + 1));
                self.give_tail(shard, first);
                any = true;
            }
        }
        any
    }
}
