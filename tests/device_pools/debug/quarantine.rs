//! Freed blocks: poisoned, kept in quarantine, checked, and evicted when memory runs out.

use super::kernels::{CULPRIT, THREADS, churn_alone, give, give_all, read_poison, scribble, stray, take};
use super::support::{BYTES, Bench, benches, cpus};
use crate::support::{allocate, free, layout_of, stats};
use warpheap::device_pools::Heap;
use warpheap_device::fault::FaultKind;
use warpheap_device::heap::debug::{FREED, UNSET};

/// Allocates and frees `count` intact blocks.
fn free_others(bench: &Bench, count: usize) {
    free(&bench.heap, &allocate(&bench.heap, count, 40));
}

#[test]
fn new_and_freed_memory_is_poisoned() {
    for bench in benches(1 << 10) {
        for size in [1_u64, 8, 77, 20_000] {
            bench.run(read_poison, THREADS, (bench.heap.handle(), size, UNSET, FREED, bench.out.slice()));
            assert_eq!(bench.out.copy_to_vec().unwrap()[..THREADS as usize], [0; THREADS as usize], "{size}");
        }
        assert_eq!(bench.faults(), []);
    }
}

#[test]
fn a_write_after_the_free_is_seen_when_the_block_leaves() {
    for bench in benches(THREADS + 50) {
        for at in [0, 3, 99] {
            let mut bench = Bench::new(bench.device.clone(), BYTES, THREADS + 50);
            bench.run(stray, THREADS, (bench.heap.handle(), 100, 0, 0, bench.out.slice()));
            let user = bench.out.copy_to_vec().unwrap()[CULPRIT as usize];
            scribble(user + at, 0x77);
            free_others(&bench, 50);
            assert_eq!(bench.faults(), [], "it is in quarantine still");
            free_others(&bench, THREADS as usize);
            let fault = bench.fault();
            assert_eq!((fault.kind, fault.address), (FaultKind::WriteAfterFree, user + at));
            assert_eq!(bench.line_of(&fault), super::kernels::STRAY_LINE);
            assert_eq!(bench.heap.check().unwrap(), []);
            bench.heap.reset().unwrap();
            assert_eq!(bench.faults(), []);
        }
    }
}

#[test]
fn a_report_says_that_freed_blocks_are_in_quarantine() {
    for bench in benches(8) {
        free(&bench.heap, &allocate(&bench.heap, 4, 40));
        let text = bench.heap.report().unwrap().to_string();
        assert!(text.contains("are in quarantine, or free for one size class each"), "{text}");
    }
}

/// Also if the record is overwritten: then the block is never allocated again.
#[test]
fn a_record_that_is_written_over_in_quarantine_is_seen() {
    for bench in benches(8) {
        bench.run(stray, 1, (bench.heap.handle(), 100, 0, 0, bench.out.slice()));
        scribble(bench.out.copy_to_vec().unwrap()[0] - 40, 0x77);
        free_others(&bench, 8);
        assert_eq!(bench.fault().kind, FaultKind::WriteAfterFree);
        assert_eq!((bench.heap.leaks(0).unwrap().count, bench.heap.check().unwrap()[0].invariant), (1, "D3"));
    }
}

/// An allocation that succeeds after the quarantine was emptied has not failed.
#[test]
fn the_size_of_a_failed_allocation_is_the_requested_one() {
    let bench = Bench::new(warpheap::Device::cpu(), BYTES, 1 << 10);
    let failed = || {
        let stats = stats(&bench.heap);
        (stats.failed_allocations, stats.last_failed_bytes)
    };
    free(&bench.heap, &allocate(&bench.heap, 1, BYTES / 2));
    let live = allocate(&bench.heap, 1, BYTES / 2 + 100_000);
    assert_eq!(failed(), (0, 0));
    assert!(bench.heap.allocate(layout_of(BYTES / 2)).unwrap().is_none());
    assert_eq!(failed(), (1, BYTES / 2));
    free(&bench.heap, &live);
}

#[test]
fn a_map_has_the_blocks_in_quarantine() {
    let bench = Bench::new(warpheap::Device::cpu(), BYTES, 1 << 10);
    let (small, large) = (allocate(&bench.heap, 8, 40), allocate(&bench.heap, 8, 300_000));
    free(&bench.heap, &small[..5]);
    free(&bench.heap, &large[..3]);
    let map = bench.heap.snapshot().unwrap().map("in quarantine");
    assert_eq!(map.validate(), Ok(()));
    let (totals, stats) = (map.totals(), stats(&bench.heap));
    assert_eq!((totals.live_blocks, stats.quarantined_blocks), (8, 8));
    let (live, quarantined) = (stats.usage.used_bytes, stats.quarantined_bytes);
    assert_eq!((totals.live_bytes, totals.quarantined_bytes), (live, quarantined));
    assert!(totals.quarantined_bytes > 900_000 && totals.free_bytes == stats.free_bytes);
}

/// The fewest turns after which an address was allocated again.
fn soonest(addresses: &[u64]) -> usize {
    let again = |(i, address): (usize, &u64)| addresses[..i].iter().rev().position(|other| other == address);
    addresses.iter().enumerate().filter_map(again).min().unwrap_or(addresses.len())
}

#[test]
fn a_freed_block_is_not_handed_out_before_as_many_frees_as_were_set() {
    // Blocks with slabs of their own, and blocks of a size class.
    for (size, turns) in [(70_000, 300), (3000, 4000)] {
        let run = |quarantine| {
            let device = warpheap::Device::cpu();
            let heap =
                Heap::builder(2 << 20).shards(1).debug(true).quarantine(quarantine).build(&device).unwrap();
            let bench = Bench { out: device.zeroed(turns).unwrap(), heap, device };
            bench.run(churn_alone, 1, (bench.heap.handle(), size, bench.out.slice()));
            assert_eq!(bench.faults(), []);
            let kept = bench.stats().quarantined_blocks;
            assert_eq!(kept, u64::from(quarantine));
            soonest(&bench.out.copy_to_vec().unwrap())
        };
        let without = run(0);
        let with = run(without as u32 + 5);
        assert!(with >= without + 5, "{size}: {with} turns, and without a quarantine {without}");
        if size == 70_000 {
            assert_eq!(without, 0, "the same slabs each time, once all were used");
        }
    }
}

#[test]
fn blocks_in_quarantine_are_counted_and_are_no_leaks() {
    for bench in benches(100) {
        free_others(&bench, 60);
        let large = bench.heap.allocate(layout_of(200_000)).unwrap().unwrap();
        free(&bench.heap, &[large]);
        let some = bench.stats();
        assert_eq!((some.live_blocks, some.quarantined_blocks), (0, 61));
        assert_eq!(some.classes.iter().map(|class| class.quarantined_blocks).sum::<u64>(), 60);
        assert!(some.quarantined_bytes >= 60 * 40 + 200_000 && some.free_bytes < BYTES);
        free_others(&bench, 99);
        let full = bench.stats();
        assert_eq!((full.live_blocks, full.quarantined_blocks), (0, 100));
        assert_eq!((bench.heap.leaks(1).unwrap().count, bench.faults().len()), (0, 0));
    }
}

#[test]
fn a_full_heap_empties_its_quarantine() {
    for device in cpus() {
        let bench = Bench::new(device, 1 << 20, 1000);
        let all = |size| {
            let requested = vec![layout_of(size); 300];
            bench.heap.allocate_many(&requested).unwrap().into_iter().flatten().collect::<Vec<_>>()
        };
        let first = all(4000);
        assert!(first.len() > 200, "{}", first.len());
        let failed = stats(&bench.heap).failed_allocations;
        assert_eq!(failed, 300 - first.len() as u64, "each failed allocation once");
        free(&bench.heap, &first);
        assert_eq!(bench.stats().quarantined_blocks, first.len() as u64);
        let again = all(4000);
        assert_eq!(again.len(), first.len(), "nothing is lost");
        assert_eq!(bench.stats().quarantined_blocks, 0);
        free(&bench.heap, &again);
        let whole = bench.heap.allocate(layout_of((1 << 20) - 200)).unwrap();
        assert!(whole.is_some(), "other classes' blocks come back as well");
        assert!(bench.heap.allocate(layout_of(1)).unwrap().is_none());
        assert_eq!(bench.faults(), []);
    }
}

/// Also detects a write after free when it evicts a block.
#[test]
fn blocks_that_a_full_heap_evicts_are_checked() {
    for device in cpus() {
        let bench = Bench::new(device, 1 << 20, 10);
        bench.run(stray, 1, (bench.heap.handle(), 500_000, 0, 0, bench.out.slice()));
        let user = bench.out.copy_to_vec().unwrap()[0];
        scribble(user + 9, 0);
        assert!(bench.heap.allocate(layout_of(900_000)).unwrap().is_some());
        assert_eq!((bench.fault().kind, bench.fault().address), (FaultKind::WriteAfterFree, user + 9));
    }
}

#[test]
fn a_second_free_is_seen_in_quarantine_and_after_it() {
    for bench in benches(40) {
        bench.run(take, 1, (bench.heap.handle(), 100, 1, bench.out.slice()));
        let user = bench.out.copy_to_vec().unwrap()[0];
        bench.run(give, 1, (bench.heap.handle(), bench.out.slice(), 0, 3));
        let double: Vec<_> = bench.faults().iter().map(|fault| (fault.kind, fault.address)).collect();
        assert_eq!(double, [(FaultKind::DoubleFree, user); 2]);
        assert_eq!(bench.stats().quarantined_blocks, 1);
        free_others(&bench, 40);
        bench.run(give, 1, (bench.heap.handle(), bench.out.slice(), 0, 1));
        assert_eq!(bench.faults().len(), 3);
        assert_eq!(bench.faults()[2].kind, FaultKind::DoubleFree);
        assert_eq!(bench.stats().live_blocks, 0);
    }
}

#[test]
fn of_threads_that_free_one_block_at_once_one_does() {
    for bench in benches(4) {
        bench.run(take, 1, (bench.heap.handle(), 100, 1, bench.out.slice()));
        bench.run(give_all, 50, (bench.heap.handle(), bench.out.slice()));
        assert_eq!(bench.faults().len(), 49);
        assert!(bench.faults().iter().all(|fault| fault.kind == FaultKind::DoubleFree));
        assert_eq!(bench.stats().quarantined_blocks, 1);
    }
}

#[test]
fn addresses_outside_blocks_are_not_freed() {
    for bench in benches(4) {
        bench.run(take, 4, (bench.heap.handle(), 100, 1, bench.out.slice()));
        bench.run(give, 4, (bench.heap.handle(), bench.out.slice(), 8, 1));
        bench.run(give, 4, (bench.heap.handle(), bench.out.slice(), 1 << 40, 1));
        let kinds: Vec<_> = bench.faults().iter().map(|fault| fault.kind).collect();
        assert_eq!(kinds[..4], [FaultKind::InteriorFree; 4]);
        assert_eq!(kinds[4..], [FaultKind::ForeignFree; 4]);
        assert_eq!(bench.stats().live_blocks, 4);
    }
}

/// Also if the record of the previous allocation is still in memory and marks the block as live.
#[test]
fn a_block_of_before_a_reset_is_none() {
    for device in cpus() {
        let heap = Heap::builder(1 << 20).shards(1).debug(true).build(&device).unwrap();
        // One by one: the place of the first block depends on the number of lanes that allocate.
        let one = |heap: &Heap| heap.allocate(layout_of(100)).unwrap().unwrap().0 as u64;
        let before = [(); 4].map(|()| one(&heap));
        let mut bench = Bench { out: device.from_slice(&before).unwrap(), heap, device };
        bench.heap.reset().unwrap();
        assert_eq!(one(&bench.heap), before[0], "the same slab, of the same class");
        bench.run(give, 4, (bench.heap.handle(), bench.out.slice(), 0, 1));
        assert_eq!(bench.faults().len(), 3);
        let stats = bench.stats();
        assert_eq!((stats.live_blocks, stats.quarantined_blocks), (0, 1));
    }
}
