//! The division of a heap into slabs and of slabs into blocks; the same on host and device.

pub(in crate::heap) mod bits;
pub mod class;
pub(in crate::heap) mod entry;
pub(in crate::heap) mod scatter;

use crate::heap::layout::bits::{WORD_BITS, WORD_LOG2, total_words};
use crate::heap::layout::class::{ClassInfo, MIN_BLOCK, SizeClass, largest_run};
use crate::heap::layout::scatter::scaled;
use crate::sync::NATIVE_LAYOUT;
use crate::units::WARP_SIZE;

/// The largest alignment, in bytes.
pub const MAX_ALIGN: u64 = 1 << 21;

/// The number of neighbouring shards that share one cursor of a class for groups smaller than a
/// warp. With shared cursors, many classes at once pin less memory.
pub(in crate::heap) const PARTIAL_WARP_SHARDS: u32 = if NATIVE_LAYOUT { 4 } else { 1 };

/// Base-2 logarithm of the bytes for each bit of the bitmap: those of the smallest block.
const BIT_BYTES_LOG2: u32 = 4;
/// Base-2 logarithm of the bytes of the smallest slab, 16 KiB. The largest heap has slabs of 512
/// KiB.
pub(in crate::heap) const LEAST_SLAB_LOG2: u32 = 14;
/// From 256 MiB to 2 GiB, slabs grow with the heap, which has 2^14 to 2^15 of them. Smaller slabs
/// would make runs of few blocks. Such runs are often full, so that searches remove them from the
/// list and frees insert them again.
const SLABS_LOG2: u32 = 14;
/// The limit of this growth: slabs are larger only in heaps of 32 GiB and more.
const COMMON_SLAB_LOG2: u32 = 16;

/// The maximum number of size classes: enough for blocks of up to three slabs of the largest size.
/// Under loom, those of [`HeapLayout::tiny`].
pub const MAX_CLASSES: u32 = if NATIVE_LAYOUT { 72 } else { SizeClass::of(TINY_BYTES).0 + 1 };
/// The largest size class of a heap for a model checker: half a slab.
const TINY_BYTES: u32 = 256;

/// The minimum and maximum size of a heap in bytes.
pub const HEAP_BYTES: (u64, u64) = (1 << 20, 1 << 40);

/// The maximum number of slabs: those of the largest heap.
pub(in crate::heap) const MAX_SLABS: u64 = HEAP_BYTES.1 >> slab_log2(HEAP_BYTES.1.ilog2());
/// The maximum number of cursors of a class.
pub(in crate::heap) const MAX_SHARDS: u32 = 1 << 15;

const _: () = assert!(
    !NATIVE_LAYOUT || SizeClass::of(3 << slab_log2(HEAP_BYTES.1.ilog2())).0 < MAX_CLASSES,
    "the classes of all heaps are in the overview"
);
const _: () = assert!(MIN_BLOCK == 1 << BIT_BYTES_LOG2);

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
    /// Slabs in each shard's partition of the heap. The last partition also has the remaining
    /// slabs.
    partition: u32,
    /// Number of indices of a class in a set of runs: the number of slabs, rounded up to whole
    /// words.
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
            || multiprocessors > MAX_SHARDS
        {
            return None;
        }
        let slab_log2 = slab_log2(bytes.ilog2());
        let slabs = (bytes >> slab_log2) as u32;
        let classes = SizeClass::of(3 << slab_log2).0 + 1;
        let most = slabs / 4 / classes;
        let most = if most < most_shards { most } else { most_shards };
        let shards = if most == 0 { 1 } else { most };
        Some(HeapLayout::of_slabs(slab_log2, slabs, shards, multiprocessors))
    }

    /// The layout of `slabs` slabs, with `shards` cursors of each class.
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
            // Whole runs, so that no run is lost at the boundary of two partitions.
            partition: partition / largest_run(partition) * largest_run(partition),
            stride: slabs.next_multiple_of(WORD_BITS),
        }
    }

    /// The layout of a heap for a model checker: slabs of 512 bytes, and classes of up to half a
    /// slab.
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
    pub(in crate::heap) const fn words_per_slab(&self) -> u32 {
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

    /// Words of the list of runs of all classes.
    pub const fn run_set_words(&self) -> u32 {
        total_words(self.classes * self.stride)
    }

    /// The number of indices of a set of runs.
    #[inline(always)]
    pub(in crate::heap) const fn run_indices(&self) -> u32 {
        self.classes * self.stride
    }

    /// The index of a run of the class in a set of runs.
    #[inline(always)]
    pub(in crate::heap) const fn run_index(&self, class: SizeClass, run: u32) -> u32 {
        class.0 * self.stride + run
    }

    /// The first slab of a shard's partition of the heap; for `shards`, the number of slabs.
    #[inline(always)]
    pub const fn partition_start(&self, shard: u32) -> u32 {
        if shard < self.shards { shard * self.partition } else { self.slabs }
    }

    /// The shard at position `rank` among those that a group of `lanes` lanes may use beside
    /// `shard`. Positions are counted from one that depends on the hash `salt`. Returns `shard` if
    /// there is no other one.
    pub(in crate::heap) const fn shard_beside(&self, shard: u32, lanes: u32, rank: u32, salt: u32) -> u32 {
        let step = if lanes < WARP_SIZE { PARTIAL_WARP_SHARDS } else { 1 };
        let places = self.shards.div_ceil(step);
        let place = (shard / step + rank + 1 + scaled(salt, places)) % places;
        let beside = place * step + shard % step;
        if beside < self.shards { beside } else { place * step }
    }

    /// The shard of a multiprocessor.
    #[inline(always)]
    pub(in crate::heap) const fn shard(&self, multiprocessor: u32) -> u32 {
        let shard = (multiprocessor * self.shard_scale) >> 16;
        if shard < self.shards { shard } else { self.shards - 1 }
    }
}

/// The base-2 logarithm of a slab's bytes in a heap of `2^heap_log2` bytes or more, but less than
/// twice as many. The heap is not smaller than the minimum of [`HEAP_BYTES`].
const fn slab_log2(heap_log2: u32) -> u32 {
    // A heap of four times the bytes has slabs of twice the bytes.
    let of_root = heap_log2.div_ceil(2) - 1;
    let of_few = heap_log2 - SLABS_LOG2;
    let of_few = if of_few < COMMON_SLAB_LOG2 { of_few } else { COMMON_SLAB_LOG2 };
    let larger = if of_root < of_few { of_few } else { of_root };
    if larger < LEAST_SLAB_LOG2 { LEAST_SLAB_LOG2 } else { larger }
}

#[cfg(all(test, not(loom)))]
mod tests;
