//! A heap from the host: settings, host allocations, what can be allocated from free memory in
//! pieces, statistics, leaks, checks.
//!
//! Also on a GPU, if there is one and the kernels were built.

use crate::kernels::{heap_churn, replace};
use crate::support::{allocate, checked_stats as stats, cpus, devices, free, layout_of, run, run_in_blocks};
use std::alloc::Layout;
use std::collections::BTreeSet;
use warpheap::device_pools::{Heap, HeapBuilder};
use warpheap::error::{InvalidConfig, InvalidFree, InvalidRequest};
use warpheap::{Backend, Device, Error};
use warpheap_device::heap;
use warpheap_device::kernel::DevicePtr;

const BYTES: u64 = 8 << 20;
/// Replays on each CPU test.
const SEEDS: u64 = 3;

#[test]
fn a_new_heap_is_all_fresh() {
    for device in devices(SEEDS) {
        let mut heap = Heap::builder(BYTES).build(&device).unwrap();
        for _ in 0..2 {
            let stats = stats(&heap);
            assert_eq!((stats.usage.reserved_bytes, stats.max_bytes), (BYTES, BYTES));
            assert_eq!(
                (stats.fresh_bytes, stats.free_bytes, stats.usage.largest_free_bytes.unwrap()),
                (BYTES, BYTES, BYTES)
            );
            assert_eq!((stats.high_water_bytes, stats.fragmentation), (0, 0.0));
            assert_eq!((stats.live_blocks, stats.faults), (0, 0));
            assert!(stats.classes.is_empty());
            allocate(&heap, 100, 100);
            heap.reset().unwrap();
        }
    }
}

#[test]
fn blocks_are_counted_by_class_and_listed_by_address() {
    for device in devices(SEEDS) {
        let heap = Heap::builder(BYTES).build(&device).unwrap();
        let (small, odd, large) =
            (allocate(&heap, 500, 60), allocate(&heap, 40, 1000), allocate(&heap, 2, 300_000));
        let stats = stats(&heap);
        let live: Vec<_> = stats.classes.iter().map(|class| (class.class_bytes, class.live_blocks)).collect();
        assert_eq!(live, [(64, 500), (1024, 40)]);
        assert_eq!((stats.live_blocks, stats.live_bytes), (542, 500 * 64 + 40 * 1024));
        assert_eq!(
            (stats.large_blocks, stats.large_bytes),
            (2, 2 * 300_000_u64.next_multiple_of(stats.slab_bytes))
        );
        assert!(stats.high_water_bytes >= stats.live_bytes + stats.large_bytes);

        let leaks = heap.leaks(1000).unwrap();
        let listed: BTreeSet<u64> = leaks.first.iter().map(|leak| leak.address).collect();
        let all = small.iter().chain(&odd).chain(&large).map(|block| block.0 as u64);
        assert_eq!(listed, all.collect());
        assert!(leaks.first.is_sorted_by_key(|leak| leak.address));
        let lengths: BTreeSet<u64> = leaks.first.iter().map(|leak| leak.bytes).collect();
        assert_eq!(lengths.len(), 3);
        let few = heap.leaks(5).unwrap();
        assert_eq!((&few.first[..], few.count), (&leaks.first[..5], 542));
        free(&heap, &small[..499]);
        free(&heap, &odd);
        free(&heap, &large);
        let one = heap.leaks(5).unwrap();
        assert_eq!((one.first.len(), one.first[0].address, one.first[0].bytes), (1, small[499].0 as u64, 64));
    }
}

#[test]
fn freed_blocks_are_free_again() {
    for device in devices(SEEDS) {
        let heap = Heap::builder(BYTES).build(&device).unwrap();
        let blocks = allocate(&heap, 6000, 256);
        // The runs of the class have more blocks than were allocated.
        let all = stats(&heap);
        assert_eq!((all.live_blocks, all.live_bytes), (6000, 6000 * 256));
        // Every other block is freed, so no free run is larger than a block.
        let (even, odd): (Vec<_>, Vec<_>) = blocks.iter().enumerate().partition(|(i, _)| i % 2 == 0);
        let only = |half: Vec<(usize, &DevicePtr<u8>)>| {
            half.into_iter().map(|(_, block)| *block).collect::<Vec<_>>()
        };
        free(&heap, &only(even));
        let half = stats(&heap);
        assert_eq!(half.live_blocks, 3000);
        assert_eq!(half.free_block_bytes, all.free_block_bytes + 3000 * 256);
        assert_eq!(half.free_bytes, all.free_bytes + 3000 * 256);
        assert!(half.fragmentation > 0.0);
        free(&heap, &only(odd));
        let none = stats(&heap);
        assert_eq!((none.live_blocks, none.free_bytes), (0, BYTES));
        assert_eq!((none.usage.largest_free_bytes.unwrap(), none.fragmentation), (BYTES, 0.0));
        assert!(none.high_water_bytes >= 6000 * 256, "what was in use stays counted");
        let whole = heap.allocate(layout_of(BYTES)).unwrap().expect("it is as free as the numbers say");
        let full = stats(&heap);
        assert_eq!((full.large_bytes, full.free_bytes, full.fragmentation), (BYTES, 0, 0.0));
        free(&heap, &[whole]);
        assert_eq!(stats(&heap).free_slab_bytes, BYTES);
    }
}

#[test]
fn a_failed_allocation_is_no_error_and_is_counted() {
    for device in devices(SEEDS) {
        let heap = Heap::builder(1 << 20).build(&device).unwrap();
        assert!(heap.allocate(layout_of(2 << 20)).unwrap().is_none(), "more than the heap has");
        assert_eq!(stats(&heap).failed_allocations, 1);
        let got = heap.allocate_many(&vec![layout_of(4096); 300]).unwrap();
        assert_eq!(got.iter().flatten().count(), 256);
        let full = stats(&heap);
        assert_eq!((full.live_bytes, full.free_bytes, full.failed_allocations), (1 << 20, 0, 1 + 300 - 256));
        let class = full.classes.iter().find(|class| class.class_bytes == 4096).unwrap();
        assert_eq!(class.live_blocks, 256);
    }
}

#[test]
fn alignments_are_kept() {
    let device = Device::cpu();
    let heap = Heap::builder(BYTES).build(&device).unwrap();
    for log2 in 0..=21 {
        let block =
            heap.allocate(Layout::from_size_align(24, 1 << log2).unwrap()).unwrap().expect("there is room");
        assert!((block.0 as u64).is_multiple_of(1 << log2), "{log2}: {block:?}");
        free(&heap, &[block]);
    }
    assert_eq!(stats(&heap).live_blocks, 0);
}

#[test]
fn invalid_requests_are_rejected() {
    let device = Device::cpu();
    let heap = Heap::builder(BYTES).build(&device).unwrap();
    let error = heap.allocate(Layout::new::<()>()).unwrap_err();
    assert!(matches!(error, Error::InvalidRequest(InvalidRequest::HeapLayout { .. })), "{error}");
    let error =
        heap.allocate_many(&[layout_of(16), Layout::from_size_align(1, 4 << 20).unwrap()]).unwrap_err();
    assert!(error.to_string().contains("2.0 MiB"), "{error}");
    assert_eq!(stats(&heap).live_blocks, 0, "nothing was allocated before the bad one was seen");
    assert_eq!(heap.allocate_many(&[]).unwrap().len(), 0);
}

#[test]
fn wrong_frees_return_errors() {
    for device in devices(SEEDS) {
        let heap = Heap::builder(BYTES).build(&device).unwrap();
        let (blocks, large) = (allocate(&heap, 40, 64), allocate(&heap, 1, 500_000)[0]);
        let message = |blocks: &[DevicePtr<u8>]| {
            // SAFETY: no kernel uses them.
            let error = unsafe { heap.deallocate_many(blocks) }.unwrap_err();
            assert!(matches!(error, Error::InvalidFree(InvalidFree::Heap { .. })), "{error}");
            error.to_string()
        };
        let inside = |block: DevicePtr<u8>, by| DevicePtr(block.0.wrapping_add(by));
        let start = heap.memory().address();
        let end = DevicePtr((start + BYTES) as *mut u8);
        assert!(message(&[end]).contains("is not in this heap"));
        assert!(message(&[DevicePtr::null()]).contains("1 of 1 addresses were not freed"));
        assert!(message(&[inside(blocks[3], 8)]).contains("inside a block"));
        assert!(message(&[inside(large, 32768)]).contains("inside a block"));
        assert_eq!(stats(&heap).live_blocks, 41, "nothing was freed so far");

        let twice = message(&[blocks[0], blocks[1], blocks[0], end]);
        assert!(twice.contains("2 of 4 addresses were not freed, the others were"), "{twice}");
        free(&heap, &[large]);
        let again = message(&[large]);
        assert!(
            again.contains("is already free") && again.contains(&format!("{:#x}", large.0 as u64)),
            "{again}"
        );
        assert_eq!(stats(&heap).live_blocks, 38);
        // More frees than a fault log keeps.
        let all: Vec<_> = blocks.iter().chain(&blocks).chain(&blocks).chain(&blocks).copied().collect();
        assert!(message(&all).contains("122 of 160 addresses"));
        assert_eq!(stats(&heap).live_blocks, 0);
        assert_eq!(heap.faults().unwrap().count, 0, "they are the host's, and not among those of kernels");
    }
}

/// Blocks go from the host to kernels and back. On the CPU only: there is no PTX of the kernel.
#[test]
fn kernels_and_the_host_share_a_heap() {
    for device in devices(SEEDS).filter(|device| device.backend() == Backend::Cpu) {
        let heap = Heap::builder(BYTES).build(&device).unwrap();
        let mut blocks = allocate(&heap, 300, 100);
        for size in [200, 400, 800] {
            let words: Vec<u64> = blocks.iter().map(|block| block.0 as u64).collect();
            let words = device.from_slice(&words).unwrap();
            run_in_blocks(&device, replace, 300, 64, (heap.handle(), words.slice(), size, 1, 0));
            blocks = words.copy_to_vec().unwrap().into_iter().map(|at| DevicePtr(at as *mut u8)).collect();
            let stats = stats(&heap);
            let live: Vec<_> = stats.classes.iter().filter(|class| class.live_blocks > 0).collect();
            assert_eq!((live.len(), live[0].live_blocks), (1, 300), "{stats:#?}");
            assert!(live[0].class_bytes >= size);
        }
        free(&heap, &blocks);
        assert_eq!((heap.leaks(9).unwrap().count, heap.faults().unwrap().count), (0, 0));
    }
}

#[test]
fn with_enough_memory_no_allocation_fails() {
    for (mode, device) in cpus(20) {
        let heap = Heap::builder(1 << 20).build(&device).unwrap();
        let out = device.zeroed::<u64>(240).unwrap();
        run(&device, heap_churn, 240, (heap.handle(), out.slice(), 6));
        assert_eq!(out.copy_to_vec().unwrap().iter().sum::<u64>(), 0, "{mode}: failed allocations");
        assert_eq!(heap.faults().unwrap().count, 0, "{mode}");
        assert!(heap.allocate(layout_of(heap.capacity())).unwrap().is_some(), "{mode}: not all is free");
    }
}

#[test]
fn a_copy_of_the_metadata_stays_as_it_was() {
    let device = Device::cpu();
    let heap = Heap::builder(BYTES).build(&device).unwrap();
    let blocks = allocate(&heap, 10, 64);
    let before = heap.snapshot().unwrap();
    free(&heap, &blocks);
    let after = heap.snapshot().unwrap();
    drop(heap);
    assert_eq!((before.leaks(3).count, after.leaks(3).count), (10, 0));
    assert_eq!((before.check(), before.stats().live_bytes), (vec![], 640));
    let json = serde_json::to_value(before.stats()).unwrap();
    assert_eq!(
        (json["live_bytes"].as_u64(), json["classes"][0]["live_blocks"].as_u64()),
        (Some(640), Some(10))
    );
}

fn rejected(builder: &HeapBuilder, setting: &str, words: &str) {
    let error = builder.build(&Device::cpu()).unwrap_err();
    assert!(
        matches!(&error, Error::InvalidConfig(InvalidConfig::Pool { setting: named, .. }) if *named == setting),
        "{error}"
    );
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn invalid_settings_are_rejected_by_name() {
    rejected(&Heap::builder(1000), "bytes", "1.0 MiB");
    rejected(&Heap::builder(2 << 40), "bytes", "1.0 TiB");
    rejected(&Heap::builder(BYTES).shards(0), "shards", "from 1 to 32768");
    rejected(&Heap::builder(BYTES).shards(40_000), "shards", "from 1 to 32768");
    rejected(&Heap::builder(BYTES).initial(1000), "initial", "1.0 MiB");
    rejected(&Heap::builder(BYTES).initial(BYTES + 1), "initial", "8.0 MiB");
    rejected(&Heap::builder(BYTES).largest_class(8), "largest_class", "16 B");
    rejected(&Heap::builder(BYTES).largest_class(1 << 30), "largest_class", "KiB");
    if !heap::DEBUG {
        rejected(&Heap::builder(BYTES).debug(true), "debug", "without the feature `debug`");
    }
}

#[test]
fn sizes_beyond_the_largest_class_get_slabs() {
    for device in devices(SEEDS) {
        let heap = Heap::builder(BYTES).largest_class(1000).build(&device).unwrap();
        let all = Heap::builder(BYTES).build(&device).unwrap();
        assert!(heap.metadata_bytes() < all.metadata_bytes());
        let (small, large) = (allocate(&heap, 50, 1024), allocate(&heap, 5, 1025));
        let stats = stats(&heap);
        assert_eq!((stats.live_blocks, stats.large_blocks), (55, 5));
        assert_eq!((stats.live_bytes, stats.large_bytes), (50 * 1024, 5 * stats.slab_bytes));
        free(&heap, &small);
        free(&heap, &large);
        assert!(heap.allocate(layout_of(BYTES)).unwrap().is_some());
    }
}

/// Even if each of the spans has fewer blocks than a warp asks for at once.
#[test]
fn a_cursor_without_a_run_of_its_spans_finds_free_slabs() {
    for device in devices(SEEDS) {
        let heap = Heap::builder(4 << 20).shards(1).build(&device).unwrap();
        // The first block of every eighth slab stays, so that free slabs lie in short rows.
        let small = allocate(&heap, 1024, 4096);
        let base = heap.memory().address();
        let (kept, freed): (Vec<_>, Vec<_>) =
            small.into_iter().partition(|block| (block.0 as u64 - base).is_multiple_of(8 << 14));
        free(&heap, &freed);
        // Rows of seven slabs with 21 blocks. Not all of them: no search fails.
        let spread = allocate(&heap, 500, 5000);
        free(&heap, &spread);
        free(&heap, &kept);
        let whole = heap.allocate(layout_of(4 << 20)).unwrap().expect("all blocks were freed");
        free(&heap, &[whole]);
        assert_eq!(allocate(&heap, 256, 5000).len(), 256);
        assert_eq!(stats(&heap).live_blocks, 256);
    }
}

#[test]
fn the_largest_free_piece_can_be_allocated_and_no_more() {
    for device in devices(SEEDS) {
        let from_start = [(4, false), (8, false), (12, false), (16, true), (64, true)];
        // 64 slabs of four blocks: two words of the set of free slabs.
        let across_words = [(124, 8, false), (120, 12, false), (120, 16, true)];
        let cases = from_start.map(|(freed, whole)| (0, freed, whole)).into_iter().chain(across_words);
        for (start, freed, whole) in cases {
            let heap = Heap::builder(1 << 20).build(&device).unwrap();
            let mut blocks = allocate(&heap, 256, 4096);
            blocks.sort_unstable_by_key(|block| block.0 as u64);
            free(&heap, &blocks[start..start + freed]);
            let stats = stats(&heap);
            assert_eq!(stats.free_bytes, freed as u64 * 4096);
            assert_eq!(stats.usage.largest_free_bytes.unwrap() == stats.free_bytes, whole, "{stats:#?}");
            let largest = stats.usage.largest_free_bytes.unwrap();
            assert!(heap.allocate(layout_of(largest + 1)).unwrap().is_none(), "{largest} of {freed}");
            assert!(heap.allocate(layout_of(largest)).unwrap().is_some(), "{largest} of {freed}");
        }
    }
}
