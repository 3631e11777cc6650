//! Streams whose driver calls fail, streams that have ended, and the invariants of the pool.

mod drops;
mod growth;
mod limits;
mod starved;

use super::CachingPool;
use crate::driver::fault_injection::{Faults, faulty_stream};
use crate::driver::{Device, Stream};
use crate::host_pools::{DeviceAllocator, Limit, SyncDriverAllocator};
use crate::lock::lock;
use crate::simt::{Executor, Mode};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::alloc::Layout;
use std::sync::Arc;
use warpheap_device::kernel::DevicePtr;

const MIB: usize = 1 << 20;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 256).unwrap()
}

/// A stream that can be dropped, with its injected faults and call counts.
struct Watched {
    stream: Option<Stream>,
    calls: Arc<Faults>,
}

impl Watched {
    fn new(device: &Device) -> Watched {
        let (stream, calls) = faulty_stream(device);
        Watched { stream: Some(stream), calls }
    }

    fn stream(&self) -> &Stream {
        self.stream.as_ref().unwrap()
    }
}

impl<A: DeviceAllocator> CachingPool<A> {
    /// The invariants of the pool's parts.
    pub(crate) fn check(&self) {
        lock(&self.shared).check();
    }
}

/// A pool of one segment of 2 MiB.
fn pool(device: &Device) -> CachingPool<Limit<SyncDriverAllocator>> {
    let upstream = Limit::new(SyncDriverAllocator::new(device), 2 << 20);
    CachingPool::builder().segment_bytes(2 << 20).spare_bytes(0).build_over(upstream).unwrap()
}

fn alloc<A: DeviceAllocator>(pool: &CachingPool<A>, size: usize, stream: &Stream) -> DevicePtr<u8> {
    pool.allocate(layout(size), stream).unwrap()
}

fn free<A: DeviceAllocator>(pool: &CachingPool<A>, ptr: DevicePtr<u8>, size: usize, stream: &Stream) {
    // SAFETY: no work uses the block, and each test frees it once (P1, P2).
    unsafe { pool.deallocate(ptr, layout(size), stream) }.unwrap();
}

/// All memory is free, and is released to the upstream.
fn check_released<A: DeviceAllocator>(pool: &CachingPool<A>) {
    pool.check();
    pool.trim().unwrap();
    let stats = pool.stats();
    assert_eq!(
        (stats.usage.used_bytes, stats.usage.reserved_bytes, pool.context.blocks.slots().len()),
        (0, 0, 0)
    );
}

#[test]
fn a_single_stream_records_no_events() {
    let device = Device::cpu();
    let (pool, stream) = (pool(&device), Watched::new(&device));
    for size in [512, 100_000, MIB, 2 * MIB, 700, MIB] {
        for _ in 0..300 {
            free(&pool, alloc(&pool, size, stream.stream()), size, stream.stream());
        }
    }
    assert_eq!((stream.calls.records(), stream.calls.waits()), (0, 0));
    assert_eq!((pool.stats().upstream_allocs, lock(&pool.shared).pending().len()), (1, 0));
}

#[test]
fn blocks_of_an_ended_stream_are_behind_its_last_point() {
    let device = Device::cpu();
    let (pool, mut first, second) = (pool(&device), Watched::new(&device), Watched::new(&device));
    let ptr = alloc(&pool, 2 * MIB, first.stream());
    free(&pool, ptr, 2 * MIB, first.stream());
    assert_eq!(first.calls.records(), 0);
    first.stream = None;
    assert_eq!((first.calls.streams(), first.calls.records()), (0, 1), "the pool holds no handle");
    assert_eq!(alloc(&pool, 2 * MIB, second.stream()).0, ptr.0);
    assert_eq!(pool.streams.all().len(), 1, "the ended stream has no cache");
    free(&pool, ptr, 2 * MIB, second.stream());
    let stats = pool.stats();
    assert_eq!((stats.misses, stats.usage.used_bytes, stats.live_blocks), (2, 0, 0), "its counts remain");
}

/// The rung `waited`: there is no event to wait for.
#[test]
fn the_host_waits_if_no_event_can_be_recorded() {
    let device = Device::cpu();
    for ends in [false, true] {
        let (pool, mut first, second) = (pool(&device), Watched::new(&device), Watched::new(&device));
        let ptr = alloc(&pool, 2 * MIB, first.stream());
        first.calls.fail(true);
        free(&pool, ptr, 2 * MIB, first.stream());
        if ends {
            first.stream = None;
        }
        assert_eq!(alloc(&pool, 2 * MIB, second.stream()).0, ptr.0);
        let rungs = pool.stats().rungs;
        assert_eq!((rungs.waited, rungs.stolen, second.calls.waits()), (1, 0, 0), "{rungs:?}");
        assert!(lock(&pool.shared).unmarked().is_empty());
        free(&pool, ptr, 2 * MIB, second.stream());
    }
}

#[test]
fn threads_that_outlive_a_pool_keep_no_memory_of_it() {
    let device = Device::cpu();
    let (first, second) = (pool(&device), pool(&device));
    let (mut stream, other) = (Watched::new(&device), Watched::new(&device));
    free(&first, alloc(&first, MIB, stream.stream()), MIB, stream.stream());
    drop(first);
    assert_eq!(device.memory_in_use(), (0, 0));
    let before = stream.calls.records();
    stream.stream = None;
    assert_eq!(stream.calls.records(), before, "a dropped pool records no last point");
    free(&second, alloc(&second, MIB, other.stream()), MIB, other.stream());
}

/// I1 and I3 of the pool: used, cached and free bytes add up to the reserved bytes after many
/// operations on several streams.
#[test]
fn no_memory_leaks_between_caches_slabs_and_segments() {
    let device = Device::cpu();
    let builder = CachingPool::builder().segment_bytes(4 << 20).max_bytes(24 << 20);
    let pool = builder.build_over(SyncDriverAllocator::new(&device)).unwrap();
    let mut streams: Vec<Stream> = (0..4).map(|_| device.stream().unwrap()).collect();
    let (mut rng, mut live) = (Pcg64Mcg::seed_from_u64(3), Vec::new());
    for step in 0..20_000 {
        let word = rng.next_u64() as usize;
        let at = word % streams.len();
        if word.is_multiple_of(997) {
            streams[at] = device.stream().unwrap();
        }
        let size = 1 + (word >> 8) % (1 << (8 + (word >> 40) % 14));
        if live.len() < 60 && word & 128 == 0 {
            live.extend(pool.allocate(layout(size), &streams[at]).map(|ptr| (ptr, size)));
        } else if !live.is_empty() {
            let (ptr, size) = live.swap_remove(word / 7 % live.len());
            free(&pool, ptr, size, &streams[at]);
        }
        if step % 100 == 0 {
            pool.check();
            let requested: usize = live.iter().map(|(_, size)| size).sum();
            assert_eq!(pool.counts(&lock(&pool.shared)).requested(), requested as u64);
        }
    }
    let rungs = pool.stats().rungs;
    assert!(rungs.shared > 0 && rungs.grown > 0 && rungs.done + rungs.stolen > 0, "{rungs:?}");
    live.into_iter().for_each(|(ptr, size)| free(&pool, ptr, size, &streams[0]));
    check_released(&pool);
    assert!(pool.stats().upstream_frees > 0);
}

/// The pool's own check detects memory that could never be allocated again.
#[test]
#[should_panic(expected = "I1: OrderTag(")]
fn the_check_finds_pieces_with_an_unknown_order() {
    let pool = pool(&Device::cpu());
    let cache = pool.streams.get(&pool.device().stream().unwrap());
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
fn threads_on_one_stream_leak_no_blocks() {
    let device = Device::cpu();
    let stream = device.stream().unwrap();
    let pool = CachingPool::builder().build_over(SyncDriverAllocator::new(&device)).unwrap();
    let work = |thread: usize| {
        for turn in 0..200 {
            // More than a bin keeps, both small and large blocks.
            let size = if (turn + thread).is_multiple_of(8) { MIB } else { 512 };
            let blocks: Vec<_> = (0..100).map(|_| alloc(&pool, size, &stream)).collect();
            blocks.into_iter().for_each(|ptr| free(&pool, ptr, size, &stream));
        }
    };
    std::thread::scope(|scope| {
        let work = &work;
        (0..4).for_each(|thread| drop(scope.spawn(move || work(thread))));
    });
    let stats = pool.stats();
    assert_eq!((stats.live_blocks, stats.usage.used_bytes, stats.requested_bytes), (0, 0, 0));
    assert!(stats.classes[0].cached_blocks <= 256 + 3 * 64, "{stats:?}");
    check_released(&pool);
}

/// No cache keeps such a block; its memory returns to the pool at once.
#[test]
fn blocks_above_all_classes_return_to_the_shared_state() {
    let device = Device::cpu_with_executor(Executor::new(Mode::Parallel { workers: 1 }), 8 << 30);
    let stream = device.stream().unwrap();
    let pool =
        CachingPool::builder().max_bytes(5 << 30).build_over(SyncDriverAllocator::new(&device)).unwrap();
    let size = (2 << 30) + 1;
    for _ in 0..3 {
        let two = [(); 2].map(|()| alloc(&pool, size, &stream));
        assert!(pool.allocate(layout(size), &stream).is_err());
        for ptr in two {
            free(&pool, ptr, size, &stream);
            // SAFETY: no work uses the block (P1). It is free, and nothing allocates in between:
            // the call must return an error (P2).
            assert!(unsafe { pool.deallocate(ptr, layout(size), &stream) }.is_err());
        }
        pool.check();
    }
    let stats = pool.stats();
    assert_eq!((stats.live_blocks, stats.usage.used_bytes, stats.upstream_allocs), (0, 0, 2), "{stats:?}");
}
