//! Reports of allocators: what is in use, what is free, what holds the memory, and what to do.
//!
//! `space` finds the free ranges and draws the addresses, `data` has the figures, `holders` groups
//! the live blocks, `display` prints, and `advice` derives the cause of a failure. Allocators make
//! reports with the methods here. `setting` says whether failed allocations carry one.

mod advice;
mod data;
mod display;
mod holders;
mod setting;
mod space;
#[cfg(test)]
mod tests;

pub(crate) use data::Withheld;
pub use data::{FailedRequest, HeldBy, Holder, MemoryReport};
use holders::Holders;
pub use setting::report_out_of_memory;
pub(crate) use setting::{Explanation, explanation, unexplained};
pub use space::Cell;
pub(crate) use space::{Extent, Space};

use crate::usage::Usage;
use std::hash::Hash;

impl MemoryReport {
    /// A report with the figures that every allocator has.
    pub(crate) fn new(allocator: impl Into<String>, usage: Usage) -> MemoryReport {
        MemoryReport {
            allocator: allocator.into(),
            used_bytes: usage.used_bytes,
            reserved_bytes: usage.reserved_bytes,
            free_bytes: usage.reserved_bytes.saturating_sub(usage.used_bytes),
            largest_free_bytes: usage.largest_free_bytes,
            ..MemoryReport::default()
        }
    }

    /// Adds the addresses: the free ranges, and the picture of `used` ([`Space::picture`]).
    pub(crate) fn with_space(
        mut self,
        space: Space,
        used: impl IntoIterator<Item = (Extent, u64)>,
    ) -> MemoryReport {
        let free = space.free();
        self.free_bytes = free.bytes;
        self.withheld_bytes = self.reserved_bytes.saturating_sub(self.used_bytes.saturating_add(free.bytes));
        self.largest_free_bytes = Some(free.largest);
        self.free_ranges = Some(free.ranges);
        self.picture = space.picture(used);
        self.space = Some(space);
        self
    }

    /// Groups live blocks by a key. Each item has neighbouring blocks of one piece: the key, their
    /// start, their number and their bytes. `named`: see [`Holders::finish`].
    pub(crate) fn held_by<K: Eq + Hash>(
        mut self,
        held_by: HeldBy,
        blocks: impl IntoIterator<Item = (K, u64, u64, u64)>,
        named: impl Fn(K) -> (String, Option<u64>),
    ) -> MemoryReport {
        let mut holders = Holders::new(self.space.as_ref());
        for (key, start, blocks, bytes) in blocks {
            holders.add(key, start, (blocks, bytes));
        }
        self.holders = holders.finish(named);
        self.held_by = held_by;
        self
    }

    /// Groups live blocks by their size: start and bytes of each.
    pub(crate) fn held_by_size(self, blocks: impl IntoIterator<Item = (u64, u64)>) -> MemoryReport {
        let keyed = blocks.into_iter().map(|(start, bytes)| (bytes.max(1).ilog2(), start, 1, bytes));
        self.held_by(HeldBy::Size, keyed, |exponent| (holders::doubling(exponent), None))
    }

    /// Makes it the report of a failed allocation.
    pub(crate) fn of_failure(mut self, request: FailedRequest) -> MemoryReport {
        self.request = Some(request);
        self.concluded()
    }

    /// Writes the advice that follows from the figures.
    pub(crate) fn concluded(mut self) -> MemoryReport {
        self.advice = advice::advice(&self);
        self
    }
}
