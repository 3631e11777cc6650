//! The data of a timeline: events, their blocks, and what the rows of a log contained.

use serde::{Serialize, Serializer};
use std::ops::Deref;
use std::sync::Arc;

/// A change of a block, or a failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Nanoseconds, as in the log.
    pub time: u64,
    /// What happened.
    pub kind: EventKind,
    /// The calling thread, as in the log.
    pub thread: u64,
    /// The stream of the call, as in the log.
    pub stream: u64,
    /// The block. For a failed call without a live block, the requested one.
    pub block: Block,
}

/// What happened to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// It was allocated. Blocks that are live at the start of the filter are allocated then.
    Alloc,
    /// It was freed.
    Free,
    /// Its address was allocated again, without a free in the log.
    Lost,
    /// The allocation failed.
    AllocFailure,
    /// The free failed.
    FreeFailure,
}

impl Event {
    /// The allocation of `block`, shown at `time`.
    pub(super) fn alloc(time: u64, block: &Block) -> Event {
        let Block { thread, stream, .. } = *block;
        Event { time, kind: EventKind::Alloc, thread, stream, block: block.clone() }
    }
}

/// An allocated block.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Block {
    /// Number of the block, from 1. No two blocks of a log have the same.
    pub id: u64,
    /// Its address.
    pub address: u64,
    /// Requested bytes.
    pub bytes: u64,
    /// Requested alignment.
    pub align: u64,
    /// The thread that allocated it, as in the log.
    pub thread: u64,
    /// The stream that it was allocated on, as in the log.
    pub stream: u64,
    /// Time of the allocation in nanoseconds, as in the log.
    pub allocated: u64,
    /// Its name.
    pub tag: Option<Tag>,
}

/// The name of an allocation. Blocks with the same tag share its text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tag(pub(super) Arc<str>);

impl Deref for Tag {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Serialize for Tag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

/// What the rows so far contained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventsSummary {
    /// Rows.
    pub rows: u64,
    /// Allocations.
    pub allocations: u64,
    /// Frees of live blocks.
    pub frees: u64,
    /// Failed calls.
    pub failures: u64,
    /// Calls of zero bytes, which are not exported.
    pub empty: u64,
    /// Frees of addresses that were not live, which are not exported.
    pub unmatched_frees: u64,
    /// Allocations of a live address. The earlier block ends there.
    pub allocated_twice: u64,
    /// Exported events.
    pub events: u64,
    /// The largest number of live blocks, exported or not.
    pub peak_live_blocks: usize,
    /// The largest number of rows in memory.
    pub most_held_rows: usize,
}
