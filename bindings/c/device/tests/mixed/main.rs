//! Two languages that share a heap, on the CPU: kernels that use the Rust interface and kernels
//! that use the C functions pass each other blocks, on two streams. `bindings/c/gpu/mixed.cu` does
//! the same on a GPU with kernels in CUDA C++.

mod kernels;

use kernels::{Counts, ExchangeRound, Heaps, exchange, rust_alloc, rust_exchange, rust_free, rust_pairs};
use std::ptr::NonNull;
use warpheap::device_pools::Heap;
use warpheap::{Device, DeviceBuffer, LaunchConfig};
use warpheap_c_device::functions::heap::{
    wh_free, wh_free_begin, wh_free_finish, wh_malloc_begin, wh_malloc_finish,
};
use warpheap_device::kernel;
use warpheap_device::kernel::DeviceSlice;

const THREADS: u32 = 256;
const STEPS: u32 = 40;

kernel! {
    /// As [`rust_exchange`], with the C functions, as C++ calls them: in two parts.
    ///
    /// # Safety
    /// As for [`rust_exchange`]; `heap` is the device address of the heap. If `plant` is not 0,
    /// each thread frees its blocks before it passes them on.
    unsafe fn c_exchange(
        heap: u64,
        cells: DeviceSlice<u64>,
        counts: DeviceSlice<u64>,
        round: ExchangeRound,
        plant: u32,
    ) {
        // SAFETY: the caller's promise.
        let heap = unsafe { &*(heap as *const warpheap_device::heap::Heap) };
        let own = Heaps {
            alloc: |bytes| {
                // SAFETY: a live heap.
                let step = unsafe { wh_malloc_begin(heap, bytes as usize) };
                let block = match step.rest {
                    0 => step.address as *mut u8,
                    // SAFETY: as `wh_malloc_begin` requires; all lanes that began are here.
                    _ => unsafe { wh_malloc_finish(Some(heap), bytes as usize, step) },
                };
                if plant != 0 {
                    // SAFETY: never: the fault that is planted.
                    unsafe { wh_free(Some(heap), block) };
                }
                block
            },
            free: |block: NonNull<u8>| {
                // SAFETY: the exchange frees a block that it owns.
                let step = unsafe { wh_free_begin(heap, block.as_ptr()) };
                if step.rest != 0 {
                    // SAFETY: as `wh_free_begin` requires; all lanes that began are here.
                    unsafe { wh_free_finish(Some(heap), block.as_ptr(), step) };
                }
            },
        };
        // SAFETY: the caller's promise.
        unsafe { exchange(&own, cells, Counts::of(counts), round) }
    }
}

struct Exchange {
    device: Device,
    heap: Heap,
    cells: DeviceBuffer<u64>,
    counts: DeviceBuffer<u64>,
}

impl Exchange {
    fn new() -> Exchange {
        let device = Device::cpu();
        let heap = Heap::builder(4 << 20).build(&device).unwrap();
        let (cells, counts) = (device.zeroed(64).unwrap(), device.zeroed(4).unwrap());
        Exchange { device, heap, cells, counts }
    }

    /// Both languages at once, then one of them empties the cells. Returns the counters.
    fn run(&self, plant: u32) -> [u64; 4] {
        let module = self.device.native_module().unwrap();
        let streams = [self.device.stream().unwrap(), self.device.stream().unwrap()];
        let grid = LaunchConfig::linear(THREADS, 64);
        let (cells, counts) = (self.cells.slice(), self.counts.slice());
        let round =
            |language, steps| ExchangeRound { seed: 7, steps, min_bytes: 16, max_bytes: 512, language };
        let rust = (self.heap.handle(), cells, counts, round(0, STEPS));
        let c = (self.heap.device_address(), cells, counts, round(1, STEPS), plant);
        // SAFETY: everything is live, and only exchanges access the cells.
        unsafe { streams[0].launch(&module, rust_exchange, &grid, rust) }.unwrap();
        // SAFETY: as above.
        unsafe { streams[1].launch(&module, c_exchange, &grid, c) }.unwrap();
        streams.iter().for_each(|stream| stream.synchronize().unwrap());
        let last = (self.heap.handle(), cells, counts, round(0, 0));
        // SAFETY: as above.
        unsafe { streams[0].launch(&module, rust_exchange, &grid, last) }.unwrap();
        streams[0].synchronize().unwrap();
        self.counts.copy_to_vec().unwrap().try_into().unwrap()
    }
}

#[test]
fn both_languages_free_each_others_blocks() {
    let both = Exchange::new();
    let [freed, failed, torn, crossed] = both.run(0);
    assert_eq!(freed + failed, u64::from(2 * THREADS * STEPS));
    assert_eq!((failed, torn), (0, 0));
    assert!(crossed > 0);
    let stats = both.heap.stats().unwrap();
    assert_eq!((stats.live_blocks, stats.faults), (0, 0));
    assert_eq!(both.heap.check().unwrap(), []);
}

#[test]
fn a_block_that_is_freed_too_early_is_found() {
    let both = Exchange::new();
    let [_, _, torn, _] = both.run(1);
    assert!(torn > 0 || both.heap.faults().unwrap().count > 0);
}

#[test]
fn the_kernels_of_the_timings_free_what_they_allocate() {
    let both = Exchange::new();
    let (module, stream) = (both.device.native_module().unwrap(), both.device.stream().unwrap());
    let blocks = both.device.zeroed::<u64>(THREADS as usize).unwrap();
    let grid = LaunchConfig::linear(THREADS, 64);
    let (heap, out) = (both.heap.handle(), blocks.slice());
    // SAFETY: everything is live, and only these kernels access the buffers.
    unsafe { stream.launch(&module, rust_alloc, &grid, (heap, out, 16)) }.unwrap();
    stream.synchronize().unwrap();
    assert_eq!(both.heap.stats().unwrap().live_blocks, u64::from(THREADS));
    // SAFETY: as above.
    unsafe { stream.launch(&module, rust_free, &grid, (heap, out)) }.unwrap();
    // SAFETY: as above.
    unsafe { stream.launch(&module, rust_pairs, &grid, (heap, both.counts.slice(), 8, 16)) }.unwrap();
    stream.synchronize().unwrap();
    assert_eq!(both.counts.copy_to_vec().unwrap(), [0; 4]);
    assert_eq!(both.heap.stats().unwrap().live_blocks, 0);
}
