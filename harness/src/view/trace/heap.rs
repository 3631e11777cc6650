//! Maps of a device heap over time as counters of Chrome trace JSON.

use super::chrome::{Args, Name, TraceEvent, micros, write};
use crate::report::heap_map::shares;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use warpheap::device_pools::{HeapMap, SlabContent};

/// The process of the heap.
const HEAP: u32 = 1;

/// Fails if the times of the maps do not increase: their samples would be at the same place or in
/// another order.
pub fn check_times(maps: &[HeapMap]) -> Result<(), String> {
    let is_ordered = |pair: &[HeapMap]| pair[0].unix_seconds != 0 && nanos(&pair[0]) < nanos(&pair[1]);
    let Some(place) = maps.windows(2).position(|pair| !is_ordered(pair)) else { return Ok(()) };
    let map = |i: usize| format!("map {} (`{}`)", i + 1, maps[i].label);
    let unknown = [place, place + 1].into_iter().find(|i| maps[*i].unix_seconds == 0);
    Err(match unknown {
        Some(i) => format!("{} has no time: its `unix_seconds` is 0", map(i)),
        None => format!("{} is not later than {}", map(place + 1), map(place)),
    })
}

/// Writes the counters of maps in order of time. Times begin at the first map.
pub fn perfetto(maps: &[HeapMap], to: &mut dyn Write) -> io::Result<()> {
    let begin = maps.iter().map(nanos).min().unwrap_or(0);
    let classes: BTreeSet<u64> = maps.iter().flat_map(|map| live_by_class(map).into_keys()).collect();
    let used: BTreeSet<&str> =
        maps.iter().flat_map(memory).filter(|(_, bytes)| *bytes > 0).map(|(name, _)| name).collect();
    let mut events: Vec<TraceEvent> = TraceEvent::process(HEAP, "device heap".into()).into();
    maps.iter().for_each(|map| events.extend(events_of(map, &used, &classes, micros(nanos(map) - begin))));
    write(to, events)
}

/// Nanoseconds since 1970.
fn nanos(map: &HeapMap) -> u64 {
    map.unix_seconds.saturating_mul(1_000_000_000).saturating_add(map.subsec_nanos.into())
}

/// Live bytes of each class with a run, by bytes per block.
fn live_by_class(map: &HeapMap) -> BTreeMap<u64, u64> {
    let mut live = BTreeMap::new();
    for part in &map.parts {
        if let SlabContent::Run { block_bytes, blocks, free_blocks, quarantined_blocks } = part.content {
            let blocks = u64::from(blocks - free_blocks - quarantined_blocks);
            *live.entry(block_bytes).or_default() += blocks * block_bytes;
        }
    }
    live
}

/// What the slabs of a map contain, by name.
fn memory(map: &HeapMap) -> BTreeMap<&'static str, u64> {
    shares(map, &map.totals()).into_iter().map(|share| (share.name, share.bytes)).collect()
}

/// The events of a map. Series of `memory` that no map uses are left out: a viewer has a track for
/// each.
fn events_of(map: &HeapMap, used: &BTreeSet<&str>, classes: &BTreeSet<u64>, ts: f64) -> Vec<TraceEvent> {
    let (totals, live) = (map.totals(), live_by_class(map));
    let counter = |name: &str, series: BTreeMap<&'static str, u64>| {
        TraceEvent::new("C", Name::Text(name.into()), HEAP, ts, Args::Series(series))
    };
    let label = TraceEvent::new("i", Name::Text(map.label.clone()), HEAP, ts, Args::Empty {});
    let memory = memory(map).into_iter().filter(|(name, _)| used.contains(name)).collect();
    let mut events = vec![
        TraceEvent { cat: Some("map"), s: Some("p"), ..label },
        counter("memory", memory),
        counter("largest free range", [("bytes", totals.largest_free_bytes)].into()),
        counter("live, large allocations", [("bytes", totals.large_bytes)].into()),
        counter("failed allocations", [("count", map.failed_allocations)].into()),
        counter("faults", [("count", map.faults)].into()),
    ];
    events.extend(classes.iter().map(|class| {
        let bytes = live.get(class).copied().unwrap_or(0);
        counter(&format!("live, blocks of {class} B"), [("bytes", bytes)].into())
    }));
    events
}
