//! Correct programs on a debug heap: they get the same blocks as from any other heap, and no fault
//! is recorded.

use super::kernels::{THREADS, behave, give, layout, take};
use super::support::{Bench, all_devices, benches};
use std::alloc::Layout;
use warpheap::device_pools::Heap;
use warpheap_device::kernel::DevicePtr;

#[test]
fn a_correct_program_is_told_of_nothing() {
    for quarantine in [0, 1, 64] {
        for bench in benches(quarantine) {
            bench.run(behave, THREADS, (bench.heap.handle(), 8, bench.out.slice()));
            assert_eq!(bench.out.copy_to_vec().unwrap()[..THREADS as usize], [0; THREADS as usize]);
            assert_eq!(bench.faults(), []);
            let stats = bench.stats();
            assert_eq!((stats.live_blocks, stats.quarantined_blocks), (0, quarantine.into()));
        }
    }
}

/// Many threads at once run out of memory, so that blocks are evicted from the quarantine.
#[test]
fn nor_is_it_at_the_end_of_the_memory() {
    for bench in benches(0) {
        let bench = Bench::new(bench.device.clone(), 1 << 20, 4096);
        for _ in 0..4 {
            bench.run(behave, 512, (bench.heap.handle(), 8, bench.out.slice()));
            let out = bench.out.copy_to_vec().unwrap();
            let wrong: u64 = out.iter().map(|word| word & u64::from(u32::MAX)).sum();
            let refused: u64 = out.iter().map(|word| word >> 32).sum();
            // If the ring were never emptied, it would hold all memory by now.
            assert!(wrong == 0 && refused < 512, "{wrong} wrong, {refused} of {} refused", 2 * 8 * 512);
            assert_eq!((bench.faults().len(), bench.stats().live_blocks), (0, 0));
        }
    }
}

#[test]
fn alignments_are_kept() {
    for bench in benches(4) {
        for align in (0..=21).map(|log2| 1_u64 << log2) {
            bench.run(take, 1, (bench.heap.handle(), 24, align, bench.out.slice()));
            let user = bench.out.copy_to_vec().unwrap()[0];
            assert!(user != 0 && user.is_multiple_of(align), "{align}: {user:#x}");
            let leak = bench.heap.leaks(1).unwrap().first[0];
            assert_eq!((leak.address, leak.bytes), (user, 24), "{align}");
            bench.run(give, 1, (bench.heap.handle(), bench.out.slice(), 0, 1));
        }
        assert_eq!((bench.faults().len(), bench.stats().live_blocks), (0, 0));
    }
}

/// A program that is built with the feature may also have heaps without debugging.
#[test]
fn a_heap_that_is_not_debugged_is_as_without_the_feature() {
    for bench in benches(4) {
        let heap = Heap::builder(1 << 20).build(&bench.device).unwrap();
        let bench = Bench { heap, ..bench };
        bench.run(take, THREADS, (bench.heap.handle(), 24, 1, bench.out.slice()));
        let leaks = bench.heap.leaks(1000).unwrap();
        assert!(leaks.first.iter().all(|leak| leak.bytes == 24 && leak.origin.is_none()));
        assert_eq!((leaks.count, leaks.sites.len()), (THREADS.into(), 0));
        bench.run(give, THREADS, (bench.heap.handle(), bench.out.slice(), 0, 1));
        assert_eq!(bench.stats().quarantined_blocks, 0);
        assert_eq!(bench.stats().free_bytes, 1 << 20);
    }
}

/// Many blocks at once, on a GPU as well: in a heap with room for all, and in one that must empty
/// its quarantine.
#[test]
fn a_correct_host_is_told_of_nothing() {
    let mixed: Vec<_> = (0..2000).map(|i| layout(i * 7 % 1500 + 1, 1 << (i % 7))).collect();
    let alike = vec![layout(700, 8); 2000];
    for device in all_devices() {
        for (bytes, layouts) in [(16 << 20, &mixed), (2 << 20, &alike)] {
            let bench = Bench::new(device.clone(), bytes, 3000);
            for _ in 0..5 {
                allocate_and_free(&bench, layouts);
            }
        }
    }
}

fn allocate_and_free(bench: &Bench, layouts: &[Layout]) {
    let blocks = bench.heap.allocate_many(layouts).unwrap();
    let blocks: Vec<_> = blocks.into_iter().map(|block| block.expect("there is room")).collect();
    let aligned =
        |(block, layout): (&DevicePtr<u8>, &Layout)| (block.0 as u64).is_multiple_of(layout.align() as u64);
    assert!(blocks.iter().zip(layouts).all(aligned));
    let bytes: usize = layouts.iter().map(Layout::size).sum();
    let leaks = bench.heap.leaks(0).unwrap();
    assert_eq!((leaks.count, leaks.bytes, leaks.sites.len()), (layouts.len() as u64, bytes as u64, 1));
    // SAFETY: no kernel uses them.
    unsafe { bench.heap.deallocate_many(&blocks) }.unwrap();
    assert_eq!((bench.faults().len(), bench.stats().live_blocks), (0, 0));
}
