//! Streams that fail, and streams that have ended.

mod growth;
mod starved;

use super::CachingPool;
use crate::driver::fault_injection::{Faults, faulty_stream};
use crate::driver::{Device, Stream};
use crate::host_pools::sync::lock;
use crate::host_pools::{DeviceAllocator, Limit, SyncDriverAllocator};
use std::alloc::Layout;
use std::sync::Arc;
use warpheap_device::kernel::DevicePtr;

const MIB: usize = 1 << 20;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 256).unwrap()
}

/// A stream that can end, with its injected faults and call counts.
struct Watched {
    stream: Option<Stream>,
    of: Arc<Faults>,
}

impl Watched {
    fn new(device: &Device) -> Watched {
        let (stream, of) = faulty_stream(device);
        Watched { stream: Some(stream), of }
    }

    fn stream(&self) -> &Stream {
        self.stream.as_ref().unwrap()
    }
}

impl<A: DeviceAllocator> CachingPool<A> {
    /// The invariants of the pool's parts.
    pub(crate) fn check(&self) {
        lock(&self.shared).check(&self.live);
    }
}

type Pool = CachingPool<Limit<SyncDriverAllocator>>;

/// A pool of one segment of 2 MiB.
fn pool(device: &Device) -> Pool {
    let upstream = Limit::new(SyncDriverAllocator::new(device), 2 << 20);
    CachingPool::builder().segment_bytes(2 << 20).spare_bytes(0).build_over(upstream).unwrap()
}

fn take(pool: &Pool, size: usize, stream: &Stream) -> DevicePtr<u8> {
    pool.allocate(layout(size), stream).unwrap()
}

fn give(pool: &Pool, ptr: DevicePtr<u8>, size: usize, stream: &Stream) {
    // SAFETY: no work uses the block, and each test frees it once (P1, P2).
    unsafe { pool.deallocate(ptr, layout(size), stream) }.unwrap();
}

#[test]
fn a_stream_that_is_alone_is_never_asked_for_a_point() {
    let device = Device::cpu();
    let (pool, of) = (pool(&device), Watched::new(&device));
    for size in [512, 100_000, MIB, 2 * MIB, 700, MIB] {
        for _ in 0..300 {
            let ptr = take(&pool, size, of.stream());
            give(&pool, ptr, size, of.stream());
        }
    }
    assert_eq!((of.of.records(), of.of.waits()), (0, 0));
    assert_eq!((pool.stats().upstream_allocs, lock(&pool.shared).pending().len()), (1, 0));
}

#[test]
fn a_stream_is_not_kept_and_its_blocks_are_behind_its_last_point() {
    let device = Device::cpu();
    let (pool, mut of, other) = (pool(&device), Watched::new(&device), Watched::new(&device));
    let ptr = take(&pool, 2 * MIB, of.stream());
    give(&pool, ptr, 2 * MIB, of.stream());
    assert_eq!(of.of.records(), 0);
    of.stream = None;
    assert_eq!((of.of.streams(), of.of.records()), (0, 1), "the pool holds no handle");
    assert_eq!(take(&pool, 2 * MIB, other.stream()).0, ptr.0);
    assert_eq!(pool.streams.all().len(), 1, "the stream that is gone is forgotten");
    give(&pool, ptr, 2 * MIB, other.stream());
    let stats = pool.stats();
    assert_eq!((stats.misses, stats.usage.used_bytes, stats.live_blocks), (2, 0, 0), "its counts are not");
}

/// The rung `waited`: there is no event to wait for.
#[test]
fn what_no_event_could_be_recorded_for_is_waited_for_on_the_host() {
    let device = Device::cpu();
    for goes in [false, true] {
        let (pool, mut of, other) = (pool(&device), Watched::new(&device), Watched::new(&device));
        let ptr = take(&pool, 2 * MIB, of.stream());
        of.of.fail(true);
        give(&pool, ptr, 2 * MIB, of.stream());
        if goes {
            of.stream = None;
        }
        assert_eq!(take(&pool, 2 * MIB, other.stream()).0, ptr.0);
        let rungs = pool.stats().rungs;
        assert_eq!((rungs.waited, rungs.stolen, other.of.waits()), (1, 0, 0), "{rungs:?}");
        assert!(lock(&pool.shared).unmarked().is_empty());
        give(&pool, ptr, 2 * MIB, other.stream());
    }
}

#[test]
fn threads_that_outlive_a_pool_keep_nothing_of_it() {
    let device = Device::cpu();
    let mut of = Watched::new(&device);
    let first = pool(&device);
    let ptr = take(&first, MIB, of.stream());
    give(&first, ptr, MIB, of.stream());
    drop(first);
    assert_eq!(device.memory_in_use(), (0, 0));
    let before = of.of.records();
    of.stream = None;
    assert_eq!(of.of.records(), before, "a pool that is gone asks for no last point");
    let second = pool(&device);
    let other = Watched::new(&device);
    let ptr = take(&second, MIB, other.stream());
    give(&second, ptr, MIB, other.stream());
}

/// I1 and I3 of the pool: used, cached and free bytes add up to the reserved bytes after many
/// operations on several streams.
#[test]
fn nothing_is_lost_between_caches_slabs_and_segments() {
    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::{Rng, SeedableRng};
    let device = Device::cpu();
    let upstream = SyncDriverAllocator::new(&device);
    let pool =
        CachingPool::builder().segment_bytes(4 << 20).max_bytes(24 << 20).build_over(upstream).unwrap();
    let mut streams: Vec<Stream> = (0..4).map(|_| device.stream().unwrap()).collect();
    let (mut rng, mut held) = (Pcg64Mcg::seed_from_u64(3), Vec::new());
    for step in 0..20_000 {
        let word = rng.next_u64() as usize;
        let at = word % streams.len();
        if word.is_multiple_of(997) {
            streams[at] = device.stream().unwrap();
        }
        let size = 1 + (word >> 8) % (1 << (8 + (word >> 40) % 14));
        if held.len() < 60 && word & 128 == 0 {
            held.extend(pool.allocate(layout(size), &streams[at]).map(|ptr| (ptr, size)));
        } else if !held.is_empty() {
            let (ptr, size) = held.swap_remove(word / 7 % held.len());
            // SAFETY: no work uses the block, and it is freed once (P1, P2).
            unsafe { pool.deallocate(ptr, layout(size), &streams[at]) }.unwrap();
        }
        if step % 100 == 0 {
            pool.check();
            let shared = lock(&pool.shared);
            let asked: usize = held.iter().map(|(_, size)| size).sum();
            assert_eq!(pool.counts(&shared).asked(), asked as u64);
        }
    }
    let rungs = pool.stats().rungs;
    assert!(rungs.shared > 0 && rungs.grown > 0 && rungs.done + rungs.stolen > 0, "{rungs:?}");
    for (ptr, size) in held {
        // SAFETY: no work uses the block, and it is freed once (P1, P2).
        unsafe { pool.deallocate(ptr, layout(size), &streams[0]) }.unwrap();
    }
    assert!(pool.trim().unwrap() > 0);
    assert_eq!((pool.stats().usage.reserved_bytes, pool.live.slots().len()), (0, 0));
}

/// The pool's own check detects memory that could never be allocated again.
#[test]
#[should_panic(expected = "I1: OrderTag(")]
fn pieces_whose_order_was_forgotten_are_noticed() {
    let pool = pool(&Device::cpu());
    let stream = pool.device().stream().unwrap();
    let cache = pool.streams.get(&stream);
    let mut shared = lock(&pool.shared);
    let own = shared.order_of(&cache);
    shared.arena.add_segment(1 << 40, 1 << 20, 512, own);
    shared.forget(cache.key);
    drop(shared);
    pool.check();
}

/// The thread that exceeds a bin's limit removes the surplus, while others allocate and free on the
/// same stream.
#[test]
fn threads_of_one_stream_lose_nothing_to_each_other() {
    let device = Device::cpu();
    let stream = device.stream().unwrap();
    let pool = CachingPool::builder().build_over(SyncDriverAllocator::new(&device)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let (pool, stream) = (&pool, &stream);
            scope.spawn(move || {
                for turn in 0..200 {
                    // More than a bin keeps, both small and large blocks.
                    let size = if (turn + thread) % 8 == 0 { MIB } else { 512 };
                    let blocks: Vec<_> =
                        (0..100).map(|_| pool.allocate(layout(size), stream).unwrap()).collect();
                    for ptr in blocks {
                        // SAFETY: no work uses the block, and it is freed once (P1, P2).
                        unsafe { pool.deallocate(ptr, layout(size), stream) }.unwrap();
                    }
                }
            });
        }
    });
    pool.check();
    let stats = pool.stats();
    assert_eq!((stats.live_blocks, stats.usage.used_bytes, stats.asked_bytes), (0, 0, 0));
    assert!(stats.classes[0].cached_blocks <= 256 + 3 * 64, "{stats:?}");
    pool.trim().unwrap();
    assert_eq!((pool.stats().usage.reserved_bytes, pool.live.slots().len()), (0, 0));
}

/// No cache keeps such a block; its memory returns to the pool at once.
#[test]
fn blocks_above_all_classes_go_back_to_what_all_share() {
    use crate::simt::{Executor, Mode};
    let device = Device::cpu_with_executor(Executor::new(Mode::Parallel { workers: 1 }), 8 << 30);
    let stream = device.stream().unwrap();
    let pool =
        CachingPool::builder().max_bytes(5 << 30).build_over(SyncDriverAllocator::new(&device)).unwrap();
    let size = (2 << 30) + 1;
    for _ in 0..3 {
        let two = [(); 2].map(|()| pool.allocate(layout(size), &stream).unwrap());
        assert!(pool.allocate(layout(size), &stream).is_err());
        for ptr in two {
            // SAFETY: no work uses the block, and it is live (P1, P2).
            unsafe { pool.deallocate(ptr, layout(size), &stream) }.unwrap();
            // SAFETY: no work uses the block (P1). It is free, and nothing allocates in between:
            // the call must return an error (P2).
            assert!(unsafe { pool.deallocate(ptr, layout(size), &stream) }.is_err());
        }
        pool.check();
    }
    let stats = pool.stats();
    assert_eq!((stats.live_blocks, stats.usage.used_bytes, stats.upstream_allocs), (0, 0, 2), "{stats:?}");
}
