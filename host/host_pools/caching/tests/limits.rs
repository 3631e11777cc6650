//! How much caches, slabs, refills and extents take, and when a pool counts as empty.

use super::super::arena::OrderTag;
use super::super::cache::{bin_limit, refill_count};
use super::super::class::Classes;
use super::super::context::{Settings, is_out_of_memory};
use super::super::slabs::{refill_bytes, slab_blocks};
use super::*;
use crate::error::{Bytes, Error, InvalidRequest};
use std::sync::atomic::{AtomicUsize, Ordering};

const KIB: u64 = 1 << 10;
const M: u64 = MIB as u64;

/// Both limits apply: on blocks and on bytes. At least two small blocks or one large one are kept.
#[test]
fn a_bin_is_limited_in_blocks_and_in_bytes() {
    let small = [(512, 256), (16 * KIB, 256), (32 * KIB, 128), (M, 4), (4 * M, 2), (1 << 30, 2)];
    let large = [(128 * KIB, 32), (512 * KIB, 32), (M, 16), (4 * M, 4), (16 * M, 1), (2 << 30, 1)];
    for (bytes, blocks) in small {
        assert_eq!(bin_limit(bytes, true), blocks, "small blocks of {bytes} B");
    }
    for (bytes, blocks) in large {
        assert_eq!(bin_limit(bytes, false), blocks, "large blocks of {bytes} B");
    }
}

/// A quarter of what a bin keeps, and one block if it is large.
#[test]
fn a_refill_takes_several_small_blocks_or_one_large_block() {
    let classes = Classes::new(512, 1, M).unwrap();
    let need = |bytes: u64| classes.need(Layout::from_size_align(bytes as usize, 1).unwrap()).unwrap();
    for (bytes, blocks) in [(1, 64), (512, 64), (64 * KIB, 16), (M, 1), (M + 1, 1), (1 << 30, 1)] {
        assert_eq!(refill_count(need(bytes)), blocks, "{bytes} B");
    }
    // A slab has at least 64 KiB, and 64 blocks as long as these take no more than 2 MiB.
    for (bytes, blocks) in [(512, 128), (KIB, 64), (32 * KIB, 64), (64 * KIB, 32), (M, 2), (4 * M, 1)] {
        assert_eq!(slab_blocks(bytes), blocks, "{bytes} B");
    }
    for (bytes, taken) in [(1, 64 * KIB), (KIB, 64 * KIB), (32 * KIB, 2 * M), (M, 2 * M), (M + 512, M + 512)]
    {
        assert_eq!(refill_bytes(need(bytes)), taken, "{bytes} B");
    }
}

#[test]
fn a_refill_takes_a_small_part_of_a_pool_of_equal_blocks() {
    let of = |blocks: u64| Settings::of_equal("a pool".into(), 512, 512 * blocks).max_refill(512);
    assert_eq!([1, 31, 32, 63, 64, 1000].map(of), [1, 1, 1, 1, 2, 31]);
    let pool = CachingPool::builder().build_over(SyncDriverAllocator::new(&Device::cpu())).unwrap();
    assert_eq!(pool.context.settings.max_refill(512), usize::MAX);
}

/// At most 16 MiB, at most a segment, and at most 1/32 of the pool.
#[test]
fn an_extent_is_a_small_part_of_the_pool() {
    let device = Device::cpu();
    let extent = |max: u64, segment: u64| {
        let builder = CachingPool::builder().max_bytes(max).segment_bytes(segment);
        builder.build_over(SyncDriverAllocator::new(&device)).unwrap().context.settings.extent()
    };
    assert_eq!(extent(1 << 40, 32 * M), 16 * M);
    assert_eq!(extent(1 << 40, 4 * M), 4 * M);
    assert_eq!(extent(64 * M, 32 * M), 2 * M);
    assert_eq!((extent(4 * KIB, 32 * M), extent(512, 32 * M)), (512, 512));
}

#[test]
fn free_memory_is_limited_by_streams_by_the_pool_and_by_the_device() {
    let device = Device::cpu_with_executor(Executor::new(Mode::Parallel { workers: 1 }), 320 * M);
    let spare = |max: u64, streams| {
        let builder = CachingPool::builder().max_bytes(max).spare_bytes(3 * M);
        builder.build_over(SyncDriverAllocator::new(&device)).unwrap().context.settings.spare(streams)
    };
    assert_eq!([1, 2, 3, 4, 100].map(|streams| spare(1 << 40, streams)), [3, 6, 9, 10, 10].map(|n| n * M));
    assert_eq!([0, 1, 2, 3].map(|streams| spare(128 * M, streams)), [0, 3, 4, 4].map(|n| n * M));
}

#[test]
fn a_limit_is_rounded_down_to_the_smallest_block() {
    let built = |max: u64| {
        let upstream = SyncDriverAllocator::new(&Device::cpu());
        CachingPool::builder().max_bytes(max).build_over(upstream).map(|pool| pool.max_bytes())
    };
    assert_eq!([512, 513, 1023, 1024].map(|max| built(max).unwrap()), [512, 512, 512, 1024].map(Some));
    assert!(built(511).is_err() && built(0).is_err());
    let most = 1 << 63;
    assert_eq!([most - 1, most, u64::MAX].map(|max| built(max).unwrap()), [Some(most - 512), None, None]);
}

#[test]
fn classes_have_their_limits() {
    let (normal, equal) = (Classes::new(512, 1, 64 * KIB).unwrap(), Classes::of_equal(4096));
    // From 512 B to 2 GiB, of which those up to 64 KiB are small.
    assert_eq!((normal.count(), normal.first_large()), (23, 8));
    assert_eq!((equal.count(), equal.first_large()), (1, 1));
    let accepts =
        |size: usize, align: usize| normal.need(Layout::from_size_align(size, align).unwrap()).is_some();
    assert!(accepts(1 << 48, 1) && !accepts((1 << 48) + 1, 1));
    assert!(accepts(1, 1 << 30) && !accepts(1, 1 << 31));
}

#[test]
fn a_hook_that_never_helps_is_called_a_limited_number_of_times() {
    let device = Device::cpu();
    let (stream, calls) = (device.stream().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = calls.clone();
    let hook = move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        true
    };
    let builder = CachingPool::builder().max_bytes(2 << 20).segment_bytes(2 << 20).on_exhausted(hook);
    let pool = builder.build_over(SyncDriverAllocator::new(&device)).unwrap();
    assert!(pool.allocate(layout(4 * MIB), &stream).is_err());
    assert_eq!(calls.load(Ordering::Relaxed), 64);
    let stats = pool.stats();
    assert_eq!((stats.rungs.failed, stats.rungs.hooked), (1, 0));
}

/// A thread remembers caches beyond the life of the pool: of a stream that exists, of one that has
/// ended, and of one that has ended and had a live block in an extent.
#[test]
fn a_dropped_pool_drops_its_hook() {
    let device = Device::cpu();
    let (kept, ended, with_block) =
        (device.stream().unwrap(), device.stream().unwrap(), device.stream().unwrap());
    let captured = Arc::new(());
    let (seen, hook) = (Arc::downgrade(&captured), move |_| Arc::strong_count(&captured) == 0);
    let pool = CachingPool::builder().max_bytes(64 << 20).on_exhausted(hook).build(&device).unwrap();
    let live = pool.allocate(layout(3 * MIB), &with_block).unwrap();
    for stream in [&kept, &ended] {
        let block = pool.allocate(layout(3 * MIB), stream).unwrap();
        // SAFETY: allocated above; no work uses it.
        unsafe { pool.deallocate(block, layout(3 * MIB), stream) }.unwrap();
    }
    drop((ended, with_block));
    // A miss moves the memory of ended streams.
    let other = pool.allocate(layout(5 * MIB), &kept).unwrap();
    for (block, bytes) in [(other, 5 * MIB), (live, 3 * MIB)] {
        // SAFETY: allocated above; no work uses it.
        unsafe { pool.deallocate(block, layout(bytes), &kept) }.unwrap();
    }
    assert_eq!(seen.strong_count(), 1);
    drop(pool);
    assert_eq!(seen.strong_count(), 0);
}

/// A thread remembers the caches that it used last, by pool and stream: more than it has room for.
#[test]
fn a_thread_finds_the_cache_of_its_pool_and_stream() {
    let device = Device::cpu();
    let pools: Vec<_> = (0..40).map(|_| pool(&device)).collect();
    let streams: Vec<_> = (0..40).map(|_| device.stream().unwrap()).collect();
    let check = |pool: &CachingPool<_>, stream: &Stream| {
        let found = pool.streams.with(stream, std::ptr::from_ref);
        assert!(std::ptr::eq(found, Arc::as_ptr(&pool.streams.get(stream))));
    };
    for _ in 0..2 {
        pools.iter().for_each(|pool| streams.iter().for_each(|stream| check(pool, stream)));
        streams.iter().for_each(|stream| pools.iter().for_each(|pool| check(pool, stream)));
    }
}

#[test]
fn cached_blocks_of_all_streams_are_counted() {
    let device = Device::cpu();
    let pool = pool(&device);
    let streams = [(); 3].map(|()| device.stream().unwrap());
    let blocks = streams.each_ref().map(|stream| alloc(&pool, 100_000, stream));
    assert_eq!(pool.stats().misses, 3);
    for (cached, (ptr, stream)) in (1..).zip(blocks.into_iter().zip(&streams)) {
        free(&pool, ptr, 100_000, stream);
        assert_eq!(pool.stats().classes[0].cached_blocks, cached);
    }
}

/// A slab with a live block is used, and only its live blocks are.
#[test]
fn a_report_counts_what_slabs_withhold_and_failed_allocations() {
    let device = Device::cpu();
    let (pool, stream) = (pool(&device), device.stream().unwrap());
    let ptr = alloc(&pool, 512, &stream);
    assert!(pool.allocate(layout(4 * MIB), &stream).is_err());
    let report = pool.report();
    let parts = (report.used_bytes, report.withheld_bytes, report.free_bytes, report.reserved_bytes);
    assert_eq!(parts, (512, (64 << 10) - 512, (2 << 20) - (64 << 10), 2 << 20));
    assert_eq!((report.failed_allocations, report.limit_bytes), (Some(1), pool.max_bytes()));
    free(&pool, ptr, 512, &stream);
}

/// An upstream that is out of memory may have memory later, or for a smaller request. Any other
/// error is a fault.
#[test]
fn faults_of_an_upstream_are_not_taken_for_a_lack_of_memory() {
    let driver =
        |code| Error::Driver { call: "cuMemAlloc", code, name: String::new(), detail: String::new() };
    assert!(is_out_of_memory(&driver(2)));
    assert!(!is_out_of_memory(&driver(1)) && !is_out_of_memory(&driver(700)));
    assert!(!is_out_of_memory(&Error::FailureInjected { call: 2 }));
    let layout = InvalidRequest::Layout {
        allocator: "a pool".into(),
        requested: Bytes(1).to_string(),
        why: String::new(),
    };
    assert!(is_out_of_memory(&layout.into()));
}

/// Free memory of a pool of equal blocks is found wherever it is: among the free pieces, in a
/// stream's cache, or in a slab.
#[test]
fn a_pool_of_equal_blocks_is_empty_only_if_no_memory_is_free_anywhere() {
    let device = Device::cpu();
    let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
    let (block, blocks) = (Layout::from_size_align(4096, 256).unwrap(), 100);
    let region = Layout::from_size_align(blocks * 4096, 256).unwrap();
    let upstream = SyncDriverAllocator::new(&device);
    let (pool, _) = CachingPool::of_equal(upstream, "a pool".into(), block, region).unwrap();
    assert!(!pool.is_empty(), "a new pool has all its blocks");
    let allocate = || pool.alloc_equal(block, &first).unwrap();
    let free = |ptr, stream: &Stream| {
        // SAFETY: no work uses the block, and it is freed once (P1, P2).
        unsafe { pool.deallocate(ptr, block, stream) }.unwrap();
    };
    for stream in [&first, &second] {
        let mut all: Vec<_> = std::iter::from_fn(allocate).collect();
        assert!(all.len() <= blocks && pool.is_empty(), "all blocks are live");
        for flushes in [false, true] {
            free(all.pop().unwrap(), stream);
            assert!(!pool.is_empty(), "in the cache of a stream");
            if flushes {
                pool.flush_all(&mut lock(&pool.shared));
                assert!(!pool.is_empty(), "in its slab");
            }
            all.extend(allocate());
            assert!(pool.is_empty(), "the block was allocated again");
        }
        all.into_iter().for_each(|ptr| free(ptr, stream));
        assert!(!pool.is_empty());
    }
}

/// A stream whose memory is pending gets new orders without end; none is used twice.
#[test]
fn every_order_is_new() {
    let device = Device::cpu();
    let pool = pool(&device);
    let streams: Vec<_> = (0..4).map(|_| device.stream().unwrap()).collect();
    let mut shared = lock(&pool.shared);
    let orders = streams.iter().map(|stream| shared.order_of(&pool.streams.get(stream)));
    let orders: std::collections::BTreeSet<_> = orders.collect();
    assert_eq!(orders.len(), 4);
    assert!(!orders.contains(&OrderTag::IDLE));
    let again = shared.order_of(&pool.streams.get(&streams[2]));
    assert!(orders.contains(&again));
}

/// Which blocks a bin serves and keeps.
mod bins {
    use super::super::super::blocks::{BlockInfo, SHARED};
    use super::super::super::cache::{Bins, FreeOutcome, recent_index};
    use super::super::super::context::Context;
    use crate::host_pools::CachingPool;
    use std::alloc::Layout;
    use std::sync::Arc;

    const MIB: u64 = 1 << 20;

    struct Fixture {
        bins: Bins,
        context: Arc<Context>,
        /// Sizes of the blocks that exceeded a limit.
        surplus: Vec<u64>,
    }

    impl Fixture {
        /// Caches large blocks of these sizes one by one.
        fn new(sizes: &[u64]) -> Fixture {
            let context = Arc::new(Context::new(CachingPool::builder().check().unwrap()));
            let bins = Bins::new(context.clone(), SHARED);
            let mut of = Fixture { bins, context, surplus: Vec::new() };
            for (n, bytes) in (0..).zip(sizes) {
                // At odd multiples of 512 B, except the first.
                of.cache(n * 256 * MIB + n.min(1) * 512, *bytes);
            }
            of
        }

        fn cache(&mut self, address: u64, bytes: u64) {
            let class = Some(self.context.settings.classes.index(bytes));
            let info = BlockInfo { address, bytes, owner: SHARED, piece: 0, class, is_small: false };
            let id = self.context.blocks.insert(info);
            if let FreeOutcome::Overflow { class, limit } = self.bins.free(id, bytes) {
                let surplus = self.bins.take_surplus(class, limit);
                self.surplus.extend(surplus.into_iter().map(|id| self.context.blocks.slot(id).bytes()));
            }
        }

        /// Allocates, checks that the block is remembered, and returns its size.
        fn alloc(&mut self, bytes: u64, align: usize) -> Option<u64> {
            let layout = Layout::from_size_align(bytes as usize, align).unwrap();
            let need = self.context.settings.classes.need(layout)?;
            let address = self.bins.alloc(&need, layout)?;
            let same_place = |other: &u64| recent_index(*other) == recent_index(address);
            let other = (1..).map(|n| address + 512 * n).find(same_place)?;
            assert!(self.bins.take_recent(other).is_none(), "another address in the same place");
            let claim = self.bins.take_recent(address).expect("allocated last");
            let slot = self.context.blocks.slot(claim.id);
            assert!(slot.is_live() && self.bins.take_recent(address).is_none());
            Some(slot.bytes())
        }
    }

    #[test]
    fn the_smallest_large_block_that_fits_is_allocated() {
        let mut of = Fixture::new(&[33 * MIB / 16, 3 * MIB, 35 * MIB / 16, 34 * MIB / 16]);
        assert!(of.surplus.is_empty());
        for (bytes, align, found, why) in [
            (34 * MIB / 16 - 5, 256, Some(34 * MIB / 16), "the smallest"),
            (2 * MIB + 1, 1 << 20, Some(33 * MIB / 16), "the aligned one"),
            (2 * MIB + 1, 256, None, "at most 1/16 too large"),
            (34 * MIB / 16, 1 << 20, None, "not aligned"),
            (34 * MIB / 16, 512, Some(35 * MIB / 16), "the next larger one"),
            (3 * MIB, 512, Some(3 * MIB), "the exact size"),
            (3 * MIB, 512, None, "none left"),
        ] {
            assert_eq!(of.alloc(bytes, align), found, "{why}");
        }
    }

    /// Also if the block that was freed last fits, or has the exact size.
    #[test]
    fn the_block_that_was_freed_last_is_allocated_only_if_it_is_the_best() {
        let mut of = Fixture::new(&[33 * MIB / 16, 34 * MIB / 16]);
        assert_eq!(of.alloc(33 * MIB / 16 - 512, 256), Some(33 * MIB / 16), "the smallest");
        let mut of = Fixture::new(&[35 * MIB / 16, 33 * MIB / 16]);
        assert_eq!(of.alloc(33 * MIB / 16, 1 << 20), Some(35 * MIB / 16), "the aligned one");
        assert_eq!(of.alloc(33 * MIB / 16, 512), Some(33 * MIB / 16), "the exact size");
    }

    /// I2.
    #[test]
    fn a_bin_keeps_the_blocks_that_were_freed_last() {
        let of = Fixture::new(&[20 * MIB, 21 * MIB, 40 * MIB]);
        assert_eq!(of.surplus, [20 * MIB], "one of each class");
        let sizes: Vec<u64> = (0..5).map(|n| 3 * MIB + n * 512).collect();
        let mut of = Fixture::new(&sizes);
        assert!(of.surplus.is_empty(), "five of 3 MiB: {:?}", of.surplus);
        // Of this size a bin keeps four.
        of.cache(1 << 50, 4 * MIB);
        assert_eq!(of.surplus, sizes[..3], "the older half");
    }
}
