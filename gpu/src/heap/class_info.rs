//! The layout of the blocks of one class in runs of slabs, and the runs of a span; the same
//! arithmetic on host and device.

use super::PART_SHARDS;
use super::bits::words;
use super::class::{SizeClass, divided, reciprocal};
use crate::kernel::DeviceData;
use crate::units::WARP_SIZE;

/// A span has fewer blocks.
pub(super) const MAX_BLOCKS: u32 = 1 << 26;
/// The most runs of a span.
pub(super) const MAX_RUNS: u32 = 255;

/// The most slabs of a run, and the most of a run that is longer only to hold two blocks or to
/// waste little.
const MAX_RUN: (u32, u32) = (16, 8);
/// A run has this many blocks if that does not take too many slabs.
const RUN_BLOCKS: u32 = 512;
/// A run is at most this part of a shard's partition, unless it must be longer.
const RUN_PART: u32 = 192;

/// Blocks of a span for each lane that asks for the class: of the first span of a cursor and of
/// each later one for a whole warp, and the same for a part of a warp. A short first span keeps the
/// blocks in the cache that a warp allocates and frees again and again.
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
    pub(super) blocks_reciprocal: u32,
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
    /// of these to have more blocks.
    pub(super) const fn new(class: SizeClass, slab_bytes: u32, partition: u32, shards: u32) -> Self {
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
                lesser(runs * lesser(shards, PART_SHARDS) / FIRST_PART, most),
                lesser(runs / LATER_PART, most),
            ],
        }
    }

    /// Runs of the next span of a cursor for a group of `lanes` lanes, if its ring has `ring` runs.
    /// A part of a warp shares its cursor with those of [`PART_SHARDS`] SMs, so it gets as much for
    /// each lane as they need together, but at most as much as a warp.
    pub(super) const fn span_runs(&self, ring: u32, lanes: u32) -> u32 {
        let kind = 2 * (lanes < WARP_SIZE) as usize + (ring > 0) as usize;
        let lanes = lesser(lanes * PART_SHARDS, WARP_SIZE);
        let wanted = divided(lanes * LANE_BLOCKS[kind], self.blocks_reciprocal) + 1;
        let wanted = if wanted < ring / GROWTH { ring / GROWTH } else { wanted };
        clamped(lesser(wanted, self.span_runs[kind]))
    }

    /// Words of the bitmap that its blocks have bits in.
    #[inline(always)]
    pub(super) const fn words(&self) -> u32 {
        words(self.blocks)
    }
}

/// The most slabs of a run that is longer to have more blocks: a power of two.
pub(super) const fn largest_run(partition: u32) -> u32 {
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
    use super::super::layout::HeapLayout;
    use super::*;

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
