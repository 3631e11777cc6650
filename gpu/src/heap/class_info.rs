//! How the blocks of one class lie in runs of slabs, and how many runs a cursor gets at once; the same arithmetic on host
//! and device.

use super::class::SizeClass;
use super::cursor::Span;
use super::layout::{WORD_BITS, WORD_LOG2};
use super::sets::Run;
use crate::kernel::DeviceData;
use crate::sync::QUAD;

/// The most slabs in a run, and the most that a run has for want of two blocks or of little waste.
const MAX_RUN: (u32, u32) = (16, 8);
/// Blocks that a run has where its slabs may be so many: the first hole of a run and its last cost more than others.
const RUN_BLOCKS: u32 = 512;
/// What part of a shard's partition a run may be, unless it must be larger.
const RUN_PART: u32 = 48;

/// Blocks in a span for a whole warp: twice what the threads of a multiprocessor hold in the first span of a cursor, so
/// that blocks that are given back soon are soon used again, and more in the others.
const SPAN_BLOCKS: (u32, u32) = (2 * 2048, 8 * 2048);
/// Blocks in a span for each lane of a part of a warp, for the first span of a cursor and for the others.
const LANE_BLOCKS: (u32, u32) = (128, 1024);
/// What part of a shard's partition a span may be, in 64ths: for a whole warp, and for a part of one.
const SPAN_PART: ((u32, u32), (u32, u32)) = ((8, 40), (1, 4));
/// How many times as many blocks a cursor of whole warps gets at once that crosses again and again.
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
    /// Runs in a span for a whole warp: in the first of a cursor, in the next, and at most.
    whole_runs: [u16; 3],
    /// The most runs in a span for a part of a warp: in the first of a cursor, and in the others.
    part_runs: [u16; 2],
    /// In the place of padding, whose bytes would not be initialised.
    unused: u16,
    /// `ceil(2^31 / quads)`.
    quads_reciprocal: u32,
}

const _: () = assert!(size_of::<ClassInfo>() == 32);
/// The fields fill the type: it has no padding.
const _: () = assert!(size_of::<[u32; 5]>() + size_of::<[u16; 6]>() == size_of::<ClassInfo>());
// SAFETY: `repr(C)` of integers without padding; any bytes are a value.
unsafe impl DeviceData for ClassInfo {}

impl ClassInfo {
    /// Runs of the fewest slabs that hold two blocks or more and waste at most an eighth behind the last; or of some
    /// times as many, so that they have more blocks.
    pub(super) const fn new(class: SizeClass, slab_bytes: u32, partition: u32) -> Self {
        let bytes = class.bytes();
        let mut least = 1;
        while least < MAX_RUN.1 {
            let run = least * slab_bytes;
            if run >= 2 * bytes && (run % bytes) * 8 <= run {
                break;
            }
            least += 1;
        }
        let (mut slabs, limit) = (least, largest_run(partition));
        while slabs * 2 <= limit && slabs * slab_bytes / bytes < RUN_BLOCKS {
            slabs *= 2;
        }
        let blocks = slabs * slab_bytes / bytes;
        let runs = partition / slabs;
        let part = SPAN_PART;
        ClassInfo {
            bytes,
            blocks,
            blocks_reciprocal: reciprocal(blocks),
            slabs,
            whole_runs: [
                clamped(SPAN_BLOCKS.0 / blocks, runs * part.0.0 / 64),
                clamped(SPAN_BLOCKS.1 / blocks, runs * part.0.1 / 64),
                clamped(GROWTH * SPAN_BLOCKS.1 / blocks, runs * part.0.1 / 64),
            ],
            part_runs: [clamped(u32::MAX, runs * part.1.0 / 64), clamped(u32::MAX, runs * part.1.1 / 64)],
            unused: 0,
            quads_reciprocal: (1u32 << 31).div_ceil(quads(blocks)),
        }
    }

    /// Times [`QUAD`] words of the bitmap that a run has bits in.
    #[inline(always)]
    pub(super) const fn quads(&self) -> u32 {
        quads(self.blocks)
    }

    /// Of the quads of the runs in a row, in which run number `i` lies.
    #[inline(always)]
    pub(super) const fn run_of_quad(&self, i: u32) -> u32 {
        divided(2 * i, self.quads_reciprocal)
    }

    /// Runs in the next span of a cursor that has had one, for a group of `lanes` lanes.
    #[inline(always)]
    pub(super) const fn span_runs(&self, lanes: u32) -> u32 {
        self.runs_for(lanes, LANE_BLOCKS.1, self.whole_runs[1], self.part_runs[1])
    }

    /// The same of one whose last span had `last` runs: for whole warps twice that, as long as it is no more than a cursor is
    /// to have. What many ask for is seldom looked for then, and what few ask for does not keep more than it has been asked
    /// for.
    #[inline(always)]
    pub(super) const fn grown_runs(&self, lanes: u32, last: u32) -> u32 {
        let (grown, least, most) = (2 * last, self.span_runs(lanes), self.whole_runs[2] as u32);
        if lanes < WORD_BITS || grown <= least {
            least
        } else if grown < most {
            grown
        } else {
            most
        }
    }

    /// Runs in the first span of a shard's cursor. Those of two neighbours end half a later span apart: then one has
    /// blocks for both while the other's next span is found.
    #[inline(always)]
    pub(super) const fn first_runs(&self, lanes: u32, shard: u32) -> u32 {
        let runs = self.runs_for(lanes, LANE_BLOCKS.0, self.whole_runs[0], self.part_runs[0]);
        if shard.is_multiple_of(2) { runs } else { runs + self.span_runs(lanes) / 2 }
    }

    #[inline(always)]
    const fn runs_for(&self, lanes: u32, lane_blocks: u32, whole: u16, part: u16) -> u32 {
        if lanes == WORD_BITS {
            return whole as u32;
        }
        clamped(divided(lanes * lane_blocks, self.blocks_reciprocal), part as u32) as u32
    }

    /// All blocks of a row of runs.
    #[inline(always)]
    pub(super) const fn span_of(&self, run: Run) -> Span {
        Span::new(run.first + run.len, run.len / self.slabs * self.blocks)
    }

    /// How many runs a span is of that no one has taken from.
    #[inline(always)]
    pub(super) const fn runs_of(&self, span: Span) -> u32 {
        divided(span.granted(u32::MAX), self.blocks_reciprocal)
    }

    /// Words of the bitmap that its blocks have bits in.
    #[inline(always)]
    pub(super) const fn words(&self) -> u32 {
        words(self.blocks)
    }
}

/// Words of the bitmap that the blocks of a run have bits in.
#[inline(always)]
pub(super) const fn words(blocks: u32) -> u32 {
    (blocks + (WORD_BITS - 1)) >> WORD_LOG2
}

const fn quads(blocks: u32) -> u32 {
    words(blocks).div_ceil(QUAD as u32)
}

/// The bits of the blocks of a run in word `w` of their bitmap; none behind the last.
#[inline(always)]
pub(super) const fn full_word(blocks: u32, w: u32) -> u32 {
    let left = blocks.saturating_sub(w * WORD_BITS);
    if left >= WORD_BITS { u32::MAX } else { (1 << left) - 1 }
}

/// The most slabs that runs have for the sake of more blocks: a power of two.
pub(super) const fn largest_run(partition: u32) -> u32 {
    let part = if partition / RUN_PART < MAX_RUN.0 { partition / RUN_PART } else { MAX_RUN.0 };
    if part == 0 { 1 } else { 1 << part.ilog2() }
}

/// `n`, at most `most` and what 16 bits hold, and 1 at least.
#[inline(always)]
const fn clamped(n: u32, most: u32) -> u16 {
    let n = if n < most { n } else { most };
    if n == 0 {
        1
    } else if n < u16::MAX as u32 {
        n as u16
    } else {
        u16::MAX
    }
}

/// `ceil(2^32 / n)` for `n` from 2 on: what [`divided`] multiplies by.
const fn reciprocal(n: u32) -> u32 {
    ((1u64 << 32).div_ceil(n as u64)) as u32
}

/// `x / n` for the [`reciprocal`] of `n`, exact while `x * n` is at most 2^32.
#[inline(always)]
pub(super) const fn divided(x: u32, reciprocal: u32) -> u32 {
    ((x as u64 * reciprocal as u64) >> 32) as u32
}
