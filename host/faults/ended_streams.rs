//! Memory that was freed on a stream that has ended, or is about to end, serves other streams.

use super::orders::launch_write;
use crate::driver::fault_injection::{Call, late_device};
use crate::driver::{Device, Stream};
use crate::host_pools::{BlockPool, CachingPool, DeviceAllocator, SyncDriverAllocator};
use std::alloc::Layout;
use std::sync::{Arc, Mutex};
use warpheap_device::kernel::DevicePtr;

const BLOCK: Layout = Layout::new::<[u64; 64]>();

type Pool = Arc<dyn DeviceAllocator>;

/// A pool of that many blocks.
type Make = fn(&Device, usize) -> Pool;

const POOLS: [Make; 2] = [
    |device, blocks| Arc::new(BlockPool::builder(BLOCK, blocks).build(device).unwrap()),
    |device, blocks| {
        let builder = CachingPool::builder().segment_bytes(512).spare_bytes(0);
        let upstream = SyncDriverAllocator::new(device);
        Arc::new(builder.max_bytes(512 * blocks as u64).build_over(upstream).unwrap())
    },
];

fn free(pool: &Pool, ptr: DevicePtr<u8>, stream: &Stream) {
    // SAFETY: a live block; only work of the stream uses it.
    unsafe { pool.deallocate(ptr, BLOCK, stream) }.unwrap();
}

#[test]
fn all_blocks_of_ended_streams_are_allocated_again_without_a_wait_of_the_host() {
    for make in POOLS {
        for blocks in [1, 2, 7, 100] {
            let (device, _, late) = late_device(16 << 20, blocks as u64, 0);
            let (pool, module) = (make(&device, blocks), device.native_module().unwrap());
            for _ in 0..5 {
                let streams = [(); 3].map(|()| device.stream().unwrap());
                let all: Vec<_> = (0..blocks)
                    .map(|number| {
                        let stream = &streams[number % 3];
                        let ptr =
                            pool.allocate(BLOCK, stream).unwrap_or_else(|error| panic!("{number}: {error}"));
                        launch_write(&module, stream, (ptr, BLOCK), 1);
                        (ptr, stream)
                    })
                    .collect();
                all.into_iter().for_each(|(ptr, stream)| free(&pool, ptr, stream));
            }
            let done = late.run_some(usize::MAX);
            assert!(done >= 5 * blocks, "{done} kernels are left: no allocation has waited on the host");
        }
    }
}

/// In the record of a stream's last point: the stream has no handle any more, and its last point is
/// not known yet.
#[test]
fn blocks_of_a_stream_that_is_about_to_end_are_allocated() {
    for make in POOLS {
        for blocks in [1, 3] {
            let (device, faults, late) = late_device(16 << 20, 1, 0);
            let (pool, module) = (make(&device, blocks), device.native_module().unwrap());
            let [ending, other] = [(); 2].map(|()| device.stream().unwrap());
            let all: Vec<_> = (0..blocks).map(|_| pool.allocate(BLOCK, &ending).unwrap()).collect();
            for ptr in all {
                launch_write(&module, &ending, (ptr, BLOCK), 1);
                free(&pool, ptr, &ending);
            }
            let allocated = Arc::new(Mutex::new(Vec::new()));
            let (theirs, of) = (allocated.clone(), pool.clone());
            faults.before(Call::Record, move || {
                theirs.lock().unwrap().extend((0..blocks).map(|_| of.allocate(BLOCK, &other).map(drop)));
            });
            drop(ending);
            let allocated = std::mem::take(&mut *allocated.lock().unwrap());
            assert_eq!(allocated.len(), blocks, "the stream's last point is recorded");
            allocated.into_iter().for_each(|outcome| outcome.unwrap());
            assert_eq!(late.run_some(usize::MAX), 0, "the host has waited for the kernels");
        }
    }
}
