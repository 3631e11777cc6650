//! Maps of heaps: the slabs as cells, and several maps over time.
//!
//! `key` assigns a letter to each size class, `cells` groups slabs into cells. `terminal` and
//! `view::map` draw them, and the parts of heaps as bars over time.

pub mod cells;
pub mod key;
mod terminal;
#[cfg(test)]
mod tests;

pub use terminal::{Style, terminal};

use super::human::{BinaryBytes, Count, percent};
use warpheap::device_pools::{HeapMap, MapTotals, SlabContent};

/// The figures of a map as lines: name and text.
pub fn figures(map: &HeapMap, totals: &MapTotals) -> Vec<(&'static str, String)> {
    let mapped = match map.heap_bytes - map.mapped_bytes {
        0 => "all of it mapped".to_owned(),
        _ => format!("{} mapped", BinaryBytes(map.mapped_bytes)),
    };
    let slabs = format!("{} slabs of {}", Count(map.slabs()), BinaryBytes(map.slab_bytes));
    let MapTotals { live_bytes, large_bytes, free_bytes, largest_free_bytes, .. } = *totals;
    let live = format!(
        "{} ({}) in {} blocks; large ones: {}",
        BinaryBytes(live_bytes),
        percent(live_bytes, map.mapped_bytes),
        Count(totals.live_blocks),
        BinaryBytes(large_bytes)
    );
    let free = format!(
        "{} ({}); in free slabs: {}",
        BinaryBytes(free_bytes),
        percent(free_bytes, map.mapped_bytes),
        BinaryBytes(totals.free_slab_bytes + totals.fresh_bytes)
    );
    let largest = format!(
        "largest range {}; fragmentation {:.1} %",
        BinaryBytes(largest_free_bytes),
        100.0 * totals.fragmentation()
    );
    let mut lines = vec![
        ("heap", format!("{}, {mapped}; {slabs}", BinaryBytes(map.heap_bytes))),
        ("live", live),
        ("free", free),
        ("", largest),
    ];
    if totals.quarantined_bytes > 0 {
        lines.push(("quarantine", BinaryBytes(totals.quarantined_bytes).to_string()));
    }
    let failures = format!("{} allocations, {} faults", Count(map.failed_allocations), Count(map.faults));
    lines.push(("failed", failures));
    if totals.unknown_bytes > 0 {
        lines.push(("BROKEN", format!("metadata of {}; see `check`", BinaryBytes(totals.unknown_bytes))));
    }
    lines
}

/// The date of a map, as `2026-11-25 12:00:00 UTC`; empty if it has none.
pub fn date(map: &HeapMap) -> String {
    let seconds = i64::try_from(map.unix_seconds).ok().filter(|seconds| *seconds > 0);
    let time = seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    time.map(|time| time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()).unwrap_or_default()
}

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
