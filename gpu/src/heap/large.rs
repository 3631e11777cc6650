//! Allocations of whole slabs, for what no class serves.

use super::entry::Entry;
use super::layout::WORD_BITS;
use super::sets::Run;
use super::{FREE_LARGE, Heap, POLL_NANOS, STORE_LARGE};
use crate::fault::FaultCheck;
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;
use crate::thread;

/// How often all slabs are looked through for a large allocation, while others take some of those found.
const PASSES: u32 = if NATIVE_LAYOUT { 16 } else { 2 };

impl Heap {
    /// The address of `size` bytes in slabs of their own; 0 if there are not as many in a row.
    pub(super) fn alloc_large(&self, size: u64, align: u64) -> u64 {
        let slab_bytes = u64::from(self.layout.slab_bytes());
        if size > self.layout.bytes() || align > super::MAX_ALIGN {
            return 0;
        }
        let len = size.div_ceil(slab_bytes) as u32;
        let step = (align.div_ceil(slab_bytes) as u32).max(1);
        if step == 1 {
            let run = self.claim_fresh_row(self.shard(), len);
            if run.len > 0 {
                return self.make_large(run);
            }
        }
        for pass in 0..PASSES {
            let run = self.claim_aligned(len, step);
            if run.len > 0 {
                return self.make_large(run);
            }
            // What no one has had, then what can be made free, then all that cursors hold.
            let alone = Group::alone();
            let any = self.release_fresh() || self.sweep_all(alone) || self.close_all(alone);
            if !any && pass > 0 {
                return 0;
            }
            thread::nanosleep(POLL_NANOS);
        }
        0
    }

    /// Takes the first `len` free slabs in a row that start at a multiple of `step`.
    fn claim_aligned(&self, len: u32, step: u32) -> Run {
        let free = self.free_slabs();
        let mut first = 0;
        // Every turn moves on by a slab at least.
        while first + len <= self.layout.slabs {
            let there = free.len_at(first, len);
            if there == len {
                let run = free.claim_at(first, len);
                if run.len == len {
                    return run;
                }
                free.insert_run(run);
                first += run.len + 1;
            } else if there > 0 {
                first += there + 1;
            } else {
                // A word without slabs is passed over whole.
                let skipped = if free.is_clear_from(first) { WORD_BITS - first % WORD_BITS } else { 1 };
                first += skipped;
            }
            first = first.next_multiple_of(step);
        }
        Run::NONE
    }

    fn make_large(&self, run: Run) -> u64 {
        for slab in run.first + 1..run.first + run.len {
            // Relaxed: who frees the allocation has got it from the caller.
            self.entry(slab).store_relaxed(Entry::REST.0);
        }
        STORE_LARGE.delay();
        self.entry(run.first).store_relaxed(Entry::large(run.len).0);
        self.slab_address(run.first)
    }

    /// For an address in a slab that has no class: gives the allocation's slabs back.
    #[cold]
    #[inline(never)]
    pub(super) fn free_large(&self, slab: u32, address: u64) {
        let entry = Entry(self.entry(slab).load_relaxed());
        if entry == Entry::FREE {
            return self.misuse(FaultCheck::EntryWasFree, address);
        }
        let len = match entry.large_slabs() {
            Some(len) if address == self.slab_address(slab) => len,
            _ => return self.misuse(FaultCheck::NotAStart, address),
        };
        FREE_LARGE.delay();
        // Relaxed: of two that free it the CAS lets one go on; what the owner wrote goes with GIVE_SLAB.
        if self.entry(slab).cas_relaxed(entry.0, Entry::FREE.0).is_err() {
            return self.misuse(FaultCheck::EntryChanged, address);
        }
        self.give_slabs(Run { first: slab, len });
        self.forget_bare();
    }
}
