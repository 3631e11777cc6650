//! Search: memory for a class when its cursor is exhausted and there is no run for a span.
//!
//! A search claims single blocks of listed runs, and proves that there are none: it unlists the
//! runs that it finds without free blocks. If no move by another thread overlapped the search, then
//! at its end no block of the class was free, and there were no slabs for a run of it.

use super::Heap;
use super::SEARCH_END;
use super::class::SizeClass;
use super::class_info::ClassInfo;
use super::index_set::{WORD_BITS, low_bits};
use super::moves::Before;

/// The multiplier of a hash: 2^32 by the golden ratio.
pub(super) const SCATTER: u32 = 0x9e37_79b9;

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The address of a block, which is the caller's.
    Block(u64),
    /// There is no memory for the class.
    Nothing,
    /// Other threads hold or move memory, or there is a run for a span: to be tried again.
    Unsure,
}

impl Heap {
    /// Searches for a free block of the class. Threads with different `salt` start at different
    /// runs and blocks.
    #[inline(never)]
    pub(super) fn search(&self, class: SizeClass, salt: u32) -> Found {
        let (runs, info) = (self.runs(), self.class(class));
        let (moves, common) = (self.overview().class(class), self.overview().common());
        let (mut before, mut common_before) = (moves.search(), common.search());
        let (start, end) = (self.layout.run_index(class, 0), self.layout.run_index(class, self.layout.slabs));
        let salt = salt.wrapping_mul(SCATTER);
        let middle = start + ((u64::from(salt) * u64::from(self.layout.slabs)) >> 32) as u32;
        for (mut from, to) in [(middle, end), (start, middle)] {
            while let Some(index) = runs.listed().next(from, to, common, &mut common_before) {
                let run = index - start;
                if let Some(block) = runs.claim_any(run, class, info, salt) {
                    return Found::Block(self.block_address(info, run, block));
                }
                if !runs.unlist(run, class, info, &mut before) {
                    return Found::Unsure;
                }
                from = index + 1;
            }
        }
        if self.has_run(info, &mut common_before) {
            self.retire_one(salt, info.slabs);
            return Found::Unsure;
        }
        // ordering: acquire; pairs with REMOVE, LOWER and `unlist`: the moves that hid memory from
        // the reads above, before the look at the moves.
        SEARCH_END.fence_acquire();
        let is_sure = moves.is_unchanged(before) && common.is_unchanged(common_before);
        if is_sure { Found::Nothing } else { Found::Unsure }
    }

    /// Whether there are free slabs for a run of the class, or runs that can be made free.
    pub(super) fn has_run(&self, info: &ClassInfo, before: &mut Before) -> bool {
        let idle = self.runs().idle();
        idle.next(0, self.layout.run_indices(), self.overview().common(), before).is_some()
            || self.free_slabs().has(info.slabs, before)
    }

    /// Makes the slabs of fully free runs free, `least` slabs or all that there are, starting at an
    /// index of the idle set. Returns whether there were any.
    #[cold]
    #[inline(never)]
    pub(super) fn retire_idle(&self, start: u32, least: u32) -> bool {
        let (runs, common) = (self.runs(), self.overview().common());
        let mut freed = 0;
        let mut ignored = common.search();
        for (mut from, to) in [(start, self.layout.run_indices()), (0, start)] {
            while freed < least {
                let Some(index) = runs.idle().next(from, to, common, &mut ignored) else { break };
                freed += self.retire(index, least - freed);
                from = (index / WORD_BITS + 1) * WORD_BITS;
            }
        }
        freed > 0
    }

    /// Makes the slabs of fully free runs free, of one word of the idle set that depends on `salt`,
    /// or removes from that word the runs that are not fully free.
    fn retire_one(&self, salt: u32, least: u32) {
        let (idle, common, end) = (self.runs().idle(), self.overview().common(), self.layout.run_indices());
        let middle = ((u64::from(salt) * u64::from(end)) >> 32) as u32;
        let mut ignored = common.search();
        let mut next = |from, to| idle.next(from, to, common, &mut ignored);
        if let Some(index) = next(middle, end).or_else(|| next(0, middle)) {
            self.retire(index, least);
        }
    }

    /// Makes the slabs of fully free runs free: of those in one word of the idle set, from an index
    /// on, `least` slabs or more. Returns how many.
    fn retire(&self, index: u32, least: u32) -> u32 {
        let (class, run) = self.layout.run_at(index);
        let (info, runs, w) = (self.class(class), self.runs(), index / WORD_BITS);
        let bits = runs.idle().word(w).load_relaxed() >> (index % WORD_BITS) << (index % WORD_BITS);
        let (mut rest, mut bits) = (runs.sweep(class, info, w, bits), 0_u32);
        while rest != 0 && bits.count_ones() * info.slabs < least {
            bits |= rest & rest.wrapping_neg();
            rest &= rest - 1;
        }
        if bits == 0 {
            return 0;
        }
        let mut taken = 0;
        self.overview().common().during(|| {
            self.overview().class(class).during(|| {
                taken = runs.retire(class, info, w, bits);
                let (mut mask, mut rest) = (0, taken);
                while rest != 0 {
                    mask |= u64::from(low_bits(info.slabs)) << rest.trailing_zeros();
                    rest &= rest - 1;
                }
                self.free_slabs().insert_mask(run / WORD_BITS * WORD_BITS, mask);
            });
        });
        taken.count_ones() * info.slabs
    }
}
