//! Free memory in pieces: what an allocation can get from it.
//!
//! Also on a GPU, if there is one and the kernels were built.

use crate::support::{allocate, checked_stats as stats, devices, free, layout_of};
use warpheap::device_pools::Heap;

/// Replays on each CPU test.
const SEEDS: u64 = 3;

/// Even if each of the spans has fewer blocks than a warp asks for at once.
#[test]
fn a_cursor_without_a_run_of_its_spans_finds_free_slabs() {
    for device in devices(SEEDS) {
        let heap = Heap::builder(4 << 20).shards(1).build(&device).unwrap();
        // The first block of every eighth slab stays, so that free slabs lie in short rows.
        let small = allocate(&heap, 1024, 4096);
        let base = heap.memory().address();
        let (kept, freed): (Vec<_>, Vec<_>) =
            small.into_iter().partition(|block| (block.0 as u64 - base).is_multiple_of(8 << 14));
        free(&heap, &freed);
        // Rows of seven slabs with 21 blocks. Not all of them: no search fails.
        let spread = allocate(&heap, 500, 5000);
        free(&heap, &spread);
        free(&heap, &kept);
        let whole = heap.allocate(layout_of(4 << 20)).unwrap().expect("all blocks were freed");
        free(&heap, &[whole]);
        assert_eq!(allocate(&heap, 256, 5000).len(), 256);
        assert_eq!(stats(&heap).live_blocks, 256);
    }
}

#[test]
fn the_largest_free_piece_can_be_allocated_and_no_more() {
    for device in devices(SEEDS) {
        let from_start = [(4, false), (8, false), (12, false), (16, true), (64, true)];
        // 64 slabs of four blocks: two words of the set of free slabs.
        let across_words = [(124, 8, false), (120, 12, false), (120, 16, true)];
        let cases = from_start.map(|(freed, whole)| (0, freed, whole)).into_iter().chain(across_words);
        for (start, freed, whole) in cases {
            let heap = Heap::builder(1 << 20).build(&device).unwrap();
            let mut blocks = allocate(&heap, 256, 4096);
            blocks.sort_unstable_by_key(|block| block.0 as u64);
            free(&heap, &blocks[start..start + freed]);
            let stats = stats(&heap);
            assert_eq!(stats.free_bytes, freed as u64 * 4096);
            assert_eq!(stats.usage.largest_free_bytes.unwrap() == stats.free_bytes, whole, "{stats:#?}");
            let largest = stats.usage.largest_free_bytes.unwrap();
            assert!(heap.allocate(layout_of(largest + 1)).unwrap().is_none(), "{largest} of {freed}");
            assert!(heap.allocate(layout_of(largest)).unwrap().is_some(), "{largest} of {freed}");
        }
    }
}
