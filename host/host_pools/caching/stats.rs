//! Counters of a caching pool.
//!
//! Each stream's cache counts under its own lock. While other threads allocate, a sum over the
//! caches is not a snapshot of one moment. A block that is allocated on one stream and freed on
//! another counts as allocated in the first cache and as freed in the second, so the difference in
//! one cache may be positive or negative.

use super::class::Classes;
use crate::usage::Usage;
use serde::Serialize;

/// Counters of one class in one cache. Allocations and frees write to different words: a load that
/// spans two stores still in flight waits for both.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    out: Sum,
    back: Sum,
    /// Allocations that the cache did not serve.
    pub misses: u64,
}

/// Sums over allocated or freed blocks. Wraps around.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    blocks: u64,
    bytes: u64,
    requested: u64,
}

impl Sum {
    #[inline]
    fn add(&mut self, bytes: u64, requested: u64) {
        self.blocks = self.blocks.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(bytes);
        self.requested = self.requested.wrapping_add(requested);
    }
}

impl Tally {
    #[inline]
    pub fn alloc(&mut self, bytes: u64, requested: u64) {
        self.out.add(bytes, requested);
    }

    #[inline]
    pub fn free(&mut self, bytes: u64, requested: u64) {
        self.back.add(bytes, requested);
    }
}

/// Totals of one class over all caches.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    hits: u64,
    misses: u64,
    blocks: i64,
    bytes: i64,
    requested: i64,
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
        self.requested = self.requested.wrapping_add(left(out.requested, back.requested));
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

    /// Bytes of live blocks.
    pub fn used(&self) -> u64 {
        number(self.totals().map(|of| of.bytes).fold(0, i64::wrapping_add))
    }

    pub fn requested(&self) -> u64 {
        number(self.totals().map(|of| of.requested).fold(0, i64::wrapping_add))
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

    /// Statistics of the classes that were ever used.
    pub fn by_class(&self, classes: Classes) -> Vec<CachingClassStats> {
        let all = self.classes.iter().enumerate().map(|(class, of)| (Some(classes.bytes(class)), of));
        let all = all.chain([(None, &self.huge)]);
        let stats = |(bytes, of): (Option<u64>, &Total)| CachingClassStats {
            class_bytes: bytes,
            live_blocks: number(of.blocks),
            live_bytes: number(of.bytes),
            wasted_bytes: number(of.bytes - of.requested),
            cached_blocks: of.cached,
            hits: of.hits,
            misses: of.misses,
        };
        all.map(stats).filter(|class| class.hits + class.misses + class.cached_blocks > 0).collect()
    }
}

/// What a [`CachingPool`](super::CachingPool) holds, and what it has done since it was created.
/// Sizes are in bytes. While other threads allocate, the figures are not a snapshot of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CachingPoolStats {
    /// Live blocks.
    pub live_blocks: u64,
    /// Bytes of live blocks, and bytes allocated from the upstream.
    pub usage: Usage,
    /// Bytes that were requested for live blocks.
    pub requested_bytes: u64,
    /// Internal fragmentation: used bytes minus requested bytes.
    pub wasted_bytes: u64,
    /// Bytes cached for later: reserved minus used.
    pub cached_bytes: u64,
    /// High-water mark of the reserved bytes.
    pub peak_reserved_bytes: u64,
    /// Segments allocated from the upstream.
    pub segments: u64,
    /// Allocations served by the stream's own cache.
    pub hits: u64,
    /// Allocations not served by the stream's own cache.
    pub misses: u64,
    /// Attempted allocations from the upstream, or growths of the reservation.
    pub upstream_allocs: u64,
    /// Attempted frees to the upstream, or shrinks of the reservation.
    pub upstream_frees: u64,
    /// Allocations per rung, of those that the stream's cache did not serve.
    pub rungs: RungStats,
    /// Statistics per class, for the classes that were ever used.
    pub classes: Vec<CachingClassStats>,
}

/// The rungs of the fallback ladder, in order. Indexes the counters of a pool.
#[derive(Clone, Copy)]
pub(super) enum Rung {
    Shared,
    Done,
    Grown,
    Stolen,
    Released,
    Waited,
    Hooked,
    Failed,
}

/// Allocations served by each rung of the fallback ladder, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RungStats {
    /// From memory that is free for this stream or for all streams.
    pub shared: u64,
    /// From memory that this stream freed, after coalescing, or whose free on another stream was
    /// already complete.
    pub done: u64,
    /// From new memory of the upstream.
    pub grown: u64,
    /// From memory that another stream freed; this stream waits for it on the device.
    pub stolen: u64,
    /// From the upstream, after cached segments were released.
    pub released: u64,
    /// After waiting on the host for all pending work.
    pub waited: u64,
    /// After the hook.
    pub hooked: u64,
    /// Allocations that failed.
    pub failed: u64,
}

/// Statistics of one size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CachingClassStats {
    /// Size of the class; `None` for blocks above all classes.
    pub class_bytes: Option<u64>,
    /// Live blocks.
    pub live_blocks: u64,
    /// Bytes of live blocks. Above the slab limit, a block may take less than its class.
    pub live_bytes: u64,
    /// Bytes of live blocks that were not requested.
    pub wasted_bytes: u64,
    /// Blocks in stream caches.
    pub cached_blocks: u64,
    /// Allocations served by the stream's own cache.
    pub hits: u64,
    /// Allocations not served by the stream's own cache.
    pub misses: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_that_wrap_around_are_correct() {
        let classes = Classes::new(512, 1, 64 << 10).unwrap();
        let (mut counts, mut allocs, mut frees) = (Counts::new(classes), Tally::default(), Tally::default());
        (allocs.out.bytes, frees.back.bytes) = (u64::MAX - 3, u64::MAX - 3);
        allocs.alloc(1 << 20, 1000);
        allocs.alloc(1 << 20, 1000);
        frees.free(1 << 20, 1000);
        for tally in [allocs, frees] {
            counts.add(Some(5), &tally, 0);
        }
        assert_eq!(
            (counts.blocks(), counts.used(), counts.requested(), counts.hits()),
            (1, 1 << 20, 1000, 2)
        );
    }

    /// More than half of the range of `u64` moved from one stream to the other.
    #[test]
    fn allocating_and_freeing_streams_add_up() {
        let classes = Classes::new(512, 1, 64 << 10).unwrap();
        let (mut counts, mut allocs, mut frees) = (Counts::new(classes), Tally::default(), Tally::default());
        (allocs.out.bytes, frees.back.bytes) = (3 << 61, 3 << 61);
        allocs.alloc(512, 512);
        for tally in [allocs, allocs, frees, frees] {
            counts.add(Some(5), &tally, 0);
        }
        assert_eq!(counts.used(), 1024);
    }
}
