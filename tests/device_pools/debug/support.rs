//! Debug heaps, and launches of kernels that use them.

use crate::support::{devices, run_in_blocks, stats};
use warpheap::device_pools::{Heap, HeapStats};
use warpheap::simt::Mode;
use warpheap::{Device, DeviceBuffer};
use warpheap_device::fault::Fault;
use warpheap_device::kernel::Kernel;

pub const BYTES: u64 = 8 << 20;
/// Threads per block in [`Bench::run`].
pub const BLOCK: u32 = 64;

pub struct Bench {
    pub device: Device,
    pub heap: Heap,
    pub out: DeviceBuffer<u64>,
}

fn of_workers() -> impl Iterator<Item = Device> {
    [1, 16].into_iter().map(|workers| Device::cpu_with(Mode::Parallel { workers }))
}

pub fn cpus() -> impl Iterator<Item = Device> {
    let replays = (0..4).map(|seed| Device::cpu_with(Mode::Replay { seed }));
    replays.chain(of_workers()).chain([Device::cpu()])
}

/// All devices, including the GPU. With `WARPHEAP_REQUIRE_CUDA=1` a GPU is required.
pub fn all_devices() -> impl Iterator<Item = Device> {
    of_workers().chain(devices(4))
}

/// One debug heap of [`BYTES`] on each CPU, with `quarantine` blocks in quarantine.
pub fn benches(quarantine: u32) -> impl Iterator<Item = Bench> {
    cpus().map(move |device| Bench::new(device, BYTES, quarantine))
}

impl Bench {
    pub fn new(device: Device, bytes: u64, quarantine: u32) -> Bench {
        let heap = Heap::builder(bytes).debug(true).quarantine(quarantine).build(&device).unwrap();
        Bench { out: device.zeroed(4096).unwrap(), device, heap }
    }

    /// Runs `kernel` with `threads` threads, in blocks of [`BLOCK`].
    pub fn run<K: Kernel>(&self, kernel: K, threads: u32, args: K::Args) {
        run_in_blocks(&self.device, kernel, threads, BLOCK, args);
    }

    pub fn faults(&self) -> Vec<Fault> {
        let faults = self.heap.faults().unwrap();
        assert_eq!(faults.count, faults.first.len() as u64, "few enough to be kept");
        faults.first
    }

    /// Returns the only recorded fault.
    pub fn fault(&self) -> Fault {
        let faults = self.faults();
        assert_eq!(faults.len(), 1, "{faults:?}");
        faults[0]
    }

    /// The line of the allocation site that a fault names.
    pub fn line_of(&self, fault: &Fault) -> u32 {
        self.heap.snapshot().unwrap().site(fault.detail).expect("a site").line
    }

    /// The statistics, after the heap passed its check.
    pub fn stats(&self) -> HeapStats {
        assert_eq!(self.heap.check().unwrap(), []);
        stats(&self.heap)
    }
}
