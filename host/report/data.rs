//! A report: its figures, and the live blocks that hold the memory.

use super::space::{Cell, Space};
use serde::Serialize;

/// The state of an allocator at one moment, and for a failed allocation its cause.
///
/// [`DeviceAllocator::report`](crate::host_pools::DeviceAllocator::report) and
/// [`Heap::report`](crate::device_pools::Heap::report) return it at any time. Errors of failed
/// allocations carry it if [`report_out_of_memory`](super::report_out_of_memory) is on
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
pub(super) fn count(number: u64, noun: &str) -> String {
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
    /// `1 - largest_free_bytes / free_bytes`: 0 if all free memory is one range, if nothing is
    /// free, or if the largest range is not known.
    pub fn fragmentation(&self) -> f64 {
        match (self.free_bytes, self.largest_free_bytes) {
            (0, _) | (_, None) => 0.0,
            (free, Some(largest)) => 1.0 - (largest as f64 / free as f64).min(1.0),
        }
    }
}
