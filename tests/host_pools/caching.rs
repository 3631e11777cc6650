//! The caching pool: sizes, driver calls, reserved memory, and streams that are dropped.

use crate::cases::layout;
use crate::suite::{Block, give};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::Mutex;
use warpheap::error::{InvalidConfig, InvalidFree, OutOfMemory};
use warpheap::host_pools::{
    BlockPool, CachingPool, CachingPoolBuilder, DeviceAllocator, SyncDriverAllocator, Usage,
};
use warpheap::simt::{Executor, Mode};
use warpheap::{Device, Error, Result, Stream};
use warpheap_device::kernel::DevicePtr;

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// An upstream of addresses without memory. Nothing may access its blocks.
pub struct Counted {
    device: Device,
    state: Mutex<(u64, BTreeMap<u64, Layout>)>,
}

impl Counted {
    pub fn new(device: &Device) -> Counted {
        Counted { device: device.clone(), state: Mutex::new((1 << 40, BTreeMap::new())) }
    }
}

// SAFETY: each address is allocated once, and these tests neither read nor write any of them.
unsafe impl DeviceAllocator for Counted {
    fn device(&self) -> &Device {
        &self.device
    }

    fn allocate(&self, layout: Layout, _: &Stream) -> Result<DevicePtr<u8>> {
        let mut state = self.state.lock().unwrap();
        let start = state.0.next_multiple_of(layout.align() as u64);
        // A gap, so that segments do not touch.
        state.0 = start + layout.size() as u64 + 4096;
        state.1.insert(start, layout);
        Ok(DevicePtr(std::ptr::without_provenance_mut(start as usize)))
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, _: &Stream) -> Result<()> {
        assert_eq!(self.state.lock().unwrap().1.remove(&(ptr.0.addr() as u64)), Some(layout));
        Ok(())
    }

    fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        usage.used_bytes = self.state.lock().unwrap().1.values().map(|of| of.size() as u64).sum();
        usage.reserved_bytes = usage.used_bytes;
        usage
    }
}

fn cpu() -> (Device, Stream) {
    let device = Device::cpu();
    let stream = device.stream().unwrap();
    (device, stream)
}

pub fn take(pool: &dyn DeviceAllocator, size: usize, stream: &Stream) -> Block {
    (pool.allocate(layout(size, 256), stream).unwrap(), layout(size, 256))
}

#[test]
fn a_freed_mebibyte_is_handed_out_again_with_one_call_upstream() {
    let (device, stream) = cpu();
    let over = CachingPool::builder().build_over(SyncDriverAllocator::new(&device)).unwrap();
    let on = CachingPool::builder().build(&device).unwrap();
    for pool in [&over, &on] {
        let first = take(pool, MIB, &stream);
        give(pool, first, &stream).unwrap();
        let second = take(pool, MIB, &stream);
        assert_eq!(first.0.0, second.0.0);
        let stats = pool.stats();
        assert_eq!((stats.upstream_allocs, stats.hits, stats.misses), (1, 1, 1), "{stats:?}");
        give(pool, second, &stream).unwrap();
        assert_eq!(pool.trim().unwrap(), stats.usage.reserved_bytes);
        assert_eq!((pool.stats().usage.reserved_bytes, pool.stats().upstream_frees), (0, 1));
        assert_eq!(pool.usage(), Usage::default());
    }
    assert_eq!(over.upstream().usage().used_bytes, 0);
}

#[test]
fn sizes_are_rounded_and_what_that_wastes_is_reported() {
    let (device, stream) = cpu();
    let pool = CachingPool::builder().build_over(Counted::new(&device)).unwrap();
    let rounded = [(1, 512), (513, 1024), ((1 << 20) + 1, 2 << 20), ((2 << 30) + 1, (2 << 30) + 1)];
    for (size, to) in rounded {
        assert_eq!(pool.rounded(size), to);
    }
    let blocks = [take(&pool, 1, &stream), take(&pool, 513, &stream), take(&pool, 33 * MIB + 1, &stream)];
    let stats = pool.stats();
    assert_eq!(stats.usage.used_bytes, 512 + 1024 + 33 * MIB as u64 + 512, "33 MiB do not take 64");
    assert_eq!((stats.wasted_bytes, stats.live_blocks), (511 + 511 + 511, 3));
    let of: Vec<_> = stats.classes.iter().map(|class| (class.class_bytes, class.wasted_bytes)).collect();
    assert_eq!(of, [(Some(512), 511), (Some(1024), 511), (Some(64 << 20), 511)]);
    assert_eq!(stats.cached_bytes, stats.usage.reserved_bytes - stats.usage.used_bytes);
    for block in blocks {
        give(&pool, block, &stream).unwrap();
    }
    let stats = pool.stats();
    assert_eq!((stats.usage.used_bytes, stats.asked_bytes, stats.wasted_bytes), (0, 0, 0));
    // More classes per doubling waste less memory.
    let four = CachingPool::builder().classes_per_doubling(4).build_over(Counted::new(&device)).unwrap();
    assert_eq!((pool.rounded(40_000), four.rounded(40_000)), (65_536, 40_960));
    assert!(format!("{pool:?}").contains("0 B of"), "{pool:?}");
    let json = serde_json::to_value(&stats).unwrap();
    assert_eq!(json["rungs"]["grown"], stats.rungs.grown);
}

#[test]
fn the_fifth_gibibyte_of_four_is_refused_with_figures() {
    let (device, stream) = cpu();
    let pool = CachingPool::builder().max_bytes(4 << 30).build_over(Counted::new(&device)).unwrap();
    let four: Vec<_> = (0..4).map(|_| take(&pool, GIB, &stream)).collect();
    let error = pool.allocate(layout(GIB, 256), &stream).unwrap_err();
    let Error::OutOfMemory(OutOfMemory::Pool { requested, used, reserved, largest, .. }) = &error else {
        panic!("{error}")
    };
    assert_eq!((requested.0, used.0, reserved.0, largest.0), (1 << 30, 4 << 30, 4 << 30, 0));
    let message = error.to_string();
    assert!(message.contains("at most 4294967296 B (4.0 GiB)") && message.contains("max_bytes"), "{message}");
    assert_eq!(pool.stats().rungs.failed, 1);
    give(&pool, four[1], &stream).unwrap();
    assert_eq!(take(&pool, GIB, &stream).0.0, four[1].0.0);
    for block in four {
        give(&pool, block, &stream).unwrap();
    }
    assert_eq!(pool.max_bytes(), Some(4 << 30));
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let (device, _) = cpu();
    let builder = CachingPool::builder;
    let refused: [(CachingPoolBuilder, &str); 6] = [
        (builder().max_bytes(100), "max_bytes"),
        (builder().min_block(300), "min_block"),
        (builder().segment_bytes(1000), "segment_bytes"),
        (builder().segment_bytes(0), "segment_bytes"),
        (builder().classes_per_doubling(3), "classes_per_doubling"),
        (builder().slab_limit(4 << 20), "slab_limit"),
    ];
    for (builder, setting) in refused {
        let error = builder.build_over(SyncDriverAllocator::new(&device)).unwrap_err();
        let Error::InvalidConfig(InvalidConfig::Pool { setting: named, .. }) = &error else {
            panic!("{error}")
        };
        assert_eq!(*named, setting, "{error}");
    }
}

#[test]
fn one_segment_that_grows_never_has_more_than_the_limit() {
    let (device, stream) = cpu();
    let on = |bytes| CachingPool::builder().max_bytes(bytes).build(&device);
    let Error::InvalidConfig(InvalidConfig::Pool { setting, given, why }) = on((2 << 20) - 1).unwrap_err()
    else {
        panic!()
    };
    assert_eq!((setting, given.contains("2097151 B"), why.contains("2097152 B")), ("max_bytes", true, true));
    for (asked, granted) in [(2 << 20, 2 << 20), ((4 << 20) - 1, 2 << 20), ((4 << 20) + 1000, 4 << 20)] {
        let pool = on(asked).unwrap();
        assert_eq!(pool.max_bytes(), Some(granted));
        let all: Vec<Block> = std::iter::from_fn(|| pool.allocate(layout(100_000, 256), &stream).ok())
            .map(|ptr| (ptr, layout(100_000, 256)))
            .collect();
        assert!(all.len() as u64 >= granted / 110_000, "{}", all.len());
        assert_eq!((pool.stats().peak_reserved_bytes, device.memory_in_use().0), (granted, granted));
        for block in all {
            give(&pool, block, &stream).unwrap();
        }
    }
}

#[test]
fn threads_that_share_a_segment_which_grows_and_shrinks_get_what_there_is_room_for() {
    let (device, _) = cpu();
    let builder = CachingPool::builder().segment_bytes(512).max_bytes(256 << 20);
    let pool = builder.build(&device).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (pool, device) = (&pool, &device);
            scope.spawn(move || {
                let stream = device.stream().unwrap();
                let size = |round: usize| (1 + (round * 7 + thread) % 5) * 900_000;
                for _ in 0..20 {
                    let held: Vec<Block> = (0..10).map(|round| take(pool, size(round), &stream)).collect();
                    held.into_iter().for_each(|block| give(pool, block, &stream).unwrap());
                    pool.trim().unwrap();
                }
            });
        }
    });
    assert_eq!((pool.stats().rungs.failed, pool.stats().usage.used_bytes), (0, 0));
}

#[test]
fn frees_that_are_wrong_are_told_apart() {
    let (device, stream) = cpu();
    let pool = CachingPool::builder().build_over(Counted::new(&device)).unwrap();
    let (small, large) = (take(&pool, 700, &stream), take(&pool, 5 * MIB, &stream));
    let at = |block: Block, by: usize| (DevicePtr(block.0.0.wrapping_add(by)), block.1);
    let wrong = [
        (at(small, 512), "it lies inside of the block of 700 B"),
        (at(large, 4096), "it lies inside of the block of 5242880 B"),
        (at(small, 1024), "is already free"),
        (at(large, 5 * MIB), "no block is allocated there"),
        ((small.0, layout(701, 256)), "it was allocated as 700 B"),
        ((DevicePtr(std::ptr::without_provenance_mut(4096)), large.1), "in no segment"),
    ];
    for (block, words) in wrong {
        let error = give(&pool, block, &stream).unwrap_err();
        assert!(
            matches!(error, Error::InvalidFree(InvalidFree::Block { .. }))
                && error.to_string().contains(words),
            "{error}"
        );
    }
    give(&pool, small, &stream).unwrap();
    give(&pool, large, &stream).unwrap();
    assert!(give(&pool, large, &stream).unwrap_err().to_string().contains("is already free"));
}

/// Blocks are aligned to their size class, even if the upstream aligns to less.
#[test]
fn an_upstream_that_aligns_to_little_does() {
    let (device, stream) = cpu();
    let upstream =
        BlockPool::builder(layout(2 * MIB, 512), 2).build_over(SyncDriverAllocator::new(&device)).unwrap();
    let pool = CachingPool::builder().segment_bytes(2 << 20).build_over(upstream).unwrap();
    for align in [1 << 14, 1 << 17] {
        let block = layout(10_000, align);
        let ptr = pool.allocate(block, &stream).unwrap();
        assert!((ptr.0 as usize).is_multiple_of(align));
        give(&pool, (ptr, block), &stream).unwrap();
    }
    assert!(pool.allocate(layout(3 * MIB, 512), &stream).is_err());
}

/// RMM's benchmark: 73 in 100 operations allocate, as long as allocations are left and fit under
/// the limit. All others free a random block.
struct Random {
    rng: Pcg64Mcg,
    live: u64,
    peak: u64,
    held: Vec<Block>,
}

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }

    fn run(pool: &dyn DeviceAllocator, largest: usize, seed: u64, stream: &Stream) -> Random {
        const ALLOCATIONS: usize = 100_000;
        const MOST: u64 = 16_000 << 20;
        let mut of = Random { rng: Pcg64Mcg::seed_from_u64(seed), live: 0, peak: 0, held: Vec::new() };
        let mut made = 0;
        for _ in 0..2 * ALLOCATIONS {
            let size = 1 + of.below(largest as u64);
            let chance = of.below(100) < 73;
            let allocates = chance && made < ALLOCATIONS && of.live + size < MOST;
            if of.held.is_empty() || allocates {
                of.held.push(take(pool, size as usize, stream));
                of.live += size;
                of.peak = of.peak.max(of.live);
                made += 1;
            } else {
                let at = of.below(of.held.len() as u64) as usize;
                let block = of.held.swap_remove(at);
                of.live -= block.1.size() as u64;
                give(pool, block, stream).unwrap();
            }
        }
        of
    }
}

fn ratio<A: DeviceAllocator>(name: &str, pool: &CachingPool<A>, largest: usize, seed: u64) -> f64 {
    let (start, stream) = (std::time::Instant::now(), pool.device().stream().unwrap());
    let stream = &stream;
    let run = Random::run(pool, largest, seed, stream);
    let stats = pool.stats();
    let ratio = stats.peak_reserved_bytes as f64 / run.peak as f64;
    println!(
        "{name}, to {} MiB: peak reserved {} MiB of peak live {} MiB: {ratio:.3}; {} calls upstream, {} of {} hits, {:?}",
        largest / MIB,
        stats.peak_reserved_bytes >> 20,
        run.peak >> 20,
        stats.upstream_allocs + stats.upstream_frees,
        stats.hits,
        stats.hits + stats.misses,
        start.elapsed(),
    );
    for block in run.held {
        give(pool, block, stream).unwrap();
    }
    assert_eq!(pool.usage().used_bytes, 0);
    pool.trim().unwrap();
    assert_eq!(pool.stats().usage.reserved_bytes, 0, "all of it merges and goes back");
    ratio
}

#[test]
fn random_allocations_reserve_little_more_than_is_live() {
    let executor = Executor::new(Mode::Parallel { workers: 1 });
    let device = Device::cpu_with_executor(executor, 32 << 30);
    for (largest, seed) in [(MIB, 7), (64 * MIB, 7), (64 * MIB, 8), (64 * MIB, 9)] {
        let growing = CachingPool::builder().build(&device).unwrap();
        assert!(ratio("one segment that grows", &growing, largest, seed) <= 1.15);
        // Memory is stranded at the ends of segments.
        let blocks = CachingPool::builder().segment_bytes(1 << 30).build_over(Counted::new(&device)).unwrap();
        assert!(ratio("segments of 1 GiB", &blocks, largest, seed) <= 1.25);
    }
}

#[test]
fn streams_may_come_and_go_by_the_thousand() {
    let (device, _) = cpu();
    let pool = CachingPool::builder().build_over(SyncDriverAllocator::new(&device)).unwrap();
    for number in 0..2000 {
        if number % 50 == 0 {
            // Let the dropped streams, each with a thread of its own, reach their last events.
            device.synchronize().unwrap();
        }
        let stream = device.stream().unwrap();
        let blocks: Vec<_> = [300, 70_000, 3 * MIB].map(|size| take(&pool, size, &stream)).into();
        for block in blocks {
            give(&pool, block, &stream).unwrap();
        }
    }
    let stats = pool.stats();
    // The third block comes from the extent that the second one created.
    assert_eq!((stats.live_blocks, stats.misses), (0, 4000));
    // Nearly 6 GiB were allocated in total.
    assert!(stats.usage.reserved_bytes <= 1 << 30, "{stats:?}");
    pool.trim().unwrap();
    assert_eq!(pool.stats().usage.reserved_bytes, 0);
}

#[test]
fn blocks_may_be_freed_on_other_streams_and_threads() {
    let (device, stream) = cpu();
    let pool = CachingPool::builder().build_over(SyncDriverAllocator::new(&device)).unwrap();
    let other = device.stream().unwrap();
    for size in [1000, 3 * MIB] {
        let block = take(&pool, size, &stream);
        std::thread::scope(|scope| {
            scope.spawn(|| give(&pool, block, &other)).join().unwrap().unwrap();
        });
        assert_eq!(pool.usage().used_bytes, 0);
        assert_eq!(take(&pool, size, &other).0.0, block.0.0, "of the stream that it was freed on");
        give(&pool, block, &stream).unwrap();
    }
}

/// CPU time of this thread in nanoseconds, where Linux reports it. Other programs do not affect it.
fn of_core() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

/// Nanoseconds per pair, over `count` pairs: wall-clock time, and CPU time.
fn pairs(allocator: &dyn DeviceAllocator, count: u32, size: usize, stream: &Stream) -> (f64, f64) {
    let (start, before) = (std::time::Instant::now(), of_core());
    for _ in 0..count {
        let block = take(allocator, size, stream);
        give(allocator, block, stream).unwrap();
    }
    let by_clock = start.elapsed().as_nanos() as f64;
    let of_core = of_core().zip(before).map_or(by_clock, |(now, before)| (now - before) as f64);
    (by_clock / f64::from(count), of_core / f64::from(count))
}

/// Run it in a release build:
/// `cargo test --release --test host_pools -- --ignored --nocapture pairs_take`.
#[test]
#[ignore = "a measurement"]
fn pairs_take_nanoseconds() {
    const PAIRS: u32 = 2_000_000;
    let device = Device::cpu();
    let pool = CachingPool::builder().build_over(SyncDriverAllocator::new(&device)).unwrap();
    let stream = device.stream().unwrap();
    for size in [256, 4096, MIB, 64 * MIB] {
        let (by_clock, of_core) = pairs(&pool, PAIRS, size, &stream);
        println!("1 thread, {size} B: {by_clock:.1} ns a pair by the clock, {of_core:.1} ns of a core");
    }
    for threads in [2, 16] {
        let streams: Vec<_> = (0..threads).map(|_| device.stream().unwrap()).collect();
        let all: Vec<(f64, f64)> = std::thread::scope(|scope| {
            let pool = &pool;
            let work = |stream| scope.spawn(move || pairs(pool, PAIRS, MIB, stream));
            let started: Vec<_> = streams.iter().map(work).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let most = |of: fn(&(f64, f64)) -> f64| all.iter().map(of).fold(0.0, f64::max);
        let (by_clock, of_core) = (most(|of| of.0), most(|of| of.1));
        println!(
            "{threads} threads, 1 MiB, the slowest: {by_clock:.1} ns a pair by the clock, {of_core:.1} ns of a core"
        );
    }
    let (by_clock, of_core) = pairs(&SyncDriverAllocator::new(&device), 1000, MIB, &stream);
    println!("the CPU's own memory, 1 MiB: {by_clock:.1} ns a pair by the clock, {of_core:.1} ns of a core");
}
