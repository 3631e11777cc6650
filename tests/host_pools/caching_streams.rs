//! The rungs of the caching pool's ladder that depend on the work of other streams.

use crate::caching_ladder::{pool_with_spare, served, two_streams};
use crate::held::Held;
use crate::kernels::{double, fail, fill};
use crate::prelude::alloc_bytes as alloc;
use crate::prelude::*;

/// Holds a stream before a kernel that uses the block.
fn hold_up(module: &Module, device: &Device, stream: &Stream, block: Block) -> Held {
    let held = Held::new(module, stream);
    let values = first_word(device, block);
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
    let values = first_word(device, first);
    // SAFETY: one thread, and the block belongs to this stream.
    unsafe { stream.launch(module, double, &LaunchConfig::linear(1, 1), (values,)) }.unwrap();
    2
}

#[test]
fn completed_frees_of_another_stream_are_reused_without_a_wait() {
    for spare in [0, 256 << 20] {
        let (device, first, second) = two_streams();
        let module = module(&device);
        let pool = pool_with_spare(&device, spare);
        let block = alloc(&pool, 2 * MIB, &first);
        let held = hold_up(&module, &device, &first, block);
        free(&pool, block, &first).unwrap();
        let other = alloc(&pool, 2 * MIB, &second);
        assert!(other.0.0 != block.0.0, "it may still be in use");
        drop(held);
        first.synchronize().unwrap();
        assert_eq!(alloc(&pool, 2 * MIB, &second).0.0, block.0.0);
        let rungs = served(&pool);
        assert_eq!((rungs.grown, rungs.stolen, rungs.waited), (2, 0, 0), "{rungs:?}");
        assert_eq!(pool.stats().upstream_frees, 0);
    }
}

#[test]
fn a_kernel_fault_is_reported_after_the_pool_polled_the_stream() {
    let (device, first, second) = two_streams();
    let module = module(&device);
    let pool = CachingPool::builder().segment_bytes(2 << 20).max_bytes(4 << 20).build(&device).unwrap();
    let block = alloc(&pool, 2 * MIB, &first);
    let values = first_word(&device, block);
    // SAFETY: the kernel accesses nothing.
    unsafe { first.launch(&module, fail, &LaunchConfig::linear(1, 1), (values,)) }.unwrap();
    first.record().unwrap().synchronize().unwrap();
    free(&pool, block, &first).unwrap();
    // This allocation polls the first stream. The next one waits for the device, so that memory can
    // be returned upstream.
    free(&pool, alloc(&pool, 2 * MIB, &second), &second).unwrap();
    assert!(pool.allocate(layout(8 * MIB, 256), &second).is_err());
    assert!(pool.stats().upstream_frees > 0);
    drop(first);
    let reported = device.synchronize();
    assert!(matches!(reported, Err(Error::KernelFault(KernelFault::Simt { .. }))), "{reported:?}");
}

/// A busy stream keeps its cache, and memory that the pool put behind an event stays with that
/// stream.
#[test]
fn a_busy_stream_keeps_its_cache_while_another_misses() {
    for spare in [64 << 20, 0] {
        let (device, first, second) = two_streams();
        let module = module(&device);
        let pool = pool_with_spare(&device, spare);
        let block = alloc(&pool, 2 * MIB, &first);
        let _held = hold_up(&module, &device, &first, block);
        free(&pool, block, &first).unwrap();
        let mut others = Vec::new();
        for _ in 0..5 {
            others.push(alloc(&pool, 2 * MIB, &second));
            let again = alloc(&pool, 2 * MIB, &first);
            assert_eq!(again.0.0, block.0.0, "its own");
            free(&pool, again, &first).unwrap();
        }
        assert_eq!(
            pool.stats().usage.reserved_bytes,
            12 << 20,
            "one of the first stream's, five of the other's"
        );
    }
}

#[test]
fn pending_frees_of_another_stream_are_waited_for_on_the_device() {
    let (device, first, second) = two_streams();
    let module = module(&device);
    for size in [2 * MIB, 32 << 10] {
        let upstream = Limit::new(driver(&device), 2 << 20);
        let pool = CachingPool::builder().segment_bytes(2 << 20).build_over(upstream).unwrap();
        let all: Vec<_> = (0..2 * MIB / size).map(|_| alloc(&pool, size, &first)).collect();
        let held = hold_up(&module, &device, &first, all[0]);
        free_all(&pool, all.iter().copied(), &first);
        let stolen = alloc(&pool, size, &second);
        // The host did not wait; otherwise the test would hang before this line.
        assert_eq!((served(&pool).stolen, served(&pool).waited), (1, 0));
        let expected = doubled(&module, &device, &second, stolen, all[0]);
        drop(held);
        assert_eq!(read_word(&device, all[0]), expected, "the stream did");
        assert!(expected == 2 || size < 2 * MIB);
        free(&pool, stolen, &second).unwrap();
    }
}

#[test]
fn pieces_of_several_streams_coalesce_for_a_third() {
    let (device, first, second) = two_streams();
    let (third, module) = (device.stream().unwrap(), module(&device));
    let upstream = Limit::new(driver(&device), 2 << 20);
    let pool = CachingPool::builder().segment_bytes(2 << 20).build_over(upstream).unwrap();
    let halves = [alloc(&pool, MIB, &first), alloc(&pool, MIB, &first)];
    let held = [hold_up(&module, &device, &first, halves[0]), hold_up(&module, &device, &second, halves[1])];
    free(&pool, halves[0], &first).unwrap();
    free(&pool, halves[1], &second).unwrap();
    let joined = alloc(&pool, 2 * MIB, &third);
    assert_eq!(served(&pool).stolen, 1);
    for half in halves {
        assert_eq!(doubled(&module, &device, &third, joined, half), 2, "it is a part of the joined piece");
    }
    held.iter().for_each(Held::let_go);
    for half in halves {
        assert_eq!(read_word(&device, half), 2, "it came after both kernels");
    }
    free(&pool, joined, &third).unwrap();
}
