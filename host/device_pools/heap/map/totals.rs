//! The sums of a map.
//!
//! `mapped = live + quarantined + free_block + slack + free_slab + fresh + unknown`, in bytes, as
//! in [`HeapStats`](super::super::HeapStats).

use super::{HeapMap, MapPart, SlabContent};
use serde::Serialize;

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
