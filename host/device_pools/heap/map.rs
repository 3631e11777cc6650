//! The map of a heap: what each slab contains, and the spans of the cursors, at one moment. It is
//! serialisable; `docs/guide/map.md` documents the fields of its JSON form.
//!
//! Invariants of a map, which [`HeapMap::validate`] checks:
//! - M1. The parts are in address order, without gaps and overlaps. They cover the heap.
//! - M2. A run has at least one block, its blocks fit into its slabs, and its free and quarantined
//!   blocks are at most its blocks.
//! - M3. A span lies in the heap.

mod build;
mod totals;
mod validate;

pub use totals::MapTotals;
pub use validate::InvalidMap;

use serde::{Deserialize, Serialize};

/// What each slab of a heap contained at one moment, from
/// [`HeapSnapshot::map`](super::HeapSnapshot::map).
///
/// ```
/// use warpheap::Device;
/// use warpheap::device_pools::{Heap, HeapMap};
///
/// let heap = Heap::builder(1 << 20).build(&Device::cpu())?;
/// let map = heap.snapshot()?.map("after the first phase");
/// let json = serde_json::to_string(&map)?;
/// let read: HeapMap = serde_json::from_str(&json)?;
/// read.validate()?;
/// assert_eq!(read.totals().free_bytes, 1 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// `warpheap map FILE` draws such a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HeapMap {
    /// [`HeapMap::SCHEMA`]. Its number changes if a program that reads the older form would
    /// misunderstand the newer one. Readers ignore fields that they do not know.
    pub schema: String,
    /// A name for the moment, for people.
    pub label: String,
    /// The moment, in seconds since 1970-01-01 00:00 UTC.
    pub unix_seconds: u64,
    /// Nanoseconds of the moment after `unix_seconds`.
    #[serde(default)]
    pub subsec_nanos: u32,
    /// Maximum size of the heap: `HeapStats::max_bytes`.
    pub heap_bytes: u64,
    /// Bytes per slab, a power of two.
    pub slab_bytes: u64,
    /// Mapped memory. It is less than `heap_bytes` in a heap that can still grow.
    pub mapped_bytes: u64,
    /// Failed allocations since the heap was built or reset, modulo 2^32.
    pub failed_allocations: u64,
    /// Bytes of the last of them, rounded up to the size class if it has one; 0 if there is none or
    /// the size is not known.
    #[serde(default)]
    pub last_failed_bytes: u64,
    /// Faults of kernels.
    pub faults: u64,
    /// What the slabs contain, in address order. Each slab is in one part.
    pub parts: Vec<MapPart>,
    /// The spans of cursors and their rings: where allocations look for free blocks first.
    pub spans: Vec<MapSpan>,
}

/// Consecutive slabs of a heap with the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MapPart {
    /// The first slab. Slab `i` begins `i * slab_bytes` after the start of the heap.
    pub first_slab: u32,
    /// The number of slabs.
    pub slabs: u32,
    /// What they contain.
    #[serde(flatten)]
    pub content: SlabContent,
}

/// What consecutive slabs contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[non_exhaustive]
pub enum SlabContent {
    /// Nothing, since the heap was built or reset.
    Fresh,
    /// Nothing now; they were used before.
    Free,
    /// Nothing: no memory is mapped there yet.
    Unmapped,
    /// One run of a size class.
    Run {
        /// Bytes per block.
        block_bytes: u64,
        /// Number of blocks.
        blocks: u32,
        /// Number of free blocks.
        free_blocks: u32,
        /// Freed blocks that a debug heap keeps in quarantine. They are neither free nor live.
        #[serde(default)]
        quarantined_blocks: u32,
    },
    /// One large allocation.
    Large {
        /// Its size in whole slabs.
        bytes: u64,
        /// Whether it was freed and is in the quarantine of a debug heap.
        #[serde(default)]
        is_quarantined: bool,
    },
    /// Contradictory metadata: neither in use nor free. `HeapSnapshot::check` reports the violated
    /// invariants.
    Unknown,
}

/// A span of a cursor: consecutive slabs in which it looks for free blocks. A span is a hint: its
/// blocks are free until they are allocated, and other classes may have taken some of its slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MapSpan {
    /// Bytes per block of the cursor's size class.
    pub block_bytes: u64,
    /// The shard of the cursor.
    pub shard: u32,
    /// The first slab.
    pub first_slab: u32,
    /// The number of slabs.
    pub slabs: u32,
    /// Whether the cursor allocates from this span now. Otherwise its ring has the span for later.
    pub is_current: bool,
}

impl HeapMap {
    /// The schema of the maps that this version writes and reads.
    pub const SCHEMA: &str = "warpheap-heap-map/1";

    /// Number of slabs.
    pub fn slabs(&self) -> u64 {
        self.heap_bytes.checked_div(self.slab_bytes).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
