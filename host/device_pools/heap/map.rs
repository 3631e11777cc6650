//! The map of a heap: what each slab contains, and the spans of the cursors, at one moment. It is
//! serialisable; `docs/guide/map.md` documents the fields of its JSON form.
//!
//! Invariants of a map, which [`HeapMap::validate`] checks:
//! - M1. The parts are in address order, without gaps and overlaps. They cover the heap.
//! - M2. A run has at least one block, its blocks fit into its slabs, and its free and quarantined
//!   blocks are at most its blocks.
//! - M3. A span lies in the heap.
//!
//! [`MapTotals`]: `mapped = live + quarantined + free_block + slack + free_slab + fresh + unknown`,
//! in bytes, as in [`HeapStats`](super::HeapStats).

#[cfg(test)]
mod tests;

use super::debug::Debugged;
use super::snapshot::HeapSnapshot;
use serde::{Deserialize, Serialize};
use std::time::SystemTime;
use warpheap_device::heap::{FreeSlab, LargeAudit, RunAudit, SpanAudit, Violation, Visitor};

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

impl HeapSnapshot {
    /// What each slab contains: the map of the heap, with a label for people. It can be serialised,
    /// and `warpheap map` draws it.
    #[must_use]
    pub fn map(&self, label: impl Into<String>) -> HeapMap {
        let stats = self.stats();
        let slab_bytes = stats.slab_bytes;
        let mut walk = Walk { slab_bytes, debugged: self.debugged(), next: 0, parts: vec![], spans: vec![] };
        self.audit(&mut walk);
        let taken = self.taken_at().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        walk.skip_to((stats.max_bytes / slab_bytes) as u32);
        HeapMap {
            schema: HeapMap::SCHEMA.into(),
            label: label.into(),
            unix_seconds: taken.as_secs(),
            subsec_nanos: taken.subsec_nanos(),
            heap_bytes: stats.max_bytes,
            slab_bytes,
            mapped_bytes: stats.usage.reserved_bytes,
            failed_allocations: stats.failed_allocations,
            last_failed_bytes: stats.last_failed_bytes,
            faults: stats.faults,
            parts: walk.parts,
            spans: walk.spans,
        }
    }
}

/// Collects the parts and the spans.
struct Walk<'a> {
    slab_bytes: u64,
    debugged: Option<&'a Debugged>,
    /// The slab after the last part.
    next: u32,
    parts: Vec<MapPart>,
    spans: Vec<MapSpan>,
}

impl Walk<'_> {
    fn is_quarantined(&self, start: u64) -> bool {
        self.debugged.is_some_and(|debugged| debugged.is_quarantined(start))
    }

    /// The audit visits no slab with contradictory metadata.
    fn skip_to(&mut self, slab: u32) {
        let slabs = slab.saturating_sub(self.next);
        if slabs > 0 {
            self.add(self.next, slabs, SlabContent::Unknown);
        }
    }

    /// Adds slabs. Those without a run or an allocation extend the last part if it is the same.
    fn add(&mut self, first_slab: u32, slabs: u32, content: SlabContent) {
        self.next = first_slab + slabs;
        let is_one_object = matches!(content, SlabContent::Run { .. } | SlabContent::Large { .. });
        match self.parts.last_mut() {
            Some(last) if last.content == content && !is_one_object => last.slabs += slabs,
            _ => self.parts.push(MapPart { first_slab, slabs, content }),
        }
    }

    fn visit(&mut self, first_slab: u32, slabs: u32, content: SlabContent) {
        self.skip_to(first_slab);
        self.add(first_slab, slabs, content);
    }
}

impl Visitor for Walk<'_> {
    fn violation(&mut self, _: Violation) {}

    fn run(&mut self, run: &RunAudit<'_>) {
        let quarantined = run.live_blocks().filter(|start| self.is_quarantined(*start)).count();
        let content = SlabContent::Run {
            block_bytes: run.info.bytes.into(),
            blocks: run.info.blocks,
            free_blocks: run.free,
            quarantined_blocks: quarantined as u32,
        };
        self.visit(run.slab, run.info.slabs, content);
    }

    fn large(&mut self, large: LargeAudit) {
        let bytes = u64::from(large.slabs) * self.slab_bytes;
        let is_quarantined = self.is_quarantined(large.address);
        self.visit(large.slab, large.slabs, SlabContent::Large { bytes, is_quarantined });
    }

    fn free(&mut self, slab: u32, place: FreeSlab) {
        let content = match place {
            FreeSlab::Fresh => SlabContent::Fresh,
            FreeSlab::Used => SlabContent::Free,
            FreeSlab::Withheld => SlabContent::Unmapped,
            FreeSlab::Lost => SlabContent::Unknown,
        };
        self.visit(slab, 1, content);
    }

    fn span(&mut self, span: SpanAudit) {
        let SpanAudit { class, shard, slab: first_slab, slabs, is_current } = span;
        let block_bytes = class.bytes().into();
        self.spans.push(MapSpan { block_bytes, shard, first_slab, slabs, is_current });
    }
}

/// Sums of a [`HeapMap`], in bytes of blocks and slabs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MapTotals {
    /// Live blocks, including large allocations.
    pub live_bytes: u64,
    /// Large allocations among them.
    pub large_bytes: u64,
    /// Number of live blocks, including large allocations.
    pub live_blocks: u64,
    /// Freed blocks that a debug heap keeps in quarantine.
    pub quarantined_bytes: u64,
    /// Free blocks of runs.
    pub free_block_bytes: u64,
    /// Unused bytes after the last block of a run.
    pub slack_bytes: u64,
    /// Free slabs that were used before.
    pub free_slab_bytes: u64,
    /// Slabs that were never used.
    pub fresh_bytes: u64,
    /// Slabs with contradictory metadata.
    pub unknown_bytes: u64,
    /// All bytes that can be allocated: free and fresh slabs, free blocks, and the slack of runs
    /// without a live block.
    pub free_bytes: u64,
    /// The largest free range: consecutive slabs without a live block, or, if there are none, the
    /// largest free block.
    pub largest_free_bytes: u64,
}

impl MapTotals {
    /// `1 - largest_free_bytes / free_bytes`: 0 if all free memory is one range, or if nothing is
    /// free.
    pub fn fragmentation(&self) -> f64 {
        match self.free_bytes {
            0 => 0.0,
            free => 1.0 - self.largest_free_bytes as f64 / free as f64,
        }
    }
}

impl MapPart {
    /// The slab after the part.
    pub fn end(&self) -> u32 {
        self.first_slab.saturating_add(self.slabs)
    }

    /// Whether an allocation of any size can get its slabs: they have memory, and neither a live
    /// block nor one in quarantine.
    pub fn is_free(&self) -> bool {
        match self.content {
            SlabContent::Fresh | SlabContent::Free => true,
            SlabContent::Run { blocks, free_blocks, .. } => free_blocks == blocks,
            SlabContent::Unmapped | SlabContent::Large { .. } | SlabContent::Unknown => false,
        }
    }
}

impl HeapMap {
    /// The sums of a valid map.
    pub fn totals(&self) -> MapTotals {
        let mut totals = MapTotals::default();
        let (mut row, mut longest_row, mut largest_block) = (0, 0, 0);
        for part in &self.parts {
            totals.add(part, self.slab_bytes);
            row = if part.is_free() { row + u64::from(part.slabs) } else { 0 };
            longest_row = longest_row.max(row);
            if let SlabContent::Run { block_bytes, free_blocks: 1.., .. } = part.content {
                largest_block = largest_block.max(block_bytes);
            }
        }
        totals.largest_free_bytes = match longest_row {
            0 => largest_block,
            slabs => u64::saturating_mul(slabs, self.slab_bytes),
        };
        totals
    }
}

impl MapTotals {
    /// Saturates, because the numbers of a map that was not validated may contradict each other.
    fn add(&mut self, part: &MapPart, slab_bytes: u64) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        let bytes = u64::from(part.slabs).saturating_mul(slab_bytes);
        match part.content {
            SlabContent::Fresh => add(&mut self.fresh_bytes, bytes),
            SlabContent::Free => add(&mut self.free_slab_bytes, bytes),
            SlabContent::Unmapped => {}
            SlabContent::Unknown => add(&mut self.unknown_bytes, bytes),
            SlabContent::Large { is_quarantined: true, .. } => add(&mut self.quarantined_bytes, bytes),
            SlabContent::Large { .. } => {
                add(&mut self.live_blocks, 1);
                add(&mut self.large_bytes, bytes);
                add(&mut self.live_bytes, bytes);
            }
            SlabContent::Run { block_bytes, blocks, free_blocks, quarantined_blocks } => {
                let live = blocks.saturating_sub(free_blocks).saturating_sub(quarantined_blocks);
                let of = |blocks: u32| u64::from(blocks).saturating_mul(block_bytes);
                add(&mut self.live_blocks, live.into());
                add(&mut self.live_bytes, of(live));
                add(&mut self.quarantined_bytes, of(quarantined_blocks));
                add(&mut self.free_block_bytes, of(free_blocks));
                add(&mut self.slack_bytes, bytes.saturating_sub(of(blocks)));
                add(&mut self.free_bytes, if part.is_free() { bytes } else { of(free_blocks) });
            }
        }
        if matches!(part.content, SlabContent::Fresh | SlabContent::Free) {
            add(&mut self.free_bytes, bytes);
        }
    }
}

/// The most slabs of a heap.
const MAX_SLABS: u64 = 1 << 22;
/// The largest slab is far smaller. With this limit, no sum of a map overflows.
const MAX_SLAB_BYTES: u64 = 1 << 30;

/// Why a map is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidMap {
    /// Another schema.
    #[error("its schema is `{found}`, but this version reads `{}`", HeapMap::SCHEMA)]
    Schema {
        /// The schema of the map.
        found: String,
    },
    /// The sizes contradict each other.
    #[error(
        "its sizes are no heap: {heap_bytes} bytes, {mapped_bytes} of them mapped, slabs of {slab_bytes} bytes"
    )]
    Sizes {
        /// `heap_bytes` of the map.
        heap_bytes: u64,
        /// `mapped_bytes` of the map.
        mapped_bytes: u64,
        /// `slab_bytes` of the map.
        slab_bytes: u64,
    },
    /// M1: a gap, an overlap, or a part outside the heap.
    #[error(
        "parts[{index}] has {slabs} slabs from slab {first_slab} on, but the part before it ends at slab {expected} and the heap at slab {end}"
    )]
    Order {
        /// The index of the part.
        index: usize,
        /// `first_slab` of the part.
        first_slab: u32,
        /// `slabs` of the part.
        slabs: u32,
        /// The end of the part before it.
        expected: u64,
        /// The number of slabs of the heap.
        end: u64,
    },
    /// M1: the parts do not cover the heap.
    #[error("its parts end at slab {found}, but the heap at slab {end}")]
    End {
        /// The end of the last part.
        found: u64,
        /// The number of slabs of the heap.
        end: u64,
    },
    /// M2: the numbers of a part contradict each other.
    #[error("parts[{index}], from slab {first_slab} on, contradicts itself: {content:?} in {slabs} slabs")]
    Content {
        /// The index of the part.
        index: usize,
        /// `first_slab` of the part.
        first_slab: u32,
        /// `slabs` of the part.
        slabs: u32,
        /// What it contains.
        content: SlabContent,
    },
    /// M3: a span outside the heap.
    #[error("spans[{index}] has {slabs} slabs from slab {first_slab} on, but the heap ends at slab {end}")]
    Span {
        /// The index of the span.
        index: usize,
        /// `first_slab` of the span.
        first_slab: u32,
        /// `slabs` of the span.
        slabs: u32,
        /// The number of slabs of the heap.
        end: u64,
    },
}

impl HeapMap {
    /// Checks a map that was read from a file. A map from a snapshot is valid.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn validate(&self) -> Result<(), InvalidMap> {
        if self.schema != Self::SCHEMA {
            return Err(InvalidMap::Schema { found: self.schema.clone() });
        }
        self.validate_sizes()?;
        let end = self.slabs();
        let mut expected = 0;
        for (index, part) in self.parts.iter().enumerate() {
            let MapPart { first_slab, slabs, content } = *part;
            let part_end = u64::from(first_slab) + u64::from(slabs);
            if u64::from(first_slab) != expected || slabs == 0 || part_end > end {
                return Err(InvalidMap::Order { index, first_slab, slabs, expected, end });
            }
            if !is_consistent(part, self.slab_bytes) {
                return Err(InvalidMap::Content { index, first_slab, slabs, content });
            }
            expected = part_end;
        }
        if expected != end {
            return Err(InvalidMap::End { found: expected, end });
        }
        let is_outside = |first: u32, slabs: u32| u64::from(first) + u64::from(slabs) > end;
        match self.spans.iter().enumerate().find(|(_, span)| is_outside(span.first_slab, span.slabs)) {
            Some((index, span)) => {
                Err(InvalidMap::Span { index, first_slab: span.first_slab, slabs: span.slabs, end })
            }
            None => Ok(()),
        }
    }

    fn validate_sizes(&self) -> Result<(), InvalidMap> {
        let HeapMap { heap_bytes, mapped_bytes, slab_bytes, .. } = *self;
        let are_whole = slab_bytes.is_power_of_two() && heap_bytes.is_multiple_of(slab_bytes);
        let are_small = slab_bytes <= MAX_SLAB_BYTES && (1..=MAX_SLABS).contains(&self.slabs());
        if are_whole && are_small && mapped_bytes <= heap_bytes {
            return Ok(());
        }
        Err(InvalidMap::Sizes { heap_bytes, mapped_bytes, slab_bytes })
    }
}

/// M2, and the size of a large allocation.
fn is_consistent(part: &MapPart, slab_bytes: u64) -> bool {
    let bytes = u64::from(part.slabs) * slab_bytes;
    match part.content {
        SlabContent::Run { block_bytes, blocks, free_blocks, quarantined_blocks } => {
            let in_blocks = block_bytes.checked_mul(blocks.into());
            let fits = in_blocks.is_some_and(|in_blocks| in_blocks > 0 && in_blocks <= bytes);
            fits && u64::from(free_blocks) + u64::from(quarantined_blocks) <= blocks.into()
        }
        SlabContent::Large { bytes: stated, .. } => stated == bytes,
        SlabContent::Fresh | SlabContent::Free | SlabContent::Unmapped | SlabContent::Unknown => true,
    }
}
