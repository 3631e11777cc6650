//! The heap.

use crate::support::{cpus, run};
use std::alloc::Layout;
use std::ptr::NonNull;
use warpheap::device_pools::Heap;
use warpheap::{Device, DeviceBuffer};
use warpheap_device::fault::FaultKind;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{heap, kernel, thread};

/// The smallest heap size.
const BYTES: u64 = 1 << 20;

/// The request of thread `i`: a size, and for every seventh thread a larger alignment.
const fn request(i: u32, mixed: u32) -> (u32, u32) {
    let size = if mixed == 0 { 64 } else { 1 + i * i * 7 % 900 };
    (size, if i.is_multiple_of(7) { 256 } else { 1 })
}

kernel! {
    /// Every thread allocates a block and stores its address. If `mixed` is 2, the thirds of a warp
    /// allocate in separate branches.
    ///
    /// # Safety
    /// The heap is live, and `out` has a word for each thread.
    pub unsafe fn heap_take(pool: heap::Heap, out: DeviceSlice<u64>, mixed: u32) {
        let i = thread::index_1d();
        let (size, align) = request(i, mixed);
        let layout = Layout::from_size_align(size as usize, align as usize).unwrap();
        let one = || pool.alloc(layout).map_or(0, |block| block.as_ptr() as u64);
        let block = match (mixed, i % 3) {
            (2, 0) => one(),
            (2, 1) => { thread::nanosleep(1); one() }
            _ => one(),
        };
        // SAFETY: each thread has its own word.
        unsafe { out.set(i.into(), block) };
    }

    /// Thread `i` frees the block of thread `i * step`, `times` times.
    ///
    /// # Safety
    /// `heap_take` has filled `out`, whose length is coprime to `step`.
    pub unsafe fn heap_give(pool: heap::Heap, out: DeviceSlice<u64>, step: u32, times: u32) {
        let place = u64::from(thread::index_1d()) * u64::from(step) % out.len();
        // SAFETY: no thread writes to `out` in this kernel.
        let block = unsafe { out.get(place) }.unwrap_or(0);
        for _ in 0..times {
            if let Some(block) = NonNull::new(block as *mut u8) {
                // SAFETY: no other thread frees this block. A second free is the purpose of the
                // test, and no thread allocates meanwhile.
                unsafe { pool.free(block) };
            }
        }
    }

    /// Every thread repeatedly allocates and frees a block, of a different size in each round.
    ///
    /// # Safety
    /// The heap is live, and `out` has a word for each thread, which receives its number of failed
    /// allocations.
    pub unsafe fn heap_churn(pool: heap::Heap, out: DeviceSlice<u64>, rounds: u32) {
        let i = thread::index_1d();
        let mut refused = 0;
        for round in 0..rounds {
            let size = 16 << ((i / 32 + round) % 4);
            match pool.alloc(Layout::from_size_align(size, 1).unwrap()) {
                // SAFETY: this thread allocated the block and does not use it afterwards.
                Some(block) => unsafe { pool.free(block) },
                None => refused += 1,
            }
        }
        // SAFETY: each thread has its own word.
        unsafe { out.set(i.into(), refused) };
    }

    /// One thread allocates `bytes` bytes at once, frees them, and stores whether the allocation
    /// succeeded.
    ///
    /// # Safety
    /// The heap is live, and `out` has a word.
    pub unsafe fn heap_take_bytes(pool: heap::Heap, out: DeviceSlice<u64>, bytes: u64) {
        let whole = pool.alloc(Layout::from_size_align(bytes as usize, 1).unwrap());
        // SAFETY: this is the only thread.
        unsafe { out.set(0, whole.is_some().into()) };
        if let Some(whole) = whole {
            // SAFETY: this thread allocated the block and does not use it afterwards.
            unsafe { pool.free(whole) };
        }
    }
}

fn new_heap(device: &Device) -> Heap {
    Heap::builder(BYTES).build(device).unwrap()
}

/// Checks that the allocated blocks are inside the heap, aligned and disjoint. Returns their
/// number.
fn check_blocks(heap: &Heap, out: &DeviceBuffer<u64>, mixed: u32, mode: &str) -> usize {
    let base = heap.memory().address();
    let blocks = out.copy_to_vec().unwrap();
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for (i, block) in (0..).zip(blocks).filter(|(_, block)| *block != 0) {
        let (size, align) = request(i, mixed);
        assert_eq!(block % u64::from(align), 0, "{mode}: thread {i}");
        assert!(block >= base && block + u64::from(size) <= base + heap.capacity(), "{mode}");
        spans.push((block, block + u64::from(size)));
    }
    spans.sort_unstable();
    assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{mode}: two blocks share memory");
    spans.len()
}

/// Checks that nothing is allocated: the full capacity can be allocated as one block.
fn check_all_free(device: &Device, heap: &Heap, mode: &str) {
    let out = device.zeroed::<u64>(1).unwrap();
    run(device, heap_take_bytes, 1, (heap.handle(), out.slice(), heap.capacity()));
    assert_eq!(out.copy_to_vec().unwrap(), [1], "{mode}: the whole heap in one piece");
    assert_eq!(heap.faults().unwrap().count, 0, "{mode}");
}

#[test]
fn blocks_of_all_sizes_are_disjoint_and_come_back() {
    for (mode, device) in cpus(20) {
        let heap = new_heap(&device);
        for mixed in [0, 1, 2] {
            let out = device.zeroed::<u64>(240).unwrap();
            run(&device, heap_take, 240, (heap.handle(), out.slice(), mixed));
            assert_eq!(check_blocks(&heap, &out, mixed, &mode), 240, "{mode}: there is room for all");
            run(&device, heap_give, 240, (heap.handle(), out.slice(), 7, 1));
            check_all_free(&device, &heap, &mode);
        }
    }
}

#[test]
fn a_churn_with_room_refuses_nobody() {
    for (mode, device) in cpus(20) {
        let heap = new_heap(&device);
        let out = device.zeroed::<u64>(240).unwrap();
        run(&device, heap_churn, 240, (heap.handle(), out.slice(), 6));
        assert_eq!(out.copy_to_vec().unwrap().iter().sum::<u64>(), 0, "{mode}: refusals");
        check_all_free(&device, &heap, &mode);
    }
}

#[test]
fn a_second_free_is_recorded_and_changes_nothing() {
    for (mode, device) in cpus(20) {
        let mut heap = new_heap(&device);
        let out = device.zeroed::<u64>(80).unwrap();
        run(&device, heap_take, 80, (heap.handle(), out.slice(), 1));
        run(&device, heap_give, 80, (heap.handle(), out.slice(), 3, 2));
        let faults = heap.faults().unwrap();
        assert_eq!(faults.count, 80, "{mode}");
        assert!(faults.first.iter().all(|fault| fault.kind == FaultKind::DoubleFree), "{mode}");
        let blocks = out.copy_to_vec().unwrap();
        assert!(faults.first.iter().all(|fault| blocks.contains(&fault.address)), "{mode}");
        heap.reset().unwrap();
        check_all_free(&device, &heap, &mode);
    }
}
