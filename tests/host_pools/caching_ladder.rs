//! Each rung of the caching pool's ladder, with an upstream that is out of memory.

use crate::prelude::alloc_bytes as alloc;
use crate::prelude::*;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

type Pool<A> = CachingPool<Limit<A>>;

fn limited_pool(device: &Device, bytes: usize) -> Pool<Counted> {
    let upstream = Limit::new(Counted::new(device), bytes as u64);
    CachingPool::builder().segment_bytes(2 << 20).spare_bytes(0).build_over(upstream).unwrap()
}

/// A pool without a memory limit.
pub fn pool_with_spare(device: &Device, spare: u64) -> CachingPool<SyncDriverAllocator> {
    CachingPool::builder().segment_bytes(2 << 20).spare_bytes(spare).build_over(driver(device)).unwrap()
}

pub fn two_streams() -> (Device, Stream, Stream) {
    let device = Device::cpu();
    let streams = [device.stream().unwrap(), device.stream().unwrap()];
    let [first, second] = streams;
    (device, first, second)
}

pub fn served<A: DeviceAllocator>(pool: &CachingPool<A>) -> RungStats {
    pool.stats().rungs
}

#[test]
fn a_stream_reuses_its_own_frees_first() {
    let (device, first, _) = two_streams();
    let pool = limited_pool(&device, 2 * MIB);
    let blocks = [alloc(&pool, MIB, &first), alloc(&pool, MIB, &first)];
    assert_eq!((served(&pool).grown, served(&pool).shared, pool.stats().hits), (1, 0, 1));
    free_all(&pool, blocks, &first);
    // Two cached halves coalesce without an event.
    let joined = alloc(&pool, 2 * MIB, &first);
    assert_eq!((served(&pool).done, pool.stats().hits), (0, 2), "merged in the stream's own extent");
    free(&pool, joined, &first).unwrap();
    // Unused slabs become a piece again.
    let many: Vec<_> = (0..64).map(|_| alloc(&pool, 32 << 10, &first)).collect();
    assert!(pool.allocate(layout(512, 256), &first).is_err());
    free_all(&pool, many, &first);
    free(&pool, alloc(&pool, 2 * MIB, &first), &first).unwrap();
    assert_eq!(pool.stats().upstream_frees, 0);
}

#[test]
fn free_memory_is_used_after_a_failed_upstream_call() {
    let (device, first, _) = two_streams();
    let upstream = FailureInjected::new(driver(&device), Failures::Nth(2));
    let pool = CachingPool::builder().segment_bytes(4 << 20).build_over(upstream).unwrap();
    let halves = [alloc(&pool, 2 * MIB, &first), alloc(&pool, 2 * MIB, &first)];
    free_all(&pool, halves, &first);
    free(&pool, alloc(&pool, 4 * MIB, &first), &first).unwrap();
    assert_eq!((served(&pool).grown, served(&pool).done), (1, 1), "of the two halves");
    assert_eq!(pool.stats().upstream_allocs, 2, "which was tried");
}

/// Large free blocks of a permanently idle stream serve small requests of another stream, instead
/// of letting the pool grow.
#[test]
fn memory_cached_for_an_idle_stream_is_used_before_the_pool_grows() {
    let (device, first, second) = two_streams();
    let pool = pool_with_spare(&device, 0);
    free(&pool, alloc(&pool, 16 * MIB, &first), &first).unwrap();
    for _ in 0..1000 {
        alloc(&pool, 16 << 10, &second);
    }
    assert_eq!(pool.stats().usage.reserved_bytes, 16 << 20, "{:?}", served(&pool));
}

#[test]
fn caches_are_kept_while_little_memory_is_free() {
    let (device, first, _) = two_streams();
    let pool = |spare| {
        let pool = CachingPool::builder().segment_bytes(2 << 20).spare_bytes(spare);
        pool.max_bytes(512 << 20).build(&device).unwrap()
    };
    let reserved = |spare, sizes: &[usize]| {
        let pool = pool(spare);
        for size in sizes {
            free(&pool, alloc(&pool, size * MIB, &first), &first).unwrap();
        }
        let rungs = served(&pool);
        (pool.stats().usage.reserved_bytes >> 20, rungs.grown, rungs.shared + rungs.done)
    };
    assert_eq!(reserved(0, &[2, 4, 6, 6]), (6, 3, 0), "the end of the segment is added to");
    assert_eq!(reserved(0, &[2, 6, 4]), (6, 2, 0), "a part of what was kept, in its own extent");
    assert_eq!(reserved(16 << 20, &[2, 6, 4]), (12, 3, 0), "2 and 6 MiB are still kept");
    // The limit is 16 MiB, a 32nd of `max_bytes`, although more is configured: 2, 4 and 6 MiB are
    // free while 8 are live, and 20 would be free while 10 are live.
    assert_eq!(reserved(u64::MAX, &[2, 4, 6, 8, 10, 12]), (20, 4, 1));
}

#[test]
fn an_exhausted_upstream_is_asked_again_last() {
    let (device, first, _) = two_streams();
    let upstream = Limit::new(Counted::new(&device), 4 << 20);
    let pool = CachingPool::builder().segment_bytes(2 << 20).build_over(upstream).unwrap();
    let calls = || pool.stats().upstream_allocs;
    let halves = [alloc(&pool, 2 * MIB, &first), alloc(&pool, 2 * MIB, &first)];
    assert_eq!(calls(), 2);
    free_all(&pool, halves, &first);
    // One call finds out that the upstream is out of memory. After that, cached memory is split.
    for _ in 0..3 {
        let pieces = [alloc(&pool, MIB, &first), alloc(&pool, MIB + 512, &first)];
        free_all(&pool, pieces, &first);
        assert_eq!(calls(), 3, "{:?}", served(&pool));
    }
    assert!(pool.allocate(layout(5 * MIB, 256), &first).is_err());
    assert!(calls() > 3);
}

#[test]
fn cached_segments_are_released_before_a_request_fails() {
    let (device, first, second) = two_streams();
    let pool = limited_pool(&device, 4 * MIB);
    for stream in [&first, &second] {
        let two = [alloc(&pool, 2 * MIB, &first), alloc(&pool, 2 * MIB, &first)];
        free_all(&pool, two, stream);
        let joined = alloc(&pool, 4 * MIB, &first);
        free(&pool, joined, stream).unwrap();
    }
    // The second time there is a segment of that size, and its halves coalesce.
    let stats = pool.stats();
    assert_eq!(
        (stats.rungs.released, stats.upstream_frees, stats.usage.reserved_bytes),
        (1, 2, 4 << 20),
        "{stats:?}"
    );
    assert_eq!(pool.upstream().usage().used_bytes, 4 << 20);
}

#[test]
fn a_hook_may_free_blocks_and_is_called_repeatedly() {
    let (device, first, _) = two_streams();
    let (held, requested) = (Arc::new(Mutex::new(Vec::<Block>::new())), Arc::new(AtomicUsize::new(0)));
    let cell: Arc<OnceLock<Arc<CachingPool<Counted>>>> = Arc::default();
    let (of_hook, pool_of_hook, count) = (held.clone(), cell.clone(), requested.clone());
    let stream = first.clone();
    let builder =
        CachingPool::builder().max_bytes(4 << 20).segment_bytes(2 << 20).on_exhausted(move |bytes| {
            assert_eq!(bytes, 4 << 20);
            count.fetch_add(1, Ordering::Relaxed);
            let Some(block) = of_hook.lock().unwrap().pop() else { return false };
            let pool = pool_of_hook.get().unwrap();
            free(pool, block, &stream).unwrap();
            // Any call of the pool.
            pool.trim().unwrap();
            pool.usage().used_bytes < 4 << 20
        });
    let pool = Arc::new(builder.build_over(Counted::new(&device)).unwrap());
    cell.set(pool.clone()).ok().unwrap();
    held.lock().unwrap().extend([alloc(&pool, 2 * MIB, &first), alloc(&pool, 2 * MIB, &first)]);
    let joined = alloc(&pool, 4 * MIB, &first);
    assert_eq!((requested.load(Ordering::Relaxed), served(&pool).hooked), (2, 1));
    assert!(pool.allocate(layout(4 * MIB, 256), &first).is_err());
    assert_eq!((requested.load(Ordering::Relaxed), served(&pool).failed), (3, 1));
    free(&pool, joined, &first).unwrap();
    drop(cell);
}

#[test]
fn the_number_of_hook_calls_is_bounded() {
    let (device, first, _) = two_streams();
    let pool = CachingPool::builder().max_bytes(1 << 20).segment_bytes(1 << 20).on_exhausted(|_| true);
    let pool = pool.build_over(Counted::new(&device)).unwrap();
    assert!(matches!(
        pool.allocate(layout(2 * MIB, 1), &first),
        Err(Error::OutOfMemory(OutOfMemory::Pool { .. }))
    ));
}

#[test]
fn the_error_has_the_figures_and_the_upstream_error() {
    let (device, first, _) = two_streams();
    let pool = limited_pool(&device, 4 * MIB);
    let [one, two] = [alloc(&pool, 2 * MIB, &first), alloc(&pool, MIB, &first)];
    let error = pool.allocate(layout(2 * MIB, 256), &first).unwrap_err();
    assert_eq!(figures(&error).map(|bytes| bytes >> 20), [2, 3, 4, 1]);
    let message = error.to_string();
    for words in [
        "a caching pool",
        "a limit has 4194304 B (4.0 MiB) of 4194304 B",
        "1048576 B (1.0 MiB) are cached",
        "on_exhausted",
    ] {
        assert!(message.contains(words), "{message}");
    }
    free_all(&pool, [one, two], &first);
    assert_eq!(served(&pool).failed, 1);
}
