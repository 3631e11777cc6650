//! A region that is allocated from start to end, and then reset.

use crate::kernels::fill;
use crate::prelude::*;

fn pool(device: &Device, bytes: usize) -> BumpPool<SyncDriverAllocator> {
    BumpPool::builder(layout(bytes, 256)).build_over(driver(device)).unwrap()
}

fn starts(blocks: &[Block]) -> Vec<usize> {
    blocks.iter().map(|(ptr, _)| ptr.0 as usize).collect()
}

#[test]
fn a_region_can_be_allocated_to_the_last_byte() {
    const FLOATS: usize = 10_000_000;
    let floats = Layout::array::<f32>(FLOATS).unwrap();
    for device in devices() {
        let (module, stream) = (module(&device), device.stream().unwrap());
        let pool = pool(&device, 40_000_000);
        let block = alloc(&pool, floats, &stream);
        assert_eq!(pool.stats().granted, pool.capacity(), "to the last byte");
        let values = memory(&device, block).slice_at::<u32>(0, FLOATS as u64).unwrap();
        let config = LaunchConfig::linear(FLOATS as u32, 256);
        // SAFETY: only this kernel uses the block.
        unsafe { stream.launch(&module, fill, &config, (values, 1.0_f32.to_bits())) }.unwrap();
        let mut all = vec![0.0_f32; FLOATS];
        memory(&device, block).read(0, &mut all).unwrap();
        assert!(all.iter().all(|value| *value == 1.0), "{device}");
        free(&pool, block, &stream).unwrap();

        let small = self::pool(&device, 32_000_000);
        let error = small.allocate(floats, &stream).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory(OutOfMemory::Pool { .. })), "{error}");
        let message = error.to_string();
        let figures = ["cannot allocate 40000000 B", "0 B of 32000000 B", "Overflow::Upstream"];
        assert!(figures.iter().all(|words| message.contains(words)), "{message}");
        assert_eq!(small.stats().granted, 0, "the cursor has not moved");
        alloc(&small, layout(32_000_000, 256), &stream);
    }
}

#[test]
fn blocks_are_consecutive_and_aligned() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let pool = BumpPool::builder(layout(1 << 16, 4096)).build_over(driver(&device)).unwrap();
        let at = |size, align| {
            let (ptr, _) = alloc(&pool, layout(size, align), &stream);
            ptr.0 as u64 - pool.address()
        };
        assert_eq!(
            [at(1, 1), at(1, 1), at(8, 8), at(1, 256), at(100, 4096), at(3, 2)],
            [0, 1, 8, 256, 4096, 4196]
        );
        let stats = pool.stats();
        assert_eq!((stats.granted, stats.live_blocks, stats.live_bytes), (4199, 6, 114));
        assert_eq!(pool.usage().largest_free_bytes, Some((1 << 16) - 4199));
        assert!(format!("{pool:?}").starts_with("a bump pool of 65536 B (64.0 KiB) at 0x"), "{pool:?}");
    }
}

#[test]
fn oversized_requests_fail_and_leave_the_cursor_unchanged() {
    let device = Device::cpu();
    let stream = device.stream().unwrap();
    assert!(Layout::array::<u8>(usize::MAX).is_err() && Layout::from_size_align(usize::MAX, 1).is_err());
    for policy in [Overflow::Error, Overflow::Upstream] {
        let pool = BumpPool::builder(layout(4096, 256)).overflow(policy).build_over(driver(&device)).unwrap();
        alloc(&pool, layout(100, 1), &stream);
        let max = isize::MAX as usize;
        for wrong in
            [layout(max, 1), layout(max - 4095, 4096), layout(1, 1 << 62), layout(max / 2 + 1, 1 << 62)]
        {
            let error = pool.allocate(wrong, &stream).unwrap_err();
            assert!(!error.to_string().is_empty());
            assert_eq!(
                matches!(error, Error::OutOfMemory(OutOfMemory::Pool { .. })),
                policy == Overflow::Error,
                "{error}"
            );
            assert_eq!((pool.stats().granted, pool.stats().live_blocks), (100, 1));
        }
        assert!(matches!(
            pool.allocate(layout(0, 1), &stream),
            Err(Error::InvalidRequest(InvalidRequest::Layout { .. }))
        ));
        let next = pool.allocate(layout(1, 1), &stream).unwrap();
        assert_eq!(next.0 as u64, pool.address() + 100);
    }
    let error = BumpPool::builder(layout(0, 1)).build_over(driver(&device)).unwrap_err();
    assert!(matches!(error, Error::InvalidConfig(InvalidConfig::Pool { setting: "region", .. })), "{error}");
}

#[test]
fn a_reset_needs_all_blocks_free_and_repeats_the_addresses() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let pool = pool(&device, 1 << 20);
        let alloc_some = || -> Vec<Block> {
            [(100, 4), (4096, 256), (7, 1), (1 << 16, 1024)]
                .map(|(size, align)| alloc(&pool, layout(size, align), &stream))
                .into()
        };
        let first = alloc_some();
        for (left, block) in (0..4).rev().zip(&first) {
            let error = pool.reset(&stream).unwrap_err();
            assert!(matches!(error, Error::InUse { blocks, .. } if blocks == left + 1), "{error}");
            assert!(error.to_string().contains("of its 1048576 B (1.0 MiB) are still allocated"), "{error}");
            free(&pool, *block, &stream).unwrap();
            let before = pool.stats();
            let twice = free(&pool, *block, &stream).unwrap_err();
            assert!(twice.to_string().contains("is already free, until the next reset"), "{twice}");
            assert_eq!(pool.stats(), before);
        }
        let granted = pool.stats().granted;
        assert!(granted > 0, "frees give no room back");
        pool.reset(&stream).unwrap();
        assert_eq!((pool.stats().granted, pool.stats().resets), (0, 1));
        // After the reset, blocks from before it are rejected.
        for block in &first {
            let stale = free(&pool, *block, &stream).unwrap_err();
            assert!(stale.to_string().contains("since the last reset"), "{stale}");
        }
        let again = alloc_some();
        assert_eq!((starts(&again), pool.stats().granted), (starts(&first), granted));
        let other = Device::cpu().stream().unwrap();
        assert!(matches!(pool.reset(&other), Err(Error::WrongDevice { .. })));
    }
}

#[test]
fn an_unchecked_reset_frees_all_blocks_behind_a_stream() {
    for device in devices() {
        let (module, first, second) = (module(&device), device.stream().unwrap(), device.stream().unwrap());
        let pool = pool(&device, 4096);
        let of = layout(2048, 256);
        let blocks = [alloc(&pool, of, &first), alloc(&pool, of, &first)];
        let values = first_word(&device, blocks[0]);
        launch_linger(&first, &module, values, 20_000);
        // SAFETY: no other work used the region.
        unsafe { pool.reset_unchecked(&first) }.unwrap();
        assert!(free(&pool, blocks[0], &first).is_err());
        let block = alloc(&pool, of, &second);
        assert_eq!(block.0.0, blocks[0].0.0);
        // SAFETY: the block belongs to this stream.
        unsafe { second.launch(&module, fill, &ONE, (values, 7)) }.unwrap();
        assert_eq!(read_word(&device, block), 7, "on {device}: the kernel from before the reset wrote later");
        free(&pool, block, &second).unwrap();
        assert_eq!(pool.usage().used_bytes, 0);
    }
}

/// Kernels of two streams write late. The next owner of the blocks after the reset, on either
/// stream or a third, is ordered after those writes.
#[test]
fn a_reset_is_ordered_after_the_work_in_flight_of_every_stream() {
    for device in devices() {
        let module = module(&device);
        let streams = [0; 3].map(|_| device.stream().unwrap());
        let pool = pool(&device, 2048);
        let of = layout(1024, 256);
        for resets in 0..3 {
            for user in 0..3 {
                let blocks = [alloc(&pool, of, &streams[0]), alloc(&pool, of, &streams[1])];
                for (block, stream) in blocks.iter().zip(&streams) {
                    let values = first_word(&device, *block);
                    launch_linger(stream, &module, values, 10_000);
                    free(&pool, *block, stream).unwrap();
                }
                pool.reset(&streams[resets]).unwrap();
                let again = [alloc(&pool, of, &streams[user]), alloc(&pool, of, &streams[user])];
                assert_eq!(starts(&again), starts(&blocks));
                for block in again {
                    let values = first_word(&device, block);
                    // SAFETY: the block belongs to this stream.
                    unsafe { streams[user].launch(&module, fill, &ONE, (values, 7)) }.unwrap();
                }
                for block in again {
                    assert_eq!(
                        read_word(&device, block),
                        7,
                        "on {device}: reset on {resets}, used on {user}"
                    );
                    free(&pool, block, &streams[user]).unwrap();
                }
                pool.reset(&streams[user]).unwrap();
            }
        }
    }
}

#[test]
fn overflow_blocks_come_from_the_upstream() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let counted = Statistics::new(driver(&device));
        let pool =
            BumpPool::builder(layout(4096, 256)).overflow(Overflow::Upstream).build_over(&counted).unwrap();
        assert_eq!((pool.overflow(), pool.upstream().stats().allocs), (Overflow::Upstream, 1));
        let inside = alloc(&pool, layout(4000, 256), &stream);
        let outside = [alloc(&pool, layout(97, 1), &stream), alloc(&pool, layout(8192, 256), &stream)];
        let last = alloc(&pool, layout(96, 1), &stream);
        let stats = pool.stats();
        assert_eq!((stats.overflow_blocks, stats.overflow_bytes, stats.overflows), (2, 97 + 8192, 2));
        assert_eq!((stats.live_blocks, stats.live_bytes, stats.granted), (2, 4096, 4096));
        let usage = pool.usage();
        assert_eq!((usage.used_bytes, usage.reserved_bytes), (4096 + 97 + 8192, 4096 + 97 + 8192));
        free(&pool, inside, &stream).unwrap();
        free(&pool, last, &stream).unwrap();
        // The blocks are outside the region.
        pool.reset(&stream).unwrap();
        let wrong = free(&pool, (outside[1].0, layout(8192, 1)), &stream).unwrap_err();
        assert!(wrong.to_string().contains("allocated as"), "{wrong}");
        for block in outside {
            free(&pool, block, &stream).unwrap();
            assert!(free(&pool, block, &stream).unwrap_err().to_string().contains("freed before"));
        }
        assert_eq!(counted.stats().live_blocks, 1, "they are back where they came from");
        assert_eq!((pool.stats().overflow_bytes, pool.stats().overflows), (0, 2));
        // When dropped it frees the remaining blocks of both kinds.
        alloc(&pool, layout(4096, 256), &stream);
        alloc(&pool, layout(4096, 256), &stream);
        drop(pool);
        assert_eq!((counted.stats().live_blocks, counted.stats().failed_frees), (0, 0));
    }
}

#[test]
fn a_pool_works_over_another_pool() {
    let device = Device::cpu();
    let stream = device.stream().unwrap();
    let outer = pool(&device, 1 << 20);
    let inner = BumpPool::builder(layout(1 << 16, 4096)).build_over(&outer).unwrap();
    let block = alloc(&inner, layout(100, 4), &stream);
    assert!(outer.reset(&stream).is_err(), "the inner one's region is live");
    assert!(free(&outer, block, &stream).unwrap_err().to_string().contains("allocated as"));
    let stranger = (DevicePtr((inner.address() + inner.capacity()) as *mut u8), layout(100, 4));
    assert!(free(&inner, stranger, &stream).unwrap_err().to_string().contains("it is not in the"));
    free(&inner, block, &stream).unwrap();
    drop(inner);
    outer.reset(&stream).unwrap();
}
