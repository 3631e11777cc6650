//! Tests of the division of a heap.

use super::*;
use crate::heap::layout::class::{MAX_RUNS, divided};

fn layouts() -> impl Iterator<Item = HeapLayout> {
    [20, 23, 24, 26, 29, 30, 33, 36, 37, 40].into_iter().flat_map(|log2| {
        [1, 4, 132]
            .into_iter()
            .filter_map(move |sms| HeapLayout::new((1u64 << log2) + 12345 * u64::from(log2 < 40), sms))
    })
}

#[test]
fn slabs_are_larger_in_larger_heaps() {
    let slab_log2 = |log2: u32| HeapLayout::new(1 << log2, 132).unwrap().slab_log2;
    assert_eq!([20, 26, 28, 29, 30, 31, 34].map(slab_log2), [14, 14, 14, 15, 16, 16, 16]);
    assert_eq!([35, 36, 37, 40].map(slab_log2), [17, 17, 18, 19]);
    // When slabs become larger, there are fewer slabs and fewer cursors, until the heap has
    // doubled.
    let shards = |mib: u64| HeapLayout::new(mib << 20, 132).unwrap().shards;
    assert_eq!([256, 511, 512, 1023, 1024, 2048].map(shards), [87, 132, 80, 132, 74, 132]);
}

#[test]
fn every_offset_belongs_to_its_block() {
    for layout in layouts() {
        for class in (0..layout.classes).map(SizeClass) {
            let info = layout.class(class);
            for block in (0..info.blocks).step_by(1 + info.blocks as usize / 64).chain([info.blocks - 1]) {
                for inside in [0, 1, info.bytes / 2, info.bytes - 1] {
                    let offset = block * info.bytes + inside;
                    assert_eq!(class.blocks_in(offset), block, "{info:?}");
                }
            }
        }
    }
}

#[test]
fn every_block_of_a_span_belongs_to_its_run() {
    for layout in layouts() {
        for class in (0..layout.classes).map(SizeClass) {
            let info = layout.class(class);
            let spans =
                (0..=4 * MAX_RUNS).flat_map(|runs| [1, 31, 32].map(|lanes| info.span_runs(runs, lanes)));
            let most = spans.max().unwrap() * info.blocks;
            for block in (0..most).step_by(1 + most as usize / 999).chain([most - 1]) {
                assert_eq!(divided(block, info.blocks_reciprocal), block / info.blocks, "{info:?}");
            }
        }
    }
}

#[test]
fn runs_fit_their_bits_and_waste_little() {
    for layout in layouts() {
        assert!(layout.classes <= MAX_CLASSES);
        for class in (0..layout.classes).map(SizeClass) {
            let info = layout.class(class);
            assert_eq!(class.blocks_in_run(info.slabs << layout.slab_log2), info.blocks, "{info:?}");
            // I1 of `runs`: all bits are in the words of the first slab.
            assert!(info.blocks >= 1 && info.words() <= layout.words_per_slab(), "{info:?}");
            let run = u64::from(info.slabs) << layout.slab_log2;
            let used = u64::from(info.blocks) * u64::from(info.bytes);
            assert!(used <= run && (run - used) * 8 <= run, "{info:?}");
        }
    }
}

#[test]
fn a_home_for_every_multiprocessor() {
    for layout in layouts() {
        let shards: std::collections::BTreeSet<u32> = (0..132).map(|sm| layout.shard(sm)).collect();
        assert_eq!(shards.into_iter().next_back(), Some(layout.shards - 1), "{layout:?}");
    }
}

#[test]
fn a_shard_beside_is_one_of_those_that_the_group_uses() {
    let layout = HeapLayout::spread(1 << 30, 8, 8).unwrap();
    let beside = |lanes, salt| [0, 1, 2, 6, 7].map(|rank| layout.shard_beside(1, lanes, rank, salt));
    assert_eq!((layout.shards, beside(32, 0), beside(31, 0)), (8, [2, 3, 4, 0, 1], [5, 1, 5, 5, 1]));
    // A salt of half of all hashes: half of the places further.
    assert_eq!((beside(32, 1 << 31), beside(31, 1 << 31)), ([6, 7, 0, 4, 5], [1, 5, 1, 1, 5]));
    // Parts of warps use every fourth shard, whatever the number of shards is.
    for shards in [1, 2, 4, 21] {
        let layout = HeapLayout::spread(8 << 30, 132, shards).unwrap();
        let beside = |shard, salt| (0..32).map(move |rank| layout.shard_beside(shard, 31, rank, salt));
        let all = (0..shards).step_by(4).flat_map(|shard| beside(shard, 0).chain(beside(shard, !0)));
        assert!(all.into_iter().all(|other| other < shards && other % 4 == 0), "{shards} shards");
        assert_eq!(layout.shard_beside(0, 32, 0, 0), 1 % shards);
    }
}

#[test]
fn a_part_of_a_warp_looks_at_the_same_shard_of_other_parts() {
    let shards = 10;
    let beside = |shard, lanes, rank| {
        HeapLayout { shards, ..layouts().next().unwrap() }.shard_beside(shard, lanes, rank, 0)
    };
    // Parts 0..4, 4..8 and 8..10: the last one has no third and no fourth shard.
    for (shard, rank, expected) in [(5, 0, 9), (7, 0, 8), (6, 0, 8), (5, 1, 1), (5, 2, 5), (9, 0, 1)] {
        assert_eq!(beside(shard, 4, rank), expected, "{shard} {rank}");
    }
    assert_eq!([0, 1, 4].map(|rank| beside(5, 32, rank)), [6, 7, 0]);
}

#[test]
fn impossible_heaps_are_rejected() {
    let (least, most) = HEAP_BYTES;
    for (bytes, sms, shards) in [(least - 1, 1, 1), (most + 1, 1, 1), (least, 0, 1), (least, 1, 0)] {
        assert_eq!(HeapLayout::spread(bytes, sms, shards), None);
    }
    assert_eq!(HeapLayout::new(least, (1 << 15) + 1), None);
    let slab_bytes = |bytes| HeapLayout::new(bytes, 1 << 15).unwrap().slab_bytes();
    assert_eq!([least, most].map(slab_bytes), [16 << 10, 512 << 10]);
}

#[test]
fn partitions_have_equal_parts_of_a_heap() {
    // A quarter of its slabs suffices for 21 cursors of each class.
    let layout = HeapLayout::new(64 << 20, 132).unwrap();
    assert_eq!((layout.slabs, layout.classes, layout.shards), (4096, 47, 21));
    assert_eq!([0, 1, 20, 21].map(|shard| layout.partition_start(shard)), [0, 195, 3900, 4096]);
    let words = (layout.words_per_slab(), layout.slab_set_words(), layout.block_words());
    assert_eq!(words, ((16 << 10) / 16 / 32, 128 + 4 + 1, 4096 * 32));
    for layout in [layout, HeapLayout::tiny(8, 2)] {
        assert_eq!(SizeClass(layout.classes - 1).bytes(), layout.small_bytes);
    }
}

#[test]
fn fewer_shards_are_shared_evenly() {
    let layout = HeapLayout::spread(8 << 30, 132, 33).unwrap();
    let mut shared = [0; 33];
    (0..132).for_each(|sm| shared[layout.shard(sm) as usize] += 1);
    assert_eq!((layout.shards, shared), (33, [4; 33]));
}

#[test]
fn a_heap_of_eight_gibibytes_has_slabs_of_64_kibibytes() {
    let layout = HeapLayout::new(8 << 30, 132).unwrap();
    assert_eq!((layout.slab_bytes(), layout.slabs, layout.shards), (64 << 10, 131_072, 132));
    let info = layout.class(SizeClass::of(8192));
    assert_eq!((info.blocks, info.slabs), (32, 4));
}
