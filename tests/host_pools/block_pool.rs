//! A pool of equal blocks: its count, its addresses, its errors.

use crate::kernels::fill;
use crate::prelude::*;
use std::collections::BTreeSet;

#[test]
fn a_hundred_blocks_of_four_kibibytes() {
    let (block, (device, stream)) = (layout(4096, 256), cpu());
    let memory_of_driver = Statistics::new(driver(&device));
    let pool = BlockPool::builder(block, 100).build_over(&memory_of_driver).unwrap();
    assert_eq!((pool.stats().free_blocks, pool.stats().blocks, pool.block()), (100, 100, block));
    let starts: BTreeSet<u64> = (0..100).map(|_| alloc(&pool, block, &stream).0.0 as u64).collect();
    let every = (0..100).map(|i| pool.address() + 4096 * i);
    assert_eq!(starts, every.collect(), "100 addresses, 4096 apart");
    assert_eq!(
        pool.allocate(block, &stream).unwrap_err().to_string(),
        "a block pool of 100 blocks of 4096 B (4.0 KiB) cannot allocate 4096 B (4.0 KiB): 409600 B (400.0 KiB) of 409600 B \
         (400.0 KiB) are in use, 0 B are cached, and the largest free block has 0 B; free blocks, or build it with more \
         (WARPHEAP_OOM_REPORT=1 adds a report)"
    );
    assert!(format!("{pool:?}").ends_with("0 of them free"), "{pool:?}");
    assert_eq!(memory_of_driver.stats().allocs, 1, "one allocation for all");
}

#[test]
fn free_blocks_are_counted() {
    for device in devices() {
        let (block, stream) = (layout(4096, 256), device.stream().unwrap());
        let pool = block_pool(&device, block, 100);
        let ten: Vec<_> = (0..10).map(|_| alloc(&pool, block, &stream)).collect();
        assert_eq!(pool.stats().free_blocks, 90);
        free_all(&pool, ten.iter().copied(), &stream);
        for block in ten {
            free(&pool, block, &stream).unwrap_err();
            assert_eq!(pool.stats().free_blocks, 100);
        }
    }
}

/// Kernels fill all bytes of all blocks, each block with another number.
#[test]
fn kernels_fill_whole_blocks() {
    for device in devices() {
        let (block, stream, module) = (layout(4096, 256), device.stream().unwrap(), module(&device));
        let pool = block_pool(&device, block, 100);
        let blocks: Vec<_> = (0..100).map(|_| alloc(&pool, block, &stream)).collect();
        for (number, block) in (1..).zip(&blocks) {
            let words = memory(&device, *block).slice_at(0, 1024).unwrap();
            // SAFETY: the block has a word for each thread, and only this kernel uses it.
            unsafe { stream.launch(&module, fill, &LaunchConfig::linear(1024, 256), (words, number)) }
                .unwrap();
        }
        for (number, block) in (1_u32..).zip(blocks) {
            let mut words = [0; 1024];
            memory(&device, block).read(0, &mut words).unwrap();
            assert_eq!(words, [number; 1024], "on {device}");
            free(&pool, block, &stream).unwrap();
        }
    }
}

#[test]
fn blocks_are_spaced_by_their_aligned_size() {
    for device in devices() {
        let stream = device.stream().unwrap();
        for (size, align, apart) in [(1, 1, 1), (100, 64, 128), (5000, 4096, 8192), (1, 1 << 20, 1 << 20)] {
            let pool = block_pool(&device, layout(size, align), 7);
            assert_eq!(pool.block(), layout(apart, align));
            let blocks: Vec<_> =
                (0..7).map(|_| (pool.allocate(pool.block(), &stream).unwrap(), pool.block())).collect();
            for (i, (ptr, _)) in (0..).zip(&blocks) {
                assert!((ptr.0 as usize).is_multiple_of(align));
                assert_eq!(ptr.0 as u64, pool.address() + apart as u64 * i);
            }
            free_all(&pool, blocks, &stream);
        }
    }
}

#[test]
fn larger_requests_fail_and_the_error_names_the_block_size() {
    let device = Device::cpu();
    let stream = device.stream().unwrap();
    let pool = block_pool(&device, layout(4096, 256), 4);
    for layout in [layout(4097, 1), layout(1, 512), layout(isize::MAX as usize, 1)] {
        let error = pool.allocate(layout, &stream).unwrap_err();
        assert!(matches!(error, Error::InvalidRequest(InvalidRequest::Layout { .. })), "{error}");
        assert!(error.to_string().contains("4096 B (4.0 KiB) aligned to 256"), "{error}");
    }
    assert_eq!(pool.stats().free_blocks, 4);
}

#[test]
fn invalid_settings_are_rejected() {
    let device = Device::cpu();
    let rejected = |block, blocks, words: &str| {
        let error = BlockPool::builder(block, blocks).build_over(driver(&device)).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(device.memory_in_use(), (0, 0));
    };
    rejected(layout(0, 16), 4, "at least 1 B");
    rejected(layout((1 << 48) + 16, 16), 1, "at most 256 TiB");
    rejected(layout(16, 16), 0, "from 1 to 4294967295");
    rejected(layout(16, 16), 1 << 32, "from 1 to 4294967295");
    rejected(layout(1 << 40, 16), 1 << 30, "exceeds the address space");
    rejected(layout(1 << 40, 16), 1 << 20, "cannot allocate");
    rejected(layout(1 << 48, 16), 1, "cannot allocate");
}

/// An error of a free names the block that contains the address, and where the block starts.
#[test]
fn an_invalid_free_is_described_by_its_place() {
    let (device, stream) = cpu();
    let block = layout(48, 16);
    let pool = block_pool(&device, block, 5);
    let blocks: Vec<_> = (0..5).map(|_| alloc(&pool, block, &stream)).collect();
    let start = pool.address();
    let error = |address: u64, layout: Layout| {
        free(&pool, (DevicePtr(address as *mut u8), layout), &stream).unwrap_err().to_string()
    };
    for (index, offset) in [(0, 1), (0, 47), (3, 16), (4, 47)] {
        let place = format!("it lies inside of block {index}, which starts at {:#x}", start + 48 * index);
        let text = error(start + 48 * index + offset, block);
        assert!(text.contains(&place), "{place:?} is not in: {text}");
    }
    for outside in [start - 1, start - 48, start + 240, start + 288, u64::MAX] {
        let text = error(outside, block);
        assert!(text.contains(&format!("it is not in the 240 B at {start:#x} of the pool")), "{text}");
    }
    let text = error(start + 3 * 48, layout(24, 16));
    assert!(text.contains("block 3: "), "{text}");
    free(&pool, blocks[2], &stream).unwrap();
    assert!(error(start + 2 * 48, block).contains("block 2 is already free"));
}

/// Every free block can be allocated, wherever it is: their places do not matter.
#[test]
fn a_report_has_no_free_ranges() {
    let (device, stream) = cpu();
    let pool = block_pool(&device, layout(64, 64), 4);
    let blocks: Vec<_> = (0..4).map(|_| alloc(&pool, layout(64, 64), &stream)).collect();
    assert_eq!(pool.usage().largest_free_bytes, Some(0));
    free(&pool, blocks[0], &stream).unwrap();
    free(&pool, blocks[2], &stream).unwrap();
    let report = pool.report();
    assert_eq!((report.free_ranges, report.largest_free_bytes), (None, None));
    assert_eq!((report.free_bytes, report.used_bytes, report.reserved_bytes), (128, 128, 256));
    assert_eq!(pool.usage().largest_free_bytes, Some(64));
}
