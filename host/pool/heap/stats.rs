//! What a heap holds, in numbers.
//!
//! `usage.reserved = live + large + quarantined + free_block + cursor + slack + free_slab + fresh`, all in
//! bytes.

use super::debug::Debugged;
use crate::alloc::Usage;
use serde::Serialize;
use warpheap_device::heap::class::SizeClass;
use warpheap_device::heap::{self, CursorAudit, FreeSlab, LargeAudit, Layout, RunAudit, Violation, Visitor};

/// What a heap holds. Bytes are those of blocks and slabs, not those that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HeapStats {
    /// Used are the bytes of live blocks, large ones among them; reserved is what has memory. The
    /// largest free piece is the largest size that one allocation may get: slabs without a live
    /// block, one after the other, or a block of a size class.
    pub usage: Usage,
    /// Bytes that the heap was built for, whole slabs: it can grow to that.
    pub max_bytes: u64,
    /// Bytes of a slab.
    pub slab_bytes: u64,
    /// Blocks that someone has, large allocations among them.
    pub live_blocks: u64,
    /// Bytes of the live blocks that have a size class.
    pub live_bytes: u64,
    /// Allocations of whole slabs.
    pub large_blocks: u64,
    /// Their bytes.
    pub large_bytes: u64,
    /// Blocks that were freed, and that a debug heap keeps in quarantine; they are not live.
    pub quarantined_blocks: u64,
    /// Their bytes.
    pub quarantined_bytes: u64,
    /// Blocks that were given back one by one, and that their class hands out again, or that become slabs when all of
    /// a run were given back.
    pub free_block_bytes: u64,
    /// Blocks that cursors hand out next.
    pub cursor_bytes: u64,
    /// What lies behind the last block of a run.
    pub slack_bytes: u64,
    /// Slabs that were used and are free.
    pub free_slab_bytes: u64,
    /// Slabs that no one has had since the heap was made or reset.
    pub fresh_bytes: u64,
    /// All that can be allocated, in pieces: free and fresh slabs, holes, what cursors have, and the slack of runs
    /// without a live block.
    pub free_bytes: u64,
    /// `1 - usage.largest_free_bytes / free_bytes`; 0 if nothing is free.
    pub fragmentation: f64,
    /// Bytes of slabs that were in use at some time since the heap was made or reset. It is an upper bound of what was
    /// in use at one time: also slabs that were put within reach of a large allocation count, those at the end of a heap that
    /// has not all of its memory, as far as they are a part of a home's share, and others stay counted.
    pub high_water_bytes: u64,
    /// How often slabs were looked for because a cursor had run dry.
    pub searches: u64,
    /// How often all of the heap was searched, and what cursors had made free for that. A warp that is refused memory of a
    /// size class has made such a search or waited for one, unless it gave up because others took each span before it came
    /// to it.
    pub proofs: u64,
    /// Requests that were refused, by kernels and by the host, since the heap was made or reset; modulo 2^32.
    pub refused: u64,
    /// Cursors whose last search found nothing.
    pub cursors_found_none: u64,
    /// What threads did wrong, and those that the global allocator refused memory: [`Faults::count`].
    ///
    /// [`Faults::count`]: crate::pool::Faults::count
    pub faults: u64,
    /// The classes that have slabs or had searches, smallest first.
    pub classes: Vec<HeapClassStats>,
}

/// What a size class holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HeapClassStats {
    /// Bytes of a block.
    pub class_bytes: u64,
    /// Slabs that are the class'.
    pub slabs: u32,
    /// Blocks that someone has.
    pub live_blocks: u64,
    /// Blocks that were freed, and that a debug heap keeps in quarantine.
    pub quarantined_blocks: u64,
    /// Blocks that were given back.
    pub free_blocks: u64,
    /// Blocks that cursors hand out next.
    pub cursor_blocks: u64,
    /// Searches for slabs for its dry cursors.
    pub searches: u64,
}

/// The sums, while the walk goes on.
pub(super) struct Tally<'a> {
    layout: Layout,
    stats: HeapStats,
    debugged: Option<&'a Debugged>,
    /// Slabs without a live block, one after the other: where they end, and how many they are.
    row: (u32, u32),
    longest_row: u32,
    /// The largest class that has a block that no one has.
    largest_block: u32,
}

impl<'a> Tally<'a> {
    pub fn new(layout: &Layout, present: u32, debugged: Option<&'a Debugged>) -> Tally<'a> {
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
        Tally { layout: *layout, stats, debugged, row: (0, 0), longest_row: 0, largest_block: 0 }
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
        stats.refused = heap.refusals().into();
        stats.proofs = heap.proofs();
        stats.classes.retain(|class| class.slabs > 0 || class.searches > 0);
        stats
    }

    /// The longest row of slabs is one piece where a row of slabs is asked for; a smaller size takes a run of its class.
    fn largest_free(&self, slab_bytes: u64) -> u64 {
        let row = u64::from(self.longest_row) * slab_bytes;
        if row > self.layout.small_bytes.into() {
            return row;
        }
        let classes = (0..self.layout.classes).map(|class| self.layout.class(SizeClass(class)));
        let in_row = classes.filter(|info| info.slabs <= self.longest_row).map(|info| info.bytes).max();
        in_row.unwrap_or(0).max(self.largest_block).into()
    }

    fn is_quarantined(&self, start: u64) -> bool {
        self.debugged.is_some_and(|debugged| debugged.is_quarantined(start))
    }

    /// Slabs in which nothing is live.
    fn extend_row(&mut self, slab: u32, slabs: u32) {
        let before = if self.row.0 == slab { self.row.1 } else { 0 };
        self.row = (slab + slabs, before + slabs);
        self.longest_row = self.longest_row.max(self.row.1);
    }
}

impl Visitor for Tally<'_> {
    fn violation(&mut self, _: Violation) {}

    fn cursor(&mut self, cursor: CursorAudit) {
        let class = &mut self.stats.classes[cursor.class.0 as usize];
        // Of a heap that was written over they may be any numbers.
        class.searches = class.searches.saturating_add(cursor.searches);
        self.stats.searches = self.stats.searches.saturating_add(cursor.searches);
        self.stats.cursors_found_none += u64::from(cursor.found_none);
    }

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
        stats.free_block_bytes += bytes(run.holes);
        stats.cursor_bytes += bytes(run.in_cursor);
        stats.slack_bytes += slack;
        stats.free_bytes += bytes(run.holes) + bytes(run.in_cursor);
        let class = &mut stats.classes[run.class.0 as usize];
        class.slabs += info.slabs;
        class.live_blocks += u64::from(live);
        class.quarantined_blocks += u64::from(quarantined);
        class.free_blocks += u64::from(run.holes);
        class.cursor_blocks += u64::from(run.in_cursor);
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
            FreeSlab::InSet => stats.free_slab_bytes += stats.slab_bytes,
            FreeSlab::Fresh => stats.fresh_bytes += stats.slab_bytes,
            FreeSlab::Withheld | FreeSlab::Lost => return,
        }
        stats.free_bytes += stats.slab_bytes;
        self.extend_row(slab, 1);
    }
}
