//! Size classes: the sizes that requests are rounded up to.
//!
//! ```text
//! units of the smallest block   1   2   3  4   5 6 7 8   9 … 16
//! class, one per doubling     0   1   2  2   3 3 3 3   4 …  4
//! ```
//!
//! Class sizes in units: one per doubling gives 1, 2, 4, 8, 16 …; four per doubling give 1, 2, 3,
//! 4, 5, 6, 7, 8, 10, 12, 14, 16, 20 …
//!
//! I1: `index` is monotonic in the size, `bytes(index(size)) >= size`, and no smaller class is
//! large enough. I2: class sizes are multiples of the smallest block. I3: above [`LARGEST_CLASS`]
//! there are no classes; a size is not rounded to a class.
//!
//! A block up to the slab limit takes the full size of its class. A larger block takes its size
//! rounded up to a multiple of the smallest block; its class only selects the bin while it is
//! cached.

use super::super::request::{invalid_layout, invalid_setting};
use crate::error::{Error, Result};
use std::alloc::Layout;

/// Kind of the pool in messages.
pub(super) const KIND: &str = "caching pool";
/// Sizes above this are exact.
pub(super) const LARGEST_CLASS: u64 = 2 << 30;
/// The largest supported alignment.
pub(super) const MAX_ALIGN: usize = 1 << 30;
/// More than any device has, so that the sum of two sizes never overflows.
const MAX_BYTES: u64 = 1 << 48;

/// The rounding rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Classes {
    /// Base-2 logarithm of the smallest block size.
    pub min_block_log: u32,
    /// Base-2 logarithm of the number of classes per doubling.
    pub per_log: u32,
    /// The largest size that slabs serve.
    pub slab_limit: u64,
    /// Block size of a pool of equal blocks, a multiple of their alignment; such a pool has one
    /// class, of slabs. 0 in any other pool.
    equal: u64,
}

/// A rounded request: the size, alignment and bin for a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::host_pools) struct Need {
    /// The bin that caches the block; `None` above all classes.
    pub class: Option<usize>,
    pub bytes: u64,
    /// 1 for a block of a slab, which is aligned by its position.
    pub align: u64,
    /// Whether it is a block of a slab.
    pub is_small: bool,
}

impl Classes {
    pub const fn min_block(self) -> u64 {
        1 << self.min_block_log
    }

    /// `bytes` rounded up to a multiple of the smallest block.
    pub const fn round_to_block(self, bytes: u64) -> u64 {
        (bytes + self.min_block() - 1) & !(self.min_block() - 1)
    }

    /// The class of a size from 1 to [`LARGEST_CLASS`]. Uses shifts only: a division takes as long
    /// as a lock.
    #[inline]
    pub const fn index(self, bytes: u64) -> usize {
        let units = (bytes + self.min_block() - 1) >> self.min_block_log;
        if units <= 1 << self.per_log {
            return units as usize - 1;
        }
        let doubling = (units - 1).ilog2();
        let step = doubling - self.per_log;
        let inside = (units - 1 - (1 << doubling)) >> step;
        (((step as u64 + 1) << self.per_log) + inside) as usize
    }

    /// The size of a class.
    #[inline]
    pub const fn bytes(self, index: usize) -> u64 {
        if self.equal > 0 { self.equal } else { self.rounded(index) }
    }

    /// The size of a class by the rounding rule.
    #[inline]
    const fn rounded(self, index: usize) -> u64 {
        let (index, per) = (index as u64, 1 << self.per_log);
        if index < per {
            return (index + 1) << self.min_block_log;
        }
        let step = (index >> self.per_log) - 1;
        let units = (per + (index & (per - 1)) + 1) << step;
        units << self.min_block_log
    }

    /// The first class with blocks that are cut to the requested size. The blocks of all classes
    /// below come from slabs.
    pub const fn first_large(self) -> usize {
        if self.equal > 0 { 1 } else { self.index(self.slab_limit) + 1 }
    }

    /// Number of classes.
    pub const fn count(self) -> usize {
        if self.equal > 0 { 1 } else { self.index(LARGEST_CLASS) + 1 }
    }

    /// The rule for equal blocks of this size, which is a multiple of their alignment.
    pub const fn of_equal(bytes: u64) -> Classes {
        Classes { min_block_log: 0, per_log: 0, slab_limit: bytes, equal: bytes }
    }

    /// The size, alignment and bin of any block in a pool of equal blocks.
    #[inline]
    pub const fn need_of_equal(self) -> Need {
        Need { class: Some(0), bytes: self.equal, align: 1, is_small: true }
    }

    /// Rounds a request of `bytes`, at least 1, up to its class.
    pub const fn round(self, bytes: u64) -> u64 {
        if bytes > LARGEST_CLASS { bytes } else { self.rounded(self.index(bytes)) }
    }

    /// The smallest class that holds `bytes` and aligns every block to `align`, in a slab that is
    /// aligned to `align`.
    #[inline]
    fn aligned(self, bytes: u64, align: u64) -> usize {
        let mut class = self.index(bytes.max(align));
        // Ends at the next power of two at the latest: that class is aligned.
        while self.rounded(class) & (align - 1) != 0 {
            class += 1;
        }
        class
    }

    /// The alignment of every block of a class in a slab, if the first block has it.
    #[inline]
    pub const fn align(self, class: usize) -> u64 {
        // Equal blocks are aligned by their position in the one segment that they fill.
        if self.equal > 0 { 1 } else { 1 << self.bytes(class).trailing_zeros() }
    }

    /// The size, alignment and bin for `layout`, which has at least 1 B. `None` if unsupported.
    #[inline(always)]
    pub fn need(self, layout: Layout) -> Option<Need> {
        let (size, align) = (layout.size() as u64, layout.align() as u64);
        if size <= self.slab_limit && align <= self.slab_limit {
            let class = self.aligned(size, align);
            let bytes = self.rounded(class);
            if bytes <= self.slab_limit {
                return Some(Need { class: Some(class), bytes, align: 1, is_small: true });
            }
        }
        if size > MAX_BYTES || layout.align() > MAX_ALIGN {
            return None;
        }
        // Never a slab class: a slab block has the full class size, and this block only the
        // requested size.
        let beyond = size.max(self.slab_limit + 1);
        let class = if beyond <= LARGEST_CLASS { Some(self.index(beyond)) } else { None };
        Some(Need {
            class,
            bytes: self.round_to_block(size),
            align: align.max(self.min_block()),
            is_small: false,
        })
    }

    /// The error of a pool for an unsupported layout.
    #[cold]
    pub fn unsupported(self, pool: &str, layout: Layout) -> Error {
        let why = format!("the maximum is {} TiB, aligned to {MAX_ALIGN}", MAX_BYTES >> 40);
        invalid_layout(pool, layout, why)
    }

    /// Creates the rounding rule and checks its settings; `per` is the number of classes per
    /// doubling.
    pub fn new(min_block: u64, per: u32, slab_limit: u64) -> Result<Classes> {
        let is_valid = |bytes: u64, min| bytes.is_power_of_two() && (min..=1 << 20).contains(&bytes);
        if !is_valid(min_block, 256) {
            return Err(invalid_setting(
                "min_block",
                min_block,
                "it must be a power of two from 256 B to 1 MiB",
            ));
        }
        if !per.is_power_of_two() || per > 16 {
            return Err(invalid_setting("classes_per_doubling", per, "it must be 1, 2, 4, 8 or 16"));
        }
        if !is_valid(slab_limit, min_block) {
            let why = "it must be a power of two from min_block to 1 MiB";
            return Err(invalid_setting("slab_limit", slab_limit, why));
        }
        Ok(Classes { min_block_log: min_block.ilog2(), per_log: per.ilog2(), slab_limit, equal: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(per: u32) -> Classes {
        Classes::new(512, per, 64 << 10).unwrap()
    }

    #[test]
    fn a_small_block_with_a_large_alignment_has_no_slab_class() {
        for per in [1, 4] {
            let classes = classes(per);
            let need = |size, align| classes.need(Layout::from_size_align(size, align).unwrap()).unwrap();
            for size in [1, 600, 1100, 33_000, 64 << 10] {
                let cut = need(size, 128 << 10);
                assert!(!cut.is_small && cut.bytes < size as u64 + 512, "{size}: {cut:?}");
                let small =
                    (1..=64 << 10).step_by(500).map(|size| need(size, 256)).filter(|need| need.is_small);
                assert!(small.into_iter().all(|small| small.class != cut.class), "{size} of {per}");
            }
        }
    }

    /// I1 and I2, for every size up to 1 MiB and around every class boundary above.
    #[test]
    fn a_size_has_the_smallest_class_that_holds_it() {
        for per in [1, 2, 4, 8, 16] {
            let classes = classes(per);
            let borders = (20..31).flat_map(|log| (0..16).map(move |n| (1_u64 << log) + (n << (log - 4))));
            let around = borders.flat_map(|border| [border - 1, border, border + 1]);
            let mut last = 0;
            for size in (1..=1 << 20).chain(around) {
                let class = classes.index(size);
                assert!(classes.bytes(class) >= size, "{size} of {per}");
                assert!(class == 0 || classes.bytes(class - 1) < size, "{size} of {per}: {class}");
                assert!(classes.bytes(class).is_multiple_of(512));
                assert!(class >= last, "{size} of {per}");
                last = class;
            }
            assert_eq!(classes.bytes(classes.count() - 1), LARGEST_CLASS);
        }
    }

    #[test]
    fn small_blocks_are_aligned_by_class_and_large_blocks_have_the_requested_size() {
        for per in [1, 4] {
            let classes = classes(per);
            for size in [1, 512, 600, 2049, 40_000, 65_536] {
                for align in (0..=16).map(|log| 1_usize << log) {
                    let need = classes.need(Layout::from_size_align(size, align).unwrap()).unwrap();
                    let class = need.class.unwrap();
                    assert!(
                        need.is_small && classes.align(class) >= align as u64 && need.bytes >= size as u64
                    );
                }
            }
            let need = classes.need(Layout::from_size_align((33 << 20) + 1, 1).unwrap()).unwrap();
            assert_eq!((need.bytes, need.is_small), ((33 << 20) + 512, false), "not 64 MiB");
        }
        let four = classes(4);
        let need = four.need(Layout::from_size_align(100, 1 << 21).unwrap()).unwrap();
        assert_eq!((need.bytes, need.align, need.is_small), (512, 1 << 21, false));
        assert_eq!(four.need(Layout::from_size_align(1 << 50, 1).unwrap()), None);
        assert_eq!(four.need(Layout::from_size_align(1, 1 << 31).unwrap()), None);
    }
}
