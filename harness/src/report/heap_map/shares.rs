//! The parts of a heap at one moment, for a bar over time.

use warpheap::device_pools::{HeapMap, MapTotals, SlabContent};

/// A part of a heap in a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its name in legends.
    pub name: &'static str,
    /// Its class in an SVG.
    pub class: &'static str,
    /// Its character on a terminal.
    pub glyph: char,
    /// Its size.
    pub bytes: u64,
}

/// The parts of a heap in the order in which they are stacked. They sum to the size of the heap.
pub fn shares(map: &HeapMap, totals: &MapTotals) -> [Share; 7] {
    let share = |name, class, glyph, bytes| Share { name, class, glyph, bytes };
    // Of the parts, as all other sums: a saved map may contradict itself.
    let unmapped = map.parts.iter().filter(|part| part.content == SlabContent::Unmapped);
    let unmapped = unmapped.map(|part| u64::from(part.slabs) * map.slab_bytes).sum();
    [
        share("live", "s-live", '#', totals.live_bytes),
        share("in quarantine", "s-quarantined", 'q', totals.quarantined_bytes),
        share("contradictory metadata", "s-unknown", '?', totals.unknown_bytes),
        share("free inside runs", "s-runs", '+', totals.free_block_bytes + totals.slack_bytes),
        share("free slabs, used before", "s-free", '-', totals.free_slab_bytes),
        share("never used", "s-fresh", '.', totals.fresh_bytes),
        share("no memory mapped", "s-unmapped", '~', unmapped),
    ]
}

/// The ends of consecutive parts on a scale where `whole` has length `length`.
pub fn ends(parts: &[Share], whole: u64, length: u64) -> Vec<u64> {
    let mut sum = 0;
    let mut end = |bytes: u64| {
        sum += bytes;
        scaled(sum, whole, length)
    };
    parts.iter().map(|part| end(part.bytes)).collect()
}

/// `bytes` on a scale where `whole` has length `length`, rounded to the nearest.
pub fn scaled(bytes: u64, whole: u64, length: u64) -> u64 {
    let whole = u128::from(whole.max(1));
    ((u128::from(bytes) * u128::from(length) * 2 + whole) / (2 * whole)) as u64
}
