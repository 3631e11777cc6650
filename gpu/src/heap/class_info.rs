//! The layout of the blocks of one class in runs of slabs, and the runs of a span; the same
//! arithmetic on host and device.

use super::bits::words;
use super::class::{SizeClass, divided, reciprocal};
use crate::kernel::DeviceData;

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

/// Blocks of the first span of a cursor, and of each later one, for each lane that asks for the
/// class.
const LANE_BLOCKS: (u32, u32) = (72, 352);
/// The part of a shard's partition that the first span may be.
const FIRST_PART: u32 = 16;
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
    /// The most runs of the first span of a cursor, and of a later one.
    span_runs: [u32; 2],
    /// In place of padding, whose bytes would not be initialised.
    unused: [u32; 2],
}

const _: () = assert!(size_of::<ClassInfo>() == 32);
// SAFETY: `repr(C)` of integers without padding; any bytes are a value.
unsafe impl DeviceData for ClassInfo {}

impl ClassInfo {
    /// A run has the fewest slabs that hold two blocks and waste at most an eighth, or a multiple of
    /// these to have more blocks.
    pub(super) const fn new(class: SizeClass, slab_bytes: u32, partition: u32) -> Self {
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
            span_runs: [clamped(runs / FIRST_PART), clamped(if runs < most { runs } else { most })],
            unused: [0; 2],
        }
    }

    /// Runs of the next span of a cursor for a group of `lanes` lanes, if its ring has `ring` runs.
    pub(super) const fn span_runs(&self, ring: u32, lanes: u32) -> u32 {
        let (blocks, most) =
            if ring == 0 { (LANE_BLOCKS.0, self.span_runs[0]) } else { (LANE_BLOCKS.1, self.span_runs[1]) };
        let wanted = clamped(divided(lanes * blocks, self.blocks_reciprocal) + 1);
        let wanted = if wanted < ring / GROWTH { ring / GROWTH } else { wanted };
        if wanted < most { wanted } else { most }
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

    #[test]
    fn a_longer_run_is_a_power_of_two_and_a_small_part_of_a_partition() {
        let partitions = [0, RUN_PART, 2 * RUN_PART - 1, 2 * RUN_PART, 15 * RUN_PART, 100 * RUN_PART];
        assert_eq!(partitions.map(largest_run), [1, 1, 1, 2, 8, 16]);
    }

    #[test]
    fn a_span_has_what_the_lanes_ask_for_within_its_limits() {
        let info = ClassInfo { span_runs: [20, 100], ..ClassInfo::new(SizeClass(0), 1 << 16, 1 << 20) };
        let runs = |ring: u32, lanes: u32| info.span_runs(ring, lanes);
        assert_eq!(info.blocks, 4096);
        // The first span: 72 blocks for each lane, at most 20 runs.
        assert_eq!([1, 56, 57, 32 * 32, 1 << 12].map(|lanes| runs(0, lanes)), [1, 1, 2, 19, 20]);
        // A later one: 352 for each, at least a quarter of the ring, and at most 100 runs.
        assert_eq!([1, 11, 12, 1 << 11].map(|lanes| runs(1, lanes)), [1, 1, 2, 100]);
        assert_eq!([7, 8, 12, 399, 400, 1000].map(|ring| runs(ring, 1)), [1, 2, 3, 99, 100, 100]);
        assert_eq!([0, 1, 254, 255, 256, u32::MAX].map(clamped), [1, 1, 254, 255, 255, 255]);
    }
}
