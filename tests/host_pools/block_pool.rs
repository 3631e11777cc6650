//! A pool of equal blocks: its count, its addresses, its blocks in kernels.

use crate::cases::layout;
use crate::kernels::double;
use crate::suite::{give, memory};
use crate::support::{devices, module};
use std::collections::BTreeSet;
use warpheap::error::{InvalidRequest, OutOfMemory};
use warpheap::host_pools::{BlockPool, DeviceAllocator, Statistics, SyncDriverAllocator};
use warpheap::{Device, Error, LaunchConfig};

#[test]
fn a_hundred_blocks_of_four_kibibytes() {
    let block = layout(4096, 256);
    for device in devices() {
        let (module, stream) = (module(&device), device.stream().unwrap());
        let memory_of_driver = Statistics::new(SyncDriverAllocator::new(&device));
        let pool = BlockPool::builder(block, 100).build_over(&memory_of_driver).unwrap();
        assert_eq!((pool.stats().free_blocks, pool.stats().blocks, pool.block()), (100, 100, block));
        let take = |count| -> Vec<_> {
            (0..count).map(|_| (pool.allocate(block, &stream).unwrap(), block)).collect()
        };
        let ten = take(10);
        assert_eq!(pool.stats().free_blocks, 90);
        for block in ten {
            give(&pool, block, &stream).unwrap();
        }
        assert_eq!(pool.stats().free_blocks, 100);

        let all = take(100);
        let starts: BTreeSet<u64> = all.iter().map(|(ptr, _)| ptr.0 as u64).collect();
        let every = (0..100).map(|i| pool.address() + 4096 * i);
        assert_eq!(starts, every.collect(), "100 addresses, 4096 apart");
        let error = pool.allocate(block, &stream).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory(OutOfMemory::Pool { .. })), "{error}");
        assert_eq!(
            error.to_string(),
            "a pool of 100 blocks of 4096 B (4.0 KiB) cannot allocate 4096 B (4.0 KiB): 409600 B (400.0 KiB) of 409600 B \
             (400.0 KiB) are in use, 0 B are kept for later, and the largest free block has 0 B; free blocks, or build it with more"
        );
        assert_eq!(pool.stats().free_blocks, 0);

        // A kernel doubles each full block, and each block has a different value.
        for (number, block) in (1_u8..).zip(&all) {
            memory(&device, *block).fill(number).unwrap();
        }
        for block in &all {
            let values = memory(&device, *block).slice_at::<u32>(0, 1024).unwrap();
            // SAFETY: only this kernel uses the block.
            unsafe { stream.launch(&module, double, &LaunchConfig::linear(1024, 256), (values,)) }.unwrap();
        }
        for (number, block) in (1_u8..).zip(&all) {
            let mut values = [0_u32; 1024];
            memory(&device, *block).read(0, &mut values).unwrap();
            assert_eq!(values, [u32::from_ne_bytes([number; 4]).wrapping_mul(2); 1024]);
        }

        for (freed, block) in (1..).zip(&all) {
            give(&pool, *block, &stream).unwrap();
            let twice = give(&pool, *block, &stream).unwrap_err();
            assert!(twice.to_string().contains("is already free"), "{twice}");
            assert_eq!(pool.stats().free_blocks, freed);
        }
        assert_eq!(memory_of_driver.stats().allocs, 1, "one allocation for all");
        drop(pool);
        assert_eq!(memory_of_driver.stats().live_blocks, 0);
    }
}

#[test]
fn blocks_are_as_far_apart_as_their_alignment_needs() {
    for device in devices() {
        let stream = device.stream().unwrap();
        for (size, align, apart) in [(1, 1, 1), (100, 64, 128), (5000, 4096, 8192), (1, 1 << 20, 1 << 20)] {
            let pool = BlockPool::builder(layout(size, align), 7)
                .build_over(SyncDriverAllocator::new(&device))
                .unwrap();
            assert_eq!(pool.block(), layout(apart, align));
            let blocks: Vec<_> =
                (0..7).map(|_| (pool.allocate(pool.block(), &stream).unwrap(), pool.block())).collect();
            for (i, (ptr, _)) in (0..).zip(&blocks) {
                assert!((ptr.0 as usize).is_multiple_of(align));
                assert_eq!(ptr.0 as u64, pool.address() + apart as u64 * i);
            }
            for block in blocks {
                give(&pool, block, &stream).unwrap();
            }
        }
    }
}

#[test]
fn larger_requests_are_refused_with_what_would_do() {
    let device = Device::cpu();
    let stream = device.stream().unwrap();
    let pool =
        BlockPool::builder(layout(4096, 256), 4).build_over(SyncDriverAllocator::new(&device)).unwrap();
    for layout in [layout(4097, 1), layout(1, 512), layout(isize::MAX as usize, 1)] {
        let error = pool.allocate(layout, &stream).unwrap_err();
        assert!(matches!(error, Error::InvalidRequest(InvalidRequest::Layout { .. })), "{error}");
        assert!(error.to_string().contains("4096 B (4.0 KiB) aligned to 256"), "{error}");
    }
    assert_eq!(pool.stats().free_blocks, 4);
}

#[test]
fn pools_that_cannot_be_are_refused() {
    let device = Device::cpu();
    let refused = |block, blocks, words: &str| {
        let error =
            BlockPool::builder(block, blocks).build_over(SyncDriverAllocator::new(&device)).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(device.memory_in_use(), (0, 0));
    };
    refused(layout(0, 16), 4, "at least 1 B");
    refused(layout((1 << 48) + 16, 16), 1, "at most 256 TiB");
    refused(layout(16, 16), 0, "from 1 to 4294967295");
    refused(layout(16, 16), 1 << 32, "from 1 to 4294967295");
    refused(layout(1 << 40, 16), 1 << 30, "exceeds the address space");
    refused(layout(1 << 40, 16), 1 << 20, "cannot allocate");
}

#[test]
fn a_pool_that_goes_with_blocks_allocated_leaks_nothing() {
    let device = Device::cpu();
    let stream = device.stream().unwrap();
    let pool = BlockPool::builder(layout(64, 64), 4).build_over(SyncDriverAllocator::new(&device)).unwrap();
    pool.allocate(layout(64, 64), &stream).unwrap();
    assert!(format!("{pool:?}").contains("3 of them free"), "{pool:?}");
    drop(pool);
    assert_eq!(device.memory_in_use(), (0, 0));
}
