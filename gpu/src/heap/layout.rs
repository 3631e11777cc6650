//! The division of a heap into slabs and of slabs into blocks; the same on host and device.

use super::PART_SHARDS;
use super::bits::{WORD_BITS, WORD_LOG2, total_words};
use super::class::SizeClass;
use super::class_info::{ClassInfo, largest_run};
use super::scatter::scaled;
use crate::sync::NATIVE_LAYOUT;
use crate::units::WARP_SIZE;

/// Bytes for which the bitmap has a bit: the smallest block.
const BIT_BYTES_LOG2: u32 = 4;
/// Slabs are from 16 KiB to 512 KiB, in the largest heap.
const LEAST_SLAB_LOG2: u32 = 14;

/// The maximum number of size classes: up to three slabs of the largest size. Under loom, up to the
/// largest one of [`HeapLayout::tiny`].
pub const MAX_CLASSES: u32 = if NATIVE_LAYOUT { 72 } else { SizeClass::of(TINY_BYTES).0 + 1 };
/// The largest size class of a heap for a model checker: half a slab.
const TINY_BYTES: u32 = 256;

/// The minimum and maximum size of a heap in bytes.
pub const HEAP_BYTES: (u64, u64) = (1 << 20, 1 << 40);

/// Sizes and counts of a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct HeapLayout {
    /// Base-2 logarithm of a slab's bytes.
    pub slab_log2: u32,
    /// Number of slabs in the heap.
    pub slabs: u32,
    /// Number of size classes. Larger requests take whole slabs.
    pub classes: u32,
    /// Number of cursors of each class.
    pub shards: u32,
    /// `shard = multiprocessor * shard_scale >> 16`.
    shard_scale: u32,
    /// Bytes of the largest block of a class.
    pub small_bytes: u32,
    /// Slabs in each shard's partition of the heap; the last one's has the rest, too.
    partition: u32,
    /// Indices of a class in a set of runs: the number of slabs, rounded up to a word.
    stride: u32,
}

const _: () = assert!(size_of::<HeapLayout>() == 32);

impl HeapLayout {
    /// The layout of a heap of the whole slabs in `bytes`, for a device with this number of SMs.
    /// `None` if `bytes` is not in [`HEAP_BYTES`] or there is no SM. Each class has one cursor per
    /// SM, or fewer if a slab for each cursor would be more than a quarter of the heap.
    pub const fn new(bytes: u64, multiprocessors: u32) -> Option<Self> {
        HeapLayout::spread(bytes, multiprocessors, multiprocessors)
    }

    /// Like [`new`](Self::new), with at most `most_shards` cursors of each class.
    pub const fn spread(bytes: u64, multiprocessors: u32, most_shards: u32) -> Option<Self> {
        if most_shards == 0
            || bytes < HEAP_BYTES.0
            || bytes > HEAP_BYTES.1
            || multiprocessors == 0
            || multiprocessors > 1 << 15
        {
            return None;
        }
        let log2 = bytes.ilog2().div_ceil(2) - 1;
        let slab_log2 = if log2 < LEAST_SLAB_LOG2 { LEAST_SLAB_LOG2 } else { log2 };
        let slabs = (bytes >> slab_log2) as u32;
        let classes = SizeClass::of(3 << slab_log2).0 + 1;
        let most = slabs / 4 / classes;
        let most = if most < most_shards { most } else { most_shards };
        let shards = if most == 0 { 1 } else { most };
        Some(HeapLayout::of_slabs(slab_log2, slabs, shards, multiprocessors))
    }

    /// `slabs` slabs, with so many cursors of each class.
    const fn of_slabs(slab_log2: u32, slabs: u32, shards: u32, multiprocessors: u32) -> Self {
        let small_bytes = 3 << slab_log2;
        let partition = slabs / shards;
        HeapLayout {
            slab_log2,
            slabs,
            classes: SizeClass::of(small_bytes).0 + 1,
            shards,
            shard_scale: (shards << 16).div_ceil(multiprocessors),
            small_bytes,
            // Whole runs, so that none is lost where two partitions meet.
            partition: partition / largest_run(partition) * largest_run(partition),
            stride: slabs.next_multiple_of(WORD_BITS),
        }
    }

    /// The layout of a heap for a model checker: slabs of 512 bytes, and classes of up to half of
    /// one.
    pub const fn tiny(slabs: u32, shards: u32) -> Self {
        let mut layout = HeapLayout::of_slabs(9, slabs, shards, shards);
        layout.small_bytes = TINY_BYTES;
        layout.classes = SizeClass::of(TINY_BYTES).0 + 1;
        layout
    }

    /// Bytes of a slab.
    pub const fn slab_bytes(&self) -> u32 {
        1 << self.slab_log2
    }

    /// Bytes that can be allocated.
    pub const fn bytes(&self) -> u64 {
        (self.slabs as u64) << self.slab_log2
    }

    /// The layout of the blocks of a class.
    pub const fn class(&self, class: SizeClass) -> ClassInfo {
        ClassInfo::new(class, self.slab_bytes(), self.partition, self.shards)
    }

    /// Words of the bitmap of blocks that belong to one slab.
    #[inline(always)]
    pub(super) const fn words_per_slab(&self) -> u32 {
        1 << (self.slab_log2 - BIT_BYTES_LOG2 - WORD_LOG2)
    }

    /// Words of the bitmap of blocks.
    pub const fn block_words(&self) -> u64 {
        self.slabs as u64 * self.words_per_slab() as u64
    }

    /// Words of the set of free slabs.
    pub const fn slab_set_words(&self) -> u32 {
        total_words(self.slabs)
    }

    /// Words of a set of runs of all classes.
    pub const fn run_set_words(&self) -> u32 {
        total_words(self.classes * self.stride)
    }

    /// The number of indices of a set of runs.
    #[inline(always)]
    pub(super) const fn run_indices(&self) -> u32 {
        self.classes * self.stride
    }

    /// The index of a run of the class in a set of runs.
    #[inline(always)]
    pub(super) const fn run_index(&self, class: SizeClass, run: u32) -> u32 {
        class.0 * self.stride + run
    }

    /// The class and the run of an index in a set of runs.
    pub(super) const fn run_at(&self, index: u32) -> (SizeClass, u32) {
        (SizeClass(index / self.stride), index % self.stride)
    }

    /// The first slab of a shard's partition of the heap; for `shards`, the number of slabs.
    #[inline(always)]
    pub const fn partition_start(&self, shard: u32) -> u32 {
        if shard < self.shards { shard * self.partition } else { self.slabs }
    }

    /// Shard number `rank` of those beside a shard that a group of `lanes` lanes uses, from one on
    /// that depends on the hash `salt`; the shard itself if there is no other one.
    pub(super) const fn shard_beside(&self, shard: u32, lanes: u32, rank: u32, salt: u32) -> u32 {
        let step = if lanes < WARP_SIZE { PART_SHARDS } else { 1 };
        (shard + (rank + 1 + scaled(salt, self.shards)) * step) % self.shards
    }

    /// The cursors for a multiprocessor.
    #[inline(always)]
    pub(super) const fn shard(&self, multiprocessor: u32) -> u32 {
        let shard = (multiprocessor * self.shard_scale) >> 16;
        if shard < self.shards { shard } else { self.shards - 1 }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::class::divided;
    use super::super::class_info::MAX_RUNS;
    use super::*;

    fn layouts() -> impl Iterator<Item = HeapLayout> {
        [20, 23, 24, 26, 30, 33, 36, 37, 40].into_iter().flat_map(|log2| {
            [1, 4, 132]
                .into_iter()
                .filter_map(move |sms| HeapLayout::new((1u64 << log2) + 12345 * u64::from(log2 < 40), sms))
        })
    }

    #[test]
    fn every_offset_belongs_to_its_block() {
        for layout in layouts() {
            for class in (0..layout.classes).map(SizeClass) {
                let info = layout.class(class);
                for block in (0..info.blocks).step_by(1 + info.blocks as usize / 64).chain([info.blocks - 1])
                {
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
                assert!(info.blocks >= 1 && info.words() <= info.slabs * layout.words_per_slab(), "{info:?}");
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
        // Half of all hashes later.
        assert_eq!(beside(32, 1 << 31), [6, 7, 0, 4, 5]);
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
}
