//! Tests of the pictures: cells, text and SVG of small heaps.

mod arithmetic;
mod layout;
mod pictures;

use serde_json::{Value, json};
use warpheap::device_pools::HeapMap;

/// Bytes of a slab.
const SLAB: u64 = 16 << 10;

/// Parts of a map, each with its number of slabs.
type Parts<'a> = &'a [(u32, Value)];

/// A valid map of these parts. `spans`: block size, first slab and slabs.
fn map(label: &str, parts: Parts<'_>, spans: &[(u64, u32, u32)]) -> HeapMap {
    let mut end = 0;
    let part = |(slabs, content): &(u32, Value)| {
        let mut part = content.clone();
        (part["first_slab"], part["slabs"]) = (end.into(), (*slabs).into());
        end += slabs;
        part
    };
    let parts: Vec<Value> = parts.iter().map(part).collect();
    let span = |&(block_bytes, first_slab, slabs): &(u64, u32, u32)| json!({"block_bytes": block_bytes, "shard": 0, "first_slab": first_slab, "slabs": slabs, "is_current": true});
    let is_unmapped = |part: &&Value| part["kind"] == "unmapped";
    let unmapped: u64 = parts.iter().filter(is_unmapped).filter_map(|part| part["slabs"].as_u64()).sum();
    let heap_bytes = u64::from(end) * SLAB;
    let map = json!({
        "schema": HeapMap::SCHEMA, "label": label, "unix_seconds": 0, "heap_bytes": heap_bytes, "slab_bytes": SLAB,
        "mapped_bytes": heap_bytes - unmapped * SLAB, "failed_allocations": 3, "faults": 0, "parts": parts,
        "spans": spans.iter().map(span).collect::<Vec<_>>(),
    });
    let map: HeapMap = serde_json::from_value(map).unwrap();
    map.validate().unwrap();
    map
}

fn run(block_bytes: u64, blocks: u32, free_blocks: u32) -> Value {
    json!({"kind": "run", "block_bytes": block_bytes, "blocks": blocks, "free_blocks": free_blocks})
}

fn large(slabs: u64) -> Value {
    json!({"kind": "large", "bytes": slabs * SLAB})
}

/// Slabs of a kind without further fields.
fn of_kind(kind: &str) -> Value {
    json!({"kind": kind})
}

/// One part of each kind, in 28 slabs.
fn each_kind() -> HeapMap {
    let parts = [
        (1, run(64, 256, 0)),
        (1, run(64, 256, 200)),
        (1, run(64, 256, 256)),
        (2, run(4096, 8, 4)),
        (3, large(3)),
        (4, of_kind("free")),
        (4, of_kind("fresh")),
        (1, of_kind("unknown")),
        (11, of_kind("unmapped")),
    ];
    // The second span was taken by another class since.
    map("each <kind> & \"more\"", &parts, &[(64, 1, 2), (48, 3, 2), (4096, 4, 1)])
}
