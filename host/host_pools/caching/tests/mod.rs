//! Streams whose driver calls fail, streams that have ended, and the invariants of the pool.

mod limits;

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

/// What a pool waits for when it is dropped.
mod drops {
    use super::*;
    use crate::driver::Event;
    use crate::driver::fault_injection::{faulty_stream, gate};
    use crate::host_pools::{BumpPool, DriverPool};
    use std::time::Duration;

    /// The upstream frees in the order of streams, so it does not wait on the host. It outlives the
    /// pools.
    fn upstream(device: &Device) -> DriverPool {
        DriverPool::builder().build(device).unwrap()
    }

    fn caching(upstream: &DriverPool) -> CachingPool<&DriverPool> {
        CachingPool::builder().segment_bytes(2 << 20).build_over(upstream).unwrap()
    }

    #[test]
    fn without_live_blocks_a_drop_does_not_wait_for_unfinished_work() {
        let device = Device::cpu();
        let (stream, upstream) = (device.stream().unwrap(), upstream(&device));
        let caching = caching(&upstream);
        let bump = BumpPool::builder(layout(MIB)).build_over(&upstream).unwrap();
        let (in_caching, in_bump) =
            (alloc(&caching, MIB, &stream), bump.allocate(layout(512), &stream).unwrap());
        let (event, gate) = gate(&device);
        stream.wait(&event).unwrap();
        free(&caching, in_caching, MIB, &stream);
        // SAFETY: no work uses the block (P1), and it is freed once (P2).
        unsafe { bump.deallocate(in_bump, layout(512), &stream) }.unwrap();
        drop(caching);
        drop(bump);
        assert!(!stream.is_done().unwrap(), "the stream still waits for the gate");
        gate.open();
        stream.synchronize().unwrap();
    }

    /// Drops a pool while a stream is blocked for some time. Returns whether the event that blocks
    /// it has happened then.
    fn waits<P>(pool: P, event: &Event, open: impl FnOnce() + Send + 'static) -> bool {
        let opener = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            open();
        });
        drop(pool);
        let is_done = event.is_done().unwrap();
        opener.join().unwrap();
        is_done
    }

    /// The streams' work and the drop cannot be ordered on the device.
    #[test]
    fn a_drop_waits_for_the_device_if_the_driver_fails_to_order_it() {
        let device = Device::cpu();
        let upstream = upstream(&device);
        // A point of the stream cannot be recorded.
        let (pool, first) = (caching(&upstream), Watched::new(&device));
        let (ptr, (event, of_first)) = (alloc(&pool, MIB, first.stream()), gate(&device));
        first.stream().wait(&event).unwrap();
        first.calls.fail(true);
        free(&pool, ptr, MIB, first.stream());
        assert!(waits(pool, &event, move || of_first.open()), "no point is known");
        // The pool's stream cannot wait.
        let (mut pool, second) = (caching(&upstream), device.stream().unwrap());
        let (pool_stream, calls) = faulty_stream(&device);
        pool.pool_stream = pool_stream;
        let (ptr, (event, of_second)) = (alloc(&pool, MIB, &second), gate(&device));
        second.wait(&event).unwrap();
        free(&pool, ptr, MIB, &second);
        calls.fail(true);
        assert!(waits(pool, &event, move || of_second.open()), "the pool's stream did not wait");
    }
}

/// While a reservation grows, another thread allocates the free memory at its end that the growth
/// relied on.
mod growth {
    use super::super::ladder::MAX_GROWTHS;
    use super::*;
    use crate::driver::fault_injection::{self, Call};
    use crate::error::{Error, OutOfMemory, Result};
    use crate::host_pools::address_of;
    use std::sync::Mutex;

    /// Minimum growth of the pool, in MiB.
    const STEP: usize = 4;
    /// The requested size in MiB, larger than one step.
    const REQUEST: usize = 6;
    /// Limit of the pool in MiB. An extent has at most 2 MiB, so 2 MiB of the first step stay free.
    const LIMIT: usize = 64;

    type Growing = CachingPool<SyncDriverAllocator>;

    /// A competing thread with a separate stream. Each time memory is mapped, it allocates all free
    /// memory at the end.
    struct Rival {
        pool: Arc<Growing>,
        faults: Arc<Faults>,
        stream: Stream,
        blocks: Mutex<Vec<(DevicePtr<u8>, usize)>>,
    }

    impl Rival {
        /// Interferes with the next `times` mappings.
        fn interfere(self: Arc<Rival>, times: usize) {
            if times == 0 {
                return;
            }
            self.faults.clone().before(Call::Map, move || {
                // At first 2 MiB of the first step are free; later the previous step, which was
                // meant for the other thread.
                let size = if lock(&self.blocks).is_empty() { 2 * MIB } else { STEP * MIB };
                let (pool, stream) = (&self.pool, &self.stream);
                let ptr = std::thread::scope(|scope| {
                    let rival = scope.spawn(|| alloc(pool, size, stream).0.expose_provenance());
                    DevicePtr(std::ptr::with_exposed_provenance_mut(rival.join().unwrap()))
                });
                lock(&self.blocks).push((ptr, size));
                self.interfere(times - 1);
            });
        }
    }

    /// Requests more than is free, while the rival interferes `times` times. Returns the pool, the
    /// outcome, and the number of mappings for the request.
    fn race(times: usize, limit: usize) -> (Arc<Growing>, Result<()>, usize) {
        let (device, faults) = fault_injection::faulty_device(256 << 20);
        let builder = CachingPool::builder().spare_bytes(0).segment_bytes((STEP * MIB) as u64);
        let pool = Arc::new(builder.max_bytes((limit * MIB) as u64).build(&device).unwrap());
        let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
        // If the pool had one stream only, that stream would get the entire first step.
        let cache = pool.streams.get(&other);
        lock(&pool.shared).order_of(&cache);
        let first = alloc(&pool, 2 * MIB, &stream);
        let blocks = Mutex::default();
        let rival = Arc::new(Rival { pool: pool.clone(), faults: faults.clone(), stream: other, blocks });
        rival.clone().interfere(times);
        let before = faults.calls_of(Call::Map);
        let outcome = pool.allocate(layout(REQUEST * MIB), &stream);
        let mapped = faults.calls_of(Call::Map) - before;
        pool.check();

        let mut blocks = std::mem::take(&mut *lock(&rival.blocks));
        assert_eq!(blocks.len(), times, "it interfered each time");
        blocks.push((first, 2 * MIB));
        blocks.extend(outcome.as_ref().ok().map(|ptr| (*ptr, REQUEST * MIB)));
        blocks.sort_unstable_by_key(|(ptr, _)| address_of(*ptr));
        let is_disjoint =
            blocks.is_sorted_by(|(one, size), (two, _)| address_of(*one) + *size as u64 <= address_of(*two));
        assert!(is_disjoint, "two blocks overlap");
        blocks.into_iter().for_each(|(ptr, size)| free(&pool, ptr, size, &stream));
        (pool, outcome.map(drop), mapped)
    }

    #[test]
    fn an_allocation_that_loses_the_race_grows_again() {
        for times in 0..=MAX_GROWTHS {
            let (pool, outcome, mapped) = race(times, LIMIT);
            outcome.unwrap();
            let rungs = pool.stats().rungs;
            // An allocation that always loses releases the cached segments and retries.
            let grown = if times < MAX_GROWTHS { (2, 0) } else { (1, 1) };
            assert_eq!((mapped, rungs.failed), (times + 1, 0), "{times} races: {rungs:?}");
            assert_eq!((rungs.grown, rungs.released), grown, "{times} races: {rungs:?}");
            check_released(&pool);
        }
    }

    #[test]
    fn an_allocation_that_always_loses_fails_at_the_limit() {
        let (pool, outcome, mapped) = race(MAX_GROWTHS, STEP * (MAX_GROWTHS + 1));
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::OutOfMemory(OutOfMemory::Pool { .. })), "{error}");
        let why = "other threads allocated the memory that it grew by, 8 times";
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!((mapped, pool.stats().rungs.failed), (MAX_GROWTHS, 1));
        let stream = pool.device().stream().unwrap();
        free(&pool, alloc(&pool, REQUEST * MIB, &stream), REQUEST * MIB, &stream);
        check_released(&pool);
    }
}

/// A stream that is blocked for long, and other streams with completed work.
mod starved {
    use super::super::RungStats;
    use super::super::shared::MAX_BUSY;
    use super::*;
    use crate::driver::fault_injection::gate;
    use std::time::{Duration, Instant};

    /// Blocks of the slow stream, each behind a separate event.
    const PENDING: usize = MAX_BUSY + 4;

    /// Lets a third stream allocate four blocks that another stream freed and has passed, listed
    /// behind those of a slow stream. Returns the rungs that served it, and whether it waits for
    /// the slow stream.
    fn served(limit: usize) -> (RungStats, bool) {
        let device = Device::cpu();
        let builder =
            CachingPool::builder().segment_bytes(2 << 20).spare_bytes(0).max_bytes((limit * MIB) as u64);
        let pool = builder.build_over(SyncDriverAllocator::new(&device)).unwrap();
        let [slow, quick, other, third] = [(); 4].map(|()| device.stream().unwrap());
        let slow_blocks = [(); PENDING].map(|()| alloc(&pool, MIB, &slow));
        let quick_blocks = [(); 4].map(|()| alloc(&pool, MIB, &quick));
        let (event, gate) = gate(&device);
        slow.wait(&event).unwrap();
        for ptr in slow_blocks {
            free(&pool, ptr, MIB, &slow);
            // An allocation that looks for more memory puts what the slow stream has freed behind
            // an event.
            alloc(&pool, 2 * MIB, &other);
        }
        quick_blocks.into_iter().for_each(|ptr| free(&pool, ptr, MIB, &quick));
        quick.synchronize().unwrap();
        let before = pool.stats().rungs;
        for _ in 0..4 {
            alloc(&pool, MIB, &third);
        }
        let mut rungs = pool.stats().rungs;
        (rungs.grown, rungs.stolen) = (rungs.grown - before.grown, rungs.stolen - before.stolen);
        // The stream has no other work, and reaches that point unless it waits for the gate.
        let reached = third.record().unwrap();
        let deadline = Instant::now() + Duration::from_secs(if rungs.stolen > 0 { 1 } else { 300 });
        while !reached.is_done().unwrap() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let waits = !reached.is_done().unwrap();
        gate.open();
        (rungs, waits)
    }

    #[test]
    fn completed_frees_are_found_behind_those_of_a_slow_stream() {
        // First the pool can still grow, then it cannot.
        for limit in [200, 64] {
            let (rungs, waits) = served(limit);
            assert_eq!((rungs.grown, rungs.stolen, waits), (0, 0, false), "limit {limit} MiB: {rungs:?}");
        }
    }
}
