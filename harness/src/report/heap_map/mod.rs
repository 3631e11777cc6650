//! Pictures of heaps: a map of the slabs, and several maps over time; for terminals and as SVG.
//!
//! `key` assigns a letter to each size class, `cells` groups slabs into cells, `shares` are the
//! parts of a bar over time. `terminal` and `svg` draw them.

mod cells;
mod key;
mod shares;
mod svg;
mod terminal;
#[cfg(test)]
mod tests;

pub use shares::shares;
#[cfg(test)]
pub use svg::STYLE;
pub use svg::svg;
pub use terminal::{Style, terminal};

use super::human::{BinaryBytes, Count, percent};
use warpheap::device_pools::{HeapMap, MapTotals};

/// The figures of a map as lines: name and text.
fn figures(map: &HeapMap, totals: &MapTotals) -> Vec<(&'static str, String)> {
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
fn date(map: &HeapMap) -> String {
    let seconds = i64::try_from(map.unix_seconds).ok().filter(|seconds| *seconds > 0);
    let time = seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    time.map(|time| time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()).unwrap_or_default()
}
