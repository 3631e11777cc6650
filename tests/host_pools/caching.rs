//! The caching pool: sizes, driver calls, reserved memory, and streams that are dropped.

use crate::prelude::*;

const GIB: usize = 1 << 30;

#[test]
fn a_freed_block_is_reused_without_an_upstream_call() {
    let (device, stream) = cpu();
    let over_driver = CachingPool::builder().build_over(driver(&device)).unwrap();
    let in_reservation = CachingPool::builder().build(&device).unwrap();
    // In whole mappings of 2 MiB.
    let of_device = device.info().unwrap().memory_total >> 21 << 21;
    assert_eq!((over_driver.max_bytes(), in_reservation.max_bytes()), (None, Some(of_device)));
    for pool in [&over_driver, &in_reservation] {
        let first = alloc_bytes(pool, MIB, &stream);
        free(pool, first, &stream).unwrap();
        let second = alloc_bytes(pool, MIB, &stream);
        assert_eq!(first.0.0, second.0.0);
        let stats = pool.stats();
        assert_eq!((stats.upstream_allocs, stats.hits, stats.misses), (1, 1, 1), "{stats:?}");
        free(pool, second, &stream).unwrap();
        assert_eq!(pool.trim().unwrap(), stats.usage.reserved_bytes);
        assert_eq!((pool.stats().usage.reserved_bytes, pool.stats().upstream_frees), (0, 1));
        assert_eq!(pool.usage(), Usage::default());
    }
    assert_eq!(over_driver.upstream().usage().used_bytes, 0);
}

#[test]
fn sizes_are_rounded_and_the_waste_is_reported() {
    let (device, stream) = cpu();
    let pool = CachingPool::builder().build_over(Counted::new(&device)).unwrap();
    // Twice the size up to 2 GiB, and exact above.
    let rounded = [
        (1, 512),
        (512, 512),
        (513, 1024),
        (MIB + 1, 2 * MIB),
        (GIB + 1, 2 * GIB),
        (2 * GIB + 1, 2 * GIB + 1),
    ];
    for (size, to) in rounded {
        assert_eq!(pool.rounded(size as u64), to as u64, "{size}");
    }
    let blocks = [
        alloc_bytes(&pool, 1, &stream),
        alloc_bytes(&pool, 513, &stream),
        alloc_bytes(&pool, 33 * MIB + 1, &stream),
    ];
    let stats = pool.stats();
    assert_eq!(stats.usage.used_bytes, 512 + 1024 + 33 * MIB as u64 + 512, "33 MiB do not take 64");
    assert_eq!((stats.wasted_bytes, stats.live_blocks), (511 + 511 + 511, 3));
    let of: Vec<_> = stats.classes.iter().map(|class| (class.class_bytes, class.wasted_bytes)).collect();
    assert_eq!(of, [(Some(512), 511), (Some(1024), 511), (Some(64 << 20), 511)]);
    assert_eq!(stats.cached_bytes, stats.usage.reserved_bytes - stats.usage.used_bytes);
    free_all(&pool, blocks, &stream);
    let stats = pool.stats();
    assert_eq!((stats.usage.used_bytes, stats.requested_bytes, stats.wasted_bytes), (0, 0, 0));
    // More classes per doubling waste less memory.
    let classes = |per| CachingPool::builder().classes_per_doubling(per).build_over(Counted::new(&device));
    let (four, sixteen) = (classes(4).unwrap(), classes(16).unwrap());
    let rounded =
        [(1, 512), (513, 1024), (1025, 1536), (2049, 2560), (40_000, 40_960), (MIB + 1, MIB + (1 << 18))];
    for (size, to) in rounded {
        assert_eq!(four.rounded(size as u64), to as u64, "{size}");
    }
    assert_eq!(
        (pool.rounded(33_000), four.rounded(33_000), sixteen.rounded(33_000)),
        (65_536, 40_960, 34_816)
    );
    assert!(format!("{pool:?}").contains("0 B of"), "{pool:?}");
    let json = serde_json::to_value(&stats).unwrap();
    assert_eq!(json["rungs"]["grown"], stats.rungs.grown);
}

#[test]
fn an_allocation_beyond_the_limit_fails_with_figures() {
    let (device, stream) = cpu();
    let pool = CachingPool::builder().max_bytes(4 << 30).build_over(Counted::new(&device)).unwrap();
    let four: Vec<_> = (0..4).map(|_| alloc_bytes(&pool, GIB, &stream)).collect();
    let error = pool.allocate(layout(GIB, 256), &stream).unwrap_err();
    assert_eq!(figures(&error), [1 << 30, 4 << 30, 4 << 30, 0]);
    let message = error.to_string();
    assert!(message.contains("at most 4294967296 B (4.0 GiB)") && message.contains("max_bytes"), "{message}");
    assert_eq!(pool.stats().rungs.failed, 1);
    free(&pool, four[1], &stream).unwrap();
    assert_eq!(alloc_bytes(&pool, GIB, &stream).0.0, four[1].0.0);
    free_all(&pool, four, &stream);
    assert_eq!(pool.max_bytes(), Some(4 << 30));
}

#[test]
fn invalid_settings_are_rejected() {
    let (device, _) = cpu();
    let builder = CachingPool::builder;
    let rejected: [(CachingPoolBuilder, &str); 9] = [
        (builder().max_bytes(100), "max_bytes"),
        (builder().min_block(300), "min_block"),
        (builder().min_block(0), "min_block"),
        (builder().segment_bytes(1000), "segment_bytes"),
        (builder().segment_bytes(0), "segment_bytes"),
        (builder().classes_per_doubling(3), "classes_per_doubling"),
        (builder().classes_per_doubling(0), "classes_per_doubling"),
        (builder().slab_limit(4 << 20), "slab_limit"),
        (builder().slab_limit(256), "slab_limit"),
    ];
    for (builder, setting) in rejected {
        let error = builder.build_over(driver(&device)).unwrap_err();
        let Error::InvalidConfig(InvalidConfig::Pool { setting: named, .. }) = &error else {
            panic!("{error}")
        };
        assert_eq!(*named, setting, "{error}");
    }
}

#[test]
fn without_stream_order_a_free_waits_for_its_stream() {
    for device in devices() {
        let (module, stream) = (module(&device), device.stream().unwrap());
        let pool = CachingPool::builder().stream_ordered(false).build_over(driver(&device)).unwrap();
        let block = alloc_bytes(&pool, MIB, &stream);
        launch_linger(&stream, &module, first_word(&device, block), 20_000);
        free(&pool, block, &stream).unwrap();
        assert!(stream.is_done().unwrap(), "on {device}");
    }
}

#[test]
fn a_reservation_never_grows_beyond_the_limit() {
    let (device, stream) = cpu();
    let build = |bytes| CachingPool::builder().max_bytes(bytes).build(&device);
    let Error::InvalidConfig(InvalidConfig::Pool { setting, given, why }) = build((2 << 20) - 1).unwrap_err()
    else {
        panic!()
    };
    assert_eq!((setting, given.contains("2097151 B"), why.contains("2097152 B")), ("max_bytes", true, true));
    for (requested, granted) in [(2 << 20, 2 << 20), ((4 << 20) - 1, 2 << 20), ((4 << 20) + 1000, 4 << 20)] {
        let pool = build(requested).unwrap();
        assert_eq!(pool.max_bytes(), Some(granted));
        let all: Vec<Block> = std::iter::from_fn(|| pool.allocate(layout(100_000, 256), &stream).ok())
            .map(|ptr| (ptr, layout(100_000, 256)))
            .collect();
        assert!(all.len() as u64 >= granted / 110_000, "{}", all.len());
        assert_eq!((pool.stats().peak_reserved_bytes, device.memory_in_use().0), (granted, granted));
        free_all(&pool, all, &stream);
    }
}

#[test]
fn threads_share_a_reservation_that_grows_and_shrinks() {
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
                    let held: Vec<Block> =
                        (0..10).map(|round| alloc_bytes(pool, size(round), &stream)).collect();
                    free_all(pool, held, &stream);
                    pool.trim().unwrap();
                }
            });
        }
    });
    assert_eq!((pool.stats().rungs.failed, pool.stats().usage.used_bytes), (0, 0));
}

#[test]
fn invalid_frees_are_distinguished() {
    let (device, stream) = cpu();
    let pool = CachingPool::builder().build_over(Counted::new(&device)).unwrap();
    let (small, large) = (alloc_bytes(&pool, 700, &stream), alloc_bytes(&pool, 5 * MIB, &stream));
    let at = |block: Block, by: usize| (DevicePtr(block.0.0.wrapping_add(by)), block.1);
    let wrong = [
        (at(small, 512), "it lies inside of the block of 700 B"),
        (at(large, 4096), "it lies inside of the block of 5242880 B"),
        (at(small, 1024), "is already free"),
        (at(large, 5 * MIB), "no live block contains the address"),
        ((small.0, layout(701, 256)), "it was allocated as 700 B"),
        ((DevicePtr(std::ptr::without_provenance_mut(4096)), large.1), "in no segment"),
    ];
    for (block, words) in wrong {
        let error = free(&pool, block, &stream).unwrap_err();
        assert!(matches!(error, Error::InvalidFree(_)) && error.to_string().contains(words), "{error}");
    }
    for block in [small, large] {
        assert_eq!(pool.layout_of(block.0), Some(block.1));
        assert_eq!(pool.layout_of(at(block, 512).0), None);
        free(&pool, block, &stream).unwrap();
        assert_eq!(pool.layout_of(block.0), None);
    }
    assert!(free(&pool, large, &stream).unwrap_err().to_string().contains("is already free"));
}

/// Blocks are aligned to their size class, even if the upstream aligns to less.
#[test]
fn an_upstream_with_a_small_alignment_suffices() {
    let (device, stream) = cpu();
    let upstream = block_pool(&device, layout(2 * MIB, 512), 2);
    let pool = CachingPool::builder().segment_bytes(2 << 20).build_over(upstream).unwrap();
    for align in [1 << 14, 1 << 17] {
        let block = layout(10_000, align);
        let ptr = pool.allocate(block, &stream).unwrap();
        assert!((ptr.0 as usize).is_multiple_of(align));
        free(&pool, (ptr, block), &stream).unwrap();
    }
    assert!(pool.allocate(layout(3 * MIB, 512), &stream).is_err());
}

/// Creates and drops 2000 streams, each with three blocks. Waits for the work of all streams, also
/// of dropped ones, after each `batch` of them. Returns the pool.
fn pool_after_streams(batch: usize) -> CachingPool<SyncDriverAllocator> {
    let (device, _) = cpu();
    let pool = CachingPool::builder().build_over(driver(&device)).unwrap();
    for number in 0..2000 {
        if number % batch == 0 {
            // Let the dropped streams, each with a thread of its own, reach their last events.
            device.synchronize().unwrap();
        }
        let stream = device.stream().unwrap();
        let blocks: Vec<_> = [300, 70_000, 3 * MIB].map(|size| alloc_bytes(&pool, size, &stream)).into();
        free_all(&pool, blocks, &stream);
    }
    pool
}

#[test]
fn thousands_of_streams_can_be_created_and_dropped() {
    let pool = pool_after_streams(1);
    let stats = pool.stats();
    // The third block comes from the extent that the second one created, and each stream uses the
    // segment of the first one.
    assert_eq!((stats.live_blocks, stats.misses, stats.segments), (0, 4000, 1), "{stats:?}");
    pool.trim().unwrap();
    assert_eq!(pool.stats().usage.reserved_bytes, 0);
}

/// Which memory of the dropped streams is idle depends on how far their threads are. So does the
/// size of the extent that the second block creates.
#[test]
fn thousands_of_streams_can_be_dropped_with_pending_frees() {
    let pool = pool_after_streams(50);
    let stats = pool.stats();
    assert_eq!((stats.live_blocks, stats.hits + stats.misses), (0, 6000));
    assert!(stats.misses >= 4000, "{stats:?}");
    // Nearly 6 GiB were allocated in total.
    assert!(stats.usage.reserved_bytes <= 1 << 30, "{stats:?}");
    pool.trim().unwrap();
    assert_eq!(pool.stats().usage.reserved_bytes, 0);
}

#[test]
fn blocks_may_be_freed_on_other_streams_and_threads() {
    let (device, stream) = cpu();
    let pool = CachingPool::builder().build_over(driver(&device)).unwrap();
    let other = device.stream().unwrap();
    for size in [1000, 3 * MIB] {
        let block = alloc_bytes(&pool, size, &stream);
        std::thread::scope(|scope| {
            scope.spawn(|| free(&pool, block, &other)).join().unwrap().unwrap();
        });
        assert_eq!(pool.usage().used_bytes, 0);
        assert_eq!(alloc_bytes(&pool, size, &other).0.0, block.0.0, "of the stream that it was freed on");
        free(&pool, block, &stream).unwrap();
    }
}
