//! Sizes at and beyond their limits: the result has at least what was requested, or the error names
//! the request and the limit. No size is rounded or multiplied before it is checked.
#![cfg(not(loom))]

use proptest::prelude::*;
use proptest::sample::select;
use std::alloc::Layout;
use warpheap::device_pools::{Bump, FreeList, Heap};
use warpheap::driver::Stream;
use warpheap::host_pools::{
    BlockPool, BumpPool, CachingPool, CachingPoolBuilder, DeviceAllocator, DriverPool, Limit, PoolBuffer,
    SyncDriverAllocator,
};
use warpheap::simt::{Executor, Mode};
use warpheap::{Device, GrowableBuffer, Result};
use warpheap_device::bump::MAX_GRANULES;
use warpheap_device::freelist::{MAX_CAPACITY, MAX_STRIDE};
use warpheap_device::heap::layout::HEAP_BYTES;

const MIB: u64 = 1 << 20;
const MEMORY: u64 = 100 * MIB;

fn device() -> Device {
    Device::cpu_with_executor(Executor::new(Mode::Parallel { workers: 1 }), MEMORY)
}

/// The numbers around each of `limits`, around powers of two, and the smallest and largest ones.
fn extremes(limits: &[u64]) -> Vec<u64> {
    let powers = [9, 14, 20, 21, 26, 31, 32, 40, 48, 62, 63].map(|log| 1_u64 << log);
    let near = |limit: &u64| [limit.saturating_sub(1), *limit, limit.saturating_add(1)];
    let mut all: Vec<u64> = limits.iter().chain(&powers).flat_map(near).collect();
    all.extend([0, 1, MEMORY / 3, u64::MAX - 1, u64::MAX, isize::MAX as u64, isize::MAX as u64 + 1]);
    all
}

/// Asserts that the result has at least `requested`, or that the error names it, rounded up by less
/// than `granule`, and another number.
fn holds(done: Result<u64>, requested: u64, granule: u64, what: &str) {
    let error = match done {
        Ok(has) => return assert!(has >= requested, "{what}: {has} instead of {requested}"),
        Err(error) => error.to_string(),
    };
    let words = error.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse::<u64>().ok());
    let numbers: Vec<u64> = words.collect();
    let is_named = |n: &u64| *n >= requested && *n - requested < granule.max(1);
    assert!(numbers.iter().any(is_named), "{what}: {requested} is not named: {error}");
    assert!(numbers.len() > 1, "{what}: no limit is named: {error}");
}

/// The largest slab.
const SLAB: u64 = 512 << 10;

#[test]
fn heaps() {
    let device = device();
    for bytes in extremes(&[HEAP_BYTES.0, HEAP_BYTES.1, 8 * MIB, 8 * MIB + (16 << 10)]) {
        let built = Heap::builder(bytes).build(&device);
        holds(built.map(|heap| heap.memory().bytes()), bytes, SLAB, "a heap");
    }
    for bytes in extremes(&[MIB, 8 * MIB, 8 * MIB + 77]) {
        let built = Heap::builder(8 * MIB + 77).initial(bytes).build(&device);
        holds(built.map(|heap| heap.memory().bytes()), bytes, 1, "the initial size of a heap");
    }
    for count in extremes(&[1 << 15, 1 << 20]) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        for (built, what) in [
            (Heap::builder(MIB).shards(count), "shards"),
            (Heap::builder(MIB).largest_class(count), "largest_class"),
        ] {
            holds(built.build(&device).map(|_| u64::MAX), count.into(), 1, what);
        }
    }
}

#[test]
fn growth_of_heaps() {
    for built in [8 * MIB, 8 * MIB + 1, 9 * MIB - 1] {
        for initial in [None, Some(2 * MIB)] {
            let builder = Heap::builder(built);
            let builder = initial.into_iter().fold(builder, |builder, bytes| builder.initial(bytes));
            let mut heap = builder.build(&device()).unwrap();
            let max = heap.capacity();
            assert!(max >= built, "{max}");
            for bytes in extremes(&[MIB, built, max, max + (16 << 10)]) {
                let grown = heap.grow_to(bytes);
                assert_eq!(grown.is_ok(), bytes <= max, "{bytes} of {max}: {grown:?}");
                holds(grown, bytes, 1, "a growth");
            }
        }
    }
}

#[test]
fn free_lists() {
    let (device, align) = (device(), 1 << 16);
    for n in extremes(&[MAX_CAPACITY.into(), MAX_STRIDE.into(), u64::from(MAX_STRIDE) - align]) {
        for align in [1, 16, align] {
            let list = |blocks, bytes| FreeList::builder(blocks, bytes).align(align).build(&device);
            let bytes = |list: FreeList| list.geometry().stride();
            holds(
                list(3, n).map(bytes),
                n,
                n.saturating_add(align).saturating_mul(3),
                "blocks of a free list",
            );
            let blocks = |list: FreeList| list.geometry().capacity().into();
            holds(list(n, 24).map(blocks), n, n.saturating_mul(32 * align), "a free list");
        }
        holds(FreeList::builder(1, 1).align(n).build(&device).map(|_| u64::MAX), n, 1, "an alignment");
    }
}

#[test]
fn arenas() {
    let device = device();
    for align in [1, 16, 1 << 16] {
        for bytes in extremes(&[align, MAX_GRANULES * align, 10 * align]) {
            let built = Bump::builder(bytes).min_align(align).shards(0).build(&device);
            holds(built.map(|arena| arena.memory().bytes()), bytes, align, "an arena");
        }
    }
    for n in extremes(&[1 << 16]) {
        let aligned = Bump::builder(MIB).min_align(n).build(&device);
        holds(aligned.map(|_| u64::MAX), n, 1, "an alignment");
        let count = u32::try_from(n).unwrap_or(u32::MAX);
        let shared = Bump::builder(MIB).shards(count).build(&device);
        holds(shared.map(|_| u64::MAX), count.into(), 1, "shards");
    }
}

#[test]
fn memory_and_buffers() {
    let device = device();
    for n in extremes(&[MEMORY, MEMORY - 256, MEMORY / 8]) {
        for align in [1, 4096, 1 << 30] {
            holds(device.alloc_memory(n, align).map(|memory| memory.bytes()), n, 1, "memory");
        }
        let len = n as usize;
        holds(device.zeroed::<u8>(len).map(|buffer| buffer.len() as u64), n, 1, "a buffer of bytes");
        let words = device.zeroed::<u64>(len).map(|buffer| buffer.len() as u64);
        holds(words, n, n.saturating_mul(8), "a buffer of words");
        // Addresses take no memory, so most of these succeed.
        let reserved = GrowableBuffer::reserve(&device, n);
        holds(reserved.map(|buffer| buffer.reserved()), n, 2 * MIB, "a reservation");
    }
    let mut buffer = GrowableBuffer::reserve(&device, 10 * MIB + 1).unwrap();
    for n in extremes(&[10 * MIB, buffer.reserved()]) {
        holds(buffer.grow_to(n), n, 1, "a growth");
        assert!(buffer.shrink_to(n).unwrap() <= buffer.reserved());
    }
}

/// A setting of a caching pool.
type Set = fn(CachingPoolBuilder, u64) -> CachingPoolBuilder;

/// Allocates and frees one block.
fn once(pool: &dyn DeviceAllocator, stream: &Stream, layout: Layout) -> Result<u64> {
    let block = pool.allocate(layout, stream)?;
    // SAFETY: allocated above, and never used.
    unsafe { pool.deallocate(block, layout, stream) }?;
    Ok(layout.size() as u64)
}

#[test]
fn host_pools_and_their_blocks() {
    let device = device();
    let layout = |bytes: u64, align| {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(isize::MAX as usize - (align - 1));
        Layout::from_size_align(bytes, align).unwrap()
    };
    for n in extremes(&[1 << 20, 2 << 20, 1 << 30, 2 << 30, 1 << 40, 1 << 48, MEMORY]) {
        // No pool takes more than its limit, or its limit is an error.
        let sets: [(Set, &str); 5] = [
            (|builder, n| builder.max_bytes(n), "max_bytes"),
            (|builder, n| builder.segment_bytes(n), "segment_bytes"),
            (|builder, n| builder.spare_bytes(n), "spare_bytes"),
            (|builder, n| builder.min_block(n).slab_limit(1 << 20), "min_block"),
            (|builder, n| builder.slab_limit(n), "slab_limit"),
        ];
        for (set, what) in sets {
            let built = set(CachingPool::builder(), n).build(&device);
            holds(built.map(|_| u64::MAX), n, 1, what);
        }
        holds(DriverPool::builder().max_size(n).build(&device).map(|_| u64::MAX), n, 1, "max_size");
        for align in [1, 256, 1 << 20] {
            let region = layout(n, align);
            let (bytes, count) = (region.size() as u64, n as usize);
            let built = BumpPool::builder(region).build(&device);
            holds(built.map(|pool| pool.capacity()), bytes, 1, "a bump pool");
            let built = BlockPool::builder(region, 2).build(&device);
            let granule = bytes.saturating_add(2 * align as u64).saturating_mul(2);
            holds(built.map(|_| u64::MAX), bytes, granule, "blocks of a pool");
            let built = BlockPool::builder(layout(100, align), count).build(&device);
            holds(built.map(|_| u64::MAX), n, n.saturating_mul(1 << 21), "a block pool");
        }
    }
    let stream = device.stream().unwrap();
    let pools: [Box<dyn DeviceAllocator>; 6] = [
        Box::new(SyncDriverAllocator::new(&device)),
        Box::new(Limit::new(SyncDriverAllocator::new(&device), 3 * MIB)),
        Box::new(CachingPool::builder().build(&device).unwrap()),
        Box::new(CachingPool::builder().build_over(SyncDriverAllocator::new(&device)).unwrap()),
        Box::new(DriverPool::builder().build(&device).unwrap()),
        Box::new(BlockPool::builder(layout(1000, 8), 4).build(&device).unwrap()),
    ];
    for pool in &pools {
        for n in extremes(&[1000, 3 * MIB, 1 << 30, MEMORY]) {
            for align in [1, 256, 1 << 21, 1 << 30] {
                let layout = layout(n, align);
                let name = pool.report().allocator;
                holds(once(pool, &stream, layout), layout.size() as u64, 1, &name);
            }
            let buffer = PoolBuffer::<u64, _>::zeroed(pool, n as usize, &stream);
            let granule = n.saturating_mul(8);
            holds(buffer.map(|buffer| buffer.len() as u64), n, granule, "a pool buffer");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// A heap of any size has that size, and grows by any steps to what was requested.
    #[test]
    fn a_heap_has_at_least_what_was_requested(
        built in MIB..12 * MIB,
        initial in MIB..12 * MIB,
        steps in proptest::collection::vec((0..14 * MIB, select(vec![0, u64::MAX / 2])), 1..4),
    ) {
        let builder = Heap::builder(built).initial(initial);
        let heap = builder.build(&device());
        prop_assert_eq!(heap.is_ok(), initial <= built);
        let Ok(mut heap) = heap else { return Ok(()) };
        let max = heap.capacity();
        prop_assert!(max >= built && heap.memory().bytes() >= initial);
        for (bytes, more) in steps {
            let bytes = bytes + more;
            let grown = heap.grow_to(bytes);
            prop_assert_eq!(grown.is_ok(), bytes <= max);
            holds(grown, bytes, 1, "a growth");
        }
    }

    #[test]
    fn an_arena_has_at_least_what_was_requested(bytes in 1..3 * MIB, align in 0_u32..17) {
        let arena = Bump::builder(bytes).min_align(1 << align).shards(0).build(&device()).unwrap();
        prop_assert!((bytes..bytes + (1 << align)).contains(&arena.memory().bytes()));
    }
}
