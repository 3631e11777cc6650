//! Maps of used, corrupted and growing heaps, their totals, and files that are rejected.

use super::super::tests::used::{BYTES, sights, used_heap};
use super::*;
use crate::device_pools::Heap;
use crate::driver::Device;

fn map_of(heap: &Heap) -> HeapMap {
    let map = heap.snapshot().unwrap().map("a test");
    map.validate().unwrap();
    map
}

/// A map of 64 slabs with these parts: slabs and content.
fn map(parts: &[(u32, SlabContent)]) -> HeapMap {
    let mut first_slab = 0;
    let part = |&(slabs, content): &(u32, SlabContent)| {
        first_slab += slabs;
        MapPart { first_slab: first_slab - slabs, slabs, content }
    };
    HeapMap {
        schema: HeapMap::SCHEMA.into(),
        label: "a test".into(),
        unix_seconds: 0,
        subsec_nanos: 0,
        heap_bytes: 64 << 14,
        slab_bytes: 1 << 14,
        mapped_bytes: 64 << 14,
        failed_allocations: 0,
        last_failed_bytes: 0,
        faults: 0,
        parts: parts.iter().map(part).collect(),
        spans: vec![MapSpan { block_bytes: 64, shard: 0, first_slab: 60, slabs: 4, is_current: true }],
    }
}

fn run(block_bytes: u64, blocks: u32, free_blocks: u32, quarantined_blocks: u32) -> SlabContent {
    SlabContent::Run { block_bytes, blocks, free_blocks, quarantined_blocks }
}

const fn large(slabs: u32, is_quarantined: bool) -> SlabContent {
    SlabContent::Large { bytes: (slabs as u64) << 14, is_quarantined }
}

#[test]
fn the_totals_are_those_of_the_statistics() {
    let heap = used_heap();
    let (map, stats) = (map_of(&heap), heap.stats().unwrap());
    let totals = map.totals();
    assert_eq!((map.heap_bytes, map.mapped_bytes, map.slabs()), (BYTES, BYTES, 4096));
    let expected = MapTotals {
        live_bytes: stats.usage.used_bytes,
        large_bytes: stats.large_bytes,
        live_blocks: stats.live_blocks,
        quarantined_bytes: 0,
        free_block_bytes: stats.free_block_bytes,
        slack_bytes: stats.slack_bytes,
        free_slab_bytes: stats.free_slab_bytes,
        fresh_bytes: stats.fresh_bytes,
        unknown_bytes: 0,
        free_bytes: stats.free_bytes,
        largest_free_bytes: stats.usage.largest_free_bytes.unwrap(),
    };
    assert_eq!(totals, expected);
    assert_eq!(totals.fragmentation(), stats.fragmentation);
    let in_class = |of: &crate::device_pools::HeapClassStats| of.free_blocks * of.class_bytes;
    assert_eq!(stats.classes.iter().map(in_class).sum::<u64>(), stats.free_block_bytes);
    assert!(totals.live_bytes > 0 && totals.large_bytes > 0 && totals.free_slab_bytes > 0, "{totals:?}");
}

#[test]
fn every_run_and_every_span_of_a_cursor_is_in_the_map() {
    let heap = used_heap();
    let (map, seen) = (map_of(&heap), sights(&heap));
    let runs = map.parts.iter().filter(|part| matches!(part.content, SlabContent::Run { .. }));
    assert!(runs.map(|part| part.first_slab).eq(seen.runs.iter().map(|run| run.slab)));
    let is_live = |run: &&super::super::tests::used::Sight| run.live > 0 && run.live < run.blocks;
    let run = seen.runs.iter().find(is_live).unwrap();
    let part = map.parts.iter().find(|part| part.first_slab == run.slab).unwrap();
    let bytes = run.class.bytes().into();
    assert_eq!(part.content, self::run(bytes, run.blocks, run.free, 0));
    // The runs were taken by cursors, and no class has taken them since.
    let is_held = |span: &&MapSpan| span.first_slab <= run.slab && run.slab < span.first_slab + span.slabs;
    let span = map.spans.iter().find(is_held).unwrap();
    assert_eq!(span.block_bytes, bytes);
    assert!(map.spans.iter().any(|span| span.is_current));
}

#[test]
fn slabs_without_memory_and_with_broken_metadata_are_distinguished() {
    let device = Device::cpu();
    let mut heap = Heap::builder(BYTES).initial(32 << 20).build(&device).unwrap();
    let fresh = MapPart { first_slab: 0, slabs: 2048, content: SlabContent::Fresh };
    let unmapped = MapPart { first_slab: 2048, slabs: 2048, content: SlabContent::Unmapped };
    assert_eq!(map_of(&heap).parts, [fresh, unmapped]);
    // An entry of no class, and a slab that is missing in the free set.
    heap.metadata.write(heap.entry_at(7), &[0xfd_u32]).unwrap();
    heap.metadata.write(heap.free_at(8), &[!0_u32 << 9]).unwrap();
    let map = map_of(&heap);
    assert_eq!(map.parts[0].content, SlabContent::Unknown);
    assert_eq!(map.parts[1], MapPart { first_slab: 9, slabs: 2039, content: SlabContent::Fresh });
    assert_eq!(map.totals().unknown_bytes, 9 << 14);
}

#[test]
fn a_range_ends_at_a_live_block_and_at_missing_memory() {
    let parts = [
        (10, SlabContent::Fresh),
        (2, run(1 << 14, 2, 2, 0)),
        (3, SlabContent::Free),
        (1, run(64, 256, 255, 0)),
        (14, SlabContent::Free),
        (2, large(2, false)),
        (32, SlabContent::Unmapped),
    ];
    let totals = map(&parts).totals();
    assert_eq!((totals.largest_free_bytes, totals.free_bytes), (15 << 14, (29 << 14) + 255 * 64));
    assert_eq!(totals.fragmentation(), 1.0 - f64::from(15 << 14) / f64::from((29 << 14) + 255 * 64));
}

#[test]
fn without_a_free_slab_the_largest_free_block_counts() {
    let full = |content| map(&[(62, large(62, false)), (1, run(48, 341, 0, 0)), (1, content)]).totals();
    assert_eq!((full(run(64, 256, 3, 0)).largest_free_bytes, full(run(64, 256, 3, 0)).free_bytes), (64, 192));
    let none = full(run(64, 256, 0, 0));
    assert_eq!((none.largest_free_bytes, none.fragmentation()), (0, 0.0));
    assert_eq!(none.slack_bytes, (1 << 14) - 341 * 48);
}

#[test]
fn blocks_in_quarantine_are_neither_live_nor_free() {
    let totals = map(&[(1, run(64, 256, 100, 56)), (3, large(3, true)), (60, SlabContent::Fresh)]).totals();
    assert_eq!((totals.live_blocks, totals.live_bytes, totals.large_bytes), (100, 6400, 0));
    assert_eq!((totals.quarantined_bytes, totals.free_block_bytes), (56 * 64 + (3 << 14), 6400));
}

#[test]
fn a_map_survives_json() {
    let map = map_of(&used_heap());
    let json = serde_json::to_value(&map).unwrap();
    assert_eq!(json["schema"], "warpheap-heap-map/1");
    let kinds: std::collections::BTreeSet<_> =
        json["parts"].as_array().unwrap().iter().map(|part| part["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["free", "fresh", "large", "run"]);
    assert_eq!(serde_json::from_value::<HeapMap>(json).unwrap(), map);
    let text =
        r#"{"first_slab": 3, "slabs": 1, "kind": "run", "block_bytes": 64, "blocks": 256, "free_blocks": 9}"#;
    let part: MapPart = serde_json::from_str(text).unwrap();
    assert_eq!(part, MapPart { first_slab: 3, slabs: 1, content: run(64, 256, 9, 0) });
}

#[test]
fn invalid_maps_are_rejected_with_the_place() {
    let fine = map(&[(1, run(64, 256, 100, 56)), (3, large(3, false)), (60, SlabContent::Fresh)]);
    assert_eq!(fine.validate(), Ok(()));
    let rejected = |change: &dyn Fn(&mut HeapMap)| {
        let mut map = fine.clone();
        change(&mut map);
        map.validate().unwrap_err().to_string()
    };
    let contains = |text: String, part: &str| assert!(text.contains(part), "no {part:?} in {text}");
    contains(rejected(&|map| map.schema = "warpheap-heap-map/2".into()), "`warpheap-heap-map/2`, but this");
    contains(rejected(&|map| map.slab_bytes = 0), "slabs of 0 bytes");
    contains(rejected(&|map| map.slab_bytes = 3), "slabs of 3 bytes");
    contains(rejected(&|map| map.heap_bytes = 1 << 50), "its sizes are no heap");
    contains(rejected(&|map| map.heap_bytes += 1), "its sizes are no heap");
    contains(rejected(&|map| (map.slab_bytes, map.heap_bytes) = (3 << 14, 3 << 20)), "slabs of 49152 bytes");
    contains(rejected(&|map| map.mapped_bytes += 1), "1048577 of them mapped");
    contains(rejected(&|map| map.parts[1].first_slab = 2), "parts[1] has 3 slabs from slab 2 on");
    contains(rejected(&|map| map.parts[1].slabs = 0), "parts[1] has 0 slabs");
    contains(rejected(&|map| map.parts[2].slabs = u32::MAX), "parts[2] has 4294967295 slabs");
    contains(rejected(&|map| map.parts.truncate(2)), "its parts end at slab 4, but the heap at slab 64");
    contains(rejected(&|map| map.parts[0].content = run(64, 257, 0, 0)), "parts[0], from slab 0 on");
    contains(rejected(&|map| map.parts[0].content = run(64, 256, 200, 57)), "contradicts itself");
    contains(rejected(&|map| map.parts[0].content = run(0, 256, 0, 0)), "contradicts itself");
    contains(rejected(&|map| map.parts[0].content = run(u64::MAX, 2, 0, 0)), "contradicts itself");
    contains(rejected(&|map| map.parts[1].content = large(2, false)), "contradicts itself");
    contains(rejected(&|map| map.spans[0].slabs = 5), "spans[0] has 5 slabs from slab 60 on");
}

#[test]
fn a_report_has_the_figures_and_the_holders_of_its_map() {
    let heap = used_heap();
    let (map, report) = (map_of(&heap), heap.report().unwrap());
    let totals = map.totals();
    assert_eq!(report, HeapMap { label: String::new(), ..map.clone() }.report());
    assert!(map.report().to_string().starts_with("report of a heap, a test\n"));
    assert_eq!((report.used_bytes, report.reserved_bytes), (totals.live_bytes, BYTES));
    let all = report.used_bytes + report.free_bytes + report.withheld_bytes;
    assert_eq!((all, report.largest_free_bytes), (BYTES, Some(totals.largest_free_bytes)));
    let sum = |of: fn(&crate::report::Holder) -> u64| report.holders.iter().map(of).sum::<u64>();
    assert_eq!((sum(|of| of.blocks), sum(|of| of.bytes)), (totals.live_blocks, totals.live_bytes));
    assert_eq!(report.failed_allocations, Some(map.failed_allocations));
    assert_eq!(report.limit_bytes, Some(BYTES));
    let failed = |last_failed_bytes| HeapMap { last_failed_bytes, ..map.clone() }.report().last_failed_bytes;
    assert_eq!((failed(0), failed(1), failed(4096)), (None, Some(1), Some(4096)));
}

#[test]
fn the_largest_free_block_of_a_full_heap_is_one_that_was_freed() {
    let heap = Heap::builder(8 << 20).build(&Device::cpu()).unwrap();
    let layouts = vec![std::alloc::Layout::new::<[u64; 512]>(); 4096];
    let blocks: Vec<_> = heap.allocate_many(&layouts).unwrap().into_iter().flatten().collect();
    assert_eq!(heap.stats().unwrap().usage.largest_free_bytes, Some(0));
    // SAFETY: no kernel uses the block.
    unsafe { heap.deallocate_many(&blocks[7..8]) }.unwrap();
    let usage = heap.stats().unwrap().usage;
    assert_eq!((usage.largest_free_bytes, usage.used_bytes), (Some(4096), (8 << 20) - 4096));
}

#[test]
fn a_part_ends_where_the_next_one_begins() {
    let map = map_of(&used_heap());
    let ends = map.parts.iter().map(MapPart::end);
    let starts = map.parts.iter().skip(1).map(|part| part.first_slab);
    assert!(ends.eq(starts.chain([4096])));
}

#[test]
fn a_snapshot_prints_its_slabs_and_its_faults() {
    let heap = Heap::builder(BYTES).build(&Device::cpu()).unwrap();
    let text = format!("{:?}", heap.snapshot().unwrap());
    for part in ["HeapSnapshot", "slabs: 4096", "slab_bytes: 16384", "faults: 0"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

#[test]
fn a_report_names_the_class_that_separates_free_slabs() {
    let pinned = (0..16).flat_map(|_| [(3, SlabContent::Free), (1, run(4096, 4, 3, 0))]);
    let parts: Vec<_> = pinned.collect();
    let report = HeapMap { failed_allocations: 1, ..map(&parts) }.report();
    assert_eq!((report.free_ranges, report.holders[0].ends_free_ranges), (Some(16), 16));
    assert!(report.advice[0].starts_with("Fragmented: 768.0 KiB are free, but in 16 ranges of"), "{report}");
    assert!(report.advice[1].starts_with("Blocks of 4096 B separate them"), "{report}");
    assert!(report.to_string().contains("[...2...2"), "{report}");
    let full = [(58, large(58, false)), (4, large(4, true)), (2, SlabContent::Unknown)];
    let report = HeapMap { failed_allocations: 1, ..map(&full) }.report();
    assert_eq!(report.holders[0].name, "whole slabs");
    assert!(report.advice[1].starts_with("Blocks of whole slabs hold 100 %"), "{report}");
    let fresh = map(&[(64, SlabContent::Fresh)]).report();
    assert!(fresh.advice.is_empty() && fresh.holders.is_empty(), "{fresh}");
}

/// `HeapMap` has public fields and is read from files, so its numbers may contradict each other.
#[test]
fn the_report_of_an_invalid_map_does_not_overflow() {
    let contents = [
        run(u64::MAX, u32::MAX, 0, 0),
        run(3, 1, u32::MAX, u32::MAX),
        SlabContent::Large { bytes: u64::MAX, is_quarantined: false },
        SlabContent::Free,
    ];
    let part = |first_slab, content| MapPart { first_slab, slabs: u32::MAX, content };
    let parts = contents.into_iter().flat_map(|content| [part(0, content), part(u32::MAX, content)]);
    for (mapped_bytes, slab_bytes) in [(u64::MAX, u64::MAX), (u64::MAX, 1), (0, u64::MAX), (1 << 40, 1 << 14)]
    {
        let parts = parts.clone().collect();
        let map = HeapMap { parts, mapped_bytes, slab_bytes, failed_allocations: u64::MAX, ..map(&[]) };
        map.validate().unwrap_err();
        let report = map.report();
        assert!(report.holders.len() == 2 && report.to_string().contains("whole slabs"), "{report}");
    }
}
