//! Each rung of the caching pool's ladder, with an upstream that is out of memory.

use crate::caching::{Counted, take};
use crate::cases::layout;
use crate::held::Held;
use crate::kernels::{double, fail, fill};
use crate::suite::{Block, give, memory};
use crate::support::module;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use warpheap::error::{KernelFault, OutOfMemory};
use warpheap::host_pools::{
    CachingPool, DeviceAllocator, FailureInjected, Failures, Limit, RungStats, SyncDriverAllocator,
};
use warpheap::{Device, Error, LaunchConfig, Module, Stream};

const MIB: usize = 1 << 20;

type Pool<A> = CachingPool<Limit<A>>;

fn over(device: &Device, bytes: usize) -> Pool<Counted> {
    let upstream = Limit::new(Counted::new(device), bytes as u64);
    CachingPool::builder().segment_bytes(2 << 20).spare_bytes(0).build_over(upstream).unwrap()
}

/// A pool without a memory limit.
fn sparing(device: &Device, spare: u64) -> CachingPool<SyncDriverAllocator> {
    CachingPool::builder()
        .segment_bytes(2 << 20)
        .spare_bytes(spare)
        .build_over(SyncDriverAllocator::new(device))
        .unwrap()
}

fn cpu() -> (Device, Stream, Stream) {
    let device = Device::cpu();
    let streams = [device.stream().unwrap(), device.stream().unwrap()];
    let [first, second] = streams;
    (device, first, second)
}

fn served<A: DeviceAllocator>(pool: &CachingPool<A>) -> RungStats {
    pool.stats().rungs
}

#[test]
fn a_stream_finds_what_it_freed_itself_first() {
    let (device, first, _) = cpu();
    let pool = over(&device, 2 * MIB);
    let blocks = [take(&pool, MIB, &first), take(&pool, MIB, &first)];
    assert_eq!((served(&pool).grown, served(&pool).shared, pool.stats().hits), (1, 0, 1));
    for block in blocks {
        give(&pool, block, &first).unwrap();
    }
    // Two cached halves coalesce without an event.
    let whole = take(&pool, 2 * MIB, &first);
    assert_eq!((served(&pool).done, pool.stats().hits), (0, 2), "merged in the stream's own extent");
    give(&pool, whole, &first).unwrap();
    // Unused slabs become a piece again.
    let many: Vec<_> = (0..64).map(|_| take(&pool, 32 << 10, &first)).collect();
    assert!(pool.allocate(layout(512, 256), &first).is_err());
    for block in many {
        give(&pool, block, &first).unwrap();
    }
    give(&pool, take(&pool, 2 * MIB, &first), &first).unwrap();
    assert_eq!(pool.stats().upstream_frees, 0);
}

#[test]
fn what_another_stream_has_passed_is_found_without_any_call() {
    for spare in [0, 256 << 20] {
        let (device, first, second) = cpu();
        let module = module(&device);
        let pool = sparing(&device, spare);
        let block = take(&pool, 2 * MIB, &first);
        let held = hold_up(&module, &device, &first, block);
        give(&pool, block, &first).unwrap();
        let other = take(&pool, 2 * MIB, &second);
        assert!(other.0.0 != block.0.0, "it may still be in use");
        drop(held);
        first.synchronize().unwrap();
        assert_eq!(take(&pool, 2 * MIB, &second).0.0, block.0.0);
        let rungs = served(&pool);
        assert_eq!((rungs.grown, rungs.stolen, rungs.waited), (2, 0, 0), "{rungs:?}");
        assert_eq!(pool.stats().upstream_frees, 0);
    }
}

#[test]
fn what_failed_on_a_stream_is_told_although_the_pool_has_looked_at_it() {
    let (device, first, second) = cpu();
    let module = module(&device);
    let pool = CachingPool::builder().segment_bytes(2 << 20).max_bytes(4 << 20).build(&device).unwrap();
    let block = take(&pool, 2 * MIB, &first);
    let values = memory(&device, block).slice_at::<u32>(0, 1).unwrap();
    // SAFETY: the kernel accesses nothing.
    unsafe { first.launch(&module, fail, &LaunchConfig::linear(1, 1), (values,)) }.unwrap();
    first.record().unwrap().synchronize().unwrap();
    give(&pool, block, &first).unwrap();
    // This allocation polls the first stream. The next one waits for the device, so that memory can
    // be returned upstream.
    give(&pool, take(&pool, 2 * MIB, &second), &second).unwrap();
    assert!(pool.allocate(layout(8 * MIB, 256), &second).is_err());
    assert!(pool.stats().upstream_frees > 0);
    drop(first);
    let told = device.synchronize();
    assert!(matches!(told, Err(Error::KernelFault(KernelFault::Simt { .. }))), "{told:?}");
}

#[test]
fn an_upstream_that_fails_keeps_nobody_from_what_the_pool_has() {
    let (device, first, _) = cpu();
    let upstream = FailureInjected::new(SyncDriverAllocator::new(&device), Failures::Nth(2));
    let pool = CachingPool::builder().segment_bytes(4 << 20).build_over(upstream).unwrap();
    let halves = [take(&pool, 2 * MIB, &first), take(&pool, 2 * MIB, &first)];
    for half in halves {
        give(&pool, half, &first).unwrap();
    }
    give(&pool, take(&pool, 4 * MIB, &first), &first).unwrap();
    assert_eq!((served(&pool).grown, served(&pool).done), (1, 1), "of the two halves");
    assert_eq!(pool.stats().upstream_allocs, 2, "which was tried");
}

/// A busy stream keeps its cache, and memory that the pool put behind an event stays with that
/// stream.
#[test]
fn a_stream_with_work_left_asks_for_no_more_because_another_one_misses() {
    for spare in [64 << 20, 0] {
        let (device, first, second) = cpu();
        let module = module(&device);
        let pool = sparing(&device, spare);
        let block = take(&pool, 2 * MIB, &first);
        let _held = hold_up(&module, &device, &first, block);
        give(&pool, block, &first).unwrap();
        let mut others = Vec::new();
        for _ in 0..5 {
            others.push(take(&pool, 2 * MIB, &second));
            let again = take(&pool, 2 * MIB, &first);
            assert_eq!(again.0.0, block.0.0, "its own");
            give(&pool, again, &first).unwrap();
        }
        assert_eq!(
            pool.stats().usage.reserved_bytes,
            12 << 20,
            "one of the first stream's, five of the other's"
        );
    }
}

/// Large free blocks of a permanently idle stream serve small requests of another stream, instead
/// of letting the pool grow.
#[test]
fn what_an_idle_stream_keeps_serves_requests_of_any_size_before_the_pool_grows() {
    let (device, first, second) = cpu();
    let pool = sparing(&device, 0);
    give(&pool, take(&pool, 16 * MIB, &first), &first).unwrap();
    for _ in 0..1000 {
        take(&pool, 16 << 10, &second);
    }
    assert_eq!(pool.stats().usage.reserved_bytes, 16 << 20, "{:?}", served(&pool));
}

#[test]
fn as_long_as_little_lies_free_what_streams_keep_is_left_alone() {
    let (device, first, _) = cpu();
    let pool = |spare| {
        let pool = CachingPool::builder().segment_bytes(2 << 20).spare_bytes(spare);
        pool.max_bytes(512 << 20).build(&device).unwrap()
    };
    let reserved = |spare, sizes: &[usize]| {
        let pool = pool(spare);
        for size in sizes {
            give(&pool, take(&pool, size * MIB, &first), &first).unwrap();
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
fn an_upstream_that_had_no_more_is_asked_again_only_when_nothing_else_helps() {
    let (device, first, _) = cpu();
    let upstream = Limit::new(Counted::new(&device), 4 << 20);
    let pool = CachingPool::builder().segment_bytes(2 << 20).build_over(upstream).unwrap();
    let calls = || pool.stats().upstream_allocs;
    let halves = [take(&pool, 2 * MIB, &first), take(&pool, 2 * MIB, &first)];
    assert_eq!(calls(), 2);
    for half in halves {
        give(&pool, half, &first).unwrap();
    }
    // One call finds out that the upstream is out of memory. After that, cached memory is split.
    for _ in 0..3 {
        let pieces = [take(&pool, MIB, &first), take(&pool, MIB + 512, &first)];
        for piece in pieces {
            give(&pool, piece, &first).unwrap();
        }
        assert_eq!(calls(), 3, "{:?}", served(&pool));
    }
    assert!(pool.allocate(layout(5 * MIB, 256), &first).is_err());
    assert!(calls() > 3);
}

/// Holds a stream before a kernel that uses the block.
fn hold_up(module: &Module, device: &Device, stream: &Stream, block: Block) -> Held {
    let held = Held::new(module, stream);
    let values = memory(device, block).slice_at::<u32>(0, 1).unwrap();
    // SAFETY: one thread, which has finished with the block when the free runs in its stream.
    unsafe { stream.launch(module, fill, &LaunchConfig::linear(1, 1), (values, 1)) }.unwrap();
    held
}

/// Doubles the value that the previous kernel leaves in `first`, if `first` lies in `block`, which
/// the stream owns. Returns the expected value.
fn doubled(module: &Module, device: &Device, stream: &Stream, block: Block, first: Block) -> u32 {
    let offset = (first.0.0 as u64).wrapping_sub(block.0.0 as u64);
    if offset >= block.1.size() as u64 {
        return 1;
    }
    let values = memory(device, first).slice_at::<u32>(0, 1).unwrap();
    // SAFETY: one thread, and the block belongs to this stream.
    unsafe { stream.launch(module, double, &LaunchConfig::linear(1, 1), (values,)) }.unwrap();
    2
}

fn value(device: &Device, block: Block) -> u32 {
    let mut value = [0_u32];
    memory(device, block).read(0, &mut value).unwrap();
    value[0]
}

#[test]
fn what_is_pending_elsewhere_is_waited_for_on_the_device_alone() {
    let (device, first, second) = cpu();
    let module = module(&device);
    for size in [2 * MIB, 32 << 10] {
        let upstream = Limit::new(SyncDriverAllocator::new(&device), 2 << 20);
        let pool = CachingPool::builder().segment_bytes(2 << 20).build_over(upstream).unwrap();
        let all: Vec<_> = (0..2 * MIB / size).map(|_| take(&pool, size, &first)).collect();
        let held = hold_up(&module, &device, &first, all[0]);
        for block in &all {
            give(&pool, *block, &first).unwrap();
        }
        let stolen = take(&pool, size, &second);
        // The host did not wait; otherwise the test would hang before this line.
        assert_eq!((served(&pool).stolen, served(&pool).waited), (1, 0));
        let expected = doubled(&module, &device, &second, stolen, all[0]);
        drop(held);
        assert_eq!(value(&device, all[0]), expected, "the stream did");
        assert!(expected == 2 || size < 2 * MIB);
        give(&pool, stolen, &second).unwrap();
    }
}

#[test]
fn pieces_of_several_streams_become_one_for_a_third() {
    let (device, first, second) = cpu();
    let (third, module) = (device.stream().unwrap(), module(&device));
    let upstream = Limit::new(SyncDriverAllocator::new(&device), 2 << 20);
    let pool = CachingPool::builder().segment_bytes(2 << 20).build_over(upstream).unwrap();
    let halves = [take(&pool, MIB, &first), take(&pool, MIB, &first)];
    let held = [hold_up(&module, &device, &first, halves[0]), hold_up(&module, &device, &second, halves[1])];
    give(&pool, halves[0], &first).unwrap();
    give(&pool, halves[1], &second).unwrap();
    let whole = take(&pool, 2 * MIB, &third);
    assert_eq!(served(&pool).stolen, 1);
    for half in halves {
        assert_eq!(doubled(&module, &device, &third, whole, half), 2, "it is a part of the whole");
    }
    held.iter().for_each(Held::let_go);
    for half in halves {
        assert_eq!(value(&device, half), 2, "it came after both kernels");
    }
    give(&pool, whole, &third).unwrap();
}

#[test]
fn cached_segments_go_back_before_a_request_fails() {
    let (device, first, second) = cpu();
    let pool = over(&device, 4 * MIB);
    for stream in [&first, &second] {
        let two = [take(&pool, 2 * MIB, &first), take(&pool, 2 * MIB, &first)];
        for block in two {
            give(&pool, block, stream).unwrap();
        }
        let whole = take(&pool, 4 * MIB, &first);
        give(&pool, whole, stream).unwrap();
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
fn a_hook_may_give_blocks_back_and_is_asked_again_and_again() {
    let (device, first, _) = cpu();
    let (held, asked) = (Arc::new(Mutex::new(Vec::<Block>::new())), Arc::new(AtomicUsize::new(0)));
    let cell: Arc<OnceLock<Arc<CachingPool<Counted>>>> = Arc::default();
    let (of_hook, pool_of_hook, count) = (held.clone(), cell.clone(), asked.clone());
    let stream = first.clone();
    let builder =
        CachingPool::builder().max_bytes(4 << 20).segment_bytes(2 << 20).on_exhausted(move |bytes| {
            assert_eq!(bytes, 4 << 20);
            count.fetch_add(1, Ordering::Relaxed);
            let Some(block) = of_hook.lock().unwrap().pop() else { return false };
            let pool = pool_of_hook.get().unwrap();
            give(pool, block, &stream).unwrap();
            // Any call of the pool.
            pool.trim().unwrap();
            pool.usage().used_bytes < 4 << 20
        });
    let pool = Arc::new(builder.build_over(Counted::new(&device)).unwrap());
    cell.set(pool.clone()).ok().unwrap();
    held.lock().unwrap().extend([take(&pool, 2 * MIB, &first), take(&pool, 2 * MIB, &first)]);
    let whole = take(&pool, 4 * MIB, &first);
    assert_eq!((asked.load(Ordering::Relaxed), served(&pool).hooked), (2, 1));
    assert!(pool.allocate(layout(4 * MIB, 256), &first).is_err());
    assert_eq!((asked.load(Ordering::Relaxed), served(&pool).failed), (3, 1));
    give(&pool, whole, &first).unwrap();
    drop(cell);
}

#[test]
fn a_hook_that_always_says_yes_does_not_hold_the_thread() {
    let (device, first, _) = cpu();
    let pool = CachingPool::builder().max_bytes(1 << 20).segment_bytes(1 << 20).on_exhausted(|_| true);
    let pool = pool.build_over(Counted::new(&device)).unwrap();
    assert!(matches!(
        pool.allocate(layout(2 * MIB, 1), &first),
        Err(Error::OutOfMemory(OutOfMemory::Pool { .. }))
    ));
}

#[test]
fn the_error_has_the_figures_and_what_the_upstream_said() {
    let (device, first, _) = cpu();
    let pool = over(&device, 4 * MIB);
    let [one, two] = [take(&pool, 2 * MIB, &first), take(&pool, MIB, &first)];
    let error = pool.allocate(layout(2 * MIB, 256), &first).unwrap_err();
    let Error::OutOfMemory(OutOfMemory::Pool { requested, used, reserved, largest, .. }) = &error else {
        panic!("{error}")
    };
    let figures = [requested, used, reserved, largest].map(|bytes| bytes.0 >> 20);
    assert_eq!(figures, [2, 3, 4, 1]);
    let message = error.to_string();
    for words in [
        "a caching pool",
        "a limit has 4194304 B (4.0 MiB) of 4194304 B",
        "1048576 B (1.0 MiB) are cached",
        "on_exhausted",
    ] {
        assert!(message.contains(words), "{message}");
    }
    for block in [one, two] {
        give(&pool, block, &first).unwrap();
    }
    assert_eq!(served(&pool).failed, 1);
}
