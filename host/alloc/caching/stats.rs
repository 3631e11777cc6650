//! What a caching pool counts.
//!
//! Each stream's cache counts for itself, under its own lock; a sum over them is of no one moment while others allocate. A block that is allocated on one
//! stream and freed on another counts as gone out here and as come back there: what a cache has more of may be either.

use super::class::Classes;
use crate::alloc::Usage;
use serde::Serialize;

/// Of one class, in one cache. Allocations and frees write to different words: a processor that has to put a load together of
/// two stores that are still under way waits for both.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    out: Sum,
    back: Sum,
    /// Of the allocations, those that the cache did not serve.
    pub misses: u64,
}

/// Of blocks that went out or came back; it wraps around.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    blocks: u64,
    bytes: u64,
    asked: u64,
}

impl Sum {
    #[inline]
    fn add(&mut self, bytes: u64, asked: u64) {
        self.blocks = self.blocks.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(bytes);
        self.asked = self.asked.wrapping_add(asked);
    }
}

impl Tally {
    #[inline]
    pub fn alloc(&mut self, bytes: u64, asked: u64) {
        self.out.add(bytes, asked);
    }

    #[inline]
    pub fn free(&mut self, bytes: u64, asked: u64) {
        self.back.add(bytes, asked);
    }
}

/// Of one class, in all caches.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    hits: u64,
    misses: u64,
    blocks: i64,
    bytes: i64,
    asked: i64,
    /// Blocks in caches.
    cached: u64,
}

impl Total {
    fn add(&mut self, Tally { out, back, misses }: &Tally, cached: usize) {
        let left = |out: u64, back: u64| out.wrapping_sub(back) as i64;
        self.hits = self.hits.wrapping_add(out.blocks.wrapping_sub(*misses));
        self.misses += misses;
        self.blocks = self.blocks.wrapping_add(left(out.blocks, back.blocks));
        self.bytes = self.bytes.wrapping_add(left(out.bytes, back.bytes));
        self.asked = self.asked.wrapping_add(left(out.asked, back.asked));
        self.cached += cached as u64;
    }
}

/// The sum over caches.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    classes: Vec<Total>,
    huge: Total,
}

fn number(signed: i64) -> u64 {
    u64::try_from(signed).unwrap_or(0)
}

impl Counts {
    pub fn new(classes: Classes) -> Counts {
        Counts { classes: vec![Default::default(); classes.count()], huge: Total::default() }
    }

    pub fn add(&mut self, class: Option<usize>, tally: &Tally, cached: usize) {
        let total = class.map_or(&mut self.huge, |class| &mut self.classes[class]);
        total.add(tally, cached);
    }

    fn totals(&self) -> impl Iterator<Item = &Total> {
        self.classes.iter().chain([&self.huge])
    }

    /// What live blocks take.
    pub fn used(&self) -> u64 {
        number(self.totals().map(|of| of.bytes).fold(0, i64::wrapping_add))
    }

    pub fn asked(&self) -> u64 {
        number(self.totals().map(|of| of.asked).fold(0, i64::wrapping_add))
    }

    pub fn blocks(&self) -> u64 {
        number(self.totals().map(|of| of.blocks).fold(0, i64::wrapping_add))
    }

    pub fn hits(&self) -> u64 {
        self.totals().map(|of| of.hits).sum()
    }

    pub fn misses(&self) -> u64 {
        self.totals().map(|of| of.misses).sum()
    }

    /// Those that were ever asked for.
    pub fn by_class(&self, classes: Classes) -> Vec<CachingClassStats> {
        let all = self.classes.iter().enumerate().map(|(class, of)| (Some(classes.bytes(class)), of));
        let all = all.chain([(None, &self.huge)]);
        let stats = |(bytes, of): (Option<u64>, &Total)| CachingClassStats {
            class_bytes: bytes,
            live_blocks: number(of.blocks),
            live_bytes: number(of.bytes),
            wasted_bytes: number(of.bytes - of.asked),
            cached_blocks: of.cached,
            hits: of.hits,
            misses: of.misses,
        };
        all.map(stats).filter(|class| class.hits + class.misses + class.cached_blocks > 0).collect()
    }
}

/// What a [`CachingPool`](super::CachingPool) holds, and what it did since it was made. Sizes are in bytes. While others allocate,
/// the numbers are not all of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CachingPoolStats {
    /// Blocks that are allocated.
    pub live_blocks: u64,
    /// Bytes that they take, and that the pool has of its upstream.
    pub usage: Usage,
    /// What was asked for them.
    pub asked_bytes: u64,
    /// What sizes were rounded up by: used, less asked.
    pub wasted_bytes: u64,
    /// What is kept for later: reserved, less used.
    pub cached_bytes: u64,
    /// The most that it ever had.
    pub peak_reserved_bytes: u64,
    /// Pieces that it has of its upstream.
    pub segments: u64,
    /// Allocations that the stream's own cache served.
    pub hits: u64,
    /// Those that it did not.
    pub misses: u64,
    /// Allocations upstream that were tried, or growths of the reservation.
    pub upstream_allocs: u64,
    /// Frees upstream that were tried, or shrinkings of the reservation.
    pub upstream_frees: u64,
    /// How often each rung served what the stream's cache did not.
    pub rungs: RungStats,
    /// By class, of those that were ever used.
    pub classes: Vec<CachingClassStats>,
}

/// How often each rung of the ladder served an allocation, from the first on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RungStats {
    /// Free for this stream, or for any.
    pub shared: u64,
    /// Merged from what this stream freed itself, or freed on another stream that has come past that.
    pub done: u64,
    /// More of the upstream.
    pub grown: u64,
    /// Freed on another stream, which this one waits for on the device.
    pub stolen: u64,
    /// More of the upstream, after cached segments were given back.
    pub released: u64,
    /// After waiting on the host for all that was pending.
    pub waited: u64,
    /// After the hook.
    pub hooked: u64,
    /// None: the allocation failed.
    pub failed: u64,
}

/// Of one size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CachingClassStats {
    /// The class; `None` for what is above all of them.
    pub class_bytes: Option<u64>,
    /// Blocks that are allocated.
    pub live_blocks: u64,
    /// What they take: above the slabs' limit less than the class.
    pub live_bytes: u64,
    /// What of it was not asked for.
    pub wasted_bytes: u64,
    /// Blocks in the caches of streams.
    pub cached_blocks: u64,
    /// Allocations that the stream's own cache served.
    pub hits: u64,
    /// Those that it did not.
    pub misses: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_that_wrap_around_are_right() {
        let classes = Classes::new(512, 1, 64 << 10).unwrap();
        let (mut counts, mut gave, mut took) = (Counts::new(classes), Tally::default(), Tally::default());
        (gave.out.bytes, took.back.bytes) = (u64::MAX - 3, u64::MAX - 3);
        gave.alloc(1 << 20, 1000);
        gave.alloc(1 << 20, 1000);
        took.free(1 << 20, 1000);
        for tally in [gave, took] {
            counts.add(Some(5), &tally, 0);
        }
        assert_eq!((counts.blocks(), counts.used(), counts.asked(), counts.hits()), (1, 1 << 20, 1000, 2));
    }

    /// More than half of all numbers went from one stream to another.
    #[test]
    fn streams_that_only_give_or_only_take_add_up() {
        let classes = Classes::new(512, 1, 64 << 10).unwrap();
        let (mut counts, mut gave, mut took) = (Counts::new(classes), Tally::default(), Tally::default());
        (gave.out.bytes, took.back.bytes) = (3 << 61, 3 << 61);
        gave.alloc(512, 512);
        for tally in [gave, gave, took, took] {
            counts.add(Some(5), &tally, 0);
        }
        assert_eq!(counts.used(), 1024);
    }
}
