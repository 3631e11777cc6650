//! Size classes: four per doubling, so that a block is at most a quarter larger than the request.
//!
//! ```text
//! class   0  1  2  3 |  4  5  6  7 |  8  9 10  11 | ...
//! bytes  16 20 24 28 | 32 40 48 56 | 64 80 96 112 | ...     (4 + class % 4) << (2 + class / 4)
//! ```
//!
//! A request is first rounded up to its alignment. The block of its class is then aligned, too: the
//! bytes of a class are a multiple of every power of two that divides a size of the class.

use crate::heap::layout::PARTIAL_WARP_SHARDS;
use crate::heap::layout::bits::{WORD_BITS, words};
use crate::kernel::DeviceData;
use crate::units::WARP_SIZE;

/// Bytes of the smallest block.
pub const MIN_BLOCK: u32 = 16;

/// A size class of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SizeClass(pub u32);

impl SizeClass {
    /// The smallest class with blocks of at least `bytes`, which is from 1 to 2^31.
    #[inline(always)]
    pub const fn of(bytes: u32) -> Self {
        // The least size of a class is one more than the bytes of the previous class.
        let least = if bytes < MIN_BLOCK { MIN_BLOCK - 1 } else { bytes - 1 };
        let log2 = 31 - least.leading_zeros();
        // The three leading bits, 4 to 7, select the quarter of the doubling.
        SizeClass((least >> (log2 - 2)) + 4 * log2 - 19)
    }

    /// Bytes of a block.
    #[inline(always)]
    pub const fn bytes(self) -> u32 {
        self.quarters() << self.shift()
    }

    /// The number of blocks in `bytes`, which are at most 2^26 for the smallest class.
    #[inline(always)]
    pub(in crate::heap) const fn blocks_in(self, bytes: u32) -> u32 {
        // `ceil(2^32 / quarters)`: exact for dividends up to 2^32 / quarters. Selected by two
        // choices of two, for which there are instructions: `ptxas` compiles a choice of four to
        // jumps.
        let (is_odd, is_late) = (self.0 & 1 != 0, self.0 & 2 != 0);
        let early = if is_odd { 858_993_460 } else { 1 << 30 };
        let late = if is_odd { 613_566_757 } else { 715_827_883 };
        let reciprocal = if is_late { late } else { early };
        divided(bytes >> self.shift(), reciprocal)
    }

    /// The number of blocks of a run of `bytes` bytes: whole words of the bitmap, unless that would
    /// waste more than a sixteenth.
    #[inline(always)]
    pub(in crate::heap) const fn blocks_in_run(self, bytes: u32) -> u32 {
        let blocks = self.blocks_in(bytes);
        let over = blocks % WORD_BITS;
        if over * 16 <= blocks { blocks - over } else { blocks }
    }

    /// The factor of a block's bytes, 4 to 7: the bytes are `quarters << shift`, see
    /// [`shift`](Self::shift).
    #[inline(always)]
    pub(in crate::heap) const fn quarters(self) -> u32 {
        4 + self.0 % 4
    }

    #[inline(always)]
    pub(in crate::heap) const fn shift(self) -> u32 {
        2 + self.0 / 4
    }
}

/// `bytes` rounded up to a multiple of `align`, a power of two.
#[inline(always)]
pub(in crate::heap) const fn rounded_up(bytes: u64, align: u64) -> u64 {
    (bytes + (align - 1)) & !(align - 1)
}

/// `ceil(2^32 / n)` for `n` from 2 on: the factor of [`divided`].
pub(in crate::heap) const fn reciprocal(n: u32) -> u32 {
    ((1u64 << 32).div_ceil(n as u64)) as u32
}

/// `x / n` for the [`reciprocal`] of `n`, exact while `x * n` is at most 2^32.
#[inline(always)]
pub(in crate::heap) const fn divided(x: u32, reciprocal: u32) -> u32 {
    ((x as u64 * reciprocal as u64) >> 32) as u32
}

/// A span has fewer blocks than this.
pub(in crate::heap) const MAX_BLOCKS: u32 = 1 << 26;
/// The most runs of a span.
pub(in crate::heap) const MAX_RUNS: u32 = 255;

/// The most slabs of a run, and the most slabs of a run that is extended only to hold two blocks or
/// to waste little.
pub(in crate::heap) const MAX_RUN: (u32, u32) = (16, 8);
/// A run has this many blocks if that does not take too many slabs.
const RUN_BLOCKS: u32 = 512;
/// A run is at most this part of a shard's partition, unless it must be longer.
const RUN_PART: u32 = 192;

/// Blocks of a span for each lane that requests the class. For a whole warp: in the first span of a
/// cursor, and in each later one. Then the same two for a part of a warp. With a short first span,
/// blocks that a warp allocates and frees repeatedly stay in the cache.
const LANE_BLOCKS: [u32; 4] = [72, 352, 144, 352];
/// The first span is at most this part of the partitions of the shards that share the cursor.
const FIRST_PART: u32 = 16;
/// A later span for a part of a warp is at most this part of a shard's partition.
const LATER_PART: u32 = 8;
/// A later span is at least this part of all spans of the cursor.
const GROWTH: u32 = 4;

/// The layout of the blocks of one size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct ClassInfo {
    /// Bytes of a block.
    pub bytes: u32,
    /// Blocks in a run.
    pub blocks: u32,
    /// `ceil(2^32 / blocks)`.
    pub(in crate::heap) blocks_reciprocal: u32,
    /// Slabs in a run.
    pub slabs: u32,
    /// The most runs of a span, in the order of [`LANE_BLOCKS`].
    span_runs: [u32; 4],
}

const _: () = assert!(size_of::<ClassInfo>() == 32);
// SAFETY: `repr(C)` of integers without padding; any bytes are a value.
unsafe impl DeviceData for ClassInfo {}

impl ClassInfo {
    /// A run has the fewest slabs that hold two blocks and waste at most an eighth, or a multiple
    /// of that number to hold more blocks.
    pub(in crate::heap) const fn new(class: SizeClass, slab_bytes: u32, partition: u32, shards: u32) -> Self {
        let bytes = class.bytes();
        let mut least = 1;
        while least < MAX_RUN.1 {
            let run = least * slab_bytes;
            if run >= 2 * bytes && (run - class.blocks_in_run(run) * bytes) * 8 <= run {
                break;
            }
            least += 1;
        }
        let (mut slabs, limit) = (least, largest_run(partition));
        while slabs * 2 <= limit && slabs * slab_bytes / bytes < RUN_BLOCKS {
            slabs *= 2;
        }
        let blocks = class.blocks_in_run(slabs * slab_bytes);
        // `divided` is exact up to this number of runs.
        let exact = (1 << 32) / (blocks as u64 * blocks as u64);
        let fitting = ((MAX_BLOCKS - 1) / blocks) as u64;
        let most = (if exact < fitting { exact } else { fitting }) as u32;
        let runs = partition / slabs;
        ClassInfo {
            bytes,
            blocks,
            blocks_reciprocal: reciprocal(blocks),
            slabs,
            span_runs: [
                lesser(runs / FIRST_PART, most),
                lesser(runs, most),
                lesser(runs * lesser(shards, PARTIAL_WARP_SHARDS) / FIRST_PART, most),
                lesser(runs / LATER_PART, most),
            ],
        }
    }

    /// Runs of the next span of a cursor for a group of `lanes` lanes, if its ring has `ring` runs.
    /// Parts of warps of [`PARTIAL_WARP_SHARDS`] SMs share a cursor. So a part of a warp gets, for
    /// each lane, as much as these SMs need together, but at most as much as a whole warp.
    pub(in crate::heap) const fn span_runs(&self, ring: u32, lanes: u32) -> u32 {
        let kind = 2 * (lanes < WARP_SIZE) as usize + (ring > 0) as usize;
        let lanes = lesser(lanes * PARTIAL_WARP_SHARDS, WARP_SIZE);
        let wanted = divided(lanes * LANE_BLOCKS[kind], self.blocks_reciprocal) + 1;
        let wanted = if wanted < ring / GROWTH { ring / GROWTH } else { wanted };
        clamped(lesser(wanted, self.span_runs[kind]))
    }

    /// Words of the bitmap that hold the bits of a run's blocks.
    #[inline(always)]
    pub(in crate::heap) const fn words(&self) -> u32 {
        words(self.blocks)
    }
}

/// The most slabs of a run that is extended to hold more blocks: a power of two.
pub(in crate::heap) const fn largest_run(partition: u32) -> u32 {
    let part = if partition / RUN_PART < MAX_RUN.0 { partition / RUN_PART } else { MAX_RUN.0 };
    if part == 0 { 1 } else { 1 << part.ilog2() }
}

const fn lesser(a: u32, b: u32) -> u32 {
    if a < b { a } else { b }
}

/// `n`, but at least 1 and at most the runs of a span.
const fn clamped(n: u32) -> u32 {
    if n == 0 {
        1
    } else if n < MAX_RUNS {
        n
    } else {
        MAX_RUNS
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::heap::layout::HeapLayout;

    #[test]
    fn every_size_gets_the_smallest_block_that_holds_it() {
        for bytes in 1..=1 << 21 {
            let class = SizeClass::of(bytes);
            assert!(class.bytes() >= bytes, "{bytes} bytes in {class:?}");
            assert!(class.0 == 0 || SizeClass(class.0 - 1).bytes() < bytes, "{bytes} bytes in {class:?}");
        }
    }

    #[test]
    fn at_most_a_quarter_is_wasted() {
        for bytes in MIN_BLOCK..=1 << 21 {
            let block = SizeClass::of(bytes).bytes();
            assert!((block - bytes) * 4 < bytes, "{bytes} bytes in a block of {block}");
        }
    }

    #[test]
    fn a_block_for_a_size_rounded_up_to_its_alignment_is_aligned() {
        for align in (0..=16).map(|log2| 1u32 << log2) {
            for bytes in (1..=1 << 20).step_by(7).chain([align, 3 * align, 5 * align]) {
                let class = SizeClass::of(rounded_up(bytes.into(), align.into()) as u32);
                assert!(class.bytes().is_multiple_of(align), "{bytes} bytes aligned to {align} in {class:?}");
            }
        }
    }

    #[test]
    fn blocks_are_counted_without_a_division() {
        for class in (0..64).map(SizeClass) {
            for bytes in (0..1 << 26).step_by(104_729).chain([1 << 26]) {
                for bytes in [bytes, bytes / class.bytes() * class.bytes()] {
                    assert_eq!(class.blocks_in(bytes), bytes / class.bytes(), "{bytes} bytes in {class:?}");
                }
            }
        }
    }

    #[test]
    fn a_run_has_whole_words_unless_they_waste_a_sixteenth() {
        let blocks = |blocks: u32| SizeClass(0).blocks_in_run(blocks * MIN_BLOCK);
        assert_eq!([31, 33, 34, 35, 64, 500, 512].map(blocks), [31, 32, 32, 35, 64, 480, 512]);
    }

    #[test]
    fn the_largest_size_has_a_class() {
        assert_eq!(SizeClass::of(1 << 31).bytes(), 1 << 31);
        assert_eq!(SizeClass::of(1 << 24).bytes(), 1 << 24);
    }

    #[test]
    fn a_longer_run_is_a_power_of_two_and_a_small_part_of_a_partition() {
        let partitions = [0, RUN_PART, 2 * RUN_PART - 1, 2 * RUN_PART, 15 * RUN_PART, 100 * RUN_PART];
        assert_eq!(partitions.map(largest_run), [1, 1, 1, 2, 8, 16]);
    }

    #[test]
    fn a_part_of_a_warp_gets_what_several_multiprocessors_need() {
        let layout = HeapLayout::new(8 << 30, 132).unwrap();
        let info = layout.class(SizeClass::of(64));
        assert_eq!((info.blocks, info.slabs), (1024, 1));
        assert_eq!([1, 7, 8, 31, 32].map(|lanes| info.span_runs(0, lanes)), [1, 4, 5, 5, 3]);
        assert_eq!([1, 7, 8, 31, 32].map(|lanes| info.span_runs(1, lanes)), [2, 10, 12, 12, 12]);
        // At most a sixteenth of the partition, or of four of them; then an eighth for parts of
        // warps.
        let info = layout.class(SizeClass::of(8192));
        assert_eq!((layout.slabs / layout.shards, info.blocks, info.slabs), (992, 32, 4));
        assert_eq!([1, 8, 31, 32].map(|lanes| info.span_runs(0, lanes)), [19, 62, 62, 15]);
        assert_eq!([1, 8, 31, 32].map(|lanes| info.span_runs(1, lanes)), [31, 31, 31, 248]);
    }

    #[test]
    fn a_span_is_at_least_a_quarter_of_the_ring_within_its_limits() {
        let new = ClassInfo::new(SizeClass(0), 1 << 16, 1 << 10, 2);
        assert_eq!(new.span_runs, [64, 256, 128, 128]);
        let info = ClassInfo { span_runs: [20, 100, 20, 50], ..new };
        assert_eq!(info.blocks, 4096);
        assert_eq!([1, 12, 16, 399, 400, 1000].map(|ring| info.span_runs(ring, 32)), [3, 3, 4, 99, 100, 100]);
        assert_eq!([1, 12, 16, 199, 1000].map(|ring| info.span_runs(ring, 31)), [3, 3, 4, 49, 50]);
        assert_eq!([0, 1, 254, 255, 256, u32::MAX].map(clamped), [1, 1, 254, 255, 255, 255]);
    }
}
