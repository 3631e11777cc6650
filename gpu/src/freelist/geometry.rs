//! Division of a pool into regions, words and blocks. Host and device use the same arithmetic.

/// Blocks in one word of the bitmap.
pub(super) const WORD_BLOCKS: u32 = 32;

/// Number of regions of a large pool: more than a GPU has SMs, few enough for a warp to look at all
/// of them in eight loads.
const REGIONS: u32 = 256;

/// The maximum number of blocks in a pool. Block indices leave room for values that mean "none".
pub const MAX_CAPACITY: u32 = 1 << 31;

/// The largest stride in bytes.
pub const MAX_STRIDE: u32 = 1 << 31;

/// Sizes and counts of a pool. Every region but the last has the same power of two of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Geometry {
    bytes: u64,
    /// `ceil(2^64 / stride)`, or 0 for a power of two, where a shift is enough.
    reciprocal: u64,
    stride: u32,
    capacity: u32,
    regions: u32,
    region_words_log2: u32,
    words: u32,
    stride_log2: u32,
}

const _: () = assert!(size_of::<Geometry>() == 40 && align_of::<Geometry>() == 8);

impl Geometry {
    /// A pool of `capacity` blocks (1 to [`MAX_CAPACITY`]), `stride` bytes apart (1 to
    /// [`MAX_STRIDE`]). Returns `None` outside these ranges.
    pub const fn new(capacity: u32, stride: u32) -> Option<Self> {
        if capacity == 0 || capacity > MAX_CAPACITY || stride == 0 || stride > MAX_STRIDE {
            return None;
        }
        let words = capacity.div_ceil(WORD_BLOCKS);
        let region_words = words.div_ceil(REGIONS).next_power_of_two();
        Some(Geometry {
            bytes: stride as u64 * capacity as u64,
            reciprocal: if stride.is_power_of_two() { 0 } else { (u64::MAX / stride as u64) + 1 },
            stride,
            capacity,
            regions: words.div_ceil(region_words),
            region_words_log2: region_words.trailing_zeros(),
            words,
            stride_log2: stride.trailing_zeros(),
        })
    }

    /// Bytes from one block to the next.
    #[inline(always)]
    pub const fn stride(&self) -> u64 {
        self.stride as u64
    }

    /// Number of blocks in the pool.
    #[inline(always)]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Size of all blocks together, in bytes.
    #[inline(always)]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of regions in the pool.
    #[inline(always)]
    pub const fn regions(&self) -> u32 {
        self.regions
    }

    /// Number of words in the bitmap.
    pub const fn words(&self) -> u32 {
        self.words
    }

    /// The first word of region `r`.
    #[inline(always)]
    pub const fn first_word(&self, r: u32) -> u32 {
        r << self.region_words_log2
    }

    /// The region of word `w`.
    #[inline(always)]
    pub const fn region_of_word(&self, w: u32) -> u32 {
        w >> self.region_words_log2
    }

    /// Number of words in region `r`.
    #[inline(always)]
    pub const fn words_in(&self, r: u32) -> u32 {
        let left = self.words - self.first_word(r);
        let full = 1 << self.region_words_log2;
        if left < full { left } else { full }
    }

    /// The index, within a region of `words` words, of the word under the cursor.
    #[inline(always)]
    pub(super) const fn word_under(&self, cursor: u32, words: u32) -> u32 {
        let place = (cursor / WORD_BLOCKS) & ((1 << self.region_words_log2) - 1);
        // Only the last region is shorter than a power of two.
        if place < words { place } else { place % (if words == 0 { 1 } else { words }) }
    }

    /// The first region of the warp with this index. Consecutive warps are spread evenly over all
    /// regions.
    #[inline(always)]
    pub(super) const fn first_region(&self, warp: u32) -> u32 {
        // A divisor that may be zero would add a panic.
        let regions = if self.regions == 0 { 1 } else { self.regions };
        if regions.is_power_of_two() { warp & (regions - 1) } else { warp % regions }
    }

    /// Number of blocks in region `r`.
    pub const fn blocks_in(&self, r: u32) -> u32 {
        let first = self.first_word(r) * WORD_BLOCKS;
        let end = first as u64 + (self.words_in(r) * WORD_BLOCKS) as u64;
        let end = if end < self.capacity as u64 { end } else { self.capacity as u64 };
        (end - first as u64) as u32
    }

    /// Initial value of word `w`, with all blocks free. The bits past the capacity stay set.
    pub const fn initial_word(&self, w: u32) -> u32 {
        let blocks = self.capacity - w * WORD_BLOCKS;
        if blocks >= WORD_BLOCKS { 0 } else { u32::MAX << blocks }
    }

    /// Locates the block that starts at, or contains, the byte `offset` bytes from the base.
    /// With `m = ceil(2^64 / s)` and `e = m*s - 2^64 < s`, the product `m*o / 2^64` exceeds `o / s`
    /// by `e*o / (s * 2^64) < 1`, so its floor is the block or the one after it.
    #[inline(always)]
    pub const fn locate(&self, offset: u64) -> Location {
        if offset >= self.bytes {
            return Location::Outside;
        }
        let block = if self.reciprocal == 0 {
            offset >> self.stride_log2
        } else {
            let guess = ((offset as u128 * self.reciprocal as u128) >> 64) as u64;
            if guess * self.stride as u64 > offset { guess - 1 } else { guess }
        };
        if block * self.stride as u64 == offset {
            Location::Block(block as u32)
        } else {
            Location::Inside(block as u32)
        }
    }
}

/// The position of an address relative to the pool's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// At the start of this block.
    Block(u32),
    /// Inside this block, not at its start.
    Inside(u32),
    /// Not in the pool.
    Outside,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn regions_and_words_cover_the_pool_exactly() {
        for capacity in (1..5000).chain([8191, 8192, 8193, 1 << 19, (1 << 20) - 1, 1 << 31]) {
            let g = Geometry::new(capacity, 64).unwrap();
            let blocks: u64 = (0..g.regions()).map(|r| u64::from(g.blocks_in(r))).sum();
            let words: u64 = (0..g.regions()).map(|r| u64::from(g.words_in(r))).sum();
            assert_eq!((blocks, words), (capacity.into(), g.words().into()), "capacity {capacity}");
            assert!(g.regions() <= REGIONS);
            assert_eq!(g.initial_word(0).count_zeros(), capacity.min(32));
            let last = g.words() - 1;
            assert_eq!(g.region_of_word(last), g.regions() - 1);
            assert_eq!(last * 32 + g.initial_word(last).count_zeros(), capacity);
        }
    }

    #[test]
    fn a_cursor_visits_every_word_of_its_region() {
        for capacity in [1, 33, 1 << 16, (1 << 16) + 33, (1 << 20) + 33] {
            let g = Geometry::new(capacity, 64).unwrap();
            let full = g.words_in(0).next_power_of_two();
            for r in [0, g.regions() - 1] {
                let words = g.words_in(r);
                for cursor in (0..3 * full).map(|w| w * WORD_BLOCKS).chain([u32::MAX, WORD_BLOCKS - 1]) {
                    let place = cursor / WORD_BLOCKS % full % words;
                    assert_eq!(g.word_under(cursor, words), place, "{capacity} {r} {cursor}");
                }
            }
        }
    }

    #[test]
    fn locate_agrees_with_division() {
        for stride in (1..300).chain([4096, 4097, 8191, 65_521, (1 << 31) - 1, 1 << 31]) {
            let g = Geometry::new(1 << 31, stride).unwrap();
            let stride = u64::from(stride);
            for block in (0..40).chain([1 << 20, (1 << 31) - 1]) {
                for byte in [0, 1, stride - 1] {
                    if byte >= stride {
                        continue;
                    }
                    let expected = if byte == 0 { Location::Block(block) } else { Location::Inside(block) };
                    assert_eq!(g.locate(u64::from(block) * stride + byte), expected, "{stride} {block}");
                }
            }
            assert_eq!(g.locate(g.bytes()), Location::Outside);
            assert_eq!(g.locate(u64::MAX), Location::Outside);
        }
    }

    #[test]
    fn warps_in_order_are_spread_evenly_over_the_regions() {
        for capacity in [100, 5000, 1 << 16, (1 << 20) + 33, 1 << 24] {
            let g = Geometry::new(capacity, 64).unwrap();
            for warps in [g.regions(), 10 * g.regions(), 1 << 15] {
                let mut load = [0u32; REGIONS as usize];
                (0..warps).for_each(|w| load[g.first_region(w) as usize] += 1);
                let max = *load.iter().max().unwrap();
                assert!(max <= warps.div_ceil(g.regions()), "{capacity} {warps} {max}");
            }
        }
    }

    #[test]
    fn impossible_pools_are_rejected() {
        for (capacity, stride) in [(0, 64), (MAX_CAPACITY + 1, 64), (1, 0), (1, MAX_STRIDE + 1)] {
            assert_eq!(Geometry::new(capacity, stride), None);
        }
    }
}
