//! Which blocks and which part of the time are exported.

use super::rows::Row;
use warpheap::host_pools::LogRecord;

/// Selects blocks by their allocation, and a part of the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Smallest size in bytes.
    pub min_size: Option<u64>,
    /// Largest size in bytes.
    pub max_size: Option<u64>,
    /// Start, in nanoseconds after the first row of the log. Blocks that are live then are
    /// allocated at this time.
    pub from: Option<u64>,
    /// End, in nanoseconds after the first row of the log.
    pub to: Option<u64>,
    /// Streams of the allocations, as in the log. Empty for all.
    pub streams: Vec<u64>,
    /// Tags. Empty for all, also for blocks without a tag.
    pub tags: Vec<String>,
}

impl Filter {
    /// Whether the block of an allocation is exported.
    pub(super) fn accepts(&self, row: &Row) -> bool {
        let LogRecord { size, stream, tag, .. } = row.record();
        let has_size =
            self.min_size.is_none_or(|min| *size >= min) && self.max_size.is_none_or(|max| *size <= max);
        let has_tag = || tag.as_ref().is_some_and(|tag| self.tags.iter().any(|one| **one == **tag));
        has_size
            && (self.streams.is_empty() || self.streams.contains(stream))
            && (self.tags.is_empty() || has_tag())
    }
}
