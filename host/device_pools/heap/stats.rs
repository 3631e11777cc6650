//! Statistics of a heap.
//!
//! `usage.reserved = live + large + quarantined + free_block + slack + free_slab + fresh`,
//! all in bytes.

use super::debug::Debugged;
use crate::usage::Usage;
use serde::Serialize;
use warpheap_device::heap::class::SizeClass;
use warpheap_device::heap::{self, FreeSlab, HeapLayout, LargeAudit, RunAudit, Violation, Visitor};

/// Statistics of a heap. Bytes are those of blocks and slabs, not of the requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HeapStats {
    /// `used_bytes` counts live blocks, including large ones. `reserved_bytes` counts mapped
    /// memory. `largest_free_bytes` is the largest size that one allocation may get: consecutive
    /// slabs without a live block, or a block of a size class.
    pub usage: Usage,
    /// Maximum size of the heap in bytes, a multiple of the slab size. It can grow to this size.
    pub max_bytes: u64,
    /// Bytes per slab.
    pub slab_bytes: u64,
    /// Number of live blocks, including large allocations.
    pub live_blocks: u64,
    /// Bytes of the live blocks of size classes.
    pub live_bytes: u64,
    /// Number of large allocations, which take entire slabs.
    pub large_blocks: u64,
    /// Bytes of the large allocations.
    pub large_bytes: u64,
    /// Freed blocks that a debug heap keeps in quarantine. They are not live.
    pub quarantined_blocks: u64,
    /// Bytes of the blocks in quarantine.
    pub quarantined_bytes: u64,
    /// Bytes of the free blocks of runs. Any thread can allocate them, from their class. When all
    /// blocks of a run are free, other classes can take its slabs.
    pub free_block_bytes: u64,
    /// Unused bytes after the last block of a run.
    pub slack_bytes: u64,
    /// Bytes of free slabs that were used before.
    pub free_slab_bytes: u64,
    /// Bytes of slabs that were never used since the heap was built or reset.
    pub fresh_bytes: u64,
    /// All bytes that can be allocated: free and fresh slabs, free blocks, and the slack of runs
    /// without a live block.
    pub free_bytes: u64,
    /// `1 - usage.largest_free_bytes / free_bytes`; 0 if nothing is free.
    pub fragmentation: f64,
    /// High-water mark: bytes of slabs that were in use at any time since the heap was built or
    /// reset. An upper bound of the bytes in use at one time.
    pub high_water_bytes: u64,
    /// Failed allocations by kernels and by the host since the heap was built or reset, modulo
    /// 2^32.
    pub failed_allocations: u64,
    /// Those of them that gave up after many attempts, none of which proved that there was no
    /// memory. Modulo 2^32.
    pub contended_failures: u64,
    /// Bytes of the last failed allocation, rounded up to the size class if it has one (not in a
    /// debug heap); 0 if there is none.
    pub last_failed_bytes: u64,
    /// Number of faults, including failed allocations of the global allocator: [`Faults::count`].
    ///
    /// [`Faults::count`]: crate::device_pools::Faults::count
    pub faults: u64,
    /// The classes with slabs, smallest first.
    pub classes: Vec<HeapClassStats>,
}

/// Statistics of a size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HeapClassStats {
    /// Bytes per block.
    pub class_bytes: u64,
    /// Number of slabs of the class.
    pub slabs: u32,
    /// Number of live blocks.
    pub live_blocks: u64,
    /// Freed blocks that a debug heap keeps in quarantine.
    pub quarantined_blocks: u64,
    /// Number of free blocks.
    pub free_blocks: u64,
}

/// Accumulates statistics during the walk.
pub(super) struct Tally<'a> {
    layout: HeapLayout,
    stats: HeapStats,
    debugged: Option<&'a Debugged>,
    /// Consecutive slabs without a live block: the end and the number of slabs.
    row: (u32, u32),
    longest_row: u32,
    /// The longest part of a row in one word of the set of free slabs, as a run of a class is.
    longest_in_word: u32,
    /// The largest class with a free block.
    largest_block: u32,
}

impl<'a> Tally<'a> {
    pub fn new(layout: &HeapLayout, present: u32, debugged: Option<&'a Debugged>) -> Tally<'a> {
        let slab_bytes = layout.slab_bytes().into();
        let class = |class: u32| HeapClassStats {
            class_bytes: SizeClass(class).bytes().into(),
            ..HeapClassStats::default()
        };
        let stats = HeapStats {
            usage: Usage { reserved_bytes: u64::from(present) * slab_bytes, ..Usage::default() },
            max_bytes: layout.bytes(),
            slab_bytes,
            classes: (0..layout.classes).map(class).collect(),
            ..HeapStats::default()
        };
        let row = (0, 0);
        Tally { layout: *layout, stats, debugged, row, longest_row: 0, longest_in_word: 0, largest_block: 0 }
    }

    pub fn finish(mut self, faults: u64, heap: &heap::Heap) -> HeapStats {
        let mut stats = std::mem::take(&mut self.stats);
        let largest = self.largest_free(stats.slab_bytes);
        if stats.free_bytes > 0 {
            stats.fragmentation = 1.0 - largest as f64 / stats.free_bytes as f64;
        }
        stats.usage.used_bytes = stats.live_bytes + stats.large_bytes;
        stats.usage.largest_free_bytes = Some(largest);
        stats.high_water_bytes = stats.usage.reserved_bytes.saturating_sub(stats.fresh_bytes);
        stats.faults = faults;
        stats.failed_allocations = heap.failures().into();
        stats.contended_failures = heap.contended_failures().into();
        stats.last_failed_bytes = heap.last_failed_bytes();
        stats.classes.retain(|class| class.slabs > 0);
        stats
    }

    /// A row of slabs larger than the largest class is allocated as one piece. A smaller size takes
    /// a run of its class, in one word of the set of free slabs.
    fn largest_free(&self, slab_bytes: u64) -> u64 {
        let row = u64::from(self.longest_row) * slab_bytes;
        if row > self.layout.small_bytes.into() {
            return row;
        }
        let classes = (0..self.layout.classes).map(|class| self.layout.class(SizeClass(class)));
        let in_row = classes.filter(|info| info.slabs <= self.longest_in_word).map(|info| info.bytes).max();
        in_row.unwrap_or(0).max(self.largest_block).into()
    }

    fn is_quarantined(&self, start: u64) -> bool {
        self.debugged.is_some_and(|debugged| debugged.is_quarantined(start))
    }

    /// Adds slabs without a live block to the current row.
    fn extend_row(&mut self, slab: u32, slabs: u32) {
        let before = if self.row.0 == slab { self.row.1 } else { 0 };
        self.row = (slab + slabs, before + slabs);
        self.longest_row = self.longest_row.max(self.row.1);
        let (end, len) = self.row;
        for word in slab / u32::BITS..end.div_ceil(u32::BITS) {
            let (first, last) = (word * u32::BITS, (word + 1) * u32::BITS);
            self.longest_in_word = self.longest_in_word.max(end.min(last) - first.max(end - len));
        }
    }
}

impl Visitor for Tally<'_> {
    fn violation(&mut self, _: Violation) {}

    fn run(&mut self, run: &RunAudit<'_>) {
        let quarantined = run.live_blocks().filter(|start| self.is_quarantined(*start)).count() as u32;
        let live = run.live - quarantined;
        let (info, stats) = (&run.info, &mut self.stats);
        let bytes = |blocks: u32| u64::from(blocks) * u64::from(info.bytes);
        let slack = u64::from(info.slabs) * stats.slab_bytes - bytes(info.blocks);
        stats.live_blocks += u64::from(live);
        stats.live_bytes += bytes(live);
        stats.quarantined_blocks += u64::from(quarantined);
        stats.quarantined_bytes += bytes(quarantined);
        stats.free_block_bytes += bytes(run.free);
        stats.slack_bytes += slack;
        stats.free_bytes += bytes(run.free);
        let class = &mut stats.classes[run.class.0 as usize];
        class.slabs += info.slabs;
        class.live_blocks += u64::from(live);
        class.quarantined_blocks += u64::from(quarantined);
        class.free_blocks += u64::from(run.free);
        if run.live == 0 {
            stats.free_bytes += slack;
            self.extend_row(run.slab, info.slabs);
        } else if run.live < info.blocks {
            self.largest_block = self.largest_block.max(info.bytes);
        }
    }

    fn large(&mut self, large: LargeAudit) {
        let bytes = u64::from(large.slabs) * self.stats.slab_bytes;
        if self.is_quarantined(large.address) {
            self.stats.quarantined_blocks += 1;
            self.stats.quarantined_bytes += bytes;
            return;
        }
        self.stats.live_blocks += 1;
        self.stats.large_blocks += 1;
        self.stats.large_bytes += bytes;
    }

    fn free(&mut self, slab: u32, place: FreeSlab) {
        let stats = &mut self.stats;
        match place {
            FreeSlab::Used => stats.free_slab_bytes += stats.slab_bytes,
            FreeSlab::Fresh => stats.fresh_bytes += stats.slab_bytes,
            FreeSlab::Withheld | FreeSlab::Lost => return,
        }
        stats.free_bytes += stats.slab_bytes;
        self.extend_row(slab, 1);
    }
}
