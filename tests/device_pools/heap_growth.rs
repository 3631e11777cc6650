//! A heap that starts small and grows: its capacity, its live blocks, and allocations that fail.
//!
//! Also on a GPU, if there is one and the kernels were built. On the CPU an access to addresses
//! without memory ends the program.

use crate::kernels::replace;
use crate::support::{checked_stats as stats, devices, free, layout_of, run_in_blocks};
use std::alloc::Layout;
use std::collections::BTreeSet;
use warpheap::GrowableBuffer;
use warpheap::device_pools::Heap;
use warpheap::error::{Dangling, OutOfMemory};
use warpheap::simt::{Executor, Mode};
use warpheap::{Backend, Device, DeviceMemory, Error, LaunchConfig};
use warpheap_device::kernel::DevicePtr;

/// Replays on each CPU test.
const SEEDS: u64 = 2;
const MIB: u64 = 1 << 20;
const BYTES: u64 = 64 * MIB;
/// Size of the blocks that fill a heap: a quarter of a slab.
const BLOCK: u64 = 4096;

/// A heap of [`BYTES`] with memory for `initial`. Its four shards have shares of 16 MiB.
fn heap(device: &Device, initial: u64) -> Heap {
    Heap::builder(BYTES).shards(4).initial(initial).build(device).unwrap()
}

/// The capacity of a heap that was asked to hold `bytes`.
fn rounded(device: &Device, bytes: u64) -> u64 {
    bytes.next_multiple_of(GrowableBuffer::reserve(device, 1).unwrap().granularity()).min(BYTES)
}

/// Allocates blocks of `size` until the heap is out of memory.
fn allocate_all(heap: &Heap, size: u64) -> Vec<DevicePtr<u8>> {
    let (mut all, mut count) = (Vec::new(), heap.memory().bytes() / size);
    loop {
        let got = heap.allocate_many(&vec![layout_of(size); count as usize]).unwrap();
        let before = all.len();
        all.extend(got.into_iter().flatten());
        if all.len() == before {
            return all;
        }
        count = 100;
    }
}

/// The memory of a block of the heap, for copies.
fn memory_of(device: &Device, block: DevicePtr<u8>, bytes: u64) -> DeviceMemory {
    // SAFETY: a live block inside the heap's memory, which no kernel uses meanwhile.
    unsafe { DeviceMemory::from_raw(device, block.0 as u64, bytes) }
}

#[test]
fn a_heap_has_the_memory_that_it_starts_with() {
    for device in devices(SEEDS) {
        for initial in [MIB, 3 * MIB, 5 * MIB + 12_345, 40 * MIB, BYTES] {
            let heap = heap(&device, initial);
            let capacity = rounded(&device, initial);
            let new = stats(&heap);
            assert_eq!(
                (new.max_bytes, new.usage.reserved_bytes, new.free_bytes),
                (BYTES, capacity, capacity)
            );
            assert_eq!((heap.memory().bytes(), new.usage.largest_free_bytes.unwrap()), (capacity, capacity));
            if device.backend() == Backend::Cpu {
                assert_eq!(device.memory_in_use().0, capacity + heap.metadata_bytes());
            }
        }
    }
}

#[test]
fn a_full_heap_that_grows_allocates_again() {
    for device in devices(SEEDS) {
        let mut heap = heap(&device, 4 * MIB);
        let (mut all, base) = (BTreeSet::new(), heap.memory().address());
        // A part of a share, the rest of it plus a full share, and all shares.
        for bytes in [4 * MIB, 12 * MIB, 40 * MIB, 41 * MIB, BYTES] {
            let capacity = heap.grow_to(bytes).unwrap();
            assert_eq!((capacity, heap.memory().address()), (rounded(&device, bytes), base));
            assert_eq!(stats(&heap).free_bytes, capacity - all.len() as u64 * BLOCK, "what is new is free");
            let blocks = allocate_all(&heap, BLOCK);
            assert!(blocks.iter().all(|block| block.0 as u64 + BLOCK <= base + capacity));
            assert!(blocks.iter().all(|block| all.insert(block.0 as u64)), "no block is allocated twice");
            assert_eq!(all.len() as u64, capacity / BLOCK, "all that is there, and no more");
            let full = stats(&heap);
            assert_eq!((full.usage.reserved_bytes, full.free_bytes), (capacity, 0));
            assert!(full.failed_allocations > 0, "allocations failed: {full:#?}");
        }
        free(&heap, &all.iter().map(|block| DevicePtr(*block as *mut u8)).collect::<Vec<_>>());
        assert_eq!(stats(&heap).free_bytes, BYTES);
        assert!(heap.allocate(layout_of(BYTES)).unwrap().is_some(), "one piece, over all growths");
    }
}

#[test]
fn every_class_that_was_exhausted_finds_new_memory() {
    for device in devices(SEEDS) {
        let mut heap = heap(&device, 2 * MIB);
        let mut kept = allocate_all(&heap, BLOCK);
        let layout = heap.layout();
        let sizes: Vec<u64> = [16, 100, 1024, 5000, u64::from(layout.small_bytes), 200_000, 3 * MIB].into();
        for size in &sizes {
            assert!(heap.allocate(layout_of(*size)).unwrap().is_none(), "{size} B of a full heap");
        }
        heap.grow_to(32 * MIB).unwrap();
        for size in &sizes {
            kept.push(
                heap.allocate(layout_of(*size))
                    .unwrap()
                    .unwrap_or_else(|| panic!("{size} B after the growth")),
            );
        }
        assert_eq!(stats(&heap).live_blocks, kept.len() as u64);
        free(&heap, &kept);
        assert_eq!(stats(&heap).live_blocks, 0);
    }
}

#[test]
fn live_blocks_keep_place_and_contents() {
    for device in devices(SEEDS) {
        let mut heap = heap(&device, 6 * MIB);
        let (base, mut live) = (heap.memory().address(), Vec::new());
        for (i, bytes) in [6 * MIB, 8 * MIB, 30 * MIB, BYTES].into_iter().enumerate() {
            heap.grow_to(bytes).unwrap();
            for size in [64, 3000, 70_000, MIB] {
                let block = heap.allocate(layout_of(size)).unwrap().expect("there is room");
                let value = 0x1000 * i as u64 + size;
                memory_of(&device, block, size).write(0, &vec![value; (size / 8) as usize]).unwrap();
                live.push((block, size, value));
            }
            assert_eq!((heap.memory().address(), stats(&heap).live_blocks), (base, live.len() as u64));
        }
        for (block, size, value) in live {
            let mut words = vec![0_u64; (size / 8) as usize];
            memory_of(&device, block, size).read(0, &mut words).unwrap();
            assert!(words.iter().all(|word| *word == value), "{size} B");
        }
    }
}

#[test]
fn a_large_allocation_may_lie_in_several_growths_and_never_beyond() {
    for device in devices(SEEDS) {
        let mut heap = heap(&device, 4 * MIB);
        let small = rounded(&device, 4 * MIB);
        assert!(heap.allocate(layout_of(small + 1)).unwrap().is_none(), "more than there is");
        let first = heap.allocate(layout_of(small)).unwrap().expect("all that there is");
        free(&heap, &[first]);
        let large = heap.grow_to(20 * MIB).unwrap();
        assert!(heap.allocate(layout_of(large + 1)).unwrap().is_none(), "more than there is");
        let block = heap.allocate(layout_of(large)).unwrap().expect("all that there is now");
        // Every byte of it is backed by memory.
        let mut memory = memory_of(&device, block, large);
        memory.fill(0x5a).unwrap();
        let mut ends = [0_u8; 2];
        memory.read(large - 2, &mut ends).unwrap();
        assert_eq!((ends, stats(&heap).large_bytes), ([0x5a; 2], large));
        for align in [1 << 20, 2 << 20] {
            assert!(heap.allocate(Layout::from_size_align(1, align).unwrap()).unwrap().is_none());
        }
    }
}

#[test]
fn a_reset_keeps_the_size() {
    for device in devices(SEEDS) {
        let mut heap = heap(&device, 4 * MIB);
        let before = heap.snapshot().unwrap();
        allocate_all(&heap, 1000);
        let grown = heap.grow_to(20 * MIB).unwrap();
        allocate_all(&heap, 1000);
        heap.reset().unwrap();
        let new = stats(&heap);
        assert_eq!(
            (new.usage.reserved_bytes, new.free_bytes, new.usage.largest_free_bytes.unwrap()),
            (grown, grown, grown)
        );
        assert_eq!(allocate_all(&heap, BLOCK).len() as u64, grown / BLOCK);
        assert_eq!(
            (before.stats().usage.reserved_bytes, before.check()),
            (rounded(&device, 4 * MIB), vec![])
        );
    }
}

#[test]
fn a_growth_to_less_changes_nothing() {
    for device in devices(SEEDS) {
        let mut heap = heap(&device, 10 * MIB);
        let capacity = rounded(&device, 10 * MIB);
        allocate_all(&heap, BLOCK);
        for bytes in [0, 1, 3 * MIB, capacity - 1, capacity] {
            assert_eq!(heap.grow_to(bytes).unwrap(), capacity);
        }
        assert_eq!((stats(&heap).free_bytes, stats(&heap).usage.reserved_bytes), (0, capacity));
    }
}

#[test]
fn beyond_what_it_was_built_for_is_an_error() {
    for device in devices(SEEDS) {
        for builder in [Heap::builder(BYTES), Heap::builder(BYTES).initial(4 * MIB)] {
            let mut heap = builder.build(&device).unwrap();
            allocate_all(&heap, BLOCK);
            let before = stats(&heap);
            for bytes in [BYTES + 1, BYTES + MIB, 1 << 50, u64::MAX] {
                let error = heap.grow_to(bytes).unwrap_err();
                assert!(matches!(error, Error::OutOfMemory(OutOfMemory::Reservation { .. })), "{error}");
                assert!(error.to_string().contains("with `initial`"), "{error}");
            }
            assert_eq!(stats(&heap), before);
            assert_eq!(heap.grow_to(BYTES).unwrap(), BYTES);
        }
    }
}

#[test]
fn a_heap_without_an_initial_size_has_all_of_it() {
    for device in devices(SEEDS) {
        let mut heap = Heap::builder(BYTES + 12_345).build(&device).unwrap();
        let all = (BYTES + 12_345).next_multiple_of(heap.layout().slab_bytes().into());
        for bytes in [1, BYTES, BYTES + 12_345] {
            assert_eq!(heap.grow_to(bytes).unwrap(), all);
        }
        assert_eq!(stats(&heap).fresh_bytes, all);
        let mut odd = Heap::builder(BYTES + 12_345).initial(BYTES + 12_345).build(&device).unwrap();
        assert_eq!((odd.grow_to(BYTES + 12_345).unwrap(), stats(&odd).free_bytes), (all, all));
    }
}

#[test]
fn a_growth_that_finds_no_memory_changes_nothing() {
    let executor = Executor::new(Mode::Parallel { workers: 2 });
    let device = Device::cpu_with_executor(executor, 20 * MIB);
    let mut heap = heap(&device, 8 * MIB);
    let blocks = allocate_all(&heap, BLOCK);
    free(&heap, &blocks[..100]);
    let (before, in_use) = (stats(&heap), device.memory_in_use());
    for _ in 0..2 {
        let error = heap.grow_to(40 * MIB).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory(OutOfMemory::Device { .. })), "{error}");
        assert_eq!((stats(&heap), device.memory_in_use()), (before.clone(), in_use));
    }
    assert_eq!(allocate_all(&heap, BLOCK).len(), 100, "what there was, and no more");
    let grown = heap.grow_to(12 * MIB).unwrap();
    assert_eq!(allocate_all(&heap, BLOCK).len() as u64, (grown - 8 * MIB) / BLOCK);
    let error = Heap::builder(BYTES).initial(40 * MIB).build(&device).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(OutOfMemory::Device { .. })), "{error}");
    drop(heap);
    assert_eq!(device.memory_in_use(), (0, 0));
}

/// Growth between kernels that leave blocks live, some cursors half full and others exhausted. On
/// the CPU only: there is no PTX of the kernel.
#[test]
fn it_grows_between_kernels_that_keep_their_blocks() {
    const THREADS: u32 = 2048;
    for device in devices(SEEDS).filter(|device| device.backend() == Backend::Cpu) {
        let mut heap = Heap::builder(BYTES).shards(4).initial(2 * MIB).build(&device).unwrap();
        let (words, handle) = (device.zeroed::<u64>(THREADS as usize).unwrap(), heap.handle());
        let mut failed = Vec::new();
        for round in 0..11 {
            run_in_blocks(&device, replace, THREADS, 128, (handle, words.slice(), 16, 13, round));
            let capacity = heap.grow_to((2 + 6 * round) * MIB).unwrap();
            let held = words.copy_to_vec().unwrap();
            failed.push(held.iter().filter(|block| **block == 0).count());
            let stats = stats(&heap);
            assert_eq!((stats.usage.reserved_bytes, stats.faults), (capacity, 0));
            assert_eq!(stats.live_blocks as usize, THREADS as usize - failed.last().unwrap());
        }
        assert!(failed[0] > 0 && failed[10] == 0, "too little first, and enough at last: {failed:?}");
        let held = words.copy_to_vec().unwrap();
        free(&heap, &held.into_iter().map(|block| DevicePtr(block as *mut u8)).collect::<Vec<_>>());
        assert_eq!((stats(&heap).live_blocks, heap.faults().unwrap().count), (0, 0));
        drop(heap);
        let (stream, module) = (device.stream().unwrap(), device.native_module().unwrap());
        let one = LaunchConfig::linear(1, 1);
        // SAFETY: the launch fails its check, so no kernel runs.
        let gone = unsafe { stream.launch(&module, replace, &one, (handle, words.slice(), 16, 13, 0)) };
        let gone = gone.unwrap_err();
        assert!(matches!(gone, Error::Dangling(Dangling::Argument { .. })), "{gone}");
    }
}
