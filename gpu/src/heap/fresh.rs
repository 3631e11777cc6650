//! Slabs that no one has used since the heap was made: a share for each home, handed out in order.
//!
//! ```text
//! fresh[home]   the next slab of the home's share that no one has had
//! ```
//!
//! One relaxed addition takes slabs. It hands nothing on: what lies there has had no owner.

use super::Heap;
use super::class_info::ClassInfo;
use super::sets::Run;
use crate::sync::AtomicU32;

/// Words from one home's to the next: those of one sector of the cache would be slow together.
pub const FRESH_STRIDE: usize = 8;

impl Heap {
    #[inline(always)]
    pub(super) fn fresh(&self, home: u32) -> &AtomicU32 {
        debug_assert!(home < self.layout.homes);
        // SAFETY: one of the homes, by the callers.
        let word = unsafe { self.parts.fresh.add(home as usize * FRESH_STRIDE) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*word }
    }

    /// Takes slabs of a home's share, without a look first: for a class' first span there, which happens once.
    #[inline(always)]
    pub(super) fn claim_fresh(&self, home: u32, slabs: u32) -> Run {
        let first = self.fresh(home).add_relaxed(slabs);
        if first + slabs <= self.layout.share_start(home + 1) {
            return Run { first, len: slabs };
        }
        self.give_tail(home, first);
        Run::NONE
    }

    /// The slabs from `first` on to the end of a home's share are the caller's, but too few: anyone may have them.
    #[cold]
    #[inline(never)]
    fn give_tail(&self, home: u32, first: u32) {
        let end = self.layout.share_start(home + 1);
        if first < end {
            self.free_slabs().insert_run(Run { first, len: end - first });
        }
    }

    /// Takes up to `most` slabs of a home's share, whole runs of the class.
    pub(super) fn claim_fresh_part(&self, home: u32, info: &ClassInfo, most: u32) -> Run {
        let end = self.layout.share_start(home + 1);
        let seen = self.fresh(home).load_relaxed();
        if seen >= end || end - seen < info.slabs {
            return Run::NONE;
        }
        let wanted = if end - seen < most { (end - seen) / info.slabs * info.slabs } else { most };
        self.claim_fresh(home, wanted)
    }

    /// Takes `slabs` slabs in a row of a home's share, all or none.
    pub(super) fn claim_fresh_row(&self, home: u32, slabs: u32) -> Run {
        if self.fresh_left(home) < slabs { Run::NONE } else { self.claim_fresh(home, slabs) }
    }

    /// Slabs of a home's share that no one has had.
    pub(super) fn fresh_left(&self, home: u32) -> u32 {
        self.layout.share_start(home + 1).saturating_sub(self.fresh(home).load_relaxed())
    }

    /// Whether there are some.
    pub(super) fn has_fresh(&self, home: u32) -> bool {
        self.fresh_left(home) > 0
    }

    /// Puts every slab that no one has had in the free set, for large allocations to find. Whether there were any.
    #[cold]
    #[inline(never)]
    pub(super) fn release_fresh(&self) -> bool {
        let mut any = false;
        for home in 0..self.layout.homes {
            if self.has_fresh(home) {
                let first = self.fresh(home).swap_relaxed(self.layout.share_start(home + 1));
                self.give_tail(home, first);
                any = true;
            }
        }
        any
    }
}
