//! Reports of allocators: what is in use, what is free, what holds the memory, and what to do.
//!
//! Allocators make reports with the methods here. `space` finds the free ranges and draws the
//! addresses, `display` prints, `advice` derives the cause of a failure, and `setting` says whether
//! failed allocations carry a report.

use crate::bytes::Bytes;
use crate::usage::Usage;
use serde::Serialize;
pub use setting::report_out_of_memory;
pub(crate) use setting::{Explanation, explanation, unexplained};
pub use space::Cell;
pub(crate) use space::{Extent, Space};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

mod advice;
mod display;
mod setting;
mod space;
#[cfg(test)]
mod tests;

/// The state of an allocator at one moment, and for a failed allocation its cause.
///
/// [`DeviceAllocator::report`](crate::host_pools::DeviceAllocator::report) and
/// [`Heap::report`](crate::device_pools::Heap::report) return it at any time. Errors of failed
/// allocations carry it if [`report_out_of_memory`] is on
/// ([`Error::report`](crate::Error::report)). While other threads allocate, the figures are not a
/// snapshot of one moment.
///
/// `Display` prints all of it in some 20 lines, without a newline at the end. Its alternate form
/// (`{report:#}`) is one line: the figures and the first sentence of the advice. Control characters
/// in names are escaped.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MemoryReport {
    /// The allocator: its kind, and its name if it has one.
    pub allocator: String,
    /// The failed allocation, if the report explains one.
    pub request: Option<FailedRequest>,
    /// Number of failed allocations so far, if the allocator counts them. A device heap counts from
    /// its last reset.
    pub failed_allocations: Option<u64>,
    /// Bytes of the last of them, if it is known. In a device heap, rounded up to the size class.
    pub last_failed_bytes: Option<u64>,
    /// Bytes of live blocks, including rounding.
    pub used_bytes: u64,
    /// Bytes that the allocator holds, used or free.
    pub reserved_bytes: u64,
    /// Limit of the used and of the reserved bytes, if there is one.
    pub limit_bytes: Option<u64>,
    /// What counts towards the limit, if it is not the reserved bytes: the requested sizes of the
    /// blocks allocated through a [`Limit`](crate::host_pools::Limit), or the used bytes of a
    /// [`DriverPool`](crate::host_pools::DriverPool).
    pub limited_bytes: Option<u64>,
    /// Bytes of the free ranges. If the addresses are not known: reserved minus used bytes.
    pub free_bytes: u64,
    /// Other bytes that are not in use: free blocks that serve one size class only, padding, the
    /// quarantine of a debug heap, and in a bump pool freed blocks until its reset.
    pub withheld_bytes: u64,
    /// The largest of the free ranges, if it is known.
    pub largest_free_bytes: Option<u64>,
    /// Number of free ranges, if the addresses are known: each lies between two used pieces.
    pub free_ranges: Option<u64>,
    /// The device's free memory after the failure, if the driver failed the allocation.
    pub device_free_bytes: Option<u64>,
    /// The device's memory, in the same case.
    pub device_total_bytes: Option<u64>,
    /// The addresses that the allocator holds, in at most 64 cells of equal size, in address order.
    /// Empty if they are not known.
    pub picture: Vec<Cell>,
    /// What groups the holders.
    pub held_by: HeldBy,
    /// Groups of live blocks, those with the most bytes first.
    pub holders: Vec<Holder>,
    /// The cause of the failure, and what to do: one sentence each.
    pub advice: Vec<String>,
    /// Why the withheld bytes are not free: the end of a sentence.
    #[serde(skip)]
    pub(crate) withheld: Withheld,
    /// The addresses, for adaptors that group the blocks in another way.
    #[serde(skip)]
    pub(crate) space: Option<Space>,
}

/// A failed allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FailedRequest {
    /// The requested size.
    pub bytes: u64,
    /// The requested alignment.
    pub align: u64,
    /// The tag of the thread that requested it.
    pub tag: Option<String>,
}

/// Why bytes that are not in use are in no free range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Withheld {
    /// They are in slabs or runs of a size class.
    #[default]
    InClasses,
    /// They are in runs of a size class, or in the quarantine of a debug heap.
    InQuarantine,
    /// A bump pool frees them by a reset.
    UntilReset,
}

/// `1 block`, or `2 blocks`.
fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// What groups the live blocks of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum HeldBy {
    /// Their size, in doublings.
    #[default]
    Size,
    /// Their size class in a device heap.
    Class,
    /// The tag that they were allocated with ([`Tagged`](crate::host_pools::Tagged)).
    Tag,
    /// The call in the source code that allocated them, in a debug heap.
    Site,
}

/// Live blocks that have the same tag, site, class or size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Holder {
    /// The tag, the site, the class, or the range of sizes.
    pub name: String,
    /// Number of live blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blocks with the same tag that were freed, if they were counted.
    pub freed: Option<u64>,
    /// Number of free ranges that end where one of these blocks begins. Without these blocks, the
    /// ranges would be larger.
    pub ends_free_ranges: u64,
}

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
        self.held_by(HeldBy::Size, keyed, |exponent| (doubling(exponent), None))
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

    /// `1 - largest_free_bytes / free_bytes`: 0 if all free memory is one range, if nothing is
    /// free, or if the largest range is not known.
    pub fn fragmentation(&self) -> f64 {
        match (self.free_bytes, self.largest_free_bytes) {
            (0, _) | (_, None) => 0.0,
            (free, Some(largest)) => 1.0 - (largest as f64 / free as f64).min(1.0),
        }
    }
}

// Groups live blocks by a key.

/// Groups of blocks, and for each the free ranges that end at one of them.
pub(crate) struct Holders<'a, K> {
    space: Option<&'a Space>,
    /// The starts of pieces before which a free range ends.
    gap_ends: HashSet<u64>,
    holders: HashMap<K, Group>,
}

#[derive(Default)]
struct Group {
    blocks: u64,
    bytes: u64,
    /// The pieces with these blocks before which a free range ends.
    pieces: HashSet<u64>,
}

impl<'a, K: Eq + Hash> Holders<'a, K> {
    pub fn new(space: Option<&'a Space>) -> Holders<'a, K> {
        let gap_ends = space.map(Space::gap_ends).unwrap_or_default().into_iter().collect();
        Holders { space, gap_ends, holders: HashMap::new() }
    }

    /// Adds live blocks of one piece: their number and bytes.
    pub fn add(&mut self, key: K, start: u64, (blocks, bytes): (u64, u64)) {
        let piece = self.space.and_then(|space| space.piece_of(start)).map(|piece| piece.start);
        let ended = piece.filter(|start| self.gap_ends.contains(start));
        let group = self.holders.entry(key).or_default();
        group.blocks = group.blocks.saturating_add(blocks);
        group.bytes = group.bytes.saturating_add(bytes);
        group.pieces.extend(ended);
    }

    /// The groups, those with the most bytes first, then by name. `named` returns the name of a
    /// group, and the number of its blocks that were freed, if it is known.
    pub fn finish(self, named: impl Fn(K) -> (String, Option<u64>)) -> Vec<Holder> {
        let holder = |(key, Group { blocks, bytes, pieces })| {
            let (name, freed) = named(key);
            Holder { name, blocks, bytes, freed, ends_free_ranges: pieces.len() as u64 }
        };
        let mut holders: Vec<_> = self.holders.into_iter().map(holder).collect();
        holders.sort_by(|a, b| Reverse(a.bytes).cmp(&Reverse(b.bytes)).then_with(|| a.name.cmp(&b.name)));
        holders
    }
}

/// The name of the doubling that begins with 2 to the power of `exponent`, such as `1.0 MiB to 2.0
/// MiB`.
fn doubling(exponent: u32) -> String {
    let from = 1_u64.checked_shl(exponent).unwrap_or(u64::MAX);
    format!("{:#} to {:#}", Bytes(from), Bytes(from.saturating_mul(2)))
}
