//! Pools that kernels find by address, as kernels in other languages do.

use crate::support::run_in_blocks;
use std::alloc::Layout;
use warpheap::Device;
use warpheap::device_pools::{Bump, FreeList, Heap};
use warpheap_device::kernel::{DevicePtr, DeviceSlice};
use warpheap_device::{bump, freelist, heap, kernel};

const BYTES: u64 = 1 << 20;

/// # Safety
/// `at` is the address of a value that outlives the kernel.
unsafe fn at<'a, T>(at: DevicePtr<u64>) -> &'a T {
    // SAFETY: `at` requires the address of a value that outlives the kernel.
    unsafe { &*at.0.cast() }
}

kernel! {
    /// Allocates a block from each of three pools. For one thread.
    ///
    /// # Safety
    /// The first three are addresses of an arena, a free list and a heap. `out` is live and nothing
    /// else accesses it.
    unsafe fn allocate_by_address(
        arena: DevicePtr<u64>,
        list: DevicePtr<u64>,
        heap: DevicePtr<u64>,
        out: DeviceSlice<u64>,
    ) {
        // SAFETY: the address of an arena, as `allocate_by_address` requires.
        let arena = unsafe { at::<bump::Bump>(arena) };
        // SAFETY: the address of a free list, as `allocate_by_address` requires.
        let list = unsafe { at::<freelist::FreeList>(list) };
        // SAFETY: the address of a heap, as `allocate_by_address` requires.
        let heap = unsafe { at::<heap::Heap>(heap) };
        let layout = Layout::new::<u64>();
        for (i, block) in (0..).zip([arena.alloc(layout), list.alloc(), heap.alloc(layout)]) {
            // SAFETY: `out` is live and this is the only thread.
            unsafe { out.set(i, block.map_or(0, |block| block.as_ptr() as u64)) };
        }
    }
}

/// With no shard, one and several, and regions enough for more than one line of each pool's state.
#[test]
fn a_kernel_allocates_from_pools_at_their_addresses() {
    for shards in [0, 1, 3] {
        let device = Device::cpu();
        let mut arena = Bump::builder(BYTES).shards(shards).build(&device).unwrap();
        let mut list = FreeList::builder(10_000, 64).build(&device).unwrap();
        let mut heap = Heap::builder(BYTES).build(&device).unwrap();
        let out = device.zeroed::<u64>(3).unwrap();
        // A reset writes the copies of the handles again.
        for _ in 0..2 {
            let pools = [arena.device_address(), list.device_address(), heap.device_address()];
            let [first, second, third] = pools.map(|pool| DevicePtr(pool as *mut u64));
            run_in_blocks(&device, allocate_by_address, 1, 1, (first, second, third, out.slice()));
            let memories = [arena.memory(), list.memory(), heap.memory()];
            for (block, memory) in out.copy_to_vec().unwrap().into_iter().zip(memories) {
                let all = memory.address()..memory.address() + memory.bytes();
                assert!(all.contains(&block), "{block:#x} is not in {all:x?}");
            }
            assert_eq!(list.stats().unwrap().live_blocks, 1);
            assert_eq!(heap.stats().unwrap().live_blocks, 1);
            assert!(arena.stats().unwrap().usage.used_bytes > 0);
            arena.reset().unwrap();
            list.reset().unwrap();
            heap.reset().unwrap();
        }
    }
}
